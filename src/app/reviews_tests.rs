//! Tests of access and token reviews over a fake connection, with and without the cache of answers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;

use super::*;
use informer_hub_access::{ReviewCache, ReviewCacheOptions, Verb};
use informer_hub_types::Gvr;

/// Clusters that give all reviews the same answer after a second.
#[derive(Clone, Debug)]
struct FakeClusters(Arc<State>);

#[derive(Debug)]
struct State {
    answer: Mutex<Result<String, ReviewError>>,
    questions: Mutex<Vec<(String, &'static str, Value)>>,
    asked: AtomicU64,
}

impl FakeClusters {
    fn answering(status: &Value) -> Self {
        Self::with(Ok(json!({ "status": status }).to_string()))
    }

    fn with(answer: Result<String, ReviewError>) -> Self {
        let (answer, questions) = (Mutex::new(answer), Mutex::default());
        Self(Arc::new(State { answer, questions, asked: AtomicU64::new(0) }))
    }

    fn answer_from_now(&self, status: &Value) {
        *self.0.answer.lock() = Ok(json!({ "status": status }).to_string());
    }

    fn asked(&self) -> u64 {
        self.0.asked.load(Relaxed)
    }
}

impl SendReview for FakeClusters {
    fn send(
        &self,
        cluster: &ClusterName,
        path: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, ReviewError>> {
        let state = Arc::clone(&self.0);
        state.asked.fetch_add(1, Relaxed);
        state.questions.lock().push((cluster.to_string(), path, serde_json::from_slice(&body).unwrap()));
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            state.answer.lock().clone().map(String::into_bytes)
        }
        .boxed()
    }
}

fn cluster() -> ClusterName {
    ClusterName::new("eu").unwrap()
}

fn review(namespace: &str) -> Review {
    let user = User {
        name: "oidc:jane".into(),
        groups: vec!["oidc:sre".into(), "system:authenticated".into()],
        uid: Some("u1".into()),
        extra: [("scopes.example.com".into(), vec!["view".into()])].into(),
    };
    Review {
        cluster: cluster(),
        user: Arc::new(user),
        verb: Verb::Watch,
        resource: Gvr::new("apps", "v1", "deployments"),
        namespace: namespace.into(),
    }
}

#[tokio::test(start_paused = true)]
async fn access_review_has_the_whole_user_and_the_resource() {
    let clusters = FakeClusters::answering(&json!({ "allowed": true }));
    assert_eq!(ClusterReviews(clusters.clone()).review(&review("shop")).await, Ok(true));
    let expected = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "oidc:jane",
            "groups": ["oidc:sre", "system:authenticated"],
            "uid": "u1",
            "extra": { "scopes.example.com": ["view"] },
            "resourceAttributes": {
                "verb": "watch", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "shop",
            },
        },
    });
    assert_eq!(*clusters.0.questions.lock(), [("eu".to_owned(), ACCESS_REVIEWS, expected)]);
}

#[tokio::test(start_paused = true)]
async fn access_is_allowed_by_an_explicit_yes_only() {
    for (status, expected) in [
        (json!({ "allowed": true }), true),
        (json!({ "allowed": true, "reason": "RBAC" }), true),
        (json!({ "allowed": true, "denied": true }), false),
        (json!({ "allowed": false }), false),
        (json!({ "allowed": false, "denied": true, "evaluationError": "x" }), false),
        (json!({}), false),
    ] {
        let clusters = FakeClusters::answering(&status);
        assert_eq!(ClusterReviews(clusters).review(&review("shop")).await, Ok(expected), "{status}");
    }
    let not_a_review = ReviewError::Failed("the answer is not a review".into());
    for text in
        ["", "{}", "[]", "true", "{\"status\":null}", "{\"status\":{\"allowed\":\"true\"}}", "<html>", "{\"status\""]
    {
        let clusters = FakeClusters::with(Ok(text.to_owned()));
        assert_eq!(ClusterReviews(clusters).review(&review("shop")).await, Err(not_a_review.clone()), "{text}");
    }
    for error in [ReviewError::UnknownCluster, ReviewError::Timeout, ReviewError::Busy, not_a_review] {
        let clusters = FakeClusters::with(Err(error.clone()));
        assert_eq!(ClusterReviews(clusters).review(&review("shop")).await, Err(error));
    }
}

#[tokio::test]
async fn hub_that_has_not_started_allows_nothing() {
    let reviews = ClusterReviews::new(&StartedFleet::default());
    assert_eq!(reviews.review(&review("shop")).await, Err(ReviewError::UnknownCluster));
    assert_eq!(reviews.review_token(&cluster(), "t", None).await, Err(ReviewError::UnknownCluster));
}

#[test]
fn failures_say_what_to_do_and_repeat_no_text_of_the_cluster() {
    for (class, text) in [
        (ErrorClass::Forbidden, "the hub may not create the review: see informer-hub rbac"),
        (ErrorClass::Unauthorized, "the cluster refuses the credentials of the hub"),
        (ErrorClass::NotFound, "the cluster has no such API"),
        (ErrorClass::Transient, "the cluster cannot be reached or fails"),
    ] {
        let error = SourceError { class, message: "invalid token abc-0123456789".to_owned() };
        assert_eq!(failure(&error), ReviewError::Failed(text.into()));
    }
}

