//! Connection to a fleet: observes it, and changes what its collectors do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::sleep;

use super::view::FleetOverview;
use crate::cli::print::show;
use informer_hub_config::HumanDuration;
use informer_hub_roles::{FleetRoster, Ownership, RosterEntry, RosterItem};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::printable;

/// Interval of looks at the fleet.
const LOOK: Duration = Duration::from_millis(250);
/// Time within which a live collector renews its entry.
const RENEWAL: Duration = Duration::from_secs(3);
/// Time within which a collector claims a cluster of its file that has no owner: the lease of the former owner, and its own
/// delay.
const CLAIM: Duration = Duration::from_secs(15);

/// Fleet that the operator steers.
pub(super) struct Fleet {
    pub(super) name: String,
    pub(super) roster: FleetRoster,
}

impl Fleet {
    /// Observes the fleet until it is known which collectors are alive: these renew their entries.
    pub(super) async fn observe(&self) -> anyhow::Result<FleetOverview> {
        let begun = clock::now();
        let first = revisions(&self.roster.entries().await?);
        loop {
            sleep(LOOK).await;
            let entries = self.roster.entries().await?;
            let mut live = revisions(&entries);
            let all = live.len();
            live.retain(|name, revision| first.get(name) != Some(&*revision));
            if live.len() == all || begun.elapsed() >= RENEWAL {
                let live: BTreeSet<_> = live.into_keys().collect();
                return Ok(FleetOverview::new(&entries, &self.roster.owners().await?, &live));
            }
        }
    }

    /// Pins a cluster to a collector, and waits until that owns it.
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

    /// Waits until a cluster has an owner: that shows which collectors contend for it.
    async fn claimed(&self, cluster: &str, limit: Duration) -> anyhow::Result<FleetOverview> {
        let limited = HumanDuration(limit);
        eprintln!("{} has no owner, waiting up to {limited} for a collector that claims it", printable(cluster));
        let begun = clock::now();
        loop {
            let view = self.observe().await?;
            if view.cluster(cluster)?.owner.is_some() {
                return Ok(view);
            }
            anyhow::ensure!(
                begun.elapsed() < limit,
                "no collector has claimed {cluster} within {limited}: none that runs has the cluster in its file; start \
                 one that has"
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

    /// Drains a collector, and waits until it owns no cluster and each of its clusters has an owner.
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
        let deadline = Deadline::new(timeout, &format!("{} drains, but still has clusters", from.name));
        let mut last = None;
        loop {
            let left = self.roster.owners().await?.iter().filter(is_left).count();
            if left == 0 {
                return show(&format!("{} is drained: it owns no cluster", from.name));
            }
            if last.replace(left) != Some(left) {
                eprintln!("{}: {left} {} left", printable(&from.name), if left == 1 { "cluster" } else { "clusters" });
            }
            deadline.wait().await?;
        }
    }

    /// Ends the drain of a collector.
    pub(super) async fn end_drain(&self, collector: &str) -> anyhow::Result<()> {
        let view = self.observe().await?;
        let found = view.collector(collector)?;
        if !found.draining {
            return show(&format!("{} does not drain", found.name));
        }
        self.roster.remove(&RosterItem::Drain(found.name.clone())).await?;
        show(&format!("{} gets clusters again", found.name))
    }
}

/// End of a wait.
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

/// Returns the revisions of the entries of collectors, by name.
fn revisions(entries: &[RosterEntry]) -> BTreeMap<String, u64> {
    let of_member = |entry: &RosterEntry| match &entry.item {
        RosterItem::Member(member) => Some((member.name.clone(), entry.revision)),
        _ => None,
    };
    entries.iter().filter_map(of_member).collect()
}
