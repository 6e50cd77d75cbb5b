//! What a journal has told of each object lately, so that nothing is told again, nor anything older.
//!
//! After a restart the caches are as of their last checkpoint, and what has happened since is seen once more; journals
//! are never behind their caches, so what they hold since that checkpoint says what is no news.

use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::HashMap;

use super::{Event, EventType};
use informer_hub_types::ResourceVersion;

/// The last state told of each object, by what identifies it: some 40 bytes each.
#[derive(Debug, Default)]
pub struct Told {
    objects: HashMap<u64, Last>,
}

#[derive(Clone, Debug)]
struct Last {
    version: ResourceVersion,
    deleted: bool,
}

impl Told {
    /// Notes an event that is in the journal, in the journal's order. What was handed over twice, and a dead letter that is
    /// delivered again, says nothing of what was told last.
    pub fn note(&mut self, event: &Event) {
        if event.event_type() == EventType::Synced || event.is_again() {
            return;
        }
        let last = Last { version: event.version().clone(), deleted: event.event_type() == EventType::Deleted };
        let known = self.objects.entry(identity(event)).or_insert_with(|| last.clone());
        // A tombstone carries the state of an older checkpoint.
        if last.deleted || !known.deleted && !known.version.newer_than(&last.version) {
            *known = last;
        }
    }

    /// Whether an event tells anything newer. One that does ends the comparison for its object: what follows it is newer
    /// still. A resync repeats on purpose what was told.
    pub fn is_news(&mut self, event: &Event, resync: bool) -> bool {
        if self.objects.is_empty() || event.event_type() == EventType::Synced {
            return true;
        }
        let identity = identity(event);
        let Some(last) = self.objects.get(&identity) else { return true };
        let is_news = match (last.deleted, event.event_type()) {
            (true, _) => false,
            (false, EventType::Deleted) => true,
            (false, _) if last.version == *event.version() => resync,
            // Where versions do not compare, an event too many can be thrown away by its id.
            (false, _) => !last.version.newer_than(event.version()),
        };
        if is_news {
            self.objects.remove(&identity);
        }
        is_news
    }

    /// Whether an event tells of a newer state of an object as if it were new, because the caches on disk do not say who was
    /// told of it.
    #[must_use]
    pub fn is_update(&self, event: &Event) -> bool {
        let last = || self.objects.get(&identity(event));
        event.event_type() == EventType::Added
            && !self.objects.is_empty()
            && last().is_some_and(|last| !last.deleted && last.version != *event.version())
    }

    /// Objects that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

/// A successor under the same name is another object.
pub(super) fn identity(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    (event.cluster(), event.subject(), event.uid()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::EventOptions;
    use super::super::test_objects::{added, pod, updated};
    use super::*;
    use informer_hub_types::Notification;

    fn event(notification: &Notification) -> Event {
        Event::new(notification, jiff::Timestamp::UNIX_EPOCH, &EventOptions::default()).unwrap()
    }

    fn update(to: &str) -> Event {
        event(&updated(pod("web", "1", "x"), pod("web", to, "x")))
    }

    fn deleted(version: &str) -> Event {
        event(&Notification::Deleted { object: pod("web", version, "x"), tombstone: true })
    }

    #[test]
    fn what_is_older_or_the_same_is_no_news_and_what_is_newer_is() {
        let mut told = Told::default();
        for version in ["5", "6"] {
            told.note(&update(version));
        }
        assert!(!told.is_news(&event(&added(pod("web", "4", "x"), false)), false));
        assert!(!told.is_news(&update("6"), false));
        assert!(told.is_news(&event(&added(pod("api", "4", "x"), false)), false));
        assert!(told.is_news(&update("7"), false));
        assert!(told.is_empty());
        assert!(told.is_news(&update("7"), false));
    }

    #[test]
    fn a_deletion_is_told_once_whatever_version_it_carries() {
        let mut told = Told::default();
        told.note(&update("6"));
        // A tombstone carries the last state of an older checkpoint.
        assert!(told.is_news(&deleted("3"), false));
        told.note(&deleted("3"));
        assert!(!told.is_news(&deleted("7"), false));
        assert!(!told.is_news(&update("9"), false), "of an object that is gone");
    }

    #[test]
    fn a_newer_state_of_an_object_that_was_told_of_is_an_update_whatever_it_is_called() {
        let mut told = Told::default();
        told.note(&update("6"));
        let as_new = |name, version| event(&added(pod(name, version, "x"), true));
        assert!(told.is_update(&as_new("web", "7")) && !told.is_update(&as_new("web", "6")));
        assert!(!told.is_update(&as_new("api", "7")) && !told.is_update(&update("7")));
        told.note(&deleted("6"));
        assert!(!told.is_update(&as_new("web", "7")));
    }

    #[test]
    fn a_dead_letter_that_is_delivered_again_takes_nothing_back() {
        let mut told = Told::default();
        for event in [update("5"), update("7"), update("6").again()] {
            told.note(&event);
        }
        assert!(!told.is_news(&update("7"), false));
        for event in [deleted("7"), update("6").again()] {
            told.note(&event);
        }
        assert!(!told.is_news(&deleted("7"), false));
    }

    #[test]
    fn a_resync_repeats_what_was_told() {
        let mut told = Told::default();
        told.note(&update("6"));
        assert!(told.is_news(&update("6"), true));
    }
}
