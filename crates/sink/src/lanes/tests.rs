//! Tests of the lanes, also against a simple model: one queue per object.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::super::event::tests::event;
use super::*;
use informer_hub_types::clock;

const WAIT: Duration = Duration::from_millis(250);

fn lanes(count: usize, max_events: usize, bounds: Bounds) -> Lanes {
    let batch = BatchParams { max_events, max_bytes: 4096, max_wait: WAIT };
    Lanes::new(NonZeroUsize::new(count).unwrap(), batch, bounds)
}

fn ids(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.id().to_owned()).collect()
}

#[test]
fn batch_is_ready_when_full_or_after_max_wait() {
    let (mut lanes, now) = (lanes(1, 2, Bounds::default()), clock::now());
    lanes.push(event("a", 1, 0), now).unwrap();
    assert!(lanes.take_ready(now, Gate::All).is_none());
    assert_eq!(lanes.next_wake(Gate::All), Some(now + WAIT));
    lanes.push(event("a", 2, 0), now).unwrap();
    lanes.push(event("a", 3, 0), now).unwrap();
    let (lane, batch) = lanes.take_ready(now, Gate::All).unwrap();
    assert_eq!(batch.len(), 2);
    assert!(lanes.take_ready(now + WAIT, Gate::All).is_none(), "one batch in flight per lane");
    assert_eq!(lanes.next_wake(Gate::All), None);
    lanes.acked(lane);
    assert!(lanes.take_ready(now, Gate::All).is_none());
    assert_eq!(lanes.take_ready(now + WAIT, Gate::All).unwrap().1.len(), 1);
}

#[test]
fn batch_is_limited_in_bytes_and_a_large_event_is_alone() {
    let (mut lanes, now) = (lanes(1, 100, Bounds::default()), clock::now());
    for (version, padding) in [(1, 10), (2, 100_000), (3, 10)] {
        lanes.push(event("a", version, padding), now).unwrap();
    }
    for _ in 0..3 {
        let (lane, batch) = lanes.take_ready(now + WAIT, Gate::All).unwrap();
        assert_eq!(batch.len(), 1);
        lanes.acked(lane);
    }
    assert!(lanes.is_empty() && lanes.bytes() == 0);
}

#[test]
fn lanes_refuse_events_beyond_both_bounds() {
    let now = clock::now();
    let mut by_events = lanes(4, 10, Bounds { events: 3, bytes: usize::MAX });
    let taken = (0..10).filter(|i| by_events.push(event("a", *i, 0), now).is_ok()).count();
    assert_eq!(taken, 3);
    let mut by_bytes = lanes(4, 10, Bounds { events: usize::MAX, bytes: 10_000 });
    while by_bytes.push(event("a", 1, 3000), now).is_ok() {}
    assert!(by_bytes.bytes() < 10_000 + event("a", 1, 3000).size());
}

#[test]
fn gate_limits_lanes_and_wake_time() {
    let (mut lanes, now) = (lanes(8, 1, Bounds::default()), clock::now());
    for name in ["a", "b", "c", "d", "e", "f"] {
        lanes.push(event(name, 1, 0), now).unwrap();
    }
    let until = now + Duration::from_secs(60);
    assert!(lanes.take_ready(now, Gate::Until(until)).is_none());
    assert_eq!(lanes.next_wake(Gate::Until(until)), Some(until));
    let (lane, _) = lanes.take_ready(now, Gate::All).unwrap();
    lanes.retry_at(lane, until);
    assert!(lanes.take_ready(now, Gate::Only(lane)).is_none());
    assert_eq!(lanes.next_wake(Gate::Only(lane)), Some(until));
    assert_eq!(lanes.take_ready(until, Gate::Only(lane)).map(|(id, _)| id), Some(lane));
}

