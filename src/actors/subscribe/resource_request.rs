//! Resource requests: by name, by known resource, or by pattern.

use informer_hub_types::{ApiResource, ResourcePattern, ResourceRef};

/// Resource for which informers are requested.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ResourceRequest {
    /// Resource name as the user wrote it; each cluster resolves it to a resource.
    Written(ResourceRef),
    /// Resource that needs no lookup.
    Known(KnownResource),
    /// All resources of a cluster that match a pattern.
    Matching(ResourcePattern),
}

/// [`ApiResource`] with an ordering, for use as a key.
#[derive(Clone, Eq, Debug)]
pub struct KnownResource(pub ApiResource);

impl PartialEq for KnownResource {
    /// Compares group, version and plural only; the kind does not identify a resource.
    fn eq(&self, other: &Self) -> bool {
        self.0.gvr == other.0.gvr
    }
}

impl PartialOrd for KnownResource {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KnownResource {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.gvr.cmp(&other.0.gvr)
    }
}

impl ResourceRequest {
    /// Creates a request that needs no lookup.
    #[must_use]
    pub fn known(resource: &ApiResource) -> Self {
        Self::Known(KnownResource(resource.clone()))
    }

    /// Returns whether two requests may mean the same resource, as far as known without asking a cluster. Built-in
    /// resources are known by all their names, others by their plural only.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => a.0.gvr == b.0.gvr,
            (Self::Written(a), Self::Written(b)) => a.canonical() == b.canonical(),
            (Self::Matching(a), Self::Matching(b)) => a == b,
            (Self::Known(known), Self::Written(written)) | (Self::Written(written), Self::Known(known)) => {
                let (gvr, written) = (&known.0.gvr, written.canonical());
                written.resource == gvr.resource
                    && written.group.as_ref().is_none_or(|group| *group == gvr.group)
                    && written.version.as_ref().is_none_or(|version| *version == gvr.version)
            }
            (Self::Known(known), Self::Matching(pattern)) | (Self::Matching(pattern), Self::Known(known)) => {
                pattern.may_have(&known.0.gvr)
            }
            (Self::Written(written), Self::Matching(pattern)) | (Self::Matching(pattern), Self::Written(written)) => {
                let written = written.canonical();
                written.group.is_some_and(|group| pattern.has(&group, &written.resource, &std::iter::empty()))
            }
        }
    }

    /// Returns whether the request names no version.
    #[must_use]
    pub fn is_of_any_version(&self) -> bool {
        match self {
            Self::Written(written) => written.version.is_none(),
            Self::Known(_) => false,
            Self::Matching(_) => true,
        }
    }

    /// Returns the resource of the request; `None` for a pattern.
    #[must_use]
    pub fn one(&self) -> Option<ResourceRef> {
        match self {
            Self::Written(written) => Some(written.clone()),
            Self::Known(known) => Some(ResourceRef::exact(&known.0.gvr)),
            Self::Matching(_) => None,
        }
    }

    /// Returns the resource as displayed to users.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Written(written) => written.to_string(),
            Self::Known(known) => known.0.gvr.to_string(),
            Self::Matching(pattern) => pattern.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::Gvr;

    #[test]
    fn resource_request_matches_built_in_resources_by_every_name() {
        let written = |text: &str| ResourceRequest::Written(text.parse().unwrap());
        let known = |group: &str, version: &str, plural: &str| {
            let gvr = Gvr::new(group, version, plural);
            ResourceRequest::known(&ApiResource { gvr, kind: "X".into(), namespaced: true })
        };
        for (one, other) in [
            (written("po"), known("", "v1", "pods")),
            (written("pod.v1"), known("", "v1", "pods")),
            (written("deploy"), known("apps", "v1", "deployments")),
            (written("deploy"), written("deployments.apps")),
            (written("widgets"), known("example.com", "v1", "widgets")),
            (ResourceRequest::Matching(ResourcePattern::new("*.apps".parse().unwrap())), written("deploy")),
        ] {
            assert!(one.may_be(&other) && other.may_be(&one), "{one:?} {other:?}");
        }
        for (one, other) in [
            (written("po"), known("example.com", "v1", "pods")),
            (written("deploy"), known("example.com", "v1", "deploy")),
            (written("pods.v2"), known("", "v1", "pods")),
            (ResourceRequest::Matching(ResourcePattern::new("*".parse().unwrap())), known("", "v1", "secrets")),
        ] {
            assert!(!one.may_be(&other) && !other.may_be(&one), "{one:?} {other:?}");
        }
    }
}
