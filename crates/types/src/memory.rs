//! Memory accounting of an informer's objects, and the steps that reduce it under a memory limit.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use serde::Serialize;

use super::clock;

/// Lowest memory limit, in bytes, that a hub accepts. The program, its threads and its connections take about 30 MiB.
pub const LEAST_MEMORY_LIMIT: u64 = 64 << 20;

/// Bytes per object besides its stored body: key, labels and other decoded fields, and entries in the store's maps and
/// indices, including allocator overhead. Measured with pods (docs/performance.md).
const BESIDE_BODY: u64 = 560;

/// Allocator overhead of the stored bodies, in per cent.
const BODY_SLACK: u128 = 10;

/// Returns the memory of cached objects in bytes.
///
/// Defines the column `MEMORY`, the status field `bytes` and the metric `informer_hub_informer_memory_bytes`
/// (docs/memory.md). `bodies` is the current size of the bodies in bytes, each plain or compressed. Queued changes, the
/// informers themselves and the rest of the process are not included.
#[must_use]
pub fn object_memory(objects: u64, bodies: u64) -> u64 {
    let slack = u128::from(bodies) * BODY_SLACK / 100;
    let slack = u64::try_from(slack).unwrap_or(u64::MAX);
    bodies.saturating_add(slack).saturating_add(objects.saturating_mul(BESIDE_BODY))
}

/// How much of an informer's objects is kept. Each step keeps less than the previous one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum MemoryStep {
    /// All objects. Bodies of recently changed objects are plain, all other bodies compressed.
    #[default]
    Full,
    /// All objects. Bodies are compressed without delay: only a few MiB per resource stay plain. Less memory is spent
    /// on snapshots for readers that page through a list, so continue tokens expire sooner.
    Packed,
    /// Heads only: keys, versions, labels and index values. The objects' bodies are delivered to subscribers but
    /// not kept.
    Heads,
    /// Heads only (keys, versions, labels and index values), and the watch is stopped: the heads become stale.
    Paused,
    /// No objects, and the watch is stopped.
    Released,
}

impl MemoryStep {
    /// All steps, from the one that keeps most of an informer's objects in memory to the one that keeps least.
    pub const ALL: [Self; 5] = [Self::Full, Self::Packed, Self::Heads, Self::Paused, Self::Released];

    /// Returns the word used in the status and in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Packed => "packed",
            Self::Heads => "heads",
            Self::Paused => "paused",
            Self::Released => "released",
        }
    }

    /// Returns whether the objects' bodies are kept in memory.
    #[must_use]
    pub fn keeps_bodies(self) -> bool {
        self < Self::Heads
    }

    /// Returns whether the informer lists and watches at this step of saving memory.
    #[must_use]
    pub fn watches(self) -> bool {
        self < Self::Paused
    }

    /// Returns the next step of saving memory, at which less is kept; `None` for the last step.
    #[must_use]
    pub fn worse(self) -> Option<Self> {
        Self::ALL.get(self as usize + 1).copied()
    }

    /// Returns the next step towards [`Self::Full`], at which more is kept; `None` for [`Self::Full`]. For
    /// [`Self::Paused`] and [`Self::Released`], at which the watch is stopped, returns [`Self::Heads`].
    #[must_use]
    pub fn better(self) -> Option<Self> {
        match self {
            Self::Full => None,
            Self::Packed => Some(Self::Full),
            Self::Heads => Some(Self::Packed),
            Self::Paused | Self::Released => Some(Self::Heads),
        }
    }
}

impl fmt::Display for MemoryStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Memory status of one informer. Lock-free. Without a memory limit, the numbers stay zero and the step
/// [`MemoryStep::Full`].
#[derive(Debug, Default)]
pub struct MemoryState {
    step: AtomicU8,
    since: AtomicI64,
    reason: ArcSwapOption<String>,
    /// Bytes that the informer may use while other informers need memory.
    pub share: AtomicU64,
    /// Bytes that count against the informer's share: its objects and the changes in its queues.
    pub used: AtomicU64,
}

impl MemoryState {
    /// Returns the current step, which says how much of the informer's objects is kept.
    #[must_use]
    pub fn step(&self) -> MemoryStep {
        MemoryStep::ALL.get(usize::from(self.step.load(Relaxed))).copied().unwrap_or_default()
    }

    /// Sets the memory step and its reason, and records the current time as the start of the step.
    pub fn set_step(&self, step: MemoryStep, reason: Option<String>) {
        self.reason.store(reason.map(Arc::new));
        self.since.store(clock::wall_millis(), Relaxed);
        self.step.store(step as u8, Relaxed);
    }

    /// Returns when the current memory step began; `None` if it was never changed.
    #[must_use]
    pub fn since(&self) -> Option<jiff::Timestamp> {
        match self.since.load(Relaxed) {
            0 => None,
            millis => jiff::Timestamp::from_millisecond(millis).ok(),
        }
    }

    /// Returns the reason for the current memory step; `None` if none was given.
    #[must_use]
    pub fn reason(&self) -> Option<Arc<String>> {
        self.reason.load_full()
    }

    pub(super) fn copy_from(&self, before: &Self) {
        self.reason.store(before.reason.load_full());
        self.since.store(before.since.load(Relaxed), Relaxed);
        self.step.store(before.step.load(Relaxed), Relaxed);
        self.share.store(before.share.load(Relaxed), Relaxed);
        self.used.store(before.used.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_memory_counts_objects_without_bodies() {
        assert_eq!(object_memory(0, 0), 0);
        assert_eq!(object_memory(34, 0), 34 * 560);
        assert_eq!(object_memory(2, 1_000), 2 * 560 + 1_100);
        assert_eq!(object_memory(u64::MAX, u64::MAX), u64::MAX, "no overflow");
    }

    #[test]
    fn steps_round_trip_and_lead_from_full_to_released_and_back() {
        let state = MemoryState::default();
        assert_eq!((state.step(), state.since()), (MemoryStep::Full, None));
        for step in MemoryStep::ALL {
            state.set_step(step, Some("why".to_owned()));
            assert_eq!((state.step(), state.reason().unwrap().as_str()), (step, "why"));
        }
        let down = std::iter::successors(Some(MemoryStep::Full), |step| step.worse());
        assert!(down.eq(MemoryStep::ALL));
        let up: Vec<_> = std::iter::successors(Some(MemoryStep::Released), |step| step.better()).collect();
        assert_eq!(up, [MemoryStep::Released, MemoryStep::Heads, MemoryStep::Packed, MemoryStep::Full]);
    }
}
