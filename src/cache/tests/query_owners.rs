//! Tests of owner chains and of the owner index.

use std::sync::Arc;

use serde_json::{Value, json};

use super::query::{fill, found, origin};
use crate::{Indexers, OWNER_INDEX, OwnerChain, OwnerChainError, Query, Snapshot, Store, owner_chain, owner_index};
use informer_hub_types::{
    ApiResource, ClusterName, Gvr, Labels, Object, ObjectKey, Origin, ResourceVersion, Scope, StoredObject,
    StoredObjectParts, Uid,
};

fn object(namespace: &str, name: &str, uid: &str, owners: &[Value]) -> StoredObject {
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(namespace, name),
        uid: Uid::new(uid),
        resource_version: ResourceVersion::new("1"),
        labels: Labels::default(),
        index_values: Vec::new(),
        json: json!({"metadata": {"name": name, "uid": uid, "ownerReferences": owners}}).to_string().into_bytes(),
    })
}

fn owner(kind: &str, api_version: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
}

/// Returns the snapshot of one kind in cluster `eu`.
fn kind(group: &str, plural: &str, kind: &str, namespaced: bool, objects: Vec<StoredObject>) -> Arc<Snapshot> {
    let resource = ApiResource { gvr: Gvr::new(group, "v1", plural), kind: kind.into(), namespaced };
    let mut store = Store::new(resource.clone());
    let place =
        Origin { cluster: ClusterName::new("eu").unwrap(), cluster_labels: [].into(), resource, scope: Scope::all() };
    fill(&mut store, Arc::new(place), &[], objects);
    store.published().load_full()
}

fn fleet() -> Vec<Arc<Snapshot>> {
    let replica_set =
        |name: &str, uid: &str, of: &str| object("shop", name, uid, &[owner("Deployment", "apps/v1beta1", "web", of)]);
    let ring =
        |name: &str, uid: &str, next: &str, of: &str| object("shop", name, uid, &[owner("Ring", "x.io/v1", next, of)]);
    let pods = vec![
        object("shop", "web-1", "p1", &[json!({"kind": "Odd"}), owner("ReplicaSet", "apps/v1", "web-a", "r1")]),
        object("shop", "web-2", "p2", &[owner("ReplicaSet", "apps/v1", "web-b", "r2")]),
        object("shop", "lone", "p3", &[]),
        object("shop", "static", "p4", &[owner("Node", "v1", "n1", "n1")]),
        object("shop", "odd", "p5", &[owner("Widget", "x.io/v1", "w", "w1")]),
        object("shop", "late", "p6", &[owner("ReplicaSet", "apps/v1", "gone", "r9")]),
        object("shop", "in-ring", "p7", &[owner("Ring", "x.io/v1", "a", "ra")]),
    ];
    vec![
        kind("", "pods", "Pod", true, pods),
        kind(
            "apps",
            "replicasets",
            "ReplicaSet",
            true,
            vec![replica_set("web-a", "r1", "d1"), replica_set("web-b", "r2", "d0")],
        ),
        kind("apps", "deployments", "Deployment", true, vec![object("shop", "web", "d1", &[])]),
        kind("", "nodes", "Node", false, vec![object("", "n1", "n1", &[])]),
        kind("x.io", "rings", "Ring", true, vec![ring("a", "ra", "b", "rb"), ring("b", "rb", "a", "ra")]),
    ]
}

fn pod(fleet: &[Arc<Snapshot>], name: &str) -> Object {
    fleet[0].get(&ClusterName::new("eu").unwrap(), &ObjectKey::new("shop", name)).unwrap()
}

fn chain(name: &str) -> (Vec<String>, Option<OwnerChainError>) {
    let fleet = fleet();
    let OwnerChain { owners, broken } = owner_chain(&pod(&fleet, name), &fleet);
    (owners.iter().map(|owner| format!("{}/{}", owner.origin().resource.kind, owner.name())).collect(), broken)
}

#[test]
fn owner_chain_ends_at_the_root() {
    assert_eq!(chain("web-1"), (vec!["ReplicaSet/web-a".to_owned(), "Deployment/web".to_owned()], None));
    assert_eq!(chain("static"), (vec!["Node/n1".to_owned()], None));
    assert_eq!(chain("lone"), (Vec::new(), None));
}

#[test]
fn broken_owner_chain_has_a_reason() {
    let (owners, broken) = chain("web-2");
    assert_eq!(owners, ["ReplicaSet/web-b"]);
    let message = broken.unwrap().to_string();
    assert_eq!(message, r#"apps/v1beta1 Deployment "web" was replaced by an object with UID d1"#);
    let (_, broken) = chain("odd");
    assert_eq!(broken.unwrap().to_string(), r#"cannot look up x.io/v1 Widget "w": the hub has no cache of that kind"#);
    let (_, broken) = chain("late");
    assert_eq!(broken.unwrap().to_string(), r#"apps/v1 ReplicaSet "gone" does not exist"#);
}

#[test]
fn owner_cycle_is_followed_once() {
    let (owners, broken) = chain("in-ring");
    assert_eq!(owners, ["Ring/a", "Ring/b"]);
    assert!(matches!(broken, Some(OwnerChainError::Cycle(reference)) if &*reference.name == "a"));
}

#[test]
fn owner_chain_is_limited_in_length() {
    let links = (0..40).map(|at| {
        object(
            "shop",
            &at.to_string(),
            &format!("u{at}"),
            &[owner("Pod", "v1", &(at + 1).to_string(), &format!("u{}", at + 1))],
        )
    });
    let fleet = vec![kind("", "pods", "Pod", true, links.collect())];
    let OwnerChain { owners, broken } = owner_chain(&pod(&fleet, "0"), &fleet);
    assert_eq!((owners.len(), broken), (32, Some(OwnerChainError::TooLong)));
}

#[test]
fn children_are_found_with_and_without_the_owner_index() {
    let mut store = Store::new(crate::testing::pods());
    let of = |uid: &str| vec![owner("ReplicaSet", "apps/v1", "web", uid)];
    let objects =
        vec![object("shop", "a", "1", &of("r1")), object("shop", "b", "2", &of("r2")), object("shop", "c", "3", &[])];
    fill(&mut store, origin("eu", &[], None), &[], objects);
    let children =
        |store: &Store| found(&store.published().load().answer(&Query::children_of(&Uid::new("r1"))).unwrap());
    assert_eq!(children(&store), ["eu/shop/a@1"]);
    store.add_indexers(Indexers::new().with(OWNER_INDEX, owner_index())).unwrap();
    assert_eq!(children(&store), ["eu/shop/a@1"]);
    let others = vec![object("shop", "d", "4", &of("r1")), object("pay", "a", "5", &of("r1"))];
    fill(&mut store, origin("us", &[], None), &[], others);
    assert_eq!(children(&store), ["eu/shop/a@1", "us/pay/a@1", "us/shop/d@1"]);
}
