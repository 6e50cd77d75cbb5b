//! Work queue for controllers of embedding programs: client-go's `util/workqueue` on tokio, fair across many clusters.
//!
//! Event handlers add keys, and workers get them and reconcile. A key identifies an object, not a change: a worker
//! reads the current state from a lister.
//!
//! # Contract
//!
//! - *No concurrent work on one key.* A key is never processed by two workers at once.
//! - *No duplicates.* A queued key is not added again. A key that is added while it is processed is queued again when
//!   that ends, so no change is missed.
//! - *Earliest delay wins.* A delayed key is queued once, at the earliest requested time.
//! - *Defined order.* Workers receive keys in the order of addition ([`Fifo`]), or lanes take turns ([`Lanes`],
//!   [`WorkQueue::per_cluster_at_most`]). With lanes, a cluster with a thousand queued keys delays another cluster's
//!   key by one key. The limit per lane keeps workers free when one cluster hangs.
//! - *No lost keys.* If a worker panics, is aborted or times out, its [`Work`] is dropped. The key then returns to the
//!   queue and is retried after the backoff. After a panic, [`WorkQueue::run_workers`] also keeps the worker running.
//! - *Shutdown drains.* No keys are added any more and delayed keys are dropped. Queued keys are still handed out, then
//!   [`WorkQueue::get`] returns `None`.
//!
//! The queue has no size limit. It holds each key at most once queued, once delayed and once in process. So it grows
//! with the number of objects, not of changes.
//!
//! # Differences from client-go
//!
//! - There is no timer task: one of the waiting workers sleeps until the next delayed key is due. So nothing outlives
//!   the queue, and a queue can be created and filled outside a runtime.
//! - Keys due at the same time are queued in the order of their requests.
//! - [`WorkQueue::done`] for a key that is not processed is ignored.
//! - [`WorkQueue::shut_down_with_drain`] also waits for queued keys. Workers keep running until no key can be queued
//!   again.
//! - Metrics are a plain value, [`WorkQueue::metrics`].
//!
//! # Jitter
//!
//! Like in client-go, the default limiter adds no jitter: its bucket spreads retries, and each cluster has its own
//! bucket in a fair queue. If many queues retry against one server, wrap the limiter in [`WithJitterRateLimiter`].
//!
//! # Examples
//! ```
//! # mod informer_hub { pub use informer_hub_workqueue as workqueue; }
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
mod get;
mod handle;
mod interleave;
mod limiters;
mod metrics;
mod order;
mod parallel;
mod queue;
mod rate_limiter;
mod request;
mod work;
mod workers;

#[cfg(test)]
mod tests;

use std::hash::Hash;

pub use bucket::BucketRateLimiter;
pub use handle::WorkQueue;
pub use limiters::{
    ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, MaxOfRateLimiter, PerLaneRateLimiter,
    WithJitterRateLimiter, WithMaxWaitRateLimiter, default_controller_rate_limiter,
};
pub use metrics::{Histogram, Metrics};
pub use order::{Fifo, Lanes, Order};
pub use parallel::parallelize_until;
pub use queue::{Queue, TakeResult};
pub use rate_limiter::RateLimiter;
pub use request::Request;
pub use work::Work;

/// Key of a work queue, cheap to clone. Implemented for every type with these bounds.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Key for T {}
