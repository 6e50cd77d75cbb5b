//! Running cluster sources: their watchers, their last reports, their status.
//!
//! A watcher reads its source and publishes a complete report ([`SourceFeed::publish`]). The hub applies the difference
//! to the clusters, one report at a time. A report stays in force until the next one. A source that cannot be read
//! publishes nothing, so its clusters stay.

mod feed;
mod folder;
mod management;
mod set;
mod status;

pub(super) use feed::{SourceFeed, SourceHost};
pub(crate) use folder::read_all as read_folder;
pub(super) use management::WatchParams;
pub(crate) use management::{Watching, cluster as management_cluster, read as read_objects, watched};
pub(super) use set::Sources;
pub use status::{ClusterSourceState, ClusterSourceStatus};

use super::reload::Running;
use crate::state::fleet::SourcedCluster;
use informer_hub_config::fleet::{Conflict, FoundCluster, Holder, Roster, SourceReport, merge};
use informer_hub_config::{ClusterAccess, ClusterConfig, ClusterSourceConfig, ClusterSourceKind, Config};
use informer_hub_types::{ClusterName, Threads, Watched, Watcher, clock};

/// A source, whether its watcher runs yet or not.
struct Entry {
    config: ClusterSourceConfig,
    /// Tells its watcher from an earlier one's, whose word counts no more.
    generation: u64,
    said: Arc<SourceReport>,
    state: ClusterSourceState,
    last_error: Option<String>,
    last_read: Option<jiff::Timestamp>,
    /// Ends the watcher when it goes; `None` before there is one.
    watching: Option<DropGuard>,
}

/// See the module.
pub(super) struct Sources {
    entries: Mutex<BTreeMap<String, Entry>>,
    /// As it is in force.
    roster: Mutex<Arc<Roster>>,
    generations: Mutex<u64>,
    /// What is on disk of what is to be remembered over a restart.
    kept: Mutex<Vec<SourcedCluster>>,
    /// Changes whenever one may have said something for the first time.
    heard: Watched<()>,
    /// Ends all watchers.
    end: CancellationToken,
}

/// What a watcher needs to be heard.
#[derive(Clone)]
pub(super) struct Ear {
    running: Weak<Running>,
    name: String,
    generation: u64,
    stop: CancellationToken,
}

impl Sources {
    /// The sources of a configuration before anybody watches them: folders are read, and of the others it is taken what is
    /// known from before a restart.
    pub(super) async fn begin(configs: &[ClusterSourceConfig], remembered: Vec<SourcedCluster>, io: &Threads) -> Self {
        let mut entries = BTreeMap::new();
        for config in configs {
            let (said, state) = match &config.kind {
                ClusterSourceKind::Folder { path, contexts } => {
                    match folder::read_all(config.clone(), path.clone(), *contexts, io).await {
                        Some(said) => (said, ClusterSourceState::Current),
                        None => (recalled(config, &remembered), ClusterSourceState::Waiting),
                    }
                }
                _ => (recalled(config, &remembered), ClusterSourceState::Waiting),
            };
            let said = said.limited(config.max_clusters, &BTreeSet::new());
            entries.insert(config.name.clone(), Entry::new(config.clone(), said, state));
        }
        Self {
            entries: Mutex::new(entries),
            roster: Mutex::default(),
            generations: Mutex::new(0),
            kept: Mutex::new(remembered),
            heard: Watched::new(()),
            end: CancellationToken::new(),
        }
    }

    /// What a configuration comes to with all that its sources say.
    pub(super) fn effective(&self, written: &Config) -> (Config, Roster) {
        let entries = self.entries.lock();
        let wanted =
            written.sources.iter().filter_map(|source| Some((source.name.clone(), entries.get(&source.name)?)));
        let said: BTreeMap<_, _> = wanted.map(|(name, entry)| (name, entry.said.clusters.clone())).collect();
        let roster = merge(&written.clusters, &said);
        (Config { clusters: roster.clusters.clone(), ..written.clone() }, roster)
    }

    /// This is in force now; conflicts that are new are told of, once each.
    pub(super) fn in_force(&self, roster: Roster) {
        let before = std::mem::replace(&mut *self.roster.lock(), Arc::new(roster));
        let now = Arc::clone(&self.roster.lock());
        for Conflict { cluster, source, object, holder } in
            now.conflicts.iter().filter(|it| !before.conflicts.contains(it))
        {
            let holder = holder.of(cluster);
            tracing::warn!(source, object, %cluster, holder, "a cluster of a source is not watched: another one has its name");
        }
        self.heard.set(());
    }

    /// Sees that each of these is watched as it is configured, and nothing else: one that is as it was is left alone, one
    /// that is another keeps what it has said until it says something else.
    pub(super) fn change(&self, configs: &[ClusterSourceConfig], running: &Arc<Running>) {
        let mut entries = self.entries.lock();
        entries.retain(|name, _| configs.iter().any(|config| config.name == *name));
        for config in configs {
            let known = entries.get(&config.name);
            if known.is_some_and(|entry| entry.config == *config && entry.watching.is_some()) {
                continue;
            }
            // What is wrong is told of anew, since the source is looked at anew.
            let clusters = known.map(|entry| entry.said.clusters.clone()).unwrap_or_default();
            let said = SourceReport { clusters, ..SourceReport::default() };
            let mut entry = Entry::new(config.clone(), said, ClusterSourceState::Waiting);
            let generation = {
                let mut generations = self.generations.lock();
                *generations += 1;
                *generations
            };
            let stop = self.end.child_token();
            let ear =
                Ear { running: Arc::downgrade(running), name: config.name.clone(), generation, stop: stop.clone() };
            (entry.generation, entry.watching) = (generation, Some(stop.drop_guard()));
            entries.insert(config.name.clone(), entry);
            let (config, place) = (config.clone(), management::Place::of(running));
            match config.kind.clone() {
                ClusterSourceKind::Folder { path, contexts } => {
                    let io = running.env.io.clone();
                    running.env.io.spawn(folder::watch(config, path, contexts, ear, io));
                }
                _ => drop(running.env.io.spawn(management::watch(config, place, ear))),
            }
        }
    }

