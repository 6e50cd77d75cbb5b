//! Meaning of a `resourceVersion`: Kubernetes' tables of list and watch semantics.

use crate::{Options, Status};

/// State that a list or a get is answered from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListAt {
    /// The present state.
    Present,
    /// The present state, once it is at least as new as this version.
    NotOlderThan(u64),
    /// Exactly the state of this version.
    Exact(u64),
    /// The state of a continue token, which [`Options::continuation`] holds.
    Continued,
}

/// Where a watch begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchFrom {
    /// The present state as `ADDED` events, then the changes. If a version is given, once the state is at least as new.
    Present {
        /// Least version of the state.
        not_older_than: Option<u64>,
        /// Whether a bookmark with `k8s.io/initial-events-end` follows the state.
        end_bookmark: bool,
    },
    /// The changes after a version.
    After(u64),
    /// The changes from now on (`sendInitialEvents=false` without a version).
    Now,
}

/// Returns the state that a list is answered from. `is_get` for a single object.
///
/// # Errors
/// [`Status`] of code 400 or 422 for a combination that Kubernetes refuses.
pub fn list_at(options: &Options, is_get: bool) -> Result<ListAt, Status> {
    let _ = (options, is_get);
    Ok(ListAt::Present)
}

/// Returns where a watch begins.
///
/// # Errors
/// [`Status`] of code 400 or 422 for a combination that Kubernetes refuses.
pub fn watch_from(options: &Options) -> Result<WatchFrom, Status> {
    let _ = options;
    Ok(WatchFrom::Now)
}
