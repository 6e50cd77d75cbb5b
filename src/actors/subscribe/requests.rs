//! Requests for informers, made by the configuration, by code and by subscriptions.

use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::user::{SubscriptionId, User};
use crate::actors::subscribe::watch_errors::WatchErrorHandler;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::Message;
use informer_hub_reflector::InformerOptions;
use informer_hub_types::ClusterSelector;
use informer_hub_types::Scope;
use informer_hub_types::View;
use informer_hub_types::clock::Instant;

/// Requests an informer of one cluster. Starts the informer, or adds `user` to its users if it runs.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct RequestInformer {
    /// User of the informer: configuration entry, caller or subscription.
    pub user: User,
    /// Requested resource.
    pub wanted: ResourceRequest,
    /// Part of the resource to watch: namespace, selectors, and form of the objects.
    pub scope: Scope,
    /// Options for decoding and selection. If requests for the same informer have different options, the options of a
    /// configuration entry apply. If no configuration entry requests the informer, the options of the first request
    /// apply.
    pub options: Arc<InformerOptions>,
    /// Handler for failed lists and watches.
    pub watch_errors: Option<WatchErrorHandler>,
}

/// Removes a user (configuration entry, caller or subscription) from all its informers; informers without users stop.
/// If the user is a configuration entry, the stopping informers deliver pending events first, for at most
/// [`STOP_GRACE`](crate::actors::runtime::capacity::STOP_GRACE).
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct ReleaseInformers(pub User);

/// Replaces all requests of a configuration entry in one cluster. Informers that the new requests include continue with
/// their objects. If their options changed, they list again and report the differences. The entry's other informers are
/// released as by [`ReleaseInformers`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct ReplaceRequests {
    /// Configuration entry.
    pub user: User,
    /// New requests, all by `user`.
    pub requests: Vec<RequestInformer>,
}

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
    /// Returns the requests to one cluster, one for each scope.
    pub(in crate::actors) fn requests(&self) -> impl Iterator<Item = RequestInformer> {
        self.scopes.iter().map(|scope| RequestInformer {
            user: self.user.clone(),
            wanted: self.wanted.clone(),
            scope: scope.clone(),
            options: Arc::clone(&self.options),
            watch_errors: self.watch_errors.clone(),
        })
    }

    /// Returns the distinct views of the scopes. A view selects the parts of objects that are kept.
    pub(in crate::actors) fn views(&self) -> impl Iterator<Item = &View> {
        self.scopes.iter().map(|scope| &scope.view).collect::<BTreeSet<_>>().into_iter()
    }
}

/// Replaces the request of a configuration entry in all clusters; see [`ReplaceRequests`]. Answered when the informers
/// that the entry no longer requests have stopped.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct ReplaceInformers(pub InformerFor);

/// Withdraws all requests of a user (configuration entry or caller); informers without users stop.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Release(pub User);

/// Ends a subscription and drops its pending events. Idempotent; answered when its last delivery has ended, or after
/// [`STOP_GRACE`](crate::actors::runtime::capacity::STOP_GRACE).
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Unsubscribe(pub SubscriptionId);

/// Ends a subscription like [`Unsubscribe`], but delivers its pending events first.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct EndSubscription {
    /// Subscription to end.
    pub subscription: SubscriptionId,
    /// Deadline for delivering pending events.
    pub drain_until: Instant,
}

/// Changes clusters and resync period of a subscription. In clusters that stay selected, pending events stay, and
/// existing objects are not delivered again. In clusters that are no longer selected, pending events are delivered
/// first, for at most [`STOP_GRACE`](crate::actors::runtime::capacity::STOP_GRACE). Does nothing if the subscription
/// has ended.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct ChangeSubscription {
    /// Subscription to change.
    pub subscription: SubscriptionId,
    /// Clusters that the subscription selects from now on.
    pub clusters: ClusterSelector,
    /// New resync period; `None` without resyncs.
    pub resync: Option<Duration>,
}
