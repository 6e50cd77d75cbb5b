//! Set of sequence numbers, stored as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{MAX_SEQ, Seq};

/// Set of sequence numbers, as a map from the first number of each range to the number after its last. Costs depend on
/// the number of ranges, not of sequence numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<Seq, Seq>);

impl Ranges {
    /// Adds a range and joins it with adjacent ones.
    pub(super) fn insert(&mut self, range: Range<Seq>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        let touching = self.0.range(..=end).rev().take_while(|(_, to)| **to >= start).map(|(from, to)| (*from, *to));
        for (from, to) in touching.collect::<Vec<_>>() {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        self.0.range(..=seq).next_back().is_some_and(|(_, to)| seq < *to)
    }

    /// Returns how many numbers in `range` are not in the set.
    pub(super) fn missing(&self, range: Range<Seq>) -> u64 {
        let Range { start, end } = range;
        if start >= end {
            return 0;
        }
        let there = self.0.range(..end).rev().take_while(|(_, to)| **to > start);
        (end - start) - there.map(|(from, to)| (*to).min(end) - (*from).max(start)).sum::<u64>()
    }

    /// Returns the lowest number not in the set.
    pub(super) fn first_missing(&self) -> Seq {
        self.0.first_key_value().filter(|(from, _)| **from == 0).map_or(0, |(_, to)| *to)
    }

    /// Returns the number after the highest one in the set; 0 for the empty set.
    pub(super) fn end(&self) -> Seq {
        self.0.last_key_value().map_or(0, |(_, to)| *to)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = Range<Seq>> + '_ {
        self.0.iter().map(|(from, to)| *from..*to)
    }

    /// Appends the ranges to `out`: their count, then for each the gap before it and its length.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.0.len() as u64);
        let mut at = 0;
        for Range { start, end } in self.iter() {
            put(out, start - at);
            put(out, end - start);
            at = end;
        }
    }

    /// Decodes the output of [`Ranges::encode`] and removes it from `bytes`; `None` if it is damaged.
    pub(super) fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let count = take(bytes)?;
        let (mut ranges, mut at) = (BTreeMap::new(), 0_u64);
        for _ in 0..count {
            let start = at.checked_add(take(bytes)?)?;
            at = start.checked_add(take(bytes)?).filter(|end| *end <= MAX_SEQ)?;
            ranges.insert(start, at);
        }
        Some(Self(ranges))
    }
}

impl FromIterator<Seq> for Ranges {
    /// Builds the set from numbers in any order. A run of consecutive numbers costs one insertion.
    fn from_iter<I: IntoIterator<Item = Seq>>(seqs: I) -> Self {
        let (mut ranges, mut run) = (Self::default(), 0..0);
        for seq in seqs {
            if seq != run.end || run.is_empty() {
                ranges.insert(std::mem::replace(&mut run, seq..seq));
            }
            run.end = seq + 1;
        }
        ranges.insert(run);
        ranges
    }
}

/// Appends a number as LEB128.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Decodes the output of [`put`] and removes it from `bytes`; `None` if it is damaged.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn ranges_equal_the_set_of_inserted_numbers(parts in prop::collection::vec((0_u64..60, 0_u64..9), 0..20)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, len) in parts {
                ranges.insert(start..start + len);
                set.extend(start..start + len);
            }
            for seq in 0..80 {
                prop_assert_eq!(ranges.contains(seq), set.contains(&seq));
            }
            prop_assert_eq!(ranges.missing(10..50), (10..50).filter(|seq| !set.contains(seq)).count() as u64);
            prop_assert_eq!(ranges.first_missing(), (0..100).find(|seq| !set.contains(seq)).unwrap());
            prop_assert_eq!(ranges.end(), set.last().map_or(0, |last| last + 1));
            let ends: Vec<_> = ranges.iter().collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start));
            let mut bytes = Vec::new();
            ranges.encode(&mut bytes);
            prop_assert_eq!(Ranges::decode(&mut &bytes[..]), Some(ranges));
        }

        #[test]
        fn decode_accepts_any_bytes_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Ranges::decode(&mut &bytes[..]);
        }
    }
}
