//! Tests of checkpoint passes after a partition has moved to another API version of its resource. A pass is interrupted
//! at any of its disk calls.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::actors::checkpoint::store::StateStatus;
use crate::cache::testing::{delta, object_with};
use crate::cache::{DeltaFifo, PartitionId, Store};
use crate::state::caches::{Claim, Loaded, load};
use informer_hub_disk::Disk;
use informer_hub_sim::SimDisk;
use informer_hub_types::{
    ApiResource, Change, ClusterLabels, ClusterName, DeltaKind, InformerHealth, ResourceVersion, Scope,
};

const ROOT: &str = "/state/caches";

/// Number of objects in each of the two partitions. One partition moves to another API version, the other stays.
const OBJECTS: usize = 40;

fn widgets(version: &str) -> ApiResource {
    ApiResource { gvr: Gvr::new("example.com", version, "widgets"), kind: "Widget".into(), namespaced: true }
}

fn origin(cluster: &str, resource: &ApiResource) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: ClusterName::new(cluster).unwrap(),
        cluster_labels: ClusterLabels::new(),
        resource: resource.clone(),
        scope: Scope::all(),
    })
}

/// One API version of a resource, with its store.
pub(in crate::actors::control::checkpoint) struct Version {
    pub(in crate::actors::control::checkpoint) resource: ApiResource,
    pub(in crate::actors::control::checkpoint) store: Store,
    ids: Vec<PartitionId>,
}

impl Version {
    fn new(version: &str) -> Self {
        let resource = widgets(version);
        Self { store: Store::new(resource.clone()), resource, ids: Vec::new() }
    }

    fn fill(&mut self, cluster: &str) -> PartitionId {
        let health = InformerHealth::new();
        health.lists.fetch_add(1, Relaxed);
        let id = self.store.open(origin(cluster, &self.resource), health, Vec::new());
        self.store.go_on(id, 1);
        let mut fifo = DeltaFifo::new(usize::MAX);
        fifo.push(Change::ReplaceBegin);
        for number in 0..OBJECTS {
            let object = object_with("ns", &format!("w-{number}"), "uid", number as u64 + 1, &[], &[]);
            fifo.push(Change::Delta(delta(DeltaKind::Replaced, object)));
        }
        fifo.push(Change::ReplaceEnd(ResourceVersion::new("40")));
        self.store.apply_up_to(id, fifo.pop(usize::MAX), Some(ResourceVersion::new("40")));
        self.ids.push(id);
        id
    }

    pub(in crate::actors::control::checkpoint) fn part(&self, store: &CheckpointStore, may_be_written: bool) -> Part {
        let snapshot = self.store.published().load_full();
        let barriers = if may_be_written {
            snapshot.partitions().map(|one| Barrier::new(store, one, &[])).collect()
        } else {
            Vec::new()
        };
        Part { key: (self.resource.gvr.clone(), View::Shared), snapshot, barriers }
    }
}

/// Stores of two API versions of a resource, and a disk with the partitions of the first.
pub(in crate::actors::control::checkpoint) struct Hub {
    pub(in crate::actors::control::checkpoint) disk: SimDisk,
    pub(in crate::actors::control::checkpoint) store: CheckpointStore,
    pub(in crate::actors::control::checkpoint) from: Version,
    pub(in crate::actors::control::checkpoint) to: Version,
    pub(in crate::actors::control::checkpoint) moving: PartitionId,
}

impl Hub {
    pub(in crate::actors::control::checkpoint) fn new(seed: u64, from: &str, to: &str) -> Self {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("/state")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (every, status) = (Duration::from_secs(5), StateStatus::default());
        let store = CheckpointStore::new(shared, ROOT.into(), every, Duration::ZERO, [], status);
        let (mut from, to) = (Version::new(from), Version::new(to));
        let moving = from.fill("a");
        from.fill("b");
        let hub = Self { disk, store, from, to, moving };
        assert!(hub.pass(true).is_none());
        hub
    }

