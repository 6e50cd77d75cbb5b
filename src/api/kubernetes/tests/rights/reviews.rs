//! Access reviews of open streams: how many there are, and how soon a changed right shows.

use super::*;

/// Open streams, as many as the bench admits.
const STREAMS: usize = 10;

/// Ten clusters with a pod in each of 50 namespaces, of which the reader may see three.
fn large_bench() -> (Bench, Arc<Rbac>) {
    let names: Vec<_> = (0..10).map(|number| format!("c{number}")).collect();
    let clusters = names.iter().map(|name| (name.as_str(), "prod")).collect();
    let options = ReadApiOptions { requests: 10, watches: 1_000, secrets: false };
    let (mut bench, rbac) = (Bench::with_clusters(options, clusters), Arc::new(Rbac::default()));
    for name in &names {
        let all = (0..50).map(|number| pod(&format!("n{number}"), "x", 3 + number, "web", "n1"));
        bench.list(&pods(), name, all.collect(), 100);
        rbac.allowed.lock().extend((0..3).map(|number| (name.clone(), format!("n{number}"))));
    }
    bench.use_reviews(Arc::new(ReviewCache::new(Arc::new(AskRbac(Arc::clone(&rbac))), ReviewCacheOptions::default())));
    bench.reader = Reader::named("bob", ReaderOrigin::Oidc, Grants { reviews: true, ..Grants::default() });
    (bench, rbac)
}

#[tokio::test(start_paused = true)]
async fn open_streams_share_reviews_and_ask_seldom_about_what_was_denied() {
    let (bench, rbac) = large_bench();
    let (_, list) = bench.json("/clusters/*/api/v1/pods?limit=1").await;
    let path = format!(
        "/clusters/*/api/v1/pods?watch=1&resourceVersion={}",
        list["metadata"]["resourceVersion"].as_str().unwrap()
    );
    // Leaves out the reviews of the list, whose verb differs from that of the watches.
    rbac.asked.store(0, Relaxed);
    let mut watches = Vec::new();
    for _ in 0..STREAMS {
        watches.push(bench.watch(&path).await);
    }
    assert_eq!(rbac.asked.load(Relaxed), 10 * (1 + 50), "all streams have asked once together");
    let ten_periods = Duration::from_secs(600);
    let all = futures::future::select_all(watches.iter_mut().map(|watch| watch.next_unbounded().boxed_local()));
    assert!(tokio::time::timeout(ten_periods, all).await.is_err(), "no stream has ended");
    let asked = rbac.asked.load(Relaxed) - 10 * (1 + 50);
    let (allowed, denied) = (10 * 3, 10 * (1 + 47));
    assert!((10 * allowed..=13 * allowed + denied + denied / 10).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn revoked_right_ends_a_stream_within_its_bound_and_a_granted_one_later() {
    for (namespace, bound) in [("n1", 90), ("n7", 690), ("", 690)] {
        let (bench, rbac) = large_bench();
        let (_, list) = bench.json("/clusters/*/api/v1/pods?limit=1").await;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let mut events = bench.watch(&format!("/clusters/*/api/v1/pods?watch=1&resourceVersion={version}")).await;
        let place = ("c4".to_owned(), namespace.to_owned());
        if !rbac.allowed.lock().remove(&place) {
            rbac.allowed.lock().insert(place);
        }
        let began = clock::now();
        assert_eq!(line(&events.next_unbounded().await.unwrap()), "ERROR Expired@-", "{namespace}");
        assert!(clock::now() - began <= Duration::from_secs(bound), "{namespace}: {:?}", clock::now() - began);
    }
}

async fn version_of(bench: &Bench, path: &str) -> String {
    let (code, list) = bench.json(path).await;
    assert_eq!(code, 200, "{path}: {list}");
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Ten clusters whose pods the reader may see in every namespace, except those of `c0`.
fn wide_bench() -> (Bench, Arc<Rbac>) {
    let (bench, rbac) = large_bench();
    *rbac.allowed.lock() = (1..10).map(|number| (format!("c{number}"), String::new())).collect();
    (bench, rbac)
}

#[tokio::test(start_paused = true)]
async fn objects_without_a_namespace_of_a_cluster_that_joins_are_reviewed() {
    let (mut bench, _) = wide_bench();
    bench.list(&nodes(), "c1", vec![pod("", "first", 7, "web", "n1")], 10);
    let version = version_of(&bench, "/clusters/*/api/v1/nodes").await;
    let mut events = bench.watch(&format!("/clusters/*/api/v1/nodes?watch=1&resourceVersion={version}")).await;
    bench.list(&nodes(), "c0", vec![pod("", "denied", 7, "web", "n1")], 10);
    bench.list(&nodes(), "c2", vec![pod("", "allowed", 8, "web", "n1")], 10);
    let added = line(&events.next_unbounded().await.unwrap());
    assert!(added.starts_with("ADDED allowed@"), "{added}");
}

#[tokio::test(start_paused = true)]
async fn watch_ends_when_a_cluster_answers_reviews_for_the_first_time() {
    let (bench, rbac) = wide_bench();
    rbac.is_down.store(true, Relaxed);
    let version = version_of(&bench, "/clusters/*/api/v1/pods").await;
    let mut events = bench.watch(&format!("/clusters/*/api/v1/pods?watch=1&resourceVersion={version}")).await;
    let silent = tokio::time::timeout(Duration::from_secs(120), events.next_unbounded()).await;
    assert!(silent.is_err(), "{silent:?}");
    rbac.is_down.store(false, Relaxed);
    let began = clock::now();
    assert_eq!(line(&events.next_unbounded().await.unwrap()), "ERROR Expired@-");
    assert!(clock::now() - began <= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn request_for_one_cluster_asks_no_other() {
    let (bench, rbac) = wide_bench();
    let labels: informer_hub_types::ClusterLabels = [("tier".to_owned(), "prod".to_owned())].into();
    let silent = ClusterName::new("silent").unwrap();
    bench.fleet.stores.lock().get_mut(&pods().gvr).unwrap().expect(silent, Some(labels));
    let (code, _) = bench.json("/clusters/c1/api/v1/namespaces/n1/pods").await;
    assert_eq!((code, rbac.asked.load(Relaxed)), (200, 1));
    bench.json("/clusters/tier=dev/api/v1/pods").await;
    assert_eq!(rbac.asked.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn watch_of_a_reviewed_reader_ends_when_rules_apply_after_a_relabel() {
    let (mut bench, rbac) = wide_bench();
    rbac.allowed.lock().clear();
    let rules: Vec<Rule> = vec![rule(Some("dev"), &["n1"], &["*"], &[])];
    bench.reader =
        Reader::named("bob", ReaderOrigin::Oidc, Grants { rules: rules.into(), reviews: true, ..Grants::default() });
    let version = version_of(&bench, "/clusters/*/api/v1/pods").await;
    let mut events = bench.watch(&format!("/clusters/*/api/v1/pods?watch=1&resourceVersion={version}")).await;
    bench.relabel("c1", "dev");
    assert_eq!(line(&events.next_unbounded().await.unwrap()), "ERROR Expired@-");
}
