//! Watches of clients that lack objects which their readers may see by now.

use super::*;

const PODS: &str = "/clusters/*/api/v1/pods";

/// Time after which the clusters are asked again, whether they have answered or not.
const EXPIRED: Duration = Duration::from_secs(6);

const REFUSED: &str = "ERROR Expired@-";

fn place(cluster: &str, namespace: &str) -> (String, String) {
    (cluster.to_owned(), namespace.to_owned())
}

/// Returns number of items and version of a list.
async fn list(bench: &Bench, path: &str) -> (usize, String) {
    let (code, list) = bench.json(path).await;
    assert_eq!(code, 200, "{path}: {list}");
    (items_of(&list), list["metadata"]["resourceVersion"].as_str().unwrap().to_owned())
}

/// Opens a watch from a version. Returns its first event too, if there is one at once.
async fn resume(bench: &Bench, path: &str, version: &str) -> (Events, Option<String>) {
    let mut events = bench.watch(&format!("{path}?watch=1&allowWatchBookmarks=1&resourceVersion={version}")).await;
    let first = events.next_unbounded().now_or_never();
    (events, first.map(|event| line(&event.unwrap())))
}

async fn assert_refused(bench: &Bench, path: &str, version: &str) {
    let (mut events, first) = resume(bench, path, version).await;
    assert_eq!(first.as_deref(), Some(REFUSED), "{path} from {version}");
    assert_eq!(events.next_unbounded().await, None);
}

async fn assert_accepted(bench: &Bench, path: &str, version: &str) -> Events {
    let (events, first) = resume(bench, path, version).await;
    assert_eq!(first, None, "{path} from {version}");
    events
}

/// Returns the version of an event, such as `ADDED x@3`.
fn version_in(line: &str) -> String {
    line.split_once('@').unwrap().1.to_owned()
}

#[tokio::test(start_paused = true)]
async fn watch_from_a_list_without_a_denied_place_is_refused_once_the_place_is_allowed() {
    let (bench, rbac) = reviewed_bench();
    let (items, version) = list(&bench, PODS).await;
    assert_eq!(items, 5);
    rbac.allowed.lock().insert(place("a", "pay"));
    tokio::time::advance(EXPIRED).await;
    assert_refused(&bench, PODS, &version).await;
    // A list of another namespace changes nothing.
    list(&bench, "/clusters/*/api/v1/namespaces/shop/pods").await;
    assert_refused(&bench, PODS, &version).await;
    // No object has changed, so the complete list has the version of the incomplete one.
    assert_eq!(list(&bench, PODS).await, (6, version.clone()));
    let mut events = assert_accepted(&bench, PODS, &version).await;
    bench.event("a", DeltaKind::Updated, pod("pay", "x", 11, "web", "n1"));
    assert_eq!(line(&events.next_unbounded().await.unwrap()), "MODIFIED x@1007");
    drop(events);
    drop(assert_accepted(&bench, PODS, "1007").await);
    // A client that has only the incomplete list is refused, whatever others have listed since.
    assert_eq!(list(&bench, PODS).await, (6, "1007".to_owned()));
    assert_refused(&bench, PODS, &version).await;
}

#[tokio::test(start_paused = true)]
async fn watch_from_a_list_without_an_unanswered_cluster_is_refused_once_it_answers() {
    let (bench, rbac) = reviewed_bench();
    rbac.is_down.store(true, Relaxed);
    let (items, version) = list(&bench, PODS).await;
    assert_eq!(items, 0);
    rbac.is_down.store(false, Relaxed);
    tokio::time::advance(EXPIRED).await;
    assert_refused(&bench, PODS, &version).await;
    assert_eq!(list(&bench, PODS).await, (5, version.clone()));
    assert_accepted(&bench, PODS, &version).await;
}

