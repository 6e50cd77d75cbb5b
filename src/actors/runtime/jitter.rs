//! Jitter for delays, so that many actors do not act at the same time.

use std::time::Duration;

use informer_hub_types::rng;

/// Returns `rest` plus up to half of it, at random.
pub(in crate::actors) fn jittered(rest: Duration) -> Duration {
    rest + rest.mul_f64(0.5 * rng::unit())
}
