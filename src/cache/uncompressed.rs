//! Which objects lie plain and which are compressed.
//!
//! What changed lately is likely to change again soon, and compressing it in the event's way would double the
//! event's cost. So new objects lie plain in a young generation that is bounded in bytes; what has aged is handed
//! out to be compressed elsewhere. An object that was replaced while young is never compressed at all.

use std::collections::VecDeque;
use std::sync::Arc;

use informer_hub_types::{Dictionary, PackOutcome, PackedTotals, Packer, StoredObject};

/// Objects of one resource that lie plain, oldest first.
#[derive(Debug)]
pub struct Young {
    objects: VecDeque<(Arc<StoredObject>, usize)>,
    bytes: usize,
    /// Bytes that were handed out, and lie plain until they have been compressed.
    aging: usize,
    limit: usize,
}

impl Young {
    /// Default bound in bytes of plain bodies, per resource over all clusters.
    pub const DEFAULT_LIMIT: usize = 4 * 1024 * 1024;

    /// The bound where memory is short.
    pub const TIGHT_LIMIT: usize = 256 * 1024;

    /// Objects that a dictionary is trained on, at most.
    pub const SAMPLES: usize = 800;

    /// Fewer make no useful dictionary.
    pub const MIN_SAMPLES: usize = 32;

    /// An empty generation with a bound in bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { objects: VecDeque::new(), bytes: 0, aging: 0, limit }
    }

    /// Another bound from now on; the next look at it acts on it.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes a new object in.
    pub fn add(&mut self, object: Arc<StoredObject>) {
        let bytes = object.body_size();
        self.bytes += bytes;
        self.objects.push_back((object, bytes));
    }

    /// Whether the bound is passed, so that [`Self::take_aged`] has something to give.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.bytes > self.limit
    }

    /// Whether the bound is passed by a half, with what is being compressed: compression lags, and whoever adds should
    /// wait for it.
    #[must_use]
    pub fn is_pressing(&self) -> bool {
        self.bytes + self.aging > self.limit + self.limit / 2
    }

    /// Whether the bound is passed three times: who adds little should wait as well.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes + self.aging > self.limit.saturating_mul(3)
    }

    /// What was handed out has been compressed, or never will be.
    pub fn aged(&mut self) {
        self.aging = 0;
    }

    /// Takes out the oldest objects until half of the bound is free, without those that nobody else holds any more.
    /// They count until [`Self::aged`].
    pub fn take_aged(&mut self) -> Vec<Arc<StoredObject>> {
        self.take_down_to(self.limit / 2)
    }

    /// Takes out every object, for when nothing has changed for a while, without those that nobody else holds any more.
    pub fn take_all(&mut self) -> Vec<Arc<StoredObject>> {
        let all = self.take_down_to(0);
        self.objects = VecDeque::new();
        all
    }

    fn take_down_to(&mut self, bytes_left: usize) -> Vec<Arc<StoredObject>> {
        let mut aged = Vec::new();
        while self.bytes > bytes_left
            && let Some((object, bytes)) = self.objects.pop_front()
        {
            self.bytes -= bytes;
            if Arc::strong_count(&object) > 1 {
                self.aging += bytes;
                aged.push(object);
            }
        }
        aged
    }

    /// Objects to train a dictionary on, spread over the generation. Few where there are few.
    #[must_use]
    pub fn samples(&self) -> Vec<Arc<StoredObject>> {
        let step = self.objects.len().div_ceil(Self::SAMPLES).max(1);
        self.objects.iter().step_by(step).map(|(object, _)| Arc::clone(object)).collect()
    }

    /// Bytes that lie plain.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Bytes that are packed before others have their turn: some 40 µs.
const TURN: usize = 24 * 1024;

