//! Memory gate: limits on the memory per object and per idle informer, on peaks, and on what churn leaves behind.
//!
//! Each measurement runs as a separate process without a test harness, because it measures the whole process.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::cast_precision_loss)]

use std::process::Command;

use common::memory::{Footprint, Level, Run, measure, measure_on, settle};
use common::{number, process, runtime};
use informer_hub_sim::replay::Shape;
use k8s_openapi::api::core::v1::Pod;

#[path = "memory/churn.rs"]
mod churn;
#[path = "../benches/common/mod.rs"]
mod common;
#[path = "memory/idle.rs"]
mod idle;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Number of pods. With fewer, the fixed costs and the uncompressed recent objects would dominate.
const PODS: u64 = 50_000;

/// Number of pods of a small cluster.
const FEW_PODS: u64 = 5_000;

/// Number of small objects.
const SMALL: u64 = 20_000;

/// Name and limit of a figure.
///
/// Allocated bytes do not depend on the machine, except by the objects with which compression dictionaries are trained.
/// Resident memory varies by a few percent with the pages that the allocator has not returned. Peaks depend on how far
/// compression lags behind a list, and therefore on the load of the machine.
type Limit = (&'static str, f64);

/// Number of measurements that run alone, the first ones of [`GATES`]: peaks depend on the load of the machine.
const ALONE: usize = 2;

/// Measurements, with their figures and the limits of these.
const GATES: [(&str, &[Limit]); 6] = [
    (
        "pods",
        &[
            ("allocated per pod", ALLOCATED),
            ("resident per pod, anonymous", ANONYMOUS),
            ("resident per pod, all in", RESIDENT),
            ("peak of the first list, times what stays", PEAK_OF_FIRST),
            ("allocated per pod, each changed once", ALLOCATED),
            ("peak of a relist, times what stays", PEAK),
            ("allocated per pod after it", ALLOCATED),
            ("peak of a relist with a tenth changed, times what stays", PEAK),
            ("allocated per pod after it", ALLOCATED),
            ("peak of a relist with all changed, times what stays", PEAK_OF_ALL),
            ("allocated per pod after it", ALLOCATED),
        ],
    ),
    ("few", &[("peak of the first list, times what stays", PEAK_OF_FEW)]),
    ("events", &[("allocated above the body, per object", 300.0)]),
    ("settings", &[("allocated above the body, per object", 300.0)]),
    (
        "churn",
        &[("allocated after the churn, times before", 1.02), ("allocated when all are gone, of what it was", GONE)],
    ),
    ("idle", &[("allocated per idle informer, KiB", 20.0), ("resident per idle informer, anonymous, KiB", 36.0)]),
];

/// Bytes per pod. Measured: 800 to 900, depending on whether a second dictionary is trained during the list.
const ALLOCATED: f64 = 970.0;

/// Bytes per pod. Measured: 918 to 989.
const ANONYMOUS: f64 = 1_060.0;

/// Measured in a debug build: 1,008 to 1,081, of which 90 are pages of the program's file. How many of these are
/// resident depends on the kernel, so the limit leaves room for three times as many.
const RESIDENT: f64 = 1_340.0;

/// Measured in a debug build: 1.11 to 1.13.
const PEAK_OF_FIRST: f64 = 1.3;

/// Measured in a debug build: 1.17 to 1.25, of which 0.1 are new objects in the store and on their way to it.
const PEAK_OF_FEW: f64 = 1.5;

/// Measured: 1.08 if nothing changed, 1.33 for a tenth.
const PEAK: f64 = 1.8;

/// Limit for a list in which every pod changed, staged next to the readable state. Measured: 1.97 on a busy machine.
const PEAK_OF_ALL: f64 = 2.4;

/// Measured: 0.046. The remaining memory does not depend on the number of objects: dictionary, compressors, table
/// capacity. A leak of one in five hundred removed objects would exceed the limit.
const GONE: f64 = 0.055;

fn main() {
    common::server::serve_if_asked();
    idle::serve_if_asked();
    if let Some(what) = std::env::args().find_map(|arg| arg.strip_prefix("--measure=").map(str::to_owned)) {
        return figures(&what).iter().for_each(|figure| println!("{figure}"));
    }
    // Those that run together mostly wait.
    let (alone, together) = GATES.split_at(ALONE);
    let mut over: Vec<_> = alone.iter().flat_map(exceeded).collect();
    std::thread::scope(|scope| {
        let running: Vec<_> = together.iter().map(|gate| scope.spawn(|| exceeded(gate))).collect();
        over.extend(running.into_iter().flat_map(|measured| measured.join().unwrap()));
    });
    assert!(over.is_empty(), "the hub uses more memory than its limits allow:\n{}", over.join("\n"));
}

/// Returns the figures of a measurement that are above their limits. Resident memory and peaks vary with the load of the
/// machine, so such a measurement is repeated, and the second result counts.
fn exceeded((what, limits): &(&str, &[Limit])) -> Vec<String> {
    if measured(what, limits).is_empty() { Vec::new() } else { measured(what, limits) }
}

/// Measures figures in a process of their own, prints them, and returns those above their limits.
fn measured(what: &str, limits: &[Limit]) -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap()).arg(format!("--measure={what}")).output().unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(figures.len(), limits.len(), "{what}");
    let mut over = Vec::new();
    for (is, (name, limit)) in figures.iter().zip(limits) {
        let verdict = if is > limit { "over" } else { "within" };
        let line = format!("{what}: {name}: {is:.2}, {verdict} its limit of {limit:.2}");
        println!("{line}");
        over.extend((is > limit).then_some(line));
    }
    over
}

