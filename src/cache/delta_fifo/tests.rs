//! Assertion of the queue's invariants, and tests of its memory.

use super::*;
use crate::testing::change;

impl DeltaFifo {
    pub(crate) fn is_queued(&self, key: &ObjectKey) -> bool {
        self.keys.contains_key(key)
    }

    /// Asserts the invariants of the module's documentation.
    pub(crate) fn check(&self) {
        let count = |is: fn(&EntryKind) -> bool| self.queue.iter().filter(|entry| is(&entry.kind)).count();
        assert_eq!(count(|kind| matches!(kind, EntryKind::Superseded)), self.superseded);
        assert_eq!(count(|kind| matches!(kind, EntryKind::ReplaceEnd)), self.ends.len());
        let first = self.queue.front().map(|first| &first.kind);
        assert!(!matches!(first, Some(EntryKind::Superseded)), "{self:?}");
        assert!(self.queue.iter().is_sorted_by_key(|entry| entry.arrival), "{self:?}");
        let (mut arrivals, mut bytes) = (HashMap::<_, Vec<_>>::new(), 0);
        for entry in &self.queue {
            if let EntryKind::Delta(delta, cost) = &entry.kind {
                arrivals.entry(delta.object.key()).or_default().push(entry.arrival);
                bytes += cost;
            }
        }
        assert_eq!((bytes, arrivals.len()), (self.bytes, self.keys.len()), "{self:?}");
        for (key, queued) in &self.keys {
            assert_eq!((queued.count, Some(&queued.last)), (arrivals[key].len(), arrivals[key].last()), "{self:?}");
        }
    }
}

#[test]
fn fifo_releases_memory_after_a_backlog() {
    let mut fifo = DeltaFifo::new(usize::MAX);
    for i in 0..20_000 {
        fifo.push(change(&format!("+a{i}@1")));
    }
    assert_eq!(fifo.pop(usize::MAX).len(), 20_000);
    let room = fifo.keys.capacity().max(fifo.queue.capacity());
    assert!(room <= 2 * DeltaFifo::RETAINED_CAPACITY, "{room}");
}

#[test]
fn fifo_drops_places_of_superseded_states() {
    let mut fifo = DeltaFifo::new(0);
    for i in 0..20_000 {
        fifo.push(change(&format!("+a{}@{i}", i % 3)));
        assert!(fifo.queue.len() <= 2 * DeltaFifo::RETAINED_CAPACITY, "{}", fifo.queue.len());
    }
    fifo.check();
    assert_eq!(fifo.len(), 3);
}
