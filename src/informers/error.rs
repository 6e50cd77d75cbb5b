//! What informers and factories refuse.

use actix::MailboxError;

use crate::cache::AddIndexersError;
use informer_hub_types::{ClusterName, ResourceVersion};

/// Why an informer does not do as it is told; the caller can fix all but the last.
#[derive(Debug, thiserror::Error)]
pub enum InformerError {
    /// It has been started, and what was asked for has to come before.
    #[error("the informer has been started: {0} has to be set before")]
    Started(
        /// What.
        &'static str,
    ),
    /// Its lister or indexer is in use, and would look at the wrong objects.
    #[error("a lister or indexer of the informer has been handed out: the transform has to be set before")]
    InUse,
    /// It has been stopped, and never starts again: make another one with another factory.
    #[error("the informer has been stopped")]
    Stopped,
    /// The handler has been removed.
    #[error("the handler has been removed")]
    Removed,
    /// An index of that name exists, or somebody removed it before it was complete.
    #[error(transparent)]
    Indexer(#[from] AddIndexersError),
    /// The hub has ended.
    #[error("the hub has ended")]
    Hub(#[from] MailboxError),
}

/// Why [`SharedInformer::wait_until`](super::SharedInformer::wait_until) cannot end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The version asked for, or the store's, is not an integer. Only integers compare.
    #[error("resource version {0:?} cannot be waited for: it is not an integer")]
    NotAnInteger(ResourceVersion),
    /// The informer has not been started, does not select the cluster, or the cluster has been removed.
    #[error("the informer does not watch cluster {0}")]
    NotWatched(ClusterName),
    /// The informer has been stopped, or the hub has ended.
    #[error("the informer has been stopped, so its store gets no newer version")]
    Stopped,
}