fn figures(what: &str) -> Vec<f64> {
    match what {
        "pods" => pods(number("BENCH_PODS", PODS)),
        "few" => vec![runtime().block_on(measure(FEW_PODS, Shape::Pods, async |_| ())).0.peak_ratio()],
        "events" => small(Shape::Events),
        "settings" => small(Shape::Settings),
        "idle" => idle::figures(),
        "churn" => churn::figures(number("BENCH_CHURN", 60_000)),
        other => panic!("unknown measurement {other}"),
    }
}

fn pods(pods: u64) -> Vec<f64> {
    let (first, (changed, relists)) = runtime().block_on(measure_on(pods, Shape::Pods, async |run| {
        let changed = change_each(run, pods).await;
        let mut relists = Vec::new();
        for changed in [1, pods / 10, pods] {
            relists.push(relist(run, changed).await);
        }
        (changed, relists)
    }));
    let at = |level: Level| Footprint { heap: (first.heap.0, level.heap), ..first }.allocated();
    let mut figures = vec![first.allocated(), first.anonymous(), first.resident(), first.peak_ratio(), at(changed)];
    for (relisted, peak) in relists {
        let settled = relisted.rss - first.rss.0;
        figures.extend([(peak - first.rss.0) as f64 / settled as f64, at(relisted)]);
    }
    figures
}

/// Updates each pod once and returns the settled memory.
async fn change_each(run: &mut Run, pods: u64) -> Level {
    let last = run.server.flood(pods);
    run.notified.wait_for_version(last).await;
    settle().await;
    Level::now()
}

/// Expires the watch, which causes a relist, and sends `changed` updates. Returns the settled memory and the peak.
async fn relist(run: &mut Run, changed: u64) -> (Level, u64) {
    process::forget_peak();
    run.server.expire();
    let last = run.server.flood(changed);
    run.notified.wait_for_version(last).await;
    settle().await;
    (Level::now(), process::peak_rss())
}

fn small(shape: Shape) -> Vec<f64> {
    let (footprint, bodies) = runtime().block_on(measure(SMALL, shape, async |hub| {
        let snapshot = hub.cache::<Pod>().snapshot().await.unwrap();
        snapshot.partitions().map(|(_, partition)| partition.body_bytes()).sum::<u64>()
    }));
    vec![footprint.allocated() - bodies as f64 / SMALL as f64]
}
