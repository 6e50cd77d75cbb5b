//! Objects that a journal has told of and that the caches on disk do not have, or not in that state: they came, or changed,
//! after the last checkpoint.
//!
//! If they are gone when the hub starts again, nobody would notice, for a cache misses only what it had; a successor of an
//! object would be taken for the object itself. So the caches begin with what was told; what the cluster says of it is
//! then compared as for any object.
//!
//! A dead letter that is delivered again lies behind what is newer than it is: it says nothing of how its object was left.

use hashbrown::HashMap;

use super::told::identity;
use super::{Event, EventType};
use crate::types::ResourceVersion;

/// Bytes of events that are held while a journal is read. Of objects beyond that no body is known, if they are gone.
const MOST: usize = 64 * 1024 * 1024;

/// See the module. Filled in the journal's order.
#[derive(Debug, Default)]
pub struct Orphans {
    events: HashMap<(Box<str>, Box<str>), Event>,
    bytes: usize,
    /// The newest that was told under each name, by the name's hash.
    newest: HashMap<u64, Newest>,
}

/// A state that was told.
#[derive(Debug)]
struct Newest {
    /// Which object.
    identity: u64,
    version: ResourceVersion,
    is_gone: bool,
}

impl Orphans {
    /// Notes an event, and whether a cache on disk has its object in that state, or a newer one.
    pub fn note(&mut self, event: &Event, is_known: bool) {
        if event.event_type() == EventType::Synced {
            return;
        }
        if !self.is_newest(event) {
            return;
        }
        let key = (event.cluster().into(), event.subject().into());
        let is_gone = event.event_type() == EventType::Deleted;
        if is_known || is_gone {
            // A deletion may be of an earlier object of that name.
            let same = |known: &&Event| is_known || known.uid() == event.uid();
            if let Some(size) = self.events.get(&key).filter(same).map(Event::size) {
                self.bytes -= size;
                self.events.remove(&key);
            }
            return;
        }
        let event = if self.bytes + event.size() > MOST { event.without_body() } else { event.clone() };
        self.bytes += event.size();
        let before = self.events.insert(key, event);
        self.bytes -= before.map_or(0, |before| before.size());
    }

    /// Whether nothing newer has been noted under its name, in which case this is noted.
    fn is_newest(&mut self, event: &Event) -> bool {
        let new = Newest {
            identity: identity(event),
            version: event.version().clone(),
            is_gone: event.event_type() == EventType::Deleted,
        };
        let Some(newest) = self.newest.get_mut(&event.lane_hash()) else {
            self.newest.insert(event.lane_hash(), new);
            return true;
        };
        if new.is_gone && new.identity == newest.identity {
            // A tombstone may carry an older state.
            newest.is_gone = true;
            return true;
        }
        let is_older = newest.version.newer_than(&new.version);
        let is_over = newest.is_gone && newest.version == new.version;
        if !is_older && !is_over {
            *newest = new;
        }
        !is_older && !is_over
    }

    /// The last event of each.
    #[must_use]
    pub fn into_events(self) -> Vec<Event> {
        self.events.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventOptions;
    use super::super::test_objects::{added, pod, updated};
    use super::*;
    use crate::types::Notification;

    fn event(notification: &Notification) -> Event {
        Event::new(notification, jiff::Timestamp::UNIX_EPOCH, &EventOptions::default()).unwrap()
    }

    fn left(events: &[(Notification, bool)]) -> Vec<String> {
        let mut orphans = Orphans::default();
        for (notification, is_known) in events {
            orphans.note(&event(notification), *is_known);
        }
        assert_eq!(orphans.bytes, orphans.events.values().map(Event::size).sum::<usize>());
        let mut left: Vec<_> =
            orphans.into_events().iter().map(|event| format!("{}@{}", event.subject(), event.version())).collect();
        left.sort();
        left
    }

    #[test]
    fn what_came_after_the_checkpoint_and_was_not_seen_to_go_is_left_in_its_last_state() {
        let gone = |name| Notification::Deleted { object: pod(name, "9", "x"), tombstone: false };
        let told = [
            (added(pod("new", "1", "x"), false), false),
            (updated(pod("new", "1", "x"), pod("new", "2", "x")), false),
            (added(pod("known", "1", "x"), false), true),
            (added(pod("short", "1", "x"), false), false),
            (gone("short"), false),
        ];
        assert_eq!(left(&told), ["/v1/pods/shop/new@2"]);
    }

    #[test]
    fn a_dead_letter_that_is_delivered_again_brings_nothing_back() {
        let gone = |version| Notification::Deleted { object: pod("gone", version, "x"), tombstone: false };
        let told = [
            (updated(pod("web", "1", "x"), pod("web", "3", "x")), false),
            (updated(pod("web", "1", "x"), pod("web", "2", "x")), false),
            (added(pod("gone", "4", "x"), false), false),
            // A tombstone's version is that of the last state that was known.
            (gone("4"), false),
            (added(pod("gone", "4", "x"), false), false),
            (added(pod("back", "5", "x"), false), true),
            (added(pod("back", "4", "x"), false), false),
        ];
        assert_eq!(left(&told), ["/v1/pods/shop/web@3"]);
    }

    #[test]
    fn beyond_its_bound_it_remembers_who_without_what() {
        let mut orphans = Orphans::default();
        for at in 0..20 {
            orphans.note(&super::super::test_objects::event(&format!("a{at}"), 1, 4 << 20), false);
        }
        assert!(orphans.bytes <= MOST);
        let events = orphans.into_events();
        assert_eq!((events.len(), events.iter().filter(|event| event.json().is_empty()).count()), (20, 5));
    }
}
