//! Model test of the window of changes: from each version that a reader was given, it reaches the present state or must
//! list again.

use std::sync::Arc;

use proptest::prelude::*;

use super::history_world::{
    CLUSTERS, Contents, INFORMERS, NAMES, World, cluster, contents, entry, is_selected, number,
};
use crate::testing::properties;
use crate::{ChangeKind, HistoryCursor, HistoryScope, LocateError, MADE_UP, RecordedChange, Snapshot};

#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize),
    Delete(usize, usize),
    Receive(usize, usize),
    List(usize),
    Apply(usize, usize),
    BackUp(usize),
    Open(usize),
    Close(usize),
    KeepBodies(usize, bool),
    Relabel(usize),
    PassTime,
    Tight(bool),
    Recover,
    Restart(bool),
    Checkpoint,
    Kill(u64),
    Read(usize, usize),
}

fn arb_step() -> impl Strategy<Value = Step> {
    let (at, of, name) = (|| 0..INFORMERS.len(), || 0..CLUSTERS.len(), || 0..NAMES.len());
    prop_oneof![
        16 => (at(), name()).prop_map(|(at, name)| Step::Put(at, name)),
        8 => (at(), name()).prop_map(|(at, name)| Step::Delete(at, name)),
        12 => (at(), 1..5usize).prop_map(|(at, count)| Step::Receive(at, count)),
        6 => at().prop_map(Step::List),
        24 => (at(), 1..6usize).prop_map(|(at, max)| Step::Apply(at, max)),
        1 => of().prop_map(Step::BackUp),
        2 => at().prop_map(Step::Open),
        1 => at().prop_map(Step::Close),
        1 => (at(), any::<bool>()).prop_map(|(at, keep)| Step::KeepBodies(at, keep)),
        1 => of().prop_map(Step::Relabel),
        1 => Just(Step::PassTime),
        1 => any::<bool>().prop_map(Step::Tight),
        1 => Just(Step::Recover),
        1 => any::<bool>().prop_map(Step::Restart),
        3 => Just(Step::Checkpoint),
        3 => prop_oneof![Just(0), any::<u64>()].prop_map(Step::Kill),
        8 => (0..SCOPES, 1..4usize).prop_map(|(reader, max)| Step::Read(reader, max)),
    ]
}

/// Scopes of readers: the clusters, the fleet, and the selected clusters.
const SCOPES: usize = CLUSTERS.len() + 2;
/// Maximum number of versions of a scope that are checked.
const GIVEN: usize = 12;

fn scope(reader: usize) -> HistoryScope {
    match reader.checked_sub(CLUSTERS.len()) {
        None => HistoryScope::Cluster(cluster(reader)),
        Some(0) => HistoryScope::Fleet,
        Some(_) => HistoryScope::Selected(Arc::new(is_selected)),
    }
}

fn listed(snapshot: &Snapshot, reader: usize) -> Contents {
    contents(snapshot, |origin| match reader.checked_sub(CLUSTERS.len()) {
        None => origin.cluster == cluster(reader),
        Some(0) => true,
        Some(_) => is_selected(origin),
    })
}

/// Returns the version of a list; `None` if there is none.
fn list_version(snapshot: &Snapshot, reader: usize) -> Option<u64> {
    if reader >= CLUSTERS.len() {
        return Some(snapshot.version());
    }
    snapshot.cluster_version(&cluster(reader))
}

/// A version that a reader was given, and its objects then.
#[derive(Clone, PartialEq, Debug)]
struct Given {
    version: u64,
    contents: Contents,
    /// Whether a reader that resumes from this version must not receive a change again. False after a kill, or if the
    /// version is that of an object whose change was recorded with another version.
    is_exact: bool,
    /// Whether a process that was killed gave the version.
    is_of_before: bool,
}

/// Returns the version that a reader takes from a change of its cluster.
fn event_version(change: &RecordedChange) -> Option<u64> {
    if change.kind == ChangeKind::Deleted { change.cluster_version } else { Some(number(&change.object)) }
}

