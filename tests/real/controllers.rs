//! The examples that are controllers, in two clusters of which one dies on the way: they do their job in the other one
//! meanwhile, and in both in the end, and make nothing twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use informer_hub::informers::ResourceEventHandlerFuncs;
use informer_hub::{Hub, SharedInformerFactory};
use informer_hub_config::Config;
use informer_hub_types::ObjectKey;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::bed::{RealCluster, comes_true, delete_now, eventually, merge};
use crate::deployment_controller::expectations::{Change, Expectations, OVERDUE, Owner};
use crate::deployment_controller::replica_sets::slow_start;
use crate::fleet::PATIENCE;
use crate::sample_controller::common::{Clients, Unsynced, clients, cluster, is_controlled_by};
use crate::sample_controller::foo::Foo;
use crate::{deployment_controller, sample_controller};

/// Workers of a controller: fewer than there are keys, so that clusters have to share.
const WORKERS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

fn in_default<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::default_namespaced(client.clone())
}

async fn create<K>(client: &Client, object: Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let object = serde_json::from_value::<K>(object).unwrap();
    let made = in_default(client).create(&PostParams::default(), &object).await;
    made.unwrap_or_else(|error| panic!("create of {object:?}: {error}"));
}

/// Everything of a kind in the namespace, by name, as the server has it.
async fn all<K>(client: &Client) -> BTreeMap<String, K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    let list = in_default::<K>(client).list(&ListParams::default()).await.unwrap();
    list.items.into_iter().map(|object| (object.name_any(), object)).collect()
}

/// A hub over clusters, and clients to write with, as the examples make them.
async fn start(clusters: &[RealCluster]) -> (Arc<Hub>, Clients) {
    let cluster = |it: &RealCluster| cluster(it.name().parse().unwrap(), it.kubeconfig().to_owned());
    let config = Config { clusters: clusters.iter().map(cluster).collect(), ..Config::default() };
    let clients = clients(&config).await.unwrap();
    (Arc::new(Hub::start(config).await.unwrap()), clients)
}

/// Has a controller stop, and checks that it and the hub end in order.
async fn end(hub: Arc<Hub>, stop: &CancellationToken, controller: JoinHandle<anyhow::Result<()>>) {
    stop.cancel();
    tokio::time::timeout(PATIENCE, controller).await.expect("it stops").unwrap().unwrap();
    let hub = Arc::into_inner(hub).expect("the controller has let go of the hub");
    assert_eq!(hub.shutdown(Duration::from_secs(20)).await.actors_left, 0);
}

// === sample controller ===

/// Installs the CRD, or waits until it is served again.
async fn install_foos(client: &Client) {
    let definition: CustomResourceDefinition =
        serde_json::from_str(include_str!("../../examples/sample_controller/crd.json")).unwrap();
    match Api::all(client.clone()).create(&PostParams::default(), &definition).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        installed => assert!(installed.is_ok(), "{installed:?}"),
    }
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let probe: Foo = serde_json::from_value(foo("probe", "probe", 0)).unwrap();
    eventually("foos can be made", PATIENCE, async || {
        in_default::<Foo>(client).list(&ListParams::default()).await.is_ok()
            && in_default(client).create(&dry_run, &probe).await.is_ok()
    })
    .await;
}

fn foo(name: &str, deployment: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "samplecontroller.k8s.io/v1alpha1",
        "kind": "Foo",
        "metadata": { "name": name },
        "spec": { "deploymentName": deployment, "replicas": replicas },
    })
}

fn deployment(name: &str, replicas: usize, image: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": image }] },
            },
        },
    })
}

