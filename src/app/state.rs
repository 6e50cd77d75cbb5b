//! State directory of a running hub: opening it, restoring caches at the start, saving the clusters of sources.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix::MailboxError;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::error::StartError;
use crate::actors::messages::InformerFor;
use crate::actors::{CheckpointStore, DeliveredVersions, Env, RestorePlan, StateStatus};
use crate::cache::{Partition, PartitionId, Snapshot};
use crate::state::caches::{self, Loaded, LoadedCache};
use crate::state::short_names::{self, ShortNames};
use crate::state::sourced_clusters::{self, SourcedCluster};
use crate::state::{StateDir, StateError};
use informer_hub_codec::Decoded;
use informer_hub_codec::Decoder;
use informer_hub_config::Config;
use informer_hub_disk::Disk;
use informer_hub_sink::{Event, EventType, REDACTED};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, Gvr, ObjectKey, Origin, ResourceVersion, StoredObject, Threads, Uid};

/// Time after a restart within which a reader (sink or durable subscription) of the previous process must subscribe
/// again. After that time, it counts as removed.
const READER_GRACE: Duration = Duration::from_secs(60);

/// An open state directory, locked until the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct OpenState(Arc<StateDir>);

impl OpenState {
    /// Opens the state directory that the configuration names, if any. Warns about journals of sinks and durable
    /// subscriptions that are not in `readers`.
    pub(super) async fn of(
        config: &Config,
        disk: Arc<dyn Disk>,
        readers: Vec<String>,
        threads: &Threads,
    ) -> Result<Option<Self>, StartError> {
        let Some(root) = config.hub.state_dir.clone() else { return Ok(None) };
        let opening = threads.spawn_blocking(move || {
            let dir = StateDir::open(disk, &root)?;
            for name in dir.unwanted(readers.iter().map(String::as_str))? {
                tracing::warn!(
                    name,
                    "found the journal of a sink or subscriber that is not configured; its events are not delivered: \
                     to delete the journal, stop the hub and run `informer-hub state prune --dir DIR NAME`"
                );
            }
            Ok::<_, StateError>(Self(Arc::new(dir)))
        });
        Ok(Some(opening.await.map_err(|_| died())??))
    }

    /// Returns a handle that does not keep the directory locked.
    pub(super) fn downgrade(&self) -> Weak<StateDir> {
        Arc::downgrade(&self.0)
    }

    /// Returns the open directory of a handle from [`Self::downgrade`]; `None` if it was closed.
    pub(super) fn upgrade(state: &Weak<StateDir>) -> Option<Self> {
        state.upgrade().map(Self)
    }

    /// Returns the disk and the directory that hold the journal of a reader (sink or durable subscription).
    pub(super) fn reader(&self, name: &str) -> (Arc<dyn Disk>, PathBuf) {
        (Arc::clone(self.0.disk()), self.0.reader_dir(name))
    }

