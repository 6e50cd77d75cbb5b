//! Durable subscriptions: actors that receive events from a journal and resume after a restart.

pub use crate::actors::durable::{Deliveries, Refusal};
pub use crate::app::DurableSubscription;