#[tokio::test(start_paused = true)]
async fn token_review_is_accepted_for_the_audience_of_the_hub_only() {
    let user = json!({
        "username": "system:serviceaccount:shop:web", "uid": "u2", "groups": ["system:serviceaccounts"],
        "extra": { "authentication.kubernetes.io/pod-name": ["web-0"] },
    });
    let known = User {
        name: "system:serviceaccount:shop:web".into(),
        groups: vec!["system:serviceaccounts".into()],
        uid: Some("u2".into()),
        extra: [("authentication.kubernetes.io/pod-name".into(), vec!["web-0".into()])].into(),
    };
    let status =
        |is_valid: bool, audiences: Value| json!({ "authenticated": is_valid, "user": user, "audiences": audiences });
    for (status, audience, expected) in [
        (status(true, json!(["hub"])), Some("hub"), Some(&known)),
        (status(true, json!(["other", "hub"])), Some("hub"), Some(&known)),
        (status(true, Value::Null), None, Some(&known)),
        // An apiserver that ignores audiences.
        (status(true, Value::Null), Some("hub"), None),
        (status(true, json!([])), Some("hub"), None),
        (status(true, json!(["other"])), Some("hub"), None),
        (status(false, json!(["hub"])), Some("hub"), None),
        (json!({ "error": "expired" }), Some("hub"), None),
    ] {
        let clusters = FakeClusters::answering(&status);
        let found = ClusterReviews(clusters.clone()).review_token(&cluster(), "t0k3n", audience).await;
        assert_eq!(found.unwrap().as_ref(), expected, "{status} {audience:?}");
        let [(of, path, question)] = &clusters.0.questions.lock()[..] else { panic!() };
        assert_eq!((of.as_str(), *path), ("eu", TOKEN_REVIEWS));
        let audiences: Vec<_> = audience.into_iter().collect();
        assert_eq!(question["spec"], json!({ "token": "t0k3n", "audiences": audiences }));
    }
    let minimal = FakeClusters::answering(&json!({ "authenticated": true, "user": { "username": "x" } }));
    let found = ClusterReviews(minimal).review_token(&cluster(), "t", None).await.unwrap().unwrap();
    assert_eq!((found.groups.len(), found.uid, found.extra.len()), (0, None, 0));
}

/// Creates a cache of at most `answers` review answers. Reviews without a cached answer are sent to the fake clusters.
fn cached(clusters: &FakeClusters, answers: usize) -> ReviewCache {
    let options = ReviewCacheOptions { answers, ..ReviewCacheOptions::default() };
    ReviewCache::new(Arc::new(ClusterReviews(clusters.clone())), options)
}

#[tokio::test(start_paused = true)]
async fn cached_answers_are_used_until_they_expire_and_failures_deny() {
    let clusters = FakeClusters::answering(&json!({ "allowed": true }));
    let cache = cached(&clusters, 100);
    // Concurrent equal questions send one review. Later ones are answered from the cache.
    let all = join_all((0..20).map(|_| cache.decide(review("shop")))).await;
    assert!(all.iter().all(|answer| *answer == Ok(true)));
    assert_eq!((cache.decide(review("shop")).await, clusters.asked()), (Ok(true), 1));
    assert_eq!((cache.decide(review("pay")).await, clusters.asked()), (Ok(true), 2));
    // A revoked right is noticed once the cached answer has expired.
    clusters.answer_from_now(&json!({ "allowed": false }));
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!((cache.decide(review("shop")).await, clusters.asked()), (Ok(false), 3));
    *clusters.0.answer.lock() = Err(failure(&SourceError { class: ErrorClass::Forbidden, message: "no".to_owned() }));
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(matches!(cache.decide(review("shop")).await, Err(ReviewError::Failed(_))));
    assert!(matches!(cache.decide(review("shop")).await, Err(ReviewError::Failed(_))));
    assert_eq!(clusters.asked(), 4, "a failure is kept too, for less time");
    clusters.answer_from_now(&json!({ "allowed": true }));
    tokio::time::advance(Duration::from_secs(6)).await;
    assert_eq!((cache.decide(review("shop")).await, clusters.asked()), (Ok(true), 5));
}

#[tokio::test(start_paused = true)]
async fn cached_answers_are_bounded() {
    let clusters = FakeClusters::answering(&json!({ "allowed": true }));
    let cache = cached(&clusters, 3);
    for namespace in ["a", "b", "c", "d"] {
        assert_eq!(cache.decide(review(namespace)).await, Ok(true));
    }
    for namespace in ["a", "b", "c", "d"] {
        assert_eq!(cache.decide(review(namespace)).await, Ok(true));
    }
    assert!(clusters.asked() > 4, "at least one was dropped");
}
