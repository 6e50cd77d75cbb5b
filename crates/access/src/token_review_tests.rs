//! Tests of token reviews against clusters in memory.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::*;

/// Simulated clusters, with the answers that a test sets. A cluster without an answer never responds.
#[derive(Debug, Default)]
struct Clusters {
    answers: Mutex<BTreeMap<&'static str, Result<Option<&'static str>, ReviewError>>>,
    asked: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Port(Arc<Clusters>);

impl ReviewTokens for Port {
    fn review_token(
        &self,
        cluster: &ClusterName,
        token: &str,
        audience: Option<&str>,
    ) -> BoxFuture<'static, Result<Option<User>, ReviewError>> {
        assert!(token.contains('.') && audience == Some("hub"));
        self.0.asked.lock().push(cluster.to_string());
        let Some(answer) = self.0.answers.lock().get(cluster.as_str()).cloned() else {
            return futures::future::pending().boxed();
        };
        let user = |name: &str| User { name: name.into(), groups: Vec::new(), uid: None, extra: BTreeMap::new() };
        async move {
            tokio::task::yield_now().await;
            answer.map(|name| name.map(user))
        }
        .boxed()
    }
}

const GRAFANA: &str = "system:serviceaccount:tools:grafana";

fn started() -> (Arc<Clusters>, TokenReviewer) {
    let clusters = ["eu", "us"].map(|name| ClusterName::new(name).unwrap()).to_vec();
    let settings = TokenReviewSettings { clusters, audience: Some("hub".to_owned()), kept: Duration::from_secs(60) };
    let port = Arc::<Clusters>::default();
    (Arc::clone(&port), TokenReviewer::new(settings, Arc::new(Port(port)), Arc::default()))
}

fn token(changes: &Value) -> String {
    let mut claims = json!({ "sub": GRAFANA, "aud": ["hub"], "exp": clock::wall().as_second() + 3600 });
    for (key, value) in changes.as_object().unwrap() {
        claims[key] = value.clone();
    }
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.AAAA", encode(&json!({ "alg": "RS256" })), encode(&claims))
}

fn set(clusters: &Clusters, name: &'static str, answer: Result<Option<&'static str>, ReviewError>) {
    clusters.answers.lock().insert(name, answer);
}

#[tokio::test(start_paused = true)]
async fn accepted_token_is_of_its_cluster_and_is_kept() {
    let (clusters, reviewer) = started();
    set(&clusters, "eu", Ok(None));
    set(&clusters, "us", Ok(Some(GRAFANA)));
    let token = token(&json!({}));
    let account = reviewer.authenticate(&token).await.unwrap();
    assert_eq!((account.cluster.as_str(), account.user.name.as_str()), ("us", GRAFANA));
    assert!(account.expires.unwrap() > clock::wall());
    set(&clusters, "us", Ok(None));
    reviewer.authenticate(&token).await.unwrap();
    assert_eq!(clusters.asked.lock().len(), 2, "each cluster once");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(reviewer.authenticate(&token).await, Err(RefusedToken::Unknown), "withdrawn");
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_share_a_review() {
    let (clusters, reviewer) = started();
    set(&clusters, "eu", Ok(Some(GRAFANA)));
    let token = token(&json!({}));
    let all = join_all((0..50).map(|_| reviewer.authenticate(&token))).await;
    assert!(all.iter().all(Result::is_ok), "the second cluster hangs, which delays but does not refuse");
    assert_eq!(clusters.asked.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn late_caller_does_not_keep_an_older_answer_than_the_newest_review() {
    let (clusters, reviewer) = started();
    set(&clusters, "eu", Ok(Some(GRAFANA)));
    set(&clusters, "us", Ok(None));
    let token = token(&json!({}));
    let mut late = Box::pin(reviewer.authenticate(&token));
    assert!(futures::poll!(late.as_mut()).is_pending());
    assert!(reviewer.authenticate(&token).await.is_ok());
    // The first answer expires before `late` is polled again. Meanwhile the token is withdrawn.
    tokio::time::advance(Duration::from_secs(61)).await;
    set(&clusters, "eu", Ok(None));
    let mut newer = Box::pin(reviewer.authenticate(&token));
    assert!(futures::poll!(newer.as_mut()).is_pending());
    assert!(late.await.is_ok(), "its review had accepted the token");
    assert_eq!(newer.await, Err(RefusedToken::Unknown));
    assert_eq!(reviewer.authenticate(&token).await, Err(RefusedToken::Unknown), "the older answer is not kept");
}

#[tokio::test(start_paused = true)]
async fn cluster_that_does_not_answer_authenticates_nobody() {
    let (clusters, reviewer) = started();
    let token = token(&json!({}));
    let begun = clock::now();
    assert_eq!(reviewer.authenticate(&token).await, Err(RefusedToken::Unanswered));
    assert!(clock::now() - begun <= DEADLINE + Duration::from_secs(1));
    set(&clusters, "us", Ok(None));
    set(&clusters, "eu", Err(ReviewError::UnknownCluster));
    assert_eq!(reviewer.authenticate(&token).await, Err(RefusedToken::Unanswered));
    set(&clusters, "eu", Ok(Some(GRAFANA)));
    assert!(reviewer.authenticate(&token).await.is_ok(), "a failure is not kept");
}

#[tokio::test(start_paused = true)]
async fn tokens_of_no_service_account_reach_no_cluster() {
    let (clusters, reviewer) = started();
    let over = clock::wall().as_second() - 1;
    for foreign in [
        "opaque-token-of-someone".to_owned(),
        "a.b.c".to_owned(),
        token(&json!({ "sub": "jane" })),
        token(&json!({ "aud": ["https://kubernetes.default.svc"] })),
        token(&json!({ "exp": over })),
        token(&json!({ "exp": "never" })),
    ] {
        assert_eq!(reviewer.authenticate(&foreign).await, Err(RefusedToken::Unknown), "{foreign}");
    }
    assert!(clusters.asked.lock().is_empty());
    set(&clusters, "eu", Ok(Some("system:admin")));
    set(&clusters, "us", Ok(Some("jane")));
    assert_eq!(reviewer.authenticate(&token(&json!({}))).await, Err(RefusedToken::Unknown), "no service account");
}

#[tokio::test(start_paused = true)]
async fn kept_answers_are_bounded_and_end_with_the_token() {
    let (clusters, reviewer) = started();
    set(&clusters, "eu", Ok(Some(GRAFANA)));
    set(&clusters, "us", Ok(None));
    clock::set_wall(Some(clock::wall()));
    let short = token(&json!({ "exp": clock::wall().as_second() + 5 }));
    assert!(reviewer.authenticate(&short).await.is_ok());
    tokio::time::advance(Duration::from_secs(6)).await;
    assert_eq!(reviewer.authenticate(&short).await, Err(RefusedToken::Unknown));
    let mut kept = Kept::default();
    for number in 0..MAX_ANSWERS + 10 {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        kept.insert(key, clock::now() + Duration::from_millis(number as u64), Err(RefusedToken::Unknown));
    }
    assert_eq!((kept.answers.len(), kept.expiries.len()), (MAX_ANSWERS, MAX_ANSWERS));
    assert!(kept.get(&[0; 32]).is_none(), "the first to expire made room");
    clock::set_wall(None);
}
