//! Model test of the watermark: resuming from it misses no event and brings back no deleted object, despite merging
//! and queueing.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashSet;
use proptest::prelude::*;

use crate::testing::{delta, object, origin, pods, properties};
use crate::{Applied, DeltaFifo, Gathering, PartitionId, SavedPartition, Store};
use informer_hub_types::{Change, DeltaKind, InformerHealth, ObjectKey, ResourceVersion, Uid};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Creates or updates an object, or (with `true`) deletes it.
    Change(usize, bool),
    /// Sends this many further events of the watch, then the progress.
    Deliver(usize),
    Bookmark,
    /// Lists this many objects; if there are fewer, the list completes.
    List(usize),
    Apply(usize),
}

fn arb_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..NAMES.len(), prop::bool::weighted(0.3)).prop_map(|(name, goes)| Step::Change(name, goes)),
        6 => (1..4_usize).prop_map(Step::Deliver),
        1 => Just(Step::Bookmark),
        1 => (0..2 * NAMES.len()).prop_map(Step::List),
        6 => (1..3_usize).prop_map(Step::Apply),
    ]
}

struct Event {
    version: u64,
    kind: DeltaKind,
    name: &'static str,
    uid: u64,
}

impl Event {
    fn change(&self) -> Change {
        Change::Delta(delta(self.kind, object("ns", self.name, &format!("u{}", self.uid), self.version)))
    }
}

#[derive(Default)]
struct World {
    /// UID and version of each existing object.
    current: BTreeMap<&'static str, (u64, u64)>,
    history: Vec<Event>,
    version: u64,
}

