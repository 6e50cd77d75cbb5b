//! The work queue: client-go's `util/workqueue` for controllers on tokio, fair over many clusters.
//!
//! Handlers put keys in, workers take them out and reconcile. A key stands for an object, never for a change: a worker
//! reads the present state from a lister.
//!
//! # The contract
//!
//! - *One at a time.* A key is never in the hands of two workers.
//! - *Each key once.* A key that waits is not added again. One that is added while it is worked on waits until that is
//!   done, and is then worked on again: no change is missed.
//! - *The earlier time counts.* A key that is to be added later is in line once, for the earliest of its times.
//! - *In order.* Keys are taken in the order in which they were added ([`Fifo`]), or so that lanes take turns
//!   ([`Lanes`], [`WorkQueue::per_cluster_at_most`]): a cluster with a thousand keys in line delays another's one key
//!   by one, and one that hangs leaves a worker to the others.
//! - *A worker that panics, is aborted or runs out of time holds nothing and loses nothing.* [`Work`] that is dropped
//!   without a word gives its key back and has it tried again, after the backoff. [`WorkQueue::run_workers`] also keeps
//!   the worker.
//! - *Shut down means drained.* Nothing is added any more, delayed keys are forgotten, what waits is handed out, then
//!   [`WorkQueue::get`] says `None`.
//!
//! The queue is not bounded by a number: it holds each key at most once in line, once delayed and once in a worker's
//! hands, so it grows with the objects it stands for and not with their changes.
//!
//! # Differences from client-go
//!
//! There is no timer task: a worker that waits keeps the time for all, so nothing outlives the queue, and a queue can be
//! made and fed outside a runtime. Keys that are due at the same time come in the order in which they were asked for.
//! [`WorkQueue::done`] of a key that nobody works on is ignored. [`WorkQueue::shut_down_with_drain`] also waits for the
//! keys that are still in line, and lets no worker go before those that will be in line again are done. Metrics are a value to be read, [`WorkQueue::metrics`].
//!
//! # Jitter
//!
//! The default limiter has none, as in client-go: its bucket already sets retries apart, and each cluster has a bucket
//! of its own in a fair queue. Where many queues retry against one server, wrap the limiter in
//! [`WithJitterRateLimiter`].
//!
//! # Examples
//! ```
//! use informer_hub::workqueue::{Request, Work, WorkQueue};
//!
//! # async fn reconcile(_: &Request) -> Result<(), std::io::Error> { Ok(()) }
//! async fn worker(queue: WorkQueue<Request>) {
//!     while let Some(work) = queue.get().await {
//!         match reconcile(&work).await {
//!             Ok(()) => work.succeed(),
//!             Err(_) => work.retry(),
//!         }
//!     }
//! }
//! ```

mod bucket;
mod delays;
mod handle;
mod interleave;
mod limiters;
mod metrics;
mod order;
mod parallel;
mod queue;
mod request;
mod work;
mod workers;

#[cfg(test)]
mod tests;

use std::hash::Hash;

pub use bucket::BucketRateLimiter;
pub use handle::WorkQueue;
pub use limiters::{
    ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, MaxOfRateLimiter, PerLaneRateLimiter, RateLimiter,
    WithJitterRateLimiter, WithMaxWaitRateLimiter, default_controller_rate_limiter,
};
pub use metrics::{Histogram, Metrics};
pub use order::{Fifo, Lanes, Order};
pub use parallel::parallelize_until;
pub use queue::{Queue, Take};
pub use request::Request;
pub use work::Work;

/// What a work queue can hold: a small name of the work, cheap to clone. Whatever fits is one.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Key for T {}
