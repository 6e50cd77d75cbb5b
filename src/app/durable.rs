//! Durable subscriptions: an actor of the embedding program receives events, which stay in a journal on disk until the
//! actor acknowledges them.

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

/// Default time within which a subscriber must acknowledge one message.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Subscription with a journal: events that the actor has not acknowledged survive the end of the process.
///
/// The name identifies the journal in the state directory. A subscription that has the same name continues the journal.
/// Pass the subscription to [`HubBuilder::subscribe_durably`](super::HubBuilder::subscribe_durably), so that it exists
/// before the first event.
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
    /// Creates a subscription that delivers all configured resources to `subscriber`, existing objects included.
    ///
    /// The name has 1 to 63 characters of `A-Z a-z 0-9 . _ -` and begins with a letter or digit. It must differ from
    /// the names of all sinks and other durable subscriptions.
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

    /// Selects the resources of these `[resources.<name>]` entries. Default: all entries.
    #[must_use]
    pub fn resources(mut self, names: &[&str]) -> Self {
        self.resources = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Selects clusters by their labels or names. Default: all clusters.
    #[must_use]
    pub fn clusters(mut self, clusters: ClusterSelector) -> Self {
        self.clusters = clusters;
        self
    }

    /// Selects event types. Default: added, updated, deleted.
    #[must_use]
    pub fn events(mut self, events: &[EventType]) -> Self {
        self.selection.events = events.to_vec();
        self
    }

    /// Leaves out objects that already exist when the subscription is first created, or when a cluster is added later.
    #[must_use]
    pub fn skip_initial(mut self) -> Self {
        self.selection.initial = Initial::Skip;
        self
    }

    /// Delivers an update only if one of these paths changed. Other event types are not affected.
    #[must_use]
    pub fn changed(mut self, paths: &[FieldPath]) -> Self {
        self.selection.changed = paths.to_vec();
        self
    }

    /// Selects events by a CEL expression.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.selection.filter = Some(filter);
        self
    }

    /// Delivers updates without the object's previous state.
    #[must_use]
    pub fn without_old(mut self) -> Self {
        self.include_old = false;
        self
    }

    /// Sets how events are combined into messages. Default: up to 100 events in a message, without waiting for more.
    #[must_use]
    pub fn batch(mut self, batch: BatchParams) -> Self {
        self.batch = batch;
        self
    }

    /// Sets how unacknowledged events are retried.
    #[must_use]
    pub fn retry(mut self, retry: RetryParams) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the maximum number of unacknowledged messages at the same time. Default 4. Two of these messages never have
    /// events of the same object.
    #[must_use]
    pub fn concurrency(mut self, concurrency: NonZeroUsize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Sets the time to acknowledge one message before the attempt fails. Default 60 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the limits on disk for unacknowledged events and for dead letters. Default 1 GiB and 256 MiB.
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
        SinkParams { machine, transport, io: io.clone(), place: Some(place), fence: None }
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
