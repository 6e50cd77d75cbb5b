//! Durable subscriptions of an embedder's actors.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;

use crate::actors::sinks::durable::{ActorTransport, Deliveries};
use crate::actors::sinks::sink::{SinkParams, StorePlace};
use informer_hub_sink::{
    BatchParams, Bounds, EventOptions, EventType, Filter, Initial, MachineParams, RetryParams, Selection, SinkHealth,
    StoreLimits,
};
use informer_hub_types::{ClusterSelector, FieldPath, Threads};

/// How long a subscriber has to answer for one message.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An actor that is told from a journal: what it has not acknowledged survives the end of the process.
///
/// It has a name of its own, under which its journal lies in the state directory; subscribed under it again, it goes on
/// where it was. Give it to [`HubBuilder::subscribe_durably`](super::HubBuilder::subscribe_durably), so that it is there
/// before anything is seen.
pub struct DurableSubscription {
    pub(super) name: String,
    pub(super) resources: Vec<String>,
    pub(super) clusters: ClusterSelector,
    subscriber: Recipient<Deliveries>,
    pub(super) selection: Selection,
    include_old: bool,
    batch: BatchParams,
    retry: RetryParams,
    concurrency: NonZeroUsize,
    timeout: Duration,
    pub(super) limits: StoreLimits,
}

impl DurableSubscription {
    /// Everything that the configuration watches, told to `subscriber`; objects that are there already included.
    ///
    /// The name is one to 63 of `A-Z a-z 0-9 . _ -`, the first a letter or a digit; no sink and no other durable
    /// subscription has it.
    #[must_use]
    pub fn new(name: &str, subscriber: Recipient<Deliveries>) -> Self {
        Self {
            name: name.to_owned(),
            resources: Vec::new(),
            clusters: ClusterSelector::All,
            subscriber,
            selection: Selection { initial: Initial::Replay, ..Selection::default() },
            include_old: true,
            batch: BatchParams { max_wait: Duration::ZERO, ..BatchParams::default() },
            retry: RetryParams::default(),
            concurrency: NonZeroUsize::new(4).unwrap_or(NonZeroUsize::MIN),
            timeout: TIMEOUT,
            limits: StoreLimits::default(),
        }
    }

    /// Only what `[resources.<name>]` of one of these names watches.
    #[must_use]
    pub fn resources(mut self, names: &[&str]) -> Self {
        self.resources = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Only clusters with these labels.
    #[must_use]
    pub fn clusters(mut self, clusters: ClusterSelector) -> Self {
        self.clusters = clusters;
        self
    }

    /// Only these types of event. Default: added, updated, deleted.
    #[must_use]
    pub fn events(mut self, events: &[EventType]) -> Self {
        self.selection.events = events.to_vec();
        self
    }

    /// Without the objects that are there when it first subscribes.
    #[must_use]
    pub fn skip_initial(mut self) -> Self {
        self.selection.initial = Initial::Skip;
        self
    }

    /// Updates only where one of these paths changed.
    #[must_use]
    pub fn changed(mut self, paths: &[FieldPath]) -> Self {
        self.selection.changed = paths.to_vec();
        self
    }

    /// Only what this lets through.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.selection.filter = Some(filter);
        self
    }

    /// Without the state before an update.
    #[must_use]
    pub fn without_old(mut self) -> Self {
        self.include_old = false;
        self
    }

    /// How events are put together. Default: up to 100, without waiting for more.
    #[must_use]
    pub fn batch(mut self, batch: BatchParams) -> Self {
        self.batch = batch;
        self
    }

    /// How long what it does not acknowledge is tried.
    #[must_use]
    pub fn retry(mut self, retry: RetryParams) -> Self {
        self.retry = retry;
        self
    }

    /// Messages under way at once, each with events of other objects. Default 4.
    #[must_use]
    pub fn concurrency(mut self, concurrency: NonZeroUsize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// How long it has to answer for one message before that counts as failed. Default 60 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What it may take on disk: of events that it has not acknowledged, and of those that were given up. Default 1 GiB
    /// and 256 MiB.
    #[must_use]
    pub fn limits(mut self, limits: StoreLimits) -> Self {
        self.limits = limits;
        self
    }

    pub(super) fn params(self, place: StorePlace, io: &Threads) -> SinkParams {
        let machine = MachineParams {
            name: self.name.as_str().into(),
            selection: Arc::new(self.selection),
            options: EventOptions { include_old: self.include_old, ..EventOptions::default() },
            batch: self.batch,
            retry: self.retry,
            bounds: Bounds::default(),
            concurrency: self.concurrency,
            rate_limit: None,
            health: SinkHealth::new(),
        };
        let transport = Arc::new(ActorTransport::new(self.subscriber, self.timeout));
        SinkParams { machine, transport, io: io.clone(), place: Some(place) }
    }
}

impl fmt::Debug for DurableSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableSubscription")
            .field("name", &self.name)
            .field("resources", &self.resources)
            .field("clusters", &self.clusters)
            .finish_non_exhaustive()
    }
}
