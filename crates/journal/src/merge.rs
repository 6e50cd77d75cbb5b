//! Merging: combines pending records of the same object, as far as [`Record::merge`] allows, to free disk space.
//!
//! Neighbouring segments that are no longer appended to are rewritten into one new file. Acknowledged records are
//! dropped, and several records of an object are replaced by one. The new file's header lists the segments that it
//! replaces. So the rename that creates the file also replaces them: after a crash, either the old segments count or
//! the new one.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::Path;

use smallvec::SmallVec;

use super::read::{decode, read_upto};
use super::segment::{Header, Name, Segment, write_record};
use super::write::{Journal, head};
use super::{MAX_SEQ, Record, Seq};
use informer_hub_disk::frame;
use informer_hub_disk::{Disk, DiskFile, Open, TEMP_SUFFIX};

/// Maximum bytes of segments merged into one file, unless a single segment is longer. Bounds the extra disk space of a
/// merge.
const CHUNK: u64 = 256 << 20;
/// Bytes of a merged file that are written at a time.
const WRITE: usize = 1 << 20;

/// Result of a merge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Merged {
    /// Pending records in the rewritten segments before the merge.
    pub records_before: u64,
    /// Pending records in the rewritten segments after the merge.
    pub records_after: u64,
    /// Bytes of all files before the merge.
    pub bytes_before: u64,
    /// Bytes of all files after the merge.
    pub bytes_after: u64,
}

/// Position of a record in a [`Chunk`]: index of its segment, and index of its entry in the segment.
type RecordPosition = (u32, u32);

/// Records of one object that are merged into one record, oldest first.
type Run = SmallVec<[RecordPosition; 1]>;

/// Neighbouring segments to be merged, with their open files.
struct Chunk<'j> {
    segments: &'j [Segment],
    files: Vec<Box<dyn DiskFile>>,
}

/// Plan of a merge. `runs` maps the sequence number of each record of the new file to the old records that it replaces.
/// `damaged` is the number of damaged records, which are dropped.
#[derive(Default)]
struct Plan {
    runs: BTreeMap<Seq, Run>,
    damaged: u64,
}

impl<R: Record> Journal<R> {
    /// Frees disk space: merges the pending records with sequence numbers in `range`, per object, and drops
    /// acknowledged records from the rewritten files. An empty range only drops acknowledged records.
    ///
    /// Records that a reader is processing must be outside the range, since a merge may remove their sequence numbers.
    /// A merged record gets the number of the newest one, which keeps the order per object.
    ///
    /// - If the last segment has pending records in the range, a new segment is started first.
    /// - Segments stay as they are if no record can be merged and at most a quarter of their records are acknowledged.
    /// - Disk: the output of one merge, at most 256 MiB or one segment, may exceed the limit.
    /// - Memory: about 60 bytes per pending record of the segments that are merged into one file.
    ///
    /// # Errors
    /// I/O errors of the disk. Segments that were not merged by then are unchanged.
    pub fn merge_pending(&mut self, range: Range<Seq>) -> io::Result<Merged> {
        let mut merged = Merged { bytes_before: self.bytes(), ..Merged::default() };
        let last_in_range = |last: &Segment| last.name.first < range.end && range.start < last.end && last.pending > 0;
        if self.segments.last().is_some_and(last_in_range) {
            self.sync_records()?;
            self.sealed = true;
            self.begin_segment()?;
        }
        self.sync_records()?;
        let mut from = 0;
        while from + 1 < self.segments.len() {
            let to = self.chunk_end(from);
            from = self.merge_chunk(from..to, &range, &mut merged)?;
        }
        self.write_cursor(true);
        self.remove_acked();
        merged.bytes_after = self.bytes();
        Ok(merged)
    }

    /// Returns the index after the last segment of the chunk (segments to merge into one file) that starts with segment
    /// `from`. The journal's last segment, which is appended to, is in no chunk.
    fn chunk_end(&self, from: usize) -> usize {
        let first = self.segments[from].name.first;
        let mut bytes = 0;
        let sealed = &self.segments[from..self.segments.len() - 1];
        let fit = sealed.iter().take_while(|segment| {
            bytes += segment.bytes;
            bytes <= CHUNK && segment.end - first < u64::from(u32::MAX)
        });
        from + fit.count().max(1)
    }

