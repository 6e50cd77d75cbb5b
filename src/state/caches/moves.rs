//! Partitions that moved to the cache of another API version of their resource, and therefore to other files.

use std::collections::BTreeSet;

use super::codec::PartitionKey;
use informer_hub_types::{Gvr, Origin, View};

/// Partitions that moved to the cache of another API version and may not be in that cache's files yet.
#[derive(Clone, Debug, Default)]
pub struct Moves(Vec<Move>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Move {
    partition: PartitionKey,
    from: Gvr,
    to: Gvr,
    /// Whether the cache of the new API version has the partition in memory.
    is_done: bool,
}

impl Moves {
    /// Records that a partition is about to move. Must be called while the partition is still in the old cache.
    pub fn begin(&mut self, from: &Origin, to: &Origin) {
        if from.resource.gvr == to.resource.gvr || matches!(from.scope.view, View::Private(_)) {
            return;
        }
        let partition = (from.cluster.clone(), from.scope.clone());
        let (from, to) = (&from.resource.gvr, &to.resource.gvr);
        // If the partition moved to `from` earlier, that move now ends at `to`.
        for earlier in self.0.iter_mut().filter(|it| it.partition == partition && it.to == *from) {
            (earlier.to, earlier.is_done) = (to.clone(), false);
        }
        self.0.retain(|it| it.from != it.to && !(it.partition == partition && it.from == *from));
        self.0.push(Move { partition, from: from.clone(), to: to.clone(), is_done: false });
    }

    /// Records that the cache of the new API version has the moved partition in memory.
    pub fn done(&mut self, to: &Origin) {
        let partition = (to.cluster.clone(), to.scope.clone());
        let mine = |it: &&mut Move| it.partition == partition && it.to == to.resource.gvr;
        self.0.iter_mut().filter(mine).for_each(|it| it.is_done = true);
    }

    /// Returns the partitions that must stay in the files of this resource and view, although the cache no longer has
    /// them.
    pub(super) fn of(&self, gvr: &Gvr, view: &View) -> BTreeSet<PartitionKey> {
        let mine = self.0.iter().filter(|it| it.from == *gvr && it.partition.1.view == *view);
        mine.map(|it| it.partition.clone()).collect()
    }

    /// Returns whether any partition must stay on disk for this resource and view.
    #[must_use]
    pub fn has_kept_files(&self, gvr: &Gvr, view: &View) -> bool {
        !self.of(gvr, view).is_empty()
    }

    /// Records that the files of the cache of `at.resource` now contain the partition of the informer `at`. If the
    /// partition moved to this cache, the move is complete and is forgotten.
    pub fn written(&mut self, at: &Origin) {
        let is_it = |it: &Move| {
            it.is_done && it.to == at.resource.gvr && it.partition == (at.cluster.clone(), at.scope.clone())
        };
        self.0.retain(|it| !is_it(it));
    }

    /// Forgets each finished move whose partition the new cache has closed since then: `is_open` returns false for it.
    ///
    /// `earlier` is a copy of this list from before the state that `is_open` knows. A move that is not in `earlier` is
    /// kept, because `is_open` may not know its partition yet.
    pub fn forget_closed(&mut self, earlier: &Self, is_open: impl Fn(&Gvr, &PartitionKey) -> bool) {
        let is_closed = |it: &Move| it.is_done && earlier.0.contains(it) && !is_open(&it.to, &it.partition);
        self.0.retain(|it| !is_closed(it));
    }
}
