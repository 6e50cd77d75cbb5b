//! How far informers have come, seen without asking any actor: `HasSynced` and `WaitForCacheSync`.

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

/// How often a wait for sync looks at informers that will not signal (forbidden, absent).
const SYNC_POLL: Duration = Duration::from_millis(100);

/// As good as for ever, for a wait that is longer than the clock can count.
const AGES: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What the clusters show, by name.
pub(in crate::actors) type Views = Arc<RwLock<BTreeMap<ClusterName, (ClusterLabels, SharedView)>>>;

/// What had not synced when a wait's time was up, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not synced after {waited:?}: {}", waiting.join("; "))]
pub struct NotSynced {
    /// How long was waited.
    pub waited: Duration,
    /// One line each: cluster, resource, state, last error.
    pub waiting: Vec<String>,
}

/// Which informers a wait is for.
#[derive(Clone, Debug)]
pub enum Awaited {
    /// All of the hub, and every cluster that cannot be reached.
    Everything,
    /// Those of one resource and scope, in some clusters.
    Informers(Arc<InformersOf>),
}

/// See [`Awaited::Informers`].
#[derive(Clone, Debug)]
pub struct InformersOf {
    /// What they were asked for as.
    pub wanted: ResourceRequest,
    /// Which part.
    pub scope: Scope,
    /// In which clusters.
    pub clusters: ClusterSelector,
}

/// One informer, as far as waiting is concerned.
#[derive(Clone, Debug)]
pub struct InformerSync {
    /// Its cluster.
    pub cluster: ClusterName,
    /// Whether its first list is in the store.
    pub synced: bool,
    /// Synced, or in a state that waiting does not mend (absent, forbidden, degraded, unreachable).
    pub settled: bool,
    /// What it is doing.
    pub phase: Phase,
    /// How far it has read: client-go's `LastSyncResourceVersion`.
    pub version: Option<ResourceVersion>,
    /// What went wrong last and has not been mended.
    pub error: Option<String>,
    text: String,
}

/// Sees how far informers are, for as long as anybody holds it. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct SyncView {
    views: Views,
    /// Clusters that have been told what is wanted of them and do not show it yet.
    telling: Arc<AtomicUsize>,
    changed: Watcher<()>,
}

impl SyncView {
    pub(in crate::actors) fn new(views: Views, telling: Arc<AtomicUsize>, changed: Watcher<()>) -> Self {
        Self { views, telling, changed }
    }

    /// What the clusters show now, without holding up who changes it.
    pub(in crate::actors) fn views(&self) -> BTreeMap<ClusterName, (ClusterLabels, SharedView)> {
        self.views.read().clone()
    }

    /// The informers that are meant, by cluster. One that was asked for a moment ago may not be among them yet.
    #[must_use]
    pub fn informers(&self, of: &Awaited) -> Vec<InformerSync> {
        self.views.read().iter().flat_map(|(name, (labels, view))| seen(of, name, labels, view)).collect()
    }

    /// The same of one cluster, without a look at the others.
    #[must_use]
    pub fn informers_in(&self, cluster: &ClusterName, of: &Awaited) -> Vec<InformerSync> {
        let views = self.views.read();
        views.get(cluster).map(|(labels, view)| seen(of, cluster, labels, view)).unwrap_or_default()
    }

    /// What the informer of one cluster shows of itself.
    pub(crate) fn health_in(&self, cluster: &ClusterName, of: &Awaited) -> Option<Arc<InformerHealth>> {
        let views = self.views.read();
        let (labels, view) = views.get(cluster)?;
        let view = view.load();
        view.informers.iter().find(|it| is_of(of, cluster, labels, it)).map(|it| Arc::clone(&it.health))
    }

    /// Whether what was asked for has not reached every cluster yet.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.telling.load(SeqCst) > 0
    }

    /// Reports whenever an informer may have synced.
    pub(crate) fn changes(&self) -> Watcher<()> {
        self.changed.clone()
    }

    /// A line for each that has not synced.
    fn waiting(&self, of: &Awaited) -> Vec<String> {
        // First of all: what is told after this shows afterwards.
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
                Awaited::Everything => view.informers.is_empty(),
                Awaited::Informers(these) => {
                    these.clusters.matches(name, labels)
                        && !view.informers.iter().any(|informer| is_of(of, name, labels, informer))
                }
            };
            if let Some(error) = view.error.as_deref().filter(|_| mine) {
                waiting.push(format!("{name}: {error}"));
            }
        }
        if is_starting {
            waiting.push("informers are being started".to_owned());
        }
        waiting
    }

    /// Waits until all that are meant have synced.
    ///
    /// # Errors
    /// [`NotSynced`] names what had not when the time was up, and why.
    pub async fn wait(mut self, of: Awaited, timeout: Duration) -> Result<(), NotSynced> {
        let now = clock::now();
        let until = now.checked_add(timeout).unwrap_or(now + AGES);
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
                let waiting = vec!["the hub has ended".to_owned()];
                return Err(NotSynced { waited: timeout, waiting });
            }
        }
    }
}

fn is_of(of: &Awaited, name: &ClusterName, labels: &ClusterLabels, informer: &InformerView) -> bool {
    match of {
        Awaited::Everything => true,
        Awaited::Informers(these) => {
            these.clusters.matches(name, labels) && informer.wanted == these.wanted && informer.scope == these.scope
        }
    }
}

/// Those of one cluster.
fn seen(of: &Awaited, cluster: &ClusterName, labels: &ClusterLabels, view: &SharedView) -> Vec<InformerSync> {
    let view = view.load();
    let is_reached = !view.is_unreachable();
    let mine = view.informers.iter().filter(|informer| is_of(of, cluster, labels, informer));
    mine.map(|informer| see(cluster, informer, is_reached)).collect()
}

fn see(cluster: &ClusterName, informer: &InformerView, is_reached: bool) -> InformerSync {
    InformerSync {
        cluster: cluster.clone(),
        synced: informer.health.has_synced(),
        settled: informer.is_settled() || !is_reached,
        phase: informer.health.phase(),
        version: informer.health.version().map(|version| version.as_ref().clone()),
        error: informer.health.error().map(|error| error.to_string()),
        text: informer.wanted.text(),
    }
}

impl fmt::Debug for SyncView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncView").finish_non_exhaustive()
    }
}
