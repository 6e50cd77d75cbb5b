//! What has been asked of a cluster and has not shown in its cache yet; client-go's controller expectations, by name.
//!
//! A cache lags. Whoever counts three pods, makes two more and counts again may still count three, and would make two
//! more. So a controller remembers what it expects, and leaves a ReplicaSet alone until it has seen it. client-go counts
//! creations and deletions; here names are kept, which the controller chooses itself. So when a request has failed and
//! nobody knows whether it was, or will be, carried out, it is repeated under the same name: there is one such pod in the
//! end, whichever of the two got through.

use std::collections::HashMap;
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

/// The pods of one ReplicaSet that will come or go, and when to ask for it again.
type Expected = HashMap<String, (Change, Instant)>;

/// What is expected of each ReplicaSet.
#[derive(Default)]
pub(crate) struct Expectations(Mutex<HashMap<Request, Expected>>);

impl Expectations {
    /// A pod is about to be made or deleted. To be said before that: it may show before the server has answered.
    pub(crate) fn expect(&self, set: &Request, pod: &str, change: Change) {
        self.put(set, pod, change, clock::now() + OVERDUE);
    }

    /// It is not known whether the pod was made or deleted: ask for it again soon.
    pub(crate) fn doubt(&self, set: &Request, pod: &str, change: Change) {
        self.put(set, pod, change, clock::now());
    }

    fn put(&self, set: &Request, pod: &str, change: Change, ask_at: Instant) {
        self.0.lock().entry(set.clone()).or_default().insert(pod.to_owned(), (change, ask_at));
    }

    /// The pod has come or gone, or will do neither.
    pub(crate) fn settle(&self, set: &Request, pod: &str) {
        let mut all = self.0.lock();
        let Some(pods) = all.get_mut(set) else { return };
        pods.remove(pod);
        if pods.is_empty() {
            all.remove(set);
        }
    }

    /// What should be asked for again by now.
    pub(crate) fn overdue(&self, set: &Request) -> Vec<(String, Change)> {
        let now = clock::now();
        let all = self.0.lock();
        let pods = all.get(set).into_iter().flatten();
        pods.filter(|(_, (_, ask_at))| *ask_at <= now).map(|(pod, (change, _))| (pod.clone(), *change)).collect()
    }

    /// Whether nothing is expected: the cache shows what was done.
    pub(crate) fn are_met(&self, set: &Request) -> bool {
        !self.0.lock().contains_key(set)
    }

    /// The ReplicaSet is gone.
    pub(crate) fn forget(&self, set: &Request) {
        self.0.lock().remove(set);
    }
}
