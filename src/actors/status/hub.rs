//! Hub status as returned by `/v1/status` and printed by the command line.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;
use serde::Serialize;

use crate::actors::cache::actor::CacheDirectory;
use crate::actors::checkpoint::store::StateStatus;
use crate::actors::memory::members::{InformerMemory, MemoryStatus};
use crate::actors::subscribe::inbox::ListenerHealth;
use crate::actors::subscribe::resource_request::ResourceRequest;
use informer_hub_reflector::{Connection, Server};
use informer_hub_types::{
    CheckpointState, ClusterLabels, ClusterName, ClusterTraffic, CredentialStatus, EncodingInUse, Freshness, Gvr,
    InformerHealth, Phase, Scope, object_memory,
};

/// Status of a hub.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HubStatus {
    /// Whether the hub has started, every cluster has received the requests for its informers, and every informer of a
    /// reachable cluster has synced. Informers in a state that waiting does not change, such as forbidden, do not
    /// count.
    ///
    /// [`Hub::report`](crate::Hub::report) also sets it to false while a cluster source has not reported, or while this
    /// process waits for other processes of the fleet.
    pub ready: bool,
    /// Memory status; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// Status of the state directory; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<StateStatus>,
    /// Clusters, ordered by name.
    pub clusters: Vec<ClusterStatus>,
}

/// Status of a cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClusterStatus {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Labels of the cluster.
    pub labels: ClusterLabels,
    /// Name of the cluster source that reported the cluster; absent for other clusters. The registry leaves it unset;
    /// [`Hub::report`](crate::Hub::report) sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Object or file in which the source found the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_object: Option<String>,
    /// Scheme, host and port of the apiserver; absent before its first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Version that the apiserver reported in its first answer; absent before that answer, and if it reported none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// State of the connection to the cluster.
    pub state: ClusterState,
    /// Connections to the apiserver; absent before the client is built, and if connections are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<ClusterTraffic>,
    /// Last error that is not resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Credentials that expire, ordered by expiry. The registry leaves the list empty;
    /// [`Hub::report`](crate::Hub::report) fills it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialStatus>,
    /// Informers, ordered by requested resource and scope.
    pub informers: Vec<InformerStatus>,
    /// Discovery of resources that may appear or disappear; absent if no watched resource can appear or disappear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryStatus>,
    /// For each configured resource pattern, the resources of the cluster that it selects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<PatternStatus>,
}

/// Status of discovery in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DiscoveryStatus {
    /// How the hub detects that the cluster adds or removes resources.
    pub state: DiscoveryState,
    /// Number of watchable resources that the cluster offers; absent before its first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<usize>,
    /// Time of the last successful discovery request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<jiff::Timestamp>,
    /// Error of the last discovery request, or of watching CustomResourceDefinitions or APIServices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// How the hub detects that a cluster adds or removes resources.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DiscoveryState {
    /// The method is not known yet: the first lists of CustomResourceDefinitions and APIServices are not complete.
    #[default]
    Starting,
    /// The hub watches CustomResourceDefinitions and APIServices.
    Watching,
    /// The hub polls discovery, because CustomResourceDefinitions or APIServices cannot be watched.
    Polling,
}

/// Resources of a cluster that a pattern `[resources.<name>]` selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PatternStatus {
    /// Name of the entry: `<name>` in `[resources.<name>]`.
    pub name: String,
    /// Pattern in the configuration entry.
    pub pattern: String,
    /// Names of the watched resources.
    pub watched: Vec<String>,
    /// Names of the resources left out because of the pattern's limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// State of the connection to a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClusterState {
    /// Credentials are being read, or the cluster has not answered yet.
    #[default]
    Connecting,
    /// The cluster answers.
    Connected,
    /// The cluster does not answer; retried with exponential backoff.
    Unreachable,
    /// Informers of the cluster died more often than the restart intensity allows, and at least one waits for its
    /// restart.
    Degraded,
}

impl ClusterState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Connecting, Self::Connected, Self::Unreachable, Self::Degraded];

    /// Returns the word used in the status and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Unreachable => "unreachable",
            Self::Degraded => "degraded",
        }
    }
}

