//! Shared informer: the watched objects of one type in many clusters, with handlers and store; client-go's
//! `SharedIndexInformer`.

mod indexing;
mod sync;
mod version;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix::{Addr, MailboxError};
use futures::future::{join, join_all};
use parking_lot::Mutex;

use super::error::InformerError;
use super::handler::{ResourceEventHandler, dispatch};
use super::registration::{Calls, HandlerOptions, HandlerRegistration};
use crate::actors::messages::{InformerFor, Release, RemoveIndexer, ResourceRequest, Unsubscribe, User, ViewSync};
use crate::actors::{
    Env, HubSystem, InformerSync, InformersOf, RegistryActor, Subscribe, Subscriber, SubscriptionId, SyncScope,
    SyncView, WatchErrorHandler,
};
use crate::cache::{IndexReader, Lister};
use informer_hub_codec::Transform;
use informer_hub_reflector::InformerOptions;
use informer_hub_types::{
    ApiResource, ClusterName, ClusterSelector, Dynamic, Notification, ResourceVersion, Scope, SharedStr, View,
};

/// Connection of informers to the hub in which they run.
#[derive(Clone)]
pub(super) struct Core {
    pub(super) registry: Addr<RegistryActor>,
    pub(super) env: Env,
}

impl Core {
    pub(super) fn new(system: &HubSystem) -> Self {
        Self { registry: system.registry().clone(), env: system.env().clone() }
    }
}

/// Configuration of an informer.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) resource: ApiResource,
    pub(super) scope: Scope,
    pub(super) clusters: ClusterSelector,
    /// Resync period of handlers that set none; zero for never.
    pub(super) resync: Duration,
    pub(super) transform: Option<Transform>,
}

/// Watched objects of one type in the clusters of a factory. Cheap to clone; all clones are the same informer.
///
/// - *Store first*: when a handler is called, lister and indexer have the notified state or a newer one.
/// - A handler is called for one object at a time, and for each object in the order of its changes. Handlers do not
///   wait for each other. A handler that is added late receives existing objects as initial additions, without gaps or
///   duplicates.
/// - The order between clusters is not specified. Each object names its cluster.
/// - A stopped informer cannot be restarted. Its lister and indexer are empty afterwards, unless other informers watch
///   the same objects. In client-go they keep the last state, whose age is unknown.
pub struct SharedInformer<K = Dynamic> {
    inner: Arc<Inner>,
    kind: PhantomData<fn() -> K>,
}

struct Inner {
    core: Core,
    parts: Parts,
    state: Mutex<State>,
    /// Held during start and during stop, so that they do not overlap.
    lifecycle: tokio::sync::Mutex<()>,
    sync: OnceLock<SyncView>,
}

struct State {
    phase: Phase,
    transform: Option<Transform>,
    watch_errors: Option<WatchErrorHandler>,
    /// Whether a lister or indexer was created. From then on the transform cannot be set.
    read: bool,
    handlers: Vec<(SubscriptionId, Arc<Calls>)>,
    /// Calls of removed handlers that may still run.
    removed: Vec<Arc<Calls>>,
    /// Indices added through this informer.
    indexers: Vec<SharedStr>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Made,
    /// A start has begun and not finished. If it was interrupted, another start continues it.
    Starting,
    Started,
    Stopped,
}

impl SharedInformer {
    pub(super) fn new(core: Core, parts: Parts) -> Self {
        let state = State {
            phase: Phase::Made,
            transform: parts.transform.clone(),
            watch_errors: None,
            read: false,
            handlers: Vec::new(),
            removed: Vec::new(),
            indexers: Vec::new(),
        };
        let inner = Inner {
            core,
            parts,
            state: Mutex::new(state),
            lifecycle: tokio::sync::Mutex::default(),
            sync: OnceLock::new(),
        };
        Self { inner: Arc::new(inner), kind: PhantomData }
    }

    pub(super) fn cast<K>(self) -> SharedInformer<K> {
        SharedInformer { inner: self.inner, kind: PhantomData }
    }
}

impl Inner {
    fn user(&self) -> User {
        User::Caller(self.parts.name.clone())
    }

