//! Static rules: what the configuration allows a reader to see.

use smol_str::SmolStr;

use crate::namespaces::Namespaces;
use crate::visible::Visible;
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName, ClusterSelector, Exclusion, Groups, Selected};

/// Resources that one entry of a rule matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResourceMatch {
    /// All resources of some API groups, except Secrets: a rule allows Secrets only if it names them.
    Groups(Groups),
    /// A resource by its plural or its kind in lowercase, in any version. Without a group, it matches in every group.
    Named {
        /// Plural or kind in lowercase.
        name: SmolStr,
        /// API group; `None` matches every group.
        group: Option<SmolStr>,
    },
}

impl From<Exclusion> for ResourceMatch {
    fn from(written: Exclusion) -> Self {
        match written {
            Exclusion::Groups(groups) => Self::Groups(groups),
            Exclusion::Resource(resource) => Self::Named { name: resource.resource, group: resource.group },
        }
    }
}

impl From<Selected> for ResourceMatch {
    fn from(written: Selected) -> Self {
        match written {
            Selected::Matching(pattern) => Self::Groups(pattern.groups),
            Selected::One(resource) => Self::Named { name: resource.resource, group: resource.group },
        }
    }
}

impl ResourceMatch {
    fn names(&self, resource: &ApiResource) -> bool {
        match self {
            Self::Groups(groups) => groups.has(&resource.gvr.group),
            Self::Named { name, group } => {
                let is_called = *name == resource.gvr.resource || *name == resource.kind.to_lowercase();
                is_called && group.as_ref().is_none_or(|group| *group == resource.gvr.group)
            }
        }
    }
}

/// Returns whether a resource is `secrets` of the core group.
pub(crate) fn is_secrets(resource: &ApiResource) -> bool {
    resource.gvr.group.is_empty() && resource.gvr.resource == "secrets"
}

/// A rule that makes the objects of some resources visible, in some namespaces of some clusters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    clusters: ClusterSelector,
    /// Namespaces in which the rule applies; `None` means every namespace, and objects without a namespace.
    namespaces: Option<Namespaces>,
    resources: Vec<ResourceMatch>,
    except: Vec<ResourceMatch>,
}

impl Rule {
    /// Creates a rule. `namespaces` are names and patterns; an empty list and `*` mean every namespace, and objects
    /// without a namespace.
    pub fn new<T: AsRef<str>>(
        clusters: ClusterSelector,
        namespaces: impl IntoIterator<Item = T>,
        resources: Vec<ResourceMatch>,
        except: Vec<ResourceMatch>,
    ) -> Self {
        let namespaces = Namespaces::new(namespaces);
        let is_every = namespaces.is_empty() || namespaces.texts().any(|text| text == "*");
        Self { clusters, namespaces: (!is_every).then_some(namespaces), resources, except }
    }

    /// Returns whether the rule applies to a resource. An entry for whole API groups does not allow Secrets, but can
    /// exclude them.
    #[must_use]
    pub fn covers(&self, resource: &ApiResource) -> bool {
        let is_secret = is_secrets(resource);
        let is_allowed =
            |entry: &ResourceMatch| entry.names(resource) && !(is_secret && matches!(entry, ResourceMatch::Groups(_)));
        self.resources.iter().any(is_allowed) && !self.except.iter().any(|entry| entry.names(resource))
    }

    /// Returns whether the rule applies to a cluster.
    #[must_use]
    pub fn selects(&self, cluster: &ClusterName, labels: &ClusterLabels) -> bool {
        self.clusters.matches(cluster, labels)
    }

    /// Returns the selector of the rule's clusters.
    #[must_use]
    pub fn clusters(&self) -> &ClusterSelector {
        &self.clusters
    }

    /// Returns the objects that the rule makes visible in a cluster that it selects, for a resource that it covers.
    ///
    /// `has_namespaces` is whether the resource is namespaced. If it is not, only a rule for every namespace makes its
    /// objects visible.
    #[must_use]
    pub fn visible(&self, has_namespaces: bool) -> Visible {
        match &self.namespaces {
            None => Visible::Everything,
            Some(namespaces) if has_namespaces => Visible::Namespaces(namespaces.clone()),
            Some(_) => Visible::Nothing,
        }
    }

    /// Returns whether the rule applies to all clusters and namespaces, and has no exceptions.
    fn is_everywhere(&self) -> bool {
        self.clusters == ClusterSelector::All && self.namespaces.is_none() && self.except.is_empty()
    }

