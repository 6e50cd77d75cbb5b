//! Messages of the control tree: to the registry, clusters and informers.

use crate::actors::checkpoint::store::CheckpointStore;
use crate::actors::status::hub::DiscoveryStatus;
use crate::actors::status::hub::HubStatus;
use crate::actors::status::sync::{NotSynced, SyncView};
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscription::Subscription;
use crate::actors::subscribe::user::SubscriptionId;
use crate::cache::DeclaredIndex;
use crate::discovery::DiscoveryResults;
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

/// Removes a subscription's listener. Answered when none of its deliveries is in flight, or at the deadline.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct RemoveListener {
    /// Subscription of the listener.
    pub subscription: SubscriptionId,
    /// Deadline for delivering pending events; `None` drops them, and waits for the delivery in flight for
    /// [`STOP_GRACE`](crate::actors::runtime::capacity::STOP_GRACE) at most.
    pub drain_until: Option<Instant>,
}

/// Stops an informer.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopInformer {
    /// Deadline for delivering pending events; `None` drops them.
    pub drain_until: Option<Instant>,
    /// Keeps the informer's partition of the cache open, for the caller to save. Pending events are then delivered to
    /// durable subscribers only.
    pub stays_open: bool,
}

/// Sets whether an informer lists and watches. If the mode is idle, the answer is sent once all changes that were
/// already read are stored and queued for subscribers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Message)]
#[rtype(result = "()")]
pub enum WatchMode {
    /// Lists and watches.
    #[default]
    Active,
    /// Idle; objects stay as last seen.
    IdleKeep,
    /// Idle; objects are deleted.
    IdleClear,
}

/// Moves an informer to another resource or API version, with its objects and subscribers.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct MoveTo {
    /// New origin of the objects: cluster, its labels, resource and scope.
    pub origin: Arc<Origin>,
    /// Source of the lists and watches of the new origin.
    pub source: Arc<dyn ListerWatcher>,
    /// Whether the informer lists and watches the new origin.
    pub mode: WatchMode,
    /// Whether the current objects are deleted first, because the resource was defined anew.
    pub renewed: bool,
}

/// Makes an informer list again and decode objects with new settings. The informer keeps its objects and notifies
/// subscribers of the differences.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Relist {
    /// Source that decodes objects with the new settings.
    pub source: Arc<dyn ListerWatcher>,
    /// Indices that the informer declares from now on.
    pub indexes: Arc<[DeclaredIndex]>,
    /// Fingerprint of the settings; zero if unknown.
    pub settings: u64,
    /// `metadata.generation` of the CRD, if the CRD has changed; `None` if only the settings have.
    pub converted_by: Option<u64>,
}

/// Reports a discovery result to the cluster actor.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct DiscoveryReport {
    /// Number of the discovery actor. Reports of replaced discovery actors are ignored.
    pub number: usize,
    /// Discovery result; `None` until the first success.
    pub seen: Option<DiscoveryResults>,
    /// Status of discovery.
    pub view: DiscoveryStatus,
    /// Outcome of the discovery request that has just ended; `None` if the report has another cause.
    pub outcome: Option<Result<(), SourceError>>,
}

/// Attaches a subscription to a cluster's informers. The answer is a future that completes when all running informers
/// have added the subscription.
#[derive(Clone, Debug, Message)]
#[rtype(result = "BoxFuture<'static, ()>")]
pub struct Attach(pub Arc<Subscription>);

/// Detaches a subscription. Answered when none of its deliveries is in flight, or at the deadline.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Detach {
    /// Detached subscription.
    pub subscription: SubscriptionId,
    /// Deadline for delivering pending events; see [`RemoveListener::drain_until`].
    pub drain_until: Option<Instant>,
}

/// Stops a cluster with its informers.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct StopCluster(pub StopInformer);

