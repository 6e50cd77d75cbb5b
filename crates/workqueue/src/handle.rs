//! The queue that handlers and workers share: the pure one under a lock, and how to wait for it.
//!
//! Every operation is one critical section and, after it, a wake. Who waits for keys also keeps the time: one waiter,
//! the *timekeeper*, sleeps until the next delayed key is due. After each critical section, if a key can be taken, or if
//! keys are delayed and there is no timekeeper, one waiter is woken to see to it. That is all there is to it: a waiter
//! that takes a key leaves the queue by the same rule, so it hands on what is left. Once the queue is shut down and
//! empty, all are woken.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::coop;

use super::limiters::{PerLaneRateLimiter, RateLimiter, default_controller_rate_limiter};
use super::order::{Fifo, Lanes, Order};
use super::queue::{Queue, Take};
use super::work::Work;
use super::{Key, Metrics, Request, interleave};
use informer_hub_types::clock::{self, Instant};

/// A work queue; see the [module](super) for what it promises. Clones are the same queue.
///
/// Everything but [`WorkQueue::get`] and [`WorkQueue::shut_down_with_drain`] returns at once and may be called from
/// anywhere, also outside a runtime. `get` needs one with time where keys are delayed.
pub struct WorkQueue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    limiter: Mutex<Box<dyn RateLimiter<T>>>,
    /// One permit for each waiter that has something to do.
    ready: Notify,
    /// For the timekeeper: the next key is due earlier than it thinks.
    earlier: Notify,
    /// For those who wait for the queue to be drained.
    drained: Notify,
}

struct State<T> {
    queue: Queue<T>,
    /// Until when the timekeeper sleeps, if there is one.
    timekeeper: Option<Instant>,
}

/// Who is to be woken after a critical section.
#[derive(Clone, Copy)]
struct Wake {
    waiters: Waiters,
    timekeeper: bool,
    drained: bool,
}

