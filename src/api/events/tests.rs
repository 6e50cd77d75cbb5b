//! Tests of `/v1/events` with two clusters in memory.

mod rights;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::api::ReadApiOptions;
use crate::api::kubernetes::tests::rights::{ann, reviewed_bench, rule};
use crate::api::kubernetes::tests::{Bench, pod, pods};
use crate::cache::{HistoryLimits, Store};
use informer_hub_sink::{Event, EventOptions};
use informer_hub_types::{ApiResource, DeltaKind, Gvr, Notification, Object, clock};

/// Timeout of each wait for an event.
const PATIENCE: Duration = Duration::from_secs(20);

/// An event of a stream: a Server-Sent Event or a line of JSON.
#[derive(Clone, Debug, Default, PartialEq)]
struct Received {
    /// Field `event` of a Server-Sent Event; empty for changes and for lines of JSON.
    name: String,
    /// Position, if the event has one.
    id: Option<String>,
    data: Value,
    is_comment: bool,
}

impl Received {
    /// Returns kind, cluster and name of a change, such as `updated a/x`, or the name of a notice.
    fn line(&self) -> String {
        let kind = self.data["type"].as_str().unwrap_or_default().split('.').nth_back(1).unwrap_or_default();
        if !self.name.is_empty() || self.data["source"] == super::PATH {
            return kind.to_owned();
        }
        let data = &self.data["data"];
        let initial = if data["initial"] == true { " (initial)" } else { "" };
        format!("{kind} {}/{}{initial}", data["cluster"].as_str().unwrap(), data["name"].as_str().unwrap())
    }
}

/// A client that reads a stream.
struct Client {
    body: axum::body::BodyDataStream,
    buffer: String,
    is_lines: bool,
    /// Last position received.
    id: Option<String>,
}

impl Client {
    async fn open(bench: &Bench, query: &str, accept: &str, last: Option<&str>) -> Self {
        let mut request = Request::get(format!("/v1/events?{query}")).header("accept", accept);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = bench.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK, "{query}");
        let is_lines = response.headers()["content-type"] == "application/x-ndjson";
        let body = response.into_body().into_data_stream();
        let mut client = Self { body, buffer: String::new(), is_lines, id: last.map(str::to_owned) };
        if last.is_none() && !query.contains("replay") {
            assert!(client.receive().await.unwrap().is_comment);
            assert!(client.id.is_some(), "a stream begins with its position");
        }
        client
    }

    async fn of(bench: &Bench, query: &str) -> Self {
        Self::open(bench, query, "text/event-stream", None).await
    }

    /// Returns the next event, also heartbeats; `None` at the end.
    async fn receive(&mut self) -> Option<Received> {
        let end = if self.is_lines { "\n" } else { "\n\n" };
        while !self.buffer.contains(end) {
            let chunk = tokio::time::timeout(PATIENCE, self.body.next()).await.expect("an event")?;
            self.buffer.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
        let (event, rest) = self.buffer.split_once(end).unwrap();
        let received = if self.is_lines { of_line(event) } else { of_fields(event) };
        self.buffer = rest.to_owned();
        self.id = received.id.clone().or(self.id.take());
        Some(received)
    }

    /// Returns the next event that is not a heartbeat.
    async fn next(&mut self) -> Received {
        for _ in 0..3 {
            let received = self.receive().await.expect("an event");
            if !received.is_comment {
                return received;
            }
        }
        panic!("only heartbeats");
    }

    async fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(self.next().await.line());
        }
        lines
    }
}

fn of_line(line: &str) -> Received {
    let data: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    let id = data["position"].as_str().map(str::to_owned);
    Received { is_comment: data["type"] == "io.informer-hub.stream.heartbeat.v1", id, data, name: String::new() }
}

/// Parses the fields of a Server-Sent Event.
fn of_fields(event: &str) -> Received {
    let mut received = Received { is_comment: true, ..Received::default() };
    let mut data = Vec::new();
    for line in event.lines() {
        let (field, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
        match field {
            "id" => received.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut received.name),
            "data" => data.push(value),
            "" | "retry" => {}
            other => panic!("unknown field {other:?}"),
        }
    }
    if !data.is_empty() {
        received.data = serde_json::from_str(&data.join("\n")).unwrap();
        received.is_comment = false;
    }
    received
}

fn change(bench: &Bench, cluster: &str, kind: DeltaKind, name: &str, version: u64, node: &str) {
    bench.event(cluster, kind, pod("shop", name, version, "web", node));
}