/// Applies a change. With `is_strict`, the change must fit the previous contents.
fn apply(contents: &mut Contents, change: &RecordedChange, is_strict: bool) {
    let (key, state) = entry(&change.origin, &change.object);
    let old = match change.kind {
        ChangeKind::Added | ChangeKind::Modified => contents.insert(key, state.clone()),
        ChangeKind::Deleted => contents.remove(&key),
    };
    if is_strict {
        assert_eq!(old.is_some(), change.kind != ChangeKind::Added, "{:?} of {state:?} after {old:?}", change.kind);
        assert!(old.is_none_or(|(uid, _)| uid == state.0), "{:?} of another object", change.kind);
    }
}

/// A reader that reads some changes at a time, and the versions that readers of its scope were given.
#[derive(Default)]
struct Reader {
    position: Option<(HistoryCursor, Contents)>,
    given: Vec<Given>,
}

impl Reader {
    fn give(&mut self, given: Given) {
        if !self.given.contains(&given) {
            self.given.push(given);
        }
        if self.given.len() > GIVEN {
            // Removes one in the middle: the oldest ones stay, so that long gaps are checked too.
            self.given.remove(self.given.len() / 2);
        }
    }

    fn read(&mut self, reader: usize, max: usize, snapshot: &Snapshot) {
        let history = snapshot.history().unwrap();
        let (mut cursor, mut contents) = self
            .position
            .take()
            .unwrap_or_else(|| (HistoryCursor::after(snapshot.version()), listed(snapshot, reader)));
        let mut changes = Vec::new();
        if history.read(&scope(reader), &mut cursor, max, &mut changes).is_err() {
            return;
        }
        for change in changes {
            apply(&mut contents, &change, true);
            let own = Some(change.version).filter(|_| reader >= CLUSTERS.len());
            if let Some(version) = own.or(event_version(&change)) {
                let is_exact = own.is_some() || change.cluster_version == Some(version);
                let contents = contents.clone();
                self.give(Given { version, contents, is_exact, is_of_before: false });
            }
        }
        if cursor.version() >= snapshot.version()
            && let Some(version) = list_version(snapshot, reader)
        {
            let contents = contents.clone();
            self.give(Given { version, contents, is_exact: true, is_of_before: false });
        }
        self.position = Some((cursor, contents));
    }

    /// Resumes from each version that a reader was given. Expired ones are forgotten.
    fn check(&mut self, reader: usize, snapshot: &Snapshot, is_crowded: bool) {
        let now = listed(snapshot, reader);
        let is_joined = reader >= CLUSTERS.len() || snapshot.joined_partitions(&cluster(reader)).next().is_some();
        let fresh = list_version(snapshot, reader).filter(|_| is_joined);
        if let Some(version) = fresh {
            self.give(Given { version, contents: now.clone(), is_exact: true, is_of_before: false });
        }
        // A cluster without an informer is not served.
        self.given.retain(|given| is_joined || !given.is_of_before);
        self.given.retain(|given| {
            let is_kept = resume(reader, given, snapshot, &now, is_crowded);
            assert!(is_kept || fresh != Some(given.version) || given.contents != now, "a new list has expired");
            is_kept
        });
    }
}

/// Reads all changes after a version. Returns false if it has expired.
///
/// A crowded queue merges changes. Objects with a merged change are then missing in the present state until the later
/// change is applied, although a reader with a version from a process of before may have them.
fn resume(reader: usize, given: &Given, snapshot: &Snapshot, now: &Contents, is_crowded: bool) -> bool {
    let history = snapshot.history().unwrap();
    let cursor = if reader < CLUSTERS.len() {
        match snapshot.locate(&cluster(reader), given.version) {
            Ok(cursor) => Some(cursor),
            Err(LocateError::Expired { .. }) => None,
            // A reader that is ahead of the only informer of its cluster waits until that has caught up.
            Err(LocateError::Future { .. }) if given.is_of_before => {
                return snapshot.has_one_informer(&cluster(reader));
            }
            Err(LocateError::Future { newest }) => panic!("{given:?} is after {newest}"),
        }
    } else {
        history.resume(&scope(reader), given.version).ok()
    };
    let (Some(mut cursor), mut changes) = (cursor, Vec::new()) else { return false };
    if history.read(&scope(reader), &mut cursor, usize::MAX, &mut changes).is_err() {
        return false;
    }
    let mut contents = given.contents.clone();
    for change in &changes {
        apply(&mut contents, change, given.is_exact);
    }
    let is_behind = is_crowded
        && given.is_of_before
        && reader < CLUSTERS.len()
        && snapshot.cluster_complete(&cluster(reader)) < Some(given.version);
    assert!(is_behind || &contents == now, "scope {reader} from {given:?} by {changes:?}: {contents:?} is not {now:?}");
    true
}

