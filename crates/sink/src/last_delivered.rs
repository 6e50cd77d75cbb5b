//! Last state of each object in the sink's journal, used to drop repeated and outdated events after a restart.
//!
//! After a restart the caches are as old as their last checkpoint, so the hub observes later changes a second time. The
//! journal is at least as new as the caches. So its events since the checkpoint show which changes are repetitions.
//!
//! # Objects with the same name
//! A slow listener drops both the addition and the deletion of a short-lived object. So the journal may have only the
//! next object with this name (the successor). After a restart the watch reports the earlier object (the predecessor)
//! again. The predecessor's states must not be sent after those of the successor: a receiver that stores objects by
//! name would take the successor for deleted.
//!
//! - A state other than a deletion is dropped if the journal has a newer state of any object with the same name. If it
//!   is an addition that the journal does not have, the object's later deletion is dropped too.
//! - Any other deletion is sent unless the journal has it, since the receiver may still have the object. The
//!   successor's state is then sent again if it is observed again.
//! - A version that is not an integer cannot be compared with others. States with such a version are sent, and then the
//!   successor's state is sent again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use hashbrown::HashMap;

use super::{Event, EventType};
use informer_hub_types::ResourceVersion;

/// Last state of each object in the journal. Takes about 40 bytes per object.
///
/// Invariant: an object is in at most one of the maps.
#[derive(Debug, Default)]
pub struct LastDelivered {
    /// For each name, the newest state of any object that had the name. By hash of cluster and subject.
    names: HashMap<u64, Last>,
    /// Last states of objects that are not in `names`: mostly earlier objects whose name a later object has taken. By
    /// hash of the object's identity ([`Last::object`]).
    others: HashMap<u64, Last>,
}

/// Last state of one object.
#[derive(Clone, Debug)]
struct Last {
    version: ResourceVersion,
    /// Hash of the object's identity, with its [`State`] in the lowest two bits. A separate field would take eight more
    /// bytes.
    tagged: u64,
}

/// Whether an object exists for the receiver, according to the events sent so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Alive,
    Deleted,
    /// Never sent: the addition was dropped because the journal has a successor with the same name.
    Skipped,
}

impl Last {
    /// Bits of `tagged` that hold the state.
    const STATE: u64 = 0b11;

    fn new(object: u64, version: ResourceVersion, state: State) -> Self {
        Self { version, tagged: object & !Self::STATE | state as u64 }
    }

    fn of(event: &Event) -> Self {
        let state = if event.event_type() == EventType::Deleted { State::Deleted } else { State::Alive };
        Self::new(identity(event), event.version().clone(), state)
    }

    /// Returns the hash of the object's identity, without the bits of the state.
    fn object(&self) -> u64 {
        self.tagged & !Self::STATE
    }

    fn state(&self) -> State {
        match self.tagged & Self::STATE {
            0 => State::Alive,
            1 => State::Deleted,
            _ => State::Skipped,
        }
    }

    fn is_deleted(&self) -> bool {
        self.state() == State::Deleted
    }

    /// Returns whether this state comes after `known`, the recorded state of the same object. Otherwise it is outdated.
    fn follows(&self, known: &Self) -> bool {
        !known.is_deleted() && (self.is_deleted() || !known.version.newer_than(&self.version))
    }

    /// Returns this state, with the resourceVersion of `known` if that is newer. A tombstone (a deletion found by a
    /// list) may have an old resourceVersion, that of the last checkpoint.
    fn not_older_than(self, known: &Self) -> Self {
        if known.version.newer_than(&self.version) { Self { version: known.version.clone(), ..self } } else { self }
    }

    /// Returns whether this state must be sent if `known` is the last state of the same object in the journal. With
    /// `resync`, a repetition of `known` is sent too.
    fn is_news(&self, known: &Self, resync: bool) -> bool {
        match (known.state(), self.state()) {
            (State::Deleted, _) | (State::Skipped, State::Deleted) => false,
            (_, State::Deleted) => true,
            _ if known.version == self.version => resync,
            // Versions that do not compare count as newer: a receiver can drop a duplicate by its id.
            _ => !known.version.newer_than(&self.version),
        }
    }
}

