//! The queue itself, as a pure value: what waits, what is worked on, what comes later. Nobody waits here and no clock
//! is read.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::Key;
use super::delays::Delays;
use super::metrics::{Metrics, Tally};
use super::order::Order;
use informer_hub_types::clock::Instant;

/// Stands for a time that no clock reaches.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The rules of a work queue.
///
/// Invariants: a key waits in `order` exactly if it is in `dirty` and not in `processing`; it waits there once.
pub struct Queue<T> {
    order: Box<dyn Order<T>>,
    /// Keys that want to be worked on, and since when.
    dirty: HashMap<T, Instant>,
    processing: HashMap<T, Running>,
    delays: Delays<T>,
    shutting_down: bool,
    /// Whether the shutdown is one that waits for everything to be done.
    draining: bool,
    tickets: u64,
    tally: Tally,
}

/// Work that somebody does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    /// Tells this work from earlier work on the same key.
    ticket: u64,
    pub(super) since: Instant,
}

/// What [`Queue::take`] has for a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take<T> {
    /// A key, and the ticket by which the work on it is ended.
    Item(T, u64),
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    Over,
}

impl<T: Key> Queue<T> {
    /// An empty queue that hands out keys in this order.
    #[must_use]
    pub fn new(order: Box<dyn Order<T>>) -> Self {
        Self {
            order,
            dirty: HashMap::new(),
            processing: HashMap::new(),
            delays: Delays::new(),
            shutting_down: false,
            draining: false,
            tickets: 0,
            tally: Tally::default(),
        }
    }

    /// Lets delayed keys that are due by `now` get in line. Every use of a queue at some time begins with it.
    pub fn advance(&mut self, now: Instant) {
        while let Some((item, at)) = self.delays.pop_due(now) {
            self.add(item, at);
        }
    }

    /// Puts `item` in line, unless it is; if it is worked on, as soon as that is done. Ignored after the shutdown.
    pub fn add(&mut self, item: T, now: Instant) {
        if self.shutting_down {
            return;
        }
        let in_work = self.processing.contains_key(&item);
        if self.dirty.contains_key(&item) {
            if !in_work {
                self.order.touch(&item);
            }
            return;
        }
        self.tally.adds += 1;
        self.dirty.insert(item.clone(), now);
        if !in_work {
            self.order.push(item);
        }
    }

    /// Puts `item` in line after `delay`, or at once if that is zero. A key that is already to be added earlier stays
    /// as it is; one that is to be added later comes earlier.
    pub fn add_after(&mut self, item: T, delay: Duration, now: Instant) {
        if self.shutting_down {
            return;
        }
        self.tally.retries += 1;
        if delay.is_zero() {
            self.add(item, now);
        } else {
            self.delays.put(item, now.checked_add(delay).unwrap_or_else(|| now + FAR));
        }
    }

    /// Takes the next key to work on.
    pub fn take(&mut self, now: Instant) -> Take<T> {
        let Some(item) = self.order.pop() else {
            return if self.is_over() { Take::Over } else { Take::Nothing };
        };
        if let Some(since) = self.dirty.remove(&item) {
            self.tally.queue_latency.observe(now.saturating_duration_since(since));
        }
        self.tickets += 1;
        let ticket = self.tickets;
        self.processing.insert(item.clone(), Running { ticket, since: now });
        Take::Item(item, ticket)
    }

    /// Ends the work on `item`, which gets in line again if it was added meanwhile. Ignored if nobody works on it, or
    /// if the work has another ticket than the given one.
    pub fn done(&mut self, item: &T, ticket: Option<u64>, now: Instant) {
        let Some(running) = self.processing.get(item).copied() else { return };
        if ticket.is_some_and(|ticket| ticket != running.ticket) {
            return;
        }
        self.processing.remove(item);
        self.tally.work_duration.observe(now.saturating_duration_since(running.since));
        self.order.done(item);
        if self.dirty.contains_key(item) {
            self.order.push(item.clone());
        }
    }

    /// Adds nothing any more and forgets what was to be added later. What waits can still be taken.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
        self.draining = false;
        self.delays.clear();
    }

    /// The same, but it is over only when no key will be in line again: somebody has to be there for those that were
    /// added while they were worked on.
    pub fn drain(&mut self) {
        self.shut_down();
        self.draining = true;
    }

    /// Whether the queue has been shut down.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Whether it is [drained](Queue::drain), and not [shut down](Queue::shut_down) since.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether workers may go: the queue is shut down, and nothing is in line or, while it is drained, will be.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let left = if self.draining { !self.dirty.is_empty() } else { !self.order.is_empty() };
        self.shutting_down && !left
    }

    /// Whether nothing waits and nothing is worked on.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.order.is_empty() && self.processing.is_empty()
    }

    /// Whether [`Queue::take`] would give a key.
    #[must_use]
    pub fn can_take(&self) -> bool {
        self.order.can_pop()
    }

    /// When the next delayed key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.delays.next()
    }

    /// How many keys are in line; without those that are worked on, even if they are to be worked on again.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no key is in line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// What the queue has counted. Its cost is the number of keys that are worked on.
    #[must_use]
    pub fn metrics(&self, now: Instant) -> Metrics {
        self.tally.metrics(self.dirty.len(), self.delays.len(), &self.processing, now)
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("dirty", &self.dirty.len())
            .field("processing", &self.processing.len())
            .field("shutting_down", &self.shutting_down)
            .finish_non_exhaustive()
    }
}
