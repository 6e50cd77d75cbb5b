//! The work of one question in pieces, in the order of clusters and keys, so that any number of threads can share it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use super::plan::{Access, Lookup};
use super::view::{Start, View};
use crate::cache::snapshot::{Partition, Snapshot};
use informer_hub_types::{LabelNeeds, ObjectKey, StoredObject};

/// One piece.
pub(super) struct Piece {
    /// Its place in the order.
    pub(super) number: usize,
    /// The place of the informer in the view.
    pub(super) member: usize,
    span: Span,
}

enum Span {
    /// All that the look-ups find there.
    Lookups,
    /// A range of keys.
    Keys(Bound<ObjectKey>, Bound<ObjectKey>),
}

/// How far pieces have been handed out.
#[derive(Default)]
pub(super) struct Cursor {
    number: usize,
    member: usize,
    /// Which of the ranges is under way.
    range: usize,
    /// The first key of the next piece in it.
    from: Option<ObjectKey>,
}

/// What is to be cut into pieces.
pub(super) struct Pieces<'j, 's> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) view: &'j View<'s>,
    pub(super) access: &'j Access,
    /// Behind which object the walk begins.
    pub(super) start: Option<&'j Start>,
    /// Objects in one piece of a walk, at most.
    pub(super) size: usize,
    /// What an object's labels must have.
    pub(super) needs: &'j LabelNeeds,
}

/// Objects that are called for at once.
const AHEAD: usize = 32;

type Called<'p> = SmallVec<[&'p Arc<StoredObject>; AHEAD]>;
type Objects<'p> = Box<dyn Iterator<Item = &'p Arc<StoredObject>> + 'p>;

impl Pieces<'_, '_> {
    /// The next piece, until there is none.
    pub(super) fn next(&self, cursor: &mut Cursor) -> Option<Piece> {
        loop {
            let member = self.view.members.get(cursor.member)?;
            let is_before = self.start.is_some_and(|start| member.rank < start.rank);
            let span = if is_before || !member.speaks || member.partition.is_empty() {
                None
            } else {
                self.span(cursor, member.partition, member.rank)
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

    fn span(&self, cursor: &mut Cursor, partition: &Partition, rank: usize) -> Option<Span> {
        let everything = [ObjectKey::new("", "")];
        let ranges = match self.access {
            Access::Lookups(_) => {
                cursor.range += 1;
                return (cursor.range == 1).then_some(Span::Lookups);
            }
            Access::Scan => everything.as_slice(),
            Access::Ranges(ranges) => ranges.as_slice(),
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
            // The key behind the piece; where that is of another range already, the walk itself sees where this one ends.
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

    /// The key behind which the walk begins, in a cluster of this rank.
    fn after(&self, rank: usize) -> Option<&ObjectKey> {
        self.start.filter(|start| start.rank == rank)?.key.as_ref()
    }

    /// Calls `look` with each object of a piece, by key, until it says that it has seen enough. How many objects there
    /// were besides, of which the filters of their labels say that they do not match.
    pub(super) fn each(&self, piece: &Piece, mut look: impl FnMut(&Arc<StoredObject>) -> bool) -> u64 {
        let passed = Cell::new(0);
        let member = &self.view.members[piece.member];
        match (&piece.span, self.access) {
            // By far the longest walks. An object is somewhere in memory, and most of a look at it is the wait for it: so
            // some are called for at once, with nothing that depends on what they say, before the first is looked at.
            (Span::Keys(lower, upper), _) => {
                let runs = member.partition.objects.runs(lower.as_ref(), upper.as_ref());
                let mut objects = runs.flat_map(|run| run.that_may(self.needs, || passed.set(passed.get() + 1)));
                let mut called: Called<'_> = SmallVec::new();
                loop {
                    called.clear();
                    called.extend(objects.by_ref().take(AHEAD));
                    let heads = called.iter().fold(0, |heads, object| heads ^ object.labels().address());
                    black_box(heads);
                    if called.is_empty() || !called.iter().all(|object| look(object)) {
                        return passed.get();
                    }
                }
            }
            (Span::Lookups, Access::Lookups(lookups)) => {
                let after = self.after(member.rank);
                let mut found = self.look_up(piece.member, lookups);
                found.by_ref().filter(|object| after.is_none_or(|after| object.key() > after)).all(look);
            }
            (Span::Lookups, _) => {}
        }
        passed.get()
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

/// The first key behind all that begin with `range`. A key is text, so there is one character behind its last one.
fn end_of(range: &ObjectKey) -> Bound<ObjectKey> {
    let mut text = range.as_str().to_owned();
    while let Some(last) = text.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            text.push(next);
            return Bound::Excluded(ObjectKey::new("", &text));
        }
    }
    Bound::Unbounded
}
