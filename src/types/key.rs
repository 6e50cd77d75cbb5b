//! The key of an object within one cluster and resource.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// `namespace/name`, or `name` for a cluster-scoped object: client-go's `MetaNamespaceKeyFunc`.
///
/// One shared allocation; cloning counts a reference. Orders by namespace, then name, as `kubectl get -A` lists.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Makes a key. An empty namespace means a cluster-scoped object.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self(name.into());
        }
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        Self(text.into())
    }

    /// The namespace; `None` for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name without its namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// The key as client-go writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What this key orders by: `(namespace, name)`.
    fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or(("", &self.0))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for ObjectKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_encodes_and_parses_as_client_go_does() {
        let key = ObjectKey::new("shop", "web-0");
        assert_eq!((key.as_str(), key.namespace(), key.name()), ("shop/web-0", Some("shop"), "web-0"));
        let key = ObjectKey::new("", "node-1");
        assert_eq!((key.as_str(), key.namespace(), key.name()), ("node-1", None, "node-1"));
    }

    #[test]
    fn keys_order_by_namespace_then_name() {
        // As plain text "a-b/x" would come before "a/x", because '-' sorts below '/'.
        assert!(ObjectKey::new("a", "x") < ObjectKey::new("a-b", "x"));
        assert!(ObjectKey::new("a", "x") < ObjectKey::new("a", "y"));
    }
}
