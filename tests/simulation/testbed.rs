//! Simulated environment that outlives the hub: clusters, disk, readers, receivers, event recording.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use informer_hub_sim::{Churn, PipedCluster, SimConfig, SimDisk, Streaming, World, WorldConfig};
use informer_hub_types::clock;
use jiff::Timestamp;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use crate::api_reader::{self, ApiReader};
use crate::plan::Plan;
use crate::reader::{Reader, ReaderBehaviour};
use crate::receiver::{Limits, Receiver, ReceiverBehaviour};

/// The hub's state directory on the simulated disk.
pub(crate) const STATE: &str = "/state";

/// Recording of the events of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recording {
    /// Discarded.
    Off,
    /// Kept in memory.
    Kept,
    /// Printed to standard error.
    Printed,
}

/// Environment of one simulation.
pub(crate) struct Testbed {
    pub(crate) plan: Plan,
    pub(crate) clusters: BTreeMap<String, PipedCluster>,
    pub(crate) disk: SimDisk,
    pub(crate) readers: Vec<Arc<Reader>>,
    pub(crate) receivers: Vec<Arc<Receiver>>,
    /// Readers of the Kubernetes read API.
    pub(crate) api_readers: Vec<Arc<ApiReader>>,
    /// Label `tier` of the clusters that have it.
    pub(crate) tiers: Mutex<BTreeMap<String, String>>,
    rng: Mutex<StdRng>,
    churns: Mutex<BTreeMap<String, Churn>>,
    events: Mutex<Vec<String>>,
    wall: Mutex<Timestamp>,
    /// Clusters whose delivered events are all on disk, so the next configuration may omit them.
    pub(crate) saved: Mutex<BTreeSet<String>>,
    recording: Recording,
    /// Bytes that runs have allocated and not freed.
    pub(crate) net: Arc<AtomicI64>,
}