fn take(world: &mut World, step: &Step) {
    match *step {
        Step::Put(at, name) => world.put(at, NAMES[name]),
        Step::Delete(at, name) => world.delete(at, NAMES[name]),
        Step::Receive(at, count) => world.receive(at, count),
        Step::List(at) => world.list(at),
        Step::Apply(at, max) => world.apply(at, max),
        Step::BackUp(of) => world.back_up(of),
        Step::Open(at) => world.open(at),
        Step::Close(at) => world.close(at),
        Step::KeepBodies(at, keep) => world.keep_bodies(at, keep),
        Step::Relabel(of) => world.relabel(of),
        Step::PassTime => world.pass_time(),
        Step::Tight(tight) => world.store.set_history_tight(tight),
        Step::Recover => world.recover(),
        Step::Restart(keeps_first) => world.restart(keeps_first),
        Step::Checkpoint => world.checkpoint(),
        Step::Kill(_) | Step::Read(..) => {}
    }
}

fn run(steps: &[Step], bytes: usize, opened: usize) {
    run_in(World::new(bytes), steps, opened);
}

fn run_in(mut world: World, steps: &[Step], opened: usize) {
    let mut readers: Vec<Reader> = (0..SCOPES).map(|_| Reader::default()).collect();
    for at in (0..INFORMERS.len()).filter(|at| opened & (1 << at) != 0) {
        world.open(at);
        world.list(at);
        world.apply(at, usize::MAX);
    }
    // With several informers, the store makes up versions that the next process takes for later ones of the cluster.
    let mut had_several = [false; CLUSTERS.len()];
    for step in steps {
        take(&mut world, step);
        let snapshot = world.snapshot();
        for (at, had) in had_several.iter_mut().enumerate() {
            *had |= !snapshot.has_one_informer(&cluster(at));
        }
        match *step {
            Step::Read(reader, max) => readers[reader].read(reader, max, &snapshot),
            // Connections end with the process. A cluster that is restored while the store keeps changes is one that was
            // added again: its readers expired when it was removed.
            Step::Restart(is_added_again) => {
                for (at, reader) in readers.iter_mut().enumerate() {
                    reader.position = None;
                    reader.given.retain(|_| at >= CLUSTERS.len() || !is_added_again);
                }
            }
            // Readers of a cluster keep their versions, which may be newer than the checkpoint.
            Step::Kill(ahead) if world.kill(ahead) => {
                for (at, reader) in readers.iter_mut().enumerate() {
                    reader.position = None;
                    reader.given.retain(|_| had_several.get(at) == Some(&false));
                    reader.given.iter_mut().for_each(|given| (given.is_exact, given.is_of_before) = (false, true));
                }
            }
            Step::Put(..) | Step::Delete(..) | Step::Receive(..) | Step::List(_) | Step::BackUp(_) => continue,
            _ => {}
        }
        let snapshot = world.snapshot();
        for (at, reader) in readers.iter_mut().enumerate() {
            reader.check(at, &snapshot, world.queue_bytes == 0);
        }
    }
    (0..INFORMERS.len()).for_each(|at| world.catch_up(at));
    let snapshot = world.snapshot();
    for (at, reader) in readers.iter_mut().enumerate() {
        reader.check(at, &snapshot, world.queue_bytes == 0);
    }
}

