//! Tests an inbox under all interleavings of the actors that use it, the processor and listeners.
//!
//! Each call of the inbox holds its only lock from start to end. So any concurrent execution is a sequence of whole
//! calls, and all sequences of short scripts are tested.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::*;
use crate::cache::testing::{Informer, notification_lines};
use crate::cache::{ListenerOptions, ListenerQueue, Outbox};

#[derive(Clone, Copy, Debug)]
enum Call {
    /// The processor adds the batch with this index.
    Offer(usize),
    TakeOver,
    /// The listener takes a batch and delivers it immediately.
    Next,
    Done,
}

use Call::{Done, Next, Offer, TakeOver};

/// Visits every interleaving of scripts with these lengths.
fn interleavings(left: &mut [usize], order: &mut Vec<usize>, visit: &mut impl FnMut(&[usize])) {
    if left.iter().all(|left| *left == 0) {
        return visit(order);
    }
    for script in 0..left.len() {
        if left[script] > 0 {
            left[script] -= 1;
            order.push(script);
            interleavings(left, order, visit);
            order.pop();
            left[script] += 1;
        }
    }
}

/// Batches of changes to a store whose partition is empty at first. The processor's script adds them to the inbox.
struct History {
    informer: Informer,
    start: crate::cache::Partition,
    outboxes: Vec<Outbox>,
}

impl History {
    fn new(batches: &[&str]) -> Self {
        let mut informer = Informer::new();
        let start = informer.partition();
        let outboxes = batches.iter().map(|batch| informer.apply(batch)).collect();
        Self { informer, start, outboxes }
    }

    fn inbox(&self, merge_above: usize) -> Inbox {
        let inbox = Inbox::default();
        inbox.join(self.informer.id, ListenerQueue::new(ListenerOptions::default(), &self.start, merge_above));
        inbox
    }
}

/// State of one run of the scripts: the inbox, its listeners, and the notifications that the subscriber has
/// acknowledged.
struct Run<'h> {
    history: &'h History,
    inbox: Inbox,
    /// For each script, the lease and the current batch of its listener. The entry of the processor's script is unused.
    listeners: Vec<(InboxLease, Vec<String>)>,
    /// Listener that has taken over last.
    owner: Option<usize>,
    /// Acknowledged notifications.
    acknowledged: Vec<String>,
    /// Unacknowledged batch of a replaced listener, which its successor gets first.
    unfinished: Option<Vec<String>>,
}

impl<'h> Run<'h> {
    fn new(history: &'h History, merge_above: usize, scripts: usize) -> Self {
        let inbox = history.inbox(merge_above);
        let listeners = vec![(InboxLease::default(), Vec::new()); scripts];
        Self { history, inbox, listeners, owner: None, acknowledged: Vec::new(), unfinished: None }
    }

    fn call(&mut self, script: usize, call: Call) {
        match call {
            Offer(at) => {
                let Outbox { number, applied } = &self.history.outboxes[at];
                self.inbox.offer(*number, applied, false);
            }
            TakeOver => {
                if let Some(owner) = self.owner {
                    let hand = std::mem::take(&mut self.listeners[owner].1);
                    // If the replaced listener had no batch, an earlier unfinished batch is still delivered first.
                    self.unfinished = (!hand.is_empty()).then_some(hand).or(self.unfinished.take());
                }
                self.listeners[script] = (self.inbox.take_over(), Vec::new());
                self.owner = Some(script);
            }
            Next => self.next(script, 2),
            Done => {
                self.inbox.done(self.listeners[script].0);
                let hand = std::mem::take(&mut self.listeners[script].1);
                if self.owner == Some(script) {
                    self.acknowledged.extend(hand);
                }
            }
        }
    }

    fn next(&mut self, script: usize, max: usize) {
        let batch = self.inbox.next(self.listeners[script].0, max);
        if self.owner != Some(script) {
            assert!(batch.is_none(), "its lease is revoked");
            return;
        }
        let batch = notification_lines(&batch.expect("the owner gets a batch"));
        if let Some(unfinished) = self.unfinished.take() {
            assert_eq!(batch, unfinished, "the successor starts with the unacknowledged batch");
        }
        self.listeners[script].1 = batch;
    }

    /// Runs one more listener until nothing is pending. Returns the acknowledged notifications and the number of
    /// merges.
    fn finish(mut self) -> (Vec<String>, u64) {
        let last = self.listeners.len();
        self.listeners.push((InboxLease::default(), Vec::new()));
        self.call(last, TakeOver);
        loop {
            self.next(last, 2);
            if self.listeners[last].1.is_empty() {
                return (self.acknowledged, self.inbox.health.merged.load(Relaxed));
            }
            self.call(last, Done);
        }
    }
}

