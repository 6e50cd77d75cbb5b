//! Every interleaving of those who use one inbox at once.
//!
//! Each call holds the inbox's one lock from its beginning to its end, so whatever threads do, it is some sequence of
//! whole calls; here all of them are gone through, for scripts that are short enough.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::*;
use crate::cache::testing::{Informer, notification_lines};
use crate::cache::{ListenerOptions, ListenerQueue, Outbox};

#[derive(Clone, Copy, Debug)]
enum Call {
    /// The processor puts a batch in, by its place among the batches.
    Offer(usize),
    TakeOver,
    /// The listener asks for a batch, and its subscriber gets it at once.
    Next,
    Done,
}

use Call::{Done, Next, Offer, TakeOver};

/// Which script goes on next, for each way in which scripts of these lengths can interleave.
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

/// What a store did, and what a queue of its start is told of it when nobody is slow.
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

/// Those who use the inbox, as the subscriber sees them.
struct Run<'h> {
    history: &'h History,
    inbox: Inbox,
    /// Each listener's right, and what it has in hand; the processor has none of either.
    listeners: Vec<(Turn, Vec<String>)>,
    /// Who has taken over last.
    owner: Option<usize>,
    /// What was answered for.
    heard: Vec<String>,
    /// What a listener had in hand when another took over.
    orphaned: Option<Vec<String>>,
}

impl<'h> Run<'h> {
    fn new(history: &'h History, merge_above: usize, scripts: usize) -> Self {
        let inbox = history.inbox(merge_above);
        let listeners = vec![(Turn::default(), Vec::new()); scripts];
        Self { history, inbox, listeners, owner: None, heard: Vec::new(), orphaned: None }
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
                    // What nobody asked for again since an earlier death is still the same batch.
                    self.orphaned = (!hand.is_empty()).then_some(hand).or(self.orphaned.take());
                }
                self.listeners[script] = (self.inbox.take_over(), Vec::new());
                self.owner = Some(script);
            }
            Next => self.next(script, 2),
            Done => {
                self.inbox.done(self.listeners[script].0);
                let hand = std::mem::take(&mut self.listeners[script].1);
                if self.owner == Some(script) {
                    self.heard.extend(hand);
                }
            }
        }
    }

    fn next(&mut self, script: usize, max: usize) {
        let batch = self.inbox.next(self.listeners[script].0, max);
        if self.owner != Some(script) {
            assert!(batch.is_none(), "its turn is over");
            return;
        }
        let batch = notification_lines(&batch.expect("it is its turn"));
        if let Some(orphaned) = self.orphaned.take() {
            assert_eq!(batch, orphaned, "the successor begins with what its predecessor had in hand");
        }
        self.listeners[script].1 = batch;
    }

    /// A last listener comes, and nobody disturbs it.
    fn finish(mut self) -> (Vec<String>, u64) {
        let last = self.listeners.len();
        self.listeners.push((Turn::default(), Vec::new()));
        self.call(last, TakeOver);
        loop {
            self.next(last, 2);
            if self.listeners[last].1.is_empty() {
                return (self.heard, self.inbox.health.merged.load(Relaxed));
            }
            self.call(last, Done);
        }
    }
}

/// Runs the scripts in every order; gives back how many there were.
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
        let (heard, merged) = run.finish();
        check(&heard, merged);
    });
    count
}

const BATCHES: [&str; 3] = ["[ *a@1 ]1", "~a@2 +b@3", "-a@4"];
const ALL: [&str; 5] = ["!a@1", "synced", "a@1>2", "+b@3", "-a@4"];

#[test]
fn nothing_is_lost_and_only_what_a_dying_listener_had_in_hand_is_told_twice() {
    // The processor dies after the second batch, and its successor offers that one again.
    let processor: &[Call] = &[Offer(0), Offer(1), Offer(1), Offer(2)];
    let first: &[Call] = &[TakeOver, Next, Done, Next];
    let successor: &[Call] = &[TakeOver, Next, Done];
    let history = History::new(&BATCHES);
    let count = explore(&history, 1024, &[processor, first, successor], |heard, merged| {
        assert_eq!((heard, merged), (ALL.map(str::to_owned).as_slice(), 0));
    });
    assert_eq!(count, 11_550, "all of them");
}

#[test]
fn a_successor_may_die_as_its_predecessor_did() {
    let history = History::new(&BATCHES);
    let scripts: [&[Call]; 4] =
        [&[Offer(0), Offer(1), Offer(2)], &[TakeOver, Next, Done], &[TakeOver, Next], &[TakeOver, Next]];
    let count = explore(&history, 1024, &scripts, |heard, _| {
        assert_eq!(heard, ALL.map(str::to_owned));
    });
    assert_eq!(count, 25_200, "all of them");
}

#[test]
fn what_a_dead_listener_leaves_does_not_merge_and_the_rest_does() {
    let history = History::new(&BATCHES);
    let scripts: [&[Call]; 3] = [&[Offer(0), Offer(1), Offer(2)], &[TakeOver, Next, Done, Next], &[TakeOver, Next]];
    let outcomes = RefCell::new(BTreeSet::new());
    let count = explore(&history, 0, &scripts, |heard, merged| {
        assert_eq!(heard.len() as u64 + merged, ALL.len() as u64, "{heard:?}");
        let others: Vec<_> = heard.iter().filter(|line| !line.contains("a@")).cloned().collect();
        assert_eq!(others, ["synced", "+b@3"]);
        let of_a: Vec<_> = heard.iter().filter(|line| line.contains("a@")).cloned().collect();
        outcomes.borrow_mut().insert(of_a.join(" "));
    });
    assert_eq!(
        outcomes.into_inner().into_iter().collect::<Vec<_>>(),
        ["", "!a@1 -a@4", "!a@1 a@1>2 -a@4", "!a@2 -a@4"]
    );
    assert_eq!(count, 1_260, "all of them");
}
