//! Balance of a fleet: registers the collector in the roster, and hands over clusters that the assignment gives to
//! others.
//!
//! Each collector computes the assignment from the roster and the owners, and moves only its own clusters. During a
//! move it holds the token, a roster entry that only one collector holds at a time. So one cluster of the fleet moves
//! at a time.
//!
//! The token is no lock: if its holder is paused, another collector takes it, and two clusters may move at once. This
//! is safe, since each new owner of a cluster has a new epoch.
//!
//! # Contract
//! - A drain or a pin moves clusters immediately. A move for balance begins only after a quiet time of
//!   [`CollectorParams::lease`](super::CollectorParams::lease): the set of collectors has not changed, and every
//!   cluster has had an owner.
//! - If the collector that should receive the cluster does not claim it, any collector may claim it after the lease.
//!   The same move is not tried again for [`RETRY`].

mod choice;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use informer_hub_fleet::assign::{Move, MoveReason};
use informer_hub_fleet::roster::{Member, MoveInProgress, RosterItem};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ClusterLabels, ClusterName, Shard, rng};

use super::{Host, ShardOwner, Shared, Zone};
use crate::BackendError;
use crate::log_partition::fingerprint;
use choice::Moves;
use view::RosterView;

/// Time after which a move is tried again, if the collector that should receive the cluster did not claim it.
const RETRY: Duration = Duration::from_secs(60);
/// Maximum number of owners that are read at the same time.
const READS: usize = 32;
/// How often per renewal interval a collector that hands a cluster over checks whether the next owner has claimed it.
const LOOKS: u32 = 4;

/// Registers the collector and moves its clusters as planned, until the task is aborted.
pub(super) async fn run(shared: Arc<Shared>, host: Arc<dyn Host>) {
    // Shorter than the lease: when the clusters of a dead collector expire, the plan already has new collectors for
    // them.
    let patience = shared.params.lease.saturating_sub(shared.params.renewal * 2);
    let view = RosterView::new(patience);
    let mut balancer = Balancer { shared, host, view, calm: None, failed: BTreeMap::new() };
    loop {
        if let Err(error) = balancer.round().await {
            // Debug level, because the contenders report a failing backend to the operator.
            tracing::debug!(%error, "cannot balance the clusters among the collectors; retrying");
        }
        let renewal = balancer.shared.params.renewal;
        tokio::time::sleep(renewal.mul_f64(0.9 + 0.2 * rng::unit())).await;
    }
}

/// Removes the collector from the roster, when the process shuts down.
pub(super) async fn leave(shared: &Shared) {
    if let Err(error) = shared.backend.remove_roster(&member(shared)).await {
        tracing::debug!(%error, "cannot remove this collector from the roster; its entry expires");
    }
}

fn member(shared: &Shared) -> RosterItem {
    let Zone { name: zone, prefer } = shared.params.zone.clone().unwrap_or_default();
    let contends_for = contends_for(shared.ownerships.shards().keys());
    RosterItem::Member(Member { name: shared.params.name.clone(), zone, prefer, contends_for })
}

/// Returns a fingerprint of the shards that a collector contends for.
fn contends_for<'s>(shards: impl Iterator<Item = &'s Shard>) -> u64 {
    fingerprint(&[], shards.map(Shard::to_string))
}

struct Balancer {
    shared: Arc<Shared>,
    host: Arc<dyn Host>,
    view: RosterView,
    /// Since when every cluster has had a live owner; `None` while a cluster lacks one.
    calm: Option<Instant>,
    /// Time of each failed move, by shard and the collector that should have claimed the shard.
    failed: BTreeMap<(Shard, String), Instant>,
}

impl Balancer {
    async fn round(&mut self) -> Result<(), BackendError> {
        let shared = Arc::clone(&self.shared);
        shared.backend.put_roster(&member(&shared)).await?;
        let entries = shared.backend.roster().await?;
        for obsolete in self.view.observe(entries, clock::now()) {
            tracing::info!(
                item = obsolete.key(),
                "removing the entry of a collector that no longer runs from the list of collectors in NATS"
            );
            shared.backend.remove_roster(&obsolete).await?;
        }
        let found = self.moves(&shared.ownerships.shards());
        let is_calm = found.orphans.is_empty();
        *shared.orphans.lock() = found.orphans.clone();
        self.calm = if is_calm { Some(self.calm.unwrap_or_else(clock::now)) } else { None };
        self.failed.retain(|_, at| at.elapsed() < RETRY);
        match self.next(&found) {
            Some(next) if self.view.token.held.is_none() => self.begin(next).await,
            _ => Ok(()),
        }
    }

