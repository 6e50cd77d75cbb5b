//! Reads the files of one resource, for `restore`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;

use super::codec::{PartitionHeader, PartitionKey, Record, SavedFleet};
use super::file_name::{FileName, salt};
use super::objects::{Dictionaries, ObjectReader};
use crate::cache::Gathering;
use informer_hub_disk::frame::{HEADER, Item, Reader};
use informer_hub_disk::{Disk, Open};
use informer_hub_types::{ApiResource, Dictionary, ObjectKey, PackedTotals, StoredObject, View};

/// A partition read from the files.
#[derive(Debug)]
pub(super) struct ReadPartition {
    pub(super) number: u64,
    pub(super) header: PartitionHeader,
    /// Objects of the partition; empty if the caller of [`read`] did not select the partition.
    pub(super) objects: Gathering,
}

/// Contents of the files of a resource.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) resource: ApiResource,
    pub(super) view: View,
    pub(super) partitions: BTreeMap<PartitionKey, ReadPartition>,
    /// Compression dictionaries that could be restored, with their numbers.
    pub(super) dictionaries: Vec<(u64, Arc<Dictionary>)>,
    /// Objects whose bodies are uncompressed in the files, and therefore also in memory.
    pub(super) plain: Vec<Arc<StoredObject>>,
    /// Fleet version (version over all clusters) of the state; `None` if the last checkpoint did not save a complete
    /// state.
    pub(super) fleet: Option<SavedFleet>,
    /// Descriptions of damage; if any, objects may be missing.
    pub(super) damage: Vec<String>,
    pub(super) files: FilesRead,
}

/// Numbers and sizes of the files.
#[derive(Clone, Debug, Default)]
pub(super) struct FilesRead {
    /// Number of the current snapshot file.
    pub(super) snapshot: u64,
    pub(super) snapshot_bytes: u64,
    /// Number of the last file of changes to this snapshot; `None` if there is none.
    pub(super) last_deltas: Option<u64>,
    pub(super) deltas_bytes: u64,
    /// Bytes of all files up to their last commit records.
    pub(super) marked_bytes: u64,
    /// Number of objects read or written. The mean size of an object is estimated as `object_bytes` / `objects`.
    pub(super) objects: u64,
    pub(super) object_bytes: u64,
    /// Bytes of the object records of two kinds of partitions: those that were not selected for decoding, and those
    /// without an informer.
    pub(super) unwanted_bytes: u64,
    /// Names of obsolete files.
    pub(super) leftovers: Vec<String>,
}

/// A decoded change. Changes in a snapshot file are applied immediately. Those in a file of changes are applied when
/// their commit record is read.
enum Op {
    Partition(u64, PartitionHeader),
    Put(u64, Arc<StoredObject>),
    Removed(u64, Vec<ObjectKey>),
    Dropped(u64),
    Fleet(SavedFleet),
}

struct Loader<'l> {
    /// Selects, by their headers, the partitions whose objects are decoded.
    claims: &'l dyn Fn(&ApiResource, &PartitionHeader) -> bool,
    reader: ObjectReader,
    kind: Option<(ApiResource, View)>,
    partitions: BTreeMap<u64, ReadPartition>,
    /// Whether the objects of a partition are decoded, by the partition's number.
    claimed: HashMap<u64, bool>,
    fleet: Option<SavedFleet>,
    damage: Vec<String>,
    files: FilesRead,
    /// Whether files are synced after reading, so that a writer may continue them.
    syncs: bool,
}

/// Reads the files of a resource; `None` if no snapshot is readable. `claims` selects the partitions whose objects are
/// decoded. With `syncs`, also makes the files durable, so that a writer can continue them.
///
/// # Errors
/// If the disk fails.
pub(super) fn read(
    disk: &dyn Disk,
    dir: &Path,
    totals: &Arc<PackedTotals>,
    claims: &dyn Fn(&ApiResource, &PartitionHeader) -> bool,
    syncs: bool,
) -> io::Result<Option<Read>> {
    read_beside(disk, dir, (totals, &Dictionaries::default()), claims, syncs)
}

