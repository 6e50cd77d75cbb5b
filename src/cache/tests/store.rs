//! Tests of the store: effects of batches on its contents.

use std::sync::Arc;

use crate::testing::{Informer, change, delta, lines, object, object_with, origin, pods};
use crate::{Applied, DeltaFifo, PartitionId, Popped, Store};
use informer_hub_types::{
    ApiResource, Change, ClusterLabels, ClusterName, Delta, DeltaKind, Gvr, InformerHealth, Labels, ObjectKey, Origin,
    ResourceVersion, StoredObject, StoredObjectParts, Uid,
};

fn after(setup: &str, script: &str) -> (Vec<String>, String) {
    let mut informer = Informer::new();
    informer.apply(setup);
    let outbox = informer.apply(script);
    (lines(&outbox.applied), informer.contents())
}

fn expect(setup: &str, script: &str, applied: &[&str], contents: &str) {
    assert_eq!(
        after(setup, script),
        (applied.iter().map(ToString::to_string).collect(), contents.to_owned()),
        "{setup:?} then {script:?}"
    );
}

#[test]
fn store_reports_effects_in_order() {
    expect("", "+a@1 ~a@2 -a@3", &["+a@1", "a@1>2", "-a@3"], "");
    expect("+a@1", "~a@2 +b@3", &["a@1>2", "+b@3"], "a@2 b@3");
    expect("", "~a@2", &["+a@2"], "a@2");
    expect("+a@1", "+a@2", &["a@1>2"], "a@2");
}

#[test]
fn store_ignores_the_deletion_of_an_unknown_object() {
    // TestDeltaFIFO_enqueueingNoLister
    expect("", "-a@1", &[], "");
}

#[test]
fn store_repeats_known_objects_on_resync() {
    expect("+a@5", "=b@1", &[], "a@5");
    expect("+a@5", "=a@3", &["=a@5"], "a@5");
}

#[test]
fn store_reports_a_new_uid_as_deletion_and_addition() {
    // Differs from client-go, which reports one update.
    expect("+a@1", "+a:v@2", &["†a@1", "+a@2"], "a@2");
    expect("+a@1", "[ *a:v@2 ]3", &["†a@1", "+a@2", "synced"], "a@2");
}

#[test]
fn adopted_partition_reports_objects_with_different_text_as_updates() {
    let mut informer = Informer::new();
    informer.apply("[ *a@1 *b@2 *c@3 ]3");
    let before = informer.partition();
    let resource = ApiResource { gvr: Gvr::new("", "v2", "pods"), ..pods() };
    let to = Arc::new(Origin { resource: resource.clone(), ..Origin::clone(&origin("c")) });
    let mut store = Store::new(resource);
    let id = store.adopt(&before, Arc::clone(&to));
    let adopted = store.partition(id).unwrap().clone();
    assert_eq!((adopted.len(), adopted.number(), adopted.has_synced()), (3, before.number(), true));
    assert!(Arc::ptr_eq(adopted.origin(), &to) && adopted.resume_version().is_none());
    let other = |name: &str, version: u64| {
        let parts = StoredObjectParts {
            key: ObjectKey::new("ns", name),
            uid: Uid::new("u"),
            resource_version: ResourceVersion::new(&version.to_string()),
            labels: Labels::default(),
            index_values: Vec::new(),
            json: br#"{"other":1}"#.to_vec(),
        };
        delta(DeltaKind::Replaced, StoredObject::new(parts))
    };
    let same = delta(DeltaKind::Replaced, object("ns", "a", "u", 1));
    let list = |deltas: Vec<Delta>| -> Vec<Popped> {
        let keep = deltas.iter().map(|delta| delta.object.key().clone()).collect();
        let end = Popped::ReplaceEnd { keep, version: ResourceVersion::new("4"), rewound: false };
        let popped = |delta: Delta| Popped::Deltas(delta.object.key().clone(), [delta].into_iter().collect());
        deltas.into_iter().map(popped).chain([end]).collect()
    };
    // Equal text is unchanged, and different text is an update, despite equal versions. A missing object is deleted.
    let outbox = store.apply(id, list(vec![same, other("b", 2)])).unwrap();
    assert_eq!(lines(&outbox.applied), ["b@2>2", "†c@3"]);
    assert_eq!(outbox.number, before.number() + 1, "batch numbers continue");
    // Once the list is complete, versions decide.
    let outbox = store.apply(id, list(vec![other("a", 1), other("b", 2)])).unwrap();
    assert_eq!(lines(&outbox.applied), Vec::<String>::new());
    // Another kind of the same name keeps the partition.
    let kind = Arc::new(Origin {
        resource: ApiResource { kind: "Other".into(), ..to.resource.clone() },
        ..Origin::clone(&to)
    });
    let now = store.partition(id).unwrap().clone();
    assert_eq!((store.adopt(&now, kind), store.published().load().resource().kind.as_str()), (id, "Other"));
}

