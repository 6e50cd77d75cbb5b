//! Property tests: a reader with rules gets the same answers as from a hub that has only the objects that the reader
//! may see. Rules, objects and changes are random.

mod around;
mod ask;
mod lists;
mod operators;
mod streams;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::*;
use super::{ann, nodes, rule, secrets};
use informer_hub_access::Rule;

const CLUSTERS: [(&str, &str); 2] = [("a", "prod"), ("b", "dev")];
const NAMESPACES: [&str; 4] = ["s", "s-x", "t", "team-1"];

/// An object: the indices of its cluster, resource and namespace, and the number in its name.
type Place = (usize, usize, usize, u8);

/// A rule: tier, namespaces, resources, exceptions.
type Written = (Option<String>, Vec<String>, Vec<String>, Vec<String>);

fn events() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "events"), kind: "Event".into(), namespaced: true }
}

const NODES: usize = 2;
const EVENTS: usize = 3;

fn resources() -> [ApiResource; 4] {
    [pods(), secrets(), nodes(), events()]
}

fn place() -> impl Strategy<Value = Place> {
    (0..2_usize, 0..4_usize, 0..4_usize, 0..3_u8).prop_map(of_resource)
}

/// Sets the namespace of nodes, which have none, to 0, so that each object has one place.
fn of_resource((cluster, resource, namespace, name): Place) -> Place {
    (cluster, resource, if resource == NODES { 0 } else { namespace }, name)
}

/// Returns all places.
fn universe() -> impl Iterator<Item = Place> {
    let names = |cluster, resource, namespace| (0..3).map(move |name| (cluster, resource, namespace, name));
    let namespaces = move |cluster, resource| {
        (0..if resource == NODES { 1 } else { 4 }).flat_map(move |namespace| names(cluster, resource, namespace))
    };
    (0..2).flat_map(move |cluster| (0..4).flat_map(move |resource| namespaces(cluster, resource)))
}

fn rules() -> impl Strategy<Value = Vec<Written>> {
    let namespaces = prop::collection::vec("s|s-x|s\\*|t|team-\\*|\\*|none", 0..3);
    let resources = prop::collection::vec("pods|secrets|nodes|events|\\*", 1..3);
    let one = (prop::option::of("prod|dev"), namespaces, resources, prop::collection::vec("pods|nodes", 0..2));
    prop::collection::vec(one, 0..4)
}

fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

fn written((tier, namespaces, resources, except): &Written) -> Rule {
    rule(tier.as_deref(), &texts(namespaces), &texts(resources), &texts(except))
}

fn uid_of((cluster, resource, namespace, name): Place) -> String {
    format!("uid-{cluster}-{resource}-{namespace}-{name}")
}

/// Returns the owner of an object: a pod, a Secret or a node. Objects with the name number 0 have none.
fn owner_of((cluster, resource, namespace, name): Place) -> Option<Place> {
    let owner = match (resource, name) {
        (_, 0) => return None,
        (NODES, name) => (cluster, NODES, 0, name - 1),
        (1, 2) => (cluster, NODES, 0, 0),
        (0, 2) => (cluster, 1, namespace, 0),
        (EVENTS, 2) => (cluster, 0, namespace, 1),
        _ => (cluster, 0, namespace, 0),
    };
    Some(owner)
}

