//! Registration of one event handler: client-go's `ResourceEventHandlerRegistration`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use actix::{Addr, MailboxError};
use tokio::sync::Mutex;

use super::InformerError;
use crate::actors::messages::{FindSubscription, ViewSync};
use crate::actors::{RegistryActor, SubscriptionId, SyncScope};

/// How often a wait checks whether the handler has processed the initial objects.
const POLL: Duration = Duration::from_millis(20);

/// Guard for the calls of one handler: at most one runs at a time, and after [`Self::end`] none starts.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Held while a call of the handler runs.
    running: Mutex<()>,
    has_ended: AtomicBool,
}

impl Calls {
    /// Runs `call`, unless [`Self::end`] was called. Blocks while another call runs, so it needs a thread that may
    /// block.
    pub(super) fn call(&self, call: impl FnOnce()) {
        let _running = self.running.blocking_lock();
        if !self.has_ended.load(SeqCst) {
            call();
        }
    }

    /// Returns whether a call of the handler is running.
    pub(super) fn is_running(&self) -> bool {
        self.running.try_lock().is_err()
    }

    /// Prevents later calls of the handler. A running call continues.
    pub(super) fn end(&self) {
        self.has_ended.store(true, SeqCst);
    }

    /// Waits until no call of the handler is running.
    pub(super) async fn ended(&self) {
        drop(self.running.lock().await);
    }
}

/// Options of one handler: client-go's `HandlerOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerOptions {
    /// Name in status, logs and metrics. Default: the informer's name.
    ///
    /// Each name creates time series for each cluster and resource. Name the handler by its purpose, never by the
    /// objects it handles.
    pub name: Option<String>,
    /// Resync period, at least one second; zero for never. Default: the factory's.
    pub resync: Option<Duration>,
}

impl HandlerOptions {
    /// Returns options with this name and the resync period of the factory.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), resync: None }
    }
}

/// Registration of a handler, used to query its progress and to remove it.
#[derive(Clone)]
pub struct HandlerRegistration {
    id: SubscriptionId,
    calls: Arc<Calls>,
    /// Returns the informers that must sync before the handler counts as synced; `None` before the start. This is a
    /// function, because the set of informers depends on the transform, which may change until the start.
    of: Arc<dyn Fn() -> Option<SyncScope> + Send + Sync>,
    registry: Addr<RegistryActor>,
}

impl HandlerRegistration {
    pub(super) fn new(
        id: SubscriptionId,
        calls: Arc<Calls>,
        of: Arc<dyn Fn() -> Option<SyncScope> + Send + Sync>,
        registry: Addr<RegistryActor>,
    ) -> Self {
        Self { id, calls, of, registry }
    }

    /// Returns whether `calls` belong to this registration.
    pub(super) fn is_of(&self, calls: &Arc<Calls>) -> bool {
        Arc::ptr_eq(&self.calls, calls)
    }

    /// Returns the ID of the subscription, as shown in status and logs.
    #[must_use]
    pub fn id(&self) -> SubscriptionId {
        self.id
    }

    /// Returns whether the informer has synced in every cluster and the handler has processed each initial object.
    ///
    /// Without clusters, the handler has synced once the informer has been started. A call for an initial object that
    /// panics counts as processed; client-go's handler never syncs then. A removed handler has not synced.
    ///
    /// # Errors
    /// If the hub has ended.
    pub async fn has_synced(&self) -> Result<bool, MailboxError> {
        if self.calls.has_ended.load(SeqCst) {
            return Ok(false);
        }
        let Some(subscription) = self.registry.send(FindSubscription(self.id)).await? else { return Ok(false) };
        let sync = self.registry.send(ViewSync).await?;
        // Read before the informers: if no request is in flight now, the informers of all earlier requests are visible.
        let is_starting = sync.is_starting();
        let Some(scope) = (self.of)() else { return Ok(false) };
        let informers = sync.informers(&scope);
        let processed = |cluster| subscription.has_synced_in(cluster);
        let all = informers.iter().all(|informer| informer.synced && processed(&informer.cluster));
        Ok(all && !is_starting)
    }
}

impl HandlerRegistration {
    /// Waits until [`Self::has_synced`] is true: client-go's `HasSyncedChecker` and `WaitForCacheSync`.
    ///
    /// Waits indefinitely for an unreachable cluster, so use a timeout.
    ///
    /// # Errors
    /// [`InformerError::Removed`] if the handler has been removed, [`InformerError::Hub`] if the hub has ended.
    ///
    /// # Cancel safety
    /// Cancel safe: wrap it in `tokio::time::timeout`. Needs a tokio runtime with time enabled.
    pub async fn wait_for_sync(&self) -> Result<(), InformerError> {
        let mut changes = self.registry.send(ViewSync).await?.changes();
        loop {
            if self.has_synced().await? {
                return Ok(());
            }
            if self.calls.has_ended.load(SeqCst) {
                return Err(InformerError::Removed);
            }
            // Informers signal their sync; the end of the last initial call is polled.
            let _ = tokio::time::timeout(POLL, changes.changed()).await;
        }
    }
}

impl fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRegistration").field("id", &self.id).finish_non_exhaustive()
    }
}
