//! Subscriptions: the request, and the state shared by the actors that serve it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::{Message, Recipient};
use parking_lot::Mutex;
use smol_str::SmolStr;

use crate::actors::runtime::supervision::detach;
use crate::actors::subscribe::inbox::Inbox;
use crate::actors::subscribe::requests::{RequestInformer, Unsubscribe};
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscriber::{Deliver, Subscriber};
use crate::actors::subscribe::user::{SubscriptionId, User};
use crate::cache::{InitialObjects, ListenerOptions, PartitionId};
use informer_hub_reflector::InformerOptions;
use informer_hub_types::{ClusterName, ClusterSelector, Histogram, LAG_SECONDS, LabelSelector, Origin, Scope, View};

/// Informers that a subscription selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::actors) enum Target {
    /// Informers of a resource and scope. Existing informers are shared; without any, one is started.
    Resource(ResourceRequest, Scope),
    /// Only the informers of this user: of a configuration entry `[resources.<name>]`, or of a caller of `InformerFor`.
    Of(User),
}

/// Subscribes to the objects of a resource in some clusters.
///
/// Answered with the subscription's ID when every running informer has added it. An informer that takes longer than
/// [`STOP_GRACE`](crate::actors::runtime::capacity::STOP_GRACE) adds it later. Waiting for the answer keeps callers from
/// flooding the informers.
///
/// If the configuration (or an `InformerFor`) watches the resource in a cluster, the subscription shares those
/// informers. Otherwise an informer is started for it and stopped with it.
#[derive(Debug, Message)]
#[rtype(result = "SubscriptionId")]
pub struct Subscribe {
    name: Option<String>,
    target: Target,
    clusters: ClusterSelector,
    options: ListenerOptions,
    resync: Option<Duration>,
    durable: bool,
    subscriber: Subscriber,
}

impl Subscribe {
    /// Subscribes to all objects of the resource `wanted`, decoded as `K`.
    pub fn to_wanted<K: 'static>(
        wanted: ResourceRequest,
        clusters: ClusterSelector,
        subscriber: impl Into<Subscriber<K>>,
    ) -> Self {
        Self::new(Target::Resource(wanted, Scope::all()), clusters, subscriber.into())
    }

    /// Subscribes to the informers of `[resources.<name>]`.
    pub fn to_configured<K: 'static>(
        name: &str,
        clusters: ClusterSelector,
        subscriber: impl Into<Subscriber<K>>,
    ) -> Self {
        Self::new(Target::Of(User::Config(name.to_owned())), clusters, subscriber.into())
    }

    /// Subscribes to the informers that an [`InformerFor`](crate::actors::messages::InformerFor) of this configuration
    /// entry or caller started.
    pub fn to_informers_of<K: 'static>(
        user: User,
        clusters: ClusterSelector,
        subscriber: impl Into<Subscriber<K>>,
    ) -> Self {
        Self::new(Target::Of(user), clusters, subscriber.into())
    }

    fn new<K: 'static>(target: Target, clusters: ClusterSelector, subscriber: Subscriber<K>) -> Self {
        let options = ListenerOptions::default();
        let (name, resync, durable) = (None, None, false);
        Self { name, target, clusters, options, resync, durable, subscriber: subscriber.erase() }
    }

    /// Sets the name shown in the status. Default: the ID.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Selects one namespace; `""`, the default, selects all.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        let namespace: Option<SmolStr> = (!namespace.is_empty()).then(|| namespace.into());
        if let Target::Resource(_, scope) = &mut self.target {
            scope.namespace.clone_from(&namespace);
        }
        self.options.filter.namespace = namespace;
        self
    }

    /// Requests only metadata (PartialObjectMetadata), with separate informers and a separate cache. Has no effect on a
    /// subscription to the informers of a configuration entry or of an `InformerFor`.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        if let Target::Resource(_, scope) = &mut self.target {
            scope.view = View::Metadata;
        }
        self
    }

    /// Selects objects by labels. An object that starts or stops matching is delivered as `Added` or `Deleted`.
    #[must_use]
    pub fn with_labels(mut self, labels: LabelSelector) -> Self {
        self.options.filter.labels = Some(labels);
        self
    }

    /// Skips existing objects and delivers later changes only.
    #[must_use]
    pub fn skip_initial(mut self) -> Self {
        self.options.initial = InitialObjects::Skip;
        self
    }

    /// Marks the subscriber as durable. It must acknowledge notifications only after it has stored them.
    ///
    /// A durable subscription resumes under its name after a restart of the process, without initial objects.
    /// Checkpoints wait for its acknowledgements. Has no effect without a state directory or a name.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Delivers every object again each `period` (client-go's resync; at least one second). Zero disables it.
    #[must_use]
    pub fn with_resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }
}

