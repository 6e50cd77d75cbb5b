//! Progress of the first lists of a hub, and the log line `ready` once they are complete.

use std::collections::BTreeMap;
use std::time::Duration;

use super::report::{HubReport, Reporter};
use crate::actors::ClusterState;
use informer_hub_types::{Phase, clock, first_names};

/// Interval at which the hub's state is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum delay of the log line `ready` after the hub is ready, while clusters are connecting or their informers are
/// starting. A hub can be ready before any cluster answers, because its objects may come from disk.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Fields of the log line `ready`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ready {
    informers: usize,
    /// Informers with an open watch.
    watching: usize,
    /// Informers that have a complete list of objects, from disk or an earlier watch, but no open watch.
    stale: usize,
    objects: u64,
    /// Clusters that do not answer.
    unreachable: Vec<String>,
    /// Clusters that have neither answered nor failed yet.
    connecting: Vec<String>,
    /// Number of informers by state, for the states that are not counted above.
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

    /// Whether further waiting is pointless: no cluster is connecting, and no reachable cluster has an informer that is
    /// starting.
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

/// Passes status reports to `progress` until the hub is ready and its clusters have connected or failed, then logs the
/// line `ready`.
pub(super) async fn watch_first_lists(reporter: Reporter, mut progress: impl FnMut(&HubReport)) {
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    let mut until = None;
    while let Ok(report) = reporter.report().await {
        progress(&report);
        if report.hub.ready {
            let until = *until.get_or_insert_with(|| clock::now() + MAX_WAIT);
            let ready = Ready::of(&report);
            if ready.is_settled(&report) || clock::now() >= until {
                return ready.log();
            }
        }
        tick.tick().await;
    }
}
