//! Encoding of objects in the form and media type that a reader accepts.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::protobuf::ResourceWriter;
use informer_hub_kubeapi::{Edit, Form, IncludeObject, Media, Printer, to_yaml};
use informer_hub_types::{ClusterName, FieldPath, Members, Origin, StoredObject};

static METADATA: LazyLock<Members> = LazyLock::new(|| {
    let path: FieldPath = "metadata".parse().expect("the path is valid");
    Members::new([&path])
});

/// How objects are named below a URL root, and which resource versions they have there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Naming {
    /// Names and resource versions as in the object's cluster, without changes.
    Cluster,
    /// Names as in the object's cluster. An annotation and a label have the cluster's name. Resource versions are the
    /// hub's own, which order the changes of all clusters.
    Fleet,
    /// Names of the form `<cluster>:<name>`. As for `Fleet`, an annotation and a label have the cluster's name, and
    /// resource versions are the hub's own.
    Unique,
}

impl Naming {
    /// Returns whether the URL root covers several clusters.
    pub(super) fn is_fleet(self) -> bool {
        self != Self::Cluster
    }
}

/// Position of an object in an answer: alone, or in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The object is an answer or a watch event of its own.
    Single,
    /// An item of a list.
    Item,
}

/// Encodes the objects of one answer in the form that the client asked for: whole objects, only metadata, or a table.
#[derive(Clone, Debug)]
pub(super) struct Encoder {
    pub(super) form: Form,
    pub(super) naming: Naming,
    pub(super) include: IncludeObject,
    /// Whether list items omit `kind` and `apiVersion`, as kube-apiserver does for built-in types.
    pub(super) bare_items: bool,
    /// Columns of a table and the writer of its rows; `None` if the answer is not a table.
    pub(super) printer: Option<Arc<Printer>>,
    /// Writers of table rows, by cluster; used instead of `printer` for the clusters in this map. Set for tables in
    /// which a cell depends on all objects of the cluster.
    pub(super) printers: BTreeMap<ClusterName, Arc<Printer>>,
    /// Protobuf encoder; `None` if the answer is not protobuf.
    pub(super) protobuf: Option<ResourceWriter>,
    /// Time of the request or event, in seconds since 1970, from which ages in tables are computed.
    pub(super) now: i64,
}

impl Encoder {
    /// Appends an object as JSON or as the row of a table. `version` replaces the object's resourceVersion, e.g. in a
    /// deletion event, which is newer than the object's last state.
    pub(super) fn write(
        &self,
        object: &StoredObject,
        origin: &Origin,
        version: Option<u64>,
        place: Place,
        out: &mut Vec<u8>,
    ) {
        let only_metadata = matches!(self.form, Form::Metadata | Form::MetadataList);
        let plain = if only_metadata { object.json_with(&METADATA) } else { object.json() };
        let plain = plain.unwrap_or_else(|_| head_only(object, origin).into());
        let edit = self.edit(object, &origin.cluster, version, place);
        match self.form {
            Form::Table => self.write_row(&plain, &edit, &origin.cluster, out),
            Form::Metadata | Form::MetadataList => edit.write_metadata(&plain, out),
            Form::Object | Form::AggregatedDiscovery if is_unchanged(&edit) => out.extend_from_slice(&plain),
            Form::Object | Form::AggregatedDiscovery => edit.write_object(&plain, out),
        }
    }

    /// Returns an object's stored protobuf, including its envelope. `None` if the object has no stored protobuf. Also
    /// `None` if the answer shows the object in another form or with changed metadata.
    pub(super) fn stored_protobuf(&self, object: &StoredObject, version: Option<u64>) -> Option<Arc<[u8]>> {
        let is_as_stored = self.form == Form::Object && !self.naming.is_fleet() && version.is_none();
        if is_as_stored { object.protobuf().ok().flatten() } else { None }
    }

