//! Collects the matches from the pieces of a query, in order and up to the limit.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use serde_json::Value;

use super::answer::Group;
use super::view::{Start, View};
use informer_hub_query::{Column, Direction, Output, SortKey, Values};
use informer_hub_types::{FieldPath, StoredObject};

/// A matching object.
pub(super) struct Hit {
    /// Informer that has the object, as an index of [`View::members`].
    pub(super) member: usize,
    pub(super) stored: Arc<StoredObject>,
    /// Sort keys of the object. Empty if the query has no sort columns, so that hits are ordered by cluster and key
    /// only.
    pub(super) sort: Box<[SortKey]>,
    /// Output columns of the object, if they were read already.
    pub(super) row: Option<Vec<Values>>,
}

/// Matches found in one piece (unit of work) of a query.
#[derive(Default)]
pub(super) struct PieceMatches {
    pub(super) hits: Vec<Hit>,
    pub(super) tally: Tally,
}

/// Counters and groups of a query.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) groups: HashMap<Value, u64>,
    /// Approximate bytes of values read from objects.
    pub(super) bytes: usize,
    pub(super) examined: u64,
    pub(super) read: u64,
    pub(super) unreadable: u64,
    pub(super) unkept: u64,
    /// For each path in the condition, whether an object whose body was read has it.
    pub(super) seen: Vec<bool>,
    pub(super) order: Filled,
    pub(super) output: Filled,
}

/// For each column of an order or output, whether some matching object has a value in it.
#[derive(Default)]
pub(super) struct Filled(Vec<bool>);

impl Filled {
    /// Notes which columns have a value in one object.
    pub(super) fn note(&mut self, values: &[Values]) {
        self.0.resize(values.len(), false);
        self.0.iter_mut().zip(values).for_each(|(filled, values)| *filled |= values.iter().any(|it| !it.is_null()));
    }

    /// Returns the paths of the columns that have no value in any noted object. Empty if no object was noted.
    pub(super) fn empty<'c>(&self, columns: impl Iterator<Item = &'c Column>) -> impl Iterator<Item = &'c FieldPath> {
        columns.zip(&self.0).filter(|(_, filled)| !**filled).filter_map(|(column, _)| match column {
            Column::Path(path) => Some(path),
            Column::Cluster => None,
        })
    }
}

/// Sets the flags of `flags` that are set in `others`.
fn unite(flags: &mut Vec<bool>, others: &[bool]) {
    flags.resize(flags.len().max(others.len()), false);
    flags.iter_mut().zip(others).for_each(|(flag, other)| *flag |= other);
}

impl Tally {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.bytes += more.bytes;
        self.examined += more.examined;
        self.read += more.read;
        self.unreadable += more.unreadable;
        self.unkept += more.unkept;
        unite(&mut self.seen, &more.seen);
        unite(&mut self.order.0, &more.order.0);
        unite(&mut self.output.0, &more.output.0);
        for (value, count) in more.groups {
            if !self.groups.contains_key(&value) {
                self.bytes += size(std::slice::from_ref(&value));
            }
            *self.groups.entry(value).or_default() += count;
        }
    }
}

/// Order of an answer: by columns, then by cluster and key.
pub(super) struct Order<'j, 's> {
    pub(super) directions: Vec<Direction>,
    pub(super) view: &'j View<'s>,
}

impl Order<'_, '_> {
    pub(super) fn compare(&self, a: &Hit, b: &Hit) -> Ordering {
        self.by_columns(&a.sort, &b.sort)
            .then_with(|| self.place(a).cmp(&self.place(b)))
            .then_with(|| a.stored.key().cmp(b.stored.key()))
    }