#[tokio::test]
async fn change_is_the_event_of_a_webhook_and_resumes_after_its_id() {
    let bench = Bench::with_pods();
    for accept in ["text/event-stream", "application/x-ndjson", "*/*"] {
        let mut client = Client::open(&bench, "resource=pods", accept, None).await;
        let version = if accept.starts_with("text") { 11 } else { 12 + u64::from(accept == "*/*") };
        change(&bench, "a", DeltaKind::Updated, "x", version, "n9");
        let mut received = client.next().await;
        assert_eq!(received.line(), "updated a/x");
        received.data.as_object_mut().unwrap().remove("position");
        let snapshot = bench.fleet.stores.lock()[&pods().gvr].published().load_full();
        let object = snapshot.get(&"a".parse().unwrap(), &informer_hub_types::ObjectKey::new("shop", "x")).unwrap();
        let old = Object::new(object.origin().clone(), object.stored().clone());
        let notification = Notification::Updated { old, new: object, resync: false };
        let event = Event::new(&notification, clock::wall(), &EventOptions::default()).unwrap();
        assert_eq!(received.data["id"], event.id(), "the id of a webhook's event");
        let expected: Value = serde_json::from_str(event.json()).unwrap();
        let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(members(&received.data), members(&expected));
        assert_eq!(members(&received.data["data"]), members(&expected["data"]));
        assert_eq!(received.data["data"]["object"], expected["data"]["object"]);
        let position = client.id.clone().unwrap();
        change(&bench, "b", DeltaKind::Deleted, "x", version, "n9");
        change(&bench, "b", DeltaKind::Added, "x", version + 1, "n9");
        let mut resumed = Client::open(&bench, "resource=pods", accept, Some(&position)).await;
        assert_eq!(resumed.lines(2).await, ["deleted b/x", "added b/x"]);
        assert_eq!(client.lines(2).await, ["deleted b/x", "added b/x"]);
    }
}

