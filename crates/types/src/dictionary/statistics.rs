//! Statistics of samples compressed with a dictionary's content: how often each symbol of zstd's format occurs.
//!
//! Matches are searched roughly as zstd's level 3 does: first a repetition of the last offset, then a match of eight
//! bytes, then one of five. With entropy tables made from these statistics, bodies are half a per cent larger than with
//! the tables of zstd's own trainer.

use super::hash::{WIDTH, hash, slot};
use super::samples::Samples;

/// Number of offset codes: enough for offsets within 64 KiB of content and 128 KiB of an object.
pub(super) const OFFSET_CODES: usize = 18;
/// Number of codes for match lengths in zstd's format (RFC 8878).
pub(super) const MATCH_CODES: usize = 53;
/// Number of codes for lengths of literal runs in zstd's format (RFC 8878).
pub(super) const LITERAL_CODES: usize = 36;

/// Number of extra bits after each code of a match length (RFC 8878).
const MATCH_BITS: [u8; MATCH_CODES] = {
    let mut bits = [0; MATCH_CODES];
    let large = [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    let mut at = 0;
    while at < large.len() {
        bits[32 + at] = large[at];
        at += 1;
    }
    bits
};
const LITERAL_BITS: [u8; LITERAL_CODES] = {
    let mut bits = [0; LITERAL_CODES];
    let large = [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    let mut at = 0;
    while at < large.len() {
        bits[16 + at] = large[at];
        at += 1;
    }
    bits
};

/// Minimum bytes of a match that repeats the last offset.
const MIN_MATCH: usize = 4;
const MIN_LENGTH_CODED: usize = 3;

/// Number of occurrences of each symbol of zstd's format in compressed samples. Counting starts at one, because every
/// symbol needs a place in the entropy tables.
pub(super) struct Statistics {
    pub(super) literals: [u32; 256],
    pub(super) offsets: [u32; OFFSET_CODES],
    pub(super) match_lengths: [u32; MATCH_CODES],
    pub(super) literal_lengths: [u32; LITERAL_CODES],
}

impl Statistics {
    /// Returns the statistics of every fourth sample, compressed with `content`.
    pub(super) fn of(content: &[u8], samples: &Samples) -> Self {
        let mut matcher = Matcher::new(content);
        let mut statistics = Self {
            literals: [1; 256],
            offsets: [1; OFFSET_CODES],
            match_lengths: [1; MATCH_CODES],
            literal_lengths: [1; LITERAL_CODES],
        };
        for (_, sample) in samples.iter().step_by(4) {
            matcher.parse(sample, &mut statistics);
        }
        statistics
    }

    /// Counts one zstd sequence: literals, then a match of `len` bytes. `offset` is 1 for a repeated offset, else the
    /// distance plus 3.
    fn count(&mut self, literals: &[u8], offset: usize, len: usize) {
        self.count_literals(literals);
        self.literal_lengths[code(&LITERAL_BITS, literals.len())] += 1;
        self.match_lengths[code(&MATCH_BITS, len - MIN_LENGTH_CODED)] += 1;
        self.offsets[(offset.ilog2() as usize).min(OFFSET_CODES - 1)] += 1;
    }

    fn count_literals(&mut self, literals: &[u8]) {
        for literal in literals {
            self.literals[usize::from(*literal)] += 1;
        }
    }
}

/// Returns the code of a length. Codes cover consecutive ranges of lengths, each `1 << extra_bits` wide.
fn code(extra_bits: &[u8], length: usize) -> usize {
    let mut end = 0_usize;
    let covers = |bits: &u8| {
        end += 1 << bits;
        length < end
    };
    extra_bits.iter().position(covers).unwrap_or(extra_bits.len() - 1)
}

/// A match: the `len` bytes at position `at` equal the `len` bytes at the earlier position `from`.
#[derive(Clone, Copy)]
struct Found {
    at: usize,
    from: usize,
    len: usize,
}

/// Match finder over the dictionary's content followed by one sample.
struct Matcher {
    bytes: Vec<u8>,
    content: usize,
    long: Index,
    short: Index,
}

impl Matcher {
    fn new(content: &[u8]) -> Self {
        let (mut long, mut short) = (Index::new(8), Index::new(5));
        for at in 0..content.len().saturating_sub(WIDTH) {
            for index in [&mut long, &mut short] {
                let slot = slot(index.hash(content, at), Index::CONTENT_BITS);
                index.content[slot] = position(at);
            }
        }
        Self { bytes: content.to_vec(), content: content.len(), long, short }
    }

    fn parse(&mut self, sample: &[u8], statistics: &mut Statistics) {
        self.bytes.truncate(self.content);
        self.bytes.extend_from_slice(sample);
        self.long.sample.fill(NOWHERE);
        self.short.sample.fill(NOWHERE);
        let (mut at, mut anchor, mut last) = (self.content, self.content, [1, 4]);
        // A search reads `WIDTH` bytes from the next position too.
        while at + WIDTH < self.bytes.len() {
            let repeated = self.repeated(at + 1, last[0]);
            let found = repeated.or_else(|| self.search(at));
            self.insert(at);
            let Some(found) = found else {
                // The longer there is no match, the larger the steps.
                at += 1 + ((at - anchor) >> 8);
                continue;
            };
            let is_repeated = repeated.is_some();
            let found = if is_repeated { found } else { self.extended_back(found, anchor) };
            if !is_repeated {
                last = [found.at - found.from, last[0]];
            }
            let offset = if is_repeated { 1 } else { last[0] + 3 };
            statistics.count(&self.bytes[anchor..found.at], offset, found.len);
            self.insert(at + 2);
            at = found.at + found.len;
            while let Some(again) = self.repeated(at, last[1]) {
                last.swap(0, 1);
                statistics.count(&[], 1, again.len);
                at += again.len;
            }
            anchor = at;
        }
        statistics.count_literals(&self.bytes[anchor..]);
    }

    fn insert(&mut self, at: usize) {
        if at + WIDTH <= self.bytes.len() {
            for index in [&mut self.long, &mut self.short] {
                let slot = slot(index.hash(&self.bytes, at), Index::SAMPLE_BITS);
                index.sample[slot] = position(at);
            }
        }
    }

    fn repeated(&self, at: usize, offset: usize) -> Option<Found> {
        let from = at.checked_sub(offset)?;
        let len = self.common(from, at);
        (len >= MIN_MATCH).then_some(Found { at, from, len })
    }

    fn search(&self, at: usize) -> Option<Found> {
        self.find(&self.long, at).or_else(|| {
            let short = self.find(&self.short, at)?;
            Some(self.find(&self.long, at + 1).unwrap_or(short))
        })
    }

    fn find(&self, index: &Index, at: usize) -> Option<Found> {
        index.candidates(&self.bytes, at).into_iter().find_map(|from| {
            let from = from as usize;
            if from >= at {
                return None;
            }
            let len = self.common(from, at);
            (len >= index.len).then_some(Found { at, from, len })
        })
    }

    /// Returns how many bytes from position `from` on equal the bytes from position `at` on.
    fn common(&self, from: usize, at: usize) -> usize {
        self.bytes[at..].iter().zip(&self.bytes[from..]).take_while(|(one, other)| one == other).count()
    }

    fn extended_back(&self, found: Found, anchor: usize) -> Found {
        let (before, earlier) = (&self.bytes[anchor..found.at], &self.bytes[..found.from]);
        let more = before.iter().rev().zip(earlier.iter().rev()).take_while(|(one, other)| one == other).count();
        Found { at: found.at - more, from: found.from - more, len: found.len + more }
    }
}

/// Index over strings of `len` bytes by their hash. For each hash, `content` has the last position of such a string in
/// the dictionary's content, and `sample` the last position in the sample.
struct Index {
    len: usize,
    content: Vec<u32>,
    sample: Vec<u32>,
}

/// Placeholder in an index: no string with this hash has occurred.
const NOWHERE: u32 = u32::MAX;

fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NOWHERE)
}