/// Status of an informer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InformerStatus {
    /// Resource as kubectl writes it.
    pub resource: String,
    /// Watched namespace and selectors.
    pub scope: String,
    /// Phase of the informer, such as listing or watching.
    pub state: Phase,
    /// Whether the first list is complete.
    pub synced: bool,
    /// Whether the objects are current, outdated or possibly incomplete.
    pub freshness: Freshness,
    /// Number of objects in the cache.
    pub objects: u64,
    /// Bytes of the objects in memory ([`object_memory`]).
    pub bytes: u64,
    /// Kubernetes resource version up to which changes were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Seconds since the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_event_age_seconds: Option<f64>,
    /// Number of accepted watch events and list items.
    pub events: u64,
    /// Number of lists begun.
    pub lists: u64,
    /// Number of objects that the list in progress has received so far.
    pub list_items: u64,
    /// Number of objects that the list in progress will have; absent if the apiserver does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_expected: Option<u64>,
    /// Number of watches opened.
    pub watches: u64,
    /// Encoding of lists and watches; absent before the first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<EncodingInUse>,
    /// Number of objects skipped because they are malformed, nameless or too large. Skipped lines of a watch count too.
    pub skipped: u64,
    /// Number of restarts of the informer's actors.
    pub restarts: u64,
    /// Number of changes in the informer's queue, which are not in the store yet.
    pub queued: u64,
    /// Memory use, and which parts of the objects are kept under the memory limit (memory step); absent if there was
    /// never a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<InformerMemory>,
    /// Last error that is not resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Checkpoint state; absent without a state directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointState>,
    /// Subscribers of the informer.
    pub listeners: Vec<ListenerStatus>,
}

/// Status of a subscriber at an informer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListenerStatus {
    /// Name of the subscription: the name of a sink, or the name that the subscribing program chose.
    pub name: String,
    /// Number of waiting notifications.
    pub pending: u64,
    /// Number of delivered notifications.
    pub delivered: u64,
    /// Number of notifications merged because the subscriber was slow.
    pub merged: u64,
    /// Number of notifications lost because the subscriber could not process them.
    pub lost: u64,
}

/// Published state of a cluster actor. Read without a message, so a blocked cluster does not block the status.
#[derive(Clone, Debug, Default)]
pub(in crate::actors) struct ClusterView {
    pub(in crate::actors) state: ClusterState,
    pub(in crate::actors) error: Option<String>,
    pub(in crate::actors) informers: Vec<InformerView>,
    pub(in crate::actors) discovery: Option<DiscoveryStatus>,
    pub(in crate::actors) patterns: Vec<PatternStatus>,
    /// Server information, once the cluster has answered.
    pub(in crate::actors) server: Option<Server>,
    /// Connection to the cluster, once it is made.
    pub(in crate::actors) connection: Option<Arc<dyn Connection>>,
}

/// Published state of an informer.
#[derive(Clone, Debug)]
pub(in crate::actors) struct InformerView {
    /// Requested resource and scope.
    pub(in crate::actors) key: Arc<(ResourceRequest, Scope)>,
    /// Resource of the informer. Before the cluster has resolved the requested name, the resource of the objects that
    /// were restored from disk, or `None` if none were.
    pub(in crate::actors) gvr: Option<Gvr>,
    pub(in crate::actors) is_resolved: bool,
    pub(in crate::actors) health: Arc<InformerHealth>,
    pub(in crate::actors) listeners: Box<[(String, Arc<ListenerHealth>)]>,
}

/// Slot in which a cluster actor publishes the state of its cluster.
pub(in crate::actors) type SharedView = Arc<ArcSwap<ClusterView>>;

impl ClusterView {
    /// Returns the state of the connection. Once the connection is made, its state depends on the informers.
    ///
    /// The cluster is connected if it has answered an informer, or if there are no informers. Otherwise it is
    /// connecting while the first request of an informer has no outcome, and unreachable after that. Informers that
    /// send no requests (absent, paused or stopped) count only if there are no others.
    pub(in crate::actors) fn state(&self) -> ClusterState {
        let some_ask = self.informers.iter().any(InformerView::asks);
        let counted = self.informers.iter().filter(|informer| !some_ask || informer.asks());
        let any = |answer| counted.clone().any(|informer| informer.health.answers() == answer);
        match self.state {
            ClusterState::Connected if any(Some(true)) || self.informers.is_empty() => ClusterState::Connected,
            ClusterState::Connected if any(None) => ClusterState::Connecting,
            ClusterState::Connected => ClusterState::Unreachable,
            state => state,
        }
    }

    /// Returns the error of the connection. If it has none and the cluster is unreachable, returns the first error of
    /// an informer.
    pub(in crate::actors) fn last_error(&self) -> Option<String> {
        let unreachable = self.state() == ClusterState::Unreachable;
        let unanswered = |informer: &&InformerView| informer.health.answers() == Some(false);
        let informer_error = || self.informers.iter().filter(unanswered).find_map(|informer| informer.health.error());
        self.error.clone().or_else(|| informer_error().filter(|_| unreachable).map(|error| error.to_string()))
    }

    /// Returns whether the hub's readiness need not wait for this cluster: each informer has synced or cannot sync at
    /// present. An unreachable cluster counts as ready, because it must not delay the hub's readiness.
    pub(in crate::actors) fn is_ready(&self) -> bool {
        self.is_unreachable() || self.informers.iter().all(InformerView::is_settled)
    }

    /// Returns whether the cluster does not answer.
    pub(in crate::actors) fn is_unreachable(&self) -> bool {
        self.state() == ClusterState::Unreachable
    }
}

