//! Latency of events through the log of a fleet, compared with a hub that watches the cluster itself, and number of
//! requests that the cluster gets with one and with ten serving replicas.
//!
//! `make bench-fleet` builds the NATS server, whose path is in `BENCH_NATS`. The cluster is a process of its own.
//! Collector and replicas are hubs in this process, each with its own threads and one subscriber. The latency is from
//! the cluster's send to the subscriber of the first replica. `BENCH_PODS` (2,000), `BENCH_EVENTS` (10,000),
//! `BENCH_RATE` (1,000 a second), `BENCH_ROUNDS` (5).

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use comfy_table::presets::ASCII_MARKDOWN;
use informer_hub::app::Hub;
use informer_hub_config::{FleetConfig, FleetRole};

use crate::common::figures::Rounds;
use crate::common::hub::{TIMEOUT, end, hub_of_fleet, quantile, watch_pods};
use crate::common::server::{Remote, RemoteConfig};
use crate::common::table::figures;
use crate::common::{number, process, runtime};

/// Server of NATS with JetStream. Dropping it kills it.
struct Nats {
    child: Child,
    url: String,
    _store: tempfile::TempDir,
}

impl Nats {
    fn start() -> Self {
        let binary =
            std::env::var("BENCH_NATS").expect("BENCH_NATS is the path of a nats-server; run make bench-fleet");
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let store = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary);
        command.args(["--addr", "127.0.0.1", "--port", &address.port().to_string(), "--jetstream"]);
        command.arg("--store_dir").arg(store.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < TIMEOUT, "the server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, url: format!("nats://{address}"), _store: store }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Figures of one run.
struct Run {
    p50: f64,
    p99: f64,
    requests: u64,
    /// Number of events that were merged with later ones.
    merged: u64,
}

/// Runs all rounds and prints a table.
pub(crate) fn run() {
    println!("load: {}", process::load());
    let mut rounds: [(&str, usize, [Rounds; 3]); 3] = [
        ("hub that watches the cluster", 0, Default::default()),
        ("1 serving replica", 1, Default::default()),
        ("10 serving replicas", 10, Default::default()),
    ];
    for round in 0..number("BENCH_ROUNDS", 5) {
        for (name, replicas, [p50, p99, requests]) in &mut rounds {
            let run = runtime().block_on(paced(*replicas));
            eprintln!(
                "round {round}, {name}: p50 {:.2} ms, p99 {:.2} ms, {} requests, {} events merged",
                run.p50, run.p99, run.requests, run.merged
            );
            p50.0.push(run.p50);
            p99.0.push(run.p99);
            requests.0.push(run.requests as f64);
        }
    }
    let mut table = figures(ASCII_MARKDOWN, ["subscriber of", "p50, ms", "p99, ms", "lists and watches"]);
    for (name, _, [p50, p99, requests]) in &rounds {
        table.add_row([(*name).to_owned(), p50.text(2), p99.text(2), requests.text(0)]);
    }
    println!("{table}");
    println!("load: {}", process::load());
}

/// Measures the latency at the subscriber of the first replica. Without replicas, one hub watches the cluster itself,
/// and the subscriber is that hub's.
async fn paced(replicas: usize) -> Run {
    let (pods, events) = (number("BENCH_PODS", 2000), number("BENCH_EVENTS", 10_000));
    let nats = Nats::start();
    let mut server = Remote::start(&RemoteConfig { pods, ..RemoteConfig::default() });
    let urls = [server.url.clone()];
    let in_role = |role| {
        let mut fleet = FleetConfig::new("bench", vec![nats.url.clone()], vec![role]);
        fleet.window_bytes = Some(1 << 30);
        fleet
    };
    let mut hubs: Vec<Hub> = Vec::new();
    if replicas == 0 {
        hubs.push(hub_of_fleet(&urls, None).await);
    }
    for _ in 0..replicas {
        hubs.push(hub_of_fleet(&urls, Some(in_role(FleetRole::Serve))).await);
    }
    if replicas > 0 {
        hubs.push(hub_of_fleet(&urls, Some(in_role(FleetRole::Collect))).await);
    }
    let mut watching = Vec::new();
    for hub in &hubs {
        watching.push(watch_pods(hub, &[]).await);
    }
    for (_, notified) in &watching {
        notified.wait_for_count(pods).await;
    }
    // Let the background work of the first list end.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let notified = &watching[0].1;
    notified.timed.store(true, Relaxed);
    let last = server.pace(number("BENCH_RATE", 1000) as u32, events);
    for (_, notified) in &watching {
        notified.wait_for_version(last).await;
    }
    let latencies = notified.take_latencies();
    // Updates of one object that wait for a busy subscriber merge.
    let merged = events - (latencies.len() as u64).min(events);
    let millis = |part| quantile(&latencies, part).as_secs_f64() * 1e3;
    let run = Run { p50: millis(0.5), p99: millis(0.99), requests: server.requests(), merged };
    drop(watching);
    for hub in hubs {
        end(hub).await;
    }
    run
}
