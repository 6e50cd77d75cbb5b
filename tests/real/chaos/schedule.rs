//! Faults, drawn from a seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::members::{COLLECTORS, SERVERS};
use crate::proxy;

/// Process that a fault hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The collector that owns a cluster at that time.
    Owner(usize),
    Collector(usize),
    Replica,
    Deliverer,
}

/// Kind of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// SIGKILL, then a new process.
    Kill(Target),
    /// SIGSTOP, then SIGCONT.
    Freeze(Target),
    /// The process cannot reach any NATS server.
    CutFromNats(Target, proxy::Fault),
    /// The owner of a cluster cannot reach its apiserver.
    CutFromApiserver(usize, proxy::Fault),
    /// SIGKILL of a NATS server, then a restart on its store.
    KillServer(usize),
    /// SIGKILL of all NATS servers but one, then restarts: no majority is left meanwhile.
    LoseQuorum(usize),
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// Time until it ends.
    pub(super) lasts: Duration,
    /// If the fault begins during the one before: the time since that one began. `None` if the fleet recovers in
    /// between.
    pub(super) during: Option<Duration>,
}

/// Probability that a fault begins while the one before is in effect.
const OVERLAPS: f64 = 0.35;

/// Draws faults. Ten of them contain each kind, and hit the owner of a cluster at least four times.
pub(super) fn draw(seed: u64, count: usize) -> Vec<Fault> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut faults = Vec::new();
    while faults.len() < count {
        let mut ten = ten(&mut rng);
        ten.shuffle(&mut rng);
        faults.extend(ten);
    }
    faults.truncate(count);
    for at in 1..faults.len() {
        let before = faults[at - 1];
        // At most two faults are in effect at once.
        if before.during.is_none() && rng.random_bool(OVERLAPS) {
            faults[at].during = Some(before.lasts.mul_f64(rng.random_range(0.0..1.0)));
        }
    }
    faults
}

fn ten(rng: &mut StdRng) -> [Fault; 10] {
    let owner = |rng: &mut StdRng| Target::Owner(rng.random_range(0..2));
    let any = |rng: &mut StdRng| {
        let collector = Target::Collector(rng.random_range(0..COLLECTORS));
        *[collector, Target::Replica, Target::Deliverer].choose(rng).expect("three")
    };
    let cut = |rng: &mut StdRng| *[proxy::Fault::Stall, proxy::Fault::Refuse].choose(rng).expect("two");
    let kinds = [
        Kind::Kill(owner(rng)),
        Kind::Kill(owner(rng)),
        Kind::Kill(Target::Deliverer),
        Kind::Freeze(owner(rng)),
        Kind::Freeze(any(rng)),
        Kind::CutFromNats(owner(rng), proxy::Fault::Stall),
        Kind::CutFromNats(any(rng), cut(rng)),
        Kind::CutFromApiserver(rng.random_range(0..2), cut(rng)),
        Kind::KillServer(rng.random_range(0..SERVERS)),
        Kind::LoseQuorum(rng.random_range(0..SERVERS)),
    ];
    kinds.map(|kind| Fault { kind, lasts: Duration::from_millis(rng.random_range(range(kind))), during: None })
}

/// Returns the shortest and longest time of a fault, in milliseconds.
fn range(kind: Kind) -> std::ops::Range<u64> {
    match kind {
        Kind::Kill(_) => 0..5_000,
        Kind::KillServer(_) | Kind::LoseQuorum(_) => 1_000..8_000,
        Kind::Freeze(_) | Kind::CutFromNats(..) | Kind::CutFromApiserver(..) => 5_000..15_000,
    }
}

#[test]
fn seed_decides_the_schedule_and_ten_faults_have_each_kind() {
    let faults = draw(7, 25);
    assert_eq!(faults.len(), 25);
    assert_eq!(faults, draw(7, 25));
    assert_ne!(faults, draw(8, 25));
    for ten in [&faults[..10], &faults[10..20]] {
        let count = |is: fn(&Kind) -> bool| ten.iter().filter(|fault| is(&fault.kind)).count();
        assert_eq!(count(|kind| matches!(kind, Kind::Kill(_))), 3);
        assert_eq!(count(|kind| matches!(kind, Kind::Freeze(_))), 2);
        assert_eq!(count(|kind| matches!(kind, Kind::CutFromNats(..))), 2);
        assert_eq!(count(|kind| matches!(kind, Kind::CutFromApiserver(..))), 1);
        assert_eq!(count(|kind| matches!(kind, Kind::KillServer(_))), 1);
        assert_eq!(count(|kind| matches!(kind, Kind::LoseQuorum(_))), 1);
    }
    let many = draw(7, 200);
    let overlaps = many.windows(2).filter(|two| two[1].during.is_some()).inspect(|two| {
        assert!(two[0].during.is_none() && two[1].during < Some(two[0].lasts), "{two:?}");
    });
    assert!((30..90).contains(&overlaps.count()), "{many:?}");
}
