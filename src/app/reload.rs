//! The configuration changes while the hub runs: exactly what differs is applied.
//!
//! A new configuration is checked whole before anything is touched; what cannot be used leaves the hub as it was. Then, in
//! this order: sinks that are gone deliver what they have and end; clusters and resources that are gone or are others end;
//! sinks that are others go on with all they have; what is new begins. Whatever is as it was is not touched: its informers
//! do not list again, and its readers are told nothing.
//!
//! A cluster that is reached in another way (address, credentials) keeps its informers and what they know: see
//! [`KubeConnector::change`].

mod plan;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use actix::{Addr, MailboxError};
use futures::future::join_all;
use parking_lot::Mutex;
use serde::Serialize;

pub use plan::{Changes, Difference};

use super::convert;
use super::credentials::CredentialWatch;
use super::readers::{Followed, Follower, Reader, files_of};
use super::report::{RunningSink, RunningSinks};
use super::sources::Sources;
use super::start::{Dials, StartError};
use super::state::OpenState;
use crate::actors::messages::{AddCluster, Release, RemoveCluster, SetClusterLabels, SetMemoryLimit, User};
use crate::actors::sinks::sink::{Drain, OpenStore};
use crate::actors::{Env, RegistryActor};
use informer_hub_config::{ClusterConfig, Config, ConfigErrors, Mistake};
use informer_hub_disk::FileStates;
use informer_hub_reflector::StallPolicy;
use informer_hub_source::KubeConnector;
use informer_hub_types::{ClusterName, clock, first_names};

/// Why a configuration is not applied, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It cannot be used; the hub is as it was.
    #[error(transparent)]
    Unusable(#[from] StartError),
    /// Files that it names could not be looked at; the hub is as it was.
    #[error("the configuration's files could not be read in time")]
    Unread,
    /// The hub is shutting down, perhaps with a part of it applied.
    #[error("the hub is shutting down")]
    Stopped,
}

impl From<MailboxError> for ReloadError {
    fn from(_: MailboxError) -> Self {
        Self::Stopped
    }
}

/// How the configuration came to be what it is.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadStatus {
    /// Since when it is what it is.
    pub since: Option<jiff::Timestamp>,
    /// How often it was changed since the start.
    pub reloads: u64,
    /// How often one could not be read or applied.
    pub failures: u64,
    /// Why the last one could not be applied; gone with the next that can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The mistakes of a configuration that could not be read, in the order of its lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Mistake>,
    /// Keys that are others in the file than in use, since they are read at the start alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs_restart: Vec<String>,
}

/// Changes a hub's configuration, from anywhere, for as long as the hub lives.
#[derive(Clone)]
pub struct Reloader(pub(super) Weak<Running>);

/// What a hub runs with, and what changing that needs.
pub(super) struct Running {
    pub(super) registry: Addr<RegistryActor>,
    pub(super) env: Env,
    pub(super) sinks: RunningSinks,
    pub(super) state: Option<OpenState>,
    pub(super) dials: Dials,
    pub(super) stall: StallPolicy,
    pub(super) status: Arc<Mutex<ReloadStatus>>,
    pub(super) sources: Arc<Sources>,
    pub(super) credentials: Arc<CredentialWatch>,
    connectors: Mutex<BTreeMap<ClusterName, KubeConnector>>,
    /// What was applied last; held while something is.
    current: tokio::sync::Mutex<Applied>,
    /// What it was at the start: keys that are read then alone.
    at_start: Config,
    closing: AtomicBool,
}

/// What is in force.
struct Applied {
    /// What the configuration says.
    written: Config,
    /// With the clusters that sources bring.
    effective: Config,
}

impl Reloader {
    /// Applies a configuration: what differs from the one in use. One at a time; others wait. Takes as long as sinks that
    /// go need to deliver what they have, `hub.shutdown_deadline` at most.
    ///
    /// # Errors
    /// [`ReloadError`]; also shown in the status.
    pub async fn reload(&self, config: Config) -> Result<Changes, ReloadError> {
        let running = self.0.upgrade().ok_or(ReloadError::Stopped)?;
        let result = running.reload(config).await;
        match &result {
            Ok(changes) => {
                let mut status = running.status.lock();
                status.last_error = None;
                status.mistakes.clear();
                status.needs_restart.clone_from(&changes.needs_restart);
                if !changes.is_empty() {
                    status.reloads += 1;
                    status.since = Some(clock::wall());
                }
            }
            Err(error) => running.status.lock().fail(error),
        }
        result
    }

