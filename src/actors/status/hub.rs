//! The status of a hub: what `/v1/status` and the command line show.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;
use serde::Serialize;

use crate::actors::cache::actor::CacheDirectory;
use crate::actors::checkpoint::keeper::StateStatus;
use crate::actors::memory::budget::{InformerMemory, MemoryStatus};
use crate::actors::subscribe::inbox::ListenerHealth;
use crate::actors::subscribe::resource_request::ResourceRequest;
use informer_hub_reflector::Server;
use informer_hub_types::{
    ApiResource, CheckpointState, ClusterLabels, ClusterName, CredentialStatus, Freshness, InformerHealth, Phase,
    Scope, object_memory,
};

/// Everything, at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HubStatus {
    /// Whether every informer of every reachable cluster has synced.
    pub ready: bool,
    /// The memory, where it is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// What is kept on disk; absent without a state directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<StateStatus>,
    /// Each cluster, by name.
    pub clusters: Vec<ClusterStatus>,
}

/// A cluster at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Its name.
    pub name: ClusterName,
    /// Its labels.
    pub labels: ClusterLabels,
    /// The source that brings it; absent where a table, or code, does. A registry does not know: who asks it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What the source found it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_object: Option<String>,
    /// Scheme, host and port of its apiserver; absent before that has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The version of its apiserver when that answered first; absent before, and where it does not tell us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it is doing.
    pub state: ClusterState,
    /// What went wrong last and has not been mended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What it is reached with, as far as that has an end, the first to end first. A registry does not know: who asks it does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialStatus>,
    /// Its informers, by resource and scope.
    pub informers: Vec<InformerStatus>,
    /// How the hub learns of resources that come and go; absent where nothing that is watched can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery: Option<SurveyStatus>,
    /// What of it belongs to patterns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<PatternStatus>,
}

/// How a cluster's offers are followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SurveyStatus {
    /// How changes are heard of.
    pub state: SurveyState,
    /// Resources that the cluster offers to be watched; absent before it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<usize>,
    /// When it last answered what it offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<jiff::Timestamp>,
    /// Why definitions or API services cannot be watched, or the cluster not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// How the hub hears of changes in what a cluster offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SurveyState {
    /// It is finding out.
    #[default]
    Starting,
    /// Definitions and API services are watched.
    Watching,
    /// They cannot be watched, so that it is asked now and then.
    Polling,
}

/// What of a cluster belongs to `[resources.<name>]`, which is a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PatternStatus {
    /// The entry's name.
    pub name: String,
    /// The pattern.
    pub pattern: String,
    /// Resources that are watched for it, by name.
    pub watched: Vec<String>,
    /// Resources that are not, for its limit, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// What a cluster is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterState {
    /// Its credentials are being read, or it has not answered yet.
    #[default]
    Connecting,
    /// It has answered.
    Connected,
    /// It does not answer; tried again with growing delays.
    Unreachable,
    /// Its actors die more often than their restart intensity allows; what dies is tried again slowly.
    Degraded,
}

impl ClusterState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Connecting, Self::Connected, Self::Unreachable, Self::Degraded];

    /// The word in the status and in metrics.
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

/// An informer at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerStatus {
    /// The resource, as kubectl writes it.
    pub resource: String,
    /// The part that is watched.
    pub scope: String,
    /// What it is doing.
    pub state: Phase,
    /// Whether its first list is complete.
    pub synced: bool,
    /// How far it can be trusted.
    pub freshness: Freshness,
    /// Objects in the cache.
    pub objects: u64,
    /// Bytes that they take in memory ([`object_memory`]).
    pub bytes: u64,
    /// How far it has read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Seconds since the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_event_age_seconds: Option<f64>,
    /// Watch events and list items taken in.
    pub events: u64,
    /// Lists begun.
    pub lists: u64,
    /// Items of the list under way.
    pub list_items: u64,
    /// What the list under way is expected to have, where the apiserver says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_expected: Option<u64>,
    /// Watches opened.
    pub watches: u64,
    /// Objects that could not be taken in.
    pub skipped: u64,
    /// Times that one of its actors was restarted.
    pub restarts: u64,
    /// Changes that wait for the store.
    pub queued: u64,
    /// What it may keep and keeps, in a hub that has had a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<InformerMemory>,
    /// What went wrong last and has not been mended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How far its objects are on disk, in a hub that keeps them there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointState>,
    /// Its subscribers.
    pub listeners: Vec<ListenerStatus>,
}

/// A subscriber of an informer at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// The subscription's name: a sink's, or one that the caller gave.
    pub name: String,
    /// Notifications that wait.
    pub pending: u64,
    /// Notifications handed over.
    pub delivered: u64,
    /// Notifications merged because it was behind.
    pub merged: u64,
    /// Notifications that it failed on.
    pub lost: u64,
}

/// What a cluster's actor shows; read without asking it, so that a cluster that hangs does not hang the status.
#[derive(Clone, Debug, Default)]
pub(in crate::actors) struct ClusterView {
    pub(in crate::actors) state: ClusterState,
    pub(in crate::actors) error: Option<String>,
    pub(in crate::actors) informers: Vec<InformerView>,
    pub(in crate::actors) discovery: Option<SurveyStatus>,
    pub(in crate::actors) patterns: Vec<PatternStatus>,
    /// The server that answers, once it has.
    pub(in crate::actors) server: Option<Server>,
}

