//! Those who wait for one thing that an actor will say once.

use futures::future::LocalBoxFuture;
use tokio::sync::oneshot;

/// Released all at once; also when the actor goes, however it goes.
#[derive(Debug, Default)]
pub(in crate::actors) struct Waiters(Vec<oneshot::Sender<()>>);

impl Waiters {
    /// One more, who waits until [`Self::release`].
    pub(in crate::actors) fn wait(&mut self) -> LocalBoxFuture<'static, ()> {
        let (released, waiting) = oneshot::channel();
        self.0.push(released);
        Box::pin(async move {
            // The sender's end is the signal: what is dropped with its actor releases too.
            let _ = waiting.await;
        })
    }

    /// Lets all of them go on.
    pub(in crate::actors) fn release(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn all_go_on_when_they_are_released_or_forgotten() {
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
