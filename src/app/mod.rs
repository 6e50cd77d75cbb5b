//! Composition root: builds a running hub from a configuration, reloads it and shuts it down.
//!
//! Apart from the command line, only this module selects the implementations of cluster connections and of sinks.

mod check;
#[cfg(feature = "fleet")]
mod collect;
#[cfg(feature = "cli")]
mod config_file;
mod convert;
mod credentials;
mod delivered;
mod deliverers;
mod durable;
mod election;
mod election_lifecycle;
mod election_state;
mod elections;
mod error;
mod exporter;
#[cfg(feature = "cli")]
mod fetch;
mod fleet_status;
mod host;
mod hub;
mod journal_readers;
mod lease_store;
#[cfg(feature = "cli")]
mod load;
#[cfg(feature = "cli")]
mod manager;
mod metrics;
#[cfg(feature = "cli")]
mod port;
#[cfg(feature = "cli")]
mod port_protection;
#[cfg(feature = "cli")]
mod read_api;
#[cfg(feature = "cli")]
mod reader_status;
mod ready;
mod reconciler;
mod reload;
mod report;
#[cfg(feature = "cli")]
mod reviews;
#[cfg(feature = "cli")]
mod run;
#[cfg(feature = "fleet")]
mod serving_replica;
mod sinks;
mod sources;
mod start;
mod state;
mod typed;

#[cfg(feature = "fleet")]
pub use collect::Collect;
#[cfg(all(feature = "cli", feature = "fleet"))]
pub(crate) use collect::nats_params;
pub(crate) use convert::access;
pub use convert::client;
pub use durable::DurableSubscription;
#[cfg(feature = "cli")]
pub(crate) use election::own_cluster;
pub use election::{ElectionStatus, Role};
#[cfg(all(feature = "cli", feature = "fleet"))]
pub(crate) use elections::sink_lease;
#[cfg(all(feature = "cli", not(feature = "fleet")))]
pub(crate) use error::WITHOUT_FLEET;
pub use error::{ReloadError, StartError};
pub use exporter::MetricsExporter;
pub use fleet_status::{FleetCluster, FleetStatus};
pub use hub::{Hub, MemoryLimitError, ShutdownReport};
#[cfg(feature = "cli")]
pub use load::{ConfigSource, load};
#[cfg(feature = "cli")]
pub(crate) use port::Port;
#[cfg(feature = "cli")]
pub(crate) use port_protection::{check_issuer, protection};
#[cfg(all(feature = "cli", feature = "internals"))]
pub use read_api::LocalReadApi;
#[cfg(feature = "cli")]
pub(crate) use read_api::StartedFleet;
pub use reload::{Changes, Difference, ReloadStatus, Reloader};
pub use report::{HubReport, Reporter, SinkReport};
#[cfg(feature = "cli")]
pub use run::{Ended, run};
#[cfg(feature = "fleet")]
pub use serving_replica::Serve;
pub use sources::{ClusterSourceState, ClusterSourceStatus};
pub(crate) use sources::{WatchedResource, management_cluster, read_folder, read_objects, watched_resources};
pub use start::HubBuilder;
pub use typed::{CacheClient, api_resource};
