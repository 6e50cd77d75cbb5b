//! Tests of the list, watch and discovery protocol.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchParams};
use kube::{Api, Client, Config};
use serde_json::json;

use super::super::{Filter, Streaming, WorldConfig};
use super::*;
use futures::{StreamExt, TryStreamExt};
use informer_hub_types::{ObjectKey, ResourceVersion, Uid};

fn client(cluster: &SimCluster) -> Client {
    Client::try_from(Config::new(cluster.url().parse().unwrap())).unwrap()
}

fn truth_of(items: &[Value]) -> super::super::GroundTruth {
    let text = |item: &Value, field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
    let entry = |item: &Value| {
        let key = ObjectKey::new(&text(item, "namespace"), &text(item, "name"));
        (key, (Uid::new(&text(item, "uid")), ResourceVersion::new(&text(item, "resourceVersion"))))
    };
    items.iter().map(entry).collect()
}

#[tokio::test]
async fn kube_client_lists_pages_watches_and_discovers() {
    let cluster = cluster();
    let client = client(&cluster);
    let pods: Api<Pod> = Api::all(client.clone());
    let mut listed = Vec::new();
    let mut params = ListParams::default().limit(7);
    loop {
        let page = within(pods.list(&params)).await.unwrap();
        listed.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(listed.len(), 20);
    assert!(listed.iter().all(|pod| pod.spec.as_ref().unwrap().node_name.is_some()));
    let mut watch =
        Box::pin(within(pods.watch(&WatchParams::default(), &version(&cluster).to_string())).await.unwrap());
    let (key, _) = touch(&cluster);
    let event = within(watch.next()).await.unwrap().unwrap();
    let kube::api::WatchEvent::Modified(pod) = event else { panic!("{event:?}") };
    assert_eq!(format!("{}/{}", pod.metadata.namespace.unwrap(), pod.metadata.name.unwrap()), key);
    let nodes: Api<Node> = Api::all(client.clone());
    assert_eq!(within(nodes.list(&ListParams::default())).await.unwrap().items.len(), 3);
    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let (found, _) = within(kube::discovery::pinned_kind(&client, &kind)).await.unwrap();
    assert_eq!(found, ApiResource::from_gvk_with_plural(&kind, "widgets"));
    let widgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "shop", &found);
    assert_eq!(within(widgets.list(&ListParams::default())).await.unwrap().items.len(), 5);
    let discovery = within(kube::Discovery::new(client).run()).await.unwrap();
    let groups: Vec<_> = discovery.groups_alphabetical().into_iter().map(|group| group.name().to_owned()).collect();
    assert_eq!(groups, ["", "apiextensions.k8s.io", "apiregistration.k8s.io", "example.com"]);
}

