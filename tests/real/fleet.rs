//! A hub over real clusters, with a consumer that believes nothing but what it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use informer_hub::actors::{InformerStatus, Subscribe, Subscriber};
use informer_hub::app::{Hub, HubReport};
use informer_hub::cache::{Answer, Query};
use informer_hub_config::{ClusterAccess, ClusterConfig, Config, HubConfig, ResourceConfig, SinkConfig};
use informer_hub_sim::oracle::{Oracle, Replica, Told, What};
use informer_hub_types::{ApiResource, ClusterName, ClusterSelector, Dynamic, Freshness, Gvr, Notification, ObjectKey};
use kube::Client;
use parking_lot::Mutex;

use crate::bed::{Truth, comes_true, truth, widget_gvr};

/// How long anything may take before the test fails. Generous: two cores may run three clusters and another test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

pub(crate) fn widgets() -> ApiResource {
    ApiResource { gvr: widget_gvr(), kind: "Widget".into(), namespaced: true }
}

/// A hub that watches the pods and widgets of some clusters, and what a subscriber of both was told.
pub(crate) struct Fleet {
    pub(crate) hub: Hub,
    told: Arc<Mutex<Seen>>,
}

/// What a subscriber was told.
#[derive(Default)]
struct Seen {
    replica: Replica,
    /// The objects whose deletion was told as a tombstone, by origin.
    tombstones: BTreeSet<(String, ObjectKey)>,
}

impl Fleet {
    /// Starts a hub over clusters that it reaches by kubeconfigs.
    pub(crate) async fn start<const N: usize>(clusters: [(&str, &Path); N], sinks: Vec<SinkConfig>) -> Self {
        let config = Config {
            hub: HubConfig::default(),
            clusters: clusters.map(|(name, kubeconfig)| cluster(name, kubeconfig)).into(),
            sources: Vec::new(),
            resources: [pods(), widgets()].iter().map(resource).collect(),
            sinks,
        };
        let hub = Hub::start(config).await.unwrap();
        let told = Arc::new(Mutex::new(Seen::default()));
        for resource in [pods(), widgets()] {
            let told = Arc::clone(&told);
            let subscriber = Subscriber::<Dynamic>::from_fn(move |notification: &Notification| {
                told.lock().take(&notification.into());
            });
            let name = resource.gvr.resource.to_string();
            let subscribe = Subscribe::to_configured(&name, ClusterSelector::All, subscriber).named("replica");
            hub.registry().send(subscribe).await.unwrap();
        }
        Self { hub, told }
    }

    /// Waits until every informer has synced.
    pub(crate) async fn synced(&self) {
        if let Err(error) = self.hub.wait_for_cache_sync(PATIENCE).await {
            panic!("{error}\n{}", self.report_text().await);
        }
    }

    /// Waits until every informer has synced or is in a state that waiting does not mend.
    pub(crate) async fn ready(&self) {
        let ready = async || self.report().await.hub.ready;
        assert!(comes_true(PATIENCE, ready).await, "not ready\n{}", self.report_text().await);
    }

    /// What the cache answers of one cluster.
    pub(crate) async fn answer(&self, cluster: &str, resource: &ApiResource) -> Answer {
        let only = ClusterSelector::Names(vec![ClusterName::new(cluster).unwrap()]);
        self.hub.cache_of(resource.clone()).send(Query::list().in_clusters(only)).await.unwrap().unwrap()
    }

    /// How far the answers of one cluster can be trusted.
    pub(crate) async fn freshness(&self, cluster: &str, resource: &ApiResource) -> Freshness {
        let coverage = self.answer(cluster, resource).await.coverage;
        let [part] = &coverage[..] else { panic!("one cluster was asked for: {coverage:?}") };
        part.freshness
    }

    /// What the cache holds of one cluster.
    pub(crate) async fn cached(&self, cluster: &str, resource: &ApiResource) -> Truth {
        let answer = self.answer(cluster, resource).await;
        let entry = |object: &informer_hub_types::Object| {
            (object.key().clone(), (object.uid().clone(), object.resource_version().clone()))
        };
        answer.items.iter().map(entry).collect()
    }

