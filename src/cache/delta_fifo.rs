//! client-go's DeltaFIFO: deltas per key, keys in the order of their arrival, each key in line once.
//!
//! What differs, each for a reason:
//! - *Replace streams.* A list is not one call with all objects but a beginning, objects as they arrive, and an end,
//!   so that a page need not wait for the last one. The store compares the list with what it has (as client-go's
//!   `AtomicFIFO` does since 1.36), from the set of keys that the list named, and publishes a list that is not the first in
//!   one step.
//! - *One place per key.* client-go's `RealFIFO` keeps the order of the watch also between objects. Here all deltas of a key
//!   come out together, since merging them is what bounds the queue.
//! - *It is bounded.* Up to half of its bound in bytes every delta is kept; above that, deltas of one key merge into
//!   the newest state; past the bound it says so, and the caller holds back.
//! - *Deletions are never dropped for being unknown*: the store knows, the queue does not.
//! - *It knows how far it is complete* ([`DeltaFifo::watermark`]). Keys stand in line by their first change, so a later
//!   change of one comes out before an earlier one of another; the version up to which everything has come out is that
//!   which was complete when the first in line came.
//! - *What is put back stands first* ([`DeltaFifo::requeue`]), and what came for its key meanwhile follows it: as if it
//!   had never been taken. client-go's `AddIfNotPresent` gave it up where the key was in line again.
//!
//! Invariants: a key is in `queue` iff it is in `items`, and in `queue` once; `queue` has as many list ends as `ends`;
//! `bytes` is the sum of what `items` counts.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use informer_hub_types::{Change, Delta, DeltaKind, Deltas, ObjectKey, ResourceVersion};

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
struct Entry {
    what: What,
    /// Everything up to this version was taken in before it came in line; of what merged with it, before the first of
    /// that did.
    since: Option<ResourceVersion>,
}

#[derive(Debug)]
enum What {
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

impl Pending {
    /// Adds one delta, merged where it may be. Returns how many deltas went.
    fn append(&mut self, delta: Delta, crowded: bool) -> u64 {
        self.bytes += cost(&delta);
        self.deltas.push(delta);
        let merged = compress(&mut self.deltas, crowded);
        if merged > 0 {
            // A body that was compressed meanwhile counts less than it did.
            let now: usize = self.deltas.iter().map(cost).sum();
            self.bytes = now.min(self.bytes);
        }
        merged
    }
}

/// With what the queue began: client-go's `populated`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Start {
    #[default]
    Nothing,
    /// There is nothing that a first list would complete.
    Watch,
    List,
}

/// The queue between a reflector and its processor. Pure; single-threaded.
#[derive(Debug)]
pub struct DeltaFifo {
    items: HashMap<ObjectKey, Pending>,
    queue: VecDeque<Entry>,
    listing: Option<HashSet<ObjectKey>>,
    /// The lists whose ends are in `queue`, in their order.
    ends: VecDeque<End>,
    start: Start,
    /// Everything up to this version was taken in.
    received: Option<ResourceVersion>,
    /// The watermark before the last [`Self::pop`].
    settled: Option<ResourceVersion>,
    /// Ends of lists that were taken out and not put back.
    ended: u64,
    closed: bool,
    bytes: usize,
    limit: usize,
    coalesced: u64,
    refused: u64,
}

impl DeltaFifo {
    /// Default bound in bytes of object bodies.
    pub const DEFAULT_LIMIT: usize = 32 * 1024 * 1024;

    /// Bookkeeping per delta that counts against the bound, so that tiny objects are bounded too.
    const OVERHEAD: usize = 128;

    /// What a list may take of the bound. An apiserver waits for the reader of a list, unlike that of a watch, so a list
    /// that gathered here would only cost memory.
    pub(super) const LIST_SHARE: usize = 16;

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

