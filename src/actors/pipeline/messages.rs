//! Messages of the pipeline: reflector to fifo to processor to listener.

use crate::actors::subscribe::inbox::Inbox;
use crate::actors::subscribe::user::SubscriptionId;
use crate::cache::ListenerOptions;
use crate::cache::Popped;
use actix::Message;
use actix::Recipient;
use informer_hub_types::Change;
use informer_hub_types::ResourceVersion;
use informer_hub_types::SampledChange;
use std::sync::Arc;
use std::time::Duration;

/// Adds changes to the fifo. Answered when there is room for more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Enqueue {
    /// Changes in order.
    pub changes: Vec<Change>,
    /// Timestamps and trace of the one change whose latency is measured. If `None`, the time is measured from the
    /// arrival of this message.
    pub followed: Option<SampledChange>,
}

/// Applies a batch to the store and notifies the listeners. Answered when both are done.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Process {
    /// Changes to apply; empty if only `version` has advanced.
    pub batch: Vec<Popped>,
    /// resourceVersion up to which all changes have left the queue, including this batch.
    pub version: Option<ResourceVersion>,
    /// Change in the batch whose latency is measured; `None` if there is none in this batch.
    pub followed: Option<SampledChange>,
}

/// Wakes a listener to check its inbox. One queued message covers any number of notifications.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Wake;

/// Adds a listener to a processor. The processor fills `inbox` with the current objects of its partition (objects of
/// one informer). An inbox that was filled from this partition before is not filled again, and keeps its pending
/// notifications.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Join {
    /// ID of the subscription.
    pub subscription: SubscriptionId,
    /// Listener to wake when the inbox has notifications.
    pub listener: Recipient<Wake>,
    /// Queue for the subscriber's notifications.
    pub inbox: Arc<Inbox>,
    /// Filter of the objects to deliver, and whether objects that existed before the subscription are delivered too.
    pub options: ListenerOptions,
    /// Name of a durable reader, a sink or subscriber that resumes after a restart of the process. `None` for other
    /// subscribers.
    pub reader: Option<String>,
    /// Resync period; `None` without resyncs.
    pub resync: Option<Duration>,
}

/// Removes a listener from a processor.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Leave(pub SubscriptionId);

/// Stops an actor. Answered when it has stopped.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Stop {
    /// Whether the actor processes the items in its queue before it stops.
    pub drain: bool,
}
