//! The only place that reads a clock.
//!
//! Monotonic time is tokio's, so that a test which pauses tokio's clock owns every deadline of the hub.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

thread_local! {
    static SET: Cell<Option<(jiff::Timestamp, Instant)>> = const { Cell::new(None) };
}

/// A point on the monotonic clock.
pub type Instant = tokio::time::Instant;

/// Now, on the monotonic clock (virtual where a test has paused it).
#[must_use]
pub fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    Instant::now()
}

/// A beat every `period`, the first at once. One that comes late is followed a whole period later, not by all that it held
/// up.
#[must_use]
pub fn ticks(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Now, on the wall clock, for people and for the wire; never for deadlines.
#[must_use]
pub fn wall() -> jiff::Timestamp {
    match SET.get() {
        Some((then, at)) => then.saturating_add(now().duration_since(at)).unwrap_or(jiff::Timestamp::MAX),
        None => jiff::Timestamp::now(),
    }
}

/// Sets this thread's wall clock, which goes with the monotonic one from then on: for a simulation, whose times are to
/// come again. `None`: the machine's.
pub fn set_wall(time: Option<jiff::Timestamp>) {
    SET.set(time.map(|time| (time, now())));
}

/// A wall clock that does not jump: it says what the machine's said when it was made, and goes with the monotonic one from
/// then on. For what has to keep its order and its distances while the machine's clock is set.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    began: i64,
    at: Instant,
}

impl SteadyClock {
    /// One that says what the machine's does, for now.
    #[must_use]
    pub fn begin() -> Self {
        Self { began: wall_millis(), at: now() }
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn millis(&self) -> i64 {
        let passed = i64::try_from(now().duration_since(self.at).as_millis()).unwrap_or(i64::MAX);
        self.began.saturating_add(passed)
    }
}

/// Milliseconds since the Unix epoch on the wall clock.
#[must_use]
pub fn wall_millis() -> i64 {
    wall().as_millisecond()
}

/// How long ago `millis` (as [`wall_millis`] gives it) was; zero when it lies in the future.
#[must_use]
pub fn since_wall_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(wall_millis().saturating_sub(millis)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_beat_that_is_late_holds_up_no_others() {
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
    async fn a_steady_clock_goes_on_where_the_machines_jumps() {
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
        assert_eq!(since_wall_millis(i64::MIN), Duration::from_millis(i64::MAX as u64), "far ago is far ago");
        assert_eq!(since_wall_millis(i64::MAX), Duration::ZERO);
        set_wall(None);
    }
}
