//! Tests of restored partitions: contents, indices, and continuation.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::testing::{change, notification_lines, object_with, origin, pods};
use crate::{DeltaFifo, Gathering, ListenerOptions, ListenerQueue, PartitionId, SavedPartition, Store};
use informer_hub_types::{InformerHealth, ResourceVersion};

fn saved(names: &[&str], readers: &[&str]) -> SavedPartition {
    let mut objects = Gathering::default();
    for name in names {
        let values = [("by-node", "n1")];
        objects.put(Arc::new(object_with("ns", name, "u", 1, &[], &values)));
    }
    SavedPartition {
        origin: origin("c"),
        health: InformerHealth::new(),
        indexes: vec!["by-node".into()],
        settings: 7,
        version: Some(ResourceVersion::new("5")),
        synced: true,
        readers: readers.iter().map(|reader| (*reader).to_owned()).collect(),
        objects,
    }
}

fn restored(names: &[&str], readers: &[&str]) -> (Store, PartitionId) {
    let mut store = Store::new(pods());
    let id = store.restore(saved(names, readers)).unwrap();
    (store, id)
}

fn apply(store: &mut Store, id: PartitionId, script: &str) {
    let mut fifo = DeltaFifo::new(usize::MAX);
    script.split_whitespace().for_each(|step| fifo.push(change(step)));
    store.apply(id, fifo.pop(usize::MAX));
}

fn queue(store: &Store, id: PartitionId, reader: &str) -> Vec<String> {
    let snapshot = store.published().load_full();
    let partition = snapshot.partition(id).unwrap();
    notification_lines(&ListenerQueue::for_reader(Some(reader), ListenerOptions::default(), partition, 64).take(99))
}

#[test]
fn restored_partition_has_its_indices_and_plain_bytes() {
    let (mut store, id) = restored(&["a", "b"], &[]);
    let snapshot = store.published().load_full();
    let partition = snapshot.partition(id).unwrap();
    assert_eq!((partition.len(), partition.has_synced(), snapshot.by_index("by-node", "n1").count()), (2, true, 2));
    assert_eq!(partition.plain_bytes(), partition.iter().map(|object| object.plain_size() as u64).sum::<u64>());
    assert!(store.restore(saved(&["c"], &[])).is_none(), "it exists already");
    let health = InformerHealth::new();
    assert_eq!(store.open(origin("c"), health, vec!["by-node".into()]), id);
}

#[test]
fn only_the_first_informer_with_equal_settings_resumes_a_restored_partition() {
    let (mut store, id) = restored(&["a"], &[]);
    assert_eq!(store.go_on(id, 7), Some(ResourceVersion::new("5")));
    assert_eq!(store.go_on(id, 7), None, "the next one lists");
    let (mut store, id) = restored(&["a"], &[]);
    assert_eq!(store.go_on(id, 8), None);
    let before = Arc::clone(store.published().load_full().partition(id).unwrap().iter().next().unwrap());
    let mut fifo = DeltaFifo::new(usize::MAX);
    "[ *a@1 ]6".split_whitespace().for_each(|step| fifo.push(change(step)));
    let (_, plain) = store.apply_batch(id, fifo.pop(usize::MAX), None).unwrap();
    assert_eq!(plain.len(), 1, "its body is to be compressed");
    let after = Arc::clone(store.published().load_full().partition(id).unwrap().iter().next().unwrap());
    assert!(!Arc::ptr_eq(&before, &after), "objects decoded with other settings are replaced");
    apply(&mut store, id, "[ *a@1 ]7");
    let last = Arc::clone(store.published().load_full().partition(id).unwrap().iter().next().unwrap());
    assert!(Arc::ptr_eq(&last, &after), "later lists change nothing");
}

#[test]
fn known_reader_gets_changes_since_the_save_and_others_get_all_objects() {
    let (mut store, id) = restored(&["a", "b", "c"], &["known", "late"]);
    assert!(queue(&store, id, "known").is_empty());
    apply(&mut store, id, "~a@7 -b@8 +d@9 -c@10 +c:v@11");
    assert_eq!(queue(&store, id, "late"), ["a@1>7", "†b@1", "†c@1", "+c@11", "+d@9"]);
    assert_eq!(queue(&store, id, "late"), ["!a@7", "!c@11", "!d@9", "synced"], "once");
    assert_eq!(queue(&store, id, "new"), ["!a@7", "!c@11", "!d@9", "synced"]);
    let snapshot = store.published().load_full();
    let restored = snapshot.partition(id).unwrap().restored().unwrap();
    assert_eq!(restored.readers(), BTreeSet::new());
    assert!(restored.is_unchanged(snapshot.partition(id).unwrap()), "no reader is awaited any more");
}

#[test]
fn reader_unknown_on_disk_continues_from_its_journal() {
    let (mut store, id) = restored(&["a", "b"], &["known"]);
    let restored = Arc::clone(store.published().load_full().partition(id).unwrap().restored().unwrap());
    // Another reader has received a successor already.
    let earlier = Arc::new(object_with("ns", "b", "u", 1, &[], &[]));
    let later = Arc::new(object_with("ns", "b", "v", 9, &[], &[]));
    restored.note_delivered("stranger", earlier);
    restored.note_delivered("known", Arc::clone(&later));
    assert!(store.add_delivered(id, &later));
    assert_eq!(restored.readers().len(), 1);
    assert_eq!(restored.awaited(), ["known", "stranger"].map(str::to_owned).into());
    apply(&mut store, id, "-b:v@10");
    assert_eq!(queue(&store, id, "stranger"), ["!a@1", "†b@1", "synced"]);
    assert_eq!(queue(&store, id, "known"), ["†b@9"]);
    assert!(restored.awaited().is_empty());
}

#[test]
fn reader_that_is_given_up_starts_without_history() {
    let (mut store, id) = restored(&["a"], &["gone"]);
    apply(&mut store, id, "~a@7");
    let snapshot = store.published().load_full();
    let partition = snapshot.partition(id).unwrap();
    assert!(!partition.restored().unwrap().is_unchanged(partition));
    partition.restored().unwrap().give_up();
    assert_eq!(queue(&store, id, "gone"), ["!a@7", "synced"]);
}
