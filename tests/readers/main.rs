//! Tests of the example readers in `examples/readers` and clients in `examples/clients`, against a running hub with two
//! clusters that have objects of the same names.
//!
//! The reader in Rust is compiled into this test. Those in Go and Python are ignored unless `make test-real` runs
//! them, since they need those languages.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod clients;
mod hub;
mod lines;
#[path = "../../examples/readers/rust/main.rs"]
#[allow(dead_code, reason = "an example is a program: main is not used")]
mod rust;
#[path = "../run/wait.rs"]
mod wait;

use hub::Hub;
use lines::Lines;

/// Verifies the behaviour that every example reader must have.
async fn verify_reader(hub: Hub, lines: Lines) {
    let mut expected = hub.pods();
    assert!(expected.len() > 10);
    lines.has_printed(expected.len(), "all pods of all clusters").await;
    let mut found = lines.get();
    found.sort();
    expected.sort();
    assert_eq!(
        found,
        expected.iter().map(|pod| format!("= {pod}")).collect::<Vec<_>>(),
        "each pod of each cluster once"
    );
    let changed = hub.change();
    lines.has_printed(expected.len() + 1, "a change").await;
    assert_eq!(lines.get().last(), Some(&format!("~ {changed}")));
    let deleted = hub.delete();
    lines.has_printed(expected.len() + 2, "a deletion").await;
    assert_eq!(lines.get().last(), Some(&format!("- {deleted}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_in_rust_prints_each_pod_and_change_of_the_fleet() {
    let hub = Hub::start().await;
    let lines = Lines::rust(hub.kubeconfig()).await;
    verify_reader(hub, lines).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go"]
async fn reader_in_go_prints_each_pod_and_change_of_the_fleet() {
    let hub = Hub::start().await;
    let lines = Lines::go(hub.kubeconfig());
    verify_reader(hub, lines).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Python"]
async fn reader_in_python_prints_each_pod_and_change_of_the_fleet() {
    let hub = Hub::start().await;
    let Some(lines) = Lines::python(hub.kubeconfig()) else { return };
    verify_reader(hub, lines).await;
}
