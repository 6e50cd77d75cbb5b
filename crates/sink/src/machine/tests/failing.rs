//! Tests of receivers that fail for some objects only, and of pauses.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Longest backoff of a lane in the simulation.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

fn unavailable(after: Duration) -> Outcome {
    Outcome::Retry { after: Some(after), content: false, error: "receiver answered 503".to_owned() }
}

/// A receiver that always fails for the object with this name.
fn failing_for(name: &str) -> impl FnMut(&[Event]) -> Outcome + 'static {
    let subject = format!("/v1/pods/shop/{name}");
    move |batch| if batch.iter().any(|event| event.subject() == subject) { down(batch) } else { Outcome::Accepted }
}

fn lane_of(name: &str, lanes: u64) -> u64 {
    let event = Event::new(&added(pod(name, "1", "x"), false), jiff::Timestamp::UNIX_EPOCH, &EventOptions::default());
    event.unwrap().lane_hash() % lanes
}

/// Returns names of objects, one in each of four lanes.
fn one_name_a_lane() -> Vec<String> {
    let names = (0..100).map(|at| format!("web-{at}"));
    let by_lane: BTreeMap<_, _> = names.map(|name| (lane_of(&name, 4), name)).collect();
    by_lane.into_values().collect()
}

#[test]
fn event_that_always_fails_does_not_stop_other_lanes() {
    let mut rig = Rig::in_memory();
    rig.receiver(failing_for("web-0"));
    rig.send(history(1, 1));
    rig.run(Duration::from_secs(3600));
    assert!(rig.health.is_circuit_open(), "only this event was tried, and it failed");
    let others: Vec<_> = one_name_a_lane().into_iter().filter(|name| lane_of(name, 4) != lane_of("web-0", 4)).collect();
    for hour in 1..5 {
        rig.send(others.iter().map(|name| update(name, hour + 1)).collect());
        rig.run(2 * SECOND);
        assert_eq!(rig.accepted.len(), others.len() * usize::try_from(hour).unwrap());
        rig.run(Duration::from_secs(3600));
    }
    assert_eq!(rig.health.status().pending_events, 1);
}

/// Sends two states of each of ten objects, then more of them each minute. Returns all states that were sent.
fn send_for_minutes(rig: &mut Rig, minutes: u64) -> u64 {
    rig.send(history(10, 2));
    for version in 3..3 + minutes {
        rig.run(60 * SECOND);
        rig.send((0..10).map(|at| update(&format!("web-{at}"), version)).collect());
    }
    rig.run(2 * SECOND);
    2 + minutes
}

#[test]
fn event_that_always_fails_holds_back_only_its_object() {
    // In one of four lanes, and in the only lane of its sink.
    for (mut rig, lanes) in [(Rig::new(), 4), (Rig::in_memory(), 4), (Rig::in_memory(), 1)] {
        let concurrency = NonZeroUsize::new(lanes).unwrap();
        rig.machine.reconfigure(MachineParams { concurrency, ..params(Arc::clone(&rig.health)) }, rig.now);
        rig.receiver(failing_for("web-3"));
        let versions = send_for_minutes(&mut rig, 30);
        let seen = rig.versions();
        assert_eq!(seen.len(), 9, "{lanes} lanes");
        assert!(seen.values().all(|seen| seen.iter().copied().eq(1..=versions)), "{seen:?}");
        let status = rig.health.status();
        assert_eq!((status.retrying, status.refused_events, status.dead_lettered), (1, 0, 0));
        assert_eq!(status.pending_events, versions, "later events wait behind the failed one");
        rig.receiver(|_| Outcome::Accepted);
        rig.run(Duration::from_secs(301));
        assert!(rig.versions()["/v1/pods/shop/web-3"].iter().copied().eq(1..=versions));
        assert_eq!((rig.machine.undelivered(), rig.health.status().retrying), (0, 0));
    }
}

#[test]
fn neighbouring_events_that_always_fail_are_isolated_without_other_traffic() {
    let mut rig = Rig::in_memory();
    let concurrency = NonZeroUsize::MIN;
    rig.machine.reconfigure(MachineParams { concurrency, ..params(Arc::clone(&rig.health)) }, rig.now);
    rig.receiver(|batch| {
        let is_bad = |event: &Event| ["/web-0", "/web-1", "/web-2"].iter().any(|bad| event.subject().ends_with(bad));
        if batch.iter().any(is_bad) { down(batch) } else { Outcome::Accepted }
    });
    rig.send(history(10, 1));
    rig.run(Duration::from_secs(3600));
    assert_eq!((rig.accepted.len(), rig.health.status().retrying), (7, 3));
}

