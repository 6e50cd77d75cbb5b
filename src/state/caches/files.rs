//! Writes checkpoints to the files of one resource. A checkpoint appends changes, or rewrites all files if they have
//! grown too large.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::codec::{self, PartitionHeader, PartitionKey, SavedFleet};
use super::file_name::{FileName, directory, salt};
use super::frame_file::FrameFile;
use super::load::{self, FilesRead};
use super::moves::Moves;
use super::objects::Dictionaries;
use super::plan_writer::{Plan, Step, floor_of, key_of, make, put_end, write_objects, write_plan};
use crate::cache::{Partition, PartitionId, Snapshot};
use informer_hub_disk::{Disk, DiskFile, Open, TEMP_SUFFIX};
use informer_hub_types::{ApiResource, Dictionary, View};

mod decide;
mod removed_clusters;

pub use removed_clusters::{PartitionLocation, ReaddedPartitions};

/// Retention of partitions without an informer, in ms.
pub const UNUSED_RETENTION: i64 = 7 * 24 * 3600 * 1000;

/// 1 MiB. Files are rewritten if the changes exceed this size and half of the snapshot, or if all files exceed twice
/// their live data plus this size.
const MIN_REWRITE: u64 = 1 << 20;
/// Number of directories above a resource's directory to sync: version, group, `caches`, state directory.
const ANCESTORS: usize = 4;
/// Assumed size of an object in bytes, until the first object has been written.
const ASSUMED_OBJECT: u64 = 1024;

/// A partition of a cache snapshot that a checkpoint may write, with the readers that have acknowledged it.
#[derive(Clone, Debug)]
pub struct Commit {
    /// ID of the partition in the snapshot.
    pub id: PartitionId,
    /// Names of the readers (sinks and durable subscribers) that have acknowledged every event of the partition.
    pub readers: BTreeSet<String>,
}

/// Result of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckpointResult {
    /// Number of bytes written.
    pub bytes: u64,
    /// Number of new and changed objects; after a rewrite, of all objects of open partitions.
    pub objects: u64,
    /// Whether all files were rewritten.
    pub anew: bool,
    /// Whether files had been removed or replaced by another process.
    pub replaced: bool,
}

/// Last saved state of an open partition (one with an informer). The next checkpoint writes the difference from it.
#[derive(Debug)]
pub(super) struct SavedOpenPartition {
    pub(super) number: u64,
    pub(super) header: PartitionHeader,
    pub(super) partition: Partition,
}

#[derive(Debug)]
struct Deltas {
    name: FileName,
    file: Box<dyn DiskFile>,
    /// Length of the file up to its last commit record, in bytes.
    len: u64,
}

/// Writer of the cache files of one resource and view (form of its objects, such as metadata only).
#[derive(Debug)]
pub struct CacheFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    resource: ApiResource,
    view: View,
    /// Number of the current snapshot file; `None` if the next checkpoint must rewrite all files.
    snapshot: Option<u64>,
    /// The open snapshot file, to detect its removal.
    snapshot_file: Option<Box<dyn DiskFile>>,
    next_snapshot: u64,
    deltas: Option<Deltas>,
    next_part: u64,
    sizes: FilesRead,
    dictionaries: Dictionaries,
    kept: BTreeMap<PartitionKey, SavedOpenPartition>,
    /// Saved partitions without an informer: the number that identifies each in the files, and its header.
    unwanted: BTreeMap<PartitionKey, (u64, PartitionHeader)>,
    /// Closed partitions that the next checkpoint must not drop. For example, a partition has moved to the cache of
    /// another API version, but that cache's files do not contain it yet.
    moved: BTreeSet<PartitionKey>,
    /// Fleet version (version over all clusters) whose complete state is in the files; `None` if they have no complete
    /// state.
    fleet: Option<SavedFleet>,
    next_number: u64,
}