#[test]
fn deletion_of_an_unseen_successor_deletes_the_stored_object() {
    expect("+a@1", "-a:v@3", &["†a@1"], "");
}

#[test]
fn deletion_has_the_last_state_from_the_apiserver() {
    let mut informer = Informer::new();
    informer.apply("+a@1");
    let outbox = informer.apply("-a@7");
    let [Applied::Deleted { stored, last, tombstone: false }] = &*outbox.applied else { panic!("{outbox:?}") };
    assert_eq!((stored.resource_version().to_string(), last.resource_version().to_string()), ("1".into(), "7".into()));
}

#[test]
fn deletion_with_a_head_only_is_a_tombstone_of_the_stored_state() {
    let head = |version: u64| {
        let known = object("ns", "a", "u", version);
        StoredObject::head_only(known.key().clone(), known.uid().clone(), known.resource_version().clone())
    };
    let gone = |version| Change::Delta(delta(DeltaKind::Deleted, head(version)));
    let mut informer = Informer::new();
    informer.apply("+a@5");
    assert!(informer.apply_changes(vec![gone(4)]).applied.is_empty(), "it is stale");
    let outbox = informer.apply_changes(vec![gone(9)]);
    let [Applied::Deleted { stored, last, tombstone: true }] = &*outbox.applied else { panic!("{outbox:?}") };
    assert!(Arc::ptr_eq(stored, last) && stored.resource_version().to_string() == "5");
    assert_eq!(informer.contents(), "");
    assert!(informer.apply_changes(vec![gone(10)]).applied.is_empty(), "no effect for an unknown object");
}

#[test]
fn store_ignores_stale_watch_events() {
    expect("+a@5", "~a@3", &[], "a@5");
    expect("+a@5", "-a@3", &[], "a@5");
    expect("+a@5", "+a:v@3", &[], "a@5");
    expect("+a@5", "-a:v@3", &[], "a@5");
    expect("+a@5", "+a@5", &[], "a@5");
    expect("+a@5", "-a@5", &["-a@5"], "");
}

#[test]
fn store_accepts_older_versions_from_a_list() {
    // etcd was restored from a backup
    expect("+a@9", "[ *a@4 ]4 ~a@5", &["a@9>4", "synced", "a@4>5"], "a@5");
}

#[test]
fn versions_from_before_a_rewind_do_not_hide_later_events() {
    for (event, applied, contents) in [
        ("~b@6", &["b@8>6"][..], "a@4 b@6"),
        ("-b@6", &["-b@6"], "a@4"),
        ("+b:v@6", &["†b@8", "+b@6"], "a@4 b@6"),
        ("+c:v@6", &["+c@6"], "a@4 b@8 c@6"),
    ] {
        let mut informer = Informer::new();
        informer.apply("[ *a@9 *b@8 *c@7 ]9");
        // The list could not decode `b`, so its state of before stays.
        assert_eq!(lines(&informer.apply("[ *a@4 &b < ]5").applied), ["a@9>4", "†c@7"]);
        // Another list follows each one whose versions went back.
        assert!(informer.apply("[ *a@4 &b ]5").applied.is_empty(), "{event}");
        assert_eq!(lines(&informer.apply(event).applied), applied, "{event}");
        assert_eq!(informer.contents(), contents, "{event}");
        // Once an event has replaced the state of before, versions decide again.
        let older = if contents.contains("b@6") { "~a@3 ~b@5" } else { "~a@3" };
        assert!(informer.apply(older).applied.is_empty(), "{event}");
    }
}

