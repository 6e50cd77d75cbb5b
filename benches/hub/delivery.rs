//! Cost of deliveries with a journal.
//!
//! - *Sustained*: the hub has one core, and the other processes have those of `BENCH_OTHER_CORES` (1), in the format of
//!   `taskset`. The server floods, and each pod changes once in a burst so that nothing merges. The receiver
//!   acknowledges at once.
//! - *Latency*: time from the server's send to the acknowledgement by a receiver in its own process.
//! - *State*: cost of the state directory for the flood and the memory of a hub without sinks.
//!
//! Variables: `BENCH_PODS` (20,000, also the size of a burst; 5,000 for *latency*), `BENCH_BURSTS` (6), `BENCH_RATE`
//! (1,000 events a second), `BENCH_SECONDS` (10).

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use comfy_table::presets::ASCII_MARKDOWN;
use informer_hub_sim::replay::Shape;
use serde_json::{Value, json};

use crate::common::hub::wait_until;
use crate::common::loaded::{Counted, Text, finish, listen};
use crate::common::memory::settle;
use crate::common::process::{self, pinned};
use crate::common::receiver::Receiver;
use crate::common::server::{Remote, RemoteConfig};
use crate::common::table::figures;
use crate::common::{number, runtime};
use crate::isolation_sinks::received;

const FSYNCS: [&str; 4] = ["0s", "10ms", "100ms", "never"];
const SHAPES: [(&str, Shape); 2] = [("1 KB", Shape::SmallPods), ("6.3 KB", Shape::Pods)];
/// Destinations of the events of a flood, by increasing cost.
const WAYS: [&str; 4] = ["subscriber", "state", "journal", "webhook"];

/// Runs all parts, or one, and prints tables.
pub(crate) fn run(part: &str) {
    println!("load: {}", process::load());
    if ["", "sustained"].contains(&part) {
        sustained();
    }
    if ["", "latency"].contains(&part) {
        latency();
    }
    if ["", "state"].contains(&part) {
        state();
    }
    println!("load: {}", process::load());
}

fn child(args: &[&str], core: Option<&str>) -> Value {
    let output = pinned(core).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let row = serde_json::from_slice(&output.stdout).unwrap();
    eprintln!("{args:?}: {row}");
    row
}

