//! Model test of the delta fifo, against one that merges nothing: same order, fewer deltas, same result.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::world::NAMES;
use crate::testing::{Informer, delta, object, properties};
use crate::{DeltaFifo, Popped};
use informer_hub_types::{Change, Delta, DeltaKind, Deltas, ObjectKey, ResourceVersion};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Kind and object of a delta, whether it has another UID, and whether it repeats the object's last version.
    Push(DeltaKind, usize, bool, bool),
    Begin,
    Keep(usize),
    End,
    Pop(usize),
    PutBack(usize),
    /// Applies the popped entries.
    Settle,
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
        12 => (1..5_usize).prop_map(Step::PutBack),
        10 => Just(Step::Settle),
        1 => Just(Step::Close),
    ]
}

/// A delta with its time of arrival.
#[derive(Clone, Debug)]
struct Event {
    at: u64,
    delta: Delta,
}

#[derive(Clone, Debug)]
enum Place {
    Key(ObjectKey, Vec<Event>),
    End { named: BTreeSet<ObjectKey>, at: u64 },
}

/// Reference queue that keeps everything.
#[derive(Debug, Default)]
struct Naive {
    line: Vec<Place>,
    listing: Option<BTreeSet<ObjectKey>>,
    began: Option<&'static str>,
    ends_out: usize,
    /// Events that were popped and not requeued, by time of arrival: key, and whether the object exists after the
    /// event.
    out: BTreeMap<u64, (ObjectKey, bool)>,
    /// Time of the last live event of each key.
    newest: BTreeMap<ObjectKey, u64>,
    /// Number of ignored deltas: resyncs of queued keys.
    silent: u64,
}

fn is_live(kind: DeltaKind) -> bool {
    !matches!(kind, DeltaKind::Deleted | DeltaKind::Sync)
}

impl Naive {
    fn push(&mut self, at: u64, change: &Change) {
        let began = match change {
            Change::Delta(delta) if delta.kind == DeltaKind::Sync => None,
            Change::Progress(_) => None,
            Change::Delta(_) => Some("watch"),
            _ => Some("list"),
        };
        self.began = self.began.or(began);
        match change {
            Change::ReplaceBegin => self.listing = Some(BTreeSet::new()),
            Change::ReplaceKeep(key) => {
                self.listing.get_or_insert_default().insert(key.clone());
            }
            Change::ReplaceEnd(_) => {
                let named = self.listing.take().unwrap_or_default();
                self.line.push(Place::End { named, at });
            }
            Change::Delta(delta) => self.push_delta(at, delta),
            Change::Progress(_) | Change::Rewind => {}
        }
    }

    fn push_delta(&mut self, at: u64, delta: &Delta) {
        let key = delta.object.key();
        let place = self.line.iter_mut().find_map(|place| match place {
            Place::Key(other, events) if other == key => Some(events),
            _ => None,
        });
        if delta.kind == DeltaKind::Sync && place.is_some() {
            self.silent += 1;
            return;
        }
        if is_live(delta.kind) {
            self.newest.insert(key.clone(), at);
            self.listing.iter_mut().for_each(|named| _ = named.insert(key.clone()));
        } else if delta.kind == DeltaKind::Deleted {
            self.listing.iter_mut().for_each(|named| _ = named.remove(key));
        }
        let event = Event { at, delta: delta.clone() };
        match place {
            Some(events) => events.push(event),
            None => self.line.push(Place::Key(key.clone(), vec![event])),
        }
    }

    fn pop(&mut self, max: usize) -> Vec<Place> {
        let end = self.line.iter().take(max).position(|place| matches!(place, Place::End { .. }));
        let batch: Vec<_> = self.line.drain(..end.map_or(max, |end| end + 1).min(self.line.len())).collect();
        for place in &batch {
            match place {
                Place::End { .. } => self.ends_out += 1,
                Place::Key(key, events) => {
                    let known = events.iter().filter(|event| event.delta.kind != DeltaKind::Sync);
                    self.out.extend(known.map(|event| (event.at, (key.clone(), is_live(event.delta.kind)))));
                }
            }
        }
        batch
    }

    fn put_back(&mut self, place: Place) {
        let place = match place {
            Place::Key(key, mut events) => {
                for event in &events {
                    self.out.remove(&event.at);
                }
                let again = self.line.iter().position(|place| matches!(place, Place::Key(other, _) if *other == key));
                if let Some(Place::Key(_, later)) = again.map(|at| self.line.remove(at)) {
                    let effective = later.iter().filter(|event| event.delta.kind != DeltaKind::Sync).cloned();
                    let before = events.len();
                    events.extend(effective);
                    self.silent += (before + later.len() - events.len()) as u64;
                }
                Place::Key(key, events)
            }
            end @ Place::End { .. } => {
                self.ends_out -= 1;
                end
            }
        };
        self.line.insert(0, place);
    }