#[tokio::test]
async fn only_selected_changes_are_sent() {
    let bench = Bench::with_pods();
    let every = |bench: &Bench, version| {
        bench.event("a", DeltaKind::Updated, pod("shop", "x", version, "db", "n9"));
        bench.event("b", DeltaKind::Added, pod("pay", "z", version, "web", "n8"));
        bench.event("b", DeltaKind::Deleted, pod("pay", "z", version + 1, "web", "n8"));
    };
    let encoded = "object.spec.nodeName%20==%20'n9'";
    for (at, (query, expected)) in [
        ("clusters=a", &["updated a/x"][..]),
        ("clusters=tier%3Ddev", &["added b/z", "deleted b/z"]),
        ("namespace=pay,other", &["added b/z", "deleted b/z"]),
        ("labels=app%3Ddb", &["updated a/x"]),
        ("labels=app%3Dnone", &[]),
        ("events=deleted,added&clusters=*", &["added b/z", "deleted b/z"]),
        (&format!("filter={encoded}"), &["updated a/x"]),
        ("filter=event.type%20==%20'deleted'", &["deleted b/z"]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::of(&bench, &format!("resource=pods&{query}")).await;
        let mut all = Client::of(&bench, "resource=pods").await;
        every(&bench, 20 + 10 * at as u64);
        assert_eq!(client.lines(expected.len()).await, expected, "{query}");
        assert_eq!(all.lines(3).await.len(), 3);
        // These changes end the test of this query: an unexpected event would arrive before them.
        change(&bench, "a", DeltaKind::Updated, "y", 22 + 10 * at as u64, "n9");
        bench.event("b", DeltaKind::Added, pod("pay", "last", 22 + 10 * at as u64, "db", "n9"));
        bench.event("b", DeltaKind::Deleted, pod("pay", "last", 23 + 10 * at as u64, "db", "n9"));
        if !query.contains("none") {
            let next = client.next().await.line();
            assert!(next.ends_with("a/y") || next.ends_with("b/last"), "{query}: {next}");
        }
    }
}

#[tokio::test]
async fn replay_sends_the_present_objects_without_positions_and_then_changes() {
    let bench = Bench::with_pods();
    let query = "resource=pods&initial=replay&clusters=a";
    let mut client = Client::of(&bench, query).await;
    change(&bench, "a", DeltaKind::Updated, "x", 11, "n9");
    let present = [client.next().await, client.next().await, client.next().await];
    let lines = present.each_ref().map(Received::line);
    assert_eq!(lines, ["added a/x (initial)", "added a/y (initial)", "synced"]);
    assert_eq!(present.each_ref().map(|received| received.id.is_some()), [false, false, true]);
    assert_eq!(present[2].data["data"], json!({ "resources": ["pods"] }));
    assert_eq!(client.next().await.line(), "updated a/x");
}

#[tokio::test]
async fn update_has_the_paths_that_changed_if_they_are_asked_for() {
    let bench = Bench::with_pods();
    let mut client = Client::of(&bench, "resource=pods&changed=true").await;
    change(&bench, "a", DeltaKind::Updated, "x", 11, "n9");
    let data = client.next().await.data;
    assert_eq!(data["data"]["changed"], json!([{ "path": "spec.nodeName", "old": "n1", "new": "n9" }]));
    change(&bench, "a", DeltaKind::Deleted, "x", 12, "n9");
    assert_eq!(client.next().await.data["data"].get("changed"), None);
}

#[tokio::test]
async fn unusable_position_starts_the_stream_anew_and_says_so() {
    let bench = Bench::with_pods();
    let mut client = Client::of(&bench, "resource=pods").await;
    change(&bench, "a", DeltaKind::Updated, "x", 11, "n9");
    client.next().await;
    let usable = client.id.clone().unwrap();
    let forged = super::position::Position::new([(super::position::hash_of(&pods().gvr), u64::MAX)].into_iter()).text();
    let old = super::position::Position::new([(super::position::hash_of(&pods().gvr), 7)].into_iter()).text();
    let other = super::position::Position::new([([0; 4], 1005)].into_iter()).text();
    for (position, reason) in [
        ("", "unknown-position"),
        ("1005", "unknown-position"),
        ("%0d%0aid: 1", "unknown-position"),
        (&"A".repeat(9_000), "unknown-position"),
        (&usable[1..], "unknown-position"),
        (&forged, "unknown-position"),
        (&other, "unknown-position"),
        (&old, "position-too-old"),
    ] {
        let mut client = Client::open(&bench, "resource=pods&initial=replay", "*/*", Some(position)).await;
        let first = client.next().await;
        assert_eq!((first.name.as_str(), &first.data["data"]["reason"]), ("expired", &json!(reason)), "{position:.40}");
        assert_eq!(first.data["data"]["resources"], json!(["pods"]));
        assert_eq!(client.lines(5).await[4], "synced");
        let mut client = Client::open(&bench, "resource=pods", "application/x-ndjson", Some(position)).await;
        assert_eq!(client.next().await.line(), "expired");
        assert!(client.id.as_deref().is_some_and(|id| id != position), "the new position");
    }
    let mut client = Client::open(&bench, "resource=pods", "*/*", Some(&usable)).await;
    change(&bench, "a", DeltaKind::Deleted, "x", 12, "n9");
    assert_eq!(client.next().await.line(), "deleted a/x");
}

#[tokio::test]
async fn client_that_falls_behind_the_window_is_notified_of_the_gap() {
    let mut bench = Bench::with_pods();
    {
        let mut stores = bench.fleet.stores.lock();
        let mut store = Store::new(pods());
        store.keep_history(HistoryLimits { bytes: 64 << 10, ..HistoryLimits::default() }, 1000, clock::now());
        stores.insert(pods().gvr, store);
    }
    bench.partitions.clear();
    bench.list(&pods(), "a", vec![pod("shop", "x", 3, "web", "n1")], 10);
    let mut client = Client::of(&bench, "resource=pods&initial=replay").await;
    assert_eq!(client.lines(2).await, ["added a/x (initial)", "synced"]);
    for version in 11..2_000 {
        change(&bench, "a", DeltaKind::Updated, "x", version, "n9");
    }
    let gap = client.next().await;
    assert_eq!((gap.name.as_str(), &gap.data["data"]["reason"]), ("expired", &json!("gap")));
    let present = client.next().await;
    assert_eq!(present.line(), "added a/x (initial)");
    assert_eq!(present.data["data"]["resourceVersion"], "1999");
    assert_eq!(client.next().await.line(), "synced");
}

#[tokio::test]
async fn stream_of_several_resources_resumes_each_from_its_own_position() {
    let mut bench = Bench::with_pods();
    let nodes = ApiResource { gvr: Gvr::new("", "v1", "nodes"), kind: "Node".into(), namespaced: false };
    bench.list(&nodes, "a", vec![pod("", "n1", 4, "web", "")], 10);
    for (at, query) in ["resource=pods&resource=nodes", "resource=Pod,nodes", "resource=*"].into_iter().enumerate() {
        let version = 20 + 10 * at as u64;
        let mut client = Client::of(&bench, query).await;
        bench.list(&nodes, "a", vec![pod("", "n2", version, "web", ""), pod("", "n1", 4, "web", "")], version + 1);
        assert_eq!(client.next().await.line(), "added a/n2");
        let position = client.id.clone().unwrap();
        bench.list(&nodes, "a", vec![pod("", "n1", 4, "web", "")], version + 2);
        change(&bench, "a", DeltaKind::Updated, "x", version, "n9");
        let mut resumed = Client::open(&bench, query, "*/*", Some(&position)).await;
        let mut lines = resumed.lines(2).await;
        lines.sort();
        assert_eq!(lines, ["deleted a/n2", "updated a/x"], "{query}");
        let tombstone = client.next().await;
        let other = client.next().await;
        let deleted = [tombstone, other].into_iter().find(|received| received.line().starts_with("deleted")).unwrap();
        assert_eq!(deleted.data["data"]["tombstone"], true, "a list found it");
    }
    let mut client = Client::of(&bench, "resource=pods").await;
    change(&bench, "a", DeltaKind::Updated, "x", 90, "n9");
    client.next().await;
    let mut more = Client::open(&bench, "resource=pods,nodes", "*/*", client.id.as_deref()).await;
    assert_eq!(more.next().await.data["data"]["resources"], json!(["nodes"]), "the position lacks them");
}

#[tokio::test]
async fn objects_of_a_cluster_that_joins_are_initial_and_of_one_that_leaves_deleted() {
    let mut bench = Bench::with_pods();
    let id = bench.partitions[&("a".to_owned(), pods().gvr)];
    let (mut skipping, mut replaying) =
        (Client::of(&bench, "resource=pods").await, Client::of(&bench, "resource=pods&initial=replay").await);
    replaying.lines(5).await;
    bench.fleet.stores.lock().get_mut(&pods().gvr).unwrap().close(id);
    for client in [&mut skipping, &mut replaying] {
        let left = client.next().await;
        assert_eq!((left.line().as_str(), &left.data["data"]["tombstone"]), ("deleted a/x", &json!(true)));
        assert_eq!(client.next().await.line(), "deleted a/y");
    }
    bench.open(&pods(), "a");
    bench.list(&pods(), "a", vec![pod("shop", "x", 30, "web", "n1")], 40);
    assert_eq!(replaying.next().await.line(), "added a/x (initial)");
    change(&bench, "a", DeltaKind::Updated, "x", 41, "n9");
    assert_eq!(skipping.next().await.line(), "updated a/x");
}

#[tokio::test]
async fn failing_filter_leaves_changes_out_and_warns_once() {
    let bench = Bench::with_pods();
    let mut client = Client::of(&bench, "resource=pods&filter=object.status.reason%20==%20'Evicted'").await;
    change(&bench, "a", DeltaKind::Updated, "x", 11, "n9");
    change(&bench, "a", DeltaKind::Updated, "x", 12, "n8");
    let warning = client.next().await;
    assert_eq!(warning.name, "warning");
    assert!(warning.data["data"]["message"].as_str().unwrap().contains("reason"), "{warning:?}");
    bench.api().close();
    let end = client.next().await;
    assert_eq!((end.name.as_str(), &end.data["data"]["reason"]), ("end", &json!("shutdown")));
    assert!(client.receive().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn silent_stream_has_heartbeats_with_positions_until_its_timeout() {
    let bench = Bench::with_pods();
    for accept in ["text/event-stream", "application/x-ndjson"] {
        let mut client = Client::open(&bench, "resource=pods&namespace=none&timeout=40s", accept, None).await;
        let first = client.id.clone();
        let version = 11 + u64::from(accept.starts_with("app"));
        change(&bench, "a", DeltaKind::Updated, "x", version, "n9");
        let heartbeat = client.receive().await.unwrap();
        assert!(heartbeat.is_comment && heartbeat.id.is_some() && heartbeat.id != first, "{heartbeat:?}");
        assert!(client.receive().await.unwrap().is_comment);
        let end = client.receive().await.unwrap();
        assert_eq!((end.line().as_str(), &end.data["data"]["reason"]), ("end", &json!("timeout")));
        assert!(client.receive().await.is_none());
    }
}

#[tokio::test]
async fn line_breaks_in_objects_forge_no_events() {
    let mut bench = Bench::with_pods();
    let text = "{\"metadata\":{\"name\":\"w\"},\r\n\n\"spec\":\n{\"id\": 1}\r}";
    let object = informer_hub_types::StoredObject::new(informer_hub_types::StoredObjectParts {
        key: informer_hub_types::ObjectKey::new("shop", "w"),
        uid: informer_hub_types::Uid::new("uid-w"),
        resource_version: informer_hub_types::ResourceVersion::new("11"),
        labels: informer_hub_types::Labels::new(Vec::new()),
        index_values: Vec::new(),
        json: text.as_bytes().to_vec(),
    });
    let mut clients = Vec::new();
    for accept in ["text/event-stream", "application/x-ndjson"] {
        clients.push(Client::open(&bench, "resource=pods", accept, None).await);
    }
    bench.list(&pods(), "a", vec![pod("shop", "x", 3, "web", "n1"), pod("shop", "y", 5, "web", "n2"), object], 12);
    for mut client in clients {
        assert_eq!(client.next().await.data["data"]["object"]["spec"], json!({ "id": 1 }));
    }
}

#[tokio::test]
async fn values_of_secrets_are_redacted_also_in_differences() {
    let secrets = ApiResource { gvr: Gvr::new("", "v1", "secrets"), kind: "Secret".into(), namespaced: true };
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: true });
    let secret = |version: u64, value: &str| {
        let json = json!({ "metadata": { "name": "key", "namespace": "shop" }, "data": { "password": value } });
        informer_hub_types::StoredObject::new(informer_hub_types::StoredObjectParts {
            key: informer_hub_types::ObjectKey::new("shop", "key"),
            uid: informer_hub_types::Uid::new("uid-key"),
            resource_version: informer_hub_types::ResourceVersion::new(&version.to_string()),
            labels: informer_hub_types::Labels::new(Vec::new()),
            index_values: Vec::new(),
            json: json.to_string().into_bytes(),
        })
    };
    bench.list(&secrets, "a", vec![secret(3, "c2VjcmV0LW9uZQ==")], 10);
    let mut client = Client::of(&bench, "resource=secrets&changed=true").await;
    bench.list(&secrets, "a", vec![secret(11, "c2VjcmV0LXR3bw==")], 20);
    let received = client.next().await;
    assert_eq!(received.data["data"]["changed"], json!([]));
    assert!(!received.data.to_string().contains("c2VjcmV0"), "{received:?}");
}

#[tokio::test]
async fn mistakes_are_refused_before_the_stream_begins() {
    let bench = Bench::with_pods();
    let deep = "(".repeat(30);
    for (query, code, error) in [
        ("", 400, "resource is missing"),
        ("resource=podz", 404, "the hub has no resource \"podz\"; did you mean \"pods\"?"),
        ("resource=secrets", 404, "the hub has no resource \"secrets\""),
        ("resource=pods&clusters=aa", 404, "the hub has no cluster \"aa\""),
        ("resource=pods&labels=a=b=c", 400, "labels: "),
        ("resource=pods&filter=object.", 400, "cannot compile filter: line 1, column "),
        (
            &format!("resource=pods&filter={deep}"),
            400,
            "cannot compile filter: line 1, column 25: more than 24 nested brackets",
        ),
        (
            &format!("resource=pods&filter={}", "x".repeat(5_000)),
            400,
            "cannot compile filter: line 1, column 1: the expression has 5000 bytes",
        ),
        ("resource=pods&events=synced", 400, "events must be added, updated or deleted"),
        ("resource=pods&initial=all", 400, "initial must be skip or replay"),
        ("resource=pods&change=true", 400, "unknown parameter \"change\"; did you mean \"changed\"?"),
        ("resource=pods&timeout=2d", 400, "timeout"),
        (&format!("resource={}", "p,".repeat(200)), 400, "resource has more than 100 values"),
    ] {
        let (code_found, answer) = bench.json_of(&format!("/v1/events?{query}"), "text/event-stream").await;
        let text = answer["error"].as_str().unwrap_or_default();
        assert!(code_found == code && text.starts_with(error), "{query:.60}: {code_found} {answer}");
    }
    let empty = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    assert_eq!(empty.json_of("/v1/events?resource=*", "*/*").await.0, 404);
    assert_eq!(bench.json_of("/v1/events?resource=pods", "text/html").await.0, 406);
    let post = Request::post("/v1/events?resource=pods").body(Body::empty()).unwrap();
    assert_eq!(bench.send(post).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    let head = Request::head("/v1/events?resource=pods").body(Body::empty()).unwrap();
    assert_eq!(bench.send(head).await.status(), StatusCode::OK);
    assert_eq!(bench.api().counts().watchers, [("pods".to_owned(), 0)], "a HEAD holds no stream");
}

#[tokio::test]
async fn streams_beyond_the_limit_of_watches_are_refused() {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 1, secrets: false });
    bench.list(&pods(), "a", Vec::new(), 10);
    let first = Client::of(&bench, "resource=pods").await;
    let (code, answer) = bench.json_of("/v1/events?resource=pods", "*/*").await;
    assert_eq!((code, answer["error"].as_str().unwrap()), (429, "too many watches, please try again later"));
    drop(first);
    Client::of(&bench, "resource=pods").await;
}

