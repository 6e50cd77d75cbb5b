//! Which objects lie plain and which are compressed.
//!
//! What changed lately is likely to change again soon, and compressing it in the event's way would double the
//! event's cost. So new objects lie plain in a young generation that is bounded in bytes; what has aged is handed
//! out to be compressed elsewhere. An object that was replaced while young is never compressed at all.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::types::{Dictionary, StoredObject};

/// Objects of one resource that lie plain, oldest first.
#[derive(Debug)]
pub struct Young {
    objects: VecDeque<(Arc<StoredObject>, usize)>,
    bytes: usize,
    limit: usize,
}

impl Young {
    /// Default bound in bytes of plain bodies, per resource over all clusters.
    pub const DEFAULT_LIMIT: usize = 4 * 1024 * 1024;

    /// Objects that a dictionary is trained on, at most.
    pub const SAMPLES: usize = 400;

    /// Fewer make no useful dictionary.
    pub const MIN_SAMPLES: usize = 32;

    /// An empty generation with a bound in bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { objects: VecDeque::new(), bytes: 0, limit }
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

    /// Whether twice the bound is passed: compression lags, and whoever adds should wait for it.
    #[must_use]
    pub fn is_pressing(&self) -> bool {
        self.bytes > self.limit * 2
    }

    /// Takes out the oldest objects until half of the bound is free, without those that nobody else holds any more.
    pub fn take_aged(&mut self) -> Vec<Arc<StoredObject>> {
        let mut aged = Vec::new();
        while self.bytes > self.limit / 2
            && let Some((object, bytes)) = self.objects.pop_front()
        {
            self.bytes -= bytes;
            if Arc::strong_count(&object) > 1 {
                aged.push(object);
            }
        }
        aged
    }

    /// Bodies to train a dictionary on, spread over the generation. Few where there are few.
    #[must_use]
    pub fn samples(&self) -> Vec<Arc<[u8]>> {
        let step = self.objects.len().div_ceil(Self::SAMPLES).max(1);
        self.objects.iter().step_by(step).filter_map(|(object, _)| object.plain()).collect()
    }

    /// Bytes that lie plain.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Compresses what has aged. Meant for a thread that nobody waits for. Returns the bytes freed.
pub fn pack_all(aged: &[Arc<StoredObject>], dictionary: &Arc<Dictionary>) -> usize {
    aged.iter().map(|object| object.pack(dictionary)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::testing::object;

    #[test]
    fn the_oldest_age_first_and_the_replaced_are_left_out() {
        let mut young = Young::new(1000);
        let objects: Vec<_> = (0..30).map(|i| Arc::new(object("ns", &format!("web-{i}"), "u", 1))).collect();
        let size = objects[0].body_size();
        for object in &objects {
            young.add(Arc::clone(object));
        }
        assert!(young.is_over() == (30 * size > 1000));
        let replaced = Arc::downgrade(&objects[0]);
        let kept = objects[1].key().clone();
        drop(objects.into_iter().next());
        let aged = young.take_aged();
        assert!(aged.is_empty(), "nobody else holds any of them");
        assert!(young.bytes() <= 500);
        assert!(replaced.upgrade().is_none());
        assert_eq!(kept.name(), "web-1");
    }
}
