//! The hub and client-go itself watch the same objects through the same troubles; each is judged by what really
//! happened, and every way in which they differ must be one that is written down.
//!
//! # How it works
//! A schedule comes of a seed ([`schedule`]). One author makes all changes, straight at the apiserver, and keeps the
//! answers: they are what really happened ([`author`]). The hub, in this process ([`subject`]), and client-go's
//! informers, in another ([`clientgo`]), reach the apiserver by one proxy that misbehaves. When all is well again and
//! both have what is true, each object's notifications are placed in its history, compared, and the differences
//! counted ([`judge`], [`verdict`]). What was not told needs a list for an excuse: of the hub by the versions that the
//! list jumped over ([`witness`]), of client-go by the moment at which it was answered.
//!
//! `INFORMER_HUB_ORACLE_SEEDS=50` runs the first fifty schedules instead of a few; `INFORMER_HUB_ORACLE_SEED=13` runs a
//! single one again, and `13,47,13` those three, one after the other.
//!
//! A machine whose clock jumps is one that slept: the apiserver's process, or client-go's, is stopped and goes on
//! later. The hub's own process is this one, so its clock does not jump here.

mod account;
mod author;
mod clientgo;
mod judge;
mod judge_tests;
mod run;
mod schedule;
mod subject;
mod verdict;
mod witness;
mod witness_tests;

use std::collections::BTreeMap;

use informer_hub_types::clock;

use crate::bed::{RealCluster, install_widgets};
use judge::Tally;
use run::Run;

/// The schedules of an ordinary run of the suite: short ones that have, together, every trouble but those that the hub
/// gets over only after half a minute.
const ORDINARY: [u64; 8] = [1, 2, 11, 13, 16, 17, 20, 24];

/// Every other seed, so that each kind of apiserver has its own.
fn seeds(rest: u64) -> Vec<u64> {
    let numbers = |name| {
        let text = std::env::var(name).ok()?;
        let number = |word: &str| word.trim().parse::<u64>();
        let numbers: Result<Vec<_>, _> = text.split(',').map(number).collect();
        Some(numbers.unwrap_or_else(|error| panic!("{name}={text:?} is not a number, nor some with commas: {error}")))
    };
    let mine = |seed: &u64| seed % 2 == rest;
    let seeds = match (
        numbers("INFORMER_HUB_ORACLE_SEED").or_else(|| numbers("INFORMER_HUB_SEED")),
        numbers("INFORMER_HUB_ORACLE_SEEDS").as_deref(),
    ) {
        (Some(only), _) => only,
        (None, Some([last])) => (1..=*last).collect(),
        (None, Some(_)) => panic!("INFORMER_HUB_ORACLE_SEEDS is one number: how many"),
        (None, None) => ORDINARY.to_vec(),
    };
    seeds.into_iter().filter(mine).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn oracle_the_hub_tells_what_client_go_tells_of_an_apiserver_with_a_watch_cache() {
    let seeds = seeds(1);
    if !seeds.is_empty() {
        run_all(&seeds, RealCluster::start("oracle").await, false).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oracle_the_hub_tells_what_client_go_tells_of_an_apiserver_that_reads_from_etcd() {
    let seeds = seeds(0);
    if !seeds.is_empty() {
        run_all(&seeds, RealCluster::start_with("oracle-etcd", &["--watch-cache=false"]).await, true).await;
    }
}

/// Runs schedules one after the other on one cluster. `forgets` says that a compaction alone makes watches expire.
async fn run_all(seeds: &[u64], mut cluster: RealCluster, forgets: bool) {
    let client = cluster.client().await;
    install_widgets(&client).await;
    let mut tally = Tally::new();
    let mut lists = BTreeMap::new();
    let mut settled = [Vec::new(), Vec::new()];
    for (turn, seed) in seeds.iter().enumerate() {
        let began = clock::now();
        let namespace = format!("oracle-{seed}-{turn}");
        let outcome = Run::start(&mut cluster, &client, *seed, &namespace, forgets).await.go_through().await;
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
    for (who, mut took) in ["the hub", "client-go"].into_iter().zip(settled) {
        took.sort_unstable();
        let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
        println!("oracle: {who} had what is true after {median:?} (median), {longest:?} at most");
    }
}
