//! The composition root: from a configuration to a running hub, and its orderly end.
//!
//! The only place besides the command line that names concrete adapters.

mod convert;
mod hub;
mod load;
mod run;
mod sinks;
mod typed;

pub use convert::client;
pub use hub::{Hub, HubReport, MemoryLimitError, Reporter, ShutdownReport, SinkReport, StartError};
pub use load::load;
pub use run::{Ended, run};
pub use typed::{CacheClient, api_resource};
