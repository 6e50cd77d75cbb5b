//! Errors of informers and factories.

use actix::MailboxError;

use crate::cache::AddIndexersError;
use informer_hub_types::{ClusterName, ResourceVersion};

/// Error of an informer or factory. The caller can avoid all but [`Self::Hub`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InformerError {
    /// A setting was changed too late: the informer has already been started.
    #[error("the informer has been started: set {0} before the start")]
    Started(
        /// Name of the setting.
        &'static str,
    ),
    /// The transform cannot be set: a lister or indexer in use would read objects without it.
    #[error("the informer has a lister or indexer: set the transform before creating one")]
    InUse,
    /// The informer was stopped and cannot be restarted; use a new factory.
    #[error("the informer has been stopped")]
    Stopped,
    /// The handler has been removed.
    #[error("the handler has been removed")]
    Removed,
    /// The indices cannot be added: the name of one is taken, or the index was removed or the cache stopped before all
    /// objects were indexed.
    #[error(transparent)]
    Indexer(#[from] AddIndexersError),
    /// The hub has shut down.
    #[error("the hub has ended")]
    Hub(#[from] MailboxError),
}

/// Error of [`SharedInformer::wait_until`](super::SharedInformer::wait_until).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The requested resource version or the store's resource version is not an integer. Only integers can be compared.
    #[error("cannot wait for resource version {0:?}: it is not an integer")]
    NotAnInteger(ResourceVersion),
    /// The informer has not been started, does not select the cluster, or the cluster has been removed.
    #[error("the informer does not watch cluster {0}")]
    NotWatched(ClusterName),
    /// The informer has been stopped, or the hub has shut down.
    #[error("the informer has been stopped, so its store gets no newer version")]
    Stopped,
}
