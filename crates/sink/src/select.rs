//! Selection of the notifications that a sink accepts.

use super::filter::Filter;
use super::redact::Redaction;
use informer_hub_types::{EventType, FieldPath, Initial, Notification, Object, OnFilterError, SinkPartition};

/// Conditions that a notification must meet to be sent by a sink.
#[derive(Debug)]
pub struct Selection {
    /// Part of the objects that the sink accepts, chosen by hash; `None` accepts all. The sink drops notifications of
    /// other objects before it evaluates the other conditions, and does not count them.
    pub partition: Option<SinkPartition>,
    /// Accepted event types. Default added, updated, deleted.
    pub events: Vec<EventType>,
    /// Accepted namespaces; empty accepts all objects, including those without a namespace.
    pub namespaces: Vec<String>,
    /// Whether objects that existed before the sink are accepted, as `added` events.
    pub initial: Initial,
    /// If this is not empty, an update is accepted only if the value at one of these paths has changed. Resyncs are
    /// then dropped, since they repeat unchanged objects.
    pub changed: Vec<FieldPath>,
    /// CEL filter; `None` accepts everything.
    pub filter: Option<Filter>,
    /// Whether an event for which the filter fails is delivered. Default: it is.
    pub on_filter_error: OnFilterError,
    /// Redaction of the objects that the filter reads.
    pub redaction: Redaction,
}

/// Result of [`Selection::evaluate`] for one notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectionResult {
    /// The sink accepts the notification.
    Accept,
    /// The sink does not accept the notification.
    Drop,
    /// The filter failed with this error; the sink accepts the event all the same.
    AcceptUnfiltered(String),
    /// The filter failed with this error, and the sink drops the event.
    DropUnfiltered(String),
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            partition: None,
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
    /// Returns whether the sink accepts a notification. Decodes objects only to compare the `changed` paths, and for a
    /// filter that reads them.
    #[must_use]
    pub fn evaluate<K>(&self, notification: &Notification<K>) -> SelectionResult {
        if !self.events.contains(&EventType::of(notification)) {
            return SelectionResult::Drop;
        }
        if !self.is_in_namespaces(notification.object()) {
            return SelectionResult::Drop;
        }
        match notification {
            Notification::Added { initial: true, .. } if self.initial == Initial::Skip => return SelectionResult::Drop,
            Notification::Updated { old, new, .. } if !self.has_changed(old, new) => return SelectionResult::Drop,
            _ => {}
        }
        match self.filter.as_ref().map(|filter| filter.passes(notification, &self.redaction)) {
            None | Some(Ok(true)) => SelectionResult::Accept,
            Some(Ok(false)) => SelectionResult::Drop,
            Some(Err(error)) => match self.on_filter_error {
                OnFilterError::Deliver => SelectionResult::AcceptUnfiltered(error),
                OnFilterError::Drop => SelectionResult::DropUnfiltered(error),
            },
        }
    }

    /// Returns whether an object is in an accepted namespace; always `true` for a notification without an object.
    fn is_in_namespaces<K>(&self, object: Option<&Object<K>>) -> bool {
        let matches = |object: &Object<K>| {
            object.namespace().is_some_and(|namespace| self.namespaces.iter().any(|name| name == namespace))
        };
        self.namespaces.is_empty() || object.is_none_or(matches)
    }

    /// Returns whether the values at one of the `changed` paths differ; `true` without paths or if an object does not
    /// decode.
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
    fn default_selection_accepts_changes_only() {
        let selection = Selection::default();
        assert_eq!(selection.evaluate(&added(pod("a", "1", "x"), false)), SelectionResult::Accept);
        assert_eq!(selection.evaluate(&added(pod("a", "1", "x"), true)), SelectionResult::Drop);
        assert_eq!(selection.evaluate(&Notification::<()>::Synced(origin("", "pods", "Pod"))), SelectionResult::Drop);
        let replay = Selection { initial: Initial::Replay, ..Selection::default() };
        assert_eq!(replay.evaluate(&added(pod("a", "1", "x"), true)), SelectionResult::Accept);
    }

    #[test]
    fn selection_accepts_only_configured_event_types() {
        let selection = Selection { events: vec![EventType::Deleted], ..Selection::default() };
        assert_eq!(selection.evaluate(&added(pod("a", "1", "x"), false)), SelectionResult::Drop);
        let gone = Notification::Deleted { object: pod("a", "1", "x"), tombstone: false };
        assert_eq!(selection.evaluate(&gone), SelectionResult::Accept);
    }

    #[test]
    fn selection_accepts_only_configured_namespaces() {
        let of = |namespace: &str| Selection { namespaces: vec![namespace.to_owned()], ..Selection::default() };
        let (in_shop, in_none) = (pod("a", "1", "x"), object(origin("", "nodes", "Node"), "", "n", "1", &json!({})));
        assert_eq!(of("shop").evaluate(&added(in_shop.clone(), false)), SelectionResult::Accept);
        assert_eq!(of("pay").evaluate(&added(in_shop, false)), SelectionResult::Drop);
        assert_eq!(of("shop").evaluate(&added(in_none, false)), SelectionResult::Drop);
    }

    #[test]
    fn selection_accepts_updates_only_if_a_path_changed() {
        let changed = vec!["status.phase".parse().unwrap(), "spec".parse().unwrap()];
        let selection = Selection { changed, ..Selection::default() };
        let update = |from, to| updated(pod("a", "1", from), pod("a", "2", to));
        assert_eq!(selection.evaluate(&update("Pending", "Running")), SelectionResult::Accept);
        assert_eq!(selection.evaluate(&update("Running", "Running")), SelectionResult::Drop);
        // Additions and deletions are not compared.
        assert_eq!(selection.evaluate(&added(pod("a", "1", "x"), false)), SelectionResult::Accept);
    }

    #[cfg(feature = "filters")]
    #[test]
    fn filter_reads_redacted_values() {
        let filter = Some(Filter::compile("object.status.phase == '<redacted>'").unwrap());
        let redaction = Redaction::new(vec!["status.phase".parse().unwrap()]);
        let selection = Selection { filter, redaction, ..Selection::default() };
        assert_eq!(selection.evaluate(&added(pod("a", "1", "Failed"), false)), SelectionResult::Accept);
    }

    #[cfg(feature = "filters")]
    #[test]
    fn failing_filter_accepts_unless_configured_to_drop() {
        let filter = |text| Selection { filter: Some(Filter::compile(text).unwrap()), ..Selection::default() };
        let add = added(pod("a", "1", "Failed"), false);
        assert_eq!(filter("object.status.phase == 'Failed'").evaluate(&add), SelectionResult::Accept);
        assert_eq!(filter("object.status.phase == 'Running'").evaluate(&add), SelectionResult::Drop);
        assert!(matches!(filter("object.nothing == 1").evaluate(&add), SelectionResult::AcceptUnfiltered(_)));
        let dropping = Selection { on_filter_error: OnFilterError::Drop, ..filter("object.nothing == 1") };
        assert!(matches!(dropping.evaluate(&add), SelectionResult::DropUnfiltered(_)));
    }
}
