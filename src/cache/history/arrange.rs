//! Order and cluster versions of the changes of a batch.

use hashbrown::HashSet;

use super::change::ChangeKind;
use super::draft::Draft;

/// A change with its version in the cluster.
pub(in crate::cache) type Arranged = (Draft, Option<u64>);

/// Conditions of a batch.
#[derive(Debug, Default)]
pub(in crate::cache) struct Conditions {
    /// Version of the list that the batch completes.
    pub(in crate::cache) list: Option<u64>,
    /// Greatest version that readers may have and that is no version of a change. A change at or below it has no version.
    pub(in crate::cache) base: u64,
    /// Versions that other changes have. `None` if they are unknown: then unobserved deletions have no version.
    pub(in crate::cache) used: Option<HashSet<u64>>,
}

/// Assigns versions to the changes and sorts them by version. Deletions that a list found are last, except for a
/// change with the version of the list itself. The changes of a key keep their order. If a change has no version, all
/// keep their order.
pub(in crate::cache) fn arrange(drafts: Vec<Draft>, mut conditions: Conditions) -> Vec<Arranged> {
    let base = conditions.base;
    let is_known = conditions.used.is_some();
    let mut used = conditions.used.take().unwrap_or_default();
    let mut arranged: Vec<Arranged> = drafts.into_iter().map(|draft| (draft, None)).collect();
    for (draft, version) in &mut arranged {
        let received = draft.received().filter(|received| *received > base);
        *version = received.filter(|received| used.insert(*received));
    }
    if is_known {
        assign_missed(&mut arranged, &conditions, &mut used);
    }
    if arranged.len() > 1 && arranged.iter().all(|(_, version)| version.is_some()) {
        sort(&mut arranged, conditions.list);
    }
    arranged
}

/// Returns whether the deletion at a position was found because another object has its key.
fn is_replaced(arranged: &[Arranged], at: usize) -> bool {
    let (draft, _) = &arranged[at];
    arranged.get(at + 1).is_some_and(|(next, _)| {
        draft.is_missed() && next.kind == ChangeKind::Added && next.object.key() == draft.object.key()
    })
}

/// Assigns an unused version to each unobserved deletion, as great as possible: below that of the object that took its
/// key, or up to that of the list. The greatest limit is served first: then each gets a version if enough exist.
fn assign_missed(arranged: &mut [Arranged], conditions: &Conditions, used: &mut HashSet<u64>) {
    let missed: Vec<_> = (0..arranged.len()).filter(|at| arranged[*at].0.is_missed()).collect();
    if missed.is_empty() {
        return;
    }
    let (mut replaced, found): (Vec<_>, Vec<_>) = missed.into_iter().partition(|at| is_replaced(arranged, *at));
    let mut free = conditions.list.map(|list| list.saturating_add(1));
    // From the last one, so that they are in ascending order.
    for at in found.into_iter().rev() {
        free = free.and_then(|free| unused_below(free, conditions.base, used));
        arranged[at].1 = free;
    }
    replaced.sort_by_key(|at| std::cmp::Reverse(arranged[at + 1].1));
    for at in replaced {
        arranged[at].1 = arranged[at + 1].1.and_then(|deadline| unused_below(deadline, conditions.base, used));
    }
}

/// Returns the greatest unused version below a limit and above the base, and marks it as used.
fn unused_below(limit: u64, base: u64, used: &mut HashSet<u64>) -> Option<u64> {
    let free = (base.saturating_add(1)..limit).rev().find(|version| !used.contains(version))?;
    used.insert(free);
    Some(free)
}

/// Sorts by version, in three groups: changes, deletions that the list found, and changes at or after the version of the
/// list.
fn sort(arranged: &mut Vec<Arranged>, list: Option<u64>) {
    let is_found = |at: &usize| arranged[*at].0.is_missed() && !is_replaced(arranged, *at);
    let found: HashSet<_> = (0..arranged.len()).filter(is_found).collect();
    let keys: HashSet<_> = found.iter().map(|at| arranged[*at].0.object.key().clone()).collect();
    let mut grouped: Vec<_> = std::mem::take(arranged).into_iter().enumerate().collect();
    grouped.sort_by_cached_key(|(at, (draft, version))| {
        let is_late = list.is_some() && *version >= list && !keys.contains(draft.object.key());
        (u8::from(found.contains(at)) + 2 * u8::from(is_late && !found.contains(at)), *version)
    });
    arranged.extend(grouped.into_iter().map(|(_, arranged)| arranged));
}
