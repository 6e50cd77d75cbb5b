//! Requests for informers: by the configuration, by code, by subscriptions.

use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::user::{SubscriptionId, User};
use crate::actors::subscribe::watch_errors::WatchErrorHandler;
use actix::Message;
use informer_hub_reflector::InformerOptions;
use informer_hub_types::ClusterSelector;
use informer_hub_types::Scope;
use informer_hub_types::View;

/// An informer is used: start it if it does not run, count the user if it does.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Want {
    /// By whom.
    pub user: User,
    /// Which resource.
    pub wanted: ResourceRequest,
    /// Which part of it.
    pub scope: Scope,
    /// How objects are taken in; the first user's options count.
    pub options: InformerOptions,
    /// Whom to tell of failed lists and watches.
    pub watch_errors: Option<WatchErrorHandler>,
}

/// A user is done with all it wanted; informers without a user stop.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Unwant(pub User);

/// Asks for an informer in each selected cluster, now and later. Shared: users are counted. Answered when the clusters have
/// heard of it, at the latest after [`STOP_GRACE`](crate::actors::runtime::capacity::STOP_GRACE).
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct InformerFor {
    /// Who asks; [`Release`] takes it back.
    pub user: User,
    /// Which resource.
    pub wanted: ResourceRequest,
    /// In which clusters.
    pub clusters: ClusterSelector,
    /// Which parts of it, an informer each.
    pub scopes: Vec<Scope>,
    /// How objects are taken in.
    pub options: InformerOptions,
    /// Whom to tell of failed lists and watches.
    pub watch_errors: Option<WatchErrorHandler>,
}

impl InformerFor {
    /// The views of its scopes.
    pub(in crate::actors) fn views(&self) -> impl Iterator<Item = &View> {
        let mut views: Vec<_> = self.scopes.iter().map(|scope| &scope.view).collect();
        views.dedup();
        views.into_iter()
    }
}

/// Takes an [`InformerFor`] back; informers without a user stop.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Release(pub User);

/// Ends a subscription. Idempotent; answered when nothing of it is in flight any more.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Unsubscribe(pub SubscriptionId);
