//! Tests of the governor with a model of a process, whose allocator returns memory slowly.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use informer_hub_testing::properties;
use informer_hub_types::MemoryStep;
use informer_hub_types::MemoryStep::{Full, Heads, Packed, Paused, Released};
use informer_hub_types::clock::{self, Instant};

const TICK: Duration = Duration::from_millis(250);
const MIB: u64 = 1 << 20;

/// Model of one informer.
#[derive(Clone, Debug)]
struct Model {
    /// Number of objects that the informer's cluster has.
    cluster: u64,
    /// Bytes of a compressed body.
    body: u64,
    /// Actual bytes of an object without its body.
    head: u64,
    step: MemoryStep,
    objects: u64,
    bodies: u64,
}

impl Model {
    fn new(cluster: u64, body: u64, head: u64) -> Self {
        Self { cluster, body, head, step: Full, objects: 0, bodies: 0 }
    }

    /// Simulates 250 ms, in which up to 10,000 objects are processed.
    fn tick(&mut self) {
        match self.step {
            Full | Packed => {
                self.objects = self.cluster.min(self.objects + 10_000);
                self.bodies = self.objects.min(self.bodies + 10_000);
            }
            Heads => {
                self.objects = self.cluster.min(self.objects + 10_000);
                self.bodies = self.bodies.saturating_sub(10_000);
            }
            Paused => self.bodies = self.bodies.saturating_sub(10_000),
            Released => (self.objects, self.bodies) = (0, 0),
        }
    }

    fn bytes(&self) -> u64 {
        self.objects * self.head + self.bodies * self.body
    }

    fn usage(&self) -> Usage {
        let bodies = self.bodies * self.body;
        Usage { step: self.step, objects: self.objects, bodies, ..Usage::default() }
    }
}

/// Model of a process with a governor.
struct Process {
    governor: Governor<usize>,
    models: Vec<Model>,
    base: u64,
    limit: Option<u64>,
    /// Released bytes that are still resident.
    lag: u64,
    now: Instant,
    changes: Vec<(Duration, Change<usize>)>,
    began: Instant,
}

impl Process {
    fn new(base: u64, limit: u64, models: Vec<Model>) -> Self {
        let now = clock::now();
        let governor = Governor::new(Pace::default());
        Self { governor, models, base, limit: Some(limit), lag: 0, now, changes: Vec::new(), began: now }
    }

    fn resident(&self) -> u64 {
        self.base + self.lag + self.models.iter().map(Model::bytes).sum::<u64>()
    }

    fn tick(&mut self) -> Decision<usize> {
        let before: u64 = self.models.iter().map(Model::bytes).sum();
        self.models.iter_mut().for_each(Model::tick);
        let after: u64 = self.models.iter().map(Model::bytes).sum();
        self.lag = (self.lag + before.saturating_sub(after)) * 94 / 100;
        self.now += TICK;
        let usages: BTreeMap<_, _> = self.models.iter().map(Model::usage).enumerate().collect();
        let (limit, resident) = (self.limit, Some(self.resident()));
        let decision =
            self.governor.evaluate(&Reading { now: self.now, limit, resident, usages: &usages, jitter: 0.5 });
        for change in &decision.changes {
            let model = &mut self.models[change.id];
            assert_eq!(model.step, change.from);
            model.step = change.to;
            if matches!(change.from, Paused | Released | Heads) && change.to < Heads {
                model.bodies = 0;
            }
            self.changes.push((self.now - self.began, change.clone()));
        }
        decision
    }

    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / TICK.as_millis() {
            self.tick();
        }
    }

    fn steps(&self) -> Vec<MemoryStep> {
        self.models.iter().map(|model| model.step).collect()
    }
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

#[test]
fn governor_changes_nothing_below_the_limit() {
    let mut process =
        Process::new(30 * MIB, 128 * MIB, vec![Model::new(50_000, 500, 550), Model::new(10_000, 500, 550)]);
    process.run(minutes(60));
    assert_eq!(process.changes, []);
}

