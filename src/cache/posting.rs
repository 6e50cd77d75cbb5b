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

    /// The locations, by partition and key.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = &Location> + '_> {
        match self {
            Self::Few(few) => Box::new(few.iter()),
            Self::Many(set) => Box::new(set.iter()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

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
        }
    }
}
