//! Model test of the delta fifo, against a log of all changes: same order, fewer deltas, same result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::world::NAMES;
use crate::testing::{Informer, delta, object, properties};
use crate::{DeltaFifo, Popped};
use informer_hub_types::{Change, Delta, DeltaKind, ObjectKey, ResourceVersion};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Kind and object of a delta, whether it has another UID, and whether it repeats the object's last version.
    Push(DeltaKind, usize, bool, bool),
    Begin,
    Keep(usize),
    End,
    Pop(usize),
    Close,
}

fn arb_step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let kind = prop_oneof![
        3 => Just(DeltaKind::Added),
        4 => Just(DeltaKind::Updated),
        4 => Just(DeltaKind::Deleted),
        3 => Just(DeltaKind::Replaced),
        2 => Just(DeltaKind::Sync),
    ];
    prop_oneof![
        60 => (kind, name(), prop::bool::weighted(0.2), prop::bool::weighted(0.1))
            .prop_map(|(kind, name, other, again)| Step::Push(kind, name, other, again)),
        6 => Just(Step::Begin),
        3 => name().prop_map(Step::Keep),
        6 => Just(Step::End),
        20 => (0..4_usize).prop_map(Step::Pop),
        1 => Just(Step::Close),
    ]
}

/// Change in the log that the queue may pop.
#[derive(Clone, Debug)]
enum Event {
    Delta(Delta),
    End { listed: BTreeSet<ObjectKey>, version: String },
}

/// Log of all changes.
#[derive(Debug, Default)]
struct Log {
    /// Whether the queue is never crowded. The log then omits repeated deletions, and predicts each popped delta.
    is_exact: bool,
    events: Vec<Event>,
    /// Number of events that were popped, or merged with popped ones.
    passed: usize,
    listing: Option<BTreeSet<ObjectKey>>,
    began: Option<&'static str>,
    /// Number of list ends that were popped.
    ends_out: usize,
    /// Number of ignored deltas: resyncs of queued keys.
    silent: u64,
}

impl Log {
    fn push(&mut self, change: &Change, is_queued: bool) {
        let began = match change {
            Change::Delta(delta) if delta.kind == DeltaKind::Sync => None,
            Change::Progress(_) => None,
            Change::Delta(_) => Some("watch"),
            _ => Some("list"),
        };
        self.began = self.began.or(began);
        match change {
            Change::ReplaceBegin => self.listing = Some(BTreeSet::new()),
            Change::ReplaceKeep(key) => _ = self.listing.get_or_insert_default().insert(key.clone()),
            Change::ReplaceEnd(version) => {
                let listed = self.listing.take().unwrap_or_default();
                self.events.push(Event::End { listed, version: version.to_string() });
            }
            Change::Delta(delta) => self.push_delta(delta, is_queued),
            Change::Progress(_) | Change::Rewind => {}
        }
    }

    fn push_delta(&mut self, delta: &Delta, is_queued: bool) {
        let key = delta.object.key();
        assert!(!self.is_exact || self.last_queued(key).is_some() == is_queued);
        if delta.kind == DeltaKind::Sync && is_queued {
            self.silent += 1;
            return;
        }
        match delta.kind {
            DeltaKind::Deleted => self.listing.iter_mut().for_each(|listed| _ = listed.remove(key)),
            DeltaKind::Sync => {}
            _ => self.listing.iter_mut().for_each(|listed| _ = listed.insert(key.clone())),
        }
        let repeats = |last: &Delta| last.kind == DeltaKind::Deleted && last.object.uid() == delta.object.uid();
        if self.is_exact && delta.kind == DeltaKind::Deleted && self.last_queued(key).is_some_and(repeats) {
            return;
        }
        self.events.push(Event::Delta(delta.clone()));
    }

    fn last_queued(&self, key: &ObjectKey) -> Option<&Delta> {
        self.events[self.passed..].iter().rev().find_map(|event| match event {
            Event::Delta(delta) if delta.object.key() == key => Some(delta),
            _ => None,
        })
    }

    /// Returns the events up to the one that `is_it` accepts, which comes last.
    fn pass(&mut self, is_it: impl Fn(&Event) -> bool) -> Vec<Event> {
        let found = self.events[self.passed..].iter().position(is_it).expect("popped in order, and once");
        let passed = self.events[self.passed..=self.passed + found].to_vec();
        self.passed += found + 1;
        passed
    }
}

/// The queue and the log, and a store behind each.
struct Pair {
    fifo: DeltaFifo,
    log: Log,
    limit: usize,
    behind: Informer,
    behind_log: Informer,
    at: u64,
    last_version: BTreeMap<String, u64>,
    pushed: u64,
    taken: u64,
    refused: u64,
}

impl Pair {
    fn new(limit: usize) -> Self {
        let (behind, behind_log) = (Informer::new(), Informer::new());
        let (fifo, log, last_version) = (DeltaFifo::new(limit), Log::default(), BTreeMap::new());
        let log = Log { is_exact: limit == usize::MAX, ..log };
        let (at, pushed, taken, refused) = (0, 0, 0, 0);
        Self { fifo, log, limit, behind, behind_log, at, last_version, pushed, taken, refused }
    }

