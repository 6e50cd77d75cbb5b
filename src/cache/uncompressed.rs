//! Objects that are not compressed yet, in the order they were stored.
//!
//! Recently changed objects are likely to change again soon, and compression in the event path would double the cost of
//! an event. New objects are therefore stored uncompressed, up to a byte limit. When it is exceeded, the oldest are
//! handed to another thread for compression. An object that is replaced before that is never compressed.
//!
//! Objects of a first list are not likely to change soon. While such a list is read, the limit is lower. The list then
//! needs little more memory than the store has at its end.

use std::collections::VecDeque;
use std::sync::Arc;

use informer_hub_types::{Dictionary, PackOutcome, PackedTotals, Packer, StoredObject};

/// Uncompressed objects of one resource, oldest first.
#[derive(Debug)]
pub struct Uncompressed {
    objects: VecDeque<(Arc<StoredObject>, usize)>,
    bytes: usize,
    /// Bytes of the objects that were handed out for compression and are still being compressed.
    aging: usize,
    limit: usize,
    /// Limit in bytes while a first list is read, if less than `limit`; `None` if no first list is read.
    list_limit: Option<usize>,
}

impl Uncompressed {
    /// Default limit for the bytes of uncompressed objects, per resource over all clusters.
    pub const DEFAULT_LIMIT: usize = 4 * 1024 * 1024;

    /// Limit for the bytes of uncompressed objects under memory pressure.
    pub const TIGHT_LIMIT: usize = 256 * 1024;

    /// Minimum of the byte limit on uncompressed objects while a first list is read. A lower limit would make
    /// compression run in smaller, costlier rounds.
    pub const LIST_LIMIT: usize = 256 * 1024;

    /// Limit on the bytes of uncompressed objects while a first list is read, if its objects serve as training samples
    /// for a compression dictionary.
    pub const SAMPLES_LIMIT: usize = 3 * 512 * 1024;

    /// Maximum number of training samples for a dictionary.
    pub const SAMPLES: usize = 800;

    /// Minimum number of training samples for a dictionary.
    pub const MIN_SAMPLES: usize = 32;

    /// Creates an empty queue with a limit on the bytes of uncompressed objects.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { objects: VecDeque::new(), bytes: 0, aging: 0, limit, list_limit: None }
    }

    /// Sets the limit in bytes, and the smaller limit while a first list is read; `None` if no first list is read. The
    /// new limits apply from the next check on.
    pub fn set_limits(&mut self, limit: usize, list_limit: Option<usize>) {
        (self.limit, self.list_limit) = (limit, list_limit);
    }

    /// Returns the limit on uncompressed bytes that holds at present.
    fn current_limit(&self) -> usize {
        self.list_limit.map_or(self.limit, |lower| lower.min(self.limit))
    }

    /// Adds a new object, whose size counts towards the limits. The size includes the JSON to which a protobuf body may
    /// be converted for readers, except during a first list. Few objects are read during a first list, and a greater
    /// size would cause smaller, costlier rounds of compression.
    pub fn add(&mut self, object: Arc<StoredObject>) {
        let bytes = if self.is_listing() { object.body_size() } else { object.weight() };
        self.bytes += bytes;
        self.objects.push_back((object, bytes));
    }

    /// Returns whether a first list is being read.
    pub(super) fn is_listing(&self) -> bool {
        self.list_limit.is_some()
    }

    /// Returns whether the uncompressed bytes exceed the limit, so that the oldest objects should be compressed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.bytes > self.current_limit()
    }

    /// Returns whether compression lags so far behind that large writes and first lists should wait. True if the
    /// uncompressed objects, including those being compressed, exceed the limit by more than half. During a first list,
    /// also true if they exceed it by more than [`Self::LIST_LIMIT`] bytes.
    #[must_use]
    pub fn is_pressing(&self) -> bool {
        let limit = self.current_limit();
        let lag = if self.is_listing() { (limit / 2).min(Self::LIST_LIMIT) } else { limit / 2 };
        self.bytes + self.aging > limit.saturating_add(lag)
    }

    /// Returns whether the uncompressed bytes exceed three times the normal limit. Small writes should then wait too.
    /// The smaller limit of a first list does not count here, so that changes of other clusters need not wait for that
    /// list.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes + self.aging > self.limit.saturating_mul(3)
    }

    /// Records that the objects handed out for compression have been compressed, or that their compression was
    /// abandoned.
    pub fn aged(&mut self) {
        self.aging = 0;
    }

    /// Removes the oldest objects from the queue until its bytes are at most half of the limit. During a first list,
    /// removes all objects.
    ///
    /// Returns the removed objects that the cache or a reader still uses, to be compressed. These count towards the
    /// limits until [`Self::aged`] is called.
    pub fn take_aged(&mut self) -> Vec<Arc<StoredObject>> {
        self.take_down_to(if self.is_listing() { 0 } else { self.limit / 2 })
    }

    /// Removes all objects, and returns those that the cache or a reader still uses, to be compressed. For a cache that
    /// has not changed for some time.
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

    /// Returns training samples for a dictionary, spread evenly.
    #[must_use]
    pub fn samples(&self) -> Vec<Arc<StoredObject>> {
        let step = self.objects.len().div_ceil(Self::SAMPLES).max(1);
        self.objects.iter().step_by(step).map(|(object, _)| Arc::clone(object)).collect()
    }

    /// Returns the uncompressed bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Uncompressed bytes that are packed (compressed) before the thread yields to others: about 40 µs of work.
