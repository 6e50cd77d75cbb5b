//! Tests of listers and readers. Names of client-go's tests are cited.

use std::sync::Arc;

use serde_json::Value;

use super::query::{fill, origin};
use crate::testing::{object, object_with, pods};
use crate::{IndexFn, IndexReader, Indexer, Indexers, Lister, Query, Store};
use informer_hub_types::{
    ApiResource, ClusterName, ClusterSelector, Gvr, LabelSelector, Object, ObjectKey, ResourceVersion, Scope,
    StoredObject,
};

fn name(cluster: &str) -> ClusterName {
    ClusterName::new(cluster).unwrap()
}

fn everything() -> LabelSelector {
    LabelSelector::everything()
}

fn labels(text: &str) -> LabelSelector {
    text.parse().unwrap()
}

/// Formats `cluster/key@version`, in order.
fn lines<K>(objects: &[Object<K>]) -> Vec<String> {
    let line = |object: &Object<K>| format!("{}/{}@{}", object.cluster(), object.key(), object.resource_version());
    objects.iter().map(line).collect()
}

fn resource(group: &str, plural: &str, namespaced: bool) -> ApiResource {
    ApiResource { gvr: Gvr::new(group, "v1", plural), kind: "Kind".into(), namespaced }
}

fn filled(resource: ApiResource, objects: &[(&str, &str)]) -> Indexer {
    let indexer = Indexer::new(resource);
    for (namespace, name) in objects {
        indexer.add(object(namespace, name, "u", 1));
    }
    indexer
}

fn foo_and_bar() -> Indexer {
    let objects = [("ns-foo", "name-foo"), ("ns-foo", "name-foo1"), ("ns-bar", "name-bar")];
    filled(resource("apps", "deployments", true), &objects)
}

#[test]
fn lister_lists_by_labels() {
    // TestListAll
    let indexer: Indexer = Indexer::new(pods());
    let pod = |at: usize| {
        let matching: &[_] = if at < 100 { &[("match", "true")] } else { &[("nomatch", "true")] };
        object_with("", &format!("obj-{at}"), "u", 1, matching, &[])
    };
    indexer.replace((0..1000).map(pod), ResourceVersion::new("1"));
    let lister = indexer.lister();
    let found = |labels: &LabelSelector| lister.list(labels).len();
    assert_eq!((found(&labels("match=true")), found(&everything()), found(&labels("match=false"))), (100, 1000, 0));
    assert_eq!((found(&LabelSelector::nothing()), found(&labels("!match"))), (0, 900));
}

#[test]
fn namespace_lister_gets_objects_of_its_namespace() {
    // TestNamespaceGetMethod of dynamiclister and metadatalister
    let indexer = foo_and_bar();
    let lister = indexer.lister().namespace("ns-foo");
    let local = name("local");
    assert_eq!(lister.get(&local, "name-foo1").unwrap().key(), &ObjectKey::new("ns-foo", "name-foo1"));
    let error = lister.get(&local, "name-foo-non-existing").unwrap_err();
    assert_eq!(
        error.to_string(),
        "deployments.apps \"name-foo-non-existing\" not found in cluster local, namespace ns-foo"
    );
    assert_eq!((error.resource.as_str(), error.key.as_str()), ("deployments.apps", "ns-foo/name-foo-non-existing"));
    assert_eq!(
        lister.get(&local, "name-bar").unwrap_err().key.name(),
        "name-bar",
        "the object is in another namespace"
    );
    assert_eq!(lister.get(&name("other"), "name-foo1").unwrap_err().cluster, name("other"));
}

#[test]
fn namespace_lister_lists_objects_of_its_namespace() {
    // TestNamespaceListMethod
    let indexer = foo_and_bar();
    let lister = indexer.lister();
    let of = |namespace: &str| lines(&lister.namespace(namespace).list(&everything()));
    assert_eq!(of("ns-foo"), ["local/ns-foo/name-foo@1", "local/ns-foo/name-foo1@1"]);
    assert_eq!(of("ns"), [""; 0]);
    assert_eq!(of("").len(), 3, "the empty namespace is all of them");
    assert_eq!(of(""), lines(&lister.list(&everything())));
}