proptest! {
    #![proptest_config(properties(2048))]

    #[test]
    fn reader_reaches_the_present_state_from_each_version_that_it_was_given(
        steps in prop::collection::vec(arb_step(), 1..100),
        bytes in prop_oneof![4 => Just(1 << 20), 1 => 0..4000usize],
        opened in 0..32usize,
        is_crowded in any::<bool>(),
    ) {
        let mut world = World::new(bytes);
        world.queue_bytes = if is_crowded { 0 } else { usize::MAX };
        run_in(world, &steps, opened);
    }
}

#[test]
fn deletion_of_an_object_that_only_a_reader_of_before_has_is_a_change() {
    // The new process receives addition and deletion at once, and its crowded queue merges them.
    let mut world = World::new(1 << 20);
    world.queue_bytes = 0;
    let steps = [
        Step::Put(3, 0),
        Step::Receive(3, 3),
        Step::Apply(3, 9),
        Step::Checkpoint,
        Step::Delete(3, 0),
        Step::Put(3, 0),
        Step::Put(3, 1),
        Step::Receive(3, 9),
        Step::Apply(3, 9),
        Step::Delete(3, 0),
        Step::Kill(0),
    ];
    run_in(world, &steps, 1 << 3);
}

#[test]
fn version_that_a_list_has_skipped_has_expired() {
    // The object was added after the checkpoint and deleted before the list: the new process never had it.
    let steps = [
        Step::Checkpoint,
        Step::Put(3, 0),
        Step::Receive(3, 1),
        Step::Apply(3, 1),
        Step::Kill(0),
        Step::Delete(3, 0),
        Step::Put(3, 1),
        Step::List(3),
        Step::Apply(3, 9),
    ];
    run(&steps, 1 << 20, 1 << 3);
}

#[test]
fn versions_are_those_of_the_cluster_again_once_the_watch_has_caught_up() {
    let mut world = World::new(1 << 20);
    let of = cluster(1);
    world.open(3);
    world.list(3);
    world.apply(3, 9);
    world.checkpoint();
    for name in NAMES {
        world.put(3, name);
        world.receive(3, 1);
        world.apply(3, 1);
    }
    let before = world.snapshot().cluster_version(&of).unwrap();
    assert!(world.kill(0b100));
    let locate = |world: &World, version| world.snapshot().locate(&of, version);
    let made_up = world.snapshot().cluster_version(&of).unwrap();
    assert!(made_up >= MADE_UP && locate(&world, made_up).is_ok());
    let expired = |located| matches!(located, Err(LocateError::Expired { .. }));
    assert!(expired(locate(&world, before)), "its changes are not repeated");
    world.receive(3, 2);
    world.apply(3, 9);
    let later = world.snapshot().cluster_version(&of).unwrap();
    assert!(later > made_up && expired(locate(&world, before - 1)), "one change is missing");
    world.receive(3, 3);
    world.apply(3, 9);
    assert_eq!(world.snapshot().cluster_version(&of), Some(before));
    assert!(locate(&world, before).is_ok() && expired(locate(&world, before - 1)) && expired(locate(&world, later)));
    world.put(3, NAMES[0]);
    world.receive(3, 3);
    world.apply(3, 9);
    assert_eq!(world.snapshot().cluster_version(&of), Some(before + 1));
    assert!(locate(&world, before).is_ok(), "the change is known");
}

#[test]
fn made_up_versions_are_far_above_those_of_the_cluster() {
    let mut world = World::new(1 << 20);
    let of = cluster(1);
    for name in NAMES {
        world.put(3, name);
    }
    world.open(3);
    world.keep_bodies(3, false);
    let list = |world: &mut World| {
        world.list(3);
        world.apply(3, 9);
        world.snapshot().cluster_version(&of).unwrap()
    };
    let before = list(&mut world);
    world.keep_bodies(3, true);
    let made_up = list(&mut world);
    assert!(made_up >= MADE_UP, "the cluster would reach {made_up}, and its changes up to it would be missed");
    world.put(3, NAMES[0]);
    world.receive(3, 3);
    world.apply(3, 9);
    assert_eq!(
        world.snapshot().cluster_version(&of),
        Some(before + 1),
        "the cluster has passed all versions of readers"
    );
}