    /// Returns the keys that a list end must keep, and those it may keep. It must keep listed keys, and later objects
    /// that were processed before it, unless they were deleted since. It may keep later objects not processed yet.
    fn spares(&self, named: &BTreeSet<ObjectKey>, at: u64) -> (BTreeSet<ObjectKey>, BTreeSet<ObjectKey>) {
        let last: BTreeMap<_, _> = self.out.range(at..).map(|(_, (key, is_live))| (key, *is_live)).collect();
        let later = last.into_iter().filter(|(_, is_live)| *is_live).map(|(key, _)| key.clone());
        let must = later.chain(named.iter().cloned()).collect();
        let later = self.newest.iter().filter(|(_, newest)| **newest > at).map(|(key, _)| key.clone());
        (must, later.chain(named.iter().cloned()).collect())
    }
}

/// Returns the deltas without repeated deletions of one object.
fn without_repeated_deletions(events: &[Event]) -> Vec<&Delta> {
    let mut kept: Vec<&Delta> = Vec::new();
    for Event { delta, .. } in events {
        let repeats = kept.last().is_some_and(|last| {
            last.kind == DeltaKind::Deleted
                && delta.kind == DeltaKind::Deleted
                && last.object.uid() == delta.object.uid()
        });
        if !repeats {
            kept.push(delta);
        }
    }
    kept
}

fn is_subsequence(part: &[String], whole: &[String]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|one| rest.any(|other| other == one))
}

fn version(delta: &Delta) -> String {
    delta.object.resource_version().to_string()
}

/// Both queues, the popped entries, and a store behind each.
struct Pair {
    fifo: DeltaFifo,
    naive: Naive,
    limit: usize,
    out: Vec<(Popped, Place)>,
    behind: Informer,
    behind_naive: Informer,
    at: u64,
    last_version: BTreeMap<String, u64>,
    pushed: u64,
    taken: u64,
    refused: u64,
}

impl Pair {
    fn new(limit: usize) -> Self {
        let (behind, behind_naive) = (Informer::new(), Informer::new());
        let (fifo, naive) = (DeltaFifo::new(limit), Naive::default());
        let (out, last_version) = (Vec::new(), BTreeMap::new());
        let (at, pushed, taken, refused) = (0, 0, 0, 0);
        Self { fifo, naive, limit, out, behind, behind_naive, at, last_version, pushed, taken, refused }
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
            Step::PutBack(count) => self.put_back(count),
            Step::Settle => self.settle(),
            Step::Close => self.fifo.close(),
        }
        self.compare();
    }

    fn push(&mut self, change: Change) {
        if self.fifo.is_closed() {
            self.refused += 1;
        } else {
            self.pushed += u64::from(matches!(change, Change::Delta(_)));
            self.naive.push(self.at, &change);
        }
        self.fifo.push(change);
    }

    fn pop(&mut self, max: usize) {
        let (popped, places) = (self.fifo.pop(max), self.naive.pop(max));
        assert_eq!(popped.len(), places.len());
        for (popped, place) in popped.into_iter().zip(places) {
            self.same_entry(&popped, &place);
            self.out.push((popped, place));
        }
    }

    fn same_entry(&mut self, popped: &Popped, place: &Place) {
        match (popped, place) {
            (Popped::Deltas(key, deltas), Place::Key(naive, events)) => {
                assert_eq!(key, naive);
                assert!(!deltas.is_empty() && deltas.iter().all(|delta| delta.object.key() == key));
                self.taken += deltas.len() as u64;
                let all = without_repeated_deletions(events);
                let text = |delta: &Delta| format!("{:?} {} {}", delta.kind, delta.object.uid(), version(delta));
                if self.limit == usize::MAX {
                    assert!(deltas.iter().map(text).eq(all.iter().map(|delta| text(delta))), "{deltas:?}\n{all:?}");
                } else {
                    let part: Vec<_> = deltas.iter().map(version).collect();
                    let whole: Vec<_> = events.iter().map(|event| version(&event.delta)).collect();
                    assert!(is_subsequence(&part, &whole), "{part:?} of {whole:?}");
                }
            }
            (Popped::ReplaceEnd { keep, version, .. }, Place::End { named, at }) => {
                assert_eq!(version.to_string(), at.to_string());
                let keep: BTreeSet<_> = keep.iter().cloned().collect();
                let (must, may) = self.naive.spares(named, *at);
                assert!(must.is_subset(&keep) && keep.is_subset(&may), "{must:?} <= {keep:?} <= {may:?}");
            }
            _ => panic!("{popped:?} is not {place:?}"),
        }
    }

    fn put_back(&mut self, count: usize) {
        for (popped, place) in self.out.split_off(self.out.len().saturating_sub(count)).into_iter().rev() {
            if let Popped::Deltas(_, deltas) = &popped {
                self.taken -= deltas.len() as u64;
            }
            self.fifo.requeue(popped);
            self.naive.put_back(place);
            self.fifo.check();
        }
    }

    /// Applies the popped entries to both stores. Both list ends keep the same keys, which does not affect the final
    /// state.
    fn settle(&mut self) {
        for (popped, place) in std::mem::take(&mut self.out) {
            let (Popped::Deltas(..), Place::Key(key, events)) = (&popped, place) else {
                let Popped::ReplaceEnd { keep, version, rewound } = &popped else { unreachable!() };
                let end = Popped::ReplaceEnd { keep: keep.clone(), version: version.clone(), rewound: *rewound };
                apply(&mut self.behind_naive, end);
                apply(&mut self.behind, popped);
                continue;
            };
            let all: Deltas = events.into_iter().map(|event| event.delta).collect();
            apply(&mut self.behind, popped);
            apply(&mut self.behind_naive, Popped::Deltas(key, all));
            assert_eq!(self.behind.newest_contents(), self.behind_naive.newest_contents());
        }
    }

    fn compare(&self) {
        self.fifo.check();
        let lists = self.naive.line.iter().filter(|place| matches!(place, Place::End { .. })).count();
        assert_eq!((self.fifo.len(), self.fifo.is_empty()), (self.naive.line.len(), self.naive.line.is_empty()));
        let limit = if self.naive.listing.is_some() { self.limit / DeltaFifo::LIST_SHARE } else { self.limit };
        assert_eq!(self.fifo.is_full(), self.fifo.bytes() > limit || lists > 2);
        assert_eq!(self.fifo.is_drained(), self.fifo.is_closed() && self.naive.line.is_empty());
        let synced = self.naive.began == Some("watch") || self.naive.ends_out > 0;
        assert_eq!((self.fifo.has_synced(), self.fifo.refused()), (synced, self.refused));
    }

    fn finish(mut self) {
        while !self.fifo.is_empty() {
            self.pop(3);
            self.settle();
        }
        self.settle();
        self.compare();
        assert_eq!(self.behind.newest_contents(), self.behind_naive.newest_contents());
        let silent = self.pushed - self.taken - self.fifo.coalesced();
        // A delta that a requeue would ignore may have been merged before.
        let least = if self.limit == usize::MAX { self.naive.silent } else { 0 };
        let message = "each delta is popped, merged or ignored";
        assert!((least..=self.naive.silent).contains(&silent), "{message}: {silent} of {}", self.naive.silent);
    }
}

