//! Bloom filter of an object's labels: eight bytes that let a selector skip most objects without reading them.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use hashbrown::DefaultHashBuilder;

use super::selector::Condition;
use super::{LabelSelector, Labels};

/// Returns the hash of a text, which is the same throughout this process but differs between processes.
#[must_use]
pub fn text_hash(text: &str) -> u64 {
    static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
    HASHER.hash_one(text)
}

/// Returns the hash that selects filter bits. It is the same in every process, by a fixed seed.
///
/// A selector is slow if its filter bits coincide with those of labels that all objects have. With a random seed per
/// process, the same selector would be slow in some processes and fast in others. With a fixed seed, an author of
/// labels can cause coincidences on purpose. At worst, a scan then reads every object, as it would without a filter.
fn fixed_hash(text: &str) -> u64 {
    const HASHER: foldhash::quality::FixedState = foldhash::quality::FixedState::with_seed(0x6C61_6265_6C73);
    HASHER.hash_one(text)
}

/// Number of filter bits per key-value pair. Each bit of a pair lies in a different part of the filter, so that they
/// never coincide.
const PAIR_BITS: u32 = 4;

/// A Bloom filter: one bit for each key and four for each key with its value.
///
/// If the filter lacks the bits of a label (key and value), the object does not have the label; if it has the bits, the
/// object may have the label. The rate of false positives grows with the number of labels per object: 0.04 % with two,
/// 0.6 % with four, 5 % with eight. For objects that have no label with the searched key, the rate is lower. A search
/// for a key with any value has 14 %, 27 % and 47 % false positives.
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

    /// Returns the bits of a pair, including that of its key.
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

/// Filter bits that a selector requires. Each inner list has the alternatives of one requirement: an object's filter
/// must contain at least one of them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LabelNeeds(Vec<Vec<LabelFilter>>);

impl LabelNeeds {
    /// Returns the filter bits that a selector requires. Requirements that exclude labels, such as `!=`, require no
    /// bits.
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

    /// Returns the filter bits required of labels that match both of two selectors.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Returns the filter bits required of labels that match at least one of several selectors.
    #[must_use]
    pub fn any(all: impl IntoIterator<Item = Self>) -> Self {
        let mut either = Vec::new();
        for Self(mut needs) in all {
            // An alternative without needs may match any labels.
            let Some(first) = needs.pop() else { return Self::default() };
            either.extend(first);
        }
        Self(vec![either])
    }

    /// Returns whether labels with this filter certainly do not match the selector.
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
    fn filter_rules_out_most_missing_labels_and_no_present_ones() {
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

    /// Counts false positives: objects that the filter lets pass although their labels do not match. Checks `sets`
    /// groups of seven objects. Returns the number of groups with more than three false positives, then the number of
    /// false positives, then the number of objects.
    ///
    /// The objects of a group have `shared` labels in common and differ in one.
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
    fn false_positive_rates_stay_below_their_bounds() {
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
    fn negative_requirements_rule_nothing_out() {
        for selector in ["!a", "a!=b", "a notin (b)", ""] {
            let needs = LabelNeeds::of(&selector.parse().unwrap());
            assert!(!needs.rule_out(LabelFilter::default()), "{selector}");
        }
    }

    #[test]
    fn disjunction_is_ruled_out_only_if_all_alternatives_are() {
        let needs = |selector: &str| LabelNeeds::of(&selector.parse().unwrap());
        let filter = LabelFilter::of(&labels(&[("a", "1")]));
        assert!(!LabelNeeds::any([needs("a=1"), needs("b=1")]).rule_out(filter));
        assert!(LabelNeeds::any([needs("b=1"), needs("d")]).rule_out(filter));
        assert!(!LabelNeeds::any([needs("b=1"), needs("!d")]).rule_out(filter), "one alternative has no needs");
        assert!(LabelNeeds::any([]).rule_out(filter), "an empty disjunction matches nothing");
        assert!(needs("a=1").and(needs("b=1")).rule_out(filter));
    }
}