/// How many of those who wait for keys.
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
    /// First come, first served, with client-go's default limiter.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Fifo::default(), default_controller_rate_limiter())
    }

    /// Lanes that take turns, each with a default limiter of its own. `lane` must always say the same of the same key;
    /// it runs under the queue's lock, and must neither panic nor use the queue.
    #[must_use]
    pub fn fair<L, F>(lane: F) -> Self
    where
        L: Clone + Eq + Hash + Send + 'static,
        F: Fn(&T) -> L + Clone + Send + 'static,
    {
        Self::fair_at_most(NonZeroUsize::MAX, lane)
    }

    /// [`WorkQueue::fair`] with at most `limit` keys of a lane worked on at a time. One fewer than there are workers
    /// leaves one to the others while the work of one lane hangs; a third of them, two while two lanes hang.
    #[must_use]
    pub fn fair_at_most<L, F>(limit: NonZeroUsize, lane: F) -> Self
    where
        L: Clone + Eq + Hash + Send + 'static,
        F: Fn(&T) -> L + Clone + Send + 'static,
    {
        let limiter = PerLaneRateLimiter::new(lane.clone(), default_controller_rate_limiter);
        Self::with(Lanes::new(lane).at_most(limit), limiter)
    }

    /// A queue with an order and a limiter of one's own.
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

    /// Puts `item` in line, unless it is; if it is worked on, as soon as that is done. Ignored after the shutdown.
    pub fn add(&self, item: T) {
        self.locked(|state, now| state.queue.add(item, now));
    }

    /// Puts `item` in line after `delay`, or at once if that is zero. A key waits once, for the earliest of its times.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.locked(|state, now| state.queue.add_after(item, delay, now));
    }

    /// Puts `item` in line after the limiter's delay.
    pub fn add_rate_limited(&self, item: T) {
        // Under a lock of its own: the limiter may be the caller's, and slow.
        let delay = self.shared.limiter.lock().when(&item, clock::now());
        self.add_after(item, delay);
    }

    /// Lets the limiter forget `item`. Without it a key that failed once is remembered for ever.
    pub fn forget(&self, item: &T) {
        self.shared.limiter.lock().forget(item);
    }

    /// How often the limiter has been asked about `item` since it was forgotten.
    #[must_use]
    pub fn num_requeues(&self, item: &T) -> u32 {
        self.shared.limiter.lock().num_requeues(item)
    }

    /// The next key, as soon as there is one; `None` once the queue is shut down and nothing is left in line.
    ///
    /// After a plain [`WorkQueue::shut_down`], what was added before it to a key that is still worked on may be handed
    /// out once more after others were told `None`: whoever works on it gets it by coming back. During a
    /// [drain](WorkQueue::shut_down_with_drain) nobody is told `None` before that.
    ///
    /// Gives way to other tasks now and then, also where keys always wait.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped. It must not be *kept* without being polled, as one is that a `select!`
    /// in a loop borrows while another branch awaits: it may be the one that was woken for a key, or that keeps the time
    /// for all, and then the others sleep until it is polled or dropped.
    pub async fn get(&self) -> Option<Work<T>> {
        // Where keys always wait, a worker would otherwise never let others of its thread run. Before anything else: a
        // wake that was received and not acted on would be lost with the future.
        coop::consume_budget().await;
        let mut timekeeper = None;
        loop {
            // Made before the queue is looked at, so that what comes after the look is not missed.
            let woken = self.shared.ready.notified();
            match self.take(timekeeper.take()) {
                Turn::Work(work) => return Some(work),
                Turn::Over => return None,
                Turn::Wait => woken.await,
                Turn::Keep(keeper) => timekeeper.insert(keeper).keep(woken).await,
            }
        }
    }

    /// The work on `item`, which was [detached](Work::detach), is done. Ignored if nobody works on it.
    pub fn done(&self, item: &T) {
        self.locked(|state, now| state.queue.done(item, None, now));
    }

    pub(super) fn finish(&self, item: &T, ticket: u64) {
        self.locked(|state, now| state.queue.done(item, Some(ticket), now));
    }

    /// How many keys are in line. For information: it may have changed before the caller looks at it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.locked(|state, _| state.queue.len())
    }

    /// Whether no key is in line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds nothing any more, forgets what was to be added later, and lets workers have what is in line. Also ends the
    /// waiting of [`WorkQueue::shut_down_with_drain`].
    pub fn shut_down(&self) {
        self.locked(|state, _| state.queue.shut_down());
    }

    /// Shuts down and waits until nothing is in line and nothing is worked on; says whether that came about, or
    /// whether [`WorkQueue::shut_down`] put an end to it.
    ///
    /// Without workers this never ends, nor with a worker that never gives a key back, so give it a deadline.
    ///
    /// # Cancel safety
    /// The queue stays shut down if the future is dropped.
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

    /// Whether the queue has been shut down.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.locked(|state, _| state.queue.is_shutting_down())
    }

    /// What the queue has counted. Its cost is the number of keys that are worked on.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.locked(|state, now| state.queue.metrics(now))
    }

    fn take(&self, keeper: Option<Timekeeper<'_, T>>) -> Turn<'_, T> {
        let mut keeper = keeper;
        self.locked(|state, now| {
            if keeper.as_mut().is_some_and(|keeper| std::mem::take(&mut keeper.on_duty)) {
                state.timekeeper = None;
            }
            match state.queue.take(now) {
                Take::Item(item, ticket) => Turn::Work(Work::new(item, ticket, self.clone())),
                Take::Over => Turn::Over,
                Take::Nothing => match state.queue.next_due() {
                    Some(until) if state.timekeeper.is_none() => {
                        state.timekeeper = Some(until);
                        Turn::Keep(Timekeeper { queue: self, until, on_duty: true })
                    }
                    _ => Turn::Wait,
                },
            }
        })
    }

    fn locked<R>(&self, operation: impl FnOnce(&mut State<T>, Instant) -> R) -> R {
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
    /// Clusters that take turns, each with a default limiter of its own: none can starve another by the number of its
    /// keys or by that of its failures. It can by their length: the keys of a cluster that hangs come to occupy every
    /// worker. [`WorkQueue::per_cluster_at_most`] bounds that, and is what workers that ask clusters should have.
    #[must_use]
    pub fn per_cluster() -> Self {
        Self::fair(|request: &Request| request.cluster.clone())
    }

    /// [`WorkQueue::per_cluster`] with at most `limit` keys of a cluster worked on at a time; see
    /// [`WorkQueue::fair_at_most`] for what to give.
    #[must_use]
    pub fn per_cluster_at_most(limit: NonZeroUsize) -> Self {
        Self::fair_at_most(limit, |request: &Request| request.cluster.clone())
    }
}

/// What a worker does next.
enum Turn<'a, T: Key> {
    Work(Work<T>),
    Over,
    Wait,
    Keep(Timekeeper<'a, T>),
}

/// The waiter that sleeps until the next delayed key is due. If it is dropped on duty, another takes over.
struct Timekeeper<'a, T: Key> {
    queue: &'a WorkQueue<T>,
    until: Instant,
    on_duty: bool,
}

impl<T: Key> Timekeeper<'_, T> {
    async fn keep(&self, woken: Notified<'_>) {
        tokio::select! {
            () = woken => {}
            () = self.queue.shared.earlier.notified() => {}
            () = tokio::time::sleep_until(self.until) => {}
        }
    }
}

impl<T: Key> Drop for Timekeeper<'_, T> {
    fn drop(&mut self) {
        if self.on_duty {
            self.queue.locked(|state, _| state.timekeeper = None);
        }
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
