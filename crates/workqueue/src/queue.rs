//! State of a work queue as a pure value: queued, processing and delayed keys. It never blocks and reads no clock.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::Key;
use super::delays::Delays;
use super::metrics::{Metrics, Tally};
use super::order::Order;
use informer_hub_types::clock::Instant;

/// Delay of 30 years, used instead of one that overflows the clock.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// State machine of a work queue.
///
/// Invariant: a key is in `order` exactly if it is in `dirty` and not in `processing`, and it is there once.
pub struct Queue<T> {
    order: Box<dyn Order<T>>,
    /// Keys to be processed, with the time when each was added.
    dirty: HashMap<T, Instant>,
    processing: HashMap<T, Running>,
    delays: Delays<T>,
    shutting_down: bool,
    /// Whether the shutdown waits until all keys are processed.
    draining: bool,
    tickets: u64,
    tally: Tally,
}

/// A key in process.
#[derive(Debug, Clone, Copy)]
struct Running {
    /// Number of this processing of the key, which distinguishes it from earlier ones.
    ticket: u64,
    since: Instant,
}

/// Result of [`Queue::take`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeResult<T> {
    /// A key, and the ticket: the number with which [`Queue::done`] ends its processing.
    Item(T, u64),
    /// No key can be taken at the moment.
    Nothing,
    /// The queue is shut down and gives out no more keys.
    Over,
}

impl<T: Key> Queue<T> {
    /// Creates an empty queue with this order.
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

    /// Queues the delayed keys that are due by `now`. Call this before every other operation.
    pub fn advance(&mut self, now: Instant) {
        while let Some((item, at)) = self.delays.pop_due(now) {
            self.add(item, at);
        }
    }

    /// Queues `item`, unless it is already queued. If it is being processed, it is queued when that ends. Ignored after
    /// the shutdown.
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

    /// Queues `item` after `delay`, or immediately if that is zero. If the key is already delayed, the earlier time
    /// applies.
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

    /// Takes the next key to process.
    pub fn take(&mut self, now: Instant) -> TakeResult<T> {
        let Some(item) = self.order.pop() else {
            return if self.is_over() { TakeResult::Over } else { TakeResult::Nothing };
        };
        if let Some(since) = self.dirty.remove(&item) {
            self.tally.queue_latency.observe(now.saturating_duration_since(since));
        }
        self.tickets += 1;
        let ticket = self.tickets;
        self.processing.insert(item.clone(), Running { ticket, since: now });
        TakeResult::Item(item, ticket)
    }

    /// Ends the processing of `item`, which is queued again if it was added meanwhile. Ignored if the key is not in
    /// process, or if `ticket` belongs to an earlier processing of it.
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

    /// Stops accepting keys and drops the delayed ones. Queued keys can still be taken.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
        self.draining = false;
        self.delays.clear();
    }

    /// Shuts down like [`Self::shut_down`], but workers must stay until no key is queued or will be queued again. A key
    /// that was added while in process is queued when that processing ends, and then still needs a worker.
    pub fn drain(&mut self) {
        self.shut_down();
        self.draining = true;
    }

    /// Returns whether the queue was shut down.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Returns whether the queue is [draining](Queue::drain) and was not [shut down](Queue::shut_down) since.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Returns whether workers may stop: the queue is shut down and nothing is queued. While the queue is draining,
    /// keys that were added again during their processing count as queued.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let left = if self.draining { !self.dirty.is_empty() } else { !self.order.is_empty() };
        self.shutting_down && !left
    }

    /// Returns whether nothing is queued and nothing is in process.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.order.is_empty() && self.processing.is_empty()
    }

    /// Returns whether [`Queue::take`] would return a key.
    #[must_use]
    pub fn can_take(&self) -> bool {
        self.order.can_pop()
    }

    /// Returns when the next delayed key is due; `None` if no key is delayed.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.delays.next()
    }

    /// Returns the number of queued keys, excluding those in process.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns whether no key is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns the metrics. Costs time proportional to the number of keys in process.
    #[must_use]
    pub fn metrics(&self, now: Instant) -> Metrics {
        let ages = self.processing.values().map(|running| now.saturating_duration_since(running.since));
        self.tally.metrics(self.dirty.len(), self.delays.len(), ages)
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
