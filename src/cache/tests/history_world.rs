//! Simulated clusters of a few namespaces, with an informer each, and a store that records their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::testing::{delta, object, pods};
use crate::{
    DeltaFifo, Gathering, HistoryLimits, Partition, PartitionId, Popped, SavedPartition, SavedVersion, Snapshot, Store,
};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{
    Change, ClusterLabels, ClusterName, DeltaKind, InformerHealth, Origin, ResourceVersion, Scope, StoredObject,
};

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];
/// Clusters and namespaces of the informers.
pub(super) const INFORMERS: [(usize, &str); 5] = [(0, "x"), (0, "y"), (0, "z"), (1, "x"), (1, "y")];
pub(super) const CLUSTERS: [&str; 2] = ["c", "d"];
pub(super) const AGE: Duration = Duration::from_secs(60);

/// Objects as UID and version, by cluster, namespace and name.
pub(super) type Contents = BTreeMap<(String, String, String), (String, u64)>;

pub(super) fn cluster(at: usize) -> ClusterName {
    ClusterName::new(CLUSTERS[at]).unwrap()
}

fn at_version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

pub(super) fn number(object: &StoredObject) -> u64 {
    object.resource_version().as_number().unwrap()
}

pub(super) fn is_selected(origin: &Origin) -> bool {
    origin.cluster_labels.contains_key("selected")
}

/// Returns the visible objects of the informers that a filter accepts.
pub(super) fn contents(snapshot: &Snapshot, accepts: impl Fn(&Origin) -> bool) -> Contents {
    let partitions = snapshot.partitions().map(|(_, partition)| partition);
    let joined = partitions.filter(|partition| partition.has_synced() && accepts(partition.origin()));
    joined.flat_map(|partition| partition.iter().map(|object| entry(partition.origin(), object))).collect()
}

pub(super) fn entry(origin: &Origin, object: &StoredObject) -> ((String, String, String), (String, u64)) {
    let key = object.key();
    let namespace = key.namespace().unwrap_or_default().to_owned();
    ((origin.cluster.to_string(), namespace, key.name().to_owned()), (object.uid().to_string(), number(object)))
}

#[derive(Clone, Debug)]
struct Event {
    kind: DeltaKind,
    name: &'static str,
    uid: String,
    version: u64,
}

type Objects = BTreeMap<&'static str, (String, u64)>;

/// Objects of one namespace in etcd, and the informer that watches them.
struct Watched {
    objects: Objects,
    events: Vec<Event>,
    /// Version of the last event that the informer received; `None` if it must list.
    received: Option<u64>,
    /// Version after which etcd has all events.
    oldest: u64,
    /// Number of ends of lists that must be applied until the store has no state from before a restore of etcd.
    ends_to_apply: usize,
    /// Whether a part of a list was applied.
    is_listing: bool,
    fifo: DeltaFifo,
    /// Number of ends of lists in the queue.
    queued_ends: usize,
    id: Option<PartitionId>,
}

impl Watched {
    fn set_queue(&mut self, fifo: DeltaFifo) {
        (self.fifo, self.queued_ends, self.is_listing) = (fifo, 0, false);
        self.ends_to_apply = self.ends_to_apply.min(1);
    }

    /// Notes that an entry of the queue is applied.
    fn note(&mut self, popped: &Popped) {
        match popped {
            Popped::Deltas(_, deltas) => {
                self.is_listing |= deltas.iter().any(|delta| delta.kind == DeltaKind::Replaced);
            }
            Popped::ReplaceEnd { .. } => {
                self.queued_ends -= 1;
                self.ends_to_apply = self.ends_to_apply.saturating_sub(1);
                self.is_listing = false;
            }
        }
    }
}

pub(super) struct World {
    pub(super) store: Store,
    watched: Vec<Watched>,
    /// Version of the etcd of each cluster.
    versions: [u64; 2],
    /// Earlier states of each etcd: version and objects of each informer.
    backups: [Option<(u64, Vec<Objects>)>; 2],
    /// State that is on disk.
    checkpoint: Option<Arc<Snapshot>>,
    labelled: [bool; 2],
    uids: u64,
    now: Instant,
    limits: HistoryLimits,
    /// Limit of the queues, which merge changes above half of it.
    pub(super) queue_bytes: usize,
}

