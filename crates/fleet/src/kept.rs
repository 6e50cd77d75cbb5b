//! Older checkpoints of a partition, kept for processes that continue where they stopped.
//!
//! A process that was down for longer than the interval between checkpoints needs a checkpoint older than the newest
//! one. The store therefore keeps up to [`MAX_KEPT`] older checkpoints. Each is kept only while the log still has all
//! entries after it. In simulations, the oldest kept checkpoint always has at least 45 % of the age of the log's oldest
//! entry.

use std::time::Duration;

use crate::entry::Sequence;

/// Maximum number of checkpoints kept in addition to the newest one.
pub const MAX_KEPT: usize = 2;

/// Place and age of a stored checkpoint, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept<T> {
    /// Sequence of the last entry whose changes the checkpoint contains.
    pub sequence: Sequence,
    /// Unix time in seconds at which the checkpoint was saved.
    pub saved: i64,
    /// Location of the checkpoint in the store.
    pub at: T,
}

/// Range of the entries that a log retains at present, and the limits of its retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// Sequence of the first entry. In an empty log, `last` is less than `first`.
    pub first: Sequence,
    /// Sequence of the last entry.
    pub last: Sequence,
    /// Middle of the log's retention time, in Unix seconds: the time of the last entry, minus half of the retention
    /// time. The retention time is the time in which the log fills up at its present rate, at most `max_age`.
    pub middle: i64,
    /// Whether the log exceeds half of its maximum size, so that it may remove entries by size before their age.
    pub is_half_full: bool,
    /// Age at which entries are removed.
    pub max_age: Duration,
}

impl Retained {
    /// Computes the values from the state of a log. `first` and `last` have the sequence and the Unix time in seconds
    /// of the first and the last entry. `size` has the present and the maximum size in bytes.
    #[must_use]
    pub fn new(first: (Sequence, i64), last: (Sequence, i64), size: (u64, u64), max_age: Duration) -> Self {
        let span = u128::from(last.1.saturating_sub(first.1).max(0).cast_unsigned());
        let until_full = span.saturating_mul(size.1.into()).checked_div(size.0.into()).unwrap_or(u128::MAX);
        let half = i64::try_from(until_full.min(max_age.as_secs().into()) / 2).unwrap_or(i64::MAX);
        let (bytes, max_bytes) = size;
        let is_half_full = bytes > max_bytes / 2;
        Self { first: first.0, last: last.0, middle: last.1.saturating_sub(half), is_half_full, max_age }
    }

    /// Returns whether the log may soon remove entries after `sequence`: the log is more than half full, and `sequence`
    /// is in the older half of its sequences.
    #[must_use]
    pub fn may_soon_pass(&self, sequence: Sequence) -> bool {
        self.is_half_full && sequence < self.first + self.last.saturating_sub(self.first) / 2
    }
}

/// Adds `replaced`, which is no longer the newest checkpoint, to the list `older`. Removes the checkpoints that need
/// not be kept from the list, and returns them for deletion.
///
/// A checkpoint is removed if the log has lost entries that follow it. If more than two remain, one more is removed:
///
/// - While the oldest checkpoint is in the newer half of the log's retention time, the second oldest is removed.
/// - Once the oldest checkpoint is in the older half, `replaced` is removed.
///
/// So when the oldest checkpoint becomes useless, the second oldest is near the middle of the retention time.
#[must_use]
pub fn keep<T>(older: &mut Vec<Kept<T>>, replaced: Kept<T>, log: Retained) -> Vec<Kept<T>> {
    let mut obsolete: Vec<_> = older.extract_if(.., |kept| kept.sequence.saturating_add(1) < log.first).collect();
    older.push(replaced);
    older.sort_by_key(|kept| kept.sequence);
    while older.len() > MAX_KEPT {
        let in_newer_half = older.first().is_some_and(|oldest| oldest.saved > log.middle);
        obsolete.push(older.remove(if in_newer_half { 1 } else { MAX_KEPT }));
    }
    obsolete
}

/// Returns the newest checkpoint before a sequence; `None` if there is none.
#[must_use]
pub fn newest_before<T>(older: &[Kept<T>], sequence: Sequence) -> Option<&Kept<T>> {
    older.iter().filter(|kept| kept.sequence < sequence).max_by_key(|kept| kept.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a log that retains entries for `age` seconds, by its size limit or its age limit, with a checkpoint
    /// every 10 s. Returns the lowest age that the oldest kept checkpoint has had, in percent of the log's age.
    fn coverage(age: u64, by_size: bool) -> u64 {
        let (mut older, mut all, mut least) = (Vec::new(), Vec::new(), 100);
        // Sequences grow unevenly: the log stores most of its entries in a short part of each cycle.
        let sequence = |time: u64| time / 600 * 10_000 + (time % 600).min(60) * 100 + time % 600;
        for now in (20..20_000_u64).step_by(10) {
            let first = now.saturating_sub(age);
            let (entry, unix) = (|time| (sequence(time), time.cast_signed()), (now - 10).cast_signed());
            let (max_size, max_age) = if by_size { (age, 100 * age) } else { (100 * age, age) };
            let size = (now - first, max_size);
            let log = Retained::new(entry(first), entry(now), size, Duration::from_secs(max_age));
            let replaced = Kept { sequence: sequence(now - 10), saved: unix, at: now };
            all.push(replaced.at);
            let obsolete = keep(&mut older, replaced, log);
            all.retain(|at| obsolete.iter().all(|kept| kept.at != *at));
            assert!(older.len() <= MAX_KEPT);
            assert_eq!(all, older.iter().map(|kept| kept.at).collect::<Vec<_>>(), "none is forgotten");
            let reach = now - older[0].saved.cast_unsigned();
            assert!(reach <= age + 10, "the log has the entries after it");
            least = least.min(100 * reach / now.min(age));
        }
        least
    }

    #[test]
    fn kept_checkpoints_reach_back_for_half_of_the_log() {
        for by_size in [false, true] {
            let part = coverage(1_000, by_size);
            assert!(part > 45, "{part}, limited by its size: {by_size}");
        }
    }

    #[test]
    fn newest_checkpoint_before_a_sequence_is_found() {
        let older = [10, 30].map(|sequence| Kept { sequence, saved: 0, at: () });
        let found = |before| newest_before(&older, before).map(|kept| kept.sequence);
        assert_eq!([10, 11, 30, 31].map(found), [None, Some(10), Some(10), Some(30)]);
    }
}
