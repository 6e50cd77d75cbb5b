//! Tests of probes and status: their fields and values.

use informer_hub_sim::{Churn, World};
use serde_json::Value;

use crate::process::{LEASE, Launch, cluster, sim};
use crate::receiver::{Mode, Receiver, SECRET};
use crate::wait::until;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Asserts that a cluster shows its connections, and its informer the encoding.
fn check_encoding(seen: &Value, informer: &Value) {
    let used = &informer["encoding"]["used"];
    assert!(used == "json" || used == "protobuf", "{informer:#}");
    let traffic = &seen["traffic"];
    assert_eq!(traffic["protocol"], "HTTP/1.1", "{traffic:#}");
    assert!(traffic["opened"]["http1"].as_u64() >= Some(1) && traffic["requests"].as_u64() >= Some(1), "{traffic:#}");
}

/// Asserts that an informer has every member.
fn check_keys(informer: &Value) {
    for key in [
        "resource",
        "scope",
        "state",
        "synced",
        "freshness",
        "objects",
        "bytes",
        "resourceVersion",
        "lastEventAgeSeconds",
        "events",
        "lists",
        "watches",
        "encoding",
        "skipped",
        "restarts",
        "queued",
        "listeners",
    ] {
        assert!(keys(informer).contains(&key), "no {key}: {informer:#}");
    }
}

/// Asserts that the only replica holds the Lease.
fn check_role(ha: &Value) {
    assert_eq!((&ha["role"], &ha["lease"]), (&"leader".into(), &"c0/hub/informer-hub".into()), "{ha:#}");
    assert!(ha["holder"].is_string() && ha["holder"] == ha["identity"], "{ha:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_reports_correct_values() {
    let sim = sim(1, 40);
    let receiver = Receiver::start(Mode::Healthy);
    let toml =
        cluster("c0", &sim.url()) + "labels = { env = \"test\" }\n[resources.pods]\n" + &receiver.sink("hook") + LEASE;
    let hub = Launch::new(&toml).env("HOOK_SECRET", SECRET).start();
    hub.ready().await;
    assert_eq!(hub.get("/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(hub.get("/livez").await, (200, "ok\n".to_owned()));
    let mut churn = Churn::new(1);
    for _ in 0..100 {
        sim.with_world(|world| churn.step(world));
    }
    let pods = World::pods();
    receiver.converged("c0", &sim, &pods).await;
    let truth = sim.truth(&pods);
    let status = until("the status has settled", async || {
        let status = hub.status().await;
        let settled = status["sinks"][0]["pendingEvents"] == 0;
        (settled && status["clusters"][0]["informers"][0]["objects"] == truth.len()).then_some(status)
    })
    .await;
    let seen = &status["clusters"][0];
    assert_eq!((&seen["name"], &seen["state"]), (&"c0".into(), &"connected".into()));
    assert_eq!(seen["labels"], serde_json::json!({ "env": "test" }));
    let informer = &seen["informers"][0];
    check_keys(informer);
    assert_eq!((&informer["resource"], &informer["state"]), (&"pods".into(), &"watching".into()), "{informer:#}");
    // A small pod has about 600 bytes; projection removes a part.
    let bytes = informer["bytes"].as_u64().unwrap() / truth.len() as u64;
    assert!((200..2000).contains(&bytes), "{bytes} bytes each");
    let newest = truth.values().filter_map(|(_, version)| version.to_string().parse::<u64>().ok()).max();
    let read: u64 = informer["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(Some(read) >= newest && read <= sim.with_world(|world| world.version()), "{read}, {newest:?}");
    assert!(informer["lastEventAgeSeconds"].as_f64().is_some_and(|age| (0.0..60.0).contains(&age)), "{informer:#}");
    check_encoding(seen, informer);
    assert_eq!((&informer["restarts"], &informer["skipped"]), (&0.into(), &0.into()), "{informer:#}");
    assert!(informer["lastError"].is_null(), "{informer:#}");
    let sink = &status["sinks"][0];
    for key in ["name", "received", "delivered", "pendingEvents", "retries", "deadLettered", "lastError"] {
        assert!(keys(sink).contains(&key), "no {key}: {sink:#}");
    }
    assert_eq!(sink["delivered"].as_u64(), Some(receiver.received(|received| received.events)), "{sink:#}");
    assert_eq!((&sink["retries"], &sink["lastError"]), (&0.into(), &Value::Null), "{sink:#}");
    assert_eq!(informer["listeners"][0]["name"], "hook");
    check_role(&status["ha"]);
    let page = include_str!("../../docs/http.md");
    for part in [&status, seen, informer, &informer["listeners"][0], sink, &status["ha"]] {
        for key in keys(part) {
            let documented =
                ["\"", "`", "[].", "`informers[]."].iter().any(|before| page.contains(&format!("{before}{key}")));
            assert!(documented, "docs/http.md does not mention {key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_resource_is_named_by_readyz_and_does_not_block_it() {
    let sim = sim(2, 10);
    sim.forbid(&World::nodes(), true);
    let hub = Launch::new(&(cluster("c0", &sim.url()) + "[resources.pods]\n[resources.nodes]\n")).start();
    hub.ready().await;
    let body = until("forbidden", async || {
        let (code, body) = hub.get("/readyz").await;
        assert_eq!(code, 200, "{body}");
        body.contains("forbidden").then_some(body)
    })
    .await;
    assert!(body.contains("c0/nodes") && !body.contains("c0/pods"), "{body}");
}
