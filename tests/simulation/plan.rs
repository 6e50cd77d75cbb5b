//! What a seed decides on before anything happens.

use std::time::Duration;

use informer_hub_types::Fsync;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::receiver::Taste;

/// What is simulated.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) clusters: u64,
    pub(crate) pods: usize,
    /// Lives before the last, in which all is well.
    pub(crate) lives: usize,
    pub(crate) fsync: Fsync,
    pub(crate) checkpoint: Duration,
    /// Bytes of the readers' journals.
    pub(crate) journal: u64,
    /// How likely a request goes wrong. Never with tight journals, which do not take a huge object, and at
    /// their limit remember of what they have told no bodies, which a comparison after 410 would show.
    pub(crate) faults: f64,
    /// Whether the disk fills up now and then.
    pub(crate) fills_up: bool,
    /// How likely a call of the disk that writes fails while it is bad.
    pub(crate) bad_disk: f64,
    /// How likely a sync lies. Then no promise holds over a loss of power.
    pub(crate) lies: f64,
    /// Whether power is lost, in place of the process alone.
    pub(crate) power: bool,
    /// What receivers of webhooks do not like, one of each.
    pub(crate) tastes: Vec<Taste>,
    /// For how long a webhook is tried what it does not take.
    pub(crate) give_up_after: Duration,
    /// For how long a webhook is tried a single event that it refuses.
    pub(crate) refused_for: Duration,
    /// For all that is decided on the way.
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
        let is_tight = rng.random_bool(0.4);
        let journal = if is_tight { [256 << 10, 1 << 20][rng.random_range(0..2)] } else { 1 << 30 };
        let lies = if rng.random_bool(0.1) { rng.random_range(0.01..0.5) } else { 0.0 };
        // Journals at their limits put events together, which makes others of them.
        let taste = |rng: &mut StdRng| Taste {
            poison: (!is_tight && rng.random_bool(0.5)).then(|| rng.random_range(5..50)),
            most: rng.random_bool(0.4).then(|| rng.random_range(1..20)),
        };
        let receivers = [0, 0, 1, 1, 2][rng.random_range(0..5)];
        let tastes = (0..receivers).map(|_| taste(&mut rng)).collect();
        let gives_up = !is_tight && rng.random_bool(0.3);
        let give_up_after = Duration::from_secs(if gives_up { 4 } else { 24 * 3600 });
        // Longer than a life, about as long as one, and not at all.
        let refused_for = Duration::from_secs([600, 3, 0][(seed % 3) as usize]).min(give_up_after);
        Self {
            seed,
            clusters: rng.random_range(1..4),
            pods: rng.random_range(1..40),
            lives: rng.random_range(1..6),
            fsync,
            checkpoint: Duration::from_millis([50, 300, 1000, 5000][rng.random_range(0..4)]),
            journal,
            faults: if is_tight { 0.0 } else { [0.0, 0.05, 0.3][rng.random_range(0..3)] },
            fills_up: rng.random_bool(0.4),
            bad_disk: [0.0, 0.02, 0.2][rng.random_range(0..3)],
            lies,
            power: rng.random_bool(0.5),
            tastes,
            give_up_after,
            refused_for,
            rng,
        }
    }

    /// Whether readers are told each thing once and in order, over restarts too. Where there is not room for everything at any
    /// time a journal lets go of what it has told of and remembers the last word alone, or nothing: after a restart some of
    /// it may be told again. And what a disk could not sync for a long time a loss of power may leave in part, a later event
    /// without an earlier one.
    pub(crate) fn keeps_order(&self) -> bool {
        let has_room = !self.is_tight() && !self.fills_up;
        let keeps_what_waits = !self.power || self.bad_disk == 0.0;
        has_room && keeps_what_waits
    }

    /// Whether journals reach their limits.
    pub(crate) fn is_tight(&self) -> bool {
        self.journal < 1 << 30
    }

    /// What a reader may have on disk: its journal, and what a merge writes before the merged goes.
    pub(crate) fn most_bytes(&self) -> u64 {
        2 * self.journal
    }

    /// Whether readers have the truth in the end: unless what was synced may be lost, or a disk is full on which calls fail as
    /// well, which a kill may meet when a journal has let go of what it told of, to make room to write that down.
    pub(crate) fn keeps_promises(&self) -> bool {
        let forgets = self.fills_up && self.bad_disk > 0.0;
        !forgets && (!self.power || (self.lies == 0.0 && self.fsync != Fsync::Never))
    }
}
