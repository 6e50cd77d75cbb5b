//! All cluster sources of a hub: last report and state of each, and the clusters that result from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::feed::{SourceFeed, SourceHost};
use super::folder;
use super::management::{self, WatchParams};
use super::status::{ClusterSourceState, ClusterSourceStatus, MAX_SHOWN};
use crate::state::sourced_clusters::SourcedCluster;
use informer_hub_config::inventory::{Conflict, FoundCluster, Holder, Roster, SourceReport, merge};
use informer_hub_config::{ClusterAccess, ClusterConfig, ClusterSourceConfig, ClusterSourceKind, Config};
use informer_hub_types::{ClusterName, Threads, WatchCell, Watcher, clock};

/// A configured cluster source, with or without a running watcher.
struct Entry {
    config: ClusterSourceConfig,
    /// Number of the source's watcher: reports of earlier watchers are ignored.
    generation: u64,
    report: Arc<SourceReport>,
    state: ClusterSourceState,
    last_error: Option<String>,
    last_read: Option<jiff::Timestamp>,
    /// Ends the watcher on drop; `None` before the watcher is started.
    watching: Option<DropGuard>,
}

pub(in crate::app) struct Sources {
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Clusters in force: from the configuration and from cluster sources.
    roster: Mutex<Arc<Roster>>,
    generations: Mutex<u64>,
    /// Clusters found by cluster sources, as last saved to disk for the next start.
    saved: Mutex<Vec<SourcedCluster>>,
    /// Notified when a cluster source may have reported for the first time.
    changed: WatchCell<()>,
    /// Ends the watchers of all cluster sources.
    end: CancellationToken,
}

impl Sources {
    /// Creates the sources of a configuration, without watchers. Folders are read; the other sources begin with the
    /// clusters saved before the restart.
    pub(in crate::app) async fn begin(
        configs: &[ClusterSourceConfig],
        remembered: Vec<SourcedCluster>,
        io: &Threads,
    ) -> Self {
        let mut entries = BTreeMap::new();
        for config in configs {
            let (report, state) = match &config.kind {
                ClusterSourceKind::Folder { path, contexts } => {
                    match folder::read_all(config.clone(), path.clone(), *contexts, io).await {
                        Some(report) => (report, ClusterSourceState::Current),
                        None => (remembered_report(config, &remembered), ClusterSourceState::Waiting),
                    }
                }
                _ => (remembered_report(config, &remembered), ClusterSourceState::Waiting),
            };
            let report = report.limited(config.max_clusters, &BTreeSet::new());
            entries.insert(config.name.clone(), Entry::new(config.clone(), report, state));
        }
        Self {
            entries: Mutex::new(entries),
            roster: Mutex::default(),
            generations: Mutex::new(0),
            saved: Mutex::new(remembered),
            changed: WatchCell::new(()),
            end: CancellationToken::new(),
        }
    }

    /// Returns the configuration with the clusters of its sources added, and the origin of each cluster.
    pub(in crate::app) fn effective(&self, written: &Config) -> (Config, Roster) {
        let entries = self.entries.lock();
        let configured =
            written.sources.iter().filter_map(|source| Some((source.name.clone(), entries.get(&source.name)?)));
        let found: BTreeMap<_, _> = configured.map(|(name, entry)| (name, entry.report.clusters.clone())).collect();
        let roster = merge(&written.clusters, &found);
        let mut config = written.clone();
        config.clusters.clone_from(&roster.clusters);
        (config, roster)
    }

    /// Stores the clusters that are now in force, and logs each new name conflict once.
    pub(in crate::app) fn in_force(&self, roster: Roster) {
        let before = std::mem::replace(&mut *self.roster.lock(), Arc::new(roster));
        let now = Arc::clone(&self.roster.lock());
        for Conflict { cluster, source, object, holder } in
            now.conflicts.iter().filter(|it| !before.conflicts.contains(it))
        {
            let holder = holder.of(cluster);
            tracing::warn!(
                source, object, %cluster, holder,
                "a cluster of a cluster source is not watched: another cluster has its name; rename one of them"
            );
        }
        self.changed.set(());
    }

