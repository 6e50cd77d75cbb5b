//! Selection of the changes that a request for events wants, and their conversion to notifications.

use std::sync::Arc;

use serde_json::Value;

use super::request::EventsRequest;
use crate::api::kubernetes::CacheInfo;
use crate::api::rights::Reviewer;
use crate::api::v1::{ClusterChoice, Failure, Sight};
use crate::cache::{ChangeCause, ChangeKind, HistoryScope, RecordedChange};
use informer_hub_access::{Verb, Visibility};
use informer_hub_screen::{Difference, diff};
use informer_hub_sink::{Filter, Redaction};
use informer_hub_types::{EventType, LabelSelector, Notification, Object, Origin, StoredObject};

/// Conditions of a request on changes: clusters, namespaces, labels, event types and filter.
#[derive(Debug)]
pub(super) struct ChangeFilter {
    clusters: ClusterChoice,
    sight: Sight,
    namespaces: Vec<String>,
    labels: LabelSelector,
    filter: Option<Filter>,
    events: Vec<EventType>,
    /// Whether existing objects are sent before changes, and also the objects of clusters that are added later.
    pub(super) replay: bool,
    /// Whether updates include the paths of the fields that changed.
    pub(super) changed: bool,
    /// Replaces the values in Secrets, so that neither the filter nor the client sees them.
    redaction: Redaction,
}

impl ChangeFilter {
    /// Prepares the conditions of a request.
    ///
    /// # Errors
    /// [`Failure`] of code 400 if the filter is invalid.
    pub(super) async fn of(asked: EventsRequest, sight: Sight) -> Result<Self, Failure> {
        let EventsRequest { clusters, namespaces, labels, filter, events, replay, changed, .. } = asked;
        let filter = match filter {
            None => None,
            Some(text) => {
                // Compiling takes milliseconds and blocks, so it runs on a blocking thread.
                let compiled = tokio::task::spawn_blocking(move || Filter::compile(&text)).await;
                let compiled = compiled.map_err(|_| Failure::invalid("cannot compile filter"))?;
                Some(compiled.map_err(|error| Failure::invalid(error.to_string()))?)
            }
        };
        let redaction = Redaction::default();
        Ok(Self { clusters, sight, namespaces, labels, filter, events, replay, changed, redaction })
    }

    /// Returns which objects of a cache the reader may see, and the reviewer that repeats access reviews for an open
    /// stream.
    pub(super) async fn rights(&self, cache: &CacheInfo) -> (Visibility, Reviewer) {
        let is_wanted = |origin: &Origin| self.selects(origin);
        let visibility = self.sight.visibility(Verb::Watch, cache, is_wanted, &self.namespaces).await;
        (visibility, self.sight.reviewer(&cache.resource))
    }

    /// Returns whether objects of a namespace are selected; `namespace` is `None` for cluster-scoped objects.
    pub(super) fn selects_namespace(&self, namespace: Option<&str>) -> bool {
        let is_in = |name: &str| self.namespaces.iter().any(|wanted| wanted == name);
        self.namespaces.is_empty() || namespace.is_some_and(is_in)
    }

    /// Returns the clusters and informers whose changes are read from a cache's window of recent changes.
    pub(super) fn scope(&self) -> HistoryScope {
        if self.clusters == ClusterChoice::All && self.sight.is_everything() {
            return HistoryScope::Fleet;
        }
        let (clusters, sight) = (self.clusters.clone(), self.sight.clone());
        HistoryScope::Selected(Arc::new(move |origin| is_among(&clusters, &sight, origin)))
    }

    /// Returns whether the objects of an informer are selected.
    pub(super) fn selects(&self, origin: &Origin) -> bool {
        is_among(&self.clusters, &self.sight, origin)
    }

    /// Returns the notification of a change. `None` if its event type, namespace or labels are not selected. Also
    /// `None` if `replay` is false and the object is new only because its informer was added. Does not check the
    /// reader's rights.
    pub(super) fn notification(&self, change: &RecordedChange) -> Option<Notification> {
        let object = |stored: &Arc<StoredObject>| Object::new(Arc::clone(&change.origin), Arc::clone(stored));
        let new = object(&change.object);
        let notification = match change.kind {
            ChangeKind::Added => Notification::Added { object: new, initial: change.cause == ChangeCause::Partition },
            ChangeKind::Modified => {
                let old = object(change.old.as_ref().unwrap_or(&change.object));
                Notification::Updated { old, new, resync: false }
            }
            ChangeKind::Deleted => {
                Notification::Deleted { object: new, tombstone: change.cause != ChangeCause::Object }
            }
        };
        let old = change.old.as_ref().unwrap_or(&change.object);
        let is_selected = self.has_labels(&change.object) || self.has_labels(old);
        (is_selected && self.selects_head(&notification)).then_some(notification)
    }

    /// Returns the notification of an existing object; `None` if its namespace or labels are not selected. Does not check
    /// the reader's rights.
    pub(super) fn present(&self, origin: &Arc<Origin>, object: &Arc<StoredObject>) -> Option<Notification> {
        if !self.has_labels(object) {
            return None;
        }
        let object = Object::new(Arc::clone(origin), Arc::clone(object));
        let notification = Notification::Added { object, initial: true };
        self.selects_head(&notification).then_some(notification)
    }

    fn selects_head(&self, notification: &Notification) -> bool {
        let is_skipped = matches!(notification, Notification::Added { initial: true, .. }) && !self.replay;
        if is_skipped || !self.events.contains(&EventType::of(notification)) {
            return false;
        }
        notification.object().is_some_and(|object| self.selects_namespace(object.stored().key().namespace()))
    }

    fn has_labels(&self, object: &StoredObject) -> bool {
        self.labels.is_empty() || self.labels.matches(|label| object.labels().get(label))
    }

    /// Returns whether the filter passes a notification.
    ///
    /// # Errors
    /// The reason for which the filter failed, without values of the object.
    pub(super) fn passes(&self, notification: &Notification) -> Result<bool, String> {
        self.filter.as_ref().map_or(Ok(true), |filter| filter.passes(notification, &self.redaction))
    }

    /// Returns the paths that an update changed. `None` for other notifications, or if the JSON of the old or the new
    /// object is not in memory.
    pub(super) fn differences(&self, notification: &Notification) -> Option<Vec<Difference>> {
        let Notification::Updated { old, new, .. } = notification else { return None };
        let read = |object: &Object| -> Option<Value> {
            let json = object.stored().json().ok()?;
            serde_json::from_str(&self.redaction.wire_json(&object.origin().resource.gvr, &json)).ok()
        };
        Some(diff(&read(old)?, &read(new)?))
    }
}

fn is_among(clusters: &ClusterChoice, sight: &Sight, origin: &Origin) -> bool {
    let (name, labels) = (&origin.cluster, &origin.cluster_labels);
    clusters.includes(name, labels) && sight.cluster(name, labels)
}
