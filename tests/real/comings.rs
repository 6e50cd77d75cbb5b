//! A custom resource of a real apiserver comes, changes its version and its storage, goes, and comes back otherwise.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use informer_hub::actors::{InformerStatus, Subscribe, Subscriber, SurveyState};
use informer_hub::app::Hub;
use informer_hub_config::{Config, ResourceConfig};
use informer_hub_types::{ClusterSelector, Dynamic, Notification, Phase, clock};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::bed::{RealCluster, comes_true, create_namespace, merge};
use crate::fleet::{PATIENCE, cluster};

const GROUP: &str = "comings.example.com";
const GEARS: &str = "gears.comings.example.com";

/// The goal on a quiet cluster; told, and held with room for a machine that does other things.
const PROMPT: Duration = Duration::from_secs(2);

/// What a subscriber was told since it was last asked: `+`, `~`, `-`, the version, the name.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn note(&self, notification: &Notification) {
        let mark = match notification {
            Notification::Added { .. } => '+',
            Notification::Updated { .. } => '~',
            Notification::Deleted { .. } => '-',
            Notification::Synced(_) => return,
        };
        let version = &notification.origin().resource.gvr.version;
        let name = notification.object().map(|object| object.name().to_owned()).unwrap_or_default();
        self.0.lock().push(format!("{mark}{version}/{name}"));
    }

    /// Waits until exactly these have been told, in whichever order, and forgets them.
    async fn are<const N: usize>(&self, expected: [&str; N]) {
        let expected: BTreeSet<_> = expected.map(str::to_owned).into();
        let now = || self.0.lock().iter().cloned().collect::<BTreeSet<_>>();
        let began = clock::now();
        assert!(comes_true(PATIENCE, async || now() == expected).await, "{:?}, not {expected:?}", self.0.lock());
        println!("{expected:?} after {:?}", began.elapsed());
        assert_eq!(self.0.lock().drain(..).count(), N, "told twice");
    }
}

fn version(name: &str, storage: bool) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    json!({ "name": name, "served": true, "storage": storage, "schema": schema })
}

fn definition(scope: &str, versions: &[Value]) -> CustomResourceDefinition {
    let names = json!({ "plural": "gears", "singular": "gear", "kind": "Gear", "shortNames": ["gr"] });
    let spec = json!({ "group": GROUP, "names": names, "scope": scope, "versions": versions });
    serde_json::from_value(json!({ "metadata": { "name": GEARS }, "spec": spec })).unwrap()
}

fn gears(client: &Client, version: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        api_version: format!("{GROUP}/{version}"),
        kind: "Gear".to_owned(),
        plural: "gears".to_owned(),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Makes a gear, once the apiserver has set the resource's storage up.
async fn make(api: &Api<DynamicObject>, version: &str, name: &str) {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": "Gear", "metadata": { "name": name }, "spec": { "teeth": 9 },
    }))
    .unwrap();
    let made = comes_true(PATIENCE, async || api.create(&PostParams::default(), &object).await.is_ok()).await;
    assert!(made, "{name} cannot be made");
}

async fn gear_informer(hub: &Hub) -> Option<InformerStatus> {
    let report = hub.report().await.unwrap();
    let informers = report.hub.clusters.into_iter().flat_map(|cluster| cluster.informers);
    informers.into_iter().find(|informer| informer.resource == GEARS)
}

async fn shows(hub: &Hub, what: &str, is: impl Fn(&InformerStatus) -> bool) {
    let check = async || gear_informer(hub).await.is_some_and(|informer| is(&informer));
    assert!(comes_true(PATIENCE, check).await, "never {what}: {:?}", gear_informer(hub).await);
}

/// What following a cluster's offers costs, for docs/resources.md.
async fn print_sizes(client: &Client) {
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (path, accept) in [
        ("/apis", aggregated),
        ("/api", aggregated),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", metadata),
        ("/apis/apiregistration.k8s.io/v1/apiservices", metadata),
    ] {
        let request = http::Request::get(path).header("accept", accept).body(Vec::new()).unwrap();
        println!("{path}: {} bytes", client.request_text(request).await.unwrap().len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_resource_comes_moves_goes_and_comes_back_with_another_scope() {
    let real = RealCluster::start("comings").await;
    let client = real.client().await;
    create_namespace(&client, "shop").await;
    let config = Config {
        clusters: vec![cluster("comings", real.kubeconfig())],
        resources: vec![ResourceConfig::new(GEARS, GEARS.parse().unwrap())],
        ..Config::default()
    };
    let hub = Hub::start(config).await.unwrap();
    let told = Told::default();
    let log = told.clone();
    let subscriber = Subscriber::<Dynamic>::from_fn(move |notification: &Notification| log.note(notification));
    hub.registry().send(Subscribe::to_configured(GEARS, ClusterSelector::All, subscriber)).await.unwrap();
    shows(&hub, "absent", |it| it.state == Phase::Absent).await;
    let watched = comes_true(PATIENCE, async || {
        let report = hub.report().await.unwrap();
        report.hub.clusters[0].discovery.as_ref().is_some_and(|it| it.state == SurveyState::Watching)
    });
    assert!(watched.await, "definitions are not watched");

    // It comes.
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.create(&PostParams::default(), &definition("Namespaced", &[version("v1beta1", true)])).await.unwrap();
    let began = clock::now();
    shows(&hub, "watched", |it| it.state == Phase::Watching).await;
    println!("a definition was picked up after {:?}", began.elapsed());
    assert!(began.elapsed() < PROMPT * 5, "{:?}", began.elapsed());
    for name in ["a", "b"] {
        make(&gears(&client, "v1beta1", Some("shop")), "v1beta1", name).await;
    }
    told.are(["+v1beta1/a", "+v1beta1/b"]).await;

    print_sizes(&client).await;

    // Another version is preferred and stored; then the storage alone changes back.
    merge(&definitions, GEARS, json!({ "spec": { "versions": [version("v1beta1", false), version("v1", true)] } }))
        .await;
    told.are(["~v1/a", "~v1/b"]).await;
    shows(&hub, "watched in v1", |it| it.state == Phase::Watching && it.last_error.is_none()).await;
    merge(&definitions, GEARS, json!({ "spec": { "versions": [version("v1beta1", true), version("v1", false)] } }))
        .await;
    make(&gears(&client, "v1", Some("shop")), "v1", "c").await;
    told.are(["+v1/c"]).await;

    // It goes, and is asked for no more.
    definitions.delete(GEARS, &DeleteParams::default()).await.unwrap();
    told.are(["-v1/a", "-v1/b", "-v1/c"]).await;
    shows(&hub, "absent and empty", |it| {
        let why = it.last_error.as_deref().unwrap_or_default();
        it.state == Phase::Absent && it.objects == 0 && why.contains("its definition was deleted")
    })
    .await;

    // It comes back otherwise.
    assert!(comes_true(PATIENCE, async || matches!(definitions.get_opt(GEARS).await, Ok(None))).await);
    definitions.create(&PostParams::default(), &definition("Cluster", &[version("v1", true)])).await.unwrap();
    make(&gears(&client, "v1", None), "v1", "d").await;
    told.are(["+v1/d"]).await;
    shows(&hub, "watched as a whole", |it| it.state == Phase::Watching && it.objects == 1 && it.skipped == 0).await;
    let report = hub.shutdown(Duration::from_secs(20)).await;
    assert_eq!(report.actors_left, 0);
}