    /// Starts and stops watchers so that exactly these cluster sources are watched. The watcher of an unchanged source
    /// goes on. A changed source gets a new watcher, and its clusters stay until the next report.
    pub(in crate::app) fn change(
        &self,
        configs: &[ClusterSourceConfig],
        host: &Weak<dyn SourceHost>,
        params: &WatchParams,
    ) {
        let mut entries = self.entries.lock();
        entries.retain(|name, _| configs.iter().any(|config| config.name == *name));
        for config in configs {
            let known = entries.get(&config.name);
            if known.is_some_and(|entry| entry.config == *config && entry.watching.is_some()) {
                continue;
            }
            // Problems are dropped: the new watcher reports them again.
            let clusters = known.map(|entry| entry.report.clusters.clone()).unwrap_or_default();
            let report = SourceReport { clusters, ..SourceReport::default() };
            let mut entry = Entry::new(config.clone(), report, ClusterSourceState::Waiting);
            let generation = {
                let mut generations = self.generations.lock();
                *generations += 1;
                *generations
            };
            let stop = self.end.child_token();
            let feed = SourceFeed { host: host.clone(), name: config.name.clone(), generation, stop: stop.clone() };
            (entry.generation, entry.watching) = (generation, Some(stop.drop_guard()));
            entries.insert(config.name.clone(), entry);
            let (config, io) = (config.clone(), &params.env.io);
            match config.kind.clone() {
                ClusterSourceKind::Folder { path, contexts } => {
                    io.spawn(folder::watch(config, path, contexts, feed, io.clone()));
                }
                _ => drop(io.spawn(management::watch(config, params.clone(), feed))),
            }
        }
    }

    /// Ends the watchers of all cluster sources, with their informers.
    pub(in crate::app) fn close(&self) {
        self.end.cancel();
    }

