//! Tests of clusters that send invalid responses: the status reports each one, no other cluster is affected, and the
//! cache converges after the fault ends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use informer_hub::actors::InformerStatus;
use informer_hub_sim::{Churn, Fault, FaultScript, RawAnswer, Rule, SimCluster, SimConfig, Streaming, When, World};
use serde_json::json;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, PATIENCE, config, quick, small};

const PODS: usize = 20;

/// Size of an object far above the limit of 16 MiB, in bytes.
const HUGE: usize = 50 << 20;

/// Expected status during the fault.
#[derive(Clone, Copy)]
enum Expected {
    /// The last error contains this text.
    Error(&'static str),
    /// The informer has synced and skipped an object for a reason that contains this text.
    Skipped(&'static str),
    /// The informer has synced without an error.
    Nothing,
}

/// Test case: a faulty cluster, which has the name of the case.
struct Case {
    name: &'static str,
    rule: Rule,
    streaming: Streaming,
    expected: Expected,
    /// Whether the fault leaves objects in the cache that only a relist removes.
    leaves_objects: bool,
    /// Whether the fault strikes a watch that has synced.
    live: bool,
}

fn always(when: When, fault: Fault) -> Rule {
    Rule::new(when, fault).times(usize::MAX)
}

/// Creates a case in which every list gets this answer.
fn listing(name: &'static str, answer: RawAnswer, expected: Expected) -> Case {
    let rule = always(When::List, Fault::Answer(answer));
    Case { name, rule, streaming: Streaming::Refused, expected, leaves_objects: false, live: false }
}

/// Creates a case in which every list contains this item.
fn item(name: &'static str, item: impl Into<Vec<u8>>, expected: Expected) -> Case {
    let rule = always(When::List, Fault::Insert(item.into().into())).after(5);
    Case { name, rule, streaming: Streaming::Refused, expected, leaves_objects: false, live: false }
}

/// Creates a case in which every streaming list contains this line among its initial events.
fn initial(name: &'static str, line: impl Into<Vec<u8>>, expected: Expected) -> Case {
    let rule = always(When::Streaming, Fault::Insert(with_newline(line))).after(5);
    Case { name, rule, streaming: Streaming::Supported, expected, leaves_objects: false, live: false }
}

/// Creates a case in which the watch sends this line after its first event.
fn line(name: &'static str, line: impl Into<Vec<u8>>, expected: Expected) -> Case {
    let rule = Rule::new(When::Streaming, Fault::Insert(with_newline(line))).after(PODS + 1);
    Case { name, rule, streaming: Streaming::Supported, expected, leaves_objects: false, live: true }
}

fn with_newline(line: impl Into<Vec<u8>>) -> bytes::Bytes {
    let mut line = line.into();
    line.push(b'\n');
    line.into()
}

impl Case {
    fn leaving_objects(mut self) -> Self {
        self.leaves_objects = true;
        self
    }
}

/// Returns an object with this `spec`, which may be invalid JSON.
fn ghost(spec: impl AsRef<[u8]>) -> Vec<u8> {
    let head = br#"{"metadata":{"name":"ghost","namespace":"shop","uid":"g","resourceVersion":"1"},"spec":"#;
    [head, spec.as_ref(), b"}"].concat()
}

fn event(kind: &str, object: impl AsRef<[u8]>) -> Vec<u8> {
    [format!("{{\"type\":\"{kind}\",\"object\":").as_bytes(), object.as_ref(), b"}"].concat()
}

fn nested(depth: usize) -> String {
    format!("{}1{}", "{\"a\":[".repeat(depth), "]}".repeat(depth))
}

fn huge() -> Vec<u8> {
    ghost(format!("\"{}\"", "x".repeat(HUGE)))
}

fn list_cases() -> Vec<Case> {
    let raw = |code, body: &str| RawAnswer::new(code, body.to_owned());
    let list = |items: &str| raw(200, &format!("{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",{items}}}"));
    vec![
        listing("items-null", list(r#""metadata":{},"items":null"#), Expected::Nothing),
        listing("no-metadata", list(r#""items":[]"#), Expected::Nothing),
        listing("items-missing", list(r#""metadata":{"resourceVersion":"1"}"#), Expected::Error("has no items")),
        listing("items-object", list(r#""metadata":{},"items":{}"#), Expected::Error("items are not an array")),
        listing("metadata-list", list(r#""metadata":[[]],"items":[]"#), Expected::Error("invalid metadata")),
        listing("metadata-endless", list("\"metadata\":{\"a\":\"").filled("x", 1 << 30), Expected::Error("64 KiB")),
        listing("array", raw(200, "[]"), Expected::Error("not a JSON object")),
        listing("empty", raw(200, ""), Expected::Error("the body ended before the list did")),
        listing("no-content", raw(204, ""), Expected::Error("the body ended before the list did")),
        listing("status-in-200", raw(200, r#"{"kind":"Status","code":200}"#), Expected::Error("200 with a Status")),
        listing("table", raw(200, r#"{"kind":"Table","rows":[]}"#), Expected::Error("a Table")),
        listing("html", raw(200, "<html>").header("content-type", "text/html"), Expected::Error("text/html")),
        listing("gzip-unasked", raw(200, "\x1f\u{8b}x").header("content-encoding", "gzip"), Expected::Error("list")),
        listing("gzip-rubbish", raw(200, "no gzip").header("content-encoding", "gzip"), Expected::Error("gzip")),
        listing("redirect", raw(307, "").header("location", "/api/v1/pods"), Expected::Error("307")),
        listing("redirect-away", raw(302, "").header("location", "http://127.0.0.1:1/"), Expected::Error("302")),
        listing("error-endless", raw(500, "").filled("x", 1 << 30), Expected::Error("500")),
        listing("error-silent", raw(500, "{").then_silence(), Expected::Error("no answer")),
        listing("retry-negative", raw(429, "").header("retry-after", "-5"), Expected::Error("429")),
        listing("retry-rubbish", raw(429, "").header("retry-after", "1e9999"), Expected::Error("429")),
        listing(
            "retry-date",
            raw(503, "").header("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT"),
            Expected::Error("503"),
        ),
        listing("silent-list", raw(200, "{\"items\":[").then_silence(), Expected::Error("no further data")),
        listing("endless-item", raw(200, "{\"items\":[{\"a\":\"").filled("x", usize::MAX), Expected::Error("")),
        listing("endless-space", raw(200, "{\"items\":[").filled(" ", usize::MAX), Expected::Error("no further data")),
    ]
}

fn item_cases() -> Vec<Case> {
    let cut_short = Expected::Error("invalid JSON");
    vec![
        item("item-null", "null", Expected::Skipped("not an object")),
        item("item-text", "\"pod\"", Expected::Skipped("not an object")),
        item("item-nameless", "{}", Expected::Skipped("without metadata.name")),
        item("item-no-metadata", r#"{"metadata":null}"#, Expected::Skipped("without metadata.name")),
        item("item-odd-metadata", r#"{"metadata":["name"]}"#, Expected::Skipped("without metadata.name")),
        item("item-odd-name", r#"{"metadata":{"name":7}}"#, Expected::Skipped("without metadata.name")),
        item("item-slash", r#"{"metadata":{"name":"a/b"}}"#, Expected::Skipped("slash")),
        item("item-surrogate", r#"{"metadata":{"name":"\ud800"}}"#, Expected::Skipped("without metadata.name")),
        item("item-utf8", ghost(b"{\"x\":\"\xff\xfe\"}"), Expected::Skipped("UTF-8")),
        item("item-huge", huge(), Expected::Skipped("limit")),
        item("item-escape", ghost(r#""\x""#), cut_short),
        item("item-broken", ghost("{]"), cut_short),
        item("item-bare", r#"{"metadata":{"name":"bare"}}"#, Expected::Nothing).leaving_objects(),
        item("item-deep", ghost(nested(50_000)), Expected::Nothing).leaving_objects(),
        item("item-twice", ghost(r#"1,"metadata":{"name":"twin"},"metadata":{"labels":{"a":1}}"#), Expected::Nothing)
            .leaving_objects(),
        item("item-number", ghost("{\"nodeName\":1e999}"), Expected::Nothing).leaving_objects(),
    ]
}

fn watch_cases() -> Vec<Case> {
    let nameless = Expected::Skipped("without metadata.name");
    let fault_case = |name, fault, expected| Case {
        name,
        rule: Rule::new(When::Streaming, fault).after(PODS + 1),
        streaming: Streaming::Supported,
        expected,
        leaves_objects: false,
        live: true,
    };
    let endless = always(When::Watch, Fault::Answer(RawAnswer::new(200, "{").filled("x", usize::MAX)));
    vec![
        initial("initial-nameless", event("ADDED", "{}"), nameless),
        initial("initial-huge", event("ADDED", huge()), Expected::Skipped("limit")),
        initial("initial-utf8", event("ADDED", ghost(b"{\"x\":\"\xff\"}")), Expected::Skipped("UTF-8")),
        line("line-nameless", event("MODIFIED", "{}"), nameless),
        line("line-null", event("MODIFIED", "null"), Expected::Skipped("not an object")),
        line("line-huge", event("MODIFIED", huge()), Expected::Skipped("limit")),
        line("line-utf8", event("MODIFIED", ghost(b"{\"x\":\"\xff\"}")), Expected::Skipped("UTF-8")),
        line("line-unknown", event("SPARKLED", ghost("1")), Expected::Skipped("SPARKLED")),
        line("line-escape", event("MODIFIED", ghost(r#""\x""#)), Expected::Error("invalid JSON")),
        line("line-no-type", r#"{"object":{}}"#, Expected::Error("no type")),
        line("line-no-object", r#"{"type":"ADDED"}"#, Expected::Error("no object")),
        line("line-array", "[1,2]", Expected::Error("invalid JSON")),
        line("line-error-junk", event("ERROR", "\"sorry\""), Expected::Error("500")),
        line(
            "line-error-410",
            event("ERROR", json!({"kind": "Status", "code": 410}).to_string()),
            Expected::Error("410"),
        ),
        line("line-deleted", event("DELETED", ghost("1")), Expected::Nothing),
        line("line-bookmark", event("BOOKMARK", r#"{"metadata":{}}"#), Expected::Nothing),
        line("line-bookmark-odd", event("BOOKMARK", "17"), Expected::Nothing),
        line("line-bare", event("ADDED", r#"{"metadata":{"name":"bare"}}"#), Expected::Nothing).leaving_objects(),
        line("line-deep", event("ADDED", ghost(nested(50_000))), Expected::Nothing).leaving_objects(),
        fault_case("half-a-line", Fault::Cut(500), Expected::Error("ended inside an event")),
        fault_case("garbage", Fault::Garbage, Expected::Error("invalid JSON")),
        fault_case("drip", Fault::SlowDrip, Expected::Nothing),
        Case {
            rule: endless,
            live: false,
            ..fault_case("endless-line", Fault::EarlyClose, Expected::Error("no newline in"))
        },
    ]
}

fn start(case: &Case, seed: u64) -> (String, SimCluster) {
    // The faults of all cases are written in JSON.
    let config = SimConfig { streaming: case.streaming, protobuf: false, ..small(seed, PODS) };
    let cluster = SimCluster::start(config, &Handle::current()).unwrap();
    cluster.set_faults(FaultScript::one(case.rule.clone()));
    (case.name.to_owned(), cluster)
}

fn start_all(cases: &[Case]) -> BTreeMap<String, SimCluster> {
    let mut clusters: BTreeMap<_, _> = (0..).zip(cases).map(|(seed, case)| start(case, seed)).collect();
    assert_eq!(clusters.len(), cases.len(), "two cases have the same name");
    clusters.insert("healthy".to_owned(), SimCluster::start(small(1000, PODS), &Handle::current()).unwrap());
    clusters
}

fn is_reported(expected: Expected, informer: &InformerStatus) -> bool {
    let error = informer.last_error.as_deref();
    match expected {
        Expected::Error(words) => error.is_some_and(|error| error.contains(words)),
        Expected::Skipped(words) => {
            informer.synced && informer.skipped > 0 && error.is_some_and(|error| error.contains(words))
        }
        Expected::Nothing => informer.synced && error.is_none(),
    }
}

/// Causes two events on each watch.
fn touch(fleet: &Fleet) {
    for cluster in fleet.clusters.values() {
        cluster.with_world(|world| {
            let pods = World::pods();
            let key = world.objects(&pods).next().unwrap().key().clone();
            for round in 0..2 {
                world
                    .patch(&pods, &key, &json!({ "status": { "observedGeneration": round + world.version() } }))
                    .unwrap();
            }
        });
    }
}

/// Ends a cluster's fault, with a relist if the fault left objects behind.
async fn heal(fleet: &Fleet, cases: &[Case], name: &str) {
    let cluster = &fleet.clusters[name];
    cluster.heal();
    if cases.iter().any(|case| case.leaves_objects && case.name == name) {
        cluster.with_world(World::compact);
        cluster.stop().await;
        cluster.restart().await;
    }
}

/// Waits until the status of every case is as expected and heals it, while the healthy cluster keeps changing.
async fn all_reported(fleet: &Fleet, cases: &[Case]) {
    // An error is visible only until its retry, so a poll may miss it. The deadline allows two or three attempts.
    let deadline = Instant::now() + 2 * PATIENCE;
    let mut open: BTreeMap<&str, Expected> = cases.iter().map(|case| (case.name, case.expected)).collect();
    let mut last = BTreeMap::new();
    let mut churn = Churn::new(7);
    while !open.is_empty() {
        fleet.clusters["healthy"].with_world(|world| churn.step(world));
        let changed = Instant::now();
        fleet.converged_on("healthy").await;
        assert!(changed.elapsed() < Duration::from_secs(10), "the healthy cluster was delayed");
        for cluster in fleet.hub.report().await.unwrap().hub.clusters {
            let Some(informer) = cluster.informers.into_iter().next() else { continue };
            let name = cluster.name.as_str();
            assert_eq!(informer.restarts, 0, "{name}: {:?}", informer.last_error);
            if open.get(name).is_some_and(|expected| is_reported(*expected, &informer)) {
                open.remove(name);
                heal(fleet, cases, name).await;
            } else if open.contains_key(name) {
                last.insert(name.to_owned(), informer);
            }
        }
        last.retain(|name, _| open.contains_key(name.as_str()));
        assert!(Instant::now() < deadline, "not reported: {last:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn assert_reported_and_recovered(cases: Vec<Case>) {
    let clusters = start_all(&cases);
    let mut config = config(&clusters, &["pods"]);
    for cluster in &mut config.clusters {
        cluster.compression = cluster.name.as_str() == "gzip-rubbish";
    }
    let mut tuning = quick();
    // The error of an ended watch is visible until it is reopened.
    tuning.reflector.reopen = Duration::from_secs(1);
    let fleet = Fleet::start_config(clusters, config, tuning).await;
    fleet.converged_on("healthy").await;
    for case in cases.iter().filter(|case| case.live) {
        fleet.shows(case.name, "synced", |informer| informer.synced).await;
    }
    touch(&fleet);
    all_reported(&fleet, &cases).await;
    touch(&fleet);
    fleet.converged().await;
    let restarts: u64 = fleet.hub.report().await.unwrap().hub.clusters.iter().map(|c| c.informers[0].restarts).sum();
    assert_eq!(restarts, 0);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_list_is_reported_and_recovered_from() {
    assert_reported_and_recovered(list_cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_object_is_reported_and_recovered_from() {
    assert_reported_and_recovered(item_cases()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_watch_event_is_reported_and_recovered_from() {
    assert_reported_and_recovered(watch_cases()).await;
}
