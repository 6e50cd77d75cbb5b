//! What the bodies of a resource are packed with, and when those that are packed are packed anew.
//!
//! A dictionary is trained from the first objects. When objects that come later compress worse than those did, the
//! resource has changed its shape (or its list began with a namespace unlike the others): a new one is trained from
//! objects of the whole store, and a sweep packs the old ones with it, where that makes them no larger. A sweep also
//! empties chunks of which most is dead. Pure: whoever owns the store runs the rounds, on threads that nobody waits for,
//! one at a time.

use std::sync::Arc;

use super::posting::PartitionId;
use super::snapshot::Snapshot;
use super::uncompressed::{Young, pack_all};
use informer_hub_types::{Dictionary, ObjectKey, PackOutcome, PackedTotals, StoredObject};

/// See the module.
#[derive(Debug)]
pub struct Packing {
    totals: Arc<PackedTotals>,
    fitness: Fitness,
    /// How far the sweep under way has come.
    sweep: Option<Sweep>,
    /// Dead bytes when the last sweep began, until it is known what it came to.
    swept_from: Option<usize>,
    /// Dead bytes that a sweep does not reach: somebody holds states that are no longer in the store, and with them their
    /// chunks.
    out_of_reach: usize,
    trainings: u64,
}

/// What bodies are packed with.
#[derive(Clone, Debug)]
enum Fitness {
    Untrained,
    /// The objects made no dictionary (too few, or nothing alike); tried again after some rounds.
    Unfit {
        rounds: u32,
        /// An empty one.
        dictionary: Arc<Dictionary>,
    },
    Trained {
        dictionary: Arc<Dictionary>,
        /// What the first bodies after the training came to.
        first: Ratio,
        /// What the last ones came to.
        last: Ratio,
    },
}

impl Fitness {
    fn unfit() -> Self {
        Self::Unfit { rounds: 0, dictionary: Arc::new(Dictionary::none()) }
    }

    fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        match self {
            Self::Untrained => None,
            Self::Unfit { dictionary, .. } | Self::Trained { dictionary, .. } => Some(dictionary),
        }
    }
}

/// Where the next slice begins: after a key of a partition, or at the begin of a partition.
#[derive(Clone, Debug)]
struct Sweep {
    partition: PartitionId,
    after: Option<ObjectKey>,
    /// Whether it is after every body of an old dictionary, and not only after sparse chunks.
    migrates: bool,
}

/// Bytes before and after packing.
#[derive(Clone, Copy, Debug, Default)]
struct Ratio {
    plain: usize,
    packed: usize,
}

impl Ratio {
    /// Fewer bytes say nothing of a resource.
    const ENOUGH: usize = 512 * 1024;

    fn add(&mut self, outcome: &PackOutcome) {
        self.plain += outcome.plain_bytes;
        self.packed += outcome.packed_bytes;
    }

    fn is_enough(&self) -> bool {
        self.plain >= Self::ENOUGH
    }

    /// Whether a byte takes so much more than it took at first that a new dictionary pays: a fifth.
    fn is_worse_than(&self, first: &Self) -> bool {
        let (now, then) = (self.packed as u128 * first.plain as u128, first.packed as u128 * self.plain as u128);
        now * 5 > then * 6
    }
}

/// What one object adds to a training, at most.
const SAMPLE_BYTES: usize = 64 * 1024;

/// Work for a thread that nobody waits for.
#[derive(Debug)]
pub struct Round {
    fitness: Fitness,
    samples: Option<Vec<Arc<StoredObject>>>,
    objects: Vec<Arc<StoredObject>>,
    totals: Arc<PackedTotals>,
}

/// What a round came to.
#[derive(Debug)]
pub struct RoundOutcome {
    fitness: Fitness,
    trained: bool,
    outcome: PackOutcome,
}

impl Packing {
    /// Rounds without a dictionary before training is tried again.
    const UNFIT_ROUNDS: u32 = 8;
    /// Objects that one slice of a sweep looks at, and how many of them it packs, at most.
    const SLICE: (usize, usize) = (8192, 256);
    /// Dead bytes that are not worth a sweep.
    const LITTLE: usize = 256 * 1024;

