//! Table columns of leases, scheduling, flow control, devices and storage versions.

use serde::Deserialize;
use serde_json::Value;

use super::Row;
use super::age::Time;
use super::fields::{Condition, Count, List, Meta, Text, first_of};
use super::kind::{AGE, Kind, NAME, boolean, cells, decode, integer, text};

pub(super) const LEASES: Kind = Kind { columns: &[NAME, text("Holder", "Holder of the lease"), AGE], print: lease };

pub(super) const LEASE_CANDIDATES: Kind = Kind {
    columns: &[
        NAME,
        text("LeaseName", "Lease that the candidate wants to hold"),
        text("BinaryVersion", "Version of the candidate"),
        text("EmulationVersion", "Version that the candidate emulates"),
        AGE,
    ],
    print: lease_candidate,
};

pub(super) const PRIORITY_CLASSES: Kind = Kind {
    columns: &[
        NAME,
        integer("Value", "Priority of pods of the class"),
        boolean("Global-Default", "Whether the class applies to pods without one"),
        AGE,
        text("PreemptionPolicy", "Whether pods of the class preempt others"),
    ],
    print: priority_class,
};

pub(super) const RUNTIME_CLASSES: Kind =
    Kind { columns: &[NAME, text("Handler", "Configuration of the container runtime"), AGE], print: runtime_class };

pub(super) const FLOW_SCHEMAS: Kind = Kind {
    columns: &[
        NAME,
        text("PriorityLevel", "Priority level of the requests"),
        text("MatchingPrecedence", "Precedence among the schemas that match a request"),
        text("DistinguisherMethod", "Property by which requests are divided into flows"),
        AGE,
        text("MissingPL", "Whether the priority level is missing"),
    ],
    print: flow_schema,
};

pub(super) const PRIORITY_LEVELS: Kind = Kind {
    columns: &[
        NAME,
        text("Type", "Whether the requests are limited"),
        text("NominalConcurrencyShares", "Share of the server's concurrency"),
        text("Queues", "Number of queues"),
        text("HandSize", "Number of queues that a flow may use"),
        text("QueueLengthLimit", "Greatest length of a queue"),
        AGE,
    ],
    print: priority_level,
};

pub(super) const STORAGE_VERSIONS: Kind = Kind {
    columns: &[
        NAME,
        text("CommonEncodingVersion", "Version in which all servers store the resource"),
        text("StorageVersions", "Version in which each server stores the resource"),
        AGE,
    ],
    print: storage_version,
};

pub(super) const STORAGE_VERSION_MIGRATIONS: Kind = Kind {
    columns: &[
        text("Name", "Name of the object"),
        text("Resource", "Resource that is migrated"),
        text("Status", "State of the migration"),
    ],
    print: storage_version_migration,
};

pub(super) const RESOURCE_CLAIMS: Kind =
    Kind { columns: &[NAME, text("State", "State of the claim"), AGE], print: resource_claim };

pub(super) const RESOURCE_SLICES: Kind = Kind {
    columns: &[
        NAME,
        text("Node", "Node of the devices"),
        text("Driver", "Driver of the devices"),
        text("Pool", "Pool that the devices belong to"),
        AGE,
    ],
    print: resource_slice,
};

pub(super) const DEVICE_TAINT_RULES: Kind = Kind {
    columns: &[
        NAME,
        text("Key", "Key of the taint"),
        text("Value", "Value of the taint"),
        text("Effect", "Effect of the taint on pods"),
        text("TimeAdded", "Time since the taint was added"),
        AGE,
    ],
    print: device_taint_rule,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Lease<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: LeaseSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec<'j> {
    #[serde(borrow)]
    holder_identity: Text<'j>,
    #[serde(borrow)]
    lease_name: Text<'j>,
    #[serde(borrow)]
    binary_version: Text<'j>,
    #[serde(borrow)]
    emulation_version: Text<'j>,
}

fn lease(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Lease { metadata, spec } = decode(json)?;
    cells![&metadata.name, &spec.holder_identity, metadata.creation_timestamp.age(now)]
}

