//! The cache: what is known of one resource in all clusters. Pure and synchronous; its actors are in `crate::actors`.
//!
//! # The contract
//!
//! - *Eventual consistency.* For each object, the states that the store goes through are a subsequence of the states
//!   that the object really went through, in their order, and the last one arrives. No order is kept between objects.
//! - *Store first.* A notification is made from what a batch did to the store, after the store and its indices have
//!   been published with it. Whoever reads the store because of a notification finds that state or a newer one.
//! - *One snapshot per answer.* Readers take a [`Snapshot`] and read all of it; writers never wait for them and they
//!   never see half a batch.
//! - *Identity is the UID.* An object that was replaced by another of the same name is deleted and added, never
//!   updated.
//! - *Tombstones.* What a complete list does not name is deleted with the last state that was known, marked as a
//!   deletion that was not seen.
//! - *A relist is one step.* A list that is not the first is published when it is complete, in one snapshot, and its
//!   notifications follow. Beyond a bound, or while memory is short, it is published in parts (`stage`).
//! - *No noise.* What a list repeats unchanged changes nothing and notifies nobody.
//! - *In order per listener.* A listener is told of one object in the order in which it changed; when it is behind,
//!   it is told less, never something wrong: the oldest `old`, the newest `new`, and nothing at all of what came and
//!   went meanwhile.
//!
//! # The way through
//!
//! [`DeltaFifo`] takes what the reflector found out, [`Store::apply`] makes a new snapshot of a batch of it and says
//! what that did ([`Applied`]), [`ListenerQueue`] turns that into notifications for one subscriber.
//! [`Controller`] is the first two of them on one thread; [`ResyncSchedule`] says when objects are repeated.

mod builds;
mod controller;
mod delta_fifo;
mod filter;
mod indexer;
mod indexers;
mod indices;
mod listener;
mod lister;
mod objects;
mod packing;
mod path_values;
mod posting;
mod query;
mod reader;
mod restore;
mod resync;
mod snapshot;
mod stage;
mod store;
mod tree;
mod values;
mod young;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use builds::{BuildId, BuildStep, IndexBuild};
pub use controller::{Controller, ProcessError, Progress};
pub use delta_fifo::{DeltaFifo, Popped};
pub use filter::ObjectFilter;
pub use indexer::{Indexer, ObjectError};
pub use indexers::{AddIndexersError, IndexError, IndexFn, IndexerConflict, Indexers};
pub use listener::{InitialObjects, ListenerOptions, ListenerQueue};
pub use lister::{Lister, NamespaceLister, NotFound};
pub use packing::{Packing, Round, RoundOutcome};
pub use posting::{Location, PartitionId};
pub use query::{
    Answer, Bounds, Broken, Chain, Coverage, Fingerprint, Group, Held, Inquiry, Looks, OWNER_INDEX, OwnerRef, Plan,
    Position, Query, QueryError, Row, Step, TokenKey, owner_chain, owner_index,
};
pub use reader::IndexReader;
pub use restore::{Gathering, Restored, SavedPartition};
pub use resync::ResyncSchedule;
pub use snapshot::{DeclaredIndex, Outbox, Partition, Snapshot};
pub use store::{Applied, Store};
pub use young::{Young, pack_all};
