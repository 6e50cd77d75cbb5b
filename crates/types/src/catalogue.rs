//! What a cluster offers to be watched: its discovery documents, reduced to that.

use std::collections::BTreeSet;

use smol_str::SmolStr;

use super::{ApiResource, Gvr, ResourceRef};

/// Names that a mistake is answered with.
const NEAREST: usize = 3;

/// Resources that can be listed and watched, by group and version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Catalogue {
    /// In the server's order, the core group first.
    pub groups: Vec<GroupOffer>,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupOffer {
    /// Its name; empty for the core group.
    pub name: SmolStr,
    /// Its versions, the preferred one first.
    pub versions: Vec<VersionOffer>,
}

/// A version of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionOffer {
    /// Its name.
    pub name: SmolStr,
    /// Whether nobody knows what it has now: the server behind it does not answer.
    pub is_stale: bool,
    /// What it has.
    pub resources: Vec<Offer>,
}

/// A resource that can be listed and watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Plural.
    pub plural: SmolStr,
    /// Singular; empty where the server gives none.
    pub singular: SmolStr,
    /// Short names.
    pub short_names: Vec<SmolStr>,
    /// Kind.
    pub kind: SmolStr,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Offer {
    /// Its names besides the plural.
    pub fn others(&self) -> impl Iterator<Item = &str> + Clone {
        let singular = Some(self.singular.as_str()).filter(|name| !name.is_empty());
        singular.into_iter().chain(self.short_names.iter().map(SmolStr::as_str))
    }

    /// Servers that give no singular name mean the kind in lower case.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.plural == name
            || self.others().any(|known| known == name)
            || self.singular.is_empty() && self.kind.eq_ignore_ascii_case(name)
    }

    /// As a resource of a group and version.
    #[must_use]
    pub fn resource(&self, group: &str, version: &str) -> ApiResource {
        let gvr = Gvr::new(group, version, &self.plural);
        ApiResource { gvr, kind: self.kind.clone(), namespaced: self.namespaced }
    }
}

/// What a name means in a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// This.
    Resource(ApiResource),
    /// A resource that is not served in the version that was written, but in these, the preferred one first.
    OtherVersions(Vec<SmolStr>),
    /// Nobody knows: a group that may have it does not answer.
    Unknown,
    /// Nothing.
    Nothing,
}

impl VersionOffer {
    /// An exact plural comes before a short name that some other resource has.
    fn find(&self, name: &str) -> Option<&Offer> {
        let exact = self.resources.iter().find(|offer| offer.plural == name);
        exact.or_else(|| self.resources.iter().find(|offer| offer.is_called(name)))
    }
}

impl Catalogue {
    /// What a name means, by the rules of a look-up: without a group the first that has it, the core group first, in its
    /// preferred version; with a group but without a version the first version that has it, the preferred one first.
    #[must_use]
    pub fn find(&self, written: &ResourceRef) -> Found {
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
                    return Found::Resource(offer.resource(&group.name, &version.name));
                }
            }
        }
        if is_unknown {
            return Found::Unknown;
        }
        let elsewhere = |group: &GroupOffer| -> Vec<SmolStr> {
            let versions = group.versions.iter().filter(|version| version.find(name).is_some());
            versions.map(|version| version.name.clone()).collect()
        };
        let others = self.groups.iter().filter(in_group).map(elsewhere).find(|versions| !versions.is_empty());
        others.filter(|_| written.version.is_some()).map_or(Found::Nothing, Found::OtherVersions)
    }

    /// Whether it is not known what a group has.
    #[must_use]
    pub fn is_stale(&self, group: &str) -> bool {
        let of_group = self.groups.iter().filter(|offer| offer.name == group);
        of_group.flat_map(|group| &group.versions).any(|version| version.is_stale)
    }

    /// Each resource once, in the first of its group's versions that has it.
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

    /// What is written nearly as `wanted` is, nearest first.
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

/// Those of `seen` that are written nearly as `wanted` is: with its group where one was written.
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
            Found::Resource(resource) => resource.gvr.long(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_name_means_the_first_that_has_it_in_the_preferred_version() {
        assert_eq!(found("po"), "pods.v1.");
        assert_eq!(found("deploy"), "deployments.v1.apps");
        assert_eq!(found("widget"), "widgets.v1.example.com");
        assert_eq!(found("wd.example.com"), "widgets.v1.example.com");
        assert_eq!(found("widgets.v1beta1.example.com"), "widgets.v1beta1.example.com");
        assert_eq!(found("gears.example.com"), "gears.v1beta1.example.com", "in the version that has it");
        assert_eq!(found("gears"), "Nothing", "a bare name is looked for in preferred versions alone");
        assert_eq!(found("pods.apps"), "Nothing");
        assert_eq!(found("widgets.v2.example.com"), "OtherVersions([\"v1\", \"v1beta1\"])");
    }

    #[test]
    fn what_does_not_answer_may_have_anything() {
        let mut catalogue = catalogue();
        catalogue.groups[2].versions[1].is_stale = true;
        let find = |text: &str| catalogue.find(&text.parse().unwrap());
        assert_eq!(find("things.example.com"), Found::Unknown);
        assert!(matches!(find("widgets.example.com"), Found::Resource(_)));
        assert_eq!(find("things.apps"), Found::Nothing);
        assert!(catalogue.is_stale("example.com") && !catalogue.is_stale("apps"));
    }

    #[test]
    fn each_resource_is_named_once_in_its_preferred_version() {
        let catalogue = catalogue();
        let all: Vec<_> = catalogue.resources().iter().map(|(resource, _)| resource.gvr.long()).collect();
        let expected = ["pods.v1.", "deployments.v1.apps", "widgets.v1.example.com", "gears.v1beta1.example.com"];
        assert_eq!(all, expected);
        assert_eq!(catalogue.nearest(&"widgits.example.com".parse().unwrap())[0], "widgets.example.com");
    }
}
