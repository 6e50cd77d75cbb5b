//! Informers for many Kubernetes clusters in one process, as a library and a service.
//!
//! The hub keeps a compact, indexed cache of selected objects and answers queries across all clusters. It notifies
//! subscribers (actors, closures, webhooks) of every change. The architecture is client-go's: reflectors, delta fifos,
//! processors, listeners, indexers, and one shared informer per (cluster, resource, scope).
//!
//! ```text
//!  apiserver ─► source ─► reflector ─► fifo ─► processor ─► store + indices ─► listener ─► actor, closure, sink
//!               adapter   └──────────────── pure, synchronous core ─────────────────┘
//! ```
//!
//! # Layout
//! - [`Hub`], [`Config`]: start a hub, from a file or from code.
//! - [`informers`]: client-go compatible API: factory, shared informers, event handlers, listers.
//! - [`Subscribe`], [`messages`]: subscriptions by actor messages; [`durable`]: subscriptions with a journal.
//! - [`queries`], [`query`]: queries of the caches, and the query language.
//! - [`workqueue`]: the queue between event handlers and the workers of a controller.
//! - [`sink`], [`status`], [`types`], [`config`]: sinks, status types, plain data types, configuration.
//!
//! # Examples
//! Embedded in a program:
//!
//! ```no_run
//! use actix::prelude::*;
//! use informer_hub::{Clusters, Config, Hub, Notification, Notifications, Query, Subscribe};
//! use k8s_openapi::api::core::v1::Pod;
//!
//! struct Watcher;
//!
//! impl Actor for Watcher {
//!     type Context = Context<Self>;
//! }
//!
//! impl Handler<Notifications<Pod>> for Watcher {
//!     type Result = ();
//!
//!     fn handle(&mut self, batch: Notifications<Pod>, _: &mut Self::Context) {
//!         for notification in batch.0 {
//!             match notification {
//!                 Notification::Added { object, initial } => println!("{object:?} (initial: {initial})"),
//!                 Notification::Updated { old, new, .. } => println!("{old:?} is now {new:?}"),
//!                 Notification::Deleted { object, tombstone } => println!("{object:?} is gone (unseen: {tombstone})"),
//!                 Notification::Synced(origin) => println!("{} has synced", origin.cluster),
//!             }
//!         }
//!     }
//! }
//!
//! # #[actix::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let addr = Watcher.start();
//! let hub = Hub::start(Config::from_file("hub.toml")?).await?;
//! hub.registry().send(Subscribe::to::<Pod>(Clusters::all(), addr.recipient::<Notifications<Pod>>())).await?;
//! let answer = hub.cache::<Pod>().send(Query::by_index("by-node", "n1").across_clusters()).await??;
//! for pod in &answer.items {
//!     println!("{} in {}: {:?}", pod.name(), pod.cluster(), pod.decode()?.status);
//! }
//! # Ok(()) }
//! ```

// Without the feature `internals`, modules are private, and items that only tests of this repository use appear unused.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unreachable_pub, unused_imports))]

// Lets code that the unit tests share with the integration tests refer to the crate by name.
#[cfg(test)]
extern crate self as informer_hub;

// Runs the Rust examples of the documentation as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../docs/controllers.md")]
    struct Controllers;
}

// These modules are public only for tests and benches of this repository. The public API is re-exported below.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod actors;
#[cfg(not(feature = "internals"))]
mod actors;
#[cfg(all(feature = "cli", feature = "internals"))]
#[doc(hidden)]
pub mod api;
#[cfg(all(feature = "cli", not(feature = "internals")))]
mod api;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod app;
#[cfg(not(feature = "internals"))]
mod app;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod budget;
#[cfg(not(feature = "internals"))]
mod budget;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use informer_hub_cache as cache;
#[cfg(not(feature = "internals"))]
use informer_hub_cache as cache;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod discovery;
#[cfg(not(feature = "internals"))]
mod discovery;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod state;
#[cfg(not(feature = "internals"))]
mod state;

pub mod informers;

pub mod config;
pub mod durable;
pub mod messages;
pub mod queries;
pub mod query;
pub mod sink;
pub mod status;
pub mod types;

pub use actors::{HubSystem, Subscribe, Subscriber, SubscriptionId, Tuning, WatchErrorHandler};
pub use app::{CacheClient, Hub, HubBuilder, MemoryLimitError, MetricsExporter, ShutdownReport, StartError};
pub use app::{Changes, Difference, ReloadError, Reloader};
pub use cache::{Answer, Lister, Query, Snapshot};
pub use informer_hub_config::Config;
pub use informer_hub_types::ClusterSelector as Clusters;
pub use informer_hub_types::{Notification, Notifications, Object};
pub use informer_hub_workqueue as workqueue;
pub use informer_hub_workqueue::{Request, WorkQueue};
pub use informers::{SharedInformer, SharedInformerFactory};
