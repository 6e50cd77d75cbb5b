//! A process that saves caches on a simulated disk, with the states that may be found there after a crash.

use super::*;

/// State of a partition: objects with bodies, version, minimum version of the next list, readers.
type State =
    (BTreeMap<String, (String, String)>, Option<ResourceVersion>, Option<Arc<ResourceVersion>>, BTreeSet<String>);

pub(super) fn state(partition: &Partition, readers: BTreeSet<String>) -> State {
    let object = |it: &Arc<StoredObject>| {
        let labels: Vec<_> = it.labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let head = format!("{} {} {labels:?} {:?}", it.uid(), it.resource_version(), it.index_values());
        (it.key().to_string(), (head, it.json_text().unwrap_or_else(|_| "bare".to_owned())))
    };
    let (version, newest) = (partition.resume_version().cloned(), partition.health().newest());
    (partition.iter().map(object).collect(), version, newest, readers)
}

/// A process that saves caches and is restarted on the same disk.
pub(super) struct CrashModel {
    rng: StdRng,
    pub(super) disk: SimDisk,
    pub(super) store: Store,
    pub(super) files: CacheFiles,
    pub(super) ids: BTreeMap<&'static str, PartitionId>,
    version: u64,
    /// Possible saved states by cluster: the last committed one, and attempts since.
    pub(super) possible: BTreeMap<&'static str, Vec<Option<State>>>,
    /// Whether a file may have a gap: a sync failed, and no rewrite has succeeded since.
    uncertain: bool,
    /// Every state that a checkpoint tried to write.
    attempted: Vec<(&'static str, State)>,
    /// Visible objects of all checkpoints, by fleet version. `resumed` counts the restarts that continued with such a
    /// version.
    fleets: BTreeMap<u64, Visible>,
    pub(super) resumed: usize,
    dictionaries: Vec<Arc<Dictionary>>,
    pub(super) totals: Arc<PackedTotals>,
}

/// Visible objects of all clusters: names with versions and bodies.
type Visible = BTreeMap<String, BTreeMap<String, (String, String)>>;

pub(super) fn visible(snapshot: &Snapshot) -> Visible {
    let joined = snapshot.partitions().filter(|(_, partition)| partition.has_synced());
    let objects = |partition: &Partition| state(partition, BTreeSet::new()).0;
    joined.map(|(_, partition)| (partition.origin().cluster.to_string(), objects(partition))).collect()
}

pub(super) fn dictionaries() -> Vec<Arc<Dictionary>> {
    let sample = |i: usize| {
        format!(r#"{{"metadata":{{"name":"web-{i}","uid":"{:08x}"}},"spec":{{"node":"n{}"}}}}"#, i * 7919, i % 5)
    };
    let trained = |skip: usize| Arc::new(Dictionary::train((skip..skip + 300).map(sample)).unwrap());
    vec![Arc::new(Dictionary::none()), trained(0), trained(1000)]
}

pub(super) fn claim() -> Claim {
    Claim { labels: ClusterLabels::new(), indexes: vec!["by-node".into()], settings: 1, any_version: false }
}

pub(super) fn begin(disk: &SimDisk) -> CacheFiles {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    CacheFiles::begin(disk, Path::new(ROOT), pods(), View::Shared).unwrap().unwrap()
}

impl CrashModel {
    pub(super) fn new(seed: u64) -> Self {
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

    pub(super) fn change(&mut self) {
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
        // The informer may have read further than the store has applied.
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
    pub(super) fn checkpoint(&mut self) -> bool {
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
    pub(super) fn restart(&mut self, machine_crashes: bool) {
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

    /// Asserts that the restored objects are those that readers of the saved fleet version have.
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

    pub(super) fn step(&mut self) {
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
