//! The only place that reads a clock.
//!
//! Monotonic time is tokio's, so that a test which pauses tokio's clock owns every deadline of the hub.

use std::time::Duration;

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
    jiff::Timestamp::now()
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
