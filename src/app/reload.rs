//! Reload: applies the difference between two configurations to the running hub.
//!
//! A new configuration is checked completely before anything changes. If it is not usable, the hub stays as it was. The
//! steps, in order:
//!
//! 1. Readers of the HTTP port change.
//! 2. Removed sinks deliver their events and end.
//! 3. Removed clusters end, and changed ones are updated or replaced.
//! 4. New and changed resources are requested, then removed ones are released (`resources`).
//! 5. The memory limit changes.
//! 6. Changed sinks are reconfigured and keep their events.
//! 7. New sinks start, then new clusters.
//!
//! Unchanged parts are not touched: their informers do not list again, and their subscribers get no notification.
//!
//! A cluster with a new address or new credentials keeps its informers and their objects: see
//! [`KubeConnector::change`].

mod clusters;
mod plan;
mod port_readers;
mod resources;
mod sinks;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

use actix::Addr;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;

pub use plan::{Changes, Difference};
use port_readers::ReadReaders;

use super::check::{check_config, check_subscription};
#[cfg(feature = "fleet")]
use super::collect::Collecting;
use super::credentials::{CredentialOwners, CredentialWatch};
use super::elections::Elections;
use super::error::{ReloadError, StartError};
use super::fleet_status::SharedFleetStatus;
use super::journal_readers::{Follower, RunningSinks};
use super::reconciler::Reconciler;
#[cfg(feature = "fleet")]
use super::serving_replica::Serving;
use super::sources::{ClusterSourceState, SourceFeed, SourceHost, Sources, WatchParams};
use super::state::OpenState;
use crate::actors::messages::SetMemoryLimit;
use crate::actors::{Env, RegistryActor};
use informer_hub_config::inventory::SourceReport;
use informer_hub_config::{Config, ConfigErrors, Mistake};
use informer_hub_dial::Dial;
use informer_hub_reflector::StallPolicy;
use informer_hub_source::KubeConnector;
use informer_hub_types::{ClusterName, Threads, clock, first_names, with_causes};

/// Status of configuration reloads: their number, the last change, and why the last configuration was not applied.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ReloadStatus {
    /// When the configuration was last changed.
    pub since: Option<jiff::Timestamp>,
    /// Number of configuration changes applied since the start.
    pub reloads: u64,
    /// Number of configurations that could not be read or applied.
    pub failures: u64,
    /// Why the last configuration was not applied; cleared by the next success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Mistakes of the last configuration that could not be read, in line order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Mistake>,
    /// Changed keys that take effect only after a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs_restart: Vec<String>,
}

/// Handle that changes the configuration of a running hub, from any thread.
#[derive(Clone)]
pub struct Reloader(pub(super) Weak<RunningHub>);

/// Functions that open connections in place of TCP.
#[derive(Clone, Debug, Default)]
pub(super) struct Dials {
    /// Opens connections to apiservers.
    pub(super) clusters: Option<Dial>,
    /// Opens connections to webhook receivers.
    pub(super) receivers: Option<Dial>,
}

/// Parts of a running hub that a reload changes or needs.
pub(super) struct RunningHub {
    pub(super) registry: Addr<RegistryActor>,
    pub(super) env: Env,
    pub(super) sinks: RunningSinks,
    pub(super) state: Option<OpenState>,
    pub(super) dials: Dials,
    pub(super) stall: StallPolicy,
    pub(super) status: Arc<Mutex<ReloadStatus>>,
    pub(super) sources: Arc<Sources>,
    pub(super) credentials: Arc<CredentialWatch>,
    pub(super) election: Option<Elections>,
    pub(super) reconciler: OnceLock<Arc<tokio::sync::Mutex<Reconciler>>>,
    /// Collector that decides which clusters are watched; set only in a collecting process of a fleet.
    #[cfg(feature = "fleet")]
    pub(super) collecting: OnceLock<Arc<Collecting>>,
    /// Replica that reads the clusters from the fleet's log; set only in a serving process of a fleet.
    #[cfg(feature = "fleet")]
    pub(super) serving: OnceLock<Arc<Serving>>,
    /// Status of this process in its fleet.
    pub(super) fleet: SharedFleetStatus,
    connectors: Mutex<BTreeMap<ClusterName, KubeConnector>>,
    /// Function that reads the tokens of the configured readers of the HTTP port; unset without a port.
    read_readers: OnceLock<ReadReaders>,
    /// Configuration in force. Locked while a reload applies a new one.
    current: tokio::sync::Mutex<Applied>,
    /// Configuration at the start. Keys that need a restart keep these values.
    at_start: Config,
    closing: AtomicBool,
}

struct Applied {
    /// Configuration as read from the file or built by the embedding program, without the clusters of sources.
    written: Config,
    /// Configuration with the clusters of cluster sources added.
    effective: Config,
}

impl Reloader {
    /// Applies a configuration. Concurrent calls run one after the other. Waits until removed sinks have delivered
    /// their events, at most for `hub.shutdown_deadline`, and until removed clusters have ended.
    ///
    /// # Errors
    /// [`ReloadError`]; the status shows it as well.
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
            Err(error) => running.status.lock().fail(with_causes(error)),
        }
        result
    }

    /// Records in the status why a configuration could not be read.
    pub fn note_error(&self, error: impl fmt::Display) {
        if let Some(running) = self.0.upgrade() {
            running.status.lock().fail(error);
        }
    }

    /// Records the mistakes of a configuration in the status.
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

