//! Objects of a partition that a label selector may select, found by the filters of the tree.

use std::ops::Bound;
use std::sync::Arc;

use super::snapshot::Partition;
use informer_hub_types::{LabelNeeds, ObjectKey, StoredObject};

/// One of this many skipped objects is returned.
const SKIPPED: usize = 64;

impl Partition {
    /// Returns the objects after `key` by key, each with whether its labels may match. Of the objects that cannot match,
    /// it returns only some, so that a caller can pause there. The others are skipped without touching them.
    pub(crate) fn candidates_after<'s>(
        &'s self,
        key: Option<&ObjectKey>,
        needs: &'s LabelNeeds,
    ) -> impl Iterator<Item = (&'s Arc<StoredObject>, bool)> {
        let start = key.map_or(Bound::Unbounded, Bound::Excluded);
        let mut skipped = 0_usize;
        self.objects.runs(start, Bound::Unbounded).flat_map(|run| run.judged(needs)).filter(move |(_, may_match)| {
            skipped += usize::from(!may_match);
            *may_match || skipped.is_multiple_of(SKIPPED)
        })
    }
}
