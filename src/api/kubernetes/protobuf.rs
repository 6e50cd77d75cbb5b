//! Answers in Kubernetes protobuf: objects of built-in types and metadata, converted from the stored JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use informer_hub_kubeapi::{Form, Status};
use informer_hub_protobuf::{
    END_OF_ENVELOPE, EncodeError, Encoder, MessageId, Schema, TypeMeta, begin_envelope, write_frame, write_item,
};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, ClusterName, Gvr};

/// Maximum size of an object. The stored JSON is limited too.
const MAX_OBJECT: usize = 64 << 20;

/// Version of `PartialObjectMetadata` and its lists.
const META: &str = "meta.k8s.io/v1";

/// How long a resource of a cluster is served as JSON after an object could not be encoded.
const JSON_ONLY: Duration = Duration::from_secs(600);

/// Resources of clusters with an object that cannot be encoded, which are served as JSON for a while.
#[derive(Debug, Default)]
pub(super) struct JsonOnly(Mutex<BTreeMap<Gvr, BTreeMap<ClusterName, Instant>>>);

impl JsonOnly {
    /// Returns whether a resource is served as JSON only, because of one of the selected clusters.
    pub(super) fn contains(&self, gvr: &Gvr, is_selected: impl Fn(&ClusterName) -> bool) -> bool {
        let (known, now) = (self.0.lock(), clock::now());
        let mut clusters = known.get(gvr).into_iter().flatten();
        clusters.any(|(cluster, until)| now < *until && is_selected(cluster))
    }

    fn add(&self, gvr: &Gvr, cluster: &ClusterName, error: &EncodeError) {
        let (mut known, now) = (self.0.lock(), clock::now());
        known.retain(|_, clusters| {
            clusters.retain(|_, until| now < *until);
            !clusters.is_empty()
        });
        if known.entry(gvr.clone()).or_default().insert(cluster.clone(), now + JSON_ONLY).is_none() {
            tracing::warn!(%cluster, resource = %gvr, %error, "cannot serve a resource as protobuf, serving it as JSON");
        }
    }
}

/// Encoder of the objects of a resource in one form. Keeps its scratch memory.
#[derive(Debug)]
pub(super) struct ProtobufWriter {
    encoder: Encoder,
    message: MessageId,
    api_version: String,
    kind: String,
    gvr: Gvr,
    json_only: Arc<JsonOnly>,
    /// The message of an object.
    raw: Vec<u8>,
    /// An object in its envelope.
    object: Vec<u8>,
}

impl Clone for ProtobufWriter {
    fn clone(&self) -> Self {
        Self {
            encoder: Encoder::default(),
            message: self.message,
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            gvr: self.gvr.clone(),
            json_only: Arc::clone(&self.json_only),
            raw: Vec::new(),
            object: Vec::new(),
        }
    }
}

impl ProtobufWriter {
    /// Creates an encoder; `None` if the form or the resource has no message.
    pub(super) fn new(form: Form, resource: &ApiResource, json_only: &Arc<JsonOnly>) -> Option<Self> {
        let (api_version, kind) = match form {
            Form::Object => (resource.gvr.api_version(), resource.kind.to_string()),
            Form::Metadata | Form::MetadataList => (META.to_owned(), "PartialObjectMetadata".to_owned()),
            Form::Table | Form::AggregatedDiscovery => return None,
        };
        Some(Self {
            encoder: Encoder::default(),
            message: Schema::builtin().kind(&api_version, &kind)?,
            api_version,
            kind,
            gvr: resource.gvr.clone(),
            json_only: Arc::clone(json_only),
            raw: Vec::new(),
            object: Vec::new(),
        })
    }

    /// Encodes the message of an object. If it fails, the resource of the cluster is served as JSON for a while.
    fn encode(&mut self, cluster: Option<&ClusterName>, json: &[u8]) -> Result<(), EncodeError> {
        self.raw.clear();
        let result = self.encoder.object(self.message, json, MAX_OBJECT, &mut self.raw);
        result.inspect_err(|error| {
            if let Some(cluster) = cluster {
                self.json_only.add(&self.gvr, cluster, error);
            }
        })
    }

    /// Converts an object of a cluster in JSON, and returns it in its envelope. A bookmark has no cluster.
    ///
    /// # Errors
    /// The object has members that the schema lacks, or is not of this kind.
    pub(super) fn object(&mut self, cluster: Option<&ClusterName>, json: &[u8]) -> Result<&[u8], EncodeError> {
        self.encode(cluster, json)?;
        self.object.clear();
        let type_meta = TypeMeta { api_version: &self.api_version, kind: &self.kind };
        begin_envelope(&mut self.object, type_meta, self.raw.len());
        self.object.extend_from_slice(&self.raw);
        self.object.extend_from_slice(END_OF_ENVELOPE);
        Ok(&self.object)
    }

    /// Appends an event of a watch.
    ///
    /// # Errors
    /// As [`Self::object`].
    pub(super) fn event(
        &mut self,
        event: &str,
        cluster: Option<&ClusterName>,
        json: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        write_frame(out, event, self.object(cluster, json)?);
        Ok(())
    }

    /// Appends an item of a list.
    ///
    /// # Errors
    /// As [`Self::object`].
    pub(super) fn item(&mut self, cluster: &ClusterName, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.encode(Some(cluster), json)?;
        write_item(out, &self.raw);
        Ok(())
    }

    /// Appends the beginning of a list, whose items will have `items` bytes. [`END_OF_ENVELOPE`] ends it. `head` is the list
    /// in JSON without its items.
    ///
    /// # Errors
    /// There is no such list.
    pub(super) fn begin_list(
        (api_version, kind): (&str, &str),
        head: &[u8],
        items: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let list = TypeMeta { api_version, kind };
        let message = Schema::builtin().kind(api_version, kind);
        let message = message.filter(|message| Schema::builtin().items(*message).is_some());
        let message = message.ok_or(EncodeError::Malformed("not a list"))?;
        let mut raw = Vec::new();
        Encoder::default().object(message, head, MAX_OBJECT, &mut raw)?;
        begin_envelope(out, list, raw.len() + items);
        out.extend_from_slice(&raw);
        Ok(())
    }
}

/// Returns a failure in its envelope.
pub(super) fn status(failure: &Status) -> Vec<u8> {
    let type_meta = TypeMeta { api_version: "v1", kind: "Status" };
    let mut raw = Vec::new();
    let message = Schema::builtin().kind(type_meta.api_version, type_meta.kind);
    // It is in the schema, with every member that a failure has: tests encode them all.
    let encoded = message.map(|message| Encoder::default().object(message, &failure.json(), MAX_OBJECT, &mut raw));
    debug_assert_eq!(encoded, Some(Ok(())));
    let mut out = Vec::new();
    begin_envelope(&mut out, type_meta, raw.len());
    out.extend_from_slice(&raw);
    out.extend_from_slice(END_OF_ENVELOPE);
    out
}

/// Appends an event that ends a watch.
pub(super) fn write_error(failure: &Status, out: &mut Vec<u8>) {
    write_frame(out, "ERROR", &status(failure));
}
