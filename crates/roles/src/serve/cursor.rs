//! Cursor of a process that delivers: the version of a partition up to which all changes have been delivered before.
//!
//! The first list of a partition is the state at its cursor. So the changes since then, deletions too, are read as changes,
//! and become the same events as in the process that delivered before.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use informer_hub_fleet::Partition;

/// Version of a partition, once it is known; `None` if nothing has been delivered yet. Fails with the cause.
type Version = BoxFuture<'static, Result<Option<u64>, String>>;

/// Reads the version of each partition at which the first list of a deliverer begins.
#[derive(Clone)]
pub struct Cursor(Arc<dyn Fn(&Partition) -> Version + Send + Sync>);

impl Cursor {
    /// Creates a cursor that reads the versions with a function.
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
