//! Connects the read API with the running hub.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use actix::MailboxError;
use axum::body::Body;
use axum::http::{Request, Response};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::hub::Hub;
use crate::actors::messages::Ask;
use crate::actors::{ClusterState, FleetView};
use crate::api::{CacheInfo, ClusterInfo, FetchError, FindFleet, Fleet, ReadApi, ReadApiOptions};
use crate::cache::{Answer, HistoryLimits, Query, QueryError};
use informer_hub_config::ReadApiConfig;
use informer_hub_types::{ClusterName, View};

/// View of the hub's clusters and caches, set once the hub has started.
pub(crate) type StartedFleet = Arc<OnceLock<FleetView>>;

/// Returns the read API over a hub that starts later; `None` if it is not enabled.
pub(super) fn read_api(config: &ReadApiConfig, started: &StartedFleet) -> Option<ReadApi> {
    if !config.enabled {
        return None;
    }
    let started = Arc::clone(started);
    let was_ready = Arc::<AtomicBool>::default();
    let find: FindFleet = Arc::new(move || {
        let (view, was_ready) = (started.get()?.clone(), Arc::clone(&was_ready));
        Some(Arc::new(HubFleet { view, was_ready }) as Arc<dyn Fleet>)
    });
    let options =
        ReadApiOptions { requests: config.max_requests, watches: config.max_watches, secrets: config.serve_secrets };
    Some(ReadApi::new(find, options))
}

/// Returns the limits of the recent changes that each cache keeps, from which watches resume.
pub(super) fn history_limits(config: &ReadApiConfig) -> HistoryLimits {
    HistoryLimits { bytes: config.window_bytes, age: config.window_age }
}

/// Ends the watches of the read API at the shutdown of the hub. With a state directory, watches end once the caches no
/// longer change. Readers can then resume later from the state that the last checkpoint saves. Without a state
/// directory, watches end immediately.
pub(super) fn end_reads(read: &Arc<ReadApi>, view: &FleetView) {
    let (read, caches) = (Arc::clone(read), view.caches().clone());
    let settled = caches.settled();
    let close = move || {
        caches.close_history();
        read.close();
    };
    match settled {
        Some(settled) => drop(tokio::spawn(settled.map(move |()| close()))),
        None => close(),
    }
}

/// Kubernetes read API of a running hub without a port, for simulations.
#[derive(Clone, Debug)]
pub struct LocalReadApi {
    api: Arc<ReadApi>,
    view: FleetView,
}

impl LocalReadApi {
    /// Returns the read API of `hub`; `None` if `config` does not enable it. The hub must keep recent changes, see
    /// `HubBuilder::keep_history`.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn of(hub: &Hub, config: &ReadApiConfig) -> Result<Option<Self>, MailboxError> {
        let (started, view) = (StartedFleet::default(), hub.fleet().await?);
        let api = read_api(config, &started);
        started.get_or_init(|| view.clone());
        Ok(api.map(|api| Self { api: Arc::new(api), view }))
    }

    /// Answers a request as the hub's HTTP port does, but without authentication or authorization.
    pub async fn answer(&self, request: Request<()>) -> Response<Body> {
        self.api.answer(request).await
    }

    /// Prepares for the shutdown of the hub by ending watches, as the hub's HTTP port does.
    pub fn ending(&self) {
        end_reads(&self.api, &self.view);
    }
}

/// Adapter through which the read API reads a running hub.
#[derive(Clone, Debug)]
struct HubFleet {
    view: FleetView,
    /// Whether the hub has been ready at least once since its start.
    was_ready: Arc<AtomicBool>,
}

impl Fleet for HubFleet {
    fn has_started(&self) -> bool {
        if !self.was_ready.load(Relaxed) && self.view.is_ready() {
            self.was_ready.store(true, Relaxed);
        }
        self.was_ready.load(Relaxed)
    }

    fn clusters(&self) -> Vec<ClusterInfo> {
        let clusters = self.view.clusters().map(|cluster| ClusterInfo {
            version: cluster.version().map(str::to_owned),
            is_reachable: cluster.state() == ClusterState::Connected,
            name: cluster.name,
            labels: cluster.labels,
        });
        clusters.collect()
    }

    fn caches(&self) -> Vec<CacheInfo> {
        let caches = self.view.caches().readers().into_iter();
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

    fn query(&self, cache: &CacheInfo, query: Query) -> BoxFuture<'static, Result<Answer, QueryError>> {
        let running = self.view.caches().of_running(&cache.resource, &cache.view);
        let published = cache.published.load_full();
        async move {
            let cache = running.ok_or(QueryError::Stopped)?;
            // Short answers are computed on the thread of the request, so that many requests do not delay writes to the
            // cache.
            if let Some(answer) = published.answer_if_short(&query)? {
                return Ok(answer);
            }
            drop(published);
            cache.send(Ask(query)).await.unwrap_or(Err(QueryError::Stopped))
        }
        .boxed()
    }

    fn fetch(&self, cluster: &ClusterName, path: String) -> BoxFuture<'static, Result<axum::body::Bytes, FetchError>> {
        let connection = self.view.clusters().find(|known| known.name == *cluster).and_then(|known| known.connection());
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
