//! Bloom filter of an object's labels: eight bytes that let a selector pass over most objects without reading them.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use hashbrown::DefaultHashBuilder;

use super::selector::Condition;
use super::{LabelSelector, Labels};

/// The hash of a text: the same wherever this process asks, another in the next process.
#[must_use]
pub fn text_hash(text: &str) -> u64 {
    static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
    HASHER.hash_one(text)
}

/// The hash that chooses bits: the same in every process.
///
/// With a seed of the process, a selector whose bits coincide with those of labels that all objects share was slow in
/// some processes and fast in others. Anyone who can write labels can construct such a pair. The worst case is a scan
/// that reads every object, as if there were no filter; results never change.
fn fixed_hash(text: &str) -> u64 {
    const HASHER: foldhash::quality::FixedState = foldhash::quality::FixedState::with_seed(0x6C61_6265_6C73);
    HASHER.hash_one(text)
}

/// Bits of a pair: one in each of as many equal parts of the filter, so that they never coincide with each other.
const PAIR_BITS: u32 = 4;

/// A Bloom filter: one bit for each key and four for each key with its value.
///
/// A pair that the filter lacks is certainly not among the labels; a pair that it has may be. The rate of false
/// positives grows with the labels of an object: 0.04 % with two, 0.6 % with four, 5 % with eight, where the objects have
/// the key; less where they do not. Of a key alone it is 14 %, 27 % and 47 %.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LabelFilter(u64);

impl LabelFilter {
    /// Returns the filter of a set of labels.
    #[must_use]
    pub fn of(labels: &Labels) -> Self {
        Self(labels.iter().map(|(key, value)| Self::pair(key, value).0).fold(0, |all, bits| all | bits))
    }

    fn key(key: &str) -> Self {
        Self::key_hashed(fixed_hash(key))
    }

    fn key_hashed(hash: u64) -> Self {
        Self(1 << (hash >> 58))
    }

    /// The bits of a pair, that of its key included.
    fn pair(key: &str, value: &str) -> Self {
        const PART: u32 = u64::BITS / PAIR_BITS;
        let key = fixed_hash(key);
        let mut mixed = (key ^ fixed_hash(value).rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut bits = Self::key_hashed(key).0;
        for part in 0..PAIR_BITS {
            mixed = mixed.rotate_left(PART.ilog2());
            bits |= 1 << (u64::from(part * PART) + mixed % u64::from(PART));
        }
        Self(bits)
    }

    fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// What the filter of labels must have for a selector to match them: of each of these, one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LabelNeeds(Vec<Vec<LabelFilter>>);

impl LabelNeeds {
    /// What a selector needs; nothing where it only says what must not be there.
    #[must_use]
    pub fn of(selector: &LabelSelector) -> Self {
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
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// What any of several needs.
    #[must_use]
    pub fn any(all: impl IntoIterator<Item = Self>) -> Self {
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
    pub fn rule_out(&self, filter: LabelFilter) -> bool {
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

    /// Of `sets` label sets, how many let more than half of the objects through that do not match, and how many of all
    /// such objects pass, as (sets, objects let through, objects asked about). Objects of one set have `shared` labels
    /// in common and differ in one.
    fn false_positives(sets: usize, shared: usize) -> (usize, usize, usize) {
        let (mut useless, mut admitted, mut asked) = (0, 0, 0);
        for set in 0..sets {
            let common: Vec<_> = (0..shared).map(|at| (format!("k{at}-{set}"), format!("v{at}-{set}"))).collect();
            let app = |number: usize| format!("app-{set}-{number}");
            let needs = LabelNeeds::of(&format!("app={}", app(0)).parse().unwrap());
            let passes = |number: &usize| {
                let app = app(*number);
                let common = common.iter().map(|(key, value)| (key.as_str(), value.as_str()));
                let pairs: Vec<_> = common.chain([("app", app.as_str())]).collect();
                !needs.rule_out(LabelFilter::of(&labels(&pairs)))
            };
            let count = (1..8).filter(passes).count();
            (useless, admitted, asked) = (useless + usize::from(count > 3), admitted + count, asked + 7);
        }
        (useless, admitted, asked)
    }

    #[test]
    fn a_filter_discerns_in_all_but_few_of_ten_thousand_label_sets() {
        for (shared, most_useless, most_passed_in_ten_thousand) in [(1, 8, 15), (3, 60, 100), (7, 600, 650)] {
            let (useless, admitted, asked) = false_positives(10_000, shared);
            println!(
                "{shared} shared labels: {useless} of 10000 sets useless, {admitted} of {asked} objects let through"
            );
            assert!(useless <= most_useless, "{useless} sets are scanned as if there were no filter");
            assert!(admitted * 10_000 <= asked * most_passed_in_ten_thousand, "{admitted} of {asked} objects pass");
        }
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
        assert!(LabelNeeds::any([needs("b=1"), needs("d")]).rule_out(filter));
        assert!(!LabelNeeds::any([needs("b=1"), needs("!d")]).rule_out(filter), "one of them needs nothing");
        assert!(LabelNeeds::any([]).rule_out(filter), "nothing matches none");
        assert!(needs("a=1").and(needs("b=1")).rule_out(filter));
    }
}
