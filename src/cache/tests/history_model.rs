//! Model test of the window of changes: from each version that a reader was given, it reaches the present state or must
//! list again.

use std::sync::Arc;

use proptest::prelude::*;

use super::history_world::{
    CLUSTERS, Contents, INFORMERS, NAMES, World, cluster, contents, entry, is_selected, number,
};
use crate::cache::testing::properties;
use crate::cache::{ChangeKind, HistoryCursor, HistoryScope, LocateError, RecordedChange, Snapshot};

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
        8 => (0..SCOPES, 1..4usize).prop_map(|(reader, max)| Step::Read(reader, max)),
    ]
}

/// Scopes of readers: the clusters, the fleet, and the selected clusters.
const SCOPES: usize = CLUSTERS.len() + 2;
/// Versions of a scope that are checked.
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
    /// Whether no change may be repeated: it is the version of a list, a bookmark, or a change that has this version.
    is_exact: bool,
}

/// Applies a change. With `is_strict`, it must continue the objects.
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
            // The oldest ones stay as long as others, so that long gaps are checked too.
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
            let event =
                if change.kind == ChangeKind::Deleted { change.cluster_version } else { Some(number(&change.object)) };
            if let Some(version) = own.or(event) {
                let is_exact = own.is_some() || change.cluster_version == Some(version);
                self.give(Given { version, contents: contents.clone(), is_exact });
            }
        }
        if cursor.version() >= snapshot.version()
            && let Some(version) = list_version(snapshot, reader)
        {
            self.give(Given { version, contents: contents.clone(), is_exact: true });
        }
        self.position = Some((cursor, contents));
    }

    /// Resumes from each version that a reader was given. Expired ones are forgotten.
    fn check(&mut self, reader: usize, snapshot: &Snapshot) {
        let now = listed(snapshot, reader);
        let is_joined = reader >= CLUSTERS.len() || snapshot.joined_partitions(&cluster(reader)).next().is_some();
        let fresh = list_version(snapshot, reader).filter(|_| is_joined);
        if let Some(version) = fresh {
            self.give(Given { version, contents: now.clone(), is_exact: true });
        }
        self.given.retain(|given| {
            let is_kept = resume(reader, given, snapshot, &now);
            assert!(is_kept || fresh != Some(given.version) || given.contents != now, "a new list has expired");
            is_kept
        });
    }
}

/// Reads all changes after a version. Returns false if it has expired.
fn resume(reader: usize, given: &Given, snapshot: &Snapshot, now: &Contents) -> bool {
    let history = snapshot.history().unwrap();
    let cursor = if reader < CLUSTERS.len() {
        match snapshot.locate(&cluster(reader), given.version) {
            Ok(cursor) => Some(cursor),
            Err(LocateError::Expired { .. }) => None,
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
    assert_eq!(&contents, now, "scope {reader} from {given:?} by {changes:?}");
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
        Step::Read(..) => {}
    }
}

fn run(steps: &[Step], bytes: usize, opened: usize) {
    let mut world = World::new(bytes);
    let mut readers: Vec<Reader> = (0..SCOPES).map(|_| Reader::default()).collect();
    for at in (0..INFORMERS.len()).filter(|at| opened & (1 << at) != 0) {
        world.open(at);
        world.list(at);
        world.apply(at, usize::MAX);
    }
    for step in steps {
        take(&mut world, step);
        let snapshot = world.snapshot();
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
            Step::Put(..) | Step::Delete(..) | Step::Receive(..) | Step::List(_) | Step::BackUp(_) => continue,
            _ => {}
        }
        for (at, reader) in readers.iter_mut().enumerate() {
            reader.check(at, &snapshot);
        }
    }
}

proptest! {
    #![proptest_config(properties(2048))]

    #[test]
    fn reader_reaches_the_present_state_from_each_version_that_it_was_given(
        steps in prop::collection::vec(arb_step(), 1..100),
        bytes in prop_oneof![4 => Just(1 << 20), 1 => 0..4000usize],
        opened in 0..32usize,
    ) {
        run(&steps, bytes, opened);
    }
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
    // One informer still has an event from before, the other one a list from after.
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
