//! Tests of relists: published in one step, or in parts if that is too expensive.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::world::Consumer;
use crate::stage::Stage;
use crate::testing::{Informer, change, delta, lines, object, object_with, origin, properties};
use crate::{ListenerOptions, ListenerQueue, PartitionId, Snapshot, Store};
use informer_hub_types::{
    Change, DeltaKind, InformerHealth, Labels, MemoryStep, ObjectKey, ResourceVersion, StoredObject, StoredObjectParts,
    Uid,
};

/// Returns the notifications of a script and the visible objects after it.
fn apply(informer: &mut Informer, script: &str) -> (Vec<String>, String) {
    (lines(&informer.apply(script).applied), informer.contents())
}

fn expected(applied: &[&str], contents: &str) -> (Vec<String>, String) {
    (applied.iter().map(ToString::to_string).collect(), contents.to_owned())
}

fn listed() -> Informer {
    let mut informer = Informer::new();
    assert_eq!(
        apply(&mut informer, "[ *a@1 *b@1 *c@1 ]1"),
        expected(&["+a@1", "+b@1", "+c@1", "synced"], "a@1 b@1 c@1")
    );
    informer
}

#[test]
fn relist_is_published_in_one_step_before_its_notifications() {
    let mut informer = listed();
    let published = Arc::clone(informer.controller.store().published());
    assert_eq!(apply(&mut informer, "[ *a@2"), expected(&[], "a@1 b@1 c@1"));
    assert_eq!(apply(&mut informer, "*b@1 *d@3"), expected(&[], "a@1 b@1 c@1"));
    for step in ["*e@4", "]5"] {
        informer.controller.push(change(step));
    }
    let mut seen_by_handler = Vec::new();
    let id = informer.id;
    let _ = informer.controller.process_all(&mut |outbox| {
        let now = published.load().partition(id).unwrap().iter().map(|object| object.key().name().to_owned()).collect();
        seen_by_handler.push((lines(&outbox.applied), now));
        Ok(())
    });
    let all: Vec<String> = ["a", "b", "d", "e"].map(str::to_owned).into();
    let notified: Vec<String> = ["a@1>2", "+d@3", "+e@4", "†c@1"].map(str::to_owned).into();
    assert_eq!(seen_by_handler, [(notified, all)], "the store is complete at the first notification");
    assert_eq!(informer.contents(), "a@2 b@1 d@3 e@4");
}

#[test]
fn interrupted_relist_is_invisible_until_the_next_one_completes_it() {
    let mut informer = listed();
    assert_eq!(apply(&mut informer, "[ *a@2 *d@3"), expected(&[], "a@1 b@1 c@1"));
    assert_eq!(apply(&mut informer, "[ *a@4"), expected(&[], "a@1 b@1 c@1"));
    let all = ["a@1>2", "+d@3", "a@2>4", "†b@1", "†c@1", "†d@3"];
    assert_eq!(apply(&mut informer, "]5"), expected(&all, "a@4"), "every listed state, in order");
    assert_eq!(informer.partition().staged_bytes(), 0);
    assert_eq!(
        apply(&mut informer, "~a@6 +b@7"),
        expected(&["a@4>6", "+b@7"], "a@6 b@7"),
        "watch events are published at once"
    );
}

#[test]
fn first_list_is_published_in_parts() {
    let mut informer = Informer::new();
    assert_eq!(apply(&mut informer, "[ *a@1"), expected(&["+a@1"], "a@1"));
    assert_eq!(apply(&mut informer, "[ *a@2"), expected(&["a@1>2"], "a@2"), "also after an interrupted one");
    assert_eq!(apply(&mut informer, "]3"), expected(&["synced"], "a@2"));
}

#[test]
fn events_queued_before_a_relist_are_published_in_order() {
    let mut informer = listed();
    // All deltas of `a` are popped before the rest of the list.
    assert_eq!(apply(&mut informer, "~a@2 [ *a@3"), expected(&["a@1>2"], "a@2 b@1 c@1"));
    assert_eq!(apply(&mut informer, "-b@4 ~c@5 -c@6 +c:v@7"), expected(&[], "a@2 b@1 c@1"));
    let notified = ["a@2>3", "-b@4", "c@1>5", "-c@6", "+c@7"];
    assert_eq!(apply(&mut informer, "*c:v@7 ]8"), expected(&notified, "a@3 c@7"));
}

#[test]
fn resync_during_a_relist_repeats_visible_objects() {
    let mut informer = listed();
    assert_eq!(apply(&mut informer, "[ *a@2 *d@2"), expected(&[], "a@1 b@1 c@1"));
    assert_eq!(apply(&mut informer, "=a@1 =b@1 =d@2"), expected(&["=a@1", "=b@1"], "a@1 b@1 c@1"));
    assert_eq!(apply(&mut informer, "*b@1 *c@1 ]3"), expected(&["a@1>2", "+d@2"], "a@2 b@1 c@1 d@2"));
}

