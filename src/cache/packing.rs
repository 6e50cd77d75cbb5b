//! Compression of a resource's bodies: dictionary training, and repacking of packed bodies.
//!
//! Common kinds begin with a built-in dictionary if it suits their first objects, so that nothing is trained during the
//! first list. Once the resource is idle, a dictionary is trained on its own objects, and replaces the built-in one if
//! it is clearly better. Without a suitable built-in dictionary, one is trained on the first objects. If later objects
//! compress worse, the resource has changed (or its list began with an untypical namespace). Then a new dictionary is
//! trained on objects of the whole store. After a change of dictionaries, a sweep repacks old bodies, if they do not
//! grow. A sweep also empties chunks (blocks of packed bodies) with over a third of dead bytes: those of replaced or
//! deleted bodies.
//!
//! A dictionary consists of parts of its samples, and is written to the state directory. Secrets and ConfigMaps
//! therefore have none: a value would outlive its object.
//!
//! Pure: the owner of the store runs the rounds on background threads, one at a time.

use std::sync::Arc;

use super::posting::PartitionId;
use super::snapshot::Snapshot;
use super::training::{encoding_of, is_of, suits, train, train_better};
use super::uncompressed::{Uncompressed, pack_with};
use informer_hub_dictionaries::{Encoding, Kind};
use informer_hub_types::{Dictionary, Gvr, ObjectKey, PackOutcome, PackedTotals, Packer, StoredObject};

/// Compression state of a resource.
#[derive(Debug)]
pub struct Packing {
    totals: Arc<PackedTotals>,
    fitness: Fitness,
    /// Progress of the current sweep, which repacks old bodies.
    sweep: Option<Sweep>,
    /// Number of dead bytes (of replaced or deleted bodies) at the start of the last sweep. [`Self::slice`] compares it
    /// with the number after the sweep, to decide whether another sweep is worthwhile. `None` if there is nothing to
    /// compare.
    swept_from: Option<usize>,
    /// Dead bytes (of replaced or deleted bodies) that the last sweep could not free, because old object states that
    /// are still referenced keep their chunks alive.
    out_of_reach: usize,
    trainings: u64,
    /// Packer of the last compression round. It is reused during a first list, whose rounds are too small to create a
    /// packer for each.
    packer: Option<Packer>,
}

/// Compression dictionary of a resource, and how well it compresses.
#[derive(Clone, Debug)]
enum Fitness {
    Untrained,
    /// Built-in dictionary of the kind.
    Builtin {
        /// Built-in dictionaries of the resource, one for each encoding (JSON, protobuf). Before the first body is
        /// packed, `dictionary` is set to the one for the encoding of most objects. `None` in tests.
        kind: Option<&'static Kind>,
        dictionary: Arc<Dictionary>,
        /// Uncompressed bytes of the bodies packed so far. While it is 0, a round first checks whether the dictionary
        /// suits the objects.
        packed: usize,
        /// Value of `packed` at which a dictionary of the resource's own objects is tried.
        trial_at: usize,
    },
    /// An empty dictionary, never trained: a trained one would have parts of confidential objects (Secrets,
    /// ConfigMaps).
    Confidential {
        dictionary: Arc<Dictionary>,
    },
    /// Training failed (too few or too different objects); retried after some rounds.
    Unfit {
        rounds: u32,
        /// An empty dictionary.
        dictionary: Arc<Dictionary>,
    },
    Trained {
        dictionary: Arc<Dictionary>,
        /// Compression ratio of the first bodies packed after the training.
        first: Ratio,
        /// Compression ratio of the latest bodies, compared with `first` to decide on a new training.
        last: Ratio,
    },
}

impl Fitness {
    /// Returns the compression state of a resource before its first object.
    fn initial(resource: &Gvr) -> Self {
        if is_confidential(resource) {
            return Self::Confidential { dictionary: Arc::new(Dictionary::none()) };
        }
        match Kind::of(resource) {
            Some(kind) => Self::builtin(Some(kind), kind.dictionary(Encoding::Protobuf)),
            None => Self::Untrained,
        }
    }

