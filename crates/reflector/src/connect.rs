//! Interface to a cluster: connecting, discovery, and the list and watch of its resources.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use sha2::{Digest, Sha256};

use super::lister_watcher::ListerWatcher;
use informer_hub_codec::{ErrorClass, Projection, SourceError, Transform};
use informer_hub_types::{
    ApiResource, Catalogue, ClusterTraffic, FieldPath, ResourceRef, Scope, SharedStr, first_names,
};

/// Options that decide what an informer stores of an object.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct InformerOptions {
    /// The stored fields.
    pub projection: Projection,
    /// Indices to build over the objects: name, and path of the indexed field.
    pub indexes: BTreeMap<SharedStr, FieldPath>,
    /// Whether only `metadata` is requested.
    pub metadata_only: bool,
    /// Function that changes each object before it is stored.
    pub transform: Option<Transform>,
    /// Whether changes start no traces. Set for an informer without subscribers, because the trace of a change would
    /// get no further spans.
    pub untraced: bool,
}

impl InformerOptions {
    /// Returns a hash of the options that is stable across processes. Equal hashes mean equal stored objects. `None` if
    /// there is a transform, whose effect is unknown.
    #[must_use]
    pub fn fingerprint(&self) -> Option<u64> {
        if self.transform.is_some() {
            return None;
        }
        let (word, paths) = match &self.projection {
            Projection::Drop(paths) => ("drop", paths),
            Projection::Keep(paths) => ("keep", paths),
        };
        let mut paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
        paths.sort_unstable();
        let indexes = self.indexes.iter().map(|(name, path)| format!("{name}\n{path}"));
        let texts = [word.to_owned(), self.metadata_only.to_string()].into_iter().chain(paths).chain([String::new()]);
        let mut hash = Sha256::new();
        for text in texts.chain(indexes) {
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        }
        let hash: [u8; 32] = hash.finalize().into();
        let first = hash.first_chunk().copied().unwrap_or_default();
        // Zero is reserved for an unknown fingerprint.
        Some(u64::from_le_bytes(first).max(1))
    }

    /// Returns the indices to declare in a store. The path of an index is `None` if the projection drops the values at
    /// that path.
    #[must_use]
    pub fn declared(&self) -> Vec<(SharedStr, Option<FieldPath>)> {
        let kept = |path: &FieldPath| self.projection.keeps(path).then(|| path.clone());
        self.indexes.iter().map(|(name, path)| (name.clone(), kept(path))).collect()
    }

    /// Describes for operators which parts of objects are not stored, such as `metadata only` or `without data`.
    /// Ignores fields that are dropped by default; returns `None` if all other fields are stored.
    #[must_use]
    pub fn omitted(&self) -> Option<String> {
        let names = |paths: &[FieldPath]| first_names(&paths.iter().map(ToString::to_string).collect::<Vec<_>>());
        match &self.projection {
            _ if self.metadata_only => Some("metadata only".to_owned()),
            Projection::Keep(paths) if paths.is_empty() => Some("metadata only".to_owned()),
            Projection::Keep(paths) => Some(format!("only {}", names(paths))),
            Projection::Drop(paths) => {
                let default = Projection::default();
                let dropped: Vec<_> =
                    paths.iter().filter(|path| default.keeps(path) && !self.projection.keeps(path)).cloned().collect();
                (!dropped.is_empty()).then(|| format!("without {}", names(&dropped)))
            }
        }
    }

    /// Returns whether only `metadata` or selected fields are stored, so that objects cannot be decoded as their type.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.metadata_only || matches!(self.projection, Projection::Keep(_))
    }
}

/// A failed resource lookup.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    /// The cluster does not have the resource now. It may be added later.
    #[error("the cluster has no resource {resource}{}", nearest.as_ref().map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    NotFound {
        /// The requested resource.
        resource: String,
        /// The resource with the most similar name.
        nearest: Option<String>,
    },
    /// The cluster did not answer.
    #[error("discovery failed")]
    Unavailable(#[source] SourceError),
}

/// The last discovered catalogue of a cluster, and the tags that show whether it has changed.
#[derive(Debug, Clone)]
pub struct Discovered {
    /// The resources that the cluster serves.
    pub catalogue: Arc<Catalogue>,
    /// ETag of the discovery document of the core API group, if the server sends one.
    pub core_tag: Option<String>,
    /// ETag of the discovery document of all other API groups, if the server sends one.
    pub groups_tag: Option<String>,
}

/// Connects to one configured cluster.
pub trait Connector: Debug + Send + Sync + 'static {
    /// Reads credentials and builds a client. Sends no request to the cluster.
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>>;
}

/// The apiserver of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Scheme, host and port.
    pub address: String,
    /// The version of the apiserver, such as `v1.35.2`, if it reports one.
    pub version: Option<String>,
}

/// A request to read or write one small object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRequest {
    /// Method: `GET`, `POST` or `PUT`.
    pub method: &'static str,
    /// Path of the object, or of the collection for `POST`.
    pub path: String,
    /// The object as JSON; empty for `GET`.
    pub body: Vec<u8>,
}

/// An answer to an [`ObjectRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectAnswer {
    /// HTTP status.
    pub status: u16,
    /// The body: an object, or the apiserver's `Status`.
    pub body: Vec<u8>,
}

/// A connection to a cluster.
pub trait Connection: Debug + Send + Sync + 'static {
    /// Requests the server's version.
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>>;

    /// Returns how many connections are open and how many requests run; `None` if they are not counted.
    fn traffic(&self) -> Option<ClusterTraffic> {
        None
    }

    /// Looks up a resource by discovery.
    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>>;

    /// Discovers all resources that can be watched. Returns `None` if they have not changed since `known`.
    fn catalogue(&self, known: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>>;

    /// Fetches a document of the apiserver as JSON, such as `/openapi/v3`. `None` if it has no such document.
    fn document(&self, path: String) -> BoxFuture<'static, Result<Option<Vec<u8>>, SourceError>> {
        let _ = path;
        Box::pin(async { Ok(None) })
    }

    /// Sends a review, such as a `SelfSubjectAccessReview`: the apiserver answers it but stores nothing. `path` is the
    /// URL path of the kind of review, `body` the review as JSON. Returns the review with the apiserver's answer, as
    /// JSON.
    fn review(&self, path: &'static str, body: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, SourceError>> {
        let _ = body;
        let message = format!("{path} is not served");
        Box::pin(async move { Err(SourceError { class: ErrorClass::NotFound, message }) })
    }

    /// Sends a request for one small object and returns the answer, whatever its status.
    ///
    /// # Cancel safety
    /// If the future is dropped, the apiserver may still apply the request.
    fn exchange(&self, request: ObjectRequest) -> BoxFuture<'static, Result<ObjectAnswer, SourceError>> {
        let message = format!("{} {} is not served", request.method, request.path);
        Box::pin(async move { Err(SourceError { class: ErrorClass::NotFound, message }) })
    }

    /// Returns whether this process watches a resource in a scope. In a fleet, other processes may watch other
    /// resources of the same cluster.
    fn watches(&self, resource: &ApiResource, scope: &Scope) -> bool {
        let _ = (resource, scope);
        true
    }

    /// Returns the list and watch of one resource and scope.
    fn lister_watcher(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        options: &InformerOptions,
    ) -> Arc<dyn ListerWatcher>;
}
