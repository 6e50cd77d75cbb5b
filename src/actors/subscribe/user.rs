//! Users of informers: configuration entries, callers, subscriptions.

use std::fmt;

/// ID of a subscription, unique in its hub.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubscriptionId(pub(in crate::actors) u64);

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subscription-{}", self.0)
    }
}

/// User of an informer: configuration entry, caller or subscription. An informer stops when it has no users left.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum User {
    /// Configuration entry `[resources.<name>]`.
    Config(String),
    /// Caller of `InformerFor`, under a name it chose.
    Caller(String),
    /// Subscription with its own informer.
    Subscription(SubscriptionId),
}
