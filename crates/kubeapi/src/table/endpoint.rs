//! Table columns of endpoints and endpoint slices.

use serde::Deserialize;

use super::Row;
use super::fields::{List, Meta, Text, first_of};
use super::kind::{AGE, Kind, NAME, cells, decode, text};

pub(super) const ENDPOINTS: Kind =
    Kind { columns: &[NAME, text("Endpoints", "Addresses and ports of the endpoints"), AGE], print: endpoints };

pub(super) const ENDPOINT_SLICES: Kind = Kind {
    columns: &[
        NAME,
        text("AddressType", "Type of the addresses"),
        text("Ports", "Ports of every endpoint"),
        text("Endpoints", "Addresses of the endpoints"),
        AGE,
    ],
    print: endpoint_slice,
};

/// Maximum number of addresses or ports that a cell shows.
const SHOWN: usize = 3;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Endpoints<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    subsets: List<Subset<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Subset<'j> {
    #[serde(borrow)]
    addresses: List<Address<'j>>,
    ports: List<Port>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Address<'j> {
    #[serde(borrow)]
    ip: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Port {
    port: i64,
}

/// Returns the first three `address:port` pairs (without a port if the subset has none), and the number of others.
fn addresses(subsets: &[Subset<'_>]) -> String {
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut shown = Vec::new();
    let mut count = 0;
    for Subset { addresses, ports } in subsets {
        count += addresses.len() * ports.len().max(1);
        if ports.is_empty() {
            shown.extend(addresses.iter().take(SHOWN - shown.len()).map(|address| address.ip.to_string()));
        }
        for Port { port } in ports.iter() {
            let host_ports = addresses
                .iter()
                .map(|Address { ip }| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") });
            shown.extend(host_ports.take(SHOWN - shown.len()));
        }
    }
    if count == 0 { String::new() } else { first_of(&shown, count) }
}

fn endpoints(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Endpoints { metadata, subsets } = decode(json)?;
    cells![&metadata.name, addresses(&subsets), metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct EndpointSlice<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    address_type: Text<'j>,
    #[serde(borrow)]
    ports: List<SlicePort<'j>>,
    #[serde(borrow)]
    endpoints: List<Endpoint<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SlicePort<'j> {
    port: Option<i64>,
    #[serde(borrow)]
    name: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Endpoint<'j> {
    #[serde(borrow)]
    addresses: List<Text<'j>>,
}

impl SlicePort<'_> {
    /// Returns the number of the port, or its name if the number is missing.
    fn text(&self) -> String {
        self.port.map_or_else(|| self.name.to_string(), |port| port.to_string())
    }
}

fn endpoint_slice(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let EndpointSlice { metadata, address_type, ports, endpoints } = decode(json)?;
    let shown_ports: Vec<_> = ports.iter().take(SHOWN).map(SlicePort::text).collect();
    let addresses = || endpoints.iter().flat_map(|endpoint| endpoint.addresses.iter());
    let shown_addresses: Vec<_> = addresses().take(SHOWN).map(ToString::to_string).collect();
    cells![
        &metadata.name,
        &address_type,
        first_of(&shown_ports, ports.len()),
        first_of(&shown_addresses, addresses().count()),
        metadata.creation_timestamp.age(now),
    ]
}
