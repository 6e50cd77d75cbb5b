//! Handle of a work queue, shared by event handlers and workers: the pure queue under a lock, and its wake-ups.
//!
//! One of the workers waiting for a key is the *timekeeper*, which sleeps until the next delayed key is due. Every
//! operation is one critical section followed by a wake-up. It wakes one waiting worker in two cases: a key can be
//! taken, or keys are delayed and there is no timekeeper. Taking a key is such an operation too, so if more keys can be
//! taken, it wakes the next worker. Once the queue is shut down and empty, all workers are woken.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::limiters::{PerLaneRateLimiter, default_controller_rate_limiter};
use super::order::{Fifo, Lanes, Order};
use super::queue::Queue;
use super::rate_limiter::RateLimiter;
use super::{Key, Metrics, Request, interleave};
use informer_hub_types::clock::{self, Instant};

/// Work queue; see the [module](super) for its contract. Clones share the same queue.
///
/// All methods that are not `async` return immediately and can be called from anywhere, also outside a runtime.
/// [`WorkQueue::get`] needs a runtime with timers if keys are delayed.
pub struct WorkQueue<T> {
    pub(super) shared: Arc<Shared<T>>,
}

pub(super) struct Shared<T> {
    state: Mutex<State<T>>,
    limiter: Mutex<Box<dyn RateLimiter<T>>>,
    /// Wakes a waiting worker if a key can be taken, or if no worker sleeps until the next delayed key is due.
    pub(super) ready: Notify,
    /// Wakes the timekeeper (the worker that sleeps until the next delayed key is due) if a key with an earlier due
    /// time is added.
    pub(super) earlier: Notify,
    /// Wakes the callers of [`WorkQueue::shut_down_with_drain`].
    drained: Notify,
}

pub(super) struct State<T> {
    pub(super) queue: Queue<T>,
    /// When the timekeeper (the worker that sleeps until the next delayed key is due) wakes; `None` without a
    /// timekeeper.
    pub(super) timekeeper: Option<Instant>,
}

/// Wake-ups due after a critical section.
#[derive(Clone, Copy)]
struct Wake {
    waiters: Waiters,
    timekeeper: bool,
    drained: bool,
}

/// Number of waiting workers to wake.
#[derive(Clone, Copy)]
enum Waiters {
    None,
    One,
    All,
}

impl<T: Key> State<T> {
    fn wake(&self) -> Wake {
        let due = self.queue.next_due();
        let waiters = if self.queue.is_over() {
            Waiters::All
        } else if self.queue.can_take() || due.is_some() && self.timekeeper.is_none() {
            Waiters::One
        } else {
            Waiters::None
        };
        Wake {
            waiters,
            timekeeper: due.zip(self.timekeeper).is_some_and(|(due, until)| due < until),
            drained: self.queue.is_shutting_down() && (!self.queue.is_draining() || self.queue.is_idle()),
        }
    }
}

