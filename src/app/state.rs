//! The state directory at the start of a hub: opened before anything else, caches restored before any cluster is asked.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix::MailboxError;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::start::StartError;
use crate::actors::messages::InformerFor;
use crate::actors::{Env, Keeping, RestorePlan, StateStatus, ToldVersions};
use crate::cache::{Partition, PartitionId, Snapshot};
use crate::state::caches::{self, Loaded, LoadedCache};
use crate::state::fleet::{self, SourcedCluster};
use crate::state::short_names::{self, ShortNames};
use crate::state::{StateDir, StateError};
use informer_hub_config::Config;
use informer_hub_disk::Disk;
use informer_hub_reflector::Decoder;
use informer_hub_reflector::decode::Decoded;
use informer_hub_sink::{Event, EventType, REDACTED};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, Gvr, ObjectKey, Origin, ResourceVersion, StoredObject, Threads, Uid};

/// For how long a reader that was there before the restart is waited for before it counts as gone.
const GRACE: Duration = Duration::from_secs(60);

/// An open state directory, locked until the last of these goes.
#[derive(Clone, Debug)]
pub(super) struct OpenState(Arc<StateDir>);

impl OpenState {
    /// Opens the directory that the configuration names; `None` where it names none. `readers` are who is wanted.
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
                    reader = name,
                    "the state directory has a journal of a sink or subscriber that is there no more: nobody will \
                     deliver it; `informer-hub state prune` removes it while no hub runs"
                );
            }
            Ok::<_, StateError>(Self(Arc::new(dir)))
        });
        Ok(Some(opening.await.map_err(|_| died())??))
    }

    /// The same for who must not keep it locked.
    pub(super) fn downgrade(&self) -> Weak<StateDir> {
        Arc::downgrade(&self.0)
    }

    /// Of what [`Self::downgrade`] gave, while it is open.
    pub(super) fn upgrade(state: &Weak<StateDir>) -> Option<Self> {
        state.upgrade().map(Self)
    }

    /// Where a reader keeps what it has to keep.
    pub(super) fn reader(&self, name: &str) -> (Arc<dyn Disk>, PathBuf) {
        (Arc::clone(self.0.disk()), self.0.reader_dir(name))
    }

    /// Which clusters sources had brought when this was last in use. What cannot be read is as good as none.
    pub(super) async fn remembered(&self, threads: &Threads) -> Vec<SourcedCluster> {
        let (disk, file) = (Arc::clone(self.0.disk()), self.0.fleet());
        let path = file.clone();
        let reading = threads.spawn_blocking(move || fleet::read(&*disk, &file));
        match reading.await {
            Ok(Ok(clusters)) => clusters,
            Ok(Err(error)) => {
                let file = path.display();
                tracing::error!(%file, %error, "it is not known which clusters sources had brought: those begin anew");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Keeps them for the next start; whether that could be done.
    pub(super) async fn remember(&self, clusters: Vec<SourcedCluster>, threads: &Threads) -> bool {
        let (disk, file) = (Arc::clone(self.0.disk()), self.0.fleet());
        let path = file.clone();
        let writing = threads.spawn_blocking(move || fleet::write(&*disk, &file, clusters));
        match writing.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                let file = path.display();
                tracing::error!(%file, %error, "which clusters sources bring is not on disk: a restart may begin some anew");
                false
            }
            Err(_) => false,
        }
    }

    /// Sees that what was to be kept for the next start is still there. Blocks.
    pub(super) fn tend(&self, clusters: Vec<SourcedCluster>) {
        let file = self.0.fleet();
        match fleet::rewrite_if_missing(&**self.0.disk(), &file, clusters) {
            Ok(false) => {}
            Ok(true) => {
                tracing::error!(file = %file.display(), "it was removed under the running hub, and is written anew");
            }
            // The caches' checkpoint says the same, once.
            Err(error) => tracing::debug!(file = %file.display(), %error, "it was removed, and cannot be written"),
        }
    }

    /// Reads what is on disk of what the configuration wants.
    pub(super) async fn load(
        &self,
        config: &Config,
        demands: Vec<InformerFor>,
        io: &Threads,
    ) -> Result<Found, StartError> {
        let clusters: Vec<_> = config.clusters.iter().map(|it| (it.name.clone(), it.labels.clone())).collect();
        let (names_disk, names_file) = (Arc::clone(self.0.disk()), self.0.names());
        let reading =
            io.spawn_blocking(move || short_names::read(&*names_disk, &names_file)).await.map_err(|_| died())?;
        let names = reading.unwrap_or_else(|error| {
            let file = self.0.names().display().to_string();
            tracing::error!(file, %error, "it is not known what short names mean: what was asked for by them begins anew");
            ShortNames::default()
        });
        let plan = RestorePlan::new(clusters, demands, names);
        let (disk, dir) = (Arc::clone(self.0.disk()), self.0.caches());
        let began = clock::now();
        let loading = io.spawn_blocking(move || {
            let loaded = caches::load(&disk, &dir, &|resource, header| plan.claim(resource, header))?;
            let on_disk = loaded.caches.iter().map(|cache| cache.store.published().load_full()).collect();
            Ok(Found { loaded, on_disk, plan, began, ahead: Mutex::default() })
        });
        let found: io::Result<_> = loading.await.map_err(|_| died())?;
        let failed = |source| StateError::Disk { file: self.0.caches(), verb: "read", source };
        Ok(found.map_err(failed)?)
    }

    /// Has the caches begin with what was found.
    pub(super) fn restore(&self, found: Found, config: &Config, env: &Env) -> Keeping {
        let told = found.told();
        found.raise_floors();
        let Found { loaded, began, plan, .. } = found;
        let mut status = StateStatus { path: self.0.root().display().to_string(), ..StateStatus::default() };
        for (dir, error) in loaded.lost {
            tracing::error!(dir = %dir.display(), error, "a cache on disk is lost: its informers list afresh");
            status.damage.push(format!("{}: {error}", dir.display()));
        }
        let mut files = Vec::new();
        for LoadedCache { resource, view, store, packing, plain, files: theirs, damage } in loaded.caches {
            if !damage.is_empty() {
                tracing::error!(resource = %resource.gvr, error = damage.join("; "), "a cache on disk is damaged: what can be read is there, and its informers list");
                status.damage.extend(damage.into_iter().map(|damage| format!("{}: {damage}", resource.gvr)));
            }
            let snapshot = store.published().load_full();
            status.restored += snapshot.len() as u64;
            status.cache_bytes += theirs.bytes();
            files.push(theirs);
            if snapshot.partitions().next().is_some() {
                env.caches.begin_with(view, store, packing, &plain);
            }
        }
        let took = clock::now().duration_since(began);
        status.restored_in_millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(dir = %self.0.root().display(), objects = status.restored, ?took, "caches are back from disk");
        Keeping::new(Arc::clone(self.0.disk()), self.0.caches(), config.hub.checkpoint, GRACE, files, status)
            .told(told)
            .names(plan.into_names(), self.0.names())
    }
}

