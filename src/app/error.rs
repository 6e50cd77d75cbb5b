//! Errors of starting a hub and of changing its configuration.

use actix::MailboxError;

use crate::actors::SystemError;
use crate::actors::messages::RegistryError;
use crate::state::StateError;
use informer_hub_journal::JournalError;

/// Problem reported for `[fleet]` by a program that was built without the feature `fleet`.
pub(crate) const WITHOUT_FLEET: &str = "this program was built without the feature fleet";

/// Error of starting a hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration of a sink is not usable. To be fixed in the configuration.
    #[error("sinks.{sink}.{key}: {problem}")]
    Sink {
        /// Name of the sink.
        sink: String,
        /// Key with the unusable value.
        key: &'static str,
        /// Problem with the key's value.
        problem: String,
    },
    /// Two entries of a table have the same name. To be fixed in the program that built the configuration.
    #[error("{table}.{name}: another entry has this name")]
    Duplicate {
        /// Name of the table: `clusters`, `resources`, `sinks` or `readers`.
        table: String,
        /// Name that both entries have.
        name: String,
    },
    /// The journal (undelivered events on disk) of a sink cannot be opened. To be fixed by the operator of the machine.
    #[error("sinks.{sink}: cannot open its journal")]
    Journal {
        /// Name of the sink.
        sink: String,
        /// The cause.
        #[source]
        source: JournalError,
    },
    /// A durable subscription is not usable. To be fixed in the embedding program.
    #[error("durable subscription {name:?}: {problem}")]
    Subscription {
        /// Name of the subscription.
        name: String,
        /// Problem with the subscription.
        problem: String,
    },
    /// The configuration of the fleet is not usable. To be fixed in the configuration, or by a build with the feature
    /// `fleet`.
    #[error("fleet: {problem}")]
    Fleet {
        /// Problem with the fleet.
        problem: String,
    },
    /// The state directory is not usable. To be fixed by the operator.
    #[error(transparent)]
    State(#[from] StateError),
    /// The operating system refused a thread.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The registry refuses a cluster, e.g. because the hub already has a cluster of this name.
    #[error(transparent)]
    Cluster(#[from] RegistryError),
    /// An actor ended while the hub started.
    #[error("a part of the hub failed during the start, see the log")]
    Died(#[from] MailboxError),
}

/// Error of applying a changed configuration, or a part of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration is not usable. The hub is unchanged, with two exceptions: after [`StartError::Cluster`] and
    /// [`StartError::Died`], parts of the configuration may have been applied.
    #[error(transparent)]
    Unusable(#[from] StartError),
    /// Reading the files that the configuration names was interrupted. The hub is unchanged.
    #[error("cannot read the files that the configuration names: the read was interrupted")]
    Unread,
    /// The token of a reader cannot be used. The hub is unchanged.
    #[error("cannot use the tokens of readers")]
    Readers(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The hub is shutting down. Parts of the configuration may have been applied.
    #[error("the hub is shutting down")]
    Stopped,
}

impl ReloadError {
    /// Returns whether parts of the configuration may have been applied before the error.
    pub(super) fn may_be_partial(&self) -> bool {
        matches!(self, Self::Stopped | Self::Unusable(StartError::Cluster(_) | StartError::Died(_)))
    }
}

impl From<MailboxError> for ReloadError {
    fn from(_: MailboxError) -> Self {
        Self::Stopped
    }
}
