//! Crash tests: hub processes are killed while two real clusters change. One hub is killed at random moments and started
//! again; of two replicas, the leader is killed.
//!
//! The webhook receiver fails some requests. The hub binary has the profile of the test: `make test-nightly` uses
//! `--release`.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use informer_hub_sim::oracle::{EventContent, Oracle, ReceivedEvent, Replica};
use informer_hub_types::{ApiResource, Uid};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::bed::{
    Churn, RealCluster, becomes_true, create_namespace, create_pods, create_widgets, ground_truth, install_widgets,
    seed,
};
use crate::fixture::{WAIT_DEADLINE, origin, pods, widgets};

/// Default number of kills; the variable `KILLS` overrides it.
const KILLS: u64 = 10;

/// Receiver that fails one request in ten, half of these after it has recorded the events.
#[derive(Clone)]
struct FlakyReceiver {
    replica: Arc<Mutex<Replica>>,
    received: Arc<Mutex<HashMap<Uid, ReceivedEvents>>>,
    requests: Arc<AtomicU64>,
}

/// Events received for one object.
#[derive(Debug, Default)]
struct ReceivedEvents {
    /// Whether an addition or update was received.
    seen: bool,
    /// Ids of the received deletion events.
    deletions: BTreeSet<String>,
}

impl ReceivedEvents {
    fn note(&mut self, event: &ReceivedEvent) {
        match &event.content {
            EventContent::Deleted { .. } => drop(self.deletions.insert(event.id.clone().unwrap())),
            _ => self.seen = true,
        }
    }
}

