//! Simulation of collectors that contend for partitions, and of readers, over a faulty log. A seed decides everything.
//!
//! Collectors are granted partitions while their predecessors still write. They are paused, killed and cut off. The log
//! fails, forgets and is deleted. At the end the faults stop, and every reader must hold the clusters' objects.

mod cluster;
mod collector;
mod follower;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

use informer_hub_types::rng::{SeededRng, rng};
use informer_hub_types::{ClusterName, Gvr};
use rand::Rng;
use rand::rngs::StdRng;

use crate::simulated_log::{Faults, SimulatedLog};
use crate::{Header, Partition, Record, ResetReason, unpack};

use cluster::{Event, SimulatedCluster};
use collector::SimulatedCollector;
use follower::Follower;

/// Checkpoints by partition.
type Checkpoints = Rc<RefCell<HashMap<Partition, Vec<u8>>>>;

/// Newest epoch of each partition, as the bucket of owners holds it.
type Epochs = Rc<RefCell<HashMap<Partition, u64>>>;

const COLLECTORS: usize = 3;
const STEPS: usize = 120;

#[derive(Default, Debug)]
struct Totals {
    entries: usize,
    takeovers: u64,
    fenced: usize,
    restarts: usize,
    gaps: usize,
    deletions: usize,
    exact: usize,
}

struct World {
    rng: StdRng,
    now: Duration,
    log: SimulatedLog,
    clusters: BTreeMap<Partition, SimulatedCluster>,
    epochs: Epochs,
    collectors: Vec<SimulatedCollector>,
    paused: [Duration; COLLECTORS],
    owners: HashMap<Partition, usize>,
    followers: Vec<Follower>,
    checkpoints: Checkpoints,
    /// Whether the log may lose entries in this run.
    forgets: bool,
    fenced: usize,
}

impl World {
    fn new() -> Self {
        let mut rng = rng();
        let faults = Faults {
            lost_request: 0.05,
            lost_answer: 0.08,
            doubled: 0.08,
            failed: 0.05,
            outdated: 0.05,
            delay: Duration::from_millis(if rng.random_bool(0.5) { 5 } else { 400 }),
        };
        let log = SimulatedLog::new(faults);
        let partitions: Vec<_> = (0..rng.random_range(1..4))
            .map(|at| Partition {
                cluster: ClusterName::new(format!("c{}", at / 2)).unwrap(),
                resource: Gvr::new("", "v1", ["pods", "nodes"][at % 2]),
                selection: 0,
            })
            .collect();
        let checkpoints = Checkpoints::default();
        let epochs = Epochs::default();
        let collector = |at| SimulatedCollector::new(at, &log, &checkpoints, &epochs);
        Self {
            now: Duration::ZERO,
            clusters: partitions.iter().map(|partition| (partition.clone(), SimulatedCluster::default())).collect(),
            epochs: Epochs::clone(&epochs),
            collectors: (0..COLLECTORS).map(collector).collect(),
            paused: [Duration::ZERO; COLLECTORS],
            owners: HashMap::new(),
            followers: (0..2).map(|_| Follower::new(&log, &checkpoints)).collect(),
            forgets: rng.random_bool(0.4),
            fenced: 0,
            checkpoints,
            log,
            rng,
        }
    }

    /// Makes the collector with index `to` the owner of a partition. The former owner is not notified.
    fn grant(&mut self, partition: &Partition, to: usize) {
        let epoch = self.epochs.borrow().get(partition).copied().unwrap_or(0) + 1;
        self.epochs.borrow_mut().insert(partition.clone(), epoch);
        self.collectors[to].take_over(partition, epoch);
        self.owners.insert(partition.clone(), to);
    }

    fn partition(&mut self) -> Partition {
        let at = self.rng.random_range(0..self.clusters.len());
        self.clusters.keys().nth(at).unwrap().clone()
    }

    fn replace(&mut self, collector: usize) {
        // A new process has a new connection; requests of the old one may still arrive.
        self.collectors[collector] = SimulatedCollector::new(collector, &self.log, &self.checkpoints, &self.epochs);
    }

    fn disturb(&mut self) {
        let collector = self.rng.random_range(0..COLLECTORS);
        match self.rng.random_range(0..40) {
            0 => self.replace(collector),
            1 => self.paused[collector] = self.now + Duration::from_millis(self.rng.random_range(1..3000)),
            2 => self.collectors[collector].client.set_cut_off(true),
            3..6 => self.collectors[collector].client.set_cut_off(false),
            6 => self.log.set_down(true),
            7..10 => self.log.set_down(false),
            10..14 => {
                let partition = self.partition();
                self.grant(&partition, collector);
            }
            14 => {
                let reader = self.rng.random_range(0..self.followers.len());
                self.followers[reader].restart();
            }
            15 if self.forgets => {
                let bytes = self.rng.random_range(100..2000);
                self.log.set_retention(bytes, Duration::from_millis(self.rng.random_range(50..4000)));
            }
            16 if self.forgets && self.rng.random_bool(0.3) => self.log.recreate(),
            17 => {
                let partition = self.partition();
                self.collectors[collector].expire_watch(&partition);
            }
            18 => self.followers[0].checkpoint(),
            _ => {}
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.rng.random_range(1..20));
        for cluster in self.clusters.values_mut() {
            cluster.churn(&mut self.rng);
        }
        self.run(0.01);
    }

    fn run(&mut self, checkpoints: f64) {
        self.log.advance(self.now);
        for (at, collector) in self.collectors.iter_mut().enumerate() {
            if self.now >= self.paused[at] {
                self.fenced += collector.run(self.now, &self.clusters, checkpoints, &mut self.rng);
            }
        }
        for follower in &mut self.followers {
            follower.run(&mut self.rng);
        }
    }