    fn moves(&self, owners: &BTreeMap<Shard, ShardOwner>) -> Moves {
        let labels: BTreeMap<ClusterName, ClusterLabels> =
            owners.keys().map(|shard| (shard.cluster.clone(), self.host.labels(&shard.cluster))).collect();
        choice::moves(&self.view, contends_for(owners.keys()), owners, &labels)
    }

    /// Returns the most urgent move of a cluster of this collector that may begin now; `None` if there is none.
    fn next(&self, found: &Moves) -> Option<Move> {
        let lease = self.shared.params.lease;
        let is_past = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() >= lease);
        let is_quiet = is_past(self.view.changed) && is_past(self.calm);
        let sessions = self.shared.sessions.lock();
        let is_settled =
            |shard: &Shard| sessions.get(shard).is_some_and(|session| is_quiet && session.began.elapsed() >= lease);
        let may_move = |next: &&Move| {
            let is_failed = self.failed.contains_key(&(next.shard.clone(), next.to.clone()));
            !is_failed && (next.reason != MoveReason::Balance || is_settled(&next.shard))
        };
        found.from(&self.shared.params.name).find(may_move).cloned()
    }

    /// Takes the roster's token, which allows one move at a time. Then moves a cluster if the plan from freshly read
    /// owners still requires it.
    async fn begin(&mut self, next: Move) -> Result<(), BackendError> {
        let shared = Arc::clone(&self.shared);
        let Move { shard, to, .. } = next;
        let held = RosterItem::Move(Some(MoveInProgress { shard, from: shared.params.name.clone(), to }));
        let Some(mut revision) = shared.backend.replace_roster(&held, self.view.token.revision).await? else {
            return Ok(());
        };
        let owners = self.fresh_owners().await;
        let next = owners.as_ref().ok().and_then(|owners| self.next(&self.moves(owners)));
        if let Some(next) = next {
            self.make(&held, next, &mut revision).await;
        }
        // If this fails, the token expires.
        shared.backend.replace_roster(&RosterItem::Move(None), Some(revision)).await?;
        owners.map(drop)
    }

    /// Reads the owner of every shard from the backend. The known owners may be outdated if another move has just
    /// ended.
    async fn fresh_owners(&self) -> Result<BTreeMap<Shard, ShardOwner>, BackendError> {
        let known = self.shared.ownerships.shards();
        let reading = known.into_iter().map(|(shard, owner)| async move {
            let found = self.shared.backend.owner(&shard).await?;
            let collector = found.map_or(String::new(), |found| found.collector);
            Ok((shard, ShardOwner { collector, ..owner }))
        });
        stream::iter(reading).buffered(READS).collect::<Vec<_>>().await.into_iter().collect()
    }

    /// Hands a cluster over, and waits until its receiver owns it, for at most three times the duration of a lease. If
    /// the receiver does not claim the cluster, records the move as failed.
    ///
    /// While it waits, it renews this collector's entry in the roster, and the token `held`, which allows one move at a
    /// time.
    async fn make(&mut self, held: &RosterItem, next: Move, revision: &mut u64) {
        let Move { shard, to, reason, .. } = next;
        let (shared, now) = (Arc::clone(&self.shared), clock::now());
        let Some(session) = shared.sessions.lock().get(&shard).cloned() else { return };
        tracing::info!(cluster = %shard, to, %reason, "moving the cluster to another collector");
        session.hand_over(&to);
        drop(session);
        let mut looks = 0;
        while now.elapsed() < shared.params.lease * 3 {
            tokio::time::sleep(shared.params.renewal / LOOKS).await;
            looks += 1;
            if looks % LOOKS == 0 {
                // Failures are ignored: the next renewal tries again.
                let _ = shared.backend.put_roster(&member(&shared)).await;
                if let Ok(Some(renewed)) = shared.backend.replace_roster(held, Some(*revision)).await {
                    *revision = renewed;
                }
            }
            let Ok(Some(owner)) = shared.backend.owner(&shard).await else { continue };
            if owner.collector == to {
                return;
            }
            if !owner.collector.is_empty() && owner.collector != shared.params.name {
                break;
            }
        }
        tracing::warn!(cluster = %shard, to, "the other collector has not claimed the cluster; trying again later");
        self.failed.insert((shard, to), clock::now());
    }
}
