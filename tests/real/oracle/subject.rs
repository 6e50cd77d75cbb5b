//! The hub under test, which watches what client-go watches, by the same way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use informer_hub::actors::messages::AddCluster;
use informer_hub::actors::{InformerStatus, Subscribe, Subscriber};
use informer_hub::app::Hub;
use informer_hub::cache::Query;
use informer_hub_config::{Config, HubConfig, ResourceConfig};
use informer_hub_reflector::StallPolicy;
use informer_hub_sim::oracle::Replica;
use informer_hub_source::{Access, KubeConnector};
use informer_hub_types::{ClusterName, ClusterSelector, Dynamic, Notification, Object};
use parking_lot::Mutex;

use super::account::{Count, Kind, Log, State, Subject, Told};
use super::witness::{Reading, Witness, Witnessed};
use crate::fleet::resource;

/// A hub over one namespace of one cluster.
pub(super) struct HubUnderTest {
    hub: Hub,
    logs: [Log; 2],
    witness: Witness,
    replicas: [Arc<Mutex<Replica>>; 2],
}

impl HubUnderTest {
    /// Starts the hub, and a subscriber of each kind that notes what it is told, `resync`s included.
    pub(super) async fn start(kubeconfig: &Path, namespace: &str, resync: Option<Duration>, facts: Count) -> Self {
        let config = Config {
            hub: HubConfig::default(),
            // Added below, with a witness.
            clusters: Vec::new(),
            sources: Vec::new(),
            resources: Kind::ALL.iter().map(|kind| informer(*kind, namespace)).collect(),
            sinks: Vec::new(),
        };
        let hub = Hub::start(config).await.unwrap();
        let logs = [Log::new(facts.clone()), Log::new(facts.clone())];
        let this = Self { hub, logs, witness: Witness::new(facts), replicas: Default::default() };
        // First, so that they miss nothing but what the lists do.
        this.subscribe(0, resync).await;
        this.add_cluster(kubeconfig).await;
        this
    }

    async fn add_cluster(&self, kubeconfig: &Path) {
        let connector = KubeConnector::new(
            Access::Kubeconfig { path: kubeconfig.to_owned(), context: None },
            true,
            StallPolicy::default(),
            &self.hub.system().env().io,
        );
        let connector = Arc::new(Witnessed::new(connector, self.witness.clone()));
        let add = AddCluster { name: ClusterName::new("real").unwrap(), labels: BTreeMap::new(), connector };
        self.hub.registry().send(add).await.unwrap().unwrap();
    }

    /// What the informer of a kind was brought.
    pub(super) fn reading(&self, kind: Kind) -> Reading {
        self.witness.reading(kind)
    }

    /// Adds a second subscriber of each kind.
    pub(super) async fn join(&self) {
        self.subscribe(1, None).await;
    }

    async fn subscribe(&self, which: usize, resync: Option<Duration>) {
        for kind in Kind::ALL {
            let (log, replica) = (self.logs[which].clone(), Arc::clone(&self.replicas[which]));
            let subscriber = Subscriber::<Dynamic>::from_fn(move |notification: &Notification| {
                replica.lock().apply(notification);
                take(kind, notification, &log);
            });
            let subscribe = Subscribe::to_configured(&kind.resource().gvr.resource, ClusterSelector::All, subscriber);
            let subscribe = match resync {
                Some(period) => subscribe.with_resync(period),
                None => subscribe,
            };
            self.hub.registry().send(subscribe).await.unwrap();
        }
    }

    /// What its subscribers were told: those of the start, and those that joined.
    pub(super) fn logs(&self) -> &[Log; 2] {
        &self.logs
    }

    /// What was told that no hub should tell, by the judge of the simulated clusters.
    pub(super) fn violations(&self) -> Vec<String> {
        self.replicas.iter().flat_map(|replica| replica.lock().violations().to_vec()).collect()
    }

    /// What the hub's caches answer.
    pub(super) async fn cached(&self) -> BTreeMap<Subject, State> {
        let mut cached = BTreeMap::new();
        for kind in Kind::ALL {
            let answer = self.hub.cache_of(kind.resource()).send(Query::list().across_clusters()).await;
            let items = answer.unwrap().unwrap().items;
            cached.extend(items.iter().map(|object| ((kind, object.name().to_owned()), state(object))));
        }
        cached
    }

    /// What the hub says of its informer of a kind.
    pub(super) async fn informer(&self, kind: Kind) -> InformerStatus {
        let report = self.hub.report().await.unwrap();
        let name = kind.resource().gvr.to_string();
        let informers = report.hub.clusters.into_iter().flat_map(|cluster| cluster.informers);
        informers.into_iter().find(|informer| informer.resource == name).expect("every kind has its informer")
    }

    /// What the hub says of itself.
    pub(super) async fn report_text(&self) -> String {
        serde_json::to_string_pretty(&self.hub.report().await.unwrap()).unwrap()
    }

    /// Ends the hub; no actor may be left.
    pub(super) async fn end(self) {
        let report = self.hub.shutdown(Duration::from_secs(20)).await;
        assert_eq!(report.actors_left, 0);
    }
}

fn informer(kind: Kind, namespace: &str) -> ResourceConfig {
    ResourceConfig {
        namespaces: vec![namespace.to_owned()],
        metadata_only: kind == Kind::ConfigMaps,
        ..resource(&kind.resource())
    }
}

fn take(kind: Kind, notification: &Notification, log: &Log) {
    let told = match notification {
        Notification::Synced(_) => return log.synced(kind),
        Notification::Added { object, initial } => Told::Added { new: state(object), initial: *initial },
        Notification::Updated { old, new, .. } => Told::Updated { old: state(old), new: state(new) },
        Notification::Deleted { object, tombstone } => Told::Deleted { last: state(object), tombstone: *tombstone },
    };
    let object = notification.object().expect("only what has synced is without an object");
    log.tell((kind, object.name().to_owned()), told);
}

fn state(object: &Object) -> State {
    State { uid: object.uid().clone(), version: object.resource_version().clone() }
}
