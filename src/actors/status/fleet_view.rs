//! State of all clusters for metrics, read without messages to actors.
//!
//! Reading takes one reference per cluster and loads atomics. So it blocks nothing, and works while the registry is
//! busy or after it has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::actors::cache::actor::CacheDirectory;
use crate::actors::checkpoint::store::StateStatus;
use crate::actors::env::Env;
use crate::actors::memory::members::MemoryStatus;
use crate::actors::status::hub::{ClusterState, ClusterView, InformerView, PatternStatus};
use crate::actors::status::sync::SyncView;
use informer_hub_reflector::Connection;
use informer_hub_types::{ClusterLabels, ClusterName, ClusterTraffic, Histogram, InformerHealth};

/// Read access to the state of all clusters. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FleetView {
    sync: SyncView,
    env: Env,
}

/// State of a cluster at one moment.
#[derive(Debug)]
pub struct ClusterSeen {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Labels of the cluster.
    pub labels: ClusterLabels,
    view: Arc<ClusterView>,
}

/// State of an informer.
#[derive(Clone, Copy, Debug)]
pub struct InformerSeen<'a>(&'a InformerView);

/// Counters of one subscriber of an informer.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ListenerSeen<'a> {
    /// Number of waiting notifications.
    pub pending: u64,
    /// Number of delivered notifications.
    pub delivered: u64,
    /// Number of notifications merged because the subscriber was slow.
    pub merged: u64,
    /// Number of notifications lost because the subscriber could not process them.
    pub lost: u64,
    /// Time from the hub's reading of a change to the subscriber's acknowledgement, for all informers of the subscriber
    /// together.
    pub lag: Option<&'a Arc<Histogram>>,
}

impl FleetView {
    /// Creates the view of a hub whose clusters and informers are those of `sync`.
    #[must_use]
    pub(crate) fn new(sync: SyncView, env: Env) -> Self {
        Self { sync, env }
    }

    /// Returns each cluster, ordered by name.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterSeen> {
        let views = self.sync.views().into_iter();
        views.map(|(name, (labels, view))| ClusterSeen { name, labels, view: view.load_full() })
    }

    /// Returns whether every cluster has received the requests for its informers, and every informer of a reachable
    /// cluster has synced. Informers that cannot sync at present, such as forbidden ones, do not count.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // Read before the views: if no request is in flight now, the views show all earlier requests.
        !self.sync.is_starting() && self.clusters().all(|cluster| cluster.view.is_ready())
    }

    /// Returns the memory status; `None` without a limit.
    #[must_use]
    pub fn memory(&self) -> Option<MemoryStatus> {
        self.env.budget.status()
    }

    /// Returns the caches of the hub.
    #[must_use]
    pub(crate) fn caches(&self) -> &CacheDirectory {
        &self.env.caches
    }

    /// Returns the status of the state directory; `None` without one.
    #[must_use]
    pub fn state_dir(&self) -> Option<StateStatus> {
        self.env.checkpoints.status()
    }
}

impl ClusterSeen {
    /// Returns the state of the connection to the cluster.
    #[must_use]
    pub fn state(&self) -> ClusterState {
        self.view.state()
    }

    /// Returns the numbers of connections and requests to the apiserver. `None` before the client is built, and if
    /// connections are not counted.
    #[must_use]
    pub fn traffic(&self) -> Option<ClusterTraffic> {
        self.view.connection.as_ref()?.traffic()
    }

    /// Returns, for each configured resource pattern (`[resources.<name>]`), the resources of the cluster that it
    /// selects.
    #[must_use]
    pub fn patterns(&self) -> &[PatternStatus] {
        &self.view.patterns
    }

    /// Returns the last error that is not resolved.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.view.last_error()
    }

    /// Returns the version of the apiserver, such as `v1.36.3`, once it has answered.
    #[must_use]
    pub(crate) fn version(&self) -> Option<&str> {
        self.view.server.as_ref()?.version.as_deref()
    }

    /// Returns the connection to the cluster, once it is made.
    #[must_use]
    pub(crate) fn connection(&self) -> Option<Arc<dyn Connection>> {
        self.view.connection.clone()
    }

    /// Returns the informers of the cluster.
    pub fn informers(&self) -> impl Iterator<Item = InformerSeen<'_>> {
        self.view.informers.iter().map(InformerSeen)
    }
}

impl<'a> InformerSeen<'a> {
    /// Returns the resource as kubectl writes it.
    #[must_use]
    pub fn resource(&self) -> String {
        self.0.resource_text()
    }

    /// Returns the health of the informer.
    #[must_use]
    pub fn health(&self) -> &'a InformerHealth {
        &self.0.health
    }

    /// Returns the subscribers by subscription name.
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
    use crate::actors::status::hub::SharedView;
    use crate::actors::subscribe::inbox::ListenerHealth;
    use crate::actors::subscribe::resource_request::ResourceRequest;
    use crate::actors::{ThreadPools, Tuning};
    use informer_hub_types::{
        ApiResource, ClusterLabels, ClusterTimings, EncodingInUse, Histogram, LAG_SECONDS, Phase, ResourceVersion,
        Scope, Threads,
    };

    /// Returns a healthy fleet for tests: `clusters` clusters, each with one informer per resource, and each informer
    /// with all `subscriptions`.
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
            health.set_encoding(EncodingInUse::protobuf());
            health.bytes.store(1, Relaxed);
            InformerView {
                key: Arc::new((ResourceRequest::known(resource), Scope::all())),
                gvr: Some(resource.gvr.clone()),
                is_resolved: true,
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
        let env = Env::new(ThreadPools::of(&threads), Vec::new(), Tuning::default());
        FleetView::new(SyncView::new(views, Arc::<AtomicUsize>::default(), env.watch_syncs()), env)
    }
}
