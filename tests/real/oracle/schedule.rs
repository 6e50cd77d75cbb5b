//! What goes wrong, and when: the same seed makes the same schedule.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What goes wrong for a while, or at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// Nothing.
    None,
    /// Every connection is reset, this many times.
    Reset { times: u32 },
    /// The line is thin.
    Slow,
    /// The line swallows everything; what is open stays open, or is reset first.
    Stall { reset: bool },
    /// Nothing listens.
    Refuse,
    /// Nothing listens, and by the time that something does the versions from before are compacted away.
    Expire,
    /// The apiserver is killed and started again.
    Restart,
    /// The apiserver's machine sleeps.
    Freeze,
    /// Both may no longer read anything, and find out as their connections are reset.
    Forbid,
    /// The custom resource is removed, with its objects, and installed again.
    Uninstall,
    /// client-go's machine sleeps: its clock jumps, and what it would have read waits or is lost.
    Sleep { reset: bool },
}

impl Trouble {
    /// Whether client-go waits before it goes on, each time longer, for as long as two minutes.
    fn makes_wait(self) -> bool {
        matches!(self, Self::Refuse | Self::Expire | Self::Restart | Self::Forbid | Self::Uninstall)
    }
}

/// One trouble, and what changes meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) trouble: Trouble,
    pub(super) lasts: Duration,
    pub(super) changes: usize,
    /// Objects that are made, changed and half of them deleted again, many at once, meanwhile.
    pub(super) bulk: usize,
    /// Changes after it, before the next.
    pub(super) then: usize,
}

/// Everything that goes wrong in one run.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// What the informers find when they start.
    pub(super) start: Step,
    pub(super) steps: Vec<Step>,
    /// The step at whose beginning a second handler joins.
    pub(super) join_at: usize,
    /// Whether client-go asks for streaming lists, as it does by default.
    pub(super) streaming: bool,
    /// How often the handlers of the start want every object repeated.
    pub(super) resync: Option<Duration>,
}

impl Schedule {
    /// Whether somebody watches whose rights can be taken away.
    pub(super) fn limited(&self) -> bool {
        self.steps.iter().any(|step| step.trouble == Trouble::Forbid)
    }
}

/// The period of resyncs, where there are any.
const RESYNC: Duration = Duration::from_secs(2);

/// Troubles of a schedule.
const STEPS: usize = 6;

/// Steps that make client-go wait: more would have each run take minutes for nothing.
const WAITS: usize = 3;

impl Schedule {
    /// The schedule of a seed.
    pub(super) fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let start = match random.random_range(0..6) {
            0 => Trouble::Slow,
            1 => Trouble::Stall { reset: false },
            2 => Trouble::Refuse,
            _ => Trouble::None,
        };
        let mut schedule = Self {
            start: step(&mut random, start),
            steps: Vec::new(),
            join_at: random.random_range(0..STEPS),
            streaming: random.random_bool(0.75),
            resync: random.random_bool(0.2).then_some(RESYNC),
        };
        let mut waits = usize::from(start.makes_wait());
        while schedule.steps.len() < STEPS {
            let trouble = trouble(&mut random);
            waits += usize::from(trouble.makes_wait());
            if !trouble.makes_wait() || waits <= WAITS {
                schedule.steps.push(step(&mut random, trouble));
            }
        }
        schedule
    }
}

fn trouble(random: &mut StdRng) -> Trouble {
    match random.random_range(0..41) {
        0..10 => Trouble::Reset { times: random.random_range(1..4) },
        10..14 => Trouble::Slow,
        14..20 => Trouble::Stall { reset: random.random_bool(0.5) },
        20..26 => Trouble::Refuse,
        26..32 => Trouble::Expire,
        32..34 => Trouble::Restart,
        34..36 => Trouble::Freeze,
        36 => Trouble::Forbid,
        37 => Trouble::Uninstall,
        _ => Trouble::Sleep { reset: random.random_bool(0.5) },
    }
}

fn step(random: &mut StdRng, trouble: Trouble) -> Step {
    // Now and then longer than a TLS handshake is waited for.
    let long = matches!(trouble, Trouble::Stall { .. }) && random.random_bool(0.15);
    let millis = if long { 11_000 } else { random.random_range(300..2_000) };
    Step {
        trouble,
        lasts: Duration::from_millis(millis),
        changes: random.random_range(3..25),
        bulk: if random.random_bool(0.12) { random.random_range(40..120) } else { 0 },
        then: random.random_range(0..12),
    }
}
