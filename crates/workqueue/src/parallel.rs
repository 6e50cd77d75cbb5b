//! Independent pieces of work, several at a time.

use std::num::NonZeroUsize;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// Does `pieces` pieces of work, `work(0)` to `work(pieces - 1)`, at most `workers` of them at a time, and says how many
/// have been done: all, unless `stop` was cancelled. What has begun by then is finished.
///
/// All pieces run on the caller's task, which suits those that wait for something; `work` may spawn what computes. A
/// panic in a piece is the caller's.
///
/// # Cancel safety
/// Dropping the future drops the pieces that have begun.
pub async fn parallelize_until<F, W>(stop: &CancellationToken, workers: NonZeroUsize, pieces: usize, work: F) -> usize
where
    F: Fn(usize) -> W,
    W: Future<Output = ()>,
{
    let begun = futures::stream::iter(0..pieces).take_while(|_| std::future::ready(!stop.is_cancelled()));
    begun.map(work).buffer_unordered(workers.get()).fold(0, |done, ()| std::future::ready(done + 1)).await
}