    fn by_columns(&self, a: &[SortKey], b: &[SortKey]) -> Ordering {
        let columns = self.directions.iter().zip(a.iter().zip(b));
        let mut orders = columns.map(|(direction, (a, b))| direction.apply(a.cmp(b)));
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    fn place(&self, hit: &Hit) -> usize {
        self.view.members[hit.member].rank
    }

    /// Returns whether a hit is after the position where the answer continues.
    pub(super) fn is_after(&self, hit: &Hit, sort: &[SortKey], start: &Start) -> bool {
        let order = self.by_columns(&hit.sort, sort).then_with(|| self.place(hit).cmp(&start.rank));
        match &start.key {
            Some(key) => order.then_with(|| hit.stored.key().cmp(key)).is_gt(),
            None => order.is_ge(),
        }
    }
}

/// All results found so far, by any thread.
#[derive(Default)]
pub(super) struct Gathered {
    /// Hits of a query with sort columns, in no order until [`Self::into_hits`] sorts them.
    pub(super) sorted: Vec<Hit>,
    /// Hits of a query without sort columns, by the number of their piece (unit of work).
    pub(super) in_order: BTreeMap<usize, Vec<Hit>>,
    pub(super) tally: Tally,
    pub(super) items: usize,
    /// Number of pieces (units of work, in key order) before the first one whose results have not arrived.
    /// `settled_hits` is the number of their hits.
    settled: usize,
    settled_hits: usize,
}

impl Gathered {
    /// Adds the result of the piece (unit of work) with this number. `limit` is the number of hits that suffice; `None`
    /// if all are needed.
    pub(super) fn take(&mut self, number: usize, mut found: PieceMatches, order: &Order<'_, '_>, limit: Option<usize>) {
        self.tally.add(found.tally);
        if order.directions.is_empty() {
            self.items += found.hits.len();
            self.in_order.insert(number, found.hits);
            while let Some(hits) = self.in_order.get(&self.settled) {
                self.settled_hits += hits.len();
                self.settled += 1;
            }
        } else {
            self.sorted.append(&mut found.hits);
            if let Some(limit) = limit {
                truncate(&mut self.sorted, limit, order, 2);
            }
            self.items = self.sorted.len();
        }
        self.items = self.items.max(self.tally.groups.len());
    }

    /// Returns how many of the first `limit` hits are still missing. Counts only hits of the pieces (units of work, in
    /// key order) before the first one whose results have not arrived. Use it only without sort columns, and if each
    /// cluster has one informer.
    pub(super) fn still_needed(&self, limit: usize) -> usize {
        limit.saturating_sub(self.settled_hits)
    }

    /// Returns all hits in order, up to a limit, and whether there are more.
    pub(super) fn into_hits(self, order: &Order<'_, '_>, limit: Option<usize>) -> (Vec<Hit>, bool) {
        let mut hits = self.sorted;
        hits.extend(self.in_order.into_values().flatten());
        // Pieces are already in order, unless informers of a cluster overlap; one scan shows that.
        if !hits.is_sorted_by(|a, b| order.compare(a, b).is_le()) {
            hits.sort_unstable_by(|a, b| order.compare(a, b));
        }
        let more = limit.is_some_and(|limit| hits.len() > limit);
        if let Some(limit) = limit {
            hits.truncate(limit);
        }
        (hits, more)
    }
}

/// If there are at least `limit` times `slack` hits, drops all but the first `limit` hits. Leaves the hits unsorted.
pub(super) fn truncate(hits: &mut Vec<Hit>, limit: usize, order: &Order<'_, '_>, slack: usize) {
    if limit > 0 && hits.len() >= limit.saturating_mul(slack).max(limit + 1) {
        hits.select_nth_unstable_by(limit - 1, |a, b| order.compare(a, b));
        hits.truncate(limit);
    }
}

/// Returns the groups of an answer and whether a limit dropped any. Counts are ordered by frequency, then by value;
/// distinct values by value.
pub(super) fn groups(groups: HashMap<Value, u64>, output: &Output, limit: Option<usize>) -> (Vec<Group>, bool) {
    let by_count = matches!(output, Output::CountBy(_));
    // `null` is not a distinct value.
    let groups = groups.into_iter().filter(|(value, _)| by_count || !value.is_null());
    let mut keyed: Vec<_> =
        groups.map(|(value, count)| (SortKey::new(std::slice::from_ref(&value)), Group { value, count })).collect();
    let counts = |a: &Group, b: &Group| if by_count { b.count.cmp(&a.count) } else { Ordering::Equal };
    let text = |group: &Group| group.value.to_string();
    keyed.sort_unstable_by(|(a, x), (b, y)| counts(x, y).then_with(|| a.cmp(b)).then_with(|| text(x).cmp(&text(y))));
    let more = limit.is_some_and(|limit| keyed.len() > limit);
    keyed.truncate(limit.unwrap_or(usize::MAX));
    (keyed.into_iter().map(|(_, group)| group).collect(), more)
}

/// Returns the paths that no read object has; none if no object was read.
pub(super) fn unmatched(paths: &[FieldPath], seen: &[bool], read: u64) -> Vec<FieldPath> {
    let is_seen = |at: usize| read == 0 || seen.get(at).copied().unwrap_or(false);
    paths.iter().enumerate().filter(|(at, _)| !is_seen(*at)).map(|(_, path)| path.clone()).collect()
}

/// Estimates the bytes of values.
pub(super) fn size(values: &[serde_json::Value]) -> usize {
    use serde_json::Value;
    let one = |value: &Value| match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(elements) => size(elements),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() + 32 + size(std::slice::from_ref(value))).sum()
        }
    };
    values.iter().map(|value| size_of::<Value>() + one(value)).sum()
}