    fn step(&mut self, step: Step) {
        self.at += 1;
        match step {
            Step::Push(kind, name, other, again) => {
                let uid = if other { "v" } else { "u" };
                let last = self.last_version.entry(format!("{name}{uid}")).or_insert(self.at);
                // A deletion has a version of its own.
                *last = if again && kind != DeltaKind::Deleted { *last } else { self.at };
                let object = object("ns", NAMES[name], uid, *last);
                self.push(Change::Delta(delta(kind, object)));
            }
            Step::Begin => self.push(Change::ReplaceBegin),
            Step::Keep(name) => self.push(Change::ReplaceKeep(ObjectKey::new("ns", NAMES[name]))),
            Step::End => self.push(Change::ReplaceEnd(ResourceVersion::new(&self.at.to_string()))),
            Step::Pop(max) => self.pop(max),
            Step::Close => self.fifo.close(),
        }
        self.compare();
    }

    fn push(&mut self, change: Change) {
        if self.fifo.is_closed() {
            self.refused += 1;
        } else {
            self.pushed += u64::from(matches!(change, Change::Delta(_)));
            let is_queued = matches!(&change, Change::Delta(delta) if self.fifo.is_queued(delta.object.key()));
            self.log.push(&change, is_queued);
        }
        self.fifo.push(change);
    }

    fn pop(&mut self, max: usize) {
        let before = self.fifo.len();
        let batch = self.fifo.pop(max);
        assert!(batch.len() <= max && (max == 0 || batch.is_empty() == (before == 0)));
        let mut previous = None;
        for popped in batch {
            match &popped {
                Popped::Deltas(key, deltas) => {
                    assert!(!deltas.is_empty() && deltas.iter().all(|delta| delta.object.key() == key));
                    assert!(previous.replace(key.clone()).as_ref() != Some(key), "deltas in a row are popped together");
                    self.taken += deltas.len() as u64;
                    deltas.iter().for_each(|delta| self.pass_delta(delta));
                }
                Popped::ReplaceEnd { keep, version, .. } => {
                    let passed = self.log.pass(|event| matches!(event, Event::End { .. }));
                    let Some(Event::End { listed, version: expected }) = passed.last() else { unreachable!() };
                    assert_eq!(keep.iter().cloned().collect::<BTreeSet<_>>(), *listed);
                    assert_eq!(version.to_string(), *expected);
                    self.log.ends_out += 1;
                    self.apply_log(&passed);
                }
            }
            apply(&mut self.behind, popped);
        }
    }

    fn pass_delta(&mut self, popped: &Delta) {
        let passed =
            self.log.pass(|event| matches!(event, Event::Delta(delta) if Arc::ptr_eq(&delta.object, &popped.object)));
        let Some(Event::Delta(pushed)) = passed.last() else { unreachable!() };
        assert!(!self.log.is_exact || (passed.len() == 1 && pushed.kind == popped.kind), "{passed:?}");
        self.apply_log(&passed);
    }

    fn apply_log(&mut self, passed: &[Event]) {
        for event in passed {
            let popped = match event.clone() {
                Event::Delta(delta) => Popped::Deltas(delta.object.key().clone(), [delta].into_iter().collect()),
                Event::End { listed, version } => Popped::ReplaceEnd {
                    keep: listed.into_iter().collect(),
                    version: ResourceVersion::new(&version),
                    rewound: false,
                },
            };
            apply(&mut self.behind_log, popped);
        }
    }

    fn compare(&self) {
        self.fifo.check();
        let waiting = &self.log.events[self.log.passed..];
        let lists = waiting.iter().filter(|event| matches!(event, Event::End { .. })).count();
        assert!(self.fifo.len() <= waiting.len() && self.fifo.len() >= lists);
        let limit = if self.log.listing.is_some() { self.limit / DeltaFifo::LIST_SHARE } else { self.limit };
        assert_eq!(self.fifo.is_full(), self.fifo.bytes() > limit || lists > 2);
        assert_eq!(self.fifo.is_drained(), self.fifo.is_closed() && self.fifo.is_empty());
        let synced = self.log.began == Some("watch") || self.log.ends_out > 0;
        assert_eq!((self.fifo.has_synced(), self.fifo.refused()), (synced, self.refused));
        let is_exact = self.log.is_exact || waiting.is_empty();
        assert!(!is_exact || self.behind.newest_contents() == self.behind_log.newest_contents());
        assert!(!self.log.is_exact || self.fifo.len() == waiting.len());
    }

    fn finish(mut self) {
        while !self.fifo.is_empty() {
            self.pop(3);
            self.compare();
        }
        let merged = self.log.events.split_off(self.log.passed);
        self.apply_log(&merged);
        assert_eq!(self.behind.newest_contents(), self.behind_log.newest_contents());
        let accounted = self.taken + self.fifo.coalesced() + self.log.silent;
        assert_eq!(self.pushed, accounted, "each delta is popped, merged or ignored");
    }
}

fn apply(informer: &mut Informer, popped: Popped) {
    let applied = informer.controller.store_mut().apply(informer.id, vec![popped]);
    assert!(applied.is_some());
}

proptest! {
    #![proptest_config(properties(512))]

    #[test]
    fn merging_fifo_leads_to_the_same_store_as_a_log(
        limit in prop_oneof![Just(0_usize), 200..3000_usize, Just(usize::MAX)],
        steps in prop::collection::vec(arb_step(), 1..150),
    ) {
        let mut pair = Pair::new(limit);
        for step in steps {
            pair.step(step);
        }
        pair.finish();
    }
}
