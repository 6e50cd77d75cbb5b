//! Actors: a thin asynchronous shell around the pure core, and their supervision.
//!
//! ```text
//! RegistryActor                     the informer factory
//! ├─ GovernorActor                  enforces the memory limit, if one is set
//! ├─ CheckpointActor                writes caches to disk, if there is a state directory
//! └─ ClusterActor                   one per cluster: connects, resolves resources
//!    ├─ DiscoveryActor              follows the resources that the cluster offers
//!    └─ InformerActor               one per (resource, scope): supervises, rest_for_one
//!       ├─ ProcessorActor  ◄── FifoActor ◄── ReflectorActor
//!       │      ├──► CacheActor      one per resource, over all clusters
//!       │      └──► ListenerActor … one per subscription ──► subscriber
//! ```
//!
//! Data flows from right to left, with one message in flight per edge; control flows down the tree. An actor knows its
//! neighbours only as message recipients.

pub(crate) mod cache;
mod checkpoint;
mod control;
mod env;
mod memory;
mod pipeline;
pub(crate) mod runtime;
pub(crate) mod sinks;
mod status;
mod subscribe;
#[cfg(test)]
mod tests;

/// Messages of the actors, and the types that they contain.
pub mod messages {
    pub use super::cache::messages::*;
    pub use super::cache::write_half::Lease;
    pub use super::control::messages::*;
    pub use super::pipeline::messages::*;
    pub use super::subscribe::requests::*;
    pub use super::subscribe::resource_request::{KnownResource, ResourceRequest};
    pub use super::subscribe::user::User;
}

pub use cache::actor::history::CacheReader;
pub use cache::actor::{CacheActor, CacheDirectory};
pub use cache::query_runner::PendingAnswer;
pub use checkpoint::restore_plan::RestorePlan;
pub use checkpoint::store::{CheckpointListener, CheckpointStore, Checkpoints, DeliveredVersions, StateStatus};
pub use control::registry::RegistryActor;
pub use control::system::{HubSystem, SeparateRegistry, SystemError};
pub use env::Env;
pub use memory::members::{Budget, InformerMemory, MemoryStatus};
pub use runtime::capacity::{self, Tuning};
pub use runtime::gauge::{Gauge, MemoryTuning, ProcessGauge};
pub use runtime::pressure::Pressure;
pub use runtime::supervision::ActorCount;
pub use runtime::thread_pools::ThreadPools;
pub(crate) use runtime::thread_pools::lower_priority;
pub use sinks::{durable, sink};
pub use status::accepted::AcceptedVersions;
#[cfg(test)]
pub(crate) use status::fleet_view::testing;
pub use status::fleet_view::{ClusterSeen, FleetView, InformerSeen, ListenerSeen};
pub use status::hub::{
    ClusterState, ClusterStatus, DiscoveryState, DiscoveryStatus, HubStatus, InformerStatus, ListenerStatus,
    PatternStatus,
};
pub use status::sync::{InformerSync, InformersOf, NotSynced, SyncScope, SyncView};
pub use subscribe::subscriber::Subscriber;
pub use subscribe::subscription::{Subscribe, Subscription};
pub use subscribe::user::{SubscriptionId, User};
pub use subscribe::watch_errors::WatchErrorHandler;