impl CacheFiles {
    /// Creates a writer that ignores existing files. Returns `None` for a private view (objects changed by one
    /// subscriber's transform), which is never saved.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn begin(
        disk: Arc<dyn Disk>,
        root: &std::path::Path,
        resource: ApiResource,
        view: View,
    ) -> io::Result<Option<Self>> {
        let Some(dir) = directory(root, &resource.gvr, &view) else { return Ok(None) };
        make(&*disk, root, &dir)?;
        let names = disk.list(&dir)?;
        let last = names.iter().filter_map(|name| FileName::parse(name)?.snapshot()).max();
        let sizes = FilesRead { leftovers: names, ..FilesRead::default() };
        Ok(Some(Self {
            disk,
            dir,
            resource,
            view,
            snapshot: None,
            snapshot_file: None,
            next_snapshot: last.map_or(1, |last| last + 1),
            deltas: None,
            next_part: 0,
            sizes,
            dictionaries: Dictionaries::default(),
            kept: BTreeMap::new(),
            unwanted: BTreeMap::new(),
            moved: BTreeSet::new(),
            fleet: None,
            next_number: 0,
        }))
    }

    /// Makes the writer append to files that were just loaded.
    pub(super) fn resume(
        &mut self,
        sizes: FilesRead,
        dictionaries: Vec<(u64, Arc<Dictionary>)>,
        kept: BTreeMap<PartitionKey, SavedOpenPartition>,
        unwanted: BTreeMap<PartitionKey, (u64, PartitionHeader)>,
    ) {
        let numbers = kept.values().map(|kept| kept.number).chain(unwanted.values().map(|(number, _)| *number));
        self.next_number = numbers.max().map_or(0, |last| last + 1);
        self.snapshot = Some(sizes.snapshot);
        self.snapshot_file = self.disk.open(&self.path_of(FileName::Snapshot(sizes.snapshot)), Open::Read).ok();
        self.next_part = sizes.last_deltas.map_or(0, |last| last + 1);
        self.dictionaries = Dictionaries::new(dictionaries);
        (self.sizes, self.kept, self.unwanted) = (sizes, kept, unwanted);
    }

    /// Makes the next checkpoint rewrite all files, because they are damaged or of unknown state.
    pub fn rewrite_next(&mut self) {
        self.snapshot = None;
    }

    /// Keeps partitions on disk that were closed in this cache because they moved to the cache of another API version.
    pub fn keep_moved(&mut self, moves: &Moves) {
        self.moved = moves.of(&self.resource.gvr, &self.view);
    }

    /// Returns the resource and the view (form of the objects) whose cache is in the files.
    #[must_use]
    pub fn of(&self) -> (&ApiResource, &View) {
        (&self.resource, &self.view)
    }

    /// Returns whether the current objects and resource versions of a partition are on disk.
    #[must_use]
    pub fn has(&self, partition: &Partition) -> bool {
        let kept = self.kept.get(&key_of(partition));
        kept.is_some_and(|kept| {
            kept.partition.has_objects_of(partition)
                && kept.header.version.as_ref() == partition.resume_version()
                && kept.header.floor == floor_of(partition)
        })
    }

    /// Returns when a partition was last written, in ms since the epoch; zero if never.
    pub(super) fn written(&self, partition: &Partition) -> i64 {
        self.kept.get(&key_of(partition)).map_or(0, |kept| kept.header.written)
    }

    /// Returns the total size of the files in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sizes.snapshot_bytes + self.sizes.deltas_bytes
    }

    /// Saves the changes of the partitions in `commits`, and drops closed partitions that need not be kept. On return
    /// the state is durable. After an error, the files still have the previous state.
    ///
    /// A partition without other changes is saved if its time `alive`, at which it was last up to date, has advanced by
    /// a minute. With `exactly`, any change of `alive` suffices. A partition without any change is saved again an hour
    /// after it was last saved.
    ///
    /// Costs in proportion to the changes. All files are rewritten if the changes exceed half of the snapshot, or if
    /// the files are much larger than their live data.
    ///
    /// # Errors
    /// If the disk fails. The next call tries again, with all changes since the last success.
    pub fn checkpoint(
        &mut self,
        snapshot: &Snapshot,
        commits: &[Commit],
        now: i64,
        exactly: bool,
    ) -> io::Result<CheckpointResult> {
        let replaced = !self.are_in_place();
        if replaced {
            self.recreate()?;
        }
        let plan = self.plan(snapshot, commits, now, exactly);
        let is_new_version = plan.fleet.is_some() && plan.fleet != self.fleet;
        let is_news = !plan.steps.is_empty() || !plan.dropped.is_empty() || is_new_version;
        let is_distrusted = self.snapshot.is_none() && !self.kept.is_empty();
        if !is_news && !is_distrusted {
            return Ok(CheckpointResult { replaced, ..CheckpointResult::default() });
        }
        if self.snapshot.is_none() || self.is_outgrown(&plan) {
            return Ok(CheckpointResult { replaced, ..self.rewrite(plan, now)? });
        }
        self.append_changes(plan, now)
    }

    fn path_of(&self, name: FileName) -> PathBuf {
        self.dir.join(name.to_string())
    }

    /// Returns whether the files are still at their paths.
    fn are_in_place(&self) -> bool {
        let Some(number) = self.snapshot else { return true };
        let is_at = |file: &dyn DiskFile, name: FileName| file.is_at(&self.path_of(name));
        self.snapshot_file.as_ref().is_none_or(|file| is_at(&**file, FileName::Snapshot(number)))
            && self.deltas.as_ref().is_none_or(|deltas| is_at(&*deltas.file, deltas.name))
    }

    /// Recreates the directory and schedules a rewrite from memory. Partitions that were only on disk are lost.
    fn recreate(&mut self) -> io::Result<()> {
        self.disk.create_dir_all(&self.dir)?;
        for above in self.dir.ancestors().skip(1).take(ANCESTORS) {
            self.disk.sync_dir(above)?;
        }
        let names = self.disk.list(&self.dir)?;
        let last = names.iter().filter_map(|name| FileName::parse(name)?.snapshot()).max();
        self.next_snapshot = self.next_snapshot.max(last.map_or(1, |last| last + 1));
        tracing::error!(
            dir = %self.dir.display(),
            "the files of a cache were removed or replaced while the hub runs: rewriting them from memory"
        );
        (self.snapshot, self.snapshot_file, self.deltas) = (None, None, None);
        self.sizes = FilesRead::default();
        self.unwanted.clear();
        Ok(())
    }

    // === changes ===

    fn append_changes(&mut self, plan: Plan, now: i64) -> io::Result<CheckpointResult> {
        let Some(number) = self.snapshot else { return Err(io::ErrorKind::NotFound.into()) };
        let dictionaries = self.dictionaries.clone();
        let mut deltas = match self.deltas.take() {
            Some(deltas) => deltas,
            None => self.create_deltas(number)?,
        };
        let (from, file) = (deltas.len, &mut *deltas.file);
        let mut out = FrameFile::new(file, salt(deltas.name));
        let before = self.sizes.marked_bytes;
        let follows = if from == 0 { out.record(|out| codec::put_follows(before, out)) } else { Ok(()) };
        let written =
            follows.and_then(|()| write_plan(&mut out, &mut self.dictionaries, &plan, now)).and_then(|()| out.finish());
        let done = written.map_err(|error| (error, true)).and_then(|bytes| {
            let synced = deltas.file.sync();
            synced.map(|()| bytes).map_err(|error| (error, false))
        });
        match done {
            Ok(bytes) => {
                let objects = plan.steps.iter().map(|step| step.put.len() as u64).sum();
                deltas.len += bytes;
                self.sizes.marked_bytes += bytes;
                self.deltas = Some(deltas);
                self.sizes.deltas_bytes += bytes;
                self.sizes.objects += objects;
                self.sizes.object_bytes += if objects > 0 { bytes } else { 0 };
                self.apply_plan(plan);
                Ok(CheckpointResult { bytes, objects, ..CheckpointResult::default() })
            }
            Err((error, may_go_on)) => {
                // Removes the incomplete records: a later commit record would make a reader accept them. After a failed
                // sync the contents are unknown even if truncated, so all files are rewritten.
                self.dictionaries = dictionaries;
                if may_go_on && deltas.file.truncate(from).is_ok() {
                    self.deltas = Some(deltas);
                } else {
                    self.snapshot = None;
                }
                Err(error)
            }
        }
    }

    fn create_deltas(&mut self, number: u64) -> io::Result<Deltas> {
        let name = FileName::Deltas(number, self.next_part);
        let mut file = self.disk.open(&self.dir.join(name.to_string()), Open::Append)?;
        // Discards data of a failed attempt.
        file.truncate(0)?;
        self.disk.sync_dir(&self.dir)?;
        self.next_part += 1;
        Ok(Deltas { name, file, len: 0 })
    }

    fn apply_plan(&mut self, plan: Plan) {
        self.fleet = plan.fleet;
        for (key, number) in plan.dropped {
            self.kept.remove(&key);
            self.unwanted.remove(&key);
            self.next_number = self.next_number.max(number + 1);
        }
        for Step { key, number, header, partition, .. } in plan.steps {
            self.next_number = self.next_number.max(number + 1);
            self.kept.insert(key, SavedOpenPartition { number, header, partition });
        }
    }

    // === rewrite ===

    /// Writes new files beside the old ones, which are removed once the new ones are durable.
    fn rewrite(&mut self, mut plan: Plan, now: i64) -> io::Result<CheckpointResult> {
        let number = self.next_snapshot;
        // A number is never used twice, even if this attempt fails.
        self.next_snapshot += 1;
        self.add_unchanged(&mut plan);
        let carried = self.carried(&plan, now);
        let name = FileName::Snapshot(number);
        let path = self.dir.join(name.to_string());
        let unfinished = self.dir.join(format!("{name}{TEMP_SUFFIX}"));
        let mut dictionaries = Dictionaries::default();
        let with = self.dictionaries.last().cloned();
        let written = self.write_file(&unfinished, name, &mut dictionaries, with.as_ref(), &plan, &carried, now);
        let (file, bytes, object_bytes) = written.inspect_err(|_| {
            // Best effort: no reader opens unfinished files.
            let _ = self.disk.remove(&unfinished);
        })?;
        // From here on a restart may find the new snapshot, so the old files must not be continued.
        self.snapshot = None;
        self.disk.rename(&unfinished, &path)?;
        self.disk.sync_dir(&self.dir)?;
        let objects = plan.steps.iter().map(|step| step.put.len() as u64).sum();
        self.unwanted = carried.iter().map(|(key, it)| (key.clone(), (it.number, it.header.clone()))).collect();
        self.kept.clear();
        self.deltas = None;
        self.dictionaries = dictionaries;
        self.next_part = 0;
        self.snapshot = Some(number);
        self.snapshot_file = Some(file);
        let leftovers = self.disk.list(&self.dir).unwrap_or_default();
        let counts = |name: &String| FileName::parse(name).is_some_and(|name| name.is_of(number));
        for name in leftovers.iter().filter(|name| !counts(name)) {
            // The next rewrite retries.
            let _ = self.disk.remove(&self.dir.join(name));
        }
        let sizes = FilesRead {
            snapshot: number,
            snapshot_bytes: bytes,
            objects,
            object_bytes,
            unwanted_bytes: bytes - object_bytes,
            marked_bytes: bytes,
            ..FilesRead::default()
        };
        self.sizes = sizes;
        plan.dropped.clear();
        self.apply_plan(plan);
        Ok(CheckpointResult { bytes, objects, anew: true, ..CheckpointResult::default() })
    }

    /// Reads the saved partitions without an informer, to carry over those within their retention.
    fn carried(&self, plan: &Plan, now: i64) -> BTreeMap<PartitionKey, load::ReadPartition> {
        let is_kept = |header: &PartitionHeader| now.saturating_sub(header.written) <= UNUSED_RETENTION;
        if !self.unwanted.values().any(|(_, header)| is_kept(header)) {
            return BTreeMap::new();
        }
        let wants = |_: &ApiResource, header: &PartitionHeader| {
            let key = header.key();
            self.unwanted.contains_key(&key) && !plan.steps.iter().any(|step| step.key == key) && is_kept(header)
        };
        match load::read(&*self.disk, &self.dir, &Arc::default(), &wants, false) {
            Ok(Some(read)) => {
                let damaged = !read.damage.is_empty();
                let mut carried = read.partitions;
                carried.retain(|_, it| wants(&self.resource, &it.header));
                for it in carried.values_mut() {
                    // If the clock was ahead when the header was written, retention starts now.
                    it.header.written = it.header.written.min(now);
                    if damaged {
                        it.header.set_incomplete();
                    }
                }
                carried
            }
            Ok(None) => BTreeMap::new(),
            Err(error) => {
                tracing::warn!(
                    dir = %self.dir.display(), %error,
                    "dropping saved objects of clusters or resources that are no longer configured: cannot read them"
                );
                BTreeMap::new()
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one step of the rewrite")]
    fn write_file(
        &self,
        path: &std::path::Path,
        name: FileName,
        dictionaries: &mut Dictionaries,
        with: Option<&Arc<Dictionary>>,
        plan: &Plan,
        carried: &BTreeMap<PartitionKey, load::ReadPartition>,
        now: i64,
    ) -> io::Result<(Box<dyn DiskFile>, u64, u64)> {
        let mut file = self.disk.open(path, Open::Append)?;
        file.truncate(0)?;
        let mut out = FrameFile::new(&mut *file, salt(name));
        out.record(|out| codec::put_file(&self.resource, &self.view, out))?;
        for step in &plan.steps {
            out.record(|out| codec::put_partition(step.number, &step.header, out))?;
            write_objects(&mut out, dictionaries, with, step.number, step.put.iter())?;
        }
        let object_bytes = out.len();
        for it in carried.values() {
            out.record(|out| codec::put_partition(it.number, &it.header, out))?;
            write_objects(&mut out, dictionaries, with, it.number, it.objects.iter())?;
        }
        put_end(&mut out, plan, now)?;
        let bytes = out.finish()?;
        file.sync()?;
        Ok((file, bytes, object_bytes))
    }
}
