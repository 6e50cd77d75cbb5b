//! `resourceVersion`: a position in the history of a resource.

use std::fmt;

use serde::{Serialize, Serializer};

/// A `resourceVersion` as sent by the apiserver.
///
/// Since Kubernetes 1.35 (KEP-5504), versions of one resource can be compared as integers. [`Self::newer_than`] does so
/// if both are integers and returns `false` otherwise. Takes 16 bytes; a version that is not an integer takes an
/// allocation as well.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Number(u64),
    Text(Box<str>),
}

impl ResourceVersion {
    /// Creates a version from any text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let canonical = text == "0" || !text.starts_with(['0', '+']);
        match text.parse::<u64>() {
            Ok(number) if canonical => Self(Repr::Number(number)),
            _ => Self(Repr::Text(text.into())),
        }
    }

    /// Returns whether the version is the empty string, which no stored object should have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }

    /// Returns whether the version is empty or `0`. A watch from it starts at a version that the apiserver chooses.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.is_empty() || self.as_number() == Some(0)
    }

    /// Returns the version as an integer; `None` if it is not one.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        match self.0 {
            Repr::Number(number) => Some(number),
            Repr::Text(_) => None,
        }
    }

    /// Returns whether `self` is known to be newer than `other`; `false` if the two cannot be compared.
    #[must_use]
    pub fn newer_than(&self, other: &Self) -> bool {
        matches!((&self.0, &other.0), (Repr::Number(a), Repr::Number(b)) if a > b)
    }

    /// Returns whether this version is newer than `current`, the server's version. This happens if the server's etcd
    /// was restored from a backup. `false` if `current` is empty or `0`.
    #[must_use]
    pub fn is_ahead_of(&self, current: &Self) -> bool {
        !current.is_any() && self.newer_than(current)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(number) => write!(f, "{number}"),
            Repr::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for ResourceVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_round_trips() {
        for text in ["", "0", "1", "18446744073709551615", "18446744073709551616", "007", "+7", "abc", "v1-2"] {
            assert_eq!(ResourceVersion::new(text).to_string(), text);
        }
        assert!(ResourceVersion::new("").is_empty());
        assert_eq!(size_of::<ResourceVersion>(), 16);
    }

    #[test]
    fn only_integer_versions_are_ordered() {
        let version = ResourceVersion::new;
        assert!(version("10").newer_than(&version("9")));
        assert!(!version("9").newer_than(&version("10")));
        assert!(!version("b").newer_than(&version("a")));
    }
}