impl LastDelivered {
    /// Records an event of the journal. Must be called for all events in the journal's order. Outdated states and
    /// replayed dead letters are ignored.
    pub fn note(&mut self, event: &Event) {
        if event.event_type() != EventType::Synced && !event.is_replayed() {
            self.record(name(event), Last::of(event));
        }
    }

    fn record(&mut self, name: u64, last: Last) {
        let Some(newest) = self.names.get_mut(&name) else {
            self.names.insert(name, last);
            return;
        };
        let object = last.object();
        if newest.object() == object {
            if last.follows(newest) {
                *newest = last.not_older_than(newest);
            }
            return;
        }
        let known = self.others.get(&object);
        if known.is_some_and(|known| !last.follows(known)) {
            return;
        }
        let last = match known {
            Some(known) => last.not_older_than(known),
            None => last,
        };
        if last.is_deleted() || !newest.version.newer_than(&last.version) {
            self.others.remove(&object);
            let before = mem::replace(newest, last);
            self.others.insert(before.object(), before);
        } else {
            self.others.insert(object, last);
        }
    }

    /// Returns whether an event must be sent. An event need not be sent if it repeats the object's last state in the
    /// journal, or is older. With `resync`, a repetition of the last state must be sent. The module documentation has
    /// the rules for objects with the same name.
    ///
    /// If the event must be sent, usually removes the record of its object, since all later events are newer.
    pub fn is_new(&mut self, event: &Event, resync: bool) -> bool {
        if self.is_empty() || event.event_type() == EventType::Synced {
            return true;
        }
        let (name, last) = (name(event), Last::of(event));
        let newest = self.names.get(&name);
        if let Some(newest) = newest.filter(|newest| newest.object() != last.object()).cloned() {
            return self.is_new_beside(&newest, (name, last), event.event_type(), resync);
        }
        let is_new = newest.or(self.others.get(&last.object())).is_none_or(|known| last.is_news(known, resync));
        if is_new {
            self.names.remove(&name);
            self.others.remove(&last.object());
        }
        is_new
    }

    /// Returns whether the state `last` of an object must be sent. `newest` is the journal's newest state for the same
    /// name, which belongs to another object.
    fn is_new_beside(&mut self, newest: &Last, (name, last): (u64, Last), event_type: EventType, resync: bool) -> bool {
        let object = last.object();
        let known = self.others.get(&object);
        // A deletion was sent after this state, so a receiver that keys by name needs this state again.
        let is_undone = || newest.is_deleted() && last.version.newer_than(&newest.version);
        let is_older = !last.is_deleted() && newest.version.newer_than(&last.version);
        let is_new = !is_older && known.is_none_or(|known| last.is_news(known, resync || is_undone()));
        match (is_new, last.state()) {
            // The name stays recorded: the newest state may have to be sent again.
            (true, State::Deleted) => self.record(name, last),
            (true, _) => {
                self.others.remove(&object);
                let before = self.names.remove(&name).filter(Last::is_deleted);
                self.others.extend(before.map(|before| (before.object(), before)));
            }
            (false, State::Deleted) if known.is_some_and(|known| known.state() == State::Skipped) => {
                self.others.remove(&object);
            }
            (false, _) if known.is_none() && event_type == EventType::Added => {
                self.others.insert(object, Last::new(object, last.version, State::Skipped));
            }
            (false, _) => {}
        }
        is_new
    }

    /// Returns whether an `Added` event must be sent as `Updated`, because the journal shows that the object was sent
    /// before. The caches on disk did not have the object, so the hub took it for a new one.
    #[must_use]
    pub fn is_update(&self, event: &Event) -> bool {
        if event.event_type() != EventType::Added || self.is_empty() {
            return false;
        }
        let last = Last::of(event);
        let is_alive = |known: &&Last| known.object() == last.object() && known.state() == State::Alive;
        let newest = self.names.get(&name(event)).filter(is_alive);
        // An object with the same name was sent after this one, so this one is sent again. It is sent as an update,
        // whose id differs from that of the addition.
        let is_other = || self.others.get(&last.object()).is_some_and(|known| is_alive(&known));
        newest.map_or_else(is_other, |known| known.version != last.version)
    }

