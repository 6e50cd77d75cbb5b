//! List and watch of one resource that writes all it reads to the fleet's log.
//!
//! A list is answered from the log if the log has a version to resume from and the last watch, if any, sent events. All
//! other lists go to the apiserver.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use informer_hub_codec::Decoder;
use informer_hub_fleet::Partition;
use informer_hub_reflector::{
    ErrorClass, ListRequest, ListStream, ListerWatcher, SourceError, VersionMatch, WatchRequest, WatchStream,
};
use informer_hub_types::{EncodingInUse, ResourceVersion};

use super::log::SourceLog;
use super::recording::WatchState;
use super::session::Session;
use super::{list, watch};
use crate::listed;
use crate::restore::Restored;

/// Maximum wait for the cluster's current resourceVersion, when a partition of the log is taken over.
const CHECK: Duration = Duration::from_secs(5);

/// List and watch of one resource for a collector; see the [module documentation](self).
pub(super) struct CollectingSource {
    inner: Arc<dyn ListerWatcher>,
    log: Arc<SourceLog>,
}

impl CollectingSource {
    pub(super) fn new(
        inner: Arc<dyn ListerWatcher>,
        session: Arc<Session>,
        partition: Partition,
        decoder: Decoder,
    ) -> Self {
        Self { inner, log: Arc::new(SourceLog::new(session, partition, decoder)) }
    }
}

impl ListerWatcher for CollectingSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let (inner, log) = (Arc::clone(&self.inner), Arc::clone(&self.log));
        Box::pin(async move {
            if request.continue_token.is_none() {
                if let Some(restored) = begin(&*inner, &log, &request.version).await? {
                    return Ok(list::restored(log, restored));
                }
                log.reset().await?;
            }
            let stream = log.asked(inner.list(request)).await?;
            Ok(list::recorded(log, stream))
        })
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        let (inner, log) = (Arc::clone(&self.inner), Arc::clone(&self.log));
        Box::pin(async move {
            if request.initial_events {
                if let Some(restored) = begin(&*inner, &log, &request.version).await? {
                    let version = VersionMatch::NotOlderThan(restored.state.resume.clone().unwrap_or_else(none));
                    let request = WatchRequest { version, initial_events: false, ..request };
                    let initial = listed::initial_events(list::restored(Arc::clone(&log), restored));
                    let following = stream::once(async move { follow(&*inner, log, request).await }).try_flatten();
                    return Ok(initial.chain(following).boxed());
                }
                log.reset().await?;
            } else if !log.is_open() {
                let message = "the informer begins with the state of the log".to_owned();
                return Err(SourceError { class: ErrorClass::Expired, message });
            }
            follow(&*inner, log, request).await
        })
    }

    fn current_version(&self) -> BoxFuture<'static, Result<Option<ResourceVersion>, SourceError>> {
        self.inner.current_version()
    }

    fn encoding(&self) -> Option<EncodingInUse> {
        self.inner.encoding()
    }

    fn trim(&self) {
        self.log.decoder.lock().trim();
        self.inner.trim();
    }
}

/// Returns the log's state, from which the list is answered. Returns `None` if that state cannot answer the list. Also
/// returns `None` if the state is newer than the cluster's version, because etcd was restored from a backup.
async fn begin(
    inner: &dyn ListerWatcher,
    log: &SourceLog,
    version: &VersionMatch,
) -> Result<Option<Restored>, SourceError> {
    // If the cluster does not answer, its version is unknown and the log may answer the list.
    let current = async { tokio::time::timeout(CHECK, inner.current_version()).await.ok()?.ok()? };
    log.begin(version, current).await
}

fn none() -> ResourceVersion {
    ResourceVersion::new("")
}

async fn follow(
    inner: &dyn ListerWatcher,
    log: Arc<SourceLog>,
    request: WatchRequest,
) -> Result<WatchStream, SourceError> {
    let state = WatchState {
        initial: request.initial_events,
        ordered: matches!(request.version, VersionMatch::NotOlderThan(_)),
    };
    log.flush().await?;
    log.set_suspect(true);
    let stream = log.asked(inner.watch(request)).await?;
    Ok(watch::recorded(log, stream, state))
}

impl fmt::Debug for CollectingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectingSource").field("partition", &self.log.partition).finish_non_exhaustive()
    }
}
