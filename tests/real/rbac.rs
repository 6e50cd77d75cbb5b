//! Tests of `informer-hub rbac` and `check`: the printed rights are sufficient and minimal, and `check` agrees.

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

use crate::bed::{RealCluster, becomes_true, create_namespace, create_pods};
use crate::fixture::WAIT_DEADLINE;

/// A resource in one namespace, a cluster-scoped one, and one in all namespaces.
const RESOURCES: &str = "[resources.po]\nnamespaces = [\"shop\"]\n[resources.nodes]\n[resources.deploy]\n";

fn command(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    command.args(arguments).current_dir(folder).env("HOME", folder).output().unwrap()
}

/// Runs `check` and returns its exit code and report.
fn check(folder: &Path) -> (i32, Value) {
    let done = command(folder, &["check", "-c", "hub.toml", "-o", "json"]);
    let report = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    (done.status.code().unwrap(), report)
}

/// Returns the objects that `rbac` prints.
fn printed(folder: &Path) -> Vec<Value> {
    let done = command(folder, &["rbac", "-c", "hub.toml"]);
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    let discovered = command(folder, &["rbac", "-c", "hub.toml", "--discover"]);
    let kinds = |text: &str| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    // Discovery needs no granted rights.
    assert_eq!(kinds(&String::from_utf8_lossy(&discovered.stdout)), kinds(&text), "{discovered:?}");
    text.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// Applies an object server-side, like `kubectl apply --server-side`.
pub(crate) async fn apply(client: &Client, object: &Value) {
    let applied = patch(client, object, &PatchParams::apply("test").force()).await;
    applied.unwrap_or_else(|error| panic!("cannot apply {object}: {error}"));
}

/// Applies an object of any kind.
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

/// Requests a token of the service account `informer-hub` in the namespace of that name.
pub(crate) async fn token(client: &Client) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "informer-hub");
    let spec = TokenRequestSpec { expiration_seconds: Some(3_600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request("informer-hub", &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token.unwrap()
}

/// Runs a hub with a folder's `hub.toml` until `check` accepts each of its three informers.
pub(crate) async fn run_hub_until(folder: &Path, what: &str, check: impl Fn(&InformerStatus) -> bool) {
    let config = Config::from_file(folder.join("hub.toml")).unwrap();
    // A streaming list needs only the verb `watch`, so it is disabled.
    let reflector = ReflectorOptions { streaming_list: false, ..ReflectorOptions::default() };
    let hub = Hub::start_with(config, Tuning { reflector, ..Tuning::default() }).await.unwrap();
    let informers = async || {
        let report = hub.report().await.unwrap();
        report.hub.clusters.into_iter().flat_map(|cluster| cluster.informers).collect::<Vec<_>>()
    };
    let in_time = becomes_true(WAIT_DEADLINE, async || {
        let all = informers().await;
        all.len() == 3 && all.iter().all(&check)
    });
    assert!(in_time.await, "not in time: {what}: {:#?}", informers().await);
    hub.shutdown(Duration::from_secs(20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_rights_are_sufficient_and_each_is_necessary() {
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
    assert_eq!(code, 2, "a user without rights: {report:#}");

    let objects = printed(folder.path());
    for object in &objects {
        apply(&admin, object).await;
    }
    std::fs::write(folder.path().join("token"), token(&admin).await).unwrap();
    let well = becomes_true(WAIT_DEADLINE, async || check(folder.path()).0 == 0).await;
    let (_, report) = check(folder.path());
    assert!(well, "{report:#}");
    let of = |name: &str| {
        let all = report["clusters"][0]["resources"].as_array().unwrap();
        all.iter().find(|it| it["name"] == name).unwrap().clone()
    };
    assert_eq!((of("po")["scopes"][0]["objects"].as_u64(), of("po")["streaming"].as_bool()), (Some(12), Some(true)));
    assert_eq!(report["clusters"][0]["credentials"][0]["kind"], "token-file", "{report:#}");
    assert!(report["clusters"][0]["credentials"][0]["expires"].is_string(), "{report:#}");
    run_hub_until(folder.path(), "all watch", |informer| informer.state == Phase::Watching && informer.synced).await;

    let mut tried = 0;
    for (object, rule, verb) in single_rights(&objects) {
        let mut less = objects[object].clone();
        less["rules"][rule]["verbs"].as_array_mut().unwrap().retain(|it| *it != verb);
        if less["rules"][rule]["verbs"] == json!([]) {
            less["rules"].as_array_mut().unwrap().remove(rule);
        }
        apply(&admin, &less).await;
        let resource = &objects[object]["rules"][rule]["resources"][0];
        let seen = becomes_true(WAIT_DEADLINE, async || check(folder.path()).0 == 2).await;
        assert!(seen, "check does not report missing {verb} of {resource}");
        let is_affected =
            |it: &InformerStatus| resource.as_str().is_some_and(|plural| it.resource.split('.').next() == Some(plural));
        run_hub_until(folder.path(), &format!("{resource} without {verb}"), |informer| {
            if is_affected(informer) { informer.state == Phase::Forbidden } else { informer.state == Phase::Watching }
        })
        .await;
        apply(&admin, &objects[object]).await;
        assert!(
            becomes_true(WAIT_DEADLINE, async || check(folder.path()).0 == 0).await,
            "{verb} of {resource} is restored"
        );
        tried += 1;
    }
    assert_eq!(tried, 6, "two verbs of three resources");
}

/// Returns every verb of every rule of every role, as indices and verb.
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
