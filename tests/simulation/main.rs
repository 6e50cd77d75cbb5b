//! A whole hub under a seed: reflectors to durable readers and webhooks, with its clock, its disk and its network
//! simulated, through several lives.
//!
//! Everything runs on one thread under a paused clock, and all chance comes from the seed, so that a seed that fails
//! fails again in the same way: `SIMULATION_SEED=17 cargo test --test simulation -- --nocapture` shows what happened.
//! `SIMULATIONS` is how many there are, 100 unless it says otherwise.

#![allow(clippy::unwrap_used, reason = "a test's helpers")]

mod house;
mod judge;
mod life;
mod memory;
mod plan;
mod reader;
mod receiver;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use house::{Ears, House};
use plan::Plan;

/// Simulations, unless `SIMULATIONS` says otherwise.
const SIMULATIONS: u64 = 100;

/// At once.
const WORKERS: usize = 2;

/// Runs one; what was wrong.
fn simulate(seed: u64, ears: Ears) -> Result<(), String> {
    let before = memory::net();
    let house = House::new(Plan::drawn(seed), ears);
    life::all(&house)?;
    let (lives, net) = (house.plan.lives + 1, Arc::clone(&house.net));
    Arc::into_inner(house).ok_or("something of a hub has outlived it")?;
    let left = memory::net() - before + net.load(Relaxed);
    judge::leaks(left, lives)
}

/// Runs one, and gives what happened.
fn diary_of(seed: u64) -> (Vec<String>, Result<(), String>) {
    let house = House::new(Plan::drawn(seed), Ears::Diary);
    let verdict = life::all(&house);
    (house.diary(), verdict)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text:?}")))
}

#[test]
fn whatever_goes_wrong_nothing_is_lost() {
    judge::count_panics();
    if let Some(seed) = number("SIMULATION_SEED").or_else(|| number("INFORMER_HUB_SEED")) {
        let _ = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).try_init();
        return simulate(seed, Ears::Aloud).unwrap();
    }
    // At once: a run may be ended early.
    let tell = |(seed, why): &(u64, String)| eprintln!("SIMULATION_SEED={seed}: {why}");
    let (next, last) = (AtomicU64::new(0), number("SIMULATIONS").unwrap_or(SIMULATIONS));
    let failed = thread::scope(|scope| {
        let work = || {
            let seeds = std::iter::repeat_with(|| next.fetch_add(1, Relaxed)).take_while(|seed| *seed < last);
            seeds.filter_map(|seed| Some((seed, simulate(seed, Ears::Deaf).err()?))).inspect(tell).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let seeds: Vec<_> = failed.iter().map(|(seed, _)| seed).collect();
    assert!(failed.is_empty(), "{} of {last} failed: {seeds:?}", failed.len());
}

#[test]
fn a_seed_happens_again_in_the_same_way() {
    judge::count_panics();
    for seed in [1, 2, 3] {
        let (first, verdict) = diary_of(seed);
        let (second, _) = diary_of(seed);
        let differs = first.iter().zip(&second).position(|(first, second)| first != second);
        if let Some(at) = differs {
            let from = at.saturating_sub(5);
            panic!("seed {seed}: {:#?}\nand then\n{:#?}", &first[from..=at], &second[from..=at]);
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
        assert!(first.len() > 100, "seed {seed}: only {} things happened; {verdict:?}", first.len());
    }
}
