//! Model test of cache files on a simulated disk: loaded state equals committed state, despite faults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::crash_model::*;
use super::{CacheFiles, Claim, Commit, UNUSED_RETENTION, inspect, load};
use crate::cache::testing::{delta, object_with, origin, pods};
use crate::cache::{DeltaFifo, HistoryLimits, Partition, PartitionId, Snapshot, Store, pack_all};
use informer_hub_disk::Disk;
use informer_hub_sim::SimDisk;
use informer_hub_testing::{cases, replayed, seeds};
use informer_hub_types::clock;
use informer_hub_types::{
    Change, ClusterLabels, Delta, DeltaKind, Dictionary, InformerHealth, PackedTotals, ResourceVersion, StoredObject,
    View,
};

mod crash_model;
mod old_dictionaries;
mod older_schema;

const ROOT: &str = "/state/caches";
const CLUSTERS: [&str; 3] = ["a", "b", "c"];

#[test]
fn loaded_state_was_committed_or_attempted_despite_disk_faults() {
    let mut resumed = 0;
    for seed in seeds(0..u64::from(cases(60))) {
        let mut model = CrashModel::new(seed);
        for _ in 0..60 {
            model.step();
        }
        model.checkpoint();
        model.restart(true);
        resumed += model.resumed;
    }
    assert!(resumed > 0, "some restart continues with the fleet version of the saved state");
}

/// Returns a process with saved pods of all clusters, in two files.
fn with_saved_pods(seed: u64) -> CrashModel {
    let mut model = CrashModel::new(seed);
    for _ in 0..12 {
        model.change();
    }
    while !model.possible.values().all(|possible| possible.last().unwrap().is_some()) {
        assert!(model.checkpoint());
    }
    for _ in 0..3 {
        model.change();
        assert!(model.checkpoint());
    }
    model
}

fn files_of(disk: &SimDisk) -> Vec<(PathBuf, u64)> {
    disk.files().into_iter().filter(|(path, _)| path.starts_with(ROOT)).collect()
}

#[test]
fn flipped_bit_is_detected_and_costs_only_its_record() {
    let mut reported = 0;
    for seed in seeds(0..u64::from(cases(150))) {
        let model = with_saved_pods(seed % 5);
        let mut rng = StdRng::seed_from_u64(seed);
        let files = files_of(&model.disk);
        let (path, len) = &files[rng.random_range(0..files.len())];
        model.disk.flip(path, rng.random_range(0..len * 8));
        let disk: Arc<dyn Disk> = Arc::new(model.disk.clone());
        let loaded = load(&disk, Path::new(ROOT), &|_, _| Some(claim())).unwrap();
        let cache = loaded.caches.first();
        let damaged = cache.is_none_or(|cache| !cache.damage.is_empty());
        reported += u32::from(damaged);
        for (_, partition) in
            cache.map(|cache| cache.store.published().load_full()).iter().flat_map(|it| it.partitions())
        {
            assert_eq!(partition.resume_version().is_none(), damaged, "partitions with possible gaps are listed again");
            assert!(partition.health().newest().is_some(), "not older than before");
            let now = model.store.published().load_full();
            let id = model.ids[partition.origin().cluster.as_str()];
            for object in partition.iter().filter(|_| !path.to_string_lossy().contains("deltas")) {
                let known = now.partition(id).unwrap().get(object.key());
                assert!(known.is_none_or(|it| it.json_text().unwrap().len() > 2), "bodies can be read");
                assert!(!object.is_kept() || object.json().is_ok());
            }
        }
        assert!(!damaged || inspect(&*disk, Path::new(ROOT), true).unwrap().iter().any(|it| !it.damage.is_empty()));
    }
    assert!(reported > 20 || replayed().is_some(), "{reported}");
}

