//! The objects of a partition that a reader's rights allow, as ranges of keys.
//!
//! The keys of a namespace are one range of the tree of objects. A query of a reader that sees some namespaces
//! therefore costs two tree descents per namespace, and nothing per object.

use std::ops::Bound;
use std::sync::Arc;

use smol_str::SmolStr;

use super::objects::end_of;
use super::snapshot::Partition;
use informer_hub_access::Visible;
use informer_hub_types::ObjectKey;

/// Key ranges, each given by a key prefix: sorted, and no prefix begins with another one.
#[doc(hidden)]
pub type KeyRanges = Arc<[ObjectKey]>;

impl Partition {
    /// Returns the key ranges of the objects that `visible` allows; `None` if it allows all objects.
    #[doc(hidden)]
    #[must_use]
    pub fn visible_ranges(&self, visible: &Visible) -> Option<KeyRanges> {
        let of = |namespace: &SmolStr| ObjectKey::new(namespace, "");
        let mut ranges: Vec<_> = match visible {
            Visible::Everything => return None,
            Visible::Nothing => Vec::new(),
            Visible::Namespaces(namespaces) => match namespaces.names() {
                Some(names) => names.iter().map(of).collect(),
                None => self.namespaces().iter().filter(|namespace| namespaces.has(namespace)).map(of).collect(),
            },
        };
        // Keys have another order than names: `shop-a/` is before `shop/`.
        ranges.sort_unstable();
        Some(ranges.into())
    }

    /// Returns the namespaces that have objects, sorted. If the list of namespaces is not cached, seeks each one in the
    /// tree.
    #[doc(hidden)]
    #[must_use]
    pub fn namespaces(&self) -> &[SmolStr] {
        self.objects.namespaces()
    }

    /// Returns the number of objects in `ranges`, without visiting them.
    #[doc(hidden)]
    #[must_use]
    pub fn len_in(&self, ranges: &[ObjectKey]) -> usize {
        let len = |range: &ObjectKey| self.objects.len_between(Bound::Included(range), end_of(range).as_ref());
        ranges.iter().map(len).sum()
    }
}

/// Returns whether a key begins with one of the prefixes `ranges`, which must be sorted.
#[doc(hidden)]
#[must_use]
pub fn is_in(ranges: &[ObjectKey], key: &ObjectKey) -> bool {
    let next = ranges.partition_point(|range| range <= key);
    next.checked_sub(1).is_some_and(|at| key.as_str().starts_with(ranges[at].as_str()))
}

/// Returns the ranges of the keys that are in a range of `a` and in one of `b`.
pub(super) fn intersection(a: &[ObjectKey], b: &[ObjectKey]) -> Vec<ObjectKey> {
    let within = |narrow: &&ObjectKey, wide: &[ObjectKey]| is_in(wide, narrow);
    let mut both: Vec<_> = a.iter().filter(|range| within(range, b)).cloned().collect();
    both.extend(b.iter().filter(|range| within(range, a)).cloned());
    both.sort_unstable();
    both.dedup();
    both
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(texts: &[String]) -> Vec<ObjectKey> {
        let mut ranges: Vec<_> = texts.iter().map(|text| ObjectKey::of(text)).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|longer, shorter| longer.as_str().starts_with(shorter.as_str()));
        ranges
    }

    proptest! {
        #![proptest_config(crate::testing::properties(512))]

        #[test]
        fn intersection_has_the_keys_of_both(
            a in prop::collection::vec("[ab/-]{0,3}", 0..5),
            b in prop::collection::vec("[ab/-]{0,3}", 0..5),
            key in "[ab/-]{0,5}",
        ) {
            let (a, b, key) = (ranges(&a), ranges(&b), ObjectKey::of(&key));
            let is_in_slow = |ranges: &[ObjectKey]| ranges.iter().any(|range| key.as_str().starts_with(range.as_str()));
            prop_assert_eq!(is_in(&a, &key), is_in_slow(&a));
            prop_assert_eq!(is_in_slow(&intersection(&a, &b)), is_in_slow(&a) && is_in_slow(&b));
        }
    }
}