#[test]
fn governor_degrades_the_furthest_above_its_share_no_further_than_needed() {
    let mut process = Process::new(
        30 * MIB,
        128 * MIB,
        vec![Model::new(10_000, 500, 550), Model::new(100_000, 500, 550), Model::new(20_000, 500, 550)],
    );
    process.run(minutes(10));
    assert_eq!(process.steps(), [Full, Heads, Full]);
    let order: Vec<_> = process.changes.iter().map(|(_, change)| (change.id, change.from, change.to)).collect();
    assert_eq!(order, [(1, Full, Packed), (1, Packed, Heads)]);
    assert!(
        process.changes[0].1.reason.contains("its share of the memory limit is"),
        "{}",
        process.changes[0].1.reason
    );
    assert!(process.resident() <= 128 * MIB);
}

#[test]
fn governor_spares_the_second_above_its_share_if_one_is_enough() {
    let models = vec![Model::new(64_000, 500, 550), Model::new(100_000, 800, 550)];
    let mut process = Process::new(30 * MIB, 400 * MIB, models);
    process.run(minutes(1));
    assert_eq!(process.changes, []);
    process.limit = Some(180 * MIB);
    let shares = process.tick().memory_shares;
    assert!(shares.values().all(|one| one.used > one.share), "{shares:?}");
    process.run(minutes(10));
    assert_eq!(process.steps(), [Full, Heads], "{:?}", process.changes);
    assert!(process.changes.iter().all(|(_, change)| change.id == 1));
}

#[test]
fn governor_pauses_and_releases_an_informer_whose_heads_do_not_fit() {
    let mut process =
        Process::new(30 * MIB, 80 * MIB, vec![Model::new(5_000, 500, 550), Model::new(120_000, 500, 550)]);
    process.run(Duration::from_secs(20));
    assert_eq!(process.steps(), [Full, Released]);
    let order: Vec<_> = process.changes.iter().map(|(_, change)| change.to).collect();
    assert_eq!(order, [Packed, Heads, Paused, Released]);
    assert!(process.changes.iter().all(|(_, change)| change.id == 1));
}

#[test]
fn governor_follows_a_lowered_and_a_raised_limit() {
    let models = vec![Model::new(60_000, 500, 550), Model::new(5_000, 500, 550)];
    let mut process = Process::new(30 * MIB, 256 * MIB, models);
    process.run(minutes(1));
    assert_eq!(process.steps(), [Full, Full]);
    process.limit = Some(80 * MIB);
    process.run(Duration::from_secs(15));
    assert_eq!(process.steps(), [Heads, Full]);
    assert!(process.resident() <= 80 * MIB, "{}", process.resident());
    let before = process.changes.len();
    process.run(minutes(30));
    assert_eq!(process.changes.len(), before, "it stays where it was put");
    process.limit = Some(256 * MIB);
    process.run(Duration::from_secs(10));
    assert_eq!((process.steps(), process.models[0].bodies), (vec![Full, Full], 60_000));
    process.limit = Some(80 * MIB);
    process.run(Duration::from_secs(1));
    assert_eq!(process.steps(), [Heads, Full]);
    process.limit = None;
    process.tick();
    assert_eq!(process.steps(), [Full, Full]);
}

#[test]
fn governor_does_not_count_freed_resident_memory_twice() {
    let mut process =
        Process::new(30 * MIB, 256 * MIB, vec![Model::new(60_000, 2_000, 550), Model::new(30_000, 500, 550)]);
    process.run(minutes(1));
    process.limit = Some(128 * MIB);
    process.run(Duration::from_secs(2));
    assert!(process.resident() > 140 * MIB, "the allocator has not given it back yet: {}", process.resident());
    assert_eq!(process.steps(), [Heads, Full]);
    process.run(minutes(2));
    assert_eq!(process.steps(), [Heads, Full]);
}

#[test]
fn governor_reacts_to_growth_of_unaccounted_memory() {
    let mut process = Process::new(30 * MIB, 128 * MIB, vec![Model::new(50_000, 500, 550)]);
    process.run(minutes(1));
    process.base = 75 * MIB;
    process.run(Duration::from_secs(15));
    assert_eq!(process.steps(), [Heads]);
    process.base = 30 * MIB;
    process.run(minutes(2));
    assert_eq!((process.steps(), process.models[0].bodies), (vec![Full], 50_000));
}