    /// Moves the partition to the other API version, as `CacheDirectory::move_partition` does.
    fn move_it(&mut self) {
        let snapshot = self.from.store.published().load_full();
        let partition = snapshot.partition(self.moving).unwrap();
        let to = origin("a", &self.to.resource);
        self.store.moves.lock().begin(partition.origin(), &to);
        self.to.store.adopt(partition, Arc::clone(&to));
        self.store.moves.lock().done(&to);
        self.from.store.close(self.moving);
    }

    /// Runs a pass and returns its error. `moved_may_be_written` is false if readers have not acknowledged the moved
    /// partition.
    pub(in crate::actors::control::checkpoint) fn pass(&self, moved_may_be_written: bool) -> Option<String> {
        let mut parts = vec![self.from.part(&self.store, true), self.to.part(&self.store, moved_may_be_written)];
        parts.sort_by(|a, b| a.key.cmp(&b.key));
        write(&self.store, &parts, false).error
    }

    /// Returns cluster, API version and object count of each partition that a restart loads. With `power_goes`, the
    /// disk first loses writes that were not synced.
    pub(in crate::actors::control::checkpoint) fn found(
        &self,
        power_goes: bool,
        any_version: bool,
    ) -> Vec<(String, String, usize)> {
        if power_goes {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let claim = || Claim { labels: ClusterLabels::new(), indexes: Vec::new(), settings: 1, any_version };
        let Loaded { caches, lost } = load(&disk, Path::new(ROOT), &|_, _| Some(claim())).unwrap();
        assert!(lost.is_empty() && caches.iter().all(|cache| cache.damage.is_empty()), "{lost:?}");
        let mut found = Vec::new();
        for cache in &caches {
            for (_, partition) in cache.store.published().load().partitions() {
                // A moved partition is compared with a list before a watch may resume from it.
                let is_moved = cache.resource != self.from.resource;
                assert_eq!(partition.resume_version().is_none(), is_moved);
                let cluster = partition.origin().cluster.to_string();
                found.push((cluster, cache.resource.gvr.version.to_string(), partition.len()));
            }
        }
        found.sort();
        found
    }
}

#[test]
fn interrupted_pass_leaves_a_moved_partition_complete_in_one_version() {
    let mut seen = std::collections::BTreeSet::new();
    for (from, to) in [("v1", "v1beta1"), ("v1beta1", "v1")] {
        for power_goes in [false, true] {
            for calls in 0.. {
                let mut hub = Hub::new(calls, from, to);
                hub.move_it();
                hub.disk.stop_after(calls);
                let error = hub.pass(true);
                let found = hub.found(power_goes, true);
                let [(a, version, objects), b] = &found[..] else { panic!("{from} {to} {calls}: {found:?}") };
                assert_eq!((a.as_str(), *objects), ("a", OBJECTS), "{from} {to} {calls}");
                assert_eq!(*b, ("b".to_owned(), from.to_owned(), OBJECTS));
                seen.insert((from, version.clone()));
                if error.is_none() {
                    assert_eq!(version, to);
                    break;
                }
            }
        }
    }
    assert_eq!(seen.len(), 4, "interruptions leave the old and the new version: {seen:?}");
}

#[test]
fn moved_partition_stays_in_its_old_version_until_readers_acknowledge() {
    for (from, to) in [("v1", "v1beta1"), ("v1beta1", "v1")] {
        let mut hub = Hub::new(1, from, to);
        hub.move_it();
        for _ in 0..3 {
            assert_eq!(hub.pass(false), None);
        }
        let versions = |hub: &Hub, any| -> Vec<_> {
            hub.found(false, any).into_iter().filter(|it| it.0 == "a").map(|it| it.1).collect()
        };
        assert_eq!(versions(&hub, true), [from]);
        assert_eq!(hub.pass(true), None);
        assert_eq!(versions(&hub, false), [to], "the old version is removed");
        assert!(!hub.store.moves.lock().has_kept_files(&hub.from.resource.gvr, &View::Shared));
    }
}

#[test]
fn versions_requested_by_name_are_both_restored() {
    let mut hub = Hub::new(1, "v1", "v1beta1");
    let snapshot = hub.from.store.published().load_full();
    let partition = snapshot.partition(hub.moving).unwrap();
    hub.to.store.adopt(partition, origin("a", &hub.to.resource));
    assert_eq!(hub.pass(true), None);
    assert_eq!(hub.found(true, false).len(), 3);
    assert_eq!(hub.found(true, true).len(), 2);
}

#[test]
fn twice_moved_partition_keeps_its_files_and_a_closed_one_loses_them() {
    let (v1, v2, v3) = (widgets("v1"), widgets("v2"), widgets("v3"));
    let at = |resource: &ApiResource| origin("a", resource);
    let keeps = |moves: &crate::state::caches::Moves, resource: &ApiResource| {
        moves.has_kept_files(&resource.gvr, &View::Shared)
    };
    let mut moves = crate::state::caches::Moves::default();
    moves.begin(&at(&v1), &at(&v2));
    moves.done(&at(&v2));
    moves.begin(&at(&v2), &at(&v3));
    moves.written(&at(&v3));
    assert!(keeps(&moves, &v1) && keeps(&moves, &v2), "v3 is not complete yet");
    moves.done(&at(&v3));
    moves.written(&at(&v2));
    assert!(keeps(&moves, &v1), "v2 is not current any more");
    let before = moves.clone();
    moves.forget_closed(&before, |_, _| true);
    assert!(keeps(&moves, &v1));
    moves.forget_closed(&before, |gvr, _| *gvr != v3.gvr);
    assert!(!keeps(&moves, &v1) && !keeps(&moves, &v2));
    moves.begin(&at(&v1), &at(&v2));
    moves.begin(&at(&v2), &at(&v1));
    moves.done(&at(&v1));
    assert!(!keeps(&moves, &v1), "v1 is current again");
    moves.written(&at(&v1));
    assert!(!keeps(&moves, &v2));
}

#[tokio::test(start_paused = true)]
async fn system_clock_jump_does_not_expire_unclaimed_partitions() {
    let begun = "2026-03-01T12:00:00Z".parse::<jiff::Timestamp>().unwrap();
    clock::set_wall(Some(begun));
    let hub = Hub::new(1, "v1", "v1beta1");
    let disk: Arc<dyn Disk> = Arc::new(hub.disk.clone());
    let week = Duration::from_secs(8 * 24 * 3600);
    for (set, passes, unsaved) in [(week, Duration::from_secs(60), 2), (Duration::ZERO, week, 1)] {
        let claim = || Claim { labels: ClusterLabels::new(), indexes: Vec::new(), settings: 1, any_version: false };
        let wants = |cluster: &ClusterName| (cluster.as_str() == "b").then(claim);
        let mut cache = load(&disk, Path::new(ROOT), &|_, header| wants(&header.cluster)).unwrap().caches.remove(0);
        cache.files.rewrite_next();
        let snapshot = cache.store.published().load_full();
        let status = StateStatus::default();
        let every = Duration::from_secs(5);
        let store = CheckpointStore::new(Arc::clone(&disk), ROOT.into(), every, Duration::ZERO, [cache.files], status);
        clock::set_wall(Some(begun + set));
        tokio::time::advance(passes).await;
        let barriers = snapshot.partitions().map(|one| Barrier::new(&store, one, &[])).collect();
        let part = Part { key: (hub.from.resource.gvr.clone(), View::Shared), snapshot, barriers };
        assert_eq!(write(&store, &[part], false).error, None);
        let report = crate::state::caches::inspect(&*disk, Path::new(ROOT), false).unwrap().remove(0);
        assert_eq!(report.partitions.len(), unsaved);
        clock::set_wall(Some(begun));
    }
    clock::set_wall(None);
}
