//! informer-hub: one process that watches many Kubernetes clusters so that nothing else has to.
//!
//! It keeps a compact, indexed copy of the objects people care about, answers questions across all clusters, and tells
//! subscribers (actors, closures, webhooks) of every change. The machinery is client-go's: reflectors, delta fifos,
//! processors, listeners, indexers, one shared informer per (cluster, resource, scope).
//!
//! ```text
//!  apiserver ─► source ─► reflector ─► fifo ─► processor ─► store + indices ─► listener ─► actor, closure, sink
//!               adapter   └──────────────── pure, synchronous core ─────────────────┘
//! ```
//!
//! # Layout
//! - [`types`]: names, keys, objects, notifications; nothing else's concern.
//! - [`reflector`], [`cache`]: the pure core.
//! - [`query`]: the language of questions to it.
//! - [`budget`]: who keeps less where memory is limited.
//! - [`workqueue`]: what controllers put keys into and workers take them out of.
//! - [`disk`]: what is asked of a disk, and how records lie on it.
//! - [`journal`]: a durable log for one reader.
//! - [`discovery`]: what a cluster offers, and what follows for what is watched.
//! - [`state`]: the directory where what is to survive is.
//! - [`dial`]: connections of a caller's own making, in place of TCP.
//! - [`source`], [`sink`]: adapters: a real cluster on one side, webhooks on the other.
//! - [`actors`]: the thin shell around the core, and its supervision.
//! - [`informers`]: client-go's ways in: factory, shared informers, event handlers.
//! - [`fleet`]: which clusters there are: of tables and of sources, and the formats of those.
//! - [`config`], [`telemetry`], [`api`], [`cli`], [`app`]: what makes a service of it.
//! - [`sim`]: simulated clusters for the demo, tests and benches.
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

// Tests of the tree of supervisors share a fleet with the tests of the whole hub, which see the crate from outside.
#[cfg(test)]
extern crate self as informer_hub;

// Compiles the Rust examples of the documents.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../docs/controllers.md")]
    struct Controllers;
}

pub mod actors;
pub mod api;
pub mod app;
pub mod budget;
pub mod cache;
pub mod cli;
pub mod discovery;
pub mod informers;
pub mod state;

pub use informer_hub_config as config;
pub use informer_hub_query as query;
pub use informer_hub_reflector as reflector;
pub use informer_hub_sink as sink;
pub use informer_hub_source as source;
pub use informer_hub_telemetry as telemetry;
pub use informer_hub_types as types;
pub use informer_hub_workqueue as workqueue;

pub use actors::{Subscribe, Subscriber, SubscriptionId};
pub use app::{CacheClient, Hub};
pub use cache::{Answer, Query};
pub use informer_hub_config::Config;
pub use informer_hub_types::ClusterSelector as Clusters;
pub use informer_hub_types::{Notification, Notifications, Object};
pub use informer_hub_workqueue::{Request, WorkQueue};
pub use informers::{SharedInformer, SharedInformerFactory};
