//! Table columns of volumes, storage classes and drivers.

use serde::Deserialize;

use super::Row;
use super::age::Time;
use super::fields::Meta;
use super::fields::{Count, Labels, List, Members, Scalar, Text, join};
use super::kind::{AGE, Kind, NAME, boolean, cells, decode, integer, text, wide};

pub(super) const PERSISTENT_VOLUMES: Kind = Kind {
    columns: &[
        NAME,
        text("Capacity", "Capacity of the volume"),
        text("Access Modes", "Ways in which the volume can be mounted"),
        text("Reclaim Policy", "Treatment of the volume when it is released"),
        text("Status", "Phase of the volume"),
        text("Claim", "Claim that the volume is bound to"),
        text("StorageClass", "Storage class of the volume"),
        text("VolumeAttributesClass", "Volume attributes class of the volume"),
        text("Reason", "Reason for the phase"),
        AGE,
        wide("VolumeMode", "Whether the volume is a file system or a block device"),
    ],
    print: persistent_volume,
};

pub(super) const PERSISTENT_VOLUME_CLAIMS: Kind = Kind {
    columns: &[
        NAME,
        text("Status", "Phase of the claim"),
        text("Volume", "Volume that the claim is bound to"),
        text("Capacity", "Capacity of the volume"),
        text("Access Modes", "Ways in which the volume can be mounted"),
        text("StorageClass", "Storage class of the claim"),
        text("VolumeAttributesClass", "Volume attributes class of the claim"),
        AGE,
        wide("VolumeMode", "Whether the volume is a file system or a block device"),
    ],
    print: persistent_volume_claim,
};

pub(super) const STORAGE_CLASSES: Kind = Kind {
    columns: &[
        NAME,
        text("Provisioner", "Provisioner of volumes of the class"),
        text("ReclaimPolicy", "Reclaim policy of volumes of the class"),
        text("VolumeBindingMode", "Time at which volumes of the class are bound"),
        text("AllowVolumeExpansion", "Whether volumes of the class can grow"),
        AGE,
    ],
    print: storage_class,
};

pub(super) const VOLUME_ATTRIBUTES_CLASSES: Kind = Kind {
    columns: &[NAME, text("DriverName", "Driver that applies the attributes"), AGE],
    print: volume_attributes_class,
};

pub(super) const VOLUME_ATTACHMENTS: Kind = Kind {
    columns: &[
        NAME,
        text("Attacher", "Driver that attaches the volume").with_format("name"),
        text("PV", "Volume that is attached"),
        text("Node", "Node that the volume is attached to"),
        boolean("Attached", "Whether the volume is attached"),
        AGE,
    ],
    print: volume_attachment,
};

pub(super) const CSI_NODES: Kind =
    Kind { columns: &[NAME, integer("Drivers", "Number of drivers on the node"), AGE], print: csi_node };

pub(super) const CSI_DRIVERS: Kind = Kind {
    columns: &[
        NAME,
        boolean("AttachRequired", "Whether volumes must be attached before they are mounted"),
        boolean("PodInfoOnMount", "Whether the driver needs the pod of a mount"),
        boolean("StorageCapacity", "Whether the scheduler considers the capacity that the driver reports"),
        text("TokenRequests", "Audiences of the service account tokens that the driver needs"),
        boolean("RequiresRepublish", "Whether volumes are published again from time to time"),
        text("Modes", "Kinds of volumes that the driver supports"),
        AGE,
    ],
    print: csi_driver,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct AnnotatedMeta<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    creation_timestamp: Time,
    deletion_timestamp: Option<Time>,
    #[serde(borrow)]
    annotations: Labels<'j>,
}

impl AnnotatedMeta<'_> {
    /// Returns the storage class of a volume or claim: the value of the beta annotation if there is one, else `field`.
    fn storage_class<'a>(&'a self, field: &'a Text<'_>) -> &'a str {
        self.annotations.get("volume.beta.kubernetes.io/storage-class").map_or(field, |class| class)
    }

    /// Returns the phase: `Terminating` while the object is being deleted, `Pending` if `phase` is empty.
    fn phase<'a>(&self, phase: &'a Text<'_>) -> &'a str {
        if self.deletion_timestamp.is_some() { "Terminating" } else { phase.or("Pending") }
    }
}

