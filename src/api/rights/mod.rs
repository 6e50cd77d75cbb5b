//! Rights of readers: which clusters, resources and objects a request may see. Lists and watches of the Kubernetes API
//! apply the rights in `kubernetes/scope`, and reads below `/v1` in `v1/sight`. Handlers of other paths use this module
//! directly.
//!
//! Before the handler of a request runs, the port authenticates the request and adds its [`Reader`] to it. A request
//! without a reader sees nothing. Objects are filtered by [`Visibility`], which a request gets once per resource.

mod omissions;
mod review;
mod seen_labels;
mod status;
mod stream_check;

use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;

use informer_hub_access::{Reader, ReviewCache, ReviewMeter, Visibility};
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName};
pub(in crate::api) use omissions::{Namespaces, OmissionKey, Omissions, Point, StateAnswer, WatchOmissions};
pub(in crate::api) use review::{Extent, MAX_NAMESPACES, Place, Reviewer};
pub(in crate::api) use seen_labels::SeenLabels;
pub(in crate::api) use stream_check::RightsCheck;

/// Function that returns a reader with its current rights; `None` if the reader is no longer known.
pub type CurrentReader = Arc<dyn Fn(&Reader) -> Option<Reader> + Send + Sync>;

/// Decides what readers may see.
#[derive(Clone, Default)]
pub(in crate::api) struct Rights {
    /// Whether readers that may see everything also see Secrets.
    serve_secrets: bool,
    current: Option<CurrentReader>,
    reviews: Option<Arc<ReviewCache>>,
    omissions: Arc<Omissions>,
}

impl Rights {
    pub(in crate::api) fn new(serve_secrets: bool) -> Self {
        Self { serve_secrets, ..Self::default() }
    }

    /// Sets the function with which open streams ask for the current rights of their readers.
    pub(in crate::api) fn set_current(&mut self, current: CurrentReader) {
        self.current = Some(current);
    }

    /// Enables access reviews, for readers whose rights come from the clusters.
    pub(in crate::api) fn set_reviews(&mut self, reviews: Arc<ReviewCache>) {
        self.reviews = Some(reviews);
    }

    /// Returns the counters of access reviews; `None` if access reviews are not enabled.
    pub(in crate::api) fn meter(&self) -> Option<&ReviewMeter> {
        self.reviews.as_ref().map(|reviews| reviews.meter())
    }

    /// Returns the record of the places (cluster and namespace) that answers to readers have omitted.
    pub(in crate::api) fn omissions(&self) -> &Arc<Omissions> {
        &self.omissions
    }

    /// Returns what a reader may see of a resource by rules, without access reviews.
    pub(in crate::api) fn visibility(&self, reader: &Reader, resource: &ApiResource) -> Visibility {
        Visibility::new(reader.grants(), resource, self.serve_secrets)
    }

    /// Returns whether a reader may see objects of a resource in any cluster. If not, answers hide the resource.
    pub(in crate::api) fn may_see(&self, reader: &Reader, resource: &ApiResource) -> bool {
        self.visibility(reader, resource).may_see_some()
    }

    /// Returns a check of a reader's rights that an open stream repeats every ten seconds.
    pub(in crate::api) fn check(&self, reader: &Reader) -> RightsCheck {
        RightsCheck::new(reader.clone(), self.current.clone())
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").field("serve_secrets", &self.serve_secrets).finish_non_exhaustive()
    }
}

/// Returns the reader of a request.
pub(in crate::api) fn reader_of(parts: &Parts) -> Reader {
    parts.extensions.get::<Reader>().cloned().unwrap_or_else(Reader::unknown)
}

/// Returns whether rules or access reviews may let a reader see objects of a cluster. If not, answers hide the cluster.
pub(in crate::api) fn sees_cluster(reader: &Reader, cluster: &ClusterName, labels: &ClusterLabels) -> bool {
    reader.grants().reviews || names_cluster(reader, cluster, labels)
}

/// Returns whether rules let a reader learn the name of a cluster that its request does not name, for example from a
/// suggestion.
pub(in crate::api) fn names_cluster(reader: &Reader, cluster: &ClusterName, labels: &ClusterLabels) -> bool {
    let grants = reader.grants();
    grants.everything || grants.rules.iter().any(|rule| rule.selects(cluster, labels))
}
