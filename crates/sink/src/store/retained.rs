//! Last events of objects whose events the journal has removed early, before a checkpoint wrote the objects' states to
//! disk.
//!
//! When a journal reaches its size limit, it removes acknowledged events early. The last event of each object is then
//! written, without its body, to a file beside the journal. [`LastDelivered`](crate::LastDelivered) and
//! [`Uncheckpointed`](crate::Uncheckpointed) need these events after a restart.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::last_delivered::identity;
use crate::{Event, EventType};
use informer_hub_disk::frame::{self, Item, Reader};
use informer_hub_disk::{self as disk, Disk, Open};
use informer_hub_journal::{Journal, Record};

const NAME: &str = "told";
const SALT: u32 = 0x746f_6c64;
const FORMAT: u8 = 1;

/// File with the last events that the journal has removed; see the module documentation.
#[derive(Debug)]
pub(super) struct RetainedEvents {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Highest journal number of an event in the file, plus one; `None` if there is no file.
    end: Option<u64>,
    /// Whether the file's removal is not durable yet, so that it may reappear after a power failure.
    removal_unsynced: bool,
    /// Events that the journal has removed before they could be written to the file.
    unsaved: LastEvents,
}

/// Last event of each object with its journal number, by the hash of the object's identity.
type LastEvents = HashMap<u64, (u64, Event)>;

impl RetainedEvents {
    /// Opens the file of retained events, if there is one, and passes its events to `visit`. Damaged records are
    /// skipped and logged.
    pub(super) fn open(disk: &Arc<dyn Disk>, directory: &Path, visit: &mut dyn FnMut(&Event)) -> io::Result<Self> {
        let mut retained = Self {
            disk: Arc::clone(disk),
            path: directory.join(NAME),
            end: None,
            removal_unsynced: true,
            unsaved: LastEvents::new(),
        };
        let mut events: Vec<_> = retained.read()?.into_values().collect();
        events.sort_unstable_by_key(|(number, _)| *number);
        retained.end = events.last().map(|(number, _)| number + 1);
        for (_, event) in &events {
            visit(event);
        }
        Ok(retained)
    }

    /// Writes to the file the acknowledged events that the journal keeps only for a restart. The journal can then
    /// remove these events.
    pub(super) fn save(&mut self, journal: &Journal<Event>) -> io::Result<()> {
        let events = self.gather(journal)?;
        if !events.is_empty() {
            self.write(&events)?;
        }
        self.unsaved = LastEvents::new();
        Ok(())
    }

    /// Writes the retained events to the file when the disk is full. The journal removes these events first, to make
    /// room. A crash before the write loses them.
    pub(super) fn save_on_full_disk(&mut self, journal: &mut Journal<Event>) -> io::Result<()> {
        self.unsaved = self.gather(journal)?;
        journal.mark_saved();
        journal.drop_acked();
        self.save(journal)
    }

    /// Tries again to write the events in `unsaved`, which the journal has already removed, to the file.
    pub(super) fn save_unsaved(&mut self, journal: &Journal<Event>) {
        if self.unsaved.is_empty() {
            return;
        }
        if let Err(error) = self.save(journal) {
            tracing::debug!(
                file = %self.path.display(), %error,
                "cannot save which events are delivered; retrying, and a crash meanwhile causes repeated deliveries"
            );
        }
    }

    /// Drops retained events with journal numbers below `before`, since the caches on disk have their states. Returns
    /// whether the journal may remove its own events below `before`. The journal must keep these events while the file
    /// exists: otherwise an older event in the file would count as the last event of its object.
    pub(super) fn release(&mut self, before: u64) -> bool {
        self.unsaved.retain(|_, (number, _)| *number >= before);
        let is_gone = |removed: io::Result<()>| match removed {
            Ok(()) => true,
            // Another process has removed the file.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if self.end.is_some_and(|end| end <= before) && is_gone(self.disk.remove(&self.path)) {
            (self.end, self.removal_unsynced) = (None, true);
        }
        if self.end.is_none() && self.removal_unsynced {
            let directory = self.path.parent().unwrap_or(&self.path);
            self.removal_unsynced = self.disk.sync_dir(directory).is_err();
        }
        self.end.is_none() && !self.removal_unsynced
    }

    /// Returns the last event of each object, from the file, the journal and `unsaved`. Returns an empty map if the
    /// file is up to date.
    fn gather(&self, journal: &Journal<Event>) -> io::Result<LastEvents> {
        let mut news = self.unsaved.clone();
        journal.visit_retained(&mut |number, event: Event| {
            if event.event_type() != EventType::Synced && !event.is_replayed() {
                note(&mut news, number, event.without_body());
            }
        })?;
        if news.is_empty() {
            return Ok(news);
        }
        let mut events = self.read()?;
        for (number, event) in news.into_values() {
            note(&mut events, number, event);
        }
        Ok(events)
    }

    fn read(&self) -> io::Result<LastEvents> {
        let mut events = LastEvents::new();
        let file = match self.disk.open(&self.path, Open::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(events),
            Err(error) => return Err(error),
        };
        let mut reader = Reader::of_file(&*file, SALT)?;
        let mut damaged = 0_u64;
        while let Some(item) = reader.next()? {
            match item {
                Item::Frame { offset: 0, payload: [FORMAT] } => {}
                Item::Frame { payload, .. } => match decode(payload) {
                    Some((number, event)) => drop(events.insert(identity(&event), (number, event))),
                    None => damaged += 1,
                },
                Item::Damage { .. } | Item::Torn { .. } => damaged += 1,
            }
        }
        if damaged > 0 {
            tracing::error!(
                file = %self.path.display(), damaged,
                "the file with the last delivered events is damaged; some of them may be delivered again"
            );
        }
        Ok(events)
    }

