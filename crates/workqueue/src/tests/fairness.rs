//! Tests of lanes that take turns.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use proptest::prelude::*;

use crate::{Lanes, Order};
use informer_hub_testing::properties;

type Item = (u8, u64);

fn lane(item: &Item) -> u8 {
    item.0
}

#[test]
fn flooding_lane_delays_another_by_one_turn() {
    let mut lanes = Lanes::new(lane);
    (0..1000).for_each(|n| lanes.push((1, n)));
    lanes.push((2, 0));
    lanes.push((3, 0));
    lanes.push((2, 1));
    let first: Vec<_> = (0..6).filter_map(|_| lanes.pop()).collect();
    assert_eq!(first, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]);
    assert_eq!(lanes.len(), 997);
}

#[test]
fn lane_at_its_limit_waits_until_a_key_is_done() {
    let mut lanes = Lanes::new(lane).at_most(NonZeroUsize::MIN);
    lanes.push((1, 0));
    lanes.push((1, 1));
    assert_eq!(lanes.pop(), Some((1, 0)));
    assert!(!lanes.can_pop());
    assert_eq!((lanes.pop(), lanes.len()), (None, 1));
    lanes.push((2, 0));
    assert_eq!(lanes.pop(), Some((2, 0)));
    lanes.done(&(1, 0));
    assert!(lanes.can_pop());
    assert_eq!(lanes.pop(), Some((1, 1)));
    lanes.done(&(1, 1));
    lanes.done(&(2, 0));
    assert_eq!(format!("{lanes:?}"), "Lanes { lanes: 0, len: 0, .. }", "an empty lane is removed");
}

proptest! {
    #![proptest_config(properties(256))]

    #[test]
    fn lanes_keep_order_limit_and_turns(
        limit in 1_usize..4,
        steps in prop::collection::vec((0_u8..8, 0_u8..4), 1..300),
    ) {
        let mut lanes = Lanes::new(lane).at_most(NonZeroUsize::new(limit).unwrap());
        let mut waiting: BTreeMap<u8, VecDeque<u64>> = BTreeMap::new();
        let mut working: Vec<Item> = Vec::new();
        // For each lane that can have a turn: how many turns other lanes have had while it waited.
        let mut passed_over: BTreeMap<u8, usize> = BTreeMap::new();
        for (number, (step, which)) in (0..).zip(steps) {
            match step {
                0..4 => {
                    lanes.push((which, number));
                    waiting.entry(which).or_default().push_back(number);
                }
                4..7 => {
                    let may = |lane: &u8| working.iter().filter(|item| item.0 == *lane).count() < limit;
                    let able: Vec<u8> =
                        waiting.iter().filter(|(lane, line)| !line.is_empty() && may(lane)).map(|(lane, _)| *lane).collect();
                    prop_assert_eq!(lanes.can_pop(), !able.is_empty());
                    let got = lanes.pop();
                    prop_assert_eq!(got.is_some(), !able.is_empty());
                    let Some(item) = got else { continue };
                    prop_assert!(able.contains(&item.0));
                    prop_assert_eq!(waiting.get_mut(&item.0).and_then(VecDeque::pop_front), Some(item.1));
                    working.push(item);
                    for lane in able {
                        let passed = passed_over.entry(lane).or_insert(0);
                        *passed = if lane == item.0 { 0 } else { *passed + 1 };
                        // Each of the three other lanes gets at most one turn before it.
                        prop_assert!(*passed <= 3, "lane {} was passed over {} times", lane, passed);
                    }
                }
                _ => {
                    if working.is_empty() {
                        continue;
                    }
                    let item = working.remove(usize::from(which) % working.len());
                    lanes.done(&item);
                }
            }
            // A lane that cannot have a turn is removed, so that its count starts at zero when it can.
            passed_over.retain(|lane, _| {
                waiting.get(lane).is_some_and(|line| !line.is_empty())
                    && working.iter().filter(|item| item.0 == *lane).count() < limit
            });
            prop_assert_eq!(lanes.len(), waiting.values().map(VecDeque::len).sum::<usize>());
        }
    }
}
