//! What informers are asked for by: a name, a resource, a pattern.

use informer_hub_types::{ApiResource, ResourcePattern, ResourceRef};

/// What is asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ResourceRequest {
    /// As written; to be looked up.
    Written(ResourceRef),
    /// Known without asking.
    Known(KnownResource),
    /// All that a cluster has of a pattern.
    Matching(ResourcePattern),
}

/// An [`ApiResource`] in an order, for use as a key.
#[derive(Clone, Eq, Debug)]
pub struct KnownResource(pub ApiResource);

impl PartialEq for KnownResource {
    /// By what it is watched as; what somebody takes its kind for makes no other resource of it.
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
    /// A resource that needs no look-up.
    #[must_use]
    pub fn known(resource: &ApiResource) -> Self {
        Self::Known(KnownResource(resource.clone()))
    }

    /// Whether the two can mean the same resource, as far as that can be told without asking a cluster: of built-in ones
    /// all names are known, of others the plural alone.
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

    /// Whether it names no version.
    #[must_use]
    pub fn is_of_any_version(&self) -> bool {
        match self {
            Self::Written(written) => written.version.is_none(),
            Self::Known(_) => false,
            Self::Matching(_) => true,
        }
    }

    /// The one resource that it is; `None` of a pattern.
    #[must_use]
    pub fn one(&self) -> Option<ResourceRef> {
        match self {
            Self::Written(written) => Some(written.clone()),
            Self::Known(known) => Some(ResourceRef::exact(&known.0.gvr)),
            Self::Matching(_) => None,
        }
    }

    /// The resource as a person reads it.
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
    fn a_built_in_resource_is_known_by_each_of_its_names() {
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
