//! Clock access. No other module reads a clock.
//!
//! Monotonic time is tokio's, so a test that pauses tokio's clock controls every deadline of the hub.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

thread_local! {
    static SET: Cell<Option<(jiff::Timestamp, Instant)>> = const { Cell::new(None) };
}

/// A point on the monotonic clock.
pub type Instant = tokio::time::Instant;

/// Returns the current monotonic time (virtual if a test has paused the clock).
#[must_use]
pub fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    Instant::now()
}

/// Returns the time since the machine started. Unlike [`now`], it advances while the machine is suspended or a test has
/// paused the clock. Used for leases (ownership for a limited time): on other machines, a lease expires even while this
/// one is suspended.
///
/// On systems other than Linux, this is the time since the first call, and it may stop during a suspension.
#[must_use]
pub fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
    }
    #[cfg(not(target_os = "linux"))]
    {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        START.get_or_init(std::time::Instant::now).elapsed()
    }
}

/// Returns an interval that ticks every `period`, the first time immediately. After a late tick, the next one follows a
/// full `period` later; missed ticks are not caught up.
#[must_use]
pub fn ticks(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Returns the current wall-clock time, for display and for the wire; never for deadlines.
#[must_use]
pub fn wall() -> jiff::Timestamp {
    match SET.get() {
        Some((then, at)) => then.saturating_add(now().duration_since(at)).unwrap_or(jiff::Timestamp::MAX),
        None => jiff::Timestamp::now(),
    }
}

/// Sets this thread's wall clock, which then advances with the monotonic clock, so that simulations are reproducible.
/// `None` restores the machine's clock.
pub fn set_wall(time: Option<jiff::Timestamp>) {
    SET.set(time.map(|time| (time, now())));
}

/// Wall clock that does not jump.
///
/// Starts at the machine's time and advances with the monotonic clock. For timestamps that must keep their order and
/// distances when the machine's clock is set.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    start_millis: i64,
    start: Instant,
}

impl SteadyClock {
    /// Creates a clock that starts at the machine's current time.
    #[must_use]
    pub fn begin() -> Self {
        Self { start_millis: wall_millis(), start: now() }
    }

    /// Returns milliseconds since the Unix epoch.
    #[must_use]
    pub fn millis(&self) -> i64 {
        let passed = i64::try_from(now().duration_since(self.start).as_millis()).unwrap_or(i64::MAX);
        self.start_millis.saturating_add(passed)
    }
}

/// Returns milliseconds since the Unix epoch on the wall clock.
#[must_use]
pub fn wall_millis() -> i64 {
    wall().as_millisecond()
}

/// Returns the time since `millis`, a value of [`wall_millis`]; zero if it is in the future.
#[must_use]
pub fn since_wall_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(wall_millis().saturating_sub(millis)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn late_tick_is_not_caught_up() {
        let (begun, mut ticks) = (now(), ticks(Duration::from_secs(2)));
        let mut at = Vec::new();
        for busy in [0, 7, 0] {
            ticks.tick().await;
            at.push(now().duration_since(begun).as_secs());
            tokio::time::advance(Duration::from_secs(busy)).await;
        }
        ticks.tick().await;
        at.push(now().duration_since(begun).as_secs());
        assert_eq!(at, [0, 2, 9, 11]);
    }

    #[tokio::test(start_paused = true)]
    async fn steady_clock_ignores_wall_clock_jumps() {
        let begun = "2026-03-01T12:00:00Z".parse::<jiff::Timestamp>().unwrap();
        set_wall(Some(begun));
        let steady = SteadyClock::begin();
        assert_eq!(steady.millis(), begun.as_millisecond());
        for jump in [Duration::from_secs(0), Duration::from_secs(10 * 24 * 3600)] {
            set_wall(Some(jiff::Timestamp::UNIX_EPOCH + jump));
            let before = steady.millis();
            tokio::time::advance(Duration::from_secs(3)).await;
            assert_eq!(steady.millis() - before, 3000);
        }
        assert_eq!(steady.millis() - begun.as_millisecond(), 6000);
        assert_eq!(since_wall_millis(i64::MIN), Duration::from_millis(i64::MAX as u64), "saturates");
        assert_eq!(since_wall_millis(i64::MAX), Duration::ZERO);
        set_wall(None);
    }
}
