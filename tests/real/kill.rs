//! Crash tests: hub processes are killed while two real clusters change. One hub is killed at random moments and
//! started again; of two replicas, the leader is killed or suspended.
//!
//! The webhook receiver fails some requests. The hub binary has the profile of the test: `make test-nightly` uses
//! `--release`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use informer_hub_sim::oracle::{EventContent, Oracle, ReceivedEvent, Replica};
use informer_hub_testing::choice;
use informer_hub_types::clock::{self, Instant};
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
    seed, signal,
};
use crate::fixture::{WAIT_DEADLINE, origin, pods, widgets};

/// Default number of kills; the variable `KILLS` overrides it.
const KILLS: u64 = 10;

/// Receiver that fails one request in ten, half of these after it has recorded the events.
#[derive(Clone)]
pub(crate) struct FlakyReceiver {
    pub(crate) replica: Arc<Mutex<Replica>>,
    received: Arc<Mutex<HashMap<Uid, ReceivedEvents>>>,
    requests: Arc<AtomicU64>,
    /// Time of arrival and header `x-replica` of each request.
    senders: Arc<Mutex<Vec<(Instant, String)>>>,
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
    pub(crate) async fn start() -> (Self, String) {
        let replica = Arc::new(Mutex::new(Replica::at_least_once()));
        let receiver = Self { replica, received: Arc::default(), requests: Arc::default(), senders: Arc::default() };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let router = Router::new().route("/events", post(receive)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (receiver, url)
    }

    /// Returns the replicas whose requests arrived after `since`.
    pub(crate) fn senders(&self, since: Instant) -> BTreeSet<String> {
        self.senders.lock().iter().filter(|(at, _)| *at > since).map(|(_, name)| name.clone()).collect()
    }

    /// Returns the arrivals of a replica's requests after `since`.
    pub(crate) fn arrivals(&self, replica: &str, since: Instant) -> Vec<Instant> {
        let senders = self.senders.lock();
        senders.iter().filter(|(at, name)| *at > since && name == replica).map(|(at, _)| *at).collect()
    }

    /// Returns how many of these deleted objects the receiver knew, and verifies that each of these has exactly one
    /// deletion event. The event may have been delivered several times. An object without earlier events must have no
    /// deletion event.
    pub(crate) fn verify_deletions(&self, deleted: &[Uid]) -> usize {
        let received = self.received.lock();
        let known: Vec<_> = deleted.iter().filter_map(|uid| Some((uid, received.get(uid)?))).collect();
        let wrong: Vec<_> = known.iter().filter(|(_, events)| !events.seen || events.deletions.len() != 1).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        known.len()
    }
}

async fn receive(State(receiver): State<FlakyReceiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if let Some(replica) = headers.get("x-replica") {
        receiver.senders.lock().push((clock::now(), replica.to_str().unwrap().to_owned()));
    }
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

/// Returns the encoding that hubs ask for: that of `INFORMER_HUB_ENCODING` (`auto`, `json`), else protobuf.
fn usual_encoding() -> &'static str {
    choice("INFORMER_HUB_ENCODING", &[("auto", "auto"), ("json", "json")]).unwrap_or("auto")
}

fn config(clusters: &[RealCluster], encoding: &str, url: &str, state: &Path) -> String {
    let tables = clusters.iter().map(|cluster| {
        let (name, kubeconfig) = (cluster.name(), cluster.kubeconfig().display().to_string());
        format!("[clusters.{name}]\nkubeconfig = {kubeconfig:?}\nencoding = {encoding:?}\n")
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

/// Creates objects, and the namespace of later changes.
async fn populate(clients: &[Client], pods: usize, widgets: usize) {
    for client in clients {
        install_widgets(client).await;
        create_namespace(client, "churn").await;
        create_pods(client, "default", "web", pods).await;
        create_widgets(client, "default", "part", widgets).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_killed_repeatedly_loses_no_change() {
    kill_repeatedly(usual_encoding()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_reads_json_loses_no_change_when_killed() {
    kill_repeatedly("json").await;
}

/// Kills a hub at random moments, and verifies that its receiver has the state of the clusters at the end.
async fn kill_repeatedly(encoding: &str) {
    let kills = std::env::var("KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let clusters = RealCluster::start_all(["east", "west"]).await;
    let clients = [clusters[0].client().await, clusters[1].client().await];
    populate(&clients, 200, 50).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hub.toml");
    let (receiver, url) = FlakyReceiver::start().await;
    std::fs::write(&file, config(&clusters, encoding, &url, &folder.path().join("state"))).unwrap();

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
        // Changes objects while the hub is down.
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

/// Names of the replicas.
const REPLICAS: [&str; 2] = ["a", "b"];
/// Longest time until a standby delivers after its leader was killed.
pub(crate) const TAKEOVER: Duration = Duration::from_secs(15);

/// Two hub processes over the same clusters. The Lease is in the first cluster.
struct Replicas {
    files: [PathBuf; 2],
    addresses: [String; 2],
    running: [Child; 2],
    leases: Api<Lease>,
}

impl Replicas {
    fn start(clusters: &[RealCluster], client: &Client, url: &str, folder: &Path) -> Self {
        let addresses = REPLICAS.map(|_| {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().to_string()
        });
        let files = [0, 1].map(|which| {
            let name = REPLICAS[which];
            let file = folder.join(format!("{name}.toml"));
            let lease = format!("lease = {{ cluster = {:?}, namespace = \"churn\" }}", clusters[0].name());
            let ha = format!("headers = {{ x-replica = \"{name}\" }}\n[ha]\nidentity = \"{name}\"\n{lease}\n");
            let state = folder.join(format!("state-{name}"));
            let config = config(clusters, usual_encoding(), url, &state).replace("127.0.0.1:0", &addresses[which]);
            std::fs::write(&file, config + &ha).unwrap();
            file
        });
        let running = [start(&files[0]), start(&files[1])];
        Self { files, addresses, running, leases: Api::namespaced(client.clone(), "churn") }
    }

    /// Waits until a replica holds the Lease; returns its number.
    async fn leader(&self) -> usize {
        let holder = async || {
            let lease = self.leases.get_opt("informer-hub").await.ok()??;
            let holder = lease.spec?.holder_identity?;
            REPLICAS.iter().position(|name| holder.starts_with(&format!("{name}_")))
        };
        assert!(becomes_true(WAIT_DEADLINE, async || holder().await.is_some()).await, "no replica holds the Lease");
        holder().await.unwrap()
    }

    /// Waits until both replicas have synced.
    async fn are_ready(&self) {
        for address in &self.addresses {
            let url = format!("http://{address}/readyz");
            let ready = async || reqwest::get(&url).await.is_ok_and(|answer| answer.status() == 200);
            assert!(becomes_true(WAIT_DEADLINE, ready).await, "{address} is not ready");
        }
    }

    /// Waits until the Lease records that everything up to these versions, by cluster and resource, is delivered.
    async fn have_published(&self, newest: &BTreeMap<[String; 2], u64>) {
        let published = async || {
            let lease = self.leases.get("informer-hub").await.unwrap();
            let note = lease.metadata.annotations.and_then(|mut all| all.remove("informer-hub.io/delivered"));
            let note: Value = serde_json::from_str(&note.unwrap_or_default()).unwrap_or_default();
            let delivered = |[cluster, resource]: &[String; 2]| note["sinks"]["flaky"][cluster][resource].as_u64();
            newest.iter().all(|(at, version)| delivered(at) >= Some(*version))
        };
        assert!(becomes_true(WAIT_DEADLINE, published).await, "the progress is not published: {newest:?}");
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

/// Two clusters that change.
pub(crate) struct Changing {
    pub(crate) clusters: [RealCluster; 2],
    clients: [Client; 2],
    churns: [Churn; 2],
    receiver: FlakyReceiver,
}

impl Changing {
    pub(crate) async fn start(seed: u64, receiver: FlakyReceiver) -> Self {
        let clusters = RealCluster::start_all(["north", "south"]).await;
        let clients = [clusters[0].client().await, clusters[1].client().await];
        populate(&clients, 50, 10).await;
        let churns = [Churn::new(seed, "churn"), Churn::new(seed.wrapping_add(1), "churn")];
        Self { clusters, clients, churns, receiver }
    }

    /// Changes objects, and returns the deleted ones.
    pub(crate) async fn churn(&mut self, changes: usize) -> Vec<Uid> {
        let [north, south] = &mut self.churns;
        tokio::join!(north.run(&self.clients[0], changes), south.run(&self.clients[1], changes));
        [north, south].into_iter().flat_map(Churn::take_deleted).collect()
    }

    /// Returns the newest version of the objects that exist now, by cluster and resource.
    async fn newest(&self) -> BTreeMap<[String; 2], u64> {
        let mut newest = BTreeMap::new();
        for (cluster, client) in self.clusters.iter().zip(&self.clients) {
            for (resource, name) in [(pods(), "pods."), (widgets(), "widgets.bed.example.com")] {
                let truth = ground_truth(client, &resource.gvr).await;
                let versions = truth.values().filter_map(|(_, version)| version.as_number());
                newest.insert([cluster.name().to_owned(), name.to_owned()], versions.max().unwrap());
            }
        }
        newest
    }

    pub(crate) async fn is_delivered(&self) {
        self.is_delivered_to(&self.receiver).await;
    }

    pub(crate) async fn is_delivered_to(&self, receiver: &FlakyReceiver) {
        for (cluster, client) in self.clusters.iter().zip(&self.clients) {
            for resource in [pods(), widgets()] {
                let truth = ground_truth(client, &resource.gvr).await;
                wait_until_equal(receiver, cluster.name(), &truth, &resource).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_takes_over_from_killed_and_suspended_leaders_without_losing_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let (receiver, url) = FlakyReceiver::start().await;
    let seed = seed();
    let mut changing = Changing::start(seed, receiver.clone()).await;
    let mut replicas = Replicas::start(&changing.clusters, &changing.clients[0], &url, folder.path());
    let mut leader = replicas.leader().await;
    let (mut deleted, mut takeovers) = (Vec::new(), Vec::new());
    for suspends in [false, true, false] {
        replicas.are_ready().await;
        deleted.extend(changing.churn(40).await);
        changing.is_delivered().await;
        // A standby that has just started does not know yet what is delivered.
        replicas.have_published(&changing.newest().await).await;
        deleted.extend(changing.churn(20).await);
        let (failed, former) = (clock::now(), leader);
        leader = 1 - former;
        if suspends {
            signal(&replicas.running[former], "STOP");
        } else {
            replicas.kill(former);
        }
        deleted.extend(changing.churn(10).await);
        let delivers = || receiver.arrivals(REPLICAS[leader], failed).first().copied();
        assert!(becomes_true(WAIT_DEADLINE, async || delivers().is_some()).await, "no takeover: seed {seed}");
        takeovers.push(delivers().unwrap().duration_since(failed));
        assert_eq!(replicas.leader().await, leader);
        changing.is_delivered().await;
        if suspends {
            signal(&replicas.running[former], "CONT");
            let continued = clock::now();
            while continued.elapsed() < Duration::from_secs(5) {
                deleted.extend(changing.churn(5).await);
            }
            changing.is_delivered().await;
            // A request that the former leader had begun to write may still arrive.
            let late = receiver.arrivals(REPLICAS[former], continued + Duration::from_secs(1));
            assert_eq!(late.len(), 0, "the former leader still delivers: seed {seed}");
            assert!(!receiver.arrivals(REPLICAS[leader], continued).is_empty());
            let stands_by = replicas.running[former].try_wait().unwrap().is_none();
            assert!(stands_by && replicas.leader().await == leader, "seed {seed}");
        } else {
            replicas.running[former] = start(&replicas.files[former]);
        }
    }
    deleted.extend(changing.churn(20).await);
    changing.is_delivered().await;
    assert_eq!(receiver.replica.lock().violations(), &[] as &[String], "seed {seed}");
    let (all, known) = (deleted.len(), receiver.verify_deletions(&deleted));
    println!("takeovers {takeovers:?}; {all} deletions, {known} of objects known to the receiver");
    assert!(takeovers.iter().all(|takeover| *takeover < TAKEOVER), "{takeovers:?}: seed {seed}");
    assert!(known > 0, "no deleted object was known to the receiver: seed {seed}");
}

async fn wait_until_equal(
    receiver: &FlakyReceiver,
    cluster: &str,
    truth: &crate::bed::GroundTruth,
    resource: &ApiResource,
) {
    let differences = || Oracle::diff(truth, &receiver.replica.lock().seen_of(&origin(cluster, resource)));
    let agrees = becomes_true(WAIT_DEADLINE, async || differences().is_empty()).await;
    let violations = receiver.replica.lock().violations().to_vec();
    assert!(agrees, "the receiver's {} of {cluster}: {:?}; violations: {violations:#?}", resource.gvr, differences());
}
