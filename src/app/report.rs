//! Status report of a hub.

use std::fmt;
use std::sync::Arc;

use actix::{Addr, MailboxError};
use parking_lot::Mutex;
use serde::Serialize;

use super::credentials::{CredentialWatch, Owner};
use super::election::ElectionStatus;
use super::elections::ElectionSet;
use super::fleet_status::{FleetStatus, SharedFleetStatus};
use super::journal_readers::{RunningSink, RunningSinks};
use super::metrics::Parts;
use super::reload::ReloadStatus;
use super::sources::{ClusterSourceStatus, Sources};
use crate::actors::messages::GetStatus;
use crate::actors::sinks::sink::{LetterAnswer, LetterRequest};
use crate::actors::{HubStatus, RegistryActor};
use informer_hub_sink::{SinkStatus, StoreError};
use informer_hub_types::CredentialStatus;

/// Status of a sink.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SinkReport {
    /// Name of the sink.
    pub name: String,
    /// Counters and state of the sink.
    #[serde(flatten)]
    pub status: SinkStatus,
    /// Whether this replica does not deliver the events of the sink. Another replica may deliver them, or none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
    /// Process that holds the lease of the sink, in a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliverer: Option<String>,
    /// Expiry of the client certificate of the sink, if it has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialStatus>,
}

/// Status of a hub.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HubReport {
    /// Clusters and informers.
    #[serde(flatten)]
    pub hub: HubStatus,
    /// Cluster sources, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_sources: Vec<ClusterSourceStatus>,
    /// Sinks, by name.
    pub sinks: Vec<SinkReport>,
    /// Expiry of the certificate of the HTTP port, if it has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialStatus>,
    /// Leader election; absent if there is neither `[ha]` nor the role `deliver`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ha: Option<ElectionStatus>,
    /// This process and its fleet; absent without `[fleet]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// Status of configuration reloads.
    pub configuration: ReloadStatus,
}

/// Handle that makes status reports. See [`Hub::reporter`](super::Hub::reporter).
#[derive(Clone)]
pub struct Reporter {
    pub(super) registry: Addr<RegistryActor>,
    pub(super) sinks: RunningSinks,
    pub(super) sources: Arc<Sources>,
    pub(super) credentials: Arc<CredentialWatch>,
    pub(super) configuration: Arc<Mutex<ReloadStatus>>,
    pub(super) election: Option<Arc<ElectionSet>>,
    pub(super) fleet: SharedFleetStatus,
}

impl Reporter {
    /// Returns the status of the hub.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn report(&self) -> Result<HubReport, MailboxError> {
        let mut hub = self.registry.send(GetStatus).await?;
        // The clusters of a source that has not reported are unknown, so the hub is not ready.
        hub.ready &= !self.sources.is_waiting();
        let fleet = self.fleet.read();
        hub.ready &= !fleet.as_ref().is_some_and(FleetStatus::is_waiting);
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
        let ha = self.election.as_ref().map(|election| election.status());
        let report = |sink: &RunningSink| {
            let elections = self.election.as_ref().filter(|_| sink.files.is_some());
            let (standby, deliverer) = elections.map(|elections| elections.standby(sink.name())).unwrap_or_default();
            SinkReport {
                name: sink.name().to_owned(),
                status: sink.health.status(),
                standby,
                deliverer,
                credentials: self.credentials.of(&Owner::Sink(sink.name().to_owned())),
            }
        };
        let sinks = self.sinks.lock().iter().map(report).collect();
        let (credentials, configuration) = (self.credentials.of(&Owner::Port), self.configuration.lock().clone());
        Ok(HubReport { hub, cluster_sources, sinks, credentials, ha, fleet, configuration })
    }
}

impl Reporter {
    /// Returns the handles from which metrics read the state of sinks, sources, credentials, configuration, election
    /// and fleet.
    pub(super) fn parts(&self) -> Parts {
        let Self { sinks, sources, credentials, configuration, election, fleet, .. } = self.clone();
        Parts { sinks, sources, credentials, configuration, election, fleet }
    }

    /// Sends a dead-letter request to a sink. Returns `None` if there is no such sink or the hub has ended.
    #[doc(hidden)]
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