    /// Shows in the status why a configuration could not even be read.
    pub fn note_error(&self, error: impl fmt::Display) {
        if let Some(running) = self.0.upgrade() {
            running.status.lock().fail(error);
        }
    }

    /// Shows the mistakes of a configuration in the status.
    pub fn note_mistakes(&self, mistakes: &ConfigErrors) {
        if let Some(running) = self.0.upgrade() {
            let mut status = running.status.lock();
            status.fail(mistakes);
            status.mistakes = mistakes.mistakes().to_vec();
        }
    }
}

impl ReloadStatus {
    fn fail(&mut self, error: impl fmt::Display) {
        self.failures += 1;
        self.mistakes.clear();
        self.last_error = Some(error.to_string());
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

impl Running {
    pub(super) fn new(
        registry: Addr<RegistryActor>,
        env: Env,
        state: Option<OpenState>,
        dials: Dials,
        stall: StallPolicy,
        (written, effective): (Config, Config),
        sources: Arc<Sources>,
    ) -> Self {
        let status = ReloadStatus { since: Some(clock::wall()), ..ReloadStatus::default() };
        Self {
            registry,
            env,
            sinks: RunningSinks::default(),
            state,
            dials,
            stall,
            status: Arc::new(Mutex::new(status)),
            connectors: Mutex::default(),
            at_start: written.clone(),
            current: tokio::sync::Mutex::new(Applied { written, effective }),
            sources,
            credentials: Arc::default(),
            closing: AtomicBool::new(false),
        }
    }

    /// From now on nothing is begun any more.
    pub(super) fn close(&self) {
        self.closing.store(true, SeqCst);
        self.sources.close();
        self.credentials.close();
    }

    /// From now on it is watched how long credentials last.
    pub(super) fn watch_credentials(self: &Arc<Self>) {
        self.credentials.begin(self);
    }

    /// Looks at the configuration that is in force, with the clusters that sources bring.
    pub(super) async fn with_config<R>(&self, look: impl FnOnce(&Config) -> R) -> R {
        look(&self.current.lock().await.effective)
    }

    fn check_open(&self) -> Result<(), ReloadError> {
        if self.closing.load(SeqCst) { Err(ReloadError::Stopped) } else { Ok(()) }
    }

    async fn reload(self: &Arc<Self>, written: Config) -> Result<Changes, ReloadError> {
        let mut current = self.current.lock().await;
        self.check_open()?;
        let (config, roster) = self.sources.effective(&written);
        let mut plan = Changes::between(&current.effective, &config);
        plan.needs_restart = Changes::between(&self.at_start, &written).needs_restart;
        let (added, changed) = self.readers(&config, &mut plan).await?;
        self.end_sinks(&plan.sinks.removed, &config).await?;
        self.change_clusters(&current.effective, &config, &plan.clusters).await?;
        self.exchange_resources(&config, &plan).await?;
        if plan.memory_limit {
            self.registry.send(SetMemoryLimit(config.hub.memory_limit)).await?;
        }
        self.change_sinks(&config, changed).await?;
        for (reader, store) in added {
            self.check_open()?;
            reader.start(store, &config.resources, &self.env, &self.registry, &self.sinks).await?;
        }
        for cluster in config.clusters.iter().filter(|cluster| is_new(cluster, &plan.clusters)) {
            self.check_open()?;
            self.add_cluster(cluster).await?;
        }
        self.sources.in_force(roster);
        self.sources.change(&written.sources, self);
        (current.written, current.effective) = (written, config);
        self.credentials.hurry();
        self.remember().await;
        Ok(plan)
    }

    /// Sources say something else: exactly what that changes of the clusters is applied.
    pub(super) async fn apply_sources(&self) -> Result<(), ReloadError> {
        let mut current = self.current.lock().await;
        self.check_open()?;
        let (mut config, roster) = self.sources.effective(&current.written);
        let plan = Changes::of_clusters(&current.effective, &config);
        self.change_clusters(&current.effective, &config, &plan).await?;
        let mut refused = Vec::new();
        for cluster in config.clusters.iter().filter(|cluster| is_new(cluster, &plan)) {
            self.check_open()?;
            match self.add_cluster(cluster).await {
                // A program may have added one of its name. It is tried again when sources say something else.
                Err(StartError::Cluster(error)) => {
                    tracing::error!(cluster = %cluster.name, %error, "a cluster of a source cannot be added");
                    self.connectors.lock().remove(&cluster.name);
                    refused.push(cluster.name.clone());
                }
                done => done?,
            }
        }
        config.clusters.retain(|cluster| !refused.contains(&cluster.name));
        let Difference { added, changed, removed } = &plan;
        for (what, names) in [("come", added), ("changed", changed), ("gone", removed)] {
            if !names.is_empty() {
                tracing::info!(clusters = first_names(names), "clusters of sources have {what}");
            }
        }
        self.sources.in_force(roster);
        current.effective = config;
        self.credentials.hurry();
        self.remember().await;
        Ok(())
    }

    /// Keeps on disk which clusters sources bring, where there is a state directory and they are others than before.
    async fn remember(&self) {
        if let (Some(state), Some(clusters)) = (&self.state, self.sources.to_keep())
            && state.remember(clusters.clone(), &self.env.io).await
        {
            self.sources.note_kept(clusters);
        }
    }

    /// From now on sources are watched.
    pub(super) async fn watch_sources(self: &Arc<Self>) {
        let current = self.current.lock().await;
        self.sources.in_force(self.sources.effective(&current.written).1);
        self.sources.change(&current.written.sources, self);
        self.remember().await;
    }

    /// Builds what sinks are to be, and opens the stores of new ones: the last thing that can go wrong. Sinks whose files
    /// changed count as changed.
    async fn readers(
        &self,
        config: &Config,
        plan: &mut Changes,
    ) -> Result<(Vec<(Reader, OpenStore)>, Vec<Reader>), ReloadError> {
        let configured = |one: &RunningSink| Some((one.name().to_owned(), one.files.clone()?));
        let known: Vec<(String, FileStates)> = self.sinks.lock().iter().filter_map(configured).collect();
        let (added, mut changed) = (plan.sinks.added.clone(), plan.sinks.changed.clone());
        let (sinks, state, io) = (config.sinks.clone(), self.state.clone(), self.env.io.clone());
        let (fsync, dial) = (self.at_start.hub.fsync, self.dials.receivers.clone());
        let building = self.env.io.spawn_blocking(move || {
            for sink in &sinks {
                let is_other = |(name, files): &(String, FileStates)| *name == sink.name && *files != files_of(sink);
                if known.iter().any(is_other) && !changed.contains(&sink.name) {
                    changed.push(sink.name.clone());
                }
            }
            let (mut new, mut others) = (Vec::new(), Vec::new());
            for sink in &sinks {
                let (is_new, is_other) = (added.contains(&sink.name), changed.contains(&sink.name));
                if is_new || is_other {
                    let reader = Reader::of_sink(sink, state.as_ref(), fsync, &io, dial.as_ref())?;
                    if is_new { new.push(reader) } else { others.push(reader) }
                }
            }
            // Once all are known to be usable: opening one makes files.
            let new = new.into_iter().map(|reader| Ok((open(&reader)?, reader)));
            let new: Result<Vec<_>, StartError> = new.map(|one| one.map(|(store, reader)| (reader, store))).collect();
            Ok::<_, StartError>((new?, others, changed))
        });
        let (new, others, changed) = building.await.map_err(|_| ReloadError::Unread)??;
        plan.sinks.changed = changed;
        Ok((new, others))
    }

    /// Sinks that are gone deliver what they have; what they cannot stays in their journals, if they have some.
    async fn end_sinks(&self, removed: &[String], config: &Config) -> Result<(), ReloadError> {
        let deadline = clock::now() + config.hub.shutdown_deadline;
        for name in removed {
            let Some((reader, mut followed)) = self.follower(name) else { continue };
            let unfollowed = reader.follow(&mut followed, &[], &self.registry).await;
            if let Some(report) = reader.sink.drain(Drain { deadline }).await {
                match (report.left, report.kept) {
                    (0, 0) => tracing::info!(sink = name, "removed; all is delivered"),
                    (0, kept) => {
                        tracing::warn!(sink = name, kept, "removed; what is not delivered stays in its journal");
                    }
                    (left, _) => {
                        tracing::error!(sink = name, left, "removed with events that could not be delivered: lost");
                    }
                }
            }
            self.sinks.lock().retain(|one| one.name() != name);
            unfollowed?;
        }
        Ok(())
    }

    /// Clusters that are gone end. Those that are others go on under their new labels, and their requests another way.
    async fn change_clusters(&self, old: &Config, new: &Config, changes: &Difference) -> Result<(), ReloadError> {
        let find = |all: &Config, name: &str| all.clusters.iter().find(|one| one.name.as_str() == name).cloned();
        for name in &changes.changed {
            let (Some(before), Some(now)) = (find(old, name), find(new, name)) else { continue };
            let is_elsewhere = (&before.access, before.compression) != (&now.access, now.compression);
            if let Some(connector) = self.connectors.lock().get(&now.name).filter(|_| is_elsewhere) {
                connector.change(convert::access(&now), now.compression);
            }
            if before.labels != now.labels {
                // A program may have removed it already.
                let _ = self.registry.send(SetClusterLabels { name: now.name, labels: now.labels }).await?;
            }
        }
        let mut going = Vec::new();
        for cluster in changes.removed.iter().filter_map(|name| find(old, name)) {
            self.connectors.lock().remove(&cluster.name);
            going.push(self.registry.send(RemoveCluster(cluster.name)));
        }
        // Each may have readers to wait for.
        for gone in join_all(going).await {
            let _ = gone?;
        }
        Ok(())
    }

    async fn exchange_resources(&self, config: &Config, changes: &Changes) -> Result<(), ReloadError> {
        let names = &changes.resources;
        for name in names.removed.iter().chain(names.changed.iter().filter(|name| !changes.revised.contains(name))) {
            self.registry.send(Release(User::Config(name.clone()))).await?;
        }
        let is_new = |name: &String| names.added.contains(name) || names.changed.contains(name);
        for resource in config.resources.iter().filter(|resource| is_new(&resource.name)) {
            self.registry.send(convert::demand(resource, &config.resources)).await?;
        }
        Ok(())
    }

    /// Sinks that are others do as they should from now on, and all follow the resources that there are now.
    async fn change_sinks(&self, config: &Config, changed: Vec<Reader>) -> Result<(), ReloadError> {
        for Reader { name, params, interest, files } in changed {
            let Some((running, _)) = self.follower(&name) else { continue };
            running.sink.reconfigure(params).await;
            if let Some(one) = self.sinks.lock().iter_mut().find(|one| one.name() == name) {
                (one.follower.interest, one.files) = (interest, files);
            }
        }
        let names: Vec<_> = self.sinks.lock().iter().map(|one| one.name().to_owned()).collect();
        for name in names {
            let Some((reader, mut followed)) = self.follower(&name) else { continue };
            let done = reader.follow(&mut followed, &config.resources, &self.registry).await;
            if let Some(one) = self.sinks.lock().iter_mut().find(|one| one.name() == name) {
                one.followed = followed;
            }
            done?;
        }
        Ok(())
    }

    /// A copy: the list is not locked over an await.
    fn follower(&self, name: &str) -> Option<(Follower, Followed)> {
        let sinks = self.sinks.lock();
        sinks.iter().find(|one| one.name() == name).map(|one| (one.follower.clone(), one.followed.clone()))
    }

    /// Adds a cluster, which is watched from now on.
    pub(super) async fn add_cluster(&self, cluster: &ClusterConfig) -> Result<(), StartError> {
        let connector = convert::connector(cluster, self.stall, self.dials.clusters.clone(), &self.env.io);
        self.connectors.lock().insert(cluster.name.clone(), connector.clone());
        let (name, labels) = (cluster.name.clone(), cluster.labels.clone());
        self.registry.send(AddCluster { name, labels, connector: Arc::new(connector) }).await??;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.credentials.close();
    }
}

/// Whether a cluster was not there before.
fn is_new(cluster: &ClusterConfig, changes: &Difference) -> bool {
    changes.added.iter().any(|added| added == cluster.name.as_str())
}

/// The store of a sink that begins while the hub runs; the caches have all that its journal tells of, if there is one.
fn open(reader: &Reader) -> Result<OpenStore, StartError> {
    let Some(place) = &reader.params.place else { return Ok(OpenStore::in_memory()) };
    let opened = OpenStore::open(&reader.name, place, &|_| true);
    let (store, _) = opened.map_err(|source| StartError::Journal { sink: reader.name.clone(), source })?;
    Ok(store)
}
