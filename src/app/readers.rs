//! Sinks and durable subscriptions: from what they are built from to running, and what each of them follows.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, MailboxError};

use super::durable::DurableSubscription;
use super::report::{RunningSink, RunningSinks};
use super::sinks;
use super::start::StartError;
use super::state::OpenState;
use crate::actors::messages::Unsubscribe;
use crate::actors::sinks::sink::{OpenStore, Sink, SinkParams, StorePlace};
use crate::actors::{Env, RegistryActor, Subscribe, SubscriptionId};
use informer_hub_config::{Initial, ResourceConfig, SinkConfig};
use informer_hub_dial::Dial;
use informer_hub_disk::FileStates;
use informer_hub_types::{ClusterSelector, Fsync, StoreLimits, Threads};

/// A sink or a durable subscription, ready to be started.
pub(super) struct Reader {
    pub(super) name: String,
    pub(super) params: SinkParams,
    pub(super) interest: Interest,
    /// The files of a sink, as they were when it was built; `None` of a durable subscription, which has no configuration.
    pub(super) files: Option<FileStates>,
}

/// What a reader wants to hear of.
#[derive(Clone)]
pub(super) struct Interest {
    /// Names of configured resources; empty: all.
    resources: Vec<String>,
    clusters: ClusterSelector,
    skip_initial: bool,
}

/// How a reader follows a resource.
#[derive(Clone, PartialEq)]
pub(super) struct Wish {
    clusters: ClusterSelector,
    skip_initial: bool,
    resync: Option<Duration>,
}

/// What a running reader follows, by resource.
pub(super) type Followed = BTreeMap<String, (Wish, SubscriptionId)>;

impl Reader {
    /// A sink as the configuration has it. Compiles filter and template, reads secrets and certificates; blocks.
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
        let interest = Interest {
            resources: sink.select.resources.clone(),
            clusters: sink.select.clusters.clone(),
            skip_initial: sink.initial == Initial::Skip,
        };
        Ok(Self { name: sink.name.clone(), params, interest, files: Some(files) })
    }

    pub(super) fn of_durable(one: DurableSubscription, state: &OpenState, fsync: Fsync, io: &Threads) -> Self {
        let place = place(state, &one.name, one.limits, fsync);
        let interest = Interest {
            resources: one.resources.clone(),
            clusters: one.clusters.clone(),
            skip_initial: one.selection.initial == Initial::Skip,
        };
        Self { name: one.name.clone(), params: one.params(place, io), interest, files: None }
    }

    /// Starts it, and has it follow what it is interested in.
    pub(super) async fn start(
        self,
        store: OpenStore,
        resources: &[ResourceConfig],
        env: &Env,
        registry: &Addr<RegistryActor>,
        sinks: &RunningSinks,
    ) -> Result<(), MailboxError> {
        let Self { name, params, interest, files } = self;
        let (health, is_durable) = (Arc::clone(&params.machine.health), params.place.is_some());
        let reader = Follower { name, sink: Sink::start(params, store, env), is_durable, interest };
        let mut followed = Followed::new();
        reader.follow(&mut followed, resources, registry).await?;
        sinks.lock().push(RunningSink { follower: reader, health, files, followed });
        Ok(())
    }
}

fn place(state: &OpenState, name: &str, limits: StoreLimits, fsync: Fsync) -> StorePlace {
    let (disk, directory) = state.reader(name);
    StorePlace { disk, directory, limits, fsync }
}

/// A running reader, as far as following goes.
#[derive(Clone)]
pub(super) struct Follower {
    pub(super) name: String,
    pub(super) sink: Sink,
    pub(super) is_durable: bool,
    pub(super) interest: Interest,
}

impl Follower {
    /// Sees that it follows what it is interested in among these resources, and nothing else. What it follows already in
    /// the same way is left alone.
    pub(super) async fn follow(
        &self,
        followed: &mut Followed,
        resources: &[ResourceConfig],
        registry: &Addr<RegistryActor>,
    ) -> Result<(), MailboxError> {
        let Interest { resources: names, clusters, skip_initial } = &self.interest;
        let wanted = resources.iter().filter(|resource| names.is_empty() || names.contains(&resource.name));
        let wish = |resource: &ResourceConfig| {
            let wish = Wish { clusters: clusters.clone(), skip_initial: *skip_initial, resync: resource.resync };
            (resource.name.clone(), wish)
        };
        let wishes: BTreeMap<_, _> = wanted.map(wish).collect();
        let is_gone = |(name, (wish, _)): &(&String, &(Wish, SubscriptionId))| wishes.get(*name) != Some(wish);
        let gone: Vec<_> = followed.iter().filter(is_gone).map(|(name, (_, id))| (name.clone(), *id)).collect();
        for (name, id) in gone {
            registry.send(Unsubscribe(id)).await?;
            followed.remove(&name);
        }
        for (name, wish) in wishes {
            if let Entry::Vacant(new) = followed.entry(name) {
                let id = registry.send(self.subscribe(new.key(), &wish)).await?;
                new.insert((wish, id));
            }
        }
        Ok(())
    }

    fn subscribe(&self, resource: &str, wish: &Wish) -> Subscribe {
        let mut subscribe =
            Subscribe::to_configured(resource, wish.clusters.clone(), self.sink.subscriber()).named(&self.name);
        if wish.skip_initial {
            subscribe = subscribe.skip_initial();
        }
        if self.is_durable {
            subscribe = subscribe.durable();
        }
        match wish.resync {
            Some(period) => subscribe.with_resync(period),
            None => subscribe,
        }
    }
}

/// A sink's files, as they are now. Blocks.
pub(super) fn files_of(sink: &SinkConfig) -> FileStates {
    FileStates::of(sink.files())
}