/// Runs the scripts in every order; returns the number of orders.
fn explore(history: &History, merge_above: usize, scripts: &[&[Call]], check: impl Fn(&[String], u64)) -> usize {
    let mut count = 0;
    let mut lengths: Vec<_> = scripts.iter().map(|script| script.len()).collect();
    interleavings(&mut lengths, &mut Vec::new(), &mut |order| {
        count += 1;
        let mut run = Run::new(history, merge_above, scripts.len());
        let mut at = vec![0; scripts.len()];
        for &script in order {
            run.call(script, scripts[script][at[script]]);
            at[script] += 1;
        }
        let (acknowledged, merged) = run.finish();
        check(&acknowledged, merged);
    });
    count
}

const BATCHES: [&str; 3] = ["[ *a@1 ]1", "~a@2 +b@3", "-a@4"];
const ALL: [&str; 5] = ["!a@1", "synced", "a@1>2", "+b@3", "-a@4"];

#[test]
fn inbox_loses_nothing_and_repeats_only_the_unacknowledged_batch() {
    // The processor dies after the second batch, and its successor offers that batch again.
    let processor: &[Call] = &[Offer(0), Offer(1), Offer(1), Offer(2)];
    let first: &[Call] = &[TakeOver, Next, Done, Next];
    let successor: &[Call] = &[TakeOver, Next, Done];
    let history = History::new(&BATCHES);
    let count = explore(&history, 1024, &[processor, first, successor], |acknowledged, merged| {
        assert_eq!((acknowledged, merged), (ALL.map(str::to_owned).as_slice(), 0));
    });
    assert_eq!(count, 11_550, "number of interleavings");
}

#[test]
fn inbox_survives_repeated_listener_deaths() {
    let history = History::new(&BATCHES);
    let scripts: [&[Call]; 4] =
        [&[Offer(0), Offer(1), Offer(2)], &[TakeOver, Next, Done], &[TakeOver, Next], &[TakeOver, Next]];
    let count = explore(&history, 1024, &scripts, |acknowledged, _| {
        assert_eq!(acknowledged, ALL.map(str::to_owned));
    });
    assert_eq!(count, 25_200, "number of interleavings");
}

#[test]
fn inbox_merges_pending_but_not_unacknowledged_notifications() {
    let history = History::new(&BATCHES);
    let scripts: [&[Call]; 3] = [&[Offer(0), Offer(1), Offer(2)], &[TakeOver, Next, Done, Next], &[TakeOver, Next]];
    let outcomes = RefCell::new(BTreeSet::new());
    let count = explore(&history, 0, &scripts, |acknowledged, merged| {
        assert_eq!(acknowledged.len() as u64 + merged, ALL.len() as u64, "{acknowledged:?}");
        let others: Vec<_> = acknowledged.iter().filter(|line| !line.contains("a@")).cloned().collect();
        assert_eq!(others, ["synced", "+b@3"]);
        let of_a: Vec<_> = acknowledged.iter().filter(|line| line.contains("a@")).cloned().collect();
        outcomes.borrow_mut().insert(of_a.join(" "));
    });
    assert_eq!(outcomes.into_inner().into_iter().collect::<Vec<_>>(), ["!a@1 -a@4", "!a@1 a@1>2 -a@4"]);
    assert_eq!(count, 1_260, "number of interleavings");
}

#[test]
fn batch_of_an_earlier_partition_acknowledges_nothing_of_the_next() {
    let history = History::new(&BATCHES);
    let inbox = history.inbox(usize::MAX);
    let lease = inbox.take_over();
    let offer = |at: usize| inbox.offer(history.outboxes[at].number, &history.outboxes[at].applied, false);
    offer(0);
    assert_eq!(inbox.next(lease, 10).unwrap().len(), 2);
    inbox.done(lease);
    (1..3).for_each(offer);
    assert_eq!(inbox.next(lease, 2).unwrap().len(), 2, "in flight when the partition is replaced");
    let next = PartitionId(history.informer.id.0 + 1);
    inbox.join(next, ListenerQueue::new(ListenerOptions::default(), &history.start, usize::MAX));
    offer(0);
    let mark = || Mark::new(next, history.outboxes[0].number);
    assert!(!inbox.has_acknowledged(&mut mark()), "the batch in flight is of another partition");
    inbox.done(lease);
    assert!(!inbox.has_acknowledged(&mut mark()) && !inbox.has_synced());
    inbox.next(lease, 10).unwrap();
    inbox.done(lease);
    assert!(inbox.has_acknowledged(&mut mark()) && inbox.has_synced());
}
