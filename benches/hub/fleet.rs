//! Cost of the same objects and events in 1, 10 and 100 clusters, and cost of an idle informer. Each runs in its own
//! process.
//!
//! `BENCH_PODS` (60,000) and `BENCH_EVENTS` (50,000) count for all clusters together.

use std::process::Command;
use std::time::{Duration, Instant};

use comfy_table::presets::ASCII_MARKDOWN;
use serde_json::{Value, json};

use crate::common::hub::{end, idle_hub, watch_pods};
use crate::common::memory::settle;
use crate::common::server::{Remote, RemoteConfig};
use crate::common::table::figures;
use crate::common::{heap, number, process, runtime};

/// Number of clusters in the idle run, each with one informer of one object.
const IDLE: u64 = 500;

/// Runs the bench with each number of clusters and prints a table.
pub(crate) fn run() {
    let mut table = figures(
        ASCII_MARKDOWN,
        [
            "clusters",
            "sync CPU per object, µs",
            "flood CPU per update, µs",
            "updates a second",
            "allocated per object, B",
            "RSS per object, B",
        ],
    );
    for clusters in ["1", "10", "100"] {
        let row = child(&["fleet-of", clusters]);
        let cell = |name: &str, digits: usize| format!("{:.digits$}", row[name].as_f64().unwrap());
        let (sync, flood) = (cell("sync", 1), cell("flood", 1));
        table.add_row([clusters.into(), sync, flood, cell("rate", 0), cell("allocated", 0), cell("rss", 0)]);
    }
    println!("{table}");
    println!("{IDLE} informers of one object each: {}", child(&["fleet-idle"]));
}

fn child(args: &[&str]) -> Value {
    let output = Command::new(std::env::current_exe().unwrap()).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs the bench with this number of clusters and prints the figures.
pub(crate) fn run_one(clusters: &str) {
    let clusters = clusters.parse().unwrap();
    println!("{}", runtime().block_on(measure(clusters)));
}

async fn measure(clusters: u64) -> Value {
    let (pods, events) = (number("BENCH_PODS", 60_000), number("BENCH_EVENTS", 50_000));
    let mut server = Remote::start(&RemoteConfig { pods, ..RemoteConfig::default() });
    let hub = idle_hub(&server.shards(clusters), None).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (rss, heap, cpu) = (process::rss(), heap::now().allocated, process::cpu());
    let (_listener, notified) = watch_pods(&hub, &[]).await;
    notified.wait_for_count(pods).await;
    let sync = process::cpu().checked_sub(cpu).unwrap();
    settle().await;
    let (settled, allocated) = (process::rss().saturating_sub(rss), heap::now().allocated.saturating_sub(heap));
    // Number of events in each cluster.
    let each = events / clusters;
    notified.expect(server.last_version() + each);
    let (cpu, began) = (process::cpu(), Instant::now());
    server.flood(each);
    notified.wait_for_clusters(clusters).await;
    let (flood, wall) = (process::cpu().checked_sub(cpu).unwrap(), began.elapsed());
    let updates = (each * clusters) as f64;
    end(hub).await;
    json!({
        "sync": sync.as_secs_f64() * 1e6 / pods as f64,
        "flood": flood.as_secs_f64() * 1e6 / updates,
        "rate": updates / wall.as_secs_f64(),
        "allocated": allocated as f64 / pods as f64,
        "rss": settled as f64 / pods as f64,
    })
}

/// Runs the idle informers and prints the cost of one.
pub(crate) fn run_idle() {
    let figures = runtime().block_on(async {
        let server = Remote::start(&RemoteConfig { pods: IDLE, ..RemoteConfig::default() });
        let hub = idle_hub(&server.shards(IDLE), None).await;
        // Let the clients of the clusters connect first, since their cost is not part of that of informers.
        settle().await;
        let (rss, heap) = (process::rss(), heap::now().allocated);
        let (_listener, notified) = watch_pods(&hub, &[]).await;
        notified.wait_for_count(IDLE).await;
        settle().await;
        let (rss, heap) = (process::rss().saturating_sub(rss), heap::now().allocated.saturating_sub(heap));
        let cpu = process::cpu();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let cpu = process::cpu().checked_sub(cpu).unwrap();
        end(hub).await;
        json!({
            "allocatedPerInformer": heap / IDLE,
            "rssPerInformer": rss / IDLE,
            "cpuMillisPerInformerAndHour": cpu.as_secs_f64() * 1e3 * 360.0 / IDLE as f64,
        })
    });
    println!("{figures}");
}
