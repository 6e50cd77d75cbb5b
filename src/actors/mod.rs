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

/// Every message that reaches the actors from outside.
pub mod messages {
    pub use super::cache::messages::*;
    pub use super::cache::write_half::Lease;
    pub use super::control::messages::*;
    pub use super::pipeline::messages::*;
    pub use super::subscribe::requests::*;
    pub use super::subscribe::resource_request::{KnownResource, ResourceRequest};
    pub use super::subscribe::user::User;
}

pub use cache::actor::{CacheActor, CacheDirectory};
pub use cache::questions::Answering;
pub use checkpoint::keeper::{CheckpointListener, Checkpoints, Keeping, StateStatus, ToldVersions};
pub use checkpoint::restore_plan::RestorePlan;
pub use control::registry::{RegistryActor, RegistryError};
pub use control::system::{Apart, HubSystem, SystemError};
pub use env::Env;
pub use memory::budget::{Budget, InformerMemory, MemoryStatus};
pub use runtime::capacity::{self, Tuning};
pub use runtime::gauge::{Gauge, MemoryTuning, ProcessGauge};
pub use runtime::pressure::Pressure;
pub use runtime::supervision::Census;
pub use sinks::{durable, sink};
#[cfg(test)]
pub(crate) use status::fleet_view::testing;
pub use status::fleet_view::{ClusterSeen, FleetView, InformerSeen, ListenerSeen};
pub use status::hub::{
    ClusterState, ClusterStatus, HubStatus, InformerStatus, ListenerStatus, PatternStatus, SurveyState, SurveyStatus,
};
pub use status::sync::{Awaited, InformerSync, InformersOf, NotSynced, SyncView};
pub use subscribe::subscriber::Subscriber;
pub use subscribe::subscription::{Subscribe, Subscription};
pub use subscribe::user::{SubscriptionId, User};
pub use subscribe::watch_errors::WatchErrorHandler;
