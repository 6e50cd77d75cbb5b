//! Queue of deltas between a reflector and its processor: in order of arrival, as client-go's RealFIFO (its default
//! since 1.33), with the merges of DeltaFIFO (its default before).
//!
//! Differences from client-go, and their reasons:
//! - *In order, and bounded.* All deltas leave in the order in which they arrived, so the store passes through the
//!   states of the cluster. DeltaFIFO pops all deltas of a key together, which changes the order between keys. RealFIFO
//!   keeps the order, but merges nothing and has no bound.
//! - *Merges.* Two deletions of one object always merge, and a resync of a queued key is dropped. Other deltas are kept
//!   up to half of the byte limit. Above that, a newer live state replaces the queued one of its object and is queued
//!   last, a repeated one is dropped, and of several objects of one name that were added and deleted, only the last one
//!   is kept. Above the limit, [`DeltaFifo::is_full`] makes the caller wait. Other repetitions are not detected here:
//!   the store drops old versions, and a listener's queue drops repeated batches.
//! - *No starvation.* A sealed delta is never replaced, so an object that changes all the time cannot be postponed
//!   forever. When an unsealed delta leaves the queue, all deltas behind it become sealed. The end of a list seals all
//!   deltas before it.
//! - *Replace streams.* A list is queued as a start, objects as they arrive, and an end. So no page of a list has to
//!   wait for the last page. The store compares the list with its contents by the set of listed keys, as client-go's
//!   `AtomicFIFO` does since 1.36. A list after the first one is published in one step.
//! - *Deletions of unknown keys are kept*: only the store knows which keys exist.
//! - *The queue has a watermark* ([`DeltaFifo::watermark`]): the resource version up to which all changes have been
//!   popped. If a merge replaces a delta, the watermark stays before that delta until the replacement has been popped.
//!
//! Invariants:
//! - `keys` describes the deltas in `queue`, and `bytes` is the sum of their bytes.
//! - `ends` has an element for each list end in `queue`, in the same order.
//! - `superseded` is the number of entries in `queue` whose delta a merge has removed. The first entry of `queue`
//!   always has its delta or list end.
//! - The `arrival` numbers in `queue` increase.

use std::collections::VecDeque;

use hashbrown::hash_map::{Entry as KeyEntry, EntryRef};
use hashbrown::{HashMap, HashSet};

use informer_hub_types::{Change, Delta, DeltaKind, Deltas, ObjectKey, ResourceVersion};

mod entry;
mod merge;

use entry::{End, Entry, EntryKind, Hold};
use merge::{Merge, MergeLimits, Queued, merge, position};

/// An entry popped from the queue.
#[derive(Debug)]
pub enum Popped {
    /// Deltas of one key that follow each other in the queue, oldest first.
    Deltas(ObjectKey, Deltas),
    /// The end of a list: objects in the store that are not in `keep` are gone.
    ReplaceEnd {
        /// Keys that the list contains: all that it sent and did not delete again before its end.
        keep: HashSet<ObjectKey>,
        /// Resource version of the list.
        version: ResourceVersion,
        /// Whether the list's resource versions cannot be compared with those of earlier changes, because they went
        /// back ([`Change::Rewind`]).
        rewound: bool,
    },
}