    fn awaited(&self) -> SyncScope {
        let Parts { resource, clusters, .. } = &self.parts;
        let wanted = ResourceRequest::known(resource);
        SyncScope::Informers(Arc::new(InformersOf { wanted, scope: self.scope(), clusters: clusters.clone() }))
    }

    /// Returns which objects are watched, and in which cache. With a transform, the informer gets a cache of its own,
    /// because its objects differ from those of other informers.
    fn scope(&self) -> Scope {
        let Parts { scope, name, .. } = &self.parts;
        match &self.state.lock().transform {
            Some(_) => scope.clone().with_view(View::Private(name.as_str().into())),
            None => scope.clone(),
        }
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().phase == Phase::Stopped
    }

    /// Runs a start or stop to its end, even if the caller is dropped: otherwise handlers or watches would be left
    /// behind.
    async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, MailboxError> {
        self.core.env.io.spawn(work).await.map_err(|_| MailboxError::Closed)
    }

    async fn start(self: Arc<Self>) -> Result<bool, InformerError> {
        let _lifecycle = self.lifecycle.lock().await;
        let (options, watch_errors) = {
            let mut state = self.state.lock();
            match state.phase {
                Phase::Started => return Ok(false),
                Phase::Stopped => return Err(InformerError::Stopped),
                Phase::Made | Phase::Starting => state.phase = Phase::Starting,
            }
            let options = InformerOptions {
                metadata_only: self.parts.scope.view == View::Metadata,
                transform: state.transform.clone(),
                ..InformerOptions::default()
            };
            (options, state.watch_errors.clone())
        };
        let registry = &self.core.registry;
        let demand = InformerFor {
            user: self.user(),
            wanted: ResourceRequest::known(&self.parts.resource),
            clusters: self.parts.clusters.clone(),
            scopes: vec![self.scope()],
            options: Arc::new(options),
            watch_errors,
        };
        let view = registry.send(ViewSync).await?;
        registry.send(demand).await?;
        let _ = self.sync.set(view);
        let mut state = self.state.lock();
        if state.phase == Phase::Starting {
            state.phase = Phase::Started;
        }
        Ok(true)
    }

    async fn add(self: Arc<Self>, subscribe: Subscribe, calls: Arc<Calls>) -> Result<SubscriptionId, InformerError> {
        let id = self.core.registry.send(subscribe).await?;
        let stopped = {
            let mut state = self.state.lock();
            state.handlers.push((id, Arc::clone(&calls)));
            state.phase == Phase::Stopped
        };
        if stopped {
            // The informer was stopped during the subscription, possibly without this handler.
            calls.end();
            self.core.registry.send(Unsubscribe(id)).await?;
            return Err(InformerError::Stopped);
        }
        Ok(id)
    }

    async fn stop(self: Arc<Self>) {
        {
            let mut state = self.state.lock();
            state.phase = Phase::Stopped;
            state.handlers.iter().for_each(|(_, calls)| calls.end());
        }
        let _lifecycle = self.lifecycle.lock().await;
        let (handlers, mut removed, indexers) = {
            let mut state = self.state.lock();
            let State { handlers, removed, indexers, .. } = &mut *state;
            (std::mem::take(handlers), std::mem::take(removed), std::mem::take(indexers))
        };
        let Core { registry, env } = &self.core;
        // An error means that the hub has ended.
        if !indexers.is_empty()
            && let Some(cache) = env.caches.of_running(&self.parts.resource, &self.scope().view)
        {
            join_all(indexers.into_iter().map(|name| cache.send(RemoveIndexer(name)))).await;
        }
        let leaving = join_all(handlers.iter().map(|(id, _)| registry.send(Unsubscribe(*id))));
        // Sent before the handlers have ended, so that a blocked handler does not keep the watch open.
        let releasing = registry.send(Release(self.user()));
        let _ = join(leaving, releasing).await;
        removed.extend(handlers.into_iter().map(|(_, calls)| calls));
        for calls in removed {
            calls.ended().await;
        }
    }
}

