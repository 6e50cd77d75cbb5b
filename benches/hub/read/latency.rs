//! Latency of watch events through the hub, and of a sink's deliveries while other clients list.
//!
//! The cluster is a replay server, since an apiserver on this machine cannot write a thousand objects a second.

use std::time::Duration;

use informer_hub_sim::replay::SENT;
use tokio::task::JoinHandle;

use super::Row;
use super::servers::{HubServer, Server, read_all};
use crate::bare;
use crate::common::figures::{Rounds, micros};
use crate::common::hub::{Notified, quantile};
use crate::common::number;
use crate::common::receiver::Receiver;
use crate::common::server::{Remote, RemoteConfig};

/// Events a second.
const RATE: u32 = 1_000;
/// Clients that list everything in a loop.
const LISTERS: usize = 4;

pub(super) async fn measure(pods: u64, rows: &mut Vec<Row>) {
    let mut replay = Remote::start(&RemoteConfig { pods, ..RemoteConfig::default() });
    let mut receiver = Receiver::start(None);
    let cluster = format!("[clusters.bench]\nserver = \"{}\"\ncompression = false\n[resources.pods]\n", replay.url);
    let sink = format!(
        "[sinks.bench]\ntype = \"webhook\"\nurl = \"{}\"\nbatch = {{ max_wait = \"0s\" }}\ninitial = \"skip\"\n",
        receiver.url
    );
    let hub = HubServer::start(&format!("{cluster}{sink}"), false).await;
    let other = HubServer::start(&cluster, false).await;
    events(&mut replay, &hub.server(), rows).await;
    deliveries(&mut replay, &mut receiver, (&hub, &other), rows).await;
}

/// Measures the latencies of the same events at a client of the cluster and at a client of the hub.
async fn events(replay: &mut Remote, hub: &Server, rows: &mut Vec<Row>) {
    let (direct, through) = (Notified::default(), Notified::default());
    let source = hub.at_root("");
    let client = source.client(false);
    let version = replay.last_version();
    let url = format!("{}/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds=3600", replay.url);
    let watches = [
        follow(client.get(url).send().await.unwrap(), direct.clone()),
        follow(
            hub.get(&client, "/api/v1/pods?watch=1&resourceVersion=", "application/json").send().await.unwrap(),
            through.clone(),
        ),
    ];
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut figures: [Rounds; 4] = Default::default();
    for round in 0..number("BENCH_ROUNDS", 3) {
        eprintln!("latency, round {round} …");
        let last = pace(replay, &[&direct, &through]).await;
        through.wait_for_version(last).await;
        for (notified, at) in [(&direct, 0), (&through, 2)] {
            let all = notified.take_latencies();
            figures[at].0.push(micros(quantile(&all, 0.5)) / 1e3);
            figures[at + 1].0.push(micros(quantile(&all, 0.99)) / 1e3);
        }
    }
    watches.iter().for_each(JoinHandle::abort);
    let [direct_p50, direct_p99, hub_p50, hub_p99] = figures;
    rows.push(Row::new("event at 1,000/s, p50 (left: a direct client)", "ms", Some(direct_p50), hub_p50, "+ 0.3 ms"));
    rows.push(Row::new("event at 1,000/s, p99 (left: a direct client)", "ms", Some(direct_p99), hub_p99, "+ 2 ms"));
}

/// Sends events at the rate and returns the version of the last one.
pub(super) async fn pace(replay: &mut Remote, timed: &[&Notified]) -> u64 {
    use std::sync::atomic::Ordering::Relaxed;
    for notified in timed {
        notified.timed.store(true, Relaxed);
        notified.take_latencies();
    }
    let events = u64::from(RATE) * number("BENCH_SECONDS", 10);
    let last = replay.pace(RATE, events);
    for notified in timed {
        notified.wait_for_version(last).await;
    }
    last
}

/// Records the events of a watch in `notified` until the watch ends.
pub(super) fn follow(mut response: reqwest::Response, notified: Notified) -> JoinHandle<()> {
    assert_eq!(response.status(), 200);
    tokio::spawn(async move {
        let mut line = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            let mut rest = &chunk[..];
            while let Some(end) = memchr::memchr(b'\n', rest) {
                line.extend_from_slice(&rest[..end]);
                if memchr::memmem::find(&line, SENT.as_bytes()).is_some() {
                    bare::event(&line, &notified);
                }
                line.clear();
                rest = &rest[end + 1..];
            }
            line.extend_from_slice(rest);
        }
    })
}

/// Measures the 99th percentile of a sink's delivery latency in three situations: no other readers, clients that list
/// from another hub, and clients that list from this hub.
async fn deliveries(
    replay: &mut Remote,
    receiver: &mut Receiver,
    (hub, other): (&HubServer, &HubServer),
    rows: &mut Vec<Row>,
) {
    let mut figures: [Rounds; 3] = Default::default();
    for round in 0..number("BENCH_ROUNDS", 3) {
        eprintln!("deliveries, round {round} …");
        for (listed, figures) in [None, Some(other), Some(hub)].into_iter().zip(&mut figures) {
            let listers: Vec<_> =
                listed.iter().flat_map(|hub| (0..LISTERS).map(|_| list_always(hub.server()))).collect();
            tokio::time::sleep(Duration::from_secs(1)).await;
            receiver.take();
            let before = receiver.count();
            let events = u64::from(RATE) * number("BENCH_SECONDS", 10);
            replay.pace(RATE, events);
            // Events of one object may be merged, so the end is the time at which no more arrive.
            let mut last = before;
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let now = receiver.count();
                if now == last && now > before {
                    break;
                }
                last = now;
            }
            listers.iter().for_each(JoinHandle::abort);
            figures.0.push(receiver.take().p99 / 1e3);
        }
    }
    let [alone, elsewhere, here] = figures;
    rows.push(Row::new("sink p99 during lists (left: without)", "ms", Some(alone), here.clone(), "within 10 %"));
    rows.push(Row::new("the same (left: lists from another hub)", "ms", Some(elsewhere), here, "within 10 %"));
}

fn list_always(server: Server) -> JoinHandle<()> {
    tokio::spawn(async move {
        let client = server.client(false);
        loop {
            read_all(server.get(&client, "/api/v1/pods", "application/json").send().await.unwrap()).await;
        }
    })
}
