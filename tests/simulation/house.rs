//! What outlives the hub: clusters, disk, readers, and who remembers what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use informer_hub_sim::{Churn, FaultScript, PipedCluster, SimConfig, SimDisk, Streaming, World, WorldConfig};
use informer_hub_types::clock;
use jiff::Timestamp;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use crate::plan::Plan;
use crate::reader::{Mood, Reader};
use crate::receiver::{Manners, Receiver, Taste};

/// Where the hub keeps its state on the simulated disk.
pub(crate) const STATE: &str = "/state";

/// Who hears of what happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ears {
    /// Nobody.
    Deaf,
    /// It is written down.
    Diary,
    /// It is printed.
    Aloud,
}

pub(crate) struct House {
    pub(crate) plan: Plan,
    pub(crate) clusters: BTreeMap<String, PipedCluster>,
    pub(crate) disk: SimDisk,
    pub(crate) readers: Vec<Arc<Reader>>,
    pub(crate) receivers: Vec<Arc<Receiver>>,
    rng: Mutex<StdRng>,
    churns: Mutex<BTreeMap<String, Churn>>,
    diary: Mutex<Vec<String>>,
    wall: Mutex<Timestamp>,
    /// Clusters of which the disk has all that readers were told: the next hub may be without them.
    pub(crate) put_away: Mutex<BTreeSet<String>>,
    ears: Ears,
    /// Bytes that lives have allocated and not freed.
    pub(crate) net: Arc<AtomicI64>,
}

impl House {
    pub(crate) fn new(plan: Plan, ears: Ears) -> Arc<Self> {
        let (seed, mut rng) = (plan.seed, plan.rng.clone());
        let history = if plan.is_tight() { 100_000 } else { 200 };
        let mut cluster = |i| {
            let (seed, pods) = (seed.wrapping_mul(31).wrapping_add(i), plan.pods);
            let world = WorldConfig { seed, pods, small: true, history, ..WorldConfig::default() };
            let streaming = [Streaming::Supported, Streaming::Supported, Streaming::Refused, Streaming::Ignored];
            let streaming = streaming[rng.random_range(0..streaming.len())];
            (format!("c{i}"), PipedCluster::new(SimConfig { world, streaming, ..SimConfig::default() }))
        };
        let clusters: BTreeMap<_, _> = (0..plan.clusters).map(&mut cluster).collect();
        let churns = clusters.keys().zip(seed..).map(|(name, seed)| (name.clone(), Churn::new(seed))).collect();
        if ears == Ears::Aloud {
            println!("{plan:?}");
        }
        let receivers = ["audit", "alerts"].into_iter().zip(&plan.tastes);
        let receivers = receivers.map(|(name, taste)| Arc::new(Receiver::new(name, *taste))).collect();
        Arc::new(Self {
            clusters,
            receivers,
            disk: SimDisk::new(seed),
            readers: ["steady", "moody", "fickle"].map(|name| Arc::new(Reader::new(name))).into(),
            rng: Mutex::new(rng),
            churns: Mutex::new(churns),
            diary: Mutex::default(),
            wall: Mutex::new(Timestamp::UNIX_EPOCH + Duration::from_secs(1_800_000_000)),
            put_away: Mutex::default(),
            plan,
            ears,
            net: Arc::default(),
        })
    }

    pub(crate) fn chance<T>(&self, roll: impl FnOnce(&mut StdRng) -> T) -> T {
        roll(&mut self.rng.lock())
    }

