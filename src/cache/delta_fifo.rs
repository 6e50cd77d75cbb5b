//! Queue of deltas: merges the deltas of one key, and queues each key once, in order of arrival (client-go's DeltaFIFO).
//!
//! Differences from client-go, and their reasons:
//! - *Replace streams.* A list is a start, objects as they arrive, and an end, so that no page of a list has to wait
//!   for the last page. The store compares the list with its contents by the set of listed keys, as client-go's
//!   `AtomicFIFO` does since 1.36. A list after the first one is published in one step.
//! - *One place per key.* client-go's `RealFIFO` keeps the watch order between objects too. Here all deltas of a key
//!   are popped together, because merging them bounds the queue.
//! - *It is bounded.* Two deletions of one object always merge, and a resync of a queued key is dropped. Other deltas
//!   are kept up to half of the byte limit; above that, those of one key merge into the newest state. Above the limit,
//!   [`DeltaFifo::is_full`] makes the caller wait. Repetitions are not detected here: the store drops old versions, and
//!   a listener's queue drops repeated batches.
//! - *Deletions of unknown keys are kept*: only the store knows which keys exist.
//! - *It has a watermark* ([`DeltaFifo::watermark`]): the version up to which everything has been popped. Keys are
//!   queued by their first change, so a later change of one may be popped before an earlier one of another. The
//!   watermark is therefore the version that was complete when the first queued entry arrived.
//! - *Requeued deltas are first* ([`DeltaFifo::requeue`]), followed by later deltas of their key, as if they had never
//!   been popped. client-go's `AddIfNotPresent` dropped them if the key was queued again.
//! - *Rewinds* ([`Change::Rewind`]): while the end of such a list is queued, the queue is full. A later change could else
//!   be popped before that end, and would look older than the states that the list replaces.
//!
//! Invariants: a key is in `queue` iff it is in `items`, and at most once. `queue` has as many list ends as `ends`.
//! `bytes` is the sum of the bytes in `items`.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use informer_hub_types::{Change, Delta, DeltaKind, Deltas, ObjectKey, ResourceVersion};

/// An entry popped from the queue.
#[derive(Debug)]
pub enum Popped {
    /// All deltas of one key, oldest first.
    Deltas(ObjectKey, Deltas),
    /// The end of a list: objects in the store that are not in `keep` are gone.
    ReplaceEnd {
        /// Keys in the list, or added after it.
        keep: HashSet<ObjectKey>,
        /// Resource version of the list.
        version: ResourceVersion,
        /// Whether the resource versions of earlier changes do not compare with those of the list ([`Change::Rewind`]).
        rewound: bool,
    },
}

#[derive(Debug)]
struct Entry {
    kind: EntryKind,
    /// Resource version up to which all changes had arrived when this entry was queued. If deltas were merged into it,
    /// the version is that of the time when the first of them was queued.
    since: Option<ResourceVersion>,
}

#[derive(Debug)]
enum EntryKind {
    Key(ObjectKey),
    /// End of a list. The first such entry in the queue belongs to the first element of `ends`.
    ReplaceEnd,
}

#[derive(Debug)]
struct End {
    keep: HashSet<ObjectKey>,
    version: ResourceVersion,
    rewound: bool,
}

#[derive(Debug, Default)]
struct Pending {
    deltas: Deltas,
    bytes: usize,
}

impl Pending {
    /// Appends a delta and merges it if allowed; `crowded` allows more merges. Returns the number of deltas that
    /// merging removed.
    fn append(&mut self, delta: Delta, crowded: bool) -> u64 {
        self.bytes += cost(&delta);
        self.deltas.push(delta);
        let merged = compress(&mut self.deltas, crowded);
        if merged > 0 {
            // Bodies that were compressed after they were queued count less now.
            let now: usize = self.deltas.iter().map(cost).sum();
            self.bytes = now.min(self.bytes);
        }
        merged
    }
}

/// Kind of the first change that the queue received. If it belongs to a list, the queue is synced once the end of a
/// list was popped; if it is a watch event, immediately. Corresponds to client-go's `populated`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Start {
    #[default]
    Nothing,
    /// A watch event: there is no first list to wait for.
    Watch,
    List,
}