impl Index {
    const CONTENT_BITS: u32 = 14;
    const SAMPLE_BITS: u32 = 12;

    fn new(len: usize) -> Self {
        Self { len, content: vec![NOWHERE; 1 << Self::CONTENT_BITS], sample: vec![NOWHERE; 1 << Self::SAMPLE_BITS] }
    }

    fn hash(&self, bytes: &[u8], at: usize) -> u64 {
        hash(bytes.get(at..at + WIDTH).unwrap_or_default(), self.len)
    }

    /// Returns where a string with the same hash as the string at `at` occurred last: its position in the sample, then
    /// its position in the dictionary's content. A position is [`NOWHERE`] if there is no such string.
    fn candidates(&self, bytes: &[u8], at: usize) -> [u32; 2] {
        let hash = self.hash(bytes, at);
        [self.sample[slot(hash, Self::SAMPLE_BITS)], self.content[slot(hash, Self::CONTENT_BITS)]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(content: &[u8], sample: &[u8]) -> Statistics {
        Statistics::of(content, &Samples::collect([sample]))
    }

    fn matches(counted: &Statistics) -> u32 {
        counted.match_lengths.iter().map(|count| count - 1).sum()
    }

    #[test]
    fn codes_are_those_of_the_format() {
        let literal =
            [(0, 0), (15, 15), (16, 16), (17, 16), (18, 17), (64, 25), (127, 25), (65_536, 35), (1 << 20, 35)];
        assert!(literal.iter().all(|(length, is)| code(&LITERAL_BITS, *length) == *is));
        // Match lengths less the shortest.
        let matched = [(0, 0), (31, 31), (32, 32), (34, 33), (64, 40), (128, 43), (65_536, 52), (1 << 20, 52)];
        for (length, is) in matched {
            assert_eq!(code(&MATCH_BITS, length), is, "{length}");
        }
    }

    #[test]
    fn sample_is_counted_as_literals_and_matches() {
        let content: Vec<u8> = (0..200).collect();
        // Two literals, 40 bytes at an offset of 202 - 50, then three literals and the next bytes at the same offset.
        let sample = [&[250, 251], &content[50..90], &[252, 253, 254], &content[93..150], &[255; 3]].concat();
        let counted = statistics(&content, &sample);
        let literals: Vec<_> = (0..=u8::MAX).filter(|byte| counted.literals[usize::from(*byte)] > 1).collect();
        assert_eq!(literals, [250, 251, 252, 253, 254, 255]);
        assert_eq!((counted.literal_lengths[2], counted.literal_lengths[3]), (2, 2));
        assert_eq!((counted.offsets[0], counted.offsets[7]), (2, 2));
        assert_eq!(matches(&counted), 2);
    }

    #[test]
    fn literals_and_matches_cover_each_sample() {
        let content = b"some text that occurs in all samples, again and again".as_slice();
        for sample in
            [&b""[..], b"a", b"aaaaaaaa", &[b'a'; 5000], b"some text that occurs", &[content, content].concat()]
        {
            let mut matcher = Matcher::new(content);
            let mut counted = statistics(&[], &[]);
            matcher.parse(sample, &mut counted);
            let literals: u32 = counted.literals.iter().map(|count| count - 1).sum();
            let literals = usize::try_from(literals).unwrap();
            assert!(literals <= sample.len() && (matches(&counted) > 0 || literals == sample.len()));
        }
    }
}
