//! What has been asked of a cluster and has not shown in its cache yet; client-go's controller expectations, by name.
//!
//! A cache lags. Whoever counts three pods, makes two more and counts again may still count three, and would make two
//! more. So a controller remembers what it expects, and leaves a ReplicaSet alone until it has seen it. client-go counts
//! creations and deletions; here names are kept, which the controller chooses itself. So when a request has failed and
//! nobody knows whether it was, or will be, carried out, it is repeated under the same name: there is one such pod in the
//! end, whichever of the two got through.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use informer_hub::Request;
use informer_hub::types::clock::{self, Instant};
use parking_lot::Mutex;

/// How long something may take to show before it is asked for again.
pub(crate) const OVERDUE: Duration = Duration::from_secs(30);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A pod that will come.
    Create,
    /// A pod that will go.
    Delete,
}

/// A ReplicaSet of which something is expected. Its UID tells it from one that had its name before.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) request: Request,
    pub(crate) uid: String,
}

/// The pods of one ReplicaSet that will come or go, and when to ask for it again.
struct Expected {
    uid: String,
    pods: HashMap<String, (Change, Instant)>,
}

/// What is expected of each ReplicaSet; never nothing.
#[derive(Default)]
pub(crate) struct Expectations(Mutex<HashMap<Request, Expected>>);

impl Expectations {
    /// A pod is about to be made or deleted. To be said before that: it may show before the server has answered.
    pub(crate) fn expect(&self, set: &Owner, pod: &str, change: Change) {
        self.put(set, pod, change, clock::now() + OVERDUE);
    }

    /// It is not known whether the pod was made or deleted: ask for it again soon.
    pub(crate) fn doubt(&self, set: &Owner, pod: &str, change: Change) {
        self.put(set, pod, change, clock::now());
    }

    fn put(&self, set: &Owner, pod: &str, change: Change, ask_at: Instant) {
        let mut all = self.0.lock();
        let new = || Expected { uid: set.uid.clone(), pods: HashMap::new() };
        let expected = all.entry(set.request.clone()).or_insert_with(new);
        if expected.uid != set.uid {
            *expected = new();
        }
        expected.pods.insert(pod.to_owned(), (change, ask_at));
    }

    /// The pod has come or gone, or will do neither.
    pub(crate) fn settle(&self, set: &Owner, pod: &str) {
        self.change(set, |pods| pods.remove(pod));
    }

    /// What should be asked for again by now and is still wanted, if `shown` are the pods that there are and `wanted` is
    /// their number as it should be. What is overdue and not wanted any more is not expected any more either.
    pub(crate) fn again(&self, set: &Owner, wanted: usize, shown: &BTreeSet<String>) -> Vec<(String, Change)> {
        let now = clock::now();
        let mut again = Vec::new();
        self.change(set, |pods| {
            let under_way = |change: Change| {
                let is_there = change == Change::Delete;
                let is_it = |(pod, (what, ask_at)): &(&String, &(Change, Instant))| {
                    *what == change && *ask_at > now && shown.contains(*pod) == is_there
                };
                pods.iter().filter(is_it).count()
            };
            // How many there will be if what is under way comes about.
            let pods_then = shown.len() + under_way(Change::Create) - under_way(Change::Delete);
            let (mut missing, mut surplus) = (wanted.saturating_sub(pods_then), pods_then.saturating_sub(wanted));
            pods.retain(|pod, (change, ask_at)| {
                if *ask_at > now {
                    return true;
                }
                let left = match change {
                    Change::Create if !shown.contains(pod) => &mut missing,
                    Change::Delete if shown.contains(pod) => &mut surplus,
                    // It has shown.
                    _ => return false,
                };
                let is_wanted = *left > 0;
                if is_wanted {
                    *left -= 1;
                    again.push((pod.clone(), *change));
                }
                is_wanted
            });
        });
        again
    }

    /// Whether nothing is expected: the cache shows what was done.
    pub(crate) fn are_met(&self, set: &Owner) -> bool {
        self.0.lock().get(&set.request).is_none_or(|expected| expected.uid != set.uid)
    }

    /// The ReplicaSet is gone, or going.
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