#[test]
fn governor_doubles_the_wait_after_each_relapse() {
    // The informer fits while its cluster is small, and is too large after it has been listed again with bodies.
    let mut process = Process::new(30 * MIB, 80 * MIB, vec![Model::new(20_000, 500, 550)]);
    process.run(minutes(1));
    let mut up = Vec::new();
    for _ in 0..4 * 60 * 60 {
        process.models[0].cluster = if process.models[0].step.keeps_bodies() { 60_000 } else { 10_000 };
        if !process.models[0].step.keeps_bodies() {
            process.models[0].objects = process.models[0].objects.min(10_000);
        }
        let from = process.changes.len();
        process.tick();
        let improved = process.changes[from..].iter().any(|(_, change)| change.to < change.from);
        if improved {
            up.push(process.now - process.began);
        }
    }
    let waits: Vec<_> = up.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_secs()).collect();
    assert!(waits.len() >= 3 && waits.windows(2).all(|pair| pair[1] >= pair[0] * 3 / 2), "{waits:?}");
}

#[test]
fn governor_uses_accounted_memory_if_resident_is_unknown() {
    let mut governor = Governor::new(Pace::default());
    let mut model = Model::new(100_000, 500, 550);
    (model.objects, model.bodies) = (100_000, 100_000);
    let usages = BTreeMap::from([(0, model.usage())]);
    let reading = Reading { now: clock::now(), limit: Some(128 * MIB), resident: None, usages: &usages, jitter: 0.0 };
    let decision = governor.evaluate(&reading);
    assert_eq!(decision.changes.last().unwrap().to, Heads);
    assert!(decision.report.headroom < 0);
}

fn model() -> impl Strategy<Value = Model> {
    // The size of a head varies around the governor's estimate, which is the same for all.
    (0_u64..150_000, 50_u64..3_000, 350_u64..900).prop_map(|(cluster, body, head)| Model::new(cluster, body, head))
}

proptest! {
    #![proptest_config(properties(64))]

    #[test]
    fn governor_keeps_the_limit_and_the_order_and_does_not_flap(
        models in prop::collection::vec(model(), 1..6),
        limit in 64_u64..400,
        lowered in 64_u64..400,
    ) {
        let mut process = Process::new(25 * MIB, limit * MIB, models);
        process.run(minutes(2));
        process.limit = Some(limit.min(lowered) * MIB);
        process.run(minutes(3));
        let limit = limit.min(lowered) * MIB;
        prop_assert!(process.resident() <= limit, "{} of {limit}, {:?}", process.resident(), process.steps());
        for (_, change) in &process.changes {
            if change.to > change.from {
                prop_assert_eq!(change.from.worse(), Some(change.to), "a step at a time: {:?}", change);
            }
        }
        // In a steady state, an informer is degraded only if it would exceed an equal share otherwise.
        let settled = process.changes.len();
        let over: Vec<_> = (0..240 * 10).filter(|_| {
            process.tick();
            process.resident() > limit
        }).collect();
        prop_assert!(over.is_empty(), "it passes the limit {} times: {:?}", over.len(), process.changes);
        let flaps = process.changes.len() - settled;
        prop_assert!(flaps <= 12 * process.models.len(), "{flaps} changes in ten minutes: {:?}", &process.changes[settled..]);
        let equal = (limit * 85 / 100).saturating_sub(25 * MIB) / process.models.len() as u64;
        for (at, model) in process.models.iter().enumerate() {
            let needs = model.cluster * (HEAVIEST.max(model.head) + model.body * 11 / 10);
            let touched = process.changes.iter().any(|(_, change)| change.id == at);
            // If heads are far heavier than estimated, other informers may be degraded too.
            let is_fair = !touched || needs > equal * 3 / 4 || process.models.iter().any(|model| model.head > HEAVIEST * 5 / 4);
            prop_assert!(is_fair, "{at} needs {needs} of {equal} and was touched: {:?}", process.changes);
        }
    }
}

/// Bytes that the governor assumes for an object without its body.
const HEAVIEST: u64 = 560;
