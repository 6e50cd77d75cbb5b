//! The state directory: what the hub keeps over restarts.
//!
//! ```text
//! LOCK        held by the process that uses it, its id in it
//! FORMAT      "informer-hub state 1"
//! caches/     what was last known of each resource
//! sinks/      the journal and the dead letters of each durable reader
//! fleet.json  which clusters sources have brought, without how they are reached
//! names.json  what short names have meant
//! ```
//!
//! `docs/state.md` has the formats.

pub mod caches;
mod dir;
pub mod fleet;
mod held;
pub mod names;
mod report;

pub use dir::{Access, StateDir, StateError};
pub use report::{ReaderReport, StateReport, inspect};