    /// Of a resource of which nothing is packed yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            totals: Arc::default(),
            fitness: Fitness::Untrained,
            sweep: None,
            swept_from: None,
            out_of_reach: 0,
            trainings: 0,
        }
    }

    /// Of a resource of which objects come from disk, packed with a dictionary, and counted in `totals`.
    #[must_use]
    pub fn restored(dictionary: Option<Arc<Dictionary>>, totals: Arc<PackedTotals>) -> Self {
        let trained = |dictionary| Fitness::Trained { dictionary, first: Ratio::default(), last: Ratio::default() };
        let usable = dictionary.filter(|dictionary| dictionary.size() > 0);
        Self { totals, fitness: usable.map_or(Fitness::Untrained, trained), ..Self::new() }
    }

    /// How much is packed.
    #[must_use]
    pub fn totals(&self) -> &Arc<PackedTotals> {
        &self.totals
    }

    /// How many dictionaries have been trained.
    #[must_use]
    pub fn trainings(&self) -> u64 {
        self.trainings
    }

    /// Work that packs what has aged; it trains first where that is due, on young objects or, of a resource that has
    /// changed its shape, on all.
    #[must_use]
    pub fn round(&self, aged: Vec<Arc<StoredObject>>, young: &Young, snapshot: &Snapshot) -> Round {
        let is_due = match &self.fitness {
            Fitness::Untrained => true,
            Fitness::Unfit { rounds, .. } => *rounds >= Self::UNFIT_ROUNDS,
            Fitness::Trained { first, last, .. } => last.is_enough() && last.is_worse_than(first),
        };
        let samples = is_due.then(|| {
            let mut samples = young.samples();
            samples.extend(aged.iter().cloned());
            if matches!(self.fitness, Fitness::Trained { .. }) {
                // Half from what is new, of which there may be little yet, and half from all there is.
                let half = Young::SAMPLES / 2;
                samples = every(samples.len().div_ceil(half), samples.iter());
                let all = snapshot.partitions().flat_map(|(_, partition)| partition.iter().filter(|it| it.is_kept()));
                samples.extend(every(snapshot.len().div_ceil(half), all));
            }
            samples
        });
        self.work(samples, aged)
    }

    fn work(&self, samples: Option<Vec<Arc<StoredObject>>>, objects: Vec<Arc<StoredObject>>) -> Round {
        Round { fitness: self.fitness.clone(), samples, objects, totals: Arc::clone(&self.totals) }
    }

    /// Takes in what a round came to; `None` when it panicked, which leaves its objects as they were.
    pub fn finished(&mut self, outcome: Option<RoundOutcome>) {
        let Some(RoundOutcome { fitness, trained, outcome }) = outcome else { return };
        let had_one = matches!(self.fitness, Fitness::Trained { .. });
        self.fitness = fitness;
        self.trainings += u64::from(trained);
        if let Fitness::Trained { first, last, .. } = &mut self.fitness {
            if first.is_enough() {
                if last.is_enough() {
                    *last = Ratio::default();
                }
                last.add(&outcome);
            } else {
                first.add(&outcome);
            }
            if trained && had_one {
                self.begin_sweep(true);
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

    /// The next slice of a sweep: work that packs anew what wants it, of some thousand objects. `None` when none is due.
    pub fn slice(&mut self, snapshot: &Snapshot) -> Option<Round> {
        let dead = self.dead();
        if self.sweep.is_none() {
            if let Some(before) = self.swept_from.take() {
                // One that freed an eighth was worth it, and so may the next one be.
                self.out_of_reach = if dead * 8 > before * 7 { dead } else { 0 };
            }
            self.out_of_reach = self.out_of_reach.min(dead);
            // Two fifths dead: some chunk is sparse, since what is not has two thirds alive.
            if dead - self.out_of_reach > Self::LITTLE && dead * 5 > self.totals.bytes() * 2 {
                self.begin_sweep(false);
            }
        }
        let dictionary = Arc::clone(self.fitness.dictionary()?);
        let mut sweep = self.sweep.take()?;
        let mut objects = Vec::new();
        let (mut looked, most) = (0, Self::SLICE);
        while let Some((id, partition)) = snapshot.partitions_from(sweep.partition).next() {
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
    /// Does the work. Costs about 20 µs for each object, and 0.1 ms for each sample of a training.
    #[must_use]
    pub fn run(self) -> RoundOutcome {
        let Self { fitness, samples, objects, totals } = self;
        let trained = samples.as_deref().and_then(train);
        let is_trained = trained.is_some();
        let fitness = match (trained, samples.is_some(), fitness) {
            (Some(dictionary), ..) => Fitness::Trained { dictionary, first: Ratio::default(), last: Ratio::default() },
            // The one there was is better than none; it is not measured by what made no other.
            (None, true, Fitness::Trained { dictionary, first, .. }) => {
                Fitness::Trained { dictionary, first, last: Ratio::default() }
            }
            (None, true, _) => Fitness::unfit(),
            (None, false, fitness) => fitness,
        };
        let outcome = fitness.dictionary().map(|dictionary| pack_all(&objects, dictionary, &totals));
        let fitness = match fitness {
            Fitness::Unfit { rounds, dictionary } => Fitness::Unfit { rounds: rounds + 1, dictionary },
            other => other,
        };
        let outcome = outcome.unwrap_or_default();
        RoundOutcome { fitness, trained: is_trained, outcome }
    }
}

fn train(objects: &[Arc<StoredObject>]) -> Option<Arc<Dictionary>> {
    if objects.len() < Young::MIN_SAMPLES {
        return None;
    }
    let step = objects.len().div_ceil(Young::SAMPLES).max(1);
    let cut = |object: &Arc<StoredObject>| {
        let mut sample = object.sample();
        sample.truncate(SAMPLE_BYTES);
        sample
    };
    // Every fourth first: where they are large, a training ends before the last.
    let spread = (0..4).flat_map(|first| objects.iter().step_by(step).skip(first).step_by(4));
    match Dictionary::train(spread.map(cut)) {
        Ok(dictionary) => Some(Arc::new(dictionary)),
        Err(error) => {
            tracing::debug!(%error, "objects are packed without a new dictionary for now");
            None
        }
    }
}
