//! Lifecycle of a custom resource: defined, migrated to another version, deleted, and redefined with another scope.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use informer_hub::actors::{DiscoveryState, InformerStatus, Subscribe, Subscriber};
use informer_hub::app::Hub;
use informer_hub_config::{Config, ResourceConfig};
use informer_hub_types::{ClusterSelector, Dynamic, Notification, Phase, clock};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::bed::{RealCluster, becomes_true, create_namespace, merge};
use crate::fixture::{WAIT_DEADLINE, cluster};

const GROUP: &str = "lifecycle.example.com";
const GEARS: &str = "gears.lifecycle.example.com";

/// Target time for picking up a new definition on an idle machine. The test allows five times as much.
const PICKUP_TARGET: Duration = Duration::from_secs(2);

/// Notifications since the last check, as `+` (added), `~` (updated) or `-` (deleted), version and name.
#[derive(Clone, Default)]
struct Notified(Arc<Mutex<Vec<String>>>);

impl Notified {
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

    /// Waits until exactly these notifications have arrived, in any order, and clears them.
    async fn expect<const N: usize>(&self, expected: [&str; N]) {
        let expected: BTreeSet<_> = expected.map(str::to_owned).into();
        let now = || self.0.lock().iter().cloned().collect::<BTreeSet<_>>();
        let began = clock::now();
        assert!(becomes_true(WAIT_DEADLINE, async || now() == expected).await, "{:?}, not {expected:?}", self.0.lock());
        println!("{expected:?} after {:?}", began.elapsed());
        assert_eq!(self.0.lock().drain(..).count(), N, "notified twice");
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

/// Creates a gear, retrying until the apiserver has set up the resource's storage.
async fn create_gear(api: &Api<DynamicObject>, version: &str, name: &str) {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": "Gear", "metadata": { "name": name }, "spec": { "teeth": 9 },
    }))
    .unwrap();
    let created = becomes_true(WAIT_DEADLINE, async || api.create(&PostParams::default(), &object).await.is_ok()).await;
    assert!(created, "{name} cannot be created");
}

async fn gear_informer(hub: &Hub) -> Option<InformerStatus> {
    let report = hub.report().await.unwrap();
    let informers = report.hub.clusters.into_iter().flat_map(|cluster| cluster.informers);
    informers.into_iter().find(|informer| informer.resource == GEARS)
}

async fn shows(hub: &Hub, what: &str, is: impl Fn(&InformerStatus) -> bool) {
    let check = async || gear_informer(hub).await.is_some_and(|informer| is(&informer));
    assert!(becomes_true(WAIT_DEADLINE, check).await, "never {what}: {:?}", gear_informer(hub).await);
}

/// Prints the response sizes of discovery requests, for docs/resources.md.
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
async fn custom_resource_is_defined_migrated_deleted_and_redefined() {
    let real = RealCluster::start("lifecycle").await;
    let client = real.client().await;
    create_namespace(&client, "shop").await;
    let mut config = Config::default();
    config.clusters = vec![cluster("lifecycle", real.kubeconfig())];
    config.resources = vec![ResourceConfig::new(GEARS, GEARS.parse().unwrap())];
    let hub = Hub::start(config).await.unwrap();
    let notified = Notified::default();
    let log = notified.clone();
    let subscriber = Subscriber::<Dynamic>::from_fn(move |notification: &Notification| log.note(notification));
    hub.registry().send(Subscribe::to_configured(GEARS, ClusterSelector::All, subscriber)).await.unwrap();
    shows(&hub, "absent", |informer| informer.state == Phase::Absent).await;
    let watched = becomes_true(WAIT_DEADLINE, async || {
        let report = hub.report().await.unwrap();
        report.hub.clusters[0].discovery.as_ref().is_some_and(|informer| informer.state == DiscoveryState::Watching)
    });
    assert!(watched.await, "definitions are not watched");

    // The resource is defined.
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    definitions.create(&PostParams::default(), &definition("Namespaced", &[version("v1beta1", true)])).await.unwrap();
    let began = clock::now();
    shows(&hub, "watched", |informer| informer.state == Phase::Watching).await;
    println!("a definition was picked up after {:?}", began.elapsed());
    assert!(began.elapsed() < PICKUP_TARGET * 5, "{:?}", began.elapsed());
    for name in ["a", "b"] {
        create_gear(&gears(&client, "v1beta1", Some("shop")), "v1beta1", name).await;
    }
    notified.expect(["+v1beta1/a", "+v1beta1/b"]).await;

    print_sizes(&client).await;

    // Another version becomes preferred and stored; then only the storage version changes back.
    merge(&definitions, GEARS, json!({ "spec": { "versions": [version("v1beta1", false), version("v1", true)] } }))
        .await;
    notified.expect(["~v1/a", "~v1/b"]).await;
    shows(&hub, "watched in v1", |informer| informer.state == Phase::Watching && informer.last_error.is_none()).await;
    merge(&definitions, GEARS, json!({ "spec": { "versions": [version("v1beta1", true), version("v1", false)] } }))
        .await;
    create_gear(&gears(&client, "v1", Some("shop")), "v1", "c").await;
    notified.expect(["+v1/c"]).await;

    // A default is added to the schemas. The objects get it, without an event of the apiserver.
    let with_default = |mut version: Value| {
        version["schema"]["openAPIV3Schema"]["properties"] = json!({ "spec": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": { "color": { "type": "string", "default": "red" } },
        } });
        version
    };
    let versions = [version("v1beta1", true), version("v1", false)].map(with_default);
    merge(&definitions, GEARS, json!({ "spec": { "versions": versions } })).await;
    notified.expect(["~v1/a", "~v1/b", "~v1/c"]).await;

    // The definition is deleted, and nothing is requested any more.
    definitions.delete(GEARS, &DeleteParams::default()).await.unwrap();
    notified.expect(["-v1/a", "-v1/b", "-v1/c"]).await;
    shows(&hub, "absent and empty", |informer| {
        let error = informer.last_error.as_deref().unwrap_or_default();
        informer.state == Phase::Absent && informer.objects == 0 && error.contains("its definition was deleted")
    })
    .await;

    // It is redefined with cluster scope.
    assert!(becomes_true(WAIT_DEADLINE, async || matches!(definitions.get_opt(GEARS).await, Ok(None))).await);
    definitions.create(&PostParams::default(), &definition("Cluster", &[version("v1", true)])).await.unwrap();
    create_gear(&gears(&client, "v1", None), "v1", "d").await;
    notified.expect(["+v1/d"]).await;
    shows(&hub, "watched as a whole", |informer| {
        informer.state == Phase::Watching && informer.objects == 1 && informer.skipped == 0
    })
    .await;
    let report = hub.shutdown(Duration::from_secs(20)).await;
    assert_eq!(report.actors_left, 0);
}
