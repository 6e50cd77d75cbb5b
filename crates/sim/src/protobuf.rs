//! Kubernetes protobuf: objects, lists and frames of watches, encoded from the JSON of this server.

use bytes::Bytes;
use serde_json::Value;

use informer_hub_protobuf::{
    Converter, END_OF_ENVELOPE, EncodeError, Encoder, MessageId, Omit, Schema, TypeMeta, begin_envelope, write_frame,
    write_item,
};
use informer_hub_types::ApiResource;

/// Maximum size of an object.
const MAX_OBJECT: usize = 256 << 20;

/// Returns the message of a kind; `None` for custom resources.
pub(super) fn message_of(api: &ApiResource) -> Option<MessageId> {
    Schema::builtin().kind(&api.gvr.api_version(), &api.kind)
}

/// Returns an object of a built-in type as a kube-apiserver stores it: with the members that Go writes for empty values, and
/// without its kind. `None` for custom resources.
///
/// # Errors
/// The object has members that its type lacks.
pub(super) fn stored_form(api: &ApiResource, object: &Value) -> Result<Option<Value>, EncodeError> {
    let Some(mut writer) = ProtobufWriter::new(api, false) else { return Ok(None) };
    let raw = writer.message(object.to_string().as_bytes())?;
    let mut json = Vec::new();
    let converted = Converter::default().object(writer.message, None, &raw, &Omit::default(), MAX_OBJECT, &mut json);
    converted.map_err(|_| EncodeError::Malformed("its protobuf cannot be converted"))?;
    serde_json::from_slice(&json).map(Some).map_err(|_| EncodeError::Malformed("its protobuf is no JSON"))
}

/// Encodes the objects of one resource, or their metadata.
#[derive(Debug)]
pub(super) struct ProtobufWriter {
    encoder: Encoder,
    message: MessageId,
    api_version: String,
    kind: String,
}

impl ProtobufWriter {
    /// Creates an encoder; `None` if the resource has no message.
    pub(super) fn new(api: &ApiResource, partial: bool) -> Option<Self> {
        let (api_version, kind) = if partial {
            ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata".to_owned())
        } else {
            (api.gvr.api_version(), api.kind.to_string())
        };
        let message = Schema::builtin().kind(&api_version, &kind)?;
        Some(Self { encoder: Encoder::default(), message, api_version, kind })
    }

    /// Encodes an object without its envelope. Its kind is ignored.
    pub(super) fn message(&mut self, object: &[u8]) -> Result<Vec<u8>, EncodeError> {
        let mut raw = Vec::new();
        self.encoder.object(self.message, object, MAX_OBJECT, &mut raw)?;
        Ok(raw)
    }

    /// Puts a message into an envelope of this kind.
    pub(super) fn envelope(&self, raw: &[u8]) -> Vec<u8> {
        envelope(&self.api_version, &self.kind, raw)
    }

    /// Encodes an object in its envelope.
    pub(super) fn object(&mut self, object: &[u8]) -> Result<Vec<u8>, EncodeError> {
        let raw = self.message(object)?;
        Ok(self.envelope(&raw))
    }

    /// Encodes the beginning of a list whose items have `items` bytes.
    pub(super) fn list_head(&self, metadata: &Value, items: usize) -> Result<Vec<u8>, EncodeError> {
        list_head((&self.api_version, &format!("{}List", self.kind)), metadata, items)
    }

    /// Encodes an event of a watch, whose object is a `Status` if it is an error.
    pub(super) fn event(&mut self, kind: &str, object: &[u8]) -> Result<Bytes, EncodeError> {
        let object = if kind == "ERROR" { status(object)? } else { self.object(object)? };
        Ok(frame(kind, &object))
    }
}

/// Encodes the beginning of a list of a kind, whose items have `items` bytes. [`END_OF_ENVELOPE`] ends the list.
pub(super) fn list_head(
    (api_version, kind): (&str, &str),
    metadata: &Value,
    items: usize,
) -> Result<Vec<u8>, EncodeError> {
    let message = Schema::builtin().kind(api_version, kind).ok_or(EncodeError::Malformed("an unknown kind"))?;
    let (mut raw, mut head) = (Vec::new(), Vec::new());
    let list = serde_json::json!({ "metadata": metadata }).to_string();
    Encoder::default().object(message, list.as_bytes(), MAX_OBJECT, &mut raw)?;
    begin_envelope(&mut head, TypeMeta { api_version, kind }, raw.len() + items);
    head.extend_from_slice(&raw);
    Ok(head)
}

/// Encodes a `Status` in its envelope.
pub(super) fn status(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    of_kind("v1", "Status", json)
}

/// Encodes an object of a built-in kind in its envelope.
pub(super) fn of_kind(api_version: &str, kind: &str, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let message = Schema::builtin().kind(api_version, kind).ok_or(EncodeError::Malformed("an unknown kind"))?;
    let mut raw = Vec::new();
    Encoder::default().object(message, json, MAX_OBJECT, &mut raw)?;
    Ok(envelope(api_version, kind, &raw))
}

/// Puts a message into an envelope.
pub(super) fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut object = Vec::with_capacity(raw.len() + 64);
    begin_envelope(&mut object, TypeMeta { api_version, kind }, raw.len());
    object.extend_from_slice(raw);
    object.extend_from_slice(END_OF_ENVELOPE);
    object
}

/// Returns a frame of a watch.
pub(super) fn frame(kind: &str, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + 32);
    write_frame(&mut frame, kind, object);
    frame.into()
}

/// Returns a frame whose type, its first field, is at its end.
pub(super) fn reordered(frame: &Bytes, kind: &str) -> Bytes {
    let (length, event) = frame.split_at(4);
    let (kind, object) = event.split_at(kind.len() + 2);
    [length, object, kind].concat().into()
}

/// Returns an item of a list.
pub(super) fn item(message: &[u8]) -> Vec<u8> {
    let mut item = Vec::with_capacity(message.len() + 6);
    write_item(&mut item, message);
    item
}