impl<K: 'static> SharedInformer<K> {
    /// Returns the watched resource.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.inner.parts.resource
    }

    // === before the start ===

    /// Sets the transform, which replaces the factory's. It is applied to each object before it is stored.
    ///
    /// # Errors
    /// If the informer has been started or stopped, or a lister or an indexer has been created.
    pub fn set_transform(&self, transform: Transform) -> Result<(), InformerError> {
        let mut state = self.before_start("the transform")?;
        if state.read {
            return Err(InformerError::InUse);
        }
        state.transform = Some(transform);
        Ok(())
    }

    /// Sets the handler for failed lists and watches.
    ///
    /// # Errors
    /// If the informer has been started or stopped.
    pub fn set_watch_error_handler(&self, handler: WatchErrorHandler) -> Result<(), InformerError> {
        self.before_start("the watch error handler")?.watch_errors = Some(handler);
        Ok(())
    }

    fn before_start(&self, what: &'static str) -> Result<parking_lot::MutexGuard<'_, State>, InformerError> {
        let state = self.inner.state.lock();
        match state.phase {
            Phase::Made => Ok(state),
            Phase::Starting | Phase::Started => Err(InformerError::Started(what)),
            Phase::Stopped => Err(InformerError::Stopped),
        }
    }

    // === handlers ===

    /// Adds a handler for every object, with the resync period of the factory.
    ///
    /// # Errors
    /// If the informer or the hub has been stopped.
    pub async fn add_event_handler(
        &self,
        handler: impl ResourceEventHandler<K>,
    ) -> Result<HandlerRegistration, InformerError> {
        self.add_event_handler_with_options(handler, HandlerOptions::default()).await
    }

    /// Adds a handler with a name and a resync period: client-go's `AddEventHandlerWithOptions`.
    ///
    /// # Errors
    /// If the informer or the hub has been stopped.
    pub async fn add_event_handler_with_options(
        &self,
        handler: impl ResourceEventHandler<K>,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, InformerError> {
        self.add(handler, options).await
    }

    /// Adds a handler with its own resync period (at least one second; zero for never). All handlers of an informer are
    /// resynced on ticks of the shortest period.
    ///
    /// # Errors
    /// If the informer or the hub has been stopped.
    pub async fn add_event_handler_with_resync_period(
        &self,
        handler: impl ResourceEventHandler<K>,
        period: Duration,
    ) -> Result<HandlerRegistration, InformerError> {
        self.add(handler, HandlerOptions { resync: Some(period), ..HandlerOptions::default() }).await
    }

    async fn add(
        &self,
        mut handler: impl ResourceEventHandler<K>,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, InformerError> {
        let inner = &self.inner;
        if inner.is_stopped() {
            return Err(InformerError::Stopped);
        }
        let calls = Arc::<Calls>::default();
        let own_calls = Arc::clone(&calls);
        let subscriber = Subscriber::from_fn(move |notification: &Notification<K>| {
            own_calls.call(|| dispatch(&mut handler, notification));
        });
        let Parts { name, clusters, .. } = &inner.parts;
        let subscribe = Subscribe::to_informers_of(inner.user(), clusters.clone(), subscriber);
        let resync = options.resync.unwrap_or(inner.parts.resync);
        let subscribe = subscribe.named(options.name.as_deref().unwrap_or(name)).with_resync(resync);
        let id = inner.run_to_end(Arc::clone(inner).add(subscribe, Arc::clone(&calls))).await??;
        let of = Arc::clone(inner);
        Ok(HandlerRegistration::new(
            id,
            calls,
            Arc::new(move || of.sync.get().map(|_| of.awaited())),
            inner.core.registry.clone(),
        ))
    }

    /// Removes a handler without waiting: it is not called again, but a running call may still finish. So a handler may
    /// remove itself. Idempotent; ignores registrations of other informers.
    pub fn remove_event_handler(&self, registration: &HandlerRegistration) {
        if let Some((id, _)) = self.forget(registration) {
            let removing = self.inner.core.registry.send(Unsubscribe(id));
            self.inner.core.env.io.spawn(async move {
                // An error means that the hub has ended.
                let _ = removing.await;
            });
        }
    }

    /// Removes a handler and waits for its running call. Must not be called from within the handler.
    ///
    /// # Errors
    /// If the hub has ended.
    pub async fn shut_down_event_handler(&self, registration: &HandlerRegistration) -> Result<(), InformerError> {
        let Some((id, calls)) = self.forget(registration) else { return Ok(()) };
        let registry = self.inner.core.registry.clone();
        let ending = async move {
            let ended = registry.send(Unsubscribe(id)).await;
            calls.ended().await;
            ended
        };
        Ok(self.inner.run_to_end(ending).await??)
    }

    /// Removes a handler from the list and prevents later calls of it. Returns the ID of its subscription, and the
    /// guard of its calls; `None` if the handler is not registered with this informer.
    fn forget(&self, registration: &HandlerRegistration) -> Option<(SubscriptionId, Arc<Calls>)> {
        let mut state = self.inner.state.lock();
        let at = state.handlers.iter().position(|(_, calls)| registration.is_of(calls))?;
        let (id, calls) = state.handlers.swap_remove(at);
        calls.end();
        state.removed.retain(|calls| calls.is_running());
        state.removed.push(Arc::clone(&calls));
        Some((id, calls))
    }

    // === start and stop ===

    /// Starts the informer. Returns false if it is already started.
    pub(super) async fn start(&self) -> Result<bool, InformerError> {
        self.inner.run_to_end(Arc::clone(&self.inner).start()).await?
    }

    /// Removes all handlers, and the indices added through this informer. Stops the watch, unless other informers watch
    /// the same objects. Completes when no handler is running. Idempotent.
    pub async fn stop(&self) {
        // An error means that the hub has ended.
        let _ = self.inner.run_to_end(Arc::clone(&self.inner).stop()).await;
    }

    /// Returns whether the informer has been started, even if it is stopped by now.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.inner.sync.get().is_some()
    }

    /// Returns whether the informer has been stopped, or the hub has shut down.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.is_stopped() || !self.inner.core.registry.connected()
    }

    // === sync state ===

    /// Returns whether the first list of every cluster is complete in the store. Handlers may not have processed it
    /// yet: see [`HandlerRegistration::has_synced`]. False once stopped.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.all_informers(|informer| informer.synced)
    }

    /// Returns whether one cluster has synced. A controller should check this before it relies on the absence of an
    /// object. An unreachable cluster then does not delay the work for others.
    #[must_use]
    pub fn has_synced_in(&self, cluster: &ClusterName) -> bool {
        self.state_in(cluster).is_some_and(|informer| informer.synced)
    }

    /// Returns whether no cluster is worth waiting for any longer. Each cluster has then synced, or cannot sync at
    /// present, for example because it is unreachable or lacks the resource. False before the start and after the stop.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.all_informers(|informer| informer.settled)
    }

    fn all_informers(&self, is: impl Fn(&InformerSync) -> bool) -> bool {
        let Some(sync) = self.inner.sync.get() else { return false };
        !self.is_stopped() && !sync.is_starting() && sync.informers(&self.inner.awaited()).iter().all(is)
    }

    /// Returns the sync state of each cluster.
    #[must_use]
    pub fn sync_state(&self) -> Vec<InformerSync> {
        self.inner.sync.get().map(|sync| sync.informers(&self.inner.awaited())).unwrap_or_default()
    }

    fn state_in(&self, cluster: &ClusterName) -> Option<InformerSync> {
        self.inner.sync.get()?.informers_in(cluster, &self.inner.awaited()).pop()
    }

    /// Returns the resource version up to which changes of a cluster were received; `None` before its first list. The
    /// store may lag behind this version: see [`Self::stored_version`].
    #[must_use]
    pub fn last_sync_resource_version(&self, cluster: &ClusterName) -> Option<ResourceVersion> {
        self.state_in(cluster)?.version
    }

    // === the store ===

    /// Returns a reader of the store that can also query its indices.
    #[must_use]
    pub fn indexer(&self) -> IndexReader<K> {
        let reader = IndexReader::new(self.snapshots(), self.inner.parts.clusters.clone());
        reader.of_informers(self.inner.scope())
    }

    /// Returns a lister over the store.
    #[must_use]
    pub fn lister(&self) -> Lister<K> {
        Lister::over(self.indexer())
    }

    fn snapshots(&self) -> Arc<arc_swap::ArcSwap<crate::cache::Snapshot>> {
        self.inner.state.lock().read = true;
        self.inner.core.env.caches.snapshots(self.resource(), &self.inner.scope().view)
    }
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), kind: PhantomData }
    }
}

impl<K> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.inner.state.lock().phase;
        f.debug_struct("SharedInformer").field("name", &self.inner.parts.name).field("phase", &phase).finish()
    }
}
