//! Watches: CPU of one event to many watchers, and memory of idle watchers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::servers::Server;
use super::{Both, Row};
use crate::common::figures::Rounds;
use crate::common::hub::wait_until;
use crate::common::{number, process};

const WATCHERS: u64 = 100;
/// Watches of one connection: kube-apiserver accepts 100 streams.
const STREAMS: u64 = 100;
const JSON: &str = "application/json";

pub(super) async fn measure(servers: &Both, rows: &mut Vec<Row>) {
    let (mut by_apiserver, mut by_hub) = (Rounds::default(), Rounds::default());
    for round in 0..number("BENCH_ROUNDS", 3) {
        eprintln!("events to {WATCHERS} watchers, round {round} …");
        let (at_apiserver, at_hub) = (fan_out(servers, &servers.0).await, fan_out(servers, &servers.1).await);
        // The cost of the events without watchers is that of the run in which the other server is watched.
        let each = 1e6 / (number("BENCH_EVENTS", 2_000) * WATCHERS) as f64;
        by_apiserver.0.push((at_apiserver.0 - at_hub.0).max(0.0) * each);
        by_hub.0.push((at_hub.1 - at_apiserver.1).max(0.0) * each);
    }
    let what = "one event to 100 watchers: CPU of each";
    rows.push(Row::new(what, "µs", Some(by_apiserver), by_hub, "≤ ½"));
    let watches = number("BENCH_WATCHES", 10_000);
    eprintln!("{watches} idle watches …");
    let (by_apiserver, by_hub) = (idle(&servers.0, watches).await, idle(&servers.1, watches).await);
    rows.push(Row::new(
        format!("{watches} idle watches: memory of each"),
        "KiB",
        Some(by_apiserver),
        by_hub,
        "≤ 16 KiB",
    ));
}

/// Returns the CPU seconds of both servers while one of them sends events to all watchers.
async fn fan_out(servers: &Both, server: &Server) -> (f64, f64) {
    let events = number("BENCH_EVENTS", 2_000);
    let lines = Arc::<AtomicU64>::default();
    let mut watches = Vec::new();
    for _ in 0..WATCHERS {
        watches.push(watch(server, &server.client(false), Some(Arc::clone(&lines))).await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = (servers.0.cpu(), servers.1.cpu());
    change_pods(&servers.0, events).await;
    wait_until("all events at all watchers", || lines.load(Relaxed) >= events * WATCHERS).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after = (servers.0.cpu(), servers.1.cpu());
    watches.iter().for_each(JoinHandle::abort);
    (after.0 - before.0, after.1 - before.1)
}

/// Opens a watch from now on and counts its lines.
async fn watch(server: &Server, client: &reqwest::Client, lines: Option<Arc<AtomicU64>>) -> JoinHandle<()> {
    let list: Value = {
        let request = server.get(
            client,
            "/api/v1/pods?limit=1",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        );
        serde_json::from_slice(&request.send().await.unwrap().bytes().await.unwrap()).unwrap()
    };
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    open(server, client, &version, lines).await
}

async fn open(
    server: &Server,
    client: &reqwest::Client,
    version: &str,
    lines: Option<Arc<AtomicU64>>,
) -> JoinHandle<()> {
    let path = format!("/api/v1/pods?watch=1&timeoutSeconds=3600&resourceVersion={version}");
    let mut response = server.get(client, &path, JSON).send().await.unwrap();
    assert_eq!(response.status(), 200);
    tokio::spawn(async move {
        while let Ok(Some(chunk)) = response.chunk().await {
            let count = memchr::memchr_iter(b'\n', &chunk).count() as u64;
            if let Some(lines) = &lines {
                lines.fetch_add(count, Relaxed);
            }
        }
    })
}

/// Changes an annotation of pods, with at most four requests at a time.
async fn change_pods(apiserver: &Server, events: u64) {
    let client = apiserver.client(false);
    let path = format!("/api/v1/pods?limit={events}");
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = apiserver.get(&client, &path, accept).send().await.unwrap().bytes().await.unwrap();
    let list: Value = serde_json::from_slice(&list).unwrap();
    let pods = list["items"].as_array().unwrap();
    let stamp = informer_hub_types::clock::wall().to_string();
    let change = |i: u64| {
        let metadata = &pods[i as usize % pods.len()]["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap().to_owned();
        let path = format!("/api/v1/namespaces/{}/pods/{}", text("namespace"), text("name"));
        let body = json!({ "metadata": { "annotations": { "bench/change": format!("{stamp}-{i}") } } }).to_string();
        let request = apiserver.at(&client, reqwest::Method::PATCH, &path);
        let request = request.header("content-type", "application/merge-patch+json").body(body);
        async move { assert_eq!(request.send().await.unwrap().status(), 200) }
    };
    stream::iter(0..events).map(change).buffer_unordered(4).collect::<Vec<()>>().await;
}

/// Returns the memory of each idle watch in KiB. The watches share HTTP/2 connections.
async fn idle(server: &Server, watches: u64) -> Rounds {
    let first = server.client(true);
    let list = server.get(&first, "/api/v1/pods?limit=1", JSON).send().await.unwrap().bytes().await.unwrap();
    let list: Value = serde_json::from_slice(&list).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let clients: Vec<_> = (0..watches.div_ceil(STREAMS)).map(|_| server.client(true)).collect();
    // The first watch of each connection is not counted, because it includes the memory of the connection.
    let mut open_watches = Vec::new();
    for client in &clients {
        open_watches.push(open(server, client, version, None).await);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = process::rss_of(server.process);
    let opening = clients.iter().flat_map(|client| (1..STREAMS).map(move |_| open(server, client, version, None)));
    let more: Vec<_> = stream::iter(opening).buffer_unordered(16).collect().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let grown = process::rss_of(server.process).saturating_sub(before) as f64;
    let each = grown / more.len() as f64 / 1024.0;
    open_watches.iter().chain(&more).for_each(JoinHandle::abort);
    Rounds(vec![each])
}