impl World {
    pub(super) fn new(bytes: usize) -> Self {
        let limits = HistoryLimits { bytes, age: AGE };
        let (mut store, now) = (Store::new(pods()), clock::now());
        store.keep_history(limits, 1000, now);
        let watched = || Watched {
            objects: Objects::new(),
            events: Vec::new(),
            received: None,
            oldest: 0,
            ends_to_apply: 0,
            is_listing: false,
            fifo: DeltaFifo::new(usize::MAX),
            queued_ends: 0,
            id: None,
        };
        let watched = INFORMERS.iter().map(|_| watched()).collect();
        let (versions, backups, labelled) = ([10; 2], [None, None], [false; 2]);
        Self {
            store,
            watched,
            versions,
            backups,
            checkpoint: None,
            labelled,
            uids: 0,
            now,
            limits,
            queue_bytes: usize::MAX,
        }
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.store.published().load_full()
    }

    fn origin(&self, at: usize) -> Arc<Origin> {
        let (of, namespace) = INFORMERS[at];
        let labels = self.labelled[of].then(|| ("selected".to_owned(), "yes".to_owned()));
        let cluster_labels: ClusterLabels = labels.into_iter().collect();
        Arc::new(Origin { cluster: cluster(of), cluster_labels, resource: pods(), scope: Scope::namespace(namespace) })
    }

    pub(super) fn put(&mut self, at: usize, name: &'static str) {
        let version = self.next_version(at);
        self.uids += 1;
        let fresh = format!("u{}", self.uids);
        let watched = &mut self.watched[at];
        let kind = if watched.objects.contains_key(name) { DeltaKind::Updated } else { DeltaKind::Added };
        let uid = watched.objects.get(name).map_or(fresh, |(uid, _)| uid.clone());
        watched.objects.insert(name, (uid.clone(), version));
        watched.events.push(Event { kind, name, uid, version });
    }

    pub(super) fn delete(&mut self, at: usize, name: &'static str) {
        let Some((uid, _)) = self.watched[at].objects.remove(name) else { return };
        let version = self.next_version(at);
        self.watched[at].events.push(Event { kind: DeltaKind::Deleted, name, uid, version });
    }

    fn next_version(&mut self, at: usize) -> u64 {
        let version = &mut self.versions[INFORMERS[at].0];
        *version += 1;
        *version
    }

    /// Saves the etcd of a cluster, or restores its saved state: its informers must list then. Returns whether it was
    /// restored.
    pub(super) fn back_up(&mut self, of: usize) -> bool {
        let members: Vec<_> = (0..INFORMERS.len()).filter(|at| INFORMERS[*at].0 == of).collect();
        match self.backups[of].take() {
            None => {
                let objects = members.iter().map(|at| self.watched[*at].objects.clone()).collect();
                self.backups[of] = Some((self.versions[of], objects));
                false
            }
            Some((version, objects)) => {
                self.checkpoint = None;
                self.versions[of] = version;
                for (at, objects) in members.into_iter().zip(objects) {
                    let watched = &mut self.watched[at];
                    (watched.objects, watched.received, watched.oldest) = (objects, None, version);
                    watched.events.clear();
                    watched.ends_to_apply = watched.queued_ends + 1;
                }
                true
            }
        }
    }

    /// Returns whether a reader of cluster `of` may miss changes if it continues after a kill of this process, which then
    /// cannot know what the reader has: states from before a restore of etcd, or a part of a list, whose objects are not
    /// in the order of their versions. False if `of` is no cluster.
    pub(super) fn is_lost_by_kill(&self, of: usize) -> bool {
        let mut members = self.watched.iter().zip(INFORMERS).filter(|(_, informer)| informer.0 == of);
        members.any(|(watched, _)| watched.ends_to_apply > 0 || watched.is_listing)
    }