#[test]
fn lister_gets_cluster_scoped_objects_by_name() {
    // TestListerGetMethod
    let indexer = filled(resource("", "nodes", false), &[("", "name-foo1"), ("", "name-bar"), ("ns-foo", "name-foo")]);
    let lister = indexer.lister();
    let local = name("local");
    assert_eq!(lister.get(&local, "", "name-foo1").unwrap().name(), "name-foo1");
    assert_eq!(lister.namespace("").get(&local, "name-foo1").unwrap().name(), "name-foo1");
    assert_eq!(
        lister.get(&local, "", "name-foo").unwrap_err().to_string(),
        "nodes \"name-foo\" not found in cluster local"
    );
}

#[test]
fn lister_lists_all_namespaces_by_key() {
    // TestListerListMethod
    let indexer = filled(pods(), &[("", "name-bar"), ("ns-foo", "name-foo"), ("", "name-foo1")]);
    let all = ["local/name-bar@1", "local/name-foo1@1", "local/ns-foo/name-foo@1"];
    assert_eq!(lines(&indexer.lister().list(&everything())), all);
}

#[test]
fn lister_of_an_empty_cache_lists_nothing() {
    let indexer: Indexer = Indexer::new(pods());
    assert!(indexer.lister().list(&everything()).is_empty());
    assert!(indexer.lister().namespace("ns").list(&labels("a=b")).is_empty());
}

#[test]
fn listed_objects_can_be_decoded() {
    let indexer = Indexer::<Value>::new(pods());
    indexer.add(object("ns", "a", "u", 3));
    let lister: Lister<Value> = indexer.lister();
    let decoded = lister.list(&everything())[0].decode().unwrap();
    assert_eq!(decoded["metadata"]["resourceVersion"], "3");
    assert_eq!(lister.namespace("ns").get(&name("local"), "a").unwrap().decode().unwrap()["metadata"]["name"], "a");
}

fn pod(namespace: &str, name: &str, version: u64, app: &str, node: &str) -> StoredObject {
    object_with(namespace, name, "u", version, &[("app", app)], &[("by-node", node)])
}

/// Returns a store of three clusters. In `eu`, an informer of all namespaces and a later one of `shop`, with one newer
/// object.
fn fleet() -> Store {
    let mut store = Store::new(pods());
    let declared = &["by-node"];
    let us = vec![pod("shop", "web", 4, "web", "n1"), pod("pay", "db", 5, "db", "n2")];
    fill(&mut store, origin("us", &[("tier", "prod")], None), declared, us);
    let eu = vec![pod("shop", "web", 1, "web", "n1"), pod("pay", "api", 2, "web", "n2")];
    fill(&mut store, origin("eu", &[("tier", "dev")], None), declared, eu);
    fill(
        &mut store,
        origin("eu", &[("tier", "dev")], Some("shop")),
        declared,
        vec![pod("shop", "web", 9, "next", "n3")],
    );
    fill(&mut store, origin("ap", &[("tier", "prod")], None), declared, vec![pod("shop", "web", 7, "web", "n3")]);
    let app = IndexFn::new(|object| Ok(object.labels().get("app").map(Into::into).into_iter().collect()));
    store.add_indexers(Indexers::new().with("by-app", app)).unwrap();
    store
}

fn reader(store: &Store, clusters: ClusterSelector) -> IndexReader {
    IndexReader::new(Arc::clone(store.published()), clusters)
}

fn prod() -> ClusterSelector {
    ClusterSelector::Labels([("tier".to_owned(), "prod".to_owned())].into())
}

