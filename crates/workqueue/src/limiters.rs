//! How long a key waits before it is tried again: client-go's limiters, one per lane, and jitter.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use super::bucket::BucketRateLimiter;
use informer_hub_types::{clock::Instant, exponential_backoff, rng};

/// Below this many lanes, idle ones are not looked for.
const FEW_LANES: usize = 16;

/// Says how long a key waits.
///
/// A queue calls it under a lock: it must be quick, must not panic, and must not use the queue, which would wait for
/// itself for ever.
pub trait RateLimiter<T>: Send {
    /// How long `item` should wait from `now`; counts one more try of it.
    fn when(&mut self, item: &T, now: Instant) -> Duration;

    /// `item` is not being retried any more, for better or worse. What is not forgotten is remembered for ever.
    fn forget(&mut self, item: &T);

    /// How many tries of `item` have been counted.
    fn num_requeues(&self, item: &T) -> u32;

    /// Whether a new limiter would say the same from `now` on: nothing is counted and no token is missing. One that does
    /// not say so is kept.
    fn is_idle(&self, now: Instant) -> bool {
        let _ = now;
        false
    }
}

impl<T, R: RateLimiter<T> + ?Sized> RateLimiter<T> for Box<R> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        (**self).when(item, now)
    }

    fn forget(&mut self, item: &T) {
        (**self).forget(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        (**self).num_requeues(item)
    }

    fn is_idle(&self, now: Instant) -> bool {
        (**self).is_idle(now)
    }
}

/// What client-go's controllers use: per key 5 ms doubling to 1,000 s, and over all 10 a second with bursts of 100,
/// whichever is longer.
#[must_use]
pub fn default_controller_rate_limiter<T>() -> impl RateLimiter<T> + 'static
where
    T: Clone + Eq + Hash + Send + 'static,
{
    const QPS: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");
    MaxOfRateLimiter::new(vec![
        Box::new(ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(1000))),
        Box::new(BucketRateLimiter::new(QPS, 100)),
    ])
}

/// `base` · 2ⁿ for a key's n-th retry (from 0), at most `max`.
#[derive(Debug, Clone)]
pub struct ItemExponentialFailureRateLimiter<T> {
    failures: HashMap<T, u32>,
    base: Duration,
    max: Duration,
}

impl<T> ItemExponentialFailureRateLimiter<T> {
    /// A limiter with this first and this longest delay.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { failures: HashMap::new(), base, max }
    }
}

impl<T: Clone + Eq + Hash + Send> RateLimiter<T> for ItemExponentialFailureRateLimiter<T> {
    fn when(&mut self, item: &T, _: Instant) -> Duration {
        exponential_backoff(self.base, count(&mut self.failures, item) - 1, self.max)
    }

    fn forget(&mut self, item: &T) {
        self.failures.remove(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.failures.get(item).copied().unwrap_or(0)
    }

    fn is_idle(&self, _: Instant) -> bool {
        self.failures.is_empty()
    }
}

/// The first tries of a key after a short delay, all others after a long one.
#[derive(Debug, Clone)]
pub struct ItemFastSlowRateLimiter<T> {
    failures: HashMap<T, u32>,
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
}

impl<T> ItemFastSlowRateLimiter<T> {
    /// `fast_attempts` tries after `fast`, then `slow`.
    #[must_use]
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self { failures: HashMap::new(), fast, slow, fast_attempts }
    }
}

impl<T: Clone + Eq + Hash + Send> RateLimiter<T> for ItemFastSlowRateLimiter<T> {
    fn when(&mut self, item: &T, _: Instant) -> Duration {
        if count(&mut self.failures, item) <= self.fast_attempts { self.fast } else { self.slow }
    }

    fn forget(&mut self, item: &T) {
        self.failures.remove(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.failures.get(item).copied().unwrap_or(0)
    }

    fn is_idle(&self, _: Instant) -> bool {
        self.failures.is_empty()
    }
}

/// One more try of `item`; how many that makes, at least one.
fn count<T: Clone + Eq + Hash>(failures: &mut HashMap<T, u32>, item: &T) -> u32 {
    let failures = failures.entry(item.clone()).or_insert(0);
    *failures = failures.saturating_add(1);
    *failures
}

/// The longest of what several limiters say. Each is asked every time, so a bucket gives a token also when another
/// limiter says longer.
pub struct MaxOfRateLimiter<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T> MaxOfRateLimiter<T> {
    /// A limiter that is as strict as the strictest of these.
    #[must_use]
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> Self {
        Self { limiters }
    }
}

impl<T> RateLimiter<T> for MaxOfRateLimiter<T> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        self.limiters.iter_mut().map(|limiter| limiter.when(item, now)).max().unwrap_or_default()
    }

    fn forget(&mut self, item: &T) {
        self.limiters.iter_mut().for_each(|limiter| limiter.forget(item));
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.limiters.iter().map(|limiter| limiter.num_requeues(item)).max().unwrap_or(0)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.limiters.iter().all(|limiter| limiter.is_idle(now))
    }
}