    pub(super) fn open(&mut self, at: usize) {
        if self.watched[at].id.is_none() {
            let id = self.store.open(self.origin(at), InformerHealth::new(), Vec::new());
            let watched = &mut self.watched[at];
            (watched.id, watched.received) = (Some(id), None);
            watched.set_queue(DeltaFifo::new(self.queue_bytes));
        }
    }

    pub(super) fn close(&mut self, at: usize) {
        if let Some(id) = self.watched[at].id.take() {
            self.checkpoint = None;
            self.store.close(id);
        }
    }

    /// Passes the next watch events to the queue of an informer, and after the last one the version of etcd.
    pub(super) fn receive(&mut self, at: usize, count: usize) {
        let (newest, namespace) = (self.versions[INFORMERS[at].0], INFORMERS[at].1);
        let watched = &mut self.watched[at];
        let Some(received) = watched.received.filter(|_| watched.id.is_some()) else { return };
        let mut events = watched.events.iter().filter(|event| event.version > received);
        for event in events.by_ref().take(count) {
            let new = object(namespace, event.name, &event.uid, event.version);
            watched.fifo.push(Change::Delta(delta(event.kind, new)));
            watched.received = Some(event.version);
        }
        if events.next().is_none() && count > 2 {
            watched.fifo.push(Change::Progress(at_version(newest)));
            watched.received = Some(newest);
        }
    }

    /// Passes a list to the queue of an informer. Events since the last read are missed.
    pub(super) fn list(&mut self, at: usize) {
        let (newest, namespace) = (self.versions[INFORMERS[at].0], INFORMERS[at].1);
        let watched = &mut self.watched[at];
        if watched.id.is_none() {
            return;
        }
        watched.fifo.push(Change::ReplaceBegin);
        for (name, (uid, version)) in &watched.objects {
            let listed = object(namespace, name, uid, *version);
            watched.fifo.push(Change::Delta(delta(DeltaKind::Replaced, listed)));
        }
        watched.fifo.push(Change::ReplaceEnd(at_version(newest)));
        watched.queued_ends += 1;
        watched.received = Some(newest);
    }

    /// Applies up to `max` entries of an informer's queue.
    pub(super) fn apply(&mut self, at: usize, max: usize) {
        let watched = &mut self.watched[at];
        if let Some(id) = watched.id {
            let batch = watched.fifo.pop(max);
            for popped in &batch {
                watched.note(popped);
            }
            self.store.apply_up_to(id, batch, watched.fifo.watermark().cloned());
        }
    }

    /// Passes all that an informer has missed to the store.
    pub(super) fn catch_up(&mut self, at: usize) {
        if self.watched[at].received.is_none() {
            self.list(at);
        }
        self.receive(at, usize::MAX);
        for _ in 0..4 {
            self.apply(at, usize::MAX);
        }
    }

    /// Sets whether a partition keeps bodies. Without them, it publishes its lists in parts.
    pub(super) fn keep_bodies(&mut self, at: usize, keep: bool) {
        if let Some(id) = self.watched[at].id {
            self.store.keep_bodies(id, keep);
        }
    }

    pub(super) fn relabel(&mut self, of: usize) {
        self.checkpoint = None;
        self.labelled[of] = !self.labelled[of];
        for at in (0..INFORMERS.len()).filter(|at| INFORMERS[*at].0 == of) {
            if self.watched[at].id.is_some() {
                self.store.open(self.origin(at), InformerHealth::new(), Vec::new());
            }
        }
    }

    pub(super) fn pass_time(&mut self) {
        self.now += AGE / 2;
        self.store.set_time(self.now);
        self.store.trim_history(self.now);
    }

    /// Continues with a store that recovers from the published snapshot.
    pub(super) fn recover(&mut self) {
        self.store = Store::recover(Arc::clone(self.store.published()));
    }

    pub(super) fn checkpoint(&mut self) {
        self.checkpoint = Some(self.snapshot());
    }

