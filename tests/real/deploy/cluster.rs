//! Tests of rendered charts and overlays with a real apiserver.

use std::path::Path;

use informer_hub_types::Phase;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{PatchParams, ValidationDirective};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{NAMESPACE, OVERLAYS, helm, objects, of_kind, one, overlay, template, template_of, values_files};
use crate::bed::{RealCluster, becomes_true, built, create_namespace, create_pods};
use crate::fixture::WAIT_DEADLINE;
use crate::rbac::{apply, patch, run_hub_until, token};

/// Applies an object as a dry run with strict field validation.
async fn dry_run(client: &Client, object: &Value) -> Result<(), String> {
    let how = PatchParams {
        dry_run: true,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("test").force()
    };
    let applied = patch(client, object, &how).await;
    applied.map(drop).map_err(|error| format!("{}: {error}", object["metadata"]["name"]))
}

/// Installs the Prometheus operator's CRDs for the kinds that the chart renders.
async fn install_definitions(client: &Client) {
    let folder = built("tests/testbed/operator/build.sh");
    for kind in ["servicemonitors", "prometheusrules"] {
        let file = folder.join(format!("monitoring.coreos.com_{kind}.yaml"));
        for definition in objects(&std::fs::read_to_string(file).unwrap()) {
            apply(client, &definition).await;
        }
    }
}