#[test]
fn version_from_before_a_cluster_went_back_has_expired_also_after_a_restart() {
    let mut world = World::new(1 << 20);
    let of = cluster(1);
    let step = |world: &mut World| {
        world.put(3, NAMES[0]);
        world.receive(3, 3);
        world.apply(3, 9);
    };
    world.open(3);
    world.list(3);
    world.apply(3, 9);
    world.back_up(1);
    (0..4).for_each(|_| step(&mut world));
    let before = world.snapshot().cluster_version(&of).unwrap();
    world.back_up(1);
    world.list(3);
    world.apply(3, 9);
    for round in 0..9 {
        if round % 3 == 0 {
            world.restart(false);
        }
        let located = world.snapshot().locate(&of, before);
        assert!(matches!(located, Err(LocateError::Expired { .. })), "round {round}: {located:?}");
        step(&mut world);
    }
    assert!(world.snapshot().cluster_version(&of).is_some_and(|version| before < version && version < MADE_UP));
}

#[test]
fn body_that_is_back_is_a_change_of_the_object() {
    let mut world = World::new(1 << 20);
    world.put(0, NAMES[0]);
    world.open(0);
    world.keep_bodies(0, false);
    let list = |world: &mut World| {
        world.list(0);
        world.apply(0, usize::MAX);
        world.snapshot()
    };
    let bare = list(&mut world);
    assert!(bare.partitions().flat_map(|(_, partition)| partition.iter()).all(|object| !object.is_kept()));
    world.keep_bodies(0, true);
    let whole = list(&mut world);
    let (mut cursor, mut changes) = (HistoryCursor::after(bare.version()), Vec::new());
    whole.history().unwrap().read(&scope(CLUSTERS.len()), &mut cursor, usize::MAX, &mut changes).unwrap();
    let [change] = &changes[..] else { panic!("{changes:?}") };
    assert!(change.kind == ChangeKind::Modified && change.object.is_kept(), "{change:?}");
    assert!(change.version > bare.version(), "readers that have listed before it are notified");
}

#[test]
fn guessed_version_of_a_deletion_is_not_used_again_by_the_rest_of_its_list() {
    let steps = [
        Step::Put(0, 0),
        Step::Receive(0, 1),
        Step::Delete(0, 0),
        Step::Put(0, 1),
        Step::List(0),
        Step::Put(0, 0),
        Step::Receive(0, 1),
        Step::Apply(0, 1),
        Step::Apply(0, 2),
    ];
    run(&steps, 1 << 20, 1);
}

#[test]
fn guessed_version_of_a_deletion_is_not_used_again_by_a_later_event() {
    let steps = [
        Step::Put(0, 0),
        Step::Receive(0, 1),
        Step::Delete(0, 0),
        Step::List(0),
        Step::Put(0, 1),
        Step::Put(0, 0),
        Step::Receive(0, 2),
        Step::Apply(0, 1),
        Step::Apply(0, 1),
        Step::Apply(0, 1),
    ];
    run(&steps, 1 << 20, 1);
}

#[test]
fn version_that_a_cluster_uses_again_after_it_went_back_leads_to_one_change() {
    // One informer still has an event from before the restore of etcd, the other one a list from after it.
    let steps = [
        Step::Put(1, 0),
        Step::BackUp(0),
        Step::Put(0, 0),
        Step::Receive(0, 1),
        Step::BackUp(0),
        Step::Put(2, 0),
        Step::List(2),
        Step::Apply(0, 1),
        Step::Apply(2, 2),
    ];
    run(&steps, 1 << 20, 0b101);
}

#[test]
fn version_of_an_object_leads_to_changes_of_an_informer_that_lags() {
    // The first event has a version that readers may have, since an informer joined.
    let steps = [
        Step::Put(0, 0),
        Step::Put(2, 0),
        Step::Receive(0, 1),
        Step::List(2),
        Step::Read(0, 1),
        Step::Put(0, 0),
        Step::Receive(0, 3),
        Step::Apply(0, 1),
        Step::Read(0, 2),
        Step::Put(0, 0),
        Step::Apply(2, 2),
    ];
    run(&steps, 1 << 20, 5);
}
