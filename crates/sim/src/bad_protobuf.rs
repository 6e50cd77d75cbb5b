//! Invalid protobuf answers, for fault scripts.

use bytes::Bytes;
use serde_json::{Value, json};

use super::object::event_line;
use super::protobuf;
use informer_hub_protobuf::{END_OF_ENVELOPE, EncodeError, MAGIC, ObjectWriter, TypeMeta, varint};

/// How a simulated apiserver corrupts an answer in protobuf. Answers in JSON are not affected, except by
/// [`Self::Gzip`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadProtobuf {
    /// The next watch event or list item is sent with this wrong length; in a watch, at most `u32::MAX`. A watch then
    /// sends the event again with the correct length and ends. A list continues.
    Length(u64),
    /// The declared length of the next watch event or list item is too long: it also covers bytes of the frame or item
    /// that follows. In a watch, the event is then sent again correctly, and the watch ends.
    Swallow,
    /// The next object of a watch, or the list as a whole, does not begin with `k8s\0`.
    Magic,
    /// The next watch event, or the list as a whole, is sent as JSON.
    Json,
    /// The body is protobuf, but the content type is that of JSON.
    LabelledJson,
    /// The body is gzipped, but no header says so.
    Gzip,
    /// Events of objects of other kinds precede the next event. A list is sent as a list of another kind.
    OtherKind,
    /// An event whose object is a `Status` precedes the next event. A list is replaced by a `Status`.
    Status,
    /// The next event of a watch, or an additional item of a list, has a field of a later Kubernetes version.
    UnknownField,
    /// An object that ends inside a field precedes the next event or item.
    HalfObject,
}

impl BadProtobuf {
    /// All faults, with typical wrong lengths: zero, one, slightly too long, huge, and negative.
    pub const ALL: [Self; 15] = [
        Self::Length(0),
        Self::Length(1),
        Self::Length(700),
        Self::Length(40 << 20),
        Self::Length(0x7fff_ffff),
        Self::Length(u64::MAX),
        Self::Swallow,
        Self::Magic,
        Self::Json,
        Self::LabelledJson,
        Self::Gzip,
        Self::OtherKind,
        Self::Status,
        Self::UnknownField,
        Self::HalfObject,
    ];

    /// Returns whether the fault affects an answer as a whole, from its first byte.
    pub(super) fn is_of_answer(self) -> bool {
        matches!(self, Self::LabelledJson | Self::Gzip)
    }

    /// Returns whether the fault affects a list as a whole instead of one item.
    pub(super) fn is_of_list(self) -> bool {
        matches!(self, Self::Magic | Self::Json | Self::OtherKind | Self::Status)
    }
}

