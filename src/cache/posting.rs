//! Which objects carry one index value.

use std::sync::Arc;

use crate::types::ObjectKey;

/// One informer's part of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionId(pub u32);

/// Where an object is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location {
    /// The partition.
    pub partition: PartitionId,
    /// The key in it.
    pub key: ObjectKey,
}

/// A set of locations. Most values belong to few objects, so a short posting is one sorted allocation without
/// slack (24 bytes an object); a long one is a persistent tree, so that an update of a posting with a hundred
/// thousand entries copies a path and not the posting.
#[derive(Clone, Debug)]
pub(super) enum Posting {
    Few(Arc<[Location]>),
    Many(imbl::OrdSet<Location>),
}

impl Default for Posting {
    fn default() -> Self {
        Self::Few(Arc::new([]))
    }
}

impl Posting {
    /// Beyond this a tree is cheaper to update than an array.
    const FEW: usize = 64;

    pub(super) fn insert(&mut self, location: Location) {
        match self {
            Self::Many(set) => {
                set.insert(location);
            }
            Self::Few(few) => {
                let Err(at) = few.binary_search(&location) else { return };
                if few.len() < Self::FEW {
                    let (before, after) = few.split_at(at);
                    *few = before.iter().cloned().chain([location]).chain(after.iter().cloned()).collect();
                } else {
                    let mut set: imbl::OrdSet<_> = few.iter().cloned().collect();
                    set.insert(location);
                    *self = Self::Many(set);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, location: &Location) {
        match self {
            Self::Many(set) => {
                set.remove(location);
                // Half of the bound, so that a value at the bound does not go back and forth.
                if set.len() <= Self::FEW / 2 {
                    *self = Self::Few(set.iter().cloned().collect());
                }
            }
            Self::Few(few) => {
                let Ok(at) = few.binary_search(location) else { return };
                *few = few[..at].iter().chain(&few[at + 1..]).cloned().collect();
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(set) => set.len(),
        }
    }

    /// The locations from the first one of a partition, or where it would be, by partition and key.
    fn iter_from(&self, partition: PartitionId) -> Box<dyn Iterator<Item = &Location> + '_> {
        match self {
            Self::Few(few) => {
                let first = few.partition_point(|at| at.partition < partition);
                Box::new(few[first..].iter().inspect(|_| count()))
            }
            Self::Many(set) => {
                let first = Location { partition, key: ObjectKey::new("", "") };
                Box::new(set.range(first..).inspect(|_| count()))
            }
        }
    }

    /// The locations, by partition and key.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Location> {
        self.iter_from(PartitionId(0))
    }

    /// The keys in one partition, sorted. Costs those, however many other partitions have.
    pub(super) fn keys_in(&self, partition: PartitionId) -> impl Iterator<Item = &ObjectKey> {
        self.iter_from(partition).take_while(move |at| at.partition == partition).map(|at| &at.key)
    }

    /// Whether there is a location in any of these partitions, which are sorted. Skips from one that has a location to
    /// the next that is asked for, so it costs a look-up for each of those that are fewer.
    pub(super) fn is_in_any(&self, mut partitions: &[PartitionId]) -> bool {
        while let Some(wanted) = partitions.first() {
            match self.iter_from(*wanted).next() {
                None => return false,
                Some(at) if at.partition == *wanted => return true,
                Some(at) => partitions = &partitions[partitions.partition_point(|id| *id < at.partition)..],
            }
        }
        false
    }
}

/// A location is looked at. Nothing but what tests measure a question by.
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
        /// How many locations of postings have been looked at on this thread.
        pub(in crate::cache) static SHOWN: Cell<usize> = const { Cell::new(0) };
    }

    proptest! {
        #[test]
        fn a_posting_is_a_set(operations in prop::collection::vec((any::<bool>(), 0_u32..3, 0_usize..120), 0..600)) {
            let mut posting = Posting::default();
            let mut model = BTreeSet::new();
            for (insert, partition, name) in operations {
                let location = Location { partition: PartitionId(partition), key: ObjectKey::new("ns", &name.to_string()) };
                if insert {
                    posting.insert(location.clone());
                    model.insert(location);
                } else {
                    posting.remove(&location);
                    model.remove(&location);
                }
                prop_assert_eq!(posting.len(), model.len());
            }
            prop_assert!(posting.iter().eq(model.iter()));
            let there = |id: u32| model.iter().filter(move |at| at.partition == PartitionId(id));
            for id in 0..4 {
                prop_assert!(posting.keys_in(PartitionId(id)).eq(there(id).map(|at| &at.key)));
            }
            for asked in 0..16_u32 {
                let ids: Vec<_> = (0..4).filter(|id| asked >> id & 1 == 1).collect();
                let partitions: Vec<_> = ids.iter().copied().map(PartitionId).collect();
                prop_assert_eq!(posting.is_in_any(&partitions), ids.iter().any(|id| there(*id).next().is_some()));
            }
        }
    }
}
