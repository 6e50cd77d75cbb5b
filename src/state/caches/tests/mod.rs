//! The files of caches on a simulated disk: what is loaded is what was committed, whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{CacheFiles, Claim, Commit, KEPT_UNWANTED, inspect, load};
use crate::cache::testing::{cases, delta, object_with, origin, pods, replayed, seeds};
use crate::cache::{DeltaFifo, Partition, PartitionId, Store, pack_all};
use informer_hub_disk::Disk;
use informer_hub_sim::SimDisk;
use informer_hub_types::{
    Change, ClusterLabels, DeltaKind, Dictionary, InformerHealth, PackedTotals, ResourceVersion, StoredObject, View,
};

const ROOT: &str = "/state/caches";
const CLUSTERS: [&str; 3] = ["a", "b", "c"];

/// What there is of a partition: objects with their bodies, version, readers.
type State = (BTreeMap<String, (String, String)>, Option<ResourceVersion>, BTreeSet<String>);

fn state(partition: &Partition, readers: BTreeSet<String>) -> State {
    let object = |it: &Arc<StoredObject>| {
        let labels: Vec<_> = it.labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let head = format!("{} {} {labels:?} {:?}", it.uid(), it.resource_version(), it.index_values());
        (it.key().to_string(), (head, it.json_text().unwrap_or_else(|_| "bare".to_owned())))
    };
    (partition.iter().map(object).collect(), partition.resume_version().cloned(), readers)
}

