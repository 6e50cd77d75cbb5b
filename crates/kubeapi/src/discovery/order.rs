//! Order of groups and versions in discovery documents.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Served;

/// Names of the built-in groups in kube-apiserver's order; the empty name is the core group.
const GROUPS: [&str; 22] = [
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "storagemigration.k8s.io",
];

pub(super) struct Group<'s> {
    /// Name of the API group; empty for the core group.
    pub(super) name: &'s str,
    /// Versions, the preferred first, each with its resources sorted by name. Both lists have at least one element.
    pub(super) versions: Vec<(&'s str, Vec<&'s Served>)>,
}

/// Groups and sorts the served resources for discovery. A resource that is given twice appears once.
pub(super) fn groups(served: &[Served]) -> Vec<Group<'_>> {
    let mut by_name: BTreeMap<_, BTreeMap<_, BTreeMap<_, &Served>>> = BTreeMap::new();
    for one in served {
        let gvr = &one.resource.gvr;
        let group = by_name.entry((rank(&gvr.group), gvr.group.as_str())).or_default();
        let version = group.entry((Reverse(Priority::of(&gvr.version)), gvr.version.as_str())).or_default();
        version.insert(gvr.resource.as_str(), one);
    }
    let versions = |versions: BTreeMap<(_, _), BTreeMap<_, _>>| {
        versions.into_iter().map(|((_, version), resources)| (version, resources.into_values().collect())).collect()
    };
    by_name.into_iter().map(|((_, name), found)| Group { name, versions: versions(found) }).collect()
}

fn rank(group: &str) -> usize {
    GROUPS.iter().position(|known| *known == group).unwrap_or(GROUPS.len())
}

/// Priority of a version. Discovery lists the greatest first: stable, beta and alpha versions, each by descending
/// numbers, then all others by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Other,
    Alpha(u64, u64),
    Beta(u64, u64),
    Stable(u64),
}

impl Priority {
    fn of(version: &str) -> Self {
        Self::parse(version).unwrap_or(Self::Other)
    }

    /// Parses versions such as `v2`, `v1beta3` and `v1alpha1`; `None` for any other form.
    fn parse(version: &str) -> Option<Self> {
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|_| is_number)
        };
        let version = version.strip_prefix('v')?;
        if let Some((major, minor)) = version.split_once("alpha") {
            return Some(Self::Alpha(number(major)?, number(minor)?));
        }
        if let Some((major, minor)) = version.split_once("beta") {
            return Some(Self::Beta(number(major)?, number(minor)?));
        }
        number(version).map(Self::Stable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_sorted_as_kubernetes_sorts_them() {
        // The example of the documentation of CustomResourceDefinitions.
        let sorted = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"];
        let mut versions = sorted;
        versions.sort_unstable();
        versions.sort_by_key(|version| (Reverse(Priority::of(version)), *version));
        assert_eq!(versions, sorted);
    }

    #[test]
    fn versions_of_another_form_have_no_priority() {
        for version in ["", "v", "1", "v1gamma1", "v1beta", "vbeta1", "v1alpha1beta1", "v+1", "v1beta+1", "V1"] {
            assert!(Priority::of(version) == Priority::Other, "{version}");
        }
    }
}
