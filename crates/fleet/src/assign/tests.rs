//! Tests of plans: balance, few moves, zones, pins and draining, with up to 1,000 collectors.

#![expect(clippy::cast_precision_loss, reason = "the sums are below 2^53")]

use std::collections::HashMap;

use informer_hub_types::Shard;
use informer_hub_types::rng::{SeededRng, rng};
use proptest::prelude::*;
use rand::Rng;

use super::{Balance, Collector, Move, MoveReason, ShardLoad, plan};

type Assignment = HashMap<Shard, String>;

fn shard(name: usize, weight: u64, zone: Option<&str>) -> ShardLoad {
    let (shard, zone) = (format!("shard-{name}").parse().unwrap(), zone.map(str::to_owned));
    ShardLoad { shard, weight, zone, pinned: None }
}

fn collector(name: usize, capacity: u64, zone: Option<&str>) -> Collector {
    Collector { name: format!("collector-{name}"), capacity, zone: zone.map(str::to_owned), draining: false }
}

fn apply(moves: &[Move], current: &mut Assignment) {
    for step in moves {
        let before = current.insert(step.shard.clone(), step.to.clone());
        assert!(step.from.is_none() || step.from == before, "{step:?}");
    }
}

/// Returns the loads of live collectors in relation to their share.
fn relative(shards: &[ShardLoad], collectors: &[Collector], current: &Assignment) -> Vec<f64> {
    let live: Vec<_> = collectors.iter().filter(|collector| !collector.draining).collect();
    let total: u64 = shards.iter().map(|load| load.weight.max(1)).sum();
    let capacity: u64 = live.iter().map(|collector| collector.capacity.max(1)).sum();
    let mut loads: HashMap<&str, u64> = HashMap::new();
    for load in shards {
        *loads.entry(current[&load.shard].as_str()).or_default() += load.weight.max(1);
    }
    let share = |collector: &Collector| total as f64 * collector.capacity.max(1) as f64 / capacity as f64;
    live.iter().map(|found| loads.get(found.name.as_str()).copied().unwrap_or(0) as f64 / share(found)).collect()
}

fn imbalance(relative: &[f64]) -> f64 {
    relative.iter().map(|load| (load - 1.0).abs()).fold(0.0, f64::max)
}

/// Joining and leaving collectors cause at most 1.2 times the minimum of moves, and loads stay within 15 % of their
/// share.
#[test]
fn a_thousand_collectors_stay_balanced_with_few_moves() {
    let _seeded = SeededRng::new(7);
    let mut rng = rng();
    let shards: Vec<_> = (0..10_000).map(|name| shard(name, rng.random_range(1_000..20_000), None)).collect();
    let mut collectors: Vec<_> = (0..1_000).map(|name| collector(name, 1, None)).collect();
    let mut current = Assignment::new();
    let start = plan(&shards, &collectors, &current, Balance::default());
    assert_eq!(start.len(), shards.len());
    apply(&start, &mut current);
    let start = imbalance(&relative(&shards, &collectors, &current));
    assert!(start <= 0.15, "{start}");
    let total: u64 = shards.iter().map(|load| load.weight).sum();
    let weights: HashMap<_, _> = shards.iter().map(|load| (load.shard.clone(), load.weight)).collect();
    let (mut sums, mut minimum, mut worst) = ((0, 0), (0.0, 0.0), 0.0_f64);
    for round in 0..40 {
        let joins = round % 2 == 0;
        if joins {
            collectors.push(collector(1_000 + round, 1, None));
            // At least the share of the new collector must move.
            minimum.0 += shards.len() as f64 / collectors.len() as f64;
            minimum.1 += total as f64 / collectors.len() as f64;
        } else {
            let gone = collectors.swap_remove(rng.random_range(0..collectors.len()));
            // At least the shards of the removed collector must move.
            let former = current.iter().filter(|(_, owner)| **owner == gone.name);
            for (shard, _) in former {
                minimum.0 += 1.0;
                minimum.1 += weights[shard] as f64;
            }
        }
        let moves = plan(&shards, &collectors, &current, Balance::default());
        apply(&moves, &mut current);
        sums.0 += moves.len();
        sums.1 += moves.iter().map(|step| weights[&step.shard]).sum::<u64>();
        worst = worst.max(imbalance(&relative(&shards, &collectors, &current)));
    }
    let (by_count, by_weight) = (sums.0 as f64 / minimum.0, sums.1 as f64 / minimum.1);
    println!("moves {by_count:.3} of the minimum, weight {by_weight:.3}; imbalance {start:.3}, then {worst:.3}");
    assert!(by_count <= 1.2 && by_weight <= 1.2, "{by_count} {by_weight}");
    assert!(worst <= 0.15, "{worst}");
}

