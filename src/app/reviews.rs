//! Sends access reviews of users, and token reviews, to clusters over the connections of the hub.
//!
//! A cluster decides about its own objects only. Its answer applies to no other cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use smol_str::SmolStr;

use super::read_api::StartedFleet;
use crate::actors::FleetView;
use informer_hub_access::{Review, ReviewError, ReviewTokens, Reviews, User};
use informer_hub_reflector::{ErrorClass, SourceError};
use informer_hub_types::ClusterName;

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Sends an access or token review to a cluster.
pub(super) trait SendReview: Send + Sync + 'static {
    /// Posts the review (JSON in `body`) to `path` of the cluster's API. Returns the body of the response.
    fn send(
        &self,
        cluster: &ClusterName,
        path: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, ReviewError>>;
}

impl SendReview for StartedFleet {
    fn send(
        &self,
        cluster: &ClusterName,
        path: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, ReviewError>> {
        let clusters = self.get().map(FleetView::clusters);
        let known = clusters.and_then(|mut all| all.find(|known| known.name == *cluster));
        let connection = known.map(|known| known.connection());
        async move {
            let connection = connection.ok_or(ReviewError::UnknownCluster)?;
            let connection = connection.ok_or_else(|| ReviewError::Failed("the cluster is not connected".into()))?;
            connection.review(path, body).await.map_err(|error| failure(&error))
        }
        .boxed()
    }
}

/// Sender of access and token reviews to clusters. By default, it uses the connections of the hub, and fails until the
/// hub has started.
pub(super) struct ClusterReviews<S = StartedFleet>(S);

impl ClusterReviews {
    pub(super) fn new(fleet: &StartedFleet) -> Self {
        Self(Arc::clone(fleet))
    }
}

impl<S: SendReview> ClusterReviews<S> {
    /// Sends an access or token review to a cluster and returns the `status` of the answered review.
    fn ask<T: for<'a> Deserialize<'a> + Send + 'static>(
        &self,
        cluster: &ClusterName,
        path: &'static str,
        review: &Value,
    ) -> BoxFuture<'static, Result<T, ReviewError>> {
        #[derive(Deserialize)]
        struct Answer<T> {
            status: T,
        }
        let sending = self.0.send(cluster, path, review.to_string().into_bytes());
        async move {
            let answer: Answer<T> = serde_json::from_slice(&sending.await?)
                .map_err(|_| ReviewError::Failed("the answer is not a review".into()))?;
            Ok(answer.status)
        }
        .boxed()
    }
}

/// User of a token, as a cluster describes it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct UserInfo {
    username: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

impl From<UserInfo> for User {
    fn from(UserInfo { username, uid, groups, extra }: UserInfo) -> Self {
        let short = |all: Vec<String>| all.into_iter().map(SmolStr::from).collect();
        let extra = extra.unwrap_or_default().into_iter().map(|(key, values)| (key.into(), short(values)));
        Self {
            name: username.into(),
            groups: short(groups.unwrap_or_default()),
            uid: Some(uid).filter(|uid| !uid.is_empty()).map(Into::into),
            extra: extra.collect(),
        }
    }
}

fn texts_of(all: &[SmolStr]) -> Vec<&str> {
    all.iter().map(SmolStr::as_str).collect()
}

/// Describes a failure in the hub's own words. The error text of the cluster is left out, since it could repeat the
/// token.
fn failure(error: &SourceError) -> ReviewError {
    ReviewError::Failed(
        match error.class {
            ErrorClass::Forbidden => "the hub may not create the review: see informer-hub rbac",
            ErrorClass::Unauthorized => "the cluster refuses the credentials of the hub",
            ErrorClass::NotFound => "the cluster has no such API",
            _ => "the cluster cannot be reached or fails",
        }
        .into(),
    )
}

impl<S: SendReview> Reviews for ClusterReviews<S> {
    fn review(&self, review: &Review) -> BoxFuture<'static, Result<bool, ReviewError>> {
        #[derive(Deserialize)]
        struct Status {
            #[serde(default)]
            allowed: bool,
            #[serde(default)]
            denied: bool,
        }
        let Review { cluster, user, verb, resource, namespace } = review;
        let User { name, groups, uid, extra } = &**user;
        let extra: BTreeMap<_, _> = extra.iter().map(|(key, values)| (key.as_str(), texts_of(values))).collect();
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": name.as_str(),
                "groups": texts_of(groups),
                "uid": uid.as_deref().unwrap_or_default(),
                "extra": extra,
                "resourceAttributes": {
                    "verb": verb.as_str(),
                    "group": resource.group.as_str(),
                    "version": resource.version.as_str(),
                    "resource": resource.resource.as_str(),
                    "namespace": namespace.as_str(),
                },
            },
        });
        let asking = self.ask::<Status>(cluster, ACCESS_REVIEWS, &question);
        async move { asking.await.map(|status| status.allowed && !status.denied) }.boxed()
    }
}

impl<S: SendReview> ReviewTokens for ClusterReviews<S> {
    fn review_token(
        &self,
        cluster: &ClusterName,
        token: &str,
        audience: Option<&str>,
    ) -> BoxFuture<'static, Result<Option<User>, ReviewError>> {
        #[derive(Deserialize)]
        struct Status {
            #[serde(default)]
            authenticated: bool,
            #[serde(default)]
            user: UserInfo,
            #[serde(default)]
            audiences: Option<Vec<String>>,
        }
        let audiences: Vec<&str> = audience.into_iter().collect();
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token, "audiences": audiences },
        });
        let asking = self.ask::<Status>(cluster, TOKEN_REVIEWS, &question);
        let audience = audience.map(str::to_owned);
        async move {
            let Status { authenticated, user, audiences } = asking.await?;
            // An apiserver that ignores audiences answers without them. The token is then for the apiserver, not the
            // hub.
            let is_for_hub = audience.is_none_or(|audience| audiences.unwrap_or_default().contains(&audience));
            Ok((authenticated && is_for_hub).then(|| user.into()))
        }
        .boxed()
    }
}

impl<S> fmt::Debug for ClusterReviews<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterReviews").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
