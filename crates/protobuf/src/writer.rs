//! Writer of answers in protobuf: objects of one kind, alone, in lists or in watches.

use super::convert::TypeMeta;
use super::encode::Encoder;
use super::error::EncodeError;
use super::schema::{MessageId, Schema};
use super::wire_out::{END_OF_ENVELOPE, begin_envelope, write_frame, write_item};

/// Encodes JSON objects of one kind. Keeps its scratch memory for the next object; a clone has its own.
#[derive(Debug)]
pub struct ObjectWriter {
    encoder: Encoder,
    message: MessageId,
    api_version: String,
    kind: String,
    /// Maximum size of an object's message, in bytes.
    limit: usize,
    /// Scratch memory for the message of an object.
    raw: Vec<u8>,
    /// Scratch memory for an object in its envelope.
    object: Vec<u8>,
}

impl Clone for ObjectWriter {
    fn clone(&self) -> Self {
        let (api_version, kind) = (self.api_version.clone(), self.kind.clone());
        Self::of_message(self.message, api_version, kind, self.limit)
    }
}

impl ObjectWriter {
    /// Creates a writer for objects whose message has at most `limit` bytes; `None` if the schema lacks the kind.
    #[must_use]
    pub fn new(TypeMeta { api_version, kind }: TypeMeta<'_>, limit: usize) -> Option<Self> {
        let message = Schema::builtin().kind(api_version, kind)?;
        Some(Self::of_message(message, api_version.to_owned(), kind.to_owned(), limit))
    }

    fn of_message(message: MessageId, api_version: String, kind: String, limit: usize) -> Self {
        Self { encoder: Encoder::default(), message, api_version, kind, limit, raw: Vec::new(), object: Vec::new() }
    }

    /// Returns `apiVersion` and `kind` of the objects.
    #[must_use]
    pub fn type_meta(&self) -> TypeMeta<'_> {
        TypeMeta { api_version: &self.api_version, kind: &self.kind }
    }

    /// Encodes an object as its protobuf message, without an envelope. Ignores its `kind` and `apiVersion`.
    ///
    /// # Errors
    /// The object has members that the schema lacks, is not of this kind, or is too large.
    pub fn message(&mut self, json: &[u8]) -> Result<&[u8], EncodeError> {
        self.raw.clear();
        self.encoder.object(self.message, json, self.limit, &mut self.raw)?;
        Ok(&self.raw)
    }

    /// Encodes an object in its envelope.
    ///
    /// # Errors
    /// As [`Self::message`].
    pub fn object(&mut self, json: &[u8]) -> Result<&[u8], EncodeError> {
        self.message(json)?;
        self.object.clear();
        let kind = TypeMeta { api_version: &self.api_version, kind: &self.kind };
        write_envelope(&mut self.object, kind, &self.raw);
        Ok(&self.object)
    }

    /// Appends an object as an item of a list.
    ///
    /// # Errors
    /// As [`Self::message`].
    pub fn item(&mut self, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write_item(out, self.message(json)?);
        Ok(())
    }

    /// Appends a watch event of type `event`, such as `ADDED`.
    ///
    /// # Errors
    /// As [`Self::message`].
    pub fn event(&mut self, event: &str, json: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write_frame(out, event, self.object(json)?);
        Ok(())
    }
}

/// Writes a message in its envelope.
pub fn write_envelope(out: &mut Vec<u8>, kind: TypeMeta<'_>, raw: &[u8]) {
    begin_envelope(out, kind, raw.len());
    out.extend_from_slice(raw);
    out.extend_from_slice(END_OF_ENVELOPE);
}