    /// Ends all watchers. Their registries end by themselves then.
    pub(super) fn close(&self) {
        self.end.cancel();
    }

    /// Keeps what a source says, unless its watcher is not the one that is meant to.
    fn take(&self, ear: &Ear, said: SourceReport) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&ear.name).filter(|entry| entry.generation == ear.generation) else {
            return false;
        };
        let before = Arc::clone(&entry.said);
        let said = said.keeping(&before).limited(entry.config.max_clusters, &before.names());
        for problem in said.problems.iter().filter(|problem| !before.problems.contains(problem)) {
            tracing::warn!(
                source = ear.name,
                object = problem.object,
                error = problem.problem,
                "no cluster can be made of an object"
            );
        }
        if said.over > before.over {
            let (over, most) = (said.over, entry.config.max_clusters);
            tracing::warn!(source = ear.name, over, most, "a source brings more clusters than max_clusters allows");
        }
        entry.said = Arc::new(said);
        true
    }

    /// Shows how a source is doing.
    fn show(&self, ear: &Ear, state: ClusterSourceState, error: Option<String>) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&ear.name).filter(|entry| entry.generation == ear.generation) else { return };
        let was_waiting = entry.state == ClusterSourceState::Waiting;
        if entry.state != state {
            match (state, &error) {
                (ClusterSourceState::Current, _) if was_waiting => {}
                (ClusterSourceState::Current, _) => {
                    tracing::info!(source = ear.name, "the source of clusters can be looked at again");
                }
                (ClusterSourceState::Waiting, _) => {}
                (_, error) => {
                    let (error, kept) = (error.as_deref().unwrap_or_default(), entry.said.clusters.len());
                    tracing::warn!(
                        source = ear.name,
                        state = state.as_str(),
                        error,
                        kept,
                        "the source of clusters cannot be looked at; it keeps what it had"
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
            self.heard.set(());
        }
    }

    /// What is shown of all of them, by name.
    pub(super) fn status(&self) -> Vec<ClusterSourceStatus> {
        let roster = Arc::clone(&self.roster.lock());
        let entries = self.entries.lock();
        entries.values().map(|entry| status::of(entry, &roster)).collect()
    }

    /// Where a cluster comes from that no table has.
    pub(super) fn origin(&self, cluster: &ClusterName) -> Option<(String, String)> {
        match self.roster.lock().sourced.get(cluster)? {
            Holder::Source { name, object } => Some((name.clone(), object.clone())),
            Holder::Table => None,
        }
    }

    /// Whether one of them has yet to say what it brings, or why it cannot.
    pub(super) fn is_waiting(&self) -> bool {
        self.entries.lock().values().any(|entry| entry.state == ClusterSourceState::Waiting)
    }

    /// Changes when [`Self::is_waiting`] may have.
    pub(super) fn watch(&self) -> Watcher<()> {
        self.heard.subscribe()
    }

    /// What is to be kept over a restart, where it is another than what is.
    pub(super) fn to_keep(&self) -> Option<Vec<SourcedCluster>> {
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
        (now != *self.kept.lock()).then_some(now)
    }

    /// What is to be on disk, as far as it has been written.
    pub(super) fn kept(&self) -> Vec<SourcedCluster> {
        self.kept.lock().clone()
    }

    /// This is on disk now.
    pub(super) fn note_kept(&self, clusters: Vec<SourcedCluster>) {
        *self.kept.lock() = clusters;
    }
}

impl Entry {
    fn new(config: ClusterSourceConfig, said: SourceReport, state: ClusterSourceState) -> Self {
        let said = Arc::new(said);
        Self { config, generation: 0, said, state, last_error: None, last_read: None, watching: None }
    }
}

/// What a source said before a restart.
fn recalled(config: &ClusterSourceConfig, remembered: &[SourcedCluster]) -> SourceReport {
    let of_it = remembered.iter().filter(|cluster| cluster.source == config.name);
    let found = of_it.map(|one| FoundCluster {
        cluster: ClusterConfig {
            name: one.name.clone(),
            labels: one.labels.clone(),
            access: ClusterAccess::Awaited { source: config.name.clone() },
            compression: config.compression,
        },
        object: one.object.clone(),
    });
    SourceReport { clusters: found.collect(), ..SourceReport::default() }
}

impl Ear {
    /// Hands over all that a source says; whether its watcher is to go on.
    async fn hear(&self, said: SourceReport) -> bool {
        let Some(running) = self.running.upgrade() else { return false };
        if self.stop.is_cancelled() || !running.sources.take(self, said) {
            return false;
        }
        match running.apply_sources().await {
            Ok(()) => true,
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::new(error));
                tracing::error!(source = self.name, error, "what a source of clusters says is not applied");
                !self.stop.is_cancelled()
            }
        }
    }

    fn show(&self, state: ClusterSourceState, error: Option<String>) {
        if let Some(running) = self.running.upgrade() {
            running.sources.show(self, state, error);
        }
    }
}
