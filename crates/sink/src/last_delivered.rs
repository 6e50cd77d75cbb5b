//! Last journaled state of each object, used to suppress repeated and outdated events after a restart.
//!
//! After a restart the caches are at their last checkpoint, so later changes are observed again. A journal is never
//! behind its caches: its events since that checkpoint identify the repetitions.

use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::HashMap;

use super::{Event, EventType};
use informer_hub_types::ResourceVersion;

/// Last delivered state per object identity; about 40 bytes each.
#[derive(Debug, Default)]
pub struct LastDelivered {
    objects: HashMap<u64, Last>,
}

#[derive(Clone, Debug)]
struct Last {
    version: ResourceVersion,
    deleted: bool,
}

impl LastDelivered {
    /// Records a journaled event, in the journal's order. Repeated handovers and replayed dead letters do not change the
    /// last state.
    pub fn note(&mut self, event: &Event) {
        if event.event_type() == EventType::Synced || event.is_replayed() {
            return;
        }
        let last = Last { version: event.version().clone(), deleted: event.event_type() == EventType::Deleted };
        let known = self.objects.entry(identity(event)).or_insert_with(|| last.clone());
        // A tombstone carries the state of an older checkpoint.
        if last.deleted || !known.deleted && !known.version.newer_than(&last.version) {
            *known = last;
        }
    }

    /// Returns whether an event is newer than the last delivered state. The first newer event ends the comparison for
    /// its object, since all later ones are newer still. A resync repeats the same state on purpose.
    pub fn is_new(&mut self, event: &Event, resync: bool) -> bool {
        if self.objects.is_empty() || event.event_type() == EventType::Synced {
            return true;
        }
        let identity = identity(event);
        let Some(last) = self.objects.get(&identity) else { return true };
        let is_new = match (last.deleted, event.event_type()) {
            (true, _) => false,
            (false, EventType::Deleted) => true,
            (false, _) if last.version == *event.version() => resync,
            // Versions that do not compare: a duplicate can be dropped by its id.
            (false, _) => !last.version.newer_than(event.version()),
        };
        if is_new {
            self.objects.remove(&identity);
        }
        is_new
    }

    /// Returns whether an `Added` event is really an update: the object was delivered before, but the caches on disk do
    /// not record that this reader received it.
    #[must_use]
    pub fn is_update(&self, event: &Event) -> bool {
        let last = || self.objects.get(&identity(event));
        event.event_type() == EventType::Added
            && !self.objects.is_empty()
            && last().is_some_and(|last| !last.deleted && last.version != *event.version())
    }

    /// Number of remembered objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether no object is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

/// Hash that identifies an object by cluster, subject and UID: a successor under the same name is another object.
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
    fn only_newer_versions_are_new() {
        let mut last = LastDelivered::default();
        for version in ["5", "6"] {
            last.note(&update(version));
        }
        assert!(!last.is_new(&event(&added(pod("web", "4", "x"), false)), false));
        assert!(!last.is_new(&update("6"), false));
        assert!(last.is_new(&event(&added(pod("api", "4", "x"), false)), false));
        assert!(last.is_new(&update("7"), false));
        assert!(last.is_empty());
        assert!(last.is_new(&update("7"), false));
    }

    #[test]
    fn deletion_is_new_once_whatever_its_version() {
        let mut last = LastDelivered::default();
        last.note(&update("6"));
        // A tombstone carries the last state of an older checkpoint.
        assert!(last.is_new(&deleted("3"), false));
        last.note(&deleted("3"));
        assert!(!last.is_new(&deleted("7"), false));
        assert!(!last.is_new(&update("9"), false), "of an object that is gone");
    }

    #[test]
    fn newer_state_of_a_delivered_object_is_an_update() {
        let mut last = LastDelivered::default();
        last.note(&update("6"));
        let as_new = |name, version| event(&added(pod(name, version, "x"), true));
        assert!(last.is_update(&as_new("web", "7")) && !last.is_update(&as_new("web", "6")));
        assert!(!last.is_update(&as_new("api", "7")) && !last.is_update(&update("7")));
        last.note(&deleted("6"));
        assert!(!last.is_update(&as_new("web", "7")));
    }

    #[test]
    fn replayed_dead_letter_does_not_change_the_last_state() {
        let mut last = LastDelivered::default();
        for event in [update("5"), update("7"), update("6").replayed()] {
            last.note(&event);
        }
        assert!(!last.is_new(&update("7"), false));
        for event in [deleted("7"), update("6").replayed()] {
            last.note(&event);
        }
        assert!(!last.is_new(&deleted("7"), false));
    }

    #[test]
    fn resync_of_a_delivered_state_is_new() {
        let mut last = LastDelivered::default();
        last.note(&update("6"));
        assert!(last.is_new(&update("6"), true));
    }
}
