//! Caches on disk: a snapshot of all partitions of each resource and view (the form of its objects, such as metadata
//! only), and changes since.
//!
//! Nothing is written per event. A checkpoint writes the changes since the last one. The saved and the present state
//! share unchanged parts in memory, so the cost is proportional to the changes. Bodies are written in their packed form
//! with their dictionary, and are restored without being decoded. A restart therefore costs little more than reading
//! the files.
//!
//! `files` writes checkpoints, and `restore` reads them; `actors/control/checkpoint` decides when to write.
//!
//! The format and the effects of damage are in `docs/state.md`.

mod claim;
mod codec;
mod file_name;
mod files;
mod frame_file;
mod inspect;
mod load;
mod moves;
mod objects;
mod plan_writer;
mod restore;
#[cfg(test)]
mod tests;

pub use claim::Claim;
pub use codec::PartitionHeader;
pub use files::{CacheFiles, CheckpointResult, Commit, PartitionLocation, ReaddedPartitions, UNUSED_RETENTION};
pub use inspect::{CacheReport, PartitionReport, inspect};
pub use moves::Moves;
pub use restore::{Loaded, LoadedCache, load};
