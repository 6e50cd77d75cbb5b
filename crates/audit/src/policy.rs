//! Audit policy: which requests are logged. Rules are read in order, and the first that matches decides.

use smol_str::SmolStr;

use informer_hub_types::{Exclusion, matches_wildcard};

/// Paths of probes and scrapes, which repeat all the time. They are logged only if a rule matches, or if the request is
/// denied.
const QUIET: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// How much of a request is logged. There is no level that logs bodies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Log nothing.
    None,
    /// Log everything except bodies.
    Metadata,
}

/// Text in which `*` is any number of characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(SmolStr);

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        matches_wildcard(&self.0, text)
    }
}

/// Rule of a policy. A request matches the rule if it matches every list below. A list matches the request if one of
/// its entries does, or if the list is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyRule {
    /// Level of the requests that match.
    pub level: Level,
    /// Patterns of user names.
    pub readers: Vec<Pattern>,
    /// Patterns of groups of users.
    pub groups: Vec<Pattern>,
    /// Verbs of requests.
    pub verbs: Vec<SmolStr>,
    /// Requested resources or API groups. If the list is not empty, a request that is about no resource does not match.
    pub resources: Vec<Exclusion>,
    /// Patterns of paths, without percent-encoding.
    pub paths: Vec<Pattern>,
}

impl PolicyRule {
    /// Creates a rule that matches every request.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            readers: Vec::new(),
            groups: Vec::new(),
            verbs: Vec::new(),
            resources: Vec::new(),
            paths: Vec::new(),
        }
    }
}

/// Name of a resource.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ResourceName {
    /// API group; empty for the core group.
    pub group: SmolStr,
    /// Plural name.
    pub resource: SmolStr,
}

/// Properties of a request with which rules are compared.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'r> {
    /// Name of the user.
    pub reader: &'r str,
    /// Groups of the user.
    pub groups: &'r [SmolStr],
    /// Verb of the request.
    pub verb: &'r str,
    /// Requested resources; a stream of events may have several.
    pub resources: &'r [ResourceName],
    /// Path, without percent-encoding.
    pub path: &'r str,
    /// Whether the request was denied.
    pub is_denied: bool,
}

/// Rules, in order, that decide which requests are logged. The default has no rules, and logs every request except
/// probes and scrapes of the metrics.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    rules: Vec<PolicyRule>,
}

impl Policy {
    /// Creates a policy.
    #[must_use]
    pub fn new(rules: Vec<PolicyRule>) -> Self {
        Self { rules }
    }

    /// Returns how much of a request is logged.
    #[must_use]
    pub fn level(&self, request: &Facts<'_>) -> Level {
        match self.rules.iter().find(|rule| rule.matches(request)) {
            Some(rule) => rule.level,
            None if QUIET.contains(&request.path) && !request.is_denied => Level::None,
            None => Level::Metadata,
        }
    }
}

impl PolicyRule {
    fn matches(&self, request: &Facts<'_>) -> bool {
        let has = |patterns: &[Pattern], text: &str| patterns.iter().any(|pattern| pattern.matches(text));
        (self.readers.is_empty() || has(&self.readers, request.reader))
            && (self.groups.is_empty() || request.groups.iter().any(|group| has(&self.groups, group)))
            && (self.verbs.is_empty() || self.verbs.iter().any(|verb| verb == request.verb))
            && (self.paths.is_empty() || has(&self.paths, request.path))
            && self.has_resources(request.resources)
    }

    /// Returns whether the rule's list of resources matches the requested `resources`. An empty list matches every
    /// request.
    ///
    /// If the rule's level is `Metadata`, one resource in the list is enough. If the level is `None`, all resources of
    /// the request must be in the list.
    fn has_resources(&self, resources: &[ResourceName]) -> bool {
        if self.resources.is_empty() {
            return true;
        }
        let names = |resource: &ResourceName| self.resources.iter().any(|entry| is_named(entry, resource));
        match self.level {
            Level::Metadata => resources.iter().any(names),
            Level::None => !resources.is_empty() && resources.iter().all(names),
        }
    }
}

