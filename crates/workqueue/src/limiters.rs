//! Rate limiters for retries: client-go's limiters, one limiter per lane (group of keys), and jitter.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use super::bucket::BucketRateLimiter;
use super::rate_limiter::RateLimiter;
use informer_hub_types::{clock::Instant, exponential_backoff, rng};

/// Number of limiters (one per lane, a group of keys) below which idle ones are not removed.
const FEW_LANES: usize = 16;

/// Returns client-go's default limiter for controllers, which gives the longer of two delays.
///
/// The first delay is the key's own: 5 ms, doubling with each retry of the key up to 1,000 s. The second delay comes
/// from one token bucket for all keys, with 10 tokens per second and bursts of 100.
#[must_use]
pub fn default_controller_rate_limiter<T>() -> impl RateLimiter<T> + 'static
where
    T: Clone + Eq + Hash + Send + 'static,
{
    const QPS: NonZeroU32 = NonZeroU32::new(10).expect("10 is not zero");
    MaxOfRateLimiter::new(vec![
        Box::new(ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(1000))),
        Box::new(BucketRateLimiter::new(QPS, 100)),
    ])
}

/// Exponential backoff per key: `base` · 2ⁿ for retry n (from 0), at most `max`.
#[derive(Debug, Clone)]
pub struct ItemExponentialFailureRateLimiter<T> {
    failures: HashMap<T, u32>,
    base: Duration,
    max: Duration,
}

impl<T> ItemExponentialFailureRateLimiter<T> {
    /// Creates a limiter with this initial and maximum delay.
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

/// Short delay for the first retries of a key, long delay for its later retries.
#[derive(Debug, Clone)]
pub struct ItemFastSlowRateLimiter<T> {
    failures: HashMap<T, u32>,
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
}

impl<T> ItemFastSlowRateLimiter<T> {
    /// Creates a limiter that delays the first `fast_attempts` retries of a key by `fast`, and all later ones by
    /// `slow`.
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

/// Counts one more retry of `item` and returns the count.
fn count<T: Clone + Eq + Hash>(failures: &mut HashMap<T, u32>, item: &T) -> u32 {
    let failures = failures.entry(item.clone()).or_insert(0);
    *failures = failures.saturating_add(1);
    *failures
}

/// Maximum of several limiters. All of them are called every time, so a bucket gives a token even if another limiter
/// returns a longer delay.
pub struct MaxOfRateLimiter<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T> MaxOfRateLimiter<T> {
    /// Creates a limiter that returns the longest of these delays.
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

/// Caps the delay of another limiter.
#[derive(Debug, Clone)]
pub struct WithMaxWaitRateLimiter<R> {
    limiter: R,
    max: Duration,
}

impl<R> WithMaxWaitRateLimiter<R> {
    /// Limits the delays of `limiter` to `max`.
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

/// Adds random jitter to the delay of another limiter, so that simultaneous failures are not retried simultaneously.
#[derive(Debug)]
pub struct WithJitterRateLimiter<R> {
    limiter: R,
    share: f64,
    random: StdRng,
}

impl<R> WithJitterRateLimiter<R> {
    /// Adds up to `share` of the delay of `limiter` (0.5: half as long again). A share above 1,000 counts as 1,000; a
    /// negative, infinite or NaN share adds nothing.
    #[must_use]
    pub fn new(limiter: R, share: f64) -> Self {
        Self::with_random(limiter, share, rng::rng())
    }

    /// Like [`Self::new`], with a given random number generator.
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

/// One limiter per lane (group of keys), so that failures in one lane do not use up the tokens of another.
///
/// A lane's limiter is created when it is first asked for a delay, and dropped some time after it became
/// [idle](RateLimiter::is_idle). There are at most 16 limiters, or twice as many as were busy at the last removal,
/// whichever is more.
pub struct PerLaneRateLimiter<T, L, F> {
    lane: F,
    make: Box<dyn Fn() -> Box<dyn RateLimiter<T>> + Send>,
    limiters: HashMap<L, Box<dyn RateLimiter<T>>>,
    /// Number of limiters at which idle ones are removed. Keeps the amortized cost per limiter low.
    sweep_at: usize,
}

impl<T, L, F> PerLaneRateLimiter<T, L, F>
where
    F: Fn(&T) -> L,
{
    /// Creates a limiter. `lane` returns the lane (group) of a key, and `make` creates the limiter of a lane.
    pub fn new<R: RateLimiter<T> + 'static>(lane: F, make: impl Fn() -> R + Send + 'static) -> Self {
        Self { lane, make: Box::new(move || Box::new(make())), limiters: HashMap::new(), sweep_at: FEW_LANES }
    }
}

impl<T, L, F> PerLaneRateLimiter<T, L, F> {
    /// Returns for how many lanes (groups of keys) there is a limiter.
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
