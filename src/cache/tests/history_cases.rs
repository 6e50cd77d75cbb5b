//! Tests of single cases of the window of changes, most of them found by the model test.

use super::history_model::{Step, run, run_crowded, scope};
use super::history_world::{CLUSTERS, NAMES, World, cluster};
use crate::{ChangeKind, HistoryCursor, LocateError, MADE_UP};

/// Steps after which the hub makes up versions for the cluster of informer 3: an object gets its body back.
const STARTS_MADE_UP: [Step; 7] = [
    Step::KeepBodies(3, false),
    Step::Put(3, 0),
    Step::Receive(3, 3),
    Step::Apply(3, 9),
    Step::KeepBodies(3, true),
    Step::List(3),
    Step::Apply(3, 9),
];

#[test]
fn deletion_of_an_object_that_only_a_reader_of_before_has_is_a_change() {
    // The new process receives addition and deletion at once, and its crowded queue merges them.
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
    run_crowded(&steps, 1 << 3);
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

#[test]
fn made_up_version_expires_for_ever_when_the_own_versions_are_used_again() {
    // The versions made up for the second list are greater than that of the first change.
    let steps = [
        Step::Close(4),
        Step::Put(3, 0),
        Step::Receive(3, 1),
        Step::Put(0, 0),
        Step::Put(3, 0),
        Step::Put(3, 0),
        Step::List(3),
        Step::Put(3, 0),
        Step::Put(4, 0),
        Step::Apply(3, 1),
        Step::Put(0, 0),
        Step::List(3),
    ];
    run(&steps, 1 << 20, 24);
}

#[test]
fn list_of_queued_objects_keeps_the_order_of_versions() {
    let steps = [
        Step::Put(4, 1),
        Step::Checkpoint,
        Step::Put(4, 0),
        Step::Delete(4, 0),
        Step::Receive(4, 3),
        Step::List(4),
        Step::Apply(4, 1),
        Step::Kill(0),
    ];
    run_crowded(&steps, 1 << 4);
}

#[test]
fn version_from_before_a_namespace_joined_has_expired_after_made_up_versions() {
    let steps = [
        Step::Close(1),
        Step::Read(0, 1),
        Step::Put(2, 0),
        Step::Put(0, 0),
        Step::Put(2, 1),
        Step::Receive(2, 2),
        Step::Apply(2, 2),
        Step::Open(0),
        Step::Read(0, 2),
    ];
    run(&steps, 1 << 20, 30);
}

#[test]
fn version_that_a_restored_cluster_uses_again_has_expired_after_made_up_versions() {
    let steps = [
        Step::Put(3, 0),
        Step::Put(4, 0),
        Step::BackUp(1),
        Step::List(3),
        Step::Read(1, 1),
        Step::Put(3, 0),
        Step::Receive(3, 1),
        Step::Apply(3, 2),
        Step::Apply(3, 1),
        Step::Read(1, 2),
        Step::BackUp(1),
        Step::Put(3, 1),
    ];
    run(&steps, 1 << 20, 8);
}

#[test]
fn version_above_the_complete_one_expires_when_the_own_versions_are_used_again() {
    let steps = [
        Step::Read(1, 1),
        Step::Put(3, 0),
        Step::Receive(3, 1),
        Step::Put(4, 0),
        Step::Receive(3, 3),
        Step::Put(3, 1),
        Step::Receive(3, 1),
        Step::Put(3, 0),
        Step::Receive(3, 1),
        Step::Apply(3, 1),
        Step::Read(1, 1),
        Step::Apply(3, 1),
    ];
    run_crowded(&[&STARTS_MADE_UP, &steps[..]].concat(), 1 << 3);
}

#[test]
fn version_before_a_restore_of_etcd_in_the_same_batch_has_expired_after_made_up_versions() {
    let steps = [
        Step::BackUp(1),
        Step::Put(3, 0),
        Step::Receive(3, 1),
        Step::Read(1, 1),
        Step::BackUp(1),
        Step::List(3),
        Step::Apply(3, 9),
        Step::Read(1, 1),
        Step::Put(4, 0),
        Step::Receive(3, 3),
        Step::Apply(3, 9),
    ];
    run(&[&STARTS_MADE_UP, &steps[..]].concat(), 1 << 20, 1 << 3);
}
