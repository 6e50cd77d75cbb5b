//! One handler of one informer: client-go's `ResourceEventHandlerRegistration`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use actix::{Addr, MailboxError};
use parking_lot::Mutex;

use crate::actors::messages::ViewSync;
use crate::actors::{Awaited, RegistryActor, SubscriptionId};
use crate::types::ClusterName;

/// How far a handler has been told.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Clusters of which it has handled every initial object.
    synced: Mutex<BTreeSet<ClusterName>>,
    removed: AtomicBool,
}

impl Progress {
    pub(super) fn note_synced(&self, cluster: &ClusterName) {
        self.synced.lock().insert(cluster.clone());
    }
}

/// A handler that was added, to ask how far it is and to remove it.
#[derive(Clone)]
pub struct HandlerRegistration {
    id: SubscriptionId,
    progress: Arc<Progress>,
    of: Awaited,
    registry: Addr<RegistryActor>,
}

impl HandlerRegistration {
    pub(super) fn new(id: SubscriptionId, progress: Arc<Progress>, of: Awaited, registry: Addr<RegistryActor>) -> Self {
        Self { id, progress, of, registry }
    }

    /// Its number, as the hub's status and logs know it.
    #[must_use]
    pub fn id(&self) -> SubscriptionId {
        self.id
    }

    /// Whether the informer has synced in every cluster, and the handler has returned from each of the initial objects.
    ///
    /// A handler that panicked on one of them has returned: that call is lost, and counted (client-go's never syncs
    /// then).
    ///
    /// # Errors
    /// The hub has ended.
    pub async fn has_synced(&self) -> Result<bool, MailboxError> {
        if self.progress.removed.load(SeqCst) {
            return Ok(false);
        }
        let sync = self.registry.send(ViewSync).await?;
        let informers = sync.informers(&self.of);
        let told = self.progress.synced.lock();
        let all = informers.iter().all(|informer| informer.synced && told.contains(&informer.cluster));
        // Without one it may not have been started.
        Ok(all && !sync.is_starting() && !informers.is_empty())
    }

    pub(super) fn note_removed(&self) {
        self.progress.removed.store(true, SeqCst);
    }
}

impl fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRegistration").field("id", &self.id).finish_non_exhaustive()
    }
}
