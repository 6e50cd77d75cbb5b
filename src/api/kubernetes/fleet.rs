//! Interface of the read API to the running hub: its clusters, its caches, and documents from clusters.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::body::Bytes;
use futures::future::BoxFuture;

use crate::cache::{Answer, HistoryReader, Query, QueryError, Snapshot};
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName, View};

/// A cluster of the hub.
#[derive(Clone, Debug)]
pub struct ClusterInfo {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Labels of the cluster.
    pub labels: ClusterLabels,
    /// Version of its apiserver, such as `v1.36.3`, once it has answered.
    pub version: Option<String>,
    /// Whether the cluster's state is `connected`.
    pub is_reachable: bool,
}

/// A cache of the hub.
#[derive(Clone, Debug)]
pub struct CacheInfo {
    /// Resource whose objects the cache holds.
    pub resource: ApiResource,
    /// Which parts of the objects the cache keeps.
    pub view: View,
    /// Handle to the cache's newest snapshot.
    pub published: Arc<ArcSwap<Snapshot>>,
    /// Reader of the cache's window of recent changes.
    pub history: HistoryReader,
}

/// Reason why a document cannot be fetched from a cluster.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The cluster does not have the document.
    #[error("the cluster serves no OpenAPI document at this path")]
    Missing,
    /// The cluster did not answer in time or answered with an error.
    #[error("the cluster does not answer")]
    Unavailable,
}

/// The running hub, as the read API sees it.
pub trait Fleet: fmt::Debug + Send + Sync + 'static {
    /// Returns whether, at some time since the start, every informer of a reachable cluster had synced or could not
    /// sync.
    fn has_started(&self) -> bool;

    /// Returns all clusters, by name.
    fn clusters(&self) -> Vec<ClusterInfo>;

    /// Returns all caches that record recent changes, ordered by resource and view.
    fn caches(&self) -> Vec<CacheInfo>;

    /// Answers a query of a cache.
    fn query(&self, cache: &CacheInfo, query: Query) -> BoxFuture<'static, Result<Answer, QueryError>>;

    /// Fetches a document, such as `/openapi/v2`, from a cluster's apiserver as JSON.
    fn fetch(&self, cluster: &ClusterName, path: String) -> BoxFuture<'static, Result<Bytes, FetchError>>;
}

/// Function that returns the running hub; `None` while it starts or has ended.
pub type FindFleet = Arc<dyn Fn() -> Option<Arc<dyn Fleet>> + Send + Sync>;
