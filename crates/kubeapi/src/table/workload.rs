//! Table columns of workloads: the controllers that create pods.

use serde::Deserialize;

use super::Row;
use super::age::Time;
use super::fields::{Labels, List, Meta, Scalar, Selector, Template, Text};
use super::kind::{AGE, CONTAINERS, IMAGES, Kind, NAME, SELECTOR, cells, decode, integer, text};

pub(super) const DEPLOYMENTS: Kind = Kind {
    columns: &[
        NAME,
        text("Ready", "Pods that are ready, of the desired number"),
        text("Up-to-date", "Pods of the current template"),
        text("Available", "Pods that have been ready for long enough"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    print: deployment,
};

pub(super) const REPLICA_SETS: Kind = Kind {
    columns: &[
        NAME,
        integer("Desired", "Desired number of pods"),
        integer("Current", "Number of pods"),
        integer("Ready", "Number of pods that are ready"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    print: replica_set,
};

pub(super) const REPLICATION_CONTROLLERS: Kind = Kind { columns: REPLICA_SETS.columns, print: replication_controller };

pub(super) const STATEFUL_SETS: Kind = Kind {
    columns: &[NAME, text("Ready", "Pods that are ready, of the desired number"), AGE, CONTAINERS, IMAGES],
    print: stateful_set,
};

pub(super) const DAEMON_SETS: Kind = Kind {
    columns: &[
        NAME,
        integer("Desired", "Nodes that should run the pod"),
        integer("Current", "Nodes that should run the pod and do"),
        integer("Ready", "Nodes on which the pod is ready"),
        integer("Up-to-date", "Nodes that run the pod of the current template"),
        integer("Available", "Nodes on which the pod has been ready for long enough"),
        text("Node Selector", "Labels of the nodes that run the pod"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    print: daemon_set,
};

pub(super) const CONTROLLER_REVISIONS: Kind = Kind {
    columns: &[
        NAME,
        text("Controller", "Controller whose state the revision holds"),
        text("Revision", "Number of the revision"),
        AGE,
    ],
    print: controller_revision,
};

pub(super) const POD_TEMPLATES: Kind = Kind {
    columns: &[
        NAME,
        text("Containers", "Names of the containers of the template"),
        text("Images", "Images of the containers of the template"),
        text("Pod Labels", "Labels of the pods of the template"),
    ],
    print: pod_template,
};

pub(super) const POD_DISRUPTION_BUDGETS: Kind = Kind {
    columns: &[
        NAME,
        text("Min Available", "Number or share of pods that must stay available"),
        text("Max Unavailable", "Number or share of pods that may be unavailable"),
        integer("Allowed Disruptions", "Number of pods that may be evicted now"),
        AGE,
    ],
    print: pod_disruption_budget,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Workload<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: WorkloadSpec<'j>,
    status: WorkloadStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WorkloadSpec<'j> {
    replicas: Option<i64>,
    #[serde(borrow)]
    selector: Option<Selector<'j>>,
    #[serde(borrow)]
    template: Template<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct WorkloadStatus {
    replicas: i64,
    ready_replicas: i64,
    updated_replicas: i64,
    available_replicas: i64,
    desired_number_scheduled: i64,
    current_number_scheduled: i64,
    number_ready: i64,
    updated_number_scheduled: i64,
    number_available: i64,
}

impl WorkloadSpec<'_> {
    /// Returns the desired number of pods, one by default.
    fn desired(&self) -> i64 {
        self.replicas.unwrap_or(1)
    }
}

fn deployment(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Workload { metadata, spec, status } = decode(json)?;
    let selector = spec.selector.as_ref().map_or_else(|| Some(String::new()), Selector::text);
    cells![
        &metadata.name,
        format!("{}/{}", status.ready_replicas, spec.desired()),
        status.updated_replicas,
        status.available_replicas,
        metadata.creation_timestamp.age(now),
        spec.template.names(),
        spec.template.images(),
        selector.unwrap_or_else(|| "<invalid>".to_owned()),
    ]
}

fn replica_set(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Workload { metadata, spec, status } = decode(json)?;
    cells![
        &metadata.name,
        spec.desired(),
        status.replicas,
        status.ready_replicas,
        metadata.creation_timestamp.age(now),
        spec.template.names(),
        spec.template.images(),
        Selector::format(spec.selector.as_ref()),
    ]
}

fn stateful_set(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Workload { metadata, spec, status } = decode(json)?;
    cells![
        &metadata.name,
        format!("{}/{}", status.ready_replicas, spec.desired()),
        metadata.creation_timestamp.age(now),
        spec.template.names(),
        spec.template.images(),
    ]
}

fn daemon_set(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Workload { metadata, spec, status } = decode(json)?;
    cells![
        &metadata.name,
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_ready,
        status.updated_number_scheduled,
        status.number_available,
        spec.template.spec.node_selector.format(),
        metadata.creation_timestamp.age(now),
        spec.template.names(),
        spec.template.images(),
        Selector::format(spec.selector.as_ref()),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReplicationController<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: ReplicationControllerSpec<'j>,
    status: WorkloadStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReplicationControllerSpec<'j> {
    replicas: Option<i64>,
    #[serde(borrow)]
    selector: Labels<'j>,
    #[serde(borrow)]
    template: Option<Template<'j>>,
}

fn replication_controller(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let ReplicationController { metadata, spec, status } = decode(json)?;
    let template = spec.template.unwrap_or_default();
    let selector = if spec.selector.is_empty() { &template.metadata.labels } else { &spec.selector };
    cells![
        &metadata.name,
        spec.replicas.unwrap_or(1),
        status.replicas,
        status.ready_replicas,
        metadata.creation_timestamp.age(now),
        template.names(),
        template.images(),
        selector.format(),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ControllerRevision<'j> {
    #[serde(borrow)]
    metadata: OwnedMeta<'j>,
    revision: i64,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct OwnedMeta<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    creation_timestamp: Time,
    #[serde(borrow)]
    owner_references: List<Owner<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Owner<'j> {
    #[serde(borrow)]
    api_version: Text<'j>,
    #[serde(borrow)]
    kind: Text<'j>,
    #[serde(borrow)]
    name: Text<'j>,
    controller: Option<bool>,
}

impl Owner<'_> {
    /// Returns the owner as `kind.group/name`, with kind and group in lower case.
    fn reference(&self) -> String {
        let group = self.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let dot = if group.is_empty() { "" } else { "." };
        let kind = format!("{}{dot}{group}", self.kind).to_lowercase();
        if kind.is_empty() { self.name.to_string() } else { format!("{kind}/{}", self.name) }
    }
}

fn controller_revision(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let ControllerRevision { metadata, revision } = decode(json)?;
    let controller = metadata.owner_references.iter().find(|owner| owner.controller == Some(true));
    cells![
        &metadata.name,
        controller.map_or_else(|| "<none>".to_owned(), Owner::reference),
        revision,
        metadata.creation_timestamp.age(now),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodTemplate<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    template: Template<'j>,
}

fn pod_template(json: &[u8], _now: i64) -> serde_json::Result<Row> {
    let PodTemplate { metadata, template } = decode(json)?;
    cells![&metadata.name, template.names(), template.images(), template.metadata.labels.format()]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodDisruptionBudget<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    spec: DisruptionSpec,
    status: DisruptionStatus,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct DisruptionSpec {
    min_available: Option<Scalar>,
    max_unavailable: Option<Scalar>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct DisruptionStatus {
    disruptions_allowed: i64,
}

fn pod_disruption_budget(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let PodDisruptionBudget { metadata, spec, status } = decode(json)?;
    let limit = |limit: Option<Scalar>| limit.map_or_else(|| "N/A".to_owned(), |limit| limit.to_string());
    cells![
        &metadata.name,
        limit(spec.min_available),
        limit(spec.max_unavailable),
        status.disruptions_allowed,
        metadata.creation_timestamp.age(now),
    ]
}
