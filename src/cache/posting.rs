//! Set of the locations (partition and key) of the objects that have one index value.

use std::ops::Bound::{Excluded, Unbounded};
use std::slice;
use std::sync::Arc;

use informer_hub_types::ObjectKey;

/// ID of one informer's partition of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId(pub u32);

/// Location of an object: its partition and its key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location {
    /// ID of the partition that contains the object.
    pub partition: PartitionId,
    /// Key of the object in the partition.
    pub key: ObjectKey,
}

/// A borrowed [`Location`]: partition and key.
pub(super) type At<'p> = (PartitionId, &'p ObjectKey);

impl Location {
    fn at(&self) -> At<'_> {
        (self.partition, &self.key)
    }
}

/// Set of the locations of the objects that have one index value; never empty. Per object, it stores a reference to the
/// key and the ID of the partition. A chunk whose locations are all in one partition stores that ID once.
///
/// Most values have one or few objects. A set of one location needs no allocation, and a set of few needs a single
/// allocation of exact size. Larger sets are a persistent tree of chunks. An update of a set with a million locations
/// then copies one path of the tree and one chunk.
#[derive(Clone, Debug)]
pub(super) enum Posting {
    One(Location),
    Few(Chunk),
    Many(Box<Tree>),
}

impl Posting {
    pub(super) fn insert(&mut self, location: Location) {
        match self {
            Self::One(one) if *one == location => {}
            Self::One(one) => {
                let pair = if one.at() < location.at() { [one.clone(), location] } else { [location, one.clone()] };
                *self = Self::Few(Chunk::of(pair.into()));
            }
            Self::Few(few) => {
                let Err(at) = few.find(location.at()) else { return };
                match few.with(at, location) {
                    ChunkInsertion::Whole(grown) => *few = grown,
                    ChunkInsertion::Split(left, right) => *self = Self::Many(Box::new(Tree::of([left, right]))),
                }
            }
            Self::Many(tree) => tree.insert(location),
        }
    }

    /// Removes a location. Returns true if it was the only one: the set is then unchanged, and the caller must drop the
    /// posting.
    pub(super) fn remove(&mut self, location: &Location) -> bool {
        match self {
            Self::One(one) => return one == location,
            Self::Few(few) => {
                if let Ok(at) = few.find(location.at()) {
                    *few = few.without(at);
                }
            }
            Self::Many(tree) => {
                tree.remove(location);
                // Half of the limit, so that a set whose size varies around the limit does not change its form at every
                // update.
                if tree.len <= Chunk::MAX / 2 {
                    *self = Self::Few(Chunk::of(self.iter().map(owned).collect()));
                }
            }
        }
        if self.len() == 1 && !matches!(self, Self::One(_)) {
            let last = self.iter().next().map(owned);
            *self = Self::One(last.expect("one is left"));
        }
        false
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Few(few) => few.len(),
            Self::Many(tree) => tree.len,
        }
    }

    /// Returns the locations in this and later partitions, by partition and key.
    fn iter_from(&self, partition: PartitionId) -> impl Iterator<Item = At<'_>> {
        self.iter_at(Location { partition, key: ObjectKey::new("", "") })
    }

    /// Returns the locations that are not less than `start`, by partition and key.
    fn iter_at(&self, start: Location) -> impl Iterator<Item = At<'_>> {
        let (first, rest) = match self {
            Self::One(one) => (Some(Run::Mixed(slice::from_ref(one))), None),
            Self::Few(few) => (Some(few.all()), None),
            Self::Many(tree) => {
                let (first, rest) = tree.from(&start);
                (first.map(Chunk::all), Some(rest))
            }
        };
        let first = first.into_iter().flat_map(move |run| run.from(&start));
        first.chain(rest.into_iter().flatten().flat_map(Chunk::all)).inspect(|_| count())
    }

    /// Returns the locations, by partition and key.
    pub(super) fn iter(&self) -> impl Iterator<Item = At<'_>> {
        self.iter_from(PartitionId(0))
    }

    /// Returns the sorted keys in one partition, at a cost independent of other partitions.
    pub(super) fn keys_in(&self, partition: PartitionId) -> impl Iterator<Item = &ObjectKey> {
        self.iter_from(partition).take_while(move |(at, _)| *at == partition).map(|(_, key)| key)
    }

    /// Returns the keys in one partition that follow a given key, sorted. The cost does not depend on the keys before
    /// it.
    pub(super) fn keys_after<'p>(
        &'p self,
        partition: PartitionId,
        key: &ObjectKey,
    ) -> impl Iterator<Item = &'p ObjectKey> + use<'p> {
        let start = Location { partition, key: key.clone() };
        let same = self.iter_at(start.clone()).take_while(move |(at, _)| *at == partition);
        same.map(|(_, key)| key).skip_while(move |found| **found == start.key)
    }

    /// Returns whether any of the given partitions, which must be sorted, has a location in this set. Costs at most one
    /// lookup for each given partition or for each partition of this set, whichever is fewer.
    pub(super) fn is_in_any(&self, mut partitions: &[PartitionId]) -> bool {
        while let Some(wanted) = partitions.first() {
            match self.iter_from(*wanted).next() {
                None => return false,
                Some((at, _)) if at == *wanted => return true,
                Some((at, _)) => partitions = &partitions[partitions.partition_point(|id| *id < at)..],
            }
        }
        false
    }
}

