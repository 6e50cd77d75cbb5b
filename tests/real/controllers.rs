//! Tests of the example controllers over two clusters, one of which is killed and restarted.
//!
//! Meanwhile they must reconcile the other cluster, and in the end both, without creating anything twice.

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

use crate::bed::{RealCluster, becomes_true, delete_now, eventually, merge};
use crate::deployment_controller::expectations::{Change, Expectations, OVERDUE, Owner};
use crate::deployment_controller::replica_sets::slow_start;
use crate::fixture::WAIT_DEADLINE;
use crate::sample_controller::common::{Clients, Unsynced, clients, cluster, is_controlled_by};
use crate::sample_controller::foo::Foo;
use crate::{deployment_controller, sample_controller};

/// Workers of a controller: fewer than there are keys, so that clusters share them.
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

/// Lists all objects of a kind in the namespace, by name.
async fn all<K>(client: &Client) -> BTreeMap<String, K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    let list = in_default::<K>(client).list(&ListParams::default()).await.unwrap();
    list.items.into_iter().map(|object| (object.name_any(), object)).collect()
}

/// Starts a hub over clusters, and the clients that the examples write with.
async fn start(clusters: &[RealCluster]) -> (Arc<Hub>, Clients) {
    let cluster = |it: &RealCluster| cluster(it.name().parse().unwrap(), it.kubeconfig().to_owned());
    let mut config = Config::default();
    config.clusters = clusters.iter().map(cluster).collect();
    let clients = clients(&config).await.unwrap();
    (Arc::new(Hub::start(config).await.unwrap()), clients)
}

/// Stops a controller and verifies that it and the hub end without errors.
async fn end(hub: Arc<Hub>, stop: &CancellationToken, controller: JoinHandle<anyhow::Result<()>>) {
    stop.cancel();
    tokio::time::timeout(WAIT_DEADLINE, controller).await.expect("the controller stops in time").unwrap().unwrap();
    let hub = Arc::into_inner(hub).expect("the controller has dropped its reference to the hub");
    assert_eq!(hub.shutdown(Duration::from_secs(20)).await.actors_left, 0);
}

// === sample controller ===

