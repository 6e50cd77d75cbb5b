//! Tests of the `demo` command: its output and exit code.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use kube::config::Kubeconfig;
use serde_json::Value;

#[test]
fn demo_ends_with_equal_copies_and_prints_json() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    demo.args(["demo", "--duration", "2s", "--pods", "30", "--seed", "7", "-o", "json"]);
    let output = demo.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{text}\n{problems}", output.status);

    let summary: Value = serde_json::from_str(&text).expect("exactly one JSON document");
    assert_eq!((&summary["ok"], &summary["seed"]), (&Value::from(true), &Value::from(7)));
    let clusters = summary["clusters"].as_array().unwrap();
    assert_eq!(clusters.len(), 3);
    for cluster in clusters {
        let truth = cluster["truth"].as_u64().unwrap();
        assert!(truth >= 15, "{cluster}");
        assert_eq!((&cluster["cache"], &cluster["receiver"]), (&truth.into(), &truth.into()));
        assert_eq!(cluster["differences"], 0);
    }
    let total = |name: &str| summary["totals"][name].as_u64().unwrap();
    assert!(total("operations") > 0 && total("batches") > 0, "{summary:#}");
    assert!(total("delivered") >= 3 * 30, "{summary:#}");
    assert!(total("delivered") >= total("batches"));
    assert_eq!((total("signatureFailures"), total("violations"), total("unreadable")), (0, 0, 0));
}

#[test]
fn demo_prints_an_introduction_within_80_columns() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    demo.args(["demo", "--duration", "2s", "--pods", "30", "--seed", "7"]);
    let output = demo.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{:?}\n{text}", output.status);
    let first = "A hub watches 3 simulated clusters and sends every change to a receiver.\n\
                 For 2s things fail on purpose, then all copies must be equal. Ctrl-C stops.\n\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(text.matches(" CLUSTER ").count(), 1, "one table, at the end:\n{text}");
    assert!(text.contains("\nequal: hub and receiver hold exactly") && text.contains("\nTry next:\n"), "{text}");
}

/// A demo that serves. Dropping it kills it.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a GET request and returns the whole answer.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn demo_with_a_port_serves_clients_until_a_signal() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_informer-hub"));
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    command.args(["demo", "--duration", "1s", "--pods", "20", "--serve", "--listen", &address.to_string()]);
    let mut demo = Serving(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let export = lines.by_ref().find_map(|line| line.trim().strip_prefix("export KUBECONFIG=").map(str::to_owned));
    let file = export.expect("the demo names its kubeconfig");
    let kubeconfig = Kubeconfig::read_from(&file).unwrap();
    assert_eq!(kubeconfig.current_context.as_deref(), Some("fleet"));
    let fleet = kubeconfig.clusters[0].cluster.as_ref().unwrap();
    assert_eq!(fleet.server, Some(format!("http://{address}/clusters/*")));
    assert!(get(address, "/readyz").ends_with("ready\n"));
    assert!(get(address, "/clusters/*/version").contains("v1.36.3-sim"));
    let list = get(address, "/clusters/*/api/v1/pods?limit=1");
    assert!(list.starts_with("HTTP/1.1 200 ") && list.contains("\"remainingItemCount\""), "{list}");
    let sent = Command::new("kill").args(["-TERM", &demo.0.id().to_string()]).status().unwrap();
    assert!(sent.success());
    // The output ends when the demo ends.
    assert_eq!(lines.filter(|line| line.contains("error")).count(), 0);
    assert!(demo.0.wait().unwrap().success());
    assert!(!std::path::Path::new(&file).exists(), "the kubeconfig is deleted");
}
