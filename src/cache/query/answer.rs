//! Answers to queries: objects, columns or counts, with the freshness of each cluster.

use std::fmt;
use std::marker::PhantomData;

use serde_json::Value;
use smol_str::SmolStr;

use super::coverage::Coverage;
use super::plan::Plan;
use super::token::Position;
use informer_hub_query::Values;
use informer_hub_types::{FieldPath, Freshness, Notification, Object};

/// Selected columns of one object.
#[derive(Clone, Debug)]
pub struct Row<K = informer_hub_types::Dynamic> {
    /// The object.
    pub object: Object<K>,
    /// For each selected column, in order, the values of the object: none, one or several.
    pub values: Vec<Values>,
}

/// A value, and the number of objects that have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Value that the objects are grouped by.
    pub value: Value,
    /// Number of objects with the value.
    pub count: u64,
}

/// Answer to a [`super::Query`], from one snapshot.
pub struct Answer<K = informer_hub_types::Dynamic> {
    /// The objects in the requested order, then by cluster and key. Empty unless the query asks for objects.
    pub items: Vec<Object<K>>,
    /// The objects with their selected columns, if the query selects columns.
    pub rows: Vec<Row<K>>,
    /// Groups, if the query counts by value or asks for distinct values. Counts are ordered by frequency, distinct
    /// values by value.
    pub groups: Vec<Group>,
    /// Number of matching objects, if requested.
    pub count: Option<u64>,
    /// Whether a limit left out results.
    pub more: bool,
    /// Continue token, if a limit left out results and the cache has pinned the snapshot.
    pub next: Option<SmolStr>,
    /// Freshness of every selected cluster, ordered by cluster name. Clusters without matching objects are included.
    pub coverage: Vec<Coverage>,
    /// How the answer was found.
    pub plan: Plan,
    /// Number of objects examined.
    pub examined: u64,
    /// Number of objects whose JSON was decompressed or scanned, rather than only their metadata.
    pub read: u64,
    /// Paths of the query that may be misspelt. A path of the condition is listed if none of the objects that were read
    /// has it. A path of the order or of the columns is listed if no matching object has it.
    pub unmatched: Vec<FieldPath>,
    /// Number of objects with damaged or non-JSON bodies. Such an object matches only if its metadata decides the
    /// condition.
    pub unreadable: u64,
    /// Number of objects whose bodies were needed but are not in memory, because the hub's memory limit leaves no room
    /// for them. Such an object matches only if its metadata decides the condition. `coverage` shows which clusters
    /// have informers without bodies.
    pub unkept: u64,
    /// Position of the last result, if a limit left out further results.
    pub(super) end: Option<Position>,
    pub(super) kind: PhantomData<fn() -> K>,
}

impl<K> Answer<K> {
    /// Returns whether every cluster is complete and fresh, and all needed bodies were in memory.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unkept == 0 && self.coverage.iter().all(|part| part.freshness == Freshness::Synced)
    }

    /// Returns the position where a limit ended the answer, to be signed by a [`super::TokenKey`]. `None` if no limit
    /// ended the answer, or if the output is neither objects nor rows.
    #[must_use]
    pub fn end(&self) -> Option<&Position> {
        self.end.as_ref()
    }

    /// Converts the objects of the answer to another Rust type.
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

    /// Returns the objects as initial notifications of a listener.
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
