//! Catalogue of the resources that a cluster serves for list and watch, taken from its discovery documents.

use std::collections::BTreeSet;

use smol_str::SmolStr;

use super::{ApiResource, Gvr, ResourceRef};

/// Maximum number of suggestions for a misspelt name.
const NEAREST: usize = 3;

/// Resources that can be listed and watched, by group and version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Catalogue {
    /// API groups in the server's order, the core group first.
    pub groups: Vec<GroupOffer>,
}

/// An API group with the resources that a cluster serves in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupOffer {
    /// Group name; empty for the core group.
    pub name: SmolStr,
    /// Versions, the preferred one first.
    pub versions: Vec<VersionOffer>,
}

/// A version of an API group with its resources that can be listed and watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionOffer {
    /// Version name.
    pub name: SmolStr,
    /// Whether the resources may be outdated, because the API server behind this version does not respond.
    pub is_stale: bool,
    /// Resources of this version.
    pub resources: Vec<Offer>,
}

/// A resource that can be listed and watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Plural name.
    pub plural: SmolStr,
    /// Singular name; empty if the server gives none.
    pub singular: SmolStr,
    /// Short names.
    pub short_names: Vec<SmolStr>,
    /// Kind of the resource.
    pub kind: SmolStr,
    /// Whether objects of the resource are namespaced.
    pub namespaced: bool,
}

impl Offer {
    /// Returns the singular name, if any, and the short names.
    pub fn others(&self) -> impl Iterator<Item = &str> + Clone {
        let singular = Some(self.singular.as_str()).filter(|name| !name.is_empty());
        singular.into_iter().chain(self.short_names.iter().map(SmolStr::as_str))
    }

    /// Returns whether `name` is one of the resource's names. If the server gives no singular name, the lowercase kind
    /// counts as one.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.plural == name
            || self.others().any(|known| known == name)
            || self.singular.is_empty() && self.kind.eq_ignore_ascii_case(name)
    }

    /// Returns the resource as an [`ApiResource`] of the given group and version.
    #[must_use]
    pub fn resource(&self, group: &str, version: &str) -> ApiResource {
        let gvr = Gvr::new(group, version, &self.plural);
        ApiResource { gvr, kind: self.kind.clone(), namespaced: self.namespaced }
    }
}

/// Result of resolving a resource name in a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResourceLookup {
    /// The resource.
    Resource(ApiResource),
    /// The resource exists, but not in the requested version. Contains the versions that have it, the preferred one
    /// first.
    OtherVersions(Vec<SmolStr>),
    /// Cannot be determined: an API group that may have the resource does not respond.
    Unknown,
    /// No such resource.
    Nothing,
}

impl VersionOffer {
    /// Returns the resource with this name. An exact plural takes precedence over another resource's short name.
    fn find(&self, name: &str) -> Option<&Offer> {
        let exact = self.resources.iter().find(|offer| offer.plural == name);
        exact.or_else(|| self.resources.iter().find(|offer| offer.is_called(name)))
    }
}

impl Catalogue {
    /// Resolves a resource name.
    ///
    /// Without a group, returns the first match in the preferred version of any group, the core group first. With a
    /// group but no version, searches all versions of the group, the preferred one first.
    #[must_use]
    pub fn find(&self, written: &ResourceRef) -> ResourceLookup {
        let name = written.resource.as_str();
        let mut is_unknown = false;
        let in_group = |group: &&GroupOffer| written.group.as_ref().is_none_or(|wanted| *wanted == group.name);
        for group in self.groups.iter().filter(in_group) {
            let anywhere = if written.group.is_some() { usize::MAX } else { 1 };
            let candidates = group
                .versions
                .iter()
                .filter(|offer| written.version.as_ref().is_none_or(|wanted| *wanted == offer.name));
            for version in candidates.take(anywhere) {
                is_unknown |= version.is_stale;
                if let Some(offer) = version.find(name) {
                    return ResourceLookup::Resource(offer.resource(&group.name, &version.name));
                }
            }
        }
        if is_unknown {
            return ResourceLookup::Unknown;
        }
        let elsewhere = |group: &GroupOffer| -> Vec<SmolStr> {
            let versions = group.versions.iter().filter(|version| version.find(name).is_some());
            versions.map(|version| version.name.clone()).collect()
        };
        let others = self.groups.iter().filter(in_group).map(elsewhere).find(|versions| !versions.is_empty());
        others.filter(|_| written.version.is_some()).map_or(ResourceLookup::Nothing, ResourceLookup::OtherVersions)
    }

    /// Returns whether the resources of some version of the group may be outdated ([`VersionOffer::is_stale`]).
    #[must_use]
    pub fn is_stale(&self, group: &str) -> bool {
        let of_group = self.groups.iter().filter(|offer| offer.name == group);
        of_group.flat_map(|group| &group.versions).any(|version| version.is_stale)
    }

