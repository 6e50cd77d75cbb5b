//! Cursor of a process that delivers to sinks: the resource version of a partition up to which an earlier process has
//! delivered all changes.
//!
//! The first list of a partition returns its state at the cursor. The changes after the cursor, including deletions,
//! are read from the log. So the sinks receive the events that the earlier process would have delivered.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use informer_hub_fleet::Partition;

/// Future with the resource version up to which changes of a partition were delivered; `None` if nothing was delivered
/// yet. The error is the cause, for operators.
type Version = BoxFuture<'static, Result<Option<u64>, String>>;

/// Function that reads the resource version up to which an earlier process has delivered a partition. The partition's
/// first list returns the state at this version.
#[derive(Clone)]
pub struct Cursor(Arc<dyn Fn(&Partition) -> Version + Send + Sync>);

impl Cursor {
    /// Creates a cursor that calls `version` to read the resource version of a partition.
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
