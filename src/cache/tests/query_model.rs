//! Model test of queries: random queries against a simple filter.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::query::{ask, covered, fill, found, origin};
use crate::testing::{object_with, pods, properties};
use crate::{Query, Store};
use informer_hub_types::{ClusterName, ClusterSelector};

const CLUSTERS: [&str; 3] = ["c1", "c2", "c3"];
const TIERS: [&str; 3] = ["dev", "prod", "prod"];
const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];
const APPS: [&str; 3] = ["web", "db", "api"];
const NODES: [&str; 3] = ["n1", "n2", "n3"];

#[derive(Clone, Debug)]
struct Pod {
    namespace: usize,
    name: usize,
    version: u64,
    app: usize,
    nodes: Vec<usize>,
}

/// An informer: cluster, watched namespace if only one, whether it declares the index, and its pods.
type Informer = (usize, Option<usize>, bool, Vec<Pod>);

#[derive(Clone, Debug)]
struct Asked {
    clusters: usize,
    namespace: Option<usize>,
    app: Option<usize>,
    name: Option<usize>,
    node: Option<usize>,
}

fn arb_pod() -> impl Strategy<Value = Pod> {
    (0..3_usize, 0..3_usize, 1..6_u64, 0..3_usize, prop::collection::vec(0..3_usize, 0..3))
        .prop_map(|(namespace, name, version, app, nodes)| Pod { namespace, name, version, app, nodes })
}

fn arb_informer() -> impl Strategy<Value = Informer> {
    (0..3_usize, prop::option::of(0..3_usize), any::<bool>(), prop::collection::vec(arb_pod(), 0..12))
}

fn arb_asked() -> impl Strategy<Value = Asked> {
    let maybe = || prop::option::of(0..3_usize);
    (0..4_usize, maybe(), maybe(), maybe(), maybe()).prop_map(|(clusters, namespace, app, name, node)| Asked {
        clusters,
        namespace,
        app,
        name,
        node,
    })
}

impl Asked {
    fn query(&self) -> Query {
        let mut query = match (self.node, self.name, self.namespace) {
            (Some(node), ..) => Query::by_index("by-node", NODES[node]),
            (None, Some(name), Some(namespace)) => Query::get(NAMESPACES[namespace], &name.to_string()),
            _ => Query::list(),
        };
        if let Some(namespace) = self.namespace {
            query = query.in_namespace(NAMESPACES[namespace]);
        }
        if let Some(app) = self.app {
            query = query.with_labels(format!("app={}", APPS[app]).parse().unwrap());
        }
        query.in_clusters(match self.clusters {
            0 => ClusterSelector::All,
            1 => ClusterSelector::Labels([("tier".to_owned(), "prod".to_owned())].into()),
            2 => ClusterSelector::Names(vec![ClusterName::new("c1").unwrap(), ClusterName::new("c3").unwrap()]),
            _ => ClusterSelector::Names(Vec::new()),
        })
    }

    fn wants_cluster(&self, cluster: usize) -> bool {
        [true, cluster > 0, cluster != 1, false][self.clusters]
    }

    fn wants(&self, pod: &Pod) -> bool {
        // A query cannot have a name without a namespace.
        let named = self.name.filter(|_| self.namespace.is_some() && self.node.is_none());
        self.namespace.is_none_or(|namespace| namespace == pod.namespace)
            && self.app.is_none_or(|app| app == pod.app)
            && named.is_none_or(|name| name == pod.name)
            && self.node.is_none_or(|node| pod.nodes.contains(&node))
    }

    fn reaches(&self, watched: Option<usize>) -> bool {
        watched.is_none() || self.namespace.is_none() || watched == self.namespace
    }
}

/// Returns the newest state of each object among the informers of a cluster that can answer.
fn newest<'p>(informers: &'p [Informer], cluster: usize, asked: &Asked) -> BTreeMap<String, &'p Pod> {
    let mut newest: BTreeMap<String, &Pod> = BTreeMap::new();
    for (_, _, declares, pods) in informers.iter().filter(|informer| informer.0 == cluster && asked.reaches(informer.1))
    {
        for pod in pods.iter().filter(|_| *declares || asked.node.is_none()) {
            let key = format!("{}/{}", NAMESPACES[pod.namespace], pod.name);
            let known = newest.entry(key).or_insert(pod);
            if pod.version > known.version {
                *known = pod;
            }
        }
    }
    newest
}

/// Makes informers valid: objects in the watched namespace, unique keys, no undeclared index values.
fn settle(informers: &mut Vec<Informer>) {
    informers.sort_by_key(|informer| (informer.0, informer.1));
    informers.dedup_by_key(|informer| (informer.0, informer.1));
    for (_, watched, declares, pods) in informers {
        pods.retain(|pod| watched.is_none_or(|namespace| namespace == pod.namespace));
        let mut keys = std::collections::BTreeSet::new();
        pods.retain(|pod| keys.insert((pod.namespace, pod.name)));
        if !*declares {
            for pod in pods {
                pod.nodes.clear();
            }
        }
    }
}

proptest! {
    #![proptest_config(properties(1024))]

    #[test]
    fn answer_equals_a_filter_over_the_newest_states(
        mut informers in prop::collection::vec(arb_informer(), 1..7),
        asked in arb_asked(),
    ) {
        settle(&mut informers);
        let mut store = Store::new(pods());
        for (cluster, watched, declares, pods) in &informers {
            let origin = origin(CLUSTERS[*cluster], &[("tier", TIERS[*cluster])], watched.map(|at| NAMESPACES[at]));
            let object = |pod: &Pod| {
                let nodes: Vec<_> = pod.nodes.iter().map(|node| ("by-node", NODES[*node])).collect();
                let (namespace, name) = (NAMESPACES[pod.namespace], pod.name.to_string());
                object_with(namespace, &name, "u", pod.version, &[("app", APPS[pod.app])], &nodes)
            };
            let declared: &[_] = if *declares { &["by-node"] } else { &[] };
            fill(&mut store, origin, declared, pods.iter().map(object).collect());
        }
        if asked.node.is_some() && !informers.iter().any(|(_, _, declares, _)| *declares) {
            prop_assert!(store.published().load().answer(&asked.query()).is_err());
            return Ok(());
        }
        let answer = ask(&store, &asked.query());
        let (mut items, mut coverage) = (Vec::new(), Vec::new());
        for cluster in (0..CLUSTERS.len()).filter(|cluster| asked.wants_cluster(*cluster)) {
            for (key, pod) in newest(&informers, cluster, &asked) {
                if asked.wants(pod) {
                    items.push(format!("{}/{key}@{}", CLUSTERS[cluster], pod.version));
                }
            }
            let of_cluster: Vec<_> = informers.iter().filter(|informer| informer.0 == cluster).collect();
            let reached: Vec<_> = of_cluster.iter().filter(|informer| asked.reaches(informer.1)).collect();
            let complete = !reached.is_empty() && (asked.node.is_none() || reached.iter().all(|informer| informer.2));
            if !of_cluster.is_empty() {
                coverage.push(format!("{} {}", CLUSTERS[cluster], if complete { "ok" } else { "missing" }));
            }
        }
        prop_assert_eq!(found(&answer), items);
        prop_assert_eq!(covered(&answer), coverage);
    }
}