/// Reads the files of a resource as [`read`] does, although some of its partitions are already in memory. Dictionaries
/// in `known` are used again instead of being restored.
///
/// # Errors
/// If the disk fails.
pub(super) fn read_beside(
    disk: &dyn Disk,
    dir: &Path,
    (totals, known): (&Arc<PackedTotals>, &Dictionaries),
    claims: &dyn Fn(&ApiResource, &PartitionHeader) -> bool,
    syncs: bool,
) -> io::Result<Option<Read>> {
    if syncs {
        disk.sync_dir(dir)?;
    }
    let names = disk.list(dir)?;
    let files: Vec<_> = names.iter().filter_map(|name| FileName::parse(name)).collect();
    let mut snapshots: Vec<_> = files.iter().filter_map(FileName::snapshot).collect();
    snapshots.sort_unstable_by(|a, b| b.cmp(a));
    let mut damage = Vec::new();
    for number in snapshots {
        let mut loader = Loader::new(ObjectReader::new(Arc::clone(totals), known)?, claims, syncs);
        let complete = loader.snapshot(disk, dir, number)?;
        if loader.kind.is_none() {
            damage.push(format!("cannot read {}", FileName::Snapshot(number)));
            continue;
        }
        if !complete {
            loader.damage.push(format!("{} is incomplete", FileName::Snapshot(number)));
        }
        let mut deltas: Vec<_> = files.iter().filter_map(|name| name.deltas_of(number)).collect();
        deltas.sort_unstable();
        for part in &deltas {
            loader.deltas(disk, dir, number, *part)?;
        }
        loader.files.snapshot = number;
        loader.files.last_deltas = deltas.last().copied();
        let counts = |name: &&String| FileName::parse(name).is_some_and(|name| name.is_of(number));
        loader.files.leftovers = names.iter().filter(|name| !counts(name)).cloned().collect();
        loader.damage.extend(damage);
        return Ok(loader.finish());
    }
    Ok(None)
}

impl<'l> Loader<'l> {
    fn new(reader: ObjectReader, claims: &'l dyn Fn(&ApiResource, &PartitionHeader) -> bool, syncs: bool) -> Self {
        Self {
            claims,
            reader,
            kind: None,
            partitions: BTreeMap::new(),
            claimed: HashMap::new(),
            fleet: None,
            damage: Vec::new(),
            files: FilesRead::default(),
            syncs,
        }
    }

    /// Reads a snapshot as far as possible. Returns whether it is complete.
    fn snapshot(&mut self, disk: &dyn Disk, dir: &Path, number: u64) -> io::Result<bool> {
        let mut complete = false;
        self.files.snapshot_bytes = self.file(disk, dir, FileName::Snapshot(number), |loader, ops, committed| {
            ops.drain(..).for_each(|op| loader.apply(op));
            complete = committed;
        })?;
        Ok(complete)
    }

    /// Reads a file of changes up to its last commit record.
    fn deltas(&mut self, disk: &dyn Disk, dir: &Path, number: u64, part: u64) -> io::Result<()> {
        self.files.deltas_bytes += self.file(disk, dir, FileName::Deltas(number, part), |loader, ops, committed| {
            if committed {
                loader.fleet = None;
                ops.drain(..).for_each(|op| loader.apply(op));
            }
        })?;
        Ok(())
    }

    /// Reads a file record by record and returns its length. After each record, calls `each` with the decoded changes
    /// and whether the record was a commit record. Changes that `each` does not remove are passed to it again after the
    /// next record.
    fn file(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        name: FileName,
        mut each: impl FnMut(&mut Self, &mut Vec<Op>, bool),
    ) -> io::Result<u64> {
        let file = disk.open(&dir.join(name.to_string()), Open::Read)?;
        let mut reader = Reader::of_file(&*file, salt(name))?;
        let (mut ops, mut marked) = (Vec::new(), 0);
        while let Some(item) = reader.next()? {
            match item {
                Item::Frame { offset, payload } => {
                    let len = payload.len();
                    let Some(committed) = self.record(payload, &mut ops) else {
                        self.damage.push(format!("{name}: cannot decode the record at byte {offset}"));
                        continue;
                    };
                    if committed {
                        marked = offset + (HEADER + len) as u64;
                    }
                    each(self, &mut ops, committed);
                }
                Item::Damage { from, to } => self.damage.push(format!("{name}: bytes {from} to {to} are damaged")),
                // Incomplete end of the file after a crash. An incomplete snapshot is detected by its missing commit
                // record.
                Item::Torn { .. } => {}
            }
        }
        // The last process may have died between writing and syncing. A writer must not continue with volatile data.
        if self.syncs {
            file.sync()?;
        }
        self.files.marked_bytes += marked;
        file.len()
    }

