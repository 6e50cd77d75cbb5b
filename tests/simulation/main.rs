//! Seeded simulation of a whole hub, from the reflectors to durable readers and webhooks, with simulated clock, disk
//! and network, over several runs of the process.
//!
//! Everything runs on one thread under a paused clock, and all randomness comes from the seed. A seed that fails
//! therefore fails again in the same way: `SIMULATION_SEED=17 cargo test --test simulation -- --nocapture` prints its
//! events. `SIMULATIONS` sets the number of seeds, 100 by default.

#![allow(clippy::unwrap_used, reason = "a test's helpers")]

mod api_reader;
mod checks;
mod memory;
mod plan;
mod reader;
mod receiver;
mod runs;
mod testbed;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use plan::{Encoding, Plan, Wire};
use testbed::{Recording, Testbed};

/// Default number of simulations.
const SIMULATIONS: u64 = 100;

/// Number of simulations for each one without a state directory.
const STATELESS: u64 = 10;

/// Concurrent simulations.
const WORKERS: usize = 2;

/// Runs one simulation. The error describes the violations.
fn simulate(plan: Plan, recording: Recording) -> Result<(), String> {
    let before = memory::of_thread();
    let bed = Testbed::new(plan, recording);
    runs::all(&bed)?;
    let (runs, net) = (bed.plan.runs + 1, Arc::clone(&bed.net));
    Arc::into_inner(bed).ok_or("a hub left references to the testbed")?;
    let left = memory::of_thread() - before + net.load(Relaxed);
    checks::leaks(left, runs)
}

/// Runs one simulation and returns its events and result.
fn events_of(seed: u64) -> (Vec<String>, Result<(), String>) {
    let bed = Testbed::new(Plan::drawn(seed), Recording::Kept);
    let verdict = runs::all(&bed);
    (bed.events(), verdict)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text:?}")))
}

/// Runs a number of simulations, or the one that is asked for.
fn simulate_all(count: u64, plan_of: impl Fn(u64) -> Plan + Sync) {
    checks::count_panics();
    // Initializes everything that a process initializes only once, so that the measured threads do not pay for it.
    for encoding in Encoding::ALL {
        let mut plan = plan_of(count);
        plan.wire = Wire { encoding, is_http2: encoding != Encoding::Json };
        drop(simulate(plan, Recording::Off));
    }
    if let Some(seed) = number("SIMULATION_SEED").or_else(|| number("INFORMER_HUB_SEED")) {
        let _ = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).try_init();
        return simulate(plan_of(seed), Recording::Printed).unwrap();
    }
    // Prints failures at once, because the test may be interrupted.
    let print = |(seed, why): &(u64, String)| eprintln!("SIMULATION_SEED={seed}: {why}");
    let (next, last) = (AtomicU64::new(0), count);
    let failed = thread::scope(|scope| {
        let work = || {
            let seeds = std::iter::repeat_with(|| next.fetch_add(1, Relaxed)).take_while(|seed| *seed < last);
            seeds
                .filter_map(|seed| Some((seed, simulate(plan_of(seed), Recording::Off).err()?)))
                .inspect(print)
                .collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let seeds: Vec<_> = failed.iter().map(|(seed, _)| seed).collect();
    assert!(failed.is_empty(), "{} of {last} failed: {seeds:?}", failed.len());
}

#[test]
fn simulated_hub_loses_nothing() {
    simulate_all(number("SIMULATIONS").unwrap_or(SIMULATIONS), Plan::drawn);
}

#[test]
fn readers_converge_without_a_state_directory() {
    simulate_all(number("SIMULATIONS").unwrap_or(SIMULATIONS) / STATELESS, Plan::without_state);
}

#[test]
fn equal_seeds_run_identically() {
    checks::count_panics();
    for seed in [1, 2, 3] {
        let (first, verdict) = events_of(seed);
        let (second, _) = events_of(seed);
        let differs = first.iter().zip(&second).position(|(first, second)| first != second);
        if let Some(at) = differs {
            let from = at.saturating_sub(5);
            panic!("seed {seed}: first run {:#?}\nsecond run {:#?}", &first[from..=at], &second[from..=at]);
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
        assert!(first.len() > 100, "seed {seed}: only {} events; {verdict:?}", first.len());
    }
}