#[tokio::test(start_paused = true)]
async fn reviewed_reader_gets_what_its_clusters_allow_until_they_change_their_answer() {
    let (bench, rbac) = reviewed_bench();
    rbac.allowed.lock().insert(("a".to_owned(), "new".to_owned()));
    let mut client = Client::of(&bench, "resource=pods&initial=replay").await;
    let mut lines = client.lines(6).await;
    lines.sort();
    let expected = ["added a/x (initial)", "added a/y (initial)", "added b/x (initial)"];
    assert_eq!(lines[..3], expected, "{lines:?}");
    assert_eq!(lines[3..], ["added b/x (initial)", "added b/y (initial)", "synced"]);
    bench.event("a", DeltaKind::Added, pod("hidden", "h", 11, "web", "n1"));
    bench.event("a", DeltaKind::Added, pod("new", "n", 12, "web", "n1"));
    bench.event("b", DeltaKind::Added, pod("hidden", "h", 13, "web", "n1"));
    assert_eq!(client.lines(2).await, ["added a/n", "added b/h"]);
    let mut narrow = Client::of(&bench, "resource=pods&namespace=new&clusters=a").await;
    rbac.allowed.lock().remove(&("a".to_owned(), "shop".to_owned()));
    let began = clock::now();
    let end = client.next().await;
    assert_eq!(
        (end.name.as_str(), &end.data["data"]["reason"]),
        ("end", &json!("the rights of the reader have changed"))
    );
    assert!(clock::now() - began < Duration::from_secs(30));
    assert!(client.receive().await.is_none());
    bench.event("a", DeltaKind::Added, pod("new", "m", 14, "web", "n1"));
    assert_eq!(narrow.lines(1).await, ["added a/m"], "this right is the same");
}