#[test]
fn failing_event_is_given_up_at_its_own_limit() {
    let mut rig = Rig::in_memory();
    rig.receiver(failing_for("web-3"));
    rig.send(history(10, 2));
    rig.run(Duration::from_secs(24 * 3600 - 1));
    assert_eq!((rig.accepted.len(), rig.health.status().dead_lettered), (18, 0));
    rig.run(60 * SECOND);
    assert_eq!((rig.health.status().dead_lettered, rig.machine.undelivered()), (1, 1), "the next state has a day too");
}

#[test]
fn events_that_always_fail_beyond_their_share_hold_their_lanes() {
    for mut rig in [Rig::new(), Rig::in_memory()] {
        rig.receiver(|batch| {
            if batch.iter().any(|event| event.subject().contains("/bad-")) { down(batch) } else { Outcome::Accepted }
        });
        for at in 0..80 {
            rig.send(["bad", "web"].map(|name| added(pod(&format!("{name}-{at}"), "1", "x"), false)).into());
            rig.run(60 * SECOND);
        }
        rig.run(Duration::from_secs(3600));
        assert!(rig.machine.lanes.set_aside_size().0 <= 50, "a quarter of the bound of 200");
        assert_eq!(rig.health.status().dead_lettered, 0);
        rig.receiver(|_| Outcome::Accepted);
        rig.run(Duration::from_secs(3600));
        assert_eq!((rig.accepted.len(), rig.machine.undelivered()), (160, 0));
    }
}

#[test]
fn receiver_that_is_down_gets_few_attempts_and_loses_nothing() {
    for mut rig in [Rig::new(), Rig::in_memory()] {
        let attempts = std::rc::Rc::new(std::cell::Cell::new(0));
        let counter = std::rc::Rc::clone(&attempts);
        rig.receiver(move |batch| {
            counter.set(counter.get() + 1);
            down(batch)
        });
        rig.send(history(40, 3));
        rig.run(Duration::from_secs(3600));
        assert!(attempts.get() < 700, "{} attempts in an hour", attempts.get());
        assert!(rig.machine.lanes.set_aside_size().0 <= 4 * 4 * 3, "four objects a lane");
        rig.receiver(|_| Outcome::Accepted);
        rig.run(Duration::from_secs(601));
        assert!(rig.versions().values().all(|versions| *versions == [1, 2, 3]));
        assert_eq!((rig.accepted.len(), rig.health.status().dead_lettered), (120, 0));
    }
}

#[test]
fn lanes_take_turns_to_probe_a_failing_receiver() {
    let names = one_name_a_lane();
    // Any of the lanes may be the one that opened the circuit.
    for bad in &names {
        let mut rig = Rig::in_memory();
        rig.receiver(down);
        rig.send(names.iter().map(|name| update(name, 2)).collect());
        rig.run(Duration::from_secs(600));
        assert!(rig.health.is_circuit_open());
        rig.receiver(failing_for(bad));
        rig.run(Duration::from_secs(600));
        assert_eq!((rig.accepted.len(), rig.machine.undelivered()), (3, 1), "all lanes but that of {bad}");
    }
}

#[test]
fn shutdown_without_a_journal_tries_once_despite_a_pause() {
    let mut rig = Rig::in_memory();
    rig.receiver(|_| unavailable(Duration::from_secs(3600)));
    rig.send(history(1, 1));
    rig.run(SECOND);
    rig.send(history(10, 2));
    rig.run(SECOND);
    assert!(rig.machine.is_paused(rig.now) && rig.accepted.is_empty());
    rig.receiver(|_| Outcome::Accepted);
    rig.flush();
    rig.run(Duration::ZERO);
    assert_eq!((rig.accepted.len(), rig.machine.undelivered()), (21, 0));
    // With a journal, the events are kept for the next start.
    let mut rig = Rig::new();
    rig.receiver(|_| unavailable(Duration::from_secs(3600)));
    rig.send(history(1, 1));
    rig.run(SECOND);
    rig.receiver(|_| Outcome::Accepted);
    rig.flush();
    rig.run(SECOND);
    assert!(rig.machine.is_paused(rig.now) && rig.machine.at_risk() == 0 && rig.accepted.is_empty());
}

