//! Tests of contenders, each with its own clock, and a store. Requests and answers are lost, delayed and repeated.

use proptest::prelude::*;
use rand::{Rng as _, SeedableRng as _};

use super::*;
use crate::memory::MemoryStore;
use informer_hub_testing::properties;

const TICK: Duration = Duration::from_millis(50);
/// Time after which a request without an answer counts as failed.
const DEADLINE: Duration = Duration::from_secs(3);
/// Guaranteed maximum time from the death of a leader until another contender leads.
const TAKEOVER: Duration = Duration::from_secs(15);

/// Contender with a clock of its own.
struct Contender {
    elector: Elector,
    /// Reading of the contender's clock at the start of the test.
    offset: Duration,
    /// Rate of the contender's clock; 1 is exact.
    rate: f64,
    /// Number of the current request, and its deadline.
    asked: (u64, Duration),
    /// Time before which the contender does not run.
    paused_until: Duration,
    is_dead: bool,
    /// Time before which the contender only reads the lease; `None` once it contends.
    contends_at: Option<Duration>,
}

impl Contender {
    fn clock(&self, now: Duration) -> Duration {
        self.offset + now.mul_f64(self.rate)
    }
}

/// Message on its way: a request to the store, or an answer to a contender.
enum Message {
    Ask { from: usize, number: u64, request: Request, is_lost: bool },
    Tell { to: usize, number: u64, answer: Answer },
}

struct World {
    store: MemoryStore,
    contenders: Vec<Contender>,
    messages: Vec<(Duration, Message)>,
    rng: StdRng,
    now: Duration,
    has_faults: bool,
    /// Epoch of each leader so far, with the leader's index in `contenders`, in order.
    epochs: Vec<(u64, usize)>,
}

impl World {
    fn new(seed: u64, contenders: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let contenders = (0..contenders).map(|at| Contender {
            elector: Elector::observing(
                &format!("hub-{at}"),
                ElectionParams::default(),
                StdRng::seed_from_u64(seed ^ (at as u64 + 1)),
            ),
            offset: Duration::from_secs(rng.random_range(0..1_000_000)),
            rate: rng.random_range(0.98..1.02),
            asked: (0, Duration::ZERO),
            paused_until: Duration::ZERO,
            is_dead: false,
            contends_at: Some(Duration::from_millis(rng.random_range(0..20_000))),
        });
        let contenders = contenders.collect();
        Self {
            store: MemoryStore::default(),
            contenders,
            messages: Vec::new(),
            rng,
            now: Duration::ZERO,
            has_faults: true,
            epochs: Vec::new(),
        }
    }

    fn delay(&mut self) -> Duration {
        let slow = self.has_faults && self.rng.random_bool(0.05);
        Duration::from_millis(self.rng.random_range(1..if slow { 12_000 } else { 200 }))
    }

    fn chance(&mut self, of: f64) -> bool {
        self.has_faults && self.rng.random_bool(of)
    }

    fn step(&mut self) {
        self.now += TICK;
        let now = self.now;
        for (at, message) in std::mem::take(&mut self.messages) {
            match message {
                _ if at > now => self.messages.push((at, message)),
                Message::Ask { from, number, request, is_lost } => {
                    let answer = self.store.apply(&request);
                    let at = now + self.delay();
                    if !is_lost {
                        self.messages.push((at, Message::Tell { to: from, number, answer }));
                    }
                }
                Message::Tell { to, .. } if self.contenders[to].paused_until > now => self.messages.push((at, message)),
                Message::Tell { to, number, answer } => {
                    let one = &mut self.contenders[to];
                    if one.asked.0 == number && !one.is_dead {
                        let clock = one.clock(now);
                        one.elector.answered(answer, clock);
                    }
                }
            }
        }
        for from in 0..self.contenders.len() {
            self.run(from);
        }
        self.check();
    }

    fn run(&mut self, from: usize) {
        let now = self.now;
        if self.chance(0.001) {
            self.contenders[from].paused_until = now + Duration::from_millis(self.rng.random_range(0..40_000));
        }
        if self.chance(0.0005) {
            // A pause between the decision to send and the request itself.
            self.contenders[from].paused_until = now + TICK;
        }
        let one = &mut self.contenders[from];
        if one.is_dead || one.paused_until > now {
            return;
        }
        let clock = one.clock(now);
        if one.contends_at.take_if(|at| *at <= now).is_some() {
            one.elector.contend(clock);
        }
        if one.asked.1 <= now {
            one.elector.answered(Answer::Failed, clock);
        }
        let Some(request) = one.elector.next(clock) else { return };
        one.asked = (one.asked.0 + 1, now + DEADLINE);
        let number = one.asked.0;
        if self.chance(0.1) {
            return;
        }
        let copies = 1 + usize::from(self.chance(0.1));
        for _ in 0..copies {
            let (at, is_lost) = (now + self.delay(), self.chance(0.1));
            self.messages.push((at, Message::Ask { from, number, request: request.clone(), is_lost }));
        }
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |at: &usize| self.contenders[*at].elector.leads(self.contenders[*at].clock(self.now));
        (0..self.contenders.len()).filter(leads).collect()
    }

