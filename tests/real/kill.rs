//! The program itself, killed again and again at any moment while two real clusters change and a receiver is moody.
//!
//! It is the program of the profile that the test has: with `--release`, as `make test-nightly` has it, the one that is
//! shipped.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use informer_hub_sim::oracle::{Oracle, Replica, Told, What};
use informer_hub_types::{ApiResource, Uid};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::bed::{
    Churn, RealCluster, comes_true, create_namespace, create_pods, create_widgets, install_widgets, seed, truth,
};
use crate::fleet::{PATIENCE, origin, pods, widgets};

/// Kills, unless `KILLS` says otherwise.
const KILLS: u64 = 10;

/// Fails one request in ten: half of these after it has taken them in.
#[derive(Clone)]
struct Moody {
    replica: Arc<Mutex<Replica>>,
    lives: Arc<Mutex<HashMap<Uid, Life>>>,
    requests: Arc<AtomicU64>,
}

/// What the receiver has been told of one object, from its creation to its end.
#[derive(Debug, Default)]
struct Life {
    /// Whether it was told that it is there.
    lived: bool,
    /// Ids of the events that told of its end.
    ends: BTreeSet<String>,
}

impl Life {
    fn note(&mut self, told: &Told) {
        match &told.what {
            What::Deleted { .. } => drop(self.ends.insert(told.id.clone().unwrap())),
            _ => self.lived = true,
        }
    }
}

impl Moody {
    async fn start() -> (Self, String) {
        let replica = Arc::new(Mutex::new(Replica::at_least_once()));
        let moody = Self { replica, lives: Arc::default(), requests: Arc::default() };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let router = Router::new().route("/events", post(receive)).with_state(moody.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (moody, url)
    }

    /// How many of these objects the receiver has been told of. Of each of them it must have been told the end, by one
    /// event; that may have come several times. Of others it must have been told nothing.
    fn ended_once(&self, gone: &[Uid]) -> usize {
        let lives = self.lives.lock();
        let told: Vec<_> = gone.iter().filter_map(|uid| Some((uid, lives.get(uid)?))).collect();
        let wrong: Vec<_> = told.iter().filter(|(_, life)| !life.lived || life.ends.len() != 1).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        told.len()
    }
}

async fn receive(State(moody): State<Moody>, body: Bytes) -> StatusCode {
    let mood = moody.requests.fetch_add(1, Relaxed) % 20;
    if mood == 7 {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    let events: Vec<Value> = serde_json::from_slice(&body).unwrap();
    let (mut replica, mut lives) = (moody.replica.lock(), moody.lives.lock());
    for told in events.iter().map(|event| Told::from_event(event).unwrap()) {
        replica.tell(&told);
        if let What::Added { object, .. } | What::Updated { object, .. } | What::Deleted { object, .. } = &told.what {
            lives.entry(object.uid.clone()).or_default().note(&told);
        }
    }
    if mood == 17 { StatusCode::BAD_GATEWAY } else { StatusCode::NO_CONTENT }
}

fn config(clusters: &[RealCluster], url: &str, state: &Path) -> String {
    let tables = clusters.iter().map(|cluster| {
        let (name, kubeconfig) = (cluster.name(), cluster.kubeconfig().display().to_string());
        format!("[clusters.{name}]\nkubeconfig = {kubeconfig:?}\n")
    });
    let state = state.display().to_string();
    format!(
        "[hub]\nlisten = \"127.0.0.1:0\"\nstate_dir = {state:?}\ncheckpoint = \"200ms\"\n{}[resources.pods]\n\
         [resources.\"widgets.bed.example.com\"]\n[sinks.moody]\ntype = \"webhook\"\nurl = \"{url}\"\n\
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
async fn a_hub_that_is_killed_again_and_again_loses_nothing() {
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
    let (moody, url) = Moody::start().await;
    std::fs::write(&file, config(&clusters, &url, &folder.path().join("state"))).unwrap();

    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut churns = [Churn::new(seed, "churn"), Churn::new(seed.wrapping_add(1), "churn")];
    let mut unseen = Vec::new();
    for _ in 0..kills {
        let mut hub = start(&file);
        let [east, west] = &mut churns;
        let (more, life) = (rng.random_range(10..60), Duration::from_millis(rng.random_range(100..2500)));
        tokio::join!(east.run(&clients[0], more), west.run(&clients[1], more), tokio::time::sleep(life));
        hub.kill().unwrap();
        hub.wait().unwrap();
        // What happens while nobody looks.
        for (churn, client) in [(east, &clients[0]), (west, &clients[1])] {
            churn.take_deleted();
            churn.run(client, 10).await;
            unseen.extend(churn.take_deleted());
        }
    }
    let mut hub = start(&file);
    for (cluster, client) in clusters.iter().zip(&clients) {
        for resource in [pods(), widgets()] {
            agrees(&moody, cluster.name(), &truth(client, &resource.gvr).await, &resource).await;
        }
    }
    hub.kill().unwrap();
    hub.wait().unwrap();
    assert_eq!(moody.replica.lock().violations(), &[] as &[String], "seed {seed}");
    let ended = moody.ended_once(&unseen);
    println!("{kills} kills, {} deletions while nobody looked, {ended} of objects that had been told of", unseen.len());
    assert!(ended > 0, "no deletion was of an object that had been told of: seed {seed}");
}

async fn agrees(moody: &Moody, cluster: &str, truth: &crate::bed::Truth, resource: &ApiResource) {
    let differences = || Oracle::diff(truth, &moody.replica.lock().seen_of(&origin(cluster, resource)));
    let agrees = comes_true(PATIENCE, async || differences().is_empty()).await;
    assert!(agrees, "the receiver's {} of {cluster}: {:?}", resource.gvr, differences());
}