#[test]
fn list_after_a_rewind_reports_objects_with_different_text_as_updates() {
    let mut informer = Informer::new();
    let other = |version: u64| {
        let object = object("ns", "a", "u", version);
        let parts = StoredObjectParts {
            key: object.key().clone(),
            uid: object.uid().clone(),
            resource_version: object.resource_version().clone(),
            labels: Labels::default(),
            index_values: Vec::new(),
            json: br#"{"other":1}"#.to_vec(),
        };
        Change::Delta(delta(DeltaKind::Replaced, StoredObject::new(parts)))
    };
    let list = |script: &str| {
        let mut changes = vec![change("["), other(6)];
        changes.extend(script.split_whitespace().map(change));
        changes
    };
    informer.apply("[ *a@6 *b@9 ]9");
    // The end of the first list says that versions went back. Its objects were compared by versions.
    assert_eq!(lines(&informer.apply_changes(list("*b@4 < ]7")).applied), ["b@9>4"]);
    assert!(informer.partition().is_converting());
    assert_eq!(lines(&informer.apply_changes(list("*b@4 ]7")).applied), ["a@6>6"]);
    assert!(!informer.partition().is_converting());
    assert!(informer.apply("[ *a@6 *b@4 ]8").applied.is_empty(), "versions decide again");
}

#[test]
fn store_reports_no_effect_of_unchanged_listed_objects() {
    // TestSharedInformerWatchDisruption; client-go notifies all listeners.
    expect("[ *a@1 *b@2 ]2", "[ *a@1 *b@2 ]3", &[], "a@1 b@2");
    expect("[ *a@1 *b@2 ]2", "[ *a@1 *b@3 *c@3 ]3", &["b@2>3", "+c@3"], "a@1 b@3 c@3");
}

#[test]
fn store_keeps_the_later_of_two_listed_objects_of_a_key() {
    // TestRealFIFO_HasSynced: duplicates
    expect("", "[ *a@1 *a@2 ]3", &["+a@1", "a@1>2", "synced"], "a@2");
    expect("", "[ *a@2 *b@1 *a@1 ]3", &["+a@2", "+b@1", "a@2>1", "synced"], "a@1 b@1");
    expect("[ *a@1 ]1", "[ *a@1 *a@1 ]3", &[], "a@1");
    expect("", "[ *a@1 *a:v@2 ]3", &["+a@1", "†a@1", "+a@2", "synced"], "a@2");
}

#[test]
fn relist_deletes_missing_keys_in_their_last_known_state() {
    // TestDeltaFIFO_ReplaceMakesDeletions
    expect("[ *a@1 *b@2 ]2 ~b@3", "[ *a@1 ]4", &["†b@3"], "a@1");
    expect("[ *a@1 *b@2 ]2", "[ ]4", &["†a@1", "†b@2"], "");
    expect("", "+a@1 [ ]2", &["+a@1", "†a@1", "synced"], "");
}

#[test]
fn relist_keeps_objects_that_are_listed_without_contents() {
    expect("[ *a@1 *b@2 ]2", "[ &a ]4", &["†b@2"], "a@1");
    expect("", "[ &a ]4", &["synced"], "");
}

#[test]
fn store_reports_synced_once_at_the_end_of_the_first_list() {
    // TestDeltaFIFO_HasSynced, _HasSyncedCorrectOnDeletion
    let mut informer = Informer::new();
    assert_eq!(lines(&informer.apply("+z@1 [ *a@2").applied), ["+z@1", "+a@2"]);
    assert!(!informer.partition().has_synced());
    assert_eq!(lines(&informer.apply("[ *a@2 ]3").applied), ["†z@1", "synced"]);
    assert!(informer.partition().has_synced());
    assert_eq!(lines(&informer.apply("[ *a@2 ]4").applied), [""; 0]);
    assert_eq!(informer.controller.store().version(informer.id), Some(ResourceVersion::new("4")));
}