    fn builtin(kind: Option<&'static Kind>, dictionary: Arc<Dictionary>) -> Self {
        Self::Builtin { kind, dictionary, packed: 0, trial_at: Packing::TRIAL_BYTES }
    }

    fn unfit() -> Self {
        Self::Unfit { rounds: 0, dictionary: Arc::new(Dictionary::none()) }
    }

    fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        match self {
            Self::Untrained => None,
            Self::Builtin { dictionary, .. }
            | Self::Confidential { dictionary }
            | Self::Unfit { dictionary, .. }
            | Self::Trained { dictionary, .. } => Some(dictionary),
        }
    }
}

/// Progress of a sweep, which repacks old bodies in slices. The next slice starts in `partition` after the key `after`,
/// or at the partition's first object if `after` is `None`.
#[derive(Clone, Debug)]
struct Sweep {
    partition: PartitionId,
    after: Option<ObjectKey>,
    /// Whether the sweep repacks all bodies that another dictionary compressed. If false, it repacks only bodies in
    /// sparse chunks (blocks with many dead bytes).
    migrates: bool,
}

/// Bytes of bodies before and after compression.
#[derive(Clone, Copy, Debug, Default)]
struct Ratio {
    plain: usize,
    packed: usize,
}

impl Ratio {
    /// Minimum uncompressed bytes for a meaningful compression ratio. These are the bytes of several rounds, since a
    /// single round may have packed similar objects only (neighbours in a list).
    const MIN_BYTES: usize = 1024 * 1024;

    fn add(&mut self, outcome: &PackOutcome) {
        self.plain += outcome.plain_bytes;
        self.packed += outcome.packed_bytes;
    }

    fn is_meaningful(&self) -> bool {
        self.plain >= Self::MIN_BYTES
    }

    /// Returns whether compression is over a fifth worse than in `first`, so that a new dictionary pays.
    fn is_worse_than(&self, first: &Self) -> bool {
        let (now, then) = (self.packed as u128 * first.plain as u128, first.packed as u128 * self.plain as u128);
        now * 5 > then * 6
    }
}

/// Returns whether objects of this resource may be secret, so that no dictionary is trained on them.
fn is_confidential(resource: &Gvr) -> bool {
    resource.group.is_empty() && ["secrets", "configmaps"].contains(&&*resource.resource)
}

/// One round of compression, which a background thread runs.
#[derive(Debug)]
pub struct Round {
    fitness: Fitness,
    samples: Option<Vec<Arc<StoredObject>>>,
    objects: Vec<Arc<StoredObject>>,
    totals: Arc<PackedTotals>,
    /// Whether bodies that another dictionary compressed are always compressed again, even if they become larger.
    replaces: bool,
    /// Packer of the previous round, if it was kept. Used again only if it has the same dictionary.
    packer: Option<Packer>,
    /// Whether the packer is kept for the next round.
    keeps_packer: bool,
}

/// Result of a round of compression.
#[derive(Debug)]
pub struct RoundOutcome {
    fitness: Fitness,
    trained: bool,
    outcome: PackOutcome,
    packer: Option<Packer>,
}

impl Packing {
    /// Number of compression rounds without a dictionary before its training is retried.
    const UNFIT_ROUNDS: u32 = 8;
    /// For one slice of a sweep (repacking of old bodies): the maximum number of objects to visit, and the maximum
    /// number of objects to repack.
    const SLICE: (usize, usize) = (8192, 256);
    /// Number of dead bytes (of replaced or deleted bodies) up to which no sweep is made to free them.
    const MIN_DEAD_BYTES: usize = 256 * 1024;
    /// Uncompressed bytes of packed bodies after which a resource with a built-in dictionary trains one on its own
    /// objects, for comparison.
    const TRIAL_BYTES: usize = 512 * 1024;
    /// Factor for a resource that is never idle: it trains a dictionary for comparison only after this many times
    /// `TRIAL_BYTES`.
    const BUSY: usize = 512;
    /// While a first list is read, uncompressed objects may take an eighth of the bytes of the packed bodies.
    const LIST_SHARE: usize = 8;
    /// Factor by which the uncompressed bytes of packed bodies must grow after a training that gave no better
    /// dictionary, before the next training.
    const NEXT_TRIAL: usize = 8;