fn cell(row: &Value, name: &str, digits: usize) -> String {
    row[name].as_f64().map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

// === sustained ===

fn sustained() {
    let header =
        ["event", "way", "fsync", "bytes", "events/s on one core", "CPU per event, µs", "events per CPU second"];
    let mut table = figures(ASCII_MARKDOWN, header);
    for (size, shape) in SHAPES {
        for way in WAYS {
            let all = way == "journal";
            for fsync in FSYNCS.iter().filter(|fsync| all || **fsync == "10ms") {
                let row = child(&["delivery-of", way, &format!("{shape:?}"), fsync], Some("0"));
                let fsync = if ["subscriber", "state"].contains(&way) { "–" } else { fsync };
                let each = cell(&row, "cpu", 1);
                let (bytes, rate) = (cell(&row, "bytes", 0), cell(&row, "rate", 0));
                let per_cpu = format!("{:.0}", 1e6 / row["cpu"].as_f64().unwrap());
                table.add_row([size.into(), way.into(), fsync.into(), bytes, rate, each, per_cpu]);
            }
        }
    }
    println!("{table}");
}

/// Runs one destination and prints its figures.
pub(crate) fn run_one(way: &str, shape: &str, fsync: &str) {
    println!("{}", runtime().block_on(flooded(way, Shape::named(shape).unwrap(), fsync)));
}

async fn flooded(way: &str, shape: Shape, fsync: &str) -> Value {
    // Server and receiver run on other cores than the hub.
    let others = std::env::var("BENCH_OTHER_CORES").unwrap_or_else(|_| "1".to_owned());
    let (pods, bursts) = (number("BENCH_PODS", 20_000), number("BENCH_BURSTS", 6));
    let config = RemoteConfig { pods, shape, cores: Some(others.clone()), ..RemoteConfig::default() };
    let mut server = Remote::start(&config);
    let mut receiver = Receiver::start(Some(&others));
    let directory = tempfile::tempdir().unwrap();
    let mut text = Text::pods().cluster("c0", &server.url);
    if way != "subscriber" {
        text = text.state(directory.path(), fsync);
    }
    if way == "webhook" {
        text = text.webhook("hook", &receiver.url, "batch = { max_wait = \"0s\" }");
    }
    let counted = Counted::default();
    let hub = text.start((way == "journal").then_some(&counted)).await;
    let (_listener, notified) = listen(&hub, &["c0"]).await;
    notified.wait_for_count(pods).await;
    // Wait until the objects of the first list are compressed.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (cpu, began) = (process::cpu(), Instant::now());
    for burst in 1..=bursts {
        notified.expect(server.last_version() + pods);
        server.flood(pods);
        notified.wait_for_clusters(1).await;
        match way {
            "journal" => wait_until("the acknowledgements", || counted.events.load(Relaxed) >= burst * pods).await,
            "webhook" => received(&mut receiver, burst * pods).await,
            _ => {}
        }
    }
    let (cpu, wall) = (process::cpu().checked_sub(cpu).unwrap(), began.elapsed());
    finish(hub).await;
    let events = (bursts * pods) as f64;
    let bytes = counted.bytes.load(Relaxed) as f64 / events;
    json!({
        "rate": events / wall.as_secs_f64(),
        "cpu": cpu.as_secs_f64() * 1e6 / events,
        "bytes": if bytes > 0.0 { json!(bytes) } else { Value::Null },
    })
}

// === latency ===

fn latency() {
    let header = ["fsync", "batch.max_wait", "p50, ms", "p99, ms", "longest, ms", "events a request", "of a core"];
    let mut table = figures(ASCII_MARKDOWN, header);
    for wait in ["250ms", "1ms", "0s"] {
        for fsync in FSYNCS {
            let row = child(&["delivery-latency", fsync, wait], None);
            let each = |name, digits| cell(&row, name, digits);
            let (most, batch, cpu) = (each("most", 1), each("batch", 1), each("cpu", 2));
            table.add_row([fsync.into(), wait.into(), each("p50", 2), each("p99", 2), most, batch, cpu]);
        }
    }
    println!("{table}");
}

/// Runs one setting and prints its figures.
pub(crate) fn run_latency(fsync: &str, wait: &str) {
    println!("{}", runtime().block_on(delivered(fsync, wait)));
}

async fn delivered(fsync: &str, wait: &str) -> Value {
    let (rate, seconds) = (number("BENCH_RATE", 1000), number("BENCH_SECONDS", 10));
    let pods = number("BENCH_PODS", 5000);
    let mut server = Remote::start(&RemoteConfig { pods, ..RemoteConfig::default() });
    let mut receiver = Receiver::start(None);
    let directory = tempfile::tempdir().unwrap();
    let batch = format!("batch = {{ max_wait = \"{wait}\" }}");
    let text = Text::pods().cluster("c0", &server.url).state(directory.path(), fsync);
    let hub = text.webhook("hook", &receiver.url, &batch).start(None).await;
    hub.wait_for_cache_sync(crate::common::hub::TIMEOUT).await.unwrap();
    // Warm-up: background work of the first list, and one-time work for the first events.
    server.pace(rate as u32, rate);
    received(&mut receiver, rate).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    receiver.take();
    let (cpu, began) = (process::cpu(), Instant::now());
    server.pace(rate as u32, rate * seconds);
    received(&mut receiver, rate * (seconds + 1)).await;
    let (cpu, wall) = (process::cpu().checked_sub(cpu).unwrap(), began.elapsed());
    let got = receiver.take();
    finish(hub).await;
    json!({
        "p50": got.p50 / 1e3, "p99": got.p99 / 1e3, "most": got.most / 1e3,
        "batch": got.events as f64 / got.requests as f64, "cpu": cpu.as_secs_f64() / wall.as_secs_f64(),
    })
}

// === state ===

fn state() {
    let header = ["hub", "sync CPU per pod, µs", "updates a second", "CPU per update, µs", "RSS per pod, B", "peak, B"];
    let mut table = figures(ASCII_MARKDOWN, header);
    for which in ["without", "with"] {
        let row = child(&["delivery-state", which], None);
        let each = |name, digits| cell(&row, name, digits);
        let (sync, rate, cpu) = (each("sync", 1), each("rate", 0), each("cpu", 1));
        table.add_row([format!("{which} state_dir"), sync, rate, cpu, each("rss", 0), each("peak", 0)]);
    }
    println!("{table}");
}

/// Runs a hub with or without a state directory, and prints its figures.
pub(crate) fn run_state(which: &str) {
    println!("{}", runtime().block_on(kept(which == "with")));
}

async fn kept(with: bool) -> Value {
    let (pods, bursts) = (number("BENCH_PODS", 20_000), number("BENCH_BURSTS", 6));
    let mut server = Remote::start(&RemoteConfig { pods, ..RemoteConfig::default() });
    let directory = tempfile::tempdir().unwrap();
    let text = Text::pods();
    let text = if with { text.state(directory.path(), "10ms") } else { text };
    // Measured before the start: the cluster is part of the configuration, so the hub lists as soon as it starts.
    let rss = process::rss();
    let cpu = process::cpu();
    let hub = text.cluster("c0", &server.url).start(None).await;
    let (_listener, notified) = listen(&hub, &["c0"]).await;
    notified.wait_for_count(pods).await;
    let sync = process::cpu().checked_sub(cpu).unwrap();
    settle().await;
    let (settled, peak) = (process::rss() - rss, process::peak_rss() - rss);
    notified.expect(server.last_version() + pods * bursts);
    let (cpu, began) = (process::cpu(), Instant::now());
    server.flood(pods * bursts);
    notified.wait_for_clusters(1).await;
    let (cpu, wall) = (process::cpu().checked_sub(cpu).unwrap(), began.elapsed());
    finish(hub).await;
    let events = (pods * bursts) as f64;
    json!({
        "sync": sync.as_secs_f64() * 1e6 / pods as f64,
        "rate": events / wall.as_secs_f64(),
        "cpu": cpu.as_secs_f64() * 1e6 / events,
        "rss": settled as f64 / pods as f64,
        "peak": peak as f64 / pods as f64,
    })
}
