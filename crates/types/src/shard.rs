//! Shards: the parts of clusters that collector processes own.
//!
//! A cluster is one shard, unless rules divide it by resources and namespaces. Each rule makes another shard of each
//! cluster that it selects; everything else stays in the shard without a name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{ApiResource, ClusterName, InvalidName, ResourceRef, is_dns_label, matches_wildcard};

/// Part of a cluster that one collector owns. Displayed as `cluster`, or `cluster/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shard {
    /// Cluster of which the shard is a part.
    pub cluster: ClusterName,
    /// Name of the rule that made the shard; `None` for everything that no rule selects.
    pub name: Option<ShardName>,
}

/// Name of a shard within its cluster: 1–63 characters of `a–z 0–9 -`, a letter or a digit at both ends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardName(Arc<str>);

/// Rule that makes a shard (part that one collector owns) of each cluster that it selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardRule {
    /// Name of each shard that the rule makes.
    pub name: ShardName,
    /// Names of clusters, in which `*` is any number of characters; empty selects all clusters.
    pub clusters: Vec<String>,
    /// Resources in the shard. A reference without a version matches every version; a reference without a group matches
    /// every group.
    pub resources: Vec<ResourceRef>,
    /// Namespaces whose informers are in the shard; empty selects all informers of the resources.
    pub namespaces: Vec<String>,
}

/// Rules that divide clusters into shards, by precedence: an informer is in the shard of the first rule selecting it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShardRules(Vec<ShardRule>);

impl Shard {
    /// Returns the shard without a name. It has all informers of the cluster that no rule selects.
    #[must_use]
    pub fn rest_of(cluster: ClusterName) -> Self {
        Self { cluster, name: None }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            None => self.cluster.fmt(f),
            Some(name) => f.pad(&format!("{}/{}", self.cluster, name.as_str())),
        }
    }
}

impl FromStr for Shard {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (cluster, name) = text.split_once('/').map_or((text, None), |(cluster, name)| (cluster, Some(name)));
        Ok(Self { cluster: cluster.parse()?, name: name.map(ShardName::new).transpose()? })
    }
}

impl ShardName {
    /// Checks `text` and creates a name.
    ///
    /// # Errors
    /// [`InvalidName`] if `text` breaks the rule in the type's documentation.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if is_dns_label(text) {
            return Ok(Self(text.into()));
        }
        let rule = "1 to 63 characters out of a-z, 0-9 and '-', the first and the last a letter or a digit";
        Err(InvalidName { what: "shard name", text: text.to_owned(), rule })
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ShardRule {
    /// Returns whether the rule makes a shard (part that one collector owns) of a cluster.
    #[must_use]
    pub fn selects_cluster(&self, cluster: &ClusterName) -> bool {
        let names = &self.clusters;
        names.is_empty() || names.iter().any(|pattern| matches_wildcard(pattern, cluster.as_str()))
    }

    fn selects(&self, resource: &ApiResource, namespace: Option<&str>) -> bool {
        let gvr = &resource.gvr;
        let is_it = |wanted: &ResourceRef| {
            wanted.resource == gvr.resource
                && wanted.version.as_ref().is_none_or(|version| *version == gvr.version)
                && wanted.group.as_ref().is_none_or(|group| *group == gvr.group)
        };
        let is_named = |namespace: &str| self.namespaces.iter().any(|wanted| wanted == namespace);
        self.resources.iter().any(is_it) && (self.namespaces.is_empty() || namespace.is_some_and(is_named))
    }
}

impl ShardRules {
    /// Creates rules and sorts them by precedence: first those with namespaces, then the others, both by name.
    /// Resources get their canonical names.
    #[must_use]
    pub fn new(mut rules: Vec<ShardRule>) -> Self {
        for resource in rules.iter_mut().flat_map(|rule| &mut rule.resources) {
            *resource = resource.canonical();
        }
        rules.sort_by_cached_key(|rule| (rule.namespaces.is_empty(), rule.name.clone()));
        Self(rules)
    }

    /// Returns the rules by precedence.
    #[must_use]
    pub fn rules(&self) -> &[ShardRule] {
        &self.0
    }

    /// Returns all shards of a cluster, the parts that collectors own.
    #[must_use]
    pub fn shards_of(&self, cluster: &ClusterName) -> Vec<Shard> {
        let made = self.0.iter().filter(|rule| rule.selects_cluster(cluster)).map(|rule| Some(rule.name.clone()));
        std::iter::once(None).chain(made).map(|name| Shard { cluster: cluster.clone(), name }).collect()
    }

    /// Returns the shard of an informer. `namespace` is `None` if the informer watches all namespaces.
    #[must_use]
    pub fn shard_of(&self, cluster: &ClusterName, resource: &ApiResource, namespace: Option<&str>) -> Shard {
        let rule = self.0.iter().find(|rule| rule.selects_cluster(cluster) && rule.selects(resource, namespace));
        Shard { cluster: cluster.clone(), name: rule.map(|rule| rule.name.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gvr;

    fn rule(name: &str, clusters: &[&str], resources: &[&str], namespaces: &[&str]) -> ShardRule {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        ShardRule {
            name: ShardName::new(name).unwrap(),
            clusters: texts(clusters),
            resources: resources.iter().map(|text| text.parse().unwrap()).collect(),
            namespaces: texts(namespaces),
        }
    }

    fn resource(group: &str, plural: &str) -> ApiResource {
        ApiResource { gvr: Gvr::new(group, "v1", plural), kind: "Any".into(), namespaced: true }
    }

    #[test]
    fn informer_is_in_the_shard_of_the_first_rule_that_selects_it() {
        let rules = ShardRules::new(vec![
            rule("a-events", &[], &["events.events.k8s.io"], &[]),
            rule("pods", &["prod*"], &["po"], &[]),
            rule("team", &["prod-eu"], &["pods", "secrets"], &["x", "y"]),
        ]);
        let shard = |cluster: &str, of: &ApiResource, namespace| {
            rules.shard_of(&cluster.parse().unwrap(), of, namespace).to_string()
        };
        let pods = resource("", "pods");
        assert_eq!(shard("prod-eu", &pods, Some("x")), "prod-eu/team", "the rule with namespaces is first");
        assert_eq!(shard("prod-eu", &pods, Some("z")), "prod-eu/pods");
        assert_eq!(shard("prod-eu", &pods, None), "prod-eu/pods");
        assert_eq!(shard("prod-us", &pods, Some("x")), "prod-us/pods");
        assert_eq!(shard("test", &pods, None), "test");
        assert_eq!(shard("prod-eu", &resource("", "secrets"), None), "prod-eu");
        assert_eq!(shard("test", &resource("events.k8s.io", "events"), None), "test/a-events");
        assert_eq!(shard("test", &resource("", "events"), None), "test", "another group");
        let shards = |cluster: &str| {
            let shards = rules.shards_of(&cluster.parse().unwrap());
            shards.iter().map(Shard::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shards("test"), ["test", "test/a-events"]);
        assert_eq!(shards("prod-eu"), ["prod-eu", "prod-eu/team", "prod-eu/a-events", "prod-eu/pods"]);
        assert_eq!(ShardRules::default().shards_of(&"c".parse().unwrap()).len(), 1);
    }

    #[test]
    fn shard_is_read_as_it_is_displayed() {
        for text in ["prod", "prod.eu_1/pods", "c/a-1"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for bad in ["", "/pods", "c/", "c/A", "c/a.b", "c/a/b", "c/-a", &format!("c/{}", "x".repeat(64))] {
            assert!(bad.parse::<Shard>().is_err(), "{bad:?}");
        }
    }
}
