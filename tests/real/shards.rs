//! Hub processes that share one cluster by its resources, through a real `nats-server`.

use serde_json::Value;

use crate::bed::{
    RealCluster, becomes_true, create_namespace, create_pods, create_widgets, delete_now, install_widgets,
    widgets as widgets_of,
};
use crate::fixture::{WAIT_DEADLINE, origin, pods, widgets};
use crate::fleet::{LogReader, Process, shows_objects};
use crate::nats_server::Server;

const SHARDS: &str = "[resources.widgets]\n[fleet.shards.widgets]\nresources = [\"widgets\"]\n";

/// Returns the resources of the informers of a process.
async fn watched(process: &Process) -> Vec<String> {
    let clusters = process.status().await["clusters"].as_array().cloned().unwrap_or_default();
    let informers = clusters.iter().flat_map(|cluster| cluster["informers"].as_array().cloned().unwrap_or_default());
    informers.map(|informer| informer["resource"].as_str().unwrap().to_owned()).collect()
}

async fn watches(process: &Process, expected: &[&str]) {
    let is_so = becomes_true(WAIT_DEADLINE, async || watched(process).await == expected).await;
    assert!(is_so, "{:?} instead of {expected:?}: {}", watched(process).await, process.fleet().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_cluster_are_watched_by_two_processes_and_served_as_one() {
    let (nats, clusters) = tokio::join!(Server::start(&["--jetstream"]), RealCluster::start_all(["east"]));
    let client = clusters[0].client().await;
    install_widgets(&client).await;
    create_namespace(&client, "shop").await;
    create_pods(&client, "shop", "pod", 20).await;
    create_widgets(&client, "shop", "widget", 20).await;
    let first = Process::start_with(&nats, &clusters, SHARDS);
    first.owns(2).await;
    watches(&first, &["pods", "widgets.bed.example.com"]).await;
    let second = Process::start_with(&nats, &clusters, SHARDS);
    let replica = Process::replica_with(&nats, &clusters, SHARDS);
    assert!(becomes_true(WAIT_DEADLINE, async || second.fleet().await["process"].is_string()).await);
    let of_second = second.fleet().await["process"].as_str().unwrap_or_default().to_owned();
    let said = second.workdir.printed(&["fleet", "move", "east/widgets", &of_second, "-c", "hub.toml"]);
    assert!(said.contains("east/widgets has moved from"), "{said}");
    watches(&second, &["widgets.bed.example.com"]).await;
    watches(&first, &["pods"]).await;
    let shows_all = async || {
        shows_objects(&replica.workdir, &clusters[0], &pods()).await;
        shows_objects(&replica.workdir, &clusters[0], &widgets()).await;
    };
    create_pods(&client, "shop", "later", 5).await;
    create_widgets(&client, "shop", "later", 5).await;
    shows_all().await;
    let owners = replica.fleet().await["clusters"].take();
    let of_shard = |at: usize| (owners[at]["name"].clone(), owners[at]["shard"].clone());
    assert_eq!(
        [of_shard(0), of_shard(1)],
        [("east".into(), Value::Null), ("east".into(), "widgets".into())],
        "{owners}"
    );

    // A widget is deleted while no process watches widgets.
    second.hub.freeze(true);
    delete_now(&widgets_of(&client, "shop"), "widget-0").await;
    watches(&first, &["pods", "widgets.bed.example.com"]).await;
    shows_all().await;
    let lists = LogReader::open(&nats).await.read().await.lists;
    for resource in [pods(), widgets()] {
        assert_eq!(lists[&origin("east", &resource)], 1, "no shard is listed anew: {lists:?}");
    }
}
