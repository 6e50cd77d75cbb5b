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
    /// Writes an event of a watch: its type, and its object given as JSON.
    pub(super) fn event(&mut self, kind: &str, object: &[u8]) -> Bytes {
        let Self::Protobuf(writer) = self else { return event_line(kind, object) };
        // A world has no objects that cannot be encoded.
        protobuf::event(writer, kind, object).unwrap_or_else(|error| {
            let status = Status::new(500, "InternalError", format!("cannot encode an object: {error}"));
            let status = protobuf::status(status.to_value().to_string().as_bytes()).unwrap_or_default();
            protobuf::frame("ERROR", &status)
        })
    }

    /// Writes an event whose object precedes its type.
    pub(super) fn reordered_event(&mut self, kind: &str, object: &[u8]) -> Bytes {
        match self {
            Self::Json => [b"{\"object\":", object, b",\"type\":\"", kind.as_bytes(), b"\"}\n"].concat().into(),
            Self::Protobuf(_) => protobuf::reordered(&self.event(kind, object), kind),
        }
    }

    /// Writes an ERROR event.
    pub(super) fn error(&mut self, status: &Status) -> Bytes {
        self.event("ERROR", status.to_value().to_string().as_bytes())
    }

    /// Returns an item of a list, without separators, given as JSON.
    pub(super) fn content(&mut self, object: Bytes) -> Result<Bytes, EncodeError> {
        match self {
            Self::Json => Ok(object),
            Self::Protobuf(writer) => writer.message(&object).map(Bytes::copy_from_slice),
        }
    }

    /// Appends an item of a list, whose content [`Self::content`] returns or a test made up.
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
