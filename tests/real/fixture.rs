//! Test fixture: a hub over real clusters, with a subscriber that keeps a replica from its notifications alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use informer_hub::actors::{InformerStatus, Subscribe, Subscriber};
use informer_hub::app::{Hub, HubReport};
use informer_hub::cache::{Answer, Query};
use informer_hub_config::{ClusterAccess, ClusterConfig, Config, ResourceConfig, SinkConfig};
use informer_hub_sim::oracle::{EventContent, Oracle, ReceivedEvent, Replica};
use informer_hub_types::{ApiResource, ClusterName, ClusterSelector, Dynamic, Freshness, Gvr, Notification, ObjectKey};
use kube::Client;
use parking_lot::Mutex;

use crate::bed::{GroundTruth, becomes_true, ground_truth, widget_gvr};

/// Deadline of any wait. Generous, since two cores may run three clusters and another test.
pub(crate) const WAIT_DEADLINE: Duration = Duration::from_secs(90);

pub(crate) fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

pub(crate) fn widgets() -> ApiResource {
    ApiResource { gvr: widget_gvr(), kind: "Widget".into(), namespaced: true }
}

/// Hub that watches pods and widgets of some clusters, with a subscriber to both.
pub(crate) struct HubFixture {
    pub(crate) hub: Hub,
    state: Arc<Mutex<SubscriberState>>,
}

/// State that the subscriber built from its notifications.
#[derive(Default)]
struct SubscriberState {
    replica: Replica,
    /// Objects whose deletion was notified as a tombstone, by origin.
    tombstones: BTreeSet<(String, ObjectKey)>,
}

impl HubFixture {
    /// Starts a hub over clusters given as kubeconfigs.
    pub(crate) async fn start<const N: usize>(clusters: [(&str, &Path); N], sinks: Vec<SinkConfig>) -> Self {
        let mut config = Config::default();
        config.clusters = clusters.map(|(name, kubeconfig)| cluster(name, kubeconfig)).into();
        config.resources = [pods(), widgets()].iter().map(resource).collect();
        config.sinks = sinks;
        let hub = Hub::start(config).await.unwrap();
        let state = Arc::new(Mutex::new(SubscriberState::default()));
        for resource in [pods(), widgets()] {
            let state = Arc::clone(&state);
            let subscriber = Subscriber::<Dynamic>::from_fn(move |notification: &Notification| {
                state.lock().apply(&notification.into());
            });
            let name = resource.gvr.resource.to_string();
            let subscribe = Subscribe::to_configured(&name, ClusterSelector::All, subscriber).named("replica");
            hub.registry().send(subscribe).await.unwrap();
        }
        Self { hub, state }
    }

    /// Waits until every informer has synced.
    pub(crate) async fn synced(&self) {
        if let Err(error) = self.hub.wait_for_cache_sync(WAIT_DEADLINE).await {
            panic!("{error}\n{}", self.report_text().await);
        }
    }

    /// Waits until the hub is ready: every informer has synced, or cannot sync without a change in its cluster.
    pub(crate) async fn ready(&self) {
        let ready = async || self.report().await.hub.ready;
        assert!(becomes_true(WAIT_DEADLINE, ready).await, "not ready\n{}", self.report_text().await);
    }

    /// Queries the cache for one cluster's objects.
    pub(crate) async fn answer(&self, cluster: &str, resource: &ApiResource) -> Answer {
        let only = ClusterSelector::Names(vec![ClusterName::new(cluster).unwrap()]);
        self.hub.cache_of(resource.clone()).send(Query::list().in_clusters(only)).await.unwrap().unwrap()
    }

    /// Returns the freshness of one cluster's part in the cache.
    pub(crate) async fn freshness(&self, cluster: &str, resource: &ApiResource) -> Freshness {
        let coverage = self.answer(cluster, resource).await.coverage;
        let [part] = &coverage[..] else { panic!("one cluster was asked for: {coverage:?}") };
        part.freshness
    }

    /// Returns the cached objects of one cluster.
    pub(crate) async fn cached(&self, cluster: &str, resource: &ApiResource) -> GroundTruth {
        let answer = self.answer(cluster, resource).await;
        let entry = |object: &informer_hub_types::Object| {
            (object.key().clone(), (object.uid().clone(), object.resource_version().clone()))
        };
        answer.items.iter().map(entry).collect()
    }

