//! Progress of the leader's sinks, published in the lease for the standby replicas; in a fleet, of each sink in its own.
//!
//! At an interval, each sink is reconciled. The leader computes, per sink, cluster and resource, the version up to which
//! the receiver has acknowledged every change, and publishes it with the next renewal. A standby drops the events that
//! this covers. When it becomes leader, it delivers the others; some of them are repetitions with the same ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use futures::future::join_all;
use serde::{Deserialize, Serialize};

use super::elections::{ElectionSet, Group};
use super::readers::RunningSinks;
use crate::actors::messages::FindSubscription;
use crate::actors::sinks::sink::Sink;
use crate::actors::{AcceptedVersions, Env, RegistryActor, SubscriptionId};
#[cfg(feature = "fleet")]
use informer_hub_sink::resource_key;
use informer_hub_sink::{Coverage, SourceVersions};
#[cfg(feature = "fleet")]
use informer_hub_types::Gvr;
use informer_hub_types::clock::{self, Instant};

/// Time after which a process competes for the lease although it is not in step, e.g. since a cluster has no collector.
const PATIENCE: Duration = Duration::from_secs(30);

/// Published progress.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Delivered {
    /// Acknowledged versions by sink. Other fields of later versions are ignored.
    #[serde(default)]
    pub(super) sinks: BTreeMap<String, SourceVersions>,
    /// Process for which a lease was released, in a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

impl Delivered {
    /// Parses a note. One that cannot be read covers nothing, so a standby repeats more.
    pub(super) fn parse(note: &str) -> Self {
        serde_json::from_str(note).unwrap_or_default()
    }

    /// Returns the version of a resource up to which every change was delivered by all sinks that have delivered any;
    /// `None` if there is no such sink.
    #[cfg(feature = "fleet")]
    pub(super) fn version_of(&self, cluster: &str, resource: &Gvr) -> Option<u64> {
        let resource = resource_key(&resource.group, &resource.resource);
        self.sinks.values().filter_map(|clusters| clusters.get(cluster)?.get(&resource).copied()).min()
    }

    /// Formats it within the size limit: sinks and clusters that have no room are left out, the last ones first.
    fn note(&self, max_size: usize) -> (String, usize) {
        let next = self.next.clone();
        let (mut kept, mut left_out, mut size) = (Self { next, sinks: BTreeMap::new() }, 0, 128);
        for (sink, clusters) in &self.sinks {
            size += sink.len() + 8;
            for (cluster, versions) in clusters {
                let own: usize = versions.keys().map(|resource| resource.len() + 24).sum();
                if size + cluster.len() + 8 + own > max_size {
                    left_out += 1;
                    continue;
                }
                size += cluster.len() + 8 + own;
                kept.sinks.entry(sink.clone()).or_default().insert(cluster.clone(), versions.clone());
            }
        }
        (serde_json::to_string(&kept).unwrap_or_default(), left_out)
    }
}

/// Versions below everything undelivered.
fn acknowledged(accepted: SourceVersions, lowest: &SourceVersions) -> SourceVersions {
    let below = |cluster: &str, resource: &str, accepted: u64| match lowest.get(cluster).and_then(|of| of.get(resource))
    {
        Some(lowest) => accepted.min(lowest.saturating_sub(1)),
        None => accepted,
    };
    let of_cluster = |(cluster, versions): (String, BTreeMap<String, u64>)| {
        let versions = versions.into_iter().map(|(resource, accepted)| {
            let version = below(&cluster, &resource, accepted);
            (resource, version)
        });
        let versions = versions.collect();
        (cluster, versions)
    };
    accepted.into_iter().map(of_cluster).collect()
}

#[derive(Default)]
struct SinkProgress {
    subscriptions: AcceptedVersions,
    /// Last accepted versions. They stay true while a shutdown drains the sinks.
    accepted: SourceVersions,
}

/// Reconciles the sinks of a hub.
pub(super) struct Reconciler {
    elections: Arc<ElectionSet>,
    sinks: RunningSinks,
    env: Env,
    registry: Addr<RegistryActor>,
    progress: BTreeMap<String, SinkProgress>,
    has_warned: bool,
    began: Instant,
}