/// Queue between a reflector and its processor. Pure; single-threaded.
#[derive(Debug)]
pub struct DeltaFifo {
    items: HashMap<ObjectKey, Pending>,
    queue: VecDeque<Entry>,
    listing: Option<HashSet<ObjectKey>>,
    /// Whether the versions of the running list went back.
    rewound: bool,
    /// Lists whose ends are in `queue`, in order.
    ends: VecDeque<End>,
    start: Start,
    /// Resource version up to which all changes have arrived in the queue; `None` if unknown.
    received: Option<ResourceVersion>,
    /// Watermark (version up to which all is popped) before the last [`Self::pop`]; requeueing an entry restores it.
    settled: Option<ResourceVersion>,
    /// Number of list ends that were popped and not requeued.
    ended: u64,
    closed: bool,
    bytes: usize,
    limit: usize,
    coalesced: u64,
    refused: u64,
}

impl DeltaFifo {
    /// Default limit in bytes of object bodies.
    pub const DEFAULT_LIMIT: usize = 32 * 1024 * 1024;

    /// Bytes per delta that count against the limit besides the body, so that tiny objects are limited too.
    const OVERHEAD: usize = 128;

    /// Divisor of the byte limit while a list is received. A short queue is enough then, because an apiserver waits for
    /// slow readers of lists, but not of watches. A longer queue would only cost memory.
    pub(super) const LIST_SHARE: usize = 128;

    /// Capacity in keys that an empty queue retains.
    const RETAINED_CAPACITY: usize = 256;

    /// Maximum number of complete lists in the queue.
    const MAX_LISTS: usize = 2;