/// A hub that lives, dies and lives again on one disk.
struct Life {
    rng: StdRng,
    disk: SimDisk,
    store: Store,
    files: CacheFiles,
    ids: BTreeMap<&'static str, PartitionId>,
    version: u64,
    /// What may be on disk, by cluster: what was committed last, and what was tried since.
    may_be: BTreeMap<&'static str, Vec<Option<State>>>,
    /// Whether a file may have a hole: a sync failed, and nothing was written anew since.
    doubtful: bool,
    /// All that was ever to be written.
    ever: Vec<(&'static str, State)>,
    dictionaries: Vec<Arc<Dictionary>>,
    totals: Arc<PackedTotals>,
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

impl Life {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        // Whoever opens a state directory sees to that.
        disk.create_dir_all(Path::new("/state")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let mut life = Self {
            rng: StdRng::seed_from_u64(seed),
            store: Store::new(pods()),
            files: begin(&disk),
            disk,
            ids: BTreeMap::new(),
            version: 0,
            may_be: CLUSTERS.iter().map(|cluster| (*cluster, vec![None])).collect(),
            doubtful: false,
            ever: Vec::new(),
            dictionaries: dictionaries(),
            totals: Arc::default(),
        };
        life.open();
        life
    }

    fn open(&mut self) {
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
        self.store.apply_up_to(self.ids[cluster], fifo.pop(usize::MAX), version);
        if self.rng.random_bool(0.5) {
            let dictionary = &self.dictionaries[self.rng.random_range(0..self.dictionaries.len())];
            let snapshot = self.store.published().load_full();
            let partition = snapshot.partition(self.ids[cluster]).unwrap();
            let some: Vec<_> = partition.iter().step_by(self.rng.random_range(1..4)).cloned().collect();
            pack_all(&some, dictionary, &self.totals);
        }
    }

    /// Some partitions may be written, the others are held.
    fn checkpoint(&mut self) -> bool {
        let snapshot = self.store.published().load_full();
        let mut commits = Vec::new();
        for (cluster, id) in self.ids.clone() {
            let partition = snapshot.partition(id).unwrap();
            if self.rng.random_bool(0.3) {
                continue;
            }
            let readers: BTreeSet<_> = (0..self.rng.random_range(0..3)).map(|i| format!("reader-{i}")).collect();
            let now = state(partition, readers.clone());
            self.ever.push((cluster, now.clone()));
            self.may_be.get_mut(cluster).unwrap().push(Some(now));
            commits.push(Commit { id, readers });
        }
        let done = self.files.checkpoint(&snapshot, &commits, 1_000, true);
        match &done {
            Ok(wrote) => self.doubtful &= !wrote.anew,
            Err(_) => self.doubtful = true,
        }
        if done.is_ok() {
            for commit in &commits {
                let cluster = *self.ids.iter().find(|(_, id)| **id == commit.id).unwrap().0;
                let last = self.may_be.get_mut(cluster).unwrap();
                last.drain(..last.len() - 1);
            }
        }
        done.is_ok()
    }

    /// The process, or the machine, dies; another one goes on.
    fn restart(&mut self, with_the_machine: bool) {
        if with_the_machine {
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
            assert!(!is_damaged || self.doubtful, "{:?}", cache.damage);
            let snapshot = cache.store.published().load_full();
            for (_, partition) in snapshot.partitions() {
                let cluster = *CLUSTERS.iter().find(|name| **name == partition.origin().cluster.as_str()).unwrap();
                found.insert(cluster, state(partition, partition.restored().unwrap().readers()));
            }
            (self.store, self.files) = (cache.store, cache.files);
            if is_damaged {
                let listed = |(_, partition): (PartitionId, &Partition)| partition.resume_version().is_none();
                assert!(snapshot.partitions().all(listed), "what may be missing is listed");
                self.may_be = CLUSTERS.iter().map(|it| (*it, vec![found.remove(it)])).collect();
                return self.open();
            }
        } else {
            (self.store, self.files) = (Store::new(pods()), begin(&self.disk));
        }
        for (cluster, may_be) in &mut self.may_be {
            let state = found.remove(cluster);
            // Of nothing there is nothing to write.
            let is_nothing = |state: &Option<State>| state.as_ref().is_none_or(|(objects, ..)| objects.is_empty());
            // What a sync that failed has thrown away is seen as long as the machine lives; then it is as it was before.
            let was = |state: &State| self.ever.iter().any(|(of, one)| of == cluster && one == state);
            let is_older = self.doubtful && state.as_ref().is_none_or(was);
            let right = may_be.contains(&state) || state.is_none() && may_be.iter().any(is_nothing) || is_older;
            let short = |state: &Option<State>| {
                state.as_ref().map(|(objects, version, readers)| (objects.len(), version.clone(), readers.clone()))
            };
            let known: Vec<_> = may_be.iter().map(short).collect();
            assert!(
                right,
                "{cluster} is as it never was: {:?}, and not {known:?}; {:?}",
                short(&state),
                self.disk.files()
            );
            *may_be = vec![state];
        }
        assert!(found.is_empty());
        self.open();
    }

    /// A cluster is taken out, and is back some time later as it was.
    fn take_out_for_a_while(&mut self) {
        let cluster = CLUSTERS[self.rng.random_range(0..CLUSTERS.len())];
        let (id, readers) = (self.ids[cluster], BTreeSet::from(["reader".to_owned()]));
        let snapshot = self.store.published().load_full();
        let partition = snapshot.partition(id).unwrap();
        let then = state(partition, readers.clone());
        self.ever.push((cluster, then.clone()));
        self.files.checkpoint(&snapshot, &[Commit { id, readers }], 1_000, true).unwrap();
        assert_eq!(self.files.put_away(partition), !partition.is_empty());
        if partition.is_empty() {
            return;
        }
        self.may_be.insert(cluster, vec![Some(then.clone())]);
        self.store.close(id);
        self.ids.remove(cluster);
        for _ in 0..self.rng.random_range(0..6) {
            self.change();
            self.checkpoint();
        }
        let mut back = self.files.bring_back(&self.totals, &|_, _| Some(claim())).unwrap();
        let (stored, saved) = back.partitions.pop().unwrap();
        assert!(back.partitions.is_empty() && saved.origin.cluster.as_str() == cluster);
        let id = self.store.restore(saved).unwrap();
        let snapshot = self.store.published().load_full();
        let partition = snapshot.partition(id).unwrap();
        assert_eq!(state(partition, partition.restored().unwrap().readers()), then);
        self.files.came_back(stored, partition);
        assert!(!self.files.has_away(&partition.origin().cluster));
        self.store.go_on(id, 1);
        self.ids.insert(cluster, id);
    }

    fn step(&mut self) {
        match self.rng.random_range(0..21) {
            20 if !self.doubtful => self.take_out_for_a_while(),
            0..8 => self.change(),
            8..13 => _ = self.checkpoint(),
            13 => {
                let calls = self.rng.random_range(0..30);
                self.disk.stop_after(calls);
                self.change();
                self.checkpoint();
                let with_the_machine = self.rng.random_bool(0.5);
                self.restart(with_the_machine);
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
                assert!(self.checkpoint(), "it recovers by itself");
            }
            _ => self.bounds(),
        }
    }

    fn bounds(&self) {
        let live: usize = CLUSTERS
            .iter()
            .filter_map(|cluster| self.store.published().load().partition(self.ids[cluster]).cloned())
            .flat_map(|partition| partition.iter().map(|it| it.plain_size() + 200).collect::<Vec<_>>())
            .sum();
        assert!(self.disk.bytes() <= 3 * live as u64 + (2 << 20) + 300_000, "{} for {live}", self.disk.bytes());
    }
}

#[test]
fn what_is_loaded_was_committed_or_tried_since_whatever_the_disk_does() {
    for seed in seeds(0..u64::from(cases(60))) {
        let mut life = Life::new(seed);
        for _ in 0..60 {
            life.step();
        }
        life.checkpoint();
        life.restart(true);
    }
}

/// A resource with pods in two clusters, in two files.
fn filled(seed: u64) -> Life {
    let mut life = Life::new(seed);
    for _ in 0..12 {
        life.change();
    }
    while !life.may_be.values().all(|may_be| may_be.last().unwrap().is_some()) {
        assert!(life.checkpoint());
    }
    for _ in 0..3 {
        life.change();
        assert!(life.checkpoint());
    }
    life
}

fn files_of(disk: &SimDisk) -> Vec<(PathBuf, u64)> {
    disk.files().into_iter().filter(|(path, _)| path.starts_with(ROOT)).collect()
}

#[test]
fn a_flipped_bit_costs_what_it_hits_and_never_more_is_believed_than_is_true() {
    let mut reported = 0;
    for seed in seeds(0..u64::from(cases(150))) {
        let life = filled(seed % 5);
        let mut rng = StdRng::seed_from_u64(seed);
        let files = files_of(&life.disk);
        let (path, len) = &files[rng.random_range(0..files.len())];
        life.disk.flip(path, rng.random_range(0..len * 8));
        let disk: Arc<dyn Disk> = Arc::new(life.disk.clone());
        let loaded = load(&disk, Path::new(ROOT), &|_, _| Some(claim())).unwrap();
        let cache = loaded.caches.first();
        let damaged = cache.is_none_or(|cache| !cache.damage.is_empty());
        reported += u32::from(damaged);
        for (_, partition) in
            cache.map(|cache| cache.store.published().load_full()).iter().flat_map(|it| it.partitions())
        {
            assert_eq!(partition.resume_version().is_none(), damaged, "what may be missing is listed");
            let now = life.store.published().load_full();
            let id = life.ids[partition.origin().cluster.as_str()];
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
fn what_nobody_claims_stays_for_a_week_and_is_there_for_who_claims_it_again() {
    let mut life = filled(3);
    life.checkpoint();
    let disk: Arc<dyn Disk> = Arc::new(life.disk.clone());
    let only_a = |cluster: &str| (cluster == "a").then(claim);
    let week = 1_000 + KEPT_UNWANTED;
    for (now, left) in [(week, 3), (week + 1, 1)] {
        let mut loaded = load(&disk, Path::new(ROOT), &|_, header| only_a(header.cluster.as_str())).unwrap();
        let mut cache = loaded.caches.pop().unwrap();
        let snapshot = cache.store.published().load_full();
        assert_eq!(snapshot.partitions().count(), 1);
        cache.files.distrust();
        let (id, _) = snapshot.partitions().next().unwrap();
        let wrote = cache.files.checkpoint(&snapshot, &[Commit { id, readers: BTreeSet::new() }], now, false).unwrap();
        assert!(wrote.anew);
        let report = inspect(&*disk, Path::new(ROOT), true).unwrap().pop().unwrap();
        assert_eq!((report.partitions.len(), report.damage.len(), report.leftovers.len()), (left, 0, 0), "{report:?}");
    }
}

#[test]
fn what_is_put_away_stays_for_a_week_and_takes_no_more_room_than_it_did() {
    let mut life = filled(5);
    let snapshot = life.store.published().load_full();
    let readers = BTreeSet::from(["reader".to_owned()]);
    let commits: Vec<_> = life.ids.values().map(|id| Commit { id: *id, readers: readers.clone() }).collect();
    life.files.checkpoint(&snapshot, &commits, 1_000, true).unwrap();
    let (b, c) = (life.ids["b"], life.ids["c"]);
    for id in [b, c] {
        let partition = snapshot.partition(id).unwrap();
        assert!(life.files.put_away(partition) && !life.files.put_away(partition), "once");
        life.store.close(id);
    }
    let now = life.store.published().load_full();
    let a = Commit { id: life.ids["a"], readers };
    let week = 1_000 + KEPT_UNWANTED;
    for (at, left) in [(2_000, 3), (week, 3), (week + 1, 1)] {
        life.files.distrust();
        assert!(life.files.checkpoint(&now, std::slice::from_ref(&a), at, true).unwrap().anew);
        let report = inspect(&life.disk, Path::new(ROOT), true).unwrap().pop().unwrap();
        assert_eq!((report.partitions.len(), report.damage.len(), report.leftovers.len()), (left, 0, 0), "{report:?}");
    }
    assert_eq!(life.files.away().count(), 0);
    assert!(life.files.bring_back(&life.totals, &|_, _| Some(claim())).unwrap().partitions.is_empty());
}

#[test]
fn a_checkpoint_of_nothing_new_writes_nothing_and_one_of_little_writes_little() {
    let mut life = filled(4);
    let snapshot = life.store.published().load_full();
    let readers = BTreeSet::new();
    let commits: Vec<_> = life.ids.values().map(|id| Commit { id: *id, readers: readers.clone() }).collect();
    life.files.checkpoint(&snapshot, &commits, 1_000, false).unwrap();
    let calls = life.disk.total_calls();
    assert_eq!(life.files.checkpoint(&snapshot, &commits, 1_000, false).unwrap(), super::Wrote::default());
    assert_eq!(life.disk.total_calls(), calls);
    assert!(snapshot.partitions().all(|(_, partition)| life.files.has(partition)));
    let mut fifo = DeltaFifo::new(usize::MAX);
    fifo.push(Change::Delta(delta(DeltaKind::Updated, object_with("ns", "one", "u", 99_999, &[], &[]))));
    life.store.apply(life.ids["a"], fifo.pop(1));
    let snapshot = life.store.published().load_full();
    let wrote = life.files.checkpoint(&snapshot, &commits, 1_000, false).unwrap();
    assert!(!wrote.anew && wrote.objects == 1 && wrote.bytes < 600, "{wrote:?}");
    assert!(!life.files.has(snapshot.partition(life.ids["a"]).unwrap()) || wrote.objects == 1);
}

#[test]
fn files_that_somebody_removes_or_replaces_are_written_anew_of_what_is_in_memory() {
    use informer_hub_disk::RealDisk;
    let hands: [fn(&Path); 3] = [
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
    for (way, hand) in hands.into_iter().enumerate() {
        for changes in [0, 1] {
            let root = tempfile::tempdir().unwrap();
            let caches = root.path().join("caches");
            let disk: Arc<dyn Disk> = Arc::new(RealDisk);
            let mut life = filled(9);
            life.files = CacheFiles::begin(Arc::clone(&disk), &caches, pods(), View::Shared).unwrap().unwrap();
            let keep = |life: &mut Life| {
                let snapshot = life.store.published().load_full();
                let commits: Vec<_> =
                    life.ids.values().map(|id| Commit { id: *id, readers: BTreeSet::new() }).collect();
                life.files.checkpoint(&snapshot, &commits, 1_000, true).unwrap()
            };
            keep(&mut life);
            life.change();
            assert!(!keep(&mut life).replaced);
            hand(&caches);
            (0..changes).for_each(|_| life.change());
            let wrote = keep(&mut life);
            assert!(wrote.replaced && wrote.anew, "way {way}: {wrote:?}");
            assert!(!keep(&mut life).replaced, "it is said once");
            let loaded = load(&disk, &caches, &|_, _| Some(claim())).unwrap();
            let [cache] = &loaded.caches[..] else { panic!("way {way}: {:?}", loaded.lost) };
            assert!(cache.damage.is_empty());
            for (_, found) in cache.store.published().load().partitions() {
                let id = life.ids[found.origin().cluster.as_str()];
                let snapshot = life.store.published().load_full();
                let now = snapshot.partition(id).unwrap();
                assert_eq!(state(found, BTreeSet::new()), state(now, BTreeSet::new()), "way {way}");
            }
        }
    }
}

#[test]
fn what_was_written_by_a_clock_that_was_ahead_goes_a_week_after_it_was_set_right() {
    let mut life = filled(3);
    life.checkpoint();
    let disk: Arc<dyn Disk> = Arc::new(life.disk.clone());
    let only_a = |cluster: &str| (cluster == "a").then(claim);
    let (ahead, right) = (20 * KEPT_UNWANTED, 10 * KEPT_UNWANTED);
    for (now, left) in [(ahead, 3), (right, 3), (right + KEPT_UNWANTED, 3), (right + KEPT_UNWANTED + 1, 1)] {
        let wants = |cluster: &str| if now == ahead { Some(claim()) } else { only_a(cluster) };
        let mut loaded = load(&disk, Path::new(ROOT), &|_, header| wants(header.cluster.as_str())).unwrap();
        let mut cache = loaded.caches.pop().unwrap();
        let snapshot = cache.store.published().load_full();
        cache.files.distrust();
        let commits: Vec<_> = snapshot.partitions().map(|(id, _)| Commit { id, readers: BTreeSet::new() }).collect();
        cache.files.checkpoint(&snapshot, &commits, now, false).unwrap();
        let report = inspect(&*disk, Path::new(ROOT), true).unwrap().pop().unwrap();
        assert_eq!(report.partitions.len(), left, "{now}");
    }
}
