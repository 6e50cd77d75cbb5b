//! Readers with rules.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use futures::FutureExt;
use informer_hub_access::{
    Grants, ReaderOrigin, ReaderParts, ResourceMatch, Review, ReviewCache, ReviewCacheOptions, ReviewError, Reviews,
    Rule, Verb,
};
use informer_hub_protobuf::{END_OF_ENVELOPE, Encoder, Schema, TypeMeta, begin_envelope};
use informer_hub_types::{ClusterSelector, Exclusion};

use super::*;

mod grown;
mod model;
mod reviews;

/// Reader `ann` with these rules.
pub(in crate::api) fn ann(rules: Vec<Rule>) -> Reader {
    Reader::named("ann", ReaderOrigin::Table("ann".into()), Grants { rules: rules.into(), ..Grants::default() })
}

/// A rule for the clusters of a tier; `None` is all clusters.
pub(in crate::api) fn rule(tier: Option<&str>, namespaces: &[&str], resources: &[&str], except: &[&str]) -> Rule {
    let clusters = tier
        .map_or(ClusterSelector::All, |tier| ClusterSelector::Labels([("tier".to_owned(), tier.to_owned())].into()));
    let of = |texts: &[&str]| texts.iter().map(|text| text.parse::<Exclusion>().unwrap().into()).collect();
    let (resources, except): (Vec<ResourceMatch>, Vec<ResourceMatch>) = (of(resources), of(except));
    Rule::new(clusters, namespaces, resources, except)
}

fn secrets() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "secrets"), kind: "Secret".into(), namespaced: true }
}

fn nodes() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "nodes"), kind: "Node".into(), namespaced: false }
}

/// Two clusters, each with three pods in `shop` and `pay`, a Secret in `shop` and a node. The reader sees the pods in
/// `shop` of cluster `a`.
fn bench() -> Bench {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    for cluster in ["a", "b"] {
        let of = |name: &str, namespace: &str, version| pod(namespace, name, version, "web", "n1");
        bench.list(&pods(), cluster, vec![of("x", "pay", 2), of("x", "shop", 3), of("y", "shop", 5)], 10);
        bench.list(&secrets(), cluster, vec![of("key", "shop", 6)], 10);
        bench.list(&nodes(), cluster, vec![of("n1", "", 7)], 10);
    }
    bench.reader = ann(vec![rule(Some("prod"), &["shop"], &["*"], &[])]);
    bench
}

#[tokio::test]
async fn refusals_have_the_texts_of_kube_apiserver() {
    let bench = bench();
    for (path, code, message) in [
        (
            "/clusters/a/api/v1/namespaces/pay/pods",
            403,
            "pods is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" in the namespace \"pay\"",
        ),
        (
            "/clusters/a/api/v1/namespaces/pay/pods/x",
            403,
            "pods \"x\" is forbidden: User \"ann\" cannot get resource \"pods\" in API group \"\" in the namespace \"pay\"",
        ),
        (
            "/clusters/a/api/v1/namespaces/pay/pods?watch=1",
            403,
            "pods is forbidden: User \"ann\" cannot watch resource \"pods\" in API group \"\" in the namespace \"pay\"",
        ),
        (
            "/clusters/a/api/v1/nodes",
            403,
            "nodes is forbidden: User \"ann\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "/clusters/a/api/v1/namespaces/shop/secrets",
            403,
            "secrets is forbidden: User \"ann\" cannot list resource \"secrets\" in API group \"\" in the namespace \"shop\"",
        ),
        (
            "/clusters/*/api/v1/secrets",
            403,
            "secrets is forbidden: User \"ann\" cannot list resource \"secrets\" in API group \"\" at the cluster scope",
        ),
        ("/clusters/b/api/v1/pods", 404, "the server could not find the requested resource"),
        ("/clusters/none/api/v1/pods", 404, "the server could not find the requested resource"),
    ] {
        let (found, status) = bench.json(path).await;
        assert_eq!((found, status["message"].as_str().unwrap()), (code, message), "{path}");
        assert_eq!(status["reason"], if code == 403 { "Forbidden" } else { "NotFound" }, "{path}");
    }
    let unknown = |name: &str| format!("the hub has no cluster {name}: /v1/status lists its clusters");
    for name in ["b", "none"] {
        assert_eq!(bench.json(&format!("/clusters/{name}/version")).await.1["message"], unknown(name));
    }
}

