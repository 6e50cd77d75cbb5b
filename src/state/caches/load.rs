//! Reads the files of one resource back.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;

use super::codec::{PartitionHeader, PartitionKey, Record};
use super::names::{FileName, salt};
use super::objects::{Dictionaries, ObjectReader};
use crate::cache::Gathering;
use informer_hub_disk::frame::{HEADER, Item, Reader};
use informer_hub_disk::{Disk, Open};
use informer_hub_types::{ApiResource, Dictionary, ObjectKey, PackedTotals, StoredObject, View};

/// A partition as it was read.
#[derive(Debug)]
pub(super) struct ReadPartition {
    pub(super) number: u64,
    pub(super) header: PartitionHeader,
    /// Empty where nobody asked for them.
    pub(super) objects: Gathering,
}

/// What the files of a resource have.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) resource: ApiResource,
    pub(super) view: View,
    pub(super) partitions: BTreeMap<PartitionKey, ReadPartition>,
    /// By their numbers, those that can be read.
    pub(super) dictionaries: Vec<(u64, Arc<Dictionary>)>,
    /// Objects that lie plain.
    pub(super) plain: Vec<Arc<StoredObject>>,
    /// Whether something may be missing, and what of it is known.
    pub(super) damage: Vec<String>,
    pub(super) files: FilesRead,
}

/// Which files there are, and how large.
#[derive(Clone, Debug, Default)]
pub(super) struct FilesRead {
    /// Of the snapshot that counts.
    pub(super) snapshot: u64,
    pub(super) snapshot_bytes: u64,
    /// Of the last file of changes.
    pub(super) last_deltas: Option<u64>,
    pub(super) deltas_bytes: u64,
    /// Bytes of all of them up to their last marks.
    pub(super) marked_bytes: u64,
    /// Objects in records, and how many bytes those take.
    pub(super) objects: u64,
    pub(super) object_bytes: u64,
    /// Bytes of records of partitions that nobody asked for.
    pub(super) unwanted_bytes: u64,
    /// Names that count for nothing.
    pub(super) leftovers: Vec<String>,
}

/// What a change of a file of changes does once it is committed.
enum Op {
    Partition(u64, PartitionHeader),
    Put(u64, Arc<StoredObject>),
    Gone(u64, Vec<ObjectKey>),
    Dropped(u64),
}

struct Loader<'l> {
    /// Whether the objects of a partition are asked for.
    wants: &'l dyn Fn(&ApiResource, &PartitionHeader) -> bool,
    reader: ObjectReader,
    kind: Option<(ApiResource, View)>,
    partitions: BTreeMap<u64, ReadPartition>,
    /// Whether objects of a partition are taken in.
    wanted: HashMap<u64, bool>,
    damage: Vec<String>,
    files: FilesRead,
    /// Whether what is read is made durable.
    syncs: bool,
}

/// Reads what a directory has of a resource, and makes it durable, for who is to go on from it; `None` where it has nothing that could be read.
///
/// # Errors
/// When the disk cannot be read.
pub(super) fn read(
    disk: &dyn Disk,
    dir: &Path,
    totals: &Arc<PackedTotals>,
    wants: &dyn Fn(&ApiResource, &PartitionHeader) -> bool,
    syncs: bool,
) -> io::Result<Option<Read>> {
    read_beside(disk, dir, (totals, &Dictionaries::default()), wants, syncs)
}

