//! Encoded pods with slots for the version and the send time.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::super::pods;
use super::super::world::{World, WorldConfig};
use super::shape::{Common, Sketch, Workloads};
use super::{ReplayConfig, SENT};

/// Number of digits of a slot: the place in an encoded pod where the version or the send time is written.
const DIGITS: usize = 16;
/// Placeholder digits in an encoded pod, which mark the place for the version.
const VERSION_SLOT: &str = "1000000000000001";
/// Placeholder digits in an encoded pod, which mark the place for the send time.
const SENT_SLOT: &str = "1000000000000002";
/// Number that is added to every resourceVersion, so that each has the 16 digits of its slot. In the slot of the send
/// time, it means "never sent".
pub(super) const BASE: u64 = 1_000_000_000_000_000;

/// One encoding of a pod as a list item, with the positions of its slots.
#[derive(Clone, Debug)]
pub(super) struct ItemTemplate {
    bytes: Bytes,
    sent_at: usize,
    version_at: usize,
    /// Length of the metadata at the start of `bytes`: `{"metadata":{…}` in JSON, field 1 in protobuf.
    metadata: usize,
}

/// Pod at its first version, in all encodings.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) json: ItemTemplate,
    pub(super) protobuf: Option<ItemTemplate>,
}

impl ItemTemplate {
    fn new(mut bytes: Vec<u8>, metadata: usize, version: u64) -> io::Result<Self> {
        let find = |slot: &str| {
            let slot = memchr::memmem::find(&bytes[..metadata], slot.as_bytes());
            slot.ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "a pod has no slot for the version or the send time")
            })
        };
        let (sent_at, version_at) = (find(SENT_SLOT)?, find(VERSION_SLOT)?);
        put(&mut bytes, sent_at, BASE);
        put(&mut bytes, version_at, version);
        Ok(Self { bytes: bytes.into(), sent_at, version_at, metadata })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn metadata(&self) -> &[u8] {
        &self.bytes[..self.metadata]
    }

    /// Writes the send time and the version into a copy of the item that starts at offset `start` of `out`.
    pub(super) fn stamp(&self, out: &mut [u8], start: usize, sent: u64, version: u64) {
        put(out, start + self.sent_at, sent);
        put(out, start + self.version_at, version);
    }
}

/// Writes a number into the slot at `at`. Every number has the width of a slot, see [`BASE`].
fn put(out: &mut [u8], at: usize, mut number: u64) {
    for digit in out[at..at + DIGITS].iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

/// Creates the templates, with protobuf from the configured file if there is one.
pub(super) fn make(config: &ReplayConfig) -> io::Result<Vec<Template>> {
    let mut encoded = config.protobuf.as_ref().map(File::open).transpose()?.map(BufReader::new);
    let template = |(i, body): (usize, Value)| {
        let version = BASE + 1 + i as u64;
        let json = from_json(&body, version)?;
        let protobuf = encoded.as_mut().map(|file| from_protobuf(file, version)).transpose()?;
        Ok(Template { json, protobuf })
    };
    bodies(config).enumerate().map(template).collect()
}

pub(super) fn export(config: &ReplayConfig, out: &mut impl Write) -> io::Result<()> {
    bodies(config).try_for_each(|body| writeln!(out, "{body}"))
}

/// Returns the pods with placeholders for the version and the send time.
fn bodies(config: &ReplayConfig) -> impl Iterator<Item = Value> {
    let mut rng = StdRng::seed_from_u64(config.seed);
    let time = World::new(&WorldConfig { pods: 0, nodes: 0, widgets: 0, ..WorldConfig::default() }).time();
    let (nodes, shape, count) = (config.nodes, config.shape, config.pods.max(1));
    let mut workloads = Workloads::new(&mut rng, shape, count);
    (0..count).map(move |i| {
        let Sketch { namespace, name, mut body } =
            shape.object(&mut rng, &mut workloads, &Common { count, nodes, time: &time }, i);
        let metadata = &mut body["metadata"];
        metadata["name"] = json!(format!("{name}-{i}"));
        metadata["namespace"] = json!(namespace);
        metadata["uid"] = json!(pods::uuid(&mut rng));
        metadata["creationTimestamp"] = json!(time);
        metadata["resourceVersion"] = json!(VERSION_SLOT);
        if !metadata["annotations"].is_object() {
            metadata["annotations"] = json!({});
        }
        metadata["annotations"][SENT] = json!(SENT_SLOT);
        body
    })
}

fn from_json(body: &Value, version: u64) -> io::Result<ItemTemplate> {
    // `metadata` is alphabetically the first member of every body, so it is encoded first.
    let metadata = format!("{{\"metadata\":{}", body["metadata"]).len();
    ItemTemplate::new(body.to_string().into_bytes(), metadata, version)
}

fn from_protobuf(file: &mut impl Read, version: u64) -> io::Result<ItemTemplate> {
    let mut length = [0; 4];
    file.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    file.read_exact(&mut bytes)?;
    let metadata = metadata_length(&bytes).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "a pod in protobuf does not start with its metadata")
    })?;
    ItemTemplate::new(bytes, metadata, version)
}

/// Returns the length of a message's protobuf field 1, with its tag and length prefix. `None` if the message does not
/// start with this field.
fn metadata_length(bytes: &[u8]) -> Option<usize> {
    let (0x0a, rest) = bytes.split_first().map(|(tag, rest)| (*tag, rest))? else { return None };
    let mut length = 0;
    for (i, byte) in rest.iter().take(5).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some(2 + i + length).filter(|end| *end <= bytes.len());
        }
    }
    None
}
