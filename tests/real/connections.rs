//! Connections of the hub to a kube-apiserver over HTTP/2, which sends GOAWAYs and is restarted.

use crate::bed::{
    Churn, RealCluster, create_namespace, create_pods, create_widgets, eventually, install_widgets, seed,
};
use crate::fixture::{HubFixture, WAIT_DEADLINE, pods, widgets};
use crate::proxy::FaultProxy;

#[tokio::test(flavor = "multi_thread")]
async fn informers_share_connections_through_goaways_and_a_restart() {
    // The highest probability that a kube-apiserver accepts.
    let mut cluster = RealCluster::start_with("shared", &["--goaway-chance=0.02"]).await;
    let client = cluster.client().await;
    install_widgets(&client).await;
    create_namespace(&client, "churn").await;
    create_pods(&client, "default", "web", 200).await;
    create_widgets(&client, "default", "part", 20).await;
    let proxy = FaultProxy::start(cluster.url()).await;
    let kubeconfig = cluster.kubeconfig_via(&proxy);
    let fixture = HubFixture::start([("shared", kubeconfig.as_path())], Vec::new()).await;
    fixture.synced().await;
    // Four informers (two are the hub's own) and discovery.
    eventually("few connections", WAIT_DEADLINE, async || (1..=2).contains(&proxy.connections().await)).await;

    let mut churn = Churn::new(seed(), "churn");
    for round in 0..3 {
        churn.run(&client, 200).await;
        for resource in [pods(), widgets()] {
            fixture.converged("shared", &client, &resource).await;
            let informer = fixture.informer("shared", &resource).await;
            assert_eq!(informer.lists, 1, "round {round}");
        }
        // All watches end at once, and resume over one connection.
        proxy.reset_all().await;
    }

    cluster.kill();
    cluster.restart().await;
    let client = cluster.client().await;
    churn.run(&client, 100).await;
    for resource in [pods(), widgets()] {
        fixture.converged("shared", &client, &resource).await;
    }
    eventually("few connections again", WAIT_DEADLINE, async || (1..=3).contains(&proxy.connections().await)).await;
    fixture.end().await;
}
