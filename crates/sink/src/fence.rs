//! Fence for deliveries: lets the sinks of a process send only until a set time. With several replicas, only the holder
//! of a lease delivers, and its fence closes when the lease ends.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use informer_hub_types::clock;

/// Maximum time between two checks of the fence during an attempt. A single timer for the whole time is not enough:
/// timers stand still while the computer is suspended, but the time of the fence goes on.
const RECHECK: Duration = Duration::from_secs(1);

/// Time until which the sinks of a process may send. The time is checked before each delivery attempt, and each time
/// the future of a running attempt is polled.
///
/// The time is that of [`clock::since_boot`], so a process that was stopped or suspended finds the fence closed when it
/// continues. An attempt that is running when the fence closes is abandoned: see [`Self::within`].
#[derive(Debug, Default)]
pub struct SendFence {
    /// Time until which sinks may send, in nanoseconds since boot; zero if the fence is closed.
    until: AtomicU64,
    /// Whether the fence is draining: running delivery attempts may end, but no new one may begin.
    is_draining: AtomicBool,
    /// Wakes running attempts when [`SendFence::set`] moves the end of the fence to an earlier time.
    is_shortened: Notify,
}

impl SendFence {
    /// Lets sinks send until the time `until` since boot. `None` closes the fence, so that nothing may be sent.
    pub fn set(&self, until: Option<Duration>) {
        let nanos = until.map_or(0, |until| u64::try_from(until.as_nanos()).unwrap_or(u64::MAX));
        if nanos < self.until.swap(nanos, SeqCst) {
            self.is_shortened.notify_waiters();
        }
    }

    /// Starts or stops draining. While draining, no attempt begins, and running attempts may end as long as the fence
    /// is open.
    pub fn set_draining(&self, is_draining: bool) {
        self.is_draining.store(is_draining, SeqCst);
    }

    /// Returns whether a delivery attempt may begin now: the fence is open and not draining.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.is_draining.load(SeqCst) && self.open_for().is_some()
    }

    /// Returns how long the fence stays open; `None` if it is closed.
    fn open_for(&self) -> Option<Duration> {
        let until = Duration::from_nanos(self.until.load(SeqCst));
        until.checked_sub(clock::since_boot()).filter(|left| !left.is_zero())
    }

    /// Runs an attempt to deliver while the fence is open. Returns `None` if the fence is closed, or closes before the
    /// attempt ends. The attempt is then abandoned, and the receiver may have accepted it.
    pub async fn within<F: Future>(&self, attempt: F) -> Option<F::Output> {
        let mut attempt = pin!(attempt);
        // After a suspension of the machine, the attempt may continue before a timer has noticed that the fence is closed.
        let mut attempt = poll_fn(move |cx| match self.open_for() {
            None => Poll::Ready(None),
            Some(_) => attempt.as_mut().poll(cx).map(Some),
        });
        loop {
            let mut is_shortened = pin!(self.is_shortened.notified());
            // Before the time is read, so that no change after that is missed.
            is_shortened.as_mut().enable();
            let left = self.open_for()?;
            tokio::select! {
                // Polled first, so that a process that was stopped meanwhile sends nothing more.
                biased;
                () = tokio::time::sleep(left.min(RECHECK)) => {}
                () = is_shortened => {}
                outcome = &mut attempt => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use super::*;

    fn soon(millis: u64) -> Duration {
        clock::since_boot() + Duration::from_millis(millis)
    }

    #[tokio::test]
    async fn attempt_runs_only_while_the_fence_is_open() {
        let fence = SendFence::default();
        assert_eq!(fence.within(async { 1 }).await, None, "closed from the start");
        fence.set(Some(soon(60_000)));
        assert_eq!(fence.within(async { 1 }).await, Some(1));
        fence.set_draining(true);
        assert!(!fence.is_open());
        assert_eq!(fence.within(async { 1 }).await, Some(1), "an attempt that has begun ends");
        fence.set_draining(false);
        assert!(fence.is_open());
        fence.set(None);
        assert_eq!(fence.within(async { 1 }).await, None);
    }

    #[tokio::test]
    async fn attempt_is_abandoned_at_once_when_the_lease_is_given_up() {
        let fence = Arc::new(SendFence::default());
        fence.set(Some(soon(3_600_000)));
        let mut attempt = pin!(fence.within(pending::<()>()));
        assert!(futures::poll!(attempt.as_mut()).is_pending());
        fence.set(None);
        assert_eq!(attempt.await, None);
    }

    /// Closes the fence without a notification, as if its time had passed during a suspension of the machine.
    fn suspend(fence: &SendFence) {
        fence.until.store(1, SeqCst);
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_sends_nothing_more_after_a_suspension() {
        let (fence, mut sent) = (SendFence::default(), false);
        fence.set(Some(soon(3_600_000)));
        let (answer, answered) = tokio::sync::oneshot::channel();
        {
            let mut attempt = pin!(fence.within(async {
                let _ = answered.await;
                sent = true;
            }));
            assert!(futures::poll!(attempt.as_mut()).is_pending());
            suspend(&fence);
            answer.send(()).unwrap();
            assert_eq!(attempt.await, None);
        }
        assert!(!sent);
        fence.set(Some(soon(3_600_000)));
        assert!(fence.is_open(), "the lease was acquired again");
        assert_eq!(fence.within(async { 1 }).await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_attempt_is_abandoned_soon_after_a_suspension() {
        let fence = SendFence::default();
        fence.set(Some(soon(3_600_000)));
        let mut attempt = pin!(fence.within(pending::<()>()));
        assert!(futures::poll!(attempt.as_mut()).is_pending());
        suspend(&fence);
        assert_eq!(tokio::time::timeout(2 * RECHECK, attempt).await, Ok(None));
    }

    #[tokio::test]
    async fn attempt_is_abandoned_when_the_fence_closes_and_not_when_it_is_extended() {
        let fence = Arc::new(SendFence::default());
        fence.set(Some(soon(50)));
        assert_eq!(fence.within(pending::<()>()).await, None);
        fence.set(Some(soon(50)));
        let (done, outcome) = tokio::sync::oneshot::channel();
        let attempt = tokio::spawn({
            let fence = Arc::clone(&fence);
            async move { fence.within(outcome).await }
        });
        fence.set(Some(soon(60_000)));
        tokio::time::sleep(Duration::from_millis(100)).await;
        done.send(7).unwrap();
        assert_eq!(attempt.await.unwrap(), Some(Ok(7)));
    }
}
