//! Tests of the hub with real apiservers: convergence after churn, outages, compaction and missing rights.

use std::collections::BTreeSet;
use std::time::Duration;

use informer_hub::actors::ClusterState;
use informer_hub_sim::oracle::Oracle;
use informer_hub_types::{ApiResource, Freshness, ObjectKey, Phase};

use crate::bed::{
    Churn, GroundTruth, RealCluster, Verbs, becomes_true, create_namespace, create_pod, create_pods, create_widget,
    create_widgets, delete_now, eventually, grant_limited, ground_truth, install_widgets, merge, seed, watch_error,
};
use crate::fixture::{HubFixture, WAIT_DEADLINE, origin, pods, widgets};
use crate::proxy::{Fault, FaultProxy};
use crate::receiver::Receiver;

#[tokio::test(flavor = "multi_thread")]
async fn cache_equals_a_fresh_list_of_each_cluster_after_churn() {
    let clusters = RealCluster::start_all(["east", "west"]).await;
    let clients = [clusters[0].client().await, clusters[1].client().await];
    let filled = clients.each_ref().map(async |client| {
        install_widgets(client).await;
        create_namespace(client, "churn").await;
        create_pods(client, "default", "web", 2_000).await;
        create_widgets(client, "default", "part", 200).await;
    });
    futures::future::join_all(filled).await;

    let receiver = Receiver::start().await;
    let kubeconfigs = clusters.each_ref().map(|cluster| (cluster.name(), cluster.kubeconfig()));
    let fixture = HubFixture::start(kubeconfigs, vec![receiver.sink("receiver")]).await;
    fixture.synced().await;
    let seed = seed();
    let mut churns = [Churn::new(seed, "churn"), Churn::new(seed.wrapping_add(1), "churn")];
    let [east, west] = &mut churns;
    tokio::join!(east.run(&clients[0], 1_000), west.run(&clients[1], 1_000));

    for (cluster, client) in clusters.iter().zip(&clients) {
        for resource in [pods(), widgets()] {
            fixture.converged(cluster.name(), client, &resource).await;
            assert_eq!(fixture.freshness(cluster.name(), &resource).await, Freshness::Synced);
            received(&receiver, cluster.name(), &ground_truth(client, &resource.gvr).await, &resource).await;
        }
    }
    assert_eq!(receiver.replica().lock().violations(), &[] as &[String]);
    let report = fixture.report().await;
    assert!(report.hub.ready);
    let mut informers = report.hub.clusters.iter().flat_map(|cluster| &cluster.informers);
    assert!(informers.all(|informer| (informer.lists, informer.skipped, informer.restarts) == (1, 0, 0)));
    fixture.end().await;
}

