//! `resourceVersion`: where in a resource's history something is.

use std::fmt;

use serde::{Serialize, Serializer};

/// A `resourceVersion` as the apiserver gave it.
///
/// Since Kubernetes 1.35 (KEP-5504) versions of one resource compare as integers; [`Self::newer_than`] uses
/// that where both are integers and makes no claim otherwise. Sixteen bytes for every version that real
/// apiservers make.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Number(u64),
    Text(Box<str>),
}

impl ResourceVersion {
    /// Takes the version over, whatever it looks like.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let canonical = text == "0" || !text.starts_with(['0', '+']);
        match text.parse::<u64>() {
            Ok(number) if canonical => Self(Repr::Number(number)),
            _ => Self(Repr::Text(text.into())),
        }
    }

    /// Whether it is the empty string, which no stored object should have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }

    /// Whether watching from this version means "from wherever you are".
    #[must_use]
    pub fn is_nowhere(&self) -> bool {
        self.is_empty() || self.as_number() == Some(0)
    }

    /// The version as an integer, where it is one.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        match self.0 {
            Repr::Number(number) => Some(number),
            Repr::Text(_) => None,
        }
    }

    /// Whether `self` is known to be newer than `other`; `false` where the two do not compare.
    #[must_use]
    pub fn newer_than(&self, other: &Self) -> bool {
        matches!((&self.0, &other.0), (Repr::Number(a), Repr::Number(b)) if a > b)
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
    fn every_text_comes_back_as_it_was() {
        for text in ["", "0", "1", "18446744073709551615", "18446744073709551616", "007", "+7", "abc", "v1-2"] {
            assert_eq!(ResourceVersion::new(text).to_string(), text);
        }
        assert!(ResourceVersion::new("").is_empty());
        assert_eq!(size_of::<ResourceVersion>(), 16);
    }

    #[test]
    fn only_integers_compare() {
        let version = ResourceVersion::new;
        assert!(version("10").newer_than(&version("9")));
        assert!(!version("9").newer_than(&version("10")));
        assert!(!version("b").newer_than(&version("a")));
    }
}
