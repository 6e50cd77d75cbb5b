//! Expectations: pods that were created or deleted and are not visible in the cache yet, by name.
//!
//! A cache lags behind. A controller that counts three pods, creates two and counts again may still count three, and
//! would create two more. So it stores its expectations, and leaves a ReplicaSet alone until they are met. client-go
//! counts creations and deletions. This code stores the names, which the controller chooses itself. So a request with
//! an unknown outcome can be repeated under the same name, and makes at most one pod.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use informer_hub::Request;
use informer_hub::types::clock::{self, Instant};
use parking_lot::Mutex;

/// How long a change may take to become visible before the request is repeated.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);

/// Kind of an expected change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The creation of a pod.
    Create,
    /// The deletion of a pod.
    Delete,
}

/// A ReplicaSet with expectations. The UID distinguishes it from an earlier one of the same name.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) request: Request,
    pub(crate) uid: String,
}

/// Expected changes of one ReplicaSet, by pod, with the time to repeat each request.
struct Expected {
    uid: String,
    pods: HashMap<String, (Change, Instant)>,
}

/// Expected changes by ReplicaSet. An entry is never empty.
#[derive(Default)]
pub(crate) struct Expectations(Mutex<HashMap<Request, Expected>>);

impl Expectations {
    /// Records that a pod is about to be created or deleted. Call it before the request: the change may be visible
    /// before the response.
    pub(crate) fn expect(&self, set: &Owner, pod: &str, change: Change) {
        self.put(set, pod, change, clock::now() + OVERDUE);
    }

    /// Records that the outcome of a request is unknown, so that it is repeated soon.
    pub(crate) fn doubt(&self, set: &Owner, pod: &str, change: Change) {
        self.put(set, pod, change, clock::now());
    }

    fn put(&self, set: &Owner, pod: &str, change: Change, retry_at: Instant) {
        let mut all = self.0.lock();
        let new = || Expected { uid: set.uid.clone(), pods: HashMap::new() };
        let expected = all.entry(set.request.clone()).or_insert_with(new);
        if expected.uid != set.uid {
            *expected = new();
        }
        expected.pods.insert(pod.to_owned(), (change, retry_at));
    }

    /// Removes the expectation of a pod whose change is visible or was refused.
    pub(crate) fn settle(&self, set: &Owner, pod: &str) {
        self.change(set, |pods| pods.remove(pod));
    }

    /// Returns the overdue changes that are still needed and removes the overdue ones that are not. `shown` are the
    /// visible pods, `desired` is their target number.
    pub(crate) fn again(&self, set: &Owner, desired: usize, shown: &BTreeSet<String>) -> Vec<(String, Change)> {
        let now = clock::now();
        let mut again = Vec::new();
        self.change(set, |pods| {
            let pending = |change: Change| {
                let is_shown = change == Change::Delete;
                let is_pending = |(pod, (expected, retry_at)): &(&String, &(Change, Instant))| {
                    *expected == change && *retry_at > now && shown.contains(*pod) == is_shown
                };
                pods.iter().filter(is_pending).count()
            };
            // The number of pods after all pending changes.
            let pods_then = shown.len() + pending(Change::Create) - pending(Change::Delete);
            let (mut missing, mut surplus) = (desired.saturating_sub(pods_then), pods_then.saturating_sub(desired));
            pods.retain(|pod, (change, retry_at)| {
                if *retry_at > now {
                    return true;
                }
                let left = match change {
                    Change::Create if !shown.contains(pod) => &mut missing,
                    Change::Delete if shown.contains(pod) => &mut surplus,
                    // The change is visible.
                    _ => return false,
                };
                let is_needed = *left > 0;
                if is_needed {
                    *left -= 1;
                    again.push((pod.clone(), *change));
                }
                is_needed
            });
        });
        again
    }

    /// Whether all expectations are met, i.e. all changes are visible in the cache.
    pub(crate) fn are_met(&self, set: &Owner) -> bool {
        self.0.lock().get(&set.request).is_none_or(|expected| expected.uid != set.uid)
    }

    /// Removes the expectations of a ReplicaSet that is deleted.
    pub(crate) fn forget(&self, set: &Request) {
        self.0.lock().remove(set);
    }

    fn change<R>(&self, set: &Owner, change: impl FnOnce(&mut HashMap<String, (Change, Instant)>) -> R) {
        let mut all = self.0.lock();
        let Some(expected) = all.get_mut(&set.request).filter(|expected| expected.uid == set.uid) else { return };
        change(&mut expected.pods);
        if expected.pods.is_empty() {
            all.remove(&set.request);
        }
    }
}
