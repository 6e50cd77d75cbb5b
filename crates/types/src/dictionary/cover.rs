//! Choice of a dictionary's content: the segments of samples that most samples have in common.
//!
//! A cover algorithm like that of zstd's own trainer, with a table that fits a processor's cache:
//!
//! - It counts, for each string of eight bytes, the samples that contain the string.
//! - It divides the samples into groups (epochs), one for each segment that fits into the dictionary.
//! - From each epoch it chooses the segment whose strings have the largest sum of counts.
//! - Strings of a chosen segment no longer count, so that later segments contribute other strings.
//!
//! Deterministic, and linear in the bytes of the samples.

use super::hash::{WIDTH, hash, slot};
use super::samples::Samples;

/// Length in bytes of the strings that are counted in the samples.
const GRAM: usize = WIDTH;

/// Maximum bytes of a segment, the part of a sample that is chosen for the dictionary. Smaller samples are chosen
/// whole, which gives long matches.
const SEGMENT: usize = 4096;

/// Maximum number of passes over the samples. Later passes fill the space that trimmed segments (chosen parts of
/// samples) left free in the dictionary.
const PASSES: usize = 3;

/// Chooses at most `size` bytes of content for a dictionary. Parts that more samples repeat are nearer to the end,
/// where references to them are shorter.
pub(super) fn choose(samples: &Samples, size: usize) -> Vec<u8> {
    let all: Vec<_> = samples.iter().collect();
    let mean = samples.bytes() / samples.len().max(1);
    let (mut cover, mut chosen, mut left) = (Cover::of(samples), Vec::new(), size.min(samples.bytes()));
    for _ in 0..PASSES {
        let before = left;
        let epochs = (left / mean.clamp(1, SEGMENT)).max(1);
        let epoch = |at: usize| at * epochs / samples.bytes();
        for samples in all.chunk_by(|(one, _), (other, _)| epoch(*one) == epoch(*other)) {
            let best = samples.iter().filter_map(|(_, sample)| cover.best_segment(sample)).max_by_key(|best| best.0);
            let Some((score, segment)) = best else { continue };
            let segment = cover.take(segment);
            // A string in several samples scores at least two. A total score as low as this results from hash
            // collisions.
            if score * 4 < segment.len() as u64 {
                continue;
            }
            let segment = &segment[..segment.len().min(left)];
            left -= segment.len();
            chosen.push((score, segment));
        }
        if left == 0 || left == before {
            break;
        }
    }
    chosen.sort_by_key(|(score, _)| *score);
    chosen.into_iter().flat_map(|(_, segment)| segment).copied().collect()
}

/// Counts of eight-byte strings, by the hash of the string.
struct Cover {
    /// Number of samples that contain a string with this hash. 0 if only one sample contains it, or if the content
    /// chosen so far contains it.
    samples: Vec<u32>,
    /// Number of strings with this hash in the candidate segment whose score is being computed.
    window: Vec<u32>,
}

impl Cover {
    /// Binary logarithm of the number of counters, which take 128 KiB per table. Eight times as many give no better
    /// choice.
    const BITS: u32 = 15;

    fn of(samples: &Samples) -> Self {
        let mut counts = vec![0_u32; 1 << Self::BITS];
        let mut last = vec![0; 1 << Self::BITS];
        for (number, (_, sample)) in (1_u32..).zip(samples.iter()) {
            for gram in sample.windows(GRAM) {
                let slot = Self::slot(gram);
                if last[slot] != number {
                    last[slot] = number;
                    counts[slot] += 1;
                }
            }
        }
        for count in counts.iter_mut().filter(|count| **count < 2) {
            *count = 0;
        }
        last.fill(0);
        Self { samples: counts, window: last }
    }

    fn slot(gram: &[u8]) -> usize {
        slot(hash(gram, GRAM), Self::BITS)
    }

    fn enter(&mut self, gram: &[u8]) -> u64 {
        let slot = Self::slot(gram);
        self.window[slot] += 1;
        if self.window[slot] == 1 { u64::from(self.samples[slot]) } else { 0 }
    }

    fn leave(&mut self, gram: &[u8]) -> u64 {
        let slot = Self::slot(gram);
        self.window[slot] -= 1;
        if self.window[slot] == 0 { u64::from(self.samples[slot]) } else { 0 }
    }

    /// Returns the segment of `sample` with the highest score, and the score: the sum, over its distinct strings, of
    /// the number of samples with the string. `None` if every score is 0 or the sample is shorter than a string.
    fn best_segment<'s>(&mut self, sample: &'s [u8]) -> Option<(u64, &'s [u8])> {
        let grams = (sample.len() + 1).checked_sub(GRAM)?;
        let width = grams.min(SEGMENT + 1 - GRAM);
        let (mut score, mut best) = (0, (0, 0));
        for at in 0..grams {
            score += self.enter(&sample[at..at + GRAM]);
            if at >= width {
                score -= self.leave(&sample[at - width..at - width + GRAM]);
            }
            if at + 1 >= width && score > best.0 {
                best = (score, at + 1 - width);
            }
        }
        for at in grams - width..grams {
            self.leave(&sample[at..at + GRAM]);
        }
        let (score, start) = best;
        (score > 0).then(|| (score, &sample[start..start + width + GRAM - 1]))
    }

    /// Returns the segment without the bytes at both ends that add nothing to its score (sum of counts), and stops
    /// counting its strings.
    fn take<'s>(&mut self, segment: &'s [u8]) -> &'s [u8] {
        let counts = |gram| self.samples[Self::slot(gram)] > 0;
        let first = segment.windows(GRAM).position(counts).unwrap_or(0);
        let last = segment.windows(GRAM).rposition(counts).map_or(0, |at| at + GRAM);
        for gram in segment.windows(GRAM) {
            self.samples[Self::slot(gram)] = 0;
        }
        segment.get(first..last).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dictionary::tests::noise;

    fn contains(content: &[u8], part: &[u8]) -> bool {
        content.windows(part.len()).any(|window| window == part)
    }

    #[test]
    fn choose_takes_what_samples_share_and_no_more() {
        let shared = noise(1, 600);
        let samples =
            Samples::collect((10..30).map(|seed| [noise(seed, 200), shared.clone(), noise(seed + 50, 200)].concat()));
        let content = choose(&samples, 64 * 1024);
        assert!(contains(&content, &shared));
        assert!(content.len() < 2 * shared.len(), "{} bytes for 600 that are shared", content.len());
    }

    #[test]
    fn choose_puts_the_most_repeated_part_last() {
        let (common, rare) = (noise(1, 400), noise(2, 400));
        let sample = |at: usize| if at.is_multiple_of(8) { rare.clone() } else { common.clone() };
        let content = choose(&Samples::collect((0..80).map(sample)), 64 * 1024);
        assert_eq!(content, [rare, common].concat());
    }

    #[test]
    fn choose_obeys_its_size_with_the_best_part() {
        let samples: Vec<_> = (0..40).map(|at| noise(at / 2, 3000)).collect();
        for size in [0, 1, 7, 500, 4096, 20_000] {
            let content = choose(&Samples::collect(&samples), size);
            assert_eq!(content.len(), size);
        }
        assert!(choose(&Samples::collect(&samples), usize::MAX).len() <= 20 * 3000);
    }
}
