//! A subscription: what is asked for, and what the actors share of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use parking_lot::Mutex;

use crate::actors::runtime::supervision::detach;
use crate::actors::subscribe::inbox::Inbox;
use crate::actors::subscribe::requests::{Unsubscribe, Want};
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscriber::{Deliver, Subscriber};
use crate::actors::subscribe::user::{SubscriptionId, User};
use crate::cache::{InitialObjects, ListenerOptions, PartitionId};
use informer_hub_reflector::InformerOptions;
use informer_hub_types::{ClusterName, ClusterSelector, Histogram, LAG_SECONDS, LabelSelector, Origin, Scope, View};

/// What a subscription is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::actors) enum Target {
    /// A resource. Where informers of it are configured, these are shared; elsewhere one is started.
    Resource(ResourceRequest, Scope),
    /// Exactly the informers of one user: of `[resources.<name>]`, or of an `InformerFor`.
    Of(User),
}

/// Asks to be told of the objects of a resource in some clusters. Answered with the subscription's number, when every
/// informer that runs has taken it in; where one is held up for longer than
/// [`STOP_GRACE`](super::capacity::STOP_GRACE), that one does so later. So whoever subscribes without end does not get
/// ahead of the informers, which have changes to see to as well.
///
/// Where the configuration (or an `InformerFor`) watches the resource in a cluster, the subscription shares those
/// informers and sees what they see; where nothing does, an informer is started for it and stopped with it.
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
    /// Objects of a resource, told to `subscriber` as `K`.
    pub fn to_wanted<K: 'static>(
        wanted: ResourceRequest,
        clusters: ClusterSelector,
        subscriber: impl Into<Subscriber<K>>,
    ) -> Self {
        Self::new(Target::Resource(wanted, Scope::all()), clusters, subscriber.into())
    }

    /// What `[resources.<name>]` watches.
    pub fn to_configured<K: 'static>(
        name: &str,
        clusters: ClusterSelector,
        subscriber: impl Into<Subscriber<K>>,
    ) -> Self {
        Self::new(Target::Of(User::Config(name.to_owned())), clusters, subscriber.into())
    }

    /// What an [`InformerFor`](super::messages::InformerFor) of this user watches.
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

    /// The name in the status; else its number.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only objects of one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        if let Target::Resource(_, scope) = &mut self.target {
            scope.namespace = Some(namespace.into());
        }
        self.options.filter.namespace = Some(namespace.into());
        self
    }

    /// Only the metadata of objects, asked for as PartialObjectMetadata: informers and a cache of their own.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        if let Target::Resource(_, scope) = &mut self.target {
            scope.view = View::Metadata;
        }
        self
    }

    /// Only objects whose labels match; one that begins or ceases to match is told as `Added` or `Deleted`.
    #[must_use]
    pub fn with_labels(mut self, labels: LabelSelector) -> Self {
        self.options.filter.labels = Some(labels);
        self
    }

    /// Without the objects that are there already: only what changes from now on.
    #[must_use]
    pub fn skip_initial(mut self) -> Self {
        self.options.initial = InitialObjects::Skip;
        self
    }

    /// It answers for what it is told only once that is kept for good, and so goes on where it was after a restart of the
    /// process, under its name: checkpoints wait for its answers, and it is told no initial objects again. Without a state
    /// directory this changes nothing.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Repeats every object each `period` (client-go's resync; at least a second); zero for never.
    #[must_use]
    pub fn with_resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }
}

/// A subscription as the actors share it.
pub struct Subscription {
    pub(in crate::actors) id: SubscriptionId,
    pub(in crate::actors) name: String,
    pub(in crate::actors) target: Target,
    pub(in crate::actors) clusters: ClusterSelector,
    pub(in crate::actors) options: ListenerOptions,
    pub(in crate::actors) resync: Option<Duration>,
    pub(in crate::actors) durable: bool,
    pub(in crate::actors) subscriber: Arc<dyn Deliver>,
    inboxes: Mutex<Vec<(Arc<Origin>, Arc<Inbox>)>>,
    /// How long changes take to reach the subscriber, at all informers.
    lag: Arc<Histogram>,
    registry: Recipient<Unsubscribe>,
}

