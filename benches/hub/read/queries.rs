//! Queries over HTTP with many small objects, and the latency of events during the queries, at a watch over HTTP and at
//! a webhook.
//!
//! A cell is a kind of query with a number of clients. Each round of a cell measures the events without queries, with
//! queries to another hub, and with queries of each reader, so that a change of the machine's speed affects all alike.
//! The other hub has the same objects but gets no events. It shows how much of a difference is due to the shared cores.
//!
//! The cluster is a replay server, since an apiserver on this machine cannot hold a million objects. Cluster, hub and
//! subscriber have normal priority; the clients have idle priority ([`super::query_clients`]).

use std::fmt::Write as _;

use informer_hub_sim::replay::Shape;

use super::Row;
use super::latency::{follow, pace};
use super::query_clients::{Answers, KINDS, QueryClients};
use super::servers::HubServer;
use crate::common::figures::{Rounds, micros};
use crate::common::hub::{Notified, quantile};
use crate::common::number;
use crate::common::process::CpuWaits;
use crate::common::receiver::Receiver;
use crate::common::server::{Remote, RemoteConfig};

/// Numbers of clients that query at the same time.
const CLIENTS: [usize; 3] = [1, 8, 64];

/// Readers with their rules. Both see all objects. The rules of the second name all namespaces, so its scans have one
/// range of keys for each namespace.
const READERS: [(&str, &str); 2] = [
    ("no rules", ""),
    (
        "rules",
        "{ clusters = { tier = \"bench\" }, namespaces = [\"shop\", \"pay\", \"infra\", \"default\", \"team-*\"] }",
    ),
];

/// Figures of one cell with one reader.
#[derive(Default)]
struct Figures {
    rate: Rounds,
    p50: Rounds,
    p99: Rounds,
    refused: Rounds,
    event_p50: Rounds,
    event_p99: Rounds,
    /// Median event latency, divided by that without queries.
    event_p50_ratio: Rounds,
    event_p99_ratio: Rounds,
    webhook_p99: Rounds,
    webhook_p99_ratio: Rounds,
    /// 99th percentile of the webhook latency, divided by that with queries to another hub.
    webhook_p99_beside: Rounds,
    wait: Rounds,
}

pub(super) async fn measure(rows: &mut Vec<Row>) {
    let objects = number("BENCH_OBJECTS", 1_000_000);
    let mut replay = Remote::start(&RemoteConfig { pods: objects, shape: Shape::SmallPods, ..RemoteConfig::default() });
    let mut receiver = Receiver::start(None);
    let quiet = Remote::start(&RemoteConfig { pods: objects, shape: Shape::SmallPods, ..RemoteConfig::default() });
    let watching = |replay: &Remote| {
        format!(
            "[hub.read_api]\nmax_requests = 1000\n[clusters.bench]\nserver = \"{}\"\ncompression = false\n\
             labels = {{ tier = \"bench\" }}\n[resources.pods]\nindexes = {{ by-ip = \"status.podIP\" }}\n",
            replay.url
        )
    };
    let mut toml = watching(&replay);
    let _ = writeln!(
        toml,
        "[sinks.bench]\ntype = \"webhook\"\nurl = \"{}\"\nbatch = {{ max_wait = \"0s\" }}\ninitial = \"skip\"",
        receiver.url
    );
    let token = |at: usize| format!("reader-{at}-0123456789abcdef");
    for (at, (_, rule)) in READERS.iter().enumerate() {
        let key = if rule.is_empty() { "[hub.auth]\nread_token".to_owned() } else { format!("[readers.r{at}]\ntoken") };
        let allow = if rule.is_empty() { String::new() } else { format!("allow = [{rule}]\n") };
        let _ = writeln!(toml, "{key} = {{ file = \"token-{at}\" }}\n{allow}");
    }
    let files: Vec<_> = (0..READERS.len()).map(|at| (format!("token-{at}"), token(at))).collect();
    let hub = HubServer::start_with(&toml, false, &files).await;
    let servers: Vec<_> = files.into_iter().map(|(_, token)| hub.server().with_token(token)).collect();
    let other = HubServer::start_with(&watching(&quiet), false, &[]).await;
    let mut elsewhere = QueryClients::start(&other.server());
    let mut clients: Vec<_> = servers.iter().map(QueryClients::start).collect();
    let through = Notified::default();
    let watch = servers[0].get(&servers[0].client(false), "/api/v1/pods?watch=1&resourceVersion=", "application/json");
    let watch = follow(watch.send().await.unwrap(), through.clone());
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let only = std::env::var("BENCH_KIND").unwrap_or_default();
    for kind in KINDS.into_iter().filter(|kind| kind.contains(&only)) {
        for count in CLIENTS {
            let (replay, receiver) = (&mut replay, &mut receiver);
            let mut cell = Cell { replay, through: &through, receiver, hub: servers[0].process };
            cell.measure(kind, count, (&mut clients, &mut elsewhere), rows).await;
        }
    }
    watch.abort();
}

/// A kind of query with a number of clients.
struct Cell<'c> {
    replay: &'c mut Remote,
    through: &'c Notified,
    receiver: &'c mut Receiver,
    /// Process ID of the hub.
    hub: u32,
}

