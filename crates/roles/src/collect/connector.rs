//! Connector that writes what its informers read to the log.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use informer_hub_fleet::Partition;
use informer_hub_reflector::{
    Connection, Connector, Discovered, InformerOptions, ListerWatcher, ResolveError, Server, SourceError,
};
use informer_hub_types::{ApiResource, ClusterTraffic, ResourceRef, Scope, View};
use sha2::{Digest, Sha256};

use super::session::Session;
use super::source::CollectingSource;

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
        self.inner.server()
    }

    fn traffic(&self) -> Option<ClusterTraffic> {
        self.inner.traffic()
    }

    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        self.inner.resolve(resource)
    }

    fn catalogue(&self, known: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>> {
        self.inner.catalogue(known)
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
        let partition = Partition {
            cluster: self.session.cluster.clone(),
            resource: resource.gvr.clone(),
            selection: selection(scope, options),
        };
        Arc::new(CollectingSource::new(inner, Arc::clone(&self.session), partition, resource, options))
    }
}

/// Returns the fingerprint of the selected objects and their stored fields. Indices are not part of it, because each hub
/// builds its own.
fn selection(scope: &Scope, options: &InformerOptions) -> u64 {
    let stored = InformerOptions { indexes: BTreeMap::default(), transform: None, ..options.clone() };
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let parts = [
        text(scope.namespace.as_deref()),
        text(scope.label_selector.as_deref()),
        text(scope.field_selector.as_deref()),
        scope.view.to_string(),
    ];
    let mut hash = Sha256::new();
    hash.update(stored.fingerprint().unwrap_or_default().to_le_bytes());
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    u64::from_le_bytes(hash.first_chunk().copied().unwrap_or_default())
}
