//! Messages of the control tree: to the registry, clusters and informers.

use crate::actors::checkpoint::keeper::Keeping;
use crate::actors::status::hub::HubStatus;
use crate::actors::status::hub::SurveyStatus;
use crate::actors::status::sync::SyncView;
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscription::Subscription;
use crate::actors::subscribe::user::SubscriptionId;
use crate::discovery::Seen;
use actix::Message;
use futures::future::BoxFuture;
use informer_hub_reflector::Connector;
use informer_hub_reflector::ListerWatcher;
use informer_hub_reflector::SourceError;
use informer_hub_types::ApiResource;
use informer_hub_types::ClusterLabels;
use informer_hub_types::ClusterName;
use informer_hub_types::Origin;
use informer_hub_types::clock::Instant;
use std::sync::Arc;
use std::time::Duration;

/// Adds a subscription's listener to an informer.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct AddListener(pub Arc<Subscription>);

/// Removes it; answered when nothing of it is in flight any more.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct RemoveListener(pub SubscriptionId);

/// Stops an informer.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopInformer {
    /// Until when what waits may be worked off; `None` to drop it.
    pub drain_until: Option<Instant>,
    /// Whether its partition stays open, for who sees to it afterwards; what waits is worked off for durable subscribers alone.
    pub stays_open: bool,
}

/// Whether an informer asks anything of its cluster. Answered when it does as it is told: when it rests, what it had read
/// is in the store and has been told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Message)]
#[rtype(result = "()")]
pub enum Rest {
    /// It lists and watches.
    #[default]
    No,
    /// It asks nothing; its objects stay as they were last seen.
    Keep,
    /// It asks nothing, and its objects are gone.
    Empty,
}

/// Has an informer go on as another resource, or another version of it, with the objects and the subscribers that it has.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct MoveTo {
    /// What it is from now on.
    pub origin: Arc<Origin>,
    /// Where it lists and watches that.
    pub source: Arc<dyn ListerWatcher>,
    /// Whether it asks for anything there.
    pub rest: Rest,
    /// Whether the objects that it has are gone.
    pub renewed: bool,
}

/// What a cluster offers is known, or is another now.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Surveyed {
    /// The actor that has looked.
    pub number: usize,
    /// What it has seen; `None` as long as it has seen nothing.
    pub seen: Option<Seen>,
    /// How it hears of changes.
    pub view: SurveyStatus,
    /// What came of asking the cluster, where it was asked just now.
    pub looked: Option<Result<(), SourceError>>,
}

/// Attaches a subscription to the informers that it is about. The answer ends when all that run have taken it in.
#[derive(Clone, Debug, Message)]
#[rtype(result = "BoxFuture<'static, ()>")]
pub struct Attach(pub Arc<Subscription>);

/// Detaches it everywhere; answered when nothing of it is in flight any more.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Detach(pub SubscriptionId);

/// Stops a cluster's informers and the cluster.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopCluster(pub StopInformer);

/// A cluster has looked a resource up.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Resolved {
    /// The cluster.
    pub cluster: ClusterName,
    /// What was asked for.
    pub wanted: ResourceRequest,
    /// What it is.
    pub resource: ApiResource,
}

/// Adds a cluster at run time: everything wanted of all clusters is wanted of it too. Answered when it begins, with what is on
/// disk of it.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), crate::actors::control::registry::RegistryError>")]
pub struct AddCluster {
    /// Its name.
    pub name: ClusterName,
    /// Its labels.
    pub labels: ClusterLabels,
    /// How to reach it.
    pub connector: Arc<dyn Connector>,
}

/// Removes a cluster with its informers and objects. Answered when they are gone, and on disk where there is a state directory.
/// Subscribers are told nothing of it: the objects are not deleted, only no longer watched.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), crate::actors::control::registry::RegistryError>")]
pub struct RemoveCluster(pub ClusterName);

/// Gives a cluster other labels. Its informers go on under them with what they have: they list again, and readers are told
/// what has changed. Answered when who selects by labels has to do with it, or no more.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), crate::actors::control::registry::RegistryError>")]
pub struct SetClusterLabels {
    /// Its name.
    pub name: ClusterName,
    /// All of them.
    pub labels: ClusterLabels,
}

/// The same, of the registry to the cluster.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct SetLabels(pub ClusterLabels);

/// Starts what was asked for so far; later requests start at once. Idempotent.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Start;

/// Waits until every informer has synced, or until the deadline. client-go's `WaitForCacheSync`, with a reason.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<(), crate::actors::status::sync::NotSynced>")]
pub struct WaitForCacheSync {
    /// How long to wait.
    pub timeout: Duration,
}

/// Asks for a way to see how far informers are without asking again.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "SyncView")]
pub struct ViewSync;

/// Asks for a subscription, to see how far its subscriber is; `None` once it has ended.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Option<Arc<Subscription>>")]
pub struct FindSubscription(pub SubscriptionId);

/// Limits the memory of the process from now on; `None`: no limit any more. [`crate::app::Hub::set_memory_limit`] refuses
/// what cannot be kept.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct SetMemoryLimit(pub Option<u64>);

/// Keeps the caches on disk from now on.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Keep(pub Arc<Keeping>);

/// Makes a last checkpoint, of what there is when nothing comes any more; answered when that is durable, or the time is
/// up for readers to answer.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct LastCheckpoint {
    /// Until when.
    pub until: Instant,
}

/// Asks for the status of everything.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "HubStatus")]
pub struct GetStatus;

/// Stops everything, sources first, working off what waits until the deadline. Asked for again meanwhile, it waits for
/// the first one's end, which it learns as a closed mailbox.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Shutdown {
    /// Until when.
    pub deadline: Instant,
}
