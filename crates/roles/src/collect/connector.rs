//! Connector whose informers write all objects and events that they read to the fleet's log.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use informer_hub_reflector::{
    Connection, Connector, Discovered, InformerOptions, ListerWatcher, ResolveError, Server, SourceError,
};
use informer_hub_types::{ApiResource, ClusterName, ClusterTraffic, ResourceRef, Scope, Shard, View};

use super::Shared;
use super::knowledge::Knowledge;
use super::session::Session;
use super::source::CollectingSource;
use crate::log_partition;

/// Wraps the connector of a cluster. Each informer writes under the session of its shard, the time for which this
/// collector owns the shard.
pub(super) struct CollectingConnector {
    pub(super) inner: Arc<dyn Connector>,
    pub(super) shared: Arc<Shared>,
    pub(super) cluster: ClusterName,
}

impl fmt::Debug for CollectingConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectingConnector").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Connector for CollectingConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let connecting = self.inner.connect();
        let owned = OwnedCluster { shared: Arc::clone(&self.shared), cluster: self.cluster.clone() };
        Box::pin(async move {
            let inner = connecting.await?;
            Ok(Arc::new(CollectingConnection { inner, owned }) as Arc<dyn Connection>)
        })
    }
}

struct CollectingConnection {
    inner: Arc<dyn Connection>,
    owned: OwnedCluster,
}

/// Cluster of which this collector owns one shard or more.
#[derive(Clone)]
struct OwnedCluster {
    shared: Arc<Shared>,
    cluster: ClusterName,
}

impl OwnedCluster {
    fn shard_of(&self, resource: &ApiResource, scope: &Scope) -> Shard {
        self.shared.params.shards.shard_of(&self.cluster, resource, scope.namespace.as_deref())
    }

    /// Returns the session (ownership of a shard) under which an informer writes; `None` if another collector owns its
    /// shard.
    fn session_of(&self, resource: &ApiResource, scope: &Scope) -> Option<Arc<Session>> {
        self.shared.sessions.lock().get(&self.shard_of(resource, scope)).cloned()
    }

    /// Calls `note` for each owned shard of the cluster, to record a fact in the shard's document about the cluster.
    fn note(&self, note: impl Fn(&Knowledge)) {
        let sessions = self.shared.sessions.lock();
        let of_cluster = sessions.iter().filter(|(shard, _)| shard.cluster == self.cluster);
        of_cluster.for_each(|(_, session)| note(&session.knowledge));
    }
}

impl fmt::Debug for CollectingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectingConnection").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Connection for CollectingConnection {
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>> {
        let (asking, owned) = (self.inner.server(), self.owned.clone());
        Box::pin(async move { asking.await.inspect(|server| owned.note(|known| known.note_server(server))) })
    }

    fn traffic(&self) -> Option<ClusterTraffic> {
        self.inner.traffic()
    }

    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        let (asking, owned) = (self.inner.resolve(resource.clone()), self.owned.clone());
        Box::pin(async move {
            let found = asking.await;
            owned.note(|known| known.note_resolved(&resource, &found));
            found
        })
    }

    fn catalogue(&self, known: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>> {
        let (asking, owned) = (self.inner.catalogue(known), self.owned.clone());
        Box::pin(async move {
            let found = asking.await?;
            if let Some(found) = &found {
                owned.note(|known| known.note_catalogue(&found.catalogue));
            }
            Ok(found)
        })
    }

    fn document(&self, path: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, SourceError>> {
        self.inner.document(path)
    }

    fn review(&self, path: &'static str, body: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, SourceError>> {
        self.inner.review(path, body)
    }

    fn watches(&self, resource: &ApiResource, scope: &Scope) -> bool {
        self.owned.shared.sessions.lock().contains_key(&self.owned.shard_of(resource, scope))
    }

    fn lister_watcher(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        options: &InformerOptions,
    ) -> Arc<dyn ListerWatcher> {
        let inner = self.inner.lister_watcher(resource, scope, options);
        if matches!(scope.view, View::Private(_)) {
            // A subscriber's own transform has made these objects, so no other process can use them.
            return inner;
        }
        let Some(session) = self.owned.session_of(resource, scope) else {
            // Not an owned shard: this watch serves discovery, which each collector of the cluster needs.
            return inner;
        };
        let partition = log_partition::partition(&self.owned.cluster, resource, scope, options);
        let decoder = log_partition::decoder(resource, options);
        Arc::new(CollectingSource::new(inner, session, partition, decoder))
    }
}
