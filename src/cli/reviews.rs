//! Review resources (SubjectAccessReviews, TokenReviews) that the hub creates in clusters if `[hub.authorization]`
//! configures them.

use informer_hub_config::AuthorizationConfig;
use informer_hub_types::{ApiResource, ClusterName, Gvr};

/// Returns the review resources that the hub creates in the cluster with this name.
pub(super) fn of_cluster(config: &AuthorizationConfig, cluster: &ClusterName) -> Vec<ApiResource> {
    of(config, config.token_review.as_ref().is_some_and(|review| review.clusters.contains(cluster)))
}

/// Returns the review resources that the hub creates in a cluster. `is_token_reviewer`: whether the hub also creates
/// TokenReviews there.
pub(super) fn of(config: &AuthorizationConfig, is_token_reviewer: bool) -> Vec<ApiResource> {
    let review = |group: &str, plural: &str, kind: &str| ApiResource {
        gvr: Gvr::new(group, "v1", plural),
        kind: kind.into(),
        namespaced: false,
    };
    let access = || review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview");
    let token = || review("authentication.k8s.io", "tokenreviews", "TokenReview");
    let wanted = [config.kubernetes.is_some().then(access), is_token_reviewer.then(token)];
    wanted.into_iter().flatten().collect()
}
