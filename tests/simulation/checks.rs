//! Checks of a simulation: convergence, violations, memory and disk bounds, leaks.

use std::cell::Cell;
use std::panic;

use informer_hub::app::Hub;
use informer_hub_sim::World;
use informer_hub_sim::oracle::{Oracle, Replica};
use informer_hub_sink::Bounds;
use informer_hub_types::Gvr;

use crate::memory;
use crate::testbed::Testbed;

/// Bytes that one run may leave allocated: caches of libraries for the whole process.
const LEFT_PER_RUN: i64 = 1 << 10;
/// Maximum memory of a hub in a simulation, including the recorded events, in bytes.
const MAX_MEMORY: i64 = 64 << 20;
/// Additional memory for huge objects of faults, in bytes: 16 copies of the largest one. Each of five readers may hold
/// the old, new and encoded object, and the apiserver one.
const HUGE: i64 = 16 * (5 << 20);

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Counts panics by thread. Without it, panics of restarted actors would go unnoticed.
pub(crate) fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
}

/// Returns the number of panics of this thread.
pub(crate) fn panics() -> usize {
    PANICS.get()
}

/// Returns the watched resources.
pub(crate) fn resources() -> [Gvr; 2] {
    [World::pods(), World::widgets()]
}

/// Returns the differences between a reader's replica and the clusters.
pub(crate) fn mistakes(bed: &Testbed, replica: &Replica) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (name, cluster) in &bed.clusters {
        for gvr in resources() {
            let seen = replica.seen_of(&format!("{name}/{}", gvr.long()));
            let differences = Oracle::diff(&cluster.truth(&gvr), &seen);
            mistakes.extend(differences.iter().map(|difference| format!("{name}: {gvr}: {difference}")));
        }
    }
    mistakes
}

/// Returns the impossible events of a reader, if the plan guarantees order.
pub(crate) fn violations(bed: &Testbed, replica: &Replica) -> Vec<String> {
    if bed.plan.guarantees_order() { replica.violations().to_vec() } else { Vec::new() }
}

/// Checks that runs have left at most [`LEFT_PER_RUN`] bytes each.
pub(crate) fn leaks(left: i64, runs: usize) -> Result<(), String> {
    let max = LEFT_PER_RUN * i64::try_from(runs).unwrap();
    if left > max { Err(format!("{left} bytes are left of {runs} runs, at most {max} are allowed")) } else { Ok(()) }
}

/// Returns this thread's allocated bytes without the simulated disk.
pub(crate) fn memory_in_use(bed: &Testbed) -> i64 {
    memory::of_thread() - i64::try_from(bed.disk.resident()).unwrap()
}

/// Checks that a hub's memory above `before`, its queues and its journals are within their bounds.
pub(crate) async fn memory(bed: &Testbed, hub: &Hub, before: i64) -> Result<(), String> {
    let max = if bed.plan.faults > 0.0 { MAX_MEMORY + HUGE } else { MAX_MEMORY };
    let has = memory_in_use(bed) - before;
    if has > max {
        return Err(format!("{has} bytes in memory, more than {max}"));
    }
    let Ok(report) = hub.report().await else { return Ok(()) };
    for sink in report.sinks {
        let (name, status) = (sink.name, sink.status);
        let bounds = Bounds::default();
        // The bounds may be exceeded by one event.
        if status.pending_events > bounds.events as u64 || status.pending_bytes > 2 * bounds.bytes as u64 {
            return Err(format!("{name}: {} events of {} bytes wait", status.pending_events, status.pending_bytes));
        }
        if let Some(journal) = status.journal.filter(|journal| journal.bytes > bed.plan.max_bytes()) {
            return Err(format!("{name}: a journal of {} bytes, of {}", journal.bytes, journal.limit));
        }
    }
    Ok(())
}

/// Checks that the journals on disk are within their bounds.
pub(crate) fn bounds(bed: &Testbed) -> Result<(), String> {
    for name in bed.journals() {
        let bytes: u64 = bed.files_of(name).iter().map(|(_, bytes)| bytes).sum();
        let max = bed.plan.max_bytes();
        if bytes > max {
            let files = bed.files_of(name);
            return Err(format!("{name} has {bytes} bytes on disk, more than {max}: {files:#?}"));
        }
    }
    Ok(())
}