/// Returns the short names of access modes, in a fixed order.
fn access_modes(modes: &[Text<'_>]) -> String {
    const NAMES: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let names = NAMES.iter().filter(|(long, _)| modes.iter().any(|mode| **mode == **long));
    join(names.map(|(_, short)| short), ",")
}

/// Returns the amount of `storage` in a list of resources; `0` if missing.
fn storage(resources: &Members<'_, Scalar>) -> String {
    resources.get("storage").map_or_else(|| "0".to_owned(), ToString::to_string)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PersistentVolume<'j> {
    #[serde(borrow)]
    metadata: AnnotatedMeta<'j>,
    #[serde(borrow)]
    spec: VolumeSpec<'j>,
    #[serde(borrow)]
    status: VolumeStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct VolumeSpec<'j> {
    #[serde(borrow)]
    capacity: Members<'j, Scalar>,
    #[serde(borrow)]
    access_modes: List<Text<'j>>,
    #[serde(borrow)]
    persistent_volume_reclaim_policy: Text<'j>,
    #[serde(borrow)]
    claim_ref: Option<ClaimRef<'j>>,
    #[serde(borrow)]
    storage_class_name: Text<'j>,
    #[serde(borrow)]
    volume_attributes_class_name: Option<Text<'j>>,
    #[serde(borrow)]
    volume_mode: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ClaimRef<'j> {
    #[serde(borrow)]
    namespace: Text<'j>,
    #[serde(borrow)]
    name: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct VolumeStatus<'j> {
    #[serde(borrow)]
    phase: Text<'j>,
    #[serde(borrow)]
    reason: Text<'j>,
    #[serde(borrow)]
    capacity: Members<'j, Scalar>,
    #[serde(borrow)]
    access_modes: List<Text<'j>>,
}

fn persistent_volume(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let PersistentVolume { metadata, spec, status } = decode(json)?;
    let claim = spec.claim_ref.map(|claim| format!("{}/{}", claim.namespace, claim.name));
    cells![
        &metadata.name,
        storage(&spec.capacity),
        access_modes(&spec.access_modes),
        spec.persistent_volume_reclaim_policy.or("Retain"),
        metadata.phase(&status.phase),
        claim.unwrap_or_default(),
        metadata.storage_class(&spec.storage_class_name),
        spec.volume_attributes_class_name.as_deref().unwrap_or("<unset>"),
        &status.reason,
        metadata.creation_timestamp.age(now),
        spec.volume_mode.or("Filesystem"),
    ]
}

fn persistent_volume_claim(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let PersistentVolumeClaim { metadata, spec, status } = decode(json)?;
    let is_bound = !spec.volume_name.is_empty();
    cells![
        &metadata.name,
        metadata.phase(&status.phase),
        &spec.volume_name,
        if is_bound { storage(&status.capacity) } else { String::new() },
        if is_bound { access_modes(&status.access_modes) } else { String::new() },
        metadata.storage_class(&spec.storage_class_name),
        spec.volume_attributes_class_name.as_deref().unwrap_or("<unset>"),
        metadata.creation_timestamp.age(now),
        spec.volume_mode.or("Filesystem"),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PersistentVolumeClaim<'j> {
    #[serde(borrow)]
    metadata: AnnotatedMeta<'j>,
    #[serde(borrow)]
    spec: ClaimSpec<'j>,
    #[serde(borrow)]
    status: VolumeStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSpec<'j> {
    /// Name of the volume that is bound to the claim; empty if there is none.
    #[serde(borrow)]
    volume_name: Text<'j>,
    #[serde(borrow)]
    storage_class_name: Text<'j>,
    #[serde(borrow)]
    volume_attributes_class_name: Option<Text<'j>>,
    #[serde(borrow)]
    volume_mode: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Class<'j> {
    #[serde(borrow)]
    metadata: AnnotatedMeta<'j>,
    #[serde(borrow)]
    provisioner: Text<'j>,
    #[serde(borrow)]
    reclaim_policy: Text<'j>,
    #[serde(borrow)]
    volume_binding_mode: Text<'j>,
    allow_volume_expansion: Option<bool>,
    #[serde(borrow)]
    driver_name: Text<'j>,
}

impl Class<'_> {
    /// Returns whether an annotation marks the class as a default.
    fn is_default(&self) -> bool {
        const KEYS: [&str; 2] =
            ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        KEYS.iter().any(|key| self.metadata.annotations.get(key).is_some_and(|value| **value == *"true"))
    }
}

/// Returns the name of the storage class for claims without one: the newest default class, or the first by name if
/// several are equally new. `None` without a default class.
pub(super) fn default_class<'o>(classes: impl IntoIterator<Item = &'o [u8]>) -> Option<String> {
    let defaults = classes.into_iter().filter_map(|json| decode::<Class<'_>>(json).ok()).filter(Class::is_default);
    let best = defaults.reduce(|best, class| {
        let (created, name) = (class.metadata.creation_timestamp, &class.metadata.name);
        let (best_created, best_name) = (best.metadata.creation_timestamp, &best.metadata.name);
        if created > best_created || (created == best_created && name < best_name) { class } else { best }
    });
    best.map(|class| class.metadata.name.to_string())
}

fn storage_class(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let class: Class<'_> = decode(json)?;
    cells![
        &class.metadata.name,
        &class.provisioner,
        class.reclaim_policy.or("Delete"),
        class.volume_binding_mode.or("Immediate"),
        class.allow_volume_expansion.unwrap_or(false),
        class.metadata.creation_timestamp.age(now),
    ]
}

fn volume_attributes_class(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let class: Class<'_> = decode(json)?;
    cells![&class.metadata.name, &class.driver_name, class.metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct VolumeAttachment<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: AttachmentSpec<'j>,
    status: AttachmentStatus,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct AttachmentSpec<'j> {
    #[serde(borrow)]
    attacher: Text<'j>,
    #[serde(borrow)]
    node_name: Text<'j>,
    #[serde(borrow)]
    source: AttachmentSource<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct AttachmentSource<'j> {
    #[serde(borrow)]
    persistent_volume_name: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AttachmentStatus {
    attached: bool,
}

fn volume_attachment(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let VolumeAttachment { metadata, spec, status } = decode(json)?;
    cells![
        &metadata.name,
        &spec.attacher,
        &spec.source.persistent_volume_name,
        &spec.node_name,
        status.attached,
        metadata.creation_timestamp.age(now),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CsiNode<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    spec: CsiNodeSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CsiNodeSpec {
    drivers: Count,
}

fn csi_node(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let CsiNode { metadata, spec } = decode(json)?;
    cells![&metadata.name, spec.drivers.0, metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CsiDriver<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: CsiDriverSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct CsiDriverSpec<'j> {
    attach_required: Option<bool>,
    pod_info_on_mount: Option<bool>,
    storage_capacity: Option<bool>,
    requires_republish: Option<bool>,
    #[serde(borrow)]
    token_requests: Option<List<TokenRequest<'j>>>,
    #[serde(borrow)]
    volume_lifecycle_modes: List<Text<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenRequest<'j> {
    #[serde(borrow)]
    audience: Text<'j>,
}

fn csi_driver(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let CsiDriver { metadata, spec } = decode(json)?;
    let audiences = spec.token_requests.map(|requests| join(requests.iter().map(|request| &request.audience), ","));
    let modes = join(spec.volume_lifecycle_modes.iter(), ",");
    cells![
        &metadata.name,
        spec.attach_required.unwrap_or(true),
        spec.pod_info_on_mount.unwrap_or(false),
        spec.storage_capacity.unwrap_or(false),
        audiences.unwrap_or_else(|| "<unset>".to_owned()),
        spec.requires_republish.unwrap_or(false),
        if modes.is_empty() { "Persistent" } else { &modes },
        metadata.creation_timestamp.age(now),
    ]
}
