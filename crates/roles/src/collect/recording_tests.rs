//! Tests of [`super::recording`]: which events become records, and which the reflector receives.

use std::sync::Arc;
use std::time::Duration;

use informer_hub_codec::Skipped;
use informer_hub_fleet::{PartitionState, Record, ResetReason};
use informer_hub_reflector::WatchItem;
use informer_hub_types::{Labels, ObjectKey, ResourceVersion, StoredObject, StoredObjectParts, Uid, clock};

use super::recording::{Recording, WatchState};

const OPEN: WatchState = WatchState { initial: false, ordered: true };
const KEEP_ALIVE: Duration = Duration::from_secs(900);

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

fn object(name: &str, number: u64) -> Arc<StoredObject> {
    Arc::new(StoredObject::new(StoredObjectParts {
        key: key(name),
        uid: Uid::new(name),
        resource_version: version(number),
        labels: Labels::default(),
        index_values: Vec::new(),
        json: b"{}".to_vec(),
    }))
}

fn bookmark(number: u64, initial_events_end: bool) -> WatchItem {
    WatchItem::Bookmark { version: version(number), initial_events_end }
}

/// Returns the state of a log that has all changes up to version `resume`, and later changes of the objects in
/// `unconfirmed`.
fn state(resume: u64, unconfirmed: &[(&str, u64)]) -> PartitionState {
    let unconfirmed = unconfirmed.iter().map(|(name, number)| (key(name), version(*number))).collect();
    PartitionState { complete: true, resume: Some(version(resume)), unconfirmed, ..PartitionState::default() }
}

/// Returns the records of a batch and the events to pass on, both as short texts.
fn batch(recording: &mut Recording, watch: &mut WatchState, items: Vec<WatchItem>) -> (Vec<String>, Vec<String>) {
    let mut records = Vec::new();
    let passed = recording.batch(watch, items, clock::now(), &mut records);
    let records = records.iter().map(|record| match record {
        Record::Put { key, version, .. } => format!("put {}@{version}", key.name()),
        Record::Delete { key, version, .. } => format!("delete {}@{version}", key.name()),
        Record::Progress { version } => format!("progress {version}"),
        other => format!("{other:?}"),
    });
    let passed = passed.iter().map(|item| match item {
        WatchItem::Bookmark { version, .. } => format!("bookmark {version}"),
        WatchItem::Skipped(_) => "skipped".to_owned(),
        item => item.object().unwrap().key().name().to_owned(),
    });
    (records.collect(), passed.collect())
}

#[tokio::test(start_paused = true)]
async fn batch_ends_with_its_version() {
    let mut recording = Recording::new(KEEP_ALIVE);
    recording.begin(state(5, &[]));
    let skipped = WatchItem::Skipped(Skipped { key: None, version: None, reason: String::new() });
    let items = vec![WatchItem::Added(object("a", 6)), skipped, WatchItem::Deleted(object("b", 8)), bookmark(9, false)];
    let (records, passed) = batch(&mut recording, &mut OPEN.clone(), items);
    assert_eq!(records, ["put a@6", "delete b@8", "progress 9"]);
    assert_eq!(passed, ["a", "skipped", "b", "bookmark 9"]);
}

#[tokio::test(start_paused = true)]
async fn changes_that_the_log_has_are_not_recorded_and_do_not_regress_the_cache() {
    let mut recording = Recording::new(KEEP_ALIVE);
    recording.begin(state(5, &[("a", 8), ("b", 7)]));
    let items = vec![
        WatchItem::Modified(object("a", 6)),
        WatchItem::Deleted(object("b", 7)),
        WatchItem::Modified(object("a", 8)),
        WatchItem::Modified(object("a", 9)),
    ];
    let (records, passed) = batch(&mut recording, &mut OPEN.clone(), items);
    assert_eq!(records, ["put a@9", "progress 9"]);
    assert_eq!(passed, ["bookmark 6", "bookmark 7", "bookmark 8", "a"]);
}

#[tokio::test(start_paused = true)]
async fn watch_that_is_opened_again_records_nothing_twice() {
    let mut recording = Recording::new(KEEP_ALIVE);
    recording.begin(state(5, &[]));
    batch(&mut recording, &mut OPEN.clone(), vec![WatchItem::Modified(object("a", 6))]);
    let items = vec![WatchItem::Modified(object("a", 6)), WatchItem::Modified(object("b", 7))];
    let (records, passed) = batch(&mut recording, &mut OPEN.clone(), items);
    assert_eq!(records, ["put b@7", "progress 7"]);
    assert_eq!(passed, ["a", "b"], "the reflector may not have seen it");
}

#[tokio::test(start_paused = true)]
async fn lone_bookmarks_are_recorded_once_an_interval() {
    let mut recording = Recording::new(KEEP_ALIVE);
    recording.begin(state(5, &[]));
    let mut records = |number| batch(&mut recording, &mut OPEN.clone(), vec![bookmark(number, false)]).0;
    assert_eq!(records(6), ["progress 6"]);
    assert!(records(7).is_empty());
    tokio::time::advance(KEEP_ALIVE).await;
    assert_eq!(records(8), ["progress 8"]);
}

#[tokio::test(start_paused = true)]
async fn streaming_list_has_its_version_at_the_end() {
    let mut recording = Recording::new(KEEP_ALIVE);
    recording.begin(state(5, &[("a", 8)]));
    assert_eq!(recording.reset(), Record::Reset { reason: ResetReason::Restart });
    let mut watch = WatchState { initial: true, ordered: false };
    // Older than before: the apiserver was restored from a backup.
    let items = vec![WatchItem::Added(object("a", 3)), WatchItem::Added(object("b", 2)), bookmark(4, true)];
    let (records, _) = batch(&mut recording, &mut watch, items);
    assert_eq!(records, ["put a@3", "put b@2", "progress 4"]);
    let (records, _) = batch(&mut recording, &mut watch, vec![WatchItem::Modified(object("a", 5))]);
    assert_eq!(records, ["put a@5", "progress 5"]);
}

#[tokio::test(start_paused = true)]
async fn watch_without_a_version_records_none_before_its_first_change() {
    let mut recording = Recording::new(KEEP_ALIVE);
    recording.begin(state(5, &[]));
    let mut watch = WatchState { initial: false, ordered: false };
    let items = vec![WatchItem::Added(object("a", 4)), WatchItem::Added(object("b", 2))];
    assert_eq!(batch(&mut recording, &mut watch, items).0, ["put a@4", "put b@2"]);
    let (records, _) = batch(&mut recording, &mut watch, vec![WatchItem::Modified(object("a", 7))]);
    assert_eq!(records, ["put a@7", "progress 7"]);
}

#[tokio::test]
async fn events_of_one_version_are_all_recorded_once() {
    let mut recording = Recording::new(KEEP_ALIVE);
    recording.begin(state(5, &[]));
    let deleted = |names: &[&str]| names.iter().map(|name| WatchItem::Deleted(object(name, 8))).collect::<Vec<_>>();
    let mut watch = OPEN;
    let (records, _) = batch(&mut recording, &mut watch, deleted(&["a", "b"]));
    assert_eq!(records, ["delete a@8", "delete b@8", "progress 8"]);
    assert_eq!(batch(&mut recording, &mut watch, deleted(&["c"])).0, ["delete c@8", "progress 8"]);
    let (records, passed) = batch(&mut recording, &mut OPEN.clone(), deleted(&["a", "b", "c"]));
    assert_eq!((records.as_slice(), passed.len()), (&[][..], 3));
}