/// Inboxes of a subscription, by informer.
type Inboxes = Vec<(Arc<Origin>, Arc<Inbox>)>;

/// State of a subscription, shared by the actors that serve it.
pub struct Subscription {
    pub(in crate::actors) id: SubscriptionId,
    pub(in crate::actors) name: String,
    pub(in crate::actors) target: Target,
    pub(in crate::actors) clusters: ClusterSelector,
    pub(in crate::actors) options: ListenerOptions,
    pub(in crate::actors) resync: Option<Duration>,
    pub(in crate::actors) durable: bool,
    pub(in crate::actors) subscriber: Arc<dyn Deliver>,
    inboxes: Arc<Mutex<Inboxes>>,
    /// Time from the hub's reading of a change to the subscriber's acknowledgement, for all informers.
    lag: Arc<Histogram>,
    registry: Recipient<Unsubscribe>,
}

impl Subscription {
    /// Creates the shared state of a subscription.
    pub(in crate::actors) fn new(id: SubscriptionId, subscribe: Subscribe, registry: Recipient<Unsubscribe>) -> Self {
        Self {
            id,
            // Without a name, a subscription cannot be identified after a restart.
            durable: subscribe.durable && subscribe.name.is_some(),
            name: subscribe.name.unwrap_or_else(|| id.to_string()),
            target: subscribe.target,
            clusters: subscribe.clusters,
            options: subscribe.options,
            resync: subscribe.resync,
            subscriber: subscribe.subscriber.deliver,
            inboxes: Arc::default(),
            lag: Arc::new(Histogram::new(LAG_SECONDS)),
            registry,
        }
    }

    /// Returns the same subscription with other clusters and another resync period. It has the same inboxes.
    pub(in crate::actors) fn with(&self, clusters: ClusterSelector, resync: Option<Duration>) -> Self {
        Self {
            id: self.id,
            name: self.name.clone(),
            target: self.target.clone(),
            clusters,
            options: self.options.clone(),
            resync,
            durable: self.durable,
            subscriber: Arc::clone(&self.subscriber),
            inboxes: Arc::clone(&self.inboxes),
            lag: Arc::clone(&self.lag),
            registry: self.registry.clone(),
        }
    }

    /// Returns the inbox for an informer, creating it if necessary. The inbox outlives the informer's actors.
    pub(in crate::actors) fn inbox_at(&self, origin: &Arc<Origin>) -> Arc<Inbox> {
        let mut all = self.inboxes.lock();
        if let Some((_, known)) = all.iter().find(|(at, _)| at == origin) {
            return Arc::clone(known);
        }
        let inbox = Arc::new(Inbox::counting(Arc::clone(&self.lag)));
        all.push((Arc::clone(origin), Arc::clone(&inbox)));
        inbox
    }

    /// Returns the inbox for an informer, if there is one.
    pub(in crate::actors) fn known_inbox_at(&self, origin: &Origin) -> Option<Arc<Inbox>> {
        self.inboxes.lock().iter().find(|(at, _)| **at == *origin).map(|(_, inbox)| Arc::clone(inbox))
    }