#[test]
fn shutdown_without_a_journal_attempts_each_event_despite_pauses() {
    // The pause ends after the deadline; in the second half of the flush; or in the first half, so that it is observed.
    for (after, seconds) in [(3600, 1), (20, 1), (4, 13)] {
        let mut rig = Rig::in_memory();
        rig.receiver(move |_| unavailable(Duration::from_secs(after)));
        // More events than the queue holds.
        rig.send(history(90, 3));
        rig.run(SECOND);
        let attempted = std::rc::Rc::new(std::cell::RefCell::new(BTreeMap::new()));
        let log = std::rc::Rc::clone(&attempted);
        rig.receiver(move |batch| {
            let mut log = log.borrow_mut();
            for event in batch {
                *log.entry(event.id().to_owned()).or_insert(0) += 1;
            }
            unavailable(Duration::from_secs(after))
        });
        rig.flush();
        rig.run(Duration::from_secs(seconds));
        assert_eq!(attempted.borrow().len(), 270, "Retry-After: {after}");
        let most = attempted.borrow().values().copied().max().unwrap();
        assert!(most <= 7, "{most} attempts at a receiver that asks for pauses of {after} s");
        // The last batch of each lane waits for the end of the pause, if the time suffices.
        let left = rig.machine.undelivered();
        assert!((1..=40).contains(&left), "{left}");
        rig.receiver(|_| Outcome::Accepted);
        rig.run(Duration::from_secs(29 - seconds));
        assert_eq!(rig.accepted.len() as u64, if after == 3600 { 0 } else { left });
        assert!(rig.versions().values().all(|versions| versions.is_sorted()));
    }
}

#[test]
fn replayed_letters_are_pending_at_once() {
    let mut rig = rig_with_letters();
    rig.receiver(down);
    let replayed = rig.store.replay_letters(&LetterFilter::default());
    rig.machine.appended(replayed.end.unwrap(), rig.store.state().pending);
    rig.machine.show();
    assert_eq!((rig.health.status().pending_events, rig.machine.undelivered()), (2, 2));
    rig.run(SECOND);
    assert_eq!((rig.health.status().pending_events, rig.machine.at_risk()), (2, 0));
    rig.receiver(|_| Outcome::Accepted);
    rig.run(60 * SECOND);
    assert_eq!((rig.health.status().pending_events, rig.machine.undelivered()), (0, 0));
}

/// Plan of a simulation: the changes to deliver, and a receiver that fails always for some objects and during an outage
/// for all.
#[derive(Clone, Debug)]
struct Plan {
    lanes: usize,
    /// Numbers of the objects for which the receiver always fails.
    poison: BTreeSet<u8>,
    /// Durations of an attempt that is accepted, and of one that fails, in milliseconds.
    takes: (u64, u64),
    /// Begin and length of the outage, in seconds.
    outage: (u64, u64),
    /// Objects that change, each with the pause before it in milliseconds.
    changes: Vec<(u8, u64)>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let changes = prop::collection::vec((0_u8..12, 0_u64..10_000), 1..60);
    let poison = prop::collection::btree_set(0_u8..12, 1..4);
    (2_usize..7, poison, (1_u64..500, 1_u64..10_000), (0_u64..300, 0_u64..120), changes)
        .prop_map(|(lanes, poison, takes, outage, changes)| Plan { lanes, poison, takes, outage, changes })
}

/// Simulation of a [`Plan`]: a sink whose attempts take time, and the states that its receiver has accepted.
struct Simulation {
    plan: Plan,
    machine: Machine<u32>,
    began: Instant,
    now: Instant,
    /// End, lane, events and acceptance of each attempt in flight.
    in_flight: Vec<(Instant, LaneId, Arc<[Event]>, bool)>,
    /// Failures since the last success, and their lanes.
    failed: (u32, Vec<LaneId>),
    /// Delivered states, with the time.
    delivered: BTreeMap<(String, u64), Instant>,
}

impl Simulation {
    fn new(plan: Plan) -> Self {
        let params = MachineParams {
            batch: BatchParams { max_events: 3, ..BatchParams::default() },
            retry: RetryParams { max: LONGEST_BACKOFF, ..RetryParams::default() },
            concurrency: NonZeroUsize::new(plan.lanes).unwrap(),
            ..params(SinkHealth::new())
        };
        let machine = Machine::new(params, None, StdRng::seed_from_u64(7));
        let now = clock::now();
        let (in_flight, failed, delivered) = (Vec::new(), (0, Vec::new()), BTreeMap::new());
        Self { plan, machine, began: now, now, in_flight, failed, delivered }
    }

    fn is_down(&self) -> bool {
        let (begin, length) = self.plan.outage;
        (begin..begin + length).contains(&self.now.duration_since(self.began).as_secs())
    }

