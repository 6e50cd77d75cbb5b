//! The informers of one resource in one cluster, as one.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use informer_hub_telemetry::metrics::{Id, LabelSet, Snapshot};
use informer_hub_types::{InformerHealth, Phase};

/// What several informers show: sums, and of states the worst.
#[derive(Debug)]
pub(super) struct InformerSum {
    synced: bool,
    pub(super) stale: Duration,
    /// The lowest version up to which one of them has its store complete.
    stored: Option<u64>,
    objects: u64,
    events: u64,
    watches: u64,
    skipped: u64,
    restarts: u64,
    queued_changes: u64,
    pub(super) queued_bytes: u64,
    /// Memory of the objects, shared, and the step that keeps least; `None` in a hub that has had no limit.
    memory: Option<(u64, u64, u8)>,
}

impl Default for InformerSum {
    fn default() -> Self {
        Self {
            synced: true,
            stale: Duration::ZERO,
            stored: None,
            objects: 0,
            events: 0,
            watches: 0,
            skipped: 0,
            restarts: 0,
            queued_changes: 0,
            queued_bytes: 0,
            memory: None,
        }
    }
}

impl InformerSum {
    /// Bytes that the objects take, where memory has a limit.
    pub(super) fn object_memory(&self) -> u64 {
        self.memory.map_or(0, |(bytes, ..)| bytes)
    }

    /// Takes one more in.
    pub(super) fn add(&mut self, health: &InformerHealth) {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        self.synced &= health.has_synced();
        self.stale = self.stale.max(stale(health));
        let stored = health.stored().and_then(|version| version.as_number());
        self.stored = self.stored.into_iter().chain(stored).min();
        self.objects += read(&health.objects);
        self.events += read(&health.events);
        self.watches += read(&health.watches);
        self.skipped += read(&health.skipped);
        self.restarts += read(&health.restarts);
        self.queued_changes += read(&health.fifo_keys);
        self.queued_bytes += read(&health.fifo_bytes);
        let (bytes, share) = (read(&health.bytes), read(&health.memory.share));
        if bytes > 0 || share > 0 || health.memory.since().is_some() {
            let (all, shares, worst) = self.memory.unwrap_or_default();
            self.memory = Some((all + bytes, shares + share, worst.max(health.memory.step() as u8)));
        }
    }

    /// Puts all of it in.
    pub(super) fn put(&self, out: &mut Snapshot, labels: LabelSet) {
        out.count(Id::Objects, labels, self.objects);
        out.flag(Id::Synced, labels, self.synced);
        out.put(Id::Stale, labels, self.stale.as_secs_f64());
        if let Some(stored) = self.stored {
            out.count(Id::StoredVersion, labels, stored);
        }
        out.count(Id::Events, labels, self.events);
        out.count(Id::Watches, labels, self.watches);
        out.count(Id::Skipped, labels, self.skipped);
        out.count(Id::Restarts, labels, self.restarts);
        out.count(Id::QueuedChanges, labels, self.queued_changes);
        out.count(Id::QueuedBytes, labels, self.queued_bytes);
        if let Some((bytes, share, step)) = self.memory {
            out.count(Id::InformerMemory, labels, bytes);
            out.count(Id::InformerShare, labels, share);
            out.count(Id::InformerStep, labels, u64::from(step));
        }
    }
}

/// A resource that is not there, or that nobody wants any more, is not behind.
fn stale(health: &InformerHealth) -> Duration {
    match health.phase() {
        Phase::Absent | Phase::Stopped | Phase::Watching => Duration::ZERO,
        _ => health.stale_for().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::{ResourceVersion, clock};

    #[test]
    fn two_informers_of_a_resource_are_their_sum_and_the_worse_of_them() {
        let (well, behind) = (InformerHealth::new(), InformerHealth::new());
        well.set_phase(Phase::Watching);
        well.set_synced();
        well.objects.store(3, Relaxed);
        well.set_stored(Some(ResourceVersion::new("70")));
        behind.restore(Some(ResourceVersion::new("60")), false, clock::wall_millis() - 60_000, 4);
        behind.set_phase(Phase::Listing);
        let mut sum = InformerSum::default();
        sum.add(&well);
        let mut alone = Snapshot::new(clock::wall());
        let labels = alone.labels(&[("cluster", "a"), ("resource", "pods")]);
        sum.put(&mut alone, labels);
        assert_eq!(alone.value(Id::Synced, &["a", "pods"]), Some(1.0));
        assert_eq!(alone.value(Id::Stale, &["a", "pods"]), Some(0.0));
        sum.add(&behind);
        let mut both = Snapshot::new(clock::wall());
        let labels = both.labels(&[("cluster", "a"), ("resource", "pods")]);
        sum.put(&mut both, labels);
        assert_eq!(both.value(Id::Objects, &["a", "pods"]), Some(7.0));
        assert_eq!(both.value(Id::Synced, &["a", "pods"]), Some(0.0));
        assert_eq!(alone.value(Id::StoredVersion, &["a", "pods"]), Some(70.0));
        assert_eq!(both.value(Id::StoredVersion, &["a", "pods"]), Some(60.0), "what all of them have");
        assert!(both.value(Id::Stale, &["a", "pods"]).is_some_and(|seconds| (60.0..120.0).contains(&seconds)));
        assert_eq!(both.value(Id::InformerMemory, &["a", "pods"]), None, "nothing limits it");
    }

    #[test]
    fn a_resource_that_is_not_there_is_not_behind() {
        let health = InformerHealth::new();
        health.restore(None, false, clock::wall_millis() - 60_000, 0);
        health.set_phase(Phase::Absent);
        assert_eq!(stale(&health), Duration::ZERO);
    }
}