    /// Creates the compression state of a resource without packed bodies.
    #[must_use]
    pub fn of(resource: &Gvr) -> Self {
        Self { fitness: Fitness::initial(resource), ..Self::new() }
    }

    /// Creates the compression state of a resource that begins with a dictionary as if it were built in.
    #[cfg(test)]
    #[must_use]
    pub fn with_builtin(dictionary: Arc<Dictionary>) -> Self {
        Self { fitness: Fitness::builtin(None, dictionary), ..Self::new() }
    }

    /// Creates the compression state of a resource without packed bodies and without a built-in dictionary.
    #[must_use]
    pub fn new() -> Self {
        Self {
            totals: Arc::default(),
            fitness: Fitness::Untrained,
            sweep: None,
            swept_from: None,
            out_of_reach: 0,
            trainings: 0,
            packer: None,
        }
    }

    /// Creates the compression state of a resource whose packed objects were restored from disk and counted in
    /// `totals`.
    #[must_use]
    pub fn restored(resource: &Gvr, dictionary: Option<Arc<Dictionary>>, totals: Arc<PackedTotals>) -> Self {
        let mut packing = Self { totals, ..Self::of(resource) };
        let Some(dictionary) = dictionary.filter(|dictionary| dictionary.size() > 0) else { return packing };
        packing.fitness = match packing.fitness {
            // An earlier version, which trained dictionaries on such objects, wrote the state directory.
            confidential @ Fitness::Confidential { .. } => {
                packing.sweep = Some(Sweep { partition: PartitionId(0), after: None, migrates: true });
                confidential
            }
            Fitness::Builtin { kind: Some(kind), .. } if is_of(kind, &dictionary) => {
                Fitness::builtin(Some(kind), dictionary)
            }
            _ => Fitness::Trained { dictionary, first: Ratio::default(), last: Ratio::default() },
        };
        packing
    }

    /// Returns the counters of packed bytes.
    #[must_use]
    pub fn totals(&self) -> &Arc<PackedTotals> {
        &self.totals
    }

    /// Returns the number of trained dictionaries.
    #[must_use]
    pub fn trainings(&self) -> u64 {
        self.trainings
    }

    /// Returns the limit in bytes on uncompressed objects while a first list is read. It grows with the packed bytes,
    /// so that large stores are packed in fewer rounds.
    #[must_use]
    pub fn list_limit(&self) -> usize {
        let lacks_samples = match &self.fitness {
            Fitness::Untrained | Fitness::Unfit { .. } => true,
            Fitness::Builtin { packed, .. } => *packed == 0,
            Fitness::Confidential { .. } | Fitness::Trained { .. } => false,
        };
        let lowest = if lacks_samples { Uncompressed::SAMPLES_LIMIT } else { Uncompressed::LIST_LIMIT };
        lowest.max(self.totals.live() / Self::LIST_SHARE)
    }

    /// Returns a round of work that packs (compresses) objects which are no longer recent. If training is due, it
    /// trains first: on new objects or, to replace a dictionary, on samples of new objects and of the whole store.
    #[must_use]
    pub fn round(&mut self, aged: Vec<Arc<StoredObject>>, uncompressed: &Uncompressed, snapshot: &Snapshot) -> Round {
        self.begin(aged, uncompressed, snapshot, false)
    }

    /// As [`Self::round`], for a resource that has not changed for a while. While the resource has a built-in
    /// dictionary, this trains one on the resource's own objects earlier than [`Self::round`] does.
    #[must_use]
    pub fn idle_round(
        &mut self,
        aged: Vec<Arc<StoredObject>>,
        uncompressed: &Uncompressed,
        snapshot: &Snapshot,
    ) -> Round {
        self.begin(aged, uncompressed, snapshot, true)
    }