/// Copies a location.
pub(super) fn owned((partition, key): At<'_>) -> Location {
    Location { partition, key: key.clone() }
}

/// Sorted locations in one allocation.
#[derive(Clone, Debug)]
pub(super) enum Chunk {
    /// Locations in one partition.
    Run(PartitionId, Arc<[ObjectKey]>),
    /// Locations in several partitions.
    Mixed(Arc<[Location]>),
}

/// Result of inserting into a chunk.
enum ChunkInsertion {
    Whole(Chunk),
    /// The chunk was full and was split.
    Split(Chunk, Chunk),
}

impl Chunk {
    /// Maximum number of locations per chunk. An update copies a whole chunk, so larger sets are a tree of chunks. With
    /// its reference counts, a full chunk fills the allocator's size class of 256 bytes.
    const MAX: usize = 30;

    fn of(locations: Vec<Location>) -> Self {
        copied(locations.len());
        match (locations.first(), locations.last()) {
            (Some(first), Some(last)) if first.partition == last.partition => {
                Self::Run(first.partition, locations.into_iter().map(|at| at.key).collect())
            }
            _ => Self::Mixed(locations.into()),
        }
    }

    fn all(&self) -> Run<'_> {
        match self {
            Self::Run(partition, keys) => Run::Of(*partition, keys),
            Self::Mixed(locations) => Run::Mixed(locations),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Run(_, keys) => keys.len(),
            Self::Mixed(locations) => locations.len(),
        }
    }

    /// Returns the index of a location in the chunk. If the chunk does not contain it, returns its insertion point as
    /// the error.
    fn find(&self, wanted: At<'_>) -> Result<usize, usize> {
        match self {
            Self::Run(partition, keys) if *partition == wanted.0 => keys.binary_search(wanted.1),
            Self::Run(partition, keys) => Err(if *partition < wanted.0 { keys.len() } else { 0 }),
            Self::Mixed(locations) => locations.binary_search_by(|at| at.at().cmp(&wanted)),
        }
    }

    /// Returns the chunk with a new location at its insertion point.
    fn with(&self, at: usize, location: Location) -> ChunkInsertion {
        let full = self.len() >= Self::MAX;
        if full && at == self.len() {
            // Ordered insertion, as by a list, leaves full chunks.
            return ChunkInsertion::Split(self.clone(), Self::of(vec![location]));
        }
        if let Self::Run(partition, keys) = self
            && *partition == location.partition
            && !full
        {
            copied(keys.len());
            let (before, after) = keys.split_at(at);
            let keys = before.iter().cloned().chain([location.key]).chain(after.iter().cloned());
            return ChunkInsertion::Whole(Self::Run(*partition, keys.collect()));
        }
        let mut locations: Vec<_> = self.all().map(owned).collect();
        locations.insert(at, location);
        if !full {
            return ChunkInsertion::Whole(Self::of(locations));
        }
        let right = locations.split_off(locations.len() / 2);
        ChunkInsertion::Split(Self::of(locations), Self::of(right))
    }

    /// Returns the chunk without the location at a position.
    fn without(&self, at: usize) -> Self {
        match self {
            Self::Run(partition, keys) => {
                copied(keys.len());
                Self::Run(*partition, keys[..at].iter().chain(&keys[at + 1..]).cloned().collect())
            }
            Self::Mixed(locations) => {
                let mut locations = locations.to_vec();
                locations.remove(at);
                Self::of(locations)
            }
        }
    }
}

/// Adjacent locations of a chunk, borrowed.
enum Run<'p> {
    Of(PartitionId, &'p [ObjectKey]),
    Mixed(&'p [Location]),
}

impl Run<'_> {
    /// Returns the locations of this run that are not less than `first`.
    fn from(self, first: &Location) -> Self {
        match self {
            Self::Of(partition, keys) => {
                let passed = keys.partition_point(|key| (partition, key) < first.at());
                Self::Of(partition, &keys[passed..])
            }
            Self::Mixed(locations) => Self::Mixed(&locations[locations.partition_point(|at| at.at() < first.at())..]),
        }
    }
}

