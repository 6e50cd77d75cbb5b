//! Workers over a queue: the loop that every controller has, with what is easily forgotten in it.

use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Key, Work, WorkQueue};

impl<T: Key> WorkQueue<T> {
    /// Has `workers` tasks work on keys until `stop` is cancelled, or the queue is shut down and empty.
    ///
    /// `work` gets each key as [`Work`] and says by it what has become of it. If it panics, the key is tried again after
    /// the limiter's delay and the worker goes on with the next: a key that always panics costs its own tries and nothing
    /// else.
    ///
    /// At `stop`, what is in hand is finished, and what is in line is left there: the next start reads everything anew,
    /// so nothing is gained by doing it now. The queue is shut down then, or handlers would go on filling it. Who wants
    /// the line worked off calls [`WorkQueue::shut_down`] or [`WorkQueue::shut_down_with_drain`] instead.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the workers; what they have in hand is tried again if somebody else works on.
    ///
    /// # Examples
    /// ```
    /// # use std::num::NonZeroUsize;
    /// use informer_hub::workqueue::{Request, Work, WorkQueue};
    /// use tokio_util::sync::CancellationToken;
    ///
    /// # async fn reconcile(_: &Request) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn run(workers: NonZeroUsize, stop: CancellationToken) {
    ///     let queue = WorkQueue::per_cluster_at_most(NonZeroUsize::MIN);
    ///     let work = |work: Work<Request>| async move {
    ///         match reconcile(&work).await {
    ///             Ok(()) => work.succeed(),
    ///             Err(_) => work.retry(),
    ///         }
    ///     };
    ///     queue.run_workers(workers, &stop, work).await;
    /// }
    /// ```
    pub async fn run_workers<F, W>(&self, workers: NonZeroUsize, stop: &CancellationToken, work: F)
    where
        F: Fn(Work<T>) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let work = Arc::new(work);
        let mut tasks = JoinSet::new();
        for _ in 0..workers.get() {
            tasks.spawn(worker(self.clone(), stop.clone(), Arc::clone(&work)));
        }
        while tasks.join_next().await.is_some() {}
    }
}

async fn worker<T, F, W>(queue: WorkQueue<T>, stop: CancellationToken, work: Arc<F>)
where
    T: Key,
    F: Fn(Work<T>) -> W,
    W: Future<Output = ()>,
{
    loop {
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => return queue.shut_down(),
            next = queue.get() => next,
        };
        let Some(key) = next else { return };
        // Within the future, so that a panic in making the future of the work is one of the work.
        let done = AssertUnwindSafe(async { work(key).await }).catch_unwind().await;
        if done.is_err() {
            // Where, and with which words, the panic hook has told.
            tracing::error!("the work on a key panicked; it is tried again later");
        }
    }
}
