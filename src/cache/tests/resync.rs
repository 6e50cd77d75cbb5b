//! Tests of resync periods: the rules of client-go (`shared_informer_test.go`, cited at each test), and a property of
//! random joins, leaves, ticks and stalls.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use crate::ResyncSchedule;
use crate::testing::properties;
use informer_hub_types::clock::{self, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns the listeners that are resynced at `at` seconds.
fn tick(schedule: &mut ResyncSchedule<u8>, start: Instant, at: u32) -> Vec<u8> {
    if !schedule.tick(start + SECOND * at, false) {
        return Vec::new();
    }
    (0..10).filter(|id| schedule.is_due(id)).collect()
}

#[test]
fn schedule_resyncs_each_listener_at_its_own_period() {
    // TestListenerResyncPeriods. Its tick of one second is the informer's own period, here a fourth listener.
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    for (id, period) in [(1, None), (2, Some(secs(2))), (3, Some(secs(3))), (4, Some(secs(1)))] {
        schedule.join(id, period, start);
    }
    assert_eq!(schedule.tick_period(), Some(secs(1)));
    let resynced: Vec<_> = (1..=6).map(|at| tick(&mut schedule, start, at)).collect();
    assert_eq!(resynced, [vec![4], vec![2, 4], vec![3, 4], vec![2, 4], vec![4], vec![2, 3, 4]]);
}

#[test]
fn tick_period_is_the_shortest_requested_period() {
    // TestResyncCheckPeriod
    let start = clock::now();
    let mut schedule = ResyncSchedule::default();
    let mut join = |id: u8, period| {
        schedule.join(id, period, start);
        (schedule.tick_period(), [1, 2, 3, 4].map(|id| schedule.period_of(&id)))
    };
    assert_eq!(join(1, None), (None, [None; 4]));
    assert_eq!(join(2, Some(secs(60))), (Some(secs(60)), [None, Some(secs(60)), None, None]));
    assert_eq!(join(3, Some(secs(55))), (Some(secs(55)), [None, Some(secs(60)), Some(secs(55)), None]));
    assert_eq!(join(4, Some(secs(5))), (Some(secs(5)), [None, Some(secs(60)), Some(secs(55)), Some(secs(5))]));
}

#[test]
fn late_listener_gets_a_shorter_period() {
    // client-go raises it to the period of the running timer.
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    schedule.join(1, Some(secs(10)), start);
    assert_eq!(tick(&mut schedule, start, 10), [1]);
    schedule.join(2, Some(secs(2)), start + SECOND * 11);
    assert_eq!((schedule.tick_period(), schedule.period_of(&2)), (Some(secs(2)), Some(secs(2))));
    assert_eq!(tick(&mut schedule, start, 12), [0; 0]);
    assert_eq!(tick(&mut schedule, start, 13), [2]);
}

#[test]
fn tick_period_grows_when_its_listener_leaves() {
    // client-go's timer keeps its shortest period.
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    schedule.join(1, Some(secs(2)), start);
    schedule.join(2, Some(secs(7)), start);
    schedule.leave(&1);
    schedule.leave(&9);
    assert_eq!((schedule.tick_period(), schedule.period_of(&1), schedule.is_due(&1)), (Some(secs(7)), None, false));
    schedule.leave(&2);
    assert_eq!(schedule.tick_period(), None);
    assert_eq!(tick(&mut schedule, start, 100), [0; 0]);
}

#[test]
fn period_is_at_least_one_second_or_none() {
    // minimumResyncPeriod
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    schedule.join(1, Some(Duration::from_nanos(1)), start);
    schedule.join(2, Some(Duration::from_millis(1001)), start);
    schedule.join(3, Some(Duration::ZERO), start);
    schedule.join(4, None, start);
    let granted = [1, 2, 3, 4].map(|id| schedule.period_of(&id));
    assert_eq!(granted, [Some(secs(1)), Some(Duration::from_millis(1001)), None, None]);
    schedule.join(1, None, start);
    assert_eq!(schedule.period_of(&1), None, "it has no period any more");
}

#[test]
fn listener_is_due_exactly_at_its_time() {
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    schedule.join(1, Some(secs(5)), start);
    assert!(!schedule.tick(start + SECOND * 5 - Duration::from_nanos(1), false));
    assert!(schedule.tick(start + SECOND * 5, false));
    assert!(!schedule.tick(start + SECOND * 5, false), "once");
}

#[test]
fn listener_due_during_a_resync_stays_due() {
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    schedule.join(1, Some(secs(2)), start);
    schedule.join(2, Some(secs(3)), start);
    assert_eq!(tick(&mut schedule, start, 2), [1]);
    assert!(!schedule.tick(start + SECOND * 4, true));
    assert!(schedule.is_due(&1) && !schedule.is_due(&2), "the running resync is for the first alone");
    assert_eq!(tick(&mut schedule, start, 5), [1, 2]);
}

#[test]
fn idle_tick_keeps_the_receivers_of_the_last_resync() {
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    schedule.join(1, Some(secs(3)), start);
    assert_eq!(tick(&mut schedule, start, 3), [1]);
    assert!(!schedule.tick(start + SECOND * 4, false));
    assert!(schedule.is_due(&1), "the queued resync is still for it");
}

#[test]
fn listener_that_joins_during_a_resync_is_not_part_of_it() {
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    schedule.join(1, Some(secs(1)), start);
    assert_eq!(tick(&mut schedule, start, 1), [1]);
    schedule.join(2, Some(secs(1)), start + SECOND);
    assert!(!schedule.is_due(&2));
    schedule.join(1, Some(secs(1)), start + SECOND);
    assert!(!schedule.is_due(&1), "joining again starts over");
}

#[test]
fn listener_gets_one_resync_for_times_missed_in_a_stall() {
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    schedule.join(1, Some(secs(1)), start);
    schedule.join(6, Some(secs(6)), start);
    assert_eq!(tick(&mut schedule, start, 20), [1, 6]);
    assert_eq!(tick(&mut schedule, start, 21), [1]);
    let resynced: Vec<_> = (22..=25).map(|at| tick(&mut schedule, start, at)).collect();
    assert_eq!(resynced, [vec![1], vec![1], vec![1, 6], vec![1]], "its times are multiples of its period");
}

#[test]
fn maximum_period_does_not_overflow() {
    let start = clock::now();
    let mut schedule = ResyncSchedule::new();
    schedule.join(1, Some(Duration::MAX), start);
    schedule.join(2, Some(secs(1)), start);
    assert_eq!(tick(&mut schedule, start, u32::MAX), [2]);
    assert_eq!(schedule.period_of(&1), Some(Duration::MAX));
}

#[derive(Clone, Debug)]
enum Step {
    Join(u8, u32),
    Leave(u8),
    Tick { after: u32, under_way: bool },
}

fn arb_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..4_u8, 0..9_u32).prop_map(|(id, period)| Step::Join(id, period)),
        1 => (0..4_u8).prop_map(Step::Leave),
        6 => (0..12_u32, prop::bool::weighted(0.3)).prop_map(|(after, under_way)| Step::Tick { after, under_way }),
    ]
}

