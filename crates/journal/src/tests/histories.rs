//! Thousands of histories against the model. `INFORMER_HUB_SEED`, or
//! `JOURNAL_SEED`, runs one again, `JOURNAL_HISTORIES` more of them.

use super::model::{Faults, World};
use informer_hub_testing::{SEED, replayed};

const HISTORIES: u64 = 400;
const STEPS: u32 = 120;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The history to run alone, if any.
fn only() -> Option<u64> {
    number("JOURNAL_SEED").or_else(replayed)
}

/// Runs histories; gives back how often it was opened again, refused for being full, and merged records away.
fn run(name: &str, faults: Faults) -> (u32, u32, u64) {
    let seeds = match only() {
        Some(seed) => seed..seed + 1,
        None => 0..number("JOURNAL_HISTORIES").unwrap_or(HISTORIES),
    };
    let mut totals = (0, 0, 0);
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, faults);
            (0..STEPS).for_each(|_| world.step());
            (world.reopened, world.refused_full, world.merged)
        });
        let Ok(seen) = outcome else { panic!("{name}: {SEED}={seed} fails") };
        totals = (totals.0 + seen.0, totals.1 + seen.1, totals.2 + seen.2);
    }
    totals
}

#[test]
fn nothing_accepted_is_lost_when_the_power_goes() {
    let (reopened, ..) = run("power", Faults { power: true, limit: 1 << 20, ..Faults::default() });
    assert!(reopened > 400 || only().is_some());
}

#[test]
fn nothing_accepted_is_lost_when_calls_fail() {
    run("calls", Faults { power: true, fail_rate: 0.1, limit: 1 << 20, ..Faults::default() });
}

#[test]
fn nothing_accepted_is_lost_when_the_disk_is_full() {
    run("full", Faults { power: true, full: true, limit: 1 << 20, ..Faults::default() });
}

#[test]
fn the_limit_holds_and_merging_keeps_each_objects_story() {
    let (_, refused, merged) = run("merge", Faults { power: true, merges: true, limit: 20 << 10, ..Faults::default() });
    assert!((refused > 0 && merged > 0) || only().is_some(), "{refused} refused, {merged} merged");
}

#[test]
fn nothing_accepted_is_lost_when_all_of_it_goes_wrong_at_once() {
    run("all", Faults { power: true, fail_rate: 0.05, full: true, merges: true, limit: 24 << 10 });
}
