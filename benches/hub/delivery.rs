//! What it costs to deliver by way of a journal.
//!
//! *Sustained*: the hub's process has one core and all others the rest (`taskset`), the server floods, each pod changes
//! once in a burst so that nothing merges, and the events of all bursts are acknowledged by who answers at once.
//! *Latency*: from an event's being sent until the receiver, a process of its own, has acknowledged it. *State*: what the
//! state directory does to the flood and the memory of a hub without sinks.
//!
//! `BENCH_PODS` (20,000) is also the size of a burst, `BENCH_BURSTS` (6), `BENCH_RATE` (1,000), `BENCH_SECONDS` (10).

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use comfy_table::presets::ASCII_MARKDOWN;
use informer_hub_sim::replay::Shape;
use serde_json::{Value, json};

use crate::common::hub::until;
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
/// What a hub does with the events of a flood, from nothing to all.
const WAYS: [&str; 4] = ["subscriber", "state", "journal", "webhook"];

/// Runs all of them, or one part, and prints tables.
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

/// Runs one way and prints its figures.
pub(crate) fn run_one(way: &str, shape: &str, fsync: &str) {
    println!("{}", runtime().block_on(flooded(way, Shape::named(shape).unwrap(), fsync)));
}

async fn flooded(way: &str, shape: Shape, fsync: &str) -> Value {
    // The server's and the receiver's cores are not the hub's.
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
    let (_listener, told) = listen(&hub, &["c0"]).await;
    told.reaches(pods).await;
    // Longer than the first list's objects wait to be compressed.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (cpu, began) = (process::cpu(), Instant::now());
    for burst in 1..=bursts {
        told.expect(server.last_version() + pods);
        server.flood(pods);
        told.finishes(1).await;
        match way {
            "journal" => until("all is acknowledged", || counted.events.load(Relaxed) >= burst * pods).await,
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
    hub.wait_for_cache_sync(crate::common::hub::PATIENCE).await.unwrap();
    // What the first list has left to do, and what the first events make for the first time.
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
    // A hub that does nothing yet: the cluster comes with the configuration, so this is as late as it can be.
    let rss = process::rss();
    let cpu = process::cpu();
    let hub = text.cluster("c0", &server.url).start(None).await;
    let (_listener, told) = listen(&hub, &["c0"]).await;
    told.reaches(pods).await;
    let sync = process::cpu().checked_sub(cpu).unwrap();
    settle().await;
    let (settled, peak) = (process::rss() - rss, process::peak_rss() - rss);
    told.expect(server.last_version() + pods * bursts);
    let (cpu, began) = (process::cpu(), Instant::now());
    server.flood(pods * bursts);
    told.finishes(1).await;
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