    /// Takes one change in; not after [`Self::close`].
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
                Change::ReplaceBegin | Change::ReplaceKeep(_) | Change::ReplaceEnd(_) => Start::List,
            };
        }
        match change {
            Change::ReplaceBegin => {
                self.listing = Some(HashSet::new());
                // What comes from here on is of some moment of the list, and none is complete before its end.
                self.received = None;
            }
            Change::ReplaceKeep(key) => {
                self.listing.get_or_insert_default().insert(key);
            }
            Change::ReplaceEnd(version) => {
                let keep = self.listing.take().unwrap_or_default();
                self.line_up(What::ReplaceEnd);
                self.receive(version.clone());
                self.ends.push_back(End { keep, version });
            }
            Change::Progress(version) => self.receive(version),
            Change::Delta(delta) => self.push_delta(delta),
        }
    }

    fn receive(&mut self, version: ResourceVersion) {
        self.received = Some(version).filter(|version| !version.is_nowhere());
    }

    fn line_up(&mut self, what: What) {
        self.queue.push_back(Entry { what, since: self.received.clone() });
    }

    /// Up to which version everything that was taken in has been taken out again; `None` where that cannot be told, as
    /// while a list is under way. Who has applied all that was taken out may resume from there. After a list that began anew
    /// it may go back.
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
        let crowded = self.crowds(self.bytes);
        if !self.items.contains_key(&key) {
            self.line_up(What::Key(key.clone()));
        }
        let pending = self.items.entry(key).or_default();
        self.bytes -= pending.bytes;
        self.coalesced += pending.append(delta, crowded);
        self.bytes += pending.bytes;
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
        self.pop_within(max, usize::MAX)
    }

    /// The same, and no further one once they have so many bytes of bodies.
    pub fn pop_within(&mut self, max: usize, bytes: usize) -> Vec<Popped> {
        self.settled = self.watermark().cloned();
        let mut batch = Vec::with_capacity(max.min(self.queue.len()));
        let mut room = bytes;
        while batch.len() < max
            && room > 0
            && let Some(entry) = self.queue.pop_front()
        {
            match entry.what {
                What::Key(key) => {
                    let Some(pending) = self.items.remove(&key) else { continue };
                    self.bytes -= pending.bytes;
                    room = room.saturating_sub(pending.bytes);
                    batch.push(Popped::Deltas(key, pending.deltas));
                }
                What::ReplaceEnd => {
                    let Some(End { keep, version }) = self.ends.pop_front() else { continue };
                    self.ended += 1;
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

    /// Puts back what was taken out and could not be dealt with: it is first in line, and deltas of its key that came
    /// meanwhile follow it. Also after [`Self::close`]. Costs a walk along the line if the key is in it again.
    ///
    /// # Ordering
    /// Before anything that was taken out later has been dealt with, and of several, the one taken out last goes first.
    /// The watermark goes back to where it was before the last [`Self::pop`].
    pub fn requeue(&mut self, popped: Popped) {
        match popped {
            Popped::Deltas(key, deltas) => self.requeue_deltas(key, deltas),
            Popped::ReplaceEnd { keep, version } => {
                self.ended = self.ended.saturating_sub(1);
                self.queue.push_front(Entry { what: What::ReplaceEnd, since: self.settled.clone() });
                self.ends.push_front(End { keep, version });
            }
        }
    }

    fn requeue_deltas(&mut self, key: ObjectKey, deltas: Deltas) {
        if deltas.is_empty() {
            return;
        }
        let later = self.leave_line(&key);
        let bytes = deltas.iter().map(cost).sum();
        let mut pending = Pending { deltas, bytes };
        // Of a key in line a resync says nothing.
        for delta in later.deltas.into_iter().filter(|delta| delta.kind != DeltaKind::Sync) {
            let crowded = self.crowds(self.bytes + pending.bytes);
            self.coalesced += pending.append(delta, crowded);
        }
        self.bytes += pending.bytes;
        self.items.insert(key.clone(), pending);
        self.queue.push_front(Entry { what: What::Key(key), since: self.settled.clone() });
    }

    /// Takes a key out of the line, if it is there, so that it can overtake what stands before it: a list that ended
    /// before a live object came must not sweep it when it now goes first.
    fn leave_line(&mut self, key: &ObjectKey) -> Pending {
        let Some(pending) = self.items.remove(key) else { return Pending::default() };
        self.bytes -= pending.bytes;
        let mut overtaken = 0;
        let place = self.queue.iter().position(|entry| match &entry.what {
            What::Key(other) => other == key,
            What::ReplaceEnd => {
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

    /// Takes nothing more in. What is in line can still be taken out, and put back.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether it has been closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it has been closed and nothing is in line: client-go's `ErrFIFOClosed`.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.closed && self.is_empty()
    }

    /// Whether the first list has been taken out as a whole; its end is the last of it, so that an empty list counts
    /// once its end is out, and objects that vanished need no counting. As in client-go, a queue that began without a
    /// list has nothing to wait for. Putting back the end of the only list takes it back.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        match self.start {
            Start::Nothing => false,
            Start::Watch => true,
            Start::List => self.ended > 0,
        }
    }

    /// Whether deltas of one key merge when so many bytes wait.
    fn crowds(&self, bytes: usize) -> bool {
        bytes > self.limit / 2
    }

    /// Whether the bound, or a list's share of it, is passed: whoever pushes should wait. Lists in line have a bound of their own, since one
    /// that repeats what waits already adds no bytes of objects, but a set of keys.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let limit = if self.listing.is_some() { self.limit / Self::LIST_SHARE } else { self.limit };
        self.bytes > limit || self.ends.len() > Self::MAX_LISTS
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

    /// Changes that came after it was closed.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// What a delta counts against the bound.
fn cost(delta: &Delta) -> usize {
    delta.object.body_size() + DeltaFifo::OVERHEAD
}

fn is_live(kind: DeltaKind) -> bool {
    matches!(kind, DeltaKind::Added | DeltaKind::Updated | DeltaKind::Replaced)
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
impl DeltaFifo {
    /// The invariants of the module's documentation.
    pub(crate) fn check(&self) {
        let keys: Vec<_> =
            self.queue.iter().filter_map(|e| if let What::Key(key) = &e.what { Some(key) } else { None }).collect();
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "a key stands in line once");
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