    fn edit<'a>(
        &self,
        object: &StoredObject,
        cluster: &'a ClusterName,
        version: Option<u64>,
        place: Place,
    ) -> Edit<'a> {
        let without_type = place == Place::Item && self.bare_items && self.form == Form::Object;
        if !self.naming.is_fleet() {
            return Edit { version, without_type, ..Edit::default() };
        }
        let version = Some(version.unwrap_or_else(|| object.fleet_version()));
        Edit { version, cluster: Some(cluster), is_unique: self.naming == Naming::Unique, without_type }
    }

    fn write_row(&self, plain: &[u8], edit: &Edit<'_>, cluster: &ClusterName, out: &mut Vec<u8>) {
        let Some(printer) = self.printers.get(cluster).or(self.printer.as_ref()) else { return };
        let mut row = printer.row(plain, self.now);
        if self.naming == Naming::Unique
            && let Some(serde_json::Value::String(name)) = row.cells.first_mut()
        {
            *name = format!("{cluster}:{name}");
        }
        if self.naming.is_fleet() {
            row.cells.insert(0, json!(cluster.as_str()));
        }
        out.extend_from_slice(b"{\"cells\":");
        append(out, &row.cells);
        if !row.conditions.is_empty() {
            out.extend_from_slice(b",\"conditions\":");
            append(out, &row.conditions);
        }
        out.extend_from_slice(b",\"object\":");
        match self.include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => edit.write_metadata(plain, out),
            IncludeObject::Object => edit.write_object(plain, out),
        }
        out.push(b'}');
    }

    /// Returns the JSON of `columnDefinitions`.
    pub(super) fn columns(&self) -> Vec<u8> {
        let cluster = json!({
            "name": "Cluster", "type": "string", "format": "", "priority": 0,
            "description": "Cluster that the object is in.",
        });
        let first = self.naming.is_fleet().then_some(cluster).into_iter();
        let rest = self.printer.iter().flat_map(|printer| printer.columns()).map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        });
        let mut out = Vec::new();
        append(&mut out, &first.chain(rest).collect::<Vec<_>>());
        out
    }

    /// Returns `kind` and `apiVersion` of a list in the form of this answer, for example of a `Table`.
    pub(super) fn list_type(&self, list_kind: &str, api_version: &str) -> (String, String) {
        match self.form {
            Form::Table => ("Table".to_owned(), "meta.k8s.io/v1".to_owned()),
            Form::Metadata | Form::MetadataList => {
                ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
            }
            Form::Object | Form::AggregatedDiscovery => (list_kind.to_owned(), api_version.to_owned()),
        }
    }
}

fn is_unchanged(edit: &Edit<'_>) -> bool {
    edit.version.is_none() && edit.cluster.is_none() && !edit.without_type
}

/// Returns the metadata of an object as JSON, for an object whose stored JSON (body) is not in memory.
pub(in crate::api) fn head_only(object: &StoredObject, origin: &Origin) -> Vec<u8> {
    let labels: serde_json::Map<_, _> =
        object.labels().iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
    let mut metadata = json!({
        "name": object.key().name(),
        "uid": object.uid().to_string(),
        "resourceVersion": object.resource_version().to_string(),
    });
    if let Some(namespace) = object.key().namespace() {
        metadata["namespace"] = json!(namespace);
    }
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    let resource = &origin.resource;
    let whole =
        json!({ "kind": resource.kind.as_str(), "apiVersion": resource.gvr.api_version(), "metadata": metadata });
    whole.to_string().into_bytes()
}

pub(super) fn append<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing plain data to a buffer cannot fail.
    let _ = serde_json::to_writer(out, value);
}

/// Converts a JSON answer to the accepted media type, which must not be protobuf.
pub(super) fn to_media(json: Vec<u8>, media: Media, is_pretty: bool) -> Vec<u8> {
    match media {
        Media::Yaml => to_yaml(&json),
        Media::Json if is_pretty => informer_hub_kubeapi::pretty(&json),
        Media::Json | Media::Protobuf => json,
    }
}
