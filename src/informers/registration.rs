//! One handler of one informer: client-go's `ResourceEventHandlerRegistration`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use actix::{Addr, MailboxError};
use tokio::sync::Mutex;

use super::InformerError;
use crate::actors::messages::{FindSubscription, ViewSync};
use crate::actors::{Awaited, RegistryActor, SubscriptionId};

/// How often a wait looks whether a handler has returned from its initial calls.
const LOOK: Duration = Duration::from_millis(20);

/// The calls of one handler.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Held during a call.
    running: Mutex<()>,
    over: AtomicBool,
}

impl Calls {
    /// Makes a call, on a thread where it may block, unless there are to be none any more.
    pub(super) fn call(&self, call: impl FnOnce()) {
        let _running = self.running.blocking_lock();
        if !self.over.load(SeqCst) {
            call();
        }
    }

    /// No call begins after this.
    pub(super) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Waits for the call that is running.
    pub(super) async fn ended(&self) {
        drop(self.running.lock().await);
    }
}

/// Options of one handler: client-go's `HandlerOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerOptions {
    /// The name in the status, in the log and in metrics. Unset: the informer's.
    ///
    /// Each name makes time series of its own for each cluster and resource: name the handler by its duty, never by
    /// what it handles.
    pub name: Option<String>,
    /// The resync period, 1 s at least; zero for none. Unset: the factory's.
    pub resync: Option<Duration>,
}

impl HandlerOptions {
    /// Options with a name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), resync: None }
    }
}

/// A handler that was added, to ask how far it is and to remove it.
#[derive(Clone)]
pub struct HandlerRegistration {
    id: SubscriptionId,
    calls: Arc<Calls>,
    /// The informers that it waits for. Asked for each time: a transform that is set before the start changes them.
    of: Arc<dyn Fn() -> Awaited + Send + Sync>,
    registry: Addr<RegistryActor>,
}

impl HandlerRegistration {
    pub(super) fn new(
        id: SubscriptionId,
        calls: Arc<Calls>,
        of: Arc<dyn Fn() -> Awaited + Send + Sync>,
        registry: Addr<RegistryActor>,
    ) -> Self {
        Self { id, calls, of, registry }
    }

    /// Its number, as the hub's status and logs know it.
    #[must_use]
    pub fn id(&self) -> SubscriptionId {
        self.id
    }

    /// Whether the informer has synced in every cluster, and the handler has returned from each of the initial objects.
    ///
    /// A handler that panicked on one of them has returned: that call is lost, and counted (client-go's never syncs
    /// then). One that was removed has not synced.
    ///
    /// # Errors
    /// The hub has ended.
    pub async fn has_synced(&self) -> Result<bool, MailboxError> {
        if self.calls.over.load(SeqCst) {
            return Ok(false);
        }
        let Some(subscription) = self.registry.send(FindSubscription(self.id)).await? else { return Ok(false) };
        let sync = self.registry.send(ViewSync).await?;
        // Before the informers are looked at: what is told after this shows there.
        let is_starting = sync.is_starting();
        let informers = sync.informers(&(self.of)());
        let told = |cluster| subscription.has_synced_in(cluster);
        let all = informers.iter().all(|informer| informer.synced && told(&informer.cluster));
        // Without one it may not have been started.
        Ok(all && !is_starting && !informers.is_empty())
    }
}

impl HandlerRegistration {
    /// Waits until [`Self::has_synced`] is true: client-go's `HasSyncedChecker` and `WaitForCacheSync`.
    ///
    /// A cluster that is out of reach keeps it waiting: give it a deadline of your own.
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
            if self.calls.over.load(SeqCst) {
                return Err(InformerError::Removed);
            }
            // Informers signal their sync; the end of the handler's last initial call is looked for.
            let _ = tokio::time::timeout(LOOK, changes.changed()).await;
        }
    }
}

impl fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRegistration").field("id", &self.id).finish_non_exhaustive()
    }
}
