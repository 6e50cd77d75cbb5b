//! Counter of a sink's running delivery attempts, which may outlive the actor and the parameters that began them.
//!
//! After a restart or a reload, the outcome of an earlier attempt is ignored, but the receiver may still accept its
//! batch. If a new attempt ran meanwhile, the receiver could accept a newer state of an object before an older one. New
//! attempts therefore wait until the earlier ones have ended. Each attempt has its own timeout. Earlier attempts that
//! run for longer than [`PATIENCE`] are aborted.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Maximum time that new attempts wait for earlier ones. Then the earlier ones are aborted.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counter of a sink's running attempts to deliver. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct RunningAttempts(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    count: watch::Sender<usize>,
    /// Token whose cancellation aborts all attempts that have begun so far. Later attempts get a new token.
    abort: Mutex<CancellationToken>,
}

/// An attempt that counts as running until it is dropped.
#[derive(Debug)]
struct Counted(RunningAttempts);

impl Counted {
    fn new(attempts: RunningAttempts) -> Self {
        attempts.0.count.send_modify(|count| *count += 1);
        Self(attempts)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.count.send_modify(|count| *count -= 1);
    }
}

impl RunningAttempts {
    /// Counts an attempt as running, from this call until the returned future has ended or is dropped. The future
    /// returns `None` if the attempt is aborted.
    pub(super) fn run<F: Future>(&self, attempt: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        let (counted, abort) = (Counted::new(self.clone()), self.0.abort.lock().clone());
        async move {
            let _counted = counted;
            abort.run_until_cancelled(attempt).await
        }
    }

    /// Returns whether any attempt is running.
    pub(super) fn any(&self) -> bool {
        *self.0.count.borrow() > 0
    }

    /// Waits until all attempts have ended, and aborts those that take longer than [`PATIENCE`]. No attempt may begin
    /// meanwhile.
    pub(super) async fn ended(self) {
        let mut count = self.0.count.subscribe();
        if tokio::time::timeout(PATIENCE, count.wait_for(|count| *count == 0)).await.is_err() {
            std::mem::take(&mut *self.0.abort.lock()).cancel();
            // Cannot fail, because `self` owns the sender.
            let _ = count.wait_for(|count| *count == 0).await;
        }
    }
}
