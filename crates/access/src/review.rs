//! Access reviews, and the interface through which they are sent to clusters.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use smol_str::SmolStr;

use crate::reader::Reader;
use informer_hub_types::{ClusterName, Gvr};

/// Verb of an access that is reviewed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Lists objects.
    List,
    /// Watches objects or streams their events.
    Watch,
}

impl Verb {
    /// Returns the verb as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// User whose access is reviewed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct User {
    /// Name of the user.
    pub name: SmolStr,
    /// Groups of the user.
    pub groups: Vec<SmolStr>,
    /// UID of the user; `None` if unknown.
    pub uid: Option<SmolStr>,
    /// Further attributes by key, as in the `extra` of a Kubernetes user.
    pub extra: BTreeMap<SmolStr, Vec<SmolStr>>,
}

impl From<&Reader> for User {
    fn from(reader: &Reader) -> Self {
        let parts = reader.parts();
        let (groups, uid, extra) = (parts.groups.clone(), parts.uid.clone(), parts.extra.clone());
        Self { name: parts.name.clone(), groups, uid, extra }
    }
}

/// A question to a cluster: may this user read this resource there?
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Review {
    /// Cluster that decides.
    pub cluster: ClusterName,
    /// User whose access is reviewed.
    pub user: Arc<User>,
    /// Requested verb.
    pub verb: Verb,
    /// Requested resource.
    pub resource: Gvr,
    /// Requested namespace; empty for all namespaces, and for resources that are not namespaced.
    pub namespace: SmolStr,
}

/// Reason why a cluster has not answered a review. The access is then denied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// The cluster is unknown or was removed.
    #[error("the hub has no cluster of this name")]
    UnknownCluster,
    /// The cluster did not answer in time.
    #[error("the cluster did not answer in time")]
    Timeout,
    /// Too many reviews are waiting, in total or for this cluster.
    #[error("too many access reviews are waiting; try again later")]
    Busy,
    /// The review failed, for example because the hub's credentials may not create access reviews. Holds the reason.
    #[error("the cluster does not answer access reviews: {0}")]
    Failed(Arc<str>),
}

/// Interface to the clusters: sends access reviews (`SubjectAccessReview`).
pub trait Reviews: fmt::Debug + Send + Sync + 'static {
    /// Returns whether the cluster allows the access.
    fn review(&self, review: &Review) -> BoxFuture<'static, Result<bool, ReviewError>>;
}