#[test]
fn recovered_store_continues_a_staged_relist() {
    let mut informer = listed();
    assert_eq!(apply(&mut informer, "[ *a@2"), expected(&[], "a@1 b@1 c@1"));
    let store = informer.controller.store_mut();
    *store = Store::recover(Arc::clone(store.published()));
    let id = store.open(origin("c"), InformerHealth::new(), Vec::new());
    assert_eq!(id, informer.id);
    assert_eq!(apply(&mut informer, "*b@1 *c@1 ]3"), expected(&["a@1>2"], "a@2 b@1 c@1"));
}

#[test]
fn staged_relist_does_not_delay_other_partitions() {
    let mut informer = listed();
    assert_eq!(apply(&mut informer, "[ *a@2"), expected(&[], "a@1 b@1 c@1"));
    let first = informer.id;
    let other = informer.controller.store_mut().open(origin("d"), InformerHealth::new(), Vec::new());
    informer.turn_to(other);
    assert_eq!(apply(&mut informer, "[ *x@1 ]1 ~x@2"), expected(&["+x@1", "synced", "x@1>2"], "x@2"));
    informer.turn_to(first);
    let _ = informer.controller.process_all(&mut |_| Ok(()));
    assert_eq!(apply(&mut informer, "[ *a@2 *b@1 *c@1 ]3"), expected(&["a@1>2"], "a@2 b@1 c@1"), "with a new queue");
}

#[test]
fn relist_under_memory_pressure_is_published_in_parts() {
    let mut informer = listed();
    assert_eq!(apply(&mut informer, "[ *a@2"), expected(&[], "a@1 b@1 c@1"));
    let health = Arc::clone(informer.partition().health());
    health.memory.set_step(MemoryStep::Packed, None);
    assert_eq!(
        informer.controller.store_mut().apply(informer.id, Vec::new()).map(|it| lines(&it.applied)),
        Some(vec!["a@1>2".into()])
    );
    assert_eq!(apply(&mut informer, "*d@3"), expected(&["+d@3"], "a@2 b@1 c@1 d@3"));
    health.memory.set_step(MemoryStep::Full, None);
    assert_eq!(apply(&mut informer, "*e@3"), expected(&["+e@3"], "a@2 b@1 c@1 d@3 e@3"), "until the end of the list");
    assert_eq!(apply(&mut informer, "]4"), expected(&["†b@1", "†c@1"], "a@2 d@3 e@3"));
    assert_eq!(apply(&mut informer, "[ *a@5"), expected(&[], "a@2 d@3 e@3"), "the next one is published in one step");
}

#[test]
fn relist_above_the_limit_is_published_in_parts() {
    let large = |name: &str, version: u64| {
        let key = ObjectKey::new("ns", name);
        let json = vec![b' '; Stage::LIMIT / 2];
        let parts = StoredObjectParts {
            key,
            uid: Uid::new("u"),
            resource_version: ResourceVersion::new(&version.to_string()),
            labels: Labels::default(),
            index_values: Vec::new(),
            json,
        };
        Change::Delta(delta(DeltaKind::Replaced, StoredObject::new(parts)))
    };
    let mut informer = listed();
    let applied = |informer: &mut Informer, changes| lines(&informer.apply_changes(changes).applied);
    assert_eq!(applied(&mut informer, vec![change("["), large("a", 2)]), [""; 0]);
    assert_eq!(applied(&mut informer, vec![large("b", 2)]), ["a@1>2", "b@1>2"]);
    assert_eq!(informer.partition().staged_bytes(), 0);
    assert_eq!(informer.partition().resume_version(), None, "half a list: no watch can resume here");
    assert_eq!(apply(&mut informer, "*d@3"), expected(&["+d@3"], "a@2 b@2 c@1 d@3"));
    assert_eq!(apply(&mut informer, "]4"), expected(&["†c@1"], "a@2 b@2 d@3"));
}

#[test]
fn object_decoded_differently_is_replaced_at_once() {
    let indexed = |version: u64, node: &str| {
        Change::Delta(delta(DeltaKind::Replaced, object_with("ns", "a", "u", version, &[], &[("by-node", node)])))
    };
    let mut informer = listed();
    let values = |informer: &Informer| -> Vec<String> {
        let snapshot = informer.controller.store().published().load_full();
        snapshot.index_values("by-node").map(|(value, _)| value.to_string()).collect()
    };
    let outbox = informer.apply_changes(vec![change("["), indexed(1, "x")]);
    assert_eq!((lines(&outbox.applied).len(), values(&informer)), (0, vec!["x".to_owned()]));
    informer.apply_changes(vec![indexed(2, "y")]);
    informer.apply_changes(vec![indexed(2, "z")]);
    assert_eq!(values(&informer), ["x"], "changes are staged");
    let outbox = informer.apply_changes(vec![change("]3")]);
    assert_eq!(lines(&outbox.applied), ["a@1>2", "†b@1", "†c@1"]);
    assert_eq!(values(&informer), ["z"]);
}