    /// Verifies that at most one contender leads, paused ones included, and that each leader has a higher epoch than
    /// all earlier leaders.
    fn check(&mut self) {
        let leaders = self.leaders();
        assert!(leaders.len() <= 1, "{leaders:?} lead at {:?}", self.now);
        if let [leader] = leaders[..] {
            let epoch = self.contenders[leader].elector.record_seen().expect("a leader has a record").transitions;
            if self.epochs.last() != Some(&(epoch, leader)) {
                assert!(self.epochs.iter().all(|(before, _)| *before < epoch), "{:?}, then {epoch}", self.epochs);
                self.epochs.push((epoch, leader));
            }
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }
}

proptest! {
    #![proptest_config(properties(64))]

    #[test]
    fn at_most_one_contender_leads_and_a_dead_leader_is_replaced_in_time(seed: u64, contenders in 2_usize..4) {
        let mut world = World::new(seed, contenders);
        world.run_for(Duration::from_secs(300));
        // Without faults, one of them leads at last.
        world.has_faults = false;
        world.run_for(Duration::from_secs(80));
        let leaders = world.leaders();
        prop_assert_eq!(leaders.len(), 1);
        world.contenders[leaders[0]].is_dead = true;
        let died = world.now;
        while world.leaders().is_empty() || world.leaders() == leaders {
            world.step();
            let passed = world.now.saturating_sub(died);
            prop_assert!(passed <= TAKEOVER, "no new leader for {passed:?}");
        }
    }

    #[test]
    fn resigning_leader_is_replaced_within_two_retry_periods(seed: u64) {
        let mut world = World::new(seed, 2);
        world.has_faults = false;
        world.run_for(Duration::from_secs(30));
        let leader = world.leaders()[0];
        let (now, before) = (world.now, world.epochs.len());
        let clock = world.contenders[leader].clock(now);
        world.contenders[leader].elector.resign(clock);
        world.run_for(ElectionParams::default().retry_period * 2);
        prop_assert!(world.contenders[leader].elector.has_resigned());
        prop_assert_eq!(world.leaders(), vec![1 - leader]);
        prop_assert_eq!(world.epochs.len(), before + 1);
    }
}

fn record(holder: &str, transitions: u64) -> Record {
    Record { holder: holder.into(), lease_duration: Duration::from_secs(10), transitions, note: "".into() }
}

fn elector() -> Elector {
    Elector::new("me", ElectionParams::default(), StdRng::seed_from_u64(1))
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn observer_takes_a_free_lease_only_once_it_contends() {
    for answer in [Answer::Missing, Answer::Found { record: record("", 3), version: "7".into() }] {
        let mut me = Elector::observing("me", ElectionParams::default(), StdRng::seed_from_u64(1));
        let mut requests = 0;
        for second in 0..30 {
            if let Some(request) = me.next(secs(second)) {
                assert_eq!(request, Request::Get);
                me.answered(answer.clone(), secs(second));
                requests += 1;
            }
        }
        assert!((10..=16).contains(&requests), "{requests} requests in 30 s");
        me.contend(secs(30));
        assert!(matches!(me.next(secs(30)), Some(Request::Create(_) | Request::Update { .. })));
        me.answered(Answer::Written("8".into()), secs(30));
        assert!(me.leads(secs(31)));
    }
}

#[test]
fn observer_that_resigns_sends_nothing_more() {
    let mut me = Elector::observing("me", ElectionParams::default(), StdRng::seed_from_u64(1));
    me.next(secs(1));
    me.answered(Answer::Missing, secs(1));
    me.resign(secs(2));
    assert!(me.has_resigned() && me.next(secs(9)).is_none());
}

#[test]
fn leadership_counts_from_the_sending_of_the_renewal() {
    let mut me = elector();
    assert_eq!(me.next(secs(1)), Some(Request::Get));
    me.answered(Answer::Missing, secs(1));
    assert_eq!(me.next(secs(1)), Some(Request::Create(record("me", 0))));
    me.answered(Answer::Written("1".into()), secs(4));
    assert!(me.leads(Duration::from_millis(7_999)) && !me.leads(secs(8)));
}

#[test]
fn answer_that_arrives_after_a_suspension_gives_no_leadership() {
    let mut me = elector();
    me.next(secs(1));
    me.answered(Answer::Missing, secs(1));
    me.next(secs(1));
    me.answered(Answer::Written("1".into()), secs(60));
    assert!(!me.leads(secs(60)));
}

#[test]
fn deleted_record_is_held_until_its_lease_has_expired() {
    let mut me = elector();
    me.next(secs(1));
    me.answered(Answer::Found { record: record("other", 3), version: "7".into() }, secs(1));
    me.next(secs(3));
    me.answered(Answer::Missing, secs(3));
    assert_eq!(me.next(secs(6)), Some(Request::Get), "the other contender may still lead");
    me.answered(Answer::Missing, secs(6));
    assert_eq!(me.next(secs(11)), Some(Request::Create(record("me", 4))));
}

#[test]
fn conflict_with_an_own_write_keeps_leadership_and_that_of_another_ends_it() {
    let mut me = elector();
    me.next(secs(1));
    me.answered(Answer::Missing, secs(1));
    me.next(secs(1));
    me.answered(Answer::Written("1".into()), secs(1));
    me.next(secs(3));
    me.answered(Answer::Conflict, secs(3));
    assert_eq!(me.next(secs(4)), Some(Request::Get));
    me.answered(Answer::Found { record: record("me", 0), version: "2".into() }, secs(4));
    assert!(me.leads(secs(4)));
    assert!(matches!(me.next(secs(4)), Some(Request::Update { version, .. }) if *version == *"2"));
    me.answered(Answer::Conflict, secs(4));
    me.next(secs(5));
    me.answered(Answer::Found { record: record("other", 1), version: "3".into() }, secs(5));
    assert!(!me.leads(secs(5)));
}
