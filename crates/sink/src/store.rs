//! Where a sink keeps what must outlive it: its journal and its dead letters. Blocks; for a thread that may.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use smallvec::SmallVec;

use super::letters::{DeadLetter, MemoryLetters};

use super::machine::Durability;
use super::{Event, InvalidRecord, Orphans, Told};
use informer_hub_disk::Disk;
use informer_hub_journal::{AppendError, Journal, JournalError, JournalParams, Record, Recovery};
use informer_hub_types::{Fsync, StoreLimits, clock};

mod letters;
mod past;

pub use letters::Replayed;
use past::Past;

/// What a machine asks of its store.
#[derive(Debug)]
pub enum Work {
    /// Write this.
    Commit(Commit),
    /// Read what is not acknowledged, from a number on.
    Read {
        /// The first number.
        from: u64,
        /// Events at most.
        events: usize,
        /// Bytes at most.
        bytes: usize,
    },
    /// Make room by merging events of the same object, from a number on.
    Merge {
        /// The first number that may be merged; those before it are in the lanes.
        from: u64,
    },
}

/// What is written in one go.
#[derive(Debug, Default)]
pub struct Commit {
    /// Events for the journal.
    pub events: Vec<Event>,
    /// Numbers that need the journal no more.
    pub acked: Vec<u64>,
    /// Events that were given up.
    pub letters: Vec<DeadLetter>,
    /// Whether to wait until it is safe from a crash of the machine.
    pub sync: bool,
}

/// What came of it.
#[derive(Debug)]
pub enum Done {
    /// It is stored, but for what is left.
    Committed {
        /// Events that are stored, with their numbers.
        events: Vec<Event>,
        /// Others, that are too large for the journal: they are dead letters.
        given_up: u64,
        /// Dead letters that there was no room for any more.
        forgotten: u64,
        /// What is to be tried again, and why.
        left: Option<(Commit, StoreError)>,
        /// How the journal is now.
        state: JournalState,
    },
    /// Events, in order.
    Read {
        /// The events, with their numbers.
        events: Vec<Event>,
        /// Where to go on.
        next: u64,
        /// Events that were there and cannot be read.
        lost: u64,
    },
    /// The journal could not be read.
    NotRead {
        /// Why.
        error: StoreError,
    },
    /// Events were merged.
    Merged {
        /// How many fewer there are.
        freed: u64,
        /// How the journal is now.
        state: JournalState,
    },
}

/// How a journal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalState {
    /// The number behind the last event that is stored.
    pub end: u64,
    /// Events that are not acknowledged.
    pub pending: u64,
    /// Bytes of the journal's files.
    pub bytes: u64,
    /// The most that they may be.
    pub limit: u64,
    /// Dead letters.
    pub letters: u64,
    /// How often its files, or those of dead letters, were found to be gone or others', since the start.
    pub replaced: u64,
    /// Events that were accepted and are in no file any more, since the start.
    pub lost: u64,
}

/// The store takes or gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The journal has reached its limit.
    #[error("the journal is full: {bytes} of {limit} bytes; deliver, purge or raise the sink's journal limit")]
    Full {
        /// Bytes of its files.
        bytes: u64,
        /// Its limit.
        limit: u64,
        /// Whether merging may help.
        mergeable: bool,
    },
    /// An event that the journal cannot hold, by whatever is taken out.
    #[error("{bytes} bytes are too large for the journal, which takes {most} at once; raise the sink's journal limit")]
    TooLarge {
        /// Its bytes.
        bytes: u64,
        /// The most that can be.
        most: u64,
    },
    /// The disk refuses.
    #[error("disk: {0}")]
    Disk(#[source] std::io::Error),
}

/// See the module.
pub struct Store {
    journal: Option<Journal<Event>>,
    /// What the journal has told of and does not have any more; with a journal.
    past: Option<Past>,
    letters: Letters,
    /// Appended, and not synced yet.
    unsynced: Vec<Event>,
    /// From this number on the journal has what a sync that failed was to make durable. Nobody is told of it before one
    /// succeeds: with the power it might go.
    doubtful: Option<u64>,
    /// Bytes when merging last made no room to speak of.
    futile_at: Option<u64>,
    /// Dead letters forgotten for want of room that nobody has asked for yet.
    forgotten: u64,
    /// Events that were lost before it was opened.
    lost_before: u64,
}

enum Letters {
    Memory(MemoryLetters),
    Journal(Box<Journal<DeadLetter>>),
}

