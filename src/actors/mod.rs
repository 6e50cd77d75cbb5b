//! The actors: a thin shell around the pure core, and their supervision.
//!
//! ```text
//! RegistryActor                     the informer factory
//! ├─ GovernorActor                  keeps the memory limit, where there is one
//! ├─ CheckpointActor                keeps caches on disk, where there is a state directory
//! └─ ClusterActor                   one per cluster: connects, looks resources up
//!    ├─ DiscoveryActor              follows what the cluster offers, where that may change what is watched
//!    └─ InformerActor               one per (resource, scope): supervises, rest_for_one
//!       ├─ ProcessorActor  ◄── FifoActor ◄── ReflectorActor
//!       │      ├──► CacheActor      one per resource, over all clusters
//!       │      └──► ListenerActor … one per subscription ──► subscriber
//! ```
//!
//! Data goes from right to left, one message in flight on each edge; control goes down the tree. An actor knows its
//! neighbours as recipients of messages only.

mod answered;
mod cache;
pub mod capacity;
mod checkpoint;
mod cluster;
mod discovery;
pub mod durable;
mod env;
mod fifo;
mod fleet;
mod governor;
mod headroom;
mod inbox;
mod informer;
mod listener;
mod memory;
pub mod messages;
mod pressure;
mod processor;
mod questions;
mod reflector;
mod registry;
pub mod sink;
mod status;
mod subscriber;
mod subscription;
mod supervision;
mod sync;
mod system;
#[cfg(test)]
mod tests;
mod turns;
mod waiters;
mod wanted;
mod watch_errors;
mod wishes;
mod write_half;

pub use cache::{CacheActor, CacheDirectory};
pub use capacity::Tuning;
pub use checkpoint::{CheckpointListener, Checkpoints, Keeping, StateStatus, ToldVersions};
pub use env::Env;
#[cfg(test)]
pub(crate) use fleet::testing;
pub use fleet::{ClusterSeen, FleetView, InformerSeen, ListenerSeen};
pub use memory::{Budget, Gauge, InformerMemory, MemoryStatus, MemoryTuning, ProcessGauge};
pub use pressure::Pressure;
pub use questions::Answering;
pub use registry::{RegistryActor, RegistryError};
pub use status::{
    ClusterState, ClusterStatus, HubStatus, InformerStatus, ListenerStatus, PatternStatus, SurveyState, SurveyStatus,
};
pub use subscriber::Subscriber;
pub use subscription::{Subscribe, Subscription, SubscriptionId};
pub use supervision::Census;
pub use sync::{Awaited, InformerSync, InformersOf, NotSynced, SyncView};
pub use system::{Apart, HubSystem, SystemError};
pub use watch_errors::WatchErrorHandler;
pub use wishes::Wishes;