fn lease_candidate(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let Lease { metadata, spec } = decode(json)?;
    cells![
        &metadata.name,
        &spec.lease_name,
        &spec.binary_version,
        &spec.emulation_version,
        metadata.creation_timestamp.age(now),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Class<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    value: i64,
    global_default: bool,
    #[serde(borrow)]
    preemption_policy: Text<'j>,
    #[serde(borrow)]
    handler: Text<'j>,
}

fn priority_class(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let class: Class<'_> = decode(json)?;
    cells![
        &class.metadata.name,
        class.value,
        class.global_default,
        class.metadata.creation_timestamp.age(now),
        class.preemption_policy.or("PreemptLowerPriority"),
    ]
}

fn runtime_class(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let class: Class<'_> = decode(json)?;
    cells![&class.metadata.name, &class.handler, class.metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FlowSchema<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: FlowSchemaSpec<'j>,
    #[serde(borrow)]
    status: Conditions<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct FlowSchemaSpec<'j> {
    #[serde(borrow)]
    priority_level_configuration: Named<'j>,
    matching_precedence: Option<i64>,
    #[serde(borrow)]
    distinguisher_method: Option<Typed<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named<'j> {
    #[serde(borrow)]
    name: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Typed<'j> {
    #[serde(borrow, rename = "type")]
    kind: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Conditions<'j> {
    #[serde(borrow)]
    conditions: List<Condition<'j>>,
}

fn flow_schema(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let FlowSchema { metadata, spec, status } = decode(json)?;
    let dangling = status.conditions.iter().find(|condition| *condition.kind == *"Dangling");
    cells![
        &metadata.name,
        &spec.priority_level_configuration.name,
        spec.matching_precedence.unwrap_or(1000),
        spec.distinguisher_method.as_ref().map_or("<none>", |method| &method.kind),
        metadata.creation_timestamp.age(now),
        dangling.map_or("?", |condition| &condition.status),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PriorityLevel<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: PriorityLevelSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PriorityLevelSpec<'j> {
    #[serde(borrow, rename = "type")]
    kind: Text<'j>,
    limited: Option<Limited>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Limited {
    nominal_concurrency_shares: Option<i64>,
    limit_response: LimitResponse,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LimitResponse {
    queuing: Option<Queuing>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Queuing {
    queues: Option<i64>,
    hand_size: Option<i64>,
    queue_length_limit: Option<i64>,
}

fn priority_level(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let PriorityLevel { metadata, spec } = decode(json)?;
    let number = |number: Option<i64>| number.map_or_else(|| Value::from("<none>"), Value::from);
    let limited = spec.limited.as_ref();
    let queuing = limited.and_then(|limited| limited.limit_response.queuing.as_ref());
    cells![
        &metadata.name,
        &spec.kind,
        number(limited.map(|limited| limited.nominal_concurrency_shares.unwrap_or(30))),
        number(queuing.map(|queuing| queuing.queues.unwrap_or(64))),
        number(queuing.map(|queuing| queuing.hand_size.unwrap_or(8))),
        number(queuing.map(|queuing| queuing.queue_length_limit.unwrap_or(50))),
        metadata.creation_timestamp.age(now),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StorageVersion<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    status: StorageVersionStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct StorageVersionStatus<'j> {
    #[serde(borrow)]
    common_encoding_version: Option<Text<'j>>,
    #[serde(borrow)]
    storage_versions: List<ServerVersion<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ServerVersion<'j> {
    #[serde(borrow, rename = "apiServerID")]
    server: Text<'j>,
    #[serde(borrow)]
    encoding_version: Text<'j>,
}

fn storage_version(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let StorageVersion { metadata, status } = decode(json)?;
    let versions = &status.storage_versions;
    let text = |version: &ServerVersion<'_>| format!("{}={}", version.server, version.encoding_version);
    let shown: Vec<_> = versions.iter().take(3).map(text).collect();
    cells![
        &metadata.name,
        status.common_encoding_version.as_deref().unwrap_or("<unset>"),
        first_of(&shown, versions.len()),
        metadata.creation_timestamp.age(now),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Migration<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: MigrationSpec<'j>,
    #[serde(borrow)]
    status: Conditions<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MigrationSpec<'j> {
    #[serde(borrow)]
    resource: MigratedResource<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MigratedResource<'j> {
    #[serde(borrow)]
    group: Text<'j>,
    #[serde(borrow)]
    resource: Text<'j>,
}

fn storage_version_migration(json: &[u8], _now: i64) -> serde_json::Result<Row> {
    let Migration { metadata, spec, status } = decode(json)?;
    let MigratedResource { group, resource } = spec.resource;
    let mut states = status.conditions.iter().filter(|condition| condition.is_true()).map(|condition| &*condition.kind);
    let state = states.rfind(|kind| matches!(*kind, "Running" | "Failed" | "Succeeded"));
    cells![
        &metadata.name,
        if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") },
        state.unwrap_or("Unknown"),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceClaim<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    status: ClaimStatus,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ClaimStatus {
    allocation: Option<serde::de::IgnoredAny>,
    reserved_for: Count,
}

fn resource_claim(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let ResourceClaim { metadata, status } = decode(json)?;
    let is_deleted = metadata.deletion_timestamp.is_some();
    let state = match (is_deleted, status.allocation.is_some(), status.reserved_for.0 > 0) {
        (false, false, _) => "pending",
        (false, true, false) => "allocated",
        (false, true, true) => "allocated,reserved",
        (true, false, _) => "deleted",
        (true, true, false) => "deleted,allocated",
        (true, true, true) => "deleted,allocated,reserved",
    };
    cells![&metadata.name, state, metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceSlice<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: ResourceSliceSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ResourceSliceSpec<'j> {
    #[serde(borrow)]
    node_name: Text<'j>,
    #[serde(borrow)]
    driver: Text<'j>,
    #[serde(borrow)]
    pool: Named<'j>,
}

fn resource_slice(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let ResourceSlice { metadata, spec } = decode(json)?;
    cells![&metadata.name, &spec.node_name, &spec.driver, &spec.pool.name, metadata.creation_timestamp.age(now),]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DeviceTaintRule<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: DeviceTaintSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DeviceTaintSpec<'j> {
    #[serde(borrow)]
    taint: Taint<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Taint<'j> {
    #[serde(borrow)]
    key: Text<'j>,
    #[serde(borrow)]
    value: Text<'j>,
    #[serde(borrow)]
    effect: Text<'j>,
    time_added: Option<Time>,
}

fn device_taint_rule(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let DeviceTaintRule { metadata, spec } = decode(json)?;
    let taint = spec.taint;
    cells![
        &metadata.name,
        &taint.key,
        &taint.value,
        &taint.effect,
        taint.time_added.map(|time| time.age(now)).unwrap_or_default(),
        metadata.creation_timestamp.age(now),
    ]
}
