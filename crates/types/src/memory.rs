//! What a hub with a memory limit keeps of an informer's objects.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use serde::Serialize;

use super::clock;

/// The least memory limit of a hub: the program, its threads and connections take some 30 MiB of it.
pub const LEAST_MEMORY_LIMIT: u64 = 64 << 20;

/// Bytes that an object takes besides its body: key, head, labels, index entries, map and postings, with the allocator's
/// share. Measured of pods (docs/performance.md).
const BESIDE_BODY: u64 = 560;

/// What the allocator adds to bodies, in per cent.
const BODY_SLACK: u128 = 10;

/// The memory of cached objects, in bytes: the one definition of `MEMORY`, `bytes` and
/// `informer_hub_informer_memory_bytes` (docs/memory.md). `bodies` is what the bodies take now, each as received or
/// compressed. Queued changes, the informers themselves and the rest of the process are not part of it.
#[must_use]
pub fn object_memory(objects: u64, bodies: u64) -> u64 {
    let slack = u128::from(bodies) * BODY_SLACK / 100;
    let slack = u64::try_from(slack).unwrap_or(u64::MAX);
    bodies.saturating_add(slack).saturating_add(objects.saturating_mul(BESIDE_BODY))
}

/// How much of an informer's objects is kept, from all to nothing. Each step keeps less than the one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum MemoryStep {
    /// Everything: what has changed lately as it came, the rest compressed.
    #[default]
    Full,
    /// Everything, compressed at once; snapshots are not held for who pages through them.
    Packed,
    /// Heads alone: keys, versions, labels and index values. Bodies pass by to subscribers and are not kept.
    Heads,
    /// Heads alone, and nothing new: it does not watch, so what it has is stale.
    Paused,
    /// Nothing, and it does not watch.
    Released,
}

impl MemoryStep {
    /// All of them, the one that keeps most first.
    pub const ALL: [Self; 5] = [Self::Full, Self::Packed, Self::Heads, Self::Paused, Self::Released];

    /// The word in the status and in tables.
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

    /// Whether bodies are kept.
    #[must_use]
    pub fn keeps_bodies(self) -> bool {
        self < Self::Heads
    }

    /// Whether the informer lists and watches.
    #[must_use]
    pub fn watches(self) -> bool {
        self < Self::Paused
    }

    /// The step that keeps less; `None` where nothing is kept.
    #[must_use]
    pub fn worse(self) -> Option<Self> {
        Self::ALL.get(self as usize + 1).copied()
    }

    /// The step on the way back. Who does not watch goes back to heads: watching again is one step.
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

/// What is shown of an informer's memory. Lock-free; zero and [`MemoryStep::Full`] in a hub without a limit.
#[derive(Debug, Default)]
pub struct MemoryState {
    step: AtomicU8,
    since: AtomicI64,
    reason: ArcSwapOption<String>,
    /// Bytes that it may use while others want memory too.
    pub share: AtomicU64,
    /// Bytes that count against its share: those of its objects, and the changes that wait in its queues.
    pub used: AtomicU64,
}

impl MemoryState {
    /// How much is kept.
    #[must_use]
    pub fn step(&self) -> MemoryStep {
        MemoryStep::ALL.get(usize::from(self.step.load(Relaxed))).copied().unwrap_or_default()
    }

    /// Notes a step from now on, and why.
    pub fn set_step(&self, step: MemoryStep, reason: Option<String>) {
        self.reason.store(reason.map(Arc::new));
        self.since.store(clock::wall_millis(), Relaxed);
        self.step.store(step as u8, Relaxed);
    }

    /// Since when; `None` where it has always been full.
    #[must_use]
    pub fn since(&self) -> Option<jiff::Timestamp> {
        match self.since.load(Relaxed) {
            0 => None,
            millis => jiff::Timestamp::from_millisecond(millis).ok(),
        }
    }

    /// Why it is where it is.
    #[must_use]
    pub fn reason(&self) -> Option<Arc<String>> {
        self.reason.load_full()
    }

    pub(super) fn go_on_from(&self, before: &Self) {
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
    fn memory_counts_every_object_though_it_has_no_body() {
        assert_eq!(object_memory(0, 0), 0);
        assert_eq!(object_memory(34, 0), 34 * 560);
        assert_eq!(object_memory(2, 1_000), 2 * 560 + 1_100);
        assert_eq!(object_memory(u64::MAX, u64::MAX), u64::MAX, "no overflow");
    }

    #[test]
    fn each_step_is_kept_as_it_was_set_and_leads_down_to_nothing_and_up_to_everything() {
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