impl<'p> Iterator for Run<'p> {
    type Item = At<'p>;

    fn next(&mut self) -> Option<At<'p>> {
        match self {
            Self::Of(partition, keys) => {
                let (key, rest) = keys.split_first()?;
                *keys = rest;
                Some((*partition, key))
            }
            Self::Mixed(locations) => {
                let (at, rest) = locations.split_first()?;
                *locations = rest;
                Some(at.at())
            }
        }
    }
}

/// A large set of locations, in chunks.
///
/// Invariant: the locations of a chunk are not less than its key in `chunks`, and less than the key of the next chunk.
/// No chunk is empty.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    chunks: imbl::OrdMap<Location, Chunk>,
    len: usize,
}

impl Tree {
    fn of(chunks: [Chunk; 2]) -> Self {
        let len = chunks.iter().map(Chunk::len).sum();
        Self { chunks: chunks.into_iter().filter_map(keyed).collect(), len }
    }

    /// Returns the chunk that contains a location, or to which it would be added, with the chunk's key in the tree.
    /// `None` if the tree is empty.
    fn chunk_of(&self, location: &Location) -> Option<(&Location, &Chunk)> {
        self.chunks.get_prev(location).or_else(|| self.chunks.get_min().map(|(key, chunk)| (key, chunk)))
    }

    /// Returns the chunk that contains a location, or to which it would be added, and all chunks after that chunk.
    fn from<'t>(&'t self, first: &Location) -> (Option<&'t Chunk>, impl Iterator<Item = &'t Chunk> + use<'t>) {
        let found = self.chunk_of(first);
        let after = found.map_or(Unbounded, |(key, _)| Excluded(key));
        let rest = self.chunks.range::<_, Location>((after, Unbounded));
        (found.map(|(_, chunk)| chunk), rest.map(|(_, chunk)| chunk))
    }

    fn insert(&mut self, location: Location) {
        let Some((key, chunk)) = self.chunk_of(&location) else { return };
        let Err(at) = chunk.find(location.at()) else { return };
        let below_all = location < *key;
        let (key, grown) = (key.clone(), chunk.with(at, location));
        self.len += 1;
        if below_all {
            self.chunks.remove(&key);
        }
        let parts = match grown {
            ChunkInsertion::Whole(chunk) => [Some(chunk), None],
            ChunkInsertion::Split(left, right) => [Some(left), Some(right)],
        };
        let mut kept = (!below_all).then_some(key);
        for chunk in parts.into_iter().flatten() {
            if let Some((first, chunk)) = keyed(chunk) {
                self.chunks.insert(kept.take().unwrap_or(first), chunk);
            }
        }
    }

    fn remove(&mut self, location: &Location) {
        let Some((key, chunk)) = self.chunk_of(location) else { return };
        let Ok(at) = chunk.find(location.at()) else { return };
        let (key, chunk) = (key.clone(), chunk.without(at));
        self.len -= 1;
        // Joins the chunk with a neighbour if both together fill at most half a chunk.
        let fits = |other: &Chunk| chunk.len() + other.len() <= Chunk::MAX / 2;
        let before = self.chunks.range::<_, Location>((Unbounded, Excluded(&key))).next_back();
        let after = self.chunks.range::<_, Location>((Excluded(&key), Unbounded)).next();
        if chunk.len() == 0 {
            self.chunks.remove(&key);
        } else if let Some((other_key, other)) = before.filter(|(_, other)| fits(other)) {
            let joined = Chunk::of(other.all().chain(chunk.all()).map(owned).collect());
            let other_key = other_key.clone();
            self.chunks.remove(&key);
            self.chunks.insert(other_key, joined);
        } else if let Some((other_key, other)) = after.filter(|(_, other)| fits(other)) {
            let joined = Chunk::of(chunk.all().chain(other.all()).map(owned).collect());
            let other_key = other_key.clone();
            self.chunks.remove(&other_key);
            self.chunks.insert(key, joined);
        } else {
            self.chunks.insert(key, chunk);
        }
    }
}

/// Returns a chunk with its first location, for use as the chunk's key; `None` if the chunk is empty.
fn keyed(chunk: Chunk) -> Option<(Location, Chunk)> {
    let first = chunk.all().next().map(owned)?;
    Some((first, chunk))
}

