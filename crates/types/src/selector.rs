//! Selectors of objects (labels, in kubectl's grammar) and of clusters.
//!
//! Grammar, rules and semantics follow apimachinery's `labels` package; the parser is in `selector_parse`.

use std::collections::BTreeSet;
use std::fmt;

use smol_str::SmolStr;

use super::{ClusterLabels, ClusterName, MAX_QUOTED, position_of, shortened};

/// A label selector in kubectl's grammar: `app=web,tier!=db,env in (prod,test),!canary,cores>4`.
///
/// All requirements must hold; a selector without requirements (`""`) matches everything. It is kept in canonical form:
/// requirements and values are sorted, duplicates dropped, and `==` becomes `=`. So selectors with the same
/// requirements are equal, however they are written, and requests with them share an informer. The displayed text is
/// valid for an apiserver and parses to an equal selector.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One condition on one label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Requirement {
    /// The label's key, a qualified name (`app`, `app.kubernetes.io/name`).
    pub key: SmolStr,
    /// Condition on the label's value.
    pub condition: Condition,
}

/// Condition on a label's value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Condition {
    /// `a`: the label exists.
    Exists,
    /// `!a`: the label does not exist.
    DoesNotExist,
    /// `a=b`, `a==b`: the label exists and has this value.
    Equals(SmolStr),
    /// `a!=b`: the label has another value or does not exist.
    NotEquals(SmolStr),
    /// `a in (b,c)`: the label exists and has one of these values.
    In(BTreeSet<SmolStr>),
    /// `a notin (b,c)`: the label has none of these values or does not exist.
    NotIn(BTreeSet<SmolStr>),
    /// `a>5`: the label exists, and its value is an integer greater than this number.
    GreaterThan(i64),
    /// `a<5`: the label exists, and its value is an integer less than this number.
    LessThan(i64),
}

/// Error for text that is not a selector; the caller's input is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{:?} is not a label selector: {problem} at position {}", shortened(text, MAX_QUOTED), position_of(text, *at))]
#[non_exhaustive]
pub struct InvalidSelector {
    /// The invalid text.
    pub text: String,
    /// Byte offset of the problem.
    pub at: usize,
    /// Description of the problem.
    pub problem: String,
}

impl LabelSelector {
    /// Returns the selector that matches everything.
    #[must_use]
    pub fn everything() -> Self {
        Self::default()
    }

    /// Returns a selector that matches nothing, which an apiserver also accepts: `nothing,!nothing`.
    #[must_use]
    pub fn nothing() -> Self {
        [Condition::Exists, Condition::DoesNotExist]
            .into_iter()
            .map(|condition| Requirement { key: "nothing".into(), condition })
            .collect()
    }

    /// Returns whether the selector certainly matches nothing, so that no object need be read.
    ///
    /// It recognizes a label that must both exist and not exist, and an empty set of values. It does not recognize
    /// other contradictions.
    #[must_use]
    pub fn matches_nothing(&self) -> bool {
        let absent = |wanted: &Requirement| {
            let same = |other: &&Requirement| other.key == wanted.key;
            wanted.condition == Condition::DoesNotExist
                && self.requirements.iter().filter(same).any(|other| other.condition.needs_label())
        };
        let impossible = |wanted: &Requirement| matches!(&wanted.condition, Condition::In(of) if of.is_empty());
        self.requirements.iter().any(|wanted| impossible(wanted) || absent(wanted))
    }

    /// Returns whether the selector has no requirements and so matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the requirements, sorted.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns whether labels match. `label` returns the value of a label by its key, and is called once per
    /// requirement, up to the first that fails.
    pub fn matches<'v>(&self, label: impl Fn(&str) -> Option<&'v str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.condition.holds(label(&requirement.key)))
    }
}

impl FromIterator<Requirement> for LabelSelector {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        let mut requirements: Vec<_> = requirements.into_iter().collect();
        requirements.sort_unstable();
        requirements.dedup();
        Self { requirements }
    }
}

impl Condition {
    /// Returns whether the condition fails for every object without the label.
    fn needs_label(&self) -> bool {
        !matches!(self, Self::DoesNotExist | Self::NotEquals(_) | Self::NotIn(_))
    }

