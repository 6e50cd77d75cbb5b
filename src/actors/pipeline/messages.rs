//! Messages of the pipeline: reflector to fifo to processor to listener.

use crate::actors::subscribe::inbox::Inbox;
use crate::actors::subscribe::user::SubscriptionId;
use crate::cache::ListenerOptions;
use crate::cache::Popped;
use actix::Message;
use actix::Recipient;
use informer_hub_types::Change;
use informer_hub_types::Followed;
use informer_hub_types::ResourceVersion;
use std::sync::Arc;
use std::time::Duration;

/// Takes changes in; answered when there is room for more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Enqueue {
    /// In their order.
    pub changes: Vec<Change>,
    /// When they were read, where that is not now, and the trace of one of them.
    pub followed: Option<Followed>,
}

/// Applies a batch to the store and tells the listeners; answered when both is done.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Process {
    /// The batch; empty where only the version has moved on.
    pub batch: Vec<Popped>,
    /// With it, everything up to this version has been taken out of the queue.
    pub version: Option<ResourceVersion>,
    /// A change of it that is followed to its readers.
    pub followed: Option<Followed>,
}

/// There may be something in the listener's inbox. One that waits in a mailbox stands for any number of them.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Wake;

/// Tells a processor of a listener. Its queue is filled with the present state, unless it joined before.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Join {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// Whom to wake when something is in the inbox.
    pub listener: Recipient<Wake>,
    /// Where batches go.
    pub inbox: Arc<Inbox>,
    /// How to fill it.
    pub options: ListenerOptions,
    /// Its name, where it goes on after a restart of the process where it was.
    pub reader: Option<String>,
    /// The period of its resyncs.
    pub resync: Option<Duration>,
}

/// Tells a processor that a listener leaves.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Leave(pub SubscriptionId);

/// Stop. Answered when the actor has; what waits is worked off first if `drain`.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Stop {
    /// Whether what waits is worked off first.
    pub drain: bool,
}