#[test]
fn relist_outbox_is_released_once_its_notifications_are_queued() {
    let mut informer = listed();
    let outbox = informer.apply("[ *a@2 ]3");
    let store = informer.controller.store_mut();
    assert_eq!(store.outbox(informer.id).map(|it| it.applied.len()), Some(3));
    let empty = store.apply_up_to(informer.id, Vec::new(), Some(ResourceVersion::new("3"))).unwrap();
    assert_eq!((empty.number, empty.applied.len()), (outbox.number, 0));
    assert_eq!(store.outbox(informer.id).map(|it| (it.number, it.applied.len())), Some((outbox.number, 0)));
}

/// UID number and version of each name.
type World = BTreeMap<usize, (u64, u64)>;

const NAMES: usize = 12;

#[derive(Clone, Debug)]
struct Round {
    /// Change of each name: none, an update, a deletion, a replacement.
    changes: Vec<u8>,
    /// Numbers of objects after which the first attempts are interrupted.
    tries: Vec<usize>,
    /// Number of keys applied at once.
    batch: usize,
}

fn arb_round() -> impl Strategy<Value = Round> {
    let changes = prop::collection::vec(prop_oneof![4 => Just(0_u8), 3 => Just(1), 2 => Just(2), 1 => Just(3)], NAMES);
    (changes, prop::collection::vec(0..NAMES, 0..3), 1..8_usize).prop_map(|(changes, tries, batch)| Round {
        changes,
        tries,
        batch,
    })
}

fn turn(world: &mut World, version: &mut u64, changes: &[u8]) {
    for (name, what) in changes.iter().enumerate().filter(|(_, what)| **what > 0) {
        *version += 1;
        match (what, world.get(&name).copied()) {
            (1, Some((uid, _))) => _ = world.insert(name, (uid, *version)),
            (2, _) => _ = world.remove(&name),
            _ => _ = world.insert(name, (*version, *version)),
        }
    }
}

fn contents(snapshot: &Snapshot, id: PartitionId) -> World {
    let entry = |object: &Arc<StoredObject>| {
        let uid = object.uid().to_string()[1..].parse().unwrap();
        (object.key().name()[1..].parse().unwrap(), (uid, object.resource_version().as_number().unwrap()))
    };
    snapshot.partition(id).unwrap().iter().map(entry).collect()
}

fn item(name: usize, (uid, version): (u64, u64)) -> Change {
    Change::Delta(delta(DeltaKind::Replaced, object("ns", &format!("n{name:02}"), &format!("u{uid}"), version)))
}

proptest! {
    #![proptest_config(properties(512))]

    #[test]
    fn readers_see_only_states_of_complete_lists(
        rounds in prop::collection::vec(arb_round(), 1..8),
    ) {
        let (mut world, mut version) = (World::new(), 0);
        let mut informer = Informer::new();
        informer.apply("[ ]0");
        let mut queue = ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 1000);
        let mut consumer = Consumer::default();
        for Round { changes, tries, batch } in rounds {
            let before = world.clone();
            let mut script = Vec::new();
            for after in tries {
                // Changes between an interrupted list and the next one are in the next one.
                turn(&mut world, &mut version, &changes[..after]);
                script.push(Change::ReplaceBegin);
                script.extend(world.iter().take(after).map(|(name, state)| item(*name, *state)));
            }
            turn(&mut world, &mut version, &changes);
            script.push(Change::ReplaceBegin);
            script.extend(world.iter().map(|(name, state)| item(*name, *state)));
            script.push(Change::ReplaceEnd(ResourceVersion::new(&version.to_string())));
            let (mut script, published) = (script.into_iter(), Arc::clone(informer.controller.store().published()));
            loop {
                let taken: Vec<_> = script.by_ref().take(batch).collect();
                let is_over = taken.is_empty();
                for change in taken {
                    informer.controller.push(change);
                }
                let _ = informer.controller.process_next(batch, &mut |outbox| {
                    queue.offer(outbox.number, &outbox.applied, false);
                    Ok(())
                });
                let now = contents(&published.load(), informer.id);
                prop_assert!(now == before || now == world, "{now:?} is neither {before:?} nor {world:?}");
                consumer.consume_all(&queue.take(usize::MAX));
                let known: World = consumer.known.iter()
                    .map(|(name, (uid, version))| (name[1..].parse().unwrap(), (uid[1..].parse().unwrap(), *version)))
                    .collect();
                prop_assert_eq!(known, now, "an up-to-date listener knows the visible state");
                if is_over && informer.controller.fifo().is_empty() {
                    break;
                }
            }
            prop_assert_eq!(contents(&published.load(), informer.id), world.clone());
        }
    }
}
