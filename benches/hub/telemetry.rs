//! Cost of telemetry: the same flood through the real program with traces, metrics and scrapes, and without them.
//!
//! `informer-hub run` has one core, and server, receiver and collector have the other. Each pod changes once in a
//! burst, so that nothing merges. A burst ends when the receiver has acknowledged all of its events. Runs with and
//! without telemetry alternate, so that other load on the machine affects both. Ratios are computed for each round, and
//! shown as median, minimum and maximum.
//!
//! With telemetry, traces and metrics go over OTLP to a collector that answers at once. Metrics are exported, and the
//! port is scraped, each second. `BENCH_PODS` (20,000) is the size of a burst, `BENCH_BURSTS` (4), `BENCH_ROUNDS` (5).

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use comfy_table::presets::ASCII_MARKDOWN;
use informer_hub_sim::replay::Shape;

use crate::common::figures::Rounds;
use crate::common::hub::TIMEOUT;
use crate::common::process;
use crate::common::receiver::Receiver;
use crate::common::server::{Remote, RemoteConfig};
use crate::common::table::figures;
use crate::common::{number, runtime};
use crate::isolation_sinks::received;

const PROGRAM: &str = env!("CARGO_BIN_EXE_informer-hub");
/// Cores of the program and of all other processes.
const CORES: [&str; 2] = ["0", "1"];

/// Figures of one run.
struct Run {
    /// Events per second, from the first send to the last acknowledgement.
    rate: f64,
    /// CPU of the program per event, in microseconds.
    cpu: f64,
}

/// OTLP collector that counts requests and bytes.
#[derive(Clone, Default)]
struct Collector {
    requests: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

/// Runs all rounds and prints a table.
pub(crate) fn run() {
    println!("load: {}", process::load());
    // The HTTP client of the scraper needs a TLS provider, although it uses plain HTTP.
    let _ = rustls::crypto::ring::default_provider().install_default();
    runtime().block_on(compare());
    println!("load: {}", process::load());
}

async fn compare() {
    let collector = Collector::default();
    let url = collector.listen().await;
    let mut figures_of: [[Rounds; 2]; 2] = Default::default();
    for round in 0..number("BENCH_ROUNDS", 5) {
        for (with, [rates, cpus]) in figures_of.iter_mut().enumerate() {
            let run = flooded((with == 1).then_some(url.as_str())).await;
            eprintln!("round {round}, with telemetry: {}: {:.0}/s, {:.1} µs", with == 1, run.rate, run.cpu);
            rates.0.push(run.rate);
            cpus.0.push(run.cpu);
        }
    }
    let mut table = figures(ASCII_MARKDOWN, ["telemetry", "events/s", "CPU per event, µs"]);
    for (name, [rates, cpus]) in ["without", "with"].into_iter().zip(&figures_of) {
        table.add_row([name.into(), rates.text(0), cpus.text(2)]);
    }
    let [without, with] = &figures_of;
    table.add_row(["ratio".into(), with[0].over(&without[0]).text(3), with[1].over(&without[1]).text(3)]);
    println!("{table}");
    println!("collector: {} requests, {} bytes", collector.requests.load(Relaxed), collector.bytes.load(Relaxed));
}

async fn flooded(collector: Option<&str>) -> Run {
    let (pods, bursts) = (number("BENCH_PODS", 20_000), number("BENCH_BURSTS", 4));
    let config = RemoteConfig { pods, shape: Shape::SmallPods, cores: Some(CORES[1].to_owned()), ..Default::default() };
    let mut server = Remote::start(&config);
    let mut receiver = Receiver::start(Some(CORES[1]));
    let directory = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let file = directory.path().join("hub.toml");
    let text = format!(
        "[hub]\nlisten = \"127.0.0.1:{port}\"\nstate_dir = \"state\"\n[clusters.c0]\nserver = \"{}\"\ncompression = false\n\
         [resources.pods]\n[sinks.hook]\ntype = \"webhook\"\nurl = \"{}\"\ninclude_old = false\n\
         batch = {{ max_wait = \"0s\" }}\n",
        server.url, receiver.url
    );
    std::fs::File::create(&file).unwrap().write_all(text.as_bytes()).unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", CORES[0], PROGRAM, "run", "-c"]).arg(&file).env("RUST_LOG", "warn");
    if let Some(collector) = collector {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector).env("OTEL_METRIC_EXPORT_INTERVAL", "1000");
    }
    let program = Program(command.spawn().unwrap());
    let url = format!("http://127.0.0.1:{port}");
    ready(&url).await;
    let scraping = collector.map(|_| tokio::spawn(scrape(format!("{url}/metrics"))));
    // Warm-up: background work of the first list, and one-time work for the first events.
    let mut sent = 0;
    let mut burst = async |server: &mut Remote| {
        sent += pods;
        server.flood(pods);
        received(&mut receiver, sent).await;
    };
    burst(&mut server).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (cpu, began) = (process::cpu_of(program.0.id()), Instant::now());
    for _ in 0..bursts {
        burst(&mut server).await;
    }
    let (cpu, wall) = (process::cpu_of(program.0.id()).checked_sub(cpu).unwrap(), began.elapsed());
    scraping.inspect(tokio::task::JoinHandle::abort);
    let events = (bursts * pods) as f64;
    Run { rate: events / wall.as_secs_f64(), cpu: cpu.as_secs_f64() * 1e6 / events }
}

async fn ready(url: &str) {
    let (client, began) = (reqwest::Client::new(), Instant::now());
    while !client.get(format!("{url}/readyz")).send().await.is_ok_and(|answer| answer.status().is_success()) {
        assert!(began.elapsed() < TIMEOUT, "the program is not ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn scrape(url: String) {
    let client = reqwest::Client::new();
    loop {
        client.get(&url).send().await.unwrap().text().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Process of `informer-hub run`, killed on drop.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Collector {
    /// Starts the collector and returns its URL.
    async fn listen(&self) -> String {
        let take = |State(seen): State<Self>, body: Bytes| async move {
            seen.requests.fetch_add(1, Relaxed);
            seen.bytes.fetch_add(body.len() as u64, Relaxed);
        };
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(take).with_state(self.clone());
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        url
    }
}
