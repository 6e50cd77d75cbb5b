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

/// Runs histories. Returns how often the journal was reopened and rejected appends as full, and how many records merges
/// removed.
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
fn no_accepted_record_is_lost_on_power_loss() {
    let (reopened, ..) = run("power", Faults { power: true, limit: 1 << 20, ..Faults::default() });
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
    let (_, refused, merged) = run("merge", Faults { power: true, merges: true, limit: 20 << 10, ..Faults::default() });
    assert!((refused > 0 && merged > 0) || only().is_some(), "{refused} refused, {merged} merged");
}

#[test]
fn no_accepted_record_is_lost_with_all_faults_combined() {
    run("all", Faults { power: true, fail_rate: 0.05, full: true, merges: true, limit: 24 << 10 });
}
