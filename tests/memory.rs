//! The gate for memory: what a hub of 50,000 pods takes may not grow.
//!
//! A process of its own, since it is the whole process's heap that is looked at; no test harness, for the same reason.
#![allow(clippy::unwrap_used)]

use informer_hub::sim::replay::Shape;

#[path = "../benches/common/mod.rs"]
mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How many pods. Fewer would let what a hub takes anyway, and the uncompressed young ones, weigh in.
const PODS: u64 = 50_000;

/// Bytes that are allocated for each pod, all in, rounded up to size classes: this is the program's alone and the same
/// on every machine and in every run, to within a per cent. Measured: 903.
const ALLOCATED: f64 = 975.0;

/// Bytes that are resident for each pod. Pages of the program itself and of its threads' stacks, and what the allocator
/// has not given back yet, make it vary by a tenth. Measured: 1,259.
const RESIDENT: f64 = 1_400.0;

/// The peak of the first list, as a multiple of what stays. It depends on how far compression lags behind the list, and
/// so on what else the machine does. Measured: 1.36.
const PEAK: f64 = 1.8;

fn main() {
    common::server::serve_if_asked();
    let (footprint, ()) = common::runtime().block_on(common::memory::measure(PODS, Shape::Pods, async |_| ()));
    let figures = [
        ("bytes allocated per pod", footprint.allocated(), ALLOCATED),
        ("bytes resident per pod", footprint.resident(), RESIDENT),
        ("peak above settled, times", footprint.peak_ratio(), PEAK),
    ];
    let mut over = false;
    for (what, is, limit) in figures {
        let verdict = if is > limit { "over" } else { "within" };
        over |= is > limit;
        println!("{what}: {is:.2}, {verdict} its limit of {limit:.2}");
    }
    assert!(!over, "the hub takes more memory than it may");
}
