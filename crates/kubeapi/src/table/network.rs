//! Table columns of services and other resources of networking.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::Row;
use super::fields::{Labels, List, Meta, Selector, Text, join};
use super::kind::{AGE, Kind, NAME, SELECTOR, cells, decode, text};

pub(super) const SERVICES: Kind = Kind {
    columns: &[
        NAME,
        text("Type", "How the service is exposed"),
        text("Cluster-IP", "IP address of the service within the cluster"),
        text("External-IP", "IP addresses or name of the service outside of the cluster"),
        text("Port(s)", "Ports of the service, with their ports on nodes"),
        AGE,
        SELECTOR,
    ],
    print: service,
};

pub(super) const INGRESSES: Kind = Kind {
    columns: &[
        NAME,
        text("Class", "Ingress class that implements the ingress"),
        text("Hosts", "Hosts of the rules"),
        text("Address", "Addresses of the load balancer"),
        text("Ports", "Ports that are open"),
        AGE,
    ],
    print: ingress,
};

pub(super) const INGRESS_CLASSES: Kind = Kind {
    columns: &[
        NAME,
        text("Controller", "Controller that implements ingresses of the class"),
        text("Parameters", "Object with parameters of the controller"),
        AGE,
    ],
    print: ingress_class,
};

pub(super) const NETWORK_POLICIES: Kind = Kind {
    columns: &[NAME, text("Pod-Selector", "Label selector of the pods that the policy applies to"), AGE],
    print: network_policy,
};

pub(super) const SERVICE_CIDRS: Kind =
    Kind { columns: &[NAME, text("CIDRs", "Ranges of IP addresses of services"), AGE], print: service_cidr };

/// Columns of IP addresses. Their rows have one cell more than there are columns, as in kube-apiserver.
pub(super) const IP_ADDRESSES: Kind =
    Kind { columns: &[NAME, text("ParentRef", "Object that uses the IP address")], print: ip_address };

#[derive(Deserialize, Default)]
#[serde(default)]
struct Service<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: ServiceSpec<'j>,
    #[serde(borrow)]
    status: BalancedStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ServiceSpec<'j> {
    #[serde(borrow, rename = "type")]
    kind: Text<'j>,
    #[serde(borrow, rename = "clusterIPs")]
    cluster_ips: List<Text<'j>>,
    #[serde(borrow, rename = "externalIPs")]
    external_ips: List<Text<'j>>,
    #[serde(borrow)]
    external_name: Text<'j>,
    #[serde(borrow)]
    ports: List<ServicePort<'j>>,
    #[serde(borrow)]
    selector: Labels<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ServicePort<'j> {
    port: i64,
    node_port: i64,
    #[serde(borrow)]
    protocol: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct BalancedStatus<'j> {
    #[serde(borrow)]
    load_balancer: LoadBalancer<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LoadBalancer<'j> {
    #[serde(borrow)]
    ingress: List<IngressPoint<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IngressPoint<'j> {
    #[serde(borrow)]
    ip: Text<'j>,
    #[serde(borrow)]
    hostname: Text<'j>,
}

impl LoadBalancer<'_> {
    /// Returns the distinct addresses (IP or host name), sorted.
    fn addresses(&self) -> String {
        let points = self.ingress.iter().map(|point| point.ip.or(&point.hostname));
        let addresses: BTreeSet<_> = points.filter(|address| !address.is_empty()).collect();
        join(addresses, ",")
    }
}

impl Service<'_> {
    fn external_ip(&self) -> String {
        let external = join(self.spec.external_ips.iter(), ",");
        match self.spec.kind.or("ClusterIP") {
            "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
            "ClusterIP" | "NodePort" => external,
            "LoadBalancer" => {
                let balanced = self.status.load_balancer.addresses();
                match (balanced.is_empty(), external.is_empty()) {
                    (true, true) => "<pending>".to_owned(),
                    (false, true) => balanced,
                    (true, false) => external,
                    (false, false) => format!("{balanced},{external}"),
                }
            }
            "ExternalName" => self.spec.external_name.to_string(),
            _ => "<unknown>".to_owned(),
        }
    }

    fn ports(&self) -> String {
        let ports = self.spec.ports.iter().map(|port| {
            let protocol = port.protocol.or("TCP");
            if port.node_port > 0 {
                format!("{}:{}/{protocol}", port.port, port.node_port)
            } else {
                format!("{}/{protocol}", port.port)
            }
        });
        join(ports, ",")
    }
}

