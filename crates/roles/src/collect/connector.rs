//! Connector that writes what its informers read to the log.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use informer_hub_reflector::{
    Connection, Connector, Discovered, InformerOptions, ListerWatcher, ResolveError, Server, SourceError,
};
use informer_hub_types::{ApiResource, ClusterTraffic, ResourceRef, Scope, View};

use super::session::Session;
use super::source::CollectingSource;
use crate::selection;

/// Wraps the connector of a cluster.
pub(super) struct CollectingConnector {
    pub(super) inner: Arc<dyn Connector>,
    pub(super) session: Arc<Session>,
}

impl fmt::Debug for CollectingConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectingConnector").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Connector for CollectingConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let (connecting, session) = (self.inner.connect(), Arc::clone(&self.session));
        Box::pin(async move {
            let inner = connecting.await?;
            Ok(Arc::new(CollectingConnection { inner, session }) as Arc<dyn Connection>)
        })
    }
}

struct CollectingConnection {
    inner: Arc<dyn Connection>,
    session: Arc<Session>,
}

impl fmt::Debug for CollectingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectingConnection").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Connection for CollectingConnection {
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>> {
        let (asking, session) = (self.inner.server(), Arc::clone(&self.session));
        Box::pin(async move { asking.await.inspect(|server| session.knowledge.note_server(server)) })
    }

    fn traffic(&self) -> Option<ClusterTraffic> {
        self.inner.traffic()
    }

    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        let (asking, session) = (self.inner.resolve(resource.clone()), Arc::clone(&self.session));
        Box::pin(async move {
            let found = asking.await;
            session.knowledge.note_resolved(&resource, &found);
            found
        })
    }

    fn catalogue(&self, known: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>> {
        let (asking, session) = (self.inner.catalogue(known), Arc::clone(&self.session));
        Box::pin(async move {
            let found = asking.await?;
            if let Some(found) = &found {
                session.knowledge.note_catalogue(&found.catalogue);
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

    fn lister_watcher(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        options: &InformerOptions,
    ) -> Arc<dyn ListerWatcher> {
        let inner = self.inner.lister_watcher(resource, scope, options);
        if matches!(scope.view, View::Private(_)) {
            // The result of a subscriber's own transform, under a name that no other process knows.
            return inner;
        }
        let partition = selection::partition(&self.session.cluster, resource, scope, options);
        let decoder = selection::decoder(resource, options);
        Arc::new(CollectingSource::new(inner, Arc::clone(&self.session), partition, decoder))
    }
}