/// What is shown of one informer.
#[derive(Clone, Debug)]
pub(in crate::actors) struct InformerView {
    pub(in crate::actors) wanted: ResourceRequest,
    pub(in crate::actors) resource: Option<ApiResource>,
    /// What its objects came from disk as, until it is looked up.
    pub(in crate::actors) restored: Option<ApiResource>,
    pub(in crate::actors) scope: Scope,
    pub(in crate::actors) health: Arc<InformerHealth>,
    pub(in crate::actors) listeners: Vec<(String, Arc<ListenerHealth>)>,
}

/// Where a cluster's actor puts its view.
pub(in crate::actors) type SharedView = Arc<ArcSwap<ClusterView>>;

impl ClusterView {
    /// What the cluster is doing, as its informers experience it: one that answers none of them is unreachable, one
    /// that has answered none yet is still being connected to. One that asks nothing now, since what it watches is not there,
    /// has nothing to say of that, unless all are so.
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

    /// What keeps the cluster from being reached; where only its informers know, what the first of them knows.
    pub(in crate::actors) fn last_error(&self) -> Option<String> {
        let unreachable = self.state() == ClusterState::Unreachable;
        let unanswered = |informer: &&InformerView| informer.health.answers() == Some(false);
        let told = || self.informers.iter().filter(unanswered).find_map(|informer| informer.health.error());
        self.error.clone().or_else(|| told().filter(|_| unreachable).map(|error| error.to_string()))
    }

    /// Whether all informers have synced, or the cluster cannot be reached (which must not hold up the others).
    pub(in crate::actors) fn is_ready(&self) -> bool {
        self.is_unreachable() || self.informers.iter().all(InformerView::is_settled)
    }

    /// Whether it does not answer.
    pub(in crate::actors) fn is_unreachable(&self) -> bool {
        self.state() == ClusterState::Unreachable
    }
}

impl InformerView {
    /// Whether requests go out for it.
    fn asks(&self) -> bool {
        !matches!(self.health.phase(), Phase::Absent | Phase::Paused | Phase::Stopped)
    }

    /// Synced, or in a state that waiting does not mend.
    pub(in crate::actors) fn is_settled(&self) -> bool {
        let hopeless = matches!(
            self.health.phase(),
            Phase::Absent | Phase::Forbidden | Phase::Degraded | Phase::Stopped | Phase::Paused
        );
        self.health.has_synced() || hopeless
    }

    /// The resource, as kubectl writes it.
    pub(in crate::actors) fn resource_text(&self) -> String {
        self.resource.as_ref().map_or_else(|| self.wanted.text(), |resource| resource.gvr.to_string())
    }

    pub(in crate::actors) fn status(&self, caches: &CacheDirectory) -> InformerStatus {
        let health = &*self.health;
        let list_expected = health.list_expected.load(Relaxed);
        InformerStatus {
            resource: self.resource_text(),
            scope: self.scope.to_string(),
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
            skipped: health.skipped.load(Relaxed),
            restarts: health.restarts.load(Relaxed),
            queued: health.fifo_keys.load(Relaxed),
            memory: (health.memory.used.load(Relaxed) > 0 || health.memory.since().is_some())
                .then(|| InformerMemory::of(health)),
            last_error: health.error().map(|error| error.to_string()),
            checkpoint: health.checkpoint().map(|state| CheckpointState::clone(&state)),
            listeners: self.listeners.iter().map(|(name, health)| listener_status(name, health)).collect(),
        }
    }

    fn bytes(&self, caches: &CacheDirectory) -> u64 {
        let Some(resource) = self.resource.as_ref().or(self.restored.as_ref()) else { return 0 };
        let Some(snapshot) = caches.published(&resource.gvr, &self.scope.view) else { return 0 };
        let mine = snapshot.partitions().find(|(_, partition)| partition.is_of(&self.health));
        mine.map_or(0, |(_, partition)| object_memory(partition.len() as u64, partition.body_bytes()))
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
        InformerView { wanted, resource: None, restored: None, scope: Scope::all(), health, listeners: Vec::new() }
    }

    fn view(informers: Vec<InformerView>) -> ClusterView {
        ClusterView { state: ClusterState::Connected, informers, ..ClusterView::default() }
    }

    #[test]
    fn a_cluster_that_went_away_is_unreachable_though_one_resource_was_said_to_be_absent() {
        let absent = || informer("widgets.example.com", Phase::Absent, Some(true), "no such resource");
        let gone = view(vec![absent(), informer("pods", Phase::Stale, Some(false), "refused")]);
        assert_eq!((gone.state(), gone.last_error().as_deref()), (ClusterState::Unreachable, Some("refused")));
        let there = view(vec![absent(), informer("pods", Phase::Watching, Some(true), "")]);
        assert_eq!((there.state(), there.last_error()), (ClusterState::Connected, None));
        let coming = view(vec![absent(), informer("pods", Phase::Pending, None, "")]);
        assert_eq!(coming.state(), ClusterState::Connecting);
        assert_eq!(view(vec![absent()]).state(), ClusterState::Connected, "nobody knows better");
        assert_eq!(view(Vec::new()).state(), ClusterState::Connected);
    }
}