#[tokio::test]
async fn pages_of_a_list_show_one_snapshot() {
    let cluster = cluster();
    let truth = cluster.truth(&World::pods());
    let (mut items, mut token, mut left) = (Vec::new(), String::new(), Vec::new());
    loop {
        let (status, page) = json(&cluster, &format!("/api/v1/pods?limit=6&continue={token}")).await;
        assert_eq!(status, 200, "{page}");
        items.extend(page["items"].as_array().unwrap().clone());
        left.push(page["metadata"]["remainingItemCount"].as_u64());
        touch(&cluster);
        cluster.with_world(World::create_pod);
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(truth_of(&items), truth);
    assert_eq!(left, [Some(14), Some(8), Some(2), None]);
    assert!(items.iter().all(|item| item.get("kind").is_none() && item.get("apiVersion").is_none()));
    let (_, widgets) = json(&cluster, "/apis/example.com/v1/widgets").await;
    assert_eq!((&widgets["kind"], &widgets["items"][0]["kind"]), (&json!("WidgetList"), &json!("Widget")));
}

#[tokio::test]
async fn continue_token_expires_with_the_history() {
    let cluster = cluster();
    let (_, page) = json(&cluster, "/api/v1/pods?limit=6").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    cluster.with_world(World::compact);
    let (status, answer) = json(&cluster, &format!("/api/v1/pods?limit=6&continue={token}")).await;
    assert_eq!((status, &answer["reason"], &answer["kind"]), (410, &json!("Expired"), &json!("Status")));
    assert_eq!(json(&cluster, "/api/v1/pods?continue=nonsense").await.0, 400);
}

#[tokio::test]
async fn list_follows_the_resource_version_rules() {
    let cluster = cluster();
    let now = version(&cluster);
    let count = async |query: String| {
        let (status, answer) = json(&cluster, &format!("/api/v1/pods?{query}")).await;
        (status, answer["items"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(count("resourceVersion=0&limit=5".into()).await, (200, 20), "a cache ignores the limit");
    assert_eq!(count(format!("resourceVersion={now}&resourceVersionMatch=Exact")).await, (200, 20));
    assert_eq!(count("resourceVersion=5&resourceVersionMatch=NotOlderThan".into()).await, (200, 20));
    assert_eq!(count("resourceVersion=5&resourceVersionMatch=Exact".into()).await, (410, 0));
    assert_eq!(count("resourceVersion=5&limit=5".into()).await, (410, 0), "a limit makes it exact");
    assert_eq!(count("resourceVersionMatch=NotOlderThan".into()).await, (422, 0));
    assert_eq!(count("resourceVersion=0&resourceVersionMatch=Exact".into()).await, (422, 0));
    assert_eq!(count("resourceVersion=5&resourceVersionMatch=Sometimes".into()).await, (422, 0));
    assert_eq!(count("resourceVersion=abc".into()).await, (422, 0));
    assert_eq!(count("limit=abc".into()).await, (400, 0));
    let (status, answer) = json(&cluster, &format!("/api/v1/pods?resourceVersion={}", now + 1)).await;
    let cause = &answer["details"]["causes"][0]["reason"];
    assert_eq!((status, &answer["reason"], cause), (504, &json!("Timeout"), &json!("ResourceVersionTooLarge")));
}

#[tokio::test]
async fn watch_replays_history_and_continues_live() {
    let cluster = cluster();
    let start = version(&cluster);
    let (key, first) = touch(&cluster);
    let mut watch = get(&cluster, &format!("/api/v1/pods?watch=1&resourceVersion={start}")).await;
    assert_eq!(watch.event().await, ("MODIFIED".into(), key.clone(), first));
    let (_, second) = touch(&cluster);
    assert_eq!(watch.event().await, ("MODIFIED".into(), key.clone(), second));
    let object = ObjectKey::new(key.split_once('/').unwrap().0, key.split_once('/').unwrap().1);
    let recreated = cluster.with_world(|world| world.recreate(&World::pods(), &object)).unwrap();
    assert_eq!(watch.event().await, ("DELETED".into(), key.clone(), recreated - 1));
    assert_eq!(watch.event().await, ("ADDED".into(), key, recreated));
}

#[tokio::test]
async fn watch_from_an_expired_version_gets_an_error_event_with_http_200() {
    let cluster = cluster();
    let old = version(&cluster);
    cluster.with_world(World::compact);
    let mut watch = get(&cluster, &format!("/api/v1/pods?watch=true&resourceVersion={old}")).await;
    assert_eq!(watch.status, 200);
    let event = watch.line().await.unwrap().unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(watch.line().await.unwrap(), None);
}

#[tokio::test]
async fn compaction_expires_only_watches_that_are_behind() {
    let config = SimConfig { world: WorldConfig { history: 10, ..WorldConfig::default() }, ..SimConfig::default() };
    let cluster = start(config);
    let mut watch = watch_now(&cluster).await;
    touch(&cluster);
    watch.event().await;
    cluster.with_world(World::compact);
    let (key, version) = touch(&cluster);
    assert_eq!(watch.event().await, ("MODIFIED".into(), key, version));
    cluster.with_world(|world| {
        for _ in 0..50 {
            world.create_pod();
        }
    });
    assert_eq!(watch.event().await.0, "ERROR");
}

#[tokio::test]
async fn streaming_list_sends_all_objects_a_marked_bookmark_and_live_events() {
    let cluster = cluster();
    let now = version(&cluster);
    let path =
        "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = get(&cluster, path).await;
    let mut items = Vec::new();
    let marker = loop {
        let event = watch.line().await.unwrap().unwrap();
        match event["type"].as_str().unwrap() {
            "ADDED" => items.push(event["object"].clone()),
            _ => break event,
        }
    };
    assert_eq!(truth_of(&items), cluster.truth(&World::pods()));
    assert_eq!(summary(&marker), ("BOOKMARK".into(), "/".into(), now));
    assert_eq!(marker["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let (key, version) = touch(&cluster);
    assert_eq!(watch.event().await, ("MODIFIED".into(), key, version));
    let ahead = json(&cluster, &format!("{path}&resourceVersion={}", version + 1)).await;
    assert_eq!(ahead.0, 504);
    let without_match = json(&cluster, "/api/v1/pods?watch=true&sendInitialEvents=true").await;
    assert_eq!(without_match.0, 422);
    assert_eq!(cluster.stats().streaming, 2);
}

#[tokio::test]
async fn server_without_streaming_lists_refuses_or_ignores_them() {
    let path =
        "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let refusing = start(SimConfig { streaming: Streaming::Refused, ..SimConfig::default() });
    let (status, answer) = json(&refusing, path).await;
    assert_eq!((status, &answer["reason"]), (422, &json!("Invalid")));
    assert!(answer["message"].as_str().unwrap().contains("sendInitialEvents"));
    let bookmark_every = Duration::from_millis(2);
    let ignoring = start(SimConfig { streaming: Streaming::Ignored, bookmark_every, ..SimConfig::default() });
    let mut watch = get(&ignoring, path).await;
    for _ in 0..20 {
        assert_eq!(watch.line().await.unwrap().unwrap()["type"], "ADDED");
    }
    let bookmark = watch.line().await.unwrap().unwrap();
    assert_eq!((&bookmark["type"], bookmark["object"]["metadata"].get("annotations")), (&json!("BOOKMARK"), None));
}

#[tokio::test]
async fn bookmarks_carry_the_cluster_version_if_the_client_allows_them() {
    let cluster = start(SimConfig { bookmark_every: Duration::from_millis(2), ..SimConfig::default() });
    let start = version(&cluster);
    let mut watch = watch_now(&cluster).await;
    let moved = cluster.with_world(|world| {
        world.create_widget("another");
        world.version()
    });
    loop {
        let (kind, _, version) = summary(&watch.line().await.unwrap().unwrap());
        assert_eq!(kind, "BOOKMARK");
        if version == moved {
            break;
        }
    }
    let mut without = get(&cluster, &format!("/api/v1/pods?watch=true&resourceVersion={start}&timeoutSeconds=1")).await;
    assert_eq!(without.line().await.unwrap(), None, "nothing but the time-out");
}

#[tokio::test]
async fn object_that_enters_or_leaves_a_selector_is_added_or_deleted() {
    let cluster = cluster();
    let pods = World::pods();
    let key = cluster.with_world(|world| world.objects(&pods).next().unwrap().key().clone());
    let label = |value: &str| {
        let patch = json!({ "metadata": { "labels": { "mark": value } } });
        cluster.with_world(|world| world.patch(&pods, &key, &patch).unwrap())
    };
    label("out");
    let now = version(&cluster);
    let path = format!("/api/v1/pods?watch=true&resourceVersion={now}&labelSelector=mark%3Din");
    let mut watch = get(&cluster, &path).await;
    label("other");
    let entered = label("in");
    let inside = label("in");
    let left = label("out");
    label("out");
    let back = label("in");
    let gone = cluster.with_world(|world| world.delete(&pods, &key).unwrap());
    let name = key.to_string();
    let expected = [("ADDED", entered), ("MODIFIED", inside), ("DELETED", left), ("ADDED", back), ("DELETED", gone)];
    for (kind, version) in expected {
        assert_eq!(watch.event().await, (kind.to_owned(), name.clone(), version));
    }
}

#[tokio::test]
async fn namespaces_and_selectors_narrow_a_list() {
    let cluster = cluster();
    let pods = World::pods();
    for (path, namespace, labels, fields) in [
        ("/api/v1/namespaces/shop/pods?", Some("shop"), "", ""),
        ("/api/v1/pods?labelSelector=tier+in+%28data%2Cbackend%29", None, "tier in (data,backend)", ""),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1", None, "", "spec.nodeName=node-1"),
        ("/api/v1/pods?limit=2&fieldSelector=status.phase%3DNone", None, "", "status.phase=None"),
    ] {
        let filter = Filter::parse(namespace, labels, fields).unwrap();
        let truth = cluster.with_world(|world| world.truth_where(&pods, &filter));
        let (_, list) = json(&cluster, path).await;
        assert_eq!(truth_of(list["items"].as_array().unwrap()), truth, "{path}");
        assert!(truth.len() < 20, "{path} narrows nothing");
    }
    assert_eq!(json(&cluster, "/api/v1/pods?labelSelector=a+b").await.0, 400);
    assert_eq!(json(&cluster, "/api/v1/pods?fieldSelector=spec.other%3D1").await.0, 400);
}

#[tokio::test]
async fn partial_object_metadata_is_served_on_request() {
    let cluster = cluster();
    let accept = ("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let answer = within(try_get(cluster.address(), "/api/v1/pods", &[accept])).await.unwrap();
    let list: Value = serde_json::from_slice(&answer.whole().await.unwrap()).unwrap();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    let items = list["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["kind"] == "PartialObjectMetadata" && item.get("spec").is_none()));
    assert_eq!(truth_of(items), cluster.truth(&World::pods()));
    let path = format!("/api/v1/pods?watch=true&resourceVersion={}", version(&cluster));
    let mut watch = within(try_get(cluster.address(), &path, &[accept])).await.unwrap();
    touch(&cluster);
    let event = watch.line().await.unwrap().unwrap();
    assert_eq!((&event["object"]["kind"], event["object"].get("status")), (&json!("PartialObjectMetadata"), None));
}

#[tokio::test]
async fn unauthorized_forbidden_and_missing_requests_get_a_status() {
    let cluster = start(SimConfig { token: Some("s3cret".into()), ..SimConfig::default() });
    assert_eq!(json(&cluster, "/api/v1/pods").await.0, 401);
    let bearer = ("authorization", "Bearer s3cret");
    let code = async |path: &str| within(try_get(cluster.address(), path, &[bearer])).await.unwrap().status.as_u16();
    assert_eq!(code("/api/v1/pods").await, 200);
    cluster.forbid(&World::pods(), true);
    assert_eq!((code("/api/v1/pods").await, code("/api/v1/pods?watch=true").await), (403, 403));
    cluster.forbid(&World::pods(), false);
    assert_eq!(code("/api/v1/pods").await, 200);
    assert_eq!((code("/api/v1/gadgets").await, code("/nothing").await), (404, 404));
    assert_eq!(code("/api/v1/namespaces/shop/nodes").await, 404);
    assert_eq!((code("/api/v1/nodes/node-1").await, code("/api/v1/nodes/node-99").await), (200, 404));
    for path in ["/version", "/readyz", "/livez", "/api", "/apis", "/apis/example.com", "/apis/example.com/v1"] {
        assert_eq!(code(path).await, 200, "{path}");
    }
    assert!(!format!("{cluster:?}").contains("s3cret"));
}

#[tokio::test]
async fn unregistered_resource_closes_its_watches_and_is_not_found() {
    let cluster = cluster();
    let widgets = World::widgets();
    let path = format!("/apis/example.com/v1/widgets?watch=true&resourceVersion={}", version(&cluster));
    let mut watch = get(&cluster, &path).await;
    let def = cluster.with_world(|world| world.resources().find(|def| def.api.gvr == widgets).cloned()).unwrap();
    cluster.unregister(&widgets);
    assert_eq!(watch.line().await.unwrap(), None);
    assert_eq!(json(&cluster, "/apis/example.com/v1/widgets").await.0, 404);
    assert_eq!(json(&cluster, "/apis/example.com/v1").await.0, 404);
    cluster.with_world(|world| world.register(def));
    let (status, list) = json(&cluster, "/apis/example.com/v1/widgets").await;
    assert_eq!((status, list["items"].as_array().map(Vec::len)), (200, Some(0)));
}

#[tokio::test]
async fn custom_resource_is_served_in_versions_and_undefined_object_by_object() {
    let cluster = cluster();
    let (beta, widgets) = ("/apis/example.com/v1beta1/widgets", World::widgets());
    let path = format!("/apis/example.com/v1/widgets?watch=true&resourceVersion={}", version(&cluster));
    let mut watch = get(&cluster, &path).await;
    assert_eq!(json(&cluster, beta).await.0, 404);
    cluster.with_world(|world| world.serve("v1beta1", &widgets));
    let (_, list) = json(&cluster, beta).await;
    let (_, original) = json(&cluster, "/apis/example.com/v1/widgets").await;
    let (shown, stored) = (&list["items"][0], &original["items"][0]);
    assert_eq!((&list["kind"], &shown["apiVersion"]), (&json!("WidgetList"), &json!("example.com/v1beta1")));
    assert_eq!((&shown["metadata"], &shown["spec"]), (&stored["metadata"], &stored["spec"]));
    let (_, definitions) = json(&cluster, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await;
    let served = &definitions["items"][0]["spec"]["versions"];
    assert_eq!((served.as_array().map(Vec::len), &served[1]["name"]), (Some(2), &json!("v1beta1")));
    let all = cluster.truth(&widgets).len();
    cluster.with_world(|world| world.undefine(&widgets));
    for _ in 0..all {
        let line = watch.line().await.unwrap().unwrap();
        assert_eq!((&line["type"], &line["object"]["kind"]), (&json!("DELETED"), &json!("Widget")));
    }
    assert_eq!(watch.line().await.unwrap(), None);
    assert_eq!(json(&cluster, beta).await.0, 404);
    let (_, definitions) = json(&cluster, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await;
    assert_eq!(definitions["items"].as_array().map(Vec::len), Some(0));
}

#[tokio::test]
async fn watchers_receive_equal_bytes() {
    let cluster = cluster();
    let mut watchers = Vec::new();
    for _ in 0..10 {
        watchers.push(watch_now(&cluster).await);
    }
    touch(&cluster);
    let mut lines = Vec::new();
    for watch in &mut watchers {
        lines.push(within(watch.raw_line()).await.unwrap().unwrap());
    }
    assert!(lines.windows(2).all(|pair| pair[0] == pair[1]));
    let all = futures::stream::iter(&lines).map(Ok::<_, Failure>).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!((all.len(), cluster.stats().open_watches), (10, 10));
    drop(watchers);
    eventually("all watches closed", || cluster.stats().open_watches == 0).await;
}