    fn write(&mut self, events: &LastEvents) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame::write(SALT, &[FORMAT], &mut bytes).map_err(io::Error::other)?;
        for (number, event) in events.values() {
            let fill = |out: &mut Vec<u8>| {
                out.extend_from_slice(&number.to_le_bytes());
                event.encode(out);
            };
            frame::write_with(SALT, &mut bytes, fill).map_err(io::Error::other)?;
        }
        disk::replace(&*self.disk, &self.path, &bytes)?;
        self.end = events.values().map(|(number, _)| number + 1).max();
        Ok(())
    }
}

fn note(events: &mut LastEvents, number: u64, event: Event) {
    let object = identity(&event);
    let is_last = |(last, known): &(u64, Event)| *last <= number && follows(known, &event);
    if events.get(&object).is_none_or(is_last) {
        events.insert(object, (number, event));
    }
}

/// Returns whether `event`, journaled after `before` for the same object, has a newer state. Otherwise it repeats an
/// old state.
fn follows(before: &Event, event: &Event) -> bool {
    let is_deletion = |event: &Event| event.event_type() == EventType::Deleted;
    is_deletion(event) || !is_deletion(before) && !before.version().newer_than(event.version())
}

fn decode(payload: &[u8]) -> Option<(u64, Event)> {
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

    fn open(disk: &Arc<dyn Disk>) -> (RetainedEvents, Vec<String>) {
        let mut events = Vec::new();
        let retained = RetainedEvents::open(disk, Path::new("/s"), &mut |event| {
            events.push(format!("{} {}", event.subject(), event.version()));
        });
        (retained.unwrap(), events)
    }

    #[test]
    fn retained_events_survive_early_journal_release() {
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        informer_hub_disk::make_dir(&*disk, Path::new("/s"), 1).unwrap();
        let (mut journal, (mut retained, _)) = (journal(&disk), open(&disk));
        let mut saves = 0;
        for version in 1..200 {
            let events = [event("a", version, 900), event("b", 1, 100)];
            while let Err(error) = journal.append(&events) {
                assert!(matches!(error, informer_hub_journal::AppendError::Retained), "{error}");
                retained.save(&journal).unwrap();
                journal.mark_saved();
                saves += 1;
            }
            journal.sync().unwrap();
            journal.ack([journal.next_seq() - 2, journal.next_seq() - 1]);
            assert!(journal.bytes() <= journal.limit());
        }
        assert!((2..40).contains(&saves), "{saves}");
        journal.sync().unwrap();
        let first = journal.next_seq();
        drop(journal);
        sim.crash();
        let (mut retained, events) = open(&disk);
        assert_eq!(events.len(), 2);
        let version: u64 =
            events.iter().find_map(|event| event.strip_prefix("/v1/pods/shop/a ")).unwrap().parse().unwrap();
        assert!(version > 100 && events.contains(&"/v1/pods/shop/b 1".to_owned()), "{events:?}");
        assert!(!retained.release(first / 4));
        assert_eq!(open(&disk).1.len(), 2);
        assert!(retained.release(first));
        assert_eq!(open(&disk).1.len(), 0);
    }

    #[test]
    fn release_waits_until_the_file_removal_is_durable() {
        let mut came_back = 0;
        for seed in seeds(0..32) {
            let sim = SimDisk::new(seed);
            let disk: Arc<dyn Disk> = Arc::new(sim.clone());
            informer_hub_disk::make_dir(&*disk, Path::new("/s"), 1).unwrap();
            let (mut journal, (mut retained, _)) = (journal(&disk), open(&disk));
            for _ in 0..6 {
                journal.append(&[event("a", 1, 2000)]).unwrap();
            }
            journal.sync().unwrap();
            journal.ack(0..journal.next_seq());
            retained.save(&journal).unwrap();
            sim.fail(DiskCall::SyncDir, 1);
            assert!(!retained.release(journal.next_seq()));
            sim.kill();
            let (mut retained, events) = open(&disk);
            assert!(events.is_empty());
            // After a restart, the removal may not be durable until `release` has synced it again.
            let durable = seed % 2 == 0 && retained.release(journal.next_seq());
            sim.crash();
            let events = open(&disk).1.len();
            assert!(!durable || events == 0, "seed {seed}");
            came_back += events;
        }
        assert!(came_back > 0 || replayed().is_some(), "no seed lost the removal");
    }

    #[test]
    fn events_unsaved_on_a_full_disk_are_written_later() {
        let sim = SimDisk::new(1);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        informer_hub_disk::make_dir(&*disk, Path::new("/s"), 1).unwrap();
        let (mut journal, (mut retained, _)) = (journal(&disk), open(&disk));
        for name in ["a", "b", "c", "d", "e", "f"] {
            journal.append(&[event(name, 1, 2000)]).unwrap();
        }
        journal.sync().unwrap();
        journal.ack(0..journal.next_seq());
        // The first two renames that fail are those of the journal's cursor file, the third is that of the file of
        // retained events.
        sim.fail(DiskCall::Rename, 3);
        assert!(retained.save_on_full_disk(&mut journal).is_err());
        let after_failure = open(&disk).1.len();
        retained.save(&journal).unwrap();
        assert_eq!(after_failure, 0);
        let written = open(&disk).1.len();
        assert!(written >= 4, "{written}");
        retained.save(&journal).unwrap();
        assert_eq!(open(&disk).1.len(), written, "a save without new events keeps the file");
    }
}