/// Reports that a cluster resolved a requested resource.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Resolved {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Request that was resolved.
    pub wanted: ResourceRequest,
    /// Resource that the name was resolved to.
    pub resource: ApiResource,
}

/// Error of a registry request. The caller can avoid all but [`Self::ShuttingDown`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A cluster with this name exists.
    #[error("a cluster named {0} already exists: remove it first or use another name")]
    DuplicateCluster(ClusterName),
    /// No cluster has this name.
    #[error("there is no cluster named {0}")]
    UnknownCluster(ClusterName),
    /// The removal of a cluster with this name is not complete.
    #[error("cluster {0} is still being removed: add it again when its removal is complete")]
    BeingRemoved(ClusterName),
    /// The hub accepts no more requests.
    #[error("the hub is shutting down")]
    ShuttingDown,
}

/// Adds a cluster at run time; all matching requests and subscriptions apply to it. Answered when it starts, after its
/// saved partitions are restored.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), RegistryError>")]
pub struct AddCluster {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Labels of the cluster.
    pub labels: ClusterLabels,
    /// Connector to the cluster; see [`Hub::connector`](crate::Hub::connector).
    pub connector: Arc<dyn Connector>,
}

/// Removes a cluster with its informers and objects. Answered when they are removed and, with a state directory, saved.
///
/// Subscribers receive no deletions: the objects still exist and are only no longer watched.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), RegistryError>")]
pub struct RemoveCluster(pub ClusterName);

/// Replaces a cluster's labels. Its informers continue with their objects, list again, and report changes. Answered
/// when requests and subscriptions that select by labels are updated.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), RegistryError>")]
pub struct SetClusterLabels {
    /// Name of the cluster.
    pub name: ClusterName,
    /// New labels. They replace all previous labels.
    pub labels: ClusterLabels,
}

/// Starts those informers of a cluster whose resources the cluster's connection
/// [watches](informer_hub_reflector::Connection::watches). Stops the cluster's other informers. Answered when these
/// have stopped.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), RegistryError>")]
pub struct ReviewClusterInformers(pub ClusterName);

/// Starts those informers of a cluster whose resources the cluster's connection watches, and stops its other informers.
/// Sent by the registry to the cluster actor, for a [`ReviewClusterInformers`].
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct ReviewInformers;

/// Replaces the labels of a cluster. Sent by the registry to the cluster actor, for a [`SetClusterLabels`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct SetLabels(pub ClusterLabels);

/// Starts the informers requested so far. Informers requested later start immediately. Idempotent.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Start;

/// Waits until every informer has synced or the timeout has elapsed. Like client-go's `WaitForCacheSync`, but reports
/// what is missing.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<(), NotSynced>")]
pub struct WaitForCacheSync {
    /// Maximum time to wait.
    pub timeout: Duration,
}

/// Requests a handle from which the sync states of all informers are read without further messages.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "SyncView")]
pub struct ViewSync;

/// Returns a subscription, to observe its progress; `None` once it has ended.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Option<Arc<Subscription>>")]
pub struct FindSubscription(pub SubscriptionId);

/// Sets the memory limit of the process; `None` removes it. [`crate::app::Hub::set_memory_limit`] rejects limits that
/// are too small.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct SetMemoryLimit(pub Option<u64>);

/// Enables checkpoints to a state directory.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct EnableCheckpoints(pub Arc<CheckpointStore>);

/// Runs the last checkpoint. Answered when the checkpoint has been written or has failed.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct LastCheckpoint {
    /// Deadline for durable readers to acknowledge their events.
    pub until: Instant,
}

/// Requests the status of all clusters and informers.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "HubStatus")]
pub struct GetStatus;

/// Stops the hub, reflectors first, and delivers pending events until the deadline.
///
/// A second `Shutdown` is not answered. When the first has completed, the registry stops and its mailbox closes, which
/// the second sender sees as an error.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Shutdown {
    /// Deadline for deliveries.
    pub deadline: Instant,
}
