//! Random but realistic objects of many kinds, so that each column of a table has something to print.
//!
//! No controller runs in the test bed, so the states that controllers would write are written here.

mod config;
mod custom;
mod network;
mod nodes;
mod pods;
mod storage;
mod workloads;

use futures::stream::{self, StreamExt};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::resources::{RESOURCES, Resource};
use crate::bed::{create_namespace, eventually};
use crate::fixture::WAIT_DEADLINE;

pub(super) use custom::GADGETS;

/// Namespaces of the objects. Some are prefixes of others, and `-` sorts before `/`, so their order shows whether keys
/// are sorted as etcd sorts them.
pub(super) const NAMESPACES: [&str; 4] = ["default", "kube-system", "shop", "shop-eu"];

/// Concurrent requests of the creation.
const IN_FLIGHT: usize = 8;

/// Finalizer that keeps deleted objects.
const FINALIZER: &str = "example.com/keep";

/// An object to create.
#[derive(Clone, Debug)]
pub(super) struct Seed {
    object: Value,
    status: Option<Value>,
    is_deleted: bool,
}

impl Seed {
    fn new(object: Value) -> Self {
        Self { object, status: None, is_deleted: false }
    }

    fn with_status(self, status: Value) -> Self {
        Self { status: Some(status), ..self }
    }

    /// Marks the object to be deleted after its creation. A finalizer keeps it, so that it shows its deletion.
    fn deleted(mut self) -> Self {
        self.object["metadata"]["finalizers"] = json!([FINALIZER]);
        self.is_deleted = true;
        self
    }
}

/// Creates namespaces, the definition of a custom resource, and objects of all [`RESOURCES`].
pub(super) async fn create_all(client: &Client, random: &mut StdRng) {
    for namespace in NAMESPACES {
        create_namespace(client, namespace).await;
    }
    create(client, &custom::definition()).await.unwrap();
    eventually("the gadgets are served", WAIT_DEADLINE, async || {
        let probe = Request::post(format!("{}?dryRun=All", path(&GADGETS, Some("default"))));
        let probe = probe.header("content-type", "application/json").body(custom::probe()).unwrap();
        client.request_text(probe).await.is_ok()
    })
    .await;
    let seeds: Vec<_> = [
        pods::seeds(random),
        workloads::seeds(random),
        nodes::seeds(random),
        network::seeds(random),
        storage::seeds(random),
        config::seeds(random),
        custom::seeds(random),
    ]
    .concat();
    let created = stream::iter(&seeds).map(async |seed| create(client, seed).await).buffer_unordered(IN_FLIGHT);
    let refused: Vec<_> = created.filter_map(async |created| created.err()).collect().await;
    assert!(refused.is_empty(), "the apiserver refused objects:\n{}", refused.join("\n"));
}

/// Creates one object, then writes its status and deletes it, if the seed says so.
async fn create(client: &Client, seed: &Seed) -> Result<(), String> {
    let object = &seed.object;
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (api_version, kind) = (text("/apiVersion").unwrap(), text("/kind").unwrap());
    let resource = RESOURCES.iter().find(|it| it.kind == kind && it.api_version() == api_version);
    let resource = resource.unwrap_or_else(|| panic!("no resource of kind {kind} in {api_version}"));
    let collection = path(resource, text("/metadata/namespace"));
    let one = format!("{collection}/{}", text("/metadata/name").unwrap());
    send(client, Request::post(collection), "application/json", object.to_string()).await?;
    if let Some(status) = &seed.status {
        let body = json!({ "status": status }).to_string();
        send(client, Request::patch(format!("{one}/status")), "application/merge-patch+json", body).await?;
    }
    if seed.is_deleted {
        let body = json!({ "gracePeriodSeconds": 0 }).to_string();
        send(client, Request::delete(&one), "application/json", body).await?;
    }
    Ok(())
}

async fn send(
    client: &Client,
    request: http::request::Builder,
    content_type: &str,
    body: String,
) -> Result<(), String> {
    let request = request.header("content-type", content_type).body(body.clone().into_bytes()).unwrap();
    let target = format!("{} {}", request.method(), request.uri());
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(format!("{target} {body}: {}", status.message)),
        Err(error) => Err(format!("{target} {body}: {error}")),
    }
}

/// Returns the path of a resource, in a namespace if one is given.
pub(super) fn path(resource: &Resource, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{}/namespaces/{namespace}/{}", resource.version_path(), resource.plural),
        None => format!("{}/{}", resource.version_path(), resource.plural),
    }
}

/// Picks one element.
fn pick<'a, T>(random: &mut StdRng, from: &'a [T]) -> &'a T {
    &from[random.random_range(0..from.len())]
}

/// Returns a time at least 20 minutes ago, so that its age changes once a minute at most.
fn past(random: &mut StdRng) -> String {
    let minutes = *pick(random, &[20, 45, 95, 130, 400, 1_500, 5_000, 30_000, 200_000, 900_000, 2_000_000]);
    let seconds = random.random_range(0..60);
    let time = Timestamp::now() - SignedDuration::from_secs(minutes * 60 + seconds);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the metadata of an object with common labels.
fn metadata(random: &mut StdRng, namespace: Option<&str>, name: &str) -> Value {
    let app = *pick(random, &["web", "api", "cart", "search"]);
    let mut metadata = json!({ "name": name, "labels": { "app": app } });
    if random.random_bool(0.5) {
        metadata["labels"]["tier"] = json!(pick(random, &["front", "back", ""]));
    }
    if random.random_bool(0.3) {
        metadata["labels"]["example.com/version"] = json!(pick(random, &["1", "2", "10", "v1.2.3"]));
    }
    if random.random_bool(0.3) {
        metadata["annotations"] = json!({ "note": "quote \" colon: 'single' #hash \u{e9}\u{4e16} <&>\n- second line" });
    }
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}