#[test]
fn unclaimed_partitions_are_kept_for_a_week() {
    let mut model = with_saved_pods(3);
    model.checkpoint();
    let disk: Arc<dyn Disk> = Arc::new(model.disk.clone());
    let only_a = |cluster: &str| (cluster == "a").then(claim);
    let week = 1_000 + UNUSED_RETENTION;
    for (now, left) in [(week, 3), (week + 1, 1)] {
        let mut loaded = load(&disk, Path::new(ROOT), &|_, header| only_a(header.cluster.as_str())).unwrap();
        let mut cache = loaded.caches.pop().unwrap();
        let snapshot = cache.store.published().load_full();
        assert_eq!(snapshot.partitions().count(), 1);
        cache.files.rewrite_next();
        let (id, _) = snapshot.partitions().next().unwrap();
        let wrote = cache.files.checkpoint(&snapshot, &[Commit { id, readers: BTreeSet::new() }], now, false).unwrap();
        assert!(wrote.anew);
        let report = inspect(&*disk, Path::new(ROOT), true).unwrap().pop().unwrap();
        assert_eq!((report.partitions.len(), report.damage.len(), report.leftovers.len()), (left, 0, 0), "{report:?}");
    }
}

#[test]
fn closed_partitions_are_kept_for_a_week_in_the_same_space() {
    let mut model = with_saved_pods(5);
    let snapshot = model.store.published().load_full();
    let readers = BTreeSet::from(["reader".to_owned()]);
    let commits: Vec<_> = model.ids.values().map(|id| Commit { id: *id, readers: readers.clone() }).collect();
    model.files.checkpoint(&snapshot, &commits, 1_000, true).unwrap();
    let (b, c) = (model.ids["b"], model.ids["c"]);
    for id in [b, c] {
        let partition = snapshot.partition(id).unwrap();
        assert!(model.files.keep_closed_partition(partition) && !model.files.keep_closed_partition(partition), "once");
        model.store.close(id);
    }
    let now = model.store.published().load_full();
    let a = Commit { id: model.ids["a"], readers };
    let week = 1_000 + UNUSED_RETENTION;
    for (at, left) in [(2_000, 3), (week, 3), (week + 1, 1)] {
        model.files.rewrite_next();
        assert!(model.files.checkpoint(&now, std::slice::from_ref(&a), at, true).unwrap().anew);
        let report = inspect(&model.disk, Path::new(ROOT), true).unwrap().pop().unwrap();
        assert_eq!((report.partitions.len(), report.damage.len(), report.leftovers.len()), (left, 0, 0), "{report:?}");
    }
    assert_eq!(model.files.closed_clusters().count(), 0);
    assert!(model.files.read_closed(&model.totals, &|_, _| Some(claim())).unwrap().partitions.is_empty());
}

#[test]
fn checkpoint_writes_only_changes() {
    let mut model = with_saved_pods(4);
    let snapshot = model.store.published().load_full();
    let readers = BTreeSet::new();
    let commits: Vec<_> = model.ids.values().map(|id| Commit { id: *id, readers: readers.clone() }).collect();
    model.files.checkpoint(&snapshot, &commits, 1_000, false).unwrap();
    let calls = model.disk.total_calls();
    assert_eq!(model.files.checkpoint(&snapshot, &commits, 1_000, false).unwrap(), super::CheckpointResult::default());
    assert_eq!(model.disk.total_calls(), calls);
    assert!(snapshot.partitions().all(|(_, partition)| model.files.has(partition)));
    let mut fifo = DeltaFifo::new(usize::MAX);
    fifo.push(Change::Delta(delta(DeltaKind::Updated, object_with("ns", "one", "u", 99_999, &[], &[]))));
    model.store.apply(model.ids["a"], fifo.pop(1));
    let snapshot = model.store.published().load_full();
    let wrote = model.files.checkpoint(&snapshot, &commits, 1_000, false).unwrap();
    assert!(!wrote.anew && wrote.objects == 1 && wrote.bytes < 600, "{wrote:?}");
    assert!(!model.files.has(snapshot.partition(model.ids["a"]).unwrap()) || wrote.objects == 1);
}

