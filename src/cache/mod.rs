//! The cache: the known objects of one resource in all clusters. Pure and synchronous; its actors are in `src/actors`
//! of the hub.
//!
//! # The contract
//!
//! - *Eventual consistency.* For each object, the states in the store are a subsequence, in order, of the states that
//!   the object had in its cluster. The last state arrives. No order is kept between objects.
//! - *Store first.* Notifications are derived from the effect of a batch on the store, after the store and its indices
//!   have been published with that batch. A reader that queries the cache after a notification sees the notified state
//!   or a newer one.
//! - *One snapshot per answer.* A reader loads a [`Snapshot`] and uses it for the whole answer. Writers never wait for
//!   readers, and readers never see half a batch.
//! - *Identity is the UID.* If an object is replaced by another one of the same name, it is deleted and added, never
//!   updated.
//! - *Tombstones.* An object that a complete list does not contain is deleted with its last known state. The deletion
//!   is marked as not observed.
//! - *A relist is one step.* A list after the first one is published in one snapshot when it is complete. Its
//!   notifications follow. Above a size limit, or under memory pressure, it is published in parts (`stage`).
//! - *No noise.* An object that a list repeats unchanged causes no change and no notification.
//! - *In order per listener.* A listener receives the changes of one object in order. If it falls behind, the queued
//!   changes of an object are merged into one, from the oldest `old` to the newest `new`. An object that was added and
//!   deleted in that time is left out. But an initial addition and its deletion are both kept, because the receiver may
//!   know the object from before.
//!
//! # Data flow
//!
//! [`DeltaFifo`] queues the changes from the reflector. [`Store::apply`] makes a new snapshot from a batch of them and
//! returns its effects ([`Applied`]). [`ListenerQueue`] turns effects into notifications for one subscriber.
//! [`Controller`] combines the first two on one thread. [`ResyncSchedule`] decides when objects are resynced.

mod applied;
mod builds;
mod candidates;
mod computed_indices;
mod controller;
mod delta_fifo;
mod filter;
mod history;
mod index_errors;
mod indexer;
mod indexers;
mod indices;
mod listener;
mod lister;
mod objects;
mod packing;
mod partitions;
mod path_values;
mod posting;
mod query;
mod reader;
mod record;
mod relist;
mod restore;
mod restored;
mod resync;
mod snapshot;
mod stage;
mod store;
mod training;
mod tree;
mod uncompressed;
mod values;
mod versions;
mod visible_ranges;

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;

pub use applied::{Applied, Outbox};
pub use builds::{BuildId, BuildStep, IndexBuild};
pub use controller::{Controller, ProcessError, Progress};
pub use delta_fifo::{DeltaFifo, Popped};
pub use filter::ObjectFilter;
pub use history::MADE_UP;
pub use history::{
    ChangeCause, ChangeKind, ClusterVersions, HistoryCursor, HistoryLimits, HistoryReader, HistoryScope,
    HistorySubscription, LocateError, PositionExpired, RecordedChange, SavedVersion,
};
pub use index_errors::{AddIndexersError, IndexError, IndexerConflict};
pub use indexer::{Indexer, ObjectError};
pub use indexers::{IndexFn, Indexers};
pub use listener::{InitialObjects, ListenerOptions, ListenerQueue};
pub use lister::{Lister, NamespaceLister, NotFound};
pub use packing::{Packing, Round, RoundOutcome};
pub use posting::{Location, PartitionId};
pub use query::ScanThread;
pub use query::{
    Answer, Bounds, Coverage, ExaminedParts, Fingerprint, Group, OWNER_INDEX, OwnerChain, OwnerChainError, OwnerRef,
    PinnedSnapshots, Plan, Position, Query, QueryError, Row, RunningQuery, Step, TokenKey, owner_chain, owner_index,
};
pub use reader::IndexReader;
pub use restore::{Gathering, SavedPartition};
pub use restored::Restored;
pub use resync::ResyncSchedule;
pub use snapshot::{DeclaredIndex, Partition, Snapshot};
pub use store::Store;
pub use uncompressed::{Uncompressed, pack_all};
pub use visible_ranges::{KeyRanges, is_in};
