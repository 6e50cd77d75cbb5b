//! What a set of labels may have, in eight bytes: enough to pass over most objects without a look at them.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use hashbrown::DefaultHashBuilder;

use super::selector::Condition;
use super::{LabelSelector, Labels};

/// The hash of a text: the same wherever this process asks, another in the next process.
#[must_use]
pub(crate) fn text_hash(text: &str) -> u64 {
    static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
    HASHER.hash_one(text)
}

/// A Bloom filter: a bit for each key and two for each key with its value.
///
/// What it has not is certainly not among the labels; what it has may be there. Of eight labels, one pair in ten that is
/// not there looks as if it were.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LabelFilter(u64);

impl LabelFilter {
    /// Of a set of labels.
    #[must_use]
    pub(crate) fn of(labels: &Labels) -> Self {
        let both = |(key, value)| Self::key(key).0 | Self::pair(key, value).0;
        Self(labels.iter().map(both).fold(0, |all, bits| all | bits))
    }

    fn key(key: &str) -> Self {
        Self(1 << (text_hash(key) >> 58))
    }

    fn pair(key: &str, value: &str) -> Self {
        let mixed = (text_hash(key) ^ text_hash(value).rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(1 << (mixed >> 58) | 1 << (mixed >> 52 & 63))
    }

    fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// What the filter of labels must have for a selector to match them: of each of these, one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct LabelNeeds(Vec<Vec<LabelFilter>>);

impl LabelNeeds {
    /// What a selector needs; nothing where it only says what must not be there.
    #[must_use]
    pub(crate) fn of(selector: &LabelSelector) -> Self {
        let need = |requirement: &super::Requirement| {
            let key = requirement.key.as_str();
            match &requirement.condition {
                Condition::Exists | Condition::GreaterThan(_) | Condition::LessThan(_) => {
                    Some(vec![LabelFilter::key(key)])
                }
                Condition::Equals(value) => Some(vec![LabelFilter::pair(key, value)]),
                Condition::In(values) => Some(values.iter().map(|value| LabelFilter::pair(key, value)).collect()),
                Condition::DoesNotExist | Condition::NotEquals(_) | Condition::NotIn(_) => None,
            }
        };
        Self(selector.requirements().iter().filter_map(need).collect())
    }

    /// What both need.
    #[must_use]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// What any of several needs.
    #[must_use]
    pub(crate) fn any(all: impl IntoIterator<Item = Self>) -> Self {
        let mut either = Vec::new();
        for Self(mut needs) in all {
            // One that needs nothing may match anything.
            let Some(first) = needs.pop() else { return Self::default() };
            either.extend(first);
        }
        Self(vec![either])
    }

    /// Whether labels of this filter match certainly not.
    #[must_use]
    pub(crate) fn rule_out(&self, filter: LabelFilter) -> bool {
        !self.0.iter().all(|any| any.iter().any(|wanted| filter.has(*wanted)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels::new(pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    }

    #[test]
    fn most_of_what_is_not_there_is_ruled_out_and_nothing_that_is() {
        let mut wrong = 0;
        for number in 0..1_000 {
            let texts: Vec<_> = (0..8).map(|label| (format!("k{label}"), format!("{}", number * label))).collect();
            let pairs: Vec<_> = texts.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let filter = LabelFilter::of(&labels(&pairs));
            for (key, value) in &pairs {
                for selector in [format!("{key}={value}"), (*key).to_owned(), format!("{key} in ({value},x)")] {
                    assert!(!LabelNeeds::of(&selector.parse().unwrap()).rule_out(filter), "{selector}");
                }
            }
            let other = LabelNeeds::of(&format!("k7={}", number * 7 + 1).parse().unwrap());
            wrong += usize::from(!other.rule_out(filter));
        }
        assert!(wrong < 200, "{wrong} of 1000");
    }

    #[test]
    fn what_must_not_be_there_rules_nothing_out() {
        for selector in ["!a", "a!=b", "a notin (b)", ""] {
            let needs = LabelNeeds::of(&selector.parse().unwrap());
            assert!(!needs.rule_out(LabelFilter::default()), "{selector}");
        }
    }

    #[test]
    fn either_of_two_is_ruled_out_where_both_are() {
        let needs = |selector: &str| LabelNeeds::of(&selector.parse().unwrap());
        let filter = LabelFilter::of(&labels(&[("a", "1")]));
        assert!(!LabelNeeds::any([needs("a=1"), needs("b=1")]).rule_out(filter));
        assert!(LabelNeeds::any([needs("b=1"), needs("c")]).rule_out(filter));
        assert!(!LabelNeeds::any([needs("b=1"), needs("!c")]).rule_out(filter), "one of them needs nothing");
        assert!(LabelNeeds::any([]).rule_out(filter), "nothing matches none");
        assert!(needs("a=1").and(needs("b=1")).rule_out(filter));
    }
}
