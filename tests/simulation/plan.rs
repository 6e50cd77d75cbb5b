//! Plan of a simulation, drawn from its seed before the first run.

use std::time::Duration;

use informer_hub_config::ReadApiConfig;
use informer_hub_types::Fsync;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::receiver::Limits;

/// Parameters of a simulation.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) clusters: u64,
    pub(crate) pods: usize,
    /// Runs with faults before the final run.
    pub(crate) runs: usize,
    pub(crate) fsync: Fsync,
    pub(crate) checkpoint: Duration,
    /// Size limit of each journal, in bytes.
    pub(crate) journal: u64,
    /// Probability of a fault per request. Zero with small journals: they cannot hold a huge object, and at their limit they
    /// drop the bodies of delivered events, which a relist after 410 would reveal.
    pub(crate) faults: f64,
    /// Whether the disk fills up occasionally.
    pub(crate) fills_up: bool,
    /// Probability that a writing disk call fails during a disk fault.
    pub(crate) bad_disk: f64,
    /// Probability that a sync is lost. If it is not zero, nothing is guaranteed after a power loss.
    pub(crate) lost_syncs: f64,
    /// Whether runs may end by a power loss instead of a kill.
    pub(crate) power: bool,
    /// Content limits of each webhook receiver.
    pub(crate) limits: Vec<Limits>,
    /// Time after which a webhook gives up on a batch.
    pub(crate) give_up_after: Duration,
    /// Time after which a webhook gives up on a refused event.
    pub(crate) refused_for: Duration,
    /// Whether there is a state directory, without which there are no durable readers and no receivers.
    pub(crate) has_state: bool,
    /// Limits of the Kubernetes read API.
    pub(crate) reads: ReadApiConfig,
    /// Generator for decisions during the runs.
    pub(crate) rng: StdRng,
}

impl Plan {
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5157_a11e);
        let fsync = match rng.random_range(0..5) {
            0 => Fsync::Within(Duration::ZERO),
            1 => Fsync::Within(Duration::from_millis(200)),
            2 => Fsync::Never,
            _ => Fsync::default(),
        };
        let has_small_journals = rng.random_bool(0.4);
        let journal = if has_small_journals { [256 << 10, 1 << 20][rng.random_range(0..2)] } else { 1 << 30 };
        let lost_syncs = if rng.random_bool(0.1) { rng.random_range(0.01..0.5) } else { 0.0 };
        // Journals at their limits merge events, which changes their ids.
        let limits_of = |rng: &mut StdRng| Limits {
            refuse_one_in: (!has_small_journals && rng.random_bool(0.5)).then(|| rng.random_range(5..50)),
            max_events: rng.random_bool(0.4).then(|| rng.random_range(1..20)),
        };
        let receivers = [0, 0, 1, 1, 2][rng.random_range(0..5)];
        let limits = (0..receivers).map(|_| limits_of(&mut rng)).collect();
        let gives_up = !has_small_journals && rng.random_bool(0.3);
        let give_up_after = Duration::from_secs(if gives_up { 4 } else { 24 * 3600 });
        // Longer than a run, about as long as one, and zero.
        let refused_for = Duration::from_secs([600, 3, 0][(seed % 3) as usize]).min(give_up_after);
        Self {
            seed,
            clusters: rng.random_range(1..4),
            pods: rng.random_range(1..40),
            runs: rng.random_range(1..6),
            fsync,
            checkpoint: Duration::from_millis([50, 300, 1000, 5000][rng.random_range(0..4)]),
            journal,
            faults: if has_small_journals { 0.0 } else { [0.0, 0.05, 0.3][rng.random_range(0..3)] },
            fills_up: rng.random_bool(0.4),
            bad_disk: [0.0, 0.02, 0.2][rng.random_range(0..3)],
            lost_syncs,
            power: rng.random_bool(0.5),
            limits,
            give_up_after,
            refused_for,
            has_state: true,
            reads: reads(seed),
            rng,
        }
    }

    /// Draws a plan without a state directory.
    pub(crate) fn without_state(seed: u64) -> Self {
        Self { has_state: false, limits: Vec::new(), ..Self::drawn(seed) }
    }

    /// Returns whether readers get each event once and in order, also over restarts.
    ///
    /// A full journal or disk drops delivered events, so some may be delivered again after a restart. On a failing disk, a
    /// power loss may keep a later unsynced event and lose an earlier one.
    pub(crate) fn guarantees_order(&self) -> bool {
        let has_room = !self.has_small_journals() && !self.fills_up;
        let keeps_unsynced = !self.power || self.bad_disk == 0.0;
        has_room && keeps_unsynced
    }

    /// Returns whether journals reach their limits.
    pub(crate) fn has_small_journals(&self) -> bool {
        self.journal < 1 << 30
    }

    /// Returns the maximum disk usage of a reader: its journal, and the output of a merge before the merged files are deleted.
    pub(crate) fn max_bytes(&self) -> u64 {
        2 * self.journal
    }

    /// Returns whether readers must converge in the end.
    ///
    /// There is no guarantee if synced data may be lost. There is none either if a disk is both full and failing: a kill may
    /// then hit a journal that has dropped delivered events to make room.
    pub(crate) fn guarantees_convergence(&self) -> bool {
        let may_lose = self.fills_up && self.bad_disk > 0.0;
        !may_lose && (!self.power || (self.lost_syncs == 0.0 && self.fsync != Fsync::Never))
    }
}

/// Draws the limits of the read API. Small ones expire and refuse readers.
fn reads(seed: u64) -> ReadApiConfig {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x4EAD_5EED);
    let mut reads = ReadApiConfig::default();
    reads.window_bytes = [4 << 10, 64 << 10, 16 << 20][rng.random_range(0..3)];
    reads.window_age = Duration::from_secs([2, 300, 300][rng.random_range(0..3)]);
    reads.max_requests = [1, 3, 64][rng.random_range(0..3)];
    reads.max_watches = [3, 10_000][rng.random_range(0..2)];
    reads
}