#[test]
fn former_collector_gets_its_clusters_back_by_hash() {
    let shards: Vec<_> = (0..200).map(|name| shard(name, 10, None)).collect();
    let collectors: Vec<_> = (0..10).map(|name| collector(name, 1, None)).collect();
    let first = plan(&shards, &collectors, &Assignment::new(), Balance { tolerance: 0.9, ..Balance::default() });
    let second = plan(&shards, &collectors, &Assignment::new(), Balance { tolerance: 0.9, ..Balance::default() });
    assert_eq!(first, second);
    let mut owners = Assignment::new();
    apply(&first, &mut owners);
    let without: Vec<_> = collectors[1..].to_vec();
    let moves = plan(&shards, &without, &owners, Balance { tolerance: 0.9, ..Balance::default() });
    assert!(moves.iter().all(|step| step.reason == MoveReason::Orphaned && step.from.is_none()));
    let lost = owners.values().filter(|owner| **owner == "collector-0").count();
    assert_eq!(moves.len(), lost, "only the shards of the one that is gone move");
}

#[test]
fn draining_collector_is_emptied_and_named_as_source() {
    let shards: Vec<_> = (0..30).map(|name| shard(name, 10, None)).collect();
    let mut collectors: Vec<_> = (0..3).map(|name| collector(name, 1, None)).collect();
    let mut current = Assignment::new();
    apply(&plan(&shards, &collectors, &current, Balance::default()), &mut current);
    collectors[1].draining = true;
    let moves = plan(&shards, &collectors, &current, Balance::default());
    let drained = moves.iter().filter(|step| step.reason == MoveReason::Drain);
    assert!(drained.clone().count() > 5 && drained.clone().all(|step| step.from.as_deref() == Some("collector-1")));
    apply(&moves, &mut current);
    assert!(!current.values().any(|owner| owner == "collector-1"));
    for collector in &mut collectors {
        collector.draining = true;
    }
    assert_eq!(plan(&shards, &collectors, &current, Balance::default()), [], "no other collector is left");
}

#[test]
fn pinned_clusters_move_to_their_collector_and_stay_there() {
    let mut shards: Vec<_> = (0..12).map(|name| shard(name, 10, None)).collect();
    let mut collectors: Vec<_> = (0..3).map(|name| collector(name, 1, None)).collect();
    let mut current = Assignment::new();
    apply(&plan(&shards, &collectors, &current, Balance::default()), &mut current);
    for load in &mut shards[..6] {
        load.pinned = Some("collector-1".to_owned());
    }
    let elsewhere = shards[..6].iter().filter(|load| current[&load.shard] != "collector-1").count();
    let moves = plan(&shards, &collectors, &current, Balance::default());
    assert_eq!(moves.iter().filter(|step| step.reason == MoveReason::Pin).count(), elsewhere);
    apply(&moves, &mut current);
    assert!(shards[..6].iter().all(|load| current[&load.shard] == "collector-1"));
    let others = shards[6..].iter().filter(|load| current[&load.shard] != "collector-1").count();
    assert!(others >= 5, "the others make room: {others}");
    assert_eq!(plan(&shards, &collectors, &current, Balance::default()), []);
    // A drain counts more than a pin, and so does the death of the collector.
    collectors[1].draining = true;
    apply(&plan(&shards, &collectors, &current, Balance::default()), &mut current);
    assert!(!current.values().any(|owner| owner == "collector-1"));
}

#[test]
fn preferred_zone_is_used_while_it_has_room() {
    let zone = |name: usize| Some(if name.is_multiple_of(2) { "eu" } else { "us" });
    let shards: Vec<_> = (0..400).map(|name| shard(name, 10, zone(name))).collect();
    let collectors: Vec<_> = (0..10).map(|name| collector(name, 1, zone(name))).collect();
    let mut current = Assignment::new();
    apply(&plan(&shards, &collectors, &current, Balance::default()), &mut current);
    let at_home = |current: &Assignment, shards: &[ShardLoad]| {
        let zones: HashMap<_, _> = collectors.iter().map(|found| (found.name.as_str(), found.zone.clone())).collect();
        shards.iter().filter(|load| zones[current[&load.shard].as_str()] == load.zone).count()
    };
    assert_eq!(at_home(&current, &shards), 400);
    // All shards prefer the zone of half of the collectors. These take their share, and the others the rest.
    let all_eu: Vec<_> = (0..400).map(|name| shard(name, 10, Some("eu"))).collect();
    let mut current = Assignment::new();
    apply(&plan(&all_eu, &collectors, &current, Balance::default()), &mut current);
    assert!(imbalance(&relative(&all_eu, &collectors, &current)) <= 0.15);
    assert!(at_home(&current, &all_eu) >= 200);
}