#[test]
fn store_numbers_batches_from_one_and_keeps_the_last() {
    let mut informer = Informer::new();
    assert_eq!((informer.partition().number(), informer.controller.store().outbox(informer.id).is_none()), (0, true));
    assert_eq!(
        (informer.apply("+a@1").number, informer.apply("-b@2").number, informer.apply("~a@2").number),
        (1, 2, 3)
    );
    let outbox = informer.controller.store().outbox(informer.id).unwrap();
    assert_eq!((outbox.number, lines(&outbox.applied)), (3, vec!["a@1>2".to_owned()]));
}

#[test]
fn published_snapshot_never_changes() {
    let mut informer = Informer::new();
    informer.apply("+a@1 +b@1");
    let before = informer.partition();
    informer.apply("~a@2 -b@2 +c@2");
    assert_eq!(before.iter().map(|object| object.resource_version().to_string()).collect::<Vec<_>>(), ["1", "1"]);
    assert_eq!(informer.contents(), "a@2 c@2");
}

#[test]
fn store_recovers_from_the_published_snapshot() {
    let mut informer = Informer::new();
    informer.apply("[ *a@1 ]1");
    *informer.controller.store_mut() = Store::recover(Arc::clone(informer.controller.store().published()));
    assert_eq!(informer.controller.store().outbox(informer.id).map(|outbox| outbox.number), Some(1));
    let outbox = informer.apply("[ *a@1 *b@2 ]2");
    assert_eq!((outbox.number, lines(&outbox.applied)), (2, vec!["+b@2".to_owned()]), "and does not sync again");
    assert_eq!(informer.controller.store_mut().open(origin("c"), InformerHealth::new(), Vec::new()), informer.id);
    assert_eq!(informer.contents(), "a@1 b@2", "an informer that restarts finds its objects");
}

#[test]
fn id_of_a_closed_partition_is_not_reused() {
    let mut informer = Informer::new();
    informer.apply("+a@1");
    informer.controller.store_mut().close(informer.id);
    assert!(informer.controller.store_mut().apply(informer.id, Vec::new()).is_none());
    assert_ne!(informer.controller.store_mut().open(origin("d"), InformerHealth::new(), Vec::new()), informer.id);
    let mut recovered = Informer::new();
    recovered.controller.store_mut().close(recovered.id);
    let mut store = Store::recover(Arc::clone(recovered.controller.store_mut().published()));
    assert_ne!(store.open(origin("d"), InformerHealth::new(), Vec::new()), recovered.id);
}

fn indexed(kind: DeltaKind, name: &str, version: u64, values: &[&str]) -> Change {
    let values: Vec<_> = values.iter().map(|value| ("by-node", *value)).collect();
    Change::Delta(delta(kind, object_with("ns", name, "u", version, &[], &values)))
}

fn values(store: &Store) -> Vec<String> {
    let snapshot = store.published().load();
    let mut values: Vec<_> =
        snapshot.index_values("by-node").map(|(value, count)| format!("{value} {count}")).collect();
    values.sort();
    values
}

#[test]
fn index_follows_every_value_of_an_object() {
    // TestMultiIndexKeys, TestThreadSafeStoreIndexingFunctionsWithMultipleValues, ...DeleteRemovesEmptySetsFromIndex
    use DeltaKind::{Added, Deleted, Updated};
    let mut informer = Informer::new();
    informer.apply_changes(vec![indexed(Added, "a", 1, &["x", "y", "x"]), indexed(Added, "b", 1, &["y"])]);
    assert_eq!(values(informer.controller.store()), ["x 1", "y 2"]);
    informer.apply_changes(vec![indexed(Updated, "a", 2, &["y", "z"])]);
    assert_eq!(values(informer.controller.store()), ["y 2", "z 1"]);
    informer.apply_changes(vec![indexed(Deleted, "b", 3, &["other"])]);
    assert_eq!(
        values(informer.controller.store()),
        ["y 1", "z 1"],
        "removed by the stored values, not by those in the deletion"
    );
    informer.apply_changes(vec![indexed(Updated, "a", 4, &[])]);
    assert_eq!(values(informer.controller.store()), [""; 0]);
}

