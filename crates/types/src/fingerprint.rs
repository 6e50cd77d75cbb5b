//! Fingerprints that are the same in every process: FNV-1a of 64 bits.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Fingerprint of the texts and numbers that were added.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    /// Returns the fingerprint to which nothing has been added.
    fn default() -> Self {
        Self(OFFSET)
    }
}

impl Fingerprint {
    /// Adds a text with its length, so that `ab`, `c` and `a`, `bc` have different fingerprints.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        // A text has less than 2^64 bytes on every platform.
        self.number(text.len() as u64).bytes(text.as_bytes())
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Returns the fingerprint.
    #[must_use]
    pub fn finish(self) -> u64 {
        self.0
    }

    /// Adds bytes without their length.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_is_fnv_1a() {
        assert_eq!(Fingerprint::default().bytes(b"").finish(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fingerprint::default().bytes(b"a").finish(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Fingerprint::default().bytes(b"foobar").finish(), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn fingerprint_depends_on_the_borders_of_texts() {
        let of = |texts: &[&str]| texts.iter().fold(Fingerprint::default(), |sum, text| sum.text(text)).finish();
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
    }
}
