//! Caches on disk: for each resource and view a snapshot of all its partitions, and what has changed since.
//!
//! Nothing is written per event. A checkpoint writes what differs from the last one, which costs in proportion to the
//! difference, since both states share what has not changed. Bodies are written as they lie in memory, packed with their
//! dictionary, and laid into chunks again without being looked at; so what a restart costs is hardly more than reading.
//!
//! The format and what damage does is in `docs/state.md`.

mod codec;
mod files;
mod inspect;
mod load;
mod moves;
mod names;
mod objects;
mod restore;
mod steps;
#[cfg(test)]
mod tests;
mod writer;

pub use codec::PartitionHeader;
pub use files::{CacheFiles, Commit, KEPT_UNWANTED, Returning, Stored, Wrote};
pub use inspect::{CacheReport, PartitionReport, inspect};
pub use moves::Moves;
pub use restore::{Claim, Loaded, LoadedCache, load};
