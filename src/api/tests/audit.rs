//! The audit log over real connections: each request has its events, and no output delays an answer.

use std::collections::BTreeMap;
use std::io;

use parking_lot::{Condvar, Mutex};
use serde_json::Value;

use super::*;
use crate::api::kubernetes::tests::Bench;
use informer_hub_access::{ReaderLimits, ResourceMatch, Rule};
use informer_hub_audit::{AuditLog, AuditLogOptions, Output, Policy};
use informer_hub_types::{ApiResource, ClusterName, ClusterSelector, Groups, Gvr};

const ANN: &str = "ann-0123456789abcdef";
const BOB: &str = "bob-0123456789abcdef";

/// Text in request bodies, which must not appear in the log.
const PLANTED: &str = "planted-in-a-body";

/// Output in memory, which may be stuck or full.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<(Mutex<Written>, Condvar)>);

#[derive(Debug, Default)]
struct Written {
    bytes: Vec<u8>,
    calls: usize,
    is_stuck: bool,
    is_full: bool,
}

impl Output for Memory {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let (written, changed) = &*self.0;
        let mut written = written.lock();
        written.calls += 1;
        changed.wait_while(&mut written, |written| written.is_stuck);
        if written.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        written.bytes.extend(lines);
        Ok(())
    }
}

impl Memory {
    fn text(&self) -> String {
        String::from_utf8(self.0.0.lock().bytes.clone()).unwrap()
    }

    fn auditor(&self, options: AuditLogOptions) -> Arc<Auditor> {
        Arc::new(Auditor::new(AuditLog::start(Box::new(self.clone()), options).unwrap(), Policy::default()))
    }
}

fn secrets() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "secrets"), kind: "Secret".into(), namespaced: true }
}

/// Returns the protection of a port with an administrator, a reader of everything, and two of the namespace `shop`:
/// `ann` in all clusters, `bob` in `a`.
fn protection(audit: &Arc<Auditor>) -> Protection {
    let all = vec![ResourceMatch::Groups(Groups::All)];
    let reader = |name: &str, secret, clusters| ReaderEntry {
        name: name.to_owned(),
        identity: IdentityFrom::Token(token(secret)),
        rules: vec![Rule::new(clusters, ["shop"], all.clone(), Vec::new())],
        limits: ReaderLimits { watches: Some(1), ..ReaderLimits::default() },
        may_change: false,
    };
    let only_a = ClusterSelector::Names(vec![ClusterName::new("a").unwrap()]);
    let readers = vec![reader("ann", ANN, ClusterSelector::All), reader("bob", BOB, only_a)];
    Protection {
        token: Some(token(TOKEN)),
        read_token: Some(token(READ_TOKEN)),
        readers: ReaderSettings { readers, ..ReaderSettings::default() },
        audit: Some(Arc::clone(audit)),
        ..Protection::default()
    }
}

/// A request, and the expected values in its event.
struct Case {
    method: &'static str,
    path: String,
    token: Option<&'static str>,
    header: Option<&'static str>,
    body: &'static str,
    verb: &'static str,
    user: &'static str,
    code: u16,
    decision: &'static str,
}

/// Returns a case without a body, whose decision follows from the status code of its answer.
fn case(method: &'static str, path: &str, token: Option<&'static str>, verb: &'static str, code: u16) -> Case {
    let user = match token {
        Some(TOKEN) => "informer-hub:administrator",
        Some(READ_TOKEN) => "informer-hub:reader",
        Some(ANN) => "ann",
        Some(BOB) => "bob",
        _ => "system:anonymous",
    };
    let decision = if matches!(code, 401 | 403) { "forbid" } else { "allow" };
    Case { method, path: path.to_owned(), token, header: None, body: "", verb, user, code, decision }
}

/// Returns a case that is answered with 404 because the reader may not see the requested cluster, resource or
/// namespace.
fn hidden(method: &'static str, path: &str, token: Option<&'static str>, verb: &'static str) -> Case {
    Case { decision: "forbid", ..case(method, path, token, verb, 404) }
}

