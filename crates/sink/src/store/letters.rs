//! A store's dead letters: kept, listed, replayed, purged.

use super::{Letters, Store, StoreError, append_what_fits, sync};
use crate::{DeadLetter, Event, LetterFilter, LetterSummary};
use informer_hub_journal::{AppendError, Journal};

/// Letters that are taken out to make room for others, at a time.
const LETTERS_AT_ONCE: usize = 100;
/// Letters read at a time, and their bytes.
const LETTERS_READ: (usize, usize) = (1000, 16 << 20);

/// What came of replaying dead letters.
#[derive(Debug, Default)]
pub struct Replayed {
    /// How many are in the journal again, and no letters any more.
    pub count: u64,
    /// The journal's end, where there are some.
    pub end: Option<u64>,
    /// Why others are still letters.
    pub error: Option<StoreError>,
}

impl Store {
    /// Keeps letters, where there is no machine with a journal to do it.
    ///
    /// # Errors
    /// [`StoreError::Disk`]; for want of room the oldest are forgotten.
    pub fn push_letters(&mut self, new: &[DeadLetter]) -> Result<(), StoreError> {
        match &mut self.letters {
            Letters::Memory(letters) => {
                self.forgotten += new.iter().map(|letter| letters.push(letter.clone())).sum::<u64>();
            }
            Letters::Journal(letters) => {
                while let Err(error) = letters.append(new) {
                    match error {
                        AppendError::Full { .. } if letters.pending() > 0 => self.forgotten += forget_oldest(letters)?,
                        // More than all the room that there is.
                        AppendError::Full { .. } | AppendError::TooLarge { .. } if new.len() > 1 => {
                            let (first, second) = new.split_at(new.len() / 2);
                            self.push_letters(first)?;
                            return self.push_letters(second);
                        }
                        error @ (AppendError::Full { .. } | AppendError::TooLarge { .. }) => {
                            tracing::error!(%error, "a dead letter cannot be kept");
                            self.forgotten += new.len() as u64;
                            return Ok(());
                        }
                        // Letters are not remembered once they are gone.
                        AppendError::Retained => letters.mark_saved(),
                        AppendError::Disk(error) => return Err(StoreError::Disk(error)),
                    }
                }
                letters.sync().map_err(StoreError::Disk)?;
            }
        }
        Ok(())
    }

    /// How many dead letters were forgotten for want of room since this was last asked for.
    pub fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    /// Dead letters that fit, from a number on, at most so many; each is handed to `each`.
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

    /// What a list shows of those that fit, the oldest first.
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

    /// Throws those that fit away; how many there were.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn purge_letters(&mut self, filter: &LetterFilter) -> Result<u64, StoreError> {
        let mut numbers = Vec::new();
        self.letters(filter, 0, usize::MAX, |number, _| numbers.push(number))?;
        self.remove_letters(&numbers)?;
        Ok(numbers.len() as u64)
    }

    /// Throws letters away.
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

    /// The letter of this number.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn letter(&mut self, number: u64) -> Result<Option<DeadLetter>, StoreError> {
        let mut found = None;
        self.letters(&LetterFilter::default(), number, 1, |at, letter| found = (at == number).then_some(letter))?;
        Ok(found)
    }

    /// Puts those that fit into the journal again, oldest first, with the ids that they had, and throws them away as
    /// letters. Where the journal takes no more, or the disk refuses, the rest are still letters, and a few may be in both
    /// places.
    pub fn replay_letters(&mut self, filter: &LetterFilter) -> Replayed {
        let mut replayed = Replayed::default();
        replayed.error = self.try_replay(filter, &mut replayed).err();
        replayed
    }

    fn try_replay(&mut self, filter: &LetterFilter, replayed: &mut Replayed) -> Result<(), StoreError> {
        // What is given up meanwhile is not replayed in the same go.
        let mut from = 0;
        loop {
            let (mut numbers, mut events) = (Vec::new(), Vec::new());
            self.letters(filter, from, LETTERS_AT_ONCE, |number, letter| {
                numbers.push(number);
                events.push(letter.event.again());
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

    /// Moves what is in the journal durably to `written`. Apart from what a machine has written: nobody waits for these to
    /// be stored.
    fn write_again(&mut self, events: &mut Vec<Event>, written: &mut Vec<Event>) -> Result<(), StoreError> {
        let (Some(journal), Some(past)) = (&mut self.journal, &mut self.past) else { return Ok(()) };
        let mut appended = Vec::new();
        let done = append_what_fits(journal, past, events, &mut appended);
        sync(journal, appended.first(), &mut self.doubtful)?;
        written.append(&mut appended);
        done.map_err(|error| self.refused(error))
    }
}

/// How many went.
fn forget_oldest(letters: &mut Journal<DeadLetter>) -> Result<u64, StoreError> {
    let from = letters.first_pending();
    let read = letters.read(from, LETTERS_AT_ONCE, usize::MAX).map_err(StoreError::Disk)?;
    let numbers: Vec<u64> = read.records.iter().map(|(number, _)| *number).chain(read.damaged).collect();
    let count = numbers.len();
    tracing::warn!(count, "dead letters have reached their limit, the oldest are forgotten");
    letters.ack(numbers);
    letters.release(letters.next_seq());
    letters.sync().map_err(StoreError::Disk)?;
    Ok(count as u64)
}
