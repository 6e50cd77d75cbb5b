//! Tests of saving removed clusters, and of failures to do so.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::actors::control::checkpoint::pass::tests::Hub;
use crate::cache::DeltaFifo;
use crate::cache::testing::{delta, object_with};
use crate::state::caches::Claim;
use informer_hub_types::{Change, DeltaKind, ResourceVersion};

/// Updates an object of the cluster that will be removed.
fn change(hub: &mut Hub) {
    let mut fifo = DeltaFifo::new(usize::MAX);
    fifo.push(Change::Delta(delta(DeltaKind::Updated, object_with("ns", "w-1", "uid", 50, &[], &[]))));
    hub.from.store.apply_up_to(hub.moving, fifo.pop(usize::MAX), Some(ResourceVersion::new("50")));
}

/// Removes the cluster as [`save_removed`] does, without actors.
fn remove_cluster(hub: &mut Hub) {
    let mut part = hub.from.part(&hub.store, true);
    part.barriers.retain(|barrier| barrier.id == hub.moving);
    hub.store.unsaved.lock().extend(unsaved_of(&part));
    write(&hub.store, &"a".parse().unwrap(), &part);
    hub.from.store.close(hub.moving);
}

fn clusters(hub: &Hub) -> Vec<String> {
    hub.found(false, true).into_iter().map(|(cluster, ..)| cluster).collect()
}

#[test]
fn saved_cluster_stays_on_disk_with_its_last_change_and_leaves_memory() {
    let mut hub = Hub::new(1, "v1", "v2");
    change(&mut hub);
    remove_cluster(&mut hub);
    assert!(hub.store.unsaved.lock().is_empty() && hub.store.has_removed(&"a".parse().unwrap()));
    for _ in 0..3 {
        assert_eq!(hub.pass(true), None);
        assert_eq!(clusters(&hub), ["a", "b"]);
    }
    assert!(!hub.store.has_removed(&"b".parse().unwrap()));
}

#[test]
fn saved_cluster_keeps_the_version_that_its_next_list_must_not_be_older_than() {
    let mut hub = Hub::new(1, "v1", "v2");
    // A list that is cut off after it has deleted the newest object: no object has the version of the deletion.
    let mut fifo = DeltaFifo::new(usize::MAX);
    fifo.push(Change::ReplaceBegin);
    fifo.push(Change::Delta(delta(DeltaKind::Deleted, object_with("ns", "w-39", "uid", 50, &[], &[]))));
    hub.from.store.apply_up_to(hub.moving, fifo.pop(usize::MAX), None);
    let floor = ResourceVersion::new("50");
    hub.from.store.published().load().partition(hub.moving).unwrap().health().set_floor(floor.clone());
    remove_cluster(&mut hub);
    assert!(hub.store.unsaved.lock().is_empty());
    let claim = |_: &ApiResource, _: &PartitionHeader| {
        let labels = ClusterLabels::new();
        Some(Claim { labels, indexes: Vec::new(), settings: 1, any_version: false })
    };
    let read = hub.store.files.lock().values_mut().next().unwrap().read_closed(&Arc::default(), &claim).unwrap();
    let [(_, readded)] = &read.partitions[..] else { panic!("{read:?}") };
    assert_eq!((&readded.version, readded.objects.len()), (&None, 39));
    assert_eq!(readded.health.newest().as_deref(), Some(&floor));
}

#[test]
fn partition_that_has_not_caught_up_after_a_restart_stays_unsaved() {
    let mut hub = Hub::new(1, "v1", "v2");
    let snapshot = hub.from.store.published().load_full();
    snapshot.partition(hub.moving).unwrap().health().lists.store(0, Relaxed);
    remove_cluster(&mut hub);
    assert_eq!(hub.store.unsaved.lock().len(), 1, "journals keep its events until then");
    assert_eq!(hub.pass(true), None);
    assert_eq!(clusters(&hub), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn unsaved_partition_is_kept_for_a_minute_and_then_deleted() {
    let mut hub = Hub::new(2, "v1", "v2");
    change(&mut hub);
    hub.disk.set_fail_rate(1.0);
    remove_cluster(&mut hub);
    hub.disk.set_fail_rate(0.0);
    assert_eq!(hub.pass(true), None);
    assert_eq!(clusters(&hub), ["a", "b"]);
    let second = Duration::from_secs(1);
    tokio::time::advance(SAVE_TIMEOUT.saturating_sub(second)).await;
    assert!(hub.store.drop_expired().is_empty() && hub.store.has_removed(&"a".parse().unwrap()));
    assert_eq!(hub.pass(true), None);
    assert_eq!(clusters(&hub), ["a", "b"]);
    tokio::time::advance(second).await;
    assert_eq!(hub.store.drop_expired().len(), 1);
    assert!(!hub.store.has_removed(&"a".parse().unwrap()));
    assert_eq!(hub.pass(true), None);
    assert_eq!(clusters(&hub), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_writer_interrupts_a_pass_and_times_out_on_a_hanging_disk() {
    let hub = Hub::new(3, "v1", "v2");
    let hangs = Arc::clone(&hub.store.lock).lock_owned().await;
    assert!(!hub.store.has_waiters());
    let (lock, ()) = tokio::join!(hub.store.acquire(SAVE_TIMEOUT), async {
        tokio::task::yield_now().await;
        assert!(hub.store.has_waiters());
    });
    assert!(lock.is_none() && !hub.store.has_waiters());
    drop(hangs);
    assert!(hub.store.acquire(SAVE_TIMEOUT).await.is_some());
}
