//! Streams of readers with rules.

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;
use crate::api::kubernetes::tests::rights::{ann, rule};
use informer_hub_types::Scope;

#[tokio::test]
async fn warnings_name_no_hidden_namespace_and_no_hidden_cluster() {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    for (cluster, namespace) in [("a", "shop"), ("a", "pay"), ("b", "dev-only")] {
        bench.open_scope(&pods(), cluster, Scope::namespace(namespace));
        bench.list(&pods(), cluster, vec![pod(namespace, "x", 3, "web", "n1")], 10);
    }
    let nodes = ApiResource { gvr: Gvr::new("", "v1", "nodes"), kind: "Node".into(), namespaced: false };
    bench.open(&nodes, "b");
    // Nodes of `b` are visible, its pods are not.
    bench.reader = ann(vec![rule(Some("prod"), &["shop"], &["pods"], &[]), rule(Some("dev"), &["*"], &["nodes"], &[])]);
    let warnings = async |query: &str| {
        let request = Request::get(format!("/v1/events?{query}&timeout=1ms")).body(Body::empty()).unwrap();
        let response = bench.send(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{query}");
        let all = response.headers().get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned());
        all.collect::<Vec<_>>().join("\n")
    };
    let found = warnings("resource=pods").await;
    assert!(found.contains("namespace shop") && !found.contains("pay") && !found.contains(" b "), "{found}");
    assert!(!found.contains("dev-only"), "{found}");
    let found = warnings("resource=*").await;
    assert!(found.contains("missing, first list not complete: b") && !found.contains("dev-only"), "{found}");
}

#[tokio::test(start_paused = true)]
async fn stream_ends_within_thirty_seconds_after_a_right_is_revoked() {
    let mut bench = Bench::with_pods();
    let first = ann(vec![rule(None, &["shop"], &["*"], &[])]);
    let known = Arc::new(Mutex::new(Some(first.clone())));
    let current = Arc::clone(&known);
    bench.use_current(Arc::new(move |_| current.lock().clone()));
    bench.reader = first.clone();
    for accept in ["text/event-stream", "application/x-ndjson"] {
        for now in [Some(ann(vec![rule(None, &["pay"], &["*"], &[])])), Some(ann(Vec::new())), None] {
            *known.lock() = Some(first.clone());
            let mut client = Client::open(&bench, "resource=pods&initial=replay", accept, None).await;
            assert_eq!(client.lines(3).await[2], "added b/x (initial)");
            *known.lock() = now;
            let began = clock::now();
            let mut last = client.receive().await.expect("an end");
            while last.line() != "end" {
                assert!(clock::now() - began <= Duration::from_secs(30), "{last:?}");
                last = client.receive().await.expect("an end");
            }
            assert!(clock::now() - began <= Duration::from_secs(30));
            assert_eq!(last.data["data"]["reason"], "the rights of the reader have changed");
            assert!(client.receive().await.is_none());
        }
    }
}
