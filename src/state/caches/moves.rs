//! Partitions that have gone on as those of another version of their resource, in another cache and so in other files.
//!
//! Caches are written one after the other, each whole or not at all, but not all of them at once. So what is on disk where
//! a partition was may only go when it is on disk where it is: at any moment one of the two is whole.

use std::collections::BTreeSet;

use super::codec::PartitionKey;
use informer_hub_types::{Gvr, Origin, View};

/// Which partitions have moved and are not known to be on disk in their new place.
#[derive(Clone, Debug, Default)]
pub struct Moves(Vec<Move>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Move {
    partition: PartitionKey,
    from: Gvr,
    to: Gvr,
    /// Whether it is in the cache of its new place by now.
    is_done: bool,
}

impl Moves {
    /// A partition is about to move, and is in the cache of its old place still.
    pub fn begin(&mut self, from: &Origin, to: &Origin) {
        if from.resource.gvr == to.resource.gvr || matches!(from.scope.view, View::Private(_)) {
            return;
        }
        let partition = (from.cluster.clone(), from.scope.clone());
        let (from, to) = (&from.resource.gvr, &to.resource.gvr);
        // Those before it that have not been written yet end where this one does.
        for earlier in self.0.iter_mut().filter(|it| it.partition == partition && it.to == *from) {
            (earlier.to, earlier.is_done) = (to.clone(), false);
        }
        self.0.retain(|it| it.from != it.to && !(it.partition == partition && it.from == *from));
        self.0.push(Move { partition, from: from.clone(), to: to.clone(), is_done: false });
    }

    /// It is in the cache of its new place.
    pub fn done(&mut self, to: &Origin) {
        let partition = (to.cluster.clone(), to.scope.clone());
        let mine = |it: &&mut Move| it.partition == partition && it.to == to.resource.gvr;
        self.0.iter_mut().filter(mine).for_each(|it| it.is_done = true);
    }

    /// What has to stay on disk of a cache though it has it no more.
    pub(super) fn of(&self, gvr: &Gvr, view: &View) -> BTreeSet<PartitionKey> {
        let mine = self.0.iter().filter(|it| it.from == *gvr && it.partition.1.view == *view);
        mine.map(|it| it.partition.clone()).collect()
    }

    /// Whether anything has to.
    #[must_use]
    pub fn hold(&self, gvr: &Gvr, view: &View) -> bool {
        !self.of(gvr, view).is_empty()
    }

    /// A partition is on disk where it is.
    pub fn written(&mut self, at: &Origin) {
        let is_it = |it: &Move| {
            it.is_done && it.to == at.resource.gvr && it.partition == (at.cluster.clone(), at.scope.clone())
        };
        self.0.retain(|it| !is_it(it));
    }

    /// Forgets of `earlier` what has neither moved on nor is in its new place any more: it was closed there.
    /// `is_open` tells of a moment after `earlier`.
    pub fn forget_closed(&mut self, earlier: &Self, is_open: impl Fn(&Gvr, &PartitionKey) -> bool) {
        let is_closed = |it: &Move| it.is_done && earlier.0.contains(it) && !is_open(&it.to, &it.partition);
        self.0.retain(|it| !is_closed(it));
    }
}
