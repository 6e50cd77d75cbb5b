//! Persistent state of a sink: its journal ([`informer_hub_journal`]) and its dead letters. All calls block on I/O.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use smallvec::SmallVec;

use super::letters::{DeadLetter, MemoryLetters};
use super::work::{Commit, Done, Durability, JournalState, StoreError, Work};
use super::{Event, InvalidRecord, LastDelivered, Uncheckpointed};
use informer_hub_disk::Disk;
use informer_hub_journal::{AppendError, Journal, JournalError, JournalParams, Record, Recovery};
use informer_hub_types::{Fsync, StoreLimits, clock};

mod letters;
mod retained;

pub use letters::Replayed;
use retained::RetainedEvents;

/// Journal and dead letters of one sink, on disk or in memory.
pub struct Store {
    journal: Option<Journal<Event>>,
    /// Last events of objects whose events the journal has removed early, before a checkpoint wrote the objects' states
    /// to disk. `None` without a journal.
    retained: Option<RetainedEvents>,
    letters: Letters,
    /// Events appended to the journal, but not yet synced or passed to the sink's state machine.
    unsynced: Vec<Event>,
    /// Journal number of the first event whose sync has failed; `None` if no sync has failed since the last success.
    /// Events from this number on are not delivered before a sync succeeds: a power failure might lose them.
    sync_failed_from: Option<u64>,
    /// Size of the journal in bytes after the last merge of events, if the merge freed less than an eighth of the size
    /// limit. Another merge at about this size is futile.
    futile_merge_bytes: Option<u64>,
    /// Number of dead letters that were dropped to make room since [`Self::take_forgotten`] last returned it.
    forgotten: u64,
    /// Number of lost events that the journal had counted when the store was opened. [`Self::state`] subtracts it, to
    /// report only later losses.
    lost_before: u64,
}

enum Letters {
    Memory(MemoryLetters),
    Journal(Box<Journal<DeadLetter>>),
}

/// Result of opening a store.
#[derive(Debug)]
pub struct OpenedStore {
    /// State of the journal, for the sink's state machine.
    pub durability: Durability,
    /// Last journaled events of objects whose states are missing from the caches on disk.
    pub uncheckpointed: Vec<Event>,
    /// Findings about the files when they were opened, such as lost or damaged records: first those of the journal,
    /// then those of the dead letters.
    pub recovery: [Recovery; 2],
}

impl Record for Event {
    type Error = InvalidRecord;

