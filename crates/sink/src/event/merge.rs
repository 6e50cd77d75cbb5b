//! Merging of two events of one object, when a journal has no room for both.
//!
//! The merged event has the `oldObject` of the older event and the `object` of the newer one. Events of objects with
//! the same name but different UIDs never merge. A replayed dead letter never merges either: its state may be older
//! than that of the events before it.
//!
//! An addition and a following deletion merge to the deletion. Dropping both would be wrong: an earlier process may
//! have delivered the addition and died before it recorded that on disk. The receiver would then keep the object.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};

use super::{Event, EventType, Parts, hash_of, subject_parts, type_attribute};

/// Members of an event's JSON that a merge replaces, as slices of the JSON's text.
#[derive(Deserialize)]
struct Wire<'j> {
    id: &'j str,
    #[serde(rename = "type")]
    event_type: &'j str,
    #[serde(borrow)]
    data: Data<'j>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'j> {
    #[serde(borrow)]
    initial: &'j RawValue,
    #[serde(borrow)]
    old_object: &'j RawValue,
}

impl Event {
    /// Merges two events, given in order. Returns the merged event, or both events if they must stay separate.
    #[must_use]
    pub fn merge(older: Self, newer: Self) -> SmallVec<[Self; 2]> {
        use EventType::{Added, Deleted, Updated};
        let (a, b) = (&*older.0, &*newer.0);
        if (&a.cluster, &a.subject, &a.uid) != (&b.cluster, &b.subject, &b.uid) {
            return smallvec![older, newer];
        }
        if a.is_replayed || b.is_replayed {
            return smallvec![older, newer];
        }
        match (a.event_type, b.event_type) {
            (Added, Updated) => one(added(a, b), older, newer),
            (Updated, Updated) => one(updated(a, b), older, newer),
            (Added | Updated, Deleted) => smallvec![newer],
            _ => smallvec![older, newer],
        }
    }
}

/// Returns `merged` as the only event; if it is `None`, returns `older` and `newer`.
fn one(merged: Option<Parts>, older: Event, newer: Event) -> SmallVec<[Event; 2]> {
    merged.map_or_else(|| smallvec![older, newer], |parts| smallvec![Event(Arc::new(parts))])
}

/// Merges an addition and the update that follows it into one addition, which has the newer state. Returns `None` if an
/// event's JSON does not parse.
fn added(older: &Parts, newer: &Parts) -> Option<Parts> {
    let (was, is): (Wire<'_>, Wire<'_>) = (read(older)?, read(newer)?);
    let [group, api_version, plural, ..] = subject_parts(&newer.subject)?;
    let version = newer.version.to_string();
    let id = hash_of(&newer.cluster, [group, api_version, plural], &newer.uid, &version, EventType::Added);
    let event_type = type_attribute(EventType::Added);
    let body = replaced(
        &newer.body,
        &[
            (is.id, &id),
            (is.event_type, &event_type),
            (is.data.initial.get(), was.data.initial.get()),
            (is.data.old_object.get(), "null"),
        ],
    );
    Some(Parts { id: id.into(), event_type: EventType::Added, body: body.into(), sequence_at: 0, ..newer.clone() })
}

/// Merges two updates: returns `newer` with the `oldObject` of `older`. Returns `None` if an event's JSON does not
/// parse.
fn updated(older: &Parts, newer: &Parts) -> Option<Parts> {
    let (was, is) = (read(older)?, read(newer)?);
    let body = replaced(&newer.body, &[(is.data.old_object.get(), was.data.old_object.get())]);
    Some(Parts { body: body.into(), sequence_at: 0, ..newer.clone() })
}

fn read(parts: &Parts) -> Option<Wire<'_>> {
    serde_json::from_str(&parts.body).ok()
}

/// Replaces parts of `text`. Each pair has a slice of `text` and its replacement; the pairs are in the order of the
/// text.
fn replaced(text: &str, parts: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (part, with) in parts {
        let at = part.as_ptr().addr() - text.as_ptr().addr();
        out.push_str(&text[done..at]);
        out.push_str(with);
        done = at + part.len();
    }
    out.push_str(&text[done..]);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::EventOptions;
    use super::super::tests::{added, pod, updated};
    use super::*;
    use informer_hub_types::Notification;

    fn event(notification: &Notification, sequence: u64) -> Event {
        let options = EventOptions { sequence: true, ..EventOptions::default() };
        let mut event = Event::new(notification, jiff::Timestamp::UNIX_EPOCH, &options).unwrap();
        event.set_sequence(sequence);
        event
    }

    fn update(from: &str, to: &str) -> Notification {
        updated(pod("web", from, from), pod("web", to, to))
    }

    fn deleted(version: &str) -> Notification {
        Notification::Deleted { object: pod("web", version, version), tombstone: false }
    }

    fn merged(older: &Notification, newer: &Notification) -> Vec<Event> {
        Event::merge(event(older, 1), event(newer, 2)).into_vec()
    }

    #[test]
    fn two_updates_merge_from_oldest_to_newest_state() {
        let one = merged(&update("1", "2"), &update("2", "3"));
        let expected = event(&update("1", "3"), 2);
        assert_eq!(one.len(), 1);
        assert_eq!((one[0].id(), one[0].json()), (expected.id(), expected.json()));
        assert_eq!(one[0].sequence(), Some(2));
    }

    #[test]
    fn addition_and_update_merge_into_an_addition() {
        for initial in [true, false] {
            let one = merged(&added(pod("web", "1", "1"), initial), &update("1", "2"));
            let expected = event(&added(pod("web", "2", "2"), initial), 2);
            assert_eq!(one.len(), 1);
            assert_eq!((one[0].id(), one[0].event_type()), (expected.id(), EventType::Added));
            assert_eq!(one[0].json(), expected.json());
        }
    }

    #[test]
    fn deletion_is_kept_when_merged_with_an_addition() {
        for older in [update("1", "2"), added(pod("web", "2", "2"), false)] {
            let one = merged(&older, &deleted("3"));
            assert_eq!(one.iter().map(Event::event_type).collect::<Vec<_>>(), [EventType::Deleted]);
        }
    }

    #[test]
    fn replayed_dead_letter_does_not_merge() {
        let letter = event(&update("1", "2"), 2).replayed();
        let both = Event::merge(event(&update("2", "3"), 1), letter.clone());
        assert_eq!(both.iter().map(|event| event.version().to_string()).collect::<Vec<_>>(), ["3", "2"]);
        assert_eq!(Event::merge(letter, event(&deleted("3"), 3)).len(), 2);
    }

    #[test]
    fn other_event_pairs_do_not_merge() {
        assert_eq!(merged(&deleted("1"), &added(pod("web", "2", "2"), false)).len(), 2);
        assert_eq!(merged(&update("1", "2"), &updated(pod("api", "1", "1"), pod("api", "2", "2"))).len(), 2);
        let value: Value = serde_json::from_str(merged(&update("1", "2"), &update("2", "3"))[0].json()).unwrap();
        assert_eq!(value["sequence"], "00000000000000000002");
    }
}
