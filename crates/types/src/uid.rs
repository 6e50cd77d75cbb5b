//! `metadata.uid`, the identity of an object.

use std::fmt;
use std::num::NonZeroU64;

use super::SharedStr;

/// `metadata.uid` in 16 bytes. A UID that is not a UUID in lowercase is kept as a shared text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(UidRepr);

/// Representation of a UID: a UUID as two numbers, or any other UID as text.
///
/// A UUID whose second half is zero is kept as text. So the second number is never zero, and the compiler uses zero to
/// mark a text within the same 16 bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
enum UidRepr {
    Uuid(u64, NonZeroU64),
    Text(SharedStr),
}

impl Uid {
    /// Creates a UID from any text, which is empty if the object has no UID.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(parse_uuid(text).unwrap_or_else(|| UidRepr::Text(text.into())))
    }

    /// Returns the bytes of the UUID; `None` if the UID is kept as a text.
    #[must_use]
    pub fn bytes(&self) -> Option<[u8; 16]> {
        let UidRepr::Uuid(first, second) = &self.0 else { return None };
        Some((u128::from(*first) << 64 | u128::from(second.get())).to_be_bytes())
    }

    /// Creates a UID from the bytes of a UUID, as [`Self::bytes`] returns them. If the second eight bytes are zero, the
    /// UID is empty; [`Self::bytes`] never returns such bytes.
    #[must_use]
    pub fn of_bytes(bytes: [u8; 16]) -> Self {
        let half = |half: &[u8]| half.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let (first, second) = (half(&bytes[..8]), half(&bytes[8..]));
        match NonZeroU64::new(second) {
            Some(second) => Self(UidRepr::Uuid(first, second)),
            None => Self::new(""),
        }
    }

    /// Returns whether the object had no UID.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, UidRepr::Text(text) if text.is_empty())
    }
}

/// Parses a lowercase, hyphenated UUID. Returns `None` for text that would not print identically, and for a UUID whose
/// second half is zero.
fn parse_uuid(text: &str) -> Option<UidRepr> {
    let bytes: &[u8; 36] = text.as_bytes().try_into().ok()?;
    // Two halves of sixteen digits.
    let mut halves = [0_u64; 2];
    for (at, byte) in bytes.iter().enumerate() {
        let digit = match byte {
            b'-' if is_dash(at) => continue,
            b'0'..=b'9' if !is_dash(at) => byte - b'0',
            b'a'..=b'f' if !is_dash(at) => byte - b'a' + 10,
            _ => return None,
        };
        let half = &mut halves[usize::from(at > 18)];
        *half = *half << 4 | u64::from(digit);
    }
    Some(UidRepr::Uuid(halves[0], NonZeroU64::new(halves[1])?))
}

/// Returns whether a UUID has a hyphen at this offset.
fn is_dash(at: usize) -> bool {
    matches!(at, 8 | 13 | 18 | 23)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidRepr::Text(text) => f.write_str(text),
            UidRepr::Uuid(first, second) => {
                let head = (first >> 32, first >> 16 & 0xffff, first & 0xffff);
                let tail = (second.get() >> 48, second.get() & 0xffff_ffff_ffff);
                write!(f, "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", head.0, head.1, head.2, tail.0, tail.1)
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_round_trips() {
        for text in [
            "",
            "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6",
            "x",
            "é".repeat(18).as_str(),
            "00000000-0000-0000-0000-000000000000",
            "00000000-0000-0000-0000-000000000001",
            "f81d4fae-7dec-11d0-a765000a0c91e6bf6-",
            "-81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ] {
            assert_eq!(Uid::new(text).to_string(), text);
        }
    }
}
