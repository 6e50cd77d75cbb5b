//! What a seed decides on before anything happens.

use std::time::Duration;

use informer_hub::types::Fsync;
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
            give_up_after: Duration::from_secs(if gives_up { 4 } else { 24 * 3600 }),
            rng,
        }
    }

    /// Whether there is room for everything at any time. Where there is not, a journal lets go of what it has told of and
    /// remembers the last word alone, or nothing: after a restart some of it may be told again.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_tight() && !self.fills_up
    }

    /// Whether journals reach their limits.
    pub(crate) fn is_tight(&self) -> bool {
        self.journal < 1 << 30
    }

    /// What a reader may have on disk: its journal, and what a merge writes before the merged goes.
    pub(crate) fn most_bytes(&self) -> u64 {
        2 * self.journal
    }

    /// Whether what was synced is there after whatever happens. Of a disk on which calls fail nothing is promised to those who
    /// are told from journals but that the hub goes on and its caches are right.
    pub(crate) fn keeps_promises(&self) -> bool {
        !(self.bad_disk > 0.0 && self.fills_up) && (!self.power || (self.lies == 0.0 && self.fsync != Fsync::Never))
    }
}