impl RunningHub {
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
            election: None,
            reconciler: OnceLock::new(),
            #[cfg(feature = "fleet")]
            collecting: OnceLock::new(),
            #[cfg(feature = "fleet")]
            serving: OnceLock::new(),
            fleet: SharedFleetStatus::default(),
            read_readers: OnceLock::new(),
            closing: AtomicBool::new(false),
        }
    }

    /// Refuses further reloads, ends the watchers of cluster sources and credentials, and keeps the progress of the sinks
    /// as it is.
    pub(super) fn close(&self) {
        self.closing.store(true, SeqCst);
        if let Some(Elections(elections)) = &self.election {
            elections.begin_closing();
        }
        self.sources.close();
        self.credentials.close();
    }

    pub(super) fn watch_credentials(self: &Arc<Self>) {
        self.credentials.begin(self);
    }

    fn check_open(&self) -> Result<(), ReloadError> {
        if self.closing.load(SeqCst) { Err(ReloadError::Stopped) } else { Ok(()) }
    }

    async fn reload(self: &Arc<Self>, written: Config) -> Result<Changes, ReloadError> {
        let mut current = self.current.lock().await;
        self.check_open()?;
        let (mut config, roster) = self.sources.effective(&written);
        let mut plan = Changes::between(&current.effective, &config);
        plan.needs_restart = Changes::between(&self.at_start, &written).needs_restart;
        self.check(&config)?;
        let port_readers = self.read_port_readers(&config).await?;
        let (added, changed) = self.readers(&config, &mut plan).await?;
        // Readers come first, because a withdrawn right must not stay valid while removed sinks deliver their events.
        if let Some(replace) = port_readers {
            replace();
        }
        self.end_sinks(&plan.sinks.removed, &config).await?;
        self.change_clusters(&current.effective, &config, &plan.clusters).await?;
        self.exchange_resources(&config, &plan.resources).await?;
        if plan.memory_limit {
            self.registry.send(SetMemoryLimit(config.hub.memory_limit)).await?;
        }
        self.change_sinks(&config, changed).await?;
        for (reader, store) in added {
            self.check_open()?;
            reader.start(store, &config.resources, &self.env, &self.registry, &self.sinks).await?;
        }
        let refused = self.add_clusters(&mut config, &plan.clusters).await?;
        self.sources.in_force(roster);
        self.watch_configured_sources(&written);
        // Everything else is in force, so the next reload must not do it again.
        (current.written, current.effective) = (written, config);
        self.credentials.check_now();
        self.remember().await;
        refused.into_iter().next().map_or(Ok(plan), |(_, error)| Err(StartError::Cluster(error).into()))
    }

    /// Checks a configuration, also against the durable subscriptions of the embedding program.
    fn check(&self, config: &Config) -> Result<(), StartError> {
        check_config(config)?;
        let sinks = self.sinks.lock();
        let durable = sinks.iter().filter(|one| one.files.is_none()).map(|one| &one.follower);
        for Follower { name, selection, .. } in durable {
            check_subscription(config, name, &selection.resources)?;
        }
        Ok(())
    }

    /// Applies the clusters that cluster sources have reported since the last call.
    async fn apply_sources(&self) -> Result<(), ReloadError> {
        let mut current = self.current.lock().await;
        self.check_open()?;
        let (mut config, roster) = self.sources.effective(&current.written);
        let plan = Changes::of_clusters(&current.effective, &config);
        self.change_clusters(&current.effective, &config, &plan).await?;
        for (cluster, error) in self.add_clusters(&mut config, &plan).await? {
            tracing::error!(
                %cluster, %error,
                "cannot add a cluster that a cluster source reported; trying again with its next report"
            );
        }
        let Difference { added, changed, removed } = &plan;
        for (verb, names) in [("added", added), ("changed", changed), ("removed", removed)] {
            if !names.is_empty() {
                tracing::info!(clusters = first_names(names), "{verb} clusters of cluster sources");
            }
        }
        self.sources.in_force(roster);
        current.effective = config;
        self.credentials.check_now();
        self.remember().await;
        Ok(())
    }

    /// Saves the clusters found by cluster sources to the state directory, if there is one and they changed.
    async fn remember(&self) {
        if let (Some(state), Some(clusters)) = (&self.state, self.sources.to_save())
            && state.write_sourced_clusters(clusters.clone(), &self.env.io).await
        {
            self.sources.note_saved(clusters);
        }
    }

    /// Starts the watchers of all cluster sources.
    pub(super) async fn watch_sources(self: &Arc<Self>) {
        let current = self.current.lock().await;
        self.sources.in_force(self.sources.effective(&current.written).1);
        self.watch_configured_sources(&current.written);
        self.remember().await;
    }

    /// Starts and stops watchers so that exactly the configured cluster sources are watched.
    fn watch_configured_sources(self: &Arc<Self>, config: &Config) {
        let weak: Weak<Self> = Arc::downgrade(self);
        let host: Weak<dyn SourceHost> = weak;
        let params = WatchParams { env: self.env.clone(), dial: self.dials.clusters.clone(), stall: self.stall };
        self.sources.change(&config.sources, &host, &params);
    }
}

impl SourceHost for RunningHub {
    fn store(&self, feed: &SourceFeed, report: SourceReport) -> bool {
        self.sources.store(feed, report)
    }

    fn set_state(&self, feed: &SourceFeed, state: ClusterSourceState, error: Option<String>) {
        self.sources.set_state(feed, state, error);
    }

    fn apply(&self) -> BoxFuture<'_, Result<(), ReloadError>> {
        Box::pin(self.apply_sources())
    }
}

impl CredentialOwners for RunningHub {
    fn threads(&self) -> &Threads {
        &self.env.io
    }

    async fn with_config<R: Send>(&self, read: fn(&Config) -> R) -> R {
        read(&self.current.lock().await.effective)
    }
}

impl Drop for RunningHub {
    fn drop(&mut self) {
        self.credentials.close();
    }
}