/// What is wrong in a cluster: for each Foo its Deployment, which is its own, has its replicas, and is reported on.
async fn wrongs(client: &Client, foreign: &str) -> Vec<String> {
    let deployments = all::<Deployment>(client).await;
    let mut wrongs = Vec::new();
    let mut expected = BTreeSet::from([foreign.to_owned()]);
    for (name, sample) in all::<Foo>(client).await {
        if sample.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let wanted = &sample.spec.deployment_name;
        expected.insert(wanted.clone());
        if wanted == foreign {
            continue;
        }
        let Some(deployment) = deployments.get(wanted) else {
            wrongs.push(format!("{name} has no Deployment"));
            continue;
        };
        let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
        if !is_controlled_by(&deployment.metadata, &sample.metadata) {
            wrongs.push(format!("{wanted} is not owned by {name}"));
        }
        if deployment.spec.replicas != sample.spec.replicas {
            wrongs.push(format!("{wanted} has {:?} instead of {:?}", deployment.spec.replicas, sample.spec.replicas));
        }
        if sample.status.available_replicas != available {
            wrongs.push(format!("{name} says {} of {available}", sample.status.available_replicas));
        }
    }
    let found: BTreeSet<_> = deployments.into_keys().collect();
    if found != expected {
        wrongs.push(format!("Deployments {found:?} instead of {expected:?}"));
    }
    wrongs
}

async fn all_is_well(client: &Client) {
    let well = async || wrongs(client, "foreign").await.is_empty();
    assert!(comes_true(PATIENCE, well).await, "{:#?}", wrongs(client, "foreign").await);
}