impl Subscription {
    /// A subscription as it was asked for.
    pub(in crate::actors) fn new(id: SubscriptionId, subscribe: Subscribe, registry: Recipient<Unsubscribe>) -> Self {
        Self {
            id,
            // Who has no name of its own cannot be known again.
            durable: subscribe.durable && subscribe.name.is_some(),
            name: subscribe.name.unwrap_or_else(|| id.to_string()),
            target: subscribe.target,
            clusters: subscribe.clusters,
            options: subscribe.options,
            resync: subscribe.resync,
            subscriber: subscribe.subscriber.deliver,
            inboxes: Mutex::default(),
            lag: Arc::new(Histogram::new(LAG_SECONDS)),
            registry,
        }
    }

    /// What waits for it at an informer. It is here that it outlives the informer's actors.
    pub(in crate::actors) fn inbox_at(&self, origin: &Arc<Origin>) -> Arc<Inbox> {
        let mut all = self.inboxes.lock();
        if let Some((_, known)) = all.iter().find(|(at, _)| at == origin) {
            return Arc::clone(known);
        }
        let inbox = Arc::new(Inbox::counting(Arc::clone(&self.lag)));
        all.push((Arc::clone(origin), Arc::clone(&inbox)));
        inbox
    }

    /// The same, where there is one.
    pub(in crate::actors) fn known_inbox_at(&self, origin: &Origin) -> Option<Arc<Inbox>> {
        self.inboxes.lock().iter().find(|(at, _)| **at == *origin).map(|(_, inbox)| Arc::clone(inbox))
    }

    /// What waits for it at an informer goes on as that of what the informer has become.
    pub(in crate::actors) fn go_on_at(&self, from: &Origin, to: &Arc<Origin>, partition: PartitionId) {
        let mut inboxes = self.inboxes.lock();
        let known = inboxes.iter().position(|(at, _)| **at == *from);
        if let Some(known) = known {
            let (_, inbox) = inboxes.swap_remove(known);
            inbox.go_on_with(partition, Arc::clone(to));
            inboxes.retain(|(at, _)| at != to);
            inboxes.push((Arc::clone(to), inbox));
        }
    }

    /// Whether its subscriber has answered for every initial object of a cluster's informers.
    pub(crate) fn has_synced_in(&self, cluster: &ClusterName) -> bool {
        let inboxes = self.inboxes.lock();
        let mut theirs = inboxes.iter().filter(|(at, _)| at.cluster == *cluster).peekable();
        theirs.peek().is_some() && theirs.all(|(_, inbox)| inbox.has_synced())
    }

    /// Forgets what waits for it at an informer whose objects are forgotten too: were that informer wanted again, it
    /// would begin anew.
    pub(in crate::actors) fn forget(&self, origin: &Origin) {
        self.inboxes.lock().retain(|(at, _)| **at != *origin);
    }

    /// The same of a whole cluster; but a durable one not at those informers whose objects are kept.
    pub(in crate::actors) fn forget_cluster(&self, cluster: &ClusterName, kept: &[Arc<Origin>]) {
        let stays = |at: &Arc<Origin>| at.cluster != *cluster || self.durable && kept.contains(at);
        self.inboxes.lock().retain(|(at, _)| stays(at));
    }

    /// Has the registry end it: its subscriber is gone.
    pub(in crate::actors) fn leave(&self) {
        detach(self.registry.send(Unsubscribe(self.id)));
    }

    /// Whether it is about an informer that is wanted as this.
    pub(in crate::actors) fn is_about(&self, wanted: &ResourceRequest, scope: &Scope, users: &BTreeSet<User>) -> bool {
        match &self.target {
            Target::Of(user) => users.contains(user),
            Target::Resource(mine, asked) => {
                let apart =
                    asked.namespace.is_some() && scope.namespace.is_some() && asked.namespace != scope.namespace;
                mine.may_be(wanted) && !apart && asked.view == scope.view
            }
        }
    }

    /// The informer that it needs where there is none to share.
    pub(in crate::actors) fn own_want(&self) -> Option<Want> {
        let Target::Resource(wanted, scope) = &self.target else { return None };
        Some(Want {
            user: User::Subscription(self.id),
            wanted: wanted.clone(),
            scope: scope.clone(),
            options: InformerOptions { metadata_only: scope.view == View::Metadata, ..InformerOptions::default() },
            watch_errors: None,
        })
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("name", &self.name).field("target", &self.target).finish_non_exhaustive()
    }
}