#[tokio::test(start_paused = true)]
async fn cluster_that_does_not_answer_ends_a_stream_and_is_named() {
    let (bench, rbac) = reviewed_bench();
    let mut client = Client::of(&bench, "resource=pods&clusters=a").await;
    rbac.is_down.store(true, Relaxed);
    let began = clock::now();
    let end = client.next().await;
    assert_eq!(
        (end.name.as_str(), &end.data["data"]["reason"]),
        ("end", &json!("the rights of the reader have changed"))
    );
    assert!(clock::now() - began <= Duration::from_secs(45), "{:?}", clock::now() - began);
    let response = bench.send(Request::get("/v1/events?resource=pods&clusters=a").body(Body::empty()).unwrap()).await;
    let mut warnings = response.headers().get_all("warning").iter().map(|value| value.to_str().unwrap());
    assert!(warnings.any(|warning| warning.contains("a (rights unknown")), "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn stream_ends_when_other_namespaces_are_visible_after_a_relabel() {
    let mut bench = Bench::with_pods();
    bench.use_current(std::sync::Arc::new(|reader| Some(reader.clone())));
    bench.reader = ann(vec![rule(Some("prod"), &["shop"], &["*"], &[]), rule(Some("dev"), &["pay"], &["*"], &[])]);
    let mut client = Client::of(&bench, "resource=pods").await;
    bench.relabel("a", "dev");
    let end = client.next().await;
    assert_eq!(
        (end.name.as_str(), &end.data["data"]["reason"]),
        ("end", &json!("the rights of the reader have changed"))
    );
}
