//! Assigns resource versions to a batch's changes, and sorts them, for readers that resume a watch of one cluster.

use hashbrown::{HashMap, HashSet};

use super::change::ChangeKind;
use super::draft::Draft;

/// A change with its resource version in the cluster; `None` if it has none.
pub(crate) type Arranged = (Draft, Option<u64>);

/// Limits on the versions that the changes of a batch may get.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// Resource version of the list that the batch completes; `None` if it completes none.
    pub(crate) list: Option<u64>,
    /// Greatest resource version that readers may have received other than with a change, e.g. with a list. A change at
    /// or below this version gets no version, because such readers would miss the change.
    pub(crate) base: u64,
    /// Versions that earlier changes already have. `None` if unknown: then deletions that the hub did not observe get
    /// no version.
    pub(crate) used: Option<HashSet<u64>>,
}

/// Assigns resource versions to the changes of a batch. If every change gets a version, also sorts them. Changes below
/// the list's version come first, then deletions that the list found, then later changes, each group by version.
/// Otherwise the order stays. It also stays if sorting would change the order of one key's changes, as after a restore
/// of etcd.
pub(crate) fn arrange(drafts: Vec<Draft>, mut conditions: Conditions) -> Vec<Arranged> {
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
    // Changes of a watch usually are in order, and need no look at their keys.
    let is_sorted = conditions.list.is_none() && arranged.is_sorted_by(|(_, one), (_, other)| one < other);
    let has_versions = arranged.iter().all(|(_, version)| version.is_some());
    if arranged.len() > 1 && has_versions && !is_sorted && is_sorted_by_key(&arranged) {
        sort(&mut arranged, conditions.list);
    }
    arranged
}

/// Returns whether each key's changes have increasing versions.
fn is_sorted_by_key(arranged: &[Arranged]) -> bool {
    let mut last = HashMap::with_capacity(arranged.len());
    arranged.iter().all(|(draft, version)| last.insert(draft.object.key(), *version) < Some(*version))
}

/// Returns whether the change at index `at` is an unobserved deletion that is followed by the addition of another
/// object at the same key.
fn is_replaced(arranged: &[Arranged], at: usize) -> bool {
    let (draft, _) = &arranged[at];
    arranged.get(at + 1).is_some_and(|(next, _)| {
        draft.is_missed() && next.kind == ChangeKind::Added && next.object.key() == draft.object.key()
    })
}

/// Assigns an unused version to each deletion that the hub did not observe: the greatest one that fulfils these
/// conditions.
///
/// - It is greater than the version of the deleted object, and than `conditions.base`.
/// - It is at most the version of the list.
/// - If another object was added under the same key, it is less than the version of that addition.
///
/// Deletions that need the greatest versions are served first, so that each gets a version if enough exist.
///
/// Only the batch that completes a list assigns these versions. Before, a change of the list that is still to arrive
/// could have the same version. Versions above that of the list are left to later watch events.
fn assign_missed(arranged: &mut [Arranged], conditions: &Conditions, used: &mut HashSet<u64>) {
    let Some(end) = conditions.list.map(|list| list.saturating_add(1)) else { return };
    let missed: Vec<_> = (0..arranged.len()).filter(|at| arranged[*at].0.is_missed()).collect();
    let (mut replaced, mut found): (Vec<_>, Vec<_>) = missed.into_iter().partition(|at| is_replaced(arranged, *at));
    let floor = |(draft, _): &Arranged| draft.object.resource_version().as_number().max(Some(conditions.base));
    // The deletion of the newest object first: it needs the greatest version.
    found.sort_by_key(|at| floor(&arranged[*at]));
    let mut limit = end;
    for at in found.into_iter().rev() {
        arranged[at].1 = floor(&arranged[at]).and_then(|floor| unused_between(floor, limit, used));
        limit = arranged[at].1.unwrap_or(limit);
    }
    replaced.sort_by_key(|at| std::cmp::Reverse(arranged[at + 1].1));
    for at in replaced {
        let (floor, deadline) = (floor(&arranged[at]), arranged[at + 1].1);
        arranged[at].1 =
            deadline.zip(floor).and_then(|(deadline, floor)| unused_between(floor, deadline.min(end), used));
    }
}

/// Returns the greatest unused version between `floor` and `limit`, both excluded, and marks it as used. `None` if all
/// are used.
fn unused_between(floor: u64, limit: u64, used: &mut HashSet<u64>) -> Option<u64> {
    let free = (floor.saturating_add(1)..limit).rev().find(|version| !used.contains(version))?;
    used.insert(free);
    Some(free)
}

/// Sorts the changes into three groups, each by version: changes below the list's version, deletions that the list
/// found, and later changes.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::object;

    /// Arranges additions and unobserved deletions of a list of version 12. Returns the versions of the deletions.
    fn deletions(added: &[(&str, u64)], missed: &[(&str, u64)]) -> Vec<(String, Option<u64>)> {
        let object = |(name, version): &(&str, u64)| Arc::new(object("ns", name, name, *version));
        let added = added.iter().map(|one| Draft::put(None, &object(one)));
        let missed = missed.iter().map(object).map(|object| Draft::deleted(&object, &object, None));
        let conditions = Conditions { list: Some(12), base: 5, used: Some(HashSet::new()) };
        let arranged = arrange(added.chain(missed).collect(), conditions);
        let deleted = arranged.into_iter().filter(|(draft, _)| draft.is_missed());
        let mut deleted: Vec<_> =
            deleted.map(|(draft, version)| (draft.object.key().name().to_owned(), version)).collect();
        deleted.sort();
        deleted
    }

    #[test]
    fn unobserved_deletion_is_later_than_its_object() {
        let of = |name: &str, version| (name.to_owned(), version);
        let found = deletions(&[("new", 10), ("other", 12)], &[("new", 10), ("old", 3)]);
        assert_eq!(found, [of("new", Some(11)), of("old", Some(9))]);
        let found = deletions(&[("new", 12)], &[("new", 12), ("old", 3)]);
        assert_eq!(found, [of("new", None), of("old", Some(11))], "no version is left for the newest object");
    }
}