impl<T> fmt::Debug for MaxOfRateLimiter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOfRateLimiter").field("limiters", &self.limiters.len()).finish()
    }
}

/// Caps what another limiter says.
#[derive(Debug, Clone)]
pub struct WithMaxWaitRateLimiter<R> {
    limiter: R,
    max: Duration,
}

impl<R> WithMaxWaitRateLimiter<R> {
    /// `limiter`, but never longer than `max`.
    #[must_use]
    pub fn new(limiter: R, max: Duration) -> Self {
        Self { limiter, max }
    }
}

impl<T, R: RateLimiter<T>> RateLimiter<T> for WithMaxWaitRateLimiter<R> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        self.limiter.when(item, now).min(self.max)
    }

    fn forget(&mut self, item: &T) {
        self.limiter.forget(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.limiter.num_requeues(item)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.limiter.is_idle(now)
    }
}

/// Lengthens what another limiter says at random, so that those who failed together do not come back together.
#[derive(Debug)]
pub struct WithJitterRateLimiter<R> {
    limiter: R,
    share: f64,
    random: StdRng,
}

impl<R> WithJitterRateLimiter<R> {
    /// `limiter`, and up to `share` of its delay more (0.5: half as long again). Less than none is none.
    #[must_use]
    pub fn new(limiter: R, share: f64) -> Self {
        Self::with_random(limiter, share, rng::rng())
    }

    /// The same with dice of one's own.
    #[must_use]
    pub fn with_random(limiter: R, share: f64, random: StdRng) -> Self {
        let share = if share.is_finite() { share.clamp(0.0, 1000.0) } else { 0.0 };
        Self { limiter, share, random }
    }
}

impl<T, R: RateLimiter<T>> RateLimiter<T> for WithJitterRateLimiter<R> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        let delay = self.limiter.when(item, now);
        let more = delay.as_secs_f64() * self.share * self.random.random::<f64>();
        delay.saturating_add(Duration::try_from_secs_f64(more).unwrap_or_default())
    }

    fn forget(&mut self, item: &T) {
        self.limiter.forget(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.limiter.num_requeues(item)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.limiter.is_idle(now)
    }
}

/// A limiter for each lane: without it one lane's failures would take the tokens that another's retries wait for.
///
/// A lane's limiter is made when a key of it fails, and dropped some time after it has become
/// [idle](RateLimiter::is_idle): there are at most twice as many as are not, or a few.
pub struct PerLaneRateLimiter<T, L, F> {
    lane: F,
    make: Box<dyn Fn() -> Box<dyn RateLimiter<T>> + Send>,
    limiters: HashMap<L, Box<dyn RateLimiter<T>>>,
    /// At how many limiters the idle ones are looked for, so that it costs little for each that is made.
    sweep_at: usize,
}

impl<T, L, F> PerLaneRateLimiter<T, L, F>
where
    F: Fn(&T) -> L,
{
    /// Lanes as `lane` tells them, each with a limiter from `make`.
    pub fn new<R: RateLimiter<T> + 'static>(lane: F, make: impl Fn() -> R + Send + 'static) -> Self {
        Self { lane, make: Box::new(move || Box::new(make())), limiters: HashMap::new(), sweep_at: FEW_LANES }
    }
}

impl<T, L, F> PerLaneRateLimiter<T, L, F> {
    /// How many lanes have a limiter.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.limiters.len()
    }
}

impl<T, L, F> RateLimiter<T> for PerLaneRateLimiter<T, L, F>
where
    L: Eq + Hash + Send,
    F: Fn(&T) -> L + Send,
{
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        let lane = (self.lane)(item);
        if self.limiters.len() >= self.sweep_at && !self.limiters.contains_key(&lane) {
            self.limiters.retain(|_, limiter| !limiter.is_idle(now));
            self.sweep_at = (2 * self.limiters.len()).max(FEW_LANES);
        }
        self.limiters.entry(lane).or_insert_with(&self.make).when(item, now)
    }

    fn forget(&mut self, item: &T) {
        if let Some(limiter) = self.limiters.get_mut(&(self.lane)(item)) {
            limiter.forget(item);
        }
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.limiters.get(&(self.lane)(item)).map_or(0, |limiter| limiter.num_requeues(item))
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.limiters.values().all(|limiter| limiter.is_idle(now))
    }
}

impl<T, L, F> fmt::Debug for PerLaneRateLimiter<T, L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerLaneRateLimiter").field("lanes", &self.limiters.len()).finish_non_exhaustive()
    }
}
