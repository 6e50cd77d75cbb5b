//! What the pieces of a question find, put together.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use serde_json::Value;

use super::answer::Group;
use super::view::{Start, View};
use super::worker::size;
use informer_hub_query::{Direction, Output, SortKey, Values};
use informer_hub_types::{FieldPath, StoredObject};

/// An object that matches.
pub(super) struct Hit {
    /// The place of its informer in the view.
    pub(super) member: usize,
    pub(super) stored: Arc<StoredObject>,
    /// What it is sorted by; empty where only cluster and key count.
    pub(super) sort: Box<[SortKey]>,
    /// What was asked for of it, where that was read already.
    pub(super) row: Option<Vec<Values>>,
}

/// What one piece found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) hits: Vec<Hit>,
    pub(super) tally: Tally,
}

/// What is counted on the way.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) groups: HashMap<Value, u64>,
    /// Bytes of what was read out of objects, about.
    pub(super) bytes: usize,
    pub(super) examined: u64,
    pub(super) read: u64,
    pub(super) unreadable: u64,
    pub(super) unkept: u64,
    /// Paths that some object has, of those that are watched for.
    pub(super) seen: Vec<bool>,
}

impl Tally {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.bytes += more.bytes;
        self.examined += more.examined;
        self.read += more.read;
        self.unreadable += more.unreadable;
        self.unkept += more.unkept;
        self.seen.resize(self.seen.len().max(more.seen.len()), false);
        self.seen.iter_mut().zip(more.seen).for_each(|(seen, now)| *seen |= now);
        for (value, count) in more.groups {
            if !self.groups.contains_key(&value) {
                self.bytes += size(std::slice::from_ref(&value));
            }
            *self.groups.entry(value).or_default() += count;
        }
    }
}

/// The order of an answer: by columns, then by cluster and key.
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

    /// Whether a hit comes behind the place where an answer goes on.
    pub(super) fn is_behind(&self, hit: &Hit, sort: &[SortKey], start: &Start) -> bool {
        let order = self.by_columns(&hit.sort, sort).then_with(|| self.place(hit).cmp(&start.rank));
        match &start.key {
            Some(key) => order.then_with(|| hit.stored.key().cmp(key)).is_gt(),
            None => order.is_ge(),
        }
    }
}

/// All that has been found so far.
#[derive(Default)]
pub(super) struct Gathered {
    /// Of an order by columns, together.
    pub(super) sorted: Vec<Hit>,
    /// Of the order by cluster and key, by piece.
    pub(super) in_order: BTreeMap<usize, Vec<Hit>>,
    pub(super) tally: Tally,
    pub(super) items: usize,
    /// Pieces from the first on that are done without a gap, and how many hits they have.
    settled: usize,
    settled_hits: usize,
}

impl Gathered {
    /// Takes in what the piece of a number found. `limit`: of how many hits it is known that more are not wanted.
    pub(super) fn take(&mut self, number: usize, mut found: Found, order: &Order<'_, '_>, limit: Option<usize>) {
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

    /// Whether the pieces from the first on have as many hits, in the order by cluster and key: pieces behind them have
    /// only later ones, where each cluster has one informer.
    pub(super) fn has_enough(&self, limit: usize) -> bool {
        self.settled_hits >= limit
    }

    /// All hits in order, up to a limit, and whether there are more.
    pub(super) fn into_hits(self, order: &Order<'_, '_>, limit: Option<usize>) -> (Vec<Hit>, bool) {
        let mut hits = self.sorted;
        hits.extend(self.in_order.into_values().flatten());
        // By pieces they are in order already, unless informers of a cluster overlap: that is found out in one walk.
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

/// Leaves the first `limit` hits, in no order, where there are `slack` times as many.
pub(super) fn truncate(hits: &mut Vec<Hit>, limit: usize, order: &Order<'_, '_>, slack: usize) {
    if limit > 0 && hits.len() >= limit.saturating_mul(slack).max(limit + 1) {
        hits.select_nth_unstable_by(limit - 1, |a, b| order.compare(a, b));
        hits.truncate(limit);
    }
}

/// The groups of an answer: of counts the most frequent first, else and then the least value first; and whether a limit
/// left any out.
pub(super) fn groups(groups: HashMap<Value, u64>, output: &Output, limit: Option<usize>) -> (Vec<Group>, bool) {
    let by_count = matches!(output, Output::CountBy(_));
    // Among distinct values `null` is none.
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

/// Paths that nothing that was read has.
pub(super) fn unmatched(paths: &[FieldPath], seen: &[bool], read: u64) -> Vec<FieldPath> {
    let is_seen = |at: usize| read == 0 || seen.get(at).copied().unwrap_or(false);
    paths.iter().enumerate().filter(|(at, _)| !is_seen(*at)).map(|(_, path)| path.clone()).collect()
}
