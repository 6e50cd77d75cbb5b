//! Table columns of nodes, namespaces, configuration and quotas.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::Row;
use super::age::Time;
use super::fields::{Condition, Count, Labels, List, Members, Meta, Object, Scalar, Text, join};
use super::kind::{AGE, Kind, NAME, cells, date, decode, text, wide};

pub(super) const NODES: Kind = Kind {
    columns: &[
        NAME,
        text("Status", "Whether the node is ready, and whether pods are scheduled to it"),
        text("Roles", "Roles of the node, from its labels"),
        AGE,
        text("Version", "Version of the kubelet"),
        wide("Internal-IP", "First internal address of the node"),
        wide("External-IP", "First external address of the node"),
        wide("OS-Image", "Operating system of the node"),
        wide("Kernel-Version", "Version of the kernel, with the architecture"),
        wide("Container-Runtime", "Container runtime and its version"),
    ],
    print: node,
};

pub(super) const NAMESPACES: Kind =
    Kind { columns: &[NAME, text("Status", "Phase of the namespace"), AGE], print: namespace };

pub(super) const CONFIG_MAPS: Kind = Kind { columns: &[NAME, text("Data", "Number of keys"), AGE], print: config_map };

pub(super) const SECRETS: Kind =
    Kind { columns: &[NAME, text("Type", "Type of the secret"), text("Data", "Number of keys"), AGE], print: secret };

/// Columns of kinds for which kube-apiserver prints name and age.
pub(super) const NAME_AND_AGE: Kind = Kind { columns: &[NAME, AGE], print: name_and_age };

/// Columns of kinds for which kube-apiserver has no printer.
pub(super) const NAME_AND_CREATION: Kind =
    Kind { columns: &[NAME, date("Created At", "Time when the object was created")], print: name_and_creation };

/// Columns of custom resources whose definitions declare no columns, and of unknown kinds.
pub(super) const CUSTOM_DEFAULT: Kind =
    Kind { columns: &[NAME, date("Age", "Time since the object was created")], print: name_and_age };

pub(super) const RESOURCE_QUOTAS: Kind = Kind {
    columns: &[
        NAME,
        text("Request", "Used and greatest requests, and numbers of objects"),
        text("Limit", "Used and greatest limits"),
        AGE,
    ],
    print: resource_quota,
};

pub(super) const COMPONENT_STATUSES: Kind = Kind {
    columns: &[
        NAME,
        text("Status", "Whether the component is healthy"),
        text("Message", "Message of the component"),
        text("Error", "Error of the component"),
    ],
    print: component_status,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Node<'j> {
    #[serde(borrow)]
    metadata: NodeMeta<'j>,
    spec: NodeSpec,
    #[serde(borrow)]
    status: NodeStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NodeMeta<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    creation_timestamp: Time,
    #[serde(borrow)]
    labels: Labels<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus<'j> {
    #[serde(borrow)]
    conditions: List<Condition<'j>>,
    #[serde(borrow)]
    addresses: List<NodeAddress<'j>>,
    #[serde(borrow)]
    node_info: NodeInfo<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeAddress<'j> {
    #[serde(borrow, rename = "type")]
    kind: Text<'j>,
    #[serde(borrow)]
    address: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo<'j> {
    #[serde(borrow)]
    kubelet_version: Text<'j>,
    #[serde(borrow)]
    os_image: Text<'j>,
    #[serde(borrow)]
    kernel_version: Text<'j>,
    #[serde(borrow)]
    container_runtime_version: Text<'j>,
    #[serde(borrow)]
    architecture: Text<'j>,
}

