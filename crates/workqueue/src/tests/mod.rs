//! Tests of the work queue: the behaviour of every test of client-go's `util/workqueue`, a model, fairness, and thread
//! interleavings.

mod delays;
mod fairness;
mod handle;
pub(super) mod interleave;
mod limiters;
mod metrics;
mod model;
mod parallel;
mod queue;
mod workers;

use std::time::Duration;

use super::{Fifo, Key, Queue, TakeResult};
use informer_hub_types::clock::{self, Instant};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A pure queue with its own clock.
struct Bench<T> {
    queue: Queue<T>,
    now: Instant,
}

impl<T: Key> Bench<T> {
    fn new() -> Self {
        Self { queue: Queue::new(Box::new(Fifo::default())), now: clock::now() }
    }

    fn add(&mut self, item: T) {
        self.queue.add(item, self.now);
    }

    fn add_after(&mut self, item: T, delay: Duration) {
        self.queue.add_after(item, delay, self.now);
    }

    fn take(&mut self) -> Option<T> {
        match self.queue.take(self.now) {
            TakeResult::Item(item, _) => Some(item),
            TakeResult::Nothing | TakeResult::Over => None,
        }
    }

    fn done(&mut self, item: &T) {
        self.queue.done(item, None, self.now);
    }

    fn step(&mut self, by: Duration) {
        self.now += by;
        self.queue.advance(self.now);
    }
}
