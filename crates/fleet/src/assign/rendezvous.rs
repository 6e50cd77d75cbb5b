//! Weighted rendezvous hashing: each pair of shard and collector has a score, and a shard goes to the collector with
//! the highest score.
//!
//! Each collector gets shards in proportion to its capacity. If a collector is removed, only its own shards move.

/// Returns a hash of a name that is the same in every process and program version.
pub(super) fn name_hash(name: &str) -> u64 {
    // FNV-1a, then mixed, because names often differ in their last character only.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    mix(hash)
}

/// Returns the score of a shard and a collector, from the hashes of their names and the collector's capacity.
pub(super) fn score(shard: u64, collector: u64, capacity: u64) -> f64 {
    // 53 bits, so that the number is exact and lies within (0, 1).
    let bits = mix(shard ^ collector.rotate_left(32)) >> 11;
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact, and capacities need not be")]
    let (unit, capacity) = ((bits as f64 + 0.5) / (1_u64 << 53) as f64, capacity as f64);
    -capacity / unit.ln()
}

/// Mixes the bits of a number: the finaliser of splitmix64.
fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
