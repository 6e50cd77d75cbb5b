//! A reader with rules gets the answers of a hub that has only what it may see: random rules, objects and requests.

use std::collections::BTreeSet;

use futures::FutureExt;
use proptest::prelude::*;

use super::super::*;
use super::{ann, nodes, rule, secrets};
use informer_hub_access::Rule;

const CLUSTERS: [(&str, &str); 2] = [("a", "prod"), ("b", "dev")];
const NAMESPACES: [&str; 4] = ["s", "s-x", "t", "team-1"];

/// An object: cluster, resource, namespace, name.
type Place = (usize, usize, usize, u8);

/// A rule: tier, namespaces, resources, exceptions.
type Written = (Option<String>, Vec<String>, Vec<String>, Vec<String>);

fn resources() -> [ApiResource; 3] {
    [pods(), secrets(), nodes()]
}

fn places() -> impl Strategy<Value = BTreeSet<Place>> {
    prop::collection::btree_set((0..2_usize, 0..3_usize, 0..4_usize, 0..3_u8), 0..24)
}

fn rules() -> impl Strategy<Value = Vec<Written>> {
    let namespaces = prop::collection::vec("s|s-x|s\\*|t|team-\\*|\\*|none", 0..3);
    let resources = prop::collection::vec("pods|secrets|nodes|\\*", 1..3);
    let one = (prop::option::of("prod|dev"), namespaces, resources, prop::collection::vec("pods|nodes", 0..2));
    prop::collection::vec(one, 0..4)
}

fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

fn written((tier, namespaces, resources, except): &Written) -> Rule {
    rule(tier.as_deref(), &texts(namespaces), &texts(resources), &texts(except))
}

fn object(place: Place, version: u64) -> StoredObject {
    let (_, resource, namespace, name) = place;
    let namespace = if resource == 2 { "" } else { NAMESPACES[namespace] };
    let app = if name == 0 { "web" } else { "db" };
    pod(namespace, &format!("o{name}"), version, app, if version.is_multiple_of(2) { "n1" } else { "n2" })
}

/// The hub, and the hub that has only what the reader may see.
struct Hubs {
    whole: Bench,
    visible: Bench,
    rules: Vec<Rule>,
    places: BTreeSet<Place>,
    version: u64,
}

impl Hubs {
    fn new(places: BTreeSet<Place>, rules: Vec<Rule>) -> Self {
        let options = ReadApiOptions { requests: 10, watches: 100, secrets: false };
        let (mut whole, mut visible) = (Bench::new(options), Bench::new(ReadApiOptions { secrets: true, ..options }));
        whole.reader = ann(rules.clone());
        // Nodes share no names with namespaces, so that keys are unique per cluster and resource.
        let places: BTreeSet<_> = places
            .into_iter()
            .map(|(cluster, resource, namespace, name)| {
                (cluster, resource, if resource == 2 { 0 } else { namespace }, name)
            })
            .collect();
        let hubs = Self {
            rules,
            version: 10,
            places: places.clone(),
            whole: Bench::new(options),
            visible: Bench::new(options),
        };
        for (number, resource) in resources().iter().enumerate() {
            whole.watch_resource(resource);
            visible.watch_resource(resource);
            for (at, (cluster, _)) in CLUSTERS.iter().enumerate() {
                let all: Vec<_> = places.iter().filter(|it| (it.0, it.1) == (at, number)).copied().collect();
                let of = |all: &[Place]| all.iter().map(|place| object(*place, 3 + u64::from(place.3))).collect();
                whole.list(resource, cluster, of(&all), 10);
                if hubs.sees_any(at, number) {
                    let seen: Vec<_> = all.into_iter().filter(|place| hubs.sees(*place)).collect();
                    visible.list(resource, cluster, of(&seen), 10);
                }
            }
        }
        Self { whole, visible, ..hubs }
    }

    /// Returns the rules about a resource in a cluster.
    fn of(&self, cluster: usize, resource: usize) -> impl Iterator<Item = &Rule> {
        let (name, tier) = CLUSTERS[cluster];
        let (name, labels) = (ClusterName::new(name).unwrap(), [("tier".to_owned(), tier.to_owned())].into());
        let resource = resources()[resource].clone();
        self.rules.iter().filter(move |rule| rule.covers(&resource) && rule.selects(&name, &labels))
    }

    fn sees(&self, (cluster, resource, namespace, _): Place) -> bool {
        let namespace = (resource != 2).then_some(NAMESPACES[namespace]);
        self.of(cluster, resource).any(|rule| rule.visible(resource != 2).sees(namespace))
    }

