//! First list from a real kube-apiserver with the hub, client-go, kube-rs and a bare reader. The bare reader reads a
//! plain list and a streaming list, as the hub does.
//!
//! `make bench-real` builds the apiserver (tests/testbed) and the Go program, and sets `BENCH_TESTBED` and
//! `BENCH_GO_PEERS`. First `BENCH_PODS` (5,000) pods are created. Then the clients take turns listing them,
//! `BENCH_ROUNDS` (5) times each, in a new process each time. The CPU of the server includes that of etcd.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use comfy_table::{Table, presets::ASCII_MARKDOWN};
use futures::{StreamExt, TryStreamExt, stream};
use informer_hub_sim::replay::ReplayConfig;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::common::process::cpu_of;
use crate::common::table::figures;
use crate::common::{number, runtime};
use crate::peers::{Contestant, own_client};

/// Number of concurrent requests that create pods.
const WRITERS: usize = 16;

pub(crate) fn run() {
    let (pods, rounds) = (number("BENCH_PODS", 5_000), number("BENCH_ROUNDS", 5));
    let testbed = std::env::var("BENCH_TESTBED").expect("BENCH_TESTBED is set, as by `make bench-real`");
    let dir = tempfile::tempdir().unwrap();
    let (server, kubeconfig) = start(&testbed, dir.path());
    eprintln!("making {pods} pods …");
    runtime().block_on(fill(&kubeconfig, pods as usize));
    let kinds = [
        ("bare reader", "bare"),
        ("bare reader, streaming list", "bare-stream"),
        ("informer-hub", "hub"),
        ("informer-hub JSON", "hub-json"),
        ("client-go protobuf", "protobuf"),
        ("client-go JSON", "json"),
        ("kube-rs", "kube-rs"),
    ];
    let go = std::env::var("BENCH_GO_PEERS").ok();
    let mut reached: Vec<Vec<Value>> = vec![Vec::new(); kinds.len()];
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds} …");
        for ((_, kind), reached) in kinds.iter().zip(&mut reached) {
            let command = match (*kind, &go) {
                ("protobuf" | "json", None) => continue,
                ("protobuf" | "json", Some(go)) => {
                    let mut command = Command::new(go);
                    command.args(["informer", kind, &kubeconfig]);
                    command
                }
                _ => own_client(kind, &kubeconfig, None),
            };
            let mut client = Contestant::start(command);
            client.answer("idle");
            let before = cpu_of(server.0.id());
            client.command("sync", pods);
            let mut synced = client.answer("synced");
            synced["server_cpu_us"] = json!(cpu_of(server.0.id()).saturating_sub(before).as_micros() as u64);
            reached.push(synced);
        }
    }
    println!("{pods} pods from a real kube-apiserver, medians of {rounds} rounds");
    println!("{}", table(&kinds, &reached, pods as f64));
}

/// Starts the apiserver. Returns its process and the path of its kubeconfig.
pub(crate) fn start(testbed: &str, dir: &Path) -> (Server, String) {
    let mut command = Command::new(testbed);
    command.args(["--name", "bench", "--dir"]).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("the test bed did not start: {line:?}"));
    (Server(child), ready["kubeconfig"].as_str().unwrap().to_owned())
}

pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads a kubeconfig.
pub(crate) async fn config(path: &str) -> Config {
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

/// Creates pods.
pub(crate) async fn fill(kubeconfig: &str, pods: usize) {
    let client = Client::try_from(config(kubeconfig).await).unwrap();
    let mut lines = Vec::new();
    ReplayConfig { pods, ..ReplayConfig::default() }.export(&mut lines).unwrap();
    let bodies: Vec<Value> = serde_json::Deserializer::from_slice(&lines).into_iter().map(Result::unwrap).collect();
    let mut namespaces: Vec<_> = bodies.iter().map(|body| body["metadata"]["namespace"].as_str().unwrap()).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    for name in namespaces.into_iter().filter(|name| *name != "default") {
        let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        Api::<Namespace>::all(client.clone()).create(&kube::api::PostParams::default(), &namespace).await.unwrap();
    }
    stream::iter(bodies)
        .map(|body| make(client.clone(), body))
        .buffer_unordered(WRITERS)
        .try_collect::<()>()
        .await
        .unwrap();
}

/// Creates one pod, then writes its status in a second request.
async fn make(client: Client, mut body: Value) -> kube::Result<()> {
    let metadata = body["metadata"].as_object_mut().unwrap();
    for set_by_server in ["managedFields", "uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(set_by_server);
    }
    let api = Api::<Pod>::namespaced(client, metadata["namespace"].as_str().unwrap());
    let name = metadata["name"].as_str().unwrap().to_owned();
    let status = json!({ "status": body["status"] });
    api.create(&kube::api::PostParams::default(), &serde_json::from_value(body).unwrap()).await?;
    let patch = kube::api::Patch::Merge(status);
    api.patch_status(&name, &kube::api::PatchParams::default(), &patch).await.map(drop)
}

fn table(kinds: &[(&str, &str)], reached: &[Vec<Value>], pods: f64) -> Table {
    let median = |rounds: &[Value], figure: &str| {
        let mut figures: Vec<_> = rounds.iter().filter_map(|round| round[figure].as_f64()).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    };
    let cell =
        |figure: Option<f64>, digits: usize| figure.map_or("–".to_owned(), |figure| format!("{figure:.digits$}"));
    let mut table = figures(
        ASCII_MARKDOWN,
        [
            "client",
            "wall of the first list, s",
            "× the bare reader's",
            "CPU of the server, s",
            "CPU per pod, µs",
            "memory per pod, B",
        ],
    );
    let bare = median(&reached[0], "wall_us");
    for ((name, _), rounds) in kinds.iter().zip(reached).filter(|(_, rounds)| !rounds.is_empty()) {
        let wall = median(rounds, "wall_us");
        table.add_row([
            (*name).to_owned(),
            cell(wall.map(|micros| micros / 1e6), 2),
            cell(wall.zip(bare).map(|(wall, bare)| wall / bare), 2),
            cell(median(rounds, "server_cpu_us").map(|micros| micros / 1e6), 2),
            cell(median(rounds, "cpu_us").map(|micros| micros / pods), 1),
            cell(median(rounds, "rss").map(|bytes| bytes / pods), 0),
        ]);
    }
    table
}
