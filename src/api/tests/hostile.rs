//! Hostile readers of the port: foreign pages, other hosts, forged tokens, oversized selectors, injected headers.

use std::fmt::Write as _;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::api::kubernetes::tests::Bench;

/// A port without authentication on loopback, as by default.
async fn open(bench: &Bench) -> Port {
    let protection = Protection { hosts: Some(vec!["hub.example.com".to_owned()]), ..Protection::default() };
    Port::open_with(protection, Some(bench.api())).await
}

/// Returns a request with a body.
fn post(path: &str, host: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers.iter().flat_map(|header| [*header, "\r\n"]).collect();
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

fn get(path: &str, host: &str, headers: &[&str]) -> String {
    let headers: String = headers.iter().flat_map(|header| [*header, "\r\n"]).collect();
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n")
}

fn code_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no answer: {answer:.300}"))
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        let _ = write!(all, "%{byte:02X}");
        all
    })
}

const QUERY: &str = "{\"resource\":\"pods\",\"q\":\"count\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_page_sends_no_body_and_reads_no_answer_of_an_open_port() {
    let bench = Bench::with_pods();
    let port = open(&bench).await;
    let host = "127.0.0.1:7080";
    let review = "/clusters/a/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for origin in ["https://evil.example", "null", "http://127.0.0.1:3000", "http://localhost:7080", "http://127.0.0.1"]
    {
        let origin = format!("Origin: {origin}");
        for (path, media) in [
            ("/v1/query", "text/plain"),
            ("/v1/query", "application/x-www-form-urlencoded"),
            ("/v1/query", "multipart/form-data; boundary=x"),
            ("/v1/query", "application/json"),
            (review, "text/plain"),
            ("/v1/reload", "text/plain"),
            ("/v1/sinks/a/dead-letters/purge", "text/plain"),
        ] {
            let answer = port.exchange(&post(path, host, &[&origin, &format!("Content-Type: {media}")], QUERY)).await;
            assert_eq!(code_of(&answer), 403, "{origin} {path} {media}: {answer}");
            assert!(answer.contains("a web page may not send this request without a token"), "{answer}");
        }
    }
    let preflight = ["Origin: https://evil.example", "Access-Control-Request-Method: POST"];
    for path in ["/v1/query", "/v1/events?resource=pods", "/clusters/a/api/v1/pods", "/v1/status"] {
        let request = get(path, host, &preflight).replacen("GET", "OPTIONS", 1);
        let answer = port.exchange(&request).await;
        assert_eq!(code_of(&answer), 403, "{path}: {answer}");
    }
    // A `GET` needs no preflight. The page cannot read the answer, since no CORS header allows it.
    for path in ["/v1/query?resource=pods", "/v1/events?resource=pods&timeout=1ms", "/clusters/a/api/v1/pods"] {
        for headers in [&preflight[..1], &["Origin: null"]] {
            let answer = port.exchange(&get(path, host, headers)).await;
            assert_eq!(code_of(&answer), 200, "{path}");
            assert!(!answer.to_ascii_lowercase().contains("access-control-"), "{path}: {answer:.500}");
        }
    }
    // A page of the hub's own origin, as behind a proxy, and a program, which sends no `Origin`, are allowed.
    for headers in [&["Origin: http://127.0.0.1:7080"][..], &[]] {
        let answer = port.exchange(&post("/v1/query", host, headers, QUERY)).await;
        assert!(code_of(&answer) == 200 && answer.contains("\"count\":4"), "{answer}");
    }
    let answer = port.exchange(&post("/v1/reload", host, &["Origin: http://127.0.0.1:7080"], "")).await;
    assert_eq!(code_of(&answer), 403, "a change: {answer}");
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebound_host_reads_nothing_by_any_way() {
    let bench = Bench::with_pods();
    let port = open(&bench).await;
    let paths = [
        "/v1/query?resource=pods",
        "/v1/events?resource=pods&timeout=1ms",
        "/v1/objects/a/pods/shop/x",
        "/v1/status",
        "/v1/openapi.json",
        "/v1/sinks/a/dead-letters",
        "/clusters/*/api/v1/pods",
        "/clusters/a/api/v1/pods?watch=1&timeoutSeconds=1",
        "/unique/*/api/v1/pods",
        "/metrics",
    ];
    for path in paths {
        for host in ["evil.example", "127.0.0.1.evil.example:7080"] {
            let answer = port.exchange(&get(path, host, &[])).await;
            assert!(code_of(&answer) == 421 && !answer.contains("shop"), "{path} {host}: {answer}");
            assert!(answer.contains("add the name to hub.allowed_hosts"), "{answer}");
        }
    }
    let answer = port.exchange(&post("/v1/query", "evil.example", &["Origin: http://evil.example"], QUERY)).await;
    assert_eq!(code_of(&answer), 421, "the same origin by its own name: {answer}");
    for host in ["hub.example.com", "localhost:7080", "[::1]:7080"] {
        assert_eq!(code_of(&port.exchange(&get(paths[0], host, &[])).await), 200, "{host}");
    }
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_characters_reach_no_header_of_an_answer() {
    let bench = Bench::with_pods();
    let port = open(&bench).await;
    let inject = "x%0d%0aSet-Cookie:%20a=b%0d%0a%1b%5b2J";
    for path in [
        format!("/clusters/{inject}/api/v1/pods"),
        format!("/clusters/tier={inject}/api/v1/pods"),
        format!("/clusters/a/api/v1/namespaces/{inject}/pods"),
        format!("/clusters/a/api/v1/namespaces/shop/pods/{inject}"),
        format!("/clusters/a/apis/{inject}/v1/pods"),
        format!("/clusters/a/api/v1/pods?labelSelector={inject}"),
        format!("/clusters/a/api/v1/pods?fieldSelector={inject}"),
        format!("/clusters/a/api/v1/pods?continue={inject}"),
        format!("/clusters/a/api/v1/pods?resourceVersion={inject}"),
        format!("/unique/*/api/v1/namespaces/shop/pods/{inject}"),
        format!("/v1/query?resource={inject}"),
        format!("/v1/query?resource=pods&q={inject}"),
        format!("/v1/query?resource=pods&continue={inject}"),
        format!("/v1/query?resource=pods&clusters={inject}"),
        format!("/v1/query?{inject}=1"),
        format!("/v1/events?resource={inject}"),
        format!("/v1/events?resource=pods&filter={inject}"),
        format!("/v1/objects/{inject}/pods/shop/x"),
        format!("/v1/objects/a/pods/shop/{inject}"),
        format!("/v1/sinks/{inject}/dead-letters"),
        format!("/{inject}"),
    ] {
        let answer = port.exchange(&get(&path, "localhost", &[])).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        // A namespace that does not exist has no objects, as for kube-apiserver.
        let is_empty = path.contains("/namespaces/x%0d") && body.contains("\"items\":[]");
        assert!(is_empty || (400..500).contains(&code_of(&answer)), "{path}: {answer}");
        assert!(!head.to_ascii_lowercase().contains("set-cookie"), "{path}: {head}");
        assert!(!body.contains('\u{1b}') && !body.trim_end().contains('\r'), "{path}: {body:?}");
        assert!(body.len() < 2_000, "{path}: {} bytes", body.len());
    }
    for header in [
        "Authorization: Bearer a\u{1}b",
        "Accept: application/json\u{0}",
        "User-Agent: a\rb",
        "Last-Event-ID: a\u{0}b",
        "Accept: application/json\r\n ;as=Table",
        "X Y: folded",
    ] {
        let answer = port.exchange(&get("/v1/events?resource=pods&timeout=1ms", "localhost", &[header])).await;
        assert_eq!(code_of(&answer), 400, "{header:?}: {answer}");
    }
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_selectors_and_queries_get_short_answers() {
    let bench = Bench::with_pods();
    let port = open(&bench).await;
    let long = "x".repeat(16 << 10);
    let many = (0..2_000).map(|at| format!("l{at}=v")).collect::<Vec<_>>().join(",");
    let values = format!("a%20in%20({}x)", "x,".repeat(7_000));
    for (path, code) in [
        (format!("/clusters/*/api/v1/pods?labelSelector={long}"), 400),
        (format!("/clusters/*/api/v1/pods?labelSelector={}x", "!".repeat(16 << 10)), 400),
        (format!("/clusters/*/api/v1/pods?labelSelector={many}"), 200),
        (format!("/clusters/*/api/v1/pods?labelSelector={values}"), 200),
        (format!("/clusters/*/api/v1/pods?fieldSelector={long}"), 400),
        (format!("/clusters/*/api/v1/pods?fieldSelector=metadata.name%3D{long}"), 200),
        (format!("/clusters/*/api/v1/pods?continue={long}&limit=1"), 400),
        (format!("/clusters/{long}/api/v1/pods"), 400),
        (format!("/clusters/*/api/v1/namespaces/{long}/pods"), 400),
        (format!("/clusters/*/apis/{long:.8000}/v1/{long:.8000}"), 404),
        (format!("/v1/query?resource=pods&clusters={long}"), 400),
        (format!("/v1/query?resource=pods&clusters={values}"), 200),
        (format!("/v1/query?resource=pods&continue={long}"), 400),
        (format!("/v1/query?resource=pods&q={}", "not%20".repeat(4_000)), 400),
        (format!("/v1/query?resource=pods&q={}1", "spec.nodeName%20%3D%20n1%20or%20".repeat(700)), 400),
        (format!("/v1/events?resource=pods&timeout=1ms&labels={long}"), 400),
        (format!("/v1/events?timeout=1ms&resource={}pods", "pods,".repeat(3_000)), 400),
        (format!("/v1/events?resource=pods&timeout=1ms&namespace={}s", "s,".repeat(3_000)), 400),
        (format!("/v1/events?resource=pods&timeout=1ms&filter={}", encoded(&"[".repeat(5_000))), 400),
        (format!("/v1/sinks/{long}/dead-letters"), 404),
    ] {
        let answer = port.exchange(&get(&path, "localhost", &[])).await;
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(code_of(&answer), code, "{path:.120}: {answer:.400}");
        assert!(code == 200 || answer.len() < 2 << 10, "{path:.120}: {} bytes: {body:.3000}", answer.len());
    }
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_paths_and_values_get_short_errors() {
    let bench = Bench::with_pods();
    let port = open(&bench).await;
    let long = "x".repeat(16 << 10);
    let word = "x".repeat(15 << 10);
    let mut errors = 0;
    for path in [
        format!("/v1/sinks/s/dead-letters/{word}"),
        format!("/v1/sinks/s/dead-letters?from={long}"),
        format!("/v1/objects/{word}/pods/shop/x"),
        format!("/v1/objects/a/{word}/shop/x"),
        format!("/v1/objects/a/pods/{word}/x"),
        format!("/v1/objects/a/pods/shop/{word}"),
        format!("/v1/{word}"),
        format!("/clusters/a/{word}"),
        format!("/clusters/*/api/v1/namespaces/shop/pods/{word}"),
        format!("/clusters/*/api/v1/namespaces/shop/pods/%25{word}"),
        format!("/clusters/a/api/v1/namespaces/shop/pods/x/{word}"),
        format!("/clusters/a={word}/api/v1/pods"),
        format!("/clusters/*/api/v1/pods?labelSelector=a%3D{long}"),
        format!("/clusters/*/api/v1/pods?labelSelector=a%20in%20({long})"),
        format!("/clusters/*/api/v1/pods?labelSelector=a%20%3E%20{long}"),
        format!("/clusters/*/api/v1/pods?labelSelector=a%20{long}"),
        format!("/clusters/*/api/v1/pods?fieldSelector={long}%3D1"),
        format!("/clusters/*/api/v1/pods?fieldSelector=a%3D1,{long}"),
        format!("/clusters/*/api/v1/pods?resourceVersion={long}"),
        format!("/clusters/*/api/v1/pods?resourceVersion=1&resourceVersionMatch={long}"),
        format!("/clusters/*/api/v1/pods?limit={long}"),
        format!("/clusters/*/api/v1/pods?timeoutSeconds={}", "1".repeat(16 << 10)),
        format!("/clusters/*/api/v1/pods?watch=1&resourceVersion={long}"),
        format!("/v1/query?{long}=1"),
        format!("/v1/query?resource={long}"),
        format!("/v1/query?resource=pods&q={long}"),
        format!("/v1/query?resource=pods&q={long}%20%3D%201%20{long:.9000}"),
        format!("/v1/query?resource=pods&q=labels({long})"),
        format!("/v1/query?resource=pods&q=name%20%3D%20%27a%27%20order%20by%20{long}!"),
        format!("/v1/query?resource=pods&limit={long}"),
        format!("/v1/query?resource=pods&timeout={long}"),
        format!("/v1/query?resource=pods&clusters=a%20in%20{long}"),
        format!("/v1/events?resource={long}"),
        format!("/v1/events?resource=pods&events={long}"),
        format!("/v1/events?resource=pods&timeout=1ms&filter={long:.4000}"),
        format!("/v1/events?resource=pods&timeout=1ms&filter=object.{long:.4000}%20%2B%20%2B"),
    ] {
        let answer = port.exchange(&get(&path, "localhost", &[])).await;
        let code = code_of(&answer);
        assert!(code == 200 || (400..500).contains(&code), "{path:.120}: {answer:.400}");
        assert!(code == 200 || answer.len() < 2 << 10, "{path:.120}: {} bytes: {answer:.3000}", answer.len());
        errors += usize::from(code != 200);
    }
    assert!(errors > 30, "{errors}");
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_bodies_and_headers_get_short_errors() {
    let bench = Bench::with_pods();
    let port = open(&bench).await;
    let long = "x".repeat(16 << 10);
    let review = "/clusters/a/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let json = "Content-Type: application/json";
    for (path, header, body) in [
        ("/v1/query", json, format!("{{\"resource\":\"{long}\"}}")),
        ("/v1/query", json, format!("{{\"{long}\":1}}")),
        ("/v1/query", json, format!("{{\"resource\":\"pods\",\"timeout\":\"{long}\"}}")),
        ("/v1/query", json, format!("{{\"resource\":\"pods\",\"explain\":\"{long}\"}}")),
        ("/v1/query", json, long.clone()),
        (review, json, format!("{{\"spec\":\"{long}\"}}")),
        (review, json, format!("{{\"spec\":{{\"resourceAttributes\":\"{long}\"}}}}")),
        (review, &format!("Content-Type: {long}"), "{}".to_owned()),
        ("/v1/sinks/s/dead-letters/purge", json, format!("{{\"{long}\":1}}")),
    ] {
        let answer = port.exchange(&post(path, "localhost", &[header], &body)).await;
        assert!((400..500).contains(&code_of(&answer)), "{path} {body:.60}: {answer:.400}");
        assert!(answer.len() < 2 << 10, "{path} {body:.60}: {} bytes: {answer:.3000}", answer.len());
    }
    for path in ["/v1/query?resource=pods", "/v1/events?resource=pods&timeout=1ms", "/v1/status"] {
        let answer = port.exchange(&get(path, "localhost", &[&format!("Accept: {long}")])).await;
        assert!(code_of(&answer) == 200 || answer.len() < 2 << 10, "{path}: {} bytes", answer.len());
    }
    let counts = bench.api().counts();
    assert_eq!(counts.in_progress, 0, "nothing is held");
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_and_foreign_tokens_of_pages_are_refused() {
    let bench = Bench::with_pods();
    let port = open(&bench).await;
    let ask = async |path: &str| {
        let answer = port.exchange(&get(path, "localhost", &[])).await;
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        (code_of(&answer), serde_json::from_str::<serde_json::Value>(&body).unwrap())
    };
    let (_, page) = ask("/clusters/*/api/v1/pods?limit=1").await;
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(ask(&format!("/clusters/*/api/v1/pods?limit=1&continue={token}")).await.0, 200);
    let damaged: String = token.chars().rev().collect();
    for path in [
        format!("/clusters/a/api/v1/pods?limit=1&continue={token}"),
        format!("/unique/*/api/v1/pods?limit=1&continue={token}"),
        format!("/clusters/*/api/v1/namespaces/shop/pods?limit=1&continue={token}"),
        format!("/clusters/*/api/v1/pods?limit=1&labelSelector=app%3Dweb&continue={token}"),
        format!("/clusters/*/api/v1/pods?limit=1&continue={damaged}"),
        format!("/clusters/*/api/v1/pods?limit=1&continue={}", &token[..token.len() / 2]),
        "/clusters/*/api/v1/pods?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MX0".to_owned(),
        "/clusters/*/api/v1/pods?limit=1&continue=none".to_owned(),
    ] {
        let (code, answer) = ask(&path).await;
        assert_eq!((code, &answer["reason"]), (400, &serde_json::json!("BadRequest")), "{path}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("continue"), "{answer}");
        assert!(answer.to_string().len() < 1_000, "{answer}");
    }
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_from_an_unknown_position_says_so_and_holds_nothing() {
    let bench = Bench::with_pods();
    let port = open(&bench).await;
    for position in ["0", "AAAA", "%0d%0aid:%20b", &"A".repeat(16 << 10), "\u{e9}\u{e9}", "18446744073709551615"] {
        let header = format!("Last-Event-ID: {position}");
        let answer = port.exchange(&get("/v1/events?resource=pods&timeout=1ms", "localhost", &[&header])).await;
        assert_eq!(code_of(&answer), 200, "{position:.40}");
        assert!(answer.contains("event: expired") && answer.contains("unknown-position"), "{answer:.600}");
        assert!(!answer.contains("\nid: b") && answer.len() < 4_000, "{answer:.600}");
    }
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_name_a_user_give_no_rights() {
    let bench = Bench::with_pods();
    let protection = Protection { read_token: Some(token(READ_TOKEN)), ..Protection::default() };
    let port = Port::open_with(protection, Some(bench.api())).await;
    for headers in [
        &["X-Remote-User: admin", "X-Remote-Group: system:masters"][..],
        &["X-Forwarded-User: admin", "X-Forwarded-For: 127.0.0.1"],
        &["Cookie: token=look-0123456789abcdef"],
        &["Authorization: Basic bG9vay0wMTIzNDU2Nzg5YWJjZGVm"],
        &["Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.bG9vay0wMTIzNDU2Nzg5YWJjZGVm"],
    ] {
        for path in ["/clusters/a/api/v1/pods", "/v1/query?resource=pods&access_token=look-0123456789abcdef"] {
            let answer = port.exchange(&get(path, "localhost", headers)).await;
            assert!(code_of(&answer) == 401 && !answer.contains("shop"), "{headers:?} {path}: {answer}");
        }
    }
    port.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impersonation_is_refused_on_every_path() {
    let bench = Bench::with_pods();
    let protected = Protection { token: Some(token(TOKEN)), ..Protection::default() };
    let authorization = format!("Authorization: Bearer {TOKEN}");
    for (protection, credential) in [(protected, &authorization[..]), (Protection::default(), "X-None: none")] {
        let port = Port::open_with(protection, Some(bench.api())).await;
        for header in [
            "Impersonate-User: ann",
            "impersonate-group: system:masters",
            "Impersonate-Uid: 1",
            "Impersonate-Extra-scopes.example.com: view",
            "Impersonate-User:",
        ] {
            for path in [
                "/clusters/a/api/v1/pods",
                "/clusters/*/api/v1/pods?watch=1",
                "/unique/*/apis",
                "/v1/query?resource=pods",
                "/v1/events?resource=pods&timeout=1ms",
                "/v1/status",
                "/metrics",
                "/livez",
            ] {
                let answer = port.exchange(&get(path, "localhost", &[credential, header])).await;
                let body = answer.split_once("\r\n\r\n").unwrap().1;
                let body: serde_json::Value = serde_json::from_str(body).unwrap();
                assert_eq!(code_of(&answer), 403, "{header} {path}: {answer}");
                let is_kubernetes = !path.starts_with("/v1/") && path.matches('/').count() > 1;
                let text = if is_kubernetes { &body["message"] } else { &body["error"] };
                assert!(text.as_str().unwrap().contains("leave out the headers Impersonate-*"), "{path}: {body}");
                assert!(!is_kubernetes || (&body["kind"], &body["reason"]) == (&"Status".into(), &"Forbidden".into()));
            }
        }
        port.end().await;
    }
}

/// Captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn denied_requests_are_counted_and_logged_once_a_minute() {
    let log = Log::default();
    let layer = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).without_time();
    let _capturing = tracing::subscriber::set_default(layer.finish());
    let hosts = Some(Vec::new());
    let guard = Guard::new(Protection { hosts, ..Protection::default() }).unwrap();
    let access = guard.access();
    for (header, value) in [("host", "evil.example\u{e9}"), ("origin", "https://evil.example")] {
        for _ in 0..1_000 {
            let request = axum::http::Request::post("/v1/query").header(header, value).body(()).unwrap();
            let reader = access.identify(request.headers(), None).await;
            assert!(access.authorize(&request, reader).is_err());
        }
    }
    assert_eq!(access.denied(), [("web_page", 1_000), ("host", 1_000)]);
    guard.report_denials();
    guard.report_denials();
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("web_page 1000") && text.contains("misdirected=1000"), "{text}");
    assert!(!text.contains("evil"), "{text}");
}
