//! Tests of cluster sources: clusters are added, changed and removed under a running hub, and others are not touched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use informer_hub::actors::{ClusterState, Subscribe, Subscriber};
use informer_hub::app::{ClusterSourceState, ClusterSourceStatus, Hub};
use informer_hub::cache::Query;
use informer_hub_config::Config;
use informer_hub_sim::{ResourceDef, SimCluster, SimConfig, World};
use informer_hub_types::{ClusterSelector, Gvr, Notification, ObjectKey};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, cluster_config, eventually, pods, quick, resource_config, small};

const TOKEN: &str = "hunter2";

fn secrets() -> Gvr {
    Gvr::new("", "v1", "secrets")
}

fn profiles() -> Gvr {
    Gvr::new("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles")
}

/// Management cluster with Secrets and ClusterProfiles, and the clusters that these reference (the spokes).
struct Bed {
    management: SimCluster,
    spokes: BTreeMap<String, SimCluster>,
    dir: TempDir,
}

impl Bed {
    fn new(spokes: &[&str]) -> Self {
        Self::with(spokes, |i| small(100 + i, 10))
    }

    fn with(spokes: &[&str], config: impl Fn(u64) -> SimConfig) -> Self {
        let start = |config| SimCluster::start(config, &Handle::current()).unwrap();
        let management = start(small(99, 0));
        management.with_world(|world| {
            world.register(ResourceDef::new(&secrets(), "Secret", true, false));
            world.register(ResourceDef::new(&profiles(), "ClusterProfile", true, true));
        });
        let spokes = spokes.iter().zip(0..).map(|(name, i)| ((*name).to_owned(), start(config(i)))).collect();
        Self { management, spokes, dir: tempfile::tempdir().unwrap() }
    }

    fn url(&self, spoke: &str) -> String {
        self.spokes[spoke].url()
    }

    /// Returns the body of Argo CD's Secret for a cluster.
    fn argocd(&self, name: &str, spoke: &str, mut labels: Value, config: &Value) -> Value {
        labels["argocd.argoproj.io/secret-type"] = json!("cluster");
        let data = [("name", name.to_owned()), ("server", self.url(spoke)), ("config", config.to_string())];
        let data: BTreeMap<_, _> = data.into_iter().map(|(key, text)| (key, STANDARD.encode(text))).collect();
        json!({ "metadata": { "labels": labels }, "data": data })
    }

    /// Writes the Secret of a cluster that is named like its spoke.
    fn put(&self, spoke: &str) {
        self.put_as(spoke, self.argocd(spoke, spoke, json!({}), &json!({})));
    }

    fn put_as(&self, secret: &str, body: Value) {
        let key = ObjectKey::new("argocd", secret);
        self.management.with_world(|world| {
            let updated = world.update(&secrets(), &key, |now| {
                now["data"] = body["data"].clone();
                now["metadata"]["labels"] = body["metadata"]["labels"].clone();
            });
            if updated.is_none() {
                world.create(&secrets(), "argocd", secret, body).unwrap();
            }
        });
    }

    fn delete(&self, secret: &str) {
        let key = ObjectKey::new("argocd", secret);
        self.management.with_world(|world| world.delete(&secrets(), &key)).unwrap();
    }

    fn config(&self, more: &str) -> Config {
        let text = format!(
            "[cluster_sources.argo]\ntype = \"secrets\"\nformat = \"argocd\"\nserver = \"{}\"\n{more}\n[resources.pods]\n",
            self.management.url()
        );
        let mut config = Config::from_toml(&text).unwrap();
        config.resources = vec![resource_config("pods")];
        config
    }

    async fn start(self, config: Config) -> (Fleet, SimCluster, TempDir) {
        let Self { management, spokes, dir } = self;
        (Fleet::start_config(spokes, config, quick()).await, management, dir)
    }
}