/// Returns the bytes before and after the items of a list, corrupted by `fault`. `length` is the total size of the
/// items in bytes.
pub(super) fn list(
    fault: Option<BadProtobuf>,
    writer: &mut ObjectWriter,
    metadata: &Value,
    length: usize,
) -> Result<(Vec<u8>, Bytes), EncodeError> {
    if fault == Some(BadProtobuf::Status) {
        return Ok((protobuf::status(br#"{"status":"Failure","code":500}"#)?, Bytes::new()));
    }
    let TypeMeta { mut api_version, kind } = writer.type_meta();
    let mut kind = format!("{kind}List");
    if fault == Some(BadProtobuf::OtherKind) {
        (api_version, kind) = ("v1", "ServiceList".to_owned());
    }
    let mut head = protobuf::list_head(TypeMeta { api_version, kind: &kind }, metadata, length)?;
    if fault == Some(BadProtobuf::Magic) {
        spoil_magic(&mut head);
    }
    Ok((head, Bytes::from_static(END_OF_ENVELOPE)))
}

/// Returns the encoded object that a fault adds to a list as an item; `None` if the fault adds no item.
pub(super) fn additional_item(fault: BadProtobuf, writer: &mut ObjectWriter) -> Option<Vec<u8>> {
    match fault {
        BadProtobuf::UnknownField => Some(with_unknown_field(ghost(writer, "later"))),
        BadProtobuf::HalfObject => Some(half_object(writer)),
        _ => None,
    }
}

/// Returns the frames to send in place of a watch event, and whether the watch then ends.
pub(super) fn event(
    fault: BadProtobuf,
    writer: &mut ObjectWriter,
    (kind, object): (&str, &[u8]),
    frame: &Bytes,
) -> (Vec<Bytes>, bool) {
    let (mut pieces, mut ends) = (Vec::new(), false);
    match fault {
        BadProtobuf::Length(length) => {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            pieces.extend([with_length(frame, length), frame.clone()]);
            ends = true;
        }
        BadProtobuf::Swallow => {
            let length = u32::try_from(frame.len() + 4).unwrap_or(u32::MAX);
            pieces.extend([with_length(frame, length), frame.clone()]);
            ends = true;
        }
        BadProtobuf::Magic => {
            let mut object = writer.object(object).unwrap_or_default().to_vec();
            spoil_magic(&mut object);
            pieces.push(protobuf::frame(kind, &object));
        }
        BadProtobuf::Json => pieces.push(event_line(kind, object)),
        BadProtobuf::OtherKind => {
            let raw = writer.message(object).unwrap_or_default();
            for (api_version, kind) in [("v1", "Service"), ("example.com/v1", "Gadget")] {
                let other = protobuf::envelope(TypeMeta { api_version, kind }, raw);
                pieces.push(protobuf::frame("MODIFIED", &other));
            }
            let metadata = br#"{"metadata":{"name":"other","namespace":"shop","uid":"o","resourceVersion":"1"}}"#;
            let config_map =
                protobuf::of_kind(TypeMeta { api_version: "v1", kind: "ConfigMap" }, metadata).unwrap_or_default();
            pieces.extend([protobuf::frame("ADDED", &config_map), frame.clone()]);
        }
        BadProtobuf::Status => {
            let status = protobuf::status(br#"{"status":"Failure","code":500}"#).unwrap_or_default();
            pieces.extend([protobuf::frame("MODIFIED", &status), frame.clone()]);
        }
        BadProtobuf::UnknownField => {
            let raw = writer.message(object).map(|raw| with_unknown_field(raw.to_vec())).unwrap_or_default();
            pieces.push(protobuf::frame(kind, &protobuf::envelope(writer.type_meta(), &raw)));
        }
        BadProtobuf::HalfObject => {
            let half = half_object(writer);
            pieces.extend([protobuf::frame("MODIFIED", &protobuf::envelope(writer.type_meta(), &half)), frame.clone()]);
        }
        BadProtobuf::LabelledJson | BadProtobuf::Gzip => pieces.push(frame.clone()),
    }
    (pieces, ends)
}

/// Encodes `content` as a list item that declares `length` as its length.
fn item(content: &[u8], length: u64) -> Vec<u8> {
    let mut item = vec![2 << 3 | 2];
    let mut left = length;
    while left >= 0x80 {
        item.push(u8::try_from(left & 0x7f).unwrap_or(0) | 0x80);
        left >>= 7;
    }
    item.push(u8::try_from(left).unwrap_or(0));
    item.extend_from_slice(content);
    debug_assert_eq!(varint(&item, 1).ok().flatten().map(|(value, _)| value), Some(length));
    item
}

/// Returns an encoded list item with its declared length replaced by `length`.
pub(super) fn with_item_length(encoded: &[u8], length: u64) -> Vec<u8> {
    let content = varint(encoded, 1).ok().flatten().map_or(0, |(_, at)| at);
    item(&encoded[content..], length)
}

/// Overwrites the last of the magic bytes `k8s\0` at the start of an answer.
fn spoil_magic(answer: &mut [u8]) {
    debug_assert!(answer.starts_with(MAGIC));
    if let Some(last) = answer.get_mut(MAGIC.len() - 1) {
        *last = 1;
    }
}

fn with_unknown_field(mut message: Vec<u8>) -> Vec<u8> {
    message.extend_from_slice(&item(b"later", 5));
    let at = message.len() - 7;
    // Field 31 instead of 2: the tag is two bytes.
    message.splice(at..=at, [0xfa, 0x01]);
    message
}

/// Returns a named object whose second field ends too early.
fn half_object(writer: &mut ObjectWriter) -> Vec<u8> {
    let mut message = ghost(writer, "half");
    message.extend_from_slice(&item(b"half", 60));
    message
}

/// Encodes an object that has only metadata, with this name. The server does not store it.
fn ghost(writer: &mut ObjectWriter, name: &str) -> Vec<u8> {
    let metadata = json!({ "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1" });
    writer.message(json!({ "metadata": metadata }).to_string().as_bytes()).unwrap_or_default().to_vec()
}

/// Returns a watch frame with its declared length replaced by `length`.
fn with_length(frame: &Bytes, length: u32) -> Bytes {
    [&length.to_be_bytes()[..], &frame[4..]].concat().into()
}
