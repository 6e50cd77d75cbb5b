//! The state directory: data that the hub keeps across restarts.
//!
//! ```text
//! LOCK        locked by the process that uses the directory, contains its process ID
//! FORMAT      "informer-hub state 1"
//! caches/     the last known state of each resource
//! sinks/      the journal and the dead letters of each reader (sink or durable subscriber)
//! fleet.json  clusters found by cluster sources, without their credentials
//! names.json  the resources that short names were resolved to
//! ```
//!
//! The file formats are in `docs/state.md`.

pub mod caches;
mod dir;
mod error;
mod lock;
mod locked_dir;
mod report;
pub mod short_names;
pub mod sourced_clusters;

pub use dir::{Access, StateDir};
pub use error::StateError;
pub use report::{ReaderReport, StateReport, inspect};
