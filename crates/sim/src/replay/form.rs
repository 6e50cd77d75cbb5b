//! Four encodings of an answer, and the lists and events in each.
//!
//! Protobuf is written by hand, because only envelopes around encoded pods are needed. A list is `k8s\0` and a
//! `runtime.Unknown`. A watch consists of frames: a length in four bytes and a `WatchEvent` whose object is such an
//! envelope.

use bytes::Bytes;

use super::template::{BASE, ItemTemplate, Template};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Json,
    Protobuf,
    /// `PartialObjectMetadata` in JSON.
    JsonMetadata,
    /// `PartialObjectMetadata` in protobuf.
    ProtobufMetadata,
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl Form {
    /// Returns the first encoding in an `Accept` header that the server supports.
    pub(super) fn negotiate(accept: &str, speaks_protobuf: bool) -> Self {
        for media_type in accept.split(',') {
            let metadata = media_type.contains("as=PartialObjectMetadata");
            match media_type.split(';').next().unwrap_or_default().trim() {
                PROTOBUF if speaks_protobuf && metadata => return Self::ProtobufMetadata,
                PROTOBUF if speaks_protobuf => return Self::Protobuf,
                "application/json" if metadata => return Self::JsonMetadata,
                "application/json" => return Self::Json,
                _ => {}
            }
        }
        Self::Json
    }

    pub(super) fn content_type(self, watch: bool) -> &'static str {
        match (self.is_json(), watch) {
            (true, _) => "application/json",
            (false, false) => PROTOBUF,
            (false, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::JsonMetadata)
    }

    fn type_meta(self) -> (&'static str, &'static str) {
        match self {
            Self::Json | Self::Protobuf => ("v1", "Pod"),
            Self::JsonMetadata | Self::ProtobufMetadata => ("meta.k8s.io/v1", "PartialObjectMetadata"),
        }
    }

    /// Returns the JSON or protobuf template of a pod, and the bytes of it that this encoding sends: the whole pod or
    /// only its metadata. After these bytes, [`Self::item_tail`] must be written.
    fn part(self, template: &Template) -> (&ItemTemplate, &[u8]) {
        // Without protobuf, `negotiate` never returns a protobuf form.
        let protobuf = template.protobuf.as_ref().unwrap_or(&template.json);
        match self {
            Self::Json => (&template.json, template.json.bytes()),
            Self::JsonMetadata => (&template.json, template.json.metadata()),
            Self::Protobuf => (protobuf, protobuf.bytes()),
            Self::ProtobufMetadata => (protobuf, protobuf.metadata()),
        }
    }

    fn item_tail(self) -> &'static [u8] {
        if self == Self::JsonMetadata { b"}" } else { b"" }
    }

    // === lists ===

    pub(super) fn list_head(self, templates: &[Template], version: u64) -> Vec<u8> {
        let (api_version, kind) = self.type_meta();
        if self.is_json() {
            let metadata = format!("{{\"resourceVersion\":\"{version}\"}}");
            let head = format!(
                "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
            );
            return head.into_bytes();
        }
        let mut list_meta = Vec::new();
        field(&mut list_meta, 2, version.to_string().as_bytes());
        let mut metadata = Vec::new();
        field(&mut metadata, 1, &list_meta);
        let items = templates.iter().map(|template| self.part(template).1.len());
        let items: usize = items.map(|length| 1 + varint_length(length) + length).sum();
        let mut out = envelope_head(api_version, &format!("{kind}List"), metadata.len() + items);
        out.extend_from_slice(&metadata);
        out
    }

    /// Appends a template's pod, at the given version, as the next item of a list.
    pub(super) fn write_item(self, template: &Template, version: u64, is_first: bool, out: &mut Vec<u8>) {
        let (slotted, part) = self.part(template);
        if self.is_json() {
            if !is_first {
                out.push(b',');
            }
            out.extend_from_slice(part);
        } else {
            field(out, 2, part);
        }
        let start = out.len() - part.len();
        slotted.stamp(out, start, BASE, version);
        out.extend_from_slice(self.item_tail());
    }

    pub(super) fn list_tail(self) -> &'static [u8] {
        if self.is_json() { b"]}\n" } else { ENVELOPE_TAIL }
    }

    pub(super) fn list_size(self, templates: &[Template], version: u64) -> u64 {
        let head = self.list_head(templates, version);
        let around = if self.is_json() { head.len() + templates.len().saturating_sub(1) } else { head.len() };
        let item = |template: &Template| {
            let length = self.part(template).1.len() + self.item_tail().len();
            if self.is_json() { length } else { 1 + varint_length(length) + length }
        };
        (around + templates.iter().map(item).sum::<usize>() + self.list_tail().len()) as u64
    }

    // === watches ===

    /// Appends a MODIFIED event of a template's pod with the given send time and version.
    pub(super) fn write_event(self, template: &Template, sent: u64, version: u64, out: &mut Vec<u8>) {
        let (slotted, part) = self.part(template);
        let (api_version, kind) = self.type_meta();
        if self.is_json() {
            out.extend_from_slice(b"{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"");
            out.extend_from_slice(kind.as_bytes());
            out.extend_from_slice(b"\",\"apiVersion\":\"");
            out.extend_from_slice(api_version.as_bytes());
            out.extend_from_slice(b"\",");
            let start = out.len();
            out.extend_from_slice(&part[1..]);
            slotted.stamp(out, start - 1, sent, version);
            out.extend_from_slice(self.item_tail());
            out.extend_from_slice(b"}\n");
        } else {
            let start = write_frame("MODIFIED", api_version, kind, part, out);
            slotted.stamp(out, start, sent, version);
        }
    }

    pub(super) fn bookmark(self, version: u64) -> Vec<u8> {
        let (api_version, kind) = self.type_meta();
        let mut out = Vec::new();
        if self.is_json() {
            let metadata = format!("{{\"resourceVersion\":\"{version}\"}}");
            let object = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata}}}");
            out.extend_from_slice(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").as_bytes());
        } else {
            let (mut object_meta, mut object) = (Vec::new(), Vec::new());
            field(&mut object_meta, 6, version.to_string().as_bytes());
            field(&mut object, 1, &object_meta);
            write_frame("BOOKMARK", api_version, kind, &object, &mut out);
        }
        out
    }

    /// Returns the ERROR event for an expired version; `None` in encodings other than JSON.
    pub(super) fn expired(self) -> Option<Bytes> {
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}"#;
        self.is_json().then(|| format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into())
    }
}

