//! One client in a process of its own, which obeys the bench over stdin: one line a command, one JSON line an answer.
//!
//! The commands are those of client-go's side (tests/testbed/peers): `sync COUNT`, `flood VERSION`, `pace VERSION`.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Config, ResourceExt};
use kube_runtime::watcher::Event;
use kube_runtime::{reflector, watcher};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::common::hub::{Told, idle_hub, quantile, watch_pods};
use crate::common::process;
use crate::{bare, real};

/// Runs one; ends when stdin does. `url` may be a kubeconfig's path.
pub(crate) async fn run(kind: &str, url: &str, ca_file: Option<&Path>) {
    let hub = match kind {
        "hub" => Some(idle_hub(&[url.to_owned()], ca_file).await),
        "kube-rs" | "bare" | "bare-stream" => None,
        other => panic!("no contestant {other}"),
    };
    // As for everybody: what starting takes is not counted.
    tokio::time::sleep(Duration::from_secs(1)).await;
    say(&json!({ "phase": "idle" }));
    let mut told = Told::default();
    let mut listener = None;
    while let Some(line) = command().await {
        let (name, number) = line.split_once(' ').unwrap();
        let number = number.parse().unwrap();
        match name {
            "sync" => {
                let (rss, cpu, began) = (process::rss(), process::cpu(), Instant::now());
                if let Some(hub) = &hub {
                    let (address, by_hub) = watch_pods(hub, &[]).await;
                    (listener, told) = (Some(address), by_hub);
                } else {
                    let client = Client::try_from(config(url, ca_file).await).unwrap();
                    match kind {
                        "bare" => drop(tokio::spawn(bare::read(client, number, told.clone()))),
                        "bare-stream" => drop(tokio::spawn(bare::stream(client, number, told.clone()))),
                        _ => drop(tokio::spawn(reflect(client, told.clone()))),
                    }
                }
                told.reaches(number).await;
                let (wall, cpu) = (began.elapsed(), process::cpu().checked_sub(cpu).unwrap());
                tokio::time::sleep(Duration::from_secs(6)).await;
                // Of who keeps nothing there is nothing to say.
                let grown = |now: u64| (!kind.starts_with("bare")).then(|| now.saturating_sub(rss));
                let (settled, peak) = (grown(process::rss()), grown(process::peak_rss()));
                say(&json!({
                    "phase": "synced", "wall_us": micros(wall), "cpu_us": micros(cpu), "rss": settled, "peak": peak,
                }));
            }
            "flood" | "pace" => events(&told, name == "pace", number).await,
            other => panic!("no command {other}"),
        }
    }
    drop(listener);
}

/// The next line of stdin.
async fn command() -> Option<String> {
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.unwrap().map(Result::unwrap)
}

async fn events(told: &Told, timed: bool, version: u64) {
    told.timed.store(timed, Relaxed);
    told.take_latencies();
    let (before, cpu, began) = (told.count(), process::cpu(), Instant::now());
    say(&json!({ "phase": "ready" }));
    told.reaches_version(version).await;
    let (wall, cpu) = (began.elapsed(), process::cpu().checked_sub(cpu).unwrap());
    let all = told.take_latencies();
    say(&json!({
        "phase": "told", "wall_us": micros(wall), "cpu_us": micros(cpu), "told": told.count() - before,
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

/// kube-rs as its documentation shows it: a watcher that fills a reflector's store.
async fn reflect(client: Client, told: Told) {
    let (_store, writer) = reflector::store::<Pod>();
    let events = reflector(writer, watcher(Api::<Pod>::all(client), watcher::Config::default()));
    let mut events = std::pin::pin!(events);
    let mut listed = 0;
    while let Some(event) = events.next().await {
        let called = Instant::now();
        match event.unwrap() {
            Event::Init => listed = 0,
            Event::InitApply(_) => listed += 1,
            Event::InitDone => told.count.store(listed, Relaxed),
            Event::Apply(pod) => {
                let version = pod.resource_version().unwrap().parse().unwrap();
                told.update(called, version, || pod.annotations().get(informer_hub_sim::replay::SENT).cloned());
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
