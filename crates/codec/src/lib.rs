//! From an apiserver's bytes to stored objects.
//!
//! [`ListSplitter`] finds the items of a list body and [`LineSplitter`] the lines of a watch, in pieces of any size.
//! [`Decoder`] turns each into a stored object or a watch event, in one pass. It applies the [`Projection`], reads labels
//! and index values, and runs the [`Transform`]. [`classify_status`] turns failed answers into a [`SourceError`].
//!
//! Everything here is synchronous and bounded in memory, and no input makes it panic. Packing of stored objects is in
//! `informer_hub_types`, next to [`StoredObject`](informer_hub_types::StoredObject).

mod decode;
mod error;
mod event;
mod lines;
mod list;
mod projection;
pub mod scan;
mod skim;
mod status;
mod transform;
mod trie;
mod walk;

pub use decode::{Decoded, Decoder, Next};
pub use error::{ErrorClass, SourceError};
pub use event::{Skipped, WatchItem};
pub use lines::{Line, LineSplitter};
pub use list::{ListSplitter, ListStep};
pub use projection::Projection;
pub use status::{bounded, classify_status};
pub use transform::Transform;

/// Largest object (or watch line) that is taken in: 16 MiB.
///
/// etcd refuses requests above 1.5 MiB by default and few raise that beyond 8 MiB, and JSON is at most about twice
/// as large as what etcd holds. What is larger comes from a server gone wrong, and is skipped and counted rather than
/// held in memory.
pub const MAX_OBJECT_BYTES: usize = 16 * 1024 * 1024;

/// What a buffer may keep for the next line; more is given back once the line that needed it is done.
const KEPT_CAPACITY: usize = 256 * 1024;