fn apply(informer: &mut Informer, popped: Popped) {
    let applied = informer.controller.store_mut().apply(informer.id, vec![popped]);
    assert!(applied.is_some());
}

proptest! {
    #![proptest_config(properties(384))]

    #[test]
    fn merging_fifo_leads_to_the_same_store_as_a_naive_one(
        limit in prop_oneof![Just(0_usize), 200..3000_usize, Just(usize::MAX)],
        steps in prop::collection::vec(arb_step(), 1..150),
    ) {
        let mut pair = Pair::new(limit);
        for step in steps {
            pair.step(step);
        }
        pair.finish();
    }

    /// Popping and requeueing any entries must not change the later output.
    #[test]
    fn requeue_restores_the_undisturbed_queue(
        crowded in any::<bool>(),
        steps in prop::collection::vec(arb_step(), 1..80),
    ) {
        let limit = if crowded { 0 } else { usize::MAX };
        let (mut fifo, mut undisturbed) = (DeltaFifo::new(limit), DeltaFifo::new(limit));
        let (mut out, mut deleted) = (Vec::new(), BTreeSet::new());
        for (at, step) in (1..).zip(steps) {
            let change = match step {
                // In a crowded queue this only holds for objects that are deleted once.
                Step::Push(DeltaKind::Deleted, name, ..) if crowded && !deleted.insert(name) => continue,
                Step::Push(kind, name, other, _) => {
                    if is_live(kind) {
                        deleted.remove(&name);
                    }
                    let object = object("ns", NAMES[name], if other { "v" } else { "u" }, at);
                    Change::Delta(delta(kind, object))
                }
                Step::Begin => Change::ReplaceBegin,
                Step::Keep(name) => Change::ReplaceKeep(ObjectKey::new("ns", NAMES[name])),
                Step::End => Change::ReplaceEnd(ResourceVersion::new(&at.to_string())),
                Step::Pop(max) => {
                    out.extend(fifo.pop(max));
                    continue;
                }
                Step::PutBack(count) => {
                    put_back(&mut fifo, &mut out, count);
                    continue;
                }
                Step::Settle | Step::Close => continue,
            };
            fifo.push(change.clone());
            undisturbed.push(change);
        }
        put_back(&mut fifo, &mut out, usize::MAX);
        prop_assert_eq!(fifo.bytes(), undisturbed.bytes());
        prop_assert_eq!(fifo.has_synced(), undisturbed.has_synced());
        loop {
            let (one, other) = (fifo.pop(1), undisturbed.pop(1));
            let entry = |batch: &[Popped]| match batch {
                [Popped::Deltas(key, deltas)] => format!("{key:?} {deltas:?}"),
                // The other property test covers the kept keys.
                [Popped::ReplaceEnd { version, .. }] => version.to_string(),
                _ => String::new(),
            };
            prop_assert_eq!(entry(&one), entry(&other));
            if one.is_empty() {
                break;
            }
        }
    }
}

fn put_back(fifo: &mut DeltaFifo, out: &mut Vec<Popped>, count: usize) {
    for popped in out.split_off(out.len().saturating_sub(count)).into_iter().rev() {
        fifo.requeue(popped);
    }
}