    /// Continues with a store that restores the checkpoint. The bits of `ahead` select objects whose later states are known
    /// too, as those in the journal of a sink. Returns whether there was a checkpoint.
    pub(super) fn kill(&mut self, ahead: u64) -> bool {
        let Some(checkpoint) = self.checkpoint.take() else { return false };
        let snapshot = self.snapshot();
        let (mut bits, mut is_ahead) = ((0..64).map(|bit| ahead >> bit & 1 == 1).cycle(), false);
        self.store = Store::new(pods());
        for at in 0..INFORMERS.len() {
            let Some(id) = self.watched[at].id.take() else { continue };
            let Some((before, after)) = checkpoint.partition(id).zip(snapshot.partition(id)) else {
                self.open(at);
                continue;
            };
            let mut objects = Gathering::default();
            let keys: BTreeSet<_> = before.iter().chain(after.iter()).map(|stored| stored.key().clone()).collect();
            for key in keys {
                let (old, new) = (before.get(&key), after.get(&key));
                // Deletions are not recorded: a deleted object is restored in its old state, and is deleted again
                // later.
                let stored = if bits.next() == Some(true) { new.or(old) } else { old };
                is_ahead |= stored.map(|stored| number(stored)) != old.map(|stored| number(stored));
                if let Some(stored) = stored {
                    let (namespace, name) = (key.namespace().unwrap_or_default(), key.name());
                    objects.put(Arc::new(object(namespace, name, &stored.uid().to_string(), number(stored))));
                }
            }
            self.restore(at, before, objects);
        }
        if !is_ahead {
            let clusters = checkpoint.joined_clusters().map(|name| (name.clone(), checkpoint.cluster_versions(name)));
            let fleet = SavedVersion { version: checkpoint.version(), has_same_labels: true };
            self.store.set_saved_version(fleet, clusters.collect());
        }
        self.store.keep_history(self.limits, snapshot.version() + 100, self.now);
        true
    }

    /// Restores a partition with these objects, which its informer continues.
    fn restore(&mut self, at: usize, partition: &Partition, objects: Gathering) {
        let resume = partition.resume_version().cloned();
        let watched = &mut self.watched[at];
        // If the informer must list, as after a restore of etcd, it still must.
        let received = watched.received.and(resume.as_ref().and_then(ResourceVersion::as_number));
        watched.received = received.filter(|received| *received >= watched.oldest);
        watched.set_queue(DeltaFifo::new(self.queue_bytes));
        watched.id = self.store.restore(SavedPartition {
            origin: Arc::clone(partition.origin()),
            health: InformerHealth::new(),
            indexes: Vec::new(),
            settings: 1,
            version: resume,
            synced: partition.has_synced(),
            readers: BTreeSet::new(),
            objects,
        });
    }

    /// Continues with a new store that restores the present state. With `keeps_first`, it starts to keep changes before
    /// the restore, else after it.
    pub(super) fn restart(&mut self, keeps_first: bool) {
        self.checkpoint = None;
        let snapshot = self.snapshot();
        let (saved, base) = (snapshot.version(), snapshot.version() + 100);
        self.store = Store::new(pods());
        if keeps_first {
            self.store.keep_history(self.limits, base, self.now);
        }
        for at in 0..INFORMERS.len() {
            let Some(id) = self.watched[at].id else { continue };
            let partition = snapshot.partition(id).unwrap();
            let mut objects = Gathering::default();
            for stored in partition.iter() {
                let (namespace, name) = (stored.key().namespace().unwrap_or_default(), stored.key().name());
                objects.put(Arc::new(object(namespace, name, &stored.uid().to_string(), number(stored))));
            }
            self.restore(at, partition, objects);
        }
        if !keeps_first {
            let clusters = snapshot.joined_clusters().map(|name| (name.clone(), snapshot.cluster_versions(name)));
            let fleet = SavedVersion { version: saved, has_same_labels: true };
            self.store.set_saved_version(fleet, clusters.collect());
            self.store.keep_history(self.limits, base, self.now);
        }
    }
}
