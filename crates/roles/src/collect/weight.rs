//! Weight of a shard: its cost for a collector, from its objects and the rate of its events. Pure: no I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use informer_hub_fleet::Partition;
use informer_hub_types::clock::Instant;

/// Weight of a shard without objects, so that empty shards are spread too.
const BASE: u64 = 100;
/// Number of objects that cost as much as one event a second.
const OBJECTS_PER_EVENT_RATE: f64 = 50.0;
/// Time over which the rate of events is averaged.
const HORIZON: Duration = Duration::from_secs(60);
/// A new weight is published only if it differs from the published one by at least a tenth (1 / `STEP`).
const STEP: u64 = 10;

/// Number of objects, and rate of events, of a session's shard.
#[derive(Debug)]
pub(super) struct Load {
    objects: BTreeMap<Partition, u64>,
    /// Events since the last measurement.
    events: u64,
    /// Average number of events per second.
    rate: f64,
    began: Instant,
    measured: Instant,
}

impl Load {
    pub(super) fn new(now: Instant) -> Self {
        Self { objects: BTreeMap::new(), events: 0, rate: 0.0, began: now, measured: now }
    }

    /// Resets the object count of a partition, because a list begins.
    pub(super) fn begin(&mut self, partition: &Partition) {
        self.objects.insert(partition.clone(), 0);
    }

    pub(super) fn note_listed(&mut self, partition: &Partition, objects: usize) {
        *self.objects.entry(partition.clone()).or_default() += objects as u64;
    }

    pub(super) fn note_events(&mut self, partition: &Partition, events: usize, added: usize, deleted: usize) {
        self.events += events as u64;
        let objects = self.objects.entry(partition.clone()).or_default();
        *objects = objects.saturating_add(added as u64).saturating_sub(deleted as u64);
    }

    pub(super) fn forget(&mut self, partition: &Partition) {
        self.objects.remove(partition);
    }

    /// Returns the weight (cost of the shard) to publish. Returns `published` while the new weight differs by less than
    /// a tenth.
    ///
    /// In the first minute, the rate of events is not known yet. The weight then depends on the objects only, and never
    /// decreases.
    pub(super) fn measure(&mut self, published: u64, now: Instant) -> u64 {
        let passed = now.duration_since(self.measured).as_secs_f64();
        if passed > 0.0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
            let rate = std::mem::take(&mut self.events) as f64 / passed;
            let share = 1.0 - (-passed / HORIZON.as_secs_f64()).exp();
            self.rate += (rate - self.rate) * share;
            self.measured = now;
        }
        let objects = self.objects.values().sum::<u64>();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is positive, and a cast saturates"
        )]
        let events = (self.rate / self.known_share(now) * OBJECTS_PER_EVENT_RATE) as u64;
        let base = BASE.saturating_add(objects);
        if now.duration_since(self.began) < HORIZON {
            return base.max(published);
        }
        let weight = base.saturating_add(events);
        if weight.abs_diff(published) < published / STEP { published } else { weight }
    }

    /// Returns the ratio of `rate` to the true average rate of events, which `rate` approaches from zero. The ratio
    /// counts as 0.63 during the first minute, then approaches one.
    fn known_share(&self, now: Instant) -> f64 {
        1.0 - (-now.duration_since(self.began).max(HORIZON).as_secs_f64() / HORIZON.as_secs_f64()).exp()
    }
}

#[cfg(test)]
mod tests {
    use informer_hub_types::{ClusterName, Gvr, clock};

    use super::*;

    fn partition(plural: &str) -> Partition {
        let cluster = ClusterName::new("c").unwrap();
        Partition { cluster, resource: Gvr::new("", "v1", plural), selection: 0 }
    }

    #[test]
    fn objects_and_event_rate_are_weighed_and_small_changes_are_not_published() {
        let began = clock::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let (mut load, pods, nodes) = (Load::new(began), partition("pods"), partition("nodes"));
        assert_eq!(load.measure(0, at(1)), BASE);
        load.note_listed(&pods, 1000);
        load.note_events(&nodes, 0, 10, 0);
        assert_eq!(load.measure(0, at(2)), BASE + 1010);
        assert_eq!(load.measure(5000, at(4)), 5000, "the session has just begun");
        assert_eq!(load.measure(1111, at(60)), 1111, "nearly equal");
        load.begin(&pods);
        load.note_listed(&pods, 100);
        load.forget(&nodes);
        assert_eq!(load.measure(5000, at(100)), BASE + 100);
        // 20 events a second, for long.
        let mut published = 0;
        for second in 101..500 {
            load.note_events(&pods, 20, 0, 0);
            published = load.measure(published, at(second));
        }
        assert!((1100..=1200).contains(&published), "{published}");
    }
}