/// What was found where a store was opened.
#[derive(Debug)]
pub struct Found {
    /// What the machine goes on from.
    pub durability: Durability,
    /// The last events of objects that the journal has told of and nobody knew.
    pub orphans: Vec<Event>,
    /// What recovery has to say, of the journal and of the dead letters.
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
    /// A store without a journal: dead letters are in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self {
            journal: None,
            past: None,
            letters: Letters::Memory(MemoryLetters::default()),
            unsynced: Vec::new(),
            doubtful: None,
            futile_at: None,
            forgotten: 0,
            lost_before: 0,
        }
    }

    /// Opens, or makes, the store in a directory. Reads through everything that is there; `knows` says whether the caches
    /// on disk have an event's object.
    ///
    /// # Errors
    /// [`JournalError`] when the disk refuses; damage is no error.
    pub fn open(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        limits: StoreLimits,
        fsync: Fsync,
        knows: &dyn Fn(&Event) -> bool,
    ) -> Result<(Self, Found), JournalError> {
        make(disk, directory)?;
        let (mut told, mut orphans) = (Told::default(), Orphans::default());
        let mut note = |event: &Event| {
            told.note(event);
            orphans.note(event, knows(event));
        };
        let failed = |source| JournalError::Disk { file: directory.to_owned(), verb: "read", source };
        let past = Past::open(disk, directory, &mut note).map_err(failed)?;
        let (at, params) = (directory.join("journal"), sized(limits.journal));
        let (mut journal, of_events) = Journal::open(Arc::clone(disk), &at, params, &mut |_, event, _| note(event))?;
        journal.retain_acked();
        let params = sized(limits.letters);
        let (letters, of_letters) =
            Journal::open(Arc::clone(disk), &directory.join("dead"), params, &mut |_, _: &DeadLetter, _| {})?;
        let store = Self {
            lost_before: journal.lost(),
            doubtful: (!journal.is_synced()).then(|| journal.accepted()),
            journal: Some(journal),
            past: Some(past),
            letters: Letters::Journal(Box::new(letters)),
            unsynced: Vec::new(),
            futile_at: None,
            forgotten: 0,
        };
        let is_settled = store.doubtful.is_none();
        let durability = Durability { fsync, told, first: store.first(), state: store.state(), is_settled };
        Ok((store, Found { durability, orphans: orphans.into_events(), recovery: [of_events, of_letters] }))
    }

    /// The first number that is not acknowledged.
    fn first(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::first_pending)
    }

    /// How the journal is.
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
            end: self.doubtful.unwrap_or(journal.next_seq()),
            pending: journal.pending(),
            bytes: journal.bytes(),
            limit: journal.limit(),
            letters,
            replaced: journal.replaced() + dead.map_or(0, Journal::replaced),
            lost: journal.lost() - self.lost_before,
        }
    }

    /// What is acknowledged and has a lower number may go: the caches on disk are not older.
    pub fn release(&mut self, before: u64) {
        let (Some(journal), Some(past)) = (&mut self.journal, &mut self.past) else { return };
        if past.release(before) {
            journal.release(before);
        }
    }

    /// Sees that what it has on disk is still there, and writes it anew where somebody has removed it. Tells how the journal
    /// is where that was so.
    ///
    /// # Errors
    /// The disk's; the next call tries again.
    pub fn tend(&mut self) -> Result<Option<JournalState>, StoreError> {
        let before = self.state().replaced;
        if let Some(journal) = &mut self.journal {
            journal.check_files().map_err(StoreError::Disk)?;
        }
        if let Letters::Journal(letters) = &mut self.letters {
            letters.check_files().map_err(StoreError::Disk)?;
        }
        Ok(Some(self.state()).filter(|state| state.replaced > before))
    }

    /// Does what a machine asks for.
    pub fn run(&mut self, work: Work) -> Done {
        match work {
            Work::Commit(commit) => self.commit(commit),
            Work::Read { from, events, bytes } => self.read(from, events, bytes),
            Work::Merge { from } => self.merge(from),
        }
    }

    /// Letters first, then what they stand for is acknowledged, so that nothing is in neither place; then events, for
    /// which there may be more room now.
    fn commit(&mut self, mut commit: Commit) -> Done {
        let (mut events, mut given_up) = (Vec::new(), 0);
        let left = loop {
            match self.keep_letters(&mut commit).and_then(|()| self.append(&mut commit, &mut events)) {
                Ok(()) => break None,
                // It would stand in everybody's way for ever.
                Err(error @ StoreError::TooLarge { .. }) if !commit.events.is_empty() => {
                    let event = commit.events.remove(0);
                    tracing::error!(subject = event.subject(), %error, "event given up");
                    given_up += 1;
                    let at = clock::wall();
                    commit.letters.push(DeadLetter { event, attempts: 0, error: error.to_string(), at });
                }
                Err(error) => break Some((commit, error)),
            }
        };
        Done::Committed { events, given_up, forgotten: self.take_forgotten(), left, state: self.state() }
    }

    fn keep_letters(&mut self, commit: &mut Commit) -> Result<(), StoreError> {
        if !commit.letters.is_empty() {
            self.push_letters(&commit.letters)?;
            commit.letters.clear();
        }
        Ok(())
    }

    /// Moves what is stored to `stored`. Events that were appended and could not be synced stay here, and are synced with
    /// the next.
    fn append(&mut self, commit: &mut Commit, stored: &mut Vec<Event>) -> Result<(), StoreError> {
        let (Some(journal), Some(past)) = (&mut self.journal, &mut self.past) else { return Ok(()) };
        journal.ack(std::mem::take(&mut commit.acked));
        past.settle(journal);
        let appended = append_what_fits(journal, past, &mut commit.events, &mut self.unsynced);
        // Acknowledgements go even where there is no room for events.
        if commit.sync || appended.is_err() || self.doubtful.is_some() {
            sync(journal, self.unsynced.first(), &mut self.doubtful)?;
        }
        stored.append(&mut self.unsynced);
        appended.map_err(|error| self.refused(error))
    }

    fn refused(&self, error: AppendError) -> StoreError {
        match error {
            AppendError::Disk(error) => StoreError::Disk(error),
            AppendError::TooLarge { bytes, most } => StoreError::TooLarge { bytes, most },
            AppendError::Retained => StoreError::Disk(std::io::Error::other("what was told cannot be written down")),
            AppendError::Full { bytes, limit, .. } => {
                let mergeable = self.futile_at.is_none_or(|futile| bytes > futile + limit / 8 || bytes < futile);
                StoreError::Full { bytes, limit, mergeable }
            }
        }
    }

    fn read(&mut self, from: u64, events: usize, bytes: usize) -> Done {
        let Some(journal) = &mut self.journal else { return Done::Read { events: Vec::new(), next: from, lost: 0 } };
        match journal.read(from, events.max(1), bytes.max(1)) {
            Err(error) => Done::NotRead { error: StoreError::Disk(error) },
            Ok(read) => {
                let numbered = |(number, mut event): (u64, Event)| {
                    event.set_sequence(number);
                    event
                };
                let next = read.records.last().map_or(journal.next_seq(), |(number, _)| number + 1);
                let lost = read.damaged.len() as u64;
                Done::Read { events: read.records.into_iter().map(numbered).collect(), next, lost }
            }
        }
    }

    fn merge(&mut self, from: u64) -> Done {
        let (Some(journal), Some(past)) = (&mut self.journal, &mut self.past) else {
            return Done::Merged { freed: 0, state: JournalState::default() };
        };
        // A merge takes out what is acknowledged.
        if let Err(error) = past.fold(journal) {
            return Done::NotRead { error: StoreError::Disk(error) };
        }
        let (before, bytes) = (journal.pending(), journal.bytes());
        if let Err(error) = journal.merge_pending(from..journal.next_seq()) {
            return Done::NotRead { error: StoreError::Disk(error) };
        }
        let freed = bytes.saturating_sub(journal.bytes());
        self.futile_at = (freed < journal.limit() / 8).then_some(journal.bytes());
        Done::Merged { freed: before.saturating_sub(journal.pending()), state: self.state() }
    }
}

