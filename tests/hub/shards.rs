//! Tests of a cluster that is divided among collectors.

use std::collections::BTreeMap;

use informer_hub_fleet::simulated_log::Faults;
use informer_hub_fleet::{ReadOutcome, Reader, Record};
use informer_hub_roles::RosterItem;
use informer_hub_roles::simulated::SimulatedFleet;
use informer_hub_sim::{Churn, ResourceDef, SimCluster};
use informer_hub_types::{Gvr, ObjectKey, ShardName, ShardRule, ShardRules};

use serde_json::json;

use crate::collect::{Process, churn, cluster, lists, services};
use crate::fleet::eventually;

const RESOURCES: [&str; 2] = ["nodes", "pods"];

/// Returns the rule of a shard with these resources.
fn rules(name: &str, resources: &[&str]) -> ShardRules {
    ShardRules::new(vec![ShardRule {
        name: ShardName::new(name).unwrap(),
        clusters: vec!["c*".to_owned()],
        resources: resources.iter().map(|resource| resource.parse().unwrap()).collect(),
        namespaces: Vec::new(),
    }])
}

async fn start(name: &str, services: &SimulatedFleet, clusters: &BTreeMap<String, SimCluster>) -> Process {
    Process::start_divided(name, services, clusters, &RESOURCES, rules("nodes", &["nodes"])).await
}

/// Returns the objects of a resource in the log.
fn logged(services: &SimulatedFleet, plural: &str) -> BTreeMap<ObjectKey, u64> {
    let (mut reader, mut objects) = (Reader::new(), BTreeMap::new());
    for entry in services.log().history().iter().filter(|entry| entry.partition.resource.resource == plural) {
        let ReadOutcome::Records(records) = reader.read(entry).unwrap() else { continue };
        for record in records {
            match record {
                Record::Put { key, version, .. } => _ = objects.insert(key, version.as_number().unwrap()),
                Record::Delete { key, .. } => assert!(objects.remove(&key).is_some(), "{key} is deleted twice"),
                Record::Reset { .. } => objects.clear(),
                _ => {}
            }
        }
    }
    objects
}

async fn log_is_complete(services: &SimulatedFleet, clusters: &BTreeMap<String, SimCluster>) {
    for plural in RESOURCES {
        eventually(&format!("the log has all {plural}"), async || {
            let truth = clusters["c0"].truth(&Gvr::new("", "v1", plural));
            let truth: BTreeMap<_, _> =
                truth.iter().map(|(key, (_, version))| (key.clone(), version.as_number().unwrap())).collect();
            logged(services, plural) == truth
        })
        .await;
    }
}

/// Returns each part of the cluster with its owner: `None` is the part outside of shards.
async fn owners(process: &Process) -> Vec<(Option<String>, Option<String>)> {
    process.fleet().await.clusters.into_iter().map(|cluster| (cluster.shard, cluster.owner)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_of_a_cluster_are_watched_by_two_collectors_and_taken_over_without_a_list() {
    let (services, clusters, mut changes) = (services(31, Faults::NONE), cluster(31, 60), Churn::new(31));
    let first = start("first", &services, &clusters).await;
    eventually("the first watches both shards", async || first.watched().await == RESOURCES).await;
    log_is_complete(&services, &clusters).await;
    let listed = lists(&clusters);
    let second = start("second", &services, &clusters).await;
    // The operator moves the shard. The balance would not, because the weights of so few objects are too small.
    services.set_roster(RosterItem::Pin { shard: "c0/nodes".parse().unwrap(), collector: "second".to_owned() });
    eventually("each watches its shard", async || {
        first.watched().await == ["pods"] && second.watched().await == ["nodes"]
    })
    .await;
    let of = |name: &str| Some(name.to_owned());
    eventually("the status has both owners", async || {
        owners(&first).await == [(None, of("first")), (of("nodes"), of("second"))]
    })
    .await;
    churn(&clusters, &mut changes, 50);
    log_is_complete(&services, &clusters).await;
    services.clear_roster();
    second.end().await;
    eventually("the first watches both again", async || first.watched().await == RESOURCES).await;
    churn(&clusters, &mut changes, 50);
    log_is_complete(&services, &clusters).await;
    assert_eq!(lists(&clusters), listed, "shards move without a list");
    first.end().await;
}

/// Defines a custom resource, and creates an object of it.
fn define(clusters: &BTreeMap<String, SimCluster>, plural: &str) {
    let gvr = Gvr::new("example.com", "v1", plural);
    clusters["c0"].with_world(|world| {
        world.register(ResourceDef::new(&gvr, &format!("K{plural}"), true, true));
        world.create(&gvr, "shop", &format!("one-{plural}"), json!({})).unwrap();
    });
}

async fn watches(process: &Process, expected: &[&str]) {
    eventually(&format!("{expected:?} are watched"), async || {
        let mut watched = process.watched().await;
        watched.sort();
        watched == expected
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_of_a_shard_alone_finds_the_resources_of_a_pattern() {
    let (services, clusters) = (services(32, Faults::NONE), cluster(32, 5));
    define(&clusters, "gears");
    let start = async |name: &str| {
        let rules = rules("custom", &["gears.example.com", "springs.example.com"]);
        Process::start_divided(name, &services, &clusters, &["pods", "*.example.com"], rules).await
    };
    let first = start("first").await;
    watches(&first, &["gears.example.com", "pods", "widgets.example.com"]).await;
    let second = start("second").await;
    services.set_roster(RosterItem::Pin { shard: "c0/custom".parse().unwrap(), collector: "second".to_owned() });
    watches(&second, &["gears.example.com"]).await;
    watches(&first, &["pods", "widgets.example.com"]).await;
    // CRDs belong to the part of the cluster outside of the shard, which the other collector owns.
    define(&clusters, "springs");
    define(&clusters, "levers");
    watches(&second, &["gears.example.com", "springs.example.com"]).await;
    watches(&first, &["levers.example.com", "pods", "widgets.example.com"]).await;
    eventually("the log has the new objects", async || {
        ["springs", "levers"].iter().all(|plural| logged(&services, plural).len() == 1)
    })
    .await;
    first.end().await;
    second.end().await;
}
