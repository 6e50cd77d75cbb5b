//! Requests for informers, made by the configuration, by code and by subscriptions.

use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::user::{SubscriptionId, User};
use crate::actors::subscribe::watch_errors::WatchErrorHandler;
use std::collections::BTreeSet;
use std::sync::Arc;

use actix::Message;
use informer_hub_reflector::InformerOptions;
use informer_hub_types::ClusterSelector;
use informer_hub_types::Scope;
use informer_hub_types::View;

/// Requests an informer of one cluster. Starts the informer, or adds `user` to its users if it runs.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct RequestInformer {
    /// User of the informer: configuration entry, caller or subscription.
    pub user: User,
    /// Requested resource.
    pub wanted: ResourceRequest,
    /// Scope to watch.
    pub scope: Scope,
    /// Options for decoding and selection. The options of a configuration entry take precedence, otherwise those of the
    /// request that started the informer.
    pub options: Arc<InformerOptions>,
    /// Handler for failed lists and watches.
    pub watch_errors: Option<WatchErrorHandler>,
}

/// Removes a user (configuration entry, caller or subscription) from all its informers; informers without users stop.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct ReleaseInformers(pub User);

/// Requests an informer in each selected cluster, also in clusters that are added later. Requests for the same resource
/// and scope share an informer. Answered when the clusters have received the request, at the latest after
/// [`STOP_GRACE`](crate::actors::runtime::capacity::STOP_GRACE).
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct InformerFor {
    /// User of the informers (configuration entry or caller); [`Release`] withdraws the request.
    pub user: User,
    /// Requested resource.
    pub wanted: ResourceRequest,
    /// Selected clusters.
    pub clusters: ClusterSelector,
    /// Scopes to watch, with one informer each.
    pub scopes: Vec<Scope>,
    /// Options for decoding and selection.
    pub options: Arc<InformerOptions>,
    /// Handler for failed lists and watches.
    pub watch_errors: Option<WatchErrorHandler>,
}

impl InformerFor {
    /// Returns the views of the scopes, i.e. the forms in which objects are kept. A view is left out if the previous
    /// scope has the same.
    pub(in crate::actors) fn views(&self) -> impl Iterator<Item = &View> {
        self.scopes.iter().map(|scope| &scope.view).collect::<BTreeSet<_>>().into_iter()
    }
}

/// Withdraws all requests of a user (configuration entry or caller); informers without users stop.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Release(pub User);

/// Ends a subscription. Idempotent; answered when its last delivery has ended.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Unsubscribe(pub SubscriptionId);