/// Makes a sink's directories, durably: the name of each is in the one above it.
fn make(disk: &Arc<dyn Disk>, directory: &Path) -> Result<(), JournalError> {
    let failed = |file: &Path, verb, source| JournalError::Disk { file: file.to_owned(), verb, source };
    for part in ["journal", "dead"].map(|part| directory.join(part)) {
        disk.create_dir_all(&part).map_err(|error| failed(&part, "made", error))?;
    }
    // The sink's, all sinks', the state's.
    let mut above = directory.ancestors().take(3);
    above.try_for_each(|above| disk.sync_dir(above).map_err(|error| failed(above, "synced", error)))
}

/// Appends events, in parts where they are too many for one go, and moves those that are appended.
fn append_what_fits(
    journal: &mut Journal<Event>,
    past: &mut Past,
    events: &mut Vec<Event>,
    appended: &mut Vec<Event>,
) -> Result<(), AppendError> {
    let (mut most, mut folded) = (events.len(), false);
    while !events.is_empty() {
        let count = most.min(events.len());
        let some = &mut events[..count];
        for (number, event) in (journal.next_seq()..).zip(some.iter_mut()) {
            event.set_sequence(number);
        }
        match journal.append(some) {
            Ok(_) => appended.extend(events.drain(..count)),
            Err(AppendError::TooLarge { .. } | AppendError::Full { .. }) if count > 1 => most = count.div_ceil(2),
            Err(AppendError::Retained) => match past.fold(journal) {
                Ok(()) => journal.mark_saved(),
                Err(error) if is_full(&error) && !folded => {
                    folded = true;
                    past.fold_where_full(journal)?;
                }
                Err(error) => return Err(error.into()),
            },
            Err(AppendError::Disk(error)) if is_full(&error) && !folded => {
                folded = true;
                past.fold_where_full(journal)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Syncs, or notes from where on that has failed; `first` is the first event that was appended since the last.
fn sync(journal: &mut Journal<Event>, first: Option<&Event>, doubtful: &mut Option<u64>) -> Result<(), StoreError> {
    let synced = journal.sync();
    *doubtful = match (&synced, first.and_then(Event::sequence)) {
        (Ok(()), _) => None,
        (Err(_), Some(first)) => Some(doubtful.map_or(first, |known| known.min(first))),
        (Err(_), None) => *doubtful,
    };
    synced.map_err(StoreError::Disk)
}

fn is_full(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::StorageFull
}

/// Segments of 8 MiB, and of an eighth of what is less than 64 MiB.
fn sized(limit_bytes: u64) -> JournalParams {
    JournalParams { limit_bytes, segment_bytes: (limit_bytes / 8).min(8 << 20) }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("state", &self.state()).finish_non_exhaustive()
    }
}