/// Kind of the first change that the queue received. After a watch event, the queue is synced immediately. After a
/// change of a list, it is synced once the end of a list has been popped. Corresponds to client-go's `populated`.
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
    keys: HashMap<ObjectKey, Queued>,
    queue: VecDeque<Entry>,
    listing: Option<HashSet<ObjectKey>>,
    /// Whether the running list's resource versions cannot be compared with those of earlier changes, because they went
    /// back ([`Change::Rewind`]).
    rewound: bool,
    /// Lists whose ends are in `queue`, in order.
    ends: VecDeque<End>,
    start: Start,
    /// Resource version up to which all changes have arrived in the queue; `None` if unknown.
    received: Option<ResourceVersion>,
    /// Number of entries queued since the queue was created.
    arrived: u64,
    /// Sealed deltas, which no merge may remove: those whose `arrival` number is below this one.
    sealed: u64,
    /// Versions of deltas with an `arrival` number below this one do not compare with those of later deltas, because a
    /// list with [`Change::Rewind`] has ended in between.
    comparable: u64,
    /// Number of [`EntryKind::Superseded`] in `queue`.
    superseded: usize,
    hold: Option<Hold>,
    /// Number of list ends that were popped.
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

    /// Capacity in entries that an empty queue retains.
    const RETAINED_CAPACITY: usize = 256;

    /// Maximum number of complete lists in the queue.
    const MAX_LISTS: usize = 2;

    /// Creates an empty queue with a limit in bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            keys: HashMap::new(),
            queue: VecDeque::new(),
            listing: None,
            rewound: false,
            ends: VecDeque::new(),
            start: Start::Nothing,
            received: None,
            arrived: 0,
            sealed: 0,
            comparable: 0,
            superseded: 0,
            hold: None,
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
                // No later state may take the place of a listed object behind this end.
                self.sealed = self.arrived;
                self.receive(version.clone());
                let rewound = std::mem::take(&mut self.rewound);
                if rewound {
                    self.comparable = self.arrived;
                }
                self.ends.push_back(End { keep, version, rewound });
            }
            Change::Progress(version) => self.receive(version),
            Change::Delta(delta) => self.push_delta(delta),
        }
    }

    fn receive(&mut self, version: ResourceVersion) {
        self.received = Some(version).filter(|version| !version.is_any());
    }

    fn enqueue(&mut self, kind: EntryKind) {
        self.queue.push_back(Entry { kind, arrival: self.arrived, since: self.received.clone() });
        self.arrived += 1;
    }

    /// Returns the version up to which every queued change has been popped. A consumer that has applied the popped
    /// changes may resume a watch from this version. `None` if unknown, as during a list. A later list may lower this
    /// version, for example after a restore of etcd.
    #[must_use]
    pub fn watermark(&self) -> Option<&ResourceVersion> {
        let first = self.queue.front().map_or(&self.received, |first| &first.since).as_ref()?;
        self.hold.as_ref().map_or(Some(first), |hold| hold.since.as_ref())
    }

    /// Returns how many entries have been queued since the queue was created. All of them have left the queue once
    /// [`Self::departed`] has reached this number.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Returns how many entries have left the queue since it was created: those that were queued before the first
    /// entry.
    #[must_use]
    pub fn departed(&self) -> u64 {
        self.queue.front().map_or(self.arrived, |first| first.arrival)
    }

    fn push_delta(&mut self, mut delta: Delta) {
        let key = delta.object.key().clone();
        if let Some(listing) = &mut self.listing {
            match delta.kind {
                DeltaKind::Added | DeltaKind::Updated | DeltaKind::Replaced => _ = listing.insert(key.clone()),
                // A streaming list may delete objects that it sent before.
                DeltaKind::Deleted => _ = listing.remove(&key),
                // Repeats the store's state, so it does not count as listed.
                DeltaKind::Sync => {}
            }
        }
        let arrival = self.arrived;
        let queued = match self.keys.entry(key) {
            KeyEntry::Occupied(queued) => queued.into_mut(),
            KeyEntry::Vacant(vacant) => {
                vacant.insert(Queued { count: 1, last: arrival, before_last: None, pair: None });
                return self.queue_delta(delta);
            }
        };
        if delta.kind == DeltaKind::Sync {
            return;
        }
        let is_crowded = self.bytes > self.limit / 2;
        let limits = MergeLimits { is_crowded, sealed: self.sealed, comparable: self.comparable };
        match merge(&self.queue, queued, &mut delta, &limits) {
            Merge::None => {
                queued.count += 1;
                queued.before_last = Some(std::mem::replace(&mut queued.last, arrival));
                self.queue_delta(delta);
            }
            Merge::Drop => self.coalesced += 1,
            Merge::Replace => {
                let replaced = std::mem::replace(&mut queued.last, arrival);
                self.queue_delta(delta);
                self.supersede(replaced);
            }
            Merge::Pair(removed) => {
                let added = std::mem::replace(&mut queued.last, arrival);
                (queued.before_last, queued.pair) = (Some(added), Some((added, arrival)));
                queued.count = queued.count + 1 - 2 * usize::from(removed.is_some());
                self.queue_delta(delta);
                if let Some((added, deleted)) = removed {
                    self.supersede(added);
                    self.supersede(deleted);
                }
            }
        }
    }

    fn queue_delta(&mut self, delta: Delta) {
        let bytes = cost(&delta);
        self.bytes += bytes;
        self.enqueue(EntryKind::Delta(delta, bytes));
    }

    /// Removes the queued delta with this `arrival` number. Leaves a placeholder, which keeps the watermark (version
    /// from which a watch can resume) from passing the removed change.
    fn supersede(&mut self, arrival: u64) {
        let Some(position) = position(&self.queue, arrival) else { return };
        if let EntryKind::Delta(_, bytes) = std::mem::replace(&mut self.queue[position].kind, EntryKind::Superseded) {
            self.bytes -= bytes;
            self.coalesced += 1;
            self.superseded += 1;
        }
        self.skip_superseded();
        if self.superseded > Self::RETAINED_CAPACITY + 2 * self.len() {
            self.drop_superseded();
        }
    }

    /// Pops up to `max` entries, oldest first. Stops after a list end.
    pub fn pop(&mut self, max: usize) -> Vec<Popped> {
        self.pop_within(max, usize::MAX)
    }

    /// As [`Self::pop`], but also stops once the popped entries amount to `bytes` bytes, counted as by [`Self::bytes`].
    pub fn pop_within(&mut self, max: usize, bytes: usize) -> Vec<Popped> {
        let mut batch = Vec::with_capacity(max.min(self.len()));
        let mut room = bytes;
        while batch.len() < max
            && room > 0
            && let Some(kind) = self.pop_entry()
        {
            match kind {
                EntryKind::Delta(delta, cost) => {
                    room = room.saturating_sub(cost);
                    let (key, mut deltas) = (delta.object.key().clone(), Deltas::new());
                    deltas.push(delta);
                    while room > 0
                        && let Some((delta, cost)) = self.pop_next_of(&key)
                    {
                        room = room.saturating_sub(cost);
                        deltas.push(delta);
                    }
                    batch.push(Popped::Deltas(key, deltas));
                }
                EntryKind::Superseded => {}
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
            self.keys.shrink_to(Self::RETAINED_CAPACITY);
        }
        batch
    }

    /// Pops the first delta of the queue if it belongs to this key.
    fn pop_next_of(&mut self, key: &ObjectKey) -> Option<(Delta, usize)> {
        let is_next = matches!(&self.queue.front()?.kind, EntryKind::Delta(delta, _) if delta.object.key() == key);
        match is_next.then(|| self.pop_entry())?? {
            EntryKind::Delta(delta, cost) => Some((delta, cost)),
            EntryKind::Superseded | EntryKind::ReplaceEnd => None,
        }
    }

    fn pop_entry(&mut self) -> Option<EntryKind> {
        let Entry { kind, arrival, .. } = self.queue.pop_front()?;
        if arrival >= self.sealed {
            self.sealed = self.arrived;
        }
        match &kind {
            EntryKind::Delta(delta, bytes) => {
                self.bytes -= bytes;
                if let EntryRef::Occupied(mut queued) = self.keys.entry_ref(delta.object.key()) {
                    queued.get_mut().count -= 1;
                    if queued.get().count == 0 {
                        queued.remove();
                    }
                }
            }
            // A state that replaces a delta before a list end is before that end too.
            EntryKind::ReplaceEnd => self.hold = None,
            EntryKind::Superseded => {}
        }
        self.skip_superseded();
        Some(kind)
    }

    /// Removes placeholders of removed deltas ([`EntryKind::Superseded`]) from the front of the queue. The first of
    /// them sets `hold`, if none is set, so that the watermark still does not pass it. Also ends a hold that is over.
    fn skip_superseded(&mut self) {
        while let Some(first) = self.queue.front() {
            if first.arrival >= self.sealed {
                // All that was sealed has been popped, and with it the states that replace sealed deltas.
                self.hold.take_if(|hold| hold.arrival < self.sealed);
            }
            if !matches!(first.kind, EntryKind::Superseded) {
                return;
            }
            if let Some(Entry { arrival, since, .. }) = self.queue.pop_front() {
                self.superseded -= 1;
                self.hold.get_or_insert(Hold { since, arrival });
            }
        }
        self.hold = None;
    }

    /// Removes placeholders of removed deltas ([`EntryKind::Superseded`]) from the queue. Of adjacent placeholders,
    /// keeps the first: it has the lowest version, which limits the watermark.
    fn drop_superseded(&mut self) {
        let (sealed, before) = (self.sealed, self.queue.len());
        let mut last = None;
        self.queue.retain(|entry| {
            let is_superseded = matches!(entry.kind, EntryKind::Superseded);
            // A row ends where the sealed entries end, because a hold does.
            let row = is_superseded.then_some(entry.arrival >= sealed);
            let before = std::mem::replace(&mut last, row);
            !is_superseded || before != row
        });
        self.superseded -= before - self.queue.len();
    }

    /// Refuses further changes. Queued entries can still be popped.
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
    /// a queue that started with a watch event is synced immediately.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        match self.start {
            Start::Nothing => false,
            Start::Watch => true,
            Start::List => self.ended > 0,
        }
    }

    /// Returns whether the caller should wait before it pushes more. The byte limit (lower during a list) or the
    /// maximum number of complete lists is then exceeded. Complete lists have a separate limit, because their sets of
    /// keys are not counted in bytes.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let limit = if self.listing.is_some() { self.limit / Self::LIST_SHARE } else { self.limit };
        self.bytes > limit || self.ends.len() > Self::MAX_LISTS
    }

    /// Returns whether no entry is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of queued deltas and list ends.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len() - self.superseded
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

#[cfg(test)]
mod tests;