/// Writes the start of a list. Items of `items` bytes in total must follow, then [`END_OF_ENVELOPE`]. `head` is the
/// list as JSON without its items; its encoding has at most `limit` bytes.
///
/// # Errors
/// The kind is not that of a list, or the head cannot be encoded.
pub fn begin_list(
    out: &mut Vec<u8>,
    list: TypeMeta<'_>,
    head: &[u8],
    items: usize,
    limit: usize,
) -> Result<(), EncodeError> {
    let message = Schema::builtin().kind(list.api_version, list.kind);
    let message = message.filter(|message| Schema::builtin().items(*message).is_some());
    let message = message.ok_or(EncodeError::Malformed("not a list"))?;
    let mut raw = Vec::new();
    Encoder::default().object(message, head, limit, &mut raw)?;
    begin_envelope(out, list, raw.len() + items);
    out.extend_from_slice(&raw);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::convert::Converter;
    use super::super::envelope::{Envelope, WatchEvent};
    use super::super::omit::Omit;
    use super::*;

    const LIMIT: usize = 1 << 20;
    const CONFIG_MAP: TypeMeta<'_> = TypeMeta { api_version: "v1", kind: "ConfigMap" };

    fn json(name: &str) -> Vec<u8> {
        format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}"}},"data":{{"a":"b"}}}}"#).into()
    }

    /// Converts an object in its envelope back to JSON.
    fn converted(bytes: &[u8]) -> String {
        let envelope = Envelope::read(bytes).unwrap();
        let kind = TypeMeta { api_version: envelope.api_version, kind: envelope.kind };
        let message = Schema::builtin().kind(kind.api_version, kind.kind).unwrap();
        let mut json = Vec::new();
        Converter::default().object(message, Some(kind), envelope.raw, &Omit::default(), LIMIT, &mut json).unwrap();
        String::from_utf8(json).unwrap()
    }

    #[test]
    fn objects_items_and_events_of_one_writer_are_read_back() {
        let mut writer = ObjectWriter::new(CONFIG_MAP, LIMIT).unwrap();
        let object = writer.object(&json("first")).unwrap().to_vec();
        assert!(converted(&object).contains(r#""name":"first""#), "{}", converted(&object));
        assert_eq!(writer.type_meta(), CONFIG_MAP);
        let (mut frame, mut items, mut list) = (Vec::new(), Vec::new(), Vec::new());
        writer.event("ADDED", &json("first"), &mut frame).unwrap();
        assert_eq!(WatchEvent::read(&frame[4..]), Ok(WatchEvent { kind: "ADDED", object: &object }));
        // A clone and its original write items of the same list.
        for (writer, name) in [(&mut writer.clone(), "one"), (&mut writer, "two")] {
            writer.item(&json(name), &mut items).unwrap();
        }
        let kind = TypeMeta { api_version: "v1", kind: "ConfigMapList" };
        begin_list(&mut list, kind, br#"{"metadata":{"resourceVersion":"7"}}"#, items.len(), LIMIT).unwrap();
        let list = converted(&[&list, &items[..], END_OF_ENVELOPE].concat());
        for part in [r#""resourceVersion":"7""#, r#""name":"one""#, r#""name":"two""#] {
            assert!(list.contains(part), "{part} in {list}");
        }
    }

    #[test]
    fn writer_refuses_unknown_kinds_other_members_and_large_objects() {
        assert!(ObjectWriter::new(TypeMeta { api_version: "example.com/v1", kind: "Gadget" }, LIMIT).is_none());
        let mut writer = ObjectWriter::new(CONFIG_MAP, 40).unwrap();
        assert!(writer.message(br#"{"colour":"red"}"#).is_err());
        assert_eq!(writer.message(&json(&"x".repeat(60))), Err(EncodeError::TooLarge));
        let (mut out, whole) = (Vec::new(), writer.message(&json("a")).map(<[u8]>::to_vec));
        assert!(whole.is_ok(), "a failure leaves nothing behind: {whole:?}");
        let no_list = begin_list(&mut out, CONFIG_MAP, b"{}", 0, LIMIT);
        assert_eq!((no_list, out.len()), (Err(EncodeError::Malformed("not a list")), 0));
    }
}
