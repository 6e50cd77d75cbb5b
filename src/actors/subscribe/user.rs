//! Users of informers: the configuration, callers, subscriptions.

use std::fmt;

/// A subscription's number, unique in its hub.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubscriptionId(pub(in crate::actors) u64);

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subscription-{}", self.0)
    }
}

/// Who uses an informer: a configured resource by its name, or code.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum User {
    /// `[resources.<name>]`.
    Config(String),
    /// `InformerFor` under a name of the caller's.
    Caller(String),
    /// A subscription.
    Subscription(SubscriptionId),
}
