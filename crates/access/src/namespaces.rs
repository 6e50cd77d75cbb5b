//! Sets of namespaces, given by names and by patterns with `*`.

use std::collections::BTreeSet;
use std::sync::Arc;

use smol_str::SmolStr;

use informer_hub_types::matches_wildcard;

/// A set of namespaces. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Namespaces {
    names: Arc<BTreeSet<SmolStr>>,
    /// Patterns with at least one `*`.
    patterns: Arc<[SmolStr]>,
}

impl Namespaces {
    /// Creates a set from names and patterns. `*` in a pattern is any number of characters.
    pub fn new<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let texts = texts.into_iter().map(|text| SmolStr::from(text.as_ref()));
        let (patterns, names): (Vec<_>, Vec<_>) = texts.partition(|text| text.contains('*'));
        Self { names: Arc::new(names.into_iter().collect()), patterns: patterns.into() }
    }

    /// Returns whether the set contains a namespace.
    #[must_use]
    pub fn has(&self, namespace: &str) -> bool {
        self.names.contains(namespace) || self.patterns.iter().any(|pattern| matches_wildcard(pattern, namespace))
    }

    /// Returns all names of the set; `None` if the set has patterns, which may match more names.
    #[must_use]
    pub fn names(&self) -> Option<&BTreeSet<SmolStr>> {
        self.patterns.is_empty().then_some(&*self.names)
    }

    /// Returns the names and patterns that the set was made from.
    pub fn texts(&self) -> impl Iterator<Item = &SmolStr> {
        self.names.iter().chain(self.patterns.iter())
    }

    /// Returns whether the set has no name and no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.patterns.is_empty()
    }

    /// Returns the set of namespaces that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() || self == other {
            return other.clone();
        }
        if other.is_empty() {
            return self.clone();
        }
        Self::new(self.texts().chain(other.texts()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Slow reference implementation of pattern matching: `*` matches any number of characters.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skipped| slow(rest, &text[skipped..])),
            Some((first, rest)) => text.first() == Some(first) && slow(rest, &text[1..]),
        }
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(512))]

        #[test]
        fn pattern_matches_as_defined(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            let set = Namespaces::new([&pattern]);
            prop_assert_eq!(set.has(&text), slow(pattern.as_bytes(), text.as_bytes()), "{} {}", pattern, text);
        }

        #[test]
        fn union_has_what_either_has(
            a in prop::collection::vec("[ab*]{1,3}", 0..4),
            b in prop::collection::vec("[ab*]{1,3}", 0..4),
            text in "[ab]{1,4}",
        ) {
            let (a, b) = (Namespaces::new(&a), Namespaces::new(&b));
            prop_assert_eq!(a.union(&b).has(&text), a.has(&text) || b.has(&text));
        }
    }

    #[test]
    fn names_are_known_unless_there_are_patterns() {
        let names = |texts: &[&str]| Namespaces::new(texts).names().map(|names| names.iter().cloned().collect());
        assert_eq!(names(&["shop", "pay"]), Some(vec!["pay".into(), "shop".into()]));
        assert_eq!(names(&["shop", "team-*"]), None::<Vec<SmolStr>>);
        assert_eq!(names(&[]), Some(Vec::new()));
    }
}
