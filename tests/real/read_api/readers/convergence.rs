//! Convergence of all readers.

use std::time::Duration;

use informer_hub_types::clock;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use super::expected::{Held, Root, difference};
use super::kube_rs::KubeRs;
use super::process::{Dump, Readers};
use crate::bed::{
    Churn, RealCluster, becomes_true, create_namespace, create_pods, create_widgets, install_widgets, widget_gvr,
};
use crate::fixture::WAIT_DEADLINE;
use crate::read_api::endpoint::{Endpoint, RawAnswer};
use crate::read_api::hub::HubProcess;

/// Total number of changes.
const CHANGES: usize = 2_000;

/// Total number of restarts. Every third one restarts an apiserver, the others the hub.
const RESTARTS: usize = 10;

/// Configurations of a hub that lists everything again after a restart, and of one that continues from its last
/// checkpoint.
const MEMORY_ONLY: &str = "";
const DURABLE: &str = "state_dir = \"state\"\ncheckpoint = \"200ms\"\n";

const NAMES: [&str; 2] = ["east", "west"];

/// Reader of client-go: name, mode, resource, root.
type Spec = (&'static str, &'static str, &'static str, Root);

const WIDGETS: &str = "widgets.v1.bed.example.com";

/// Readers of client-go. A streaming list passes through a store keyed by name, which cannot hold two objects of one
/// name.
const SPECS: &[Spec] = &[
    ("typed", "typed", "pods", Root::Cluster(0)),
    ("json", "json", "pods", Root::Cluster(1)),
    ("protobuf", "protobuf", "pods", Root::Cluster(1)),
    ("dynamic", "dynamic", WIDGETS, Root::Cluster(0)),
    ("metadata", "metadata", "pods", Root::Cluster(0)),
    ("unique", "typed", "pods", Root::Unique),
    ("unique-dynamic", "dynamic", WIDGETS, Root::Unique),
    ("unique-metadata", "metadata", WIDGETS, Root::Unique),
    ("fleet", "reflector", "pods", Root::Fleet),
];

/// The clusters, the hub, and every kind of reader.
struct Bed {
    clusters: [RealCluster; 2],
    clients: [Client; 2],
    hub: HubProcess,
    /// Readers of client-go, without and with streaming lists.
    client_go: [Readers; 2],
    python: Option<Readers>,
    pods: Vec<(&'static str, Root, KubeRs<Pod>)>,
    widgets: Vec<(&'static str, Root, KubeRs<DynamicObject>)>,
}

fn specs(is_streaming: bool) -> impl Iterator<Item = &'static Spec> {
    SPECS.iter().filter(move |(_, _, _, root)| !is_streaming || *root != Root::Fleet)
}

impl Bed {
    /// Starts everything. `hub` is further configuration of the hub.
    async fn start(hub: &str) -> Self {
        let clusters = RealCluster::start_all(NAMES).await;
        let clients = [clusters[0].client().await, clusters[1].client().await];
        for client in &clients {
            install_widgets(client).await;
            create_namespace(client, "churn").await;
            // The same names in both clusters.
            create_pods(client, "default", "web", 40).await;
            create_widgets(client, "default", "part", 20).await;
        }
        let kubeconfigs = clusters.each_ref().map(|cluster| (cluster.name(), cluster.kubeconfig()));
        let resources = ["pods".to_owned(), "widgets.bed.example.com".to_owned()];
        let hub = HubProcess::start_with(&kubeconfigs, &resources, hub).await;
        let client_go = [false, true].map(|is_streaming| {
            let argument = |(name, mode, resource, root): &Spec| {
                format!("{name}={mode},{resource},{}", hub.root(&root.path(NAMES)).url())
            };
            Readers::client_go(is_streaming, &specs(is_streaming).map(argument).collect::<Vec<_>>())
        });
        let of_python = [("west", Root::Cluster(1)), ("unique", Root::Unique)];
        let of_python = of_python.map(|(name, root)| format!("{name}={}", hub.root(&root.path(NAMES)).url()));
        let resource = widget_resource();
        let root = |root: Root| hub.root(&root.path(NAMES));
        let pods =
            [("paged", Root::Cluster(0), false), ("streaming", Root::Cluster(1), true), ("unique", Root::Unique, true)];
        let pods = pods.map(|(name, at, is_streaming)| (name, at, KubeRs::start(&root(at), is_streaming)));
        let widgets = [("paged", Root::Unique, false), ("streaming", Root::Cluster(0), true)];
        let widgets = widgets
            .map(|(name, at, is_streaming)| (name, at, KubeRs::start_dynamic(&root(at), &resource, is_streaming)));
        let (pods, widgets) = (pods.into(), widgets.into());
        Self { clusters, clients, client_go, python: Readers::python(&of_python), pods, widgets, hub }
    }

    /// Makes all changes, with restarts in between and while they are made.
    async fn disturb(&mut self, random: &mut StdRng) {
        let mut churns = [Churn::new(random.random(), "churn"), Churn::new(random.random(), "churn")];
        for turn in 0..RESTARTS {
            let pause = Duration::from_millis(random.random_range(0..300));
            let [east, west] = &mut churns;
            let changes = CHANGES / RESTARTS / 2;
            let of_hub = async {
                if turn % 3 != 2 {
                    tokio::time::sleep(pause).await;
                    self.hub.restart();
                }
            };
            tokio::join!(east.run(&self.clients[0], changes), west.run(&self.clients[1], changes), of_hub);
            if turn % 3 == 2 {
                let at = random.random_range(0..2);
                self.clusters[at].restart().await;
                self.clients[at] = self.clusters[at].client().await;
                install_widgets(&self.clients[at]).await;
            }
        }
        self.hub.ready().await;
    }

    /// Waits until each reader holds the objects of fresh lists.
    async fn converge(&self) {
        let apiservers = [Endpoint::apiserver(&self.clusters[0]).await, Endpoint::apiserver(&self.clusters[1]).await];
        for (readers, is_streaming) in self.client_go.iter().zip([false, true]) {
            for (name, _, _, root) in specs(is_streaming) {
                let listed = [readers.list(name, &apiservers[0]).await, readers.list(name, &apiservers[1]).await];
                let about = format!("client-go {name}, streaming lists: {is_streaming}");
                let dump = reaches(&about, *root, &listed, async || readers.dump().await.remove(*name)).await;
                verify(&about, *root, is_streaming, &dump);
            }
        }
        let readers = &self.client_go[0];
        let mut listed = Vec::new();
        for name in ["typed", "dynamic"] {
            let [east, west] = &apiservers;
            listed.push([readers.list(name, east).await, readers.list(name, west).await]);
        }
        if let Some(python) = &self.python {
            for (name, root) in [("west", Root::Cluster(1)), ("unique", Root::Unique)] {
                let about = format!("Python's client {name}");
                let dump = reaches(&about, root, &listed[0], async || python.dump().await.remove(name)).await;
                println!("{about}: {:?}, errors {:?}", dump.counts, dump.errors);
            }
        }
        for (name, root, reader) in &self.pods {
            reaches(&format!("kube-rs {name} pods"), *root, &listed[0], async || Some(reader.dump())).await;
        }
        for (name, root, reader) in &self.widgets {
            reaches(&format!("kube-rs {name} widgets"), *root, &listed[1], async || Some(reader.dump())).await;
        }
    }
}

fn widget_resource() -> ApiResource {
    let gvr = widget_gvr();
    ApiResource {
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        api_version: gvr.api_version(),
        kind: "Widget".to_owned(),
        plural: gvr.resource.to_string(),
    }
}

/// Verifies that a watch from an old version ends at the hub as at a restarted apiserver.
async fn old_watches_end_alike(apiserver: &Endpoint, hub: &Endpoint) {
    let path = "/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=5";
    let (kube, hub) = tokio::join!(apiserver.get(path, None), hub.get(path, None));
    let error = |answer: &RawAnswer| {
        let mut event: Value = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
        let message = event["object"]["message"].as_str().unwrap_or_default();
        let message = message.split('(').next().unwrap_or_default().to_owned();
        event["object"]["message"] = message.into();
        (answer.status, answer.header("content-type").map(str::to_owned), event)
    };
    assert_eq!(error(&kube).2["type"], "ERROR", "{kube:?}");
    assert_eq!(error(&hub), error(&kube));
}

/// Waits until a reader holds the expected objects, and returns its state.
async fn reaches(about: &str, root: Root, listed: &[Vec<Held>; 2], dump: impl AsyncFn() -> Option<Dump>) -> Dump {
    let expected = root.expected(NAMES, listed);
    assert!(expected.len() >= 20, "{about}: only {} objects", expected.len());
    let holds = async || {
        dump().await.is_some_and(|dump| dump.synced && difference(&expected, &root.held(&dump.objects)).is_empty())
    };
    let holds = becomes_true(WAIT_DEADLINE, holds).await;
    let dump = dump().await.expect("the reader was started");
    let difference = difference(&expected, &root.held(&dump.objects));
    assert!(holds, "{about}: {difference}\n{:?}, errors {:#?}", dump.counts, dump.errors);
    dump
}

/// Verifies the other parts of client-go's state: errors, versions, clusters and requests.
fn verify(about: &str, root: Root, is_streaming: bool, dump: &Dump) {
    println!("{about}: {:?}, {} errors", dump.counts, dump.errors.len());
    let wrong: Vec<_> = dump.objects.iter().filter(|object| !object.error.is_empty()).take(3).collect();
    assert!(wrong.is_empty(), "{about}: {wrong:?}");
    assert_eq!(dump.reverts, [] as [&str; 0], "{about}: versions went back");
    let unnamed = dump.objects.iter().filter(|object| object.cluster.is_empty()).count();
    let expected = if matches!(root, Root::Cluster(_)) { dump.objects.len() } else { 0 };
    assert_eq!(unnamed, expected, "{about}: objects that name no cluster");
    let (verb, other) = if is_streaming { ("stream 200", "list 200") } else { ("list 200", "stream 200") };
    assert!(dump.counts.contains_key(verb) && !dump.counts.contains_key(other), "{about}: {:?}", dump.counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_hold_the_objects_of_fresh_lists_after_changes_and_restarts() {
    let mut random = StdRng::seed_from_u64(informer_hub_testing::seed());
    let began = clock::now();
    let hub = *[MEMORY_ONLY, DURABLE].choose(&mut random).expect("there are two");
    let mut bed = Bed::start(hub).await;
    println!("readers of a hub with {hub:?} started after {:?}", began.elapsed());
    bed.converge().await;
    println!("converged after {:?}", began.elapsed());
    bed.disturb(&mut random).await;
    println!("changed after {:?}", began.elapsed());
    bed.converge().await;
    println!("converged again after {:?}", began.elapsed());
    bed.clusters[0].restart().await;
    let apiserver = Endpoint::apiserver(&bed.clusters[0]).await;
    old_watches_end_alike(&apiserver, &bed.hub.cluster(&bed.clusters[0])).await;
}
