//! Splits a query's work into pieces, ordered by cluster and key, which any number of threads take.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use super::plan::{Access, Lookup};
use super::view::{Member, Start, View};
use crate::objects::end_of;
use crate::snapshot::Snapshot;
use crate::visible_ranges::is_in;
use informer_hub_types::{LabelNeeds, ObjectKey, StoredObject};

/// Unit of work of a thread: some objects of one informer.
pub(super) struct Piece {
    /// Position among the pieces, which are ordered by cluster and key.
    pub(super) number: usize,
    /// Informer that has the objects, as an index of [`View::members`].
    pub(super) member: usize,
    span: Span,
}

enum Span {
    /// All results of the access path's lookups in the informer.
    Lookups,
    /// A range of keys.
    Keys(Bound<ObjectKey>, Bound<ObjectKey>),
}

/// Position of the next piece of a query's work to hand to a thread.
#[derive(Default)]
pub(super) struct Cursor {
    number: usize,
    member: usize,
    /// Index of the current key range of the informer `member`.
    range: usize,
    /// First key of the next piece in the current key range; `None` at the start of the range.
    from: Option<ObjectKey>,
}

/// Work of a query, to be split into pieces for its threads.
pub(super) struct Pieces<'j, 's> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) view: &'j View<'s>,
    pub(super) access: &'j Access,
    /// Position after which the answer continues; `None` starts at the beginning.
    pub(super) start: Option<&'j Start>,
    /// Maximum number of objects in a piece.
    pub(super) size: usize,
    /// Label requirements by which objects are skipped without reading them.
    pub(super) needs: &'j LabelNeeds,
}

/// Number of objects that are prefetched together.
const PREFETCH: usize = 32;

/// Prefetched objects, each with the number of objects before it that were excluded by their label filters.
type Prefetched<'p> = SmallVec<[(&'p Arc<StoredObject>, u64); PREFETCH]>;
type Objects<'p> = Box<dyn Iterator<Item = &'p Arc<StoredObject>> + 'p>;

impl Pieces<'_, '_> {
    /// Returns the next piece of work, `None` at the end.
    pub(super) fn next(&self, cursor: &mut Cursor) -> Option<Piece> {
        loop {
            let member = self.view.members.get(cursor.member)?;
            let is_before = self.start.is_some_and(|start| member.rank < start.rank);
            let span = if is_before || !member.can_answer || member.partition.is_empty() {
                None
            } else {
                self.span(cursor, member)
            };
            let Some(span) = span else {
                *cursor = Cursor { number: cursor.number, member: cursor.member + 1, range: 0, from: None };
                continue;
            };
            let (number, member) = (cursor.number, cursor.member);
            cursor.number += 1;
            return Some(Piece { number, member, span });
        }
    }

    fn span(&self, cursor: &mut Cursor, member: &Member<'_>) -> Option<Span> {
        let Member { partition, rank, .. } = *member;
        let everything = [ObjectKey::new("", "")];
        let ranges = match (self.access, &member.ranges) {
            (Access::Lookups(_), _) => {
                cursor.range += 1;
                return (cursor.range == 1).then_some(Span::Lookups);
            }
            // `Job` has restricted the visible ranges to those of the access path.
            (_, Some(ranges)) => ranges,
            (Access::Scan, None) => everything.as_slice(),
            (Access::Ranges(ranges), None) => ranges.as_slice(),
        };
        loop {
            let range = ranges.get(cursor.range)?;
            let within = |key: &ObjectKey| key.as_str().starts_with(range.as_str());
            let lower = match (cursor.from.take(), self.after(rank)) {
                (Some(from), _) => Bound::Included(from),
                (None, Some(after)) if *after >= *range => Bound::Excluded(after.clone()),
                (None, _) => Bound::Included(range.clone()),
            };
            let mut runs = partition.objects.runs(lower.as_ref(), Bound::Unbounded);
            let first = runs.find(|run| run.len() > 0);
            let Some(first) = first.filter(|run| run.get(0).is_some_and(|object| within(object.key()))) else {
                cursor.range += 1;
                continue;
            };
            // First key after the piece. If it is in another range, the piece ends with this range.
            let mut left = self.size;
            let next = std::iter::once(first).chain(runs).find_map(|run| {
                let found = run.get(left).map(|object| object.key());
                left = left.saturating_sub(run.len());
                found
            });
            let next = next.filter(|key| within(key)).cloned();
            let upper = next.clone().map_or(Bound::Unbounded, Bound::Excluded);
            if next.is_none() {
                cursor.range += 1;
            }
            cursor.from = next;
            let upper = if matches!(upper, Bound::Unbounded) { end_of(range) } else { upper };
            return Some(Span::Keys(lower, upper));
        }
    }