/// The same for a cache that has some of it: of dictionaries that it knows it gets no second one.
///
/// # Errors
/// When the disk cannot be read.
pub(super) fn read_beside(
    disk: &dyn Disk,
    dir: &Path,
    (totals, known): (&Arc<PackedTotals>, &Dictionaries),
    wants: &dyn Fn(&ApiResource, &PartitionHeader) -> bool,
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
        let mut loader = Loader::new(ObjectReader::new(Arc::clone(totals), known)?, wants, syncs);
        let complete = loader.snapshot(disk, dir, number)?;
        if loader.kind.is_none() {
            damage.push(format!("{} cannot be read", FileName::Snapshot(number)));
            continue;
        }
        if !complete {
            loader.damage.push(format!("{} does not end as it should", FileName::Snapshot(number)));
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
    fn new(reader: ObjectReader, wants: &'l dyn Fn(&ApiResource, &PartitionHeader) -> bool, syncs: bool) -> Self {
        Self {
            wants,
            reader,
            kind: None,
            partitions: BTreeMap::new(),
            wanted: HashMap::new(),
            damage: Vec::new(),
            files: FilesRead::default(),
            syncs,
        }
    }

    /// Reads a snapshot, as far as it goes; whether it is complete.
    fn snapshot(&mut self, disk: &dyn Disk, dir: &Path, number: u64) -> io::Result<bool> {
        let mut complete = false;
        self.files.snapshot_bytes = self.file(disk, dir, FileName::Snapshot(number), |loader, ops, committed| {
            ops.drain(..).for_each(|op| loader.apply(op));
            complete = committed;
        })?;
        Ok(complete)
    }

    /// Reads a file of changes up to its last mark.
    fn deltas(&mut self, disk: &dyn Disk, dir: &Path, number: u64, part: u64) -> io::Result<()> {
        self.files.deltas_bytes += self.file(disk, dir, FileName::Deltas(number, part), |loader, ops, committed| {
            if committed {
                ops.drain(..).for_each(|op| loader.apply(op));
            }
        })?;
        Ok(())
    }

    /// Reads a file record by record; `each` is told after each of them what has come, and whether it was a mark.
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
                        self.damage.push(format!("{name}: the record at {offset} cannot be read"));
                        continue;
                    };
                    if committed {
                        marked = offset + (HEADER + len) as u64;
                    }
                    each(self, &mut ops, committed);
                }
                Item::Damage { from, to } => self.damage.push(format!("{name}: bytes {from} to {to} are damaged")),
                // The end of what a crash cut off. That of a snapshot is missed anyway.
                Item::Torn { .. } => {}
            }
        }
        // What is gone on from has to stay: the last process may have died between writing it and making it durable.
        if self.syncs {
            file.sync()?;
        }
        self.files.marked_bytes += marked;
        file.len()
    }

    /// Takes one record in; whether it is a mark, or `None` where it is no record.
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
                self.wanted.insert(number, (self.wants)(resource, &header));
                ops.push(Op::Partition(number, header));
            }
            Record::Objects { partition, heads_len, heads, bodies } => {
                // Of a partition whose header is lost it is not known whose they are.
                let wanted = *self.wanted.get(&partition)?;
                let (before, len) = (ops.len(), payload.len());
                if wanted {
                    self.reader.objects((heads_len, heads, bodies), |object| ops.push(Op::Put(partition, object)))?;
                }
                self.files.objects += (ops.len() - before) as u64;
                if wanted {
                    self.files.object_bytes += len as u64;
                } else {
                    self.files.unwanted_bytes += len as u64;
                }
            }
            Record::Gone(partition, keys) => ops.push(Op::Gone(partition, keys)),
            Record::Dropped(partition) => ops.push(Op::Dropped(partition)),
            Record::Follows(bytes) => {
                if bytes != self.files.marked_bytes {
                    let there = self.files.marked_bytes;
                    self.damage.push(format!("of {bytes} bytes that were written before, {there} are there"));
                }
            }
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
            Op::Gone(number, keys) => {
                if let Some(partition) = self.partitions.get_mut(&number) {
                    for key in &keys {
                        partition.objects.remove(key);
                    }
                }
            }
            Op::Dropped(number) => {
                self.partitions.remove(&number);
            }
        }
    }

    fn finish(mut self) -> Option<Read> {
        let (resource, view) = self.kind?;
        let dictionaries = self.reader.finish();
        if self.reader.lost {
            self.damage.push("a dictionary is lost, and with it bodies of objects".to_owned());
        }
        let of_key = |partition: ReadPartition| (partition.header.key(), partition);
        let partitions = self.partitions.into_values().map(of_key).collect();
        let (plain, damage, files) = (self.reader.plain, self.damage, self.files);
        Some(Read { resource, view, partitions, dictionaries, plain, damage, files })
    }
}