    /// Creates an empty queue with a limit in bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            items: HashMap::new(),
            queue: VecDeque::new(),
            listing: None,
            rewound: false,
            ends: VecDeque::new(),
            start: Start::Nothing,
            received: None,
            settled: None,
            ended: 0,
            closed: false,
            bytes: 0,
            limit,
            coalesced: 0,
            refused: 0,
        }
    }

    /// Queues a change. Changes after [`Self::close`] are refused.
    pub fn push(&mut self, change: Change) {
        if self.closed {
            self.refused += 1;
            return;
        }
        if self.start == Start::Nothing {
            self.start = match &change {
                Change::Delta(delta) if delta.kind == DeltaKind::Sync => Start::Nothing,
                Change::Progress(_) => Start::Nothing,
                Change::Delta(_) => Start::Watch,
                Change::ReplaceBegin | Change::ReplaceKeep(_) | Change::Rewind | Change::ReplaceEnd(_) => Start::List,
            };
        }
        match change {
            Change::ReplaceBegin => {
                (self.listing, self.rewound) = (Some(HashSet::new()), false);
                // Listed objects have states from different times, so the version up to which all changes have arrived
                // is unknown until the list ends.
                self.received = None;
            }
            Change::ReplaceKeep(key) => {
                self.listing.get_or_insert_default().insert(key);
            }
            Change::Rewind => self.rewound = true,
            Change::ReplaceEnd(version) => {
                let keep = self.listing.take().unwrap_or_default();
                self.enqueue(EntryKind::ReplaceEnd);
                self.receive(version.clone());
                self.ends.push_back(End { keep, version, rewound: std::mem::take(&mut self.rewound) });
            }
            Change::Progress(version) => self.receive(version),
            Change::Delta(delta) => self.push_delta(delta),
        }
    }

    fn receive(&mut self, version: ResourceVersion) {
        self.received = Some(version).filter(|version| !version.is_any());
    }

    fn enqueue(&mut self, kind: EntryKind) {
        self.queue.push_back(Entry { kind, since: self.received.clone() });
    }

    /// Returns the version up to which every queued change has been popped. A consumer that has applied the popped
    /// changes may resume a watch from this version. `None` if unknown, as during a list. May decrease after another
    /// list, for example of a restored etcd.
    #[must_use]
    pub fn watermark(&self) -> Option<&ResourceVersion> {
        self.queue.front().map_or(&self.received, |first| &first.since).as_ref()
    }

    fn push_delta(&mut self, delta: Delta) {
        let key = delta.object.key().clone();
        if delta.kind == DeltaKind::Sync && self.items.contains_key(&key) {
            return;
        }
        match delta.kind {
            DeltaKind::Added | DeltaKind::Updated | DeltaKind::Replaced => self.keep_in_lists(&key),
            // A streaming list may delete objects that it sent before.
            DeltaKind::Deleted => {
                if let Some(listing) = &mut self.listing {
                    listing.remove(&key);
                }
            }
            // Repeats the store's state, so it does not count as listed.
            DeltaKind::Sync => {}
        }
        let crowded = self.is_crowded_at(self.bytes);
        if !self.items.contains_key(&key) {
            self.enqueue(EntryKind::Key(key.clone()));
        }
        let pending = self.items.entry(key).or_default();
        self.bytes -= pending.bytes;
        self.coalesced += pending.append(delta, crowded);
        self.bytes += pending.bytes;
    }

    /// Adds the key of a live object to the kept keys of the running list, and of complete lists whose ends are still
    /// queued. The key may be popped before these ends, which must not delete the object.
    fn keep_in_lists(&mut self, key: &ObjectKey) {
        for keep in self.listing.iter_mut().chain(self.ends.iter_mut().map(|end| &mut end.keep)) {
            if !keep.contains(key) {
                keep.insert(key.clone());
            }
        }
    }

    /// Pops up to `max` entries, oldest key first. Stops after a list end.
    pub fn pop(&mut self, max: usize) -> Vec<Popped> {
        self.pop_within(max, usize::MAX)
    }

    /// As [`Self::pop`], but also stops once the popped entries amount to `bytes` bytes, counted as by [`Self::bytes`].
    pub fn pop_within(&mut self, max: usize, bytes: usize) -> Vec<Popped> {
        self.settled = self.watermark().cloned();
        let mut batch = Vec::with_capacity(max.min(self.queue.len()));
        let mut room = bytes;
        while batch.len() < max
            && room > 0
            && let Some(entry) = self.queue.pop_front()
        {
            match entry.kind {
                EntryKind::Key(key) => {
                    let Some(pending) = self.items.remove(&key) else { continue };
                    self.bytes -= pending.bytes;
                    room = room.saturating_sub(pending.bytes);
                    batch.push(Popped::Deltas(key, pending.deltas));
                }
                EntryKind::ReplaceEnd => {
                    let Some(End { keep, version, rewound }) = self.ends.pop_front() else { continue };
                    self.ended += 1;
                    batch.push(Popped::ReplaceEnd { keep, version, rewound });
                    break;
                }
            }
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(Self::RETAINED_CAPACITY);
            self.items.shrink_to(Self::RETAINED_CAPACITY);
        }
        batch
    }

    /// Puts a popped entry back at the front, followed by later deltas of its key. Works after [`Self::close`] too.
    /// Costs a scan of the queue if the key is queued again.
    ///
    /// # Ordering
    /// Call it before anything popped later has been processed; of several entries, requeue the last one first. The
    /// watermark returns to its value before the last [`Self::pop`].
    pub fn requeue(&mut self, popped: Popped) {
        match popped {
            Popped::Deltas(key, deltas) => self.requeue_deltas(key, deltas),
            Popped::ReplaceEnd { keep, version, rewound } => {
                self.ended = self.ended.saturating_sub(1);
                self.queue.push_front(Entry { kind: EntryKind::ReplaceEnd, since: self.settled.clone() });
                self.ends.push_front(End { keep, version, rewound });
            }
        }
    }

    fn requeue_deltas(&mut self, key: ObjectKey, deltas: Deltas) {
        if deltas.is_empty() {
            return;
        }
        let later = self.remove_queued(&key);
        let bytes = deltas.iter().map(cost).sum();
        let mut pending = Pending { deltas, bytes };
        // A resync of a queued key carries no information.
        for delta in later.deltas.into_iter().filter(|delta| delta.kind != DeltaKind::Sync) {
            let crowded = self.is_crowded_at(self.bytes + pending.bytes);
            self.coalesced += pending.append(delta, crowded);
        }
        self.bytes += pending.bytes;
        self.items.insert(key.clone(), pending);
        self.queue.push_front(Entry { kind: EntryKind::Key(key), since: self.settled.clone() });
    }

    /// Removes a key from the queue, so that it can move to the front. If it has a live state, it is added to the kept
    /// keys of each list whose end was queued before it, because it is now popped before that end.
    fn remove_queued(&mut self, key: &ObjectKey) -> Pending {
        let Some(pending) = self.items.remove(key) else { return Pending::default() };
        self.bytes -= pending.bytes;
        let mut overtaken = 0;
        let place = self.queue.iter().position(|entry| match &entry.kind {
            EntryKind::Key(other) => other == key,
            EntryKind::ReplaceEnd => {
                overtaken += 1;
                false
            }
        });
        if let Some(place) = place {
            self.queue.remove(place);
        }
        if pending.deltas.iter().any(|delta| is_live(delta.kind)) {
            for end in self.ends.iter_mut().take(overtaken) {
                end.keep.insert(key.clone());
            }
        }
        pending
    }

    /// Refuses further changes. Queued entries can still be popped and requeued.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Returns whether the queue is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether the queue is closed and empty: client-go's `ErrFIFOClosed`.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.closed && self.is_empty()
    }

    /// Returns whether the end of the first list has been popped. An empty list therefore counts too. As in client-go,
    /// a queue that started with a watch event is synced immediately. If the end of the only list is requeued, the
    /// queue is no longer synced.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        match self.start {
            Start::Nothing => false,
            Start::Watch => true,
            Start::List => self.ended > 0,
        }
    }

    /// Returns whether a queue with this many bytes is crowded, which is above half of the limit: live states of one
    /// key then merge.
    fn is_crowded_at(&self, bytes: usize) -> bool {
        bytes > self.limit / 2
    }

    /// Returns whether the caller should wait before it pushes more, because the byte limit (lower during a list) or
    /// the maximum number of complete lists is exceeded. Complete lists have a separate limit, because their sets of
    /// keys are not counted in bytes. After a list with [`Change::Rewind`], the caller must wait until the list's end is
    /// popped.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let limit = if self.listing.is_some() { self.limit / Self::LIST_SHARE } else { self.limit };
        self.bytes > limit || self.ends.len() > Self::MAX_LISTS || self.ends.iter().any(|end| end.rewound)
    }

    /// Returns whether no entry is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of queued entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the bytes that count against the limit.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of deltas that merging has removed since the queue was created.
    #[must_use]
    pub fn coalesced(&self) -> u64 {
        self.coalesced
    }

    /// Returns the number of changes refused after closing.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// Returns the bytes that a delta counts against the limit.
