//! What must be so.

use std::cell::Cell;
use std::panic;

use informer_hub::app::Hub;
use informer_hub_sim::World;
use informer_hub_sim::oracle::{Oracle, Replica};
use informer_hub_sink::Bounds;
use informer_hub_types::Gvr;

use crate::house::House;
use crate::memory;

/// Bytes that a life may leave behind: what libraries keep for the process.
const LEFT_BY_A_LIFE: i64 = 8 << 10;
/// Bytes that a hub of these few objects takes at most, with what the house notes of it.
const MOST: i64 = 64 << 20;
/// The largest object that a fault makes, and how many of them there may be on their way at once: old, new and as it is
/// sent, for each of five readers, and at the apiserver.
const HUGE: i64 = 16 * (5 << 20);

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Has panics counted by thread: actors are started again after theirs, and nobody would know.
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

/// Panics of this thread so far.
pub(crate) fn panics() -> usize {
    PANICS.get()
}

/// What is watched.
pub(crate) fn resources() -> [Gvr; 2] {
    [World::pods(), World::widgets()]
}

/// In what a reader is wrong about the clusters; empty when it has the truth.
pub(crate) fn mistakes(house: &House, replica: &Replica) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (name, cluster) in &house.clusters {
        for gvr in resources() {
            let seen = replica.seen_of(&format!("{name}/{}", gvr.long()));
            let differences = Oracle::diff(&cluster.truth(&gvr), &seen);
            mistakes.extend(differences.iter().map(|difference| format!("{name}: {gvr}: {difference}")));
        }
    }
    mistakes
}

/// What a reader was told that cannot be.
pub(crate) fn violations(house: &House, replica: &Replica) -> Vec<String> {
    if house.plan.keeps_order() { replica.violations().to_vec() } else { Vec::new() }
}

/// Whether what lives have left behind in memory is no more than a thread does that ends.
pub(crate) fn leaks(left: i64, lives: usize) -> Result<(), String> {
    let most = LEFT_BY_A_LIFE * i64::try_from(lives).unwrap();
    if left > most { Err(format!("{left} bytes are left of {lives} lives, at most {most} may be")) } else { Ok(()) }
}

/// What this thread has in memory without the disk.
pub(crate) fn footing(house: &House) -> i64 {
    memory::net() - i64::try_from(house.disk.resident()).unwrap()
}

/// Whether a hub has no more in memory than it may, above what was there before it; asks the allocator, and the hub.
pub(crate) async fn memory(house: &House, hub: &Hub, before: i64) -> Result<(), String> {
    let most = if house.plan.faults > 0.0 { MOST + HUGE } else { MOST };
    let has = footing(house) - before;
    if has > most {
        return Err(format!("{has} bytes in memory, more than {most}"));
    }
    let Ok(report) = hub.report().await else { return Ok(()) };
    for sink in report.sinks {
        let (name, status) = (sink.name, sink.status);
        let bounds = Bounds::default();
        // Exceeded by one event at most.
        if status.pending_events > bounds.events as u64 || status.pending_bytes > 2 * bounds.bytes as u64 {
            return Err(format!("{name}: {} events of {} bytes wait", status.pending_events, status.pending_bytes));
        }
        if let Some(journal) = status.journal.filter(|journal| journal.bytes > house.plan.most_bytes()) {
            return Err(format!("{name}: a journal of {} bytes, of {}", journal.bytes, journal.limit));
        }
    }
    Ok(())
}

/// Whether what the hub has on disk is within its bounds.
pub(crate) fn bounds(house: &House) -> Result<(), String> {
    for name in house.journals() {
        let bytes: u64 = house.files_of(name).iter().map(|(_, bytes)| bytes).sum();
        let most = house.plan.most_bytes();
        if bytes > most {
            let files = house.files_of(name);
            return Err(format!("{name} has {bytes} bytes on disk, more than {most}: {files:#?}"));
        }
    }
    Ok(())
}