#[test]
fn capacity_decides_the_share() {
    let shards: Vec<_> = (0..1000).map(|name| shard(name, 10, None)).collect();
    let collectors: Vec<_> = (0..4).map(|name| collector(name, 1 + name as u64, None)).collect();
    let mut current = Assignment::new();
    apply(&plan(&shards, &collectors, &current, Balance::default()), &mut current);
    assert!(imbalance(&relative(&shards, &collectors, &current)) <= 0.15);
}

fn fleets() -> impl Strategy<Value = (Vec<ShardLoad>, Vec<Collector>, Vec<Option<usize>>)> {
    let zone = || prop_oneof![Just(None), Just(Some("eu")), Just(Some("us"))];
    let shards = prop::collection::vec((0..1000_u64, zone(), prop::option::of(0..12_usize)), 0..60);
    let collectors = prop::collection::vec((0..4_u64, zone(), prop::bool::weighted(0.2)), 1..10);
    (shards, collectors).prop_map(|(shards, collectors)| {
        let present = shards.iter().map(|(_, _, at)| *at).collect();
        let shards = shards.into_iter().enumerate().map(|(at, (weight, zone, _))| shard(at, weight, zone));
        let collectors = collectors.into_iter().enumerate();
        let collectors =
            collectors.map(|(at, (capacity, zone, draining))| Collector { draining, ..collector(at, capacity, zone) });
        (shards.collect(), collectors.collect(), present)
    })
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn plans_place_every_cluster_once_and_are_stable((shards, collectors, present) in fleets()) {
        let mut current = Assignment::new();
        for (load, at) in shards.iter().zip(present) {
            if let Some(at) = at {
                current.insert(load.shard.clone(), format!("collector-{at}"));
            }
        }
        let before = current.clone();
        let moves = plan(&shards, &collectors, &current, Balance::default());
        let mut seen: Vec<_> = moves.iter().map(|step| &step.shard).collect();
        seen.sort();
        seen.dedup();
        prop_assert_eq!(seen.len(), moves.len(), "one move per shard");
        apply(&moves, &mut current);
        if collectors.iter().all(|collector| collector.draining) {
            prop_assert!(moves.is_empty());
            return Ok(());
        }
        let live: Vec<_> = collectors.iter().filter(|found| !found.draining).map(|found| &found.name).collect();
        for load in &shards {
            prop_assert!(live.contains(&&current[&load.shard]));
        }
        let again = plan(&shards, &collectors, &current, Balance::default());
        prop_assert_eq!(&again, &[], "after the plan, nothing is left to move");
        // A plan that is computed after half of the moves of another plan undoes none of these.
        let mut half = before.clone();
        apply(&moves[..moves.len() / 2], &mut half);
        for step in plan(&shards, &collectors, &half, Balance::default()) {
            let moved = moves[..moves.len() / 2].iter().any(|made| made.shard == step.shard);
            prop_assert!(!moved || step.reason == MoveReason::Balance, "{:?}", step);
        }
    }

    #[test]
    fn no_single_move_relieves_an_overloaded_collector((shards, collectors, _) in fleets()) {
        let mut current = Assignment::new();
        apply(&plan(&shards, &collectors, &current, Balance::default()), &mut current);
        let live: Vec<_> = collectors.iter().filter(|found| !found.draining).collect();
        if live.is_empty() || shards.is_empty() {
            return Ok(());
        }
        let total: u64 = shards.iter().map(|load| load.weight.max(1)).sum();
        let capacity: u64 = live.iter().map(|found| found.capacity.max(1)).sum();
        let share = |found: &Collector| total as f64 * found.capacity.max(1) as f64 / capacity as f64;
        let loads = relative(&shards, &collectors, &current);
        for (from, load) in live.iter().zip(&loads).filter(|(_, load)| **load > 1.15) {
            for shard in shards.iter().filter(|load| current[&load.shard] == from.name) {
                for (to, other) in live.iter().zip(&loads).filter(|(to, _)| to.name != from.name) {
                    let grown = other + shard.weight.max(1) as f64 / share(to);
                    prop_assert!(grown > load * 0.9 - 1e-5, "{shard:?} from {from:?} at {load} to {to:?} at {other}");
                }
            }
        }
    }
}
