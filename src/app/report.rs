//! What a hub shows of itself, from anywhere.

use std::fmt;
use std::sync::Arc;

use actix::{Addr, MailboxError};
use parking_lot::Mutex;
use serde::Serialize;

use super::credentials::{CredentialWatch, Owner};
use super::metrics::Parts;
use super::readers::{Followed, Follower};
use super::reload::ReloadStatus;
use super::sources::{ClusterSourceStatus, Sources};
use crate::actors::messages::GetStatus;
use crate::actors::sinks::sink::{LetterAnswer, LetterRequest, Sink};
use crate::actors::{HubStatus, RegistryActor};
use informer_hub_disk::FileStates;
use informer_hub_sink::{SinkHealth, SinkStatus, StoreError};
use informer_hub_types::CredentialStatus;

/// A sink, or a durable subscription, of a running hub.
pub(super) struct RunningSink {
    pub(super) follower: Follower,
    pub(super) health: Arc<SinkHealth>,
    /// `None` where the configuration says nothing of it.
    pub(super) files: Option<FileStates>,
    pub(super) followed: Followed,
}

impl RunningSink {
    pub(super) fn name(&self) -> &str {
        &self.follower.name
    }

    pub(super) fn sink(&self) -> &Sink {
        &self.follower.sink
    }
}

/// All of them.
pub(super) type RunningSinks = Arc<Mutex<Vec<RunningSink>>>;

/// What a sink has done.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SinkReport {
    /// Its name.
    pub name: String,
    /// Its counters.
    #[serde(flatten)]
    pub status: SinkStatus,
    /// Its client certificate, where it has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialStatus>,
}

/// Everything that a hub shows of itself.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HubReport {
    /// Clusters and informers.
    #[serde(flatten)]
    pub hub: HubStatus,
    /// Sources of clusters, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_sources: Vec<ClusterSourceStatus>,
    /// Sinks, by name.
    pub sinks: Vec<SinkReport>,
    /// The certificate of the port, where it has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialStatus>,
    /// How the configuration came to be what it is.
    pub configuration: ReloadStatus,
}

/// See [`Hub::reporter`](super::Hub::reporter).
#[derive(Clone)]
pub struct Reporter {
    pub(super) registry: Addr<RegistryActor>,
    pub(super) sinks: RunningSinks,
    pub(super) sources: Arc<Sources>,
    pub(super) credentials: Arc<CredentialWatch>,
    pub(super) configuration: Arc<Mutex<ReloadStatus>>,
}

impl Reporter {
    /// What everything is doing.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn report(&self) -> Result<HubReport, MailboxError> {
        let mut hub = self.registry.send(GetStatus).await?;
        // What a source is about to bring is not ready yet.
        hub.ready &= !self.sources.is_waiting();
        for cluster in &mut hub.clusters {
            if let Some((source, object)) = self.sources.origin(&cluster.name) {
                (cluster.source, cluster.source_object) = (Some(source), Some(object));
            }
            cluster.credentials = self.credentials.of(&Owner::Cluster(cluster.name.to_string()));
        }
        let mut cluster_sources = self.sources.status();
        for source in &mut cluster_sources {
            source.credentials = self.credentials.of(&Owner::Source(source.name.clone()));
        }
        let report = |sink: &RunningSink| SinkReport {
            name: sink.name().to_owned(),
            status: sink.health.status(),
            credentials: self.credentials.of(&Owner::Sink(sink.name().to_owned())),
        };
        let sinks = self.sinks.lock().iter().map(report).collect();
        let (credentials, configuration) = (self.credentials.of(&Owner::Port), self.configuration.lock().clone());
        Ok(HubReport { hub, cluster_sources, sinks, credentials, configuration })
    }
}

impl Reporter {
    /// What metrics are read from.
    pub(super) fn parts(&self) -> Parts {
        let Self { sinks, sources, credentials, configuration, .. } = self.clone();
        Parts { sinks, sources, credentials, configuration }
    }

    /// Asks a sink about its dead letters. `None`: there is no sink of that name, or the hub has ended.
    pub async fn letters(&self, sink: &str, request: LetterRequest) -> Option<Result<LetterAnswer, StoreError>> {
        let sink = self.sinks.lock().iter().find(|running| running.name() == sink)?.sink().clone();
        sink.letters(request).await
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("sinks", &self.sinks.lock().len()).finish_non_exhaustive()
    }
}