    fn start(&mut self, lane: LaneId, batch: Arc<[Event]>) {
        if self.failed.0 >= Circuit::THRESHOLD && self.failed.1.len() > 1 {
            assert!(self.in_flight.is_empty(), "two attempts at a receiver that keeps failing");
        }
        let is_poison =
            |event: &Event| self.plan.poison.iter().any(|at| event.subject().ends_with(&format!("/web-{at}")));
        let is_accepted = !self.is_down() && !batch.iter().any(is_poison);
        let takes = if is_accepted { self.plan.takes.0 } else { self.plan.takes.1 };
        self.in_flight.push((self.now + Duration::from_millis(takes), lane, batch, is_accepted));
    }

    fn end(&mut self, at: usize) {
        let (_, lane, batch, is_accepted) = self.in_flight.swap_remove(at);
        if is_accepted {
            self.failed = (0, Vec::new());
            for event in &*batch {
                let state = (event.subject().to_owned(), event.version().as_number().unwrap());
                let newest = self.delivered.range(..=(state.0.clone(), u64::MAX)).next_back();
                assert!(newest.is_none_or(|((name, version), _)| *name != state.0 || *version < state.1), "{state:?}");
                self.delivered.insert(state, self.now);
            }
        } else {
            self.failed.0 += 1;
            if !self.failed.1.contains(&lane) {
                self.failed.1.push(lane);
            }
        }
        let outcome = if is_accepted { Outcome::Accepted } else { down(&batch) };
        self.machine.attempted(lane, Ok(outcome), self.now);
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            while let Some(action) = self.machine.next(self.now) {
                if let Action::Attempt { lane, batch } = action {
                    self.start(lane, batch);
                }
            }
            let ended = self.in_flight.iter().enumerate().min_by_key(|(_, attempt)| attempt.0);
            let ended = ended.map(|(at, attempt)| (attempt.0, at));
            let wake = self.machine.wake_at(self.now).map(|wake| wake.max(self.now));
            match (ended, wake) {
                (Some((time, at)), wake) if time <= end && wake.is_none_or(|wake| time <= wake) => {
                    self.now = time;
                    self.end(at);
                }
                (_, Some(wake)) if wake <= end => self.now = wake,
                _ => break,
            }
        }
        self.now = end;
    }

    /// Sends all changes. Returns each state that the receiver accepts, with the time of its change, and whether an
    /// object that always fails has the same lane.
    fn send_all(&mut self) -> Vec<((String, u64), Instant, bool)> {
        let lanes = self.plan.lanes as u64;
        let bad: BTreeSet<_> = self.plan.poison.iter().map(|at| lane_of(&format!("web-{at}"), lanes)).collect();
        let mut deliverable = Vec::new();
        for (version, (object, pause)) in (2..).zip(self.plan.changes.clone()) {
            self.run_until(self.now + Duration::from_millis(pause));
            let name = format!("web-{object}");
            self.machine.ingest(vec![update(&name, version)], jiff::Timestamp::UNIX_EPOCH, 0, self.now);
            if !self.plan.poison.contains(&object) {
                let shares_lane = bad.contains(&lane_of(&name, lanes));
                deliverable.push(((format!("/v1/pods/shop/{name}"), version), self.now, shares_lane));
            }
        }
        deliverable
    }
}

/// Checks that objects for which the receiver does not always fail are delivered within a bound.
fn assert_healthy_objects_are_delivered(plan: &Plan) {
    let mut simulation = Simulation::new(plan.clone());
    let sent = simulation.send_all();
    let outage_end = simulation.began + Duration::from_secs(plan.outage.0 + plan.outage.1);
    // A state waits for the backoff of its lane, an attempt of each other lane, and earlier batches of its lane, which
    // wait in the same way.
    let turns = u32::try_from((plan.lanes + 1) * (plan.changes.len() / 3 + 2)).unwrap();
    let attempts = Duration::from_millis(plan.takes.0.max(plan.takes.1)) * turns;
    let bound = LONGEST_BACKOFF + attempts + SECOND;
    // Each object that always fails is isolated after a few attempts of its lane, one after another.
    let isolation = bound * 20 * u32::try_from(plan.poison.len()).unwrap();
    simulation.run_until(simulation.now.max(outage_end) + isolation);
    for (state, at, shares_lane) in sent {
        let limit = at.max(outage_end) + if shares_lane { isolation } else { bound };
        let delivered = simulation.delivered.get(&state);
        assert!(
            delivered.is_some_and(|delivered| *delivered <= limit),
            "{state:?} was not delivered in time: {plan:?}"
        );
    }
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(200))]

    #[test]
    fn objects_that_always_fail_delay_others_of_their_lanes_only_until_they_are_isolated(plan in plan()) {
        assert_healthy_objects_are_delivered(&plan);
    }
}
