//! Sinks and durable subscriptions, the readers of journals (queues of undelivered events): builds and starts them, and
//! subscribes them to resources.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, MailboxError};
use futures::future::join_all;
use parking_lot::Mutex;

use super::durable::DurableSubscription;
use super::error::StartError;
use super::sinks;
use super::state::OpenState;
use crate::actors::capacity::STOP_GRACE;
use crate::actors::messages::{ChangeSubscription, EndSubscription, FindSubscription};
use crate::actors::sinks::sink::{OpenStore, Sink, SinkParams, StorePlace};
use crate::actors::{Env, RegistryActor, Subscribe, SubscriptionId};
use informer_hub_config::{Initial, ResourceConfig, SinkConfig};
use informer_hub_dial::Dial;
use informer_hub_disk::FileStates;
use informer_hub_sink::{SendFence, SinkHealth};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ClusterSelector, Fsync, StoreLimits, Threads};

/// A sink or durable subscription that is ready to start.
pub(super) struct Reader {
    pub(super) name: String,
    pub(super) params: SinkParams,
    pub(super) selection: ReaderSelection,
    /// Sizes and modification times of the files that the sink refers to, as they were when it was built; `None` for a
    /// durable subscription.
    pub(super) files: Option<FileStates>,
}

/// Resources and clusters that a sink or durable subscription selects.
#[derive(Clone)]
pub(super) struct ReaderSelection {
    /// Names of configured resources; empty for all.
    pub(super) resources: Vec<String>,
    clusters: ClusterSelector,
    skip_initial: bool,
}

/// Options with which a sink or durable subscription subscribes to one resource.
#[derive(Clone, PartialEq)]
pub(super) struct FollowOptions {
    clusters: ClusterSelector,
    skip_initial: bool,
    resync: Option<Duration>,
}

impl FollowOptions {
    /// Returns whether a subscription with the options `before` can be changed to have these options. If `skip_initial`
    /// differs, a new subscription is needed.
    fn continues(&self, before: &Self) -> bool {
        self.skip_initial == before.skip_initial
    }
}

/// Subscriptions of a running sink or durable subscription, by name of the configured resource.
pub(super) type ReaderSubscriptions = BTreeMap<String, (FollowOptions, SubscriptionId)>;

/// A running sink or durable subscription.
pub(super) struct RunningSink {
    pub(super) follower: Follower,
    pub(super) health: Arc<SinkHealth>,
    /// Sizes and modification times of the files that the sink refers to, as they were when it was built; `None` for a
    /// durable subscription.
    pub(super) files: Option<FileStates>,
    pub(super) followed: ReaderSubscriptions,
}

impl RunningSink {
    pub(super) fn name(&self) -> &str {
        &self.follower.name
    }

    pub(super) fn sink(&self) -> &Sink {
        &self.follower.sink
    }
}

/// Sinks and durable subscriptions of a running hub.
pub(super) type RunningSinks = Arc<Mutex<Vec<RunningSink>>>;

impl Reader {
    /// Builds a configured sink. Compiles filter and template, and reads secrets and certificates. Blocks.
    pub(super) fn of_sink(
        sink: &SinkConfig,
        state: Option<&OpenState>,
        fsync: Fsync,
        io: &Threads,
        dial: Option<&Dial>,
    ) -> Result<Self, StartError> {
        let files = files_of(sink);
        let mut params = sinks::sink(sink, io, dial)?;
        params.place = state.map(|state| place(state, &sink.name, sinks::limits(sink), fsync));
        let selection = ReaderSelection {
            resources: sink.select.resources.clone(),
            clusters: sink.select.clusters.clone(),
            skip_initial: sink.initial == Initial::Skip,
        };
        Ok(Self { name: sink.name.clone(), params, selection, files: Some(files) })
    }

    /// Sets the fence, which stops deliveries while this process does not lead. Without a fence, always delivers.
    pub(super) fn fenced(mut self, fence: Option<Arc<SendFence>>) -> Self {
        self.params.fence = fence;
        self
    }

    pub(super) fn of_durable(one: DurableSubscription, state: &OpenState, fsync: Fsync, io: &Threads) -> Self {
        let place = place(state, &one.name, one.limits, fsync);
        let selection = ReaderSelection {
            resources: one.resources.clone(),
            clusters: one.clusters.clone(),
            skip_initial: one.selection.initial == Initial::Skip,
        };
        Self { name: one.name.clone(), params: one.params(place, io), selection, files: None }
    }

