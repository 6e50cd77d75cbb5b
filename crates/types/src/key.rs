//! Key of an object within one cluster and resource.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::SharedStr;

/// `namespace/name`, or `name` for a cluster-scoped object: client-go's `MetaNamespaceKeyFunc`.
///
/// One shared allocation; cloning increments a reference count. Ordered by bytes, like etcd and therefore the
/// apiserver's lists, so the keys of a namespace are one contiguous range.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(SharedStr);

impl ObjectKey {
    /// Creates a key. An empty namespace means a cluster-scoped object.
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

    /// Creates a key from its text, unchecked.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the namespace; `None` for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// Returns the name without its namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// Returns the key as client-go writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Error for text that is not a key; the caller's input is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a key: write namespace/name, or the name alone of a cluster-scoped object")]
pub struct InvalidKey(
    /// The invalid text.
    pub String,
);

impl FromStr for ObjectKey {
    type Err = InvalidKey;

    /// Parses a key like client-go's `SplitMetaNamespaceKey`: only a second slash is an error.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        if name.contains('/') { Err(InvalidKey(text.to_owned())) } else { Ok(Self::new(namespace, name)) }
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        // Like client-go's `TestObjectNames`.
        #[test]
        fn key_parses_unless_it_has_a_second_slash(text in "[a-i/]{10}") {
            let parts: Vec<_> = text.split('/').collect();
            match (text.parse::<ObjectKey>(), parts.as_slice()) {
                (Ok(key), [name]) => {
                    prop_assert_eq!((key.namespace(), key.name(), key.as_str()), (None, *name, &*text));
                }
                (Ok(key), ["", name]) => prop_assert_eq!((key.namespace(), key.as_str()), (None, *name)),
                (Ok(key), [namespace, name]) => {
                    prop_assert_eq!((key.namespace(), key.name(), key.as_str()), (Some(*namespace), *name, &*text));
                }
                (Err(error), parts) => {
                    prop_assert!(parts.len() > 2);
                    prop_assert_eq!(error, InvalidKey(text.clone()));
                }
                (Ok(key), _) => prop_assert!(false, "{text} became {key}"),
            }
        }
    }

    #[test]
    fn invalid_key_error_shows_the_valid_forms() {
        let message = "a/b/c".parse::<ObjectKey>().unwrap_err().to_string();
        let right = r#""a/b/c" is not a key: write namespace/name, or the name alone of a cluster-scoped object"#;
        assert_eq!(message, right);
    }

    #[test]
    fn key_encodes_and_parses_like_client_go() {
        let key = ObjectKey::new("shop", "web-0");
        assert_eq!((key.as_str(), key.namespace(), key.name()), ("shop/web-0", Some("shop"), "web-0"));
        let key = ObjectKey::new("", "node-1");
        assert_eq!((key.as_str(), key.namespace(), key.name()), ("node-1", None, "node-1"));
    }

    #[test]
    fn keys_of_a_namespace_are_contiguous() {
        let mut keys: Vec<_> = [("a", "x"), ("a-b", "x"), ("a", "z"), ("a0", "y"), ("b", "a")]
            .map(|(namespace, name)| ObjectKey::new(namespace, name))
            .into();
        keys.sort();
        let of_a: Vec<_> = keys.iter().map(|key| key.namespace() == Some("a")).collect();
        assert_eq!(of_a, [false, true, true, false, false]);
    }
}
