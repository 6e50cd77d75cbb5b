//! Connection to a fleet: observes it, and changes what its collectors do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::sleep;

use super::report::FleetReport;
use super::sharing::{Sharing, contended};
use super::view::FleetOverview;
use crate::app::sink_lease;
use crate::cli::print::show;
use informer_hub_config::HumanDuration;
use informer_hub_roles::{FleetRoster, LeaseHolder, Ownership, RosterEntry, RosterItem};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::printable;

/// Interval at which the fleet's list of processes is read.
const LOOK: Duration = Duration::from_millis(250);
/// Time after which a collector counts as down if it has not renewed its entry in the fleet's list of processes. A live
/// collector renews it about three times in this time.
const RENEWAL: Duration = Duration::from_secs(3);
/// Time after which a deliverer counts as down if it has not renewed its entry in the fleet's list of processes. A live
/// deliverer renews it about three times in this time.
const DELIVERER_RENEWAL: Duration = Duration::from_secs(6);
/// Time within which a collector claims a cluster without an owner: first the former owner's lease expires, then the
/// collector waits before it claims.
const CLAIM: Duration = Duration::from_secs(15);

/// Connection to a fleet: reads its state, pins clusters to collectors, and drains collectors.
pub(super) struct Fleet {
    pub(super) name: String,
    pub(super) roster: FleetRoster,
}

impl Fleet {
    /// Returns the collectors, clusters, deliverers and sinks of the fleet. Takes some seconds: observes collectors and
    /// deliverers until it is known which of them are alive.
    pub(super) async fn report(&self) -> anyhow::Result<FleetReport> {
        let (entries, live) = self.watch(renewal).await?;
        let overview = FleetOverview::new(&entries, &self.roster.owners().await?, &live);
        let sharing = Sharing::new(&entries, &live, &self.holders(contended(&entries)).await);
        Ok(FleetReport { overview, sharing })
    }

    /// Returns the holder of each sink's lease. If the leases cannot be read, all holders are unknown.
    async fn holders(&self, sinks: BTreeSet<String>) -> BTreeMap<String, LeaseHolder> {
        if sinks.is_empty() {
            return BTreeMap::new();
        }
        let leases: Vec<_> = sinks.iter().map(|sink| sink_lease(sink)).collect();
        let holders = self.roster.lease_holders(&leases).await;
        let holders = holders.unwrap_or_else(|error| vec![LeaseHolder::Unknown(error.to_string()); leases.len()]);
        sinks.into_iter().zip(holders).collect()
    }

    /// Returns the collectors and clusters of the fleet. Takes some seconds: observes the collectors until it is known
    /// which of them are alive.
    pub(super) async fn observe(&self) -> anyhow::Result<FleetOverview> {
        let (entries, live) =
            self.watch(|item| renewal(item).filter(|_| matches!(item, RosterItem::Member(_)))).await?;
        Ok(FleetOverview::new(&entries, &self.roster.owners().await?, &live))
    }

    /// Reads the roster (the fleet's list of processes) again and again, to see which entries are renewed. Waits for
    /// each entry at most for the time that `renewal` returns; for `None`, does not wait for it.
    ///
    /// Returns the entries as last read, and the keys of the renewed entries.
    async fn watch(
        &self,
        renewal: impl Fn(&RosterItem) -> Option<Duration>,
    ) -> anyhow::Result<(Vec<RosterEntry>, BTreeSet<String>)> {
        let begun = clock::now();
        let first = self.roster.entries().await?;
        let first: BTreeMap<_, _> = first.iter().map(|entry| (entry.item.key(), entry.revision)).collect();
        loop {
            sleep(LOOK).await;
            let entries = self.roster.entries().await?;
            let (mut live, mut is_complete) = (BTreeSet::new(), true);
            for entry in &entries {
                let Some(within) = renewal(&entry.item) else { continue };
                let key = entry.item.key();
                if first.get(&key) == Some(&entry.revision) {
                    is_complete &= begun.elapsed() >= within;
                } else {
                    live.insert(key);
                }
            }
            if is_complete {
                return Ok((entries, live));
            }
        }
    }

    /// Pins a cluster to a collector, and waits until that collector owns it.
    pub(super) async fn pin(&self, cluster: &str, collector: &str, timeout: Duration) -> anyhow::Result<()> {
        let mut view = self.observe().await?;
        view.ensure_receives(view.cluster(cluster)?, view.collector(collector)?)?;
        if view.cluster(cluster)?.owner.is_none() {
            view = self.claimed(cluster, timeout.min(CLAIM)).await?;
        }
        let (found, to) = (view.cluster(cluster)?, view.collector(collector)?);
        view.ensure_receives(found, to)?;
        self.roster.put(&RosterItem::Pin { shard: found.shard.clone(), collector: to.name.clone() }).await?;
        if found.owner.as_ref() == Some(&to.name) {
            return show(&format!("{cluster} stays on {}", to.name));
        }
        let problem = format!("{cluster} is pinned to {}, but has not moved", to.name);
        let deadline = Deadline::new(timeout, &problem);
        loop {
            let owners = self.roster.owners().await?;
            if owners.iter().any(|own| own.shard == found.shard && own.collector == to.name) {
                let from = found.owner.as_ref().map(|from| format!(" from {from}")).unwrap_or_default();
                return show(&format!("{cluster} has moved{from} to {}, and stays there", to.name));
            }
            deadline.wait().await?;
        }
    }