fn cases() -> Vec<Case> {
    const QUERY: &str = r#"{"resource":"pods","q":"name = \"planted-in-a-body\""}"#;
    let pods = "/clusters/a/api/v1/pods";
    let (admin, reader, ann, bob) = (Some(TOKEN), Some(READ_TOKEN), Some(ANN), Some(BOB));
    vec![
        case("GET", pods, admin, "list", 200),
        case("GET", "/clusters/*/api/v1/pods", ann, "list", 200),
        case("GET", "/unique/*/api/v1/pods?limit=1", ann, "list", 200),
        case("GET", "/clusters/a/api/v1/namespaces/shop/pods/x", ann, "get", 200),
        case("HEAD", "/clusters/a/api/v1/namespaces/shop/pods/x", ann, "get", 200),
        case("GET", "/clusters/a/api/v1/namespaces/shop/pods/none", ann, "get", 404),
        case("GET", "/clusters/a/api/v1/namespaces/other/pods", ann, "list", 403),
        case("GET", pods, None, "list", 401),
        case("GET", pods, Some("wrong-0123456789abcdef"), "list", 401),
        Case { body: PLANTED, ..case("POST", pods, admin, "create", 405) },
        case("DELETE", pods, ann, "deletecollection", 405),
        case("GET", "/clusters/a/api", ann, "get", 200),
        case("GET", "/clusters/nowhere/api/v1/pods", ann, "list", 404),
        case("GET", "/v1/query?resource=pods", ann, "list", 200),
        Case { body: QUERY, ..case("POST", "/v1/query", ann, "list", 200) },
        case("GET", "/v1/query?resource=nothing", ann, "list", 404),
        hidden("GET", "/v1/query?resource=secrets", ann, "list"),
        Case { body: "{\"resource\":\"secrets\"}", ..hidden("POST", "/v1/query", ann, "list") },
        hidden("GET", "/v1/events?resource=secrets", ann, "watch"),
        hidden("GET", "/v1/objects/a/secrets/shop/n", ann, "get"),
        hidden("GET", "/v1/objects/a/pods/other/none", ann, "get"),
        hidden("GET", "/v1/objects/b/pods/shop/x", bob, "get"),
        hidden("GET", "/v1/query?resource=pods&clusters=b", bob, "list"),
        hidden("GET", "/v1/events?resource=pods&clusters=b", bob, "watch"),
        hidden("GET", "/clusters/b/api/v1/pods", bob, "list"),
        hidden("GET", "/clusters/b/api", bob, "get"),
        case("GET", "/v1/query?resource=pods&clusters=c", bob, "list", 404),
        case("GET", "/v1/objects/a/pods/shop/none", ann, "get", 404),
        Case { header: Some("Impersonate-User: admin"), ..case("GET", pods, admin, "list", 403) },
        case("GET", "/v1/events?resource=pods&timeout=1ms", ann, "watch", 200),
        case("GET", "/v1/events", ann, "watch", 400),
        case("GET", "/v1/objects/a/pods/shop/x", reader, "get", 200),
        case("HEAD", "/v1/status", admin, "head", 200),
        case("GET", "/no/such/path", admin, "get", 404),
        case("OPTIONS", "/v1/query", admin, "options", 405),
        case("POST", "/v1/reload", reader, "post", 403),
        Case { body: PLANTED, ..case("POST", "/v1/sinks/s/dead-letters/purge", ann, "post", 403) },
        case("GET", "/metrics", None, "get", 401),
        case("GET", "/metrics", ann, "get", 403),
        case("GET", &format!("{pods}?access_token={TOKEN}&limit=1"), admin, "list", 200),
        case("GET", &format!("/v1/query?resource=pods&q={READ_TOKEN}"), ann, "list", 400),
        case("GET", &format!("/{TOKEN}/x?y={ANN}"), None, "get", 401),
    ]
}

/// Returns the text of a request. Its user agent contains `number`, to find its events.
fn request(number: usize, case: &Case) -> String {
    let agent = format!("User-Agent: case-{number}");
    let authorization = case.token.map(|token| format!("Authorization: Bearer {token}"));
    let length = format!("Content-Length: {}", case.body.len());
    let header = case.header.map(str::to_owned);
    let headers = [Some("Connection: close".to_owned()), Some(agent), authorization, header, Some(length)];
    let headers: Vec<_> = headers.iter().flatten().map(String::as_str).collect();
    head(case.method, &case.path, &headers) + case.body
}

