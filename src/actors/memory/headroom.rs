//! Gate before the queue of deltas: delays new objects until there is headroom, i.e. bytes left under the memory limit.
//!
//! The governor checks memory a few times a second, but a list can read tens of megabytes between two checks. So each
//! check grants a number of bytes, from which reflectors take until the next check. Without a limit, the cost is one
//! atomic load. A wait ends after [`LONGEST`], even if the limit is then exceeded.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;

use crate::budget::UNLIMITED;

/// Longest wait for headroom (bytes left under the memory limit). In this time, the governor should have made an
/// informer keep less of its objects. If it has not, reading continues and exceeds the limit, because an informer that
/// never proceeds is worse.
const LONGEST: Duration = Duration::from_secs(10);

/// Bytes that may be read until the next refill; see the module documentation.
#[derive(Debug)]
pub(in crate::actors) struct Headroom {
    left: AtomicI64,
    refilled: Notify,
}

impl Headroom {
    pub(in crate::actors) fn unlimited() -> Self {
        Self { left: AtomicI64::new(UNLIMITED), refilled: Notify::new() }
    }

    /// Sets the bytes that may be read from now on.
    pub(in crate::actors) fn refill(&self, bytes: i64) {
        self.left.store(bytes, Relaxed);
        if bytes > 0 {
            self.refilled.notify_waiters();
        }
    }

    /// Returns whether a memory limit is set.
    pub(in crate::actors) fn is_limited(&self) -> bool {
        self.left.load(Relaxed) < UNLIMITED / 2
    }

    /// Waits at most [`LONGEST`] until there is headroom (bytes left under the memory limit), then subtracts `bytes`. A
    /// batch larger than the headroom makes it negative.
    ///
    /// # Cancel safety
    /// Nothing is taken before the future completes.
    pub(in crate::actors) async fn take(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX / 8);
        let waited = async {
            loop {
                let refilled = self.refilled.notified();
                tokio::pin!(refilled);
                // From here on a refill is not missed.
                refilled.as_mut().enable();
                if self.left.load(Relaxed) > 0 {
                    return;
                }
                refilled.await;
            }
        };
        if tokio::time::timeout(LONGEST, waited).await.is_err() {
            tracing::debug!(
                bytes, waited = ?LONGEST,
                "no memory became free in time; reading more objects regardless of the memory limit"
            );
        }
        self.left.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn headroom_delays_reads_for_a_limited_time() {
        let headroom = Headroom::unlimited();
        assert!(!headroom.is_limited());
        headroom.refill(100);
        assert!(headroom.is_limited());
        headroom.take(60).now_or_never().unwrap();
        headroom.take(60).now_or_never().unwrap();
        let mut waits = Box::pin(headroom.take(1));
        assert!(waits.as_mut().now_or_never().is_none());
        headroom.refill(0);
        assert!(waits.as_mut().now_or_never().is_none());
        headroom.refill(1);
        waits.as_mut().now_or_never().unwrap();
        let began = informer_hub_types::clock::now();
        headroom.take(1).await;
        assert_eq!(began.elapsed(), LONGEST);
    }
}