    /// Merges a chunk (neighbouring segments) into one file. Returns the index of the first segment of the next chunk.
    fn merge_chunk(&mut self, chunk: Range<usize>, range: &Range<Seq>, merged: &mut Merged) -> io::Result<usize> {
        let segments = &self.segments[chunk.clone()];
        let (first, last) = (&segments[0], &segments[segments.len() - 1]);
        let pending: u64 = segments.iter().map(|segment| segment.pending as u64).sum();
        let behind = self.segments.get(chunk.end).map(|next| next.name.first);
        if behind == Some(first.name.first) {
            // The new file's name would sort behind the next segment. These segments have no records, unless they are
            // damaged.
            return Ok(chunk.end);
        }
        let end = behind.unwrap_or(last.end).max(last.end);
        let opened = Chunk::open(&*self.disk, segments)?;
        let plan = opened.plan::<R>(range)?;
        if !is_worthwhile(segments, &plan, pending) {
            return Ok(chunk.end);
        }
        let name = Name { first: first.name.first, generation: self.next_generation, merged: true };
        let replaces = segments.iter().map(|segment| segment.name.generation).chain(self.abandoned.iter().copied());
        let header = Header { end, records: plan.runs.len() as u64, replaces: replaces.collect() };
        let written = opened.write::<R>(&self.dir, &*self.disk, name, &header, &plan);
        // A generation that may be on disk is not used again, even after a failure.
        self.next_generation += 1;
        if written.is_err() {
            self.abandoned.push(name.generation);
        }
        let written = written?;
        merged.records_before += pending;
        merged.records_after += plan.runs.len() as u64;
        self.pending -= pending - plan.runs.len() as u64;
        self.lost += plan.damaged;
        self.exchange(chunk.clone(), written, &plan);
        Ok(chunk.start + 1)
    }

    /// Replaces the merged segments with the new one. Marks the records that the merge dropped as acknowledged in the
    /// cursor file, and then removes the files of the merged segments.
    fn exchange(&mut self, chunk: Range<usize>, written: Segment, plan: &Plan) {
        self.reading = None;
        let old: Vec<Segment> = self.segments.splice(chunk, [written]).collect();
        for segment in &old {
            let mut at = 0;
            while let Some(pending) = segment.next_pending(at) {
                let seq = segment.seq(pending);
                if !plan.runs.contains_key(&seq) {
                    self.acked.push(seq);
                }
                at = pending + 1;
            }
        }
        self.write_cursor(true);
        self.replaced_files.extend(old.into_iter().map(|segment| (segment.path, segment.bytes)));
        self.remove_replaced_files();
        self.removals_dirty = true;
    }
}

/// Returns whether a merge is worth its cost: it merges records, or drops many acknowledged ones.
fn is_worthwhile(segments: &[Segment], plan: &Plan, pending: u64) -> bool {
    let all: u64 = segments.iter().map(|segment| segment.entries.len() as u64).sum();
    (plan.runs.len() as u64) < pending || (all - pending) * 4 > all || (segments.len() > 1 && pending == 0)
}

impl<'j> Chunk<'j> {
    fn open(disk: &dyn Disk, segments: &'j [Segment]) -> io::Result<Self> {
        let files = segments.iter().map(|segment| disk.open(&segment.path, Open::Read)).collect::<io::Result<_>>()?;
        Ok(Self { segments, files })
    }

    fn seq(&self, (segment, entry): RecordPosition) -> Seq {
        self.segments[segment as usize].seq(entry as usize)
    }

    /// Reads a record; `None` if it is damaged.
    fn load<R: Record>(&self, place: RecordPosition, frame: &mut Vec<u8>) -> io::Result<Option<R>> {
        let (segment, entry) = (&self.segments[place.0 as usize], place.1 as usize);
        let (from, to) = segment.place(entry);
        frame.resize(usize::try_from(to - from).map_err(io::Error::other)?, 0);
        let read = read_upto(&*self.files[place.0 as usize], from, frame)?;
        Ok(decode(segment, segment.seq(entry), &frame[..read]))
    }

