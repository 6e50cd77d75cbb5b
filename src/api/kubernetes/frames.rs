//! Events of a watch: lines of JSON, or frames of protobuf.

use std::fmt::Write;

use serde_json::json;

use super::encode::{Encoder, Naming, Place, append};
use informer_hub_kubeapi::{Form, Media, Status};
use informer_hub_protobuf::write_frame;
use informer_hub_types::{ApiResource, ClusterName, Origin, StoredObject, clock};

/// Type of a watch event that shows an object of the cache, unlike `BOOKMARK` and `ERROR`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Key of an encoded watch event: together with the object, these properties determine the event's bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Encoding {
    pub(super) event: EventType,
    pub(super) naming: Naming,
    pub(super) media: Media,
    pub(super) form: Form,
    pub(super) cluster: ClusterName,
    /// resourceVersion that the event shows; `None` for the object's own.
    pub(super) version: Option<u64>,
}

/// Writer of watch events.
#[derive(Debug)]
pub(super) struct Frames {
    encoder: Encoder,
    kind: String,
    api_version: String,
    /// Whether a table has been sent. Only the first table has column definitions.
    has_columns: bool,
    /// Failure that ends the watch, because an object could not be written as protobuf.
    failure: Option<Status>,
    /// Buffer for the JSON of an object that is converted to protobuf.
    json: Vec<u8>,
}

impl Frames {
    pub(super) fn new(encoder: Encoder, resource: &ApiResource) -> Self {
        let (kind, api_version) = match encoder.form {
            Form::Metadata | Form::MetadataList => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
            _ => (resource.kind.to_string(), resource.gvr.api_version()),
        };
        Self { encoder, kind, api_version, has_columns: false, failure: None, json: Vec::new() }
    }

    pub(super) fn naming(&self) -> Naming {
        self.encoder.naming
    }

    /// Returns whether the names of objects include the cluster.
    pub(super) fn is_unique(&self) -> bool {
        self.encoder.naming == Naming::Unique
    }

    /// Returns the key under which watches share an event's bytes; `None` for tables, which depend on the time.
    pub(super) fn shared_encoding(&self, event: EventType, origin: &Origin, version: Option<u64>) -> Option<Encoding> {
        let Encoder { form, naming, .. } = self.encoder;
        let (cluster, media) = (origin.cluster.clone(), self.media());
        (form != Form::Table).then_some(Encoding { event, naming, media, form, cluster, version })
    }

    pub(super) fn event(
        &mut self,
        event: EventType,
        object: &StoredObject,
        origin: &Origin,
        version: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        if self.encoder.protobuf.is_some() {
            if let Some(stored) = self.encoder.stored_protobuf(object, version) {
                return write_frame(out, event.as_str(), &stored);
            }
            self.json.clear();
            self.encoder.write(object, origin, version, Place::Single, &mut self.json);
            self.frame(event.as_str(), Some(&origin.cluster), out);
            return;
        }
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(event.as_str().as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        if self.encoder.form == Form::Table {
            self.encoder.now = clock::wall().as_second();
            let of_table = version.map_or_else(|| self.version_of(object), |version| version.to_string());
            self.begin_table(&of_table, out);
            self.encoder.write(object, origin, version, Place::Single, out);
            out.extend_from_slice(b"]}");
        } else {
            self.encoder.write(object, origin, version, Place::Single, out);
        }
        out.extend_from_slice(b"}\n");
    }

    /// Appends an event as a protobuf frame. The object is in `self.json`.
    fn frame(&mut self, event: &str, cluster: Option<&ClusterName>, out: &mut Vec<u8>) {
        let Some(writer) = &mut self.encoder.protobuf else { return };
        if let Err(error) = writer.event(event, cluster, &self.json, out) {
            self.failure = Some(Status::expired(format!("an object cannot be sent as protobuf: {error}")));
        }
    }

    /// Returns the failure that must end the watch, because an object could not be written as protobuf; `None` if there
    /// is no failure. The client then lists again, and gets JSON if it accepts JSON.
    pub(super) fn failure(&mut self) -> Option<Status> {
        self.failure.take()
    }

    /// Appends an `ERROR` event with this status. The caller must end the watch after it.
    pub(super) fn error(&self, status: &Status, out: &mut Vec<u8>) {
        write_error(status, self.media(), out);
    }

    fn media(&self) -> Media {
        if self.encoder.protobuf.is_some() { Media::Protobuf } else { Media::Json }
    }

    fn version_of(&self, object: &StoredObject) -> String {
        if self.naming().is_fleet() {
            object.fleet_version().to_string()
        } else {
            object.resource_version().to_string()
        }
    }

    fn begin_table(&mut self, version: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"resourceVersion\":",
        );
        append(out, version);
        out.extend_from_slice(b"},\"columnDefinitions\":");
        if std::mem::replace(&mut self.has_columns, true) {
            out.extend_from_slice(b"null");
        } else {
            out.extend_from_slice(&self.encoder.columns());
        }
        out.extend_from_slice(b",\"rows\":[");
    }

    pub(super) fn bookmark(&mut self, version: u64, ends_initial: bool, out: &mut Vec<u8>) {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write!(text, "{version}");
        let mut metadata = json!({ "resourceVersion": text });
        if ends_initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        if self.encoder.form == Form::Table {
            out.extend_from_slice(b"{\"type\":\"BOOKMARK\",\"object\":");
            self.begin_table(&text, out);
            out.extend_from_slice(b"{\"cells\":[],\"object\":");
            append(
                out,
                &json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata }),
            );
            out.extend_from_slice(b"}]}}\n");
            return;
        }
        let object = json!({ "kind": self.kind, "apiVersion": self.api_version, "metadata": metadata });
        if self.encoder.protobuf.is_some() {
            self.json.clear();
            append(&mut self.json, &object);
            self.frame("BOOKMARK", None, out);
            return;
        }
        append(out, &json!({ "type": "BOOKMARK", "object": object }));
        out.push(b'\n');
    }
}

/// Appends an `ERROR` event with this status. The caller must end the watch after it.
pub(super) fn write_error(status: &Status, media: Media, out: &mut Vec<u8>) {
    if media == Media::Protobuf {
        return super::protobuf::write_error(status, out);
    }
    out.extend_from_slice(b"{\"type\":\"ERROR\",\"object\":");
    out.extend_from_slice(&status.json());
    out.extend_from_slice(b"}\n");
}