impl World {
    fn change(&mut self, name: &'static str, goes: bool) {
        let (kind, uid) = match self.current.get(name) {
            None if goes => return,
            None => (DeltaKind::Added, self.version + 1),
            Some((uid, _)) => (if goes { DeltaKind::Deleted } else { DeltaKind::Updated }, *uid),
        };
        self.version += 1;
        if goes {
            self.current.remove(name);
        } else {
            self.current.insert(name, (uid, self.version));
        }
        self.history.push(Event { version: self.version, kind, name, uid });
    }
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

fn contents(store: &Store, id: PartitionId) -> BTreeMap<String, u64> {
    let snapshot = store.published().load_full();
    let entry = |object: &std::sync::Arc<informer_hub_types::StoredObject>| {
        (object.key().name().to_owned(), object.resource_version().as_number().unwrap())
    };
    snapshot.partition(id).unwrap().iter().map(entry).collect()
}

/// Asserts that a restart from the store's state reaches the current state, and adds none of the objects that were
/// reported as deleted.
fn check(world: &World, store: &Store, id: PartitionId, deleted: &HashSet<Uid>) {
    let snapshot = store.published().load_full();
    let Some(from) = snapshot.partition(id).unwrap().resume_version().cloned() else { return };
    let from = from.as_number().unwrap();
    // Staged changes are not on disk.
    let mut objects = Gathering::default();
    snapshot.partition(id).unwrap().iter().for_each(|object| objects.put(std::sync::Arc::clone(object)));
    let mut next = Store::new(pods());
    let saved = SavedPartition {
        origin: origin("c"),
        health: InformerHealth::new(),
        indexes: Vec::new(),
        settings: 1,
        version: Some(version(from)),
        synced: true,
        readers: BTreeSet::new(),
        objects,
    };
    let id = next.restore(saved).unwrap();
    let mut fifo = DeltaFifo::new(usize::MAX);
    world.history.iter().filter(|event| event.version > from).for_each(|event| fifo.push(event.change()));
    let replayed = next.apply(id, fifo.pop(usize::MAX)).unwrap();
    for applied in replayed.applied.iter() {
        assert!(
            !matches!(applied, Applied::Added(object) if deleted.contains(object.uid())),
            "{applied:?} from {from}"
        );
    }
    let current = world.current.iter().map(|(name, (_, version))| ((*name).to_owned(), *version)).collect();
    assert_eq!(contents(&next, id), current, "from {from} of {}", world.version);
}

fn run(steps: Vec<Step>, limit: usize) -> u64 {
    let mut world = World::default();
    let mut store = Store::new(pods());
    let id = store.open(origin("c"), InformerHealth::new(), Vec::new());
    let mut fifo = DeltaFifo::new(limit);
    let (mut delivered, mut resumed, mut deleted) = (0, 0, HashSet::new());
    for step in steps {
        match step {
            Step::Change(name, goes) => world.change(NAMES[name], goes),
            Step::Deliver(count) => {
                let events = world.history.iter().filter(|event| event.version > delivered).take(count);
                for event in events.collect::<Vec<_>>() {
                    delivered = event.version;
                    fifo.push(event.change());
                }
                fifo.push(Change::Progress(version(delivered)));
            }
            Step::Bookmark => {
                if world.history.iter().all(|event| event.version <= delivered) {
                    world.version += 1;
                    delivered = world.version;
                    fifo.push(Change::Progress(version(delivered)));
                }
            }
            Step::List(count) => {
                fifo.push(Change::ReplaceBegin);
                for (name, (uid, at)) in world.current.iter().take(count) {
                    fifo.push(Change::Delta(delta(DeltaKind::Replaced, object("ns", name, &format!("u{uid}"), *at))));
                }
                if count > world.current.len() {
                    delivered = world.version;
                    fifo.push(Change::ReplaceEnd(version(delivered)));
                } else {
                    // The list failed. Another list follows before the watch continues.
                    fifo.push(Change::ReplaceBegin);
                    let keys = world.current.keys().map(|name| ObjectKey::new("ns", name)).collect::<Vec<_>>();
                    for ((name, (uid, at)), key) in world.current.iter().zip(keys) {
                        assert_eq!(key.name(), *name);
                        fifo.push(Change::Delta(delta(
                            DeltaKind::Replaced,
                            object("ns", name, &format!("u{uid}"), *at),
                        )));
                    }
                    delivered = world.version;
                    fifo.push(Change::ReplaceEnd(version(delivered)));
                }
            }
            Step::Apply(max) => {
                let batch = fifo.pop(max);
                let watermark = fifo.watermark().cloned();
                let outbox = store.apply_up_to(id, batch, watermark).unwrap();
                deleted.extend(outbox.applied.iter().filter_map(|applied| match applied {
                    Applied::Deleted { stored, .. } => Some(stored.uid().clone()),
                    _ => None,
                }));
            }
        }
        fifo.check();
        check(&world, &store, id, &deleted);
        let snapshot = store.published().load_full();
        resumed += u64::from(snapshot.partition(id).unwrap().resume_version().is_some());
    }
    resumed
}

proptest! {
    #![proptest_config(properties(256))]

    #[test]
    fn resume_from_the_watermark_misses_no_event_and_brings_back_no_object(
        steps in prop::collection::vec(arb_step(), 1..80),
        limit in prop_oneof![Just(usize::MAX), Just(600)],
    ) {
        let listed = std::iter::once(Step::List(usize::MAX)).chain(steps).collect();
        run(listed, limit);
    }
}

#[test]
fn watermark_stays_behind_queued_earlier_events() {
    let mut fifo = DeltaFifo::new(usize::MAX);
    for change in ["[", "]1", "+a@2", "+b@3", "~a@4"].map(crate::testing::change) {
        fifo.push(change);
    }
    assert_eq!(fifo.watermark(), None, "the end of the list is still queued");
    fifo.pop(1);
    assert_eq!(fifo.watermark(), Some(&version(1)));
    fifo.push(Change::Progress(version(4)));
    fifo.push(crate::testing::change("+c@5"));
    for left in [2, 1, 0] {
        assert_eq!(fifo.pop(1).len(), 1);
        let complete = if left == 0 { 4 } else { 1 };
        assert_eq!(fifo.watermark(), Some(&version(complete)), "{left} events up to 4 are queued");
    }
}

/// Queues watch events, each with its version as the progress.
fn watch(fifo: &mut DeltaFifo, events: &[&str]) {
    for event in events {
        let change = crate::testing::change(event);
        let Change::Delta(delta) = &change else { panic!("{event} is no watch event") };
        let progress = Change::Progress(delta.object.resource_version().clone());
        fifo.push(change);
        fifo.push(progress);
    }
}

#[test]
fn watermark_stays_behind_a_replaced_state_until_its_successor_is_popped() {
    let mut fifo = DeltaFifo::new(0);
    watch(&mut fifo, &["+a@2", "+b@3", "~b@4", "+c@5", "+d@6", "~b@7", "+e@8"]);
    let mut complete = || {
        let popped = crate::testing::popped_lines(&fifo.pop(1)).join(" ");
        (popped, fifo.watermark().and_then(ResourceVersion::as_number))
    };
    assert_eq!(complete(), ("+a@2".to_owned(), Some(2)));
    assert_eq!(complete(), ("+c@5".to_owned(), Some(2)), "the states 3 and 4 of `b` are missing");
    assert_eq!(complete(), ("+d@6".to_owned(), Some(2)));
    assert_eq!(complete(), ("~b@7".to_owned(), Some(2)), "the rest may have replaced earlier states");
    assert_eq!(complete(), ("+e@8".to_owned(), Some(8)));
}

#[test]
fn watermark_passes_replaced_states_when_all_sealed_ones_are_popped() {
    let mut fifo = DeltaFifo::new(0);
    watch(&mut fifo, &["+a@2", "+b@3", "~a@4"]);
    assert_eq!(fifo.pop(1).len(), 1);
    assert_eq!(fifo.watermark(), None, "nothing was complete when `a` arrived");
    watch(&mut fifo, &["+c@5", "+d@6", "~c@7"]);
    assert_eq!(fifo.pop(1).len(), 1);
    assert_eq!(fifo.watermark(), Some(&version(4)), "`c` of 5 was replaced");
    assert_eq!(fifo.pop(1).len(), 1);
    assert_eq!(fifo.watermark(), Some(&version(4)));
    assert_eq!(fifo.pop(1).len(), 1);
    assert_eq!(fifo.watermark(), Some(&version(7)));
}

#[test]
fn watermark_is_unknown_during_a_list_after_a_replaced_state() {
    let mut fifo = DeltaFifo::new(0);
    watch(&mut fifo, &["+z@1"]);
    fifo.pop(1);
    watch(&mut fifo, &["+a@2", "~a@3"]);
    for change in ["[", "*b@4", "*c@4"].map(crate::testing::change) {
        fifo.push(change);
    }
    assert_eq!(fifo.watermark(), Some(&version(1)), "a@3 is first, and replaced a state after 1");
    fifo.pop(1);
    assert_eq!(fifo.watermark(), None);
}

#[test]
fn deletion_ahead_of_the_watermark_clears_the_resume_version() {
    for list in [&["[", "*a@1", "*b@1", "]1"][..], &["[", "*a@1", "]1", "[", "*a@2", "*b@2", "]2"]] {
        let (mut fifo, mut store) = (DeltaFifo::new(0), Store::new(pods()));
        let id = store.open(origin("c"), InformerHealth::new(), Vec::new());
        let mut apply = |fifo: &mut DeltaFifo, max: usize| {
            let batch = fifo.pop(max);
            store.apply_up_to(id, batch, fifo.watermark().cloned());
            let resume = store.published().load().partition(id).unwrap().resume_version().cloned();
            resume.and_then(|version| version.as_number())
        };
        for change in list {
            fifo.push(crate::testing::change(change));
        }
        while !fifo.is_empty() {
            apply(&mut fifo, 9);
        }
        watch(&mut fifo, &["~b@3", "-a@4", "~b@5"]);
        assert_eq!(
            apply(&mut fifo, 1),
            None,
            "a watch from before `b` of 3, which was replaced, would delete `a` again"
        );
        assert_eq!(apply(&mut fifo, 1), Some(5));
    }
}

#[test]
fn staged_relist_keeps_the_resume_version() {
    let (mut fifo, mut store) = (DeltaFifo::new(usize::MAX), Store::new(pods()));
    let id = store.open(origin("c"), InformerHealth::new(), Vec::new());
    let mut step = |changes: &[&str]| {
        for change in changes {
            fifo.push(crate::testing::change(change));
        }
        let batch = fifo.pop(usize::MAX);
        store.apply_up_to(id, batch, fifo.watermark().cloned());
        let resume = store.published().load().partition(id).unwrap().resume_version().cloned();
        (resume.and_then(|version| version.as_number()), contents(&store, id).into_keys().collect::<String>())
    };
    let at = |version, objects: &str| (version, objects.to_owned());
    assert_eq!(step(&["[", "*a@1"]), at(None, "a"), "objects of the first list are visible at once");
    assert_eq!(step(&["[", "*a@1", "]1"]), at(Some(1), "a"));
    assert_eq!(step(&["["]), at(Some(1), "a"), "no listed objects yet");
    assert_eq!(step(&["*b@3"]), at(Some(1), "a"), "visible objects still match that version");
    assert_eq!(step(&["-a@4"]), at(Some(1), "a"), "a deletion during a streaming list");
    assert_eq!(step(&["~c@2", "*d@4"]), at(Some(1), "a"));
    assert_eq!(step(&["[", "*b@3", "]5"]), at(Some(5), "b"));
}

#[test]
fn partly_staged_relist_with_published_earlier_events_clears_the_resume_version() {
    let (mut fifo, mut store) = (DeltaFifo::new(usize::MAX), Store::new(pods()));
    let id = store.open(origin("c"), InformerHealth::new(), Vec::new());
    let mut step = |changes: &[&str], max: usize| {
        for change in changes {
            fifo.push(crate::testing::change(change));
        }
        let batch = fifo.pop(max);
        store.apply_up_to(id, batch, fifo.watermark().cloned());
        let resume = store.published().load().partition(id).unwrap().resume_version().cloned();
        (resume.and_then(|version| version.as_number()), contents(&store, id).into_keys().collect::<String>())
    };
    let at = |version, objects: &str| (version, objects.to_owned());
    assert_eq!(step(&["[", "*a@1", "*b@1", "]1"], 9), at(Some(1), "ab"));
    assert_eq!(step(&["~a@2", "-b@3", "[", "*a@4"], 1), at(Some(1), "ab"), "a watch from 1 repeats a@2");
    assert_eq!(step(&["-a@5", "*c@6"], 9), at(None, "a"), "the deletion of b was published, that of a is staged");
    assert_eq!(step(&["]7"], 9), at(Some(7), "c"));
}