#[test]
fn lister_lists_each_object_once_in_its_newest_state() {
    let store = fleet();
    let lister: Lister = Lister::new(Arc::clone(store.published()), ClusterSelector::All);
    let all = ["ap/shop/web@7", "eu/pay/api@2", "eu/shop/web@9", "us/pay/db@5", "us/shop/web@4"];
    assert_eq!(lines(&lister.list(&everything())), all);
    assert_eq!(lines(&lister.list(&labels("app=web"))), ["ap/shop/web@7", "eu/pay/api@2", "us/shop/web@4"]);
    assert_eq!(lines(&lister.cluster(&name("eu")).namespace("shop").list(&everything())), ["eu/shop/web@9"]);
    assert_eq!(lister.get(&name("eu"), "shop", "web").unwrap().resource_version(), &ResourceVersion::new("9"));
    assert_eq!(lister.get(&name("eu"), "pay", "api").unwrap().resource_version(), &ResourceVersion::new("2"));
    assert!(lister.get(&name("eu"), "pay", "db").is_err());
}

#[test]
fn lister_excludes_unselected_clusters() {
    let store = fleet();
    let lister: Lister = Lister::new(Arc::clone(store.published()), prod());
    let all = |lister: &Lister| lines(&lister.list(&everything()));
    assert_eq!(all(&lister), ["ap/shop/web@7", "us/pay/db@5", "us/shop/web@4"]);
    assert_eq!(all(&lister.cluster(&name("us"))), ["us/pay/db@5", "us/shop/web@4"]);
    assert_eq!(all(&lister.cluster(&name("us")).cluster(&name("us"))), ["us/pay/db@5", "us/shop/web@4"]);
    for none in
        [lister.cluster(&name("eu")), lister.cluster(&name("us")).cluster(&name("ap")), lister.cluster(&name("x"))]
    {
        assert_eq!(all(&none), [""; 0], "{none:?}");
        assert!(none.get(&name("eu"), "shop", "web").is_err() && none.get(&name("us"), "shop", "web").is_err());
    }
    assert!(lister.get(&name("eu"), "shop", "web").is_err());
    assert!(lister.get(&name("ap"), "shop", "web").is_ok());
    assert!(lister.cluster(&name("us")).get(&name("ap"), "shop", "web").is_err());
    let named: Lister = Lister::new(Arc::clone(store.published()), ClusterSelector::Names(vec![name("eu")]));
    assert_eq!(all(&named), ["eu/pay/api@2", "eu/shop/web@9"]);
    assert_eq!(all(&named.cluster(&name("us"))), [""; 0]);
}

#[test]
fn lister_sees_later_snapshots() {
    let mut store = Store::new(pods());
    let lister: Lister = Lister::new(Arc::clone(store.published()), ClusterSelector::All);
    assert!(lister.list(&everything()).is_empty());
    fill(&mut store, origin("eu", &[], None), &[], vec![object("ns", "a", "u", 1)]);
    assert_eq!(lines(&lister.list(&everything())), ["eu/ns/a@1"]);
}

#[test]
fn reader_returns_keys_and_values_of_several_clusters_once() {
    let store = fleet();
    let all = reader(&store, ClusterSelector::All);
    let keys = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<ObjectKey>>();
    assert_eq!(all.list_keys(), keys(&["pay/api", "pay/db", "shop/web"]));
    assert_eq!(all.index_keys("by-app", "web").unwrap(), keys(&["pay/api", "shop/web"]));
    assert_eq!(lines(&all.by_index("by-app", "web").unwrap()), ["ap/shop/web@7", "eu/pay/api@2", "us/shop/web@4"]);
    let values = |reader: &IndexReader, index: &str| reader.list_index_func_values(index).unwrap();
    assert_eq!(values(&all, "by-app"), ["db", "next", "web"]);
    assert_eq!(values(&all, "by-node"), ["n1", "n2", "n3"]);
    assert_eq!(values(&reader(&store, prod()), "by-app"), ["db", "web"]);
    assert_eq!(values(&reader(&store, prod()).cluster(&name("ap")), "by-node"), ["n3"]);
    assert_eq!(values(&all.cluster(&name("eu")), "by-app"), ["next", "web"]);
    assert!(values(&reader(&store, prod()).cluster(&name("eu")), "by-app").is_empty());
}

