//! Objects of one partition that a selector may match, found by the stored label filters or by an index.

use std::ops::Bound;
use std::sync::Arc;

use super::posting::{PartitionId, Posting};
use super::snapshot::{Partition, Snapshot};
use informer_hub_types::{FieldPath, LabelNeeds, ObjectKey, StoredObject};

/// A scan skips the objects that a selector cannot match. Of these objects, it returns one in this many nevertheless,
/// so that the caller can pause.
const SKIPPED: usize = 64;

impl Partition {
    /// Returns the objects after `key` in key order, each with a flag: whether its labels may match `needs`. Of the
    /// objects that cannot match, only one in 64 is returned, so that the caller can pause. The others are skipped
    /// without being read.
    #[doc(hidden)]
    pub fn candidates_after<'s>(
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

impl Snapshot {
    /// Returns the objects of a partition that have `value` at `path`, in key order after `key`. `None` if the
    /// partition is missing, or if no index has the values of `path` for all its objects.
    #[doc(hidden)]
    #[must_use]
    pub fn indexed_after<'s>(
        &'s self,
        id: PartitionId,
        key: Option<&ObjectKey>,
        path: &FieldPath,
        value: &str,
    ) -> Option<impl Iterator<Item = &'s Arc<StoredObject>> + use<'s>> {
        let partition = self.partition(id)?;
        let index = self.index_of(path, std::iter::once(partition))?;
        let posting = self.indices.posting(&index, value);
        let start = key.cloned().unwrap_or_else(|| ObjectKey::new("", ""));
        let keys = posting.into_iter().flat_map(move |posting: &Posting| posting.keys_after(id, &start));
        Some(keys.filter_map(|key| partition.get(key)))
    }
}