/// Counts copied locations, for tests.
fn copied(locations: usize) {
    #[cfg(test)]
    tests::COPIED.set(tests::COPIED.get() + locations);
    #[cfg(not(test))]
    let _ = locations;
}

/// Counts visited locations, for tests.
fn count() {
    #[cfg(test)]
    tests::SHOWN.set(tests::SHOWN.get() + 1);
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// Number of locations of postings visited on this thread.
        pub(crate) static SHOWN: Cell<usize> = const { Cell::new(0) };
        /// Number of locations copied by updates on this thread.
        pub(super) static COPIED: Cell<usize> = const { Cell::new(0) };
    }

    fn at(partition: u32, name: usize) -> Location {
        Location { partition: PartitionId(partition), key: ObjectKey::new("ns", &format!("{name:07}")) }
    }

    fn check(posting: &Posting, model: &BTreeSet<Location>) {
        assert_eq!(posting.len(), model.len());
        assert!(posting.iter().eq(model.iter().map(Location::at)));
        match posting {
            Posting::One(_) => assert_eq!(model.len(), 1),
            Posting::Few(few) => assert_eq!(few.len(), model.len()),
            Posting::Many(tree) => assert!(tree.chunks.values().all(|chunk| (1..=Chunk::MAX).contains(&chunk.len()))),
        }
        let there = |id: u32| model.iter().filter(move |at| at.partition == PartitionId(id));
        for id in 0..4 {
            assert!(posting.keys_in(PartitionId(id)).eq(there(id).map(|at| &at.key)));
            for after in [0, 7, 60, 119] {
                let after = at(id, after).key;
                let expected = there(id).map(|at| &at.key).filter(|key| **key > after);
                assert!(posting.keys_after(PartitionId(id), &after).eq(expected));
            }
        }
        for asked in 0..16_u32 {
            let ids: Vec<_> = (0..4).filter(|id| asked >> id & 1 == 1).collect();
            let partitions: Vec<_> = ids.iter().copied().map(PartitionId).collect();
            assert_eq!(posting.is_in_any(&partitions), ids.iter().any(|id| there(*id).next().is_some()));
        }
    }

    proptest! {
        #![proptest_config(crate::testing::properties(256))]

        #[test]
        fn posting_equals_a_set(
            operations in prop::collection::vec((0_u8..10, 0_u32..3, 0_usize..120), 0..900),
            inserts in 3_u8..8,
        ) {
            let mut posting: Option<Posting> = None;
            let mut model = BTreeSet::new();
            for (step, (kind, partition, name)) in operations.into_iter().enumerate() {
                let location = at(partition, name);
                if kind < inserts {
                    match &mut posting {
                        Some(posting) => posting.insert(location.clone()),
                        None => posting = Some(Posting::One(location.clone())),
                    }
                    model.insert(location);
                } else {
                    model.remove(&location);
                    if posting.as_mut().is_some_and(|posting| posting.remove(&location)) {
                        posting = None;
                    }
                }
                prop_assert_eq!(posting.is_none(), model.is_empty());
                if let Some(posting) = posting.as_ref().filter(|_| step % 16 == 0) {
                    check(posting, &model);
                }
            }
            if let Some(posting) = &posting {
                check(posting, &model);
            }
        }
    }

    #[test]
    fn posting_update_copies_a_bounded_number_of_locations() {
        for len in [10, 1_000, 100_000_usize] {
            let mut posting = Posting::One(at(0, 0));
            (1..len).for_each(|name| posting.insert(at(u32::try_from(name / 30_000).unwrap(), name)));
            COPIED.set(0);
            for name in (0..len).step_by(len / 10) {
                let location = at(u32::try_from(name / 30_000).unwrap(), name);
                assert!(!posting.remove(&location));
                posting.insert(location);
            }
            assert!(COPIED.get() <= 10 * 4 * Chunk::MAX, "{} at {len}", COPIED.get());
        }
    }

    #[test]
    fn posting_chunks_are_full_after_ordered_insertion() {
        let mut posting = Posting::One(at(0, 0));
        (1..10_000).for_each(|name| posting.insert(at(0, name)));
        let Posting::Many(tree) = &posting else { panic!("{} are many", posting.len()) };
        assert_eq!(tree.chunks.len(), 10_000_usize.div_ceil(Chunk::MAX));
        // Removals leave no sparse chunks.
        (0..10_000).filter(|name| name % 16 != 0).for_each(|name| assert!(!posting.remove(&at(0, name))));
        let Posting::Many(tree) = &posting else { panic!("{} are many", posting.len()) };
        assert!(tree.chunks.len() * 4 <= posting.len(), "{} chunks for {}", tree.chunks.len(), posting.len());
    }
}