    /// Starts the sink or durable subscription, and subscribes it to its resources.
    pub(super) async fn start(
        self,
        store: OpenStore,
        resources: &[ResourceConfig],
        env: &Env,
        registry: &Addr<RegistryActor>,
        sinks: &RunningSinks,
    ) -> Result<(), MailboxError> {
        let Self { name, params, selection, files } = self;
        let (health, is_durable) = (Arc::clone(&params.machine.health), params.place.is_some());
        let reader = Follower { name, sink: Sink::start(params, store, env), is_durable, selection };
        let mut followed = ReaderSubscriptions::new();
        reader.follow(&mut followed, resources, registry).await?;
        sinks.lock().push(RunningSink { follower: reader, health, files, followed });
        Ok(())
    }
}

fn place(state: &OpenState, name: &str, limits: StoreLimits, fsync: Fsync) -> StorePlace {
    let (disk, directory) = state.reader(name);
    StorePlace { disk, directory, limits, fsync }
}

/// Part of a running sink or durable subscription that manages its subscriptions to resources.
#[derive(Clone)]
pub(super) struct Follower {
    pub(super) name: String,
    pub(super) sink: Sink,
    pub(super) is_durable: bool,
    pub(super) selection: ReaderSelection,
}

impl Follower {
    /// Subscribes to exactly those of `resources` that the sink or durable subscription selects. Unchanged
    /// subscriptions continue.
    pub(super) async fn follow(
        &self,
        followed: &mut ReaderSubscriptions,
        resources: &[ResourceConfig],
        registry: &Addr<RegistryActor>,
    ) -> Result<(), MailboxError> {
        let ReaderSelection { resources: names, clusters, skip_initial } = &self.selection;
        let selected = resources.iter().filter(|resource| names.is_empty() || names.contains(&resource.name));
        let options = |resource: &ResourceConfig| {
            let (clusters, skip_initial) = (clusters.clone(), *skip_initial);
            (resource.name.clone(), FollowOptions { clusters, skip_initial, resync: resource.resync })
        };
        let target: BTreeMap<_, _> = selected.map(options).collect();
        let (kept, obsolete): (ReaderSubscriptions, _) = std::mem::take(followed)
            .into_iter()
            .partition(|(name, (now, _))| target.get(name).is_some_and(|options| options.continues(now)));
        *followed = kept;
        self.unfollow(obsolete, clock::now() + STOP_GRACE, registry).await?;
        for (name, (now, id)) in followed.iter_mut() {
            let Some(options) = target.get(name).filter(|options| *options != now) else { continue };
            let FollowOptions { clusters, resync, .. } = options.clone();
            registry.send(ChangeSubscription { subscription: *id, clusters, resync }).await?;
            now.clone_from(options);
        }
        for (name, options) in target {
            if let Entry::Vacant(new) = followed.entry(name) {
                let id = registry.send(self.subscribe(new.key(), &options)).await?;
                new.insert((options, id));
            }
        }
        Ok(())
    }

    /// Returns a function that counts the pending events of all subscriptions in `followed`: events that the sink or
    /// durable subscription has not accepted yet. The function works even after the subscriptions have ended.
    pub(super) async fn backlog(
        &self,
        followed: &ReaderSubscriptions,
        registry: &Addr<RegistryActor>,
    ) -> Result<impl Fn() -> u64 + use<>, MailboxError> {
        let finds = followed.values().map(|(_, id)| registry.send(FindSubscription(*id)));
        let found = join_all(finds).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        let pending: Vec<_> = found.into_iter().flatten().map(|subscription| subscription.backlog()).collect();
        Ok(move || pending.iter().map(|count| count()).sum())
    }

    /// Ends subscriptions. Their pending events are delivered until `drain_until`.
    pub(super) async fn unfollow(
        &self,
        obsolete: ReaderSubscriptions,
        drain_until: Instant,
        registry: &Addr<RegistryActor>,
    ) -> Result<(), MailboxError> {
        let ends = obsolete.into_values().map(|(_, subscription)| EndSubscription { subscription, drain_until });
        join_all(ends.map(|end| registry.send(end))).await.into_iter().collect()
    }

    fn subscribe(&self, resource: &str, options: &FollowOptions) -> Subscribe {
        let mut subscribe =
            Subscribe::to_configured(resource, options.clusters.clone(), self.sink.subscriber()).named(&self.name);
        if options.skip_initial {
            subscribe = subscribe.skip_initial();
        }
        if self.is_durable {
            subscribe = subscribe.durable();
        }
        match options.resync {
            Some(period) => subscribe.with_resync(period),
            None => subscribe,
        }
    }
}

/// Returns the current sizes and modification times of the files that a sink refers to. Blocks.
pub(super) fn files_of(sink: &SinkConfig) -> FileStates {
    FileStates::of(sink.files())
}
