//! Tests of the test bed itself: clusters, faults, churn and ground truth behave as the other tests assume.

use std::net::TcpStream as BlockingStream;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use informer_hub_types::{Gvr, ObjectKey, clock};
use kube::ResourceExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::bed::{
    Churn, RealCluster, Verbs, create_namespace, create_pod, create_pods, create_widget, create_widgets, delete_now,
    grant_limited, ground_truth, install_widgets, merge, pods, revoke_limited, seed, watch_error, widget_gvr, widgets,
};
use crate::proxy::{Fault, FaultProxy};

/// Deadline for one response of a running apiserver.
const RESPONSE_DEADLINE: Duration = Duration::from_secs(20);

fn pod_gvr() -> Gvr {
    Gvr::new("", "v1", "pods")
}

/// Waits for `future` up to the deadline.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(RESPONSE_DEADLINE, future)
        .await
        .unwrap_or_else(|_| panic!("not within {RESPONSE_DEADLINE:?}: {what}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn testbed_clusters_have_separate_objects() {
    let began = clock::now();
    let clusters = RealCluster::start_all(["east", "west"]).await;
    println!("two clusters: {:?}", began.elapsed());

    for cluster in &clusters {
        let client = cluster.client().await;
        let namespace = format!("shop-{}", cluster.name());
        create_namespace(&client, &namespace).await;
        install_widgets(&client).await;
        create_pods(&client, &namespace, "web", 20).await;
        create_widgets(&client, &namespace, "part", 5).await;
    }
    for cluster in &clusters {
        let client = cluster.client().await;
        let namespace = format!("shop-{}", cluster.name());
        let pods = ground_truth(&client, &pod_gvr()).await;
        let widgets = ground_truth(&client, &widget_gvr()).await;
        assert_eq!((pods.len(), widgets.len()), (20, 5), "{}", cluster.name());
        assert!(pods.keys().chain(widgets.keys()).all(|key| key.namespace() == Some(&namespace)));
        assert!(pods.contains_key(&ObjectKey::new(&namespace, "web-19")));
    }
    assert_ne!(clusters[0].url(), clusters[1].url());
    assert!(std::fs::read_to_string(clusters[0].ca()).unwrap().starts_with("-----BEGIN CERTIFICATE"));
    assert_ne!(clusters[0].token("admin"), clusters[0].token("limited"));
}

#[tokio::test(flavor = "multi_thread")]
async fn testbed_restarted_cluster_keeps_address_and_objects_and_expires_old_watches() {
    let mut cluster = RealCluster::start("phoenix").await;
    let client = cluster.client().await;
    let first = create_pod(&client, "default", "old-0").await.resource_version().unwrap();
    create_pods(&client, "default", "web", 10).await;
    merge(&pods(&client, "default"), "web-3", json!({"metadata": {"labels": {"app": "changed"}}})).await;
    delete_now(&pods(&client, "default"), "web-4").await;
    let before = ground_truth(&client, &pod_gvr()).await;
    assert_eq!(before.len(), 10);

    let revision = cluster.compact().await;
    assert!(revision > first.parse().unwrap(), "nothing to compact");
    cluster.kill();
    assert!(
        BlockingStream::connect(cluster.url().trim_start_matches("https://")).is_err(),
        "a killed cluster accepts connections"
    );
    let began = clock::now();
    cluster.restart().await;
    println!("restart: {:?}", began.elapsed());

    let client = cluster.client().await;
    assert_eq!(ground_truth(&client, &pod_gvr()).await, before);
    assert_eq!(watch_error(&client, &first).await, 410);
}

#[tokio::test(flavor = "multi_thread")]
async fn testbed_compaction_expires_watches_without_watch_cache() {
    let mut cluster = RealCluster::start_with("uncached", &["--watch-cache-sizes=pods#0"]).await;
    let client = cluster.client().await;
    let first = create_pod(&client, "default", "old-0").await.resource_version().unwrap();
    create_pod(&client, "default", "new-0").await;
    let api = pods(&client, "default");
    let mut events = pin!(api.watch(&WatchParams::default(), &first).await.unwrap());
    let event = in_time("the new pod on the watch", events.next()).await;
    assert!(matches!(&event, Some(Ok(WatchEvent::Added(pod))) if pod.name_any() == "new-0"), "{event:?}");

    // The compacted revision stays readable, so a watch that lacks only that one would not expire.
    create_pod(&client, "default", "new-1").await;
    cluster.compact().await;
    assert_eq!(watch_error(&client, &first).await, 410);
}

#[tokio::test(flavor = "multi_thread")]
async fn testbed_limited_user_has_only_granted_rights() {
    let cluster = RealCluster::start("locked").await;
    let client = cluster.client().await;
    let limited = cluster.limited_client().await;
    install_widgets(&client).await;
    create_pod(&client, "default", "web-0").await;
    create_widget(&client, "default", "part-0").await;
    let forbidden = |error: kube::Error| matches!(error, kube::Error::Api(status) if status.is_forbidden());
    let api = pods(&limited, "default");
    assert!(forbidden(api.list(&ListParams::default()).await.unwrap_err()));

    grant_limited(&client, &limited, Verbs::List).await;
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(watch_error(&limited, "1").await, 403);
    assert!(forbidden(widgets(&limited, "default").list(&ListParams::default()).await.unwrap_err()));

    grant_limited(&client, &limited, Verbs::ListAndWatch).await;
    let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    crate::bed::eventually("limited may watch pods", RESPONSE_DEADLINE, async || {
        api.watch(&WatchParams::default(), &version).await.is_ok()
    })
    .await;

    revoke_limited(&client, &limited).await;
    assert!(forbidden(api.list(&ListParams::default()).await.unwrap_err()));
}

#[tokio::test(flavor = "multi_thread")]
async fn testbed_churn_records_the_ground_truth() {
    let cluster = RealCluster::start("busy").await;
    let client = cluster.client().await;
    create_namespace(&client, "churn").await;
    install_widgets(&client).await;
    let mut churn = Churn::new(seed(), "churn");

    let began = clock::now();
    churn.run(&client, 300).await;
    println!("300 changes: {:?}", began.elapsed());
    assert_eq!(&ground_truth(&client, &pod_gvr()).await, churn.pods());
    assert_eq!(&ground_truth(&client, &widget_gvr()).await, churn.widgets());

    let began = clock::now();
    create_pods(&client, "default", "bulk", 2_000).await;
    println!("2,000 pods: {:?}", began.elapsed());
    let began = clock::now();
    let pods = ground_truth(&client, &pod_gvr()).await;
    println!("list of {} pods: {:?}", pods.len(), began.elapsed());
    assert_eq!(pods.len(), 2_000 + churn.pods().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn testbed_proxy_passes_stalls_resets_and_refuses() {
    let cluster = RealCluster::start("behind").await;
    let client = cluster.client().await;
    let proxy = FaultProxy::start(cluster.url()).await;
    let through = cluster.client_via(&proxy).await;
    let version = ground_truth(&through, &pod_gvr()).await;
    assert!(version.is_empty());

    let api = pods(&through, "default");
    let listed = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = pin!(api.watch(&WatchParams::default(), &listed).await.unwrap());
    create_pod(&client, "default", "seen-0").await;
    assert!(matches!(in_time("a passed event", events.next()).await, Some(Ok(WatchEvent::Added(_)))));

    proxy.set(Fault::Stall).await;
    create_pod(&client, "default", "late-0").await;
    let direct = pods(&client, "default");
    let mut direct_events = pin!(direct.watch(&WatchParams::default(), &listed).await.unwrap());
    for _ in 0..2 {
        in_time("the event on the direct watch", direct_events.next()).await.unwrap().unwrap();
    }
    // The event was sent before its copy arrived on the direct watch. Its absence can only be shown by waiting.
    let stalled = tokio::time::timeout(Duration::from_millis(200), events.next()).await;
    assert!(stalled.is_err(), "an event arrived while stalled");
    proxy.set(Fault::Pass).await;
    assert!(matches!(in_time("the event after the stall", events.next()).await, Some(Ok(WatchEvent::Added(_)))));

    assert!(proxy.reset_all().await > 0);
    assert!(
        !matches!(in_time("the end of the watch", events.next()).await, Some(Ok(_))),
        "a watch continued after a reset"
    );
    assert_eq!(ground_truth(&through, &pod_gvr()).await.len(), 2, "a reset proxy takes new connections");

    proxy.set(Fault::Refuse).await;
    assert!(BlockingStream::connect(proxy.address()).is_err());
    assert!(in_time("a refused list", api.list(&ListParams::default())).await.is_err());
    proxy.set(Fault::Pass).await;
    assert_eq!(ground_truth(&through, &pod_gvr()).await.len(), 2);
}

#[tokio::test]
async fn testbed_proxy_resets_a_just_accepted_connection() {
    let upstream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = FaultProxy::start(&format!("https://{}", upstream.local_addr().unwrap())).await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(BlockingStream::connect(proxy.address()).unwrap());
        // Now the proxy has a connection and an order pending, and handles them in either order.
        tokio::task::yield_now().await;
        proxy.reset_all().await;
    }
}
