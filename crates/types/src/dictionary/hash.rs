//! Hashes of short strings, for tables whose size is a power of two.

/// Number of bytes that [`hash`] reads.
pub(super) const WIDTH: usize = 8;

/// Returns the hash of the first `len` bytes of `bytes`; 0 if `bytes` is not [`WIDTH`] long.
pub(super) fn hash(bytes: &[u8], len: usize) -> u64 {
    let value = bytes.try_into().map_or(0, u64::from_le_bytes);
    (value << (8 * (WIDTH - len))).wrapping_mul(0x9e37_79b1_85eb_ca87)
}

/// Returns the index of a hash in a table of `1 << bits` entries; `bits` is at most 16.
pub(super) fn slot(hash: u64, bits: u32) -> usize {
    usize::from((hash >> 48) as u16 >> (16 - bits))
}
