//! What comes out of a question.

use std::fmt;
use std::marker::PhantomData;

use serde_json::Value;
use smol_str::SmolStr;

use super::Position;
use super::plan::Plan;
use informer_hub_query::Values;
use informer_hub_types::{ClusterName, FieldPath, Freshness, MemoryStep, Notification, Object};

/// How far one cluster's part of an answer can be trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// The cluster.
    pub cluster: ClusterName,
    /// The freshness of its stalest informer that the answer draws on.
    pub freshness: Freshness,
    /// What the hub's memory limit leaves of it, where that is least.
    pub memory: MemoryStep,
}

/// What was asked for of one object.
#[derive(Clone, Debug)]
pub struct Row<K = informer_hub_types::Dynamic> {
    /// The object.
    pub object: Object<K>,
    /// Of each column that was asked for, in that order: no value, one, or several.
    pub values: Vec<Values>,
}

/// One value, and how many objects have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The value.
    pub value: Value,
    /// How many objects have it.
    pub count: u64,
}

/// The answer to a [`super::Query`], from one snapshot.
pub struct Answer<K = informer_hub_types::Dynamic> {
    /// The objects, in the order asked for; then, and without one, by cluster and key. Empty where something else than
    /// objects was asked for.
    pub items: Vec<Object<K>>,
    /// The same for chosen columns.
    pub rows: Vec<Row<K>>,
    /// Of a count by value, the most frequent first; of distinct values, the least first.
    pub groups: Vec<Group>,
    /// How many objects match, where that was asked for.
    pub count: Option<u64>,
    /// Whether a limit left something out.
    pub more: bool,
    /// How to go on, where a limit left something out and the cache that was asked keeps the snapshot for it.
    pub next: Option<SmolStr>,
    /// Every cluster that was asked for, by name, whether or not it has objects.
    pub coverage: Vec<Coverage>,
    /// How it was found.
    pub plan: Plan,
    /// How many objects were looked at for it.
    pub examined: u64,
    /// Of these, how many had to be decompressed or read.
    pub read: u64,
    /// Paths in the condition that no object which was read has: perhaps they are misspelt.
    pub unmatched: Vec<FieldPath>,
    /// Objects whose bytes are damaged or no JSON; they match nothing that their heads do not decide.
    pub unreadable: u64,
    /// Objects whose bodies would have had to be read and are not kept, since the hub's memory limit has no room for
    /// them; they match nothing that their heads do not decide. `coverage` says whose.
    pub unkept: u64,
    /// Where it ends, if there is more.
    pub(super) end: Option<Position>,
    pub(super) kind: PhantomData<fn() -> K>,
}

impl<K> Answer<K> {
    /// Whether every cluster's part is complete and fresh, and all that had to be read is kept.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unkept == 0 && self.coverage.iter().all(|part| part.freshness == Freshness::Synced)
    }

    /// Where a limit ended it: what a [`super::TokenKey`] signs. Objects and rows only.
    #[must_use]
    pub fn end(&self) -> Option<&Position> {
        self.end.as_ref()
    }

    /// The same answer with its objects read as another kind.
    #[must_use]
    pub fn cast<L>(self) -> Answer<L> {
        let row = |row: Row<K>| Row { object: row.object.cast(), values: row.values };
        Answer {
            items: self.items.into_iter().map(Object::cast).collect(),
            rows: self.rows.into_iter().map(row).collect(),
            groups: self.groups,
            count: self.count,
            more: self.more,
            next: self.next,
            coverage: self.coverage,
            plan: self.plan,
            examined: self.examined,
            read: self.read,
            unmatched: self.unmatched,
            unreadable: self.unreadable,
            unkept: self.unkept,
            end: self.end,
            kind: PhantomData,
        }
    }

    /// The answer's objects as the initial notifications of a listener.
    pub fn into_initial(self) -> impl Iterator<Item = Notification<K>> {
        self.items.into_iter().map(|object| Notification::Added { object, initial: true })
    }
}

impl<K> fmt::Debug for Answer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("items", &self.items.len())
            .field("rows", &self.rows.len())
            .field("groups", &self.groups.len())
            .field("count", &self.count)
            .field("more", &self.more)
            .field("coverage", &self.coverage)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