#[tokio::test(start_paused = true)]
async fn objects_without_a_namespace_are_omitted_as_one_place() {
    let (bench, rbac) = reviewed_bench();
    let nodes = "/clusters/*/api/v1/nodes";
    let (items, version) = list(&bench, nodes).await;
    assert_eq!(items, 1);
    drop(assert_accepted(&bench, nodes, &version).await);
    rbac.allowed.lock().insert(place("a", ""));
    tokio::time::advance(EXPIRED).await;
    assert_refused(&bench, nodes, &version).await;
    assert_eq!(list(&bench, nodes).await, (2, version.clone()));
    assert_accepted(&bench, nodes, &version).await;
}

#[tokio::test(start_paused = true)]
async fn later_page_does_not_show_what_the_first_page_omitted() {
    let (bench, rbac) = reviewed_bench();
    let (_, page) = bench.json(&format!("{PODS}?limit=1")).await;
    let version = page["metadata"]["resourceVersion"].as_str().unwrap();
    rbac.allowed.lock().insert(place("a", "pay"));
    tokio::time::advance(EXPIRED).await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    list(&bench, &format!("{PODS}?limit=10&continue={token}")).await;
    assert_refused(&bench, PODS, version).await;
}

#[tokio::test(start_paused = true)]
async fn right_granted_between_two_watches_refuses_the_second() {
    let (bench, rbac) = reviewed_bench();
    let (_, version) = list(&bench, PODS).await;
    let mut events = assert_accepted(&bench, PODS, &version).await;
    bench.event("b", DeltaKind::Updated, pod("shop", "y", 11, "web", "n1"));
    let seen = version_in(&line(&events.next_unbounded().await.unwrap()));
    drop(events);
    rbac.allowed.lock().insert(place("a", "pay"));
    tokio::time::advance(EXPIRED).await;
    assert_refused(&bench, PODS, &seen).await;
    let (items, version) = list(&bench, PODS).await;
    assert_eq!((items, &version), (6, &seen));
    assert_accepted(&bench, PODS, &version).await;
}

#[tokio::test(start_paused = true)]
async fn running_watch_counts_as_lacking_a_place_before_it_ends() {
    let (bench, rbac) = reviewed_bench();
    let (_, version) = list(&bench, PODS).await;
    let mut events = assert_accepted(&bench, PODS, &version).await;
    bench.event("b", DeltaKind::Updated, pod("shop", "y", 11, "web", "n1"));
    let seen = version_in(&line(&events.next_unbounded().await.unwrap()));
    rbac.allowed.lock().insert(place("a", "pay"));
    tokio::time::advance(EXPIRED).await;
    // The hub has not noticed yet that the client has closed the first connection.
    assert_refused(&bench, PODS, &seen).await;
    assert_eq!(list(&bench, PODS).await.0, 6);
    assert_accepted(&bench, PODS, &seen).await;
}

#[tokio::test(start_paused = true)]
async fn watch_that_left_out_changes_of_an_unanswered_cluster_is_not_continued() {
    let (bench, rbac) = reviewed_bench();
    let (items, version) = list(&bench, PODS).await;
    assert_eq!(items, 5);
    rbac.silent.lock().insert((Verb::Watch, "a".to_owned()));
    let mut events = assert_accepted(&bench, PODS, &version).await;
    bench.event("a", DeltaKind::Updated, pod("shop", "y", 11, "web", "n1"));
    bench.event("b", DeltaKind::Updated, pod("shop", "y", 12, "web", "n1"));
    let seen = line(&events.next_unbounded().await.unwrap());
    assert_eq!(seen, "MODIFIED y@1008");
    drop(events);
    rbac.silent.lock().clear();
    tokio::time::advance(EXPIRED).await;
    assert_refused(&bench, PODS, "1008").await;
    assert_eq!(list(&bench, PODS).await, (5, "1008".to_owned()));
    assert_accepted(&bench, PODS, "1008").await;
}

#[tokio::test(start_paused = true)]
async fn watch_without_answers_and_changes_is_continued() {
    let (bench, rbac) = reviewed_bench();
    let (_, version) = list(&bench, PODS).await;
    rbac.silent.lock().insert((Verb::Watch, "a".to_owned()));
    let mut events = assert_accepted(&bench, PODS, &version).await;
    bench.event("b", DeltaKind::Updated, pod("shop", "y", 12, "web", "n1"));
    assert_eq!(line(&events.next_unbounded().await.unwrap()), "MODIFIED y@1007");
    drop(events);
    rbac.silent.lock().clear();
    tokio::time::advance(EXPIRED).await;
    assert_accepted(&bench, PODS, "1007").await;
}