async fn say_available(client: &Client, deployment: &str, replicas: usize) {
    let status =
        json!({ "status": { "replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas } });
    let patch = Patch::Merge(status);
    in_default::<Deployment>(client).patch_status(deployment, &PatchParams::default(), &patch).await.unwrap();
}

fn uids(deployments: &BTreeMap<String, Deployment>) -> BTreeMap<&String, &str> {
    deployments.iter().map(|(name, it)| (name, it.metadata.uid.as_deref().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_controller_does_its_job_in_two_clusters_of_which_one_dies() {
    let mut clusters = RealCluster::start_all(["mortal", "steady"]).await;
    let api = [clusters[0].client().await, clusters[1].client().await];
    for client in &api {
        install_foos(client).await;
        create::<Deployment>(client, deployment("foreign", 1, "theirs")).await;
        // On its way out, and held up: nothing is made for it any more.
        let mut going = foo("going", "web-going", 1);
        going["metadata"]["finalizers"] = json!(["example.com/hold"]);
        create::<Foo>(client, going).await;
        in_default::<Foo>(client).delete("going", &DeleteParams::default()).await.unwrap();
    }
    let (hub, clients) = start(&clusters).await;
    let stop = CancellationToken::new();
    let controller = tokio::spawn({
        let (hub, stop) = (Arc::clone(&hub), stop.clone());
        async move { sample_controller::controller::run(&hub, clients, WORKERS, stop).await }
    });

    for client in &api {
        for n in 0..10 {
            create::<Foo>(client, foo(&format!("foo-{n}"), &format!("web-{n}"), n % 4)).await;
        }
        create::<Foo>(client, foo("thief", "foreign", 5)).await;
    }
    for client in &api {
        all_is_well(client).await;
        say_available(client, "web-3", 2).await;
    }
    for client in &api {
        all_is_well(client).await;
    }
    let before = all::<Deployment>(&api[0]).await;

    // It dies while there is work: the controller knows of some of these, and has made some of the Deployments.
    for n in 10..20 {
        create::<Foo>(&api[0], foo(&format!("foo-{n}"), &format!("web-{n}"), 1)).await;
    }
    clusters[0].kill();
    for n in 10..20 {
        create::<Foo>(&api[1], foo(&format!("foo-{n}"), &format!("web-{n}"), 1)).await;
        merge(&in_default::<Foo>(&api[1]), &format!("foo-{}", n - 10), json!({ "spec": { "replicas": n } })).await;
    }
    all_is_well(&api[1]).await;

    clusters[0].restart().await;
    install_foos(&api[0]).await;
    merge(&in_default::<Foo>(&api[0]), "foo-1", json!({ "spec": { "replicas": 7 } })).await;
    delete_now(&in_default::<Deployment>(&api[0]), "web-2").await;
    say_available(&api[0], "web-3", 3).await;
    // Nobody collects garbage here: what it owned stays, and is left alone.
    for client in &api {
        create::<Foo>(client, foo("last", "web-last", 2)).await;
        all_is_well(client).await;
    }

    let after = all::<Deployment>(&api[0]).await;
    let (before, after) = (uids(&before), uids(&after));
    for (name, uid) in before {
        assert_eq!(after[name] == uid, name != "web-2", "{name}: only what was deleted has been made again");
    }
    for client in &api {
        let foreign = &all::<Deployment>(client).await["foreign"];
        assert_eq!((foreign.spec.replicas, &foreign.metadata.owner_references), (Some(1), &None));
        let events: BTreeSet<_> = all::<Event>(client).await.into_values().map(told).collect();
        let told = |name: &str, kind: &str, reason: &str| {
            events.contains(&(name.to_owned(), kind.to_owned(), reason.to_owned()))
        };
        assert!(told("thief", "Warning", "ErrResourceExists"), "{events:?}");
        assert!(told("foo-3", "Normal", "Synced"), "{events:?}");
        assert!(!told("foo-4", "Normal", "Synced"), "nothing was to be said of it: {events:?}");
    }
    end(hub, &stop, controller).await;
}

fn told(event: Event) -> (String, String, String) {
    let name = event.involved_object.name.unwrap_or_default();
    (name, event.type_.unwrap_or_default(), event.reason.unwrap_or_default())
}

// === deployment controller ===

/// A Deployment that the controller is to look after.
fn ours(mut deployment: Value) -> Value {
    deployment["metadata"]["annotations"] = json!({ deployment_controller::controller::ANNOTATION: "true" });
    deployment
}

/// Pods of each Deployment that are to be, by name of the Deployment.
type ResourceRequest = BTreeMap<&'static str, usize>;

/// What is wrong in a cluster: pods by the app that they are of, and what ReplicaSets and Deployments say of them.
async fn discrepancies(client: &Client, wanted: &ResourceRequest) -> Vec<String> {
    let mut wrongs = Vec::new();
    let (sets, pods) = (all::<ReplicaSet>(client).await, all::<Pod>(client).await);
    for (name, deployment) in all::<Deployment>(client).await {
        let of_app = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            meta.labels.as_ref().is_some_and(|labels| labels["app"] == name)
        };
        let Some(&wanted) = wanted.get(name.as_str()) else { continue };
        let (mut alive, mut said) = (0, 0);
        for set in sets.values().filter(|set| is_controlled_by(&set.metadata, &deployment.metadata)) {
            alive += usize::from(set.spec.replicas != Some(0));
            let mine = pods.values().filter(|pod| is_controlled_by(&pod.metadata, &set.metadata)).count();
            said += usize::try_from(set.status.as_ref().map_or(0, |status| status.replicas)).unwrap();
            if set.spec.replicas != i32::try_from(mine).ok() {
                wrongs.push(format!("{} has {mine} pods, wants {:?}", set.name_any(), set.spec.replicas));
            }
        }
        let of_it = pods.values().filter(|pod| of_app(&pod.metadata)).count();
        let status = deployment.status.unwrap_or_default();
        let count = i32::try_from(wanted).ok();
        if (alive, said, of_it, status.replicas, status.updated_replicas) != (1, wanted, wanted, count, count) {
            let says = (status.replicas, status.updated_replicas);
            wrongs.push(format!("{name}: {alive} sets say {said}, {of_it} pods of {wanted}, status {says:?}"));
        }
    }
    wrongs
}

async fn all_add_up(client: &Client, wanted: &ResourceRequest) {
    let well = async || discrepancies(client, wanted).await.is_empty();
    assert!(comes_true(PATIENCE, well).await, "{:#?}", discrepancies(client, wanted).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployment_controller_makes_no_pod_twice_though_its_cluster_dies_under_it() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    const REPLICAS: usize = 20;
    let mut clusters = RealCluster::start_all(["mortal", "steady"]).await;
    let api = [clusters[0].client().await, clusters[1].client().await];
    let (hub, clients) = start(&clusters).await;
    // Every pod that ever was.
    let seen = Arc::<Mutex<BTreeSet<(String, String)>>>::default();
    let factory = SharedInformerFactory::new(hub.system());
    let note = Arc::clone(&seen);
    let handler = ResourceEventHandlerFuncs::new().on_add(move |pod| {
        note.lock().insert((pod.cluster().to_string(), pod.uid().to_string()));
    });
    factory.informer::<Pod>().unwrap().add_event_handler(handler).await.unwrap();
    factory.start().await.unwrap();
    let made = |cluster: &str| seen.lock().iter().filter(|(of, _)| of == cluster).count();

    let stop = CancellationToken::new();
    let controller = tokio::spawn({
        let (hub, stop) = (Arc::clone(&hub), stop.clone());
        async move { deployment_controller::controller::run(&hub, clients, WORKERS, stop).await }
    });
    for client in &api {
        for name in NAMES {
            create::<Deployment>(client, ours(deployment(name, REPLICAS, "one"))).await;
        }
        create::<Deployment>(client, deployment("theirs", 1, "one")).await;
        let mut paused = ours(deployment("paused", 2, "one"));
        paused["spec"]["paused"] = json!(true);
        create::<Deployment>(client, paused).await;
    }
    eventually("it has begun", PATIENCE, async || made("mortal") >= REPLICAS / 4).await;
    clusters[0].kill();
    println!("killed after {} of {} pods", made("mortal"), 4 * REPLICAS);
    let mut wanted: ResourceRequest = NAMES.map(|name| (name, REPLICAS)).into();
    all_add_up(&api[1], &wanted).await;
    assert_eq!(made("steady"), 4 * REPLICAS);

    clusters[0].restart().await;
    eventually("it answers", PATIENCE, async || in_default::<Pod>(&api[0]).list(&ListParams::default()).await.is_ok())
        .await;
    all_add_up(&api[0], &wanted).await;
    assert_eq!(made("mortal"), 4 * REPLICAS, "a pod was made twice, or came and went");

    // One grows, one shrinks, one gets a new template, one loses a pod.
    for client in &api {
        let deployments = in_default::<Deployment>(client);
        merge(&deployments, "a", json!({ "spec": { "replicas": REPLICAS + 3 } })).await;
        merge(&deployments, "b", json!({ "spec": { "replicas": 1 } })).await;
        let containers = json!([{ "name": "main", "image": "two" }]);
        merge(&deployments, "c", json!({ "spec": { "template": { "spec": { "containers": containers } } } })).await;
        let pods = all::<Pod>(client).await;
        let lost = pods.values().find(|pod| pod.labels()["app"] == "d").unwrap();
        delete_now(&in_default::<Pod>(client), &lost.name_any()).await;
        assert_eq!(all::<ReplicaSet>(client).await.keys().filter(|name| name.starts_with("paused")).count(), 0);
        merge(&deployments, "paused", json!({ "spec": { "paused": false } })).await;
    }
    wanted.extend([("a", REPLICAS + 3), ("b", 1), ("paused", 2)]);
    let in_all = 5 * REPLICAS + 6;
    for client in &api {
        // The pod that was lost is missed before all adds up again.
        eventually("all have been made", PATIENCE, async || made("mortal") >= in_all && made("steady") >= in_all).await;
        all_add_up(client, &wanted).await;
        assert_eq!(all::<ReplicaSet>(client).await.len(), 6, "one for each template, and none for what is not ours");
    }
    assert_eq!((made("mortal"), made("steady")), (in_all, in_all));
    factory.shutdown().await;
    end(hub, &stop, controller).await;
}

#[test]
fn only_what_is_still_wanted_is_asked_for_again() {
    let request = |name: &str| informer_hub::Request::new("a".parse().unwrap(), ObjectKey::new("ns", name));
    let set = Owner { request: request("set"), uid: "1".to_owned() };
    let shown = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let expectations = Expectations::default();
    let names = |again: Vec<(String, Change)>| again.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>();

    // Three are wanted, one shows, one is under way: one of the two in doubt is asked for, the other is given up.
    expectations.expect(&set, "under-way", Change::Create);
    expectations.doubt(&set, "doubt-1", Change::Create);
    expectations.doubt(&set, "doubt-2", Change::Create);
    let again = expectations.again(&set, 3, &shown(&["there"]));
    assert_eq!(again.len(), 1);
    assert_eq!(expectations.again(&set, 3, &shown(&["there"])), again, "the same one");
    assert_eq!(expectations.again(&set, 2, &shown(&["there"])), [], "it is not wanted any more");
    assert!(!expectations.are_met(&set), "one is under way");
    expectations.settle(&set, "under-way");
    assert!(expectations.are_met(&set));

    // Deletions likewise; one that has happened is not repeated.
    for pod in ["x", "y", "gone"] {
        expectations.doubt(&set, pod, Change::Delete);
    }
    assert_eq!(names(expectations.again(&set, 1, &shown(&["x", "y", "z"]))), shown(&["x", "y"]));
    assert_eq!(expectations.again(&set, 3, &shown(&["x", "y", "z"])), []);
    assert!(expectations.are_met(&set));

    // Another ReplicaSet of that name has nothing to do with it.
    expectations.doubt(&set, "old", Change::Create);
    let successor = Owner { uid: "2".to_owned(), ..set.clone() };
    assert!(expectations.are_met(&successor));
    assert_eq!(expectations.again(&successor, 5, &shown(&[])), []);
    expectations.expect(&successor, "new", Change::Create);
    expectations.settle(&set, "new");
    assert!(!expectations.are_met(&successor));
    assert!(expectations.are_met(&set));
    expectations.forget(&set.request);
    assert!(expectations.are_met(&successor));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_show_is_overdue_and_keys_of_a_cluster_that_is_not_read_wait_longer_and_longer() {
    let set = Owner {
        request: informer_hub::Request::new("a".parse().unwrap(), ObjectKey::new("ns", "set")),
        uid: String::new(),
    };
    let expectations = Expectations::default();
    expectations.expect(&set, "pod", Change::Create);
    assert_eq!(expectations.again(&set, 1, &BTreeSet::new()), []);
    tokio::time::advance(OVERDUE).await;
    assert_eq!(expectations.again(&set, 1, &BTreeSet::new()), [("pod".to_owned(), Change::Create)]);

    let (unsynced, a, b) = (Unsynced::default(), "a".parse().unwrap(), "b".parse().unwrap());
    let mut delays = Vec::new();
    for _ in 0..7 {
        let delay = unsynced.delay(&a);
        delays.push(delay.as_millis());
        tokio::time::advance(delay).await;
    }
    assert_eq!(delays, [500, 500, 1000, 2000, 4000, 8000, 10_000]);
    assert_eq!(unsynced.delay(&b), Duration::from_millis(500), "another cluster waits for itself");
    unsynced.forget(&a);
    assert_eq!(unsynced.delay(&a), Duration::from_millis(500));
}

#[tokio::test]
async fn what_the_server_refuses_is_not_asked_of_it_for_every_pod() {
    let begun = Mutex::new(Vec::new());
    let refused_from = |from: usize| {
        let begun = &begun;
        move |piece: usize| async move {
            begun.lock().push(piece);
            tokio::task::yield_now().await;
            if piece < from { Ok(()) } else { Err(piece) }
        }
    };
    let stop = CancellationToken::new();
    assert_eq!(slow_start(&stop, 500, refused_from(0)).await, Err(0));
    assert_eq!(std::mem::take(&mut *begun.lock()), [0]);
    // One, two, four; and of the last four all have begun.
    assert!(matches!(slow_start(&stop, 500, refused_from(5)).await, Err(5 | 6)));
    assert_eq!(std::mem::take(&mut *begun.lock()), (0..7).collect::<Vec<_>>());
    assert_eq!(slow_start(&stop, 500, refused_from(500)).await, Ok(()));
    assert_eq!(std::mem::take(&mut *begun.lock()), (0..500).collect::<Vec<_>>());
    stop.cancel();
    assert_eq!(slow_start(&stop, 500, refused_from(500)).await, Ok(()));
    assert_eq!(*begun.lock(), [0; 0], "the controller ends");
}
