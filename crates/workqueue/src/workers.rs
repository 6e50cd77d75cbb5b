//! Worker loop over a queue, with panic isolation and graceful stop.

use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Key, Work, WorkQueue};

impl<T: Key> WorkQueue<T> {
    /// Runs `workers` tasks that process keys until `stop` is cancelled, or the queue is shut down and empty.
    ///
    /// `work` receives each key as [`Work`] and reports the result through it. If it panics, the key is retried after
    /// the limiter's delay and the worker continues with the next key.
    ///
    /// When `stop` is cancelled, keys in process are completed and queued keys stay queued, since the next start lists
    /// all objects anyway. The queue is shut down at that point, so that handlers stop filling it. To process the
    /// queued keys first, call [`WorkQueue::shut_down`] or [`WorkQueue::shut_down_with_drain`] instead.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the workers. Their keys return to the queue and are retried.
    ///
    /// # Examples
    /// ```
    /// # use std::num::NonZeroUsize;
    /// # mod informer_hub { pub use informer_hub_workqueue as workqueue; }
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
        // `work` is called inside the future, so that a panic while creating the work's future is caught too.
        let done = AssertUnwindSafe(async { work(key).await }).catch_unwind().await;
        if done.is_err() {
            // The panic hook has logged the location and message.
            tracing::error!("worker panicked; its key is retried after a delay");
        }
    }
}
