//! The hub against a replay server: sync, flood and latency, beside what client-go and kube-rs were measured to reach.
//!
//! The server runs in a process of its own where memory or CPU is measured, and in this one for latency, whose clock
//! it shares. `BENCH_PODS` and `BENCH_EVENTS` change the sizes.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::cast_precision_loss)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use actix::prelude::*;
use informer_hub::actors::messages::{InformerFor, User, Wanted};
use informer_hub::actors::{Subscribe, Tuning};
use informer_hub::app::{Hub, api_resource};
use informer_hub::config::{ClusterAccess, ClusterConfig, Config};
use informer_hub::reflector::InformerOptions;
use informer_hub::sim::replay::{ReplayConfig, ReplayServer};
use informer_hub::types::{ClusterName, Scope};
use informer_hub::{Clusters, Notification, Notifications};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

mod table;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long a phase may take.
const PATIENCE: Duration = Duration::from_secs(180);

fn main() {
    if std::env::args().any(|arg| arg == "--replay-server") {
        return serve();
    }
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let pods = number("BENCH_PODS", 20_000);
    let events = number("BENCH_EVENTS", 100_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut figures = runtime.block_on(sync_and_flood(pods, events));
    figures.latency = runtime.block_on(latency(1_000, 10_000));
    table::print(&figures);
}

/// What was measured.
struct Figures {
    pods: u64,
    events: u64,
    sync: Duration,
    sync_cpu_us: f64,
    rss_per_pod: f64,
    peak_per_pod: f64,
    updates_per_second: f64,
    update_cpu_us: f64,
    told: u64,
    latency: (Duration, Duration),
}

// === the server's process ===

fn serve() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let pods = std::env::var("BENCH_PODS").map_or(20_000, |text| text.parse().unwrap());
    let config = ReplayConfig { pods, ..ReplayConfig::default() };
    let server = ReplayServer::start(&config, runtime.handle()).unwrap();
    println!("{}", server.url());
    for line in std::io::stdin().lock().lines() {
        server.flood(line.unwrap().parse().unwrap());
        println!("{}", server.last_version());
    }
}

struct Remote {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    url: String,
}

