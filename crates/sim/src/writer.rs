//! Encoder of the simulated apiserver's responses: watch events and list items, as JSON or protobuf.

use bytes::Bytes;

use super::http::Status;
use super::object::event_line;
use super::protobuf;
use informer_hub_protobuf::{EncodeError, ObjectWriter, write_item};

/// Encodes the watch events or list items of one response. The variant is the response's encoding.
#[derive(Debug)]
pub(super) enum Writer {
    Json,
    Protobuf(Box<ObjectWriter>),
}

impl Writer {
    /// Encodes a watch event of type `kind`. `object` is JSON.
    pub(super) fn event(&mut self, kind: &str, object: &[u8]) -> Bytes {
        let Self::Protobuf(writer) = self else { return event_line(kind, object) };
        // Not expected: every object in a world can be encoded.
        protobuf::event(writer, kind, object).unwrap_or_else(|error| {
            let status = Status::new(500, "InternalError", format!("cannot encode an object: {error}"));
            let status = protobuf::status(status.to_value().to_string().as_bytes()).unwrap_or_default();
            protobuf::frame("ERROR", &status)
        })
    }

    /// Encodes a watch event with the field `object` before `type`; a real apiserver writes `type` first.
    pub(super) fn reordered_event(&mut self, kind: &str, object: &[u8]) -> Bytes {
        match self {
            Self::Json => [b"{\"object\":", object, b",\"type\":\"", kind.as_bytes(), b"\"}\n"].concat().into(),
            Self::Protobuf(_) => protobuf::reordered(&self.event(kind, object), kind),
        }
    }

    /// Encodes an ERROR event with `status`.
    pub(super) fn error(&mut self, status: &Status) -> Bytes {
        self.event("ERROR", status.to_value().to_string().as_bytes())
    }

    /// Converts an object from JSON to the response's encoding, for [`Self::item`].
    pub(super) fn content(&mut self, object: Bytes) -> Result<Bytes, EncodeError> {
        match self {
            Self::Json => Ok(object),
            Self::Protobuf(writer) => writer.message(&object).map(Bytes::copy_from_slice),
        }
    }

    /// Appends an encoded object to a list in `out`: after a comma in JSON unless `is_first`, or after its length in
    /// protobuf.
    pub(super) fn item(&self, content: &[u8], is_first: bool, out: &mut Vec<u8>) {
        match self {
            Self::Json => {
                if !is_first {
                    out.push(b',');
                }
                out.extend_from_slice(content);
            }
            Self::Protobuf(_) => write_item(out, content),
        }
    }
}
