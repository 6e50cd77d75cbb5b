//! Objects whose last state in a sink's journal is missing from the caches on disk. They are found while the journal is
//! read at the start.
//!
//! Such an object was created or changed after the last checkpoint. The states in the caches count only if the caches
//! record that this sink has received them. Otherwise all objects of the journal count as missing.
//!
//! If such an object is deleted while the hub is down, a relist cannot detect the deletion, since the cache lacks the
//! object. A later object with the same name would be taken for the same object. So the caches start with the journaled
//! states, and the first list is compared with them as usual.
//!
//! - Events of one name are applied in the journal's order, whatever their versions. A watch that resumes from an
//!   earlier version first reports objects that were created and deleted before the journaled ones.
//! - For one object (one UID) the newest state counts, and its deletion is final. The journal may have events of an
//!   object twice, because the sink receives some notifications again after a crash.
//! - A replayed dead letter is ignored: it does not describe the last state of its object.

use hashbrown::{HashMap, HashSet};

use super::last_delivered::identity;
use super::{Event, EventType};

/// Maximum bytes of events in memory while a journal is read. Events beyond this are kept without their JSON.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Last journaled states that are missing from the caches on disk. Filled in the journal's order.
#[derive(Debug, Default)]
pub struct Uncheckpointed {
    /// Last event of each object, by the hash of the object's name without its API version.
    events: HashMap<u64, Event>,
    bytes: usize,
    /// Hashes of cluster, subject and UID of objects with a deletion in the journal.
    ended: HashSet<u64>,
}

impl Uncheckpointed {
    /// Applies an event of the journal. `is_known` is true if the caches on disk have this state of the object or a
    /// newer one. The caches must also record that this sink has received it.
    pub fn note(&mut self, event: &Event, is_known: bool) {
        if event.event_type() == EventType::Synced || event.is_replayed() {
            return;
        }
        let (key, object) = (event.lane_hash(), identity(event));
        let is_gone = event.event_type() == EventType::Deleted;
        let is_newer = |before: &Event| identity(before) == object && before.version().newer_than(event.version());
        let is_repeated = !is_gone && (self.ended.contains(&object) || self.events.get(&key).is_some_and(is_newer));
        if is_repeated {
            return;
        }
        if is_gone {
            self.ended.insert(object);
        }
        if is_known || is_gone {
            // The deleted object may be an earlier one with the same name.
            let same = |known: &&Event| !is_gone || known.uid() == event.uid();
            if let Some(size) = self.events.get(&key).filter(same).map(Event::size) {
                self.bytes -= size;
                self.events.remove(&key);
            }
            return;
        }
        let event = if self.bytes + event.size() > MAX_BYTES { event.without_body() } else { event.clone() };
        self.bytes += event.size();
        let before = self.events.insert(key, event);
        self.bytes -= before.map_or(0, |before| before.size());
    }

    /// Returns the last events of objects that the caches on disk lack.
    #[must_use]
    pub fn into_events(self) -> Vec<Event> {
        self.events.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventOptions;
    use super::super::test_objects::{added, pod, pod_of, updated};
    use super::*;
    use informer_hub_types::Notification;

    fn event(notification: &Notification) -> Event {
        Event::new(notification, jiff::Timestamp::UNIX_EPOCH, &EventOptions::default()).unwrap()
    }

    fn left(events: &[(Notification, bool)]) -> Vec<String> {
        let mut uncheckpointed = Uncheckpointed::default();
        for (notification, is_known) in events {
            uncheckpointed.note(&event(notification), *is_known);
        }
        assert_eq!(uncheckpointed.bytes, uncheckpointed.events.values().map(Event::size).sum::<usize>());
        let mut left: Vec<_> = uncheckpointed
            .into_events()
            .iter()
            .map(|event| format!("{}@{}", event.subject(), event.version()))
            .collect();
        left.sort();
        left
    }

    #[test]
    fn object_created_after_the_checkpoint_is_kept_in_its_last_state() {
        let gone = |name| Notification::Deleted { object: pod(name, "9", "x"), tombstone: false };
        let events = [
            (added(pod("new", "1", "x"), false), false),
            (updated(pod("new", "1", "x"), pod("new", "2", "x")), false),
            (added(pod("known", "1", "x"), false), true),
            (added(pod("short", "1", "x"), false), false),
            (gone("short"), false),
        ];
        assert_eq!(left(&events), ["/v1/pods/shop/new@2"]);
    }

    #[test]
    fn replayed_dead_letter_does_not_restore_an_object() {
        let gone = |version| Notification::Deleted { object: pod("gone", version, "x"), tombstone: false };
        let events = [
            (updated(pod("web", "1", "x"), pod("web", "3", "x")), false, false),
            (updated(pod("web", "1", "x"), pod("web", "2", "x")), false, true),
            (added(pod("gone", "4", "x"), false), false, false),
            // A tombstone's version is that of the last state that was known.
            (gone("4"), false, false),
            (added(pod("gone", "4", "x"), false), false, true),
            (added(pod("back", "5", "x"), false), true, false),
            (added(pod("back", "4", "x"), false), false, true),
        ];
        let mut uncheckpointed = Uncheckpointed::default();
        for (notification, is_known, is_replayed) in &events {
            let event = event(notification);
            uncheckpointed.note(&if *is_replayed { event.replayed() } else { event }, *is_known);
        }
        let left: Vec<_> =
            uncheckpointed.into_events().iter().map(|it| format!("{}@{}", it.subject(), it.version())).collect();
        assert_eq!(left, ["/v1/pods/shop/web@3"]);
    }

    #[test]
    fn repeated_handover_changes_nothing() {
        let gone = |object| Notification::Deleted { object, tombstone: false };
        let [before, after] = ["3", "4"].map(|version| pod_of("web", "earlier", version));
        let events = [
            (added(before.clone(), false), false),
            (updated(before.clone(), after.clone()), false),
            (gone(after.clone()), false),
            (added(pod_of("web", "later", "5"), false), false),
            (added(before.clone(), false), false),
            (updated(before, after), false),
        ];
        assert_eq!(left(&events), ["/v1/pods/shop/web@5"]);
        let states = ["6", "7"].map(|version| pod_of("api", "one", version));
        let change = || (updated(states[0].clone(), states[1].clone()), false);
        let events = [(added(states[0].clone(), false), false), change(), (added(states[0].clone(), false), false)];
        assert_eq!(left(&events), ["/v1/pods/shop/api@7"]);
    }

    #[test]
    fn earlier_object_is_kept_after_its_successors_deletion() {
        let pod = |uid, version| pod_of("web", uid, version);
        let events = [
            (added(pod("later", "7"), false), false),
            (Notification::Deleted { object: pod("later", "8"), tombstone: false }, false),
            (added(pod("earlier", "3"), false), false),
            // The deletion of the other object once more.
            (Notification::Deleted { object: pod("later", "8"), tombstone: true }, true),
        ];
        assert_eq!(left(&events), ["/v1/pods/shop/web@3"]);
    }

    #[test]
    fn events_beyond_the_byte_limit_lose_their_body() {
        let mut uncheckpointed = Uncheckpointed::default();
        for at in 0..20 {
            uncheckpointed.note(&super::super::test_objects::event(&format!("a{at}"), 1, 4 << 20), false);
        }
        assert!(uncheckpointed.bytes <= MAX_BYTES);
        let events = uncheckpointed.into_events();
        assert_eq!((events.len(), events.iter().filter(|event| event.json().is_empty()).count()), (20, 5));
    }
}
