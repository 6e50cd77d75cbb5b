//! Tests of queries to a hub, as text and in Rust.

use std::collections::BTreeMap;

use informer_hub::cache::{Query, QueryError};
use informer_hub_query::{Column, Question};
use informer_hub_sim::{Churn, SimCluster};
use informer_hub_types::Object;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, pods, small};

fn clusters(count: u64, pods: usize) -> BTreeMap<String, SimCluster> {
    (0..count).map(|i| (format!("c{i}"), SimCluster::start(small(i, pods), &Handle::current()).unwrap())).collect()
}

fn words(text: &str) -> Query {
    Query::from(text.parse::<Question>().unwrap())
}

fn named(object: &Object) -> String {
    format!("{}/{}@{}", object.cluster(), object.key(), object.resource_version())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_is_queried_by_text_by_page_and_by_index_value() {
    let fleet = Fleet::start(clusters(2, 150), &["pods"], Vec::new()).await;
    fleet.synced().await;
    fleet.converged().await;
    let cache = fleet.hub.cache_of(pods());
    let ask = async |query: Query| cache.send(query).await.unwrap();
    let all: Vec<_> = ask(Query::list()).await.unwrap().items.iter().map(named).collect();
    assert!(all.len() >= 200, "{}", all.len());
    // The index and the grouping agree on the number of pods per node.
    let counted = ask(words("count by spec.nodeName")).await.unwrap();
    assert_eq!(counted.groups.iter().map(|group| group.count).sum::<u64>(), all.len() as u64);
    let node = counted.groups.iter().find_map(|group| group.value.as_str().map(|node| (node, group.count))).unwrap();
    let there = ask(words(&format!("index by-node = {:?} count", node.0))).await.unwrap();
    assert_eq!(there.count, Some(node.1));
    assert_eq!(there.coverage.len(), 2);
    let by_cluster = ask(Query::list().count_by(Column::Cluster)).await.unwrap();
    assert_eq!(by_cluster.groups.len(), 2);
    // All pages show one snapshot while the clusters change.
    let mut churn = Churn::new(7);
    let mut page = ask(words("limit 40")).await.unwrap();
    let mut pages: Vec<_> = page.items.iter().map(named).collect();
    while let Some(token) = page.next.clone() {
        fleet.clusters["c0"].with_world(|world| churn.step(world));
        page = ask(words(&format!("limit 40 continue {:?}", token.as_str()))).await.unwrap();
        pages.extend(page.items.iter().map(named));
    }
    assert_eq!(pages, all);
    let forged = ask(words("limit 40 continue \"AAAA\"")).await.unwrap_err();
    assert_eq!(forged, QueryError::ForgedToken);
    fleet.end().await;
}
