//! The hub under test. It watches the same resources as client-go, through the same proxy.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use informer_hub::actors::messages::AddCluster;
use informer_hub::actors::{InformerStatus, Subscribe, Subscriber};
use informer_hub::app::Hub;
use informer_hub::cache::Query;
use informer_hub_config::{Config, ResourceConfig};
use informer_hub_reflector::StallPolicy;
use informer_hub_sim::oracle::Replica;
use informer_hub_source::{Access, KubeConnector};
use informer_hub_types::{ClusterName, ClusterSelector, Dynamic, Notification, Object};
use parking_lot::Mutex;

use super::history::{ChangeCounter, Kind, Log, Notified, State, Subject};
use super::read_recorder::{ReadLog, ReadRecorder, Recorded};
use crate::fixture::resource;

/// Hub over one namespace of one cluster.
pub(super) struct HubUnderTest {
    hub: Hub,
    logs: [Log; 2],
    recorder: ReadRecorder,
    replicas: [Arc<Mutex<Replica>>; 2],
}

impl HubUnderTest {
    /// Starts the hub, and a recording subscriber of each kind with this resync period.
    pub(super) async fn start(
        kubeconfig: &Path,
        namespace: &str,
        resync: Option<Duration>,
        changes: ChangeCounter,
    ) -> Self {
        // The cluster is added below, with a recording connector.
        let mut config = Config::default();
        config.resources = Kind::ALL.iter().map(|kind| informer(*kind, namespace)).collect();
        let hub = Hub::start(config).await.unwrap();
        let logs = [Log::new(changes.clone()), Log::new(changes.clone())];
        let this = Self { hub, logs, recorder: ReadRecorder::new(changes), replicas: Default::default() };
        // Subscribed before the cluster is added, so that the subscribers miss only what lists skip.
        this.subscribe(0, resync).await;
        this.add_cluster(kubeconfig).await;
        this
    }

    async fn add_cluster(&self, kubeconfig: &Path) {
        let connector = KubeConnector::new(
            Access::Kubeconfig { path: kubeconfig.to_owned(), context: None }.into(),
            StallPolicy::default(),
            &self.hub.system().env().io,
        );
        let connector = Arc::new(Recorded::new(connector, self.recorder.clone()));
        let add = AddCluster { name: ClusterName::new("real").unwrap(), labels: BTreeMap::new(), connector };
        self.hub.registry().send(add).await.unwrap().unwrap();
    }

    /// Returns the recorded reads of a kind's informer.
    pub(super) fn reads(&self, kind: Kind) -> ReadLog {
        self.recorder.reads(kind)
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

    /// Returns the notifications of the first subscribers, and of those that joined later.
    pub(super) fn logs(&self) -> &[Log; 2] {
        &self.logs
    }

    /// Returns the contract violations that the simulation's replica found.
    pub(super) fn violations(&self) -> Vec<String> {
        self.replicas.iter().flat_map(|replica| replica.lock().violations().to_vec()).collect()
    }

    /// Returns the cached state of all objects.
    pub(super) async fn cached(&self) -> BTreeMap<Subject, State> {
        let mut cached = BTreeMap::new();
        for kind in Kind::ALL {
            let answer = self.hub.cache_of(kind.resource()).send(Query::list().across_clusters()).await;
            let items = answer.unwrap().unwrap().items;
            cached.extend(items.iter().map(|object| ((kind, object.name().to_owned()), state(object))));
        }
        cached
    }

    /// Returns the status of a kind's informer.
    pub(super) async fn informer(&self, kind: Kind) -> InformerStatus {
        let report = self.hub.report().await.unwrap();
        let name = kind.resource().gvr.to_string();
        let informers = report.hub.clusters.into_iter().flat_map(|cluster| cluster.informers);
        informers.into_iter().find(|informer| informer.resource == name).expect("each kind has an informer")
    }

    /// Returns the hub's report as text.
    pub(super) async fn report_text(&self) -> String {
        serde_json::to_string_pretty(&self.hub.report().await.unwrap()).unwrap()
    }

    /// Shuts the hub down and verifies that no actor is left.
    pub(super) async fn end(self) {
        let report = self.hub.shutdown(Duration::from_secs(20)).await;
        assert_eq!(report.actors_left, 0);
    }
}

fn informer(kind: Kind, namespace: &str) -> ResourceConfig {
    let mut informer = resource(&kind.resource());
    informer.namespaces = vec![namespace.to_owned()];
    informer.metadata_only = kind == Kind::ConfigMaps;
    informer
}

fn take(kind: Kind, notification: &Notification, log: &Log) {
    let notified = match notification {
        Notification::Synced(_) => return log.synced(kind),
        Notification::Added { object, initial } => Notified::Added { new: state(object), initial: *initial },
        Notification::Updated { old, new, .. } => Notified::Updated { old: state(old), new: state(new) },
        Notification::Deleted { object, tombstone } => Notified::Deleted { last: state(object), tombstone: *tombstone },
    };
    let object = notification.object().expect("only Synced has no object");
    log.record((kind, object.name().to_owned()), notified);
}

fn state(object: &Object) -> State {
    State { uid: object.uid().clone(), version: object.resource_version().clone() }
}
