//! What a journal has told of and had to let go of before the caches on disk had caught up: the last word on each object,
//! without its body, in a file beside the journal. What it is for: see [`Told`](crate::Told) and
//! [`Orphans`](crate::Orphans).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::told::identity;
use crate::{Event, EventType};
use informer_hub_disk::frame::{self, Item, Reader};
use informer_hub_disk::{self as disk, Disk, Open};
use informer_hub_journal::{Journal, Record};

const NAME: &str = "told";
const SALT: u32 = 0x746f_6c64;
const FORMAT: u8 = 1;

/// See the module.
#[derive(Debug)]
pub(super) struct Past {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Numbers in the file are lower; `None` without a file.
    upto: Option<u64>,
    /// Whether the file is gone and might come back with the power.
    is_going: bool,
    /// Words that the journal has let go of and the disk has not taken.
    owed: Words,
}

/// The last word on each object, and its number.
type Words = HashMap<u64, (u64, Event)>;

impl Past {
    /// Reads the file, if there is one, to `visit`. What cannot be read of it is forgotten, and said so in the log.
    pub(super) fn open(disk: &Arc<dyn Disk>, directory: &Path, visit: &mut dyn FnMut(&Event)) -> io::Result<Self> {
        let mut past =
            Self { disk: Arc::clone(disk), path: directory.join(NAME), upto: None, is_going: true, owed: Words::new() };
        let mut words: Vec<_> = past.read()?.into_values().collect();
        words.sort_unstable_by_key(|(number, _)| *number);
        past.upto = words.last().map(|(number, _)| number + 1);
        for (_, event) in &words {
            visit(event);
        }
        Ok(past)
    }

    /// Writes down what the journal holds for a restart's sake alone, so that it may let go of it.
    pub(super) fn fold(&mut self, journal: &Journal<Event>) -> io::Result<()> {
        let words = self.gather(journal)?;
        if !words.is_empty() {
            self.write(&words)?;
        }
        self.owed = Words::new();
        Ok(())
    }

    /// The same with a full disk: what the journal lets go of makes the room. A crash before the disk takes it forgets.
    pub(super) fn fold_where_full(&mut self, journal: &mut Journal<Event>) -> io::Result<()> {
        self.owed = self.gather(journal)?;
        journal.mark_saved();
        journal.drop_acked();
        self.fold(journal)
    }

    /// Tries once more to write down what the disk did not take when the journal let go of it.
    pub(super) fn settle(&mut self, journal: &Journal<Event>) {
        if !self.owed.is_empty() && self.fold(journal).is_err() {
            tracing::debug!(file = %self.path.display(), "what was told before is still not on disk");
        }
    }

    /// The caches on disk are not older than this number. Tells whether the journal may let go of what lies before it: not
    /// while there is an older word here, which would be taken for the last one then.
    pub(super) fn release(&mut self, before: u64) -> bool {
        self.owed.retain(|_, (number, _)| *number >= before);
        let is_gone = |removed: io::Result<()>| match removed {
            Ok(()) => true,
            // Somebody else has removed it.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if self.upto.is_some_and(|upto| upto <= before) && is_gone(self.disk.remove(&self.path)) {
            (self.upto, self.is_going) = (None, true);
        }
        if self.upto.is_none() && self.is_going {
            let directory = self.path.parent().unwrap_or(&self.path);
            self.is_going = self.disk.sync_dir(directory).is_err();
        }
        self.upto.is_none() && !self.is_going
    }

    /// The words of the file with those that it does not have yet; none where there are none of these.
    fn gather(&self, journal: &Journal<Event>) -> io::Result<Words> {
        let mut news = self.owed.clone();
        journal.visit_retained(&mut |number, event: Event| {
            if event.event_type() != EventType::Synced && !event.is_again() {
                note(&mut news, number, event.without_body());
            }
        })?;
        if news.is_empty() {
            return Ok(news);
        }
        let mut words = self.read()?;
        for (number, event) in news.into_values() {
            note(&mut words, number, event);
        }
        Ok(words)
    }

    fn read(&self) -> io::Result<Words> {
        let mut words = Words::new();
        let file = match self.disk.open(&self.path, Open::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(words),
            Err(error) => return Err(error),
        };
        let mut reader = Reader::of_file(&*file, SALT)?;
        let mut damaged = 0_u64;
        while let Some(item) = reader.next()? {
            match item {
                Item::Frame { offset: 0, payload: [FORMAT] } => {}
                Item::Frame { payload, .. } => match word(payload) {
                    Some((number, event)) => drop(words.insert(identity(&event), (number, event))),
                    None => damaged += 1,
                },
                Item::Damage { .. } | Item::Torn { .. } => damaged += 1,
            }
        }
        if damaged > 0 {
            tracing::error!(file = %self.path.display(), damaged, "what was told before is damaged: some of it may be told again");
        }
        Ok(words)
    }

    fn write(&mut self, words: &Words) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame::write(SALT, &[FORMAT], &mut bytes).map_err(io::Error::other)?;
        for (number, event) in words.values() {
            let fill = |out: &mut Vec<u8>| {
                out.extend_from_slice(&number.to_le_bytes());
                event.encode(out);
            };
            frame::write_with(SALT, &mut bytes, fill).map_err(io::Error::other)?;
        }
        disk::replace(&*self.disk, &self.path, &bytes)?;
        self.upto = words.values().map(|(number, _)| number + 1).max();
        Ok(())
    }
}