#[tokio::test(start_paused = true)]
async fn places_that_stay_denied_or_unanswered_refuse_nothing() {
    let (bench, rbac) = reviewed_bench();
    for silent in [None, Some(Verb::List), Some(Verb::Watch)] {
        rbac.silent.lock().extend(silent.map(|verb| (verb, "a".to_owned())));
        for _ in 0..3 {
            tokio::time::advance(EXPIRED).await;
            let (_, version) = list(&bench, PODS).await;
            drop(assert_accepted(&bench, PODS, &version).await);
            drop(assert_accepted(&bench, PODS, &version).await);
        }
        rbac.silent.lock().clear();
        tokio::time::advance(EXPIRED).await;
        list(&bench, PODS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reader_that_may_watch_and_not_list_is_not_refused() {
    let (bench, rbac) = reviewed_bench();
    rbac.denied.lock().insert((Verb::List, "a".to_owned(), "shop".to_owned()));
    let (items, version) = list(&bench, PODS).await;
    assert_eq!(items, 3);
    let mut events = assert_accepted(&bench, PODS, &version).await;
    bench.event("a", DeltaKind::Updated, pod("shop", "y", 11, "web", "n1"));
    assert_eq!(line(&events.next_unbounded().await.unwrap()), "MODIFIED y@1007");
    drop(events);
    tokio::time::advance(EXPIRED).await;
    let mut events = assert_accepted(&bench, PODS, "1007").await;
    // Once a list would show the place, the watch ends.
    assert!(
        tokio::time::timeout(Duration::from_secs(100), events.next_unbounded())
            .await
            .is_ok_and(|event| { line(&event.unwrap()).starts_with("BOOKMARK") })
    );
    rbac.denied.lock().clear();
    let began = clock::now();
    while line(&events.next_unbounded().await.unwrap()) != REFUSED {
        assert!(clock::now() - began <= Duration::from_secs(690));
    }
    drop(events);
    assert_eq!(list(&bench, PODS).await, (5, "1007".to_owned()));
    assert_accepted(&bench, PODS, "1007").await;
}

#[tokio::test(start_paused = true)]
async fn restart_new_namespace_and_revoked_right_refuse_nothing() {
    let (mut bench, rbac) = reviewed_bench();
    let (_, version) = list(&bench, PODS).await;
    rbac.allowed.lock().insert(place("a", "new"));
    bench.event("a", DeltaKind::Added, pod("new", "n", 11, "web", "n1"));
    let (_, first) = resume(&bench, PODS, &version).await;
    assert_eq!(first.as_deref(), Some("ADDED n@1007"));
    let (_, version) = list(&bench, PODS).await;
    rbac.allowed.lock().remove(&place("a", "shop"));
    tokio::time::advance(EXPIRED).await;
    drop(assert_accepted(&bench, PODS, &version).await);
    rbac.allowed.lock().insert(place("a", "shop"));
    rbac.allowed.lock().insert(place("a", "pay"));
    // A process that has just started has recorded nothing.
    let options = ReviewCacheOptions { kept: Duration::from_secs(5), ..ReviewCacheOptions::default() };
    bench.use_reviews(Arc::new(ReviewCache::new(Arc::new(AskRbac(Arc::clone(&rbac))), options)));
    assert_accepted(&bench, PODS, &version).await;
}

#[tokio::test(start_paused = true)]
async fn initial_state_of_a_watch_counts_as_a_list() {
    let (bench, rbac) = reviewed_bench();
    let streamed =
        format!("{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1");
    let initial = async |expected: usize| {
        let mut events = bench.watch(&streamed).await;
        for _ in 0..expected {
            assert!(line(&events.next_unbounded().await.unwrap()).starts_with("ADDED"));
        }
        version_in(&line(&events.next_unbounded().await.unwrap()))
    };
    let version = initial(5).await;
    rbac.allowed.lock().insert(place("a", "pay"));
    tokio::time::advance(EXPIRED).await;
    assert_refused(&bench, PODS, &version).await;
    assert_eq!(initial(6).await, version);
    assert_accepted(&bench, PODS, &version).await;
}

#[tokio::test(start_paused = true)]
async fn root_of_one_cluster_is_refused_if_reviews_add_to_rules() {
    let (mut bench, rbac) = reviewed_bench();
    let path = "/clusters/a/api/v1/pods";
    let rules: Vec<Rule> = vec![rule(Some("prod"), &["shop"], &["*"], &[])];
    bench.reader =
        Reader::named("bob", ReaderOrigin::Oidc, Grants { rules: rules.into(), reviews: true, ..Grants::default() });
    assert_eq!(list(&bench, path).await, (2, "10".to_owned()));
    let mut events = assert_accepted(&bench, path, "10").await;
    bench.event("b", DeltaKind::Updated, pod("shop", "y", 11, "web", "n1"));
    bench.event("a", DeltaKind::Updated, pod("shop", "y", 11, "web", "n1"));
    assert_eq!(line(&events.next_unbounded().await.unwrap()), "MODIFIED y@11");
    drop(events);
    rbac.allowed.lock().insert(place("a", ""));
    tokio::time::advance(EXPIRED).await;
    assert_refused(&bench, path, "10").await;
    assert_refused(&bench, path, "11").await;
    assert_eq!(list(&bench, path).await, (3, "11".to_owned()));
    assert_accepted(&bench, path, "11").await;
}

#[tokio::test(start_paused = true)]
async fn resume_of_a_reader_without_grown_rights_sends_no_reviews_of_lists() {
    let (bench, rbac) = reviewed_bench();
    let (_, version) = list(&bench, PODS).await;
    rbac.asked.store(0, Relaxed);
    assert_accepted(&bench, PODS, &version).await;
    // Cluster a: all namespaces, shop and pay; cluster b: all namespaces.
    assert_eq!(rbac.asked.load(Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn change_of_a_place_that_the_client_lacks_ends_the_watch() {
    let (bench, rbac) = reviewed_bench();
    rbac.is_down.store(true, Relaxed);
    let (_, version) = list(&bench, PODS).await;
    let mut events = assert_accepted(&bench, PODS, &version).await;
    rbac.is_down.store(false, Relaxed);
    tokio::time::advance(EXPIRED).await;
    bench.event("a", DeltaKind::Updated, pod("shop", "y", 11, "web", "n1"));
    assert_eq!(line(&events.next_unbounded().await.unwrap()), REFUSED);
    assert_eq!(list(&bench, PODS).await, (5, "1007".to_owned()));
    assert_accepted(&bench, PODS, "1007").await;
}

#[tokio::test(start_paused = true)]
async fn cluster_that_answers_only_watches_in_time_refuses_them_once_a_minute() {
    let (bench, rbac) = reviewed_bench();
    let list_without_a = async || {
        rbac.silent.lock().insert((Verb::List, "a".to_owned()));
        tokio::time::advance(EXPIRED).await;
        let (items, version) = list(&bench, PODS).await;
        assert_eq!(items, 3);
        rbac.silent.lock().clear();
        tokio::time::advance(EXPIRED).await;
        version
    };
    let mut version = list_without_a().await;
    for _ in 0..3 {
        assert_refused(&bench, PODS, &version).await;
        for _ in 0..2 {
            version = list_without_a().await;
            drop(assert_accepted(&bench, PODS, &version).await);
        }
        let mut events = assert_accepted(&bench, PODS, &version).await;
        let began = clock::now();
        while line(&events.next_unbounded().await.unwrap()) != REFUSED {}
        let waited = clock::now() - began;
        assert!((20..=60).contains(&waited.as_secs()), "{waited:?}");
        version = list_without_a().await;
        assert_accepted(&bench, PODS, &version).await;
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    assert_refused(&bench, PODS, &version).await;
    assert_eq!(list(&bench, PODS).await, (5, version.clone()));
    assert_accepted(&bench, PODS, &version).await;
}
