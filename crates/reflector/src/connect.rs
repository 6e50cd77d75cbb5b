//! The port through which the hub reaches a cluster as a whole: connect, look resources up, watch them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use sha2::{Digest, Sha256};

use super::{ListerWatcher, SourceError};
use informer_hub_codec::{Projection, Transform};
use informer_hub_types::{ApiResource, Catalogue, FieldPath, ResourceRef, Scope, SharedStr};

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
    /// Whether no change begins a trace: where nobody hands changes on, it would have no parts.
    pub untraced: bool,
}

impl InformerOptions {
    /// A number that is the same, in every process, for options that make the same of an object, and another one for
    /// others. `None` where a transform does what cannot be told.
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
        // Zero stands for what is not known.
        Some(u64::from_le_bytes(first).max(1))
    }

    /// The indices as a store has them.
    #[must_use]
    pub fn declared(&self) -> Vec<(SharedStr, Option<FieldPath>)> {
        let kept = |path: &FieldPath| self.projection.keeps(path).then(|| path.clone());
        self.indexes.iter().map(|(name, path)| (name.clone(), kept(path))).collect()
    }

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

/// What a cluster offered when it was asked last, and by what it is seen whether that has changed.
#[derive(Debug, Clone)]
pub struct Discovered {
    /// What it offers.
    pub catalogue: Arc<Catalogue>,
    /// The server's tag of the core group, where it gives one.
    pub core_tag: Option<String>,
    /// That of all others.
    pub groups_tag: Option<String>,
}

/// Reaches one configured cluster.
pub trait Connector: Debug + Send + Sync + 'static {
    /// Reads credentials and makes a client. Asks the cluster nothing yet.
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>>;
}

/// The server that answers for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Scheme, host and port.
    pub address: String,
    /// The version of the apiserver, `v1.35.2`; `None` if it does not tell us.
    pub version: Option<String>,
}

/// A cluster that can be asked.
pub trait Connection: Debug + Send + Sync + 'static {
    /// Asks which server answers.
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>>;

    /// Looks a resource up by discovery.
    fn resolve(&self, resource: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>>;

    /// Asks for all that the cluster offers to be watched; `None` where that is what is known.
    fn catalogue(&self, known: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>>;

    /// The list and watch of one resource and scope.
    fn lister_watcher(
        &self,
        resource: &ApiResource,
        scope: &Scope,
        options: &InformerOptions,
    ) -> Arc<dyn ListerWatcher>;
}