#[test]
fn list_updates_the_index_of_unchanged_objects() {
    // The informer was restarted with another index; no notification is needed.
    let mut informer = Informer::new();
    informer.apply_changes(vec![indexed(DeltaKind::Added, "a", 1, &[])]);
    let changes = vec![change("["), indexed(DeltaKind::Replaced, "a", 1, &["x"]), change("]2")];
    assert_eq!(lines(&informer.apply_changes(changes).applied), ["synced"]);
    assert_eq!(values(informer.controller.store()), ["x 1"]);
    informer.apply("-a@3");
    assert_eq!(values(informer.controller.store()), [""; 0]);
}

#[test]
fn partitions_are_independent() {
    let mut informer = Informer::new();
    let other = informer.controller.store_mut().open(origin("d"), InformerHealth::new(), Vec::new());
    assert_ne!(other, informer.id);
    informer.apply_changes(vec![indexed(DeltaKind::Added, "a", 1, &["x"])]);
    let first = informer.id;
    informer.turn_to(other);
    assert_eq!(lines(&informer.apply_changes(vec![indexed(DeltaKind::Added, "a", 9, &["x"])]).applied), ["+a@9"]);
    assert_eq!(values(informer.controller.store()), ["x 2"]);
    assert_eq!(lines(&informer.apply("[ ]9").applied), ["†a@9", "synced"]);
    informer.turn_to(first);
    assert_eq!((informer.contents(), informer.partition().has_synced()), ("a@1".to_owned(), false));
    informer.turn_to(other);
    informer.apply_changes(vec![indexed(DeltaKind::Added, "b", 1, &["x", "y"])]);
    informer.controller.store_mut().close(other);
    assert_eq!(values(informer.controller.store()), ["x 1"], "closing a partition removes its index entries");
    assert_eq!(informer.controller.store().published().load().len(), 1);
}

#[test]
fn cluster_is_expected_until_it_opens_a_partition() {
    let mut store = Store::new(pods());
    let expected =
        |store: &Store| store.published().load().expected().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    let name = |name| ClusterName::new(name).unwrap();
    store.expect(name("c"), Some(ClusterLabels::new()));
    store.expect(name("d"), Some(ClusterLabels::new()));
    assert_eq!(expected(&store), ["c", "d"]);
    store.open(origin("c"), InformerHealth::new(), Vec::new());
    store.expect(name("d"), None);
    // The cluster was marked before its partition was opened, and the mark arrives late.
    store.expect(name("c"), Some(ClusterLabels::new()));
    assert_eq!(expected(&store), [""; 0]);
}

#[test]
fn batch_for_an_unknown_partition_is_refused() {
    let mut store = Store::new(pods());
    let popped = Popped::Deltas(
        ObjectKey::new("ns", "a"),
        [delta(DeltaKind::Added, object("ns", "a", "u", 1))].into_iter().collect(),
    );
    assert!(store.apply(PartitionId(7), vec![popped]).is_none());
    assert!(store.published().load().is_empty());
}

#[test]
fn updated_object_shares_the_text_of_its_key() {
    let mut store = Store::new(pods());
    let id = store.open(origin("c"), InformerHealth::new(), vec!["by-node".into()]);
    let text = |store: &Store| {
        let snapshot = store.published().load_full();
        let object = Arc::clone(snapshot.partition(id).unwrap().iter().next().unwrap());
        let indexed = snapshot.by_index("by-node", "n1").next().unwrap();
        assert!(std::ptr::eq(object.key().as_str(), indexed.key.as_str()), "one text for object and index");
        object.key().as_str().as_ptr().addr()
    };
    let mut apply = |version| {
        let mut fifo = DeltaFifo::new(usize::MAX);
        let object = object_with("ns", "a", "u", version, &[], &[("by-node", "n1")]);
        fifo.push(Change::Delta(delta(DeltaKind::Updated, object)));
        store.apply(id, fifo.pop(usize::MAX)).unwrap();
        text(&store)
    };
    assert_eq!(apply(1), apply(2));
}