    /// Reads the clusters that cluster sources had found before the restart. Returns none if they cannot be read.
    pub(super) async fn read_sourced_clusters(&self, threads: &Threads) -> Vec<SourcedCluster> {
        let (disk, file) = (Arc::clone(self.0.disk()), self.0.fleet());
        let path = file.clone();
        let reading = threads.spawn_blocking(move || sourced_clusters::read(&*disk, &file));
        match reading.await {
            Ok(Ok(clusters)) => clusters,
            Ok(Err(error)) => {
                let file = path.display();
                tracing::error!(
                    %file, %error,
                    "cannot read the saved clusters of cluster sources; their objects are listed again"
                );
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Writes the clusters found by cluster sources for the next start. Returns whether that succeeded.
    pub(super) async fn write_sourced_clusters(&self, clusters: Vec<SourcedCluster>, threads: &Threads) -> bool {
        let (disk, file) = (Arc::clone(self.0.disk()), self.0.fleet());
        let path = file.clone();
        let writing = threads.spawn_blocking(move || sourced_clusters::write(&*disk, &file, clusters));
        match writing.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                let file = path.display();
                tracing::error!(
                    %file, %error,
                    "cannot save the clusters of cluster sources; after a restart, the objects of some clusters may be \
                     listed again"
                );
                false
            }
            Err(_) => false,
        }
    }

    /// Writes the clusters found by cluster sources again if their file was deleted. Blocks.
    pub(super) fn rewrite_sourced_clusters(&self, clusters: Vec<SourcedCluster>) {
        let file = self.0.fleet();
        match sourced_clusters::rewrite_if_missing(&**self.0.disk(), &file, clusters) {
            Ok(false) => {}
            Ok(true) => {
                tracing::error!(
                    file = %file.display(),
                    "the file with the clusters that cluster sources have found was deleted while the hub was running; \
                     wrote it again"
                );
            }
            // The checkpoint of the caches logs the same fault as an error, once.
            Err(error) => {
                tracing::debug!(
                    file = %file.display(), %error,
                    "cannot rewrite the deleted file with the clusters of cluster sources; retrying at the next \
                     checkpoint"
                );
            }
        }
    }

    /// Loads the saved caches that the configuration still needs.
    pub(super) async fn load(
        &self,
        config: &Config,
        demands: Vec<InformerFor>,
        io: &Threads,
    ) -> Result<LoadedState, StartError> {
        let clusters: Vec<_> = config.clusters.iter().map(|it| (it.name.clone(), it.labels.clone())).collect();
        let (names_disk, names_file) = (Arc::clone(self.0.disk()), self.0.names());
        let reading =
            io.spawn_blocking(move || short_names::read(&*names_disk, &names_file)).await.map_err(|_| died())?;
        let names = reading.unwrap_or_else(|error| {
            let file = self.0.names().display().to_string();
            tracing::error!(
                file, %error,
                "cannot read the saved short names; resources configured by short name are listed again"
            );
            ShortNames::default()
        });
        let plan = RestorePlan::new(clusters, demands, names);
        let (disk, dir) = (Arc::clone(self.0.disk()), self.0.caches());
        let began = clock::now();
        let loading = io.spawn_blocking(move || {
            let loaded = caches::load(&disk, &dir, &|resource, header| plan.claim(resource, header))?;
            let on_disk = loaded.caches.iter().map(|cache| cache.store.published().load_full()).collect();
            Ok(LoadedState { loaded, on_disk, plan, began, ahead: Mutex::default() })
        });
        let found: io::Result<_> = loading.await.map_err(|_| died())?;
        let failed = |source| StateError::Disk { file: self.0.caches(), verb: "read", source };
        Ok(found.map_err(failed)?)
    }

    /// Starts the caches with the loaded objects. Returns the store into which checkpoints are written.
    pub(super) fn restore(&self, found: LoadedState, config: &Config, env: &Env) -> CheckpointStore {
        let journaled = found.journaled_versions();
        found.raise_floors();
        let LoadedState { loaded, began, plan, .. } = found;
        let mut status = StateStatus { path: self.0.root().display().to_string(), ..StateStatus::default() };
        for (dir, error) in loaded.lost {
            tracing::error!(dir = %dir.display(), error, "cannot restore a cache from disk; its informers list again");
            status.damage.push(format!("{}: {error}", dir.display()));
        }
        let mut files = Vec::new();
        for LoadedCache { resource, view, store, packing, plain, files: cache_files, damage } in loaded.caches {
            if !damage.is_empty() {
                tracing::error!(
                    resource = %resource.gvr, error = damage.join("; "),
                    "a cache on disk is damaged: readable objects are restored, and its informers list again"
                );
                status.damage.extend(damage.into_iter().map(|damage| format!("{}: {damage}", resource.gvr)));
            }
            let snapshot = store.published().load_full();
            status.restored += snapshot.len() as u64;
            status.cache_bytes += cache_files.bytes();
            files.push(cache_files);
            if snapshot.partitions().next().is_some() {
                env.caches.insert_restored(view, store, packing, &plain);
            }
        }
        let took = clock::now().duration_since(began);
        status.restored_in_millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(dir = %self.0.root().display(), objects = status.restored, ?took, "restored the caches from disk");
        CheckpointStore::new(
            Arc::clone(self.0.disk()),
            self.0.caches(),
            config.hub.checkpoint,
            READER_GRACE,
            files,
            status,
        )
        .delivered(journaled)
        .names(plan.into_names(), self.0.names())
    }
}

/// Caches loaded from disk, before they are started.
pub(super) struct LoadedState {
    loaded: Loaded,
    /// Snapshots of the loaded caches before journaled events are added, in the order of `loaded.caches`.
    on_disk: Vec<Arc<Snapshot>>,
    plan: RestorePlan,
    began: Instant,
    /// Version of the newest journaled event that is missing in the cache on disk. The key is the index of the cache in
    /// `loaded.caches`, and the partition.
    ahead: Mutex<BTreeMap<(usize, PartitionId), ResourceVersion>>,
}

impl LoadedState {
    /// Returns whether the state on disk covers an event in the journal of `reader` (a sink or durable subscription).
    /// The cache on disk must have the object in the event's state or a newer one. The reader must have acknowledged
    /// the whole saved state of the object's partition. Also true if no cache is configured for the object.
    pub(super) fn covers(&self, reader: &str, event: &Event) -> bool {
        let Some(subject) = EventObject::of(event) else { return true };
        let Some((cache, id)) = self.partition_of(&subject) else { return true };
        let Some(partition) = self.on_disk[cache].partition(id) else { return true };
        let has_it = self.has(event, &subject, (cache, id), partition);
        has_it && partition.restored().is_some_and(|restored| restored.has_reader(reader))
    }

