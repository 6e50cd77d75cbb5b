//! What `rbac` prints is enough for the hub, and nothing less is; what `check` says of it agrees.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use informer_hub::actors::{InformerStatus, Tuning};
use informer_hub::app::Hub;
use informer_hub_config::Config;
use informer_hub_reflector::ReflectorOptions;
use informer_hub_types::Phase;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::bed::{RealCluster, comes_true, create_namespace, create_pods};
use crate::fleet::PATIENCE;

/// One resource in a namespace, one of the cluster, one in all namespaces.
const RESOURCES: &str = "[resources.po]\nnamespaces = [\"shop\"]\n[resources.nodes]\n[resources.deploy]\n";

fn command(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    command.args(arguments).current_dir(folder).env("HOME", folder).output().unwrap()
}

/// What `check` found, and its exit code.
fn check(folder: &Path) -> (i32, Value) {
    let done = command(folder, &["check", "-c", "hub.toml", "-o", "json"]);
    let report = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    (done.status.code().unwrap(), report)
}

/// The objects that `rbac` prints, as an apiserver would read them.
fn printed(folder: &Path) -> Vec<Value> {
    let done = command(folder, &["rbac", "-c", "hub.toml"]);
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    let asked = command(folder, &["rbac", "-c", "hub.toml", "--discover"]);
    let kinds = |text: &str| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    // With whatever rights the credentials have: discovery is everybody's.
    assert_eq!(kinds(&String::from_utf8_lossy(&asked.stdout)), kinds(&text), "{asked:?}");
    text.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// Applies an object as kubectl would.
pub(crate) async fn apply(client: &Client, object: &Value) {
    let applied = patch(client, object, &PatchParams::apply("test").force()).await;
    applied.unwrap_or_else(|error| panic!("{object} is not taken: {error}"));
}

/// Applies an object of whatever kind.
pub(crate) async fn patch(client: &Client, object: &Value, how: &PatchParams) -> kube::Result<DynamicObject> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (group, version) = text("/apiVersion").unwrap().rsplit_once('/').unwrap_or(("", "v1"));
    let kind = GroupVersionKind::gvk(group, version, text("/kind").unwrap());
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.patch(text("/metadata/name").unwrap(), how, &Patch::Apply(object)).await
}

/// A token of the account `informer-hub` in the namespace of that name.
pub(crate) async fn token(client: &Client) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "informer-hub");
    let spec = TokenRequestSpec { expiration_seconds: Some(3_600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request("informer-hub", &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token.unwrap()
}

/// Runs a hub with `hub.toml` of a folder until each of its three informers is as wanted.
pub(crate) async fn hub_until(folder: &Path, what: &str, is: impl Fn(&InformerStatus) -> bool) {
    let config = Config::from_file(folder.join("hub.toml")).unwrap();
    // A server that streams lets lists pass by `watch` alone, for as long as it streams.
    let reflector = ReflectorOptions { streaming_list: false, ..ReflectorOptions::default() };
    let hub = Hub::start_with(config, Tuning { reflector, ..Tuning::default() }).await.unwrap();
    let informers = async || {
        let report = hub.report().await.unwrap();
        report.hub.clusters.into_iter().flat_map(|cluster| cluster.informers).collect::<Vec<_>>()
    };
    let as_wanted = comes_true(PATIENCE, async || {
        let all = informers().await;
        all.len() == 3 && all.iter().all(&is)
    });
    assert!(as_wanted.await, "not in time: {what}: {:#?}", informers().await);
    hub.shutdown(Duration::from_secs(20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_rights_are_enough_and_each_of_them_is_needed() {
    let cluster = RealCluster::start("bed").await;
    let admin = cluster.client().await;
    for namespace in ["shop", "informer-hub"] {
        create_namespace(&admin, namespace).await;
    }
    create_pods(&admin, "shop", "web", 12).await;
    let folder = tempfile::tempdir().unwrap();
    let (url, ca) = (cluster.url(), cluster.ca().display());
    let toml =
        format!("[clusters.bed]\nserver = \"{url}\"\nca_file = \"{ca}\"\ntoken = {{ file = \"token\" }}\n{RESOURCES}");
    std::fs::write(folder.path().join("hub.toml"), toml).unwrap();
    std::fs::write(folder.path().join("token"), cluster.token("limited")).unwrap();
    let (code, report) = check(folder.path());
    assert_eq!(code, 2, "somebody without any rights: {report:#}");

    let objects = printed(folder.path());
    for object in &objects {
        apply(&admin, object).await;
    }
    std::fs::write(folder.path().join("token"), token(&admin).await).unwrap();
    let well = comes_true(PATIENCE, async || check(folder.path()).0 == 0).await;
    let (_, report) = check(folder.path());
    assert!(well, "{report:#}");
    let of = |name: &str| {
        let all = report["clusters"][0]["resources"].as_array().unwrap();
        all.iter().find(|it| it["name"] == name).unwrap().clone()
    };
    assert_eq!((of("po")["scopes"][0]["objects"].as_u64(), of("po")["streaming"].as_bool()), (Some(12), Some(true)));
    assert_eq!(report["clusters"][0]["credentials"][0]["kind"], "token-file", "{report:#}");
    assert!(report["clusters"][0]["credentials"][0]["expires"].is_string(), "{report:#}");
    hub_until(folder.path(), "all watch", |it| it.state == Phase::Watching && it.synced).await;

    let mut tried = 0;
    for (object, rule, verb) in single_rights(&objects) {
        let mut less = objects[object].clone();
        less["rules"][rule]["verbs"].as_array_mut().unwrap().retain(|it| *it != verb);
        if less["rules"][rule]["verbs"] == json!([]) {
            less["rules"].as_array_mut().unwrap().remove(rule);
        }
        apply(&admin, &less).await;
        let taken = &objects[object]["rules"][rule]["resources"][0];
        let seen = comes_true(PATIENCE, async || check(folder.path()).0 == 2).await;
        assert!(seen, "check takes no notice that {verb} of {taken} is gone");
        let is_it =
            |it: &InformerStatus| taken.as_str().is_some_and(|plural| it.resource.split('.').next() == Some(plural));
        hub_until(folder.path(), &format!("{taken} without {verb}"), |it| {
            if is_it(it) { it.state == Phase::Forbidden } else { it.state == Phase::Watching }
        })
        .await;
        apply(&admin, &objects[object]).await;
        assert!(comes_true(PATIENCE, async || check(folder.path()).0 == 0).await, "{verb} of {taken} is given back");
        tried += 1;
    }
    assert_eq!(tried, 6, "two verbs of three resources");
}

/// Every verb of every rule of every role.
fn single_rights(objects: &[Value]) -> Vec<(usize, usize, Value)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for (object, rules) in objects.iter().map(|it| list(&it["rules"])).enumerate() {
        for (rule, verbs) in rules.iter().map(|it| list(&it["verbs"])).enumerate() {
            all.extend(verbs.into_iter().map(|verb| (object, rule, verb)));
        }
    }
    all
}