/// Returns the pod that a StatefulSet would create, with an emptyDir in place of its claim.
fn pod(objects: &[Value], namespace: &str) -> Value {
    let template = &one(objects, "StatefulSet")["spec"]["template"];
    let mut pod =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"] });
    pod["metadata"]["name"] = json!("hub-0");
    pod["metadata"]["namespace"] = json!(namespace);
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    if !volumes.iter().any(|it| it["name"] == "state") {
        volumes.push(json!({ "name": "state", "emptyDir": {} }));
    }
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_objects_pass_strict_validation_of_an_apiserver() {
    let cluster = RealCluster::start("bed").await;
    let client = cluster.client().await;
    install_definitions(&client).await;
    for namespace in [NAMESPACE, "informer-hub", "shop", "pay", "platform", "monitoring"] {
        create_namespace(&client, namespace).await;
    }
    let restricted = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "restricted", "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    apply(&client, &restricted).await;
    let rendered = values_files().into_iter().map(|file| (format!("{file:?}"), template_of(file.as_deref())));
    let overlays = OVERLAYS.into_iter().map(|name| (name.to_owned(), overlay(name)));
    let mut wrong = Vec::new();
    for (from, objects) in rendered.chain(overlays) {
        for object in &objects {
            let served = async || dry_run(&client, object).await.is_ok();
            // A new CRD is not served at once.
            let error =
                if object["apiVersion"] == "monitoring.coreos.com/v1" && becomes_true(WAIT_DEADLINE, served).await {
                    continue;
                } else {
                    dry_run(&client, object).await.err()
                };
            wrong.extend(error.map(|error| format!("{from}: {error}")));
        }
        let mut pod = pod(&objects, "restricted");
        wrong.extend(dry_run(&client, &pod).await.err().map(|error| format!("{from}, pod: {error}")));
        pod["spec"]["containers"][0]["securityContext"] = json!({});
        let error = dry_run(&client, &pod).await.expect_err("the restricted namespace refuses the pod");
        assert!(error.contains("PodSecurity"), "{error}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut typed = of_kind(&template_of(None), "Service")[0].clone();
    typed["spec"]["selectr"] = json!({});
    assert!(dry_run(&client, &typed).await.is_err(), "the dry run accepts an unknown field");
}

/// Copies the chart without `kubeVersion`, since the test bed's apiserver is built without a version.
fn chart_for_any_version() -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let (file, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).unwrap();
            if file.is_dir() {
                copy(&file, &to);
            } else {
                std::fs::copy(&file, &to).unwrap();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("informer-hub");
    copy(&super::path("deploy/helm/informer-hub"), &chart);
    let about = std::fs::read_to_string(chart.join("Chart.yaml")).unwrap();
    let about: String =
        about.lines().filter(|line| !line.starts_with("kubeVersion:")).map(|line| line.to_owned() + "\n").collect();
    std::fs::write(chart.join("Chart.yaml"), about).unwrap();
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_and_uninstalls_the_chart() {
    let cluster = RealCluster::start("bed").await;
    let client = cluster.client().await;
    create_namespace(&client, NAMESPACE).await;
    let kubeconfig = cluster.kubeconfig().to_str().unwrap().to_owned();
    let folder = chart_for_any_version();
    let chart = folder.path().join("informer-hub").display().to_string();
    let helm = async |arguments: &[&str]| {
        let mut all: Vec<_> = arguments.iter().map(|&it| it.to_owned()).collect();
        all.extend(["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig].map(str::to_owned));
        let run = move || helm(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let tokens = async || secrets.get("hub-informer-hub-auth").await.unwrap().data.unwrap();
    helm(&["install", "hub", &chart]).await;
    let made = tokens().await;
    assert_eq!(made.keys().collect::<Vec<_>>(), ["read-token", "token"]);
    assert!(made.values().all(|token| token.0.len() >= 32) && made["token"] != made["read-token"]);
    helm(&["upgrade", "hub", &chart, "--set", "config.resources.nodes.metadata_only=true"]).await;
    assert_eq!(tokens().await, made, "an upgrade keeps the tokens");
    let toml = maps.get("hub-informer-hub").await.unwrap().data.unwrap()["hub.toml"].clone();
    assert!(toml.contains("[resources.nodes]"), "{toml}");
    helm(&["uninstall", "hub"]).await;
    let gone = async || secrets.get_opt("hub-informer-hub-auth").await.is_ok_and(|it| it.is_none());
    assert!(becomes_true(WAIT_DEADLINE, gone).await, "the secret was not removed");
    let roles: Api<ClusterRole> = Api::all(client);
    assert!(roles.get_opt("hub-informer-hub").await.unwrap().is_none());
}

/// Values with three resources to watch.
const VALUES: &str = "config:\n  resources:\n    po: {namespaces: [shop]}\n    nodes: {}\n    deploy: {}\n";

#[tokio::test(flavor = "multi_thread")]
async fn chart_account_may_read_the_configured_resources() {
    let cluster = RealCluster::start("bed").await;
    let client = cluster.client().await;
    for namespace in ["shop", "informer-hub"] {
        create_namespace(&client, namespace).await;
    }
    create_pods(&client, "shop", "web", 5).await;
    let folder = tempfile::tempdir().unwrap();
    let values = folder.path().join("values.yaml");
    std::fs::write(&values, VALUES).unwrap();
    let chart = template("informer-hub", "informer-hub", &["--values", values.to_str().unwrap()]).unwrap();
    let of_rights = |it: &&Value| it["apiVersion"] == "rbac.authorization.k8s.io/v1" || it["kind"] == "ServiceAccount";
    let chart = objects(&chart);
    let rights: Vec<_> = chart.iter().filter(of_rights).collect();
    assert_eq!(rights.len(), 5, "{rights:?}");
    for object in rights {
        apply(&client, object).await;
    }
    std::fs::write(folder.path().join("token"), token(&client).await).unwrap();
    std::fs::write(folder.path().join("hub.toml"), from_outside(&chart, &cluster)).unwrap();
    run_hub_until(folder.path(), "all watch", |informer| informer.state == Phase::Watching && informer.synced).await;
}

/// Returns the chart's configuration for a hub outside the cluster: with an explicit server, and without `[hub]`.
fn from_outside(chart: &[Value], cluster: &RealCluster) -> String {
    let toml = of_kind(chart, "ConfigMap").into_iter().find_map(|map| map["data"]["hub.toml"].as_str()).unwrap();
    let mut toml: toml_edit::DocumentMut = toml.parse().unwrap();
    toml.remove("hub");
    let access = |ca: &Path| {
        format!("server = \"{}\"\nca_file = \"{}\"\ntoken = {{ file = \"token\" }}\n", cluster.url(), ca.display())
    };
    toml["clusters"]["in-cluster"] =
        toml_edit::Item::Table(access(cluster.ca()).parse::<toml_edit::DocumentMut>().unwrap().as_table().clone());
    toml.to_string()
}