/// Packs what has aged. Meant for a thread that nobody waits for, and that lets others go first every 24 KiB: where cores
/// are few, a round in one go would show in the latency of events, and a turn after each object costs a tenth of the work.
pub fn pack_all<'o>(
    aged: impl IntoIterator<Item = &'o Arc<StoredObject>>,
    dictionary: &Arc<Dictionary>,
    totals: &Arc<PackedTotals>,
) -> PackOutcome {
    let mut packer = Packer::new(dictionary, totals);
    let mut since = 0;
    for object in aged {
        if since >= TURN {
            std::thread::yield_now();
            since = 0;
        }
        since += object.plain_size();
        packer.add(object);
    }
    packer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::testing::object;

    /// Ten objects of equal size, names in their order, and that size.
    fn ten() -> (Vec<Arc<StoredObject>>, usize) {
        let objects: Vec<_> = (0..10).map(|i| Arc::new(object("ns", &format!("web-{i}"), "u", 1))).collect();
        let size = objects[0].body_size();
        assert!(objects.iter().all(|object| object.body_size() == size));
        (objects, size)
    }

    fn filled(limit: usize, objects: &[Arc<StoredObject>]) -> Young {
        let mut young = Young::new(limit);
        for object in objects {
            young.add(Arc::clone(object));
        }
        young
    }

    fn names(objects: &[Arc<StoredObject>]) -> Vec<&str> {
        objects.iter().map(|object| object.key().name()).collect()
    }

    #[test]
    fn the_oldest_age_first_until_half_of_the_bound_is_free() {
        let (objects, size) = ten();
        let mut young = filled(8 * size, &objects);
        assert_eq!(names(&young.take_aged()), ["web-0", "web-1", "web-2", "web-3", "web-4", "web-5"]);
        assert_eq!(young.bytes(), 4 * size);
        assert!(young.take_aged().is_empty());
    }

    #[test]
    fn what_was_replaced_while_young_is_freed_and_never_handed_out() {
        let (mut objects, size) = ten();
        let mut young = filled(8 * size, &objects);
        let replaced = Arc::downgrade(&objects[1]);
        objects.remove(1);
        objects.remove(1);
        assert_eq!(names(&young.take_aged()), ["web-0", "web-3", "web-4", "web-5"]);
        assert!(replaced.upgrade().is_none());
        assert_eq!(young.bytes(), 4 * size);
    }

    #[test]
    fn at_rest_all_of_them_go_and_the_room_they_took() {
        let (objects, size) = ten();
        let mut young = filled(20 * size, &objects[..3]);
        assert_eq!(names(&young.take_all()), ["web-0", "web-1", "web-2"]);
        assert_eq!((young.bytes(), young.objects.capacity()), (0, 0));
    }

    #[test]
    fn the_bound_and_the_bound_and_a_half_and_three_times_the_bound_are_passed_only_above_them() {
        let (objects, size) = ten();
        let mut young = Young::new(2 * size);
        let passed: Vec<_> = objects
            .iter()
            .map(|object| {
                young.add(Arc::clone(object));
                (young.is_over(), young.is_pressing(), young.is_full())
            })
            .collect();
        let expected = (1..=10).map(|count| (count > 2, count > 3, count > 6));
        assert!(passed.into_iter().eq(expected));
    }

    #[test]
    fn what_is_being_compressed_presses_until_it_is_done() {
        let (objects, size) = ten();
        let mut young = filled(4 * size, &objects[..7]);
        assert_eq!(young.take_aged().len(), 5);
        assert!(!young.is_over() && young.is_pressing());
        young.aged();
        assert!(!young.is_pressing());
    }

    #[test]
    fn samples_are_spread_over_the_generation_and_bounded() {
        let mut young = Young::new(usize::MAX);
        assert!(young.samples().is_empty());
        for i in 0..3 * Young::SAMPLES {
            young.add(Arc::new(object("ns", &format!("web-{i}"), "u", 1)));
        }
        let samples = young.samples();
        assert_eq!(samples.len(), Young::SAMPLES);
        let last = format!("web-{}", 3 * Young::SAMPLES - 3);
        assert_eq!((samples[0].key().name(), samples[Young::SAMPLES - 1].key().name()), ("web-0", &*last));
    }
}
