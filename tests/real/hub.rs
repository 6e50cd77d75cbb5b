//! The hub against real apiservers: it agrees with them in the end, whatever happens on the way.

use informer_hub::sim::oracle::Oracle;
use informer_hub::types::{ApiResource, Freshness};

use crate::bed::{
    Churn, RealCluster, Truth, comes_true, create_namespace, create_pods, create_widgets, install_widgets, seed, truth,
};
use crate::fleet::{Fleet, PATIENCE, origin, pods, widgets};
use crate::receiver::Receiver;

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_equals_a_fresh_list_of_both_clusters_after_churn() {
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
    let fleet = Fleet::start(kubeconfigs, vec![receiver.sink("receiver")]).await;
    fleet.synced().await;
    let seed = seed();
    let mut churns = [Churn::new(seed, "churn"), Churn::new(seed.wrapping_add(1), "churn")];
    let [east, west] = &mut churns;
    tokio::join!(east.run(&clients[0], 1_000), west.run(&clients[1], 1_000));

    for (cluster, client) in clusters.iter().zip(&clients) {
        for resource in [pods(), widgets()] {
            fleet.converged(cluster.name(), client, &resource).await;
            assert_eq!(fleet.freshness(cluster.name(), &resource).await, Freshness::Synced);
            received(&receiver, cluster.name(), &truth(client, &resource.gvr).await, &resource).await;
        }
    }
    assert_eq!(receiver.replica().lock().violations(), &[] as &[String]);
    let report = fleet.report().await;
    assert!(report.hub.ready);
    let mut informers = report.hub.clusters.iter().flat_map(|cluster| &cluster.informers);
    assert!(informers.all(|informer| (informer.lists, informer.skipped, informer.restarts) == (1, 0, 0)));
    fleet.end().await;
}

/// Waits until a webhook's receiver has what is true.
async fn received(receiver: &Receiver, cluster: &str, truth: &Truth, resource: &ApiResource) {
    let differences = || Oracle::diff(truth, &receiver.replica().lock().seen_of(&origin(cluster, resource)));
    let agrees = comes_true(PATIENCE, async || differences().is_empty()).await;
    assert!(agrees, "the receiver's {} of {cluster}: {:?}", resource.gvr, differences());
}