    /// Returns each resource once, in the first version of its group that has it.
    #[must_use]
    pub fn resources(&self) -> Vec<(ApiResource, &Offer)> {
        let mut found = Vec::new();
        for group in &self.groups {
            let mut seen = BTreeSet::new();
            for version in &group.versions {
                let new = version.resources.iter().filter(|offer| seen.insert(&offer.plural));
                found.extend(new.map(|offer| (offer.resource(&group.name, &version.name), offer)));
            }
        }
        found
    }

    /// Returns up to three resource names that resemble `wanted`, nearest first.
    #[must_use]
    pub fn nearest(&self, wanted: &ResourceRef) -> Vec<String> {
        let names = self.resources().into_iter().flat_map(|(resource, offer)| {
            let full = |name: &str| {
                let group = &resource.gvr.group;
                if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
            };
            std::iter::once(full(&offer.plural)).chain(offer.others().map(full)).collect::<Vec<_>>()
        });
        nearest(&wanted.to_string(), names.collect())
    }
}

/// Returns up to three names in `seen` that resemble `wanted`, nearest first. If `wanted` has no API group, the groups
/// of the names in `seen` are ignored.
#[must_use]
pub fn nearest(wanted: &str, mut seen: Vec<String>) -> Vec<String> {
    let close = |name: &str| {
        let bare = name.split('.').next().unwrap_or(name);
        let other = if wanted.contains('.') { name } else { bare };
        strsim::damerau_levenshtein(wanted, other)
    };
    seen.retain(|name| close(name) <= (wanted.len() / 3).max(2));
    seen.sort_by_cached_key(|name| (close(name), name.clone()));
    seen.dedup();
    seen.truncate(NEAREST);
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(plural: &str, kind: &str, short: &[&str]) -> Offer {
        let short_names = short.iter().map(|name| (*name).into()).collect();
        let singular = kind.to_lowercase().into();
        Offer { plural: plural.into(), singular, short_names, kind: kind.into(), namespaced: true }
    }

    fn group(name: &str, versions: &[(&str, &[Offer])]) -> GroupOffer {
        let version = |(name, resources): &(&str, &[Offer])| VersionOffer {
            name: (*name).into(),
            is_stale: false,
            resources: resources.to_vec(),
        };
        GroupOffer { name: name.into(), versions: versions.iter().map(version).collect() }
    }

    fn catalogue() -> Catalogue {
        let (widgets, gears) = (offer("widgets", "Widget", &["wd"]), offer("gears", "Gear", &[]));
        Catalogue {
            groups: vec![
                group("", &[("v1", &[offer("pods", "Pod", &["po"])])]),
                group("apps", &[("v1", &[offer("deployments", "Deployment", &["deploy"])])]),
                group("example.com", &[("v1", std::slice::from_ref(&widgets)), ("v1beta1", &[widgets.clone(), gears])]),
            ],
        }
    }

    fn found(text: &str) -> String {
        match catalogue().find(&text.parse().unwrap()) {
            ResourceLookup::Resource(resource) => resource.gvr.long(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn find_returns_the_first_match_in_a_preferred_version() {
        assert_eq!(found("po"), "pods.v1.");
        assert_eq!(found("deploy"), "deployments.v1.apps");
        assert_eq!(found("widget"), "widgets.v1.example.com");
        assert_eq!(found("wd.example.com"), "widgets.v1.example.com");
        assert_eq!(found("widgets.v1beta1.example.com"), "widgets.v1beta1.example.com");
        assert_eq!(found("gears.example.com"), "gears.v1beta1.example.com", "the only version with it");
        assert_eq!(found("gears"), "Nothing", "a bare name is searched in preferred versions only");
        assert_eq!(found("pods.apps"), "Nothing");
        assert_eq!(found("widgets.v2.example.com"), "OtherVersions([\"v1\", \"v1beta1\"])");
    }

    #[test]
    fn find_returns_unknown_if_a_stale_group_may_have_the_resource() {
        let mut catalogue = catalogue();
        catalogue.groups[2].versions[1].is_stale = true;
        let find = |text: &str| catalogue.find(&text.parse().unwrap());
        assert_eq!(find("things.example.com"), ResourceLookup::Unknown);
        assert!(matches!(find("widgets.example.com"), ResourceLookup::Resource(_)));
        assert_eq!(find("things.apps"), ResourceLookup::Nothing);
        assert!(catalogue.is_stale("example.com") && !catalogue.is_stale("apps"));
    }

    #[test]
    fn resources_lists_each_resource_once_in_its_preferred_version() {
        let catalogue = catalogue();
        let all: Vec<_> = catalogue.resources().iter().map(|(resource, _)| resource.gvr.long()).collect();
        let expected = ["pods.v1.", "deployments.v1.apps", "widgets.v1.example.com", "gears.v1beta1.example.com"];
        assert_eq!(all, expected);
        assert_eq!(catalogue.nearest(&"widgits.example.com".parse().unwrap())[0], "widgets.example.com");
    }
}
