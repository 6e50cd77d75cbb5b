//! Clusters that answer what no apiserver should: each is named in the status, none disturbs another, and once it is
//! itself again the hub has the truth.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use informer_hub::actors::InformerStatus;
use informer_hub_sim::{Churn, Fault, FaultScript, RawAnswer, Rule, SimCluster, SimConfig, Streaming, When, World};
use serde_json::json;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, PATIENCE, config, quick, small};

const PODS: usize = 20;

/// Bytes of an object that is far beyond the limit of 16 MiB.
const HUGE: usize = 50 << 20;

/// What the status shows while the cluster is ill.
#[derive(Clone, Copy)]
enum Shows {
    /// A last error with these words in it.
    Error(&'static str),
    /// An object that was skipped, with these words in the reason, in an informer that has synced.
    Skipped(&'static str),
    /// Nothing: it is no mistake, and the informer has synced.
    Nothing,
}

struct Case {
    name: &'static str,
    rule: Rule,
    streaming: Streaming,
    shows: Shows,
    /// Whether the illness leaves objects behind that only a list takes away.
    ghosts: bool,
    /// Whether it strikes a watch that is in step.
    live: bool,
}

fn always(when: When, fault: Fault) -> Rule {
    Rule::new(when, fault).times(usize::MAX)
}

/// Every list is answered so.
fn listing(name: &'static str, answer: RawAnswer, shows: Shows) -> Case {
    let rule = always(When::List, Fault::Answer(answer));
    Case { name, rule, streaming: Streaming::Refused, shows, ghosts: false, live: false }
}

/// Every list has this among its items.
fn item(name: &'static str, item: impl Into<Vec<u8>>, shows: Shows) -> Case {
    let rule = always(When::List, Fault::Insert(item.into().into())).after(5);
    Case { name, rule, streaming: Streaming::Refused, shows, ghosts: false, live: false }
}

/// Every streaming list has this line among its initial events.
fn initial(name: &'static str, line: impl Into<Vec<u8>>, shows: Shows) -> Case {
    let rule = always(When::Streaming, Fault::Insert(with_newline(line))).after(5);
    Case { name, rule, streaming: Streaming::Supported, shows, ghosts: false, live: false }
}

/// The watch has this line after its first event.
fn line(name: &'static str, line: impl Into<Vec<u8>>, shows: Shows) -> Case {
    let rule = Rule::new(When::Streaming, Fault::Insert(with_newline(line))).after(PODS + 1);
    Case { name, rule, streaming: Streaming::Supported, shows, ghosts: false, live: true }
}

fn with_newline(line: impl Into<Vec<u8>>) -> bytes::Bytes {
    let mut line = line.into();
    line.push(b'\n');
    line.into()
}

impl Case {
    fn leaving_ghosts(mut self) -> Self {
        self.ghosts = true;
        self
    }
}

/// An object whose `spec` is this JSON, right or wrong.
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

fn of_lists() -> Vec<Case> {
    let raw = |code, body: &str| RawAnswer::new(code, body.to_owned());
    let list = |items: &str| raw(200, &format!("{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",{items}}}"));
    vec![
        listing("items-null", list(r#""metadata":{},"items":null"#), Shows::Nothing),
        listing("no-metadata", list(r#""items":[]"#), Shows::Nothing),
        listing("items-missing", list(r#""metadata":{"resourceVersion":"1"}"#), Shows::Error("has no items")),
        listing("items-object", list(r#""metadata":{},"items":{}"#), Shows::Error("items are not a list")),
        listing("metadata-list", list(r#""metadata":[[]],"items":[]"#), Shows::Error("metadata or kind is not what")),
        listing("metadata-endless", list("\"metadata\":{\"a\":\"").filled("x", 1 << 30), Shows::Error("64 KiB")),
        listing("array", raw(200, "[]"), Shows::Error("not a JSON object")),
        listing("empty", raw(200, ""), Shows::Error("the body ended before the list did")),
        listing("no-content", raw(204, ""), Shows::Error("the body ended before the list did")),
        listing("status-in-200", raw(200, r#"{"kind":"Status","code":200}"#), Shows::Error("200 with a Status")),
        listing("table", raw(200, r#"{"kind":"Table","rows":[]}"#), Shows::Error("a Table")),
        listing("html", raw(200, "<html>").header("content-type", "text/html"), Shows::Error("text/html")),
        listing("gzip-unasked", raw(200, "\x1f\u{8b}x").header("content-encoding", "gzip"), Shows::Error("list")),
        listing("gzip-rubbish", raw(200, "no gzip").header("content-encoding", "gzip"), Shows::Error("gzip")),
        listing("redirect", raw(307, "").header("location", "/api/v1/pods"), Shows::Error("307")),
        listing("redirect-away", raw(302, "").header("location", "http://127.0.0.1:1/"), Shows::Error("302")),
        listing("error-endless", raw(500, "").filled("x", 1 << 30), Shows::Error("500")),
        listing("error-silent", raw(500, "{").then_silence(), Shows::Error("no answer")),
        listing("retry-negative", raw(429, "").header("retry-after", "-5"), Shows::Error("429")),
        listing("retry-rubbish", raw(429, "").header("retry-after", "1e9999"), Shows::Error("429")),
        listing("retry-date", raw(503, "").header("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT"), Shows::Error("503")),
        listing("silent-list", raw(200, "{\"items\":[").then_silence(), Shows::Error("no further data")),
        listing("endless-item", raw(200, "{\"items\":[{\"a\":\"").filled("x", usize::MAX), Shows::Error("")),
        listing("endless-space", raw(200, "{\"items\":[").filled(" ", usize::MAX), Shows::Error("no further data")),
    ]
}

fn of_items() -> Vec<Case> {
    let cut_short = Shows::Error("broken JSON");
    vec![
        item("item-null", "null", Shows::Skipped("not an object")),
        item("item-text", "\"pod\"", Shows::Skipped("not an object")),
        item("item-nameless", "{}", Shows::Skipped("without metadata.name")),
        item("item-no-metadata", r#"{"metadata":null}"#, Shows::Skipped("without metadata.name")),
        item("item-odd-metadata", r#"{"metadata":["name"]}"#, Shows::Skipped("without metadata.name")),
        item("item-odd-name", r#"{"metadata":{"name":7}}"#, Shows::Skipped("without metadata.name")),
        item("item-slash", r#"{"metadata":{"name":"a/b"}}"#, Shows::Skipped("slash")),
        item("item-surrogate", r#"{"metadata":{"name":"\ud800"}}"#, Shows::Skipped("without metadata.name")),
        item("item-utf8", ghost(b"{\"x\":\"\xff\xfe\"}"), Shows::Skipped("UTF-8")),
        item("item-huge", huge(), Shows::Skipped("limit")),
        item("item-escape", ghost(r#""\x""#), cut_short),
        item("item-broken", ghost("{]"), cut_short),
        item("item-bare", r#"{"metadata":{"name":"bare"}}"#, Shows::Nothing).leaving_ghosts(),
        item("item-deep", ghost(nested(50_000)), Shows::Nothing).leaving_ghosts(),
        item("item-twice", ghost(r#"1,"metadata":{"name":"twin"},"metadata":{"labels":{"a":1}}"#), Shows::Nothing)
            .leaving_ghosts(),
        item("item-number", ghost("{\"nodeName\":1e999}"), Shows::Nothing).leaving_ghosts(),
    ]
}

fn of_lines() -> Vec<Case> {
    let nameless = Shows::Skipped("without metadata.name");
    let struck = |name, fault, shows| Case {
        name,
        rule: Rule::new(When::Streaming, fault).after(PODS + 1),
        streaming: Streaming::Supported,
        shows,
        ghosts: false,
        live: true,
    };
    let endless = always(When::Watch, Fault::Answer(RawAnswer::new(200, "{").filled("x", usize::MAX)));
    vec![
        initial("initial-nameless", event("ADDED", "{}"), nameless),
        initial("initial-huge", event("ADDED", huge()), Shows::Skipped("limit")),
        initial("initial-utf8", event("ADDED", ghost(b"{\"x\":\"\xff\"}")), Shows::Skipped("UTF-8")),
        line("line-nameless", event("MODIFIED", "{}"), nameless),
        line("line-null", event("MODIFIED", "null"), Shows::Skipped("not an object")),
        line("line-huge", event("MODIFIED", huge()), Shows::Skipped("limit")),
        line("line-utf8", event("MODIFIED", ghost(b"{\"x\":\"\xff\"}")), Shows::Skipped("UTF-8")),
        line("line-unknown", event("SPARKLED", ghost("1")), Shows::Skipped("SPARKLED")),
        line("line-escape", event("MODIFIED", ghost(r#""\x""#)), Shows::Error("broken JSON")),
        line("line-no-type", r#"{"object":{}}"#, Shows::Error("no type")),
        line("line-no-object", r#"{"type":"ADDED"}"#, Shows::Error("no object")),
        line("line-array", "[1,2]", Shows::Error("broken JSON")),
        line("line-error-junk", event("ERROR", "\"sorry\""), Shows::Error("500")),
        line("line-error-410", event("ERROR", json!({"kind": "Status", "code": 410}).to_string()), Shows::Error("410")),
        line("line-deleted", event("DELETED", ghost("1")), Shows::Nothing),
        line("line-bookmark", event("BOOKMARK", r#"{"metadata":{}}"#), Shows::Nothing),
        line("line-bookmark-odd", event("BOOKMARK", "17"), Shows::Nothing),
        line("line-bare", event("ADDED", r#"{"metadata":{"name":"bare"}}"#), Shows::Nothing).leaving_ghosts(),
        line("line-deep", event("ADDED", ghost(nested(50_000))), Shows::Nothing).leaving_ghosts(),
        struck("half-a-line", Fault::HalfLine, Shows::Error("ended inside an event")),
        struck("garbage", Fault::Garbage, Shows::Error("broken JSON")),
        struck("drip", Fault::SlowDrip, Shows::Nothing),
        Case {
            rule: endless,
            live: false,
            ..struck("endless-line", Fault::EarlyClose, Shows::Error("a line without end"))
        },
    ]
}

fn start(case: &Case, seed: u64) -> (String, SimCluster) {
    let config = SimConfig { streaming: case.streaming, ..small(seed, PODS) };
    let cluster = SimCluster::start(config, &Handle::current()).unwrap();
    cluster.set_faults(FaultScript::one(case.rule.clone()));
    (case.name.to_owned(), cluster)
}

fn start_all(cases: &[Case]) -> BTreeMap<String, SimCluster> {
    let mut clusters: BTreeMap<_, _> = (0..).zip(cases).map(|(seed, case)| start(case, seed)).collect();
    assert_eq!(clusters.len(), cases.len(), "two cases of one name");
    clusters.insert("healthy".to_owned(), SimCluster::start(small(1000, PODS), &Handle::current()).unwrap());
    clusters
}

fn is_shown(shows: Shows, informer: &InformerStatus) -> bool {
    let said = informer.last_error.as_deref();
    match shows {
        Shows::Error(words) => said.is_some_and(|said| said.contains(words)),
        Shows::Skipped(words) => {
            informer.synced && informer.skipped > 0 && said.is_some_and(|said| said.contains(words))
        }
        Shows::Nothing => informer.synced && said.is_none(),
    }
}

/// Two events for each watch.
fn touch(fleet: &Fleet) {
    for cluster in fleet.clusters.values() {
        cluster.with_world(|world| {
            let pods = World::pods();
            let key = world.objects(&pods).next().unwrap().key().clone();
            for round in 0..2 {
                world
                    .patch(&pods, &key, &json!({ "status": { "touched": round, "version": world.version() } }))
                    .unwrap();
            }
        });
    }
}

/// Makes a cluster itself again.
async fn heal(fleet: &Fleet, cases: &[Case], name: &str) {
    let cluster = &fleet.clusters[name];
    cluster.heal();
    if cases.iter().any(|case| case.ghosts && case.name == name) {
        cluster.with_world(World::compact);
        cluster.stop().await;
        cluster.restart().await;
    }
}

/// Waits until every case has shown what it should, and heals it then, while the healthy cluster changes and is followed.
async fn all_shown(fleet: &Fleet, cases: &[Case]) {
    // An error shows only while its retry is waited for, and may be over between two looks: two or three chances each.
    let deadline = Instant::now() + 2 * PATIENCE;
    let mut open: BTreeMap<&str, Shows> = cases.iter().map(|case| (case.name, case.shows)).collect();
    let mut last = BTreeMap::new();
    let mut churn = Churn::new(7);
    while !open.is_empty() {
        fleet.clusters["healthy"].with_world(|world| churn.step(world));
        let asked = Instant::now();
        fleet.converged_on("healthy").await;
        assert!(asked.elapsed() < Duration::from_secs(10), "the healthy cluster was held up");
        for cluster in fleet.hub.report().await.unwrap().hub.clusters {
            let Some(informer) = cluster.informers.into_iter().next() else { continue };
            let name = cluster.name.as_str();
            assert_eq!(informer.restarts, 0, "{name}: {:?}", informer.last_error);
            if open.get(name).is_some_and(|shows| is_shown(*shows, &informer)) {
                open.remove(name);
                heal(fleet, cases, name).await;
            } else if open.contains_key(name) {
                last.insert(name.to_owned(), informer);
            }
        }
        last.retain(|name, _| open.contains_key(name.as_str()));
        assert!(Instant::now() < deadline, "not shown: {last:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ill_and_well_again(cases: Vec<Case>) {
    let clusters = start_all(&cases);
    let mut config = config(&clusters, &["pods"]);
    for cluster in &mut config.clusters {
        cluster.compression = cluster.name.as_str() == "gzip-rubbish";
    }
    let mut tuning = quick();
    // What a watch is cut off for shows for as long as it is waited for.
    tuning.reflector.reopen = Duration::from_secs(1);
    let fleet = Fleet::start_config(clusters, config, tuning).await;
    fleet.converged_on("healthy").await;
    for case in cases.iter().filter(|case| case.live) {
        fleet.shows(case.name, "its first list", |informer| informer.synced).await;
    }
    touch(&fleet);
    all_shown(&fleet, &cases).await;
    touch(&fleet);
    fleet.converged().await;
    let restarts: u64 = fleet.hub.report().await.unwrap().hub.clusters.iter().map(|c| c.informers[0].restarts).sum();
    assert_eq!(restarts, 0);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_none_is_told_and_got_over() {
    ill_and_well_again(of_lists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_none_is_told_and_got_over() {
    ill_and_well_again(of_items()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_none_is_told_and_got_over() {
    ill_and_well_again(of_lines()).await;
}
