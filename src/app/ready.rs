//! The first lists of a hub: reported until they are complete, then one log line that says what is watched and what is not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::report::{HubReport, Reporter};
use crate::actors::ClusterState;
use informer_hub_types::{Phase, clock, first_names};

/// How often the hub is asked.
const LOOK: Duration = Duration::from_millis(200);

/// How long the line waits for clusters of which it is not yet known whether they can be reached, once the hub is ready: all
/// objects may have come from disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the line says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ready {
    informers: usize,
    /// Their watch is open.
    watching: usize,
    /// They have objects, from disk or from before their watch broke, and do not watch.
    stale: usize,
    objects: u64,
    /// Clusters that do not answer.
    unreachable: Vec<String>,
    /// Clusters of which it is not known whether they answer.
    connecting: Vec<String>,
    /// How many informers are in another state, by its name.
    others: BTreeMap<&'static str, usize>,
}

impl Ready {
    fn of(report: &HubReport) -> Self {
        let mut ready = Self::default();
        for cluster in &report.hub.clusters {
            match cluster.state {
                ClusterState::Unreachable => ready.unreachable.push(cluster.name.to_string()),
                ClusterState::Connecting => ready.connecting.push(cluster.name.to_string()),
                ClusterState::Connected | ClusterState::Degraded => {}
            }
            for informer in &cluster.informers {
                ready.informers += 1;
                ready.objects += informer.objects;
                match informer.state {
                    Phase::Watching => ready.watching += 1,
                    _ if informer.synced => ready.stale += 1,
                    other => *ready.others.entry(other.as_str()).or_default() += 1,
                }
            }
        }
        ready
    }

    /// Whether waiting would tell more: a cluster has yet to answer, or one that did has informers that are about to watch.
    fn is_settled(&self, report: &HubReport) -> bool {
        let is_reached = |state: ClusterState| matches!(state, ClusterState::Connected | ClusterState::Degraded);
        let reached = report.hub.clusters.iter().filter(|cluster| is_reached(cluster.state));
        let starting = |state: Phase| matches!(state, Phase::Pending | Phase::Listing | Phase::Stale);
        self.connecting.is_empty()
            && !reached.flat_map(|cluster| &cluster.informers).any(|informer| starting(informer.state))
    }

    fn log(&self) {
        let Self { informers, watching, stale, objects, unreachable, connecting, others } = self;
        let names = |names: &[String]| (!names.is_empty()).then(|| first_names(names));
        let others: Vec<_> = others.iter().map(|(state, count)| format!("{count} {state}")).collect();
        tracing::info!(
            informers,
            watching,
            stale,
            others = names(&others),
            objects,
            unreachable = names(unreachable),
            connecting = names(connecting),
            "ready"
        );
    }
}

/// Reports until the hub is ready, then logs what it is ready with.
pub(super) async fn watch_first_lists(reporter: Reporter, mut progress: impl FnMut(&HubReport)) {
    let mut tick = tokio::time::interval(LOOK);
    let mut until = None;
    while let Ok(report) = reporter.report().await {
        progress(&report);
        if report.hub.ready {
            let until = *until.get_or_insert_with(|| clock::now() + PATIENCE);
            let ready = Ready::of(&report);
            if ready.is_settled(&report) || clock::now() >= until {
                return ready.log();
            }
        }
        tick.tick().await;
    }
}
