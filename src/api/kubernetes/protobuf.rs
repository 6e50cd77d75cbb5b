//! Answers in Kubernetes protobuf: objects of built-in types and metadata.
//!
//! If the answer shows an object exactly as in its cluster, the stored protobuf is copied. Otherwise the object's JSON
//! is edited and encoded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use informer_hub_kubeapi::{Form, Status};
use informer_hub_protobuf::{EncodeError, ObjectWriter, TypeMeta, write_frame};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, ClusterName, Gvr};

/// Maximum size in bytes of an encoded object, and of a list without its items.
pub(super) const MAX_OBJECT: usize = 64 << 20;

/// Type of the objects in answers that contain only metadata.
const METADATA: TypeMeta<'_> = TypeMeta { api_version: "meta.k8s.io/v1", kind: "PartialObjectMetadata" };

/// How long a resource of a cluster is served as JSON after an object could not be encoded.
const JSON_ONLY: Duration = Duration::from_secs(600);

/// Resources, by cluster, that are served as JSON for ten minutes, because an object could not be encoded as protobuf.
#[derive(Debug, Default)]
pub(super) struct JsonOnly(Mutex<BTreeMap<Gvr, BTreeMap<ClusterName, Instant>>>);

impl JsonOnly {
    /// Returns whether a resource is served as JSON because one of the selected clusters has an object that cannot be
    /// encoded.
    pub(super) fn contains(&self, gvr: &Gvr, is_selected: impl Fn(&ClusterName) -> bool) -> bool {
        let (known, now) = (self.0.lock(), clock::now());
        let mut clusters = known.get(gvr).into_iter().flatten();
        clusters.any(|(cluster, until)| now < *until && is_selected(cluster))
    }

    fn add(&self, gvr: &Gvr, cluster: Option<&ClusterName>, error: &EncodeError) {
        let Some(cluster) = cluster else { return };
        let (mut known, now) = (self.0.lock(), clock::now());
        known.retain(|_, clusters| {
            clusters.retain(|_, until| now < *until);
            !clusters.is_empty()
        });
        if known.entry(gvr.clone()).or_default().insert(cluster.clone(), now + JSON_ONLY).is_none() {
            tracing::warn!(
                %cluster, resource = %gvr, %error,
                "cannot serve a resource as protobuf; serving it as JSON for ten minutes"
            );
        }
    }
}

/// Protobuf writer of the objects of one resource. If an object cannot be encoded, the resource is served as JSON for
/// ten minutes.
#[derive(Clone, Debug)]
pub(super) struct ResourceWriter {
    objects: ObjectWriter,
    gvr: Gvr,
    json_only: Arc<JsonOnly>,
}

impl ResourceWriter {
    /// Creates a writer; `None` if there is no protobuf message for the form or the resource.
    pub(super) fn new(form: Form, resource: &ApiResource, json_only: &Arc<JsonOnly>) -> Option<Self> {
        let api_version = resource.gvr.api_version();
        let kind = match form {
            Form::Object => TypeMeta { api_version: &api_version, kind: &resource.kind },
            Form::Metadata | Form::MetadataList => METADATA,
            Form::Table | Form::AggregatedDiscovery => return None,
        };
        let objects = ObjectWriter::new(kind, MAX_OBJECT)?;
        Some(Self { objects, gvr: resource.gvr.clone(), json_only: Arc::clone(json_only) })
    }

    /// Encodes a single object with its envelope. If this fails, the resource is served as JSON for `cluster` for ten
    /// minutes. `cluster` is `None` for bookmarks.
    ///
    /// # Errors
    /// As [`ObjectWriter::object`].
    pub(super) fn object(&mut self, cluster: Option<&ClusterName>, json: &[u8]) -> Result<&[u8], EncodeError> {
        self.objects.object(json).inspect_err(|error| self.json_only.add(&self.gvr, cluster, error))
    }

    /// Appends an event of a watch. If the object cannot be encoded, the resource is served as JSON for `cluster` for
    /// ten minutes.
    ///
    /// # Errors
    /// As [`ObjectWriter::event`].
    pub(super) fn event(
        &mut self,
        event: &str,
        cluster: Option<&ClusterName>,
        json: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let result = self.objects.event(event, json, out);
        result.inspect_err(|error| self.json_only.add(&self.gvr, cluster, error))
    }

    /// Appends an item of a list. If the object cannot be encoded, the resource is served as JSON for `cluster` for ten
    /// minutes.
    ///
    /// # Errors
    /// As [`ObjectWriter::item`].
    pub(super) fn item(&mut self, cluster: &ClusterName, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let result = self.objects.item(json, out);
        result.inspect_err(|error| self.json_only.add(&self.gvr, Some(cluster), error))
    }
}

/// Returns a failure as a protobuf `Status` in its envelope.
pub(super) fn status(failure: &Status) -> Vec<u8> {
    let writer = ObjectWriter::new(TypeMeta { api_version: "v1", kind: "Status" }, MAX_OBJECT);
    // `Status` is in the schema with every member that a failure has: tests encode them all.
    let status = writer.and_then(|mut writer| writer.object(&failure.json()).ok().map(<[u8]>::to_vec));
    debug_assert!(status.is_some());
    status.unwrap_or_default()
}

/// Appends the `ERROR` event that ends a watch.
pub(super) fn write_error(failure: &Status, out: &mut Vec<u8>) {
    write_frame(out, "ERROR", &status(failure));
}
