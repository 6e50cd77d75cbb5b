//! Indices added to an informer's store until the informer is stopped.

use std::sync::Arc;

use actix::MailboxError;
use futures::future::join_all;

use super::{Inner, Phase, SharedInformer};
use crate::actors::messages::{AddIndexers, RemoveIndexer};
use crate::cache::{AddIndexersError, Indexers};
use crate::informers::InformerError;
use informer_hub_types::SharedStr;

impl Inner {
    /// Records added indices, to remove them at the stop. If the informer has already stopped, returns them instead, to
    /// be removed now.
    fn keep_indexers(&self, names: Vec<SharedStr>) -> Vec<SharedStr> {
        let mut state = self.state.lock();
        if state.phase == Phase::Stopped {
            return names;
        }
        state.indexers.extend(names);
        Vec::new()
    }
}

impl<K: 'static> SharedInformer<K> {
    /// Adds indices with computed values, at any time before the stop.
    ///
    /// Existing objects are indexed on separate threads while events are processed. Returns when the indices are
    /// complete; until then, queries that use them fail. All informers that watch the same objects share the indices,
    /// until this informer is stopped.
    ///
    /// # Errors
    /// If an index with one of the names exists (then none is added), if an index is removed before it is complete, or
    /// after the stop.
    pub async fn add_indexers(&self, indexers: Indexers) -> Result<(), InformerError> {
        if self.inner.is_stopped() {
            return Err(InformerError::Stopped);
        }
        self.inner.state.lock().read = true;
        let names: Vec<_> = indexers.names().cloned().collect();
        let cache = self.inner.core.env.caches.of(self.resource(), &self.inner.scope().view);
        let inner = Arc::clone(&self.inner);
        let adding = async move {
            let added = cache.send(AddIndexers(indexers)).await?;
            let there = match &added {
                Ok(()) => names,
                // The indices named by the error were removed; the others are complete.
                Err(AddIndexersError::Removed { names: removed, .. }) => {
                    names.into_iter().filter(|name| !removed.iter().any(|gone| name == gone)).collect()
                }
                Err(_) => Vec::new(),
            };
            let after_stop = inner.keep_indexers(there);
            join_all(after_stop.into_iter().map(|name| cache.send(RemoveIndexer(name)))).await;
            Ok::<_, MailboxError>(added)
        };
        Ok(self.inner.run_to_end(adding).await???)
    }
}
