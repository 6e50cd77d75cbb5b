//! Decoders for answers of an apiserver: from the bytes of a list or watch to stored objects.
//!
//! [`ListSplitter`] finds the items of a list body and [`LineSplitter`] the lines of a watch, however the body is cut
//! into chunks. [`Decoder`] turns an item into a stored object and a line into a watch event, in one pass. It applies
//! the [`Projection`], reads labels and index values, and runs the [`Transform`]. [`classify_status`] turns a failed
//! answer into a [`SourceError`].
//!
//! Kubernetes protobuf has splitters of its own, [`ProtobufListSplitter`] and [`FrameSplitter`]. The stored object
//! keeps its protobuf bytes. When the object is read, the bytes are converted to the JSON that the apiserver would have
//! sent. So readers need not distinguish the two encodings.
//!
//! The crate is synchronous, its memory is bounded, and no input makes it panic. Compression of stored objects is in
//! `informer_hub_types`, next to [`StoredObject`](informer_hub_types::StoredObject).

mod decode;
mod envelope;
mod error;
mod event;
mod frames;
mod input;
mod lines;
mod list;
mod paths;
mod projection;
mod protobuf;
mod protobuf_list;
mod protobuf_state;
pub mod scan;
mod skim;
mod status;
mod transform;
mod trie;
mod walk;

pub use decode::{Decoded, Decoder, Next};
pub use error::{ErrorClass, SourceError};
pub use event::{Skipped, WatchItem};
pub use frames::{Frame, FrameSplitter};
pub use lines::{Line, LineSplitter};
pub use list::{ListSplitter, ListStep};
pub use projection::Projection;
pub use protobuf_list::ProtobufListSplitter;
pub use status::{bounded, classify_status};
pub use transform::Transform;

/// Default size limit of an object, a watch line or a watch frame: 16 MiB. A larger one is skipped and counted.
///
/// etcd refuses requests above 1.5 MiB by default, and few clusters raise that beyond 8 MiB. JSON is usually at most
/// twice as large as the protobuf that etcd stores.
pub const MAX_OBJECT_BYTES: usize = 16 * 1024 * 1024;

/// Capacity in bytes that a scratch buffer keeps for the next object or line; a larger one is freed.
const KEPT_CAPACITY: usize = 256 * 1024;
