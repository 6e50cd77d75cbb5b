//! Cursor of a deliverer: the version of a partition up to which an earlier process has delivered all changes.
//!
//! The first list of a partition is the state at its cursor. All later changes, deletions too, are read as changes and
//! become the same events as in the earlier process.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use informer_hub_fleet::Partition;

/// Future with the version of a partition; `None` if nothing was delivered yet. The error is the cause, for operators.
type Version = BoxFuture<'static, Result<Option<u64>, String>>;

/// Reads the version of each partition at which the first list of a deliverer begins.
#[derive(Clone)]
pub struct Cursor(Arc<dyn Fn(&Partition) -> Version + Send + Sync>);

impl Cursor {
    /// Creates a cursor that reads the version of a partition by `version`.
    pub fn new(version: impl Fn(&Partition) -> Version + Send + Sync + 'static) -> Self {
        Self(Arc::new(version))
    }

    pub(super) fn version(&self, partition: &Partition) -> Version {
        (self.0)(partition)
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").finish_non_exhaustive()
    }
}
