//! Randomised histories against the model. `INFORMER_HUB_SEED` or `JOURNAL_SEED` replays one, `JOURNAL_HISTORIES` sets
//! their number.

use super::model::{Faults, World};
use informer_hub_testing::{SEED, replayed};

const HISTORIES: u64 = 400;
const STEPS: u32 = 120;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Returns the seed of the history to replay, if any.
fn only() -> Option<u64> {
    number("JOURNAL_SEED").or_else(replayed)
}

/// Totals of the histories of a run.
#[derive(Debug, Default)]
struct Totals {
    reopened: u32,
    refused_full: u32,
    accepted_unsynced: u32,
    merged: u64,
}

fn run(name: &str, faults: Faults) -> Totals {
    let seeds = match only() {
        Some(seed) => seed..seed + 1,
        None => 0..number("JOURNAL_HISTORIES").unwrap_or(HISTORIES),
    };
    let mut totals = Totals::default();
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, faults);
            (0..STEPS).for_each(|_| world.step());
            world
        });
        let Ok(world) = outcome else { panic!("{name}: {SEED}={seed} fails") };
        totals.reopened += world.reopened;
        totals.refused_full += world.refused_full;
        totals.accepted_unsynced += world.accepted_unsynced;
        totals.merged += world.merged;
    }
    totals
}

#[test]
fn no_accepted_record_is_lost_on_power_loss() {
    let Totals { reopened, .. } = run("power", Faults { power: true, limit: 1 << 20, ..Faults::default() });
    assert!(reopened > 400 || only().is_some());
}

#[test]
fn no_accepted_record_is_lost_when_calls_fail() {
    run("calls", Faults { power: true, fail_rate: 0.1, limit: 1 << 20, ..Faults::default() });
}

#[test]
fn no_accepted_record_is_lost_when_the_disk_is_full() {
    run("full", Faults { power: true, full: true, limit: 1 << 20, ..Faults::default() });
}

#[test]
fn limit_holds_and_merging_preserves_each_objects_changes() {
    let totals = run("merge", Faults { power: true, merges: true, limit: 20 << 10, ..Faults::default() });
    assert!((totals.refused_full > 0 && totals.merged > 0) || only().is_some(), "{totals:?}");
}

#[test]
fn no_accepted_record_is_lost_when_the_disk_is_full_at_the_open() {
    let faults = Faults { power: true, fail_rate: 0.05, full: true, full_at_open: true, ..Faults::default() };
    let totals = run("full open", Faults { limit: 1 << 20, ..faults });
    assert!(totals.accepted_unsynced > 20 || only().is_some(), "{totals:?}");
    run("full open, overwriting", Faults { limit: 1 << 20, overwrites: true, ..faults });
}

#[test]
fn no_accepted_record_is_lost_with_all_faults_combined() {
    let faults = Faults { power: true, fail_rate: 0.05, full: true, merges: true, ..Faults::default() };
    run("all", Faults { limit: 24 << 10, ..faults });
    run("all, full open", Faults { limit: 24 << 10, full_at_open: true, overwrites: true, ..faults });
}
