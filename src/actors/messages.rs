//! Every message between actors, grouped by edge. Commands are imperatives, facts are in the past tense.

use std::sync::Arc;
use std::time::Duration;

use actix::Message;
use actix::Recipient;
use futures::future::BoxFuture;

use super::checkpoint::Keeping;
use super::inbox::Inbox;
use super::pressure::Pressure;
use super::status::{HubStatus, SurveyStatus};
use super::subscription::{Subscription, SubscriptionId};
use super::sync::SyncView;
pub use super::wanted::{KnownResource, Wanted};
use super::watch_errors::WatchErrorHandler;
use super::write_half::SharedWriteHalf;
use crate::cache::{
    AddIndexersError, Answer, DeclaredIndex, Indexers, ListenerOptions, Outbox, PartitionId, Popped, Query, QueryError,
    Snapshot,
};
use crate::discovery::Seen;
use informer_hub_reflector::{Connector, InformerOptions, ListerWatcher, SourceError};
use informer_hub_types::clock::Instant;
use informer_hub_types::{
    ApiResource, Change, ClusterLabels, ClusterName, ClusterSelector, Followed, InformerHealth, MemoryStep, Origin,
    ResourceVersion, Scope, SharedStr, View,
};

// === reflector → fifo ===

/// Takes changes in; answered when there is room for more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Enqueue {
    /// In their order.
    pub changes: Vec<Change>,
    /// When they were read, where that is not now, and the trace of one of them.
    pub followed: Option<Followed>,
}

// === fifo → processor ===

/// Applies a batch to the store and tells the listeners; answered when both is done.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Process {
    /// The batch; empty where only the version has moved on.
    pub batch: Vec<Popped>,
    /// With it, everything up to this version has been taken out of the queue.
    pub version: Option<ResourceVersion>,
    /// A change of it that is followed to its readers.
    pub followed: Option<Followed>,
}

// === processor → cache ===

/// Opens an informer's partition, or finds it again.
#[derive(Debug, Message)]
#[rtype(result = "OpenedPartition")]
pub struct OpenPartition {
    /// The informer.
    pub origin: Arc<Origin>,
    /// What it shows of itself.
    pub health: Arc<InformerHealth>,
    /// The indices that it declares.
    pub indexes: Vec<DeclaredIndex>,
    /// What tells how it takes objects in from how an earlier one did.
    pub settings: u64,
}

/// Answer to [`OpenPartition`].
#[derive(Debug)]
pub struct OpenedPartition {
    /// The partition.
    pub id: PartitionId,
    /// The right to write to it, until it is opened again.
    pub lease: Lease,
    /// What its last batch did, in case nobody was told.
    pub outbox: Option<Outbox>,
    /// How much of its objects it keeps.
    pub step: MemoryStep,
    /// Where a watch may go on from what was on disk; once, for the first to open it.
    pub resume: Option<ResourceVersion>,
    /// The short way to the store, for small batches.
    pub(super) write_half: SharedWriteHalf,
}

/// The right to write to a partition. Whoever opens the partition next takes it away, so that a pipeline that is
/// being replaced cannot slip a batch in behind its successor's back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease(pub(super) u64);

/// Forgets a partition and its objects. Without the lease, nothing happens.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ClosePartition {
    /// The partition.
    pub partition: PartitionId,
    /// The right to close it.
    pub lease: Lease,
}

/// Forgets partitions whose informers died before they could close them, whoever has the lease.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub enum CloseAbandoned {
    /// That of one informer.
    Origin(Arc<Origin>),
    /// All of a cluster.
    Cluster(ClusterName),
}

/// Applies a batch to a partition; `None` when the partition is closed, or the lease was taken over.
#[derive(Debug, Message)]
#[rtype(result = "Option<AppliedBatch>")]
pub struct Apply {
    /// The partition.
    pub partition: PartitionId,
    /// The right to write to it.
    pub lease: Lease,
    /// The batch.
    pub batch: Vec<Popped>,
    /// With it, the partition is complete up to this version, where that is known.
    pub version: Option<ResourceVersion>,
}

/// Answer to [`Apply`].
#[derive(Debug)]
pub struct AppliedBatch {
    /// What it did.
    pub outbox: Outbox,
    /// Objects in the partition now.
    pub objects: u64,
    /// Set when compression lags: wait for it before the next batch.
    pub pressure: Option<Pressure>,
}

/// The store has been written to past its cache: there may be something to compress, or a rest to watch for.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Attend;

