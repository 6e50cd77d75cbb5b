//! What really happened to objects, and what an informer told of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use informer_hub_types::{ApiResource, Gvr, ResourceVersion, Uid};
use parking_lot::Mutex;

use crate::fleet::{pods, widgets};

/// One informer of each way in which client-go makes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// Pods, by a typed informer.
    Pods,
    /// A custom resource, by a dynamic informer.
    Widgets,
    /// Config maps, by an informer of their metadata only.
    ConfigMaps,
}

impl Kind {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Pods, Self::Widgets, Self::ConfigMaps];

    /// The resource.
    pub(super) fn resource(self) -> ApiResource {
        match self {
            Self::Pods => pods(),
            Self::Widgets => widgets(),
            Self::ConfigMaps => {
                ApiResource { gvr: Gvr::new("", "v1", "configmaps"), kind: "ConfigMap".into(), namespaced: true }
            }
        }
    }

    /// The kind of a resource's name.
    pub(super) fn of(resource: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| &*kind.resource().gvr.resource == resource)
    }
}

/// An object's name and kind; its namespace is the schedule's.
pub(super) type Subject = (Kind, String);

/// One object in one state.
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

/// One thing that happened under a name, by the apiserver's answer to who did it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fact {
    /// How many facts there were, over all names, when it was asked for.
    pub(super) number: usize,
    pub(super) what: What,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// There is an object in this state.
    Is(State),
    /// The object has been marked as about to go, which the apiserver does to pods on its own and says to nobody but
    /// those who watch: at a version between these two.
    Dying { uid: Uid, after: ResourceVersion, before: ResourceVersion },
    /// The object is gone. Of some resources the apiserver does not answer with the version of the deletion.
    Gone { uid: Uid, version: Option<ResourceVersion> },
}

/// What a handler was told of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Told {
    Added { new: State, initial: bool },
    Updated { old: State, new: State },
    Deleted { last: State, tombstone: bool },
}

impl Told {
    /// The version of the change. `None` of what only a list or a resync says.
    pub(super) fn changed_at(&self) -> Option<u64> {
        match self {
            Self::Added { new, initial: false } | Self::Deleted { last: new, tombstone: false } => Some(new),
            Self::Updated { old, new } => Some(new).filter(|new| *new != old),
            Self::Added { .. } | Self::Deleted { .. } => None,
        }
        .and_then(|state| state.version.as_number())
    }
}

/// How many facts there are.
#[derive(Clone, Default, Debug)]
pub(super) struct Count(Arc<AtomicUsize>);

impl Count {
    /// Takes the next number.
    pub(super) fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// The next number.
    pub(super) fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Everything that one side told, in its order.
#[derive(Clone, Default, Debug)]
pub(super) struct Log {
    facts: Count,
    lines: Arc<Mutex<Lines>>,
}

#[derive(Default, Debug)]
struct Lines {
    told: BTreeMap<Subject, Vec<Told>>,
    /// The versions of the changes of each kind that a watch may have brought, in the order in which they were notified.
    order: BTreeMap<Kind, Vec<u64>>,
    /// When the first list had been told: the number of facts then.
    synced: BTreeMap<Kind, usize>,
    /// What each list may have in it: the number of facts when it was answered.
    listed: BTreeMap<Kind, Vec<usize>>,
    count: usize,
}

impl Log {
    /// A log that notes how many facts there are when a first list is complete.
    pub(super) fn new(facts: Count) -> Self {
        Self { facts, lines: Arc::default() }
    }

    /// Notes one notification.
    pub(super) fn tell(&self, subject: Subject, told: Told) {
        let mut lines = self.lines.lock();
        lines.count += 1;
        lines.order.entry(subject.0).or_default().extend(told.changed_at());
        lines.told.entry(subject).or_default().push(told);
    }

    /// Notes that a first list has been told.
    pub(super) fn synced(&self, kind: Kind) {
        let now = self.facts.now();
        self.lines.lock().synced.entry(kind).or_insert(now);
    }

    /// Notes that a list has been answered.
    pub(super) fn listed(&self, kind: Kind) {
        let now = self.facts.now();
        self.lines.lock().listed.entry(kind).or_default().push(now);
    }

    /// What each list may have in it: all but what happened after this many facts.
    pub(super) fn lists(&self, kind: Kind) -> Vec<usize> {
        self.lines.lock().listed.get(&kind).cloned().unwrap_or_default()
    }

    /// Whether every first list has been told.
    pub(super) fn is_synced(&self) -> bool {
        self.lines.lock().synced.len() == Kind::ALL.len()
    }

    /// How many facts there were when a first list had been told.
    pub(super) fn synced_at(&self, kind: Kind) -> Option<usize> {
        self.lines.lock().synced.get(&kind).copied()
    }

    /// Everything told, by object.
    pub(super) fn told(&self) -> BTreeMap<Subject, Vec<Told>> {
        self.lines.lock().told.clone()
    }

    /// How many changes of a kind were notified after a later change of another object. The first one has nothing before it.
    pub(super) fn reordered(&self, kind: Kind) -> usize {
        let lines = self.lines.lock();
        let order = lines.order.get(&kind).map_or(&[][..], |order| order);
        order.windows(2).filter(|pair| pair[1] < pair[0]).count()
    }

    /// How much was told.
    pub(super) fn len(&self) -> usize {
        self.lines.lock().count
    }

    /// What a consumer has that believes what it is told.
    pub(super) fn known(&self) -> BTreeMap<Subject, State> {
        let lines = self.lines.lock();
        let state = |told: &Vec<Told>| match told.last()? {
            Told::Added { new, .. } | Told::Updated { new, .. } => Some(new.clone()),
            Told::Deleted { .. } => None,
        };
        lines.told.iter().filter_map(|(subject, told)| Some((subject.clone(), state(told)?))).collect()
    }
}