/// Waits until a webhook receiver's replica equals the ground truth.
async fn received(receiver: &Receiver, cluster: &str, truth: &GroundTruth, resource: &ApiResource) {
    let differences = || Oracle::diff(truth, &receiver.replica().lock().seen_of(&origin(cluster, resource)));
    let agrees = becomes_true(WAIT_DEADLINE, async || differences().is_empty()).await;
    assert!(agrees, "the receiver's {} of {cluster}: {:?}", resource.gvr, differences());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_cluster_is_stale_without_affecting_another_and_converges_after_restart() {
    let mut clusters = RealCluster::start_all(["mortal", "steady"]).await;
    let clients = [clusters[0].client().await, clusters[1].client().await];
    for client in &clients {
        install_widgets(client).await;
        create_pods(client, "default", "web", 100).await;
        create_widgets(client, "default", "part", 20).await;
    }
    let kubeconfigs = clusters.each_ref().map(|cluster| (cluster.name(), cluster.kubeconfig()));
    let fixture = HubFixture::start(kubeconfigs, Vec::new()).await;
    fixture.synced().await;
    let before = ground_truth(&clients[0], &pods().gvr).await;

    clusters[0].kill();
    eventually("the killed cluster is unreachable", WAIT_DEADLINE, async || {
        let report = fixture.report().await;
        report.hub.clusters.iter().any(|c| c.name.as_str() == "mortal" && c.state == ClusterState::Unreachable)
    })
    .await;
    for resource in [pods(), widgets()] {
        let informer = fixture.informer("mortal", &resource).await;
        assert_eq!((informer.state, informer.synced), (Phase::Stale, true));
        assert!(informer.last_error.is_some());
        let freshness = fixture.freshness("mortal", &resource).await;
        assert!(matches!(freshness, Freshness::StaleSince { .. }), "{freshness:?}");
        assert_eq!(fixture.freshness("steady", &resource).await, Freshness::Synced);
    }
    // The cache still returns the last known objects.
    assert_eq!(fixture.cached("mortal", &pods()).await, before);

    create_namespace(&clients[1], "churn").await;
    Churn::new(seed(), "churn").run(&clients[1], 200).await;
    for resource in [pods(), widgets()] {
        fixture.converged("steady", &clients[1], &resource).await;
    }
    assert!(matches!(fixture.freshness("mortal", &pods()).await, Freshness::StaleSince { .. }), "still unreachable");

    clusters[0].restart().await;
    let client = clusters[0].client().await;
    install_widgets(&client).await;
    delete_now(&crate::bed::pods(&client, "default"), "web-0").await;
    create_pod(&client, "default", "back-0").await;
    for resource in [pods(), widgets()] {
        fixture.converged("mortal", &client, &resource).await;
        // State and freshness must be right in the same status, since a watch from an old version counts as open for a
        // moment before it expires.
        let fresh = |state, freshness| (state, freshness) == (Phase::Watching, Freshness::Synced);
        fixture.until("fresh again", "mortal", &resource, |is| fresh(is.state, is.freshness)).await;
    }
    create_widget(&client, "default", "late-0").await;
    fixture.converged("mortal", &client, &widgets()).await;
    assert_eq!(
        fixture.informer("steady", &pods()).await.lists,
        1,
        "the outage of one cluster caused a list in the other"
    );
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_missed_by_compaction_are_notified_as_tombstones() {
    let [mut gone, other] = RealCluster::start_all(["gone", "other"]).await;
    let client = gone.client().await;
    install_widgets(&client).await;
    install_widgets(&other.client().await).await;
    create_pods(&client, "default", "web", 50).await;
    create_widgets(&client, "default", "part", 10).await;
    let proxy = FaultProxy::start(gone.url()).await;
    let through = gone.kubeconfig_via(&proxy);
    let fixture = HubFixture::start([("gone", through.as_path()), ("other", other.kubeconfig())], Vec::new()).await;
    fixture.synced().await;
    fixture.converged("gone", &client, &pods()).await;

    proxy.set(Fault::Refuse).await;
    fixture.until("the watch is broken", "gone", &pods(), |informer| informer.state == Phase::Stale).await;
    let reached = fixture.informer("gone", &pods()).await;
    let api = crate::bed::pods(&client, "default");
    let deleted: BTreeSet<_> = (0..20).map(|i| ObjectKey::new("default", &format!("web-{i}"))).collect();
    for key in &deleted {
        delete_now(&api, key.name()).await;
    }
    delete_now(&crate::bed::widgets(&client, "default"), "part-3").await;
    // Re-created under the same name: must be notified as a deletion and an addition.
    create_pod(&client, "default", "web-7").await;
    merge(&api, "web-30", serde_json::json!({"metadata": {"labels": {"app": "changed"}}})).await;
    create_pod(&client, "default", "new-0").await;
    gone.compact().await;
    gone.restart().await;
    let client = gone.client().await;
    install_widgets(&client).await;
    let version = reached.resource_version.as_deref().unwrap();
    assert_eq!(watch_error(&client, version).await, 410, "the old version is not compacted away");
    assert_eq!(fixture.tombstones("gone", &pods()), BTreeSet::new());

    proxy.set(Fault::Pass).await;
    for resource in [pods(), widgets()] {
        fixture.converged("gone", &client, &resource).await;
    }
    assert_eq!(fixture.tombstones("gone", &pods()), deleted);
    assert_eq!(fixture.tombstones("gone", &widgets()), BTreeSet::from([ObjectKey::new("default", "part-3")]));
    assert!(fixture.informer("gone", &pods()).await.lists > reached.lists);
    // An observed deletion is not a tombstone.
    delete_now(&crate::bed::pods(&client, "default"), "web-40").await;
    fixture.converged("gone", &client, &pods()).await;
    assert_eq!(fixture.tombstones("gone", &pods()), deleted);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_resource_is_reported_and_affects_no_other_informer() {
    let [locked, open] = RealCluster::start_all(["locked", "open"]).await;
    let clients = [locked.client().await, open.client().await];
    for client in &clients {
        install_widgets(client).await;
        create_pods(client, "default", "web", 20).await;
        create_widgets(client, "default", "part", 5).await;
    }
    grant_limited(&clients[0], &locked.limited_client().await, Verbs::ListAndWatch).await;
    let kubeconfigs = [("locked", locked.limited_kubeconfig()), ("open", open.kubeconfig())];
    let fixture = HubFixture::start(kubeconfigs, Vec::new()).await;
    fixture.ready().await;

    let waited = fixture.hub.wait_for_cache_sync(Duration::from_millis(1)).await.unwrap_err();
    assert!(waited.to_string().contains("locked/widgets.bed.example.com is forbidden"), "{waited}");
    let informer = fixture.informer("locked", &widgets()).await;
    assert_eq!((informer.state, informer.synced, informer.objects), (Phase::Forbidden, false, 0));
    let error = informer.last_error.unwrap_or_default();
    assert!(error.contains("403") && error.contains("limited"), "{error:?}");
    assert_eq!(fixture.freshness("locked", &widgets()).await, Freshness::Missing);
    assert!(fixture.answer("locked", &widgets()).await.items.is_empty());
    let report = fixture.report().await;
    assert!(report.hub.clusters.iter().all(|cluster| cluster.state == ClusterState::Connected));

    create_pod(&clients[0], "default", "seen-0").await;
    create_widget(&clients[1], "default", "seen-0").await;
    fixture.converged("locked", &clients[0], &pods()).await;
    fixture.converged("open", &clients[1], &pods()).await;
    fixture.converged("open", &clients[1], &widgets()).await;
    assert_eq!(fixture.informer("locked", &widgets()).await.state, Phase::Forbidden);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_installed_later_is_watched() {
    let [late, early] = RealCluster::start_all(["late", "early"]).await;
    let clients = [late.client().await, early.client().await];
    install_widgets(&clients[1]).await;
    create_widgets(&clients[1], "default", "part", 5).await;
    for client in &clients {
        create_pods(client, "default", "web", 20).await;
    }
    let fixture = HubFixture::start([("late", late.kubeconfig()), ("early", early.kubeconfig())], Vec::new()).await;
    fixture.ready().await;

    let informer = fixture.informer("late", &widgets()).await;
    assert_eq!((informer.state, informer.synced), (Phase::Absent, false));
    let error = informer.last_error.unwrap_or_default();
    assert!(error.contains("widgets.bed.example.com"), "{error:?}");
    assert_eq!(fixture.freshness("late", &widgets()).await, Freshness::Missing);
    assert!(fixture.cached("late", &widgets()).await.is_empty());
    fixture.converged("late", &clients[0], &pods()).await;
    fixture.converged("early", &clients[1], &widgets()).await;

    install_widgets(&clients[0]).await;
    create_widgets(&clients[0], "default", "part", 3).await;
    fixture
        .until("the new resource is watched", "late", &widgets(), |informer| informer.state == Phase::Watching)
        .await;
    create_widget(&clients[0], "default", "live-0").await;
    fixture.converged("late", &clients[0], &widgets()).await;
    assert_eq!(fixture.cached("late", &widgets()).await.len(), 4);
    assert_eq!(fixture.informer("late", &widgets()).await.last_error, None);
    fixture.end().await;
}