impl InformerView {
    /// Returns whether the informer sends requests to its cluster, i.e. is not absent, paused or stopped.
    fn asks(&self) -> bool {
        !matches!(self.health.phase(), Phase::Absent | Phase::Paused | Phase::Stopped)
    }

    /// Returns whether the informer has synced, or is in a state that waiting does not change, such as absent or
    /// forbidden.
    pub(in crate::actors) fn is_settled(&self) -> bool {
        let hopeless = matches!(
            self.health.phase(),
            Phase::Absent | Phase::Forbidden | Phase::Degraded | Phase::Stopped | Phase::Paused
        );
        self.health.has_synced() || hopeless
    }

    pub(in crate::actors) fn wanted(&self) -> &ResourceRequest {
        &self.key.0
    }

    pub(in crate::actors) fn scope(&self) -> &Scope {
        &self.key.1
    }

    /// Returns the resource as kubectl writes it.
    pub(in crate::actors) fn resource_text(&self) -> String {
        let resolved = self.gvr.as_ref().filter(|_| self.is_resolved);
        resolved.map_or_else(|| self.wanted().text(), ToString::to_string)
    }

    pub(in crate::actors) fn status(&self, caches: &CacheDirectory) -> InformerStatus {
        let health = &*self.health;
        let list_expected = health.list_expected.load(Relaxed);
        InformerStatus {
            resource: self.resource_text(),
            scope: self.scope().to_string(),
            state: health.phase(),
            synced: health.has_synced(),
            freshness: health.freshness(),
            objects: health.objects.load(Relaxed),
            bytes: self.bytes(caches),
            resource_version: health.version().map(|version| version.to_string()),
            last_event_age_seconds: health.last_event_age().map(|age| age.as_secs_f64()),
            events: health.events.load(Relaxed),
            lists: health.lists.load(Relaxed),
            list_items: health.list_items.load(Relaxed),
            list_expected: (list_expected > 0).then_some(list_expected),
            watches: health.watches.load(Relaxed),
            encoding: health.encoding().map(|encoding| EncodingInUse::clone(&encoding)),
            skipped: health.skipped.load(Relaxed),
            restarts: health.restarts.load(Relaxed),
            queued: health.fifo_changes.load(Relaxed),
            memory: (health.memory.used.load(Relaxed) > 0 || health.memory.since().is_some())
                .then(|| InformerMemory::of(health)),
            last_error: health.error().map(|error| error.to_string()),
            checkpoint: health.checkpoint().map(|state| CheckpointState::clone(&state)),
            listeners: self.listeners.iter().map(|(name, health)| listener_status(name, health)).collect(),
        }
    }

    fn bytes(&self, caches: &CacheDirectory) -> u64 {
        let Some(gvr) = &self.gvr else { return 0 };
        let Some(snapshot) = caches.published(gvr, &self.scope().view) else { return 0 };
        let own = snapshot.partitions().find(|(_, partition)| partition.is_of(&self.health));
        own.map_or(0, |(_, partition)| object_memory(partition.len() as u64, partition.body_bytes()))
    }
}

fn listener_status(name: &str, health: &ListenerHealth) -> ListenerStatus {
    ListenerStatus {
        name: name.to_owned(),
        pending: health.pending.load(Relaxed),
        delivered: health.delivered.load(Relaxed),
        merged: health.merged.load(Relaxed),
        lost: health.lost.load(Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn informer(written: &str, phase: Phase, answers: Option<bool>, error: &str) -> InformerView {
        let health = InformerHealth::new();
        health.set_phase(phase);
        answers.inspect(|answers| health.set_answers(*answers));
        health.set_error(Some(error.to_owned()));
        let wanted = ResourceRequest::Written(written.parse().unwrap());
        let key = Arc::new((wanted, Scope::all()));
        InformerView { key, gvr: None, is_resolved: false, health, listeners: Box::default() }
    }

    fn view(informers: Vec<InformerView>) -> ClusterView {
        ClusterView { state: ClusterState::Connected, informers, ..ClusterView::default() }
    }

    #[test]
    fn cluster_is_unreachable_although_one_resource_is_absent() {
        let absent = || informer("widgets.example.com", Phase::Absent, Some(true), "no such resource");
        let gone = view(vec![absent(), informer("pods", Phase::Stale, Some(false), "refused")]);
        assert_eq!((gone.state(), gone.last_error().as_deref()), (ClusterState::Unreachable, Some("refused")));
        let there = view(vec![absent(), informer("pods", Phase::Watching, Some(true), "")]);
        assert_eq!((there.state(), there.last_error()), (ClusterState::Connected, None));
        let coming = view(vec![absent(), informer("pods", Phase::Pending, None, "")]);
        assert_eq!(coming.state(), ClusterState::Connecting);
        assert_eq!(
            view(vec![absent()]).state(),
            ClusterState::Connected,
            "idle informers count if there are no others"
        );
        assert_eq!(view(Vec::new()).state(), ClusterState::Connected);
    }
}