    /// Returns the key after which the scan starts in the cluster of this rank (index among the selected clusters).
    /// `None` if the scan starts with the first object of the cluster.
    fn after(&self, rank: usize) -> Option<&ObjectKey> {
        self.start.filter(|start| start.rank == rank)?.key.as_ref()
    }

    /// Calls `look` with each object of a piece, by key, until it returns `false`. Returns how many objects were
    /// excluded by their label filters until then, or in the whole piece if `look` never returned `false`.
    pub(super) fn each(&self, piece: &Piece, mut look: impl FnMut(&Arc<StoredObject>) -> bool) -> u64 {
        let excluded = Cell::new(0);
        let member = &self.view.members[piece.member];
        match (&piece.span, self.access) {
            // Long scans are dominated by memory latency. Prefetch a group of objects with independent loads before
            // examining the first.
            (Span::Keys(lower, upper), _) => {
                let runs = member.partition.objects.runs(lower.as_ref(), upper.as_ref());
                let mut objects =
                    runs.flat_map(|run| run.that_may_match(self.needs, || excluded.set(excluded.get() + 1)));
                let mut prefetched: Prefetched<'_> = SmallVec::new();
                loop {
                    prefetched.clear();
                    prefetched.extend(objects.by_ref().take(PREFETCH).map(|object| (object, excluded.get())));
                    let heads = prefetched.iter().fold(0, |heads, (object, _)| heads ^ object.labels().address());
                    black_box(heads);
                    if prefetched.is_empty() {
                        return excluded.get();
                    }
                    // The count must not depend on how far objects were prefetched, which differs with the ranges that
                    // the reader may see.
                    if let Some((_, excluded)) = prefetched.iter().find(|(object, _)| !look(object)) {
                        return *excluded;
                    }
                }
            }
            (Span::Lookups, Access::Lookups(lookups)) => {
                let after = self.after(member.rank);
                let mut found = self.look_up(piece.member, lookups);
                let is_visible = |key: &ObjectKey| member.ranges.as_ref().is_none_or(|ranges| is_in(ranges, key));
                found
                    .by_ref()
                    .filter(|object| after.is_none_or(|after| object.key() > after) && is_visible(object.key()))
                    .all(look);
            }
            (Span::Lookups, _) => {}
        }
        excluded.get()
    }

    fn look_up<'p>(&'p self, member: usize, lookups: &'p [Lookup]) -> Objects<'p> {
        let member = &self.view.members[member];
        let partition = member.partition;
        let one = move |lookup: &'p Lookup| -> Objects<'p> {
            match lookup {
                Lookup::Key(key) => Box::new(partition.get(key).into_iter()),
                Lookup::Range(range) => Box::new(partition.beginning_with(range)),
                Lookup::Value(index, value) => {
                    let posting = self.snapshot.indices.posting(index, value);
                    let keys = posting.into_iter().flat_map(|posting| posting.keys_in(member.id));
                    Box::new(keys.filter_map(|key| partition.get(key)))
                }
            }
        };
        match lookups {
            [lookup] => one(lookup),
            many => {
                let found: BTreeMap<_, _> = many.iter().flat_map(one).map(|object| (object.key(), object)).collect();
                Box::new(found.into_values())
            }
        }
    }
}
