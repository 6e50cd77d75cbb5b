//! Primitives of the binary form: variable-length integers and length-prefixed bytes.
//!
//! Bytes from the log or the object store are foreign input: a length is compared with the remaining bytes before it is
//! used.

use bytes::{Buf, Bytes};

/// Error of decoding a stored value, such as an entry or a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A newer version of the program wrote the value; upgrade this program.
    #[error("format version {found} is newer than {known}, the newest that this program reads: upgrade this program")]
    Newer {
        /// Format version of the value.
        found: u8,
        /// Newest format version that this program reads.
        known: u8,
    },
    /// The bytes end within a field, or a length exceeds the remaining bytes.
    #[error("damaged data: {0} is cut off")]
    Truncated(&'static str),
    /// A field has an impossible value.
    #[error("damaged data: {0} is invalid")]
    Invalid(&'static str),
    /// A field exceeds its size limit: name of the field, and limit in bytes.
    #[error("{0} is larger than its limit of {1} bytes")]
    TooLarge(&'static str, usize),
}

/// Appends an integer in groups of seven bits, the lowest first.
pub(crate) fn put_integer(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends the length of the bytes, then the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_integer(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn take_byte(from: &mut Bytes, field: &'static str) -> Result<u8, DecodeError> {
    if from.has_remaining() { Ok(from.get_u8()) } else { Err(DecodeError::Truncated(field)) }
}

/// Reads an integer; rejects encodings that are longer than needed or exceed 64 bits.
pub(crate) fn take_integer(from: &mut Bytes, field: &'static str) -> Result<u64, DecodeError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(from, field)?;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return Err(DecodeError::Invalid(field));
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return if byte == 0 && shift > 0 { Err(DecodeError::Invalid(field)) } else { Ok(value) };
        }
    }
    Err(DecodeError::Invalid(field))
}

/// Reads length-prefixed bytes without copying them.
pub(crate) fn take_bytes(from: &mut Bytes, field: &'static str) -> Result<Bytes, DecodeError> {
    let length = take_integer(from, field)?;
    match usize::try_from(length) {
        Ok(length) if length <= from.len() => Ok(from.split_to(length)),
        _ => Err(DecodeError::Truncated(field)),
    }
}

/// Reads length-prefixed UTF-8.
pub(crate) fn take_text(from: &mut Bytes, field: &'static str) -> Result<String, DecodeError> {
    String::from_utf8(take_bytes(from, field)?.into()).map_err(|_| DecodeError::Invalid(field))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn integers_read_back(value in any::<u64>(), shift in 0_u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_integer(&mut out, value);
            let mut from = Bytes::from(out);
            prop_assert_eq!(take_integer(&mut from, "it"), Ok(value));
            prop_assert!(from.is_empty());
        }
    }

    #[test]
    fn integers_beyond_64_bits_or_with_padding_are_invalid() {
        for bytes in [&[0xff; 11][..], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], &[0x80, 0]] {
            let read = take_integer(&mut Bytes::copy_from_slice(bytes), "it");
            assert_eq!(read, Err(DecodeError::Invalid("it")), "{bytes:?}");
        }
    }

    #[test]
    fn length_beyond_the_rest_is_truncated() {
        let mut from = Bytes::from_static(&[200, 1, b'x']);
        assert_eq!(take_bytes(&mut from, "it"), Err(DecodeError::Truncated("it")));
    }
}
