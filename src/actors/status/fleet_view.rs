//! What all clusters show, read without asking any actor: for metrics.
//!
//! A look costs a reference per cluster and reads atomics, so it holds nobody up, and it works while the registry is
//! busy, or has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::actors::checkpoint::keeper::StateStatus;
use crate::actors::env::Env;
use crate::actors::memory::budget::MemoryStatus;
use crate::actors::status::hub::{ClusterState, ClusterView, InformerView, PatternStatus};
use crate::actors::status::sync::SyncView;
use informer_hub_types::{ClusterName, Histogram, InformerHealth};

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FleetView {
    sync: SyncView,
    env: Env,
}

/// A cluster at one moment.
#[derive(Debug)]
pub struct ClusterSeen {
    /// Its name.
    pub name: ClusterName,
    view: Arc<ClusterView>,
}

/// One of its informers.
#[derive(Clone, Copy, Debug)]
pub struct InformerSeen<'a>(&'a InformerView);

/// A subscriber of an informer: notifications by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenerSeen<'a> {
    /// They wait.
    pub pending: u64,
    /// They were handed over.
    pub delivered: u64,
    /// They were merged into others because the subscriber was behind.
    pub merged: u64,
    /// The subscriber failed on them.
    pub lost: u64,
    /// How long changes take to reach the subscriber, at all informers together.
    pub lag: Option<&'a Arc<Histogram>>,
}

impl FleetView {
    /// Of the hub whose surroundings these are.
    #[must_use]
    pub fn new(sync: SyncView, env: Env) -> Self {
        Self { sync, env }
    }

    /// Each cluster, by name.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterSeen> {
        let views = self.sync.views().into_iter();
        views.map(|(name, (_, view))| ClusterSeen { name, view: view.load_full() })
    }

    /// Whether what was asked for has reached every cluster, and every informer of each that can be reached has synced.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // First of all: what is told after this shows afterwards.
        !self.sync.is_starting() && self.clusters().all(|cluster| cluster.view.is_ready())
    }

    /// The memory, where it is limited.
    #[must_use]
    pub fn memory(&self) -> Option<MemoryStatus> {
        self.env.budget.status()
    }

    /// What is kept on disk; `None` without a state directory.
    #[must_use]
    pub fn state_dir(&self) -> Option<StateStatus> {
        self.env.checkpoints.status()
    }
}

impl ClusterSeen {
    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> ClusterState {
        self.view.state()
    }

    /// What of it belongs to patterns.
    #[must_use]
    pub fn patterns(&self) -> &[PatternStatus] {
        &self.view.patterns
    }

    /// What went wrong last and has not been mended.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.view.last_error()
    }

    /// Its informers.
    pub fn informers(&self) -> impl Iterator<Item = InformerSeen<'_>> {
        self.view.informers.iter().map(InformerSeen)
    }
}

impl<'a> InformerSeen<'a> {
    /// Its resource, as kubectl writes it.
    #[must_use]
    pub fn resource(&self) -> String {
        self.0.resource_text()
    }

    /// What it shows of itself.
    #[must_use]
    pub fn health(&self) -> &'a InformerHealth {
        &self.0.health
    }

    /// Its subscribers, by the name of the subscription.
    pub fn listeners(&self) -> impl Iterator<Item = (&'a str, ListenerSeen<'a>)> + use<'a> {
        self.0.listeners.iter().map(|(name, health)| {
            let seen = ListenerSeen {
                pending: health.pending.load(Relaxed),
                delivered: health.delivered.load(Relaxed),
                merged: health.merged.load(Relaxed),
                lost: health.lost.load(Relaxed),
                lag: health.lag.as_ref(),
            };
            (name.as_str(), seen)
        })
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicUsize;

    use parking_lot::RwLock;

    use super::*;
    use crate::actors::Tuning;
    use crate::actors::status::hub::SharedView;
    use crate::actors::subscribe::inbox::ListenerHealth;
    use crate::actors::subscribe::resource_request::ResourceRequest;
    use informer_hub_types::{
        ApiResource, ClusterLabels, ClusterTimings, Histogram, LAG_SECONDS, Phase, ResourceVersion, Scope, Threads,
    };

    /// A fleet in which all is well: so many clusters, each of these resources in each, told to these subscribers.
    pub(crate) fn fleet(clusters: usize, resources: &[ApiResource], subscriptions: &[&str]) -> FleetView {
        let lags: Vec<_> = subscriptions.iter().map(|_| Arc::new(Histogram::new(LAG_SECONDS))).collect();
        let listeners = || {
            let health =
                |lag: &Arc<Histogram>| ListenerHealth { lag: Some(Arc::clone(lag)), ..ListenerHealth::default() };
            subscriptions.iter().zip(&lags).map(|(name, lag)| ((*name).to_owned(), Arc::new(health(lag)))).collect()
        };
        let timings = Arc::<ClusterTimings>::default();
        let informer = |resource: &ApiResource| {
            let health = InformerHealth::new();
            health.set_phase(Phase::Watching);
            health.set_synced();
            health.set_stored(Some(ResourceVersion::new("1")));
            health.set_timings(&timings);
            health.bytes.store(1, Relaxed);
            let wanted = ResourceRequest::known(resource);
            InformerView {
                wanted,
                resource: Some(resource.clone()),
                restored: None,
                scope: Scope::all(),
                health,
                listeners: listeners(),
            }
        };
        let view = |_| {
            let informers = resources.iter().map(informer).collect();
            let view = ClusterView { state: ClusterState::Connected, informers, ..ClusterView::default() };
            (ClusterLabels::new(), SharedView::new(arc_swap::ArcSwap::from_pointee(view)))
        };
        let named = (0..clusters).map(|number| (format!("cluster-{number}").parse().unwrap(), view(number)));
        let views = Arc::new(RwLock::new(named.collect::<BTreeMap<_, _>>()));
        let threads = Threads::simulated(tokio::runtime::Handle::current());
        let env = Env::new(threads.clone(), threads, Vec::new(), Tuning::default());
        FleetView::new(SyncView::new(views, Arc::<AtomicUsize>::default(), env.watch_syncs()), env)
    }
}