/// Appends one frame of a watch and returns the offset of the object in `out`.
fn write_frame(event: &str, api_version: &str, kind: &str, object: &[u8], out: &mut Vec<u8>) -> usize {
    let head = envelope_head(api_version, kind, object.len());
    let envelope = head.len() + object.len() + ENVELOPE_TAIL.len();
    let raw_extension = 1 + varint_length(envelope) + envelope;
    let frame = 1 + varint_length(event.len()) + event.len() + 1 + varint_length(raw_extension) + raw_extension;
    out.extend_from_slice(&u32::try_from(frame).unwrap_or(u32::MAX).to_be_bytes());
    field(out, 1, event.as_bytes());
    tag(out, 2, raw_extension);
    tag(out, 1, envelope);
    out.extend_from_slice(&head);
    let start = out.len();
    out.extend_from_slice(object);
    out.extend_from_slice(ENVELOPE_TAIL);
    start
}

/// Returns the part of an envelope before its object of `length` bytes.
fn envelope_head(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let mut type_meta = Vec::new();
    field(&mut type_meta, 1, api_version.as_bytes());
    field(&mut type_meta, 2, kind.as_bytes());
    let mut out = b"k8s\0".to_vec();
    field(&mut out, 1, &type_meta);
    tag(&mut out, 2, length);
    out
}

/// Last bytes of an envelope, after its object: the fields for content encoding and content type, both empty.
const ENVELOPE_TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

/// Appends a protobuf field that contains `bytes`. `number` must be below 16.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    tag(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends the tag and the length of a protobuf field of `length` bytes. `number` must be below 16.
fn tag(out: &mut Vec<u8>, number: u8, mut length: usize) {
    out.push(number << 3 | 2);
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or_default());
}

fn varint_length(value: usize) -> usize {
    let bits = usize::BITS - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiate_returns_the_first_supported_encoding() {
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                        application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        for (accept, with, without) in [
            ("", Form::Json, Form::Json),
            ("application/json", Form::Json, Form::Json),
            ("application/vnd.kubernetes.protobuf, application/json", Form::Protobuf, Form::Json),
            (metadata, Form::ProtobufMetadata, Form::JsonMetadata),
        ] {
            assert_eq!((Form::negotiate(accept, true), Form::negotiate(accept, false)), (with, without), "{accept}");
        }
    }

    #[test]
    fn varint_length_matches_the_written_tag() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
            let mut out = Vec::new();
            tag(&mut out, 1, length);
            assert_eq!(out.len(), 1 + varint_length(length), "{length}");
        }
    }
}
