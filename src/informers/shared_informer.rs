//! A shared informer: the watched objects of one type in many clusters, its handlers and its store; client-go's
//! `SharedIndexInformer`.

mod indexing;
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
    Awaited, Env, HubSystem, InformerSync, InformersOf, NotSynced, RegistryActor, Subscribe, Subscriber,
    SubscriptionId, SyncView, WatchErrorHandler,
};
use crate::cache::{IndexReader, Lister};
use informer_hub_codec::Transform;
use informer_hub_reflector::InformerOptions;
use informer_hub_types::{
    ApiResource, ClusterName, ClusterSelector, Dynamic, Notification, ResourceVersion, Scope, SharedStr, View,
};

/// What informers need of a hub.
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

/// What an informer is made from.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) resource: ApiResource,
    pub(super) scope: Scope,
    pub(super) clusters: ClusterSelector,
    /// The period of handlers that name none; zero for never.
    pub(super) resync: Duration,
    pub(super) transform: Option<Transform>,
}

/// One type's objects in the clusters of its factory. Cheap to clone: all clones are one informer.
///
/// - *Store first*: what a handler is told of, the lister and the indexer have, in this state or a newer one.
/// - A handler is told of each object in the order in which it changed, never of two at once; handlers do not wait for
///   each other. One that is added late is told of what is there as initial additions, without a gap and without a
///   double.
/// - Between clusters no order is kept. Each object says which cluster it is of.
/// - Once stopped it never starts again, and its lister and indexer have nothing of it any more (client-go's keep the
///   last state, of which nobody can say how old it is).
pub struct SharedInformer<K = Dynamic> {
    inner: Arc<Inner>,
    kind: PhantomData<fn() -> K>,
}

struct Inner {
    core: Core,
    parts: Parts,
    state: Mutex<State>,
    /// Held while it is being started or stopped: of two who ask for it, the second waits for the first.
    lifecycle: tokio::sync::Mutex<()>,
    sync: OnceLock<SyncView>,
}

struct State {
    phase: Phase,
    transform: Option<Transform>,
    watch_errors: Option<WatchErrorHandler>,
    /// Set once somebody may be reading the store.
    read: bool,
    handlers: Vec<(SubscriptionId, Arc<Calls>)>,
    /// Names of the indices that were added by it.
    indexers: Vec<SharedStr>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Made,
    /// Begun, and perhaps not to the end: to start it again goes on from there.
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

    fn awaited(&self) -> Awaited {
        let Parts { resource, clusters, .. } = &self.parts;
        let wanted = ResourceRequest::known(resource);
        Awaited::Informers(Arc::new(InformersOf { wanted, scope: self.scope(), clusters: clusters.clone() }))
    }

    /// With a transform, objects are not what others expect to find: they have a view of their own.
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

    /// Does something to its end, whether or not the caller waits for that: half of a start, or of a stop, would leave
    /// handlers or watches behind that nobody knows of.
    async fn whole<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, MailboxError> {
        self.core.env.io.spawn(work).await.map_err(|_| MailboxError::Closed)
    }

    async fn start(self: Arc<Self>) -> Result<bool, InformerError> {
        let _alone = self.lifecycle.lock().await;
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
            options,
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
            // Meanwhile, and perhaps without knowing of this one.
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
        let _alone = self.lifecycle.lock().await;
        let (handlers, indexers) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.handlers), std::mem::take(&mut state.indexers))
        };
        let Core { registry, env } = &self.core;
        // An error means that the hub has ended, and all of this with it.
        if !indexers.is_empty()
            && let Some(cache) = env.caches.of_open(&self.parts.resource, &self.scope().view)
        {
            join_all(indexers.into_iter().map(|name| cache.send(RemoveIndexer(name)))).await;
        }
        let leaving = join_all(handlers.iter().map(|(id, _)| registry.send(Unsubscribe(*id))));
        // In line behind these: a handler that does not return must not keep the watch open.
        let releasing = registry.send(Release(self.user()));
        let _ = join(leaving, releasing).await;
        for (_, calls) in handlers {
            calls.ended().await;
        }
    }
}

