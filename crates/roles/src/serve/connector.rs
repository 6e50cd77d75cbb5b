//! Connector of a replica: discovery from the document of the cluster's collector, lists and watches from the log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, select_ok};
use informer_hub_fleet::ClusterDocument;
use informer_hub_reflector::{
    Connection, Connector, Discovered, InformerOptions, ListerWatcher, ResolveError, Server, SourceError,
};
use informer_hub_types::{ApiResource, ClusterName, ResourceLookup, ResourceRef, Scope};
use tokio::sync::OnceCell;

use super::Shared;
use super::feed::{Feed, Known};
use super::source::ServingSource;
use crate::log_partition;

/// Maximum time that the lookup of a resource waits for its result. A collector writes the result into the document
/// about the cluster.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct ServingConnector {
    served: Served,
    inner: Arc<dyn Connector>,
}

#[derive(Clone)]
struct Served {
    shared: Arc<Shared>,
    cluster: ClusterName,
    /// Feeds of the cluster's shards: the owner, document and staleness of each.
    feeds: Arc<[Arc<Feed>]>,
}

impl ServingConnector {
    pub(super) fn new(
        shared: Arc<Shared>,
        cluster: ClusterName,
        feeds: Arc<[Arc<Feed>]>,
        inner: Arc<dyn Connector>,
    ) -> Self {
        Self { served: Served { shared, cluster, feeds }, inner }
    }
}

impl fmt::Debug for ServingConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingConnector").field("cluster", &self.served.cluster).finish_non_exhaustive()
    }
}

impl Connector for ServingConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let (served, inner) = (self.served.clone(), Arc::clone(&self.inner));
        let connection = ServingConnection { served, inner, reviewer: Arc::default() };
        Box::pin(async move { Ok(Arc::new(connection) as Arc<dyn Connection>) })
    }
}

struct ServingConnection {
    served: Served,
    inner: Arc<dyn Connector>,
    /// Connection to the apiserver, opened for the first review of access rights.
    reviewer: Arc<OnceCell<Arc<dyn Connection>>>,
}

impl fmt::Debug for ServingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingConnection").field("cluster", &self.served.cluster).finish_non_exhaustive()
    }
}

impl ServingConnection {
    /// Waits until `find` returns a value for one of the documents about the cluster. Fails after a timeout, with an
    /// error that says that `what` is missing.
    fn find<T: Send + 'static>(
        &self,
        what: String,
        find: impl Fn(&ClusterDocument) -> Option<T> + Send + Sync + 'static,
    ) -> BoxFuture<'static, Result<T, SourceError>> {
        let Served { cluster, feeds, .. } = self.served.clone();
        Box::pin(async move {
            // Every shard's document describes the whole cluster, so the first value found counts.
            let find = |known: &Known| known.document.as_deref().and_then(&find);
            let waits = feeds.iter().map(|feed| async { feed.wait(PATIENCE, find).await.ok_or(()) }.boxed());
            let found = select_ok(waits).await;
            let missing = || format!("no collector has found {what} of cluster {cluster} yet");
            found.map(|(found, _)| found).map_err(|()| feeds[0].missing(&missing()))
        })
    }
}

/// Looks a resource name up in the document about the cluster; `None` if the document does not say whether the cluster
/// has the resource.
fn resolved(document: &ClusterDocument, written: &ResourceRef) -> Option<Result<ApiResource, ResolveError>> {
    match document.catalogue.as_ref().map(|catalogue| (catalogue, catalogue.find(written))) {
        Some((_, ResourceLookup::Resource(resource))) => Some(Ok(resource)),
        Some((catalogue, ResourceLookup::Nothing | ResourceLookup::OtherVersions(_))) => {
            let nearest = catalogue.nearest(written).into_iter().next();
            Some(Err(ResolveError::NotFound { resource: written.to_string(), nearest }))
        }
        Some((_, ResourceLookup::Unknown)) | None => document.resolved.get(written).cloned().map(Ok),
    }
}

impl Connection for ServingConnection {
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>> {
        self.find("the version".to_owned(), |document| {
            let (address, version) = (document.address.clone(), document.version.clone());
            (!address.is_empty()).then_some(Server { address, version })
        })
    }

    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        let finding = self.find(format!("resource {resource}"), move |document| resolved(document, &resource));
        Box::pin(async move { finding.await.map_err(ResolveError::Unavailable)? })
    }

    fn catalogue(&self, known: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>> {
        let finding = self.find("the resources".to_owned(), |document| document.catalogue.clone());
        Box::pin(async move {
            let catalogue = finding.await?;
            let is_known = known.is_some_and(|known| known.catalogue == catalogue);
            Ok((!is_known).then_some(Discovered { catalogue, core_tag: None, groups_tag: None }))
        })
    }

    fn review(&self, path: &'static str, body: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, SourceError>> {
        let (inner, reviewer) = (Arc::clone(&self.inner), Arc::clone(&self.reviewer));
        Box::pin(async move {
            let reviewer = reviewer.get_or_try_init(|| inner.connect()).await?;
            reviewer.review(path, body).await
        })
    }

    fn lister_watcher(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        options: &InformerOptions,
    ) -> Arc<dyn ListerWatcher> {
        let Served { shared, cluster, feeds } = &self.served;
        let shard = shared.params.shards.shard_of(cluster, resource, scope.namespace.as_deref());
        let feed = feeds.iter().find(|feed| feed.shard == shard).unwrap_or(&feeds[0]);
        let partition = log_partition::partition(cluster, resource, scope, options);
        let decoder = log_partition::decoder(resource, options);
        Arc::new(ServingSource::new(Arc::clone(shared), Arc::clone(feed), partition, decoder))
    }
}
