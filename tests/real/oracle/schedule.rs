//! Schedules of faults. The same seed makes the same schedule.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Fault, temporary or instantaneous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disruption {
    /// No fault.
    None,
    /// Every connection is reset, this many times.
    Reset { times: u32 },
    /// The connection is slow.
    Slow,
    /// The network drops all packets. Open connections stay open, or are reset first.
    Stall { reset: bool },
    /// Connections are refused.
    Refuse,
    /// Connections are refused, and meanwhile older versions are compacted away.
    Expire,
    /// The apiserver is killed and restarted.
    Restart,
    /// The apiserver is suspended.
    Freeze,
    /// The rights of both readers are revoked, and connections are reset.
    Forbid,
    /// The custom resource is removed with its objects, and reinstalled.
    Uninstall,
    /// client-go is suspended: its clock jumps, and pending data waits or is lost.
    Sleep { reset: bool },
}

impl Disruption {
    /// Returns whether client-go backs off after this disruption, for up to two minutes.
    fn causes_backoff(self) -> bool {
        matches!(self, Self::Refuse | Self::Expire | Self::Restart | Self::Forbid | Self::Uninstall)
    }
}

/// One fault and the changes during and after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) disruption: Disruption,
    pub(super) lasts: Duration,
    pub(super) changes: usize,
    /// Number of objects that are concurrently created and updated during the fault. Half of them are deleted.
    pub(super) bulk: usize,
    /// Changes after the fault, before the next.
    pub(super) then: usize,
}

/// All faults of one run.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Fault at the start of the informers.
    pub(super) start: Step,
    pub(super) steps: Vec<Step>,
    /// Index of the step at whose beginning a second handler joins.
    pub(super) join_at: usize,
    /// Whether client-go requests streaming lists, as by default.
    pub(super) streaming: bool,
    /// Resync period of the first handlers.
    pub(super) resync: Option<Duration>,
}

impl Schedule {
    /// Returns whether the informers must use the user `limited`, whose rights can be revoked.
    pub(super) fn limited(&self) -> bool {
        self.steps.iter().any(|step| step.disruption == Disruption::Forbid)
    }
}

/// Period of resyncs, if enabled.
const RESYNC: Duration = Duration::from_secs(2);

/// Number of faults in a schedule.
const STEPS: usize = 6;

/// Maximum number of faults after which client-go backs off. More would only prolong the run by minutes.
const MAX_BACKOFFS: usize = 3;

impl Schedule {
    /// Returns the schedule of a seed.
    pub(super) fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let start = match random.random_range(0..6) {
            0 => Disruption::Slow,
            1 => Disruption::Stall { reset: false },
            2 => Disruption::Refuse,
            _ => Disruption::None,
        };
        let mut schedule = Self {
            start: step(&mut random, start),
            steps: Vec::new(),
            join_at: random.random_range(0..STEPS),
            streaming: random.random_bool(0.75),
            resync: random.random_bool(0.2).then_some(RESYNC),
        };
        let mut backoffs = usize::from(start.causes_backoff());
        while schedule.steps.len() < STEPS {
            let disruption = disruption(&mut random);
            backoffs += usize::from(disruption.causes_backoff());
            if !disruption.causes_backoff() || backoffs <= MAX_BACKOFFS {
                schedule.steps.push(step(&mut random, disruption));
            }
        }
        schedule
    }
}

fn disruption(random: &mut StdRng) -> Disruption {
    match random.random_range(0..41) {
        0..10 => Disruption::Reset { times: random.random_range(1..4) },
        10..14 => Disruption::Slow,
        14..20 => Disruption::Stall { reset: random.random_bool(0.5) },
        20..26 => Disruption::Refuse,
        26..32 => Disruption::Expire,
        32..34 => Disruption::Restart,
        34..36 => Disruption::Freeze,
        36 => Disruption::Forbid,
        37 => Disruption::Uninstall,
        _ => Disruption::Sleep { reset: random.random_bool(0.5) },
    }
}

fn step(random: &mut StdRng, disruption: Disruption) -> Step {
    // Sometimes longer than the timeout of a TLS handshake.
    let long = matches!(disruption, Disruption::Stall { .. }) && random.random_bool(0.15);
    let millis = if long { 11_000 } else { random.random_range(300..2_000) };
    Step {
        disruption,
        lasts: Duration::from_millis(millis),
        changes: random.random_range(3..25),
        bulk: if random.random_bool(0.12) { random.random_range(40..120) } else { 0 },
        then: random.random_range(0..12),
    }
}
