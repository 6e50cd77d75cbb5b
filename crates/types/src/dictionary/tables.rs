//! Entropy tables of a dictionary, in zstd's format (RFC 8878, sections 4.1.1 and 4.2.1).
//!
//! With them, a small frame needs no tables of its own. Every symbol has a place in each table, because zstd's fast
//! levels use only tables that can encode everything.

use zstd::bulk::compress;

/// Writes the table of a finite state entropy code with `1 << log` states for symbols with these counts.
pub(super) fn write_fse(counts: &[u32], log: u32, out: &mut Vec<u8>) {
    let mut bits = BitWriter { out, bits: 0, len: 0 };
    bits.put(log - 5, 4);
    let (mut remaining, mut threshold, mut len) = ((1 << log) + 1, 1 << log, log + 1);
    for states in normalized(counts, log) {
        let max = 2 * threshold - 1 - remaining;
        remaining -= states;
        let small = states + 1;
        let value = if small >= threshold { small + max } else { small };
        bits.put(value, if value < max { len - 1 } else { len });
        while remaining < threshold {
            len -= 1;
            threshold >>= 1;
        }
    }
    bits.finish();
}

/// Returns the number of states of each symbol, `1 << log` in total. The numbers are proportional to the symbols'
/// counts, and at least one.
fn normalized(counts: &[u32], log: u32) -> Vec<u32> {
    let total: u64 = counts.iter().map(|count| u64::from(*count)).sum::<u64>().max(1);
    // One state each, and the rest in proportion, rounded down.
    let spare = (1_u32 << log).saturating_sub(u32::try_from(counts.len()).unwrap_or(u32::MAX));
    let part = |count: &u32| 1 + u32::try_from(u64::from(*count) * u64::from(spare) / total).unwrap_or(spare);
    let mut states: Vec<_> = counts.iter().map(part).collect();
    let left = (1_u32 << log).saturating_sub(states.iter().sum());
    if let Some(most) = states.iter_mut().max() {
        *most += left;
    }
    states
}

struct BitWriter<'o> {
    out: &'o mut Vec<u8>,
    bits: u32,
    len: u32,
}

impl BitWriter<'_> {
    /// Appends `value` as `len` bits, at most 16, the lowest bit first.
    fn put(&mut self, value: u32, len: u32) {
        self.bits |= value << self.len;
        self.len += len;
        while self.len >= 8 {
            self.out.push(self.bits.to_le_bytes()[0]);
            self.bits >>= 8;
            self.len -= 8;
        }
    }

    fn finish(mut self) {
        let padding = (8 - self.len) % 8;
        self.put(0, padding);
    }
}

/// Approximate length in bytes of the text that zstd compresses to make a Huffman table. The text fits into one block
/// of zstd's format.
const LITERALS: u64 = 60_000;

/// Returns a Huffman table for literals with these counts, each at least one. The table is copied from the result of
/// compressing a text of such literals with zstd.
///
/// zstd makes no table for a text that does not shrink or only repeats itself. Then texts with adjusted counts are
/// tried. Returns `None` if none of them gives a table.
pub(super) fn huffman(counts: &[u32; 256]) -> Option<Vec<u8>> {
    let total = counts.iter().sum::<u32>().max(1);
    let most = (0..counts.len()).max_by_key(|symbol| counts[*symbol])?;
    let skewed = [0, total / 16, total / 8, total / 4].map(|more| {
        let mut counts = *counts;
        counts[most] = counts[most].saturating_add(more);
        counts
    });
    let flat = counts.map(|count| count.saturating_add(total / 64 + 1));
    skewed.iter().chain([&flat]).find_map(|counts| huffman_of_text(&text(counts)))
}

/// Returns a text that contains all 256 bytes with these frequencies. The bytes are shuffled, so that zstd finds hardly
/// any repeated sequence in the text.
fn text(counts: &[u32; 256]) -> Vec<u8> {
    let total: u64 = counts.iter().map(|count| u64::from(*count)).sum::<u64>().max(1);
    let mut text = Vec::new();
    for (symbol, count) in (0..=u8::MAX).zip(counts) {
        let len = (u64::from(*count) * LITERALS / total).max(1);
        text.extend((0..len).map(|_| symbol));
    }
    // A shuffle by a fixed sequence: equal counts give equal tables.
    let mut state = 1_u64;
    for at in (1..text.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.swap(at, (state >> 33) as usize % (at + 1));
    }
    text
}

/// Returns the Huffman table in the first block of a compressed text, if it has one.
fn huffman_of_text(text: &[u8]) -> Option<Vec<u8>> {
    let frame = compress(text, 1).ok()?;
    let descriptor = *frame.get(4)?;
    let is_single_segment = descriptor & 0x20 != 0;
    let size_field = match descriptor >> 6 {
        0 => usize::from(is_single_segment),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    let block = frame.get(5 + usize::from(!is_single_segment) + size_field..)?;
    let (is_compressed, literals) = (block.first()? >> 1 & 3 == 2, block.get(3..)?);
    let format = *literals.first()?;
    if !is_compressed || format & 3 != 2 {
        return None;
    }
    let sizes = match format >> 2 & 3 {
        0 | 1 => 3,
        2 => 4,
        _ => 5,
    };
    let table = literals.get(sizes..)?;
    let first = usize::from(*table.first()?);
    let weights = if first < 128 { first } else { (first - 127).div_ceil(2) };
    Some(table.get(..=weights)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_symbol_has_a_state_and_all_states_are_given_away() {
        for counts in [vec![1; 53], vec![0; 36], vec![u32::MAX; 53], (0..53).map(|at| 1 << (at % 31)).collect()] {
            for log in [8, 9] {
                let states = normalized(&counts, log);
                assert_eq!(states.iter().sum::<u32>(), 1 << log);
                assert!(states.iter().all(|states| *states > 0), "{states:?}");
            }
        }
    }

    #[test]
    fn fse_table_is_that_of_the_format() {
        // Four symbols with eight of 32 states each: `log - 5` in 4 bits, then 8 + 1 in 5, 5, 4 and 4 bits. The last
        // number is above the threshold of 8, so it is written with an offset of 6.
        let mut out = Vec::new();
        write_fse(&[1; 4], 5, &mut out);
        let bits: u32 = 9 << 4 | 9 << 9 | 9 << 14 | 15 << 18;
        assert_eq!(out, bits.to_le_bytes()[..3]);
    }

    #[test]
    fn huffman_table_exists_for_any_literals() {
        let mut one = [1; 256];
        one[7] = 1_000_000;
        let mut two = [1; 256];
        (two[7], two[8]) = (1_000_000, 1_000_000);
        let mut digits = [1; 256];
        digits[48..58].fill(5000);
        for (name, counts) in [("all", [1; 256]), ("one", one), ("two", two), ("digits", digits)] {
            assert!(huffman(&counts).is_some(), "no table for {name}");
        }
        assert!(huffman(&digits).unwrap() != huffman(&[1; 256]).unwrap());
    }
}
