//! Recorded changes of objects (the ground truth) and the notifications of an informer about them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use informer_hub_types::{ApiResource, Gvr, ResourceVersion, Uid};
use parking_lot::Mutex;

use crate::fixture::{pods, widgets};

/// Watched resources: one for each kind of informer in client-go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// Pods, with a typed informer.
    Pods,
    /// A custom resource, with a dynamic informer.
    Widgets,
    /// Config maps, with a metadata-only informer.
    ConfigMaps,
}

impl Kind {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Pods, Self::Widgets, Self::ConfigMaps];

    /// Returns the resource.
    pub(super) fn resource(self) -> ApiResource {
        match self {
            Self::Pods => pods(),
            Self::Widgets => widgets(),
            Self::ConfigMaps => {
                ApiResource { gvr: Gvr::new("", "v1", "configmaps"), kind: "ConfigMap".into(), namespaced: true }
            }
        }
    }

    /// Returns the kind with this plural name.
    pub(super) fn of(resource: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| &*kind.resource().gvr.resource == resource)
    }
}

/// Kind and name of an object. Its namespace is that of the schedule.
pub(super) type Subject = (Kind, String);

/// State of an object: UID and version.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) uid: Uid,
    pub(super) version: ResourceVersion,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.uid, self.version)
    }
}

/// One change of an object, as the apiserver acknowledged it to the writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// Number of changes of all objects that were requested before.
    pub(super) number: usize,
    pub(super) kind: ChangeKind,
}

/// Kind of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ChangeKind {
    /// The object was created or updated to this state.
    Present(State),
    /// The object was marked for deletion, at a version between these two. The apiserver does this to pods by itself,
    /// and only watches show it.
    MarkedForDeletion { uid: Uid, after: ResourceVersion, before: ResourceVersion },
    /// The object was deleted. For some resources, the response lacks the version of the deletion.
    Deleted { uid: Uid, version: Option<ResourceVersion> },
}

/// Notification that a handler received for one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Notified {
    Added { new: State, initial: bool },
    Updated { old: State, new: State },
    Deleted { last: State, tombstone: bool },
}

impl Notified {
    /// Returns the version of the change, or `None` if only a list or a resync can have caused the notification.
    pub(super) fn changed_at(&self) -> Option<u64> {
        match self {
            Self::Added { new, initial: false } | Self::Deleted { last: new, tombstone: false } => Some(new),
            Self::Updated { old, new } => Some(new).filter(|new| *new != old),
            Self::Added { .. } | Self::Deleted { .. } => None,
        }
        .and_then(|state| state.version.as_number())
    }
}

/// Counter of changes. Clones share it.
#[derive(Clone, Default, Debug)]
pub(super) struct ChangeCounter(Arc<AtomicUsize>);

impl ChangeCounter {
    /// Takes and returns the next number.
    pub(super) fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the next number without taking it.
    pub(super) fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Notifications of one side, in order. Clones share them.
#[derive(Clone, Default, Debug)]
pub(super) struct Log {
    changes: ChangeCounter,
    lines: Arc<Mutex<Lines>>,
}

#[derive(Default, Debug)]
struct Lines {
    notified: BTreeMap<Subject, Vec<Notified>>,
    /// Versions of the changes that can have come from a watch, by kind, in order of notification.
    order: BTreeMap<Kind, Vec<u64>>,
    /// Number of changes at the end of the first list's notifications, by kind.
    synced: BTreeMap<Kind, usize>,
    /// Number of changes at the response to each list, by kind: an upper bound of its content.
    listed: BTreeMap<Kind, Vec<usize>>,
    count: usize,
}

impl Log {
    /// Creates a log that uses `changes` to date lists.
    pub(super) fn new(changes: ChangeCounter) -> Self {
        Self { changes, lines: Arc::default() }
    }

    /// Records one notification.
    pub(super) fn record(&self, subject: Subject, notified: Notified) {
        let mut lines = self.lines.lock();
        lines.count += 1;
        lines.order.entry(subject.0).or_default().extend(notified.changed_at());
        lines.notified.entry(subject).or_default().push(notified);
    }

    /// Records that the first list's notifications are complete.
    pub(super) fn synced(&self, kind: Kind) {
        let now = self.changes.now();
        self.lines.lock().synced.entry(kind).or_insert(now);
    }

    /// Records the response to a list.
    pub(super) fn listed(&self, kind: Kind) {
        let now = self.changes.now();
        self.lines.lock().listed.entry(kind).or_default().push(now);
    }

    /// Returns the number of changes at the response to each list.
    pub(super) fn lists(&self, kind: Kind) -> Vec<usize> {
        self.lines.lock().listed.get(&kind).cloned().unwrap_or_default()
    }

    /// Returns whether the first list of every kind has been notified.
    pub(super) fn is_synced(&self) -> bool {
        self.lines.lock().synced.len() == Kind::ALL.len()
    }

    /// Returns the number of changes at the end of the first list's notifications.
    pub(super) fn synced_at(&self, kind: Kind) -> Option<usize> {
        self.lines.lock().synced.get(&kind).copied()
    }

    /// Returns all notifications, by object.
    pub(super) fn notified(&self) -> BTreeMap<Subject, Vec<Notified>> {
        self.lines.lock().notified.clone()
    }

    /// Counts the notifications of a kind that follow a later change of another object.
    pub(super) fn reordered(&self, kind: Kind) -> usize {
        let lines = self.lines.lock();
        let order = lines.order.get(&kind).map_or(&[][..], |order| order);
        order.windows(2).filter(|pair| pair[1] < pair[0]).count()
    }

    /// Returns the number of notifications.
    pub(super) fn len(&self) -> usize {
        self.lines.lock().count
    }

    /// Returns the state that results from the notifications.
    pub(super) fn known(&self) -> BTreeMap<Subject, State> {
        let lines = self.lines.lock();
        let state = |notified: &Vec<Notified>| match notified.last()? {
            Notified::Added { new, .. } | Notified::Updated { new, .. } => Some(new.clone()),
            Notified::Deleted { .. } => None,
        };
        lines.notified.iter().filter_map(|(subject, notified)| Some((subject.clone(), state(notified)?))).collect()
    }
}
