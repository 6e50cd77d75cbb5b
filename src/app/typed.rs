//! Subscriptions and queries by Rust type.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use actix::{Addr, MailboxError};
use kube::Resource;

use crate::actors::messages::{Ask, ResourceRequest, TakeSnapshot};
use crate::actors::{CacheActor, CacheDirectory, Subscribe, Subscriber};
use crate::cache::{Answer, Query, QueryError, Snapshot};
pub use crate::informers::api_resource;
use informer_hub_types::{ApiResource, ClusterSelector, Dynamic, InvalidResource, ResourceRef, View};

/// Maximum number of times that a query is sent again because the cache actor died before it answered.
const RETRIES: usize = 2;

impl Subscribe {
    /// Subscribes to the objects of the type `K` in the selected clusters.
    #[must_use]
    pub fn to<K>(clusters: ClusterSelector, subscriber: impl Into<Subscriber<K>>) -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
        K::Scope: 'static,
    {
        let request = ResourceRequest::known(&api_resource::<K>());
        Self::to_wanted(request, clusters, subscriber)
    }

    /// Subscribes to the objects of a resource as JSON. `resource` is written as for kubectl: `pods`,
    /// `widgets.v1.example.com`.
    ///
    /// # Errors
    /// [`InvalidResource`] if `resource` is malformed.
    pub fn to_resource(
        resource: &str,
        clusters: ClusterSelector,
        subscriber: impl Into<Subscriber<Dynamic>>,
    ) -> Result<Self, InvalidResource> {
        Ok(Self::to_wanted(ResourceRequest::Written(ResourceRef::from_str(resource)?), clusters, subscriber))
    }
}

/// Client of the cache of one resource. Cheap to clone; usable from any thread and runtime.
pub struct CacheClient<K = Dynamic> {
    caches: CacheDirectory,
    resource: ApiResource,
    view: View,
    kind: PhantomData<fn() -> K>,
}

impl<K> CacheClient<K> {
    pub(super) fn new(caches: CacheDirectory, resource: ApiResource) -> Self {
        Self { caches, resource, view: View::Shared, kind: PhantomData }
    }

    /// Returns a client of the cache that keeps the same resource in the form `view`, such as metadata only.
    #[must_use]
    pub fn in_view(self, view: View) -> Self {
        Self { view, ..self }
    }

    /// Runs a query on one snapshot over all clusters.
    ///
    /// # Errors
    /// Outer: the hub is shutting down. Inner: [`QueryError`], the query is wrong or cannot be answered now.
    pub async fn send(&self, query: Query) -> Result<Result<Answer<K>, QueryError>, MailboxError> {
        let mut answer = self.cache()?.send(Ask(query.clone())).await;
        for _ in 0..RETRIES {
            if answer.is_ok() {
                break;
            }
            // The cache actor died, perhaps because of another query. It is restarted, unless the hub has ended.
            answer = self.cache()?.send(Ask(query.clone())).await;
        }
        Ok(answer?.map(Answer::cast))
    }

    /// Returns a snapshot, which is read without further messages.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, MailboxError> {
        self.cache()?.send(TakeSnapshot).await
    }

    fn cache(&self) -> Result<Addr<CacheActor>, MailboxError> {
        self.caches.of_running(&self.resource, &self.view).ok_or(MailboxError::Closed)
    }
}

impl<K> Clone for CacheClient<K> {
    fn clone(&self) -> Self {
        Self {
            caches: self.caches.clone(),
            resource: self.resource.clone(),
            view: self.view.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for CacheClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheClient").field("resource", &self.resource.gvr).finish_non_exhaustive()
    }
}
