//! Plan of a checkpoint of one resource, and the code that writes it to the files as records. The plan lists the
//! partitions to append, to rewrite and to drop; `files/decide` makes it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::codec::{self, PartitionHeader, PartitionKey, SavedFleet};
use super::frame_file::FrameFile;
use super::objects::{Dictionaries, ObjectWriter, RecordToWrite};
use crate::cache::{Partition, Snapshot};
use informer_hub_disk::Disk;
use informer_hub_types::{Dictionary, ObjectKey, ResourceVersion, StoredObject};

/// Time in ms by which a partition's `alive` (when it was last up to date) must advance, so that its header is written
/// although nothing else changed.
const ALIVE_STEP: u64 = 60_000;

/// Time in ms since a partition's header was last written, after which the header is written again although nothing
/// changed.
const WRITTEN_STEP: u64 = 3_600_000;

/// Maximum number of removed keys in one record.
const MAX_KEYS: usize = 1000;

/// Saved instead of the CRD's generation if some objects may still follow an earlier schema. No CRD has this
/// generation, so the next start sees a changed CRD and lists again.
const UNFINISHED: u64 = i64::MAX.unsigned_abs();

/// Changes of one partition that a checkpoint writes.
pub(super) struct Step {
    pub(super) key: PartitionKey,
    pub(super) number: u64,
    pub(super) header: PartitionHeader,
    pub(super) partition: Partition,
    pub(super) put: Vec<Arc<StoredObject>>,
    pub(super) gone: Vec<ObjectKey>,
}

#[derive(Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) dropped: Vec<(PartitionKey, u64)>,
    /// Fleet version (version over all clusters) of the files once the plan is written; `None` if they will not have a
    /// complete state.
    pub(super) fleet: Option<SavedFleet>,
}

/// Creates a directory and its ancestors below the root, durably.
pub(super) fn make(disk: &dyn Disk, root: &Path, dir: &Path) -> io::Result<()> {
    disk.create_dir_all(dir)?;
    let above = dir.ancestors().skip(1);
    // Includes the root's parent, because the root may be new too.
    let until = root.parent().unwrap_or(root);
    for dir in above.take_while(|above| above.starts_with(until)) {
        disk.sync_dir(dir)?;
    }
    Ok(())
}

pub(super) fn write_plan(
    out: &mut FrameFile<'_>,
    dictionaries: &mut Dictionaries,
    plan: &Plan,
    now: i64,
) -> io::Result<()> {
    for (_, number) in &plan.dropped {
        out.record(|out| codec::put_dropped(*number, out))?;
    }
    let with = dictionaries.last().cloned();
    for step in &plan.steps {
        out.record(|out| codec::put_partition(step.number, &step.header, out))?;
        for keys in step.gone.chunks(MAX_KEYS) {
            out.record(|out| codec::put_removed(step.number, keys, out))?;
        }
        write_objects(out, dictionaries, with.as_ref(), step.number, step.put.iter())?;
    }
    put_end(out, plan, now)
}

/// Writes the end of a checkpoint's plan: the fleet version (version over all clusters), if there is one, and the
/// commit record.
pub(super) fn put_end(out: &mut FrameFile<'_>, plan: &Plan, now: i64) -> io::Result<()> {
    if let Some(fleet) = &plan.fleet {
        out.record(|out| codec::put_fleet(fleet, out))?;
    }
    out.record(|out| codec::put_commit(now, out))
}

pub(super) fn write_objects<'o>(
    out: &mut FrameFile<'_>,
    dictionaries: &mut Dictionaries,
    with: Option<&Arc<Dictionary>>,
    number: u64,
    objects: impl Iterator<Item = &'o Arc<StoredObject>>,
) -> io::Result<()> {
    let mut write = |record: RecordToWrite<'_>| match record {
        RecordToWrite::Dictionary(id, bytes) => out.record(|out| codec::put_dictionary(id, bytes, out)),
        RecordToWrite::Objects(bytes) => out.record(|out| out.extend_from_slice(bytes)),
    };
    let mut writer = ObjectWriter::new(dictionaries, with)?;
    for object in objects {
        writer.add(number, object, &mut write)?;
    }
    writer.finish(number, &mut write)
}