    /// Waits at most `limit` until a cluster has an owner, and returns the state of the fleet at that time.
    ///
    /// The caller needs the owner to know which collectors can take over the cluster: only collectors that are
    /// configured with the same clusters as the owner.
    async fn claimed(&self, cluster: &str, limit: Duration) -> anyhow::Result<FleetOverview> {
        let limited = HumanDuration(limit);
        note!("{} has no owner, waiting up to {limited} for a collector that claims it", printable(cluster));
        let begun = clock::now();
        loop {
            let view = self.observe().await?;
            if view.cluster(cluster)?.owner.is_some() {
                return Ok(view);
            }
            anyhow::ensure!(
                begun.elapsed() < limit,
                "no collector has claimed {cluster} within {limited}: the cluster is in the configuration file of no \
                 running collector; start a collector with such a file"
            );
        }
    }

    /// Ends the pin of a cluster.
    pub(super) async fn unpin(&self, cluster: &str) -> anyhow::Result<()> {
        let view = self.observe().await?;
        let found = view.cluster(cluster)?;
        let Some(collector) = found.pinned_to.clone() else {
            return show(&format!("{cluster} is not pinned"));
        };
        self.roster.remove(&RosterItem::Pin { shard: found.shard.clone(), collector }).await?;
        show(&format!("{cluster} is no longer pinned"))
    }

    /// Drains a collector. Waits until it owns no cluster and each of its former clusters has an owner.
    pub(super) async fn drain(&self, collector: &str, timeout: Duration) -> anyhow::Result<()> {
        let view = self.observe().await?;
        let from = view.collector(collector)?;
        if !view.collectors.iter().any(|other| other.receives_from(from)) {
            anyhow::bail!("fleet {} has no other live collector for the clusters of {}", self.name, from.name);
        }
        self.roster.put(&RosterItem::Drain(from.name.clone())).await?;
        let owned = view.clusters.iter().filter(|own| own.owner.as_ref() == Some(&from.name));
        let owned: BTreeSet<_> = owned.map(|own| own.shard.clone()).collect();
        let is_left =
            |own: &&Ownership| own.collector == from.name || (own.collector.is_empty() && owned.contains(&own.shard));
        let deadline = Deadline::new(timeout, &format!("{} is draining, but still has clusters", from.name));
        let mut last = None;
        loop {
            let owners = self.roster.owners().await?;
            let left = owners.iter().filter(is_left).map(|own| &own.shard.cluster).collect::<BTreeSet<_>>().len();
            if left == 0 {
                return show(&format!("{} is drained: it owns no cluster", from.name));
            }
            if last.replace(left) != Some(left) {
                note!("{}: {left} {} left", printable(&from.name), if left == 1 { "cluster" } else { "clusters" });
            }
            deadline.wait().await?;
        }
    }

    /// Ends the drain of a collector.
    pub(super) async fn end_drain(&self, collector: &str) -> anyhow::Result<()> {
        let view = self.observe().await?;
        let found = view.collector(collector)?;
        if !found.draining {
            return show(&format!("{} is not draining", found.name));
        }
        self.roster.remove(&RosterItem::Drain(found.name.clone())).await?;
        show(&format!("{} gets clusters again", found.name))
    }
}

/// Time at which a wait fails, and the text of its error.
struct Deadline {
    at: Instant,
    problem: String,
}

impl Deadline {
    fn new(timeout: Duration, problem: &str) -> Self {
        let problem = format!("{problem} after {}; see `informer-hub fleet status`", HumanDuration(timeout));
        Self { at: clock::now() + timeout, problem }
    }

    async fn wait(&self) -> anyhow::Result<()> {
        anyhow::ensure!(clock::now() < self.at, "{}", self.problem);
        sleep(LOOK).await;
        Ok(())
    }
}

/// Returns the time within which a live process renews this entry of the roster (the fleet's list of processes); `None`
/// for entries that no process renews, such as pins.
fn renewal(item: &RosterItem) -> Option<Duration> {
    match item {
        RosterItem::Member(_) => Some(RENEWAL),
        RosterItem::Deliverer(_) => Some(DELIVERER_RENEWAL),
        RosterItem::Drain(_) | RosterItem::Pin { .. } | RosterItem::Move(_) => None,
    }
}