impl FlakyReceiver {
    async fn start() -> (Self, String) {
        let replica = Arc::new(Mutex::new(Replica::at_least_once()));
        let receiver = Self { replica, received: Arc::default(), requests: Arc::default() };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let router = Router::new().route("/events", post(receive)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (receiver, url)
    }

    /// Returns how many of these deleted objects the receiver knew, and verifies that each of these has exactly one deletion
    /// event. The event may have been delivered several times. An object without earlier events must have no deletion event.
    fn verify_deletions(&self, deleted: &[Uid]) -> usize {
        let received = self.received.lock();
        let known: Vec<_> = deleted.iter().filter_map(|uid| Some((uid, received.get(uid)?))).collect();
        let wrong: Vec<_> = known.iter().filter(|(_, events)| !events.seen || events.deletions.len() != 1).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        known.len()
    }
}

async fn receive(State(receiver): State<FlakyReceiver>, body: Bytes) -> StatusCode {
    let turn = receiver.requests.fetch_add(1, Relaxed) % 20;
    if turn == 7 {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    let events: Vec<Value> = serde_json::from_slice(&body).unwrap();
    let (mut replica, mut by_uid) = (receiver.replica.lock(), receiver.received.lock());
    for event in events.iter().map(|event| ReceivedEvent::from_event(event).unwrap()) {
        replica.record(&event);
        if let EventContent::Added { object, .. }
        | EventContent::Updated { object, .. }
        | EventContent::Deleted { object, .. } = &event.content
        {
            by_uid.entry(object.uid.clone()).or_default().note(&event);
        }
    }
    if turn == 17 { StatusCode::BAD_GATEWAY } else { StatusCode::NO_CONTENT }
}

fn config(clusters: &[RealCluster], url: &str, state: &Path) -> String {
    let tables = clusters.iter().map(|cluster| {
        let (name, kubeconfig) = (cluster.name(), cluster.kubeconfig().display().to_string());
        format!("[clusters.{name}]\nkubeconfig = {kubeconfig:?}\n")
    });
    let state = state.display().to_string();
    format!(
        "[hub]\nlisten = \"127.0.0.1:0\"\nstate_dir = {state:?}\ncheckpoint = \"200ms\"\n{}[resources.pods]\n\
         [resources.\"widgets.bed.example.com\"]\n[sinks.flaky]\ntype = \"webhook\"\nurl = \"{url}\"\n\
         initial = \"replay\"\nbatch = {{ max_wait = \"20ms\" }}\nretry = {{ first = \"20ms\", max = \"1s\" }}\n",
        tables.collect::<String>()
    )
}

fn start(file: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_informer-hub"))
        .arg("run")
        .arg("-c")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_killed_repeatedly_loses_no_change() {
    let kills = std::env::var("KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let clusters = RealCluster::start_all(["east", "west"]).await;
    let clients = [clusters[0].client().await, clusters[1].client().await];
    for client in &clients {
        install_widgets(client).await;
        create_namespace(client, "churn").await;
        create_pods(client, "default", "web", 200).await;
        create_widgets(client, "default", "part", 50).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hub.toml");
    let (receiver, url) = FlakyReceiver::start().await;
    std::fs::write(&file, config(&clusters, &url, &folder.path().join("state"))).unwrap();

    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut churns = [Churn::new(seed, "churn"), Churn::new(seed.wrapping_add(1), "churn")];
    let mut unseen = Vec::new();
    for _ in 0..kills {
        let mut hub = start(&file);
        let [east, west] = &mut churns;
        let (changes, lifetime) = (rng.random_range(10..60), Duration::from_millis(rng.random_range(100..2500)));
        tokio::join!(east.run(&clients[0], changes), west.run(&clients[1], changes), tokio::time::sleep(lifetime));
        hub.kill().unwrap();
        hub.wait().unwrap();
        // Changes while the hub is down.
        for (churn, client) in [(east, &clients[0]), (west, &clients[1])] {
            churn.take_deleted();
            churn.run(client, 10).await;
            unseen.extend(churn.take_deleted());
        }
    }
    let mut hub = start(&file);
    for (cluster, client) in clusters.iter().zip(&clients) {
        for resource in [pods(), widgets()] {
            wait_until_equal(&receiver, cluster.name(), &ground_truth(client, &resource.gvr).await, &resource).await;
        }
    }
    hub.kill().unwrap();
    hub.wait().unwrap();
    assert_eq!(receiver.replica.lock().violations(), &[] as &[String], "seed {seed}");
    let known = receiver.verify_deletions(&unseen);
    println!(
        "{kills} kills, {} deletions while the hub was down, {known} of objects known to the receiver",
        unseen.len()
    );
    assert!(known > 0, "no deleted object was known to the receiver: seed {seed}");
}

/// Two hub processes over the same clusters. The Lease is in the first cluster.
struct Replicas {
    files: [PathBuf; 2],
    running: [Child; 2],
    leases: Api<Lease>,
}

impl Replicas {
    fn start(clusters: &[RealCluster], client: &Client, url: &str, folder: &Path) -> Self {
        let files = ["a", "b"].map(|name| {
            let file = folder.join(format!("{name}.toml"));
            let lease = format!("lease = {{ cluster = {:?}, namespace = \"churn\" }}", clusters[0].name());
            let ha = format!("[ha]\nidentity = \"{name}\"\n{lease}\n");
            let state = folder.join(format!("state-{name}"));
            std::fs::write(&file, config(clusters, url, &state) + &ha).unwrap();
            file
        });
        let running = [start(&files[0]), start(&files[1])];
        Self { files, running, leases: Api::namespaced(client.clone(), "churn") }
    }

    /// Returns the number of the holder of the Lease.
    async fn holder(&self) -> Option<usize> {
        let lease = self.leases.get_opt("informer-hub").await.ok()??;
        let holder = lease.spec?.holder_identity?;
        ["a_", "b_"].iter().position(|prefix| holder.starts_with(prefix))
    }

    /// Waits until one replica holds the Lease, other than `former`.
    async fn elected(&self, former: Option<usize>) -> usize {
        let held = async || self.holder().await.is_some_and(|now| Some(now) != former);
        assert!(becomes_true(WAIT_DEADLINE, held).await, "no replica holds the Lease");
        self.holder().await.unwrap()
    }

    fn kill(&mut self, which: usize) {
        self.running[which].kill().unwrap();
        self.running[which].wait().unwrap();
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        for process in &mut self.running {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_takes_over_from_killed_leaders_without_losing_a_change() {
    let clusters = RealCluster::start_all(["north", "south"]).await;
    let clients = [clusters[0].client().await, clusters[1].client().await];
    for client in &clients {
        install_widgets(client).await;
        create_namespace(client, "churn").await;
        create_pods(client, "default", "web", 50).await;
        create_widgets(client, "default", "part", 10).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let (receiver, url) = FlakyReceiver::start().await;
    let mut replicas = Replicas::start(&clusters, &clients[0], &url, folder.path());
    let seed = seed();
    let mut churns = [Churn::new(seed, "churn"), Churn::new(seed.wrapping_add(1), "churn")];
    let (mut leader, mut deleted, mut takeovers) = (replicas.elected(None).await, Vec::new(), Vec::new());
    for _ in 0..3 {
        let [north, south] = &mut churns;
        tokio::join!(north.run(&clients[0], 40), south.run(&clients[1], 40));
        for (cluster, client) in clusters.iter().zip(&clients) {
            wait_until_equal(&receiver, cluster.name(), &ground_truth(client, &pods().gvr).await, &pods()).await;
        }
        for churn in [&mut *north, &mut *south] {
            churn.take_deleted();
        }
        tokio::join!(north.run(&clients[0], 20), south.run(&clients[1], 20));
        replicas.kill(leader);
        let killed = Instant::now();
        tokio::join!(north.run(&clients[0], 10), south.run(&clients[1], 10));
        deleted.extend([north, south].into_iter().flat_map(Churn::take_deleted));
        let successor = replicas.elected(Some(leader)).await;
        takeovers.push(killed.elapsed());
        let former = std::mem::replace(&mut leader, successor);
        replicas.running[former] = start(&replicas.files[former]);
    }
    for (cluster, client) in clusters.iter().zip(&clients) {
        for resource in [pods(), widgets()] {
            wait_until_equal(&receiver, cluster.name(), &ground_truth(client, &resource.gvr).await, &resource).await;
        }
    }
    assert_eq!(receiver.replica.lock().violations(), &[] as &[String], "seed {seed}");
    let known = receiver.verify_deletions(&deleted);
    println!(
        "takeovers {takeovers:?}; {} deletions around them, {known} of objects known to the receiver",
        deleted.len()
    );
}

async fn wait_until_equal(
    receiver: &FlakyReceiver,
    cluster: &str,
    truth: &crate::bed::GroundTruth,
    resource: &ApiResource,
) {
    let differences = || Oracle::diff(truth, &receiver.replica.lock().seen_of(&origin(cluster, resource)));
    let agrees = becomes_true(WAIT_DEADLINE, async || differences().is_empty()).await;
    assert!(agrees, "the receiver's {} of {cluster}: {:?}", resource.gvr, differences());
}
