//! Objects that a journal has told of and that the caches on disk do not have, or not in that state: they came, or changed,
//! after the last checkpoint. Of a reader that the caches on disk do not know yet, all that it was told of.
//!
//! If they are gone when the hub starts again, nobody would notice, for a cache misses only what it had; a successor of an
//! object would be taken for the object itself. So the caches begin with what was told; what the cluster says of it is
//! then compared as for any object.
//!
//! What a journal says of a name counts in the journal's order, whatever the versions are: a watch that goes on from an
//! earlier version tells of objects that came and went before those which were told of first. Of one object the newest state
//! counts, and its end is final: what was handed over twice, because who did it died, is in the journal twice, the second time
//! perhaps not to its end. A dead letter that is delivered again says nothing of how its object was left.

use hashbrown::{HashMap, HashSet};

use super::told::identity;
use super::{Event, EventType};

/// Bytes of events that are held while a journal is read. Of objects beyond that no body is known, if they are gone.
const MOST: usize = 64 * 1024 * 1024;

/// See the module. Filled in the journal's order.
#[derive(Debug, Default)]
pub struct Orphans {
    /// By what names an object, whichever version of its resource it is told in.
    events: HashMap<u64, Event>,
    bytes: usize,
    /// Objects that are gone.
    ended: HashSet<u64>,
}

impl Orphans {
    /// Notes an event, and whether a cache on disk has its object in that state, or a newer one, and knows that this reader was
    /// told of it.
    pub fn note(&mut self, event: &Event, is_known: bool) {
        if event.event_type() == EventType::Synced || event.is_again() {
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
            // A deletion may be of an earlier object of that name.
            let same = |known: &&Event| !is_gone || known.uid() == event.uid();
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

    /// The last event of each.
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
            (updated(pod("web", "1", "x"), pod("web", "3", "x")), false, false),
            (updated(pod("web", "1", "x"), pod("web", "2", "x")), false, true),
            (added(pod("gone", "4", "x"), false), false, false),
            // A tombstone's version is that of the last state that was known.
            (gone("4"), false, false),
            (added(pod("gone", "4", "x"), false), false, true),
            (added(pod("back", "5", "x"), false), true, false),
            (added(pod("back", "4", "x"), false), false, true),
        ];
        let mut orphans = Orphans::default();
        for (notification, is_known, is_again) in &told {
            let event = event(notification);
            orphans.note(&if *is_again { event.again() } else { event }, *is_known);
        }
        let left: Vec<_> =
            orphans.into_events().iter().map(|it| format!("{}@{}", it.subject(), it.version())).collect();
        assert_eq!(left, ["/v1/pods/shop/web@3"]);
    }

    #[test]
    fn what_was_handed_over_twice_says_nothing_new() {
        let gone = |object| Notification::Deleted { object, tombstone: false };
        let [before, after] = ["3", "4"].map(|version| pod_of("web", "earlier", version));
        let told = [
            (added(before.clone(), false), false),
            (updated(before.clone(), after.clone()), false),
            (gone(after.clone()), false),
            (added(pod_of("web", "later", "5"), false), false),
            (added(before.clone(), false), false),
            (updated(before, after), false),
        ];
        assert_eq!(left(&told), ["/v1/pods/shop/web@5"]);
        let states = ["6", "7"].map(|version| pod_of("api", "one", version));
        let change = || (updated(states[0].clone(), states[1].clone()), false);
        let told = [(added(states[0].clone(), false), false), change(), (added(states[0].clone(), false), false)];
        assert_eq!(left(&told), ["/v1/pods/shop/api@7"]);
    }

    #[test]
    fn an_object_of_before_that_is_told_of_after_its_successors_end_is_left() {
        let pod = |uid, version| pod_of("web", uid, version);
        let told = [
            (added(pod("later", "7"), false), false),
            (Notification::Deleted { object: pod("later", "8"), tombstone: false }, false),
            (added(pod("earlier", "3"), false), false),
            // Once more, of another object.
            (Notification::Deleted { object: pod("later", "8"), tombstone: true }, true),
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