    fn encode(&self, out: &mut Vec<u8>) {
        Event::encode(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, InvalidRecord> {
        Event::decode(bytes, None)
    }

    fn object(&self) -> u64 {
        self.lane_hash()
    }

    fn merge(older: Self, newer: Self) -> SmallVec<[Self; 2]> {
        Event::merge(older, newer)
    }
}

impl Record for DeadLetter {
    type Error = InvalidRecord;

    fn encode(&self, out: &mut Vec<u8>) {
        DeadLetter::encode(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, InvalidRecord> {
        DeadLetter::decode(bytes)
    }

    fn object(&self) -> u64 {
        self.event.lane_hash()
    }

    fn merge(older: Self, newer: Self) -> SmallVec<[Self; 2]> {
        [older, newer].into_iter().collect()
    }
}

impl Store {
    /// Creates a store without a journal; dead letters are in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            journal: None,
            retained: None,
            letters: Letters::Memory(MemoryLetters::default()),
            unsynced: Vec::new(),
            sync_failed_from: None,
            futile_merge_bytes: None,
            forgotten: 0,
            lost_before: 0,
        }
    }

    /// Opens or creates the store in a directory, and reads all events of its journal. `knows` returns whether the
    /// caches on disk have the object of an event in this state or a newer one.
    ///
    /// # Errors
    /// [`JournalError`] if the disk fails; damaged records are not an error.
    pub fn open(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        limits: StoreLimits,
        fsync: Fsync,
        knows: &dyn Fn(&Event) -> bool,
    ) -> Result<(Self, OpenedStore), JournalError> {
        make_dirs(disk, directory)?;
        let (mut last_delivered, mut uncheckpointed) = (LastDelivered::default(), Uncheckpointed::default());
        let mut note = |event: &Event| {
            last_delivered.note(event);
            uncheckpointed.note(event, knows(event));
        };
        let failed = |source| JournalError::Disk { file: directory.to_owned(), verb: "read", source };
        let retained = RetainedEvents::open(disk, directory, &mut note).map_err(failed)?;
        let (at, params) = (directory.join("journal"), sized(limits.journal));
        let (mut journal, of_events) = Journal::open(Arc::clone(disk), &at, params, &mut |_, event, _| note(event))?;
        journal.retain_acked();
        let params = sized(limits.letters);
        let (letters, of_letters) =
            Journal::open(Arc::clone(disk), &directory.join("dead"), params, &mut |_, _: &DeadLetter, _| {})?;
        let store = Self {
            lost_before: journal.lost(),
            sync_failed_from: (!journal.is_synced()).then(|| journal.accepted()),
            journal: Some(journal),
            retained: Some(retained),
            letters: Letters::Journal(Box::new(letters)),
            unsynced: Vec::new(),
            futile_merge_bytes: None,
            forgotten: 0,
        };
        let is_settled = store.sync_failed_from.is_none();
        let durability = Durability { fsync, last_delivered, first: store.first(), state: store.state(), is_settled };
        Ok((
            store,
            OpenedStore { durability, uncheckpointed: uncheckpointed.into_events(), recovery: [of_events, of_letters] },
        ))
    }

    /// Returns the journal number of the first unacknowledged event.
    fn first(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::first_pending)
    }

    /// Returns the size and counters of the journal.
    #[must_use]
    pub fn state(&self) -> JournalState {
        let letters = match &self.letters {
            Letters::Memory(letters) => letters.len() as u64,
            Letters::Journal(letters) => letters.pending(),
        };
        let dead = match &self.letters {
            Letters::Memory(_) => None,
            Letters::Journal(letters) => Some(&**letters),
        };
        let Some(journal) = &self.journal else { return JournalState { letters, ..JournalState::default() } };
        JournalState {
            end: self.sync_failed_from.unwrap_or(journal.next_seq()),
            pending: journal.pending(),
            bytes: journal.bytes(),
            limit: journal.limit(),
            letters,
            replaced: journal.replaced() + dead.map_or(0, Journal::replaced),
            lost: journal.lost() - self.lost_before,
        }
    }

    /// Allows the journal to remove acknowledged events with numbers below `before`. The caller ensures that the caches
    /// on disk have the object states of these events.
    pub fn release(&mut self, before: u64) {
        let (Some(journal), Some(retained)) = (&mut self.journal, &mut self.retained) else { return };
        if retained.release(before) {
            journal.release(before);
        }
    }

    /// Checks that the files are still on disk, and writes missing ones again. Returns the journal's state if any was
    /// missing.
    ///
    /// # Errors
    /// The I/O error; the next call tries again.
    pub fn check_files(&mut self) -> Result<Option<JournalState>, StoreError> {
        let before = self.state().replaced;
        if let Some(journal) = &mut self.journal {
            journal.check_files().map_err(StoreError::Disk)?;
        }
        if let Letters::Journal(letters) = &mut self.letters {
            letters.check_files().map_err(StoreError::Disk)?;
        }
        Ok(Some(self.state()).filter(|state| state.replaced > before))
    }

    /// Performs work requested by the sink's state machine.
    pub fn run(&mut self, work: Work) -> Done {
        match work {
            Work::Commit(commit) => self.commit(commit),
            Work::Read { from, events, bytes } => self.read(from, events, bytes),
            Work::Merge { from } => self.merge(from),
        }
    }

    /// Performs a commit. Dead letters are written before the acknowledgements of their events, so that a crash loses
    /// no event. Events are appended last, since the acknowledgements may have made room.
    fn commit(&mut self, mut commit: Commit) -> Done {
        let (mut events, mut given_up) = (Vec::new(), 0);
        let left = loop {
            let kept = self.keep_letters(&mut commit);
            let kept = kept.or_else(|error| self.make_room_for_letters(&mut commit, &mut events, error));
            match kept.and_then(|()| self.append(&mut commit, &mut events)) {
                Ok(()) => break None,
                Err(error @ StoreError::TooLarge { .. }) if !commit.events.is_empty() => {
                    if let Err(error) = self.give_up_too_large(&mut commit.events, &error) {
                        break Some((commit, error));
                    }
                    given_up += 1;
                }
                Err(error) => break Some((commit, error)),
            }
        };
        Done::Committed { events, given_up, forgotten: self.take_forgotten(), left, state: self.state() }
    }

    /// Makes the first event a dead letter, because it is too large for the journal. Otherwise it would wait for room
    /// and block all later events.
    fn give_up_too_large(&mut self, events: &mut Vec<Event>, error: &StoreError) -> Result<(), StoreError> {
        let Some(event) = events.first().cloned() else { return Ok(()) };
        let letter = DeadLetter { event, attempts: 0, error: error.to_string(), at: clock::wall() };
        self.push_letters(&[letter])?;
        let event = events.remove(0);
        let dir = self.journal.as_ref().map(|journal| journal.dir().display().to_string());
        tracing::error!(
            dir, subject = event.subject(), %error,
            "event is too large for the journal; moved it to the dead letters"
        );
        Ok(())
    }

    /// Appends the events of a commit and moves them to `stored`. If the sync fails, they stay in `unsynced` and are
    /// synced with the next commit.
    fn append(&mut self, commit: &mut Commit, stored: &mut Vec<Event>) -> Result<(), StoreError> {
        let (Some(journal), Some(retained)) = (&mut self.journal, &mut self.retained) else { return Ok(()) };
        journal.ack(std::mem::take(&mut commit.acked));
        retained.save_unsaved(journal);
        let appended = append_in_parts(journal, retained, &mut commit.events, &mut self.unsynced);
        // Acknowledgements are written even if there is no room for events.
        if commit.sync || appended.is_err() || self.sync_failed_from.is_some() {
            sync_making_room(journal, retained, self.unsynced.first(), &mut self.sync_failed_from)?;
        } else {
            journal.write_acks();
        }
        stored.append(&mut self.unsynced);
        appended.map_err(|error| self.store_error(error))
    }

    fn store_error(&self, error: AppendError) -> StoreError {
        match error {
            AppendError::Disk(error) => StoreError::Disk(error),
            AppendError::TooLarge { bytes, most } => StoreError::TooLarge { bytes, most },
            AppendError::Retained => StoreError::Disk(std::io::Error::other("cannot save retained events")),
            AppendError::Full { bytes, limit, .. } => {
                let mergeable =
                    self.futile_merge_bytes.is_none_or(|futile| bytes > futile + limit / 8 || bytes < futile);
                StoreError::Full { bytes, limit, mergeable }
            }
        }
    }

    /// Reads unacknowledged events, from number `from` on. Events that a failed sync may have lost are left out.
    fn read(&mut self, from: u64, events: usize, bytes: usize) -> Done {
        let Some(journal) = &mut self.journal else { return Done::Read { events: Vec::new(), next: from, lost: 0 } };
        match journal.read(from, events.max(1), bytes.max(1)) {
            Err(error) => Done::NotRead { error: StoreError::Disk(error) },
            Ok(mut read) => {
                let end = self.sync_failed_from.unwrap_or(journal.next_seq());
                read.records.retain(|(number, _)| *number < end);
                let numbered = |(number, mut event): (u64, Event)| {
                    event.set_sequence(number);
                    event
                };
                let next = read.records.last().map_or(end, |(number, _)| number + 1);
                let lost = read.damaged.len() as u64;
                Done::Read { events: read.records.into_iter().map(numbered).collect(), next, lost }
            }
        }
    }

    fn merge(&mut self, from: u64) -> Done {
        let (Some(journal), Some(retained)) = (&mut self.journal, &mut self.retained) else {
            return Done::Merged { freed: 0, state: JournalState::default() };
        };
        // Save the retained events first, since a merge removes acknowledged events.
        if let Err(error) = retained.save(journal) {
            return Done::NotMerged { error: StoreError::Disk(error) };
        }
        let (before, bytes) = (journal.pending(), journal.bytes());
        if let Err(error) = journal.merge_pending(from..journal.next_seq()) {
            return Done::NotMerged { error: StoreError::Disk(error) };
        }
        let freed = bytes.saturating_sub(journal.bytes());
        self.futile_merge_bytes = (freed < journal.limit() / 8).then_some(journal.bytes());
        Done::Merged { freed: before.saturating_sub(journal.pending()), state: self.state() }
    }
}

/// Creates a sink's directories durably: each directory's parent is synced too.
fn make_dirs(disk: &Arc<dyn Disk>, directory: &Path) -> Result<(), JournalError> {
    let failed = |file: &Path, verb, source| JournalError::Disk { file: file.to_owned(), verb, source };
    for part in ["journal", "dead"].map(|part| directory.join(part)) {
        disk.create_dir_all(&part).map_err(|error| failed(&part, "create", error))?;
    }
    // The directory of the sink, that of all sinks, and the state directory.
    let mut above = directory.ancestors().take(3);
    above.try_for_each(|above| disk.sync_dir(above).map_err(|error| failed(above, "sync", error)))
}

/// Appends events to the journal and moves them from `events` to `appended`. Uses several writes if there are too many
/// events for one.
fn append_in_parts(
    journal: &mut Journal<Event>,
    retained: &mut RetainedEvents,
    events: &mut Vec<Event>,
    appended: &mut Vec<Event>,
) -> Result<(), AppendError> {
    let (mut most, mut saved) = (events.len(), false);
    while !events.is_empty() {
        let count = most.min(events.len());
        let some = &mut events[..count];
        for (number, event) in (journal.next_seq()..).zip(some.iter_mut()) {
            event.set_sequence(number);
        }
        match journal.append(some) {
            Ok(_) => appended.extend(events.drain(..count)),
            Err(AppendError::TooLarge { .. } | AppendError::Full { .. }) if count > 1 => most = count.div_ceil(2),
            Err(AppendError::Retained) => match retained.save(journal) {
                Ok(()) => journal.mark_saved(),
                Err(error) if is_full(&error) && !saved => {
                    saved = true;
                    retained.save_on_full_disk(journal)?;
                }
                Err(error) => return Err(error.into()),
            },
            Err(AppendError::Disk(error)) if is_full(&error) && !saved => {
                saved = true;
                // After an error, no event may take the space that the retained events need. They tell a restart which
                // objects the receiver has.
                retained.save_on_full_disk(journal)?;
            }
            Err(AppendError::Disk(error)) if is_full(&error) && count > 1 => most = count.div_ceil(2),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Syncs the journal to disk. `first` is the first event appended since the last sync. Sets `failed_from` to the number
/// of the first unsynced event, or to `None` if all are synced.
fn sync(journal: &mut Journal<Event>, first: Option<&Event>, failed_from: &mut Option<u64>) -> Result<(), StoreError> {
    let synced = journal.sync();
    *failed_from = match (&synced, first.and_then(Event::sequence)) {
        (Ok(()), _) => None,
        (Err(_), Some(first)) => Some(failed_from.map_or(first, |known| known.min(first))),
        (Err(_), None) => *failed_from,
    };
    synced.map_err(StoreError::Disk)
}

/// Syncs the journal to disk. If the disk is full, removes acknowledged events and syncs again. After a start, a sync
/// may need space because it writes the last events again.
fn sync_making_room(
    journal: &mut Journal<Event>,
    retained: &mut RetainedEvents,
    first: Option<&Event>,
    failed_from: &mut Option<u64>,
) -> Result<(), StoreError> {
    match sync(journal, first, failed_from) {
        Err(StoreError::Disk(error)) if is_full(&error) => {
            // Ignore the error: the next commit tries again to save the events.
            let _ = retained.save_on_full_disk(journal);
            sync(journal, first, failed_from)
        }
        synced => synced,
    }
}

fn is_full(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::StorageFull
}

/// Returns the parameters of a journal with this size limit. Its files have an eighth of the limit each, at most 8 MiB.
fn sized(limit_bytes: u64) -> JournalParams {
    JournalParams { limit_bytes, segment_bytes: (limit_bytes / 8).min(8 << 20) }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("state", &self.state()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