/// A cluster is expected to have the resource though it could not be asked yet (or, with `expected` false, no more).
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Expect {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its labels.
    pub labels: ClusterLabels,
    /// Whether it is.
    pub expected: bool,
}

/// Has a partition keep so much of its objects; answered when what comes is kept so. What is there already follows in
/// slices. Without the lease, nothing happens.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct KeepStep {
    /// The partition.
    pub partition: PartitionId,
    /// The right to write to it.
    pub lease: Lease,
    /// How much.
    pub step: MemoryStep,
}

// === anyone → cache ===

/// A question; answered from one snapshot.
#[derive(Debug, Message)]
#[rtype(result = "Result<Answer, QueryError>")]
pub struct Ask(pub Query);

/// Asks for a snapshot, to read from without further messages.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Arc<Snapshot>")]
pub struct TakeSnapshot;

/// Adds computed indices. They are built while the cache goes on being written, one demand at a time; the answer comes
/// when they are complete and published, in one snapshot. Until then whoever asks them is told that there is no such
/// index, and their names are taken.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), AddIndexersError>")]
pub struct AddIndexers(pub Indexers);

/// Takes a computed index away, also one that is not complete yet; whether there was one of the name.
#[derive(Clone, Debug, Message)]
#[rtype(result = "bool")]
pub struct RemoveIndexer(pub SharedStr);

// === processor → listener ===

/// There may be something in the listener's inbox. One that waits in a mailbox stands for any number of them.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Wake;

/// Tells a processor of a listener. Its queue is filled with the present state, unless it joined before.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Join {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// Whom to wake when something is in the inbox.
    pub listener: Recipient<Wake>,
    /// Where batches go.
    pub inbox: Arc<Inbox>,
    /// How to fill it.
    pub options: ListenerOptions,
    /// Its name, where it goes on after a restart of the process where it was.
    pub reader: Option<String>,
    /// The period of its resyncs.
    pub resync: Option<Duration>,
}

/// Tells a processor that a listener leaves.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Leave(pub SubscriptionId);

// === supervisors → their children ===

/// Stop. Answered when the actor has; what waits is worked off first if `drain`.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Stop {
    /// Whether what waits is worked off first.
    pub drain: bool,
}

// === cluster → informer ===

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

// === discovery → cluster ===

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

// === governor → informer ===

/// The informer's health says that it is to keep another part of its objects.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct TakeStep;

// === registry → cluster ===

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

/// An informer is used: start it if it does not run, count the user if it does.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Want {
    /// By whom.
    pub user: User,
    /// Which resource.
    pub wanted: Wanted,
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

// === cluster → registry ===

/// A cluster has looked a resource up.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Resolved {
    /// The cluster.
    pub cluster: ClusterName,
    /// What was asked for.
    pub wanted: Wanted,
    /// What it is.
    pub resource: ApiResource,
}

// === anyone → registry ===

/// Adds a cluster at run time: everything wanted of all clusters is wanted of it too. Answered when it begins, with what is on
/// disk of it.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), super::registry::RegistryError>")]
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
#[rtype(result = "Result<(), super::registry::RegistryError>")]
pub struct RemoveCluster(pub ClusterName);

/// Gives a cluster other labels. Its informers go on under them with what they have: they list again, and readers are told
/// what has changed. Answered when who selects by labels has to do with it, or no more.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), super::registry::RegistryError>")]
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

/// Asks for an informer in each selected cluster, now and later. Shared: users are counted. Answered when the clusters have
/// heard of it, at the latest after [`STOP_GRACE`](super::capacity::STOP_GRACE).
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct InformerFor {
    /// Who asks; [`Release`] takes it back.
    pub user: User,
    /// Which resource.
    pub wanted: Wanted,
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
    pub(super) fn views(&self) -> impl Iterator<Item = &View> {
        let mut views: Vec<_> = self.scopes.iter().map(|scope| &scope.view).collect();
        views.dedup();
        views.into_iter()
    }
}

/// Takes an [`InformerFor`] back; informers without a user stop.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct Release(pub User);

/// Starts what was asked for so far; later requests start at once. Idempotent.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Start;

/// Waits until every informer has synced, or until the deadline. client-go's `WaitForCacheSync`, with a reason.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<(), super::sync::NotSynced>")]
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

/// Ends a subscription. Idempotent; answered when nothing of it is in flight any more.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Unsubscribe(pub SubscriptionId);

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