/// Installs the CRD if it is missing, and waits until Foos can be created.
async fn install_foos(client: &Client) {
    let definition: CustomResourceDefinition =
        serde_json::from_str(include_str!("../../examples/sample_controller/crd.json")).unwrap();
    match Api::all(client.clone()).create(&PostParams::default(), &definition).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        installed => assert!(installed.is_ok(), "{installed:?}"),
    }
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let probe: Foo = serde_json::from_value(foo("probe", "probe", 0)).unwrap();
    eventually("foos can be created", WAIT_DEADLINE, async || {
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

/// Returns the deviations from the expected state: each Foo owns a Deployment with its replicas, and reports its
/// status.
async fn foo_problems(client: &Client, foreign: &str) -> Vec<String> {
    let deployments = all::<Deployment>(client).await;
    let mut problems = Vec::new();
    let mut expected = BTreeSet::from([foreign.to_owned()]);
    for (name, sample) in all::<Foo>(client).await {
        if sample.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let expected_name = &sample.spec.deployment_name;
        expected.insert(expected_name.clone());
        if expected_name == foreign {
            continue;
        }
        let Some(deployment) = deployments.get(expected_name) else {
            problems.push(format!("{name} has no Deployment"));
            continue;
        };
        let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
        if !is_controlled_by(&deployment.metadata, &sample.metadata) {
            problems.push(format!("{expected_name} is not owned by {name}"));
        }
        if deployment.spec.replicas != sample.spec.replicas {
            problems.push(format!(
                "{expected_name} has {:?} instead of {:?}",
                deployment.spec.replicas, sample.spec.replicas
            ));
        }
        if sample.status.available_replicas != available {
            problems.push(format!("{name} reports {} of {available}", sample.status.available_replicas));
        }
    }
    let found: BTreeSet<_> = deployments.into_keys().collect();
    if found != expected {
        problems.push(format!("Deployments {found:?} instead of {expected:?}"));
    }
    problems
}

async fn wait_until_reconciled(client: &Client) {
    let reconciled = async || foo_problems(client, "foreign").await.is_empty();
    assert!(becomes_true(WAIT_DEADLINE, reconciled).await, "{:#?}", foo_problems(client, "foreign").await);
}

async fn report_available(client: &Client, deployment: &str, replicas: usize) {
    let status =
        json!({ "status": { "replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas } });
    let patch = Patch::Merge(status);
    in_default::<Deployment>(client).patch_status(deployment, &PatchParams::default(), &patch).await.unwrap();
}

fn uids(deployments: &BTreeMap<String, Deployment>) -> BTreeMap<&String, &str> {
    deployments.iter().map(|(name, it)| (name, it.metadata.uid.as_deref().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_controller_reconciles_two_clusters_through_an_outage_of_one() {
    let mut clusters = RealCluster::start_all(["mortal", "steady"]).await;
    let api = [clusters[0].client().await, clusters[1].client().await];
    for client in &api {
        install_foos(client).await;
        create::<Deployment>(client, deployment("foreign", 1, "theirs")).await;
        // A Foo that is being deleted and that a finalizer keeps: the controller must create nothing for it.
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
        wait_until_reconciled(client).await;
        report_available(client, "web-3", 2).await;
    }
    for client in &api {
        wait_until_reconciled(client).await;
    }
    let before = all::<Deployment>(&api[0]).await;

    // Kills the cluster amid work: the controller knows some of these Foos, and has created some of their Deployments.
    for n in 10..20 {
        create::<Foo>(&api[0], foo(&format!("foo-{n}"), &format!("web-{n}"), 1)).await;
    }
    clusters[0].kill();
    for n in 10..20 {
        create::<Foo>(&api[1], foo(&format!("foo-{n}"), &format!("web-{n}"), 1)).await;
        merge(&in_default::<Foo>(&api[1]), &format!("foo-{}", n - 10), json!({ "spec": { "replicas": n } })).await;
    }
    wait_until_reconciled(&api[1]).await;

    clusters[0].restart().await;
    install_foos(&api[0]).await;
    merge(&in_default::<Foo>(&api[0]), "foo-1", json!({ "spec": { "replicas": 7 } })).await;
    delete_now(&in_default::<Deployment>(&api[0]), "web-2").await;
    report_available(&api[0], "web-3", 3).await;
    // No garbage collector runs, so Deployments of deleted Foos remain.
    for client in &api {
        create::<Foo>(client, foo("last", "web-last", 2)).await;
        wait_until_reconciled(client).await;
    }

    let after = all::<Deployment>(&api[0]).await;
    let (before, after) = (uids(&before), uids(&after));
    for (name, uid) in before {
        assert_eq!(after[name] == uid, name != "web-2", "{name}: only a deleted Deployment is re-created");
    }
    for client in &api {
        let foreign = &all::<Deployment>(client).await["foreign"];
        assert_eq!((foreign.spec.replicas, &foreign.metadata.owner_references), (Some(1), &None));
        let events: BTreeSet<_> = all::<Event>(client).await.into_values().map(event_summary).collect();
        let has_event = |name: &str, kind: &str, reason: &str| {
            events.contains(&(name.to_owned(), kind.to_owned(), reason.to_owned()))
        };
        assert!(has_event("thief", "Warning", "ErrResourceExists"), "{events:?}");
        assert!(has_event("foo-3", "Normal", "Synced"), "{events:?}");
        assert!(!has_event("foo-4", "Normal", "Synced"), "an unexpected event: {events:?}");
    }
    end(hub, &stop, controller).await;
}

fn event_summary(event: Event) -> (String, String, String) {
    let name = event.involved_object.name.unwrap_or_default();
    (name, event.type_.unwrap_or_default(), event.reason.unwrap_or_default())
}

// === deployment controller ===

/// Marks a Deployment as managed by the example controller.
fn managed(mut deployment: Value) -> Value {
    deployment["metadata"]["annotations"] = json!({ deployment_controller::controller::ANNOTATION: "true" });
    deployment
}

/// Expected number of pods by Deployment name.
type ExpectedPods = BTreeMap<&'static str, usize>;

/// Returns the deviations from the expected pods, and from the counts in the status of ReplicaSets and Deployments.
async fn discrepancies(client: &Client, expected: &ExpectedPods) -> Vec<String> {
    let mut problems = Vec::new();
    let (sets, pods) = (all::<ReplicaSet>(client).await, all::<Pod>(client).await);
    for (name, deployment) in all::<Deployment>(client).await {
        let of_app = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            meta.labels.as_ref().is_some_and(|labels| labels["app"] == name)
        };
        let Some(&expected) = expected.get(name.as_str()) else { continue };
        let (mut active, mut reported) = (0, 0);
        for set in sets.values().filter(|set| is_controlled_by(&set.metadata, &deployment.metadata)) {
            active += usize::from(set.spec.replicas != Some(0));
            let owned = pods.values().filter(|pod| is_controlled_by(&pod.metadata, &set.metadata)).count();
            reported += usize::try_from(set.status.as_ref().map_or(0, |status| status.replicas)).unwrap();
            if set.spec.replicas != i32::try_from(owned).ok() {
                problems.push(format!("{} has {owned} pods, spec {:?}", set.name_any(), set.spec.replicas));
            }
        }
        let owned = pods.values().filter(|pod| of_app(&pod.metadata)).count();
        let status = deployment.status.unwrap_or_default();
        let count = i32::try_from(expected).ok();
        if (active, reported, owned, status.replicas, status.updated_replicas) != (1, expected, expected, count, count)
        {
            let counts = (status.replicas, status.updated_replicas);
            problems.push(format!(
                "{name}: {active} active sets report {reported}, {owned} pods of {expected}, status {counts:?}"
            ));
        }
    }
    problems
}

async fn wait_until_pods_match(client: &Client, expected: &ExpectedPods) {
    let reconciled = async || discrepancies(client, expected).await.is_empty();
    assert!(becomes_true(WAIT_DEADLINE, reconciled).await, "{:#?}", discrepancies(client, expected).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_controller_creates_no_pod_twice_through_a_cluster_outage() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    const REPLICAS: usize = 20;
    let mut clusters = RealCluster::start_all(["mortal", "steady"]).await;
    let api = [clusters[0].client().await, clusters[1].client().await];
    let (hub, clients) = start(&clusters).await;
    // Every pod ever observed, by cluster and UID.
    let seen = Arc::<Mutex<BTreeSet<(String, String)>>>::default();
    let factory = SharedInformerFactory::new(hub.system());
    let note = Arc::clone(&seen);
    let handler = ResourceEventHandlerFuncs::new().on_add(move |pod| {
        note.lock().insert((pod.cluster().to_string(), pod.uid().to_string()));
    });
    factory.informer::<Pod>().unwrap().add_event_handler(handler).await.unwrap();
    factory.start().await.unwrap();
    let observed = |cluster: &str| seen.lock().iter().filter(|(of, _)| of == cluster).count();

    let stop = CancellationToken::new();
    let controller = tokio::spawn({
        let (hub, stop) = (Arc::clone(&hub), stop.clone());
        async move { deployment_controller::controller::run(&hub, clients, WORKERS, stop).await }
    });
    for client in &api {
        for name in NAMES {
            create::<Deployment>(client, managed(deployment(name, REPLICAS, "one"))).await;
        }
        create::<Deployment>(client, deployment("theirs", 1, "one")).await;
        let mut paused = managed(deployment("paused", 2, "one"));
        paused["spec"]["paused"] = json!(true);
        create::<Deployment>(client, paused).await;
    }
    eventually("the first pods are created", WAIT_DEADLINE, async || observed("mortal") >= REPLICAS / 4).await;
    clusters[0].kill();
    println!("killed after {} of {} pods", observed("mortal"), 4 * REPLICAS);
    let mut expected: ExpectedPods = NAMES.map(|name| (name, REPLICAS)).into();
    wait_until_pods_match(&api[1], &expected).await;
    assert_eq!(observed("steady"), 4 * REPLICAS);

    clusters[0].restart().await;
    eventually("the restarted cluster answers", WAIT_DEADLINE, async || {
        in_default::<Pod>(&api[0]).list(&ListParams::default()).await.is_ok()
    })
    .await;
    wait_until_pods_match(&api[0], &expected).await;
    assert_eq!(observed("mortal"), 4 * REPLICAS, "a pod was created twice, or replaced");

    // Scale one up and one down, change a template, and delete a pod.
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
    expected.extend([("a", REPLICAS + 3), ("b", 1), ("paused", 2)]);
    let total = 5 * REPLICAS + 6;
    for client in &api {
        // The deleted pod must be replaced before the counts match again.
        eventually("all pods are created", WAIT_DEADLINE, async || {
            observed("mortal") >= total && observed("steady") >= total
        })
        .await;
        wait_until_pods_match(client, &expected).await;
        assert_eq!(
            all::<ReplicaSet>(client).await.len(),
            6,
            "one for each template, and none for a Deployment that is not managed"
        );
    }
    assert_eq!((observed("mortal"), observed("steady")), (total, total));
    factory.shutdown().await;
    end(hub, &stop, controller).await;
}

#[test]
fn expectations_repeat_only_changes_that_are_still_needed() {
    let request = |name: &str| informer_hub::Request::new("a".parse().unwrap(), ObjectKey::new("ns", name));
    let set = Owner { request: request("set"), uid: "1".to_owned() };
    let shown = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let expectations = Expectations::default();
    let names = |again: Vec<(String, Change)>| again.into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>();

    // Three pods are expected, one is observed, one creation is in flight, and the outcome of two is unknown. One of
    // these two is repeated, the other is dropped.
    expectations.expect(&set, "under-way", Change::Create);
    expectations.doubt(&set, "doubt-1", Change::Create);
    expectations.doubt(&set, "doubt-2", Change::Create);
    let again = expectations.again(&set, 3, &shown(&["there"]));
    assert_eq!(again.len(), 1);
    assert_eq!(expectations.again(&set, 3, &shown(&["there"])), again, "the same change");
    assert_eq!(expectations.again(&set, 2, &shown(&["there"])), [], "no longer needed");
    assert!(!expectations.are_met(&set), "one is in flight");
    expectations.settle(&set, "under-way");
    assert!(expectations.are_met(&set));

    // Deletions are handled likewise. A deletion that has happened is not repeated.
    for pod in ["x", "y", "gone"] {
        expectations.doubt(&set, pod, Change::Delete);
    }
    assert_eq!(names(expectations.again(&set, 1, &shown(&["x", "y", "z"]))), shown(&["x", "y"]));
    assert_eq!(expectations.again(&set, 3, &shown(&["x", "y", "z"])), []);
    assert!(expectations.are_met(&set));

    // Another ReplicaSet with the same name is independent.
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
async fn unobserved_changes_become_overdue_and_unsynced_clusters_back_off() {
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
    assert_eq!(unsynced.delay(&b), Duration::from_millis(500), "clusters back off independently");
    unsynced.forget(&a);
    assert_eq!(unsynced.delay(&a), Duration::from_millis(500));
}

#[tokio::test]
async fn slow_start_stops_after_a_refused_batch() {
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
    // Batches of one, two, four; the last four have all started.
    assert!(matches!(slow_start(&stop, 500, refused_from(5)).await, Err(5 | 6)));
    assert_eq!(std::mem::take(&mut *begun.lock()), (0..7).collect::<Vec<_>>());
    assert_eq!(slow_start(&stop, 500, refused_from(500)).await, Ok(()));
    assert_eq!(std::mem::take(&mut *begun.lock()), (0..500).collect::<Vec<_>>());
    stop.cancel();
    assert_eq!(slow_start(&stop, 500, refused_from(500)).await, Ok(()));
    assert_eq!(*begun.lock(), [0; 0], "a stopped controller starts nothing");
}