impl Testbed {
    pub(crate) fn new(plan: Plan, recording: Recording) -> Arc<Self> {
        let (seed, mut rng) = (plan.seed, plan.rng.clone());
        let history = if plan.has_small_journals() { 100_000 } else { 200 };
        let mut cluster = |i| {
            let (seed, pods) = (seed.wrapping_mul(31).wrapping_add(i), plan.pods);
            let world = WorldConfig { seed, pods, small: true, history, ..WorldConfig::default() };
            let streaming = [Streaming::Supported, Streaming::Supported, Streaming::Refused, Streaming::Ignored];
            let streaming = streaming[rng.random_range(0..streaming.len())];
            let config = plan.wire.serve(SimConfig { world, streaming, ..SimConfig::default() });
            (format!("c{i}"), PipedCluster::new(config))
        };
        let clusters: BTreeMap<_, _> = (0..plan.clusters).map(&mut cluster).collect();
        let churns = clusters.keys().zip(seed..).map(|(name, seed)| (name.clone(), Churn::new(seed))).collect();
        if recording == Recording::Printed {
            println!("{plan:?}");
        }
        let receivers = ["audit", "alerts"].into_iter().zip(&plan.limits);
        let receiver = |(name, limits): (_, &Limits)| Arc::new(Receiver::new(name, *limits, plan.gives_up()));
        let receivers = receivers.map(receiver).collect();
        let durable: &[&str] = if plan.has_state { &["steady", "moody", "fickle"] } else { &[] };
        Arc::new(Self {
            clusters,
            receivers,
            disk: SimDisk::new(seed),
            readers: durable.iter().map(|name| Arc::new(Reader::new(name))).collect(),
            api_readers: api_reader::readers(seed, plan.clusters),
            tiers: Mutex::default(),
            rng: Mutex::new(rng),
            churns: Mutex::new(churns),
            events: Mutex::default(),
            wall: Mutex::new(Timestamp::UNIX_EPOCH + Duration::from_secs(1_800_000_000)),
            saved: Mutex::default(),
            plan,
            recording,
            net: Arc::default(),
        })
    }

    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.rng.lock())
    }

    /// Records an event with its time.
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.recording == Recording::Off {
            return;
        }
        let line = format!("{} {}", clock::wall(), what());
        match self.recording {
            // Not `eprintln!`, whose output the test harness keeps in memory.
            Recording::Printed => drop(writeln!(io::stderr(), "{line}")),
            _ => self.events.lock().push(line),
        }
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.events.lock().clone()
    }

    pub(crate) fn wall(&self) -> Timestamp {
        *self.wall.lock()
    }

    pub(crate) fn set_wall(&self, time: Timestamp) {
        *self.wall.lock() = time;
    }

    /// Changes a few objects of a cluster.
    pub(crate) fn churn(&self, name: &str, steps: usize) {
        let mut churns = self.churns.lock();
        let Some(churn) = churns.get_mut(name) else { return };
        self.clusters[name].with_world(|world| {
            for _ in 0..steps {
                let operation = churn.step(world);
                self.note(|| format!("{name}: {operation:?} at {}", world.version()));
            }
        });
    }

    /// Returns the name of a random cluster.
    pub(crate) fn any_cluster(&self) -> &str {
        let at = self.random(|rng| rng.random_range(0..self.clusters.len()));
        self.clusters.keys().nth(at).map_or("", String::as_str)
    }

    /// Makes one random change: to objects, faults, connections, readers, receivers or the disk.
    pub(crate) fn random_step(&self) {
        match self.random(|rng| rng.random_range(0..100)) {
            0..65 => {
                let steps = self.random(|rng| if rng.random_bool(0.05) { 100 } else { rng.random_range(1..5) });
                self.churn(self.any_cluster(), steps);
            }
            65..70 if !self.plan.has_small_journals() => {
                let name = self.any_cluster();
                self.note(|| format!("{name}: compacted"));
                self.clusters[name].with_world(World::compact);
            }
            70..80 => {
                let (name, seed) = (self.any_cluster(), self.random(Rng::random));
                self.note(|| format!("{name}: faults"));
                self.clusters[name].set_faults(self.plan.wire.faults(seed, self.plan.faults));
            }
            80..85 => {
                let (name, stays) = (self.any_cluster(), self.random(|rng| rng.random_bool(0.5)));
                self.note(|| format!("{name}: cut, stays down: {stays}"));
                self.clusters[name].stop();
                if !stays {
                    self.clusters[name].restart();
                }
            }
            85..88 => self.clusters.values().for_each(PipedCluster::restart),
            88..92 => self.change_reader(),
            92..95 => self.change_receiver(),
            _ => self.change_disk(),
        }
    }

    fn change_reader(&self) {
        if self.readers.is_empty() {
            return;
        }
        // The first reader never fails.
        let reader = &self.readers[self.random(|rng| rng.random_range(1..self.readers.len()))];
        let behaviour = self.random(|rng| match rng.random_range(0..6) {
            0 | 1 => ReaderBehaviour::Good,
            2 => ReaderBehaviour::Flaky(rng.random_range(0.05..0.9)),
            3 => ReaderBehaviour::Slow(Duration::from_millis(rng.random_range(1..3000))),
            4 => ReaderBehaviour::Silent,
            _ => ReaderBehaviour::Refusing,
        });
        self.note(|| format!("{}: {behaviour:?}", reader.name));
        *reader.behaviour.lock() = behaviour;
    }

    fn change_receiver(&self) {
        if self.receivers.is_empty() {
            return;
        }
        let receiver = &self.receivers[self.random(|rng| rng.random_range(0..self.receivers.len()))];
        if *receiver.behaviour.lock() == ReceiverBehaviour::DownForRun {
            return;
        }
        let behaviour = self.random(|rng| match rng.random_range(0..8) {
            0 | 1 => ReceiverBehaviour::Good,
            2 => ReceiverBehaviour::Slow(Duration::from_millis(rng.random_range(1..3000))),
            3 => ReceiverBehaviour::Silent,
            4 => ReceiverBehaviour::Failing(rng.random_range(0.1..1.0)),
            5 => ReceiverBehaviour::Busy(rng.random_range(0.1..1.0)),
            6 => ReceiverBehaviour::Cutting(rng.random_range(0.1..1.0)),
            _ => ReceiverBehaviour::Down,
        });
        self.note(|| format!("{}: {behaviour:?}", receiver.name));
        *receiver.behaviour.lock() = behaviour;
    }

    /// Starts a run, during all of which some receivers may be down.
    pub(crate) fn start_run(&self) {
        for receiver in &self.receivers {
            let was_down = *receiver.behaviour.lock() == ReceiverBehaviour::DownForRun;
            let behaviour = match self.random(|rng| rng.random_bool(0.1)) {
                true => ReceiverBehaviour::DownForRun,
                false if was_down => ReceiverBehaviour::Good,
                false => continue,
            };
            self.note(|| format!("{}: {behaviour:?}", receiver.name));
            *receiver.behaviour.lock() = behaviour;
        }
    }

    fn change_disk(&self) {
        let (bad, room) = self.random(|rng| (rng.random_bool(0.5), rng.random_range(0..200_000)));
        let full = self.random(|rng| rng.random_bool(0.5) && self.plan.fills_up).then(|| self.disk.bytes() + room);
        let rate = if bad { self.plan.bad_disk } else { 0.0 };
        self.note(|| format!("disk: fail rate {rate}, capacity {full:?}"));
        self.disk.set_fail_rate(rate);
        self.disk.set_capacity(full);
    }

    pub(crate) fn repair_disk(&self) {
        self.disk.set_fail_rate(0.0);
        self.disk.set_lost_sync_rate(0.0);
        self.disk.set_capacity(None);
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        self.note(|| "all faults end".to_owned());
        self.repair_disk();
        for cluster in self.clusters.values() {
            cluster.heal();
            cluster.restart();
        }
        for reader in &self.readers {
            *reader.behaviour.lock() = ReaderBehaviour::Good;
        }
        for receiver in &self.receivers {
            *receiver.behaviour.lock() = ReceiverBehaviour::Good;
            *receiver.limits.lock() = Limits::default();
        }
    }

    /// Returns the names of all readers and receivers with a journal.
    pub(crate) fn journals(&self) -> impl Iterator<Item = &'static str> {
        self.readers.iter().map(|reader| reader.name).chain(self.receivers.iter().map(|receiver| receiver.name))
    }

    /// Returns the files of a reader's journal with their sizes.
    pub(crate) fn files_of(&self, reader: &str) -> Vec<(PathBuf, u64)> {
        let dir = Path::new(STATE).join("sinks").join(reader).join("journal");
        self.disk.files().into_iter().filter(|(path, _)| path.starts_with(&dir)).collect()
    }
}
