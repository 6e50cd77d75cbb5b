//! Dead letters of a store: append, list, replay and purge.

use super::{Commit, Letters, Store, StoreError, append_in_parts, is_full, sync};
use crate::{DeadLetter, Event, LetterFilter, LetterSummary};
use informer_hub_journal::{AppendError, Journal};

/// Number of dead letters that are replayed, or dropped to make room, in one step.
const LETTERS_AT_ONCE: usize = 100;
/// Maximum number and bytes of dead letters in one read.
const LETTERS_READ: (usize, usize) = (1000, 16 << 20);

/// Result of replaying dead letters.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Letters moved back into the journal.
    pub count: u64,
    /// Number of the journal's next event after the replay; `None` if no letter was replayed.
    pub end: Option<u64>,
    /// Error that stopped the replay before the remaining letters; `None` if all were replayed.
    pub error: Option<StoreError>,
}

impl Store {
    /// Adds dead letters and makes them durable, if the store is on disk. Drops the oldest ones if there is no room.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn push_letters(&mut self, new: &[DeadLetter]) -> Result<(), StoreError> {
        self.append_letters(&mut new.to_vec())?;
        self.sync_letters()
    }

    /// Makes the dead letters of a commit durable. Their events can then be acknowledged.
    pub(super) fn keep_letters(&mut self, commit: &mut Commit) -> Result<(), StoreError> {
        if commit.letters.is_empty() && commit.acked_with_letters.is_empty() {
            return Ok(());
        }
        self.append_letters(&mut commit.letters)?;
        self.sync_letters()?;
        commit.acked.append(&mut commit.acked_with_letters);
        Ok(())
    }

    /// Handles `error`, which has prevented dead letters from being written. First writes the acknowledgements that
    /// need not wait for these letters. If the disk is full, then removes acknowledged events and writes the letters
    /// again. Returns any other `error`.
    pub(super) fn make_room_for_letters(
        &mut self,
        commit: &mut Commit,
        stored: &mut Vec<Event>,
        error: StoreError,
    ) -> Result<(), StoreError> {
        // New events wait, so that they do not take the space that the letters need.
        let waiting = std::mem::take(&mut commit.events);
        let written = self.append(commit, stored);
        commit.events = waiting;
        written?;
        match (&mut self.journal, &mut self.retained, &error) {
            (Some(journal), Some(retained), StoreError::Disk(source)) if is_full(source) => {
                // After an error, no letter may take the space that the retained events need, as in `append_in_parts`.
                retained.save_on_full_disk(journal).map_err(StoreError::Disk)?;
                self.keep_letters(commit)
            }
            _ => Err(error),
        }
    }

    /// Appends dead letters, and removes the appended ones from `new`.
    fn append_letters(&mut self, new: &mut Vec<DeadLetter>) -> Result<(), StoreError> {
        let letters = match &mut self.letters {
            Letters::Memory(letters) => {
                self.forgotten += new.drain(..).map(|letter| letters.push(letter)).sum::<u64>();
                return Ok(());
            }
            Letters::Journal(letters) => letters,
        };
        let mut most = new.len();
        while !new.is_empty() {
            let count = most.min(new.len());
            match letters.append(&new[..count]) {
                Ok(_) => drop(new.drain(..count)),
                Err(AppendError::Full { .. }) if letters.pending() > 0 => self.forgotten += forget_oldest(letters)?,
                // The new letters together exceed the whole limit.
                Err(AppendError::Full { .. } | AppendError::TooLarge { .. }) if count > 1 => most = count.div_ceil(2),
                Err(error @ (AppendError::Full { .. } | AppendError::TooLarge { .. })) => {
                    let letter = new.remove(0);
                    tracing::error!(
                        dir = %letters.dir().display(), subject = letter.event.subject(), %error,
                        "cannot keep a dead letter; it is lost"
                    );
                    self.forgotten += 1;
                }
                // The journal retains replayed and purged letters for a restart. They are not needed then, so it may
                // remove them.
                Err(AppendError::Retained) => letters.mark_saved(),
                Err(AppendError::Disk(error)) => return Err(StoreError::Disk(error)),
            }
        }
        Ok(())
    }

    fn sync_letters(&mut self) -> Result<(), StoreError> {
        match &mut self.letters {
            Letters::Memory(_) => Ok(()),
            Letters::Journal(letters) => letters.sync().map_err(StoreError::Disk),
        }
    }

    /// Returns how many dead letters were dropped to make room since the last call.
    pub fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    /// Calls `each` with at most `most` letters that meet `filter`, from number `from` on, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn letters(
        &mut self,
        filter: &LetterFilter,
        from: u64,
        most: usize,
        mut each: impl FnMut(u64, DeadLetter),
    ) -> Result<(), StoreError> {
        let mut found = 0;
        match &mut self.letters {
            Letters::Memory(letters) => {
                let fitting = letters.iter().filter(|(number, letter)| *number >= from && filter.fits(letter));
                fitting.take(most).for_each(|(number, letter)| each(*number, letter.clone()));
            }
            Letters::Journal(letters) => {
                let mut from = from;
                while found < most {
                    let read = letters.read(from, LETTERS_READ.0, LETTERS_READ.1).map_err(StoreError::Disk)?;
                    let Some((last, _)) = read.records.last() else { break };
                    from = last + 1;
                    for (number, letter) in read.records.into_iter().filter(|(_, letter)| filter.fits(letter)) {
                        if found < most {
                            found += 1;
                            each(number, letter);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns summaries of at most `most` letters that meet the filter, from number `from` on, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn list_letters(
        &mut self,
        filter: &LetterFilter,
        from: u64,
        most: usize,
    ) -> Result<Vec<LetterSummary>, StoreError> {
        let mut list = Vec::new();
        self.letters(filter, from, most, |number, letter| list.push(letter.summary(number)))?;
        Ok(list)
    }

    /// Removes the letters that meet the filter. Returns how many were removed.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn purge_letters(&mut self, filter: &LetterFilter) -> Result<u64, StoreError> {
        let mut numbers = Vec::new();
        self.letters(filter, 0, usize::MAX, |number, _| numbers.push(number))?;
        self.remove_letters(&numbers)?;
        Ok(numbers.len() as u64)
    }

    /// Removes the letters with these numbers.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn remove_letters(&mut self, numbers: &[u64]) -> Result<(), StoreError> {
        match &mut self.letters {
            Letters::Memory(letters) => letters.remove(numbers),
            Letters::Journal(letters) => {
                letters.ack(numbers.iter().copied());
                letters.release(letters.next_seq());
                letters.sync().map_err(StoreError::Disk)?;
            }
        }
        Ok(())
    }

    /// Returns the letter with this number; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn letter(&mut self, number: u64) -> Result<Option<DeadLetter>, StoreError> {
        let mut found = None;
        self.letters(&LetterFilter::default(), number, 1, |at, letter| found = (at == number).then_some(letter))?;
        Ok(found)
    }

    /// Moves the letters that meet the filter back into the journal, oldest first and under their old ids. If the
    /// journal is full or the disk fails, the remaining letters stay dead letters. Events of a few remaining letters
    /// may nevertheless be in the journal too.
    pub fn replay_letters(&mut self, filter: &LetterFilter) -> Replayed {
        let mut replayed = Replayed::default();
        replayed.error = self.try_replay(filter, &mut replayed).err();
        replayed
    }

    fn try_replay(&mut self, filter: &LetterFilter, replayed: &mut Replayed) -> Result<(), StoreError> {
        // Number of the next letter, so that none is replayed twice.
        let mut from = 0;
        loop {
            let (mut numbers, mut events) = (Vec::new(), Vec::new());
            self.letters(filter, from, LETTERS_AT_ONCE, |number, letter| {
                numbers.push(number);
                events.push(letter.event.replayed());
            })?;
            let Some(last) = numbers.last() else { return Ok(()) };
            from = last + 1;
            let mut appended = Vec::new();
            let done = self.write_again(&mut events, &mut appended);
            if !appended.is_empty() {
                replayed.end = Some(self.state().end);
            }
            self.remove_letters(&numbers[..appended.len()])?;
            replayed.count += appended.len() as u64;
            done?;
        }
    }

    /// Appends replayed events to the journal and moves those that are durable to `written`. The sink's state machine
    /// is not involved, since no sender waits for these events.
    fn write_again(&mut self, events: &mut Vec<Event>, written: &mut Vec<Event>) -> Result<(), StoreError> {
        let (Some(journal), Some(retained)) = (&mut self.journal, &mut self.retained) else { return Ok(()) };
        let mut appended = Vec::new();
        let done = append_in_parts(journal, retained, events, &mut appended);
        sync(journal, appended.first(), &mut self.sync_failed_from)?;
        written.append(&mut appended);
        done.map_err(|error| self.store_error(error))
    }
}

/// Drops the oldest letters to make room. Returns how many.
fn forget_oldest(letters: &mut Journal<DeadLetter>) -> Result<u64, StoreError> {
    let from = letters.first_pending();
    let read = letters.read(from, LETTERS_AT_ONCE, usize::MAX).map_err(StoreError::Disk)?;
    let numbers: Vec<u64> = read.records.iter().map(|(number, _)| *number).chain(read.damaged).collect();
    let count = numbers.len();
    letters.ack(numbers);
    letters.release(letters.next_seq());
    letters.sync().map_err(StoreError::Disk)?;
    Ok(count as u64)
}
