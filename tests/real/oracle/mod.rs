//! Comparison of the hub with client-go: both watch the same objects under the same faults.
//!
//! The notifications of each are verified against the recorded changes. Every difference between the two must be a
//! documented one (`docs/client-go-differences.md`).
//!
//! # How it works
//! 1. A seed determines a schedule of faults ([`schedule`]).
//! 2. A single writer makes all changes directly at the apiserver and records the responses as history ([`writer`]).
//! 3. The hub, in this process ([`hub_side`]), and client-go's informers, in another process ([`clientgo`]), reach the
//!    apiserver through one fault-injecting proxy.
//! 4. After the last fault, both must converge to the final state.
//! 5. Each object's notifications are matched with its history and compared; differences are counted ([`judge`],
//!    [`pair`]).
//!
//! A missing notification is permitted only if a list skipped the change. For the hub, the skipped versions are known
//! ([`read_recorder`]); for client-go, the time of the response.
//!
//! `INFORMER_HUB_ORACLE_SEEDS=50` runs the first fifty schedules. `INFORMER_HUB_ORACLE_SEED=13` runs a single one, and
//! `13,47,13` runs those three in sequence.
//!
//! The same is done one step further ([`through_hub`]): client-go reads from a hub through the proxy, and from the
//! apiserver directly. Its notifications through the hub are judged as the hub's are.
//!
//! Clock jumps are simulated by suspending the process of the apiserver or of client-go. The hub runs in the test's own
//! process, so its clock does not jump.

mod clientgo;
mod faults;
mod history;
mod hub_side;
mod judge;
mod judge_tests;
mod pair;
mod read_recorder;
mod read_recorder_tests;
mod run;
mod schedule;
mod through_hub;
mod writer;

use std::collections::BTreeMap;

use informer_hub_types::clock;

use crate::bed::{RealCluster, install_widgets};
use judge::Tally;
use run::Run;

/// Default schedules: short ones that together contain every fault, except those from which the hub recovers only after
/// half a minute.
const ORDINARY: [u64; 8] = [1, 2, 11, 13, 16, 17, 20, 24];

/// Returns every other seed, so that each kind of apiserver runs different schedules.
fn every_other(rest: u64) -> Vec<u64> {
    let mut seeds = seeds(&ORDINARY);
    seeds.retain(|seed| seed % 2 == rest);
    seeds
}

/// Returns the seeds of the environment, or the default ones.
fn seeds(default: &[u64]) -> Vec<u64> {
    let numbers = |name| {
        let text = std::env::var(name).ok()?;
        let number = |word: &str| word.trim().parse::<u64>();
        let numbers: Result<Vec<_>, _> = text.split(',').map(number).collect();
        Some(numbers.unwrap_or_else(|error| {
            panic!("{name}={text:?} is not a number or a comma-separated list of numbers: {error}")
        }))
    };
    match (
        numbers("INFORMER_HUB_ORACLE_SEED").or_else(|| numbers("INFORMER_HUB_SEED")),
        numbers("INFORMER_HUB_ORACLE_SEEDS").as_deref(),
    ) {
        (Some(only), _) => only,
        (None, Some([last])) => (1..=*last).collect(),
        (None, Some(_)) => panic!("INFORMER_HUB_ORACLE_SEEDS must be one number, the count of schedules"),
        (None, None) => default.to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oracle_hub_notifies_like_client_go_with_a_watch_cache() {
    let seeds = every_other(1);
    if !seeds.is_empty() {
        run_all(&seeds, RealCluster::start("oracle").await, false).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oracle_hub_notifies_like_client_go_without_a_watch_cache() {
    let seeds = every_other(0);
    if !seeds.is_empty() {
        run_all(&seeds, RealCluster::start_with("oracle-etcd", &["--watch-cache=false"]).await, true).await;
    }
}

/// Runs schedules in sequence on one cluster. `compaction_expires` is true if a compaction alone, without a restart,
/// makes watches expire.
async fn run_all(seeds: &[u64], mut cluster: RealCluster, compaction_expires: bool) {
    let client = cluster.client().await;
    install_widgets(&client).await;
    let mut tally = Tally::new();
    let mut lists = BTreeMap::new();
    let mut settled = [Vec::new(), Vec::new()];
    for (turn, seed) in seeds.iter().enumerate() {
        let began = clock::now();
        let namespace = format!("oracle-{seed}-{turn}");
        let run = Box::pin(Run::start(&mut cluster, &client, *seed, &namespace, compaction_expires)).await;
        let outcome = Box::pin(run.go_through()).await;
        println!("oracle seed {seed}: {:?}, {outcome:?}", began.elapsed());
        settled.iter_mut().zip(outcome.settled).for_each(|(all, took)| all.push(took));
        for (difference, count) in outcome.differences {
            *tally.entry(difference).or_default() += count;
        }
        for (kind, [hub, go]) in outcome.lists {
            let all: &mut [usize; 2] = lists.entry(kind).or_default();
            *all = [all[0] + hub, all[1] + go];
        }
    }
    println!("oracle: {} schedules, differences {tally:?}, lists of the hub and of client-go {lists:?}", seeds.len());
    for (side, mut took) in ["the hub", "client-go"].into_iter().zip(settled) {
        took.sort_unstable();
        let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
        println!("oracle: {side} converged after {median:?} (median), {longest:?} at most");
    }
}
