//! Queries over HTTP at a million small objects: queries a second by kind and number of clients, and the latency of watch
//! events meanwhile.
//!
//! The cluster is a replay server, since an apiserver on this machine cannot hold a million objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use informer_hub_sim::replay::Shape;
use parking_lot::Mutex;
use serde_json::Value;

use super::Row;
use super::latency::{follow, pace};
use super::servers::{HubServer, Server};
use crate::common::figures::{Rounds, micros};
use crate::common::hub::{Notified, quantile};
use crate::common::number;
use crate::common::server::{Remote, RemoteConfig};

/// Clients at the same time.
const CLIENTS: [usize; 3] = [1, 8, 64];

/// Longest time of one query. The hub gives up after 10 s.
const TIMEOUT: &str = "25s";

/// A kind of query: its name and its text, in which `{}` is a value.
struct Kind {
    name: &'static str,
    text: &'static str,
    values: Vec<String>,
}

/// Figures of one kind with one number of clients.
#[derive(Default)]
struct Figures {
    rate: Rounds,
    p99: Rounds,
    refused: Rounds,
    event_p99: Rounds,
}

pub(super) async fn measure(rows: &mut Vec<Row>) {
    let objects = number("BENCH_OBJECTS", 1_000_000);
    let mut replay = Remote::start(&RemoteConfig { pods: objects, shape: Shape::SmallPods, ..RemoteConfig::default() });
    let toml = format!(
        "[hub.read_api]\nmax_requests = 1000\n[clusters.bench]\nserver = \"{}\"\ncompression = false\n\
         [resources.pods]\nindexes = {{ by-ip = \"status.podIP\" }}\n",
        replay.url
    );
    let hub = HubServer::start(&toml, false).await;
    of_hub(&mut replay, &hub.server(), "", rows).await;
}

/// Measures all kinds at one hub.
async fn of_hub(replay: &mut Remote, server: &Server, suffix: &str, rows: &mut Vec<Row>) {
    let through = Notified::default();
    let client = server.client(false);
    let watch = server.get(&client, "/api/v1/pods?watch=1&resourceVersion=", "application/json").send().await.unwrap();
    let watch = follow(watch, through.clone());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut alone = Rounds::default();
    let rounds = number("BENCH_ROUNDS", 3);
    for _ in 0..rounds {
        pace(replay, &[&through]).await;
        alone.0.push(micros(quantile(&through.take_latencies(), 0.99)) / 1e3);
    }
    rows.push(Row::new(format!("event p99 without queries{suffix}"), "ms", None, alone, ""));
    for kind in kinds(server).await {
        for clients in CLIENTS {
            let mut figures = Figures::default();
            for round in 0..rounds {
                eprintln!("{}, {clients} clients, round {round}{suffix} …", kind.name);
                figures.add(replay, server, &through, &kind, clients).await;
            }
            let what = format!("{}, {clients} clients{suffix}", kind.name);
            rows.push(Row::new(format!("{what}: answers"), "/s", None, figures.rate, ""));
            rows.push(Row::new(format!("{what}: p99 of an answer"), "ms", None, figures.p99, ""));
            rows.push(Row::new(format!("{what}: refused"), "%", None, figures.refused, ""));
            rows.push(Row::new(format!("{what}: event p99"), "ms", None, figures.event_p99, "within 10 %"));
        }
    }
    watch.abort();
}

/// Returns the kinds of queries, with values that exist.
async fn kinds(server: &Server) -> Vec<Kind> {
    let rows = ask(server, &server.client(false), "select status.podIP limit 1000").await.expect("rows");
    let values = rows["rows"].as_array().unwrap().iter().filter_map(|row| row[0].as_str().map(str::to_owned));
    let kind = |name, text| Kind { name, text, values: Vec::new() };
    vec![
        Kind { name: "index", text: "index by-ip = {}", values: values.collect() },
        kind("label scan", "labels(app=web, tier=data, team=growth) count"),
        kind("body scan", "spec.containers[*].image contains \"none\" count"),
        kind("group by", "count by spec.nodeName"),
    ]
}

impl Figures {
    async fn add(&mut self, replay: &mut Remote, server: &Server, through: &Notified, kind: &Kind, clients: usize) {
        let is_over = Arc::new(AtomicBool::new(false));
        let (times, refused) = (Arc::<Mutex<Vec<Duration>>>::default(), Arc::<AtomicU64>::default());
        let began = Instant::now();
        let running = (0..clients).map(|client| {
            let (server, is_over) = (server.clone(), Arc::clone(&is_over));
            let (times, refused) = (Arc::clone(&times), Arc::clone(&refused));
            let (text, values) = (kind.text, kind.values.clone());
            tokio::spawn(async move {
                let http = server.client(false);
                let mut turn = client * 101;
                while !is_over.load(Relaxed) {
                    turn += 1;
                    let text = values
                        .get(turn % values.len().max(1))
                        .map_or(text.to_owned(), |value| text.replace("{}", &format!("{value:?}")));
                    let asked = Instant::now();
                    match ask(&server, &http, &text).await {
                        Some(_) => times.lock().push(asked.elapsed()),
                        None => drop(refused.fetch_add(1, Relaxed)),
                    }
                }
            })
        });
        let running: Vec<_> = running.collect();
        pace(replay, &[through]).await;
        self.event_p99.0.push(micros(quantile(&through.take_latencies(), 0.99)) / 1e3);
        is_over.store(true, Relaxed);
        futures::future::join_all(running).await;
        let seconds = began.elapsed().as_secs_f64();
        let mut times = std::mem::take(&mut *times.lock());
        times.sort_unstable();
        let refused = refused.load(Relaxed) as f64;
        self.rate.0.push(times.len() as f64 / seconds);
        self.p99.0.push(if times.is_empty() { 0.0 } else { micros(quantile(&times, 0.99)) / 1e3 });
        self.refused.0.push(100.0 * refused / (refused + times.len() as f64).max(1.0));
    }
}

/// Asks once; `None` if the hub refuses.
async fn ask(server: &Server, client: &reqwest::Client, text: &str) -> Option<Value> {
    let server = server.at_root("");
    let encoded = text.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
    let path = format!("/v1/query?resource=pods&timeout={TIMEOUT}&q={encoded}");
    let response = server.get(client, &path, "application/json").send().await.unwrap();
    let status = response.status().as_u16();
    let body = response.bytes().await.unwrap();
    assert!(matches!(status, 200 | 429 | 504), "{status}: {}", String::from_utf8_lossy(&body));
    (status == 200).then(|| serde_json::from_slice(&body).unwrap())
}