    /// Stores the report of a cluster source: its clusters and problems. If the feed belongs to a watcher that was
    /// replaced, ignores the report and returns false.
    pub(in crate::app) fn store(&self, feed: &SourceFeed, report: SourceReport) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&feed.name).filter(|entry| entry.generation == feed.generation) else {
            return false;
        };
        let before = Arc::clone(&entry.report);
        let report = report.keeping(&before).limited(entry.config.max_clusters, &before.names());
        for problem in report.problems.iter().filter(|problem| !before.problems.contains(problem)) {
            tracing::warn!(
                source = feed.name,
                object = problem.object,
                error = problem.problem,
                "cannot use an object of a cluster source as a cluster"
            );
        }
        if report.over > before.over {
            let (over, most) = (report.over, entry.config.max_clusters);
            tracing::warn!(
                source = feed.name,
                over,
                most,
                "a cluster source has more clusters than max_clusters allows; the others are not watched: raise \
                 max_clusters"
            );
        }
        entry.report = Arc::new(report);
        true
    }

    /// Stores the state of a cluster source for the status, and logs a change.
    pub(in crate::app) fn set_state(&self, feed: &SourceFeed, state: ClusterSourceState, error: Option<String>) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&feed.name).filter(|entry| entry.generation == feed.generation) else {
            return;
        };
        let was_waiting = entry.state == ClusterSourceState::Waiting;
        if entry.state != state {
            match (state, &error) {
                (ClusterSourceState::Current, _) if was_waiting => {}
                (ClusterSourceState::Current, _) => {
                    tracing::info!(source = feed.name, "the cluster source can be read again");
                }
                (ClusterSourceState::Waiting, _) => {}
                (_, error) => {
                    let (error, kept) = (error.as_deref().unwrap_or_default(), entry.report.clusters.len());
                    tracing::warn!(
                        source = feed.name,
                        state = state.as_str(),
                        error,
                        kept,
                        "cannot read the cluster source; its clusters stay as they were"
                    );
                }
            }
        }
        entry.state = state;
        entry.last_error = error;
        if state == ClusterSourceState::Current {
            entry.last_read = Some(clock::wall());
        }
        drop(entries);
        if was_waiting && state != ClusterSourceState::Waiting {
            self.changed.set(());
        }
    }

    /// Returns the status of all sources, by name.
    pub(in crate::app) fn status(&self) -> Vec<ClusterSourceStatus> {
        let roster = Arc::clone(&self.roster.lock());
        let entries = self.entries.lock();
        entries.values().map(|entry| entry.status(&roster)).collect()
    }

    /// Returns the source and the object that define a cluster; `None` for a cluster of the configuration.
    pub(in crate::app) fn origin(&self, cluster: &ClusterName) -> Option<(String, String)> {
        match self.roster.lock().sourced.get(cluster)? {
            Holder::Source { name, object } => Some((name.clone(), object.clone())),
            Holder::Table => None,
        }
    }

    /// Whether any cluster source has neither reported nor failed yet.
    pub(in crate::app) fn is_waiting(&self) -> bool {
        self.entries.lock().values().any(|entry| entry.state == ClusterSourceState::Waiting)
    }

    /// Returns a handle that is notified when the result of [`Self::is_waiting`] may have changed.
    pub(in crate::app) fn watch(&self) -> Watcher<()> {
        self.changed.subscribe()
    }

    /// Returns the clusters found by cluster sources if they differ from those on disk.
    pub(in crate::app) fn to_save(&self) -> Option<Vec<SourcedCluster>> {
        let roster = Arc::clone(&self.roster.lock());
        let of_source = |cluster: &ClusterConfig| match roster.sourced.get(&cluster.name)? {
            Holder::Source { name, object } => Some(SourcedCluster {
                name: cluster.name.clone(),
                labels: cluster.labels.clone(),
                source: name.clone(),
                object: object.clone(),
            }),
            Holder::Table => None,
        };
        let now: Vec<_> = roster.clusters.iter().filter_map(of_source).collect();
        (now != *self.saved.lock()).then_some(now)
    }

    /// Returns the clusters of sources as last saved to disk.
    pub(in crate::app) fn saved(&self) -> Vec<SourcedCluster> {
        self.saved.lock().clone()
    }

    /// Records that these clusters of sources are saved on disk.
    pub(in crate::app) fn note_saved(&self, clusters: Vec<SourcedCluster>) {
        *self.saved.lock() = clusters;
    }
}

impl Entry {
    fn new(config: ClusterSourceConfig, report: SourceReport, state: ClusterSourceState) -> Self {
        let report = Arc::new(report);
        Self { config, generation: 0, report, state, last_error: None, last_read: None, watching: None }
    }

    fn status(&self, roster: &Roster) -> ClusterSourceStatus {
        let Self { config, report, state, last_error, last_read, .. } = self;
        let conflicts: Vec<_> =
            roster.conflicts.iter().filter(|conflict| conflict.source == config.name).cloned().collect();
        ClusterSourceStatus {
            name: config.name.clone(),
            kind: config.kind.as_str(),
            state: *state,
            last_error: last_error.clone(),
            last_read: *last_read,
            clusters: roster.count(&config.name),
            conflicting: conflicts.len(),
            conflicts: conflicts.into_iter().take(MAX_SHOWN).collect(),
            invalid: report.problems.len(),
            problems: report.problems.iter().take(MAX_SHOWN).cloned().collect(),
            over: report.over,
            credentials: Vec::new(),
        }
    }
}

/// Returns the report of a source as saved before the restart: names and labels of its clusters. Their addresses and
/// credentials are not saved; they stay unknown until the source reports.
fn remembered_report(config: &ClusterSourceConfig, remembered: &[SourcedCluster]) -> SourceReport {
    let own = remembered.iter().filter(|cluster| cluster.source == config.name);
    let found = own.map(|one| {
        let mut cluster = ClusterConfig::new(one.name.clone(), ClusterAccess::awaited(&config.name));
        cluster.labels.clone_from(&one.labels);
        cluster.compression = config.compression;
        cluster.http = config.http;
        cluster.encoding = config.encoding;
        FoundCluster { cluster, object: one.object.clone() }
    });
    SourceReport { clusters: found.collect(), ..SourceReport::default() }
}
