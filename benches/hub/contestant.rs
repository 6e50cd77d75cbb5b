//! One compared client in its own process. It reads commands from stdin, one a line, and answers with one JSON line
//! each.
//!
//! The Go program for client-go (tests/testbed/peers) has the same commands: `sync COUNT`, `flood VERSION`, `pace
//! VERSION`.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures::StreamExt;
use informer_hub_config::Encodings;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Config, ResourceExt};
use kube_runtime::watcher::Event;
use kube_runtime::{reflector, watcher};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::common::hub::{Notified, idle_hub, idle_hub_asking_for, quantile, watch_pods};
use crate::common::process;
use crate::{bare, real};

/// Runs a client until stdin ends. `url` may be the path of a kubeconfig.
pub(crate) async fn run(kind: &str, url: &str, ca_file: Option<&Path>) {
    let hub = match kind {
        "hub" => Some(idle_hub(&[url.to_owned()], ca_file).await),
        "hub-json" => Some(idle_hub_asking_for(Encodings::Json, &[url.to_owned()], ca_file).await),
        "kube-rs" | "bare" | "bare-stream" => None,
        other => panic!("unknown contestant {other}"),
    };
    // Let the client start, so that the cost of the start is not measured. All compared clients do this.
    tokio::time::sleep(Duration::from_secs(1)).await;
    say(&json!({ "phase": "idle" }));
    let mut notified = Notified::default();
    let mut listener = None;
    while let Some(line) = command().await {
        let (name, number) = line.split_once(' ').unwrap();
        let number = number.parse().unwrap();
        match name {
            "sync" => {
                let (rss, cpu, began) = (process::rss(), process::cpu(), Instant::now());
                if let Some(hub) = &hub {
                    let (address, by_hub) = watch_pods(hub, &[]).await;
                    (listener, notified) = (Some(address), by_hub);
                } else {
                    let client = Client::try_from(config(url, ca_file).await).unwrap();
                    match kind {
                        "bare" => drop(tokio::spawn(bare::read(client, number, notified.clone()))),
                        "bare-stream" => drop(tokio::spawn(bare::stream(client, number, notified.clone()))),
                        _ => drop(tokio::spawn(reflect(client, notified.clone()))),
                    }
                }
                notified.wait_for_count(number).await;
                let (wall, cpu) = (began.elapsed(), process::cpu().checked_sub(cpu).unwrap());
                tokio::time::sleep(Duration::from_secs(6)).await;
                // The bare readers store nothing, so they have no memory figures.
                let grown = |now: u64| (!kind.starts_with("bare")).then(|| now.saturating_sub(rss));
                let (settled, peak) = (grown(process::rss()), grown(process::peak_rss()));
                say(&json!({
                    "phase": "synced", "wall_us": micros(wall), "cpu_us": micros(cpu), "rss": settled, "peak": peak,
                }));
            }
            "flood" | "pace" => events(&notified, name == "pace", number).await,
            other => panic!("unknown command {other}"),
        }
    }
    drop(listener);
}

/// Reads the next line of stdin.
async fn command() -> Option<String> {
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.unwrap().map(Result::unwrap)
}

async fn events(notified: &Notified, timed: bool, version: u64) {
    notified.timed.store(timed, Relaxed);
    notified.take_latencies();
    let (before, cpu, began) = (notified.count(), process::cpu(), Instant::now());
    say(&json!({ "phase": "ready" }));
    notified.wait_for_version(version).await;
    let (wall, cpu) = (began.elapsed(), process::cpu().checked_sub(cpu).unwrap());
    let all = notified.take_latencies();
    say(&json!({
        "phase": "told", "wall_us": micros(wall), "cpu_us": micros(cpu), "told": notified.count() - before,
        "p50_us": micros(quantile(&all, 0.5)), "p99_us": micros(quantile(&all, 0.99)),
    }));
}

async fn config(url: &str, ca_file: Option<&Path>) -> Config {
    if !url.starts_with("http") {
        return real::config(url).await;
    }
    let mut config = Config::new(url.parse().unwrap());
    config.root_cert = ca_file.map(|file| {
        let pem = std::fs::read(file).unwrap();
        let certificates = CertificateDer::pem_slice_iter(&pem);
        certificates.map(|certificate| certificate.unwrap().to_vec()).collect()
    });
    config
}

/// Runs kube-rs as in its documentation: a watcher that fills the store of a reflector.
async fn reflect(client: Client, notified: Notified) {
    let (_store, writer) = reflector::store::<Pod>();
    let events = reflector(writer, watcher(Api::<Pod>::all(client), watcher::Config::default()));
    let mut events = std::pin::pin!(events);
    let mut listed = 0;
    while let Some(event) = events.next().await {
        let called = Instant::now();
        match event.unwrap() {
            Event::Init => listed = 0,
            Event::InitApply(_) => listed += 1,
            Event::InitDone => notified.count.store(listed, Relaxed),
            Event::Apply(pod) => {
                let version = pod.resource_version().unwrap().parse().unwrap();
                notified.update(called, version, || pod.annotations().get(informer_hub_sim::replay::SENT).cloned());
            }
            Event::Delete(_) => {}
        }
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

fn say(value: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").unwrap();
    out.flush().unwrap();
}
