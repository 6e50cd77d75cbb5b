//! Key of most multi-cluster controllers: an object of a cluster.

use std::fmt;

use informer_hub_types::{ClusterName, Object, ObjectKey};

/// Key of an object in a cluster. It has no resource, since a queue is for objects of one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Cluster of the object.
    pub cluster: ClusterName,
    /// Namespace and name of the object.
    pub key: ObjectKey,
}

impl Request {
    /// Creates a request.
    #[must_use]
    pub fn new(cluster: ClusterName, key: ObjectKey) -> Self {
        Self { cluster, key }
    }
}

impl<K> From<&Object<K>> for Request {
    fn from(object: &Object<K>) -> Self {
        Self::new(object.cluster().clone(), object.key().clone())
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.cluster, self.key)
    }
}