    /// Returns whether the condition holds for a label's value; `value` is `None` if the label does not exist.
    #[must_use]
    pub fn holds(&self, value: Option<&str>) -> bool {
        let integer = || value.and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Equals(wanted) => value == Some(wanted),
            Self::NotEquals(unwanted) => value != Some(unwanted),
            Self::In(wanted) => value.is_some_and(|v| wanted.contains(v)),
            Self::NotIn(unwanted) => value.is_none_or(|v| !unwanted.contains(v)),
            Self::GreaterThan(bound) => integer().is_some_and(|v| v > *bound),
            Self::LessThan(bound) => integer().is_some_and(|v| v < *bound),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.condition {
            Condition::Exists => f.write_str(key),
            Condition::DoesNotExist => write!(f, "!{key}"),
            Condition::Equals(value) => write!(f, "{key}={value}"),
            Condition::NotEquals(value) => write!(f, "{key}!={value}"),
            Condition::In(values) => write!(f, "{key} in ({})", Joined(values)),
            Condition::NotIn(values) => write!(f, "{key} notin ({})", Joined(values)),
            Condition::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            Condition::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

/// Displays a set of values, separated by commas. The empty value is written first, as the selector grammar requires:
/// `(,x)`. Alone it is written as `()`.
struct Joined<'a>(&'a BTreeSet<SmolStr>);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, value) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            f.write_str(value)?;
        }
        Ok(())
    }
}

/// Selector of clusters: all, by labels or by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ClusterSelector {
    /// Every cluster, including those added later.
    #[default]
    All,
    /// Clusters with all of these labels and values.
    Labels(ClusterLabels),
    /// Clusters with these names.
    Names(Vec<ClusterName>),
}

impl ClusterSelector {
    /// Returns the selector of every cluster, including those added later.
    #[must_use]
    pub fn all() -> Self {
        Self::All
    }

