//! client-go's DeltaFIFO: deltas per key, keys in the order of their arrival, each key in line once.
//!
//! Three things differ, each for a reason:
//! - *Replace streams.* A list is not one call with all objects but a beginning, objects as they arrive, and an end,
//!   so that a page need not wait for the last one. What vanished is worked out behind the queue, against the store
//!   (as client-go's `AtomicFIFO` does since 1.36), from the set of keys that the list named.
//! - *It is bounded.* Up to half of its bound in bytes every delta is kept; above that, deltas of one key merge into
//!   the newest state; past the bound it says so, and the caller holds back.
//! - *Deletions are never dropped for being unknown*: the store knows, the queue does not.
//!
//! Invariants: a key is in `queue` iff it is in `items`; `queue` has as many list ends as `ends`.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use crate::types::{Change, Delta, DeltaKind, Deltas, ObjectKey, ResourceVersion};

/// What comes out of the queue.
#[derive(Debug)]
pub enum Popped {
    /// All deltas of one key, oldest first.
    Deltas(ObjectKey, Deltas),
    /// A list is complete: what the store has and `keep` does not name is gone.
    ReplaceEnd {
        /// Keys that the list named, or that came to be after it.
        keep: HashSet<ObjectKey>,
        /// The list's version.
        version: ResourceVersion,
    },
}

#[derive(Debug)]
enum Entry {
    Key(ObjectKey),
    /// The first of `ends`.
    ReplaceEnd,
}

#[derive(Debug)]
struct End {
    keep: HashSet<ObjectKey>,
    version: ResourceVersion,
}

#[derive(Debug, Default)]
struct Pending {
    deltas: Deltas,
    bytes: usize,
}

/// The queue between a reflector and its processor. Pure; single-threaded.
#[derive(Debug)]
pub struct DeltaFifo {
    items: HashMap<ObjectKey, Pending>,
    queue: VecDeque<Entry>,
    listing: Option<HashSet<ObjectKey>>,
    /// The lists whose ends are in `queue`, in their order.
    ends: VecDeque<End>,
    bytes: usize,
    limit: usize,
    coalesced: u64,
}

impl DeltaFifo {
    /// Default bound in bytes of object bodies.
    pub const DEFAULT_LIMIT: usize = 32 * 1024 * 1024;

    /// Bookkeeping per delta that counts against the bound, so that tiny objects are bounded too.
    const OVERHEAD: usize = 128;

    /// Room for keys that an empty queue keeps; the rest of what a backlog took is given back.
    const KEPT: usize = 256;

    /// Complete lists that may be in line.
    const MAX_LISTS: usize = 2;