#[test]
fn halved_batches_keep_the_order() {
    let (mut lanes, now) = (lanes(1, 5, Bounds::default()), clock::now());
    let all: Vec<_> = (0..7).map(|i| event("a", i, 0)).collect();
    for event in &all {
        lanes.push(event.clone(), now).unwrap();
    }
    let (lane, _) = lanes.take_ready(now, Gate::All).unwrap();
    lanes.failed(lane, now);
    lanes.halve(lane, 1);
    lanes.retry_at(lane, now);
    let mut seen = Vec::new();
    while let Some((lane, batch)) = lanes.take_ready(now + WAIT, Gate::All) {
        seen.extend(ids(&batch));
        lanes.acked(lane);
    }
    assert_eq!(seen, ids(&all));
    assert!(lanes.is_empty() && lanes.bytes() == 0);
}

#[test]
fn single_event_batch_is_not_halved() {
    let (mut lanes, now) = (lanes(1, 5, Bounds::default()), clock::now());
    lanes.push(event("a", 1, 0), now).unwrap();
    let (lane, _) = lanes.take_ready(now + WAIT, Gate::All).unwrap();
    for failures in 1..5 {
        assert_eq!(lanes.failed(lane, now).0, failures);
        lanes.halve(lane, 1);
    }
    assert_eq!((lanes.failures(lane), lanes.events()), (4, 1));
}

#[test]
fn clear_keeps_batches_in_flight() {
    let (mut lanes, now) = (lanes(1, 2, Bounds::default()), clock::now());
    (0..5).for_each(|i| lanes.push(event("a", i, 0), now).unwrap());
    let (lane, _) = lanes.take_ready(now, Gate::All).unwrap();
    assert_eq!(lanes.clear().len(), 3);
    assert_eq!(lanes.events(), 2);
    lanes.acked(lane);
    assert!(lanes.is_empty() && lanes.bytes() == 0);
}

fn refused(lanes: &mut Lanes, lane: LaneId, now: Instant, due: Instant) {
    let attempts = lanes.failed(lane, now).0;
    let since = lanes.refusals(lane).map_or(now, |refusals| refusals.since);
    // Every second failure of an event is not a refusal of its content.
    let refused_since = (attempts % 2 == 1).then_some(since);
    lanes.set_aside(lane, Refusals { since, refused_since, last: now, attempts, error: "no".into() }, due);
}

#[test]
fn event_set_aside_blocks_only_its_object() {
    let (mut lanes, now) = (lanes(1, 1, Bounds::default()), clock::now());
    let all: Vec<_> = [("a", 1), ("b", 1), ("a", 2), ("b", 2)].map(|(name, version)| event(name, version, 0)).into();
    for event in &all {
        lanes.push(event.clone(), now).unwrap();
    }
    let (lane, _) = lanes.take_ready(now, Gate::All).unwrap();
    let due = now + Duration::from_secs(60);
    refused(&mut lanes, lane, now, due);
    lanes.push(event("a", 3, 0), now).unwrap();
    assert_eq!((lanes.set_aside_size().0, lanes.events()), (3, 5), "a@1, followed by a@2 and a@3");
    for expected in [&all[1], &all[3]] {
        let (lane, batch) = lanes.take_ready(now, Gate::All).unwrap();
        assert_eq!(ids(&batch), [expected.id()]);
        lanes.acked(lane);
    }
    assert!(lanes.take_ready(now, Gate::All).is_none());
    assert_eq!(lanes.next_wake(Gate::All), Some(due));
    let (lane, batch) = lanes.take_ready(due, Gate::All).unwrap();
    assert_eq!((ids(&batch), lanes.failures(lane)), (vec![all[0].id().to_owned()], 1));
    assert_eq!(lanes.refusals(lane).unwrap().since, now);
    lanes.acked(lane);
    lanes.push(event("b", 3, 0), due).unwrap();
    let mut versions = Vec::new();
    while let Some((lane, batch)) = lanes.take_ready(due, Gate::All) {
        versions.push(batch[0].version().to_string());
        lanes.acked(lane);
    }
    assert_eq!(versions, ["2", "3", "3"], "a@2 and a@3 are older than b@3");
    assert!(lanes.is_empty() && lanes.bytes() == 0 && lanes.set_aside_size() == (0, 0));
}