impl Node<'_> {
    fn status(&self) -> String {
        let ready = self.status.conditions.iter().rev().find(|condition| *condition.kind == *"Ready");
        let status = match ready {
            Some(condition) if condition.is_true() => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        };
        let suffix = if self.spec.unschedulable { ",SchedulingDisabled" } else { "" };
        format!("{status}{suffix}")
    }

    fn roles(&self) -> String {
        let roles = self.metadata.labels.iter().filter_map(|(key, value)| {
            let role = key.strip_prefix("node-role.kubernetes.io/");
            role.or((**key == *"kubernetes.io/role").then_some(value))
        });
        let roles: BTreeSet<_> = roles.filter(|role| !role.is_empty()).collect();
        if roles.is_empty() { "<none>".to_owned() } else { join(roles, ",") }
    }

    /// Returns the first address of a type such as `InternalIP`; `<none>` without one.
    fn address(&self, kind: &str) -> &str {
        let address = self.status.addresses.iter().find(|address| *address.kind == *kind);
        address.map_or("<none>", |address| &address.address)
    }
}

fn node(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let node: Node<'_> = decode(json)?;
    let info = &node.status.node_info;
    let kernel = info.kernel_version.or("<unknown>");
    cells![
        &node.metadata.name,
        node.status(),
        node.roles(),
        node.metadata.creation_timestamp.age(now),
        &info.kubelet_version,
        node.address("InternalIP"),
        node.address("ExternalIP"),
        info.os_image.or("<unknown>"),
        if info.architecture.is_empty() { kernel.to_owned() } else { format!("{kernel} ({})", info.architecture) },
        info.container_runtime_version.or("<unknown>"),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Namespace<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    status: NamespaceStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamespaceStatus<'j> {
    #[serde(borrow)]
    phase: Text<'j>,
}

fn namespace(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Namespace { metadata, status } = decode(json)?;
    cells![&metadata.name, status.phase.or("Active"), metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Payload<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow, rename = "type")]
    kind: Text<'j>,
    data: Count,
    binary_data: Count,
}

fn config_map(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Payload { metadata, data, binary_data, .. } = decode(json)?;
    cells![&metadata.name, data.0 + binary_data.0, metadata.creation_timestamp.age(now)]
}

fn secret(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Payload { metadata, kind, data, .. } = decode(json)?;
    cells![&metadata.name, kind.or("Opaque"), data.0, metadata.creation_timestamp.age(now)]
}

fn name_and_age(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Object { metadata } = decode(json)?;
    cells![&metadata.name, metadata.creation_timestamp.age(now)]
}

fn name_and_creation(json: &[u8], _now: i64) -> serde_json::Result<Row> {
    let Object { metadata } = decode(json)?;
    cells![&metadata.name, metadata.creation_timestamp.utc()]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceQuota<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    status: QuotaStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct QuotaStatus<'j> {
    #[serde(borrow)]
    hard: Members<'j, Scalar>,
    #[serde(borrow)]
    used: Members<'j, Scalar>,
}

fn resource_quota(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let ResourceQuota { metadata, status } = decode(json)?;
    let mut hard: Vec<_> = status.hard.iter().collect();
    hard.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let (limits, requests): (Vec<_>, Vec<_>) = hard.into_iter().partition(|(name, _)| name.starts_with("limits."));
    let format = |resources: Vec<&(Text<'_>, Scalar)>| {
        let texts = resources.into_iter().map(|(name, hard)| match status.used.get(name) {
            Some(used) => format!("{name}: {used}/{hard}"),
            None => format!("{name}: 0/{hard}"),
        });
        join(texts, ", ")
    };
    cells![&metadata.name, format(requests), format(limits), metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ComponentStatus<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    conditions: List<ComponentCondition<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ComponentCondition<'j> {
    #[serde(borrow, rename = "type")]
    kind: Text<'j>,
    #[serde(borrow)]
    status: Text<'j>,
    #[serde(borrow)]
    message: Text<'j>,
    #[serde(borrow)]
    error: Text<'j>,
}

fn component_status(json: &[u8], _now: i64) -> serde_json::Result<Row> {
    let ComponentStatus { metadata, conditions } = decode(json)?;
    let Some(condition) = conditions.iter().find(|condition| *condition.kind == *"Healthy") else {
        return cells![&metadata.name, "Unknown", "", ""];
    };
    let status = if *condition.status == *"True" { "Healthy" } else { "Unhealthy" };
    cells![&metadata.name, status, &condition.message, &condition.error]
}
