//! Writers of protobuf's wire format.

use super::convert::TypeMeta;
use super::envelope::MAGIC;

#[inline]
pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    (value & 0x7f) as u8
}

fn varint_length(value: usize) -> usize {
    (usize::BITS - value.leading_zeros()).div_ceil(7).max(1) as usize
}

/// Writes a field's number and wire type.
#[inline]
pub(super) fn tag(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    varint(out, u64::from(number << 3 | wire_type));
}

/// Writes a field of bytes: tag, length and content.
pub(super) fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    tag(out, number, 2);
    length(out, content.len());
    out.extend_from_slice(content);
}

#[inline]
pub(super) fn length(out: &mut Vec<u8>, length: usize) {
    varint(out, length as u64);
}

/// Inserts the length of the bytes since `start` in front of them.
#[inline]
pub(super) fn close(out: &mut Vec<u8>, start: usize) {
    let end = out.len();
    length(out, end - start);
    let added = out.len() - end;
    out[start..].rotate_right(added);
}

/// Writes the start of the envelope (`runtime.Unknown`) of an object. The caller appends the object's message, which
/// has `raw` bytes, and then [`END_OF_ENVELOPE`].
pub fn begin_envelope(out: &mut Vec<u8>, type_meta: TypeMeta<'_>, raw: usize) {
    begin_message(out, type_meta);
    length(out, raw);
}

/// Writes the start of an envelope, up to the tag of the object's message. The caller appends the message's length, the
/// message, and [`END_OF_ENVELOPE`].
pub(super) fn begin_message(out: &mut Vec<u8>, TypeMeta { api_version, kind }: TypeMeta<'_>) {
    out.extend_from_slice(MAGIC);
    tag(out, 1, 2);
    let start = out.len();
    bytes(out, 1, api_version.as_bytes());
    bytes(out, 2, kind.as_bytes());
    close(out, start);
    tag(out, 2, 2);
}

/// End of an envelope: empty fields for encoding and content type.
pub const END_OF_ENVELOPE: &[u8] = &[0x1a, 0, 0x22, 0];

/// Writes an item of a Kubernetes list: the message's field 2, `items`.
pub fn write_item(out: &mut Vec<u8>, item: &[u8]) {
    bytes(out, 2, item);
}

/// Returns the size of a field whose content has `item` bytes.
fn item_length(item: usize) -> usize {
    1 + varint_length(item) + item
}

/// Writes a frame of a watch: the length in four bytes, big-endian, then the event of type `kind`. `object` must be in
/// its envelope.
pub fn write_frame(out: &mut Vec<u8>, kind: &str, object: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    bytes(out, 1, kind.as_bytes());
    tag(out, 2, 2);
    length(out, item_length(object.len()));
    bytes(out, 1, object);
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::envelope::{Envelope, WatchEvent};
    use super::super::wire;
    use super::*;

    #[test]
    fn varints_are_read_back() {
        for shift in 0..64 {
            for value in [(1_u64 << shift) - 1, 1 << shift] {
                let mut out = Vec::new();
                varint(&mut out, value);
                assert_eq!(wire::varint(&out, 0), Ok(Some((value, out.len()))));
                assert_eq!(varint_length(usize::try_from(value).unwrap()), out.len(), "{value}");
            }
        }
    }

    #[test]
    fn frames_and_envelopes_are_read_back() {
        for length in [0, 1, 127, 128, 70_000] {
            let raw = vec![7; length];
            let mut object = Vec::new();
            begin_envelope(&mut object, TypeMeta { api_version: "v1", kind: "Pod" }, raw.len());
            object.extend_from_slice(&raw);
            object.extend_from_slice(END_OF_ENVELOPE);
            assert_eq!(Envelope::read(&object), Ok(Envelope { api_version: "v1", kind: "Pod", raw: &raw }));
            let mut frame = Vec::new();
            write_frame(&mut frame, "ADDED", &object);
            assert_eq!(frame[..4], u32::try_from(frame.len() - 4).unwrap().to_be_bytes());
            assert_eq!(WatchEvent::read(&frame[4..]), Ok(WatchEvent { kind: "ADDED", object: &object }));
            let mut item = Vec::new();
            write_item(&mut item, &raw);
            assert_eq!(item.len(), item_length(length));
        }
    }
}
