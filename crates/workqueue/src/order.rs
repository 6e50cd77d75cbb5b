//! In which order keys that wait are taken: first come first served, or lanes in turn.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;

/// Where keys wait. The queue calls it under its lock, and sees to it that no key is in it twice.
///
/// `Clone + Eq + Hash` of keys, and whatever else it calls, must neither panic nor use the queue.
pub trait Order<T>: Send {
    /// Puts `item` in line.
    fn push(&mut self, item: T);

    /// Takes the next key that may be worked on; `None` when there is none, even if some wait.
    fn pop(&mut self) -> Option<T>;

    /// How many keys wait.
    fn len(&self) -> usize;

    /// Whether no key waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`Order::pop`] would give a key.
    fn can_pop(&self) -> bool {
        !self.is_empty()
    }

    /// `item`, which waits, was added again: an order of priorities could move it.
    fn touch(&mut self, item: &T) {
        let _ = item;
    }

    /// The work on `item`, which was popped, is done. Called once for each that was popped.
    fn done(&mut self, item: &T) {
        let _ = item;
    }
}

/// First come, first served.
#[derive(Debug)]
pub struct Fifo<T>(VecDeque<T>);

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Send> Order<T> for Fifo<T> {
    fn push(&mut self, item: T) {
        self.0.push_back(item);
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Lanes that take turns: each gives one key, then the next one does. Within a lane first come, first served.
///
/// A lane that floods the queue delays a key of another lane by as many keys as there are lanes, whatever waits in it.
/// That is not enough where the work of one lane takes long, as it does with a cluster that does not answer: its keys
/// would come to occupy every worker. [`Lanes::at_most`] bounds that.
///
/// A lane exists while it has keys. Every operation takes constant time.
pub struct Lanes<T, L, F> {
    lane: F,
    /// How many keys of one lane may be worked on at a time.
    limit: usize,
    by_name: HashMap<L, Lane<T>>,
    /// The lanes whose turn will come: exactly those with a key in line that are below the limit.
    turns: VecDeque<L>,
    len: usize,
}

struct Lane<T> {
    waiting: VecDeque<T>,
    working: usize,
}

impl<T> Lane<T> {
    fn has_turn(&self, limit: usize) -> bool {
        !self.waiting.is_empty() && self.working < limit
    }
}

impl<T, L, F> Lanes<T, L, F>
where
    L: Clone + Eq + Hash,
    F: Fn(&T) -> L,
{
    /// Lanes as `lane` tells them, which must always say the same of the same key.
    #[must_use]
    pub fn new(lane: F) -> Self {
        Self { lane, limit: usize::MAX, by_name: HashMap::new(), turns: VecDeque::new(), len: 0 }
    }

    /// Lets no lane have more than `limit` keys worked on at a time; fewer than the workers, so that one is always free
    /// for other lanes.
    #[must_use]
    pub fn at_most(mut self, limit: NonZeroUsize) -> Self {
        self.limit = limit.get();
        self
    }

    /// Changes a lane, and gives it a turn or forgets it as it then is. `change` must not take a turn away.
    fn change(&mut self, name: L, change: impl FnOnce(&mut Lane<T>)) {
        let lane = self.by_name.entry(name.clone()).or_insert_with(|| Lane { waiting: VecDeque::new(), working: 0 });
        let before = lane.has_turn(self.limit);
        change(lane);
        let after = lane.has_turn(self.limit);
        if lane.waiting.is_empty() && lane.working == 0 {
            self.by_name.remove(&name);
        }
        if after && !before {
            self.turns.push_back(name);
        }
    }
}

impl<T, L, F> Order<T> for Lanes<T, L, F>
where
    T: Send,
    L: Clone + Eq + Hash + Send,
    F: Fn(&T) -> L + Send,
{
    fn push(&mut self, item: T) {
        let name = (self.lane)(&item);
        self.change(name, |lane| lane.waiting.push_back(item));
        self.len += 1;
    }

    fn pop(&mut self) -> Option<T> {
        let name = self.turns.pop_front()?;
        let lane = self.by_name.get_mut(&name)?;
        let item = lane.waiting.pop_front()?;
        lane.working += 1;
        if lane.has_turn(self.limit) {
            self.turns.push_back(name);
        }
        self.len -= 1;
        Some(item)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn can_pop(&self) -> bool {
        !self.turns.is_empty()
    }

    fn done(&mut self, item: &T) {
        let name = (self.lane)(item);
        self.change(name, |lane| lane.working = lane.working.saturating_sub(1));
    }
}

impl<T, L, F> fmt::Debug for Lanes<T, L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("lanes", &self.by_name.len()).field("len", &self.len).finish_non_exhaustive()
    }
}
