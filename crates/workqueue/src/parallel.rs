//! Parallel execution of independent pieces of work.

use std::num::NonZeroUsize;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// Runs `work(0)` to `work(pieces - 1)`, at most `workers` at a time, and returns how many were completed.
///
/// If `stop` is cancelled, no more calls of `work` start, and those that have started are completed.
///
/// All pieces run on the caller's task, which suits work that waits; `work` may spawn computations. A panic in a piece
/// propagates to the caller.
///
/// # Cancel safety
/// Dropping the future drops the pieces that have started.
pub async fn parallelize_until<F, W>(stop: &CancellationToken, workers: NonZeroUsize, pieces: usize, work: F) -> usize
where
    F: Fn(usize) -> W,
    W: Future<Output = ()>,
{
    let begun = futures::stream::iter(0..pieces).take_while(|_| std::future::ready(!stop.is_cancelled()));
    begun.map(work).buffer_unordered(workers.get()).fold(0, |done, ()| std::future::ready(done + 1)).await
}