impl<K: 'static> SharedInformer<K> {
    /// What it watches.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.inner.parts.resource
    }

    // === before the start ===

    /// Has something made of each object before anybody sees it, in place of the factory's transform.
    ///
    /// # Errors
    /// After the start, after the stop, and once a lister or an indexer has been handed out.
    pub fn set_transform(&self, transform: Transform) -> Result<(), InformerError> {
        let mut state = self.before_start("the transform")?;
        if state.read {
            return Err(InformerError::InUse);
        }
        state.transform = Some(transform);
        Ok(())
    }

    /// Has failed lists and watches told.
    ///
    /// # Errors
    /// After the start and after the stop.
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

    /// Has a handler told of every object, in the period of the factory again.
    ///
    /// # Errors
    /// After the stop.
    pub async fn add_event_handler(
        &self,
        handler: impl ResourceEventHandler<K>,
    ) -> Result<HandlerRegistration, InformerError> {
        self.add_event_handler_with_options(handler, HandlerOptions::default()).await
    }

    /// The same under a name and with a period of its own: client-go's `AddEventHandlerWithOptions`.
    ///
    /// # Errors
    /// After the stop.
    pub async fn add_event_handler_with_options(
        &self,
        handler: impl ResourceEventHandler<K>,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, InformerError> {
        self.add(handler, options).await
    }

    /// The same with a period of its own (a second at least; zero for never). All handlers of an informer are repeated on
    /// ticks of the shortest period that any of them asked for.
    ///
    /// # Errors
    /// After the stop.
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
        let mine = Arc::clone(&calls);
        let subscriber = Subscriber::from_fn(move |notification: &Notification<K>| {
            mine.call(|| dispatch(&mut handler, notification));
        });
        let Parts { name, clusters, .. } = &inner.parts;
        let subscribe = Subscribe::to_informers_of(inner.user(), clusters.clone(), subscriber);
        let resync = options.resync.unwrap_or(inner.parts.resync);
        let subscribe = subscribe.named(options.name.as_deref().unwrap_or(name)).with_resync(resync);
        let id = inner.whole(Arc::clone(inner).add(subscribe, Arc::clone(&calls))).await??;
        let of = Arc::clone(inner);
        Ok(HandlerRegistration::new(id, calls, Arc::new(move || of.awaited()), inner.core.registry.clone()))
    }

    /// Removes a handler: it is not called any more, but a call that is running may still end. It waits for nothing, so a
    /// handler may remove itself. Idempotent; a registration of another informer is not touched.
    pub fn remove_event_handler(&self, registration: &HandlerRegistration) {
        if let Some((id, _)) = self.forget(registration) {
            let removing = self.inner.core.registry.send(Unsubscribe(id));
            self.inner.core.env.io.spawn(async move {
                // An error means that the hub has ended, and its handlers with it.
                let _ = removing.await;
            });
        }
    }

    /// The same, and waits until no call of it is running: do not call it from within the handler.
    ///
    /// # Errors
    /// The hub has ended.
    pub async fn shut_down_event_handler(&self, registration: &HandlerRegistration) -> Result<(), InformerError> {
        let Some((id, calls)) = self.forget(registration) else { return Ok(()) };
        let registry = self.inner.core.registry.clone();
        let ending = async move {
            let ended = registry.send(Unsubscribe(id)).await;
            calls.ended().await;
            ended
        };
        Ok(self.inner.whole(ending).await??)
    }

    /// Whose it is, if it is one of this informer that has not been removed; it is not called any more.
    fn forget(&self, registration: &HandlerRegistration) -> Option<(SubscriptionId, Arc<Calls>)> {
        let handlers = &mut self.inner.state.lock().handlers;
        let at = handlers.iter().position(|(id, _)| *id == registration.id())?;
        let (id, calls) = handlers.swap_remove(at);
        calls.end();
        Some((id, calls))
    }

    // === start and stop ===

    /// Starts it, unless it was started before: then `false`.
    pub(super) async fn start(&self) -> Result<bool, InformerError> {
        self.inner.whole(Arc::clone(&self.inner).start()).await?
    }

    /// Removes all handlers and the indices that it added, and stops watching, unless others watch the same; ends when no
    /// handler is running any more. The watch does not wait for that. Idempotent.
    pub async fn stop(&self) {
        // An error means that the hub has ended.
        let _ = self.inner.whole(Arc::clone(&self.inner).stop()).await;
    }

    /// Whether it has been started, stopped or not.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.inner.sync.get().is_some()
    }

    /// Whether it has been stopped, or the hub has ended.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.is_stopped() || !self.inner.core.registry.connected()
    }

    // === how far it is ===

    /// Whether the store has the first complete list of every cluster. Handlers may not have been told yet: a
    /// registration says that. Once stopped it has nothing, and has not synced.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.is_through(|informer| informer.synced)
    }

    /// The same of one cluster: what a controller asks before it takes the absence of something for a fact. One cluster
    /// that is out of reach need not hold up the work for the others.
    #[must_use]
    pub fn has_synced_in(&self, cluster: &ClusterName) -> bool {
        self.state_in(cluster).is_some_and(|informer| informer.synced)
    }

    /// Whether nothing is gained by waiting: every cluster has synced, or cannot be reached, forbids it, or does not have
    /// the resource.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_through(|informer| informer.settled)
    }

    fn is_through(&self, is: impl Fn(&InformerSync) -> bool) -> bool {
        let Some(sync) = self.inner.sync.get() else { return false };
        !self.inner.is_stopped() && !sync.is_starting() && sync.informers(&self.inner.awaited()).iter().all(is)
    }

    /// Each cluster's part.
    #[must_use]
    pub fn sync_state(&self) -> Vec<InformerSync> {
        self.inner.sync.get().map(|sync| sync.informers(&self.inner.awaited())).unwrap_or_default()
    }

    fn state_in(&self, cluster: &ClusterName) -> Option<InformerSync> {
        self.inner.sync.get()?.informers_in(cluster, &self.inner.awaited()).pop()
    }

    /// How far the reflector of a cluster has read; `None` before its first list. The store follows it:
    /// [`Self::stored_version`].
    #[must_use]
    pub fn last_sync_resource_version(&self, cluster: &ClusterName) -> Option<ResourceVersion> {
        self.state_in(cluster)?.version
    }

    /// Waits until every cluster has synced.
    ///
    /// # Errors
    /// [`NotSynced`] names what had not when the time was up, and why; one that was not started has not.
    pub async fn wait_for_sync(&self, timeout: Duration) -> Result<(), NotSynced> {
        match self.inner.sync.get() {
            Some(sync) => sync.clone().wait(self.inner.awaited(), timeout).await,
            None => Err(NotSynced {
                waited: Duration::ZERO,
                waiting: vec![format!("{} has not been started", self.inner.parts.name)],
            }),
        }
    }

    // === the store ===

    /// The readable half of its store.
    #[must_use]
    pub fn indexer(&self) -> IndexReader<K> {
        let reader = IndexReader::new(self.snapshots(), self.inner.parts.clusters.clone());
        reader.of_informers(self.inner.scope())
    }

    /// Lists and gets from its store.
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
