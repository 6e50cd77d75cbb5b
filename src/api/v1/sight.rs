//! View of the reader of one request.

use axum::http::request::Parts;

use crate::api::kubernetes::ReadApi;
use informer_hub_types::{ClusterLabels, ClusterName, Gvr, ObjectKey, Origin};

/// View of one reader. Every path below `/v1` that reads objects asks it, and nothing else, what the reader may see.
#[derive(Clone, Debug)]
pub(in crate::api) struct Sight {
    secrets: bool,
}

impl Sight {
    /// Returns the view of the reader of a request.
    pub(in crate::api) fn of(api: &ReadApi, _parts: &Parts) -> Self {
        Self { secrets: api.may_see(&Gvr::new("", "v1", "secrets")) }
    }

    /// Returns whether no cluster and no namespace is hidden.
    #[expect(clippy::unused_self, reason = "depends on the reader's rights")]
    pub(in crate::api) fn is_everything(&self) -> bool {
        true
    }

    /// Returns whether objects of a resource may be visible in some cluster and namespace.
    pub(in crate::api) fn resource(&self, gvr: &Gvr) -> bool {
        self.secrets || !(gvr.group.is_empty() && gvr.resource == "secrets")
    }

    /// Returns whether anything of a cluster may be visible.
    #[expect(clippy::unused_self, reason = "depends on the reader's rights")]
    pub(in crate::api) fn cluster(&self, _name: &ClusterName, _labels: &ClusterLabels) -> bool {
        true
    }

    /// Returns whether an object is visible.
    pub(in crate::api) fn object(&self, origin: &Origin, _key: &ObjectKey) -> bool {
        self.resource(&origin.resource.gvr) && self.cluster(&origin.cluster, &origin.cluster_labels)
    }
}