#[test]
fn reader_finds_objects_with_the_index_values_of_another() {
    let store = fleet();
    let all = reader(&store, ClusterSelector::All);
    let probe =
        object_with("x", "probe", "u", 1, &[("app", "db")], &[("by-node", "n3"), ("by-node", "n1"), ("z", "n2")]);
    assert_eq!(lines(&all.index("by-app", &probe).unwrap()), ["us/pay/db@5"]);
    assert_eq!(lines(&all.index("by-node", &probe).unwrap()), ["ap/shop/web@7", "eu/shop/web@9", "us/shop/web@4"]);
    assert!(all.index("by-node", &object("x", "bare", "u", 1)).unwrap().is_empty());
    assert!(all.index("z", &probe).is_err(), "no informer declares it");
    let twice = object_with("x", "probe", "u", 1, &[], &[("by-node", "n2"), ("by-node", "n2")]);
    assert_eq!(lines(&all.index("by-node", &twice).unwrap()), ["eu/pay/api@2", "us/pay/db@5"]);
}

#[test]
fn reader_gets_by_key_and_refuses_invalid_keys() {
    let store = fleet();
    let all = reader(&store, ClusterSelector::All);
    let got = all.get_by_key(&name("us"), "shop/web").unwrap().unwrap();
    assert_eq!(lines(&[got]), ["us/shop/web@4"]);
    assert!(all.get_by_key(&name("us"), "web").unwrap().is_none());
    assert!(all.get_by_key(&name("us"), "a/b/c").is_err());
    assert_eq!(all.snapshot().answer(&Query::list()).unwrap().items.len(), all.list().len());
}

#[test]
fn reader_of_a_scope_excludes_other_informers() {
    let mut store = Store::new(pods());
    let pod =
        |namespace: &str, version| object_with(namespace, "a", "u", version, &[("app", "x")], &[("by-node", "n1")]);
    fill(&mut store, origin("c", &[], None), &["by-node"], vec![pod("one", 7), pod("two", 7)]);
    fill(&mut store, origin("c", &[], Some("one")), &["by-node"], vec![pod("one", 5)]);
    let all: IndexReader = IndexReader::new(Arc::clone(store.published()), ClusterSelector::All);
    let one = all.clone().of_informers(Scope::namespace("one"));
    let cluster = ClusterName::new("c").unwrap();
    let found = |objects: Vec<Object>| -> Vec<String> {
        objects.iter().map(|object| format!("{}@{}", object.key(), object.resource_version())).collect()
    };
    assert_eq!(found(all.list()), ["one/a@7", "two/a@7"]);
    let listers = [Lister::over(one.clone()), Lister::over(one.clone()).cluster(&cluster)];
    for lister in &listers {
        assert_eq!(found(lister.list(&everything())), ["one/a@5"]);
        assert_eq!(found(lister.clone().list(&everything())), ["one/a@5"]);
        assert!(lister.namespace("two").list(&everything()).is_empty() && lister.get(&cluster, "two", "a").is_err());
        assert_eq!(found(lister.namespace("one").list(&everything())), ["one/a@5"]);
    }
    for reader in [&one, &one.cluster(&cluster)] {
        assert_eq!(found(reader.list()), ["one/a@5"]);
        assert_eq!(found(reader.by_index("by-node", "n1").unwrap()), ["one/a@5"]);
        assert_eq!(reader.list_index_func_values("by-node").unwrap(), ["n1"]);
    }
    let at = |reader: &IndexReader, key: &str| {
        reader.get(&cluster, &key.parse().unwrap()).map(|it| it.resource_version().to_string())
    };
    assert_eq!((at(&one, "one/a"), at(&one, "two/a")), (Some("5".to_owned()), None));
    assert_eq!((at(&all, "one/a"), at(&all, "two/a")), (Some("7".to_owned()), Some("7".to_owned())));
    let nowhere = all.of_informers(Scope::namespace("three"));
    assert!(nowhere.list().is_empty() && nowhere.list_index_func_values("by-node").unwrap().is_empty());
}
