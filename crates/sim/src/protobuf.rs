//! Kubernetes protobuf: encodes objects, lists and frames of watches from the JSON that the server stores.

use bytes::Bytes;
use serde_json::Value;

use informer_hub_protobuf::{
    Converter, EncodeError, ObjectWriter, Omit, Schema, TypeMeta, begin_list, write_envelope, write_frame,
};
use informer_hub_types::ApiResource;

/// Maximum size of an object, in bytes.
const MAX_OBJECT: usize = 256 << 20;

/// Returns whether objects of a kind can be encoded in protobuf; custom resources cannot.
pub(super) fn has_message(api: &ApiResource) -> bool {
    Schema::builtin().kind(&api.gvr.api_version(), &api.kind).is_some()
}

/// Returns an object of a built-in type as a kube-apiserver stores it: with the members that Go writes for empty
/// values, and without its kind. `None` for custom resources.
///
/// # Errors
/// The object has members that its type lacks.
pub(super) fn stored_form(api: &ApiResource, object: &Value) -> Result<Option<Value>, EncodeError> {
    let message = Schema::builtin().kind(&api.gvr.api_version(), &api.kind);
    let (Some(message), Some(mut writer)) = (message, writer_of(api, false)) else { return Ok(None) };
    let raw = writer.message(object.to_string().as_bytes())?;
    let mut json = Vec::new();
    let converted = Converter::default().object(message, None, raw, &Omit::default(), MAX_OBJECT, &mut json);
    converted.map_err(|_| EncodeError::Malformed("its protobuf cannot be converted"))?;
    serde_json::from_slice(&json).map(Some).map_err(|_| EncodeError::Malformed("its protobuf is no JSON"))
}

/// Creates a protobuf encoder of a resource's objects, or of their `PartialObjectMetadata` if `partial`. Returns `None`
/// for the whole objects of a custom resource.
pub(super) fn writer_of(api: &ApiResource, partial: bool) -> Option<ObjectWriter> {
    let api_version = api.gvr.api_version();
    let kind = if partial {
        TypeMeta { api_version: "meta.k8s.io/v1", kind: "PartialObjectMetadata" }
    } else {
        TypeMeta { api_version: &api_version, kind: &api.kind }
    };
    ObjectWriter::new(kind, MAX_OBJECT)
}

/// Encodes a watch event from its type `kind` and its object as JSON. For the type ERROR, the object must be a
/// `Status`.
pub(super) fn event(writer: &mut ObjectWriter, kind: &str, object: &[u8]) -> Result<Bytes, EncodeError> {
    if kind == "ERROR" {
        return Ok(frame(kind, &status(object)?));
    }
    let mut frame = Vec::with_capacity(object.len());
    writer.event(kind, object, &mut frame)?;
    Ok(frame.into())
}

/// Encodes the beginning of a list, before its items. `kind` is the kind of the list, `items` the total size of its
/// items in bytes.
pub(super) fn list_head(kind: TypeMeta<'_>, metadata: &Value, items: usize) -> Result<Vec<u8>, EncodeError> {
    let (mut head, list) = (Vec::new(), serde_json::json!({ "metadata": metadata }).to_string());
    begin_list(&mut head, kind, list.as_bytes(), items, MAX_OBJECT)?;
    Ok(head)
}

pub(super) fn status(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    of_kind(TypeMeta { api_version: "v1", kind: "Status" }, json)
}

/// Encodes an object of a built-in kind in Kubernetes' envelope: `k8s\0` and a `runtime.Unknown`.
pub(super) fn of_kind(kind: TypeMeta<'_>, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let mut writer = ObjectWriter::new(kind, MAX_OBJECT).ok_or(EncodeError::Malformed("an unknown kind"))?;
    writer.object(json).map(<[u8]>::to_vec)
}

/// Wraps an encoded object in Kubernetes' envelope: `k8s\0` and a `runtime.Unknown`.
pub(super) fn envelope(kind: TypeMeta<'_>, raw: &[u8]) -> Vec<u8> {
    let mut object = Vec::with_capacity(raw.len() + 64);
    write_envelope(&mut object, kind, raw);
    object
}

/// Encodes a watch event: its length, then its type and its object.
pub(super) fn frame(kind: &str, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + 32);
    write_frame(&mut frame, kind, object);
    frame.into()
}

/// Moves the event type in a watch frame from the start to the end.
pub(super) fn reordered(frame: &Bytes, kind: &str) -> Bytes {
    let (length, event) = frame.split_at(4);
    let (kind, object) = event.split_at(kind.len() + 2);
    [length, object, kind].concat().into()
}
