//! Model test of the window of changes: from each version that a reader was given, it reaches the present state or must
//! list again.

use std::sync::Arc;

use proptest::prelude::*;

use super::history_world::{
    CLUSTERS, Contents, INFORMERS, NAMES, World, cluster, contents, entry, is_selected, number,
};
use crate::testing::properties;
use crate::{ChangeKind, HistoryCursor, HistoryScope, LocateError, RecordedChange, Snapshot};

#[derive(Clone, Debug)]
pub(super) enum Step {
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

pub(super) fn scope(reader: usize) -> HistoryScope {
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
    /// version is that of an object whose change was recorded with another version. Changes may also be repeated if
    /// `is_lost_by_kill`.
    is_exact: bool,
    /// Whether a process that was killed gave the version.
    is_of_before: bool,
    /// Whether a reader that resumes from this version after a kill may miss changes ([`World::is_lost_by_kill`]).
    is_lost_by_kill: bool,
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
    /// Whether the versions of the next changes are of no use after a kill.
    is_lost_by_kill: bool,
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

    fn read(&mut self, reader: usize, max: usize, world: &World) {
        let snapshot = &*world.snapshot();
        let history = snapshot.history().unwrap();
        let is_lost_now = world.is_lost_by_kill(reader);
        let is_lost_by_kill = is_lost_now || (self.is_lost_by_kill && self.position.is_some());
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
                self.give(Given { version, contents, is_exact, is_of_before: false, is_lost_by_kill });
            }
        }
        let is_at_end = cursor.version() >= snapshot.version();
        self.is_lost_by_kill = if is_at_end { is_lost_now } else { is_lost_by_kill };
        if is_at_end && let Some(version) = list_version(snapshot, reader) {
            let (contents, is_lost_by_kill) = (contents.clone(), is_lost_now);
            self.give(Given { version, contents, is_exact: true, is_of_before: false, is_lost_by_kill });
        }
        self.position = Some((cursor, contents));
    }

    /// Resumes from each version that a reader was given. Expired ones are forgotten.
    fn check(&mut self, reader: usize, world: &World) {
        let snapshot = &*world.snapshot();
        let now = listed(snapshot, reader);
        let is_joined = reader >= CLUSTERS.len() || snapshot.joined_partitions(&cluster(reader)).next().is_some();
        let fresh = list_version(snapshot, reader).filter(|_| is_joined);
        let is_lost_by_kill = world.is_lost_by_kill(reader);
        self.is_lost_by_kill |= is_lost_by_kill;
        if let Some(version) = fresh {
            let contents = now.clone();
            self.give(Given { version, contents, is_exact: true, is_of_before: false, is_lost_by_kill });
        }
        // A cluster without an informer is not served.
        self.given.retain(|given| is_joined || !given.is_of_before);
        self.given.retain(|given| {
            let is_kept = resume(reader, given, snapshot, &now, world.queue_bytes == 0);
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
        apply(&mut contents, change, given.is_exact && !given.is_lost_by_kill);
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
        Step::Open(at) => world.open(at),
        Step::Close(at) => world.close(at),
        Step::KeepBodies(at, keep) => world.keep_bodies(at, keep),
        Step::Relabel(of) => world.relabel(of),
        Step::PassTime => world.pass_time(),
        Step::Tight(tight) => world.store.set_history_tight(tight),
        Step::Recover => world.recover(),
        Step::Restart(keeps_first) => world.restart(keeps_first),
        Step::Checkpoint => world.checkpoint(),
        Step::BackUp(_) | Step::Kill(_) | Step::Read(..) => {}
    }
}

pub(super) fn run(steps: &[Step], bytes: usize, opened: usize) {
    run_in(World::new(bytes), steps, opened);
}

/// Runs the steps with queues that merge as soon as one change is queued.
pub(super) fn run_crowded(steps: &[Step], opened: usize) {
    let mut world = World::new(1 << 20);
    world.queue_bytes = 0;
    run_in(world, steps, opened);
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
        for (at, had) in had_several.iter_mut().enumerate() {
            *had |= !world.snapshot().has_one_informer(&cluster(at));
        }
        take(&mut world, step);
        match *step {
            Step::Read(reader, max) => readers[reader].read(reader, max, &world),
            Step::BackUp(of) => {
                if world.back_up(of) {
                    readers[of].given.retain(|given| !given.is_of_before);
                    readers[of].given.iter_mut().for_each(|given| given.is_lost_by_kill = true);
                    readers[of].is_lost_by_kill = true;
                }
                continue;
            }
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
                    reader.given.retain(|given| had_several.get(at) == Some(&false) && !given.is_lost_by_kill);
                    reader.given.iter_mut().for_each(|given| (given.is_exact, given.is_of_before) = (false, true));
                }
            }
            Step::Put(..) | Step::Delete(..) | Step::Receive(..) | Step::List(_) => continue,
            _ => {}
        }
        for (at, reader) in readers.iter_mut().enumerate() {
            reader.check(at, &world);
        }
    }
    (0..INFORMERS.len()).for_each(|at| world.catch_up(at));
    for (at, reader) in readers.iter_mut().enumerate() {
        reader.check(at, &world);
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
