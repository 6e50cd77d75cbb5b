//! Messages around an object: `runtime.Unknown` and `WatchEvent`.

use super::error::ConvertError;
use super::wire::{Reader, Value};

/// First bytes of every object or list in Kubernetes protobuf, also of the object in a watch event.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// `runtime.Unknown`: an object's message with its `kind` and `apiVersion`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Envelope<'i> {
    /// `apiVersion` of the object; empty if the envelope has none.
    pub api_version: &'i str,
    /// `kind` of the object; empty if the envelope has none.
    pub kind: &'i str,
    /// The object's message, still encoded.
    pub raw: &'i [u8],
}

impl<'i> Envelope<'i> {
    /// Reads an envelope, which must begin with [`MAGIC`].
    ///
    /// # Errors
    /// The bytes are not an envelope, or the object is not in protobuf.
    pub fn read(bytes: &'i [u8]) -> Result<Self, ConvertError> {
        let Some(body) = bytes.strip_prefix(MAGIC) else {
            return Err(ConvertError::Malformed("it does not begin with k8s and a zero byte"));
        };
        let (mut envelope, mut reader, mut has_raw) = (Self::default(), Reader::new(body), false);
        while let Some(field) = reader.field()? {
            match (field.number, field.value) {
                (1, Value::Bytes(bytes)) => envelope.type_meta(bytes)?,
                (2, Value::Bytes(_)) if has_raw => return Err(ConvertError::Malformed("an envelope with two objects")),
                (2, Value::Bytes(bytes)) => (envelope.raw, has_raw) = (bytes, true),
                (3 | 4, value) if !value.is_empty() => {
                    return Err(ConvertError::Malformed("an envelope with an unexpected content encoding"));
                }
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// Reads `runtime.TypeMeta`.
    ///
    /// # Errors
    /// If the bytes are not a message, or a text is not UTF-8.
    pub fn type_meta(&mut self, bytes: &'i [u8]) -> Result<(), ConvertError> {
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.field()? {
            let (1 | 2, Value::Bytes(text)) = (field.number, field.value) else { continue };
            let text = std::str::from_utf8(text).map_err(|_| ConvertError::Malformed("a kind that is not UTF-8"))?;
            *(if field.number == 1 { &mut self.api_version } else { &mut self.kind }) = text;
        }
        Ok(())
    }
}

/// `meta/v1.WatchEvent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchEvent<'i> {
    /// Type of the event, such as `ADDED`; empty if it is missing.
    pub kind: &'i str,
    /// The object in its [`Envelope`]; empty if the event has no object.
    pub object: &'i [u8],
}

impl<'i> WatchEvent<'i> {
    /// Reads a frame of a watch, given without its length prefix.
    ///
    /// # Errors
    /// If the frame is not a watch event.
    pub fn read(frame: &'i [u8]) -> Result<Self, ConvertError> {
        let (mut event, mut reader) = (Self { kind: "", object: &[] }, Reader::new(frame));
        while let Some(field) = reader.field()? {
            match (field.number, field.value) {
                (1, Value::Bytes(text)) => {
                    event.kind =
                        std::str::from_utf8(text).map_err(|_| ConvertError::Malformed("a type that is not UTF-8"))?;
                }
                (2, Value::Bytes(_)) if !event.object.is_empty() => {
                    return Err(ConvertError::Malformed("a watch event with two objects"));
                }
                (2, Value::Bytes(extension)) => {
                    let mut reader = Reader::new(extension);
                    while let Some(field) = reader.field()? {
                        if let (1, Value::Bytes(raw)) = (field.number, field.value) {
                            event.object = raw;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }
}