fn events(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_logged_once_without_bodies_and_credentials() {
    let mut bench = Bench::with_pods();
    bench.list(&secrets(), "a", Vec::new(), 10);
    let memory = Memory::default();
    let auditor = memory.auditor(AuditLogOptions::default());
    let port = Port::open_with(protection(&auditor), Some(bench.api())).await;
    let all = cases();
    let answers = all.iter().enumerate().map(|(number, case)| port.exchange_text(request(number, case)));
    let answers = futures::future::join_all(answers).await;
    // Probes and allowed scrapes are not logged.
    assert!(port.get("/livez").await.ends_with("ok\n"));
    let scrape = head("GET", "/metrics", &["Connection: close", &format!("Authorization: Bearer {TOKEN}")]);
    assert!(port.exchange(&scrape).await.starts_with("HTTP/1.1 200"));
    // A watch that its client closes, and a second one that is refused.
    let watch = |agent: &str| {
        let authorization = format!("Authorization: Bearer {ANN}");
        head("GET", "/clusters/*/api/v1/pods?watch=1", &[&format!("User-Agent: {agent}"), &authorization])
    };
    let mut open = port.connect().await;
    open.write_all(watch("watch-open").as_bytes()).await.unwrap();
    assert!(read_one(&mut open, "\r\n").await.starts_with("HTTP/1.1 200"));
    let mut other = port.connect().await;
    other.write_all(watch("watch-refused").as_bytes()).await.unwrap();
    assert!(read_one(&mut other, "\n").await.starts_with("HTTP/1.1 429"));
    drop((open, other));
    // A client that disconnects before the answer.
    port.hold();
    let mut gone = port.connect().await;
    let status = head("GET", "/v1/status", &["User-Agent: gone", &format!("Authorization: Bearer {TOKEN}")]);
    // Takes the permit of the earlier case that has requested the status.
    port.asked(1).await;
    gone.write_all(status.as_bytes()).await.unwrap();
    port.asked(1).await;
    drop(gone);
    port.end().await;
    auditor.close(PATIENCE).await;

    let text = memory.text();
    for secret in [TOKEN, READ_TOKEN, ANN, BOB, PLANTED, "wrong-0123456789abcdef", "padding"] {
        assert!(!text.contains(secret), "{secret} is in\n{text}");
    }
    let mut by_agent: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in events(&text) {
        let agent = event["userAgent"].as_str().unwrap_or_default().to_owned();
        by_agent.entry(agent).or_default().push(event);
    }
    for (number, (case, answer)) in all.iter().zip(&answers).enumerate() {
        let Case { method, path, verb, user, code, decision, .. } = case;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{method} {path}: {answer:.300}");
        let found = by_agent.remove(&format!("case-{number}")).unwrap_or_default();
        let is_stream = *verb == "watch" && *code == 200;
        let stages: Vec<_> = found.iter().map(|event| event["stage"].as_str().unwrap()).collect();
        let expected: &[&str] =
            if is_stream { &["ResponseStarted", "ResponseComplete"] } else { &["ResponseComplete"] };
        assert_eq!(stages, expected, "{method} {path}");
        for event in found {
            let annotations = &event["annotations"];
            assert_eq!(
                (&event["verb"], &event["user"]["username"], &event["responseStatus"]["code"]),
                (&Value::from(*verb), &Value::from(*user), &Value::from(*code)),
                "{event}"
            );
            assert_eq!(annotations["authorization.k8s.io/decision"], *decision, "{event}");
            if *decision == "forbid" && *code == 404 {
                let reason = "no rule and no access review allows it";
                assert_eq!(annotations["authorization.k8s.io/reason"], reason, "{event}");
            }
            assert_eq!(event["sourceIPs"], serde_json::json!(["127.0.0.1"]));
            assert_eq!(annotations["informer-hub.io/incomplete"], Value::Null, "{event}");
            let id = event["auditID"].as_str().unwrap();
            assert!(answer.contains(&format!("audit-id: {id}\r\n")), "{answer:.300}");
        }
    }
    let take = |by_agent: &mut BTreeMap<String, Vec<Value>>, agent: &str| by_agent.remove(agent).unwrap_or_default();
    let [started, ended] = &take(&mut by_agent, "watch-open")[..] else { panic!("{text}") };
    assert_eq!((&started["stage"], &ended["stage"]), (&"ResponseStarted".into(), &"ResponseComplete".into()));
    assert!(ended["annotations"]["informer-hub.io/incomplete"].is_string() && ended["auditID"] == started["auditID"]);
    let [refused] = &take(&mut by_agent, "watch-refused")[..] else { panic!("{text}") };
    assert_eq!((&refused["responseStatus"]["code"], &refused["stage"]), (&429.into(), &"ResponseComplete".into()));
    let [gone] = &take(&mut by_agent, "gone")[..] else { panic!("{text}") };
    assert_eq!((&gone["responseStatus"], &gone["verb"]), (&Value::Null, &"get".into()));
    assert!(gone["annotations"]["informer-hub.io/incomplete"].is_string());
    assert!(by_agent.is_empty(), "{by_agent:?}");
    assert_eq!(auditor.counts().lost, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_name_objects_clusters_and_numbers() {
    let bench = Bench::with_pods();
    let memory = Memory::default();
    let auditor = memory.auditor(AuditLogOptions::default());
    let port = Port::open_with(protection(&auditor), Some(bench.api())).await;
    for (number, (path, token)) in [
        ("/clusters/*/api/v1/pods", ANN),
        ("/clusters/b/api/v1/namespaces/shop/pods/x", ANN),
        ("/v1/query?resource=pods", READ_TOKEN),
        ("/v1/events?resource=pods&initial=replay&clusters=a&timeout=1ms", ANN),
        ("/v1/objects/a/pods/shop/x", ANN),
    ]
    .into_iter()
    .enumerate()
    {
        port.exchange_text(request(number, &case("GET", path, Some(token), "", 200))).await;
    }
    port.end().await;
    auditor.close(PATIENCE).await;
    let all = events(&memory.text());
    let ended: Vec<_> = all.iter().filter(|event| event["stage"] == "ResponseComplete").collect();
    let shown = |event: &Value| {
        let (object, annotations) = (&event["objectRef"], &event["annotations"]);
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let parts = ["resource", "namespace", "name", "apiVersion"].map(|key| text(&object[key])).join(" ");
        let keys = ["authorization.k8s.io/reason", "informer-hub.io/clusters", "informer-hub.io/objects"];
        parts + " | " + &keys.map(|key| text(&annotations[key])).join(" | ")
    };
    let shown: Vec<_> = ended.into_iter().map(shown).collect();
    assert_eq!(
        shown,
        [
            "pods - - v1 | readers.ann | a,b | 4",
            "pods shop x v1 | readers.ann | b | 1",
            "pods - - v1 | hub.auth.read_token | a,b | 4",
            "pods - - v1 | readers.ann | a | 2",
            "pods shop x v1 | readers.ann | a | 1",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_and_full_outputs_delay_no_answer_and_lost_events_are_counted() {
    let bench = Bench::with_pods();
    for (is_stuck, is_full) in [(true, false), (false, true)] {
        let memory = Memory::default();
        *memory.0.0.lock() = Written { is_stuck, is_full, ..Written::default() };
        let auditor = memory.auditor(AuditLogOptions { queue: 8192, batch: 1024, ..AuditLogOptions::default() });
        let port = Port::open_with(protection(&auditor), Some(bench.api())).await;
        let list = || port.exchange_text(request(0, &case("GET", "/clusters/a/api/v1/pods", Some(ANN), "", 200)));
        for _ in 0..40 {
            assert!(list().await.starts_with("HTTP/1.1 200"));
        }
        let counts = auditor.counts();
        assert!(counts.written == 0 && counts.lost > 20 && counts.waiting > 3, "{counts:?}");
        *memory.0.0.lock() = Written::default();
        memory.0.1.notify_all();
        port.end().await;
        auditor.close(PATIENCE).await;
        let all = events(&memory.text());
        let lost_in = |event: &Value| event["annotations"]["informer-hub.io/lost-events"].as_str()?.parse::<u64>().ok();
        let gaps: Vec<_> = all.iter().filter_map(lost_in).collect();
        assert_eq!((all.len() - gaps.len()) as u64 + counts.lost, 40);
        assert_eq!((gaps.iter().sum::<u64>(), auditor.counts().lost), (counts.lost, counts.lost));
    }
}
