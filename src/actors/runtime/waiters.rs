//! Callers waiting for one event of an actor.

use futures::future::LocalBoxFuture;
use tokio::sync::oneshot;

/// Callers that wait for the same event. All wake at [`Self::release`], or when the actor that owns this value ends.
#[derive(Debug, Default)]
pub(in crate::actors) struct Waiters(Vec<oneshot::Sender<()>>);

impl Waiters {
    /// Returns a future that completes at [`Self::release`].
    pub(in crate::actors) fn wait(&mut self) -> LocalBoxFuture<'static, ()> {
        let (released, waiting) = oneshot::channel();
        self.0.push(released);
        Box::pin(async move {
            // The end of the sender is the signal, so dropping it wakes the waiter too.
            let _ = waiting.await;
        })
    }

    /// Wakes all waiters.
    pub(in crate::actors) fn release(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn waiters_wake_on_release_and_on_drop() {
        let mut waiters = Waiters::default();
        let (mut one, mut two) = (waiters.wait(), waiters.wait());
        assert!(one.as_mut().now_or_never().is_none() && two.as_mut().now_or_never().is_none());
        waiters.release();
        assert!(one.now_or_never().is_some() && two.now_or_never().is_some());
        let mut three = waiters.wait();
        assert!(three.as_mut().now_or_never().is_none());
        drop(waiters);
        assert!(three.now_or_never().is_some());
    }
}