/// Returns the number of lists, plain and streaming.
fn lists(cluster: &SimCluster) -> u64 {
    let stats = cluster.stats();
    stats.lists + stats.streaming
}

async fn names(hub: &Hub) -> Vec<String> {
    hub.report().await.unwrap().hub.clusters.into_iter().map(|cluster| cluster.name.to_string()).collect()
}

/// Waits until the hub has exactly these clusters.
async fn reaches_clusters(hub: &Hub, expected: &[&str]) {
    eventually(&format!("clusters {expected:?}"), async || names(hub).await == expected).await;
}

async fn source(hub: &Hub, name: &str) -> ClusterSourceStatus {
    let all = hub.report().await.unwrap().cluster_sources;
    all.into_iter().find(|source| source.name == name).unwrap()
}

/// Waits until the source `argo` reaches a state.
async fn reaches_state(hub: &Hub, state: ClusterSourceState) {
    eventually(state.as_str(), async || source(hub, "argo").await.state == state).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_follow_their_secrets_and_unchanged_ones_are_not_relisted() {
    let bed = Bed::new(&["a", "b", "c"]);
    bed.put("a");
    bed.put_as("b", bed.argocd("b", "b", json!({ "env": "dev" }), &json!({})));
    bed.put_as("broken", bed.argocd("broken", "c", json!({}), &json!({ "execProviderConfig": { "command": TOKEN } })));
    let (c, broken) = (bed.argocd("c", "c", json!({}), &json!({})), bed.argocd("broken", "c", json!({}), &json!({})));
    let config = bed.config("labels = { from = \"argo\" }");
    let (fleet, management, _dir) = bed.start(config).await;
    fleet.synced().await;
    assert_eq!(names(&fleet.hub).await, ["a", "b"], "the sync waits for the source");
    let report = fleet.hub.report().await.unwrap();
    let b = &report.hub.clusters[1];
    assert_eq!((b.labels["env"].as_str(), b.labels["from"].as_str()), ("dev", "argo"));
    assert_eq!((b.source.as_deref(), b.source_object.as_deref()), (Some("argo"), Some("Secret argocd/b")));
    let status = source(&fleet.hub, "argo").await;
    assert_eq!((status.clusters, status.invalid, status.state), (2, 1, ClusterSourceState::Current));
    assert_eq!(status.problems[0].object, "Secret argocd/broken");
    let shown = serde_json::to_string(&report).unwrap();
    assert!(!shown.contains(TOKEN), "{shown}");
    assert!(!shown.contains("\"resource\":\"secrets"), "the source's own Secrets are not reported: {shown}");
    fleet.converged_on("a").await;
    let listed = lists(&fleet.clusters["a"]);
    let bed = Bed { management, spokes: BTreeMap::new(), dir: tempfile::tempdir().unwrap() };
    bed.put_as("c", c);
    reaches_clusters(&fleet.hub, &["a", "b", "c"]).await;
    fleet.synced().await;
    fleet.converged().await;
    bed.delete("b");
    reaches_clusters(&fleet.hub, &["a", "c"]).await;
    eventually("its objects are dropped", async || fleet.cached("b").await.is_empty()).await;
    bed.put_as("broken", broken);
    reaches_clusters(&fleet.hub, &["a", "broken", "c"]).await;
    assert_eq!(source(&fleet.hub, "argo").await.invalid, 0);
    assert_eq!(lists(&fleet.clusters["a"]), listed);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_source_keeps_its_clusters() {
    let bed = Bed::new(&["a", "b"]);
    bed.put("a");
    let b = bed.argocd("b", "b", json!({}), &json!({}));
    let config = bed.config("");
    let (fleet, management, _dir) = bed.start(config).await;
    fleet.synced().await;
    let listed = lists(&fleet.clusters["a"]);
    management.stop().await;
    reaches_state(&fleet.hub, ClusterSourceState::Unreachable).await;
    assert!(source(&fleet.hub, "argo").await.last_error.is_some());
    fleet.clusters["a"].with_world(World::create_pod).unwrap();
    fleet.converged_on("a").await;
    // While the management cluster is down, one Secret is deleted and one is added. Then reading Secrets is forbidden.
    let bed = Bed { management, spokes: BTreeMap::new(), dir: tempfile::tempdir().unwrap() };
    bed.delete("a");
    bed.put_as("b", b);
    bed.management.with_world(World::compact);
    bed.management.forbid(&secrets(), true);
    bed.management.restart().await;
    reaches_state(&fleet.hub, ClusterSourceState::Forbidden).await;
    assert_eq!(names(&fleet.hub).await, ["a"]);
    assert_eq!(lists(&fleet.clusters["a"]), listed);
    bed.management.forbid(&secrets(), false);
    reaches_clusters(&fleet.hub, &["b"]).await;
    reaches_state(&fleet.hub, ClusterSourceState::Current).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotated_credentials_keep_open_watches_and_apply_to_new_requests() {
    let bed = Bed::with(&["a"], |i| SimConfig { token: Some(TOKEN.to_owned()), ..small(110 + i, 10) });
    let with = |token: &str| bed.argocd("a", "a", json!({}), &json!({ "bearerToken": token }));
    let (right, wrong) = (with(TOKEN), with("another"));
    bed.put_as("a", right.clone());
    let config = bed.config("");
    let (fleet, management, _dir) = bed.start(config).await;
    fleet.synced().await;
    fleet.converged().await;
    let (listed, watches) = (lists(&fleet.clusters["a"]), fleet.clusters["a"].stats().watches);
    let bed = Bed { management, spokes: BTreeMap::new(), dir: tempfile::tempdir().unwrap() };
    bed.put_as("a", wrong);
    // The open watch continues; the next one is refused.
    fleet.clusters["a"].with_world(World::create_pod).unwrap();
    fleet.converged().await;
    assert_eq!((lists(&fleet.clusters["a"]), fleet.clusters["a"].stats().watches), (listed, watches));
    fleet.clusters["a"].stop().await;
    fleet.clusters["a"].restart().await;
    fleet.shows("a", "the wrong token", |informer| informer.state.as_str() == "forbidden").await;
    bed.put_as("a", right);
    fleet.clusters["a"].with_world(World::create_pod).unwrap();
    fleet.converged().await;
    assert_eq!(lists(&fleet.clusters["a"]), listed, "the watch resumed without a list");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_cluster_takes_precedence_over_a_source() {
    let bed = Bed::new(&["a", "b"]);
    bed.put("a");
    bed.put_as("twin", bed.argocd("a", "b", json!({}), &json!({})));
    bed.put("b");
    let mut config = bed.config("");
    let without = config.clone();
    config.clusters = vec![cluster_config("b", &bed.url("b"))];
    let (fleet, management, _dir) = bed.start(config).await;
    fleet.synced().await;
    let status = source(&fleet.hub, "argo").await;
    assert_eq!((status.clusters, status.conflicting), (1, 2), "{status:?}");
    let report = fleet.hub.report().await.unwrap();
    assert_eq!(report.hub.clusters[1].source, None, "the configured cluster takes precedence");
    let listed = lists(&fleet.clusters["a"]);
    fleet.hub.reloader().reload(without).await.unwrap();
    eventually("the source provides both clusters", async || source(&fleet.hub, "argo").await.clusters == 2).await;
    let bed = Bed { management, spokes: BTreeMap::new(), dir: tempfile::tempdir().unwrap() };
    assert_eq!(lists(&fleet.clusters["a"]), listed);
    // When the first Secret is deleted, the other one of that name is used, with another address.
    bed.delete("a");
    eventually("no conflict", async || source(&fleet.hub, "argo").await.conflicting == 0).await;
    assert_eq!(names(&fleet.hub).await, ["a", "b"]);
    let truth = fleet.clusters["b"].truth(&pods().gvr);
    eventually("the twin's pods", async || fleet.cached("a").await == truth).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_adds_changes_and_removes_sources() {
    let bed = Bed::new(&["a", "b"]);
    bed.put("a");
    bed.put("b");
    let both = bed.config("");
    let limited = bed.config("max_clusters = 1");
    let mut none = both.clone();
    none.sources.clear();
    none.clusters = vec![cluster_config("other", &bed.url("b"))];
    let (fleet, _management, _dir) = bed.start(none.clone()).await;
    fleet.synced().await;
    let changes = fleet.hub.reloader().reload(both.clone()).await.unwrap();
    assert_eq!(changes.cluster_sources.added, ["argo"]);
    reaches_clusters(&fleet.hub, &["a", "b"]).await;
    fleet.synced().await;
    let listed = lists(&fleet.clusters["a"]);
    let changes = fleet.hub.reloader().reload(limited).await.unwrap();
    assert_eq!(changes.cluster_sources.changed, ["argo"]);
    reaches_clusters(&fleet.hub, &["a"]).await;
    assert_eq!(source(&fleet.hub, "argo").await.over, 1);
    fleet.hub.reloader().reload(both).await.unwrap();
    reaches_clusters(&fleet.hub, &["a", "b"]).await;
    assert_eq!(lists(&fleet.clusters["a"]), listed);
    fleet.hub.reloader().reload(none).await.unwrap();
    reaches_clusters(&fleet.hub, &["other"]).await;
    assert!(fleet.hub.report().await.unwrap().cluster_sources.is_empty());
    fleet.end().await;
}

fn kubeconfig(dir: &Path, file: &str, server: &str) -> PathBuf {
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{token: {TOKEN}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         current-context: x\n"
    );
    let path = dir.join(file);
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfig_folder_is_watched_and_invalid_files_are_reported() {
    let bed = Bed::new(&["a", "b"]);
    let (a, b) = (bed.url("a"), bed.url("b"));
    let folder = tempfile::tempdir().unwrap();
    let file = kubeconfig(folder.path(), "a.yaml", &a);
    let text = format!(
        "[cluster_sources.files]\ntype = \"folder\"\npath = \"{}\"\n[resources.pods]\n",
        folder.path().display()
    );
    let (fleet, _management, _dir) = bed.start(Config::from_toml(&text).unwrap()).await;
    assert_eq!(names(&fleet.hub).await, ["a"], "the cluster is present at the start");
    fleet.synced().await;
    let listed = lists(&fleet.clusters["a"]);
    kubeconfig(folder.path(), "b.yaml", &b);
    std::fs::write(folder.path().join("rubbish.yaml"), "to: [do").unwrap();
    std::fs::create_dir(folder.path().join("folder.yaml")).unwrap();
    reaches_clusters(&fleet.hub, &["a", "b"]).await;
    std::fs::write(&file, "half a kube").unwrap();
    eventually("the truncated file is reported", async || source(&fleet.hub, "files").await.invalid == 2).await;
    assert_eq!(names(&fleet.hub).await, ["a", "b"], "the last valid content is used");
    std::fs::remove_file(folder.path().join("b.yaml")).unwrap();
    reaches_clusters(&fleet.hub, &["a"]).await;
    assert_eq!(lists(&fleet.clusters["a"]), listed);
    std::fs::remove_file(&file).unwrap();
    reaches_clusters(&fleet.hub, &[]).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_profiles_are_connected_with_their_secrets() {
    let bed = Bed::new(&["a"]);
    let config = json!({
        "clusters": [{ "name": "c", "cluster": { "server": bed.url("a") } }],
        "users": [{ "name": "u", "user": { "token": TOKEN } }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }], "current-context": "x",
    });
    let labels = json!({ "x-k8s.io/cluster-profile": "a", "x-k8s.io/cluster-profile-namespace": "fleet" });
    let secret = json!({ "metadata": { "labels": labels }, "data": { "Config": STANDARD.encode(config.to_string()) } });
    let status = json!({ "properties": [{ "name": "region", "value": "eu" }] });
    bed.management.with_world(|world| {
        world.create(&profiles(), "fleet", "a", json!({ "status": status })).unwrap();
        world.create(&secrets(), "hub", "a", secret).unwrap();
    });
    let text = format!(
        "[cluster_sources.argo]\ntype = \"cluster-profiles\"\nserver = \"{}\"\nsecrets = true\ntake_properties = [\"region\"]\n\
         [resources.pods]\n",
        bed.management.url()
    );
    let (fleet, management, _dir) = bed.start(Config::from_toml(&text).unwrap()).await;
    fleet.synced().await;
    fleet.converged().await;
    assert_eq!(fleet.cluster("a").await.labels["region"], "eu");
    management.with_world(|world| world.delete(&profiles(), &ObjectKey::new("fleet", "a"))).unwrap();
    reaches_clusters(&fleet.hub, &[]).await;
    fleet.end().await;
}

/// The command receives the cluster and the profile's extension in `KUBERNETES_EXEC_INFO`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_profiles_are_connected_with_the_command_of_their_provider() {
    let bed = Bed::with(&["a"], |i| SimConfig { token: Some(TOKEN.to_owned()), ..small(130 + i, 10) });
    let (info_file, command) = (bed.dir.path().join("told"), bed.dir.path().join("plugin"));
    let script = format!(
        "#!/bin/sh\necho \"$KUBERNETES_EXEC_INFO\" > {}\n\
         echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{{\"token\":\"'\"$1\"'\"}}}}'\n",
        info_file.display()
    );
    std::fs::write(&command, script).unwrap();
    let extension = json!({ "name": "client.authentication.k8s.io/exec", "extension": { "clusterId": "seven" } });
    let offer = json!({ "name": "local", "cluster": { "server": bed.url("a"), "extensions": [extension] } });
    bed.management.with_world(|world| {
        world.create(&profiles(), "fleet", "a", json!({ "status": { "accessProviders": [offer] } })).unwrap();
    });
    let text = format!(
        "[cluster_sources.argo]\ntype = \"cluster-profiles\"\nserver = \"{}\"\n[cluster_sources.argo.providers.local]\n\
         command = \"sh\"\nargs = [\"{}\", \"{TOKEN}\"]\n[resources.pods]\n",
        bed.management.url(),
        command.display()
    );
    let (fleet, _management, _dir) = bed.start(Config::from_toml(&text).unwrap()).await;
    fleet.synced().await;
    fleet.converged().await;
    let info: Value = serde_json::from_str(&std::fs::read_to_string(&info_file).unwrap()).unwrap();
    assert_eq!(info["spec"]["cluster"]["config"]["clusterId"], "seven", "{info}");
    fleet.end().await;
}

/// Log of a durable subscriber's events: `A`, `U` or `D`, then `i` for initial or `t` for tombstone, then the key.
type Log = Arc<Mutex<Vec<String>>>;

fn reader() -> (Log, Subscriber<()>) {
    let log = Log::default();
    let events = Arc::clone(&log);
    let subscriber = Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
        let line = match notification {
            Notification::Added { object, initial } => format!("A{} {}", if *initial { "i" } else { "" }, object.key()),
            Notification::Updated { new, .. } => format!("U {}", new.key()),
            Notification::Deleted { object, tombstone } => {
                format!("D{} {}", if *tombstone { "t" } else { "" }, object.key())
            }
            Notification::Synced(_) => return,
        };
        events.lock().push(line);
    });
    (log, subscriber)
}

async fn subscribe(hub: &Hub) -> Log {
    let (log, subscriber) = reader();
    let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("durable").durable();
    hub.registry().send(subscribe).await.unwrap();
    log
}

async fn cached(hub: &Hub) -> usize {
    hub.cache_of(pods()).send(Query::list()).await.unwrap().unwrap().items.len()
}

/// The state directory restores a cluster's caches and subscriptions before its source is available.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_restores_a_source_cluster_before_its_source_and_delivers_changes_once() {
    let bed = Bed::with(&["a"], |i| SimConfig { token: Some(TOKEN.to_owned()), ..small(120 + i, 10) });
    bed.put_as("a", bed.argocd("a", "a", json!({ "env": "dev" }), &json!({ "bearerToken": TOKEN })));
    let mut config = bed.config("");
    config.hub.state_dir = Some(bed.dir.path().join("state"));
    config.hub.checkpoint = std::time::Duration::from_millis(50);
    let hub = Hub::start_with(config.clone(), quick()).await.unwrap();
    let log = subscribe(&hub).await;
    hub.wait_for_cache_sync(crate::fleet::PATIENCE).await.unwrap();
    eventually("all additions are delivered", async || log.lock().len() == 10).await;
    eventually("all is on disk", async || {
        let report = hub.report().await.unwrap();
        report.hub.clusters[0]
            .informers
            .iter()
            .all(|it| it.checkpoint.as_ref().is_some_and(|saved| saved.version.is_some()))
    })
    .await;
    assert_eq!(hub.shutdown(crate::fleet::PATIENCE).await.actors_left, 0);
    let saved = std::fs::read_to_string(bed.dir.path().join("state/fleet.json")).unwrap();
    assert!(saved.contains("\"a\"") && !saved.contains(TOKEN) && !saved.contains("http"), "{saved}");
    let listed = lists(&bed.spokes["a"]);
    let deleted = bed.spokes["a"].truth(&pods().gvr).into_keys().next().unwrap();
    bed.spokes["a"].with_world(|world| world.delete(&pods().gvr, &deleted)).unwrap();
    bed.management.stop().await;
    let hub = Hub::start_with(config, quick()).await.unwrap();
    let log = subscribe(&hub).await;
    assert_eq!(
        (names(&hub).await, cached(&hub).await),
        (vec!["a".to_owned()], 10),
        "the cluster and its pods are restored"
    );
    let is_shown = async || {
        let report = hub.report().await.unwrap();
        let a = &report.hub.clusters[0];
        a.state == ClusterState::Unreachable
            && a.last_error
                .as_deref()
                .is_some_and(|error| error.contains("argo has not provided access to the cluster yet"))
    };
    eventually("the reason is reported", is_shown).await;
    eventually("the source is unreachable", async || {
        source(&hub, "argo").await.state == ClusterSourceState::Unreachable
    })
    .await;
    assert!(log.lock().is_empty(), "no event yet: {:?}", log.lock());
    bed.management.restart().await;
    eventually("the missed deletion", async || !log.lock().is_empty()).await;
    let new = bed.spokes["a"].with_world(World::create_pod).unwrap();
    eventually("it is watched", async || log.lock().len() >= 2).await;
    let events = log.lock().clone();
    assert!(
        events == [format!("D {deleted}"), format!("A {new}")]
            || events == [format!("Dt {deleted}"), format!("A {new}")],
        "{events:?}"
    );
    assert_eq!(lists(&bed.spokes["a"]), listed, "the watch resumed without a list");
    hub.shutdown(crate::fleet::PATIENCE).await;
    // When the source removes the cluster, its caches are deleted.
    bed.delete("a");
    let mut config = bed.config("");
    config.hub.state_dir = Some(bed.dir.path().join("state"));
    let hub = Hub::start_with(config, quick()).await.unwrap();
    reaches_clusters(&hub, &[]).await;
    eventually("its caches are deleted", async || cached(&hub).await == 0).await;
    hub.shutdown(crate::fleet::PATIENCE).await;
}