#[tokio::test]
async fn request_without_a_reader_sees_nothing() {
    let mut bench = bench();
    bench.reader = Reader::unknown();
    assert_eq!(bench.json("/clusters/a/api/v1/pods").await.0, 404);
    assert_eq!(bench.json("/clusters/*/api/v1/pods").await.0, 403);
    assert_eq!(bench.json("/v1/query?resource=pods").await.0, 404);
}

#[tokio::test]
async fn secrets_are_visible_to_readers_with_a_rule_that_names_them() {
    let mut bench = bench();
    for (resources, code) in [(&["*"][..], 403), (&["*", "secrets"], 200)] {
        bench.reader = ann(vec![rule(None, &["*"], resources, &[])]);
        let (found, list) = bench.json("/clusters/a/api/v1/secrets").await;
        assert_eq!((found, items_of(&list)), (code, usize::from(code == 200)), "{resources:?}");
        let (_, discovery) = bench.json("/clusters/a/api/v1").await;
        assert_eq!(discovery.to_string().contains("secrets"), code == 200);
    }
}

fn items_of(list: &Value) -> usize {
    list["items"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn counts_pages_and_tokens_are_of_the_visible_objects() {
    let mut bench = bench();
    let (_, page) = bench.json("/clusters/*/api/v1/pods?limit=1").await;
    assert_eq!((items(&page).len(), &page["metadata"]["remainingItemCount"]), (1, &json!(1)));
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let (_, rest) = bench.json(&format!("/clusters/*/api/v1/pods?limit=5&continue={token}")).await;
    assert_eq!(items(&rest), ["y@1003"]);
    // With the same token, another reader gets only objects that it may see.
    bench.reader = ann(vec![rule(Some("dev"), &["pay"], &["pods"], &[])]);
    let (_, rest) = bench.json(&format!("/clusters/*/api/v1/pods?limit=5&continue={token}")).await;
    assert_eq!(items(&rest), ["x@1004"]);
}

#[tokio::test]
async fn watch_follows_the_labels_of_clusters() {
    let bench = bench();
    let mut events = bench.watch("/clusters/*/api/v1/pods?watch=1&resourceVersion=1006").await;
    bench.relabel("b", "prod");
    assert_eq!([events.line().await, events.line().await], ["ADDED x@1008", "ADDED y@1009"]);
    bench.event("b", DeltaKind::Updated, pod("pay", "x", 11, "web", "n1"));
    bench.event("b", DeltaKind::Updated, pod("shop", "y", 12, "web", "n1"));
    assert_eq!(events.line().await, "MODIFIED y@1011");
    bench.relabel("a", "dev");
    assert_eq!([events.line().await, events.line().await], ["DELETED x@1013", "DELETED y@1014"]);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_within_ten_seconds_after_a_right_is_revoked() {
    let rules = Arc::new(Mutex::new(Some(ann(vec![rule(None, &["shop"], &["*"], &[])]))));
    let current = Arc::clone(&rules);
    let mut bench = bench();
    bench.use_current(Arc::new(move |_| current.lock().clone()));
    bench.reader = rules.lock().clone().unwrap();
    for now in [Some(ann(vec![rule(None, &["pay"], &["*"], &[])])), None] {
        let mut events = bench.watch("/clusters/a/api/v1/pods?watch=1&resourceVersion=10").await;
        assert!(tokio::time::timeout(Duration::from_secs(9), events.next_unbounded()).await.is_err());
        *rules.lock() = now;
        let began = clock::now();
        let event = events.next_unbounded().await.unwrap();
        assert!(clock::now() - began <= Duration::from_secs(10));
        assert_eq!(line(&event), "ERROR Expired@-");
        assert_eq!(events.next_unbounded().await, None);
        *rules.lock() = Some(bench.reader.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn watch_ends_when_its_credential_expires() {
    let mut bench = bench();
    let expires = clock::wall() + Duration::from_secs(15);
    bench.reader = Reader::new(ReaderParts { expires: Some(expires), ..bench.reader.parts().clone() });
    let began = clock::now();
    let mut events = bench.watch("/clusters/a/api/v1/pods?watch=1&resourceVersion=10").await;
    assert!(events.next_unbounded().now_or_never().is_none());
    clock::set_wall(Some(expires));
    assert_eq!(line(&events.next_unbounded().await.unwrap()), "ERROR Expired@-");
    assert!(clock::now() - began <= Duration::from_secs(20));
    clock::set_wall(None);
}

#[tokio::test]
async fn self_subject_reviews_answer_what_the_hub_would() {
    let mut bench = bench();
    let post = async |bench: &Bench, path: &str, body: Value| {
        let request = Request::post(path).header("content-type", "application/json");
        let response = bench.send(request.body(Body::from(body.to_string())).unwrap()).await;
        let code = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (code, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let access = |verb: &str, resource: &str, namespace: &str| {
        json!({
            "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
            "spec": { "resourceAttributes": { "verb": verb, "resource": resource, "namespace": namespace } },
        })
    };
    for (root, verb, resource, namespace, expected) in [
        ("/clusters/a", "list", "pods", "shop", true),
        ("/clusters/a", "list", "pods", "pay", false),
        ("/clusters/a", "list", "pods", "", true),
        ("/clusters/a", "delete", "pods", "shop", false),
        ("/clusters/a", "get", "nodes", "", false),
        ("/clusters/a", "get", "secrets", "shop", false),
        ("/clusters/a", "get", "*", "shop", false),
        ("/clusters/*", "watch", "pods", "shop", true),
        ("/clusters/tier=dev", "watch", "pods", "shop", false),
    ] {
        let path = format!("{root}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let (code, answer) = post(&bench, &path, access(verb, resource, namespace)).await;
        let case = format!("{root} {verb} {resource} {namespace}: {answer}");
        assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(expected)), "{case}");
        assert_eq!(
            (&answer["kind"], &answer["spec"]["resourceAttributes"]["verb"]),
            (&json!("SelfSubjectAccessReview"), &json!(verb))
        );
        if expected {
            let namespace = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
            assert_eq!(bench.ask(&format!("{root}/api/v1/{namespace}{resource}"), "*/*").await.0, 200, "{case}");
        }
    }
    let path = "/clusters/a/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let of_path = |path: &str| json!({ "spec": { "nonResourceAttributes": { "verb": "get", "path": path } } });
    assert_eq!(post(&bench, path, of_path("/apis/apps")).await.1["status"]["allowed"], true);
    assert_eq!(post(&bench, path, of_path("/metrics")).await.1["status"]["allowed"], false);
    assert_eq!(post(&bench, path, json!({ "spec": {} })).await.0, 400);
    assert_eq!(post(&bench, &path.replace("clusters/a", "clusters/b"), of_path("/api")).await.0, 404);
    let rules = "/clusters/a/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let (_, answer) = post(&bench, rules, json!({ "spec": { "namespace": "shop" } })).await;
    let rule = json!([{ "verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"] }]);
    assert_eq!((&answer["status"]["resourceRules"], &answer["status"]["incomplete"]), (&rule, &json!(false)));
    let (_, answer) = post(&bench, rules, json!({ "spec": { "namespace": "pay" } })).await;
    assert_eq!(answer["status"]["resourceRules"], json!([]));
    let groups = vec!["system:authenticated".into()];
    bench.reader = Reader::new(ReaderParts { groups, uid: Some("7".into()), ..bench.reader.parts().clone() });
    let (code, answer) = post(&bench, "/clusters/a/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).await;
    let info = json!({ "username": "ann", "uid": "7", "groups": ["system:authenticated"] });
    assert_eq!((code, &answer["status"]["userInfo"]), (201, &info));
    for (path, body) in [
        (path, json!([])),
        (path, json!({ "spec": "get pods" })),
        (path, json!({ "kind": "Pod", "apiVersion": "v1", "spec": access("list", "pods", "shop")["spec"] })),
        (path, json!({ "kind": 1, "spec": access("list", "pods", "shop")["spec"] })),
        (rules, json!({ "spec": {} })),
        (rules, json!({ "spec": { "namespace": 1 } })),
        ("/clusters/a/apis/authentication.k8s.io/v1/selfsubjectreviews", json!("ann")),
    ] {
        let (code, answer) = post(&bench, path, body.clone()).await;
        assert_eq!((code, &answer["reason"]), (400, &json!("BadRequest")), "{body}: {answer}");
    }
    let large = Request::post(path).body(Body::from(vec![b' '; 70_000])).unwrap();
    assert_eq!(bench.send(large).await.status(), 413);
    let yaml = Request::post(path).header("content-type", "application/yaml").body(Body::from("{}")).unwrap();
    assert_eq!(bench.send(yaml).await.status(), 415);
}

#[tokio::test]
async fn self_subject_reviews_are_read_as_protobuf_too() {
    let bench = bench();
    let path = "/clusters/a/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let send = async |body: Vec<u8>| {
        let request = Request::post(path).header("content-type", "application/vnd.kubernetes.protobuf");
        let response = bench.send(request.body(Body::from(body)).unwrap()).await;
        let code = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (code, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (api_version, kind) = ("authorization.k8s.io/v1", "SelfSubjectAccessReview");
    let encoded = |verb: &str, namespace: &str| {
        let attributes = json!({ "verb": verb, "resource": "pods", "namespace": namespace });
        let review =
            json!({ "metadata": {}, "spec": { "resourceAttributes": attributes }, "status": { "allowed": false } });
        let message = Schema::builtin().kind(api_version, kind).unwrap();
        let (mut raw, mut body) = (Vec::new(), Vec::new());
        Encoder::default().object(message, review.to_string().as_bytes(), 1 << 20, &mut raw).unwrap();
        begin_envelope(&mut body, TypeMeta { api_version, kind }, raw.len());
        body.extend_from_slice(&raw);
        body.extend_from_slice(END_OF_ENVELOPE);
        body
    };
    for (verb, namespace, expected) in [("list", "shop", true), ("list", "pay", false), ("delete", "shop", false)] {
        let (code, answer) = send(encoded(verb, namespace)).await;
        assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(expected)), "{verb} {namespace}: {answer}");
        assert_eq!(answer["spec"]["resourceAttributes"]["verb"], verb);
    }
    let whole = encoded("list", "shop");
    for end in 0..whole.len() {
        // A truncated body neither panics nor allows the access.
        let (code, answer) = send(whole[..end].to_vec()).await;
        assert!(code == 400 || answer["status"]["allowed"] == false || end > whole.len() - 5, "{end}: {answer}");
    }
    assert_eq!(send(b"k8s\0".to_vec()).await.0, 400);
}

/// Clusters that answer access reviews from `allowed`, whatever the user and resource.
#[derive(Debug, Default)]
pub(in crate::api) struct Rbac {
    /// Allowed clusters and namespaces; an empty namespace allows all.
    pub(in crate::api) allowed: Mutex<BTreeSet<(String, String)>>,
    pub(in crate::api) is_down: AtomicBool,
    /// Verbs that a cluster denies in a namespace although it is allowed.
    denied: Mutex<BTreeSet<(Verb, String, String)>>,
    /// Verbs about which a cluster does not answer.
    silent: Mutex<BTreeSet<(Verb, String)>>,
    asked: AtomicU64,
    /// Called once, before the first answer.
    before: Before,
}

#[derive(Default)]
struct Before(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Before").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct AskRbac(Arc<Rbac>);

impl Reviews for AskRbac {
    fn review(&self, review: &Review) -> BoxFuture<'static, Result<bool, ReviewError>> {
        if let Some(before) = self.0.before.0.lock().take() {
            before();
        }
        self.0.asked.fetch_add(1, Relaxed);
        let allowed = self.0.allowed.lock();
        let is_allowed = |namespace: &str| allowed.contains(&(review.cluster.to_string(), namespace.to_owned()));
        let (verb, cluster) = (review.verb, review.cluster.to_string());
        let is_denied = self.0.denied.lock().contains(&(verb, cluster.clone(), review.namespace.to_string()));
        let answer = (is_allowed("") || is_allowed(&review.namespace)) && !is_denied;
        let is_silent = self.0.silent.lock().contains(&(verb, cluster)) || self.0.is_down.load(Relaxed);
        let answer = if is_silent { Err(ReviewError::Timeout) } else { Ok(answer) };
        Box::pin(async move { answer })
    }
}

/// Returns the bench with the reader `bob`, whose rights the clusters decide, and their answers: all of `b`, and `shop`
/// of `a`, are allowed.
pub(in crate::api) fn reviewed_bench() -> (Bench, Arc<Rbac>) {
    let rbac = Arc::new(Rbac::default());
    let places = [("b", ""), ("a", "shop")].map(|(cluster, namespace)| (cluster.to_owned(), namespace.to_owned()));
    rbac.allowed.lock().extend(places);
    let mut bench = bench();
    let options = ReviewCacheOptions { kept: Duration::from_secs(5), ..ReviewCacheOptions::default() };
    bench.use_reviews(Arc::new(ReviewCache::new(Arc::new(AskRbac(Arc::clone(&rbac))), options)));
    let grants = Grants { reviews: true, ..Grants::default() };
    bench.reader = Reader::named("bob", ReaderOrigin::Oidc, grants);
    (bench, rbac)
}

fn has_warning(headers: &HeaderMap, text: &str) -> bool {
    headers.get_all("warning").iter().any(|value| value.to_str().unwrap().contains(text))
}

#[tokio::test(start_paused = true)]
async fn reviewed_reader_sees_what_each_cluster_allows() {
    let (bench, rbac) = reviewed_bench();
    for (path, code, expected) in [
        ("/clusters/b/api/v1/pods", 200, 3),
        ("/clusters/a/api/v1/pods", 403, 0),
        ("/clusters/a/api/v1/namespaces/shop/pods", 200, 2),
        ("/clusters/a/api/v1/namespaces/pay/pods", 403, 0),
        ("/clusters/*/api/v1/pods", 200, 5),
        ("/clusters/*/api/v1/namespaces/pay/pods", 200, 1),
        ("/clusters/a/api/v1/nodes", 403, 0),
        ("/clusters/*/api/v1/nodes", 200, 1),
    ] {
        let (found, list) = bench.json(path).await;
        assert_eq!((found, items_of(&list)), (code, expected), "{path}: {list}");
    }
    assert_eq!(bench.json("/v1/query?resource=pods&q=count").await.1["count"], 5);
    assert_eq!(bench.json("/v1/query?resource=pods&q=count").await.1["coverage"]["rightsUnknown"], Value::Null);
    // A cluster that does not answer shows nothing, and the answer says so.
    rbac.is_down.store(true, Relaxed);
    tokio::time::advance(Duration::from_secs(6)).await;
    let (status, headers, body) = bench.ask("/clusters/*/api/v1/pods", "application/json").await;
    let list: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status.as_u16(), items_of(&list)), (200, 0));
    assert!(headers["warning"].to_str().unwrap().contains("a (rights unknown: the cluster did not answer in time)"));
    assert_eq!(bench.json("/clusters/b/api/v1/pods").await.0, 403);
    let (_, headers, body) = bench.ask("/v1/query?resource=pods&q=count&clusters=a", "application/json").await;
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let error = "the cluster did not answer in time";
    assert_eq!((&answer["count"], &answer["complete"]), (&json!(0), &json!(false)));
    assert_eq!(answer["coverage"]["rightsUnknown"], json!([{ "cluster": "a", "error": error }]));
    assert!(has_warning(&headers, "a (rights unknown"), "{headers:?}");
}

#[tokio::test(start_paused = true)]
async fn namespace_that_appears_during_the_review_is_in_the_initial_state() {
    let (bench, rbac) = reviewed_bench();
    rbac.allowed.lock().insert(("a".to_owned(), "fresh".to_owned()));
    let (fleet, id) = (Arc::clone(&bench.fleet), bench.partitions[&("a".to_owned(), pods().gvr)]);
    *rbac.before.0.lock() = Some(Box::new(move || {
        let mut fifo = DeltaFifo::new(usize::MAX);
        let object = Arc::new(pod("fresh", "f", 11, "web", "n1"));
        fifo.push(Change::Delta(Delta { kind: DeltaKind::Added, object }));
        let mut stores = fleet.stores.lock();
        stores.get_mut(&pods().gvr).unwrap().apply_up_to(id, fifo.pop(usize::MAX), Some(ResourceVersion::new("11")));
    }));
    let mut events = bench.watch("/clusters/*/api/v1/pods?watch=1").await;
    let mut names = BTreeSet::new();
    for _ in 0..6 {
        names.insert(line(&events.next_unbounded().await.unwrap()));
    }
    assert!(names.iter().any(|line| line.starts_with("ADDED f@")), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn namespaces_beyond_the_bound_are_reported() {
    let (mut bench, rbac) = reviewed_bench();
    rbac.allowed.lock().insert(("a".to_owned(), "n0001".to_owned()));
    let many = (0..2_001).map(|number| pod(&format!("n{number:04}"), "x", 20 + number, "web", "n1"));
    bench.list(&pods(), "a", many.collect(), 5_000);
    let (status, headers, body) = bench.ask("/clusters/*/api/v1/pods", "application/json").await;
    let list: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status.as_u16(), items_of(&list)), (200, 4), "three of b, one of a");
    let expected = "a (rights unknown: only 2000 of 2001 namespaces were reviewed)";
    assert!(has_warning(&headers, expected), "{headers:?}");
    // A watch has the changes of the last namespace, and a list does not, so neither makes the client list again.
    rbac.allowed.lock().insert(("a".to_owned(), "n2000".to_owned()));
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = bench.watch(&format!("/clusters/*/api/v1/pods?watch=1&resourceVersion={version}")).await;
    bench.event("a", DeltaKind::Updated, pod("n2000", "x", 6_000, "web", "n1"));
    assert!(line(&events.next_unbounded().await.unwrap()).starts_with("MODIFIED x@"));
}

#[tokio::test(start_paused = true)]
async fn stream_ends_when_other_namespaces_are_visible_after_a_relabel() {
    let rules = [rule(Some("prod"), &["shop"], &["*"], &[]), rule(Some("dev"), &["pay"], &["*"], &[])];
    let mut bench = bench();
    bench.use_current(Arc::new(|reader| Some(reader.clone())));
    bench.reader = ann(rules.to_vec());
    for path in
        ["/clusters/*/api/v1/pods?watch=1&resourceVersion=1006", "/clusters/a/api/v1/pods?watch=1&resourceVersion=10"]
    {
        let mut events = bench.watch(path).await;
        assert!(tokio::time::timeout(Duration::from_secs(25), events.next_unbounded()).await.is_err(), "{path}");
        bench.relabel("a", "dev");
        let began = clock::now();
        assert_eq!(line(&events.next_unbounded().await.unwrap()), "ERROR Expired@-", "{path}");
        assert!(clock::now() - began <= Duration::from_secs(10));
        bench.relabel("a", "prod");
    }
    // At a root of one cluster, the watch also ends if the reader loses the whole cluster, instead of deleting its
    // objects.
    bench.reader = ann(vec![rule(Some("prod"), &["*"], &["*"], &[])]);
    let mut events = bench.watch("/clusters/a/api/v1/pods?watch=1&resourceVersion=10").await;
    bench.relabel("a", "dev");
    assert_eq!(line(&events.next_unbounded().await.unwrap()), "ERROR Expired@-");
}

#[tokio::test(start_paused = true)]
async fn reviewed_reader_sees_an_object_with_what_is_visible_around_it() {
    let (bench, rbac) = reviewed_bench();
    for (path, code) in [
        ("/v1/objects/a/pods/shop/x", 200),
        ("/v1/objects/a/pods/pay/x", 404),
        ("/v1/objects/b/pods/pay/x", 200),
        ("/v1/objects/a/nodes/n1", 404),
        ("/v1/objects/b/nodes/n1", 200),
        ("/v1/objects/none/pods/shop/x", 404),
    ] {
        assert_eq!(bench.json(path).await.0, code, "{path}");
    }
    // The similar name `a` is not suggested, because no rule selects the cluster.
    let (_, answer) = bench.json("/v1/objects/aa/pods/shop/x").await;
    assert_eq!(answer["error"], "the hub has no cluster \"aa\"");
    rbac.is_down.store(true, Relaxed);
    tokio::time::advance(Duration::from_secs(6)).await;
    assert_eq!(bench.json("/v1/objects/a/pods/shop/x").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn status_of_a_reviewed_reader_has_what_clusters_have_allowed_lately() {
    let (bench, _) = reviewed_bench();
    let informer = |resource: &str| json!({ "resource": resource, "synced": true, "objects": 7 });
    let cluster = |name: &str| json!({ "name": name, "informers": [informer("pods"), informer("nodes")] });
    let status = || {
        let status = json!({ "ready": true, "clusters": [cluster("a"), cluster("b")] });
        bench.api.rights().status(&bench.reader, status, &bench.api.resources())["clusters"].clone()
    };
    assert_eq!(status(), json!([]));
    assert_eq!(bench.json("/clusters/*/api/v1/pods").await.0, 200);
    let pods = json!({ "resource": "pods", "synced": true });
    let expected = json!([{ "name": "a", "informers": [pods] }, { "name": "b", "informers": [informer("pods")] }]);
    assert_eq!(status(), expected);
    tokio::time::advance(Duration::from_secs(6)).await;
    assert_eq!(status(), json!([]));
}

#[tokio::test(start_paused = true)]
async fn service_account_is_known_to_its_own_cluster_only() {
    let (mut bench, _) = reviewed_bench();
    let cluster = ClusterName::new("a").unwrap();
    let grants = Grants { reviews: true, ..Grants::default() };
    bench.reader = Reader::named("system:serviceaccount:shop:web", ReaderOrigin::ServiceAccount { cluster }, grants);
    let (_, list) = bench.json("/clusters/*/api/v1/pods").await;
    assert_eq!(items_of(&list), 2);
    assert_eq!(bench.json("/clusters/b/api/v1/pods").await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn reviewed_watch_asks_about_new_namespaces_and_ends_when_an_answer_changes() {
    let (bench, rbac) = reviewed_bench();
    rbac.allowed.lock().insert(("a".to_owned(), "new".to_owned()));
    let mut events = bench.watch("/clusters/*/api/v1/pods?watch=1&resourceVersion=1006").await;
    bench.event("a", DeltaKind::Added, pod("new", "n", 11, "web", "n1"));
    bench.event("a", DeltaKind::Added, pod("hidden", "h", 12, "web", "n1"));
    bench.event("b", DeltaKind::Added, pod("hidden", "h", 13, "web", "n1"));
    let names = [events.next_unbounded().await, events.next_unbounded().await].map(|event| line(&event.unwrap()));
    assert_eq!(names, ["ADDED n@1007", "ADDED h@1009"]);
    rbac.allowed.lock().remove(&("a".to_owned(), "shop".to_owned()));
    let began = clock::now();
    assert_eq!(line(&events.next_unbounded().await.unwrap()), "ERROR Expired@-");
    assert!(clock::now() - began < Duration::from_secs(30));
}

#[tokio::test]
async fn definition_of_a_custom_resource_is_that_of_a_cluster_that_the_reader_sees() {
    let gadgets = ApiResource { gvr: Gvr::new("ex.io", "v1", "gadgets"), kind: "Gadget".into(), namespaced: true };
    let mut bench = Bench::with_pods();
    for cluster in ["a", "b"] {
        bench.list(&gadgets, cluster, vec![pod("shop", "g", 3, "web", "n1")], 10);
    }
    let dev = ann(vec![rule(Some("dev"), &["*"], &["*"], &[])]);
    let columns = async |bench: &Bench, root: &str| {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let (code, answer) = bench.json_of(&format!("/clusters/{root}/apis/ex.io/v1/gadgets"), table).await;
        let titles = answer["columnDefinitions"].as_array().into_iter().flatten().map(|it| it["name"].clone());
        (code, titles.filter(|title| *title != "Name" && *title != "Age").collect::<Vec<_>>())
    };
    // A cached definition is used only for the same cluster and for readers that see the cluster.
    for _ in 0..2 {
        assert_eq!(columns(&bench, "b").await, (200, vec![json!("Color")]));
        assert_eq!(columns(&bench, "a").await, (200, vec![json!("Size")]));
        let everything = std::mem::replace(&mut bench.reader, dev.clone());
        let (code, titles) = columns(&bench, "*").await;
        assert!(code == 200 && !titles.contains(&json!("Size")), "{titles:?}");
        assert_eq!(columns(&bench, "b").await, (200, vec![json!("Color")]));
        assert_eq!(columns(&bench, "a").await.0, 404);
        bench.reader = everything;
    }
    for (cluster, field, code) in [("a", "size", 200), ("a", "color", 400), ("b", "color", 200), ("b", "size", 400)] {
        let path = format!("/clusters/{cluster}/apis/ex.io/v1/gadgets?fieldSelector=spec.{field}%3D1");
        assert_eq!(bench.json(&path).await.0, code, "{cluster} {field}");
    }
}