    fn sees_any(&self, cluster: usize, resource: usize) -> bool {
        self.of(cluster, resource).any(|rule| !rule.visible(resource != 2).is_nothing())
    }

    /// Returns the refusal of a request that the reader has no right to at all.
    fn refusal(&self, root: &str, resource: usize, namespace: Option<usize>) -> Option<u16> {
        let Some(cluster) = CLUSTERS.iter().position(|(name, _)| root == format!("/clusters/{name}")) else {
            let is_covered = self.rules.iter().any(|rule| rule.covers(&resources()[resource]));
            return (!is_covered).then_some(403);
        };
        let (name, labels) = (ClusterName::new(CLUSTERS[cluster].0).unwrap(), CLUSTERS[cluster].1);
        let labels = [("tier".to_owned(), labels.to_owned())].into();
        if !self.rules.iter().any(|rule| rule.selects(&name, &labels)) {
            return Some(404);
        }
        let is_allowed = match namespace {
            Some(namespace) => self.sees((cluster, resource, namespace, 0)),
            None => self.sees_any(cluster, resource),
        };
        (!is_allowed).then_some(403)
    }

    /// Adds, modifies or deletes an object in both hubs.
    fn change(&mut self, place: Place, is_deleted: bool) {
        let place = if place.1 == 2 { (place.0, 2, 0, place.3) } else { place };
        self.version += 1;
        let kind = match (is_deleted, self.places.contains(&place)) {
            (true, true) => DeltaKind::Deleted,
            (true, false) => return,
            (false, true) => DeltaKind::Updated,
            (false, false) => DeltaKind::Added,
        };
        if is_deleted {
            self.places.remove(&place)
        } else {
            self.places.insert(place)
        };
        let (resource, cluster) = (&resources()[place.1], CLUSTERS[place.0].0);
        self.whole.event_of(resource, cluster, kind, object(place, self.version));
        if self.sees(place) {
            self.visible.event_of(resource, cluster, kind, object(place, self.version));
        } else if self.sees_any(place.0, place.1) {
            // The cluster's version passes in both hubs.
            let id = self.visible.partitions[&(cluster.to_owned(), resource.gvr.clone())];
            self.visible.apply(&resource.gvr, id, [], ResourceVersion::new(&self.version.to_string()));
        }
    }
}

/// Removes what names versions of the hub, which count invisible changes too.
fn without_versions(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for name in ["resourceVersion", "continue"] {
                members.remove(name);
            }
            members.values_mut().for_each(without_versions);
        }
        Value::Array(items) => items.iter_mut().for_each(without_versions),
        _ => {}
    }
}

/// Returns the answers to a request and to all its further pages.
async fn pages(bench: &Bench, path: &str, is_fleet: bool) -> Vec<(u16, Value)> {
    let (mut found, mut next) = (Vec::new(), path.to_owned());
    loop {
        let (code, mut answer) = bench.json(&next).await;
        let token = answer["metadata"]["continue"].as_str().or(answer["continue"].as_str()).map(str::to_owned);
        if is_fleet {
            without_versions(&mut answer);
        } else if let Some(metadata) = answer.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("continue");
        }
        found.push((code, answer));
        match token.filter(|token| !token.is_empty()) {
            // The tests of queries have no cache, which pins snapshots for tokens.
            Some(token) if !path.starts_with("/v1") => next = format!("{path}&continue={token}"),
            _ => return found,
        }
        assert!(found.len() < 100, "{path}");
    }
}

/// Returns the events that a watch has now.
fn events(watch: &mut Events, is_fleet: bool) -> Vec<Value> {
    let mut found = Vec::new();
    let mut idle = 0;
    while idle < 8 {
        match watch.next_unbounded().now_or_never() {
            Some(Some(mut event)) => {
                if is_fleet {
                    without_versions(&mut event);
                }
                found.push(event);
                idle = 0;
            }
            Some(None) => break,
            None => idle += 1,
        }
    }
    found
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"))
}

const ROOTS: [&str; 6] =
    ["/clusters/a", "/clusters/b", "/clusters/*", "/clusters/tier=prod", "/unique/*", "/unique/tier=dev"];

const LISTS: [&str; 7] = [
    "?limit=1",
    "?limit=2",
    "?limit=500",
    "?labelSelector=app%3Dweb&limit=2",
    "?fieldSelector=metadata.name%3Do1",
    "?fieldSelector=metadata.namespace%3Ds&limit=1",
    "?resourceVersion=0",
];

