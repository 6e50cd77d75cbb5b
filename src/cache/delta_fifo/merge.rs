//! Merges of a new delta with the queued deltas of its key.

use std::collections::VecDeque;

use super::entry::{Entry, EntryKind};
use informer_hub_types::{Delta, DeltaKind};

/// Queued deltas of one key: their number, and the `arrival` numbers of the last two.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) count: usize,
    pub(super) last: u64,
    /// `arrival` number of the last delta but one; `None` if there was none. That delta may have been popped.
    pub(super) before_last: Option<u64>,
    /// `arrival` numbers of the addition and the deletion of the last [`Merge::Pair`]; `None` if there was none. They
    /// may have been popped.
    pub(super) pair: Option<(u64, u64)>,
}

/// How a new delta merges with the queued deltas of its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Merge {
    /// No merge: the new delta is queued.
    None,
    /// The new delta is dropped, because it adds nothing to the last queued one.
    Drop,
    /// The last queued delta is removed, and the new one is queued.
    Replace,
    /// The new delta is queued. It deletes the object that the last queued delta added, after the deletion of another
    /// object. The value is the pair before it, which is removed: addition and deletion of that other object.
    Pair(Option<(u64, u64)>),
}

/// Returns the index of the entry with this `arrival` number; `None` if it is no longer in the queue.
pub(super) fn position(queue: &VecDeque<Entry>, arrival: u64) -> Option<usize> {
    queue.binary_search_by_key(&arrival, |entry| entry.arrival).ok()
}

/// Returns the delta with this `arrival` number; `None` if it is no longer in the queue.
fn delta_at(queue: &VecDeque<Entry>, arrival: u64) -> Option<&Delta> {
    match &queue[position(queue, arrival)?].kind {
        EntryKind::Delta(delta, _) => Some(delta),
        EntryKind::Superseded | EntryKind::ReplaceEnd => None,
    }
}

/// Limits of [`merge`].
pub(super) struct MergeLimits {
    /// Whether the queue is above half of its byte limit. If not, only repeated deletions merge.
    pub(super) is_crowded: bool,
    /// Queued deltas with an `arrival` number below this one are not removed.
    pub(super) sealed: u64,
    /// Versions of queued deltas with an `arrival` number below this one do not compare with those of new deltas.
    pub(super) comparable: u64,
}

/// Decides how a new delta merges with the queued deltas of its key.
///
/// - A deletion is dropped if the last queued delta deletes the same object.
/// - In a crowded queue, a live state replaces an older live state of the same object, which is the last queued delta.
///   A live state from a watch that is not newer than the queued one is dropped, unless the queued one is sealed or
///   from before a restore of etcd. One from a list is queued too: if it replaced the queued one, its version would
///   come after later ones of other objects.
/// - In a crowded queue, of several objects of one name that were added and deleted one after the other, only the last
///   one is kept. It must be kept: the store, or a reader of an earlier process, may have one of them, and needs a
///   deletion.
pub(super) fn merge(queue: &VecDeque<Entry>, queued: &Queued, delta: &mut Delta, limits: &MergeLimits) -> Merge {
    let is_deletion = delta.kind == DeltaKind::Deleted;
    if !limits.is_crowded && !is_deletion {
        return Merge::None;
    }
    let Some(last) = delta_at(queue, queued.last).filter(|last| last.object.uid() == delta.object.uid()) else {
        return Merge::None;
    };
    let may_remove = limits.is_crowded && queued.last >= limits.sealed;
    let (before, version) = (last.object.resource_version(), delta.object.resource_version());
    let repeats = before == version && !version.is_empty();
    match (last.kind == DeltaKind::Deleted, is_deletion) {
        (true, true) => Merge::Drop,
        (false, false) if last.kind != DeltaKind::Sync && (repeats || before.newer_than(version)) => {
            // A watch may repeat a state, which the store would ignore too. It would not if a list in between has
            // deleted the object.
            let is_stale = if repeats { may_remove } else { queued.last >= limits.comparable };
            if delta.kind != DeltaKind::Replaced && is_stale { Merge::Drop } else { Merge::None }
        }
        (false, false) if may_remove => {
            // `Replaced` must stay `Replaced`.
            if last.kind == DeltaKind::Replaced {
                delta.kind = DeltaKind::Replaced;
            }
            Merge::Replace
        }
        (false, true) if limits.is_crowded => {
            let deletes = |before: &u64| delta_at(queue, *before).is_some_and(|it| it.kind == DeltaKind::Deleted);
            let before = queued.before_last.filter(deletes);
            let removed = queued.pair.filter(|(added, deleted)| Some(*deleted) == before && *added >= limits.sealed);
            before.map_or(Merge::None, |_| Merge::Pair(removed))
        }
        _ => Merge::None,
    }
}
