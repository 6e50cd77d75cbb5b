//! Sync state of informers, read without messages to actors: `HasSynced` and `WaitForCacheSync`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::RwLock;

use crate::actors::status::hub::{InformerView, SharedView};
use crate::actors::subscribe::resource_request::ResourceRequest;
use informer_hub_types::{
    ClusterLabels, ClusterName, ClusterSelector, InformerHealth, Phase, ResourceVersion, Scope, Watcher, clock,
};

/// Interval at which a wait for sync checks all its informers again. Forbidden and absent informers do not notify it.
const SYNC_POLL: Duration = Duration::from_millis(100);

/// Timeout that replaces a longer one, whose end would exceed the range of the clock.
const FAR_FUTURE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Number added to the count of unhandled messages (`in_flight`) at the beginning of a shutdown. The count then stays
/// above zero, so that waits for sync do not succeed when the hub removes its clusters.
pub(in crate::actors) const ENDING: usize = usize::MAX / 2;

/// Published state (view) of all clusters, with their labels, by name.
pub(in crate::actors) type Views = Arc<RwLock<BTreeMap<ClusterName, (ClusterLabels, SharedView)>>>;

/// Error of a wait for sync: it timed out, or it could not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not synced after {:?}: {}", in_millis(*waited), waiting.join("; "))]
#[non_exhaustive]
pub struct NotSynced {
    /// Duration of the wait: the timeout, or less if the hub ended before it.
    pub waited: Duration,
    /// Lines that say what is missing. Each informer without a complete first list has a line with its cluster,
    /// resource, state and last error. A cluster that has no informers because of an error has a line too. A last line
    /// says whether the hub is starting, shutting down or has ended.
    pub waiting: Vec<String>,
}

/// Truncates a duration to whole milliseconds.
fn in_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Informers to wait for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SyncScope {
    /// All informers of the hub, and each cluster that has no informers because the hub cannot connect to it.
    Everything,
    /// Informers of one resource and scope, in some clusters.
    Informers(Arc<InformersOf>),
}

/// Informers of one resource and scope in the selected clusters; see [`SyncScope::Informers`].
#[derive(Clone, Debug)]
pub struct InformersOf {
    /// Request that started the informers.
    pub wanted: ResourceRequest,
    /// Scope of the request.
    pub scope: Scope,
    /// Selected clusters.
    pub clusters: ClusterSelector,
}

/// Sync state of an informer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InformerSync {
    /// Name of the informer's cluster.
    pub cluster: ClusterName,
    /// Whether the informer's first list is in the store.
    pub synced: bool,
    /// Whether the informer has synced, or is in a state that waiting does not change, such as absent, forbidden or
    /// unreachable.
    pub settled: bool,
    /// Phase of the informer, such as listing or watching.
    pub phase: Phase,
    /// Version up to which the informer has read: client-go's `LastSyncResourceVersion`.
    pub version: Option<ResourceVersion>,
    /// Last error that is not resolved.
    pub error: Option<String>,
    text: String,
}

/// Read access to sync states. Cheap to clone; usable from any thread, also after the hub has ended.
#[derive(Clone)]
pub struct SyncView {
    views: Views,
    /// Number of messages sent to clusters whose effect is not in the clusters' published state (views) yet.
    in_flight: Arc<AtomicUsize>,
    changed: Watcher<()>,
}

impl SyncView {
    pub(in crate::actors) fn new(views: Views, in_flight: Arc<AtomicUsize>, changed: Watcher<()>) -> Self {
        Self { views, in_flight, changed }
    }

    /// Returns a copy of the map of the clusters' labels and published state.
    pub(in crate::actors) fn views(&self) -> BTreeMap<ClusterName, (ClusterLabels, SharedView)> {
        self.views.read().clone()
    }

    /// Returns the selected informers by cluster. An informer that was just requested may be missing.
    #[must_use]
    pub fn informers(&self, of: &SyncScope) -> Vec<InformerSync> {
        self.views.read().iter().flat_map(|(name, (labels, view))| informers_of(of, name, labels, view)).collect()
    }

    /// Returns the selected informers of one cluster. An informer that was just requested may be missing.
    #[must_use]
    pub fn informers_in(&self, cluster: &ClusterName, of: &SyncScope) -> Vec<InformerSync> {
        let views = self.views.read();
        views.get(cluster).map(|(labels, view)| informers_of(of, cluster, labels, view)).unwrap_or_default()
    }