    /// What the subscriber has of one cluster.
    pub(crate) fn seen(&self, cluster: &str, resource: &ApiResource) -> Truth {
        self.told.lock().replica.seen_of(&origin(cluster, resource))
    }

    /// The objects of one cluster whose deletion the subscriber was told as a tombstone.
    pub(crate) fn tombstones(&self, cluster: &str, resource: &ApiResource) -> BTreeSet<ObjectKey> {
        let origin = origin(cluster, resource);
        let told = self.told.lock();
        told.tombstones.iter().filter(|(of, _)| of.starts_with(&origin)).map(|(_, key)| key.clone()).collect()
    }

    /// Waits until cache and subscriber agree with a fresh list of a cluster in which nothing changes any more, and
    /// checks that the subscriber was never told what cannot have happened.
    pub(crate) async fn converged(&self, cluster: &str, client: &Client, resource: &ApiResource) {
        let truth = truth(client, &resource.gvr).await;
        let differences = async || {
            let cached = Oracle::diff(&truth, &self.cached(cluster, resource).await);
            (cached, Oracle::diff(&truth, &self.seen(cluster, resource)))
        };
        let agree = async || {
            let (cached, told) = differences().await;
            cached.is_empty() && told.is_empty()
        };
        if !comes_true(PATIENCE, agree).await {
            let (cached, told) = differences().await;
            let report = self.report_text().await;
            panic!("{cluster} {}: cache {cached:?}\nsubscriber {told:?}\n{report}", resource.gvr);
        }
        assert_eq!(self.told.lock().replica.violations(), &[] as &[String]);
    }

    /// What the hub says of itself.
    pub(crate) async fn report(&self) -> HubReport {
        self.hub.report().await.unwrap()
    }

    /// What the hub says of one informer.
    pub(crate) async fn informer(&self, cluster: &str, resource: &ApiResource) -> InformerStatus {
        let report = self.report().await;
        let cluster = report.hub.clusters.into_iter().find(|status| status.name.as_str() == cluster).unwrap();
        let name = resource.gvr.to_string();
        cluster.informers.into_iter().find(|informer| informer.resource == name).unwrap()
    }

    /// Waits until an informer's status is as `is` wants it.
    pub(crate) async fn until(
        &self,
        what: &str,
        cluster: &str,
        resource: &ApiResource,
        is: impl Fn(&InformerStatus) -> bool,
    ) {
        let check = async || is(&self.informer(cluster, resource).await);
        assert!(comes_true(PATIENCE, check).await, "not within {PATIENCE:?}: {what}\n{}", self.report_text().await);
    }

    /// Ends the hub and checks that nothing was lost and no actor is left.
    pub(crate) async fn end(self) {
        let report = self.hub.shutdown(Duration::from_secs(20)).await;
        assert_eq!((report.actors_left, &report.undelivered[..]), (0, &[][..]));
    }

    async fn report_text(&self) -> String {
        serde_json::to_string_pretty(&self.report().await).unwrap()
    }
}

impl Seen {
    fn take(&mut self, told: &Told) {
        self.replica.tell(told);
        if let What::Deleted { object, tombstone: true } = &told.what {
            self.tombstones.insert((told.origin.clone(), object.key.clone()));
        }
    }
}

/// The name, or the beginning of the name, of a replica's origin.
pub(crate) fn origin(cluster: &str, resource: &ApiResource) -> String {
    format!("{cluster}/{}", resource.gvr.long())
}

/// A cluster as the configuration has it.
pub(crate) fn cluster(name: &str, kubeconfig: &Path) -> ClusterConfig {
    ClusterConfig {
        name: ClusterName::new(name).unwrap(),
        labels: BTreeMap::new(),
        access: ClusterAccess::Kubeconfig { path: kubeconfig.to_owned(), context: None },
        compression: true,
    }
}

/// Written as somebody would write it in the configuration, so that discovery has something to find out.
pub(crate) fn resource(resource: &ApiResource) -> ResourceConfig {
    ResourceConfig::new(resource.gvr.resource.to_string(), resource.gvr.to_string().parse().unwrap())
}
