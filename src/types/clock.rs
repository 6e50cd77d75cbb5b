//! The only place that reads a clock.
//!
//! Monotonic time is tokio's, so that a test which pauses tokio's clock owns every deadline of the hub.

use std::cell::Cell;
use std::time::Duration;

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

/// Milliseconds since the Unix epoch on the wall clock.
#[must_use]
pub fn wall_millis() -> i64 {
    wall().as_millisecond()
}

/// How long ago `millis` (as [`wall_millis`] gives it) was; zero when it lies in the future.
#[must_use]
pub fn since_wall_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(wall_millis() - millis).unwrap_or(0))
}