fn cost(delta: &Delta) -> usize {
    delta.object.body_size() + DeltaFifo::OVERHEAD
}

fn is_live(kind: DeltaKind) -> bool {
    matches!(kind, DeltaKind::Added | DeltaKind::Updated | DeltaKind::Replaced)
}

/// Merges the last delta with the one before it, if allowed. Returns the number of removed deltas.
///
/// Always: of two deletions of one object, the first is kept. If `crowded`: of two live states of one object, the newer
/// is kept. A live state and a deletion of the same object are both removed if a deletion precedes them.
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
        // A watch may repeat an older state, which the store would ignore too.
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
            // The newer state replaces the older one. `Replaced` must stay `Replaced`.
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
impl DeltaFifo {
    /// Asserts the invariants of the module's documentation.
    pub(crate) fn check(&self) {
        let keys: Vec<_> = self
            .queue
            .iter()
            .filter_map(|e| if let EntryKind::Key(key) = &e.kind { Some(key) } else { None })
            .collect();
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "a key is queued once");
        assert!(keys.len() == self.items.len() && keys.iter().all(|key| self.items.contains_key(*key)), "{self:?}");
        assert_eq!(self.queue.len() - keys.len(), self.ends.len(), "as many ends as lists");
        assert!(self.items.values().all(|pending| !pending.deltas.is_empty()), "{self:?}");
        let costs: Vec<usize> = self.items.values().map(|pending| pending.deltas.iter().map(cost).sum()).collect();
        assert!(self.items.values().map(|pending| pending.bytes).eq(costs.iter().copied()), "{self:?}");
        assert_eq!(self.bytes, costs.iter().sum::<usize>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::change;

    #[test]
    fn fifo_releases_memory_after_a_backlog() {
        let mut fifo = DeltaFifo::new(usize::MAX);
        for i in 0..20_000 {
            fifo.push(change(&format!("+a{i}@1")));
        }
        assert_eq!(fifo.pop(usize::MAX).len(), 20_000);
        let room = fifo.items.capacity().max(fifo.queue.capacity());
        assert!(room <= 2 * DeltaFifo::RETAINED_CAPACITY, "{room}");
    }
}