    /// Returns whether a partition on disk covers an event: it has the object in the event's state or a newer one, or
    /// it contains every change up to the event's version. If the partition may lack the event, also records the
    /// event's version in `ahead`.
    fn has(&self, event: &Event, subject: &EventObject<'_>, at: (usize, PartitionId), partition: &Partition) -> bool {
        let stored = partition.get(&subject.key).filter(|stored| *stored.uid() == Uid::new(event.uid()));
        // The partition contains every change up to its resourceVersion, so a missing older object was deleted. The
        // deletion may be missing in the journal, because the reader may not select deletions.
        let is_past = partition
            .resume_version()
            .is_some_and(|version| version == event.version() || version.newer_than(event.version()));
        // A tombstone has the version of the last known state, so only the presence of the object decides.
        let is_on_disk = if event.event_type() == EventType::Deleted { stored.is_none() } else { is_past };
        if !is_on_disk {
            let mut ahead = self.ahead.lock();
            let newest = ahead.entry(at).or_insert_with(|| event.version().clone());
            if event.version().newer_than(newest) {
                newest.clone_from(event.version());
            }
        }
        is_past || stored.is_some_and(|stored| !event.version().newer_than(stored.resource_version()))
    }

    /// Returns, by cache and partition, the version of the newest journaled event that is missing in the cache on disk.
    /// It is `None` for a partition that has a complete list and lacks no event. A partition that has no complete list
    /// and lacks no event is left out.
    fn journaled_versions(&self) -> DeliveredVersions {
        let (mut versions, ahead) = (DeliveredVersions::new(), self.ahead.lock());
        for (at, cache) in self.loaded.caches.iter().enumerate() {
            let snapshot = cache.store.published().load();
            for (id, partition) in snapshot.partitions() {
                let ahead = ahead.get(&(at, id)).cloned();
                // A partition without a complete list is left out: it lists again and notifies of all its objects.
                if ahead.is_some() || partition.resume_version().is_some() {
                    let key = (cache.resource.gvr.clone(), cache.view.clone());
                    versions.entry(key).or_default().insert(id, ahead);
                }
            }
        }
        versions
    }

    /// Raises the minimum version of the next list of each partition. The new minimum is the version of the newest
    /// object or of the newest journaled event, whichever is newer. Both may be newer than the version up to which the
    /// partition contains every change.
    fn raise_floors(&self) {
        let ahead = self.ahead.lock();
        for (at, cache) in self.loaded.caches.iter().enumerate() {
            let snapshot = cache.store.published().load();
            for (id, partition) in snapshot.partitions() {
                partition.raise_floor(ahead.get(&(at, id)));
            }
        }
    }

