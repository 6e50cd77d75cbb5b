//! Memory of objects of other shapes: incompressible, large, small, with many labels or index values. Each runs in its
//! own process.

use std::process::Command;

use comfy_table::presets::ASCII_MARKDOWN;
use informer_hub_sim::replay::Shape;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::common::memory::measure;
use crate::common::table::figures;
use crate::common::{number, runtime};

/// Runs all shapes and prints a table.
pub(crate) fn run() {
    let mut table = figures(
        ASCII_MARKDOWN,
        [
            "shape",
            "objects",
            "JSON, B",
            "body as kept, B",
            "allocated, B",
            "above the body, B",
            "RSS, B",
            "peak × settled",
            "sync CPU, µs",
        ],
    );
    for shape in Shape::ALL {
        let output = Command::new(std::env::current_exe().unwrap()).args(["shape", &format!("{shape:?}")]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{shape:?}: {}", String::from_utf8_lossy(&output.stderr));
        let row: Value = serde_json::from_slice(&output.stdout).unwrap();
        let cell = |name: &str, digits: usize| format!("{:.digits$}", row[name].as_f64().unwrap());
        table.add_row([
            format!("{shape:?}"),
            cell("objects", 0),
            cell("json", 0),
            cell("body", 0),
            cell("allocated", 0),
            cell("above", 0),
            cell("rss", 0),
            cell("peak", 2),
            cell("cpu", 1),
        ]);
    }
    println!("{table}");
}

/// Runs one shape and prints its figures.
pub(crate) fn run_one(shape: &str) {
    let shape = Shape::named(shape).unwrap();
    let objects = if shape == Shape::Large { 200 } else { number("BENCH_PODS", 20_000) };
    let (footprint, (json, body)) = runtime().block_on(measure(objects, shape, async |hub| {
        let snapshot = hub.cache::<Pod>().snapshot().await.unwrap();
        let (mut json, mut body) = (0, 0);
        for object in snapshot.partitions().flat_map(|(_, partition)| partition.iter()) {
            json += object.json().unwrap().len();
            body += object.body_size();
        }
        (json as f64 / objects as f64, body as f64 / objects as f64)
    }));
    let allocated = footprint.allocated();
    println!(
        "{}",
        json!({
            "objects": objects, "json": json, "body": body, "allocated": allocated, "above": allocated - body,
            "rss": footprint.resident(), "peak": footprint.peak_ratio(),
            "cpu": footprint.sync_cpu.as_secs_f64() * 1e6 / objects as f64,
        })
    );
}
