//! Which notifications a sink takes.

use super::filter::Filter;
use super::redact::Redaction;
use informer_hub_types::{EventType, FieldPath, Initial, Notification, Object, OnFilterError};

/// What a sink takes of the notifications of the informers it listens to.
#[derive(Debug)]
pub struct Selection {
    /// Types of event. Default added, updated, deleted.
    pub events: Vec<EventType>,
    /// Of objects in these namespaces; empty: of all, and of those in none too.
    pub namespaces: Vec<String>,
    /// Whether objects that were there before are taken.
    pub initial: Initial,
    /// Updates only if the values at one of these paths differ; empty: all updates. A resync repeats an object
    /// unchanged, so with any path given none passes.
    pub changed: Vec<FieldPath>,
    /// Unset: everything passes.
    pub filter: Option<Filter>,
    /// What becomes of an event for which the filter fails. Default: it is delivered.
    pub on_filter_error: OnFilterError,
    /// What the filter, like everything after it, does not get to see.
    pub redaction: Redaction,
}

/// What a [`Selection`] says about one notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is for this sink.
    Take,
    /// It is not.
    Leave,
    /// The filter could not be evaluated, for the reason given; the event is for this sink all the same.
    TakeUnfiltered(String),
    /// The filter could not be evaluated, for the reason given, and the event is not for this sink.
    LeaveUnfiltered(String),
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            events: vec![EventType::Added, EventType::Updated, EventType::Deleted],
            namespaces: Vec::new(),
            initial: Initial::Skip,
            changed: Vec::new(),
            filter: None,
            on_filter_error: OnFilterError::Deliver,
            redaction: Redaction::default(),
        }
    }
}

impl Selection {
    /// Whether the sink takes this notification. The cheap tests come first; objects are decoded only for `changed`
    /// and for what the filter reads.
    #[must_use]
    pub fn judge<K>(&self, notification: &Notification<K>) -> Verdict {
        if !self.events.contains(&EventType::of(notification)) {
            return Verdict::Leave;
        }
        if !self.is_of(notification.object()) {
            return Verdict::Leave;
        }
        match notification {
            Notification::Added { initial: true, .. } if self.initial == Initial::Skip => return Verdict::Leave,
            Notification::Updated { old, new, .. } if !self.has_changed(old, new) => return Verdict::Leave,
            _ => {}
        }
        match self.filter.as_ref().map(|filter| filter.passes(notification, &self.redaction)) {
            None | Some(Ok(true)) => Verdict::Take,
            Some(Ok(false)) => Verdict::Leave,
            Some(Err(why)) => match self.on_filter_error {
                OnFilterError::Deliver => Verdict::TakeUnfiltered(why),
                OnFilterError::Drop => Verdict::LeaveUnfiltered(why),
            },
        }
    }

    /// Whether it is about one of the namespaces. What is about no object is about all of them.
    fn is_of<K>(&self, object: Option<&Object<K>>) -> bool {
        let wanted = |object: &Object<K>| {
            object.namespace().is_some_and(|namespace| self.namespaces.iter().any(|wanted| wanted == namespace))
        };
        self.namespaces.is_empty() || object.is_none_or(wanted)
    }

    /// Whether the values at one of the paths differ. Objects that do not decode count as changed.
    fn has_changed<K>(&self, old: &Object<K>, new: &Object<K>) -> bool {
        if self.changed.is_empty() {
            return true;
        }
        let (Ok(old), Ok(new)) = (old.typed::<serde_json::Value>(), new.typed()) else { return true };
        self.changed.iter().any(|path| path.select(&old) != path.select(&new))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::event::tests::{added, object, origin, pod, updated};
    use super::*;

    #[test]
    fn the_default_takes_changes_and_neither_initial_objects_nor_synced() {
        let selection = Selection::default();
        assert_eq!(selection.judge(&added(pod("a", "1", "x"), false)), Verdict::Take);
        assert_eq!(selection.judge(&added(pod("a", "1", "x"), true)), Verdict::Leave);
        assert_eq!(selection.judge(&Notification::<()>::Synced(origin("", "pods", "Pod"))), Verdict::Leave);
        let replay = Selection { initial: Initial::Replay, ..Selection::default() };
        assert_eq!(replay.judge(&added(pod("a", "1", "x"), true)), Verdict::Take);
    }

    #[test]
    fn only_the_types_asked_for_are_taken() {
        let selection = Selection { events: vec![EventType::Deleted], ..Selection::default() };
        assert_eq!(selection.judge(&added(pod("a", "1", "x"), false)), Verdict::Leave);
        let gone = Notification::Deleted { object: pod("a", "1", "x"), tombstone: false };
        assert_eq!(selection.judge(&gone), Verdict::Take);
    }

    #[test]
    fn only_objects_of_the_namespaces_asked_for_are_taken() {
        let of = |namespace: &str| Selection { namespaces: vec![namespace.to_owned()], ..Selection::default() };
        let (in_shop, in_none) = (pod("a", "1", "x"), object(origin("", "nodes", "Node"), "", "n", "1", &json!({})));
        assert_eq!(of("shop").judge(&added(in_shop.clone(), false)), Verdict::Take);
        assert_eq!(of("pay").judge(&added(in_shop, false)), Verdict::Leave);
        assert_eq!(of("shop").judge(&added(in_none, false)), Verdict::Leave);
    }

    #[test]
    fn updates_count_only_where_a_watched_path_changed() {
        let changed = vec!["status.phase".parse().unwrap(), "spec".parse().unwrap()];
        let selection = Selection { changed, ..Selection::default() };
        let update = |from, to| updated(pod("a", "1", from), pod("a", "2", to));
        assert_eq!(selection.judge(&update("Pending", "Running")), Verdict::Take);
        assert_eq!(selection.judge(&update("Running", "Running")), Verdict::Leave);
        // Additions and deletions are no updates.
        assert_eq!(selection.judge(&added(pod("a", "1", "x"), false)), Verdict::Take);
    }

    #[test]
    fn a_filter_does_not_see_what_is_redacted() {
        let filter = Some(Filter::compile("object.status.phase == '<redacted>'").unwrap());
        let redaction = Redaction::new(vec!["status.phase".parse().unwrap()]);
        let selection = Selection { filter, redaction, ..Selection::default() };
        assert_eq!(selection.judge(&added(pod("a", "1", "Failed"), false)), Verdict::Take);
    }

    #[test]
    fn a_filter_that_fails_lets_the_event_through_unless_told_otherwise_and_says_so() {
        let filter = |text| Selection { filter: Some(Filter::compile(text).unwrap()), ..Selection::default() };
        let add = added(pod("a", "1", "Failed"), false);
        assert_eq!(filter("object.status.phase == 'Failed'").judge(&add), Verdict::Take);
        assert_eq!(filter("object.status.phase == 'Running'").judge(&add), Verdict::Leave);
        assert!(matches!(filter("object.nothing == 1").judge(&add), Verdict::TakeUnfiltered(_)));
        let dropping = Selection { on_filter_error: OnFilterError::Drop, ..filter("object.nothing == 1") };
        assert!(matches!(dropping.judge(&add), Verdict::LeaveUnfiltered(_)));
    }
}
