//! Metrics of the informers of one resource in one cluster, summed.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use informer_hub_telemetry::metrics::{Id, LabelSet, Snapshot};
use informer_hub_types::{AnswerEncoding, InformerHealth, Phase};

/// Sum of the counters of several informers, and the worst of their states.
#[derive(Debug)]
pub(super) struct InformerSum {
    synced: bool,
    pub(super) stale: Duration,
    /// Lowest of the resource versions up to which the store of each informer has every change. Versions that are not
    /// numbers are left out; `None` if no informer has a numeric version.
    stored: Option<u64>,
    objects: u64,
    events: u64,
    watches: u64,
    /// Whether all informers read protobuf; `None` before an apiserver has answered.
    protobuf: Option<bool>,
    skipped: u64,
    restarts: u64,
    queued_changes: u64,
    pub(super) queued_bytes: u64,
    /// Memory of the informers; `None` if no memory limit was ever set. The first number is the bytes of all objects,
    /// the second the sum of the informers' shares of the limit. The third is the strictest memory step, as a number. A
    /// memory step is how little an informer keeps of its objects.
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
            protobuf: None,
            skipped: 0,
            restarts: 0,
            queued_changes: 0,
            queued_bytes: 0,
            memory: None,
        }
    }
}

impl InformerSum {
    /// Returns the size of the objects in bytes; zero if no limit was ever set.
    pub(super) fn object_memory(&self) -> u64 {
        self.memory.map_or(0, |(bytes, ..)| bytes)
    }

    pub(super) fn add(&mut self, health: &InformerHealth) {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        self.synced &= health.has_synced();
        self.stale = self.stale.max(stale(health));
        let stored = health.stored().and_then(|version| version.as_number());
        self.stored = self.stored.into_iter().chain(stored).min();
        self.objects += read(&health.objects);
        self.events += read(&health.events);
        self.watches += read(&health.watches);
        if let Some(encoding) = health.encoding() {
            let is_protobuf = encoding.used == AnswerEncoding::Protobuf;
            self.protobuf = Some(self.protobuf.unwrap_or(true) && is_protobuf);
        }
        self.skipped += read(&health.skipped);
        self.restarts += read(&health.restarts);
        self.queued_changes += read(&health.fifo_changes);
        self.queued_bytes += read(&health.fifo_bytes);
        let (bytes, share) = (read(&health.bytes), read(&health.memory.share));
        if bytes > 0 || share > 0 || health.memory.since().is_some() {
            let (all, shares, worst) = self.memory.unwrap_or_default();
            self.memory = Some((all + bytes, shares + share, worst.max(health.memory.step() as u8)));
        }
    }

    /// Writes the sums to a metrics snapshot.
    pub(super) fn put(&self, out: &mut Snapshot, labels: LabelSet) {
        out.count(Id::Objects, labels, self.objects);
        out.flag(Id::Synced, labels, self.synced);
        out.put(Id::Stale, labels, self.stale.as_secs_f64());
        if let Some(stored) = self.stored {
            out.count(Id::StoredVersion, labels, stored);
        }
        out.count(Id::Events, labels, self.events);
        out.count(Id::Watches, labels, self.watches);
        if let Some(protobuf) = self.protobuf {
            out.flag(Id::Protobuf, labels, protobuf);
        }
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

/// Returns how long the store has been outdated; zero for an absent resource and a stopped informer.
fn stale(health: &InformerHealth) -> Duration {
    match health.phase() {
        Phase::Absent | Phase::Stopped | Phase::Watching => Duration::ZERO,
        _ => health.stale_for().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::{EncodingInUse, JsonReason, ResourceVersion, clock};

    #[test]
    fn two_informers_sum_their_counters_and_show_the_worse_state() {
        let (well, behind) = (InformerHealth::new(), InformerHealth::new());
        well.set_phase(Phase::Watching);
        well.set_synced();
        well.objects.store(3, Relaxed);
        well.set_encoding(EncodingInUse::protobuf());
        behind.set_encoding(EncodingInUse::json(JsonReason::Faulty));
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
        assert_eq!(both.value(Id::StoredVersion, &["a", "pods"]), Some(60.0), "the lower of the two");
        assert!(both.value(Id::Stale, &["a", "pods"]).is_some_and(|seconds| (60.0..120.0).contains(&seconds)));
        assert_eq!(
            (alone.value(Id::Protobuf, &["a", "pods"]), both.value(Id::Protobuf, &["a", "pods"])),
            (Some(1.0), Some(0.0))
        );
        assert_eq!(both.value(Id::InformerMemory, &["a", "pods"]), None, "there is no memory limit");
    }

    #[test]
    fn an_absent_resource_is_not_stale() {
        let health = InformerHealth::new();
        health.restore(None, false, clock::wall_millis() - 60_000, 0);
        health.set_phase(Phase::Absent);
        assert_eq!(stale(&health), Duration::ZERO);
    }
}
