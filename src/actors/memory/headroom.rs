//! The gate before the fifo: what is new is taken in while there is room for it.
//!
//! The governor looks some times a second; a list brings tens of megabytes in between. So it says how much may be taken
//! in until it looks again, and reflectors ask before they hand over what is new. Without a limit that costs a load.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;

use crate::budget::UNLIMITED;

/// For how long a reflector waits for room, at most. By then the governor has had somebody keep less; that a batch goes
/// on is better than an informer that never learns of anything again.
const LONGEST: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(in crate::actors) struct Headroom {
    left: AtomicI64,
    refilled: Notify,
}

impl Headroom {
    pub(in crate::actors) fn unlimited() -> Self {
        Self { left: AtomicI64::new(UNLIMITED), refilled: Notify::new() }
    }

    /// Says how much may be taken in from now on.
    pub(in crate::actors) fn refill(&self, bytes: i64) {
        self.left.store(bytes, Relaxed);
        if bytes > 0 {
            self.refilled.notify_waiters();
        }
    }

    /// Whether anybody has to ask.
    pub(in crate::actors) fn is_limited(&self) -> bool {
        self.left.load(Relaxed) < UNLIMITED / 2
    }

    /// Waits until there is room, and takes so much of it; of a batch that is larger than what is left, all of it.
    ///
    /// # Cancel safety
    /// Nothing is taken before this ends.
    pub(in crate::actors) async fn take(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX / 8);
        let waited = async {
            loop {
                let refilled = self.refilled.notified();
                tokio::pin!(refilled);
                // From here on a refill is noticed.
                refilled.as_mut().enable();
                if self.left.load(Relaxed) > 0 {
                    return;
                }
                refilled.await;
            }
        };
        if tokio::time::timeout(LONGEST, waited).await.is_err() {
            tracing::debug!(bytes, "taken in past the memory limit, since there has been no room for {LONGEST:?}");
        }
        self.left.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_asks_waits_for_room_and_not_for_ever() {
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