#[test]
fn refused_events_take_at_most_every_other_attempt() {
    let (mut lanes, now) = (lanes(1, 1, Bounds::default()), clock::now());
    for name in ["a", "b", "c", "d"] {
        lanes.push(event(name, 1, 0), now).unwrap();
        let (lane, _) = lanes.take_ready(now, Gate::All).unwrap();
        refused(&mut lanes, lane, now, now + Duration::from_secs(60));
    }
    (0..4).for_each(|version| lanes.push(event("well", version, 0), now).unwrap());
    let later = now + Duration::from_secs(3600);
    let mut subjects = String::new();
    for _ in 0..8 {
        assert_eq!(lanes.ready_len(later, Gate::All), Some(1));
        let (lane, batch) = lanes.take_ready(later, Gate::All).unwrap();
        if batch[0].subject().ends_with("/well") {
            subjects.push('w');
            lanes.acked(lane);
        } else {
            subjects.push('r');
            refused(&mut lanes, lane, later, later);
        }
    }
    assert_eq!(subjects, "rwrwrwrw");
}

#[test]
fn rebuilt_lanes_keep_the_order_of_events_set_aside() {
    let (mut lanes, now) = (lanes(2, 1, Bounds::default()), clock::now());
    let all: Vec<_> = (0..4).map(|version| event("a", version, 0)).collect();
    for event in &all {
        lanes.push(event.clone(), now).unwrap();
    }
    let (lane, _) = lanes.take_ready(now, Gate::All).unwrap();
    refused(&mut lanes, lane, now, now + Duration::from_secs(60));
    assert_eq!(lanes.set_aside_size().0, 4);
    lanes.rebuild(NonZeroUsize::new(3).unwrap(), BatchParams::default(), Bounds::default(), now);
    assert_eq!((lanes.set_aside_size().0, lanes.events()), (0, 4), "new parameters make refused events due again");
    assert_eq!(ids(&lanes.take_ready(now + WAIT, Gate::All).unwrap().1), ids(&all));
}

#[derive(Debug, Clone)]
enum Step {
    Push(u8),
    Advance(u16),
    Take { only: Option<u8> },
    Ack(u8),
    Retry { which: u8, delay: u16, halve: bool },
    GiveUp(u8),
    SetAside { which: u8, delay: u16 },
    GiveUpOldest,
    Hasten,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u8..12).prop_map(Step::Push),
        3 => (0_u16..400).prop_map(Step::Advance),
        6 => prop::option::weighted(0.2, 0_u8..4).prop_map(|only| Step::Take { only }),
        4 => any::<u8>().prop_map(Step::Ack),
        4 => (any::<u8>(), 0_u16..2000, any::<bool>())
            .prop_map(|(which, delay, halve)| Step::Retry { which, delay, halve }),
        1 => any::<u8>().prop_map(Step::GiveUp),
        4 => (any::<u8>(), 0_u16..2000).prop_map(|(which, delay)| Step::SetAside { which, delay }),
        1 => Just(Step::GiveUpOldest),
        1 => Just(Step::Hasten),
        1 => Just(Step::Flush),
    ]
}

/// Expected state of the lanes: one queue of ids per object.
#[derive(Default)]
struct Model {
    waiting: HashMap<String, VecDeque<String>>,
    pushed: usize,
    gone: usize,
    in_flight: Vec<(LaneId, Arc<[Event]>)>,
}

impl Model {
    /// Removes delivered or given-up events from the model. Asserts that each was the oldest of its object.
    fn leave(&mut self, events: &[Event]) {
        for event in events {
            let oldest = self.waiting.get_mut(event.subject()).and_then(VecDeque::pop_front);
            assert_eq!(oldest.as_deref(), Some(event.id()), "order of {}", event.subject());
            self.gone += 1;
        }
    }

    fn take(&mut self, lane: LaneId, batch: Arc<[Event]>, max_events: usize) {
        assert!(self.in_flight.iter().all(|(busy, _)| *busy != lane), "two batches of {lane:?}");
        assert!(!batch.is_empty() && batch.len() <= max_events);
        self.in_flight.push((lane, batch));
    }