    /// Returns whether a cluster is selected.
    #[must_use]
    pub fn matches(&self, name: &ClusterName, labels: &ClusterLabels) -> bool {
        match self {
            Self::All => true,
            Self::Labels(wanted) => wanted.iter().all(|(key, value)| labels.get(key) == Some(value)),
            Self::Names(names) => names.contains(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        selector.parse::<LabelSelector>().unwrap().matches(|key| labels.get(key).copied())
    }

    #[test]
    fn empty_selector_matches_everything() {
        for text in ["", "  ", "\t"] {
            assert!(text.parse::<LabelSelector>().unwrap().is_empty());
            assert!(matches(text, &[]) && matches(text, &[("a", "b")]));
        }
    }

    #[test]
    fn operators_match_like_apimachinery() {
        let web = [("app", "web"), ("tier", ""), ("cores", "8")];
        for yes in [
            "app",
            "app=web",
            "app==web",
            "app!=db",
            "zone!=eu",
            "app in (db,web)",
            "app notin (db)",
            "zone notin (eu)",
            "!zone",
            "tier=",
            "tier in ()",
            "tier in (,x)",
            "tier",
            "cores>7",
            "cores<9",
            "app=web,cores>7,!zone",
            " app = web , tier ",
            "app in(web)",
        ] {
            assert!(matches(yes, &web), "{yes}");
        }
        for no in [
            "zone",
            "app=db",
            "zone=eu",
            "app!=web",
            "app in (db)",
            "zone in (eu)",
            "app notin (web,db)",
            "!app",
            "tier!=",
            "cores>8",
            "cores<8",
            "app>1",
            "zone>1",
            "zone<1",
            "app=web,zone",
        ] {
            assert!(!matches(no, &web), "{no}");
        }
    }

    #[test]
    fn matches_nothing_recognizes_contradictions() {
        let nothing = LabelSelector::nothing();
        assert!(nothing.matches_nothing());
        assert_eq!(nothing.to_string(), "nothing,!nothing");
        for text in ["!a,a=b", "!a,a", "!a,a in (b)", "!a,a>1", "b,!a,a<1,c"] {
            assert!(text.parse::<LabelSelector>().unwrap().matches_nothing(), "{text}");
        }
        for text in ["", "!a,b", "!a,a!=b", "!a,a notin (b)", "a=b,a=c", "a in ()"] {
            assert!(!text.parse::<LabelSelector>().unwrap().matches_nothing(), "{text}");
        }
        let in_empty_set = Requirement { key: "a".into(), condition: Condition::In(BTreeSet::new()) };
        assert!(LabelSelector::from_iter([in_empty_set]).matches_nothing());
    }

    #[test]
    fn keywords_are_valid_keys_and_values() {
        assert!(matches("in in (in,notin)", &[("in", "notin")]));
        assert!(matches("notin=in", &[("notin", "in")]));
    }

    #[test]
    fn selectors_with_the_same_requirements_are_equal() {
        let parse = |text: &str| text.parse::<LabelSelector>().unwrap();
        assert_eq!(parse("b, a in (y,x,y),a in (x,y)"), parse("a in (x,y),b"));
        assert_eq!(parse("a==b").to_string(), "a=b");
        assert_eq!(parse("tier notin (,b), !c,a>5").to_string(), "a>5,!c,tier notin (,b)");
    }

    fn arb_value() -> impl Strategy<Value = SmolStr> {
        "|[a-c]|[1-9]|[A-Za-z0-9][-A-Za-z0-9_.]{0,20}[A-Za-z0-9]".prop_map(SmolStr::from)
    }

    fn arb_requirement() -> impl Strategy<Value = Requirement> {
        let key = prop_oneof!["[a-e]", "(in|notin)", "[a-c]{1,3}\\.io/[a-c]{1,3}"];
        let set = || prop::collection::btree_set(arb_value(), 1..4);
        let condition = prop_oneof![
            Just(Condition::Exists),
            Just(Condition::DoesNotExist),
            arb_value().prop_map(Condition::Equals),
            arb_value().prop_map(Condition::NotEquals),
            set().prop_map(Condition::In),
            set().prop_map(Condition::NotIn),
            (0..10_i64).prop_map(Condition::GreaterThan),
            (0..10_i64).prop_map(Condition::LessThan),
        ];
        (key, condition).prop_map(|(key, condition)| Requirement { key: key.into(), condition })
    }

    /// Evaluates one requirement as the Kubernetes documentation says, independently of the code under test.
    fn model(requirement: &Requirement, labels: &BTreeMap<String, String>) -> bool {
        let Some(value) = labels.get(requirement.key.as_str()) else {
            return matches!(
                requirement.condition,
                Condition::DoesNotExist | Condition::NotEquals(_) | Condition::NotIn(_)
            );
        };
        match &requirement.condition {
            Condition::Exists => true,
            Condition::DoesNotExist => false,
            Condition::Equals(v) => v == value,
            Condition::NotEquals(v) => v != value,
            Condition::In(vs) => vs.iter().any(|v| v == value),
            Condition::NotIn(vs) => vs.iter().all(|v| v != value),
            Condition::GreaterThan(n) => value.parse().is_ok_and(|v: i64| v > *n),
            Condition::LessThan(n) => value.parse().is_ok_and(|v: i64| v < *n),
        }
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn displayed_selector_parses_to_itself(wanted in prop::collection::vec(arb_requirement(), 0..5)) {
            let selector: LabelSelector = wanted.into_iter().collect();
            let text = selector.to_string();
            prop_assert_eq!(text.parse::<LabelSelector>(), Ok(selector), "{}", text);
        }

        #[test]
        fn matches_agrees_with_the_model(
            wanted in prop::collection::vec(arb_requirement(), 0..4),
            labels in prop::collection::btree_map("[a-e]|in|notin", "[a-c]|[0-9]|", 0..5),
        ) {
            let selector: LabelSelector = wanted.iter().cloned().collect();
            let got = selector.matches(|key| labels.get(key).map(String::as_str));
            prop_assert_eq!(got, wanted.iter().all(|requirement| model(requirement, &labels)));
            prop_assert!(!got || !selector.matches_nothing());
        }

        #[test]
        fn parser_accepts_any_text_without_panic(text in "[a-c!=<>(), /.\\-é]{0,24}|\\PC{0,12}") {
            if let Ok(selector) = text.parse::<LabelSelector>() {
                prop_assert_eq!(selector.to_string().parse::<LabelSelector>(), Ok(selector));
            }
        }
    }
}
