//! Effect of a sink with a dead receiver and a full journal on another sink and a subscriber.
//!
//! Runs with and without the dead sink alternate, each in its own process, because sinks are part of the configuration.
//! `BENCH_SINK_PODS` (12,000) is also the size of a burst, so that each pod changes once in it.

use std::time::{Duration, Instant};

use comfy_table::presets::ASCII_MARKDOWN;
use informer_hub::app::Hub;
use serde_json::{Value, json};

use crate::common::figures::Rounds;
use crate::common::hub::TIMEOUT;
use crate::common::loaded::{Text, finish, listen};
use crate::common::process::pinned;
use crate::common::receiver::Receiver;
use crate::common::server::{Remote, RemoteConfig};
use crate::common::table::figures;
use crate::common::{number, runtime};
use crate::isolation::paced;

const CLUSTERS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

const FIGURES: [&str; 8] =
    ["subscriber p50", "subscriber p99", "sink p50", "sink p99", "rate", "subscriber burst", "sink burst", "cpu"];

/// Runs all rounds and prints a table.
pub(crate) fn run() {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..number("BENCH_ROUNDS", 5) {
        without.push(child("without"));
        with.push(child("with"));
        eprintln!("round {round}: {} {}", without.last().unwrap(), with.last().unwrap());
    }
    let mut table = figures(ASCII_MARKDOWN, ["", "without", "with a dead sink", "with ÷ without"]);
    for name in FIGURES {
        let rounds = |all: &[Value]| Rounds(all.iter().map(|one| one[name].as_f64().unwrap()).collect());
        let (without, with) = (rounds(&without), rounds(&with));
        table.add_row([name.to_owned(), without.text(0), with.text(0), with.over(&without).text(2)]);
    }
    println!("{table}");
}

fn child(which: &str) -> Value {
    let output = pinned(None).args(["isolation-sink", which]).output().unwrap();
    assert!(output.status.success(), "{which}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs once and prints the figures.
pub(crate) fn run_one(which: &str) {
    println!("{}", runtime().block_on(measure(which == "with")));
}

async fn measure(dead: bool) -> Value {
    let pods = number("BENCH_SINK_PODS", 12_000);
    let mut server = Remote::start(&RemoteConfig { pods, ..RemoteConfig::default() });
    let mut receiver = Receiver::start(None);
    let state = tempfile::tempdir().unwrap();
    let mut text = Text::pods().state(state.path(), "10ms");
    text = text.webhook("healthy", &receiver.url, "batch = { max_wait = \"0s\" }");
    if dead {
        // Nothing listens at this address: the port was just released, and loopback refuses the connection.
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        text = text.webhook("dead", &format!("http://{unused}/"), "journal_limit = \"16MiB\"");
    }
    for (name, url) in CLUSTERS.iter().zip(server.shards(6)) {
        text = text.cluster(name, &url);
    }
    let hub = text.start(None).await;
    let (_listener, notified) = listen(&hub, &CLUSTERS).await;
    notified.wait_for_count(pods).await;
    // Fills the small journal of the dead sink. Further events of this sink wait for room.
    server.flood(pods / 6);
    received(&mut receiver, pods).await;
    if dead {
        full(&hub).await;
    }
    tokio::time::sleep(Duration::from_secs(7)).await;
    receiver.take();
    let cpu = crate::common::process::cpu();
    let before = notified.count();
    let pace = paced(&mut server, &notified).await;
    let sent = notified.count() - before;
    received(&mut receiver, pods + sent).await;
    let cpu = crate::common::process::cpu().checked_sub(cpu).unwrap().as_millis() as u64;
    let sink = receiver.take();
    let began = Instant::now();
    notified.expect(server.last_version() + pods / 6);
    server.flood(pods / 6);
    notified.wait_for_clusters(6).await;
    let notified_in = began.elapsed().as_secs_f64();
    received(&mut receiver, 2 * pods + sent).await;
    let received_in = began.elapsed().as_secs_f64();
    if dead {
        full(&hub).await;
    }
    finish(hub).await;
    json!({
        "subscriber p50": pace.p50, "subscriber p99": pace.p99, "sink p50": sink.p50, "sink p99": sink.p99,
        "rate": pace.rate, "subscriber burst": pods as f64 / notified_in, "sink burst": pods as f64 / received_in,
        "cpu": cpu,
    })
}

/// Waits until the receiver has `count` events.
pub(crate) async fn received(receiver: &mut Receiver, count: u64) {
    let began = Instant::now();
    loop {
        let now = receiver.count();
        if now >= count {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "the receiver has {now} of {count} events");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the journal of the dead sink is full.
async fn full(hub: &Hub) {
    let began = Instant::now();
    loop {
        let report = hub.report().await.unwrap();
        let dead = report.sinks.iter().find(|sink| sink.name == "dead").unwrap();
        let journal = dead.status.journal.as_ref().unwrap();
        if journal.trouble.is_some() {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "the journal does not fill: {journal:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