    /// Decodes a record into changes. Returns whether it was a commit record, `None` if it is malformed.
    fn record(&mut self, payload: &[u8], ops: &mut Vec<Op>) -> Option<bool> {
        let view = self.kind.as_ref().map_or(View::Shared, |(_, view)| view.clone());
        match Record::read(payload, &view)? {
            Record::File(resource, view) => self.kind = Some((resource, view)),
            Record::Dictionary(id, bytes) => {
                if !self.reader.dictionary(id, bytes) {
                    return None;
                }
            }
            Record::Partition(number, header) => {
                let (resource, _) = self.kind.as_ref()?;
                self.claimed.insert(number, (self.claims)(resource, &header));
                ops.push(Op::Partition(number, header));
            }
            Record::Objects { partition, heads_len, heads, bodies, is_older } => {
                // Objects before the header of their partition are damage.
                let claimed = *self.claimed.get(&partition)?;
                let (before, len) = (ops.len(), payload.len());
                if claimed {
                    let put = |object| ops.push(Op::Put(partition, object));
                    self.reader.objects((heads_len, heads, bodies), is_older, put)?;
                }
                self.files.objects += (ops.len() - before) as u64;
                if claimed {
                    self.files.object_bytes += len as u64;
                } else {
                    self.files.unwanted_bytes += len as u64;
                }
            }
            Record::Removed(partition, keys) => ops.push(Op::Removed(partition, keys)),
            Record::Dropped(partition) => ops.push(Op::Dropped(partition)),
            Record::Follows(bytes) => {
                if bytes != self.files.marked_bytes {
                    let there = self.files.marked_bytes;
                    self.damage.push(format!("earlier files of the cache have {there} instead of {bytes} bytes"));
                }
            }
            Record::Fleet(fleet) => ops.push(Op::Fleet(fleet)),
            Record::Commit => return Some(true),
        }
        Some(false)
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Partition(number, header) => match self.partitions.get_mut(&number) {
                Some(known) => known.header = header,
                None => {
                    self.partitions.insert(number, ReadPartition { number, header, objects: Gathering::default() });
                }
            },
            Op::Put(number, object) => {
                if let Some(partition) = self.partitions.get_mut(&number) {
                    partition.objects.put(object);
                }
            }
            Op::Removed(number, keys) => {
                if let Some(partition) = self.partitions.get_mut(&number) {
                    for key in &keys {
                        partition.objects.remove(key);
                    }
                }
            }
            Op::Dropped(number) => {
                self.partitions.remove(&number);
            }
            Op::Fleet(fleet) => self.fleet = Some(fleet),
        }
    }

    fn finish(mut self) -> Option<Read> {
        let (resource, view) = self.kind?;
        let dictionaries = self.reader.finish();
        if self.reader.lost {
            self.damage.push("a compression dictionary is lost, so bodies of objects are missing".to_owned());
        }
        if self.reader.unreadable {
            self.damage.push("bodies of objects have fields that this version of Kubernetes' schema lacks".to_owned());
        }
        let of_key = |partition: ReadPartition| (partition.header.key(), partition);
        let partitions = self.partitions.into_values().map(of_key).collect();
        let (plain, fleet, damage, files) = (self.reader.plain, self.fleet, self.damage, self.files);
        Some(Read { resource, view, partitions, dictionaries, plain, fleet, damage, files })
    }
}