    /// Returns whether the rules together allow everything: all API groups, and Secrets by name, everywhere.
    pub(crate) fn allow_everything(rules: &[Self]) -> bool {
        let secrets = ResourceMatch::Named { name: "secrets".into(), group: None };
        let core_secrets = ResourceMatch::Named { name: "secrets".into(), group: Some(SmolStr::default()) };
        let has = |wanted: &[ResourceMatch]| {
            let everywhere = rules.iter().filter(|rule| rule.is_everywhere());
            everywhere.flat_map(|rule| &rule.resources).any(|entry| wanted.contains(entry))
        };
        has(&[ResourceMatch::Groups(Groups::All)]) && has(&[secrets, core_secrets])
    }

    /// Returns the entries for the resources that the rule shows.
    #[must_use]
    pub fn resources(&self) -> &[ResourceMatch] {
        &self.resources
    }

    /// Returns the entries for the resources that the rule excludes.
    #[must_use]
    pub fn except(&self) -> &[ResourceMatch] {
        &self.except
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::Gvr;

    fn resource(group: &str, plural: &str, kind: &str) -> ApiResource {
        ApiResource { gvr: Gvr::new(group, "v1", plural), kind: kind.into(), namespaced: true }
    }

    fn rule(resources: &[&str], except: &[&str]) -> Rule {
        let of = |texts: &[&str]| texts.iter().map(|text| text.parse::<Exclusion>().unwrap().into()).collect();
        Rule::new(ClusterSelector::All, ["*"], of(resources), of(except))
    }

    #[test]
    fn rule_covers_named_resources_and_groups_without_exceptions() {
        let pods = resource("", "pods", "Pod");
        let deployments = resource("apps", "deployments", "Deployment");
        let events = resource("events.k8s.io", "events", "Event");
        for (resources, except, expected) in [
            (&["*"][..], &[][..], [true, true, true]),
            (&["*"], &["pods"], [false, true, true]),
            (&["*"], &["deployment"], [true, false, true]),
            (&["*"], &["*.apps", "events"], [true, false, false]),
            (&["pods", "events"], &[], [true, false, true]),
            (&["deployments.apps"], &[], [false, true, false]),
            (&["deployments.v2.apps"], &[], [false, true, false]),
            (&["deployments.extensions"], &[], [false, false, false]),
            (&["*.*.k8s.io"], &[], [false, false, true]),
            (&[], &[], [false, false, false]),
            (&["*", "pods"], &["*"], [false, false, false]),
        ] {
            let rule = rule(resources, except);
            let found = [&pods, &deployments, &events].map(|resource| rule.covers(resource));
            assert_eq!(found, expected, "{resources:?} except {except:?}");
        }
    }

    #[test]
    fn rules_allow_everything_if_they_name_secrets_too() {
        let (all, both, secrets) = (rule(&["*"], &[]), rule(&["*", "secrets"], &[]), rule(&["secrets"], &[]));
        let one_cluster = Rule { clusters: ClusterSelector::Names(vec!["a".parse().unwrap()]), ..both.clone() };
        let one_namespace = Rule::new(ClusterSelector::All, ["shop"], both.resources.clone(), Vec::new());
        for (rules, expected) in [
            (vec![all.clone(), secrets.clone()], true),
            (vec![both.clone()], true),
            (Vec::new(), false),
            (vec![all.clone()], false),
            (vec![secrets.clone()], false),
            (vec![rule(&["*.apps", "secrets"], &[])], false),
            (vec![rule(&["*", "secrets"], &["pods"])], false),
            (vec![one_cluster], false),
            (vec![one_namespace.clone()], false),
            (vec![one_namespace, both], true),
        ] {
            assert_eq!(Rule::allow_everything(&rules), expected, "{rules:?}");
        }
    }

    #[test]
    fn secrets_must_be_named() {
        let (secrets, sealed) = (resource("", "secrets", "Secret"), resource("example.com", "secrets", "Secret"));
        for (resources, except, expected) in [
            (&["*"][..], &[][..], [false, true]),
            (&["secrets"], &[], [true, true]),
            (&["*", "secret"], &[], [true, true]),
            (&["secrets.example.com"], &[], [false, true]),
            (&["secrets"], &["*"], [false, false]),
        ] {
            let rule = rule(resources, except);
            assert_eq!([&secrets, &sealed].map(|it| rule.covers(it)), expected, "{resources:?} except {except:?}");
        }
    }
}
