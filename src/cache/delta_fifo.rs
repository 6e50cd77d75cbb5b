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
//! Invariant: a key is in `queue` iff it is in `items`.

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
    ReplaceEnd { keep: HashSet<ObjectKey>, version: ResourceVersion },
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
    ends_in_queue: usize,
    bytes: usize,
    limit: usize,
    coalesced: u64,
}

impl DeltaFifo {
    /// Default bound in bytes of object bodies.
    pub const DEFAULT_LIMIT: usize = 32 * 1024 * 1024;

    /// Bookkeeping per delta that counts against the bound, so that tiny objects are bounded too.
    const OVERHEAD: usize = 128;

    /// An empty queue with a bound in bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            items: HashMap::new(),
            queue: VecDeque::new(),
            listing: None,
            ends_in_queue: 0,
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
                self.queue.push_back(Entry::ReplaceEnd { keep, version });
                self.ends_in_queue += 1;
            }
            Change::Delta(delta) => self.push_delta(delta),
        }
    }

    fn push_delta(&mut self, delta: Delta) {
        let key = delta.object.key().clone();
        if delta.kind == DeltaKind::Sync && self.items.contains_key(&key) {
            return;
        }
        match (&mut self.listing, delta.kind) {
            (Some(listing), DeltaKind::Replaced) => {
                listing.insert(key.clone());
            }
            // A streaming list takes back what it named before.
            (Some(listing), DeltaKind::Deleted) => {
                listing.remove(&key);
            }
            (_, DeltaKind::Deleted) => {}
            _ => self.spare(&key),
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

    /// A live object that arrives after a list ended, but stands in line before that list's end is popped, must not
    /// be swept by it.
    fn spare(&mut self, key: &ObjectKey) {
        if self.ends_in_queue == 0 {
            return;
        }
        for entry in &mut self.queue {
            if let Entry::ReplaceEnd { keep, .. } = entry {
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
                Entry::ReplaceEnd { keep, version } => {
                    self.ends_in_queue -= 1;
                    batch.push(Popped::ReplaceEnd { keep, version });
                    break;
                }
            }
        }
        batch
    }

    /// Whether the bound is passed: whoever pushes should wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes > self.limit
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