/// Reference model of a listener, with all of its times.
#[derive(Debug)]
struct Model {
    joined: u32,
    /// In half seconds; at least two.
    period: u32,
    /// Time of the last resync, in half seconds.
    resynced: Option<u32>,
}

impl Model {
    /// Returns whether one of its times is after the last resync and not in the future.
    fn is_due(&self, now: u32) -> bool {
        let mut times = (1..).map(|k| self.joined + k * self.period).take_while(|time| *time <= now);
        times.any(|time| self.resynced.is_none_or(|resynced| resynced < time))
    }
}

proptest! {
    #![proptest_config(properties(512))]

    #[test]
    fn schedule_resyncs_exactly_the_overdue_listeners(
        steps in prop::collection::vec(arb_step(), 1..80),
    ) {
        const HALF: Duration = Duration::from_millis(500);
        let start = clock::now();
        let (mut now, mut model, mut last) = (0_u32, BTreeMap::<u8, Model>::new(), Vec::new());
        let mut schedule = ResyncSchedule::new();
        for step in steps {
            match step {
                Step::Join(id, period) => {
                    schedule.join(id, Some(HALF * period), start + HALF * now);
                    model.remove(&id);
                    last.retain(|due| *due != id);
                    if period > 0 {
                        model.insert(id, Model { joined: now, period: period.max(2), resynced: None });
                    }
                }
                Step::Leave(id) => {
                    schedule.leave(&id);
                    model.remove(&id);
                    last.retain(|due| *due != id);
                }
                Step::Tick { after, under_way } => {
                    now += after;
                    let due: Vec<u8> =
                        model.iter().filter(|(_, listener)| listener.is_due(now)).map(|(id, _)| *id).collect();
                    let repeats = !under_way && !due.is_empty();
                    prop_assert_eq!(schedule.tick(start + HALF * now, under_way), repeats);
                    if repeats {
                        for id in &due {
                            model.get_mut(id).expect("it is due").resynced = Some(now);
                        }
                        last = due;
                    }
                }
            }
            let due: Vec<_> = (0..4).filter(|id| schedule.is_due(id)).collect();
            prop_assert_eq!(&due, &last);
            let shortest = model.values().map(|listener| HALF * listener.period).min();
            prop_assert_eq!(schedule.tick_period(), shortest);
        }
    }
}