    /// Returns the subscriber's replica of one cluster.
    pub(crate) fn seen(&self, cluster: &str, resource: &ApiResource) -> GroundTruth {
        self.state.lock().replica.seen_of(&origin(cluster, resource))
    }

    /// Returns the objects of one cluster whose deletion was notified as a tombstone.
    pub(crate) fn tombstones(&self, cluster: &str, resource: &ApiResource) -> BTreeSet<ObjectKey> {
        let origin = origin(cluster, resource);
        let state = self.state.lock();
        state.tombstones.iter().filter(|(of, _)| of.starts_with(&origin)).map(|(_, key)| key.clone()).collect()
    }

    /// Waits until cache and subscriber agree with a fresh list, and verifies that no notification was inconsistent.
    ///
    /// The cluster's objects must not change any more.
    pub(crate) async fn converged(&self, cluster: &str, client: &Client, resource: &ApiResource) {
        let truth = ground_truth(client, &resource.gvr).await;
        let differences = async || {
            let cached = Oracle::diff(&truth, &self.cached(cluster, resource).await);
            (cached, Oracle::diff(&truth, &self.seen(cluster, resource)))
        };
        let agree = async || {
            let (cached, notified) = differences().await;
            cached.is_empty() && notified.is_empty()
        };
        if !becomes_true(WAIT_DEADLINE, agree).await {
            let (cached, notified) = differences().await;
            let report = self.report_text().await;
            panic!("{cluster} {}: cache {cached:?}\nsubscriber {notified:?}\n{report}", resource.gvr);
        }
        assert_eq!(self.state.lock().replica.violations(), &[] as &[String]);
    }

    /// Returns the hub's report.
    pub(crate) async fn report(&self) -> HubReport {
        self.hub.report().await.unwrap()
    }

    /// Returns the status of one informer.
    pub(crate) async fn informer(&self, cluster: &str, resource: &ApiResource) -> InformerStatus {
        let report = self.report().await;
        let cluster = report.hub.clusters.into_iter().find(|status| status.name.as_str() == cluster).unwrap();
        let name = resource.gvr.to_string();
        cluster.informers.into_iter().find(|informer| informer.resource == name).unwrap()
    }

    /// Waits until `check` accepts an informer's status.
    pub(crate) async fn until(
        &self,
        what: &str,
        cluster: &str,
        resource: &ApiResource,
        check: impl Fn(&InformerStatus) -> bool,
    ) {
        let holds = async || check(&self.informer(cluster, resource).await);
        assert!(
            becomes_true(WAIT_DEADLINE, holds).await,
            "not within {WAIT_DEADLINE:?}: {what}\n{}",
            self.report_text().await
        );
    }

    /// Shuts the hub down and verifies that no event is undelivered and no actor is left.
    pub(crate) async fn end(self) {
        let report = self.hub.shutdown(Duration::from_secs(20)).await;
        assert_eq!((report.actors_left, &report.undelivered[..]), (0, &[][..]));
    }

    async fn report_text(&self) -> String {
        serde_json::to_string_pretty(&self.report().await).unwrap()
    }
}

impl SubscriberState {
    fn apply(&mut self, event: &ReceivedEvent) {
        self.replica.record(event);
        if let EventContent::Deleted { object, tombstone: true } = &event.content {
            self.tombstones.insert((event.origin.clone(), object.key.clone()));
        }
    }
}

/// Returns the name (or its prefix) of a replica's origin.
pub(crate) fn origin(cluster: &str, resource: &ApiResource) -> String {
    format!("{cluster}/{}", resource.gvr.long())
}

/// Returns the configuration of a cluster.
pub(crate) fn cluster(name: &str, kubeconfig: &Path) -> ClusterConfig {
    ClusterConfig::new(ClusterName::new(name).unwrap(), ClusterAccess::kubeconfig(kubeconfig, None))
}

/// Returns the configuration of a resource by its textual name, so that discovery has to resolve it.
pub(crate) fn resource(resource: &ApiResource) -> ResourceConfig {
    ResourceConfig::new(resource.gvr.resource.to_string(), resource.gvr.to_string().parse().unwrap())
}
