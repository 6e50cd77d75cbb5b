//! Queries over HTTP at a million small objects: queries a second by kind and number of clients, and the latency of watch
//! events meanwhile; then the same queries of readers with rules.
//!
//! The cluster is a replay server, since an apiserver on this machine cannot hold a million objects.

use std::fmt::Write as _;
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

/// Readers with their rules. The first has none; the second sees all by a selector of cluster labels; the third sees two of
/// the five namespaces, each with as many pods.
const READERS: [(&str, &str); 3] = [
    ("no rules", ""),
    ("a rule for all", "{ clusters = { tier = \"bench\" } }"),
    ("a rule for two fifths", "{ clusters = { tier = \"bench\" }, namespaces = [\"shop\", \"team-*\"] }"),
];

/// Clients at the same time, of readers with rules. One client shows the cost of a query, several that of the queue.
const CLIENTS_OF_READERS: [usize; 2] = [1, 8];

/// Queries of a client in a round. All readers get the same ones in turn.
const QUERIES_OF_READERS: usize = 40;

/// A kind of query: its name and its text, in which `{}` is a value.
#[derive(Clone)]
struct Kind {
    name: &'static str,
    text: &'static str,
    values: Vec<String>,
}

impl Kind {
    /// Returns the text of a turn's query.
    fn text_of(&self, turn: usize) -> String {
        let value = self.values.get(turn % self.values.len().max(1));
        value.map_or_else(|| self.text.to_owned(), |value| self.text.replace("{}", &format!("{value:?}")))
    }
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
    drop(hub);
    let token = |at: usize| format!("reader-{at}-0123456789abcdef");
    let mut toml = toml.replace("compression = false\n", "compression = false\nlabels = { tier = \"bench\" }\n");
    for (at, (_, rule)) in READERS.iter().enumerate() {
        let key = if rule.is_empty() { "[hub.auth]\nread_token".to_owned() } else { format!("[readers.r{at}]\ntoken") };
        let allow = if rule.is_empty() { String::new() } else { format!("allow = [{rule}]\n") };
        let _ = writeln!(toml, "{key} = {{ file = \"token-{at}\" }}\n{allow}");
    }
    let files: Vec<_> = (0..READERS.len()).map(|at| (format!("token-{at}"), token(at))).collect();
    let hub = HubServer::start_with(&toml, false, &files).await;
    let servers: Vec<_> = files.into_iter().map(|(_, token)| hub.server().with_token(token)).collect();
    of_readers(&servers, rows).await;
}

/// Measures the same queries by each reader, in turn, so that a change of the machine's speed affects all alike.
async fn of_readers(servers: &[Server], rows: &mut Vec<Row>) {
    for (server, (reader, _)) in servers.iter().zip(READERS) {
        let answer = ask(server, &server.client(false), "count").await.expect("an answer");
        eprintln!("{reader}: {} objects", answer["count"]);
    }
    for kind in kinds(&servers[0]).await {
        for clients in CLIENTS_OF_READERS {
            let mut times: Vec<(Rounds, Rounds)> = servers.iter().map(|_| Default::default()).collect();
            for round in 0..number("BENCH_ROUNDS", 3) {
                eprintln!("{}, {clients} clients with rules, round {round} …", kind.name);
                for (at, server) in servers.iter().enumerate() {
                    let mut all = of_reader(server, &kind, clients).await;
                    all.sort_unstable();
                    times[at].0.0.push(micros(quantile(&all, 0.5)) / 1e3);
                    times[at].1.0.push(micros(quantile(&all, 0.99)) / 1e3);
                }
            }
            let without = times[0].0.clone();
            for ((median, p99), (reader, rule)) in times.into_iter().zip(READERS) {
                let what = format!("{}, {clients} clients, reader with {reader}", kind.name);
                let cost = Rounds(median.over(&without).0.iter().map(|ratio| 100.0 * (ratio - 1.0)).collect());
                rows.push(Row::new(format!("{what}: p50 of an answer"), "ms", None, median, ""));
                rows.push(Row::new(format!("{what}: p99 of an answer"), "ms", None, p99, ""));
                if !rule.is_empty() {
                    rows.push(Row::new(format!("{what}: p50 above that without rules"), "%", None, cost, "≤ 10 %"));
                }
            }
        }
    }
}

/// Returns the times of a round's queries.
async fn of_reader(server: &Server, kind: &Kind, clients: usize) -> Vec<Duration> {
    let running = (0..clients).map(|client| {
        let server = server.clone();
        let texts: Vec<_> = (0..QUERIES_OF_READERS).map(|turn| kind.text_of(client * 101 + turn)).collect();
        tokio::spawn(async move {
            let (http, mut times) = (server.client(false), Vec::new());
            for text in texts {
                let asked = Instant::now();
                if ask(&server, &http, &text).await.is_some() {
                    times.push(asked.elapsed());
                }
            }
            times
        })
    });
    let times = futures::future::join_all(running.collect::<Vec<_>>()).await;
    let times: Vec<_> = times.into_iter().flat_map(Result::unwrap).collect();
    assert!(!times.is_empty(), "the hub refused every query");
    times
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
            let kind = kind.clone();
            tokio::spawn(async move {
                let http = server.client(false);
                let mut turn = client * 101;
                while !is_over.load(Relaxed) {
                    turn += 1;
                    let text = kind.text_of(turn);
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