    /// Returns all inboxes with their informers.
    pub(in crate::actors) fn inboxes(&self) -> Vec<(Arc<Origin>, Arc<Inbox>)> {
        self.inboxes.lock().clone()
    }

    /// Returns a function that counts the waiting notifications of the subscriber, without initial objects. It works
    /// even after the informers have stopped.
    pub(crate) fn backlog(&self) -> impl Fn() -> u64 + use<> {
        let inboxes = self.inboxes();
        move || inboxes.iter().map(|(_, inbox)| inbox.health.pending.load(Relaxed)).sum()
    }

    /// Moves the inbox of an informer to the informer's new origin (cluster, resource and scope).
    pub(in crate::actors) fn move_inbox(&self, from: &Origin, to: &Arc<Origin>, partition: PartitionId) {
        let mut inboxes = self.inboxes.lock();
        let known = inboxes.iter().position(|(at, _)| **at == *from);
        if let Some(known) = known {
            let (_, inbox) = inboxes.swap_remove(known);
            inbox.move_to(partition, Arc::clone(to));
            inboxes.retain(|(at, _)| at != to);
            inboxes.push((Arc::clone(to), inbox));
        }
    }

    /// Returns whether the subscriber has acknowledged every initial object of a cluster's informers.
    pub(crate) fn has_synced_in(&self, cluster: &ClusterName) -> bool {
        let inboxes = self.inboxes.lock();
        let mut of_cluster = inboxes.iter().filter(|(at, _)| at.cluster == *cluster).peekable();
        of_cluster.peek().is_some() && of_cluster.all(|(_, inbox)| inbox.has_synced())
    }

    /// Removes the inbox of an informer whose objects were removed. A later informer starts with a new inbox.
    pub(in crate::actors) fn forget(&self, origin: &Origin) {
        self.inboxes.lock().retain(|(at, _)| **at != *origin);
    }

    /// Removes all inboxes of a cluster. A durable subscription keeps the inboxes of the informers in `kept`, because
    /// the hub keeps the objects of these informers.
    pub(in crate::actors) fn forget_cluster(&self, cluster: &ClusterName, kept: &[Arc<Origin>]) {
        let stays = |at: &Arc<Origin>| at.cluster != *cluster || self.durable && kept.contains(at);
        self.inboxes.lock().retain(|(at, _)| stays(at));
    }

    /// Asks the registry to end the subscription, because its subscriber has ended.
    pub(in crate::actors) fn unsubscribe(&self) {
        detach(self.registry.send(Unsubscribe(self.id)));
    }

    /// Returns whether the subscription selects an informer of the resource `wanted` and the scope that runs for `users`.
    pub(in crate::actors) fn selects(&self, wanted: &ResourceRequest, scope: &Scope, users: &[User]) -> bool {
        match &self.target {
            Target::Of(user) => users.contains(user),
            Target::Resource(own, own_scope) => {
                let is_disjoint = own_scope.namespace.is_some()
                    && scope.namespace.is_some()
                    && own_scope.namespace != scope.namespace;
                own.may_be(wanted) && !is_disjoint && own_scope.view == scope.view
            }
        }
    }

    /// Returns the request for an informer of the subscription's own, used if there is no informer to share. `None` if
    /// the subscription selects only the informers of a user.
    pub(in crate::actors) fn own_request(&self) -> Option<RequestInformer> {
        let Target::Resource(wanted, scope) = &self.target else { return None };
        Some(RequestInformer {
            user: User::Subscription(self.id),
            wanted: wanted.clone(),
            scope: scope.clone(),
            options: Arc::new(InformerOptions {
                metadata_only: scope.view == View::Metadata,
                ..InformerOptions::default()
            }),
            watch_errors: None,
        })
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("name", &self.name).field("target", &self.target).finish_non_exhaustive()
    }
}