    fn pick(&mut self, which: u8) -> Option<(LaneId, Arc<[Event]>)> {
        let count = self.in_flight.len();
        (count > 0).then(|| self.in_flight.swap_remove(usize::from(which) % count))
    }
}

fn refuse(lanes: &mut Lanes, lane: LaneId, batch: &[Event], now: Instant, due: Instant) {
    if batch.len() == 1 {
        return refused(lanes, lane, now, due);
    }
    lanes.failed(lane, now);
    lanes.halve(lane, 1);
    lanes.retry_at(lane, due);
}

fn run(steps: &[Step]) {
    const MAX_EVENTS: usize = 3;
    let bounds = Bounds { events: 20, bytes: 20_000 };
    let (mut lanes, mut model, mut now) = (lanes(4, MAX_EVENTS, bounds), Model::default(), clock::now());
    for (version, step) in steps.iter().enumerate() {
        match step {
            Step::Push(name) => {
                let event = event(&format!("web-{name}"), version as u64, usize::from(*name) * 100);
                let (subject, id) = (event.subject().to_owned(), event.id().to_owned());
                let full = lanes.is_full();
                assert_eq!(lanes.push(event, now).is_err(), full);
                if !full {
                    model.pushed += 1;
                    model.waiting.entry(subject).or_default().push_back(id);
                }
            }
            Step::Advance(millis) => now += Duration::from_millis(u64::from(*millis)),
            Step::Take { only } => {
                let gate = only.map_or(Gate::All, |lane| Gate::Only(LaneId(usize::from(lane))));
                let due = lanes.next_wake(gate).is_some_and(|wake| wake <= now);
                let taken = lanes.take_ready(now, gate);
                assert_eq!(taken.is_some(), due, "next_wake and take_ready must agree");
                if let Some((lane, batch)) = taken {
                    model.take(lane, batch, MAX_EVENTS);
                }
            }
            Step::Ack(which) => {
                let Some((lane, _)) = model.pick(*which) else { continue };
                model.leave(&lanes.acked(lane));
            }
            Step::Retry { which, delay, halve } => {
                let Some((lane, _)) = model.pick(*which) else { continue };
                lanes.failed(lane, now);
                if *halve {
                    lanes.halve(lane, 1);
                }
                lanes.retry_at(lane, now + Duration::from_millis(u64::from(*delay)));
            }
            Step::GiveUp(which) => {
                let Some((lane, _)) = model.pick(*which) else { continue };
                model.leave(&lanes.give_up(lane));
            }
            Step::SetAside { which, delay } => {
                let Some((lane, batch)) = model.pick(*which) else { continue };
                refuse(&mut lanes, lane, &batch, now, now + Duration::from_millis(u64::from(*delay)));
            }
            Step::GiveUpOldest => {
                let Some((event, refusals)) = lanes.give_up_oldest() else { continue };
                assert!(refusals.attempts > 0 && refusals.since <= refusals.last);
                model.leave(&[event]);
            }
            Step::Hasten => lanes.hasten(now, now),
            Step::Flush => lanes.flush(now),
        }
        let (aside, bytes) = lanes.set_aside_size();
        assert!(aside <= lanes.events() && bytes <= lanes.bytes());
        let refused = lanes.refused_size();
        assert!(refused.0 <= aside && refused.1 <= bytes && (aside > 0 || bytes == 0));
        assert_eq!(lanes.events(), model.pushed - model.gone);
        assert!(lanes.events() <= bounds.events);
    }
    while let Some((lane, _)) = model.pick(0) {
        model.leave(&lanes.acked(lane));
    }
    while let Some(wake) = lanes.next_wake(Gate::All) {
        now = now.max(wake);
        let (lane, _) = lanes.take_ready(now, Gate::All).expect("next_wake announced a batch");
        model.leave(&lanes.acked(lane));
    }
    assert!(lanes.is_empty() && lanes.bytes() == 0 && model.gone == model.pushed);
    assert_eq!(lanes.set_aside_size(), (0, 0));
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(200))]

    #[test]
    fn lanes_keep_order_lose_nothing_and_have_one_batch_each(steps in prop::collection::vec(step(), 1..200)) {
        run(&steps);
    }
}
