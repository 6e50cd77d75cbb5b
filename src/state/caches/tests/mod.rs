//! Model test of cache files on a simulated disk: loaded state equals committed state, despite faults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

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

mod old_dictionaries;

const ROOT: &str = "/state/caches";
const CLUSTERS: [&str; 3] = ["a", "b", "c"];

/// State of a partition: objects with bodies, version, version that a list must not be older than, readers.
type State =
    (BTreeMap<String, (String, String)>, Option<ResourceVersion>, Option<Arc<ResourceVersion>>, BTreeSet<String>);

fn state(partition: &Partition, readers: BTreeSet<String>) -> State {
    let object = |it: &Arc<StoredObject>| {
        let labels: Vec<_> = it.labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let head = format!("{} {} {labels:?} {:?}", it.uid(), it.resource_version(), it.index_values());
        (it.key().to_string(), (head, it.json_text().unwrap_or_else(|_| "bare".to_owned())))
    };
    let (version, newest) = (partition.resume_version().cloned(), partition.health().newest());
    (partition.iter().map(object).collect(), version, newest, readers)
}

/// A process that saves caches and is restarted on the same disk.
struct CrashModel {
    rng: StdRng,
    disk: SimDisk,
    store: Store,
    files: CacheFiles,
    ids: BTreeMap<&'static str, PartitionId>,
    version: u64,
    /// Possible saved states by cluster: the last committed one, and attempts since.
    possible: BTreeMap<&'static str, Vec<Option<State>>>,
    /// Whether a file may have a gap: a sync failed, and no rewrite has succeeded since.
    uncertain: bool,
    /// Every state that a checkpoint tried to write.
    attempted: Vec<(&'static str, State)>,
    /// Visible objects by fleet version, of all checkpoints, and how many restarts continued with one.
    fleets: BTreeMap<u64, Visible>,
    resumed: usize,
    dictionaries: Vec<Arc<Dictionary>>,
    totals: Arc<PackedTotals>,
}

/// Visible objects of all clusters: names with versions and bodies.
type Visible = BTreeMap<String, BTreeMap<String, (String, String)>>;

fn visible(snapshot: &Snapshot) -> Visible {
    let joined = snapshot.partitions().filter(|(_, partition)| partition.has_synced());
    let objects = |partition: &Partition| state(partition, BTreeSet::new()).0;
    joined.map(|(_, partition)| (partition.origin().cluster.to_string(), objects(partition))).collect()
}

fn dictionaries() -> Vec<Arc<Dictionary>> {
    let sample = |i: usize| {
        format!(r#"{{"metadata":{{"name":"web-{i}","uid":"{:08x}"}},"spec":{{"node":"n{}"}}}}"#, i * 7919, i % 5)
    };
    let trained = |skip: usize| Arc::new(Dictionary::train((skip..skip + 300).map(sample)).unwrap());
    vec![Arc::new(Dictionary::none()), trained(0), trained(1000)]
}

fn claim() -> Claim {
    Claim { labels: ClusterLabels::new(), indexes: vec!["by-node".into()], settings: 1, any_version: false }
}

fn begin(disk: &SimDisk) -> CacheFiles {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    CacheFiles::begin(disk, Path::new(ROOT), pods(), View::Shared).unwrap().unwrap()
}

impl CrashModel {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        // In production, opening the state directory does this.
        disk.create_dir_all(Path::new("/state")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let mut model = Self {
            rng: StdRng::seed_from_u64(seed),
            store: Store::new(pods()),
            files: begin(&disk),
            disk,
            ids: BTreeMap::new(),
            version: 0,
            possible: CLUSTERS.iter().map(|cluster| (*cluster, vec![None])).collect(),
            uncertain: false,
            attempted: Vec::new(),
            fleets: BTreeMap::new(),
            resumed: 0,
            dictionaries: dictionaries(),
            totals: Arc::default(),
        };
        model.open();
        model
    }

    fn open(&mut self) {
        if self.store.history().is_none() {
            self.store.keep_history(HistoryLimits::default(), self.version * 1000, clock::now());
        }
        for cluster in CLUSTERS {
            let id = self.store.open(origin(cluster), InformerHealth::new(), vec!["by-node".into()]);
            self.store.go_on(id, 1);
            self.ids.insert(cluster, id);
        }
    }

    fn change(&mut self) {
        let there: Vec<_> = self.ids.keys().copied().collect();
        let cluster = there[self.rng.random_range(0..there.len())];
        let mut fifo = DeltaFifo::new(usize::MAX);
        for _ in 0..self.rng.random_range(1..40) {
            self.version += 1;
            let name = format!("web-{}", self.rng.random_range(0..120));
            let kind = if self.rng.random_bool(0.3) { DeltaKind::Deleted } else { DeltaKind::Updated };
            let uid = ["f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "", "odd"][self.rng.random_range(0..3)];
            let labels = [("app", "web"), ("tier", ["gold", "é"][self.rng.random_range(0..2)])];
            let index = [("by-node", "n1")];
            fifo.push(Change::Delta(delta(kind, object_with("ns", &name, uid, self.version, &labels, &index))));
        }
        let version = Some(ResourceVersion::new(&self.version.to_string()));
        self.store.apply_up_to(self.ids[cluster], fifo.pop(usize::MAX), version.clone());
        self.list_once(cluster, version);
        // The informer may have read further than is applied.
        let read = self.version + self.rng.random_range(0..3);
        let snapshot = self.store.published().load_full();
        let partition = snapshot.partition(self.ids[cluster]).unwrap();
        partition.health().set_version(ResourceVersion::new(&read.to_string()));
        if self.rng.random_bool(0.5) {
            let dictionary = &self.dictionaries[self.rng.random_range(0..self.dictionaries.len())];
            let snapshot = self.store.published().load_full();
            let partition = snapshot.partition(self.ids[cluster]).unwrap();
            let some: Vec<_> = partition.iter().step_by(self.rng.random_range(1..4)).cloned().collect();
            pack_all(&some, dictionary, &self.totals);
        }
    }

    /// Completes the first list of a partition, with its objects.
    fn list_once(&mut self, cluster: &str, version: Option<ResourceVersion>) {
        let snapshot = self.store.published().load_full();
        let partition = snapshot.partition(self.ids[cluster]).unwrap();
        if partition.has_synced() {
            return;
        }
        let mut fifo = DeltaFifo::new(usize::MAX);
        fifo.push(Change::ReplaceBegin);
        for object in partition.iter() {
            fifo.push(Change::Delta(Delta { kind: DeltaKind::Replaced, object: Arc::clone(object) }));
        }
        fifo.push(Change::ReplaceEnd(version.clone().unwrap()));
        self.store.apply_up_to(self.ids[cluster], fifo.pop(usize::MAX), version);
    }

    /// Commits a random subset of the partitions.
    fn checkpoint(&mut self) -> bool {
        let snapshot = self.store.published().load_full();
        self.fleets.insert(snapshot.version(), visible(&snapshot));
        let mut commits = Vec::new();
        for (cluster, id) in self.ids.clone() {
            let partition = snapshot.partition(id).unwrap();
            if self.rng.random_bool(0.3) {
                continue;
            }
            let readers: BTreeSet<_> = (0..self.rng.random_range(0..3)).map(|i| format!("reader-{i}")).collect();
            let now = state(partition, readers.clone());
            self.attempted.push((cluster, now.clone()));
            self.possible.get_mut(cluster).unwrap().push(Some(now));
            commits.push(Commit { id, readers });
        }
        let done = self.files.checkpoint(&snapshot, &commits, 1_000, true);
        match &done {
            Ok(wrote) => self.uncertain &= !wrote.anew,
            Err(_) => self.uncertain = true,
        }
        if done.is_ok() {
            for commit in &commits {
                let cluster = *self.ids.iter().find(|(_, id)| **id == commit.id).unwrap().0;
                let last = self.possible.get_mut(cluster).unwrap();
                last.drain(..last.len() - 1);
            }
        }
        done.is_ok()
    }

    /// Kills the process, or crashes the machine, and loads the files again.
    fn restart(&mut self, machine_crashes: bool) {
        if machine_crashes {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let mut loaded = load(&disk, Path::new(ROOT), &|_, _| Some(claim())).unwrap();
        assert!(loaded.lost.is_empty(), "{:?}", loaded.lost);
        let mut found = BTreeMap::new();
        if let Some(cache) = loaded.caches.pop() {
            let is_damaged = !cache.damage.is_empty();
            assert!(!is_damaged || self.uncertain, "{:?}", cache.damage);
            let snapshot = cache.store.published().load_full();
            for (_, partition) in snapshot.partitions() {
                let cluster = *CLUSTERS.iter().find(|name| **name == partition.origin().cluster.as_str()).unwrap();
                found.insert(cluster, state(partition, partition.restored().unwrap().readers()));
            }
            (self.store, self.files) = (cache.store, cache.files);
            self.assert_saved_version(&snapshot);
            if is_damaged {
                let listed = |(_, partition): (PartitionId, &Partition)| partition.resume_version().is_none();
                assert!(snapshot.partitions().all(listed), "partitions with possible gaps are listed again");
                self.possible = CLUSTERS.iter().map(|it| (*it, vec![found.remove(it)])).collect();
                return self.open();
            }
        } else {
            (self.store, self.files) = (Store::new(pods()), begin(&self.disk));
        }
        for (cluster, possible) in &mut self.possible {
            let state = found.remove(cluster);
            // An empty partition is not written.
            let is_nothing = |state: &Option<State>| state.as_ref().is_none_or(|(objects, ..)| objects.is_empty());
            // After a failed sync, the page cache may hide the loss until the machine crashes.
            let was = |state: &State| self.attempted.iter().any(|(of, one)| of == cluster && one == state);
            let is_older = self.uncertain && state.as_ref().is_none_or(was);
            let right = possible.contains(&state) || state.is_none() && possible.iter().any(is_nothing) || is_older;
            let short = |state: &Option<State>| {
                state.as_ref().map(|(objects, version, newest, readers)| {
                    (objects.len(), version.clone(), newest.clone(), readers.clone())
                })
            };
            let known: Vec<_> = possible.iter().map(short).collect();
            assert!(
                right,
                "{cluster} is in an impossible state: {:?}, expected one of {known:?}; {:?}",
                short(&state),
                self.disk.files()
            );
            *possible = vec![state];
        }
        assert!(found.is_empty());
        self.open();
    }

    /// The restored objects are those that readers of the saved fleet version have.
    fn assert_saved_version(&mut self, restored: &Snapshot) {
        let Some(version) = self.store.saved_version().map(|saved| saved.version) else { return };
        let then = &self.fleets[&version];
        let now = visible(restored);
        let names = |of: &Visible| of.iter().map(|(name, objects)| format!("{name}: {}", objects.len())).collect();
        let (had, has): (Vec<_>, Vec<_>) = (names(then), names(&now));
        assert!(*then == now, "fleet version {version} had {had:?}, restored are {has:?}");
        self.resumed += 1;
    }

    /// Removes a cluster, and re-adds it later with its saved state.
    fn remove_and_readd_cluster(&mut self) {
        let cluster = CLUSTERS[self.rng.random_range(0..CLUSTERS.len())];
        let (id, readers) = (self.ids[cluster], BTreeSet::from(["reader".to_owned()]));
        let snapshot = self.store.published().load_full();
        let partition = snapshot.partition(id).unwrap();
        let then = state(partition, readers.clone());
        self.attempted.push((cluster, then.clone()));
        self.fleets.insert(snapshot.version(), visible(&snapshot));
        self.files.checkpoint(&snapshot, &[Commit { id, readers }], 1_000, true).unwrap();
        // Without objects and before the first list, there is nothing to keep.
        let is_kept = !partition.is_empty() || partition.has_synced();
        assert_eq!(self.files.keep_closed_partition(partition), is_kept);
        if !is_kept {
            return;
        }
        self.possible.insert(cluster, vec![Some(then.clone())]);
        self.store.close(id);
        self.ids.remove(cluster);
        for _ in 0..self.rng.random_range(0..6) {
            self.change();
            self.checkpoint();
        }
        let mut back = self.files.read_closed(&self.totals, &|_, _| Some(claim())).unwrap();
        let (stored, saved) = back.partitions.pop().unwrap();
        assert!(back.partitions.is_empty() && saved.origin.cluster.as_str() == cluster);
        let id = self.store.restore(saved).unwrap();
        let snapshot = self.store.published().load_full();
        let partition = snapshot.partition(id).unwrap();
        assert_eq!(state(partition, partition.restored().unwrap().readers()), then);
        self.files.mark_reopened(stored, partition);
        assert!(!self.files.has_closed(&partition.origin().cluster));
        self.store.go_on(id, 1);
        self.ids.insert(cluster, id);
    }

    fn step(&mut self) {
        match self.rng.random_range(0..21) {
            20 if !self.uncertain => self.remove_and_readd_cluster(),
            0..8 => self.change(),
            8..13 => _ = self.checkpoint(),
            13 => {
                let calls = self.rng.random_range(0..30);
                self.disk.stop_after(calls);
                self.change();
                self.checkpoint();
                let machine_crashes = self.rng.random_bool(0.5);
                self.restart(machine_crashes);
            }
            14 => self.restart(true),
            15 => self.restart(false),
            16 => {
                self.disk.set_fail_rate(0.3);
                self.checkpoint();
                self.change();
                self.checkpoint();
                self.disk.set_fail_rate(0.0);
            }
            17 => {
                self.disk.set_capacity(Some(self.disk.bytes() + self.rng.random_range(0..4_000)));
                self.change();
                self.checkpoint();
                self.disk.set_capacity(None);
                assert!(self.checkpoint(), "the next checkpoint succeeds");
            }
            _ => self.assert_bounded_size(),
        }
    }

    fn assert_bounded_size(&self) {
        let live: usize = CLUSTERS
            .iter()
            .filter_map(|cluster| self.store.published().load().partition(self.ids[cluster]).cloned())
            .flat_map(|partition| partition.iter().map(|it| it.plain_size() + 200).collect::<Vec<_>>())
            .sum();
        assert!(self.disk.bytes() <= 3 * live as u64 + (2 << 20) + 300_000, "{} for {live}", self.disk.bytes());
    }
}

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
