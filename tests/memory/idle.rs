//! Memory of idle informers: 8 clusters, each with 25 informers of one object over one HTTP/2 connection, and a
//! subscriber. Connections are included, the server is another process.
//!
//! Other sizes are measured by hand: `BENCH_CLUSTERS`, `BENCH_INFORMERS` (for each cluster), `BENCH_WIRE=http1`. Then
//! sockets and CPU are printed too.

use std::fs::DirEntry;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use informer_hub::actors::messages::{InformerFor, ResourceRequest, User};
use informer_hub::actors::{Subscribe, Tuning};
use informer_hub::app::{Hub, api_resource};
use informer_hub::{Clusters, Notification, Subscriber};
use informer_hub_config::{ClusterAccess, ClusterConfig, Config, HttpVersions};
use informer_hub_protobuf::Schema;
use informer_hub_reflector::InformerOptions;
use informer_hub_sim::{SimCluster, SimConfig, World, WorldConfig};
use informer_hub_types::{ClusterName, Scope};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::common::hub::{Notified, end, wait_until};
use crate::common::memory::{Level, settle};
use crate::common::process::{self, Helper};
use crate::common::{number, runtime};

/// Argument that makes the binary run the server.
const FLAG: &str = "--idle-server";

/// Interval of bookmarks of a kube-apiserver, for measurements by hand. Otherwise bookmarks are sent each second, so
/// that allocator caches of threads that started the informers are emptied.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// Time over which the CPU of idle informers is measured by hand.
const WATCHED: Duration = Duration::from_secs(20);

/// Returns the number of clusters. All are served by one server.
fn clusters() -> u64 {
    number("BENCH_CLUSTERS", 8)
}

/// Returns the number of namespaces of a cluster, each with one pod and one informer.
fn namespaces() -> u64 {
    number("BENCH_INFORMERS", 25)
}

/// Returns whether this is a measurement by hand, with `BENCH_CLUSTERS` set.
fn is_by_hand() -> bool {
    std::env::var_os("BENCH_CLUSTERS").is_some()
}

fn is_http1() -> bool {
    std::env::var("BENCH_WIRE").is_ok_and(|wire| wire == "http1")
}

/// Streams of a connection, as a kube-apiserver allows by default.
const STREAMS: u32 = 100;

/// Runs the server and exits, if this is its process. To be called first in `main`.
pub(crate) fn serve_if_asked() {
    if std::env::args().any(|arg| arg == FLAG) {
        let runtime = runtime();
        let world = WorldConfig { pods: 0, ..WorldConfig::default() };
        let http2 = (!is_http1()).then_some(STREAMS);
        let mut config = SimConfig { world, http2, ..SimConfig::default() };
        if is_by_hand() {
            config.bookmark_every = BOOKMARKS;
        }
        let cluster = SimCluster::start(config, runtime.handle()).unwrap();
        cluster.with_world(|world| {
            for i in 0..namespaces() {
                let spec = json!({"nodeName": "node-0", "containers": [{"name": "web", "image": "web:1"}]});
                world.create(&World::pods(), &namespace(i), "web", json!({"metadata": {}, "spec": spec})).unwrap();
            }
        });
        println!("{}", cluster.url());
        // Serves until the other process closes the pipe.
        let _ = std::io::stdin().lock().lines().next();
        std::process::exit(0);
    }
}

fn namespace(i: u64) -> String {
    format!("team-{i}")
}

/// Returns the live allocations and the resident memory of an informer, in KiB.
pub(crate) fn figures() -> Vec<f64> {
    // Loads the schema of built-in types first, since its size does not depend on the informers.
    Schema::builtin();
    let (before, after) = runtime().block_on(measure());
    let kib = |before: u64, after: u64| (after as f64 - before as f64) / (clusters() * namespaces()) as f64 / 1024.0;
    vec![kib(before.heap.allocated, after.heap.allocated), kib(before.anonymous, after.anonymous)]
}

async fn measure() -> (Level, Level) {
    let mut server = Helper::start(&[FLAG], &[], None);
    let url = server.line();
    let cluster = |i| {
        let access = ClusterAccess::server(&url, None, None);
        let mut cluster = ClusterConfig::new(ClusterName::new(format!("idle-{i}")).unwrap(), access);
        cluster.http = if is_http1() { HttpVersions::Http1 } else { HttpVersions::Http2 };
        cluster
    };
    let mut config = Config::default();
    config.clusters = (0..clusters()).map(cluster).collect();
    let hub = Hub::start_with(config, Tuning::default()).await.unwrap();
    // Let the clients of the clusters connect first, since their cost is not part of that of informers.
    settle().await;
    let before = Level::now();
    let two = [("by-node", "spec.nodeName"), ("by-image", "spec.containers[*].image")];
    let indexes = two.map(|(name, path)| (name.into(), path.parse().unwrap()));
    let user = User::Caller("idle".to_owned());
    let demand = InformerFor {
        user: user.clone(),
        wanted: ResourceRequest::known(&api_resource::<Pod>()),
        clusters: Clusters::all(),
        scopes: (0..namespaces()).map(|i| Scope::namespace(&namespace(i))).collect(),
        options: Arc::new(InformerOptions { indexes: indexes.into(), ..InformerOptions::default() }),
        watch_errors: None,
    };
    hub.registry().send(demand).await.unwrap();
    let notified = Notified::default();
    let counted = Arc::clone(&notified.count);
    let subscriber = Subscriber::<Pod>::from_fn(move |notification: &Notification<Pod>| {
        let is_added = matches!(notification, Notification::Added { .. });
        counted.fetch_add(u64::from(is_added), Relaxed);
    });
    hub.registry().send(Subscribe::to_informers_of(user, Clusters::all(), subscriber)).await.unwrap();
    wait_until("the object of every informer", || notified.count() == clusters() * namespaces()).await;
    settle().await;
    let after = Level::now();
    if is_by_hand() {
        print_idle_cost().await;
    }
    end(hub).await;
    (before, after)
}

/// Prints the number of sockets, and the CPU of some seconds.
async fn print_idle_cost() {
    let target = |file: &DirEntry| std::fs::read_link(file.path()).unwrap_or_default();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let sockets = files.filter(|file| target(file).to_string_lossy().starts_with("socket:")).count();
    let cpu = process::cpu();
    tokio::time::sleep(WATCHED).await;
    eprintln!("{sockets} sockets, {:?} of CPU in {WATCHED:?}", process::cpu().saturating_sub(cpu));
}
