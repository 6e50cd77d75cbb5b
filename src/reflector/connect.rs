//! The port through which the hub reaches a cluster as a whole: connect, look resources up, watch them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::{ListerWatcher, Projection, SourceError, Transform};
use crate::types::{ApiResource, FieldPath, ResourceRef, Scope, SharedStr};

/// How an informer takes objects in.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct InformerOptions {
    /// What of each object is kept.
    pub projection: Projection,
    /// Declared indices: name and path.
    pub indexes: BTreeMap<SharedStr, FieldPath>,
    /// Whether only `metadata` is asked for.
    pub metadata_only: bool,
    /// What is made of each object before anybody sees it.
    pub transform: Option<Transform>,
}

impl InformerOptions {
    /// Whether objects lack most of what they have, so that they cannot pass for objects of their type.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.metadata_only || matches!(self.projection, Projection::Keep(_))
    }
}

/// Why a resource could not be looked up.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    /// The cluster has no such resource now; it may come.
    #[error("the cluster has no resource {resource}{}", nearest.as_ref().map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    NotFound {
        /// What was asked for.
        resource: String,
        /// What it may have meant.
        nearest: Option<String>,
    },
    /// The cluster could not be asked.
    #[error("discovery failed")]
    Unavailable(#[source] SourceError),
}

/// Reaches one configured cluster.
pub trait Connector: Debug + Send + Sync + 'static {
    /// Reads credentials and makes a client. Asks the cluster nothing yet.
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>>;
}

/// A cluster that can be asked.
pub trait Connection: Debug + Send + Sync + 'static {
    /// Looks a resource up by discovery.
    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>>;

    /// The list and watch of one resource and scope.
    fn lister_watcher(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        options: &InformerOptions,
    ) -> Arc<dyn ListerWatcher>;
}