    /// Returns the number of recorded objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len() + self.others.len()
    }

    /// Returns whether no object is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.others.is_empty()
    }
}

/// Returns the hash of cluster and subject, which is the same for successive objects with one name.
fn name(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    (event.cluster(), event.subject()).hash(&mut hasher);
    hasher.finish()
}

/// Returns the hash of cluster, subject and UID, which differs for successive objects with one name.
pub(super) fn identity(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    (event.cluster(), event.subject(), event.uid()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::EventOptions;
    use super::super::test_objects::{added, pod, pod_of, updated};
    use super::*;
    use informer_hub_types::Notification;
    use proptest::prelude::*;

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

    fn of(uid: &str, version: &str) -> Notification {
        added(pod_of("web", uid, version), false)
    }

    fn gone(uid: &str, version: &str) -> Notification {
        Notification::Deleted { object: pod_of("web", uid, version), tombstone: false }
    }

    /// Simulates a restart: the journal has the events of `journaled`, and the hub then observes `observed`. Returns
    /// the events that must be sent, as text, and the remaining records of last states.
    fn sent(journaled: &[Notification], observed: &[Notification]) -> (Vec<String>, LastDelivered) {
        let mut last = LastDelivered::default();
        for notification in journaled {
            last.note(&event(notification));
        }
        let mut new: Vec<_> = observed.iter().map(event).collect();
        new.retain(|event| last.is_new(event, false));
        let line = |event: &Event| format!("{} {}@{}", event.event_type().as_str(), event.uid(), event.version());
        (new.iter().map(line).collect(), last)
    }

    #[test]
    fn predecessor_is_not_sent_behind_its_journaled_successor() {
        let change = updated(pod_of("web", "a", "3"), pod_of("web", "a", "4"));
        let predecessor = [of("a", "3"), change, gone("a", "5")];
        let after = |rest: &[Notification]| [predecessor.as_slice(), rest].concat();
        let (new, last) = sent(&[of("b", "6")], &after(&[of("b", "6")]));
        assert!(new.is_empty() && last.len() == 1, "{new:?}");
        let (new, last) = sent(&[of("b", "6")], &after(&[of("b", "6"), gone("b", "8"), of("c", "9")]));
        assert_eq!((new, last.len()), (vec!["deleted b@8".to_owned(), "added c@9".to_owned()], 0));
        let (new, _) = sent(&[of("b", "6"), gone("b", "8")], &after(&[of("b", "6"), gone("b", "8"), of("c", "9")]));
        assert_eq!(new, ["added c@9"]);
        // The tombstone has the version of an older checkpoint.
        let (new, _) = sent(&[of("b", "6"), gone("b", "1")], &after(&[of("b", "6"), gone("b", "8")]));
        assert!(new.is_empty(), "{new:?}");
    }

    #[test]
    fn deletion_of_an_object_that_may_be_alive_is_sent_and_the_successor_again() {
        // The journal may have the predecessor as alive, or may already have released its events.
        for journaled in [&[of("a", "3"), of("b", "6")][..], &[of("b", "6")]] {
            let change = updated(pod_of("web", "a", "3"), pod_of("web", "a", "4"));
            let (new, last) = sent(journaled, &[change, gone("a", "5"), of("b", "6")]);
            assert_eq!((new, last.len()), (vec!["deleted a@5".to_owned(), "added b@6".to_owned()], 1));
        }
        // The same if the process is killed before the successor is sent again, and if the journal has states of the
        // predecessor.
        let journal = [of("b", "6"), of("a", "3"), gone("a", "5")];
        let (new, last) = sent(&journal, &[]);
        assert!(new.is_empty() && last.is_update(&event(&of("b", "6"))), "an id that was not delivered");
        assert_eq!(sent(&journal, &[of("a", "3"), gone("a", "5"), of("b", "6")]).0, ["added b@6"]);
        let (new, _) = sent(&journal[..2], &[of("a", "3"), gone("a", "5"), of("b", "6"), gone("b", "7")]);
        assert_eq!(new, ["deleted a@5", "added b@6", "deleted b@7"]);
    }

    #[test]
    fn objects_of_one_name_are_repetitions_if_all_are_journaled() {
        let all = [of("a", "3"), gone("a", "5"), of("b", "6"), gone("b", "7"), of("c", "9")];
        for end in 0..=all.len() {
            let (new, last) = sent(&all[..end], &all);
            assert_eq!(new.len(), all.len() - end, "{new:?}");
            assert!(last.len() <= 3);
        }
    }

    #[test]
    fn object_takes_32_bytes_of_its_map() {
        assert_eq!(size_of::<(u64, Last)>(), 32);
    }

    #[test]
    fn skipped_object_is_sent_once_it_is_newer_than_its_name() {
        // The versions went back: the cluster was restored from a backup.
        let change = |from, to| updated(pod_of("web", "a", from), pod_of("web", "a", to));
        let observed = [of("a", "3"), change("3", "4"), change("4", "8"), gone("a", "9")];
        let (new, _) = sent(&[of("b", "6"), gone("b", "7")], &observed);
        assert_eq!(new, ["updated a@8", "deleted a@9"]);
        // The list reports the deletion of the journaled object first.
        let (new, _) = sent(&[of("b", "6")], &[gone("b", "6"), of("a", "3")]);
        assert_eq!(new, ["deleted b@6", "added a@3"]);
    }

    #[test]
    fn versions_that_do_not_compare_are_sent() {
        let (new, _) = sent(&[of("b", "y")], &[of("a", "x"), gone("a", "x"), of("b", "y")]);
        assert_eq!(new, ["added a@x", "deleted a@x", "added b@y"]);
    }

    /// Generates a history of successive objects with one name, and the number of their events that are in the journal.
    /// For each object: the number of updates, whether a slow listener drops its events, and whether it is deleted.
    /// Only the last object may be left undeleted, so the last flag is ignored for all others.
    fn histories() -> impl Strategy<Value = (Vec<(u8, bool, bool)>, usize)> {
        let objects = prop::collection::vec((0_u8..4, any::<bool>(), any::<bool>()), 1..8);
        (objects, 0_usize..64)
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(500))]

        /// A receiver that stores objects by name gets versions in ascending order and reaches the final state.
        #[test]
        fn observing_a_history_again_keeps_the_order_of_the_name((objects, until) in histories()) {
            let (mut all, mut journal, mut version) = (Vec::new(), Vec::new(), 0_u64);
            for (at, (updates, is_cancelled, is_deleted)) in objects.iter().enumerate() {
                let (uid, is_last) = (format!("uid-{at}"), at + 1 == objects.len());
                let mut events = Vec::new();
                for _ in 0..=*updates {
                    version += 1;
                    events.push(of(&uid, &version.to_string()));
                }
                if !is_last || *is_deleted {
                    version += 1;
                    events.push(gone(&uid, &version.to_string()));
                }
                let cancels = *is_cancelled && matches!(events.last(), Some(Notification::Deleted { .. }));
                journal.extend(events.iter().filter(|_| !cancels).cloned());
                all.extend(events);
            }
            journal.truncate(until);
            let (new, _) = sent(&journal, &all);
            let line = |it: &Notification| {
                let event = event(it);
                format!("{} {}@{}", event.event_type().as_str(), event.uid(), event.version())
            };
            let delivered: Vec<_> = journal.iter().map(line).chain(new).collect();
            let version_of = |line: &String| line.rsplit('@').next().unwrap().parse::<u64>().unwrap();
            prop_assert!(delivered.iter().map(version_of).is_sorted(), "{delivered:?}");
            let end = all.last().map(line).unwrap();
            let is_gone = |line: Option<&String>| line.is_none_or(|line| line.starts_with("deleted"));
            let is_final = delivered.last() == Some(&end) || is_gone(Some(&end)) && is_gone(delivered.last());
            prop_assert!(is_final, "{delivered:?}");
        }
    }
}
