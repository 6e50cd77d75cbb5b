//! Reads of objects below `/v1` by hostile and slow clients, over real connections.

use super::limits::SHORT;
use super::*;
use crate::api::kubernetes::tests::{Bench, pods};
use informer_hub_types::{Labels, ObjectKey, ResourceVersion, StoredObject, StoredObjectParts, Uid};

/// Objects whose bodies are more than the buffers of both ends of a connection hold.
fn large() -> Bench {
    let mut bench = Bench::with_pods();
    let text = "x".repeat(100_000);
    let objects = (0..400).map(|at| {
        let name = format!("large-{at:03}");
        let json = serde_json::json!({ "metadata": { "name": name, "namespace": "shop" }, "spec": { "text": text } });
        StoredObject::new(StoredObjectParts {
            key: ObjectKey::new("shop", &name),
            uid: Uid::new(&name),
            resource_version: ResourceVersion::new("20"),
            labels: Labels::new(Vec::new()),
            index_values: Vec::new(),
            json: json.to_string().into_bytes(),
        })
    });
    bench.list(&pods(), "a", objects.collect(), 30);
    bench
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_reads_a_byte_at_a_time_is_disconnected_and_holds_nothing() {
    let bench = large();
    for path in ["/v1/query?resource=pods", "/v1/events?resource=pods&initial=replay"] {
        let protection = Protection { limits: Limits { taking: SHORT, ..Limits::default() }, ..Protection::default() };
        let port = Port::open_with(protection, Some(bench.api())).await;
        let mut stream = port.connect().await;
        stream.write_all(head("GET", path, &[]).as_bytes()).await.unwrap();
        let dripping = async {
            let mut tick = tokio::time::interval(SHORT / 10);
            // Bytes that are left in buffers can be read even after the connection is closed, so the number of reads is
            // limited.
            for _ in 0..100 {
                tick.tick().await;
                if !matches!(stream.read(&mut [0]).await, Ok(1)) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, dripping).await.expect("bytes");
        let idle = async {
            loop {
                let counts = bench.api().counts();
                if counts.in_progress == 0 && counts.watchers.iter().all(|(_, open)| *open == 0) {
                    return;
                }
                tokio::time::sleep(SHORT / 10).await;
            }
        };
        tokio::time::timeout(PATIENCE, idle)
            .await
            .unwrap_or_else(|_| panic!("{path} holds {:?}", bench.api().counts()));
        port.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_requests_get_short_answers() {
    let bench = Bench::with_pods();
    let port = Port::open_with(Protection::default(), Some(bench.api())).await;
    let deep = "(".repeat(60_000);
    let long = "a in (".to_owned() + &"x,".repeat(7_000) + "x)";
    let posted = |q: &str| {
        let body = serde_json::json!({ "resource": "pods", "q": q }).to_string();
        let length = format!("Content-Length: {}", body.len());
        head("POST", "/v1/query", &["Connection: close", &length]) + &body
    };
    let get = |path: &str, headers: &[&str]| head("GET", path, &[&["Connection: close"], headers].concat());
    let encoded = long.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
    for (request, code) in [
        (posted(&deep), 400),
        (posted(&format!("name = x{}", " or name = x".repeat(5_000))), 400),
        (posted(&"not ".repeat(15_000)), 400),
        (posted("name = \"\u{1b}[2J\r\nSet-Cookie: a=b\""), 200),
        (posted("\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), 400),
        (get(&format!("/v1/query?resource=pods&clusters={encoded}"), &[]), 431),
        (get(&format!("/v1/events?resource=pods&timeout=1ms&labels={}", "x,".repeat(3_000) + "x"), &[]), 200),
        (get("/v1/events?resource=pods&timeout=1ms", &["Last-Event-ID: \u{7f}"]), 400),
        (get("/v1/events?resource=pods&timeout=1ms", &["Last-Event-ID: a\rid: b"]), 400),
        (get("/v1/events?resource=pods&timeout=1ms", &["Last-Event-ID: %0d%0aid: b"]), 200),
        (get("/v1/events?resource=%ff%fe", &[]), 404),
        (get("/v1/objects/a/pods/%2e%2e/%2e%2e", &[]), 404),
        (get("/v1/objects/a/pods/shop/x/y", &[]), 404),
        (get("/api/v1/pods", &[]), 404),
        (get("/version", &[]), 404),
        (get(&format!("/{}", "x".repeat(20_000)), &[]), 404),
        (get("/", &[]), 200),
        (head("PUT", "/v1/query?resource=pods", &["Connection: close"]), 405),
        (head("HEAD", "/v1/events?resource=pods", &["Connection: close"]), 200),
        (head("HEAD", "/v1/query?resource=pods", &["Connection: close"]), 200),
        (head("OPTIONS", "/v1/events?resource=pods", &["Connection: close", "Origin: https://example.com"]), 403),
    ] {
        let answer = port.exchange(&request).await;
        let (headers, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        assert!(headers.starts_with(&format!("HTTP/1.1 {code} ")), "{request:.100}: {answer:.300}");
        assert!(!headers.contains("Set-Cookie") && !body.contains('\u{1b}'), "{answer:.300}");
        assert!(code == 200 || body.len() < 2_000, "{request:.100}: {} bytes", body.len());
    }
    port.end().await;
}