impl Remote {
    fn start(pods: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--replay-server")
            .env("BENCH_PODS", pods.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut remote = Self { child, commands, answers, url: String::new() };
        remote.url = remote.answer();
        remote
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Has the server send `events`; returns the version that the last one leads to.
    fn flood(&mut self, events: u64) -> u64 {
        writeln!(self.commands, "{events}").unwrap();
        self.answer().parse().unwrap()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// === the hub and its one listener ===

struct Listener {
    told: Arc<AtomicU64>,
    version: Arc<AtomicU64>,
    since_sent: Option<SinceSent>,
    latencies: Arc<Mutex<Vec<Duration>>>,
}

type SinceSent = Arc<dyn Fn(&str) -> Option<Duration> + Send + Sync>;

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Handler<Notifications<Pod>> for Listener {
    type Result = ();

    fn handle(&mut self, batch: Notifications<Pod>, _: &mut Self::Context) {
        let called = Instant::now();
        for notification in &batch.0 {
            self.told.fetch_add(1, Relaxed);
            let Notification::Updated { new, .. } = notification else { continue };
            self.version.fetch_max(new.resource_version().as_number().unwrap(), Relaxed);
            if let Some(since_sent) = &self.since_sent {
                // What reading the object takes is not the hub's latency.
                let json = new.json().unwrap();
                let latency = sent(&json).and_then(|text| since_sent(text)?.checked_sub(called.elapsed()));
                self.latencies.lock().extend(latency);
            }
        }
    }
}

/// The annotation with the send time.
fn sent(json: &[u8]) -> Option<&str> {
    let json = std::str::from_utf8(json).ok()?;
    let (_, rest) = json.split_once("\"bench/sent\":\"")?;
    rest.split_once('"').map(|(text, _)| text)
}

/// A hub over one replay server that is asked for nothing yet.
async fn idle_hub(url: &str) -> Hub {
    let cluster = ClusterConfig {
        name: ClusterName::new("replay").unwrap(),
        labels: BTreeMap::new(),
        access: ClusterAccess::Server { server: url.to_owned(), ca_file: None, token: None },
        compression: false,
    };
    let config = Config { clusters: vec![cluster], ..Config::default() };
    let mut tuning = Tuning::default();
    tuning.reflector.streaming_list = false;
    Hub::start_with(config, tuning).await.unwrap()
}

/// Has a hub watch pods, with two indices and one listener.
async fn watch_pods(hub: &Hub, listener: Listener) -> Addr<Listener> {
    let indexes = [("by-node", "spec.nodeName"), ("by-image", "spec.containers[*].image")];
    let demand = InformerFor {
        user: User::Caller("bench".to_owned()),
        wanted: Wanted::known(&api_resource::<Pod>()),
        clusters: Clusters::all(),
        scopes: vec![Scope::all()],
        options: InformerOptions {
            indexes: indexes.map(|(name, path)| (name.into(), path.parse().unwrap())).into(),
            ..InformerOptions::default()
        },
        watch_errors: None,
    };
    hub.registry().send(demand).await.unwrap();
    let address = Listener::start_in_arbiter(hub.system().env().arbiter(), |_| listener);
    let subscribe = Subscribe::to::<Pod>(Clusters::all(), address.clone().recipient::<Notifications<Pod>>());
    hub.registry().send(subscribe).await.unwrap();
    address
}

async fn sync_and_flood(pods: u64, events: u64) -> Figures {
    let mut server = Remote::start(pods);
    let (told, version) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let listener = Listener {
        told: Arc::clone(&told),
        version: Arc::clone(&version),
        since_sent: None,
        latencies: Arc::default(),
    };
    let hub = idle_hub(&server.url).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // From before the list, as the peers were measured.
    let (rss, cpu, began) = (rss(), cpu(), Instant::now());
    let _listener = watch_pods(&hub, listener).await;
    until("every pod has been told", || told.load(Relaxed) >= pods).await;
    let (sync, sync_cpu) = (began.elapsed(), self::cpu().checked_sub(cpu).unwrap());
    let peak = peak_rss().saturating_sub(rss);
    tokio::time::sleep(Duration::from_secs(6)).await;
    let settled = self::rss().saturating_sub(rss);
    let (before, cpu, began) = (told.load(Relaxed), self::cpu(), Instant::now());
    let last = server.flood(events);
    until("the last event has been told", || version.load(Relaxed) >= last).await;
    let (flood, flood_cpu) = (began.elapsed(), self::cpu().checked_sub(cpu).unwrap());
    let told = told.load(Relaxed) - before;
    let left = hub.shutdown(Duration::from_secs(5)).await.actors_left;
    assert_eq!(left, 0, "actors leaked");
    Figures {
        pods,
        events,
        sync,
        sync_cpu_us: sync_cpu.as_secs_f64() * 1e6 / pods as f64,
        rss_per_pod: settled as f64 / pods as f64,
        peak_per_pod: peak as f64 / pods as f64,
        updates_per_second: events as f64 / flood.as_secs_f64(),
        update_cpu_us: flood_cpu.as_secs_f64() * 1e6 / events as f64,
        told,
        latency: (Duration::ZERO, Duration::ZERO),
    }
}

async fn latency(rate: u32, events: u64) -> (Duration, Duration) {
    let io = tokio::runtime::Handle::current();
    let config = ReplayConfig { pods: 1_000, ..ReplayConfig::default() };
    let server = Arc::new(ReplayServer::start(&config, &io).unwrap());
    let (told, version) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let latencies = Arc::<Mutex<Vec<Duration>>>::default();
    let since = Arc::clone(&server);
    let listener = Listener {
        told: Arc::clone(&told),
        version: Arc::clone(&version),
        since_sent: Some(Arc::new(move |annotation: &str| since.since_sent(annotation))),
        latencies: Arc::clone(&latencies),
    };
    let hub = idle_hub(&server.url()).await;
    let _listener = watch_pods(&hub, listener).await;
    until("every pod has been told", || told.load(Relaxed) >= 1_000).await;
    server.pace(rate, events);
    let last = server.last_version();
    until("the last event has been told", || version.load(Relaxed) >= last).await;
    hub.shutdown(Duration::from_secs(5)).await;
    let mut all = std::mem::take(&mut *latencies.lock());
    all.sort();
    let at = |quantile: f64| all[((all.len() - 1) as f64 * quantile) as usize];
    (at(0.5), at(0.99))
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

// === this process ===

/// User and system time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<_> = after_name.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // USER_HZ is 100 on every Linux that this runs on.
    Duration::from_millis(ticks * 10)
}

fn rss() -> u64 {
    status("VmRSS:")
}

fn peak_rss() -> u64 {
    status("VmHWM:")
}

/// A size from this process's status, in bytes.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