    fn begin(
        &mut self,
        aged: Vec<Arc<StoredObject>>,
        uncompressed: &Uncompressed,
        snapshot: &Snapshot,
        is_idle: bool,
    ) -> Round {
        let is_due = match &self.fitness {
            Fitness::Untrained => true,
            Fitness::Confidential { .. } => false,
            Fitness::Builtin { packed, trial_at, .. } => {
                let at = if is_idle { *trial_at } else { trial_at.saturating_mul(Self::BUSY) };
                *packed == 0 || *packed >= at
            }
            Fitness::Unfit { rounds, .. } => *rounds >= Self::UNFIT_ROUNDS,
            Fitness::Trained { first, last, .. } => last.is_meaningful() && last.is_worse_than(first),
        };
        let samples = is_due.then(|| {
            let mut samples = uncompressed.samples();
            samples.extend(aged.iter().cloned());
            if matches!(self.fitness, Fitness::Builtin { .. } | Fitness::Trained { .. }) {
                // Half of the samples are new objects, which may be few; half are of the whole store.
                let half = Uncompressed::SAMPLES / 2;
                samples = every(samples.len().div_ceil(half), samples.iter());
                let all = snapshot.partitions().flat_map(|(_, partition)| partition.iter().filter(|it| it.is_kept()));
                samples.extend(every(snapshot.len().div_ceil(half), all));
            }
            samples
        });
        let packer = self.packer.take();
        Round { packer, keeps_packer: uncompressed.is_listing(), ..self.work(samples, aged) }
    }

    fn work(&self, samples: Option<Vec<Arc<StoredObject>>>, objects: Vec<Arc<StoredObject>>) -> Round {
        let replaces = matches!(self.fitness, Fitness::Confidential { .. });
        let (fitness, totals) = (self.fitness.clone(), Arc::clone(&self.totals));
        Round { fitness, samples, objects, totals, replaces, packer: None, keeps_packer: false }
    }

    /// Records the result of a round; `None` if it panicked, which leaves its objects unchanged.
    pub fn finished(&mut self, outcome: Option<RoundOutcome>) {
        let Some(RoundOutcome { fitness, trained, outcome, packer }) = outcome else { return };
        let had_one = match self.fitness {
            Fitness::Builtin { packed, .. } => packed > 0,
            Fitness::Unfit { .. } | Fitness::Trained { .. } => true,
            Fitness::Untrained | Fitness::Confidential { .. } => false,
        };
        self.packer = packer;
        self.fitness = fitness;
        self.trainings += u64::from(trained);
        if let Fitness::Builtin { packed, .. } = &mut self.fitness {
            *packed += outcome.plain_bytes;
        }
        if trained && had_one {
            self.begin_sweep(true);
        }
        // Objects that the dictionary was trained on do not show how well it compresses later ones.
        if let Fitness::Trained { first, last, .. } = &mut self.fitness
            && !trained
        {
            if first.is_meaningful() {
                if last.is_meaningful() {
                    *last = Ratio::default();
                }
                last.add(&outcome);
            } else {
                first.add(&outcome);
            }
        }
    }

    fn begin_sweep(&mut self, migrates: bool) {
        self.sweep = Some(Sweep { partition: PartitionId(0), after: None, migrates });
        self.swept_from = Some(self.dead());
    }

    fn dead(&self) -> usize {
        self.totals.bytes().saturating_sub(self.totals.live())
    }