pub(super) fn key_of(partition: &Partition) -> PartitionKey {
    (partition.origin().cluster.clone(), partition.origin().scope.clone())
}

/// Hashes the labels of the visible clusters. Another hash at the next start means that labels have changed. Readers
/// that select only some clusters must then list again.
pub(super) fn hash_labels(snapshot: &Snapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    let joined = snapshot.partitions().filter(|(_, partition)| partition.has_synced());
    let clusters: BTreeMap<_, _> = joined.map(|(_, it)| (&it.origin().cluster, &it.origin().cluster_labels)).collect();
    for (cluster, labels) in clusters {
        (cluster.as_str(), labels).hash(&mut hasher);
    }
    hasher.finish()
}

pub(super) fn header_of(partition: &Partition, readers: &BTreeSet<String>, now: i64) -> PartitionHeader {
    let (cluster, scope) = key_of(partition);
    PartitionHeader {
        cluster,
        scope,
        settings: partition.settings(),
        version: partition.resume_version().cloned(),
        synced: partition.has_synced(),
        alive: partition.health().fresh_until().unwrap_or(0),
        written: now,
        readers: readers.clone(),
        floor: floor_of(partition),
        defined: partition.health().is_defined(),
        generation: if partition.is_converting() { UNFINISHED } else { partition.health().definition_generation() },
    }
}

/// Returns the resource version that the next list must at least have: the newest version that the informer has
/// received. `None` if the partition is already complete up to that version.
pub(super) fn floor_of(partition: &Partition) -> Option<ResourceVersion> {
    let newest = partition.health().newest()?;
    let is_above = partition.resume_version().is_none_or(|version| newest.newer_than(version));
    is_above.then(|| ResourceVersion::clone(&newest))
}

/// Returns whether two headers differ only in timestamps, by less than [`ALIVE_STEP`] and [`WRITTEN_STEP`]. With
/// `exactly`, any change of `alive` counts.
pub(super) fn is_unchanged(old: &PartitionHeader, new: &PartitionHeader, exactly: bool) -> bool {
    let near = |old: i64, new: i64, step: u64| new.abs_diff(old) < if exactly { 1 } else { step };
    let timeless = |header: &PartitionHeader| PartitionHeader { alive: 0, written: 0, ..header.clone() };
    near(old.alive, new.alive, ALIVE_STEP)
        && new.written.abs_diff(old.written) < WRITTEN_STEP
        && timeless(old) == timeless(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::testing::origin;
    use crate::cache::{DeltaFifo, PartitionId, Store};
    use informer_hub_types::{ApiResource, Change, Gvr, InformerHealth, Origin};

    #[test]
    fn objects_of_an_earlier_schema_are_saved_as_such_until_a_list_is_complete() {
        let before = origin("eu");
        let mut store = Store::new(before.resource.clone());
        let id = store.open(Arc::clone(&before), InformerHealth::new(), Vec::new());
        let saved = |store: &Store, id: PartitionId| {
            let snapshot = store.published().load();
            header_of(snapshot.partition(id).unwrap(), &BTreeSet::new(), 0).generation
        };
        store.published().load().partition(id).unwrap().health().set_definition_generation(3);
        assert_eq!(saved(&store, id), 3);

        let gvr = Gvr::new(&before.resource.gvr.group, "v2", &before.resource.gvr.resource);
        let resource = ApiResource { gvr, ..before.resource.clone() };
        let mut next = Store::new(resource.clone());
        let moved = store.published().load().partition(id).unwrap().clone();
        let id = next.adopt(&moved, Arc::new(Origin { resource, ..Origin::clone(&before) }));
        assert_eq!(saved(&next, id), UNFINISHED);

        let version = ResourceVersion::new("9");
        let mut fifo = DeltaFifo::new(usize::MAX);
        fifo.push(Change::ReplaceBegin);
        fifo.push(Change::ReplaceEnd(version.clone()));
        next.apply_up_to(id, fifo.pop(usize::MAX), Some(version));
        assert_eq!(saved(&next, id), 3);
    }
}
