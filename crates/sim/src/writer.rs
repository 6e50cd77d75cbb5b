//! Writer of the events and items of one answer, in its encoding.

use bytes::Bytes;

use super::http::Status;
use super::object::event_line;
use super::protobuf;
use informer_hub_protobuf::{EncodeError, ObjectWriter, write_item};

/// Writes the events or items of one answer.
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

    /// Encodes a watch event whose object precedes its type.
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

    /// Encodes an object, given as JSON, for a list. [`Self::item`] adds the comma (JSON) or the length (protobuf).
    pub(super) fn content(&mut self, object: Bytes) -> Result<Bytes, EncodeError> {
        match self {
            Self::Json => Ok(object),
            Self::Protobuf(writer) => writer.message(&object).map(Bytes::copy_from_slice),
        }
    }

    /// Appends an item of a list. `content` comes from [`Self::content`] or from a test.
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