const YIELD_BYTES: usize = 24 * 1024;

/// Packs (compresses) objects taken from the queue. Runs on a background thread and yields every 24 KiB. Without
/// yielding, it would add to event latency on few cores; yielding after each object would cost a tenth of the
/// throughput.
pub fn pack_all<'o>(
    aged: impl IntoIterator<Item = &'o Arc<StoredObject>>,
    dictionary: &Arc<Dictionary>,
    totals: &Arc<PackedTotals>,
) -> PackOutcome {
    pack_with(&mut Packer::new(dictionary, totals), aged)
}

/// Packs (compresses) objects with `packer`. Yields to other threads every 24 KiB, as [`pack_all`] does.
pub(super) fn pack_with<'o>(packer: &mut Packer, aged: impl IntoIterator<Item = &'o Arc<StoredObject>>) -> PackOutcome {
    let mut since = 0;
    for object in aged {
        if since >= YIELD_BYTES {
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
    use crate::testing::object;

    /// Returns ten objects of equal size, in the order of their names, and that size.
    fn ten_objects() -> (Vec<Arc<StoredObject>>, usize) {
        let objects: Vec<_> = (0..10).map(|i| Arc::new(object("ns", &format!("web-{i}"), "u", 1))).collect();
        let size = objects[0].body_size();
        assert!(objects.iter().all(|object| object.body_size() == size));
        (objects, size)
    }

    fn filled(limit: usize, objects: &[Arc<StoredObject>]) -> Uncompressed {
        let mut uncompressed = Uncompressed::new(limit);
        for object in objects {
            uncompressed.add(Arc::clone(object));
        }
        uncompressed
    }

    fn names(objects: &[Arc<StoredObject>]) -> Vec<&str> {
        objects.iter().map(|object| object.key().name()).collect()
    }

    #[test]
    fn take_aged_frees_half_of_the_limit_oldest_first() {
        let (objects, size) = ten_objects();
        let mut uncompressed = filled(8 * size, &objects);
        assert_eq!(names(&uncompressed.take_aged()), ["web-0", "web-1", "web-2", "web-3", "web-4", "web-5"]);
        assert_eq!(uncompressed.bytes(), 4 * size);
        assert!(uncompressed.take_aged().is_empty());
    }

    #[test]
    fn take_aged_skips_replaced_objects() {
        let (mut objects, size) = ten_objects();
        let mut uncompressed = filled(8 * size, &objects);
        let replaced = Arc::downgrade(&objects[1]);
        objects.remove(1);
        objects.remove(1);
        assert_eq!(names(&uncompressed.take_aged()), ["web-0", "web-3", "web-4", "web-5"]);
        assert!(replaced.upgrade().is_none());
        assert_eq!(uncompressed.bytes(), 4 * size);
    }

    #[test]
    fn take_all_empties_the_queue_and_frees_its_memory() {
        let (objects, size) = ten_objects();
        let mut uncompressed = filled(20 * size, &objects[..3]);
        assert_eq!(names(&uncompressed.take_all()), ["web-0", "web-1", "web-2"]);
        assert_eq!((uncompressed.bytes(), uncompressed.objects.capacity()), (0, 0));
    }

    /// Adds the objects one by one. Returns a result for each: whether the queue was then over its limit, pressing, and
    /// full.
    fn passed_with_each(uncompressed: &mut Uncompressed, objects: &[Arc<StoredObject>]) -> Vec<(bool, bool, bool)> {
        let mut add = |object: &Arc<StoredObject>| {
            uncompressed.add(Arc::clone(object));
            (uncompressed.is_over(), uncompressed.is_pressing(), uncompressed.is_full())
        };
        objects.iter().map(&mut add).collect()
    }

    #[test]
    fn thresholds_are_exceeded_only_above_the_limit() {
        let (objects, size) = ten_objects();
        let mut uncompressed = Uncompressed::new(2 * size);
        let passed = passed_with_each(&mut uncompressed, &objects);
        let expected = (1..=10).map(|count| (count > 2, count > 3, count > 6));
        assert!(passed.into_iter().eq(expected));
    }

    #[test]
    fn first_list_lowers_the_limit_but_not_the_bound_of_small_writes() {
        let (objects, size) = ten_objects();
        let mut uncompressed = Uncompressed::new(3 * size);
        uncompressed.set_limits(3 * size, Some(2 * size));
        let passed = passed_with_each(&mut uncompressed, &objects);
        let expected = (1..=10).map(|count| (count > 2, count > 3, count > 9));
        assert!(passed.into_iter().eq(expected));
        assert_eq!(uncompressed.take_aged().len(), 10);
        uncompressed.aged();
        uncompressed.set_limits(size, Some(2 * size));
        for object in &objects[..2] {
            uncompressed.add(Arc::clone(object));
        }
        assert!(uncompressed.is_over(), "the limit of a list is never the higher one");
    }

    #[test]
    fn first_list_of_a_large_store_exceeds_its_limit_by_little() {
        let object = Arc::new(object("ns", "web", "u", 1));
        let mut uncompressed = Uncompressed::new(usize::MAX);
        uncompressed.set_limits(usize::MAX, Some(4 * Uncompressed::LIST_LIMIT));
        while !uncompressed.is_pressing() {
            uncompressed.add(Arc::clone(&object));
        }
        let excess = uncompressed.bytes() - 5 * Uncompressed::LIST_LIMIT;
        assert!(excess > 0 && excess <= object.body_size(), "{excess}");
        uncompressed.set_limits(usize::MAX, Some(usize::MAX));
        assert!(!uncompressed.is_over() && !uncompressed.is_pressing());
    }

    #[test]
    fn objects_being_compressed_count_until_done() {
        let (objects, size) = ten_objects();
        let mut uncompressed = filled(4 * size, &objects[..7]);
        assert_eq!(uncompressed.take_aged().len(), 5);
        assert!(!uncompressed.is_over() && uncompressed.is_pressing());
        uncompressed.aged();
        assert!(!uncompressed.is_pressing());
    }

    #[test]
    fn samples_are_spread_evenly_and_bounded() {
        let mut uncompressed = Uncompressed::new(usize::MAX);
        assert!(uncompressed.samples().is_empty());
        for i in 0..3 * Uncompressed::SAMPLES {
            uncompressed.add(Arc::new(object("ns", &format!("web-{i}"), "u", 1)));
        }
        let samples = uncompressed.samples();
        assert_eq!(samples.len(), Uncompressed::SAMPLES);
        let last = format!("web-{}", 3 * Uncompressed::SAMPLES - 3);
        assert_eq!((samples[0].key().name(), samples[Uncompressed::SAMPLES - 1].key().name()), ("web-0", &*last));
    }
}