    fn plan<R: Record>(&self, range: &Range<Seq>) -> io::Result<Plan> {
        let mut plan = Plan::default();
        let mut objects: HashMap<u64, Run> = HashMap::new();
        let mut frame = Vec::new();
        for (index, segment) in (0_u32..).zip(self.segments) {
            let mut at = 0;
            while let Some(pending) = segment.next_pending(at) {
                at = pending + 1;
                let place = (index, u32::try_from(pending).map_err(io::Error::other)?);
                let seq = segment.seq(pending);
                match self.load::<R>(place, &mut frame)? {
                    Some(record) if range.contains(&seq) => objects.entry(record.object()).or_default().push(place),
                    Some(_) => _ = plan.runs.insert(seq, Run::from_elem(place, 1)),
                    None => plan.damaged += 1,
                }
            }
        }
        for places in objects.into_values() {
            if places.len() == 1 {
                plan.runs.insert(self.seq(places[0]), places);
            } else {
                self.plan_object::<R>(places, &mut plan, &mut frame)?;
            }
        }
        Ok(plan)
    }

    /// Merges the records of one object, which are at `places`. Adds each resulting record to `plan`, with the old
    /// records that it replaces.
    fn plan_object<R: Record>(&self, places: Run, plan: &mut Plan, frame: &mut Vec<u8>) -> io::Result<()> {
        let mut current: Option<(R, Run)> = None;
        let mut done = |run: Run| plan.runs.insert(self.seq(run[run.len() - 1]), run);
        for place in places {
            let Some(record) = self.load::<R>(place, frame)? else { continue };
            let Some((older, mut run)) = current.take() else {
                current = Some((record, Run::from_elem(place, 1)));
                continue;
            };
            let mut kept = R::merge(older, record);
            current = match (kept.pop(), kept.pop()) {
                (Some(newer), Some(_)) => {
                    done(run);
                    Some((newer, Run::from_elem(place, 1)))
                }
                (Some(one), None) => {
                    run.push(place);
                    Some((one, run))
                }
                (None, _) => None,
            };
        }
        if let Some((_, run)) = current {
            done(run);
        }
        Ok(())
    }

    /// Writes the merged records durably to a file with this name.
    fn write<R: Record>(
        &self,
        dir: &Path,
        disk: &dyn Disk,
        name: Name,
        header: &Header,
        plan: &Plan,
    ) -> io::Result<Segment> {
        let mut segment = Segment::new(dir, name);
        let unfinished = dir.join(format!("{name}{TEMP_SUFFIX}"));
        let mut file = disk.open(&unfinished, Open::Append)?;
        let written = file
            .truncate(0)
            .and_then(|()| self.write_all::<R>(&mut *file, header, plan, &mut segment))
            .and_then(|()| file.sync());
        drop(file);
        let done = written.and_then(|()| disk.rename(&unfinished, &segment.path)).and_then(|()| disk.sync_dir(dir));
        if let Err(error) = done {
            // Best effort: the next open ignores leftovers.
            let _ = disk.remove(&unfinished);
            let _ = disk.remove(&segment.path);
            return Err(error);
        }
        segment.synced = segment.bytes;
        segment.end = header.end;
        Ok(segment)
    }

    fn write_all<R: Record>(
        &self,
        file: &mut dyn DiskFile,
        header: &Header,
        plan: &Plan,
        segment: &mut Segment,
    ) -> io::Result<()> {
        let (mut out, mut frame) = (Vec::with_capacity(WRITE), Vec::new());
        let salt = segment.salt;
        frame::write_with(salt, &mut out, |out| header.encode(out)).map_err(io::Error::other)?;
        for (seq, run) in &plan.runs {
            let record = self.merged::<R>(run, &mut frame)?;
            segment.push(*seq, segment.bytes + out.len() as u64, false)?;
            write_record(salt, *seq, &mut out, |out| record.encode(out)).map_err(io::Error::other)?;
            if out.len() >= WRITE {
                file.append(&out)?;
                segment.bytes += out.len() as u64;
                out.clear();
            }
        }
        file.append(&out)?;
        segment.bytes += out.len() as u64;
        debug_assert!(segment.bytes >= head() && header.end <= MAX_SEQ);
        Ok(())
    }

    fn merged<R: Record>(&self, run: &Run, frame: &mut Vec<u8>) -> io::Result<R> {
        let mut current: Option<R> = None;
        for place in run {
            let changed = || io::Error::other("a record changed while it was merged");
            let record = self.load::<R>(*place, frame)?.ok_or_else(changed)?;
            current = Some(match current {
                None => record,
                Some(older) => match R::merge(older, record) {
                    mut kept if kept.len() == 1 => kept.remove(0),
                    _ => return Err(changed()),
                },
            });
        }
        current.ok_or_else(|| io::Error::other("nothing to merge"))
    }
}
