//! Model test: any sequence of operations gives the same results on the queue and on a naive implementation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::ms;
use crate::{Fifo, ItemExponentialFailureRateLimiter, Queue, RateLimiter, TakeResult};
use informer_hub_testing::properties;
use informer_hub_types::clock;

#[derive(Debug, Clone, Copy)]
enum Step {
    Add(u8),
    AddAfter(u8, u64),
    AddRateLimited(u8),
    Forget(u8),
    Get,
    /// Ends the n-th key in process.
    Done(usize),
    /// Ends the n-th key in process with an outdated ticket.
    DoneLate(usize),
    Wait(u64),
    ShutDown,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..6_u8;
    prop_oneof![
        8 => key.clone().prop_map(Step::Add),
        4 => (key.clone(), 0..20_u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        4 => key.clone().prop_map(Step::AddRateLimited),
        2 => key.prop_map(Step::Forget),
        8 => Just(Step::Get),
        6 => (0..6_usize).prop_map(Step::Done),
        1 => (0..6_usize).prop_map(Step::DoneLate),
        6 => (0..10_u64).prop_map(Step::Wait),
        1 => Just(Step::ShutDown),
    ]
}

/// Naive implementation of the queue. Times are in milliseconds.
#[derive(Default)]
struct Naive {
    now: u64,
    /// Queued keys, in the order of addition.
    line: Vec<u8>,
    in_work: Vec<u8>,
    again: BTreeSet<u8>,
    /// Delayed keys with their due times, in the order of the requests.
    later: Vec<(u64, u8)>,
    failures: BTreeMap<u8, u32>,
    over: bool,
}

impl Naive {
    fn add(&mut self, key: u8) {
        if self.over || self.line.contains(&key) {
            return;
        }
        if self.in_work.contains(&key) {
            self.again.insert(key);
        } else {
            self.line.push(key);
        }
    }

    fn add_after(&mut self, key: u8, delay: u64) {
        let at = self.now + delay;
        if self.over {
        } else if delay == 0 {
            self.add(key);
        } else if self.later.iter().all(|(known, other)| *other != key || *known > at) {
            self.later.retain(|(_, other)| *other != key);
            self.later.push((at, key));
        }
    }

    fn delay(&mut self, key: u8) -> u64 {
        let failures = self.failures.entry(key).or_insert(0);
        *failures += 1;
        (1_u64 << (*failures - 1).min(10)).min(16)
    }

    fn wait(&mut self, by: u64) {
        for _ in 0..by {
            self.now += 1;
            let now = self.now;
            let due: Vec<u8> = self.later.iter().filter(|(at, _)| *at == now).map(|(_, key)| *key).collect();
            self.later.retain(|(at, _)| *at != now);
            for key in due {
                self.add(key);
            }
        }
    }

    fn get(&mut self) -> Option<u8> {
        let key = (!self.line.is_empty()).then(|| self.line.remove(0))?;
        self.in_work.push(key);
        Some(key)
    }

    fn done(&mut self, key: u8) {
        self.in_work.retain(|other| *other != key);
        if self.again.remove(&key) {
            self.line.push(key);
        }
    }
}

proptest! {
    #![proptest_config(properties(1024))]

    #[test]
    fn queue_agrees_with_the_naive_model(steps in prop::collection::vec(step(), 1..150)) {
        let mut naive = Naive::default();
        let mut queue = Queue::new(Box::new(Fifo::default()));
        let mut limiter = ItemExponentialFailureRateLimiter::new(ms(1), ms(16));
        let mut now = clock::now();
        let mut tickets = BTreeMap::new();
        let (mut taken, mut ended) = (0, 0);
        for step in steps {
            match step {
                Step::Add(key) => {
                    naive.add(key);
                    queue.add(key, now);
                }
                Step::AddAfter(key, delay) => {
                    naive.add_after(key, delay);
                    queue.add_after(key, ms(delay), now);
                }
                Step::AddRateLimited(key) => {
                    let delay = naive.delay(key);
                    naive.add_after(key, delay);
                    let returned = limiter.when(&key, now);
                    prop_assert_eq!(returned, ms(delay));
                    queue.add_after(key, returned, now);
                }
                Step::Forget(key) => {
                    naive.failures.remove(&key);
                    limiter.forget(&key);
                }
                Step::Get => match (queue.take(now), naive.get()) {
                    (TakeResult::Item(key, ticket), truth) => {
                        prop_assert_eq!(Some(key), truth);
                        prop_assert!(tickets.insert(key, ticket).is_none(), "processed concurrently");
                        taken += 1;
                    }
                    (took, truth) => {
                        prop_assert_eq!(truth, None);
                        prop_assert_eq!(took == TakeResult::Over, naive.over);
                    }
                },
                Step::Done(at) => {
                    if let Some(key) = naive.in_work.get(at).copied() {
                        naive.done(key);
                        queue.done(&key, tickets.remove(&key), now);
                        ended += 1;
                    }
                }
                Step::DoneLate(at) => {
                    let key = u8::try_from(at).unwrap();
                    queue.done(&key, Some(tickets.get(&key).map_or(0, |ticket| ticket - 1)), now);
                }
                Step::Wait(by) => {
                    naive.wait(by);
                    now += ms(by);
                    queue.advance(now);
                }
                Step::ShutDown => {
                    naive.over = true;
                    naive.later.clear();
                    queue.shut_down();
                }
            }
            let metrics = queue.metrics(now);
            prop_assert_eq!(queue.len(), naive.line.len());
            prop_assert_eq!(queue.can_take(), !naive.line.is_empty());
            prop_assert_eq!(queue.is_idle(), naive.line.is_empty() && naive.in_work.is_empty());
            prop_assert_eq!(metrics.depth, naive.line.len() + naive.again.len());
            prop_assert_eq!(metrics.processing, naive.in_work.len());
            prop_assert_eq!(metrics.delayed, naive.later.len());
            prop_assert_eq!(metrics.queue_latency.count(), taken);
            prop_assert_eq!(metrics.work_duration.count(), ended);
            let due = naive.later.iter().map(|(at, _)| at - naive.now).min();
            prop_assert_eq!(queue.next_due().map(|due| due - now), due.map(ms));
            for key in 0..6 {
                prop_assert_eq!(limiter.num_requeues(&key), naive.failures.get(&key).copied().unwrap_or(0));
            }
            prop_assert!(metrics.longest_running <= metrics.unfinished_work + Duration::ZERO);
        }
    }
}