fn object(place: Place, version: u64) -> StoredObject {
    let (_, resource, namespace, name) = place;
    let app = if name == 0 { "web" } else { "db" };
    let node = if version.is_multiple_of(2) { "n1" } else { "n2" };
    let kind = |resource: usize| resources()[resource].kind.to_string();
    let mut json = json!({
        "apiVersion": "v1", "kind": kind(resource),
        "metadata": {
            "name": format!("o{name}"), "uid": uid_of(place), "resourceVersion": version.to_string(),
            "labels": { "app": app }, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
        "status": { "phase": "Running" },
    });
    let namespace = if resource == NODES { "" } else { NAMESPACES[namespace] };
    if !namespace.is_empty() {
        json["metadata"]["namespace"] = json!(namespace);
    }
    if let Some(owner) = owner_of(place) {
        let reference = json!({
            "apiVersion": "v1", "kind": kind(owner.1), "name": format!("o{}", owner.3), "uid": uid_of(owner),
            "controller": true,
        });
        json["metadata"]["ownerReferences"] = json!([reference]);
    }
    if resource == EVENTS {
        let pod = (place.0, 0, place.2, name);
        json["involvedObject"] =
            json!({ "kind": "Pod", "namespace": namespace, "name": format!("o{name}"), "uid": uid_of(pod) });
        json["reason"] = json!(format!("Reason{}", uid_of(place)));
        json["lastTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(namespace, &format!("o{name}")),
        uid: Uid::new(&uid_of(place)),
        resource_version: ResourceVersion::new(&version.to_string()),
        labels: Labels::new(vec![("app".into(), app.into())]),
        index_values: Vec::<IndexEntry>::new(),
        json: json.to_string().into_bytes(),
    })
}

/// The tested hub, and a hub that has only the objects that the reader may see.
struct Hubs {
    whole: Bench,
    visible: Bench,
    rules: Vec<Rule>,
    places: BTreeSet<Place>,
    version: u64,
}

impl Hubs {
    fn new(places: BTreeSet<Place>, rules: Vec<Rule>) -> Self {
        let options = ReadApiOptions { requests: 10, watches: 1000, secrets: false };
        let known = |(name, tier): &(&str, &str)| {
            let (name, labels) = (ClusterName::new(name).unwrap(), [("tier".to_owned(), (*tier).to_owned())].into());
            rules.iter().any(|rule| rule.selects(&name, &labels))
        };
        let (all, seen) = (CLUSTERS.to_vec(), CLUSTERS.into_iter().filter(known).collect());
        let mut whole = Bench::with_clusters(options, all);
        let visible = Bench::with_clusters(ReadApiOptions { secrets: true, ..options }, seen);
        whole.reader = ann(rules.clone());
        let mut hubs = Self { whole, visible, rules, places, version: 10 };
        for (number, resource) in resources().iter().enumerate() {
            hubs.whole.watch_resource(resource);
            hubs.visible.watch_resource(resource);
            for (at, (cluster, _)) in CLUSTERS.iter().enumerate() {
                let all: Vec<_> = hubs.places.iter().filter(|it| (it.0, it.1) == (at, number)).copied().collect();
                let of = |all: &[Place]| all.iter().map(|place| object(*place, 3 + u64::from(place.3))).collect();
                hubs.whole.list(resource, cluster, of(&all), 10);
                if hubs.sees_any(at, number) {
                    let seen: Vec<_> = all.into_iter().filter(|place| hubs.sees(*place)).collect();
                    hubs.visible.list(resource, cluster, of(&seen), 10);
                }
            }
        }
        hubs
    }

    /// Returns the rules about a resource in a cluster.
    fn of(&self, cluster: usize, resource: usize) -> impl Iterator<Item = &Rule> {
        let (name, tier) = CLUSTERS[cluster];
        let (name, labels) = (ClusterName::new(name).unwrap(), [("tier".to_owned(), tier.to_owned())].into());
        let resource = resources()[resource].clone();
        self.rules.iter().filter(move |rule| rule.covers(&resource) && rule.selects(&name, &labels))
    }

    fn sees(&self, (cluster, resource, namespace, _): Place) -> bool {
        let namespace = (resource != NODES).then_some(NAMESPACES[namespace]);
        self.of(cluster, resource).any(|rule| rule.visible(resource != NODES).sees(namespace))
    }

    fn sees_any(&self, cluster: usize, resource: usize) -> bool {
        self.of(cluster, resource).any(|rule| !rule.visible(resource != NODES).is_nothing())
    }

    /// Returns the status of the refusal if the reader has no right to the requested list at all.
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

    async fn answers_agree(&self) {
        lists::agree(self).await;
        lists::queries_agree(self).await;
        around::agree(self).await;
        operators::agree(self).await;
    }

    /// Adds, modifies or deletes an object in both hubs.
    fn change(&mut self, place: Place, is_deleted: bool) {
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
            // The change is invisible, but the cluster's version advances in both hubs.
            let id = self.visible.partitions[&(cluster.to_owned(), resource.gvr.clone())];
            self.visible.apply(&resource.gvr, id, [], ResourceVersion::new(&self.version.to_string()));
        }
    }
}

/// Returns the text as part of a URL.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"))
}

const ROOTS: [&str; 6] =
    ["/clusters/a", "/clusters/b", "/clusters/*", "/clusters/tier=prod", "/unique/*", "/unique/tier=dev"];

/// Returns whether the versions at a root are those of the hub, which count invisible changes too.
fn is_fleet(path: &str) -> bool {
    !["/clusters/a", "/clusters/b"].iter().any(|root| path.strip_prefix(root).is_some_and(|it| it.starts_with('/')))
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(4))]

    #[test]
    fn reader_gets_the_answers_of_a_hub_with_the_visible_objects(
        places in prop::collection::btree_set(place(), 0..48),
        rules in rules(),
        changes in prop::collection::vec((place(), any::<bool>()), 0..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut hubs = Hubs::new(places, rules.iter().map(written).collect());
            hubs.answers_agree().await;
            streams::agree(&mut hubs, &changes).await;
            hubs.answers_agree().await;
        });
    }
}