impl Reconciler {
    pub(super) fn new(
        elections: &Arc<ElectionSet>,
        sinks: &RunningSinks,
        env: &Env,
        registry: &Addr<RegistryActor>,
    ) -> Self {
        let (sinks, env, registry) = (Arc::clone(sinks), env.clone(), registry.clone());
        Self {
            elections: Arc::clone(elections),
            sinks,
            env,
            registry,
            progress: BTreeMap::new(),
            has_warned: false,
            began: clock::now(),
        }
    }

    /// Reconciles at an interval, and when this replica becomes leader or stops being it.
    pub(super) fn begin(self) -> Arc<tokio::sync::Mutex<Self>> {
        let (elections, io) = (Arc::clone(&self.elections), self.env.io.clone());
        let end = elections.end.clone();
        let reconciler = Arc::new(tokio::sync::Mutex::new(self));
        let running = Arc::clone(&reconciler);
        io.spawn(end.run_until_cancelled_owned(async move {
            loop {
                running.lock().await.reconcile().await;
                // Both a notification and a timeout lead to the next round.
                let _ = tokio::time::timeout(elections.reconcile_interval(), elections.changed.notified()).await;
            }
        }));
        reconciler
    }

    /// Reconciles each sink once, and has the leader of a lease publish what its sinks have delivered.
    pub(super) async fn reconcile(&mut self) {
        // First: a note from before the answer would be none.
        let is_read = self.elections.has_answered();
        let sinks = self.sinks_of_config();
        let names: BTreeSet<_> = sinks.iter().map(|(name, ..)| name.clone()).collect();
        self.elections.follow(&names);
        let groups = self.elections.groups(names);
        for (name, _, subscriptions) in &sinks {
            let found = join_all(subscriptions.iter().map(|id| self.registry.send(FindSubscription(*id)))).await;
            // An error means that the hub is shutting down.
            let Ok(found) = found.into_iter().collect::<Result<Vec<_>, _>>() else { continue };
            let found: Vec<_> = found.into_iter().flatten().collect();
            let progress = self.progress.entry(name.clone()).or_default();
            progress.accepted = progress.subscriptions.update(&self.env, &found);
        }
        let rounds = sinks.into_iter().map(|(name, sink, _)| {
            let acknowledged = groups.iter().find_map(|group| group.delivered.sinks.get(&name)).cloned();
            let accepted = self.progress.get(&name).map(|progress| progress.accepted.clone()).unwrap_or_default();
            let coverage = Coverage { acknowledged: acknowledged.unwrap_or_default(), accepted };
            let deadline = self.elections.reconcile_interval();
            // A sink whose actor is being restarted must not delay the others.
            async move { (name, tokio::time::timeout(deadline, sink.reconcile(coverage)).await.ok().flatten()) }
        });
        let lowest: BTreeMap<_, _> = join_all(rounds).await.into_iter().collect();
        self.progress.retain(|name, _| lowest.contains_key(name));
        let is_late = self.began.elapsed() >= PATIENCE;
        self.elections.contend(&groups, |group| is_late || is_read && self.is_in_step(group));
        for group in groups.into_iter().filter(|group| group.leads && !group.sinks.is_empty()) {
            self.publish(group, &lowest);
        }
        self.elections.balance();
    }

    /// Whether the sinks have accepted their events of everything that was delivered before, so that they have dropped
    /// those that are covered.
    fn is_in_step(&self, group: &Group) -> bool {
        let has_accepted = |(cluster, versions): (&String, &BTreeMap<String, u64>), accepted: &SourceVersions| {
            let accepted = accepted.get(cluster);
            versions.keys().all(|resource| accepted.is_some_and(|accepted| accepted.contains_key(resource)))
        };
        group.sinks.iter().filter_map(|name| Some((name, self.progress.get(name)?))).all(|(name, progress)| {
            let mut before = group.delivered.sinks.get(name).into_iter().flatten();
            before.all(|one| has_accepted(one, &progress.accepted))
        })
    }

