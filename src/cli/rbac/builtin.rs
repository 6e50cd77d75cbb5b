//! Names of resources in RBAC rules, determined without asking a cluster.

use informer_hub_config::ResourceConfig;
use informer_hub_types::{Groups, ResourceRef, Selected, built_in};

/// Resource as RBAC rules name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NamedResource {
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    /// Whether the names were taken from the configuration without a check against Kubernetes' own resources or a
    /// cluster.
    pub(super) is_unchecked: bool,
}

/// Returns the RBAC name of a configured resource. A resource that is not built into Kubernetes gets its configured
/// name as plural, and is namespaced if `has_namespaces` (namespaces are configured).
///
/// Returns `None` if the resource is not built into Kubernetes and its configured name has no group.
pub(super) fn named(written: &ResourceRef, has_namespaces: bool) -> Option<NamedResource> {
    if let Some(found) = built_in(written) {
        let (group, plural) = (found.group.to_owned(), found.plural.to_owned());
        return Some(NamedResource { group, plural, namespaced: found.namespaced, is_unchecked: false });
    }
    let (group, plural) = (written.group.as_ref()?.to_string(), written.resource.to_string());
    Some(NamedResource { group, plural, namespaced: has_namespaces, is_unchecked: true })
}

/// Returns whether a cluster must be asked before the rights for a resource are known.
pub(super) fn needs_discovery(resource: &ResourceConfig) -> bool {
    match &resource.resource {
        Selected::One(written) => named(written, !resource.namespaces.is_empty()).is_none(),
        Selected::Matching(pattern) => !matches!(pattern.groups, Groups::One(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_that_is_not_built_in_needs_a_group() {
        let of = |text: &str| {
            let named = named(&text.parse().unwrap(), false)?;
            Some((named.group, named.plural, named.namespaced, named.is_unchecked))
        };
        assert_eq!(of("po"), Some((String::new(), "pods".to_owned(), true, false)));
        assert_eq!(of("widgets"), None);
        assert_eq!(of("pods.v1"), of("pods"), "with the version of the core group");
        assert_eq!(of("widgets.example.com"), Some(("example.com".to_owned(), "widgets".to_owned(), false, true)));
    }
}