fn service(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let service: Service<'_> = decode(json)?;
    let Service { metadata, spec, .. } = &service;
    let ports = service.ports();
    cells![
        &metadata.name,
        spec.kind.or("ClusterIP"),
        spec.cluster_ips.first().map_or("<none>", |ip| ip),
        service.external_ip(),
        if ports.is_empty() { "<none>" } else { &ports },
        metadata.creation_timestamp.age(now),
        spec.selector.format(),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ingress<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: IngressSpec<'j>,
    #[serde(borrow)]
    status: BalancedStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct IngressSpec<'j> {
    #[serde(borrow)]
    ingress_class_name: Option<Text<'j>>,
    #[serde(borrow)]
    rules: List<IngressRule<'j>>,
    tls: List<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IngressRule<'j> {
    #[serde(borrow)]
    host: Text<'j>,
}

/// Returns the first three hosts of the rules, e.g. `a,b,c + 2 more...`; `*` without hosts. The number counts all other
/// rules, also those without a host.
fn hosts(rules: &[IngressRule<'_>]) -> String {
    const SHOWN: usize = 3;
    let hosts = rules.iter().enumerate().filter(|(_, rule)| !rule.host.is_empty());
    let shown: Vec<_> = hosts.take(SHOWN).collect();
    let joined = join(shown.iter().map(|(_, rule)| &rule.host), ",");
    match shown.last() {
        None => "*".to_owned(),
        Some((last, _)) if shown.len() == SHOWN && last + 1 < rules.len() => {
            format!("{joined} + {} more...", rules.len() - SHOWN)
        }
        Some(_) => joined,
    }
}

fn ingress(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Ingress { metadata, spec, status } = decode(json)?;
    cells![
        &metadata.name,
        spec.ingress_class_name.as_deref().unwrap_or("<none>"),
        hosts(&spec.rules),
        status.load_balancer.addresses(),
        if spec.tls.is_empty() { "80" } else { "80, 443" },
        metadata.creation_timestamp.age(now),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IngressClass<'j> {
    #[serde(borrow)]
    metadata: IngressClassMeta<'j>,
    #[serde(borrow)]
    spec: IngressClassSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct IngressClassMeta<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    creation_timestamp: super::age::Time,
    #[serde(borrow)]
    annotations: Labels<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IngressClassSpec<'j> {
    #[serde(borrow)]
    controller: Text<'j>,
    #[serde(borrow)]
    parameters: Option<Parameters<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Parameters<'j> {
    #[serde(borrow)]
    api_group: Option<Text<'j>>,
    #[serde(borrow)]
    kind: Text<'j>,
    #[serde(borrow)]
    name: Text<'j>,
}

fn ingress_class(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let IngressClass { metadata, spec } = decode(json)?;
    let is_default = metadata.annotations.get("ingressclass.kubernetes.io/is-default-class");
    let suffix = if is_default.is_some_and(|value| **value == *"true") { " (default)" } else { "" };
    let parameters = spec.parameters.map(|Parameters { api_group, kind, name }| match api_group {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    });
    cells![
        format!("{}{suffix}", metadata.name),
        &spec.controller,
        parameters.unwrap_or_else(|| "<none>".to_owned()),
        metadata.creation_timestamp.age(now),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NetworkPolicy<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: NetworkPolicySpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NetworkPolicySpec<'j> {
    #[serde(borrow)]
    pod_selector: Selector<'j>,
}

fn network_policy(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let NetworkPolicy { metadata, spec } = decode(json)?;
    cells![&metadata.name, Selector::format(Some(&spec.pod_selector)), metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ServiceCidr<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: ServiceCidrSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ServiceCidrSpec<'j> {
    #[serde(borrow)]
    cidrs: List<Text<'j>>,
}

fn service_cidr(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let ServiceCidr { metadata, spec } = decode(json)?;
    cells![&metadata.name, join(spec.cidrs.iter(), ","), metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IpAddress<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: IpAddressSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct IpAddressSpec<'j> {
    #[serde(borrow)]
    parent_ref: Option<Parent<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Parent<'j> {
    #[serde(borrow)]
    group: Text<'j>,
    #[serde(borrow)]
    resource: Text<'j>,
    #[serde(borrow)]
    namespace: Text<'j>,
    #[serde(borrow)]
    name: Text<'j>,
}

impl Parent<'_> {
    fn reference(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        let resource = format!("{}{dot}{}", self.resource, self.group).to_lowercase();
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        format!("{resource}{slash}{}/{}", self.namespace, self.name)
    }
}

fn ip_address(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let IpAddress { metadata, spec } = decode(json)?;
    let parent = spec.parent_ref.map_or_else(|| "<none>".to_owned(), |parent| parent.reference());
    cells![&metadata.name, parent, metadata.creation_timestamp.age(now)]
}