    /// Notes something in the diary, with the time.
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.ears == Ears::Deaf {
            return;
        }
        let line = format!("{} {}", clock::wall(), what());
        match self.ears {
            // Not what the harness would keep in memory until the end.
            Ears::Aloud => drop(writeln!(io::stderr(), "{line}")),
            _ => self.diary.lock().push(line),
        }
    }

    pub(crate) fn diary(&self) -> Vec<String> {
        self.diary.lock().clone()
    }

    pub(crate) fn wall(&self) -> Timestamp {
        *self.wall.lock()
    }

    pub(crate) fn set_wall(&self, time: Timestamp) {
        *self.wall.lock() = time;
    }

    /// Does a few things to a cluster's objects.
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

    /// One of the clusters.
    pub(crate) fn any_cluster(&self) -> &str {
        let at = self.chance(|rng| rng.random_range(0..self.clusters.len()));
        self.clusters.keys().nth(at).map_or("", String::as_str)
    }

    /// Something goes wrong, or well again, or just on.
    pub(crate) fn happen(&self) {
        match self.chance(|rng| rng.random_range(0..100)) {
            0..65 => {
                let steps = self.chance(|rng| if rng.random_bool(0.05) { 100 } else { rng.random_range(1..5) });
                self.churn(self.any_cluster(), steps);
            }
            65..70 if !self.plan.is_tight() => {
                let name = self.any_cluster();
                self.note(|| format!("{name}: compacted"));
                self.clusters[name].with_world(World::compact);
            }
            70..80 => {
                let (name, seed) = (self.any_cluster(), self.chance(Rng::random));
                self.note(|| format!("{name}: faults"));
                self.clusters[name].set_faults(FaultScript::seeded(seed, self.plan.faults));
            }
            80..85 => {
                let (name, stays) = (self.any_cluster(), self.chance(|rng| rng.random_bool(0.5)));
                self.note(|| format!("{name}: cut, stays down: {stays}"));
                self.clusters[name].stop();
                if !stays {
                    self.clusters[name].restart();
                }
            }
            85..88 => self.clusters.values().for_each(PipedCluster::restart),
            88..92 => self.change_a_mood(),
            92..95 => self.change_manners(),
            _ => self.change_the_disk(),
        }
    }

    fn change_a_mood(&self) {
        // The first is always good.
        let reader = &self.readers[self.chance(|rng| rng.random_range(1..self.readers.len()))];
        let mood = self.chance(|rng| match rng.random_range(0..6) {
            0 | 1 => Mood::Good,
            2 => Mood::Moody(rng.random_range(0.05..0.9)),
            3 => Mood::Slow(Duration::from_millis(rng.random_range(1..3000))),
            4 => Mood::Mute,
            _ => Mood::Dead,
        });
        self.note(|| format!("{}: {mood:?}", reader.name));
        *reader.mood.lock() = mood;
    }

    fn change_manners(&self) {
        if self.receivers.is_empty() {
            return;
        }
        let receiver = &self.receivers[self.chance(|rng| rng.random_range(0..self.receivers.len()))];
        if *receiver.manners.lock() == Manners::Gone {
            return;
        }
        let manners = self.chance(|rng| match rng.random_range(0..8) {
            0 | 1 => Manners::Good,
            2 => Manners::Late(Duration::from_millis(rng.random_range(1..3000))),
            3 => Manners::Mute,
            4 => Manners::Failing(rng.random_range(0.1..1.0)),
            5 => Manners::Busy(rng.random_range(0.1..1.0)),
            6 => Manners::Cutting(rng.random_range(0.1..1.0)),
            _ => Manners::Away,
        });
        self.note(|| format!("{}: {manners:?}", receiver.name));
        *receiver.manners.lock() = manners;
    }

    /// A life begins, of which some receiver may see nothing at all.
    pub(crate) fn begin_a_life(&self) {
        for receiver in &self.receivers {
            let was_gone = *receiver.manners.lock() == Manners::Gone;
            let manners = match self.chance(|rng| rng.random_bool(0.1)) {
                true => Manners::Gone,
                false if was_gone => Manners::Good,
                false => continue,
            };
            self.note(|| format!("{}: {manners:?}", receiver.name));
            *receiver.manners.lock() = manners;
        }
    }

    fn change_the_disk(&self) {
        let (bad, room) = self.chance(|rng| (rng.random_bool(0.5), rng.random_range(0..200_000)));
        let full = self.chance(|rng| rng.random_bool(0.5) && self.plan.fills_up).then(|| self.disk.bytes() + room);
        let rate = if bad { self.plan.bad_disk } else { 0.0 };
        self.note(|| format!("disk: fails {rate}, room until {full:?}"));
        self.disk.set_fail_rate(rate);
        self.disk.set_capacity(full);
    }

    pub(crate) fn mend_the_disk(&self) {
        self.disk.set_fail_rate(0.0);
        self.disk.set_lie_rate(0.0);
        self.disk.set_capacity(None);
    }

    /// All is well from now on.
    pub(crate) fn heal(&self) {
        self.note(|| "all is well".to_owned());
        self.mend_the_disk();
        for cluster in self.clusters.values() {
            cluster.heal();
            cluster.restart();
        }
        for reader in &self.readers {
            *reader.mood.lock() = Mood::Good;
        }
        for receiver in &self.receivers {
            *receiver.manners.lock() = Manners::Good;
            *receiver.taste.lock() = Taste::default();
        }
    }

    /// Everybody who is told from a journal.
    pub(crate) fn journals(&self) -> impl Iterator<Item = &'static str> {
        self.readers.iter().map(|reader| reader.name).chain(self.receivers.iter().map(|receiver| receiver.name))
    }

    /// The files of a reader's journal, with their bytes.
    pub(crate) fn files_of(&self, reader: &str) -> Vec<(PathBuf, u64)> {
        let dir = Path::new(STATE).join("sinks").join(reader).join("journal");
        self.disk.files().into_iter().filter(|(path, _)| path.starts_with(&dir)).collect()
    }
}