    /// Publishes what the sinks of a lease have delivered. If it is handed over, releases it with that.
    fn publish(&mut self, group: Group, lowest: &BTreeMap<String, Option<SourceVersions>>) {
        let Group { shared, mut delivered, sinks, .. } = group;
        delivered.sinks.retain(|name, _| sinks.contains(name));
        for name in &sinks {
            // The last progress stays true.
            let (Some(Some(lowest)), Some(progress)) = (lowest.get(name), self.progress.get(name)) else { continue };
            delivered.sinks.insert(name.clone(), acknowledged(progress.accepted.clone(), lowest));
        }
        delivered.next = shared.advance_handover();
        let (note, left_out) = delivered.note(shared.max_note);
        if left_out > 0 && !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                left_out,
                "the Lease has no room for the progress of all clusters; after a takeover, their last events are repeated"
            );
        }
        shared.publish(&note);
        if delivered.next.is_some() {
            shared.release();
        }
    }

    /// Returns the sinks of the configuration. Durable subscriptions deliver within this process, whatever its role.
    fn sinks_of_config(&self) -> Vec<(String, Sink, Vec<SubscriptionId>)> {
        let sinks = self.sinks.lock();
        let configured = sinks.iter().filter(|one| one.files.is_some());
        configured
            .map(|one| {
                let subscriptions = one.followed.values().map(|(_, id)| *id).collect();
                (one.name().to_owned(), one.sink().clone(), subscriptions)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(entries: &[(&str, &str, u64)]) -> SourceVersions {
        let mut all = SourceVersions::new();
        for (cluster, resource, version) in entries {
            all.entry((*cluster).to_owned()).or_default().insert((*resource).to_owned(), *version);
        }
        all
    }

    #[test]
    fn acknowledged_versions_are_below_everything_undelivered() {
        let accepted = versions(&[("a", "pods.", 9), ("a", "nodes.", 7), ("b", "pods.", 5)]);
        let lowest = versions(&[("a", "pods.", 8), ("b", "pods.", 6), ("c", "pods.", 1)]);
        let expected = versions(&[("a", "pods.", 7), ("a", "nodes.", 7), ("b", "pods.", 5)]);
        assert_eq!(acknowledged(accepted.clone(), &lowest), expected);
        assert_eq!(acknowledged(accepted.clone(), &SourceVersions::new()), accepted);
        let unknown = versions(&[("a", "nodes.", 0)]);
        assert_eq!(acknowledged(accepted, &unknown)["a"]["nodes."], 0);
    }

    #[test]
    fn note_is_read_back_and_another_text_covers_nothing() {
        let sinks = BTreeMap::from([("audit".to_owned(), versions(&[("a", "pods.", 9)]))]);
        let delivered = Delivered { sinks, ..Delivered::default() };
        let (note, left_out) = delivered.note(128 << 10);
        assert_eq!((Delivered::parse(&note), left_out), (delivered, 0));
        for text in ["", "{", "[]", r#"{"sinks":3}"#, r#"{"later":1}"#] {
            assert_eq!(Delivered::parse(text), Delivered::default(), "{text}");
        }
    }

    #[cfg(feature = "fleet")]
    #[test]
    fn resource_was_delivered_up_to_the_version_of_the_slowest_sink() {
        let sinks = [("a", versions(&[("x", "pods.", 9), ("y", "pods.", 4)])), ("b", versions(&[("x", "pods.", 7)]))];
        let delivered =
            Delivered { sinks: sinks.map(|(name, all)| (name.to_owned(), all)).into(), ..Delivered::default() };
        let of = |cluster, resource| delivered.version_of(cluster, &Gvr::new("", "v1", resource));
        assert_eq!(
            [of("x", "pods"), of("y", "pods"), of("z", "pods"), of("x", "nodes")],
            [Some(7), Some(4), None, None]
        );
    }

    #[test]
    fn note_stays_within_its_limit() {
        let mut sinks = BTreeMap::new();
        for sink in ["first", "second"] {
            let all: Vec<_> = (0..1000).map(|cluster| format!("cluster-{cluster:04}")).collect();
            let entries: Vec<_> =
                all.iter().flat_map(|name| [(&**name, "pods.", u64::MAX), (&**name, "b.c", 1)]).collect();
            sinks.insert(sink.to_owned(), versions(&entries));
        }
        let delivered = Delivered { sinks, ..Delivered::default() };
        let max = 128 << 10;
        let (note, left_out) = delivered.note(max);
        assert!(note.len() <= max && note.len() > max / 2, "{}", note.len());
        let kept = Delivered::parse(&note);
        assert_eq!(left_out + kept.sinks.values().map(BTreeMap::len).sum::<usize>(), 2000);
        assert_eq!(kept.sinks["first"]["cluster-0000"], delivered.sinks["first"]["cluster-0000"]);
    }
}
