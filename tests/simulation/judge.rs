//! What must be so.

use std::cell::Cell;
use std::panic;

use informer_hub::sim::World;
use informer_hub::sim::oracle::{Oracle, Replica};
use informer_hub::types::Gvr;

use crate::house::House;

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
    if house.plan.has_room() { replica.violations().to_vec() } else { Vec::new() }
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