/// Caches as they were on disk.
pub(super) struct Found {
    loaded: Loaded,
    /// The caches without what readers were told of afterwards, in the same order.
    on_disk: Vec<Arc<Snapshot>>,
    plan: RestorePlan,
    began: Instant,
    /// Partitions of which a journal has told what is not on disk, and up to which version: a cache, by its place, and its
    /// partition.
    ahead: Mutex<BTreeMap<(usize, PartitionId), ResourceVersion>>,
}

impl Found {
    /// Whether a cache has what an event has told a reader, and knows that it was told of all that is there. Or nobody wants it
    /// any more.
    pub(super) fn knows(&self, reader: &str, event: &Event) -> bool {
        let Some(about) = About::of(event) else { return true };
        let Some((cache, id)) = self.partition_of(&about) else { return true };
        let Some(partition) = self.on_disk[cache].partition(id) else { return true };
        let has_it = self.has(event, &about, (cache, id), partition);
        has_it && partition.restored().is_some_and(|restored| restored.has_reader(reader))
    }

    /// Whether a partition on disk has what an event tells of: its object in that state or a newer one, or all that happened
    /// up to then, so that the object is gone.
    fn has(&self, event: &Event, about: &About<'_>, at: (usize, PartitionId), partition: &Partition) -> bool {
        let stored = partition.get(&about.key).filter(|stored| *stored.uid() == Uid::new(event.uid()));
        // All of up to its version has been applied: an object of before then that is not there is gone. Its deletion need
        // not be in the journal, whose reader may not want to hear of it.
        let is_past = partition
            .resume_version()
            .is_some_and(|version| version == event.version() || version.newer_than(event.version()));
        // A tombstone has the version of the last state that was known, so only its object tells.
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

    /// Up to which version journals have told of each partition what is not on disk; `None` of those where that is nothing.
    fn told(&self) -> ToldVersions {
        let (mut told, ahead) = (ToldVersions::new(), self.ahead.lock());
        for (at, cache) in self.loaded.caches.iter().enumerate() {
            let snapshot = cache.store.published().load();
            for (id, partition) in snapshot.partitions() {
                let ahead = ahead.get(&(at, id)).cloned();
                // One that is not complete has all to say again, whatever has been told.
                if ahead.is_some() || partition.resume_version().is_some() {
                    let key = (cache.resource.gvr.clone(), cache.view.clone());
                    told.entry(key).or_default().insert(id, ahead);
                }
            }
        }
        told
    }

    /// Sees that no informer lists anything older than what a cache has or readers were told of: either may be newer than
    /// the version up to which a partition is complete.
    fn raise_floors(&self) {
        let ahead = self.ahead.lock();
        for (at, cache) in self.loaded.caches.iter().enumerate() {
            let snapshot = cache.store.published().load();
            for (id, partition) in snapshot.partitions() {
                partition.raise_floor(ahead.get(&(at, id)));
            }
        }
    }

    /// Takes in objects, and states of objects, that a reader was told of after the last checkpoint, and has the reader go on
    /// from them.
    pub(super) fn adopt(&mut self, reader: &str, orphans: &[Event]) {
        for event in orphans {
            let Some(about) = About::of(event) else { continue };
            let Some((cache, id)) = self.partition_of(&about) else { continue };
            let Some(partition) = self.on_disk[cache].partition(id) else { continue };
            let resource = self.loaded.caches[cache].resource.clone();
            let Some(demand) = self.plan.demand(&resource, about.cluster) else { continue };
            let object = about.object(event, &resource, demand);
            let is_on_disk = self.has(event, &about, (cache, id), partition);
            if let Some(restored) = partition.restored() {
                restored.note_delivered(reader, Arc::clone(&object));
            }
            let cache = &mut self.loaded.caches[cache];
            if !is_on_disk && cache.store.add_delivered(id, &object) {
                cache.plain.push(object);
            }
        }
        if !orphans.is_empty() {
            tracing::info!(
                reader,
                objects = orphans.len(),
                "told of after the last checkpoint: taken from the journals"
            );
        }
    }

    /// The cache, by its place, and the partition that an object belongs to.
    fn partition_of(&self, about: &About<'_>) -> Option<(usize, PartitionId)> {
        // In the version that was told of, or in the one that its objects were read in before.
        let [group, version, resource] = about.resource;
        let is_resource = |gvr: &Gvr| gvr.group == group && gvr.resource == resource;
        let of_it = self.loaded.caches.iter().enumerate().filter(|(_, cache)| is_resource(&cache.resource.gvr));
        let (same, others): (Vec<_>, Vec<_>) = of_it.partition(|(_, cache)| cache.resource.gvr.version == version);
        same.into_iter().chain(others).find_map(|(at, cache)| {
            let snapshot = cache.store.published().load();
            let has = |origin: &Origin| {
                let namespace = origin.scope.namespace.as_deref();
                origin.cluster.as_str() == about.cluster && (namespace.is_none() || namespace == about.key.namespace())
            };
            let found = snapshot.partitions().find(|(_, partition)| has(partition.origin()));
            found.map(|(id, _)| (at, id))
        })
    }
}

/// What an event's subject says.
struct About<'e> {
    cluster: &'e str,
    resource: [&'e str; 3],
    key: ObjectKey,
}

impl<'e> About<'e> {
    fn of(event: &'e Event) -> Option<Self> {
        let [group, version, resource, namespace, name] = event.subject_parts()?;
        let key = ObjectKey::new(namespace, name);
        Some(Self { cluster: event.cluster(), resource: [group, version, resource], key })
    }

    /// The object as a cache has it. Of a body that is not the whole truth only the head is taken: the body comes from
    /// the cluster, if it is there.
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
