//! What most controllers over many clusters queue: which object of which cluster.

use std::fmt;

use informer_hub_types::{ClusterName, Object, ObjectKey};

/// An object of a cluster, by name. What it is is the queue's affair: a queue holds work of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Where the object lives, or lived.
    pub cluster: ClusterName,
    /// Its namespace and name.
    pub key: ObjectKey,
}

impl Request {
    /// Names an object.
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