const QUERIES: [&str; 13] = [
    "",
    "count",
    "count by namespace",
    "distinct cluster",
    "count by spec.nodeName",
    "namespace = s",
    "namespace in (s, t) and name = o1",
    "namespace prefix s and name prefix o",
    "name = o1 order by cluster desc limit 2",
    "labels(app=web) select cluster, namespace, name limit 3",
    "spec.nodeName = n1 or namespace = team-1",
    "cluster(tier=prod) and not namespace = s",
    "spec.missing = 1",
];

async fn lists_agree(hubs: &Hubs) {
    for root in ROOTS {
        for (number, resource) in resources().iter().enumerate() {
            let namespaces: &[Option<usize>] =
                if number == 2 { &[None] } else { &[None, Some(0), Some(1), Some(2), Some(3)] };
            for namespace in namespaces {
                let plural = &resource.gvr.resource;
                let path = match namespace {
                    Some(at) => format!("{root}/api/v1/namespaces/{}/{plural}", NAMESPACES[*at]),
                    None => format!("{root}/api/v1/{plural}"),
                };
                let refusal = hubs.refusal(root, number, *namespace);
                let is_fleet = root.len() > "/clusters/a".len() || root.ends_with('*');
                for options in LISTS {
                    let path = format!("{path}{options}");
                    let found = pages(&hubs.whole, &path, is_fleet).await;
                    if let Some(code) = refusal {
                        assert_eq!(found[0].0, code, "{path}");
                    } else {
                        assert_eq!(found, pages(&hubs.visible, &path, is_fleet).await, "{path}");
                    }
                }
                if namespace.is_some() || number == 2 {
                    let path = format!("{path}/{}o1", if root.starts_with("/unique") { "a:" } else { "" });
                    let found = pages(&hubs.whole, &path, is_fleet).await;
                    match refusal {
                        Some(code) => assert_eq!(found[0].0, code, "{path}"),
                        None => assert_eq!(found, pages(&hubs.visible, &path, is_fleet).await, "{path}"),
                    }
                }
            }
        }
    }
}

async fn queries_agree(hubs: &Hubs) {
    for (number, resource) in resources().iter().enumerate() {
        let is_covered = hubs.rules.iter().any(|rule| rule.covers(resource));
        for query in QUERIES {
            for more in ["", "&explain=true", "&clusters=tier%3Dprod"] {
                let path = format!("/v1/query?resource={}&q={}{more}", resource.gvr.resource, encoded(query));
                let found = pages(&hubs.whole, &path, true).await;
                if is_covered {
                    assert_eq!(found, pages(&hubs.visible, &path, true).await, "{number} {query} {more}");
                } else {
                    assert_eq!(found[0].0, 404, "{number} {query} {more}");
                }
            }
        }
    }
}

async fn watches_agree(hubs: &mut Hubs, changes: &[(Place, bool)]) {
    let mut watches = Vec::new();
    for root in ROOTS {
        for (number, resource) in resources().iter().enumerate() {
            if hubs.refusal(root, number, None).is_some() {
                continue;
            }
            for options in ["", "&labelSelector=app%3Dweb"] {
                let path = format!("{root}/api/v1/{}?watch=1{options}", resource.gvr.resource);
                let (whole, visible) = (hubs.whole.watch(&path).await, hubs.visible.watch(&path).await);
                watches.push((path, whole, visible));
            }
        }
    }
    for change in [None].into_iter().chain(changes.iter().map(Some)) {
        if let Some((place, is_deleted)) = change {
            hubs.change(*place, *is_deleted);
        }
        for (path, whole, visible) in &mut watches {
            let is_fleet = !path.starts_with("/clusters/a/") && !path.starts_with("/clusters/b/");
            assert_eq!(events(whole, is_fleet), events(visible, is_fleet), "{path} {change:?}");
        }
    }
}

proptest! {
    #![proptest_config(crate::cache::testing::properties(8))]

    #[test]
    fn reader_gets_the_answers_of_a_hub_with_the_visible_objects(
        places in places(),
        rules in rules(),
        changes in prop::collection::vec(((0..2_usize, 0..3_usize, 0..4_usize, 0..3_u8), any::<bool>()), 0..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut hubs = Hubs::new(places, rules.iter().map(written).collect());
            lists_agree(&hubs).await;
            queries_agree(&hubs).await;
            watches_agree(&mut hubs, &changes).await;
            lists_agree(&hubs).await;
            queries_agree(&hubs).await;
        });
    }
}