    /// Adds objects to the caches from journaled events that are newer than the last checkpoint. Records them as the
    /// states last delivered to `reader` (a sink or durable subscription).
    pub(super) fn adopt(&mut self, reader: &str, uncheckpointed: &[Event]) {
        for event in uncheckpointed {
            let Some(subject) = EventObject::of(event) else { continue };
            let Some((cache, id)) = self.partition_of(&subject) else { continue };
            let Some(partition) = self.on_disk[cache].partition(id) else { continue };
            let resource = self.loaded.caches[cache].resource.clone();
            let Some(demand) = self.plan.demand(&resource, subject.cluster) else { continue };
            let object = subject.object(event, &resource, demand);
            let is_on_disk = self.has(event, &subject, (cache, id), partition);
            if let Some(restored) = partition.restored() {
                restored.note_delivered(reader, Arc::clone(&object));
            }
            let cache = &mut self.loaded.caches[cache];
            if !is_on_disk && cache.store.add_delivered(id, &object) {
                cache.plain.push(object);
            }
        }
        if !uncheckpointed.is_empty() {
            tracing::info!(
                reader,
                objects = uncheckpointed.len(),
                "restored objects from journaled events that are newer than the last checkpoint"
            );
        }
    }

    /// Returns the index of the cache and the partition that an object belongs to.
    fn partition_of(&self, subject: &EventObject<'_>) -> Option<(usize, PartitionId)> {
        // The API version of the event comes first, then other versions of the same resource.
        let [group, version, resource] = subject.resource;
        let is_resource = |gvr: &Gvr| gvr.group == group && gvr.resource == resource;
        let candidates = self.loaded.caches.iter().enumerate().filter(|(_, cache)| is_resource(&cache.resource.gvr));
        let (same, others): (Vec<_>, Vec<_>) = candidates.partition(|(_, cache)| cache.resource.gvr.version == version);
        same.into_iter().chain(others).find_map(|(at, cache)| {
            let snapshot = cache.store.published().load();
            let has = |origin: &Origin| {
                let namespace = origin.scope.namespace.as_deref();
                origin.cluster.as_str() == subject.cluster
                    && (namespace.is_none() || namespace == subject.key.namespace())
            };
            let found = snapshot.partitions().find(|(_, partition)| has(partition.origin()));
            found.map(|(id, _)| (at, id))
        })
    }
}

/// Object that an event is about, parsed from its subject.
struct EventObject<'e> {
    cluster: &'e str,
    resource: [&'e str; 3],
    key: ObjectKey,
}

impl<'e> EventObject<'e> {
    fn of(event: &'e Event) -> Option<Self> {
        let [group, version, resource, namespace, name] = event.subject_parts()?;
        let key = ObjectKey::new(namespace, name);
        Some(Self { cluster: event.cluster(), resource: [group, version, resource], key })
    }

    /// Returns the object as the cache stores it. If the event's JSON of the object is missing, unusable or redacted,
    /// the result has only key, UID and version; the cluster sends the whole object later.
    fn object(&self, event: &Event, resource: &ApiResource, demand: &InformerFor) -> Arc<StoredObject> {
        let options = &demand.options;
        let indexes = options.indexes.iter().map(|(name, path)| (name.clone(), path.clone())).collect();
        let whole = || {
            let data = event.data::<Box<RawValue>>().ok()?;
            let json = data.object.filter(|json| !json.get().contains(REDACTED))?;
            let mut decoder = Decoder::new(resource.clone(), &options.projection, indexes);
            match decoder.decode_object(json.get().as_bytes()) {
                Ok(Decoded::Object(object)) if *object.key() == self.key => Some(object),
                _ => None,
            }
        };
        whole().unwrap_or_else(|| {
            let head = StoredObject::head_only(self.key.clone(), Uid::new(event.uid()), event.version().clone());
            Arc::new(head.without_body())
        })
    }
}

fn died() -> StartError {
    StartError::Died(MailboxError::Closed)
}
