//! Requests and subscriptions: which resource, in which clusters, delivered to which subscriber, with its inbox.

pub(in crate::actors) mod inbox;
pub(in crate::actors) mod requests;
pub(in crate::actors) mod resource_request;
pub(in crate::actors) mod subscriber;
pub(in crate::actors) mod subscription;
pub(in crate::actors) mod user;
pub(in crate::actors) mod watch_errors;