    /// An empty queue with a bound in bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            items: HashMap::new(),
            queue: VecDeque::new(),
            listing: None,
            ends: VecDeque::new(),
            bytes: 0,
            limit,
            coalesced: 0,
        }
    }

    /// Takes one change in.
    pub fn push(&mut self, change: Change) {
        match change {
            Change::ReplaceBegin => self.listing = Some(HashSet::new()),
            Change::ReplaceKeep(key) => {
                self.listing.get_or_insert_default().insert(key);
            }
            Change::ReplaceEnd(version) => {
                let keep = self.listing.take().unwrap_or_default();
                self.queue.push_back(Entry::ReplaceEnd);
                self.ends.push_back(End { keep, version });
            }
            Change::Delta(delta) => self.push_delta(delta),
        }
    }

    fn push_delta(&mut self, delta: Delta) {
        let key = delta.object.key().clone();
        if delta.kind == DeltaKind::Sync && self.items.contains_key(&key) {
            return;
        }
        match delta.kind {
            DeltaKind::Added | DeltaKind::Updated | DeltaKind::Replaced => self.spare(&key),
            // A streaming list takes back what it named before.
            DeltaKind::Deleted => {
                if let Some(listing) = &mut self.listing {
                    listing.remove(&key);
                }
            }
            // It repeats what the store has, and so says nothing about what a list should have named.
            DeltaKind::Sync => {}
        }
        let bytes = delta.object.body_size() + Self::OVERHEAD;
        let crowded = self.bytes > self.limit / 2;
        if !self.items.contains_key(&key) {
            self.queue.push_back(Entry::Key(key.clone()));
        }
        let pending = self.items.entry(key).or_default();
        self.bytes += bytes;
        pending.bytes += bytes;
        pending.deltas.push(delta);
        let merged = compress(&mut pending.deltas, crowded);
        if merged > 0 {
            self.coalesced += merged;
            let now: usize = pending.deltas.iter().map(|delta| delta.object.body_size() + Self::OVERHEAD).sum();
            let now = now.min(pending.bytes);
            self.bytes -= pending.bytes - now;
            pending.bytes = now;
        }
    }

    /// Notes a live object in the list under way, and in those that ended before it arrived: its key may stand in
    /// line before their ends, which then must not sweep it.
    fn spare(&mut self, key: &ObjectKey) {
        for keep in self.listing.iter_mut().chain(self.ends.iter_mut().map(|end| &mut end.keep)) {
            if !keep.contains(key) {
                keep.insert(key.clone());
            }
        }
    }

    /// Takes up to `max` entries out, oldest key first. A list's end closes a batch.
    pub fn pop(&mut self, max: usize) -> Vec<Popped> {
        let mut batch = Vec::with_capacity(max.min(self.queue.len()));
        while batch.len() < max
            && let Some(entry) = self.queue.pop_front()
        {
            match entry {
                Entry::Key(key) => {
                    let Some(pending) = self.items.remove(&key) else { continue };
                    self.bytes -= pending.bytes;
                    batch.push(Popped::Deltas(key, pending.deltas));
                }
                Entry::ReplaceEnd => {
                    let Some(End { keep, version }) = self.ends.pop_front() else { continue };
                    batch.push(Popped::ReplaceEnd { keep, version });
                    break;
                }
            }
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(Self::KEPT);
            self.items.shrink_to(Self::KEPT);
        }
        batch
    }

    /// Whether the bound is passed: whoever pushes should wait. Lists in line have a bound of their own, since one
    /// that repeats what waits already adds no bytes of objects, but a set of keys.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes > self.limit || self.ends.len() > Self::MAX_LISTS
    }

    /// Whether nothing is in line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Entries in line.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that count against the bound.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Deltas that were merged away, since the start.
    #[must_use]
    pub fn coalesced(&self) -> u64 {
        self.coalesced
    }
}

/// Merges the last delta into the one before it where that loses nothing that must be told. Returns how many went.
///
/// Always: of two deletions of one object the first stays. When `crowded`: of two live states of one object the
/// newer stays, and an object that came and went within the queue goes altogether.
fn compress(deltas: &mut Deltas, crowded: bool) -> u64 {
    let [.., before, last] = deltas.as_slice() else { return 0 };
    let same_object = before.object.uid() == last.object.uid();
    let deletions = (before.kind == DeltaKind::Deleted, last.kind == DeltaKind::Deleted);
    match deletions {
        _ if !same_object => 0,
        (true, true) => {
            deltas.pop();
            1
        }
        // Of a watch that repeats itself: the store would not take it either.
        (false, false)
            if crowded
                && last.kind != DeltaKind::Replaced
                && before.object.resource_version().newer_than(last.object.resource_version()) =>
        {
            deltas.pop();
            1
        }
        (false, false) if crowded => {
            let at = deltas.len() - 2;
            // The newer state takes the older one's place; a list's word stays a list's word.
            if before.kind == DeltaKind::Replaced {
                deltas[at + 1].kind = DeltaKind::Replaced;
            }
            deltas.remove(at);
            1
        }
        (false, true) if crowded && deltas.len() > 2 && deltas[deltas.len() - 3].kind == DeltaKind::Deleted => {
            deltas.truncate(deltas.len() - 2);
            2
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::testing::change;

    #[test]
    fn a_backlog_gives_its_memory_back() {
        let mut fifo = DeltaFifo::new(usize::MAX);
        for i in 0..20_000 {
            fifo.push(change(&format!("+a{i}@1")));
        }
        assert_eq!(fifo.pop(usize::MAX).len(), 20_000);
        let room = fifo.items.capacity().max(fifo.queue.capacity());
        assert!(room <= 2 * DeltaFifo::KEPT, "{room}");
    }
}