fn is_named(entry: &Exclusion, resource: &ResourceName) -> bool {
    match entry {
        Exclusion::Groups(groups) => groups.has(&resource.group),
        Exclusion::Resource(written) => {
            written.resource == resource.resource && written.group.as_ref().is_none_or(|group| *group == resource.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(text: &str) -> ResourceName {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        ResourceName { group: group.into(), resource: resource.into() }
    }

    fn facts<'r>(reader: &'r str, verb: &'r str, resources: &'r [ResourceName], path: &'r str) -> Facts<'r> {
        Facts { reader, groups: &[], verb, resources, path, is_denied: false }
    }

    #[test]
    fn first_matching_rule_decides() {
        let none = PolicyRule::new(Level::None);
        let policy = Policy::new(vec![
            PolicyRule { verbs: vec!["watch".into()], readers: vec!["prom*".into()], ..none.clone() },
            PolicyRule { readers: vec!["prom*".into()], ..PolicyRule::new(Level::Metadata) },
            PolicyRule { paths: vec!["/clusters/test-*".into()], ..none.clone() },
            PolicyRule { resources: vec!["leases.coordination.k8s.io".parse().unwrap()], ..none.clone() },
            PolicyRule { resources: vec!["*.example.com".parse().unwrap()], verbs: vec!["get".into()], ..none },
        ]);
        let (lease, pod, widget) =
            ([resource("leases.coordination.k8s.io")], [resource("pods")], [resource("widgets.example.com")]);
        for (request, expected) in [
            (facts("prometheus", "watch", &pod, "/clusters/a/api/v1/pods"), Level::None),
            (facts("prometheus", "list", &pod, "/clusters/a/api/v1/pods"), Level::Metadata),
            (facts("prometheus", "list", &lease, "/clusters/test-1/x"), Level::Metadata),
            (facts("ann", "list", &pod, "/clusters/test-1/api/v1/pods"), Level::None),
            (facts("ann", "list", &pod, "/clusters/*/api/v1/pods"), Level::Metadata),
            (facts("ann", "list", &lease, "/x"), Level::None),
            (facts("ann", "list", &[resource("leases")], "/x"), Level::Metadata),
            (facts("ann", "get", &widget, "/x"), Level::None),
            (facts("ann", "list", &widget, "/x"), Level::Metadata),
            (facts("ann", "get", &[], "/x"), Level::Metadata),
        ] {
            assert_eq!(policy.level(&request), expected, "{request:?}");
        }
        let members = PolicyRule { groups: vec!["oidc:*".into()], ..PolicyRule::new(Level::None) };
        let policy = Policy::new(vec![members]);
        let of = |groups: &[SmolStr]| policy.level(&Facts { groups, ..facts("ann", "get", &[], "/x") });
        assert_eq!((of(&["a".into(), "oidc:b".into()]), of(&["b".into()])), (Level::None, Level::Metadata));
    }

    #[test]
    fn stream_of_several_resources_is_logged_if_one_of_them_is() {
        let secrets = vec!["secrets".parse().unwrap()];
        let both = [resource("pods"), resource("secrets")];
        let level = |level| {
            let other = if level == Level::None { Level::Metadata } else { Level::None };
            let rule = PolicyRule { resources: secrets.clone(), ..PolicyRule::new(level) };
            Policy::new(vec![rule, PolicyRule::new(other)]).level(&facts("ann", "watch", &both, "/v1/events"))
        };
        assert_eq!((level(Level::None), level(Level::Metadata)), (Level::Metadata, Level::Metadata));
    }

    #[test]
    fn probes_and_scrapes_are_logged_if_they_are_denied_or_a_rule_says_so() {
        for path in QUIET {
            let probe = facts("system:anonymous", "get", &[], path);
            assert_eq!(Policy::default().level(&probe), Level::None);
            assert_eq!(Policy::default().level(&Facts { is_denied: true, ..probe }), Level::Metadata);
            let policy = Policy::new(vec![PolicyRule::new(Level::Metadata)]);
            assert_eq!(policy.level(&probe), Level::Metadata);
        }
        assert_eq!(Policy::default().level(&facts("ann", "get", &[], "/v1/status")), Level::Metadata);
    }
}
