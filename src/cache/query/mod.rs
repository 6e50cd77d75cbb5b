//! Query engine over the objects of one resource.
//!
//! A [`Query`] is a [`Question`](informer_hub_query::Question) plus clusters, informers and limits. `view` selects
//! informers, `plan` selects access paths, `condition` and `head` evaluate object heads. `running` runs a `job`: any
//! number of `worker`s process its `pieces` and share their `progress`. `gather` collects matches, and `answer` is the
//! result. `visible` has the part that the reader may see. `token` and `pinned` continue an answer on the same snapshot.

mod answer;
mod builder;
mod condition;
mod coverage;
mod error;
mod gather;
mod head;
mod index_rewrite;
mod job;
mod lookup;
mod memo;
mod owners;
mod pace;
mod pieces;
mod pinned;
mod plan;
mod progress;
mod running;
mod token;
mod view;
mod visible;
mod worker;

pub use answer::{Answer, Group, Row};
pub use builder::{Bounds, Query};
pub use coverage::Coverage;
pub use error::QueryError;
pub use owners::{OWNER_INDEX, OwnerChain, OwnerChainError, OwnerRef, owner_chain, owner_index};
pub use pace::ScanThread;
pub use pinned::PinnedSnapshots;
pub use plan::{ExaminedParts, Plan, Step};
pub use running::RunningQuery;
pub use token::{Fingerprint, Position, TokenKey};
