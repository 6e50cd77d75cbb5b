//! Patterns that select resources of a group, of all groups below a domain, or of a whole cluster.

use std::cmp::Reverse;
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use smol_str::SmolStr;

use super::{Gvr, InvalidResource, ResourceRef};

/// API groups whose resources a pattern such as `*.apps` selects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Groups {
    /// `*`: every group.
    All,
    /// `*.<group>`: one group.
    One(SmolStr),
    /// `*.*.<domain>`: every group below a domain, excluding a group with the domain's own name.
    Below(SmolStr),
}

impl Groups {
    /// Returns whether a group is selected.
    #[must_use]
    pub fn has(&self, group: &str) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == group,
            Self::Below(domain) => group.strip_suffix(domain.as_str()).is_some_and(|rest| rest.ends_with('.')),
        }
    }

    /// Returns a sort key that puts narrow patterns first: `*.<group>`, then `*.*.<domain>` (longer domains first),
    /// then `*`.
    #[must_use]
    pub fn breadth(&self) -> (u8, Reverse<usize>) {
        match self {
            Self::One(_) => (0, Reverse(0)),
            Self::Below(domain) => (1, Reverse(domain.len())),
            Self::All => (2, Reverse(0)),
        }
    }
}

/// Error for text that is not a pattern; the caller's input is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a pattern: write \"*.example.com\" for all resources of a group, \"*.*.example.com\" for those of all \
     groups below it, or \"*\" for everything"
)]
pub struct InvalidPattern(
    /// The invalid text.
    pub String,
);

impl FromStr for Groups {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let group = |group: &str| -> Option<SmolStr> {
            // Parsed as the group of a resource, which rejects a group that looks like a version.
            let written: ResourceRef = format!("x.{group}").parse().ok()?;
            written.group.filter(|parsed| parsed == group && !parsed.is_empty())
        };
        let found = match text.strip_prefix("*.") {
            _ if text == "*" => Some(Self::All),
            Some(rest) => match rest.strip_prefix("*.") {
                Some(domain) => group(domain).map(Self::Below),
                None => group(rest).map(Self::One),
            },
            None => None,
        };
        found.ok_or_else(|| InvalidPattern(text.to_owned()))
    }
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::One(group) => write!(f, "*.{group}"),
            Self::Below(domain) => write!(f, "*.*.{domain}"),
        }
    }
}

/// Exclusion from a pattern: all resources of some groups, or one resource.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Exclusion {
    /// All resources of the groups.
    Groups(Groups),
    /// A resource by its plural, singular or short name; without a group, in every group.
    Resource(ResourceRef),
}

impl FromStr for Exclusion {
    type Err = InvalidSelection;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.parse()? {
            Selected::One(resource) => Self::Resource(resource),
            Selected::Matching(pattern) => Self::Groups(pattern.groups),
        })
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Groups(groups) => groups.fmt(f),
            Self::Resource(resource) => resource.fmt(f),
        }
    }
}

/// Resource pattern of a configuration entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResourcePattern {
    /// Selected groups.
    pub groups: Groups,
    /// Resources and groups that the pattern does not match, although `groups` selects them.
    pub exclude: Vec<Exclusion>,
    /// Maximum number of resources watched per cluster. If the pattern selects more, the first by name are watched.
    pub limit: NonZeroUsize,
}

/// Group and plural of resources that no pattern selects; a configuration must name them. Secrets must not be watched
/// by accident. Events outnumber all other objects, and two groups serve them.
const NEVER: &[(&str, &str)] = &[("", "secrets"), ("", "events"), ("events.k8s.io", "events")];

impl ResourcePattern {
    /// Default maximum number of resources watched per cluster.
    pub const LIMIT: NonZeroUsize = NonZeroUsize::new(50).expect("50 is not zero");

    /// Creates a pattern for all resources of these groups, with the default limit.
    #[must_use]
    pub fn new(groups: Groups) -> Self {
        Self { groups, exclude: Vec::new(), limit: Self::LIMIT }
    }

    /// Returns whether the pattern selects a resource. `others` are its singular and short names, which an exclusion
    /// may use.
    #[must_use]
    pub fn has<'n>(&self, group: &str, plural: &str, others: &(impl Iterator<Item = &'n str> + Clone)) -> bool {
        let is_called = |name: &str| name == plural || others.clone().any(|other| other == name);
        let is_excluded = |exclusion: &Exclusion| match exclusion {
            Exclusion::Groups(groups) => groups.has(group),
            Exclusion::Resource(resource) => {
                resource.group.as_ref().is_none_or(|written| written == group) && is_called(&resource.resource)
            }
        };
        self.groups.has(group) && !NEVER.contains(&(group, plural)) && !self.exclude.iter().any(is_excluded)
    }

    /// Returns whether the pattern may select a resource, judged by its plural name. The pattern may still exclude the
    /// resource by its singular or a short name.
    #[must_use]
    pub fn may_have(&self, gvr: &Gvr) -> bool {
        self.has(&gvr.group, &gvr.resource, &std::iter::empty())
    }
}

impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.groups.fmt(f)
    }
}

/// Resources that a configuration entry selects: one resource, or those that match a pattern.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Selected {
    /// One resource, by any of its names.
    One(ResourceRef),
    /// All resources that match a pattern.
    Matching(ResourcePattern),
}

/// Error for text that is neither a resource nor a pattern; the caller's input is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSelection {
    /// The text has no `*` and is not a resource.
    #[error(transparent)]
    Resource(#[from] InvalidResource),
    /// The text has a `*` and is not a pattern.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
}

impl Selected {
    /// Returns the resource; `None` for a pattern.
    #[must_use]
    pub fn one(&self) -> Option<&ResourceRef> {
        match self {
            Self::One(one) => Some(one),
            Self::Matching(_) => None,
        }
    }

    /// Returns the pattern; `None` for a resource.
    #[must_use]
    pub fn pattern(&self) -> Option<&ResourcePattern> {
        match self {
            Self::One(_) => None,
            Self::Matching(pattern) => Some(pattern),
        }
    }
}

impl From<ResourceRef> for Selected {
    fn from(one: ResourceRef) -> Self {
        Self::One(one)
    }
}

impl From<ResourcePattern> for Selected {
    fn from(pattern: ResourcePattern) -> Self {
        Self::Matching(pattern)
    }
}

impl FromStr for Selected {
    type Err = InvalidSelection;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('*') {
            return Ok(Self::Matching(ResourcePattern::new(text.parse()?)));
        }
        Ok(Self::One(text.parse()?))
    }
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(one) => one.fmt(f),
            Self::Matching(pattern) => pattern.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str, exclude: &[&str]) -> ResourcePattern {
        let exclude = exclude.iter().map(|text| text.parse().unwrap()).collect();
        ResourcePattern { exclude, ..ResourcePattern::new(text.parse().unwrap()) }
    }

    #[test]
    fn pattern_selects_a_group_the_groups_below_a_domain_or_all() {
        for (text, has, lacks) in [
            ("*", vec!["", "apps", "example.com"], vec![]),
            ("*.apps", vec!["apps"], vec!["", "apps.example.com"]),
            ("*.example.com", vec!["example.com"], vec!["a.example.com", "example.comm", ""]),
            ("*.*.example.com", vec!["a.example.com", "a.b.example.com"], vec!["example.com", "aexample.com", ""]),
        ] {
            let groups: Groups = text.parse().unwrap();
            assert_eq!(groups.to_string(), text);
            assert!(has.iter().all(|group| groups.has(group)), "{text}");
            assert!(!lacks.iter().any(|group| groups.has(group)), "{text}");
        }
    }

    #[test]
    fn invalid_pattern_error_shows_the_valid_forms() {
        for bad in ["", "**", "*.", "*.*", "*.*.", "a.*", "*.*.*.b", "pods", "*.B", "*.v1.apps", "*.a..b", "* "] {
            let problem = bad.parse::<Groups>().expect_err(bad).to_string();
            assert!(problem.contains("*.example.com"), "{problem}");
        }
    }

    #[test]
    fn exclusion_applies_to_any_name_of_a_resource() {
        let of = |pattern: &ResourcePattern, group: &str, plural: &str, others: &[&str]| {
            pattern.has(group, plural, &others.iter().copied())
        };
        let all = pattern("*", &["configmaps", "deploy.apps", "*.internal.example.com", "wd"]);
        assert!(!of(&all, "", "configmaps", &["cm"]) && !of(&all, "other.com", "configmaps", &[]));
        assert!(!of(&all, "apps", "deployments", &["deploy"]) && of(&all, "x.com", "deployments", &["deploy"]));
        assert!(!of(&all, "internal.example.com", "things", &[]) && of(&all, "example.com", "things", &[]));
        assert!(!of(&all, "example.com", "widgets", &["widget", "wd"]) && of(&all, "", "pods", &["po"]));
    }

    #[test]
    fn no_pattern_selects_secrets_or_events() {
        let all = pattern("*", &[]);
        let has = |group, plural| all.has(group, plural, &std::iter::empty());
        assert!(!has("", "secrets") && !has("", "events") && !has("events.k8s.io", "events"));
        assert!(has("example.com", "secrets") && has("example.com", "events"), "other groups may use the same names");
    }
}