#[test]
fn checkpoint_rewrites_removed_or_replaced_files() {
    use informer_hub_disk::RealDisk;
    let interferences: [fn(&Path); 3] = [
        |caches| std::fs::remove_dir_all(caches).unwrap(),
        |caches| {
            let files = caches.join("core/v1/pods");
            std::fs::rename(&files, caches.join("away")).unwrap();
            std::fs::create_dir(&files).unwrap();
            for file in std::fs::read_dir(caches.join("away")).unwrap().map(Result::unwrap) {
                std::fs::copy(file.path(), files.join(file.file_name())).unwrap();
            }
            std::fs::remove_dir_all(caches.join("away")).unwrap();
        },
        |caches| std::fs::rename(caches, caches.with_extension("away")).unwrap(),
    ];
    for (way, interfere) in interferences.into_iter().enumerate() {
        for changes in [0, 1] {
            let root = tempfile::tempdir().unwrap();
            let caches = root.path().join("caches");
            let disk: Arc<dyn Disk> = Arc::new(RealDisk);
            let mut model = with_saved_pods(9);
            model.files = CacheFiles::begin(Arc::clone(&disk), &caches, pods(), View::Shared).unwrap().unwrap();
            let keep = |model: &mut CrashModel| {
                let snapshot = model.store.published().load_full();
                let commits: Vec<_> =
                    model.ids.values().map(|id| Commit { id: *id, readers: BTreeSet::new() }).collect();
                model.files.checkpoint(&snapshot, &commits, 1_000, true).unwrap()
            };
            keep(&mut model);
            model.change();
            assert!(!keep(&mut model).replaced);
            interfere(&caches);
            (0..changes).for_each(|_| model.change());
            let wrote = keep(&mut model);
            assert!(wrote.replaced && wrote.anew, "way {way}: {wrote:?}");
            assert!(!keep(&mut model).replaced, "reported once");
            let loaded = load(&disk, &caches, &|_, _| Some(claim())).unwrap();
            let [cache] = &loaded.caches[..] else { panic!("way {way}: {:?}", loaded.lost) };
            assert!(cache.damage.is_empty());
            for (_, found) in cache.store.published().load().partitions() {
                let id = model.ids[found.origin().cluster.as_str()];
                let snapshot = model.store.published().load_full();
                let now = snapshot.partition(id).unwrap();
                assert_eq!(state(found, BTreeSet::new()), state(now, BTreeSet::new()), "way {way}");
            }
        }
    }
}

#[test]
fn retention_starts_again_after_a_clock_correction() {
    let mut model = with_saved_pods(3);
    model.checkpoint();
    let disk: Arc<dyn Disk> = Arc::new(model.disk.clone());
    let only_a = |cluster: &str| (cluster == "a").then(claim);
    let (ahead, right) = (20 * UNUSED_RETENTION, 10 * UNUSED_RETENTION);
    for (now, left) in [(ahead, 3), (right, 3), (right + UNUSED_RETENTION, 3), (right + UNUSED_RETENTION + 1, 1)] {
        let wants = |cluster: &str| if now == ahead { Some(claim()) } else { only_a(cluster) };
        let mut loaded = load(&disk, Path::new(ROOT), &|_, header| wants(header.cluster.as_str())).unwrap();
        let mut cache = loaded.caches.pop().unwrap();
        let snapshot = cache.store.published().load_full();
        cache.files.rewrite_next();
        let commits: Vec<_> = snapshot.partitions().map(|(id, _)| Commit { id, readers: BTreeSet::new() }).collect();
        cache.files.checkpoint(&snapshot, &commits, now, false).unwrap();
        let report = inspect(&*disk, Path::new(ROOT), true).unwrap().pop().unwrap();
        assert_eq!(report.partitions.len(), left, "{now}");
    }
}