    /// Ends all faults and runs until every reader holds the clusters' objects.
    fn settle(&mut self) {
        self.log.set_faults(Faults::NONE);
        self.log.set_down(false);
        self.log.set_retention(usize::MAX, Duration::MAX);
        self.paused = [Duration::ZERO; COLLECTORS];
        for collector in &self.collectors {
            collector.client.set_cut_off(false);
        }
        let partitions: Vec<_> = self.clusters.keys().cloned().collect();
        for round in 0..2000 {
            // The coordinator finds clusters without a working owner.
            for partition in &partitions {
                let owner = self.owners.get(partition).copied();
                if round % 100 == 0 && owner.is_none_or(|at| !self.collectors[at].owns(partition)) {
                    let to = self.rng.random_range(0..COLLECTORS);
                    self.grant(partition, to);
                }
            }
            self.now += Duration::from_millis(20);
            self.run(0.1);
            // Objects alone do not show whether an object that was added and deleted is missing: compare versions too.
            let synced = |follower: &Follower| {
                self.clusters.iter().all(|(partition, cluster)| {
                    follower.reached(partition) >= Some(cluster.version())
                        && follower.objects(partition) == cluster.objects()
                })
            };
            if self.followers.iter().all(synced) {
                return;
            }
        }
        for (partition, cluster) in &self.clusters {
            for follower in &self.followers {
                assert_eq!(
                    follower.objects(partition),
                    cluster.objects(),
                    "{partition}: {:?}",
                    follower.state(partition)
                );
            }
        }
    }

    /// Verifies all entries ever stored, retained or not: the order of their epochs, and that resumed watches repeat
    /// and omit no event.
    fn verify_log(&self, totals: &mut Totals) {
        let mut newest: HashMap<Partition, u64> = HashMap::new();
        let mut changes: HashMap<Partition, Vec<Event>> = HashMap::new();
        let mut restarts: HashMap<Partition, usize> = HashMap::new();
        let mut relists: HashMap<Partition, usize> = HashMap::new();
        let mut listed: HashMap<Partition, u64> = HashMap::new();
        for entry in self.log.history() {
            let (header, body) = Header::decode(&entry.payload).unwrap();
            let epoch = newest.entry(entry.partition.clone()).or_default();
            // A late claim of an emptied partition is stored, but no further entry of its epoch.
            let late_claim = self.forgets && header.number == 0;
            assert!(header.epoch >= *epoch || late_claim, "epoch {} after {epoch} in {entry:?}", header.epoch);
            assert!(header.epoch <= *epoch || header.number == 0, "an epoch begins with its owner: {entry:?}");
            *epoch = header.epoch.max(*epoch);
            totals.entries += 1;
            assert!(!header.continues, "the batches of this simulation are small");
            for record in unpack(&body).unwrap() {
                let partition = entry.partition.clone();
                match record {
                    Record::Reset { reason: ResetReason::Restart } => *restarts.entry(partition).or_default() += 1,
                    Record::Reset { .. } => *relists.entry(partition).or_default() += 1,
                    Record::Progress { version } => {
                        let version = version.as_number().unwrap();
                        listed.entry(partition).or_insert(version);
                    }
                    record if listed.contains_key(&partition) => {
                        changes.entry(partition).or_default().extend(Event::of_record(&record));
                    }
                    _ => {}
                }
            }
        }
        totals.restarts += restarts.values().sum::<usize>();
        for (partition, cluster) in &self.clusters {
            // Resumed watches repeat nothing and omit nothing, whatever the owners went through.
            if restarts.get(partition) == Some(&1) && !relists.contains_key(partition) {
                let expected = cluster.events.iter().filter(|event| event.version > listed[partition]);
                let found = changes.get(partition).map_or(&[][..], |all| all);
                let differing = expected.clone().zip(found).find(|(expected, found)| expected != found);
                assert_eq!(differing, None, "expected and found");
                assert_eq!(expected.count(), found.len(), "events of {partition}");
                totals.exact += 1;
            }
        }
    }
}

fn simulate(seed: u64, totals: &mut Totals) {
    let _seeded = SeededRng::new(seed);
    let mut world = World::new();
    for partition in world.clusters.keys().cloned().collect::<Vec<_>>() {
        let to = world.rng.random_range(0..COLLECTORS);
        world.grant(&partition, to);
    }
    for _ in 0..STEPS {
        world.disturb();
        world.step();
    }
    world.settle();
    world.verify_log(totals);
    totals.takeovers += world.epochs.borrow().values().sum::<u64>();
    totals.fenced += world.fenced;
    totals.gaps += world.followers.iter().map(|follower| follower.gaps).sum::<usize>();
    totals.deletions += world.followers.iter().map(|follower| follower.deletions).sum::<usize>();
    for follower in &world.followers {
        assert!(follower.stale == 0 || world.forgets, "no entry of an old epoch is in the log");
    }
}

#[test]
fn contending_collectors_lose_and_double_nothing() {
    let mut totals = Totals::default();
    for seed in informer_hub_testing::seeds(0..u64::from(informer_hub_testing::cases(1000))) {
        simulate(seed, &mut totals);
    }
    println!("{totals:?}");
    if informer_hub_testing::replayed().is_none() {
        // The simulation reaches the cases that it is for.
        assert!(totals.fenced > 100 && totals.gaps > 100 && totals.restarts > 100 && totals.exact > 100, "{totals:?}");
    }
}
