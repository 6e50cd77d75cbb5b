//! Entry that says which collector owns a shard. `roles/collect/contender` claims, renews and releases it.

use informer_hub_types::Shard;

/// Entry of the bucket of owners: which collector owns a shard of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The shard of a cluster.
    pub shard: Shard,
    /// Name of the owner; empty if the last owner has released the shard.
    pub collector: String,
    /// Collector for which the last owner has released the shard; empty if any may claim it.
    pub next: String,
    /// Number of the owner's term. Each new owner gets a higher number. Collectors and readers of the log recognise
    /// entries of earlier owners by it.
    pub epoch: u64,
    /// Revision of the entry. It changes with each renewal, so an observer sees by its own clock that an owner is alive.
    pub revision: u64,
    /// Cost of watching the shard, from its numbers of objects and events, as its last owner measured it; zero if
    /// unknown.
    pub weight: u64,
}