    /// Returns the next slice of a sweep, which repacks objects where needed. `None` if no sweep is due.
    pub fn slice(&mut self, snapshot: &Snapshot) -> Option<Round> {
        let dead = self.dead();
        if self.sweep.is_none() {
            if let Some(before) = self.swept_from.take() {
                // A sweep that freed an eighth of the dead bytes was worthwhile, so the next may be too.
                self.out_of_reach = if dead * 8 > before * 7 { dead } else { 0 };
            }
            self.out_of_reach = self.out_of_reach.min(dead);
            // If two fifths of all bytes are dead, some chunk is sparse: the others have at most one third of dead
            // bytes.
            if dead - self.out_of_reach > Self::MIN_DEAD_BYTES && dead * 5 > self.totals.bytes() * 2 {
                self.begin_sweep(false);
            }
        }
        let dictionary = Arc::clone(self.fitness.dictionary()?);
        let mut sweep = self.sweep.take()?;
        let mut objects = Vec::new();
        let (mut looked, most) = (0, Self::SLICE);
        while let Some((id, partition)) = snapshot.partition_from(sweep.partition) {
            if id != sweep.partition {
                sweep = Sweep { partition: id, after: None, ..sweep };
            }
            let after = sweep.after.clone();
            for object in partition.iter_after(after.as_ref()) {
                looked += 1;
                if object.wants_packing(sweep.migrates.then_some(&dictionary)) {
                    objects.push(Arc::clone(object));
                }
                if looked == most.0 || objects.len() == most.1 {
                    self.sweep = Some(Sweep { after: Some(object.key().clone()), ..sweep });
                    return Some(self.work(None, objects));
                }
            }
            sweep = Sweep { partition: PartitionId(id.0 + 1), after: None, ..sweep };
        }
        Some(self.work(None, objects))
    }
}

impl Default for Packing {
    fn default() -> Self {
        Self::new()
    }
}

fn every<'o>(step: usize, objects: impl Iterator<Item = &'o Arc<StoredObject>>) -> Vec<Arc<StoredObject>> {
    objects.step_by(step.max(1)).map(Arc::clone).collect()
}

impl Round {
    /// Runs the round of compression. Costs about 20 µs per object, and 5 to 20 ms for the training of a dictionary.
    #[must_use]
    pub fn run(self) -> RoundOutcome {
        let Self { mut fitness, samples, objects, totals, replaces, packer, keeps_packer } = self;
        if let (Fitness::Builtin { kind: Some(kind), dictionary, packed: 0, .. }, Some(samples)) =
            (&mut fitness, &samples)
        {
            let encoding = encoding_of(samples);
            if dictionary.bytes() != kind.bytes(encoding) {
                *dictionary = kind.dictionary(encoding);
            }
        }
        let trained = match &fitness {
            Fitness::Builtin { dictionary, packed, .. } => samples
                .as_deref()
                .filter(|samples| *packed > 0 || !suits(dictionary, samples))
                .and_then(|samples| train_better(dictionary, samples)),
            _ => samples.as_deref().and_then(train),
        };
        let is_trained = trained.is_some();
        let fitness = match (trained, samples.is_some(), fitness) {
            (None, true, Fitness::Builtin { kind, dictionary, packed, trial_at: _ }) if packed > 0 => {
                Fitness::Builtin { kind, dictionary, packed, trial_at: packed.saturating_mul(Packing::NEXT_TRIAL) }
            }
            (Some(dictionary), ..) => Fitness::Trained { dictionary, first: Ratio::default(), last: Ratio::default() },
            // The previous dictionary is better than none. Its latest ratio is reset.
            (None, true, Fitness::Trained { dictionary, first, .. }) => {
                Fitness::Trained { dictionary, first, last: Ratio::default() }
            }
            // Another empty dictionary would be one more that bodies keep in memory.
            (None, true, Fitness::Unfit { dictionary, .. }) => Fitness::Unfit { rounds: 0, dictionary },
            (None, true, fitness @ Fitness::Builtin { .. }) | (None, false, fitness) => fitness,
            (None, true, _) => Fitness::unfit(),
        };
        let mut packer = fitness.dictionary().map(|dictionary| {
            let packer = packer.filter(|packer| Arc::ptr_eq(packer.dictionary(), dictionary));
            let mut packer = packer.unwrap_or_else(|| Packer::new(dictionary, &totals));
            if replaces {
                packer.replace_dictionaries();
            }
            packer
        });
        let outcome = packer.as_mut().map(|packer| pack_with(packer, &objects));
        let fitness = match fitness {
            Fitness::Unfit { rounds, dictionary } => Fitness::Unfit { rounds: rounds + 1, dictionary },
            other => other,
        };
        let outcome = outcome.unwrap_or_default();
        RoundOutcome { fitness, trained: is_trained, outcome, packer: packer.filter(|_| keeps_packer) }
    }
}
