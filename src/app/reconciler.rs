//! Reconciles each sink with the delivery progress that is published in its lease.
//!
//! This is repeated at an interval. For each sink, cluster and resource, the leader computes the version up to which
//! the receiver has acknowledged every change. The leader publishes these versions with its next renewal of the lease.
//! A standby drops its events up to these versions. When a standby becomes leader, it delivers its remaining events.
//! Some of them repeat events of the former leader, with the same ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use futures::future::join_all;

use super::delivered::{acknowledged, keep_unread};
use super::elections::{ElectionSet, Group};
use super::journal_readers::RunningSinks;
use crate::actors::messages::FindSubscription;
use crate::actors::sinks::sink::Sink;
use crate::actors::{AcceptedVersions, Env, RegistryActor, Subscription, SubscriptionId};
use informer_hub_sink::{Coverage, SourceVersions};
use informer_hub_types::clock::{self, Instant};

/// Time after which a process competes for the lease although its sinks have not caught up with the published progress,
/// e.g. because a cluster has no collector.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a process keeps publishing the former leader's progress for a resource, while its own sinks have accepted
/// no events of the resource yet. After that time, the resource counts as removed.
const KEEPS_UNREAD: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct SinkProgress {
    subscriptions: AcceptedVersions,
    /// Resource versions up to which the sink last accepted events. No longer updated once the hub shuts down.
    accepted: SourceVersions,
    /// Resources, by cluster, of which the sink ever accepted events.
    read: BTreeMap<String, BTreeSet<String>>,
}

impl SinkProgress {
    fn update(&mut self, env: &Env, found: &[Arc<Subscription>], is_closing: impl Fn() -> bool) {
        let accepted = self.subscriptions.update(env, found);
        // Checked afterwards: informers that a shutdown has stopped meanwhile are missing in the result.
        if is_closing() {
            return;
        }
        self.accepted = accepted;
        for (cluster, versions) in &self.accepted {
            let unread = versions.keys().filter(|resource| !has_read(&self.read, cluster, resource)).cloned();
            let unread: Vec<_> = unread.collect();
            if !unread.is_empty() {
                self.read.entry(cluster.clone()).or_default().extend(unread);
            }
        }
    }

    /// Returns whether the progress that the former leader published for a resource can be dropped. It is kept while
    /// the progress of an informer of the resource is unknown, e.g. because it just started. If `waits` is set, it is
    /// also kept until the sink has accepted events of the resource.
    fn is_obsolete(&self, cluster: &str, resource: &str, waits: bool) -> bool {
        let is_expected = waits && !has_read(&self.read, cluster, resource);
        !is_expected && !self.subscriptions.is_unknown(cluster, resource)
    }
}

fn has_read(read: &BTreeMap<String, BTreeSet<String>>, cluster: &str, resource: &str) -> bool {
    read.get(cluster).is_some_and(|resources| resources.contains(resource))
}

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

    /// Reconciles the sinks with their leases at an interval, and when this replica becomes leader or stops being it.
    pub(super) fn begin(self) -> Arc<tokio::sync::Mutex<Self>> {
        let (elections, io) = (Arc::clone(&self.elections), self.env.io.clone());
        let end = elections.end.clone();
        let reconciler = Arc::new(tokio::sync::Mutex::new(self));
        let running = Arc::clone(&reconciler);
        io.spawn(end.run_until_cancelled_owned(async move {
            loop {
                running.lock().await.reconcile().await;
                // A notification and a timeout both lead to the next round.
                let _ = tokio::time::timeout(elections.reconcile_interval(), elections.changed.notified()).await;
            }
        }));
        reconciler
    }

    /// Reconciles each sink with its lease once, and has the leader of a lease publish what its sinks have delivered.
    pub(super) async fn reconcile(&mut self) {
        // Asked before `groups`, because the progress in the groups is empty until the store has answered.
        let is_read = self.elections.has_answered();
        let sinks = self.sinks_of_config();
        let names: BTreeSet<_> = sinks.iter().map(|(name, ..)| name.clone()).collect();
        self.elections.follow(&names);
        let groups = self.elections.groups(names);
        for (name, _, subscriptions) in &sinks {
            let found = join_all(subscriptions.iter().map(|id| self.registry.send(FindSubscription(*id)))).await;
            // An error means that the hub is shutting down; the last progress is kept.
            let Ok(found) = found.into_iter().collect::<Result<Vec<_>, _>>() else { continue };
            let found: Vec<_> = found.into_iter().flatten().collect();
            let progress = self.progress.entry(name.clone()).or_default();
            progress.update(&self.env, &found, || self.elections.is_closing());
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

    /// Returns whether the sinks of a lease have caught up with the former leader. Each sink must have accepted events
    /// of every resource for which the former leader published progress. The sinks have then also dropped the events
    /// that the former leader delivered.
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

    /// Publishes what the sinks of a lease have delivered. If the lease is being handed over, also releases it.
    fn publish(&mut self, group: Group, lowest: &BTreeMap<String, Option<SourceVersions>>) {
        let Group { shared, mut delivered, sinks, .. } = group;
        delivered.sinks.retain(|name, _| sinks.contains(name));
        for name in &sinks {
            // If a sink has no new progress, the published progress still holds.
            let (Some(Some(lowest)), Some(progress)) = (lowest.get(name), self.progress.get(name)) else { continue };
            let mut own = acknowledged(progress.accepted.clone(), lowest);
            let (earlier, waits) = (delivered.sinks.remove(name), self.began.elapsed() < KEEPS_UNREAD);
            keep_unread(&mut own, earlier.unwrap_or_default(), |cluster, resource| {
                !self.elections.is_closing() && progress.is_obsolete(cluster, resource, waits)
            });
            delivered.sinks.insert(name.clone(), own);
        }
        delivered.next = shared.advance_handover();
        let (note, left_out) = delivered.note(shared.max_note);
        if left_out > 0 && !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                left_out,
                "the Lease has no room for the delivery progress of some clusters; after a takeover, their last events \
                 are repeated"
            );
        }
        shared.publish(&note);
        if delivered.next.is_some() {
            shared.release();
        }
    }

    /// Returns the configured sinks. Durable subscriptions are left out: they deliver within this process in every
    /// role.
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

    #[test]
    fn earlier_progress_is_obsolete_once_it_is_replaced_or_its_resource_was_removed() {
        let read = |names: &[&str]| {
            let resources = names.iter().map(|name| (*name).to_owned()).collect();
            BTreeMap::from([("a".to_owned(), resources)])
        };
        let subscriptions = AcceptedVersions::unknown_of("a", "pods.");
        let progress = SinkProgress { subscriptions, read: read(&["pods.", "nodes."]), ..SinkProgress::default() };
        for (resource, waits, expected) in [
            ("nodes.", true, true),
            ("nodes.", false, true),
            ("jobs.batch", true, false),
            ("jobs.batch", false, true),
            ("pods.", true, false),
            ("pods.", false, false),
        ] {
            assert_eq!(progress.is_obsolete("a", resource, waits), expected, "{resource} {waits}");
        }
    }
}
