//! Connects the read API with the running hub.

use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::actors::{ClusterState, FleetView};
use crate::api::{CacheInfo, ClusterInfo, FetchError, FindFleet, Fleet, ReadApi, ReadApiOptions};
use crate::cache::HistoryLimits;
use informer_hub_config::ReadApiConfig;
use informer_hub_types::{ClusterName, View};

/// View of the hub, set once it has started.
pub(super) type StartedFleet = Arc<OnceLock<FleetView>>;

/// Returns the read API over a hub that starts later; `None` if it is not enabled.
pub(super) fn read_api(config: &ReadApiConfig, started: &StartedFleet) -> Option<Arc<ReadApi>> {
    if !config.enabled {
        return None;
    }
    let started = Arc::clone(started);
    let find: FindFleet = Arc::new(move || {
        let view = started.get()?.clone();
        Some(Arc::new(HubFleet(view)) as Arc<dyn Fleet>)
    });
    let options =
        ReadApiOptions { requests: config.max_requests, watches: config.max_watches, secrets: config.serve_secrets };
    Some(Arc::new(ReadApi::new(find, options)))
}

/// Returns the limits of the windows of recent changes.
pub(super) fn history_limits(config: &ReadApiConfig) -> HistoryLimits {
    HistoryLimits { bytes: config.window_bytes, age: config.window_age }
}

/// A running hub as the read API sees it.
#[derive(Clone, Debug)]
struct HubFleet(FleetView);

impl Fleet for HubFleet {
    fn clusters(&self) -> Vec<ClusterInfo> {
        let clusters = self.0.clusters().map(|cluster| ClusterInfo {
            version: cluster.version().map(str::to_owned),
            is_reachable: cluster.state() == ClusterState::Connected,
            name: cluster.name,
            labels: cluster.labels,
        });
        clusters.collect()
    }

    fn caches(&self) -> Vec<CacheInfo> {
        let caches = self.0.caches().readers().into_iter();
        let public = caches.filter(|cache| !matches!(cache.view, View::Private(_)));
        public
            .map(|cache| CacheInfo {
                resource: cache.resource,
                view: cache.view,
                published: cache.snapshots,
                history: cache.history,
            })
            .collect()
    }

    fn fetch(&self, cluster: &ClusterName, path: String) -> BoxFuture<'static, Result<axum::body::Bytes, FetchError>> {
        let connection = self.0.clusters().find(|known| known.name == *cluster).and_then(|known| known.connection());
        async move {
            let connection = connection.ok_or(FetchError::Unavailable)?;
            match connection.document(path).await {
                Ok(Some(document)) => Ok(document.into()),
                Ok(None) => Err(FetchError::Missing),
                Err(_) => Err(FetchError::Unavailable),
            }
        }
        .boxed()
    }
}
