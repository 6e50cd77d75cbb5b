//! Tests of cluster sources: clusters that Secrets of a real management cluster define, change and remove.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use informer_hub::Hub;
use informer_hub::app::ClusterSourceState;
use informer_hub::cache::Query;
use informer_hub_config::Config;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::bed::{RealCluster, becomes_true, create_namespace, create_pods, ground_truth};
use crate::fixture::{WAIT_DEADLINE, pods};

/// Returns a cluster Secret in Argo CD's format, with the token of `user`.
fn argocd(cluster: &RealCluster, user: &str) -> Value {
    let ca = STANDARD.encode(std::fs::read(cluster.ca()).unwrap());
    let config = json!({ "bearerToken": cluster.token(user), "tlsClientConfig": { "insecure": false, "caData": ca } });
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "spoke", "labels": { "argocd.argoproj.io/secret-type": "cluster", "env": "test" } },
        "stringData": { "name": "spoke", "server": cluster.url(), "config": config.to_string() },
    })
}

/// Returns a cluster Secret in Cluster API's format.
fn cluster_api(cluster: &RealCluster) -> Value {
    let ca = STANDARD.encode(std::fs::read(cluster.ca()).unwrap());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "admin",
        "clusters": [{ "name": "c", "cluster": { "server": cluster.url(), "certificate-authority-data": ca } }],
        "users": [{ "name": "u", "user": { "token": cluster.token("admin") } }],
        "contexts": [{ "name": "admin", "context": { "cluster": "c", "user": "u" } }],
    });
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": { "name": "blue-kubeconfig", "labels": { "cluster.x-k8s.io/cluster-name": "blue" } },
        "stringData": { "value": kubeconfig.to_string() },
    })
}

async fn apply(secrets: &Api<Secret>, secret: &Value) {
    let name = secret["metadata"]["name"].as_str().unwrap();
    secrets.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(secret)).await.unwrap();
}

async fn until(hub: &Hub, what: &str, check: impl AsyncFn() -> bool) {
    let in_time = becomes_true(WAIT_DEADLINE, async || check().await).await;
    assert!(in_time, "not in time: {what}\n{}", serde_json::to_string_pretty(&hub.report().await.unwrap()).unwrap());
}

async fn cached(hub: &Hub) -> usize {
    hub.cache_of(pods()).send(Query::list()).await.unwrap().unwrap().items.len()
}

async fn names(hub: &Hub) -> Vec<String> {
    hub.report().await.unwrap().hub.clusters.into_iter().map(|cluster| cluster.name.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_is_added_updated_and_removed_with_its_secret() {
    let [management, spoke] = RealCluster::start_all(["management", "spoke"]).await;
    let (client, spoke_client) = (management.client().await, spoke.client().await);
    create_namespace(&client, "argocd").await;
    create_namespace(&spoke_client, "shop").await;
    create_pods(&spoke_client, "shop", "web", 5).await;
    let text = format!(
        "[cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nkubeconfig = {0:?}\nnamespaces = [\"argocd\"]\n\
         [cluster_sources.capi]\ntype = \"secrets\"\nformat = \"cluster-api\"\nkubeconfig = {0:?}\n[resources.pods]\n\
         namespaces = [\"shop\"]\n",
        management.kubeconfig().display().to_string()
    );
    let hub = Hub::start(Config::from_toml(&text).unwrap()).await.unwrap();
    hub.wait_for_cache_sync(WAIT_DEADLINE).await.unwrap();
    assert!(names(&hub).await.is_empty());
    let secrets: Api<Secret> = Api::namespaced(client, "argocd");
    apply(&secrets, &argocd(&spoke, "admin")).await;
    until(&hub, "the spoke's pods", async || cached(&hub).await == 5).await;
    let report = hub.report().await.unwrap();
    let cluster = &report.hub.clusters[0];
    assert_eq!((cluster.name.as_str(), cluster.labels["env"].as_str()), ("spoke", "test"));
    assert!(report.cluster_sources.iter().all(|source| source.state == ClusterSourceState::Current));
    let lists = async || hub.report().await.unwrap().hub.clusters[0].informers[0].lists;
    let listed = lists().await;
    // Another user's token: open watches continue.
    apply(&secrets, &argocd(&spoke, "limited")).await;
    create_pods(&spoke_client, "shop", "more", 2).await;
    until(&hub, "pods created after the token change", async || cached(&hub).await == 7).await;
    assert_eq!(lists().await, listed);
    // The same cluster again, in another format.
    apply(&secrets, &cluster_api(&spoke)).await;
    until(&hub, "both", async || names(&hub).await == ["blue", "spoke"]).await;
    until(&hub, "the pods of both", async || cached(&hub).await == 14).await;
    assert_eq!(ground_truth(&spoke_client, &pods().gvr).await.len(), 7);
    secrets.delete("spoke", &DeleteParams::default()).await.unwrap();
    until(&hub, "the cluster is removed", async || names(&hub).await == ["blue"]).await;
    until(&hub, "its pods are removed", async || cached(&hub).await == 7).await;
    let ended = hub.shutdown(Duration::from_secs(20)).await;
    assert_eq!(ended.actors_left, 0);
}