    /// Returns the health of the first selected informer in one cluster; `None` if there is none.
    pub(crate) fn health_in(&self, cluster: &ClusterName, of: &SyncScope) -> Option<Arc<InformerHealth>> {
        let views = self.views.read();
        let (labels, view) = views.get(cluster)?;
        let view = view.load();
        view.informers.iter().find(|it| is_selected(of, cluster, labels, it)).map(|it| Arc::clone(&it.health))
    }

    /// Returns whether some cluster has not received all requests for its informers yet. Also true while the hub shuts
    /// down.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.in_flight.load(SeqCst) > 0
    }

    /// Returns a watcher that is notified whenever an informer may have synced.
    pub(crate) fn changes(&self) -> Watcher<()> {
        self.changed.clone()
    }

    /// Returns the lines of [`NotSynced::waiting`]; empty if nothing is missing.
    fn waiting(&self, of: &SyncScope) -> Vec<String> {
        // Read before the views: if no request is in flight now, the views show all earlier requests.
        let is_starting = self.is_starting();
        let not_yet = |informer: InformerSync| {
            let why = informer.error.map(|error| format!(" ({error})")).unwrap_or_default();
            format!("{}/{} is {}{why}", informer.cluster, informer.text, informer.phase.as_str())
        };
        let mut waiting: Vec<_> =
            self.informers(of).into_iter().filter(|informer| !informer.synced).map(not_yet).collect();
        for (name, (labels, view)) in &*self.views.read() {
            let view = view.load();
            let mine = match of {
                SyncScope::Everything => view.informers.is_empty(),
                SyncScope::Informers(selected) => {
                    selected.clusters.matches(name, labels)
                        && !view.informers.iter().any(|informer| is_selected(of, name, labels, informer))
                }
            };
            if let Some(error) = view.error.as_deref().filter(|_| mine) {
                waiting.push(format!("{name}: {error}"));
            }
        }
        if is_starting {
            let is_ending = self.in_flight.load(SeqCst) >= ENDING;
            let state = if is_ending { "the hub is shutting down" } else { "informers are being started" };
            waiting.push(state.to_owned());
        }
        waiting
    }

    /// Waits until all selected informers have synced.
    ///
    /// # Errors
    /// [`NotSynced`] after the timeout, with the missing informers and their errors; or as soon as the hub has ended.
    pub async fn wait(mut self, of: SyncScope, timeout: Duration) -> Result<(), NotSynced> {
        let began = clock::now();
        let until = began.checked_add(timeout).unwrap_or(began + FAR_FUTURE);
        loop {
            let waiting = self.waiting(&of);
            if waiting.is_empty() {
                return Ok(());
            }
            if clock::now() >= until {
                return Err(NotSynced { waited: timeout, waiting });
            }
            let next = until.min(clock::now() + SYNC_POLL);
            if let Ok(Err(_)) = tokio::time::timeout_at(next, self.changed.changed()).await {
                let (waited, waiting) = (clock::now() - began, vec!["the hub has ended".to_owned()]);
                return Err(NotSynced { waited, waiting });
            }
        }
    }
}

fn is_selected(of: &SyncScope, name: &ClusterName, labels: &ClusterLabels, informer: &InformerView) -> bool {
    match of {
        SyncScope::Everything => true,
        SyncScope::Informers(selected) => {
            selected.clusters.matches(name, labels)
                && *informer.wanted() == selected.wanted
                && *informer.scope() == selected.scope
        }
    }
}

/// Returns the selected informers of one cluster.
fn informers_of(of: &SyncScope, cluster: &ClusterName, labels: &ClusterLabels, view: &SharedView) -> Vec<InformerSync> {
    let view = view.load();
    let is_reached = !view.is_unreachable();
    let mine = view.informers.iter().filter(|informer| is_selected(of, cluster, labels, informer));
    mine.map(|informer| informer_sync(cluster, informer, (is_reached, view.error.as_ref()))).collect()
}

/// Returns the sync state of an informer. `is_reached` is whether its cluster is reachable. `error` is the error of the
/// connection to the cluster. The state has this error if the informer has no error of its own and has not synced.
fn informer_sync(
    cluster: &ClusterName,
    informer: &InformerView,
    (is_reached, error): (bool, Option<&String>),
) -> InformerSync {
    let synced = informer.health.has_synced();
    let own = informer.health.error().map(|error| error.to_string());
    InformerSync {
        cluster: cluster.clone(),
        synced,
        settled: informer.is_settled() || !is_reached,
        phase: informer.health.phase(),
        version: informer.health.version().map(|version| version.as_ref().clone()),
        // An informer of a cluster that was never reached has no error of its own.
        error: own.or_else(|| error.filter(|_| !synced).cloned()),
        text: informer.wanted().text(),
    }
}

impl fmt::Debug for SyncView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncView").finish_non_exhaustive()
    }
}
