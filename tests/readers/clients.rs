//! Tests of the clients of the query API in `examples/clients`: shell with curl, Python and JavaScript.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::hub::Hub;
use crate::lines::Lines;
use crate::verify_reader;

fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/clients").join(name)
}

/// Returns whether a program is installed.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: {program} is not installed");
    }
    is_there
}

/// Starts a client.
fn start(program: &str, file: &str, hub: &Hub) -> Lines {
    let mut command = Command::new(program);
    command.arg(client(file)).env("HUB", hub.url().unwrap()).env_remove("TOKEN");
    Lines::of(command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_in_python_prints_each_pod_and_change_of_the_fleet() {
    if is_installed("python3") {
        let hub = Hub::start().await;
        let lines = start("python3", "follow.py", &hub);
        verify_reader(hub, lines).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_in_javascript_prints_each_pod_and_change_of_the_fleet() {
    if is_installed("node") {
        let hub = Hub::start().await;
        let lines = start("node", "follow.mjs", &hub);
        verify_reader(hub, lines).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_with_curl_prints_rows_and_then_cloud_events() {
    if !is_installed("curl") {
        return;
    }
    let hub = Hub::start().await;
    let lines = start("sh", "follow.sh", &hub);
    let pods = hub.pods();
    // The title of the rows, and the first heartbeat of the stream.
    lines.has_printed(pods.len() + 2, "rows and a heartbeat").await;
    let printed = lines.get();
    assert_eq!(printed[0].trim_end(), "cluster,metadata.namespace,metadata.name");
    let row = |line: &String| {
        let (cluster, key) = line.trim_end().split_once(',').unwrap();
        format!("{cluster} {}", key.replace(',', "/"))
    };
    let mut rows: Vec<_> = printed[1..=pods.len()].iter().map(row).collect();
    rows.sort();
    let mut expected = pods.clone();
    expected.sort();
    assert_eq!(rows, expected);
    let changed = hub.change();
    let line = lines.line_with("io.informer-hub.resource.updated.v1").await;
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    let data = &event["data"];
    let text = |member: &str| data[member].as_str().unwrap().to_owned();
    assert_eq!(format!("{} {}/{}", text("cluster"), text("namespace"), text("name")), changed);
}