fn note(words: &mut Words, number: u64, event: Event) {
    let object = identity(&event);
    let is_last = |(last, known): &(u64, Event)| *last <= number && follows(known, &event);
    if words.get(&object).is_none_or(is_last) {
        words.insert(object, (number, event));
    }
}

/// Whether an event is not the repetition of an earlier one of its object.
fn follows(before: &Event, event: &Event) -> bool {
    let is_deletion = |event: &Event| event.event_type() == EventType::Deleted;
    is_deletion(event) || !is_deletion(before) && !before.version().newer_than(event.version())
}

fn word(payload: &[u8]) -> Option<(u64, Event)> {
    let (number, event) = payload.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), <Event as Record>::decode(event).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_objects::event;
    use informer_hub_journal::JournalParams;
    use informer_hub_sim::{DiskCall, SimDisk};
    use informer_hub_testing::{replayed, seeds};

    fn journal(disk: &Arc<dyn Disk>) -> Journal<Event> {
        let params = JournalParams { limit_bytes: 64 << 10, segment_bytes: 4 << 10 };
        let mut journal =
            Journal::open(Arc::clone(disk), Path::new("/s/journal"), params, &mut |_, _, _| {}).unwrap().0;
        journal.retain_acked();
        journal
    }

    fn told(disk: &Arc<dyn Disk>) -> (Past, Vec<String>) {
        let mut told = Vec::new();
        let past = Past::open(disk, Path::new("/s"), &mut |event| {
            told.push(format!("{} {}", event.subject(), event.version()));
        });
        (past.unwrap(), told)
    }

    #[test]
    fn what_a_journal_at_its_limit_lets_go_of_is_remembered_until_it_is_released() {
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        informer_hub_disk::make_dir(&*disk, Path::new("/s"), 1).unwrap();
        let (mut journal, (mut past, _)) = (journal(&disk), told(&disk));
        let mut folds = 0;
        for version in 1..200 {
            let events = [event("a", version, 900), event("b", 1, 100)];
            while let Err(error) = journal.append(&events) {
                assert!(matches!(error, informer_hub_journal::AppendError::Retained), "{error}");
                past.fold(&journal).unwrap();
                journal.mark_saved();
                folds += 1;
            }
            journal.sync().unwrap();
            journal.ack([journal.next_seq() - 2, journal.next_seq() - 1]);
            assert!(journal.bytes() <= journal.limit());
        }
        assert!((2..40).contains(&folds), "{folds}");
        journal.sync().unwrap();
        let first = journal.next_seq();
        drop(journal);
        sim.crash();
        let (mut past, words) = told(&disk);
        assert_eq!(words.len(), 2);
        let version: u64 =
            words.iter().find_map(|word| word.strip_prefix("/v1/pods/shop/a ")).unwrap().parse().unwrap();
        assert!(version > 100 && words.contains(&"/v1/pods/shop/b 1".to_owned()), "{words:?}");
        assert!(!past.release(first / 4));
        assert_eq!(told(&disk).1.len(), 2);
        assert!(past.release(first));
        assert_eq!(told(&disk).1.len(), 0);
    }

    #[test]
    fn the_journal_keeps_what_is_newer_until_no_loss_of_power_can_bring_an_older_word_back() {
        let mut came_back = 0;
        for seed in seeds(0..32) {
            let sim = SimDisk::new(seed);
            let disk: Arc<dyn Disk> = Arc::new(sim.clone());
            informer_hub_disk::make_dir(&*disk, Path::new("/s"), 1).unwrap();
            let (mut journal, (mut past, _)) = (journal(&disk), told(&disk));
            for _ in 0..6 {
                journal.append(&[event("a", 1, 2000)]).unwrap();
            }
            journal.sync().unwrap();
            journal.ack(0..journal.next_seq());
            past.fold(&journal).unwrap();
            sim.fail(DiskCall::SyncDir, 1);
            assert!(!past.release(journal.next_seq()));
            sim.kill();
            let (mut past, words) = told(&disk);
            assert!(words.is_empty());
            // Whoever has not seen the removal cannot know whether it is durable.
            let durable = seed % 2 == 0 && past.release(journal.next_seq());
            sim.crash();
            let words = told(&disk).1.len();
            assert!(!durable || words == 0, "seed {seed}");
            came_back += words;
        }
        assert!(came_back > 0 || replayed().is_some(), "the disk loses nothing");
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_written_as_soon_as_it_can_be() {
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        informer_hub_disk::make_dir(&*disk, Path::new("/s"), 1).unwrap();
        let (mut journal, (mut past, _)) = (journal(&disk), told(&disk));
        for name in ["a", "b", "c", "d", "e", "f"] {
            journal.append(&[event(name, 1, 2000)]).unwrap();
        }
        journal.sync().unwrap();
        journal.ack(0..journal.next_seq());
        // The cursor's file, then this one.
        sim.fail(DiskCall::Rename, 2);
        assert!(past.fold_where_full(&mut journal).is_err());
        let after_failure = told(&disk).1.len();
        past.fold(&journal).unwrap();
        assert_eq!(after_failure, 0);
        let written = told(&disk).1.len();
        assert!(written >= 4, "{written}");
        past.fold(&journal).unwrap();
        assert_eq!(told(&disk).1.len(), written, "a fold without news takes nothing away");
    }
}