impl<T: Key> WorkQueue<T> {
    /// Creates a first-in, first-out queue with client-go's default limiter.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Fifo::default(), default_controller_rate_limiter())
    }

    /// Creates a queue with lanes (groups of keys) that take turns, each with its own default limiter.
    ///
    /// `lane` must always return the same lane for the same key. It runs under the queue's lock, and must neither panic
    /// nor use the queue.
    #[must_use]
    pub fn fair<L, F>(lane: F) -> Self
    where
        L: Clone + Eq + Hash + Send + 'static,
        F: Fn(&T) -> L + Clone + Send + 'static,
    {
        Self::fair_at_most(NonZeroUsize::MAX, lane)
    }

    /// Creates a queue like [`WorkQueue::fair`] with at most `limit` keys of a lane (group of keys) in process.
    ///
    /// With a limit of one less than the number of workers, one worker stays free if all keys of a lane hang. With a
    /// limit of a third of the workers, a third stays free if two lanes hang.
    #[must_use]
    pub fn fair_at_most<L, F>(limit: NonZeroUsize, lane: F) -> Self
    where
        L: Clone + Eq + Hash + Send + 'static,
        F: Fn(&T) -> L + Clone + Send + 'static,
    {
        let limiter = PerLaneRateLimiter::new(lane.clone(), default_controller_rate_limiter);
        Self::with(Lanes::new(lane).at_most(limit), limiter)
    }

    /// Creates a queue with a given order and limiter.
    #[must_use]
    pub fn with(order: impl Order<T> + 'static, limiter: impl RateLimiter<T> + 'static) -> Self {
        let state = State { queue: Queue::new(Box::new(order)), timekeeper: None };
        let shared = Shared {
            state: Mutex::new(state),
            limiter: Mutex::new(Box::new(limiter)),
            ready: Notify::new(),
            earlier: Notify::new(),
            drained: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Queues `item`, unless it is already queued. If it is being processed, it is queued when that ends. Ignored after
    /// the shutdown.
    pub fn add(&self, item: T) {
        self.locked(|state, now| state.queue.add(item, now));
    }

    /// Queues `item` after `delay`, or immediately if that is zero. A delayed key is queued once, at the earliest
    /// requested time.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.locked(|state, now| state.queue.add_after(item, delay, now));
    }

    /// Queues `item` after the limiter's delay.
    pub fn add_rate_limited(&self, item: T) {
        // The limiter has its own lock, since the caller may have supplied a slow one.
        let delay = self.shared.limiter.lock().when(&item, clock::now());
        self.add_after(item, delay);
    }

    /// Makes the limiter stop counting retries of `item`. Without this call, the limiter keeps a failed key forever.
    pub fn forget(&self, item: &T) {
        self.shared.limiter.lock().forget(item);
    }

    /// Returns how often the limiter was called for `item` since it was forgotten.
    #[must_use]
    pub fn num_requeues(&self, item: &T) -> u32 {
        self.shared.limiter.lock().num_requeues(item)
    }

    /// Ends the processing of `item`, which was [detached](super::Work::detach). Ignored if it is not in process.
    pub fn done(&self, item: &T) {
        self.locked(|state, now| state.queue.done(item, None, now));
    }

    pub(super) fn finish(&self, item: &T, ticket: u64) {
        self.locked(|state, now| state.queue.done(item, Some(ticket), now));
    }

    /// Returns the number of queued keys, which may have changed when the caller uses it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.locked(|state, _| state.queue.len())
    }

    /// Returns whether no key is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stops accepting keys, drops the delayed ones, and lets workers take the queued ones. Also ends a
    /// [`WorkQueue::shut_down_with_drain`].
    pub fn shut_down(&self) {
        self.locked(|state, _| state.queue.shut_down());
    }

    /// Shuts down and waits until nothing is queued or in process. Returns `false` if [`WorkQueue::shut_down`] ended
    /// the wait.
    ///
    /// Never returns without workers, or if a worker never returns a key, so use it with a deadline.
    ///
    /// # Cancel safety
    /// If the future is dropped, the queue stays shut down.
    pub async fn shut_down_with_drain(&self) -> bool {
        self.locked(|state, _| state.queue.drain());
        loop {
            let woken = self.shared.drained.notified();
            match self.locked(|state, _| (state.queue.is_idle(), state.queue.is_draining())) {
                (true, _) => return true,
                (false, false) => return false,
                (false, true) => woken.await,
            }
        }
    }

    /// Returns whether the queue was shut down.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.locked(|state, _| state.queue.is_shutting_down())
    }

    /// Returns the metrics. Costs time proportional to the number of keys in process.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.locked(|state, now| state.queue.metrics(now))
    }

    /// Runs `operation` in a critical section after queueing the delayed keys that are due, then wakes waiting callers.
    pub(super) fn locked<R>(&self, operation: impl FnOnce(&mut State<T>, Instant) -> R) -> R {
        let (answer, wake) = {
            let mut state = self.lock();
            let now = clock::now();
            state.queue.advance(now);
            let answer = operation(&mut state, now);
            (answer, state.wake())
        };
        interleave::point();
        match wake.waiters {
            Waiters::None => {}
            Waiters::One => self.shared.ready.notify_one(),
            Waiters::All => self.shared.ready.notify_waiters(),
        }
        if wake.timekeeper {
            self.shared.earlier.notify_one();
        }
        if wake.drained {
            self.shared.drained.notify_waiters();
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        interleave::point();
        self.shared.state.lock()
    }
}

impl WorkQueue<Request> {
    /// Creates a queue in which clusters take turns, each with its own default limiter.
    ///
    /// No cluster can starve another by the number of its keys or failures. But the keys of a cluster that hangs
    /// eventually occupy all workers. [`WorkQueue::per_cluster_at_most`] prevents that; use it if the workers send
    /// requests to clusters.
    #[must_use]
    pub fn per_cluster() -> Self {
        Self::fair(|request: &Request| request.cluster.clone())
    }

    /// Creates a queue like [`WorkQueue::per_cluster`] with at most `limit` keys of a cluster in process. See
    /// [`WorkQueue::fair_at_most`] for choosing `limit`.
    #[must_use]
    pub fn per_cluster_at_most(limit: NonZeroUsize) -> Self {
        Self::fair_at_most(limit, |request: &Request| request.cluster.clone())
    }
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Key> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("queue", &self.shared.state.lock().queue).finish_non_exhaustive()
    }
}