impl Cell<'_> {
    async fn measure(
        &mut self,
        kind: &str,
        count: usize,
        (clients, elsewhere): (&mut [QueryClients], &mut QueryClients),
        rows: &mut Vec<Row>,
    ) {
        let mut figures: [Figures; READERS.len()] = Default::default();
        let (mut alone, mut beside, mut costs) = (Figures::default(), Figures::default(), Rounds::default());
        for round in 0..number("BENCH_ROUNDS", 3) {
            eprintln!("{kind}, {count} clients, round {round} …");
            self.events(&mut alone).await;
            elsewhere.run(kind, count);
            self.events(&mut beside).await;
            elsewhere.stop();
            for (figures, clients) in figures.iter_mut().zip(&mut *clients) {
                clients.run(kind, count);
                self.events(figures).await;
                figures.add(&clients.stop(), &alone, &beside);
            }
            let last = |reader: usize| figures[reader].p50.0.last().copied().unwrap_or_default();
            costs.0.push(100.0 * (last(1) / last(0) - 1.0));
        }
        rows.push(Row::new(format!("{kind}, {count}: event p50 without"), "ms", None, alone.event_p50, ""));
        rows.push(Row::new(format!("{kind}, {count}: event p99 without"), "ms", None, alone.event_p99, ""));
        rows.push(Row::new(format!("{kind}, {count}: webhook p99 without"), "ms", None, alone.webhook_p99, ""));
        rows.push(Row::new(format!("{kind}, {count}: waits for a CPU without"), "µs", None, alone.wait, ""));
        let title = format!("{kind}, {count}: webhook p99 beside queries to another hub");
        rows.push(Row::new(title, "ms", None, beside.webhook_p99, ""));
        for (figures, (reader, _)) in figures.into_iter().zip(READERS) {
            figures.rows(&format!("{kind}, {count}, {reader}"), rows);
        }
        rows.push(Row::new(format!("{kind}, {count}: cost of rules"), "%", None, costs, "≤ 10 %"));
    }

    /// Measures the latency of events, and how long the threads of the hub's write path wait for a CPU meanwhile.
    async fn events(&mut self, figures: &mut Figures) {
        self.receiver.take();
        let before = CpuWaits::of(self.hub);
        let events = number("BENCH_SECONDS", 10) * 1_000;
        pace(self.replay, &[self.through]).await;
        let waits = CpuWaits::of(self.hub).since(&before);
        eprintln!("{waits}");
        let latencies = self.through.take_latencies();
        // The last deliveries may still be on their way.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        figures.webhook_p99.0.push(self.receiver.take().p99 / 1e3);
        figures.event_p50.0.push(micros(quantile(&latencies, 0.5)) / 1e3);
        figures.event_p99.0.push(micros(quantile(&latencies, 0.99)) / 1e3);
        figures.wait.0.push(micros(waits.waited_except(&["hub-read", "hub-http"])) / events as f64);
    }
}

impl Figures {
    /// Adds the answers of a round, and compares its latencies with those without queries, and with queries elsewhere.
    fn add(&mut self, answers: &Answers, alone: &Self, beside: &Self) {
        let count = answers.millis.len() as f64;
        let at = |share: f64| {
            answers.millis.get((count * share) as usize).or(answers.millis.last()).copied().unwrap_or_default()
        };
        self.rate.0.push(count / answers.seconds);
        self.p50.0.push(at(0.5));
        self.p99.0.push(at(0.99));
        self.refused.0.push(100.0 * answers.refused / (answers.refused + count).max(1.0));
        let last = |rounds: &Rounds| rounds.0.last().copied().unwrap_or_default();
        self.event_p50_ratio.0.push(last(&self.event_p50) / last(&alone.event_p50));
        self.event_p99_ratio.0.push(last(&self.event_p99) / last(&alone.event_p99));
        self.webhook_p99_ratio.0.push(last(&self.webhook_p99) / last(&alone.webhook_p99));
        self.webhook_p99_beside.0.push(last(&self.webhook_p99) / last(&beside.webhook_p99));
    }

    fn rows(self, what: &str, rows: &mut Vec<Row>) {
        let mut row = |figure: &str, unit, rounds, goal| {
            rows.push(Row::new(format!("{what}: {figure}"), unit, None, rounds, goal));
        };
        row("answers", "/s", self.rate, "");
        row("p50 of an answer", "ms", self.p50, "");
        row("p99 of an answer", "ms", self.p99, "");
        row("refused", "%", self.refused, "");
        row("event p50", "ms", self.event_p50, "");
        row("event p99", "ms", self.event_p99, "");
        row("event p50, of that without", "×", self.event_p50_ratio, "");
        row("event p99, of that without", "×", self.event_p99_ratio, "");
        row("webhook p99", "ms", self.webhook_p99, "");
        row("webhook p99, of that without", "×", self.webhook_p99_ratio, "");
        row("webhook p99, of that beside another hub", "×", self.webhook_p99_beside, "≤ 1.1");
        row("waits for a CPU per event", "µs", self.wait, "");
    }
}
