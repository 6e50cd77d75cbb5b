//! A million objects in many clusters: memory, cost of queries while events arrive, and effect of full scans on events.
//!
//! `BENCH_PODS` (1,000,000), `BENCH_CLUSTERS` (100), `BENCH_RATE` (5,000 events a second over all of them),
//! `BENCH_SECONDS` (10, for each phase), `BENCH_SMALL` (1: pods of 600 bytes).

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use informer_hub::Query;
use informer_hub::app::Hub;
use informer_hub_sim::replay::Shape;
use k8s_openapi::api::core::v1::Pod;

use crate::common::hub::{Notified, end, idle_hub, quantile, watch_pods};
use crate::common::memory::settle;
use crate::common::server::{Remote, RemoteConfig};
use crate::common::{number, process, runtime};

/// An index with nearly unique values.
const BY_IP: (&str, &str) = ("by-ip", "status.podIP");
/// Maximum number of timed queries of one kind.
const MAX_LOOKUPS: usize = 100_000;

pub(crate) fn run() {
    runtime().block_on(measure());
}

struct Run {
    server: Remote,
    hub: Hub,
    notified: Notified,
    rate: u32,
    seconds: u64,
    clusters: u64,
}

async fn measure() {
    let (pods, clusters) = (number("BENCH_PODS", 1_000_000), number("BENCH_CLUSTERS", 100));
    let rate = number("BENCH_RATE", 5_000) as u32;
    let shape = if number("BENCH_SMALL", 1) == 1 { Shape::SmallPods } else { Shape::Pods };
    let server = Remote::start(&RemoteConfig { pods, shape, ..RemoteConfig::default() });
    let urls: Vec<_> = (0..clusters).map(|i| format!("{}/shards/{i}/{clusters}", server.url)).collect();
    let hub = idle_hub(&urls, None).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    process::forget_peak();
    let (rss, cpu, began) = (process::rss(), process::cpu(), Instant::now());
    let (_listener, notified) = watch_pods(&hub, &[BY_IP]).await;
    notified.wait_for_count(pods).await;
    let (wall, cpu) = (began.elapsed(), process::cpu().checked_sub(cpu).unwrap());
    settle().await;
    let (settled, peak) = (process::rss() - rss, process::peak_rss() - rss);
    let per = |bytes: u64| bytes as f64 / pods as f64;
    println!("{pods} objects in {clusters} clusters, {rate} events a second over all");
    println!("sync: {:.1} s, {:.1} µs of CPU per object", wall.as_secs_f64(), cpu.as_secs_f64() * 1e6 / pods as f64);
    println!("memory per object: {:.0} B settled, {:.0} B at the peak", per(settled), per(peak));
    let seconds = number("BENCH_SECONDS", 10);
    let mut run = Run { server, hub, notified, rate, seconds, clusters };
    run.phase("events alone", async |_| {}).await;
    run.phase("by_index on a snapshot", async |run| {
        let cache = run.hub.cache::<Pod>();
        let snapshot = cache.snapshot().await.unwrap();
        run.lookups(async |_, value| snapshot.by_index(BY_IP.0, value).filter_map(|at| snapshot.object(&at)).count())
            .await;
    })
    .await;
    run.phase("by_index by message", async |run| {
        let cache = run.hub.cache::<Pod>();
        run.lookups(async |_, value| cache.send(Query::by_index(BY_IP.0, value)).await.unwrap().unwrap().items.len())
            .await;
    })
    .await;
    run.phase("label scans by message, one after the other", async |run| run.scans().await).await;
    end(run.hub).await;
}

impl Run {
    /// Runs `ask`, which repeats queries, while paced events arrive.
    async fn phase(&mut self, name: &str, ask: impl AsyncFn(&Run)) {
        self.notified.timed.store(true, Relaxed);
        self.notified.take_latencies();
        // Every cluster gets the same number of events at the same rate.
        let each = u64::from(self.rate) / self.clusters;
        let cpu = process::cpu();
        let began = Instant::now();
        let before = self.notified.count();
        self.notified.expect(self.server.last_version() + each * self.seconds);
        self.server.pace(each as u32, each * self.seconds);
        println!("— {name}");
        ask(self).await;
        self.notified.wait_for_clusters(self.clusters).await;
        let latencies = self.notified.take_latencies();
        let cpu = process::cpu().checked_sub(cpu).unwrap();
        println!(
            "  events: latency p50 {:?}, p99 {:?}, max {:?}; {:.0} notified a second; {:.0} % of a core",
            quantile(&latencies, 0.5),
            quantile(&latencies, 0.99),
            quantile(&latencies, 1.0),
            (self.notified.count() - before) as f64 / began.elapsed().as_secs_f64(),
            cpu.as_secs_f64() * 100.0 / began.elapsed().as_secs_f64(),
        );
    }

    /// Queries the values of [`BY_IP`] one after the other until the end of the phase, and prints the times.
    async fn lookups(&self, ask: impl AsyncFn(&Run, &str) -> usize) {
        let snapshot = self.hub.cache::<Pod>().snapshot().await.unwrap();
        let values: Vec<_> = snapshot.index_values(BY_IP.0).filter(|(_, objects)| *objects == 1).take(10_000).collect();
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let mut times = Vec::with_capacity(MAX_LOOKUPS);
        for (value, _) in values.iter().cycle().take(MAX_LOOKUPS) {
            let began = Instant::now();
            assert_eq!(ask(self, value).await, 1, "{value}");
            times.push(began.elapsed());
            if times.len() % 100 == 0 {
                // Without pauses, the look-ups would only measure how they share the cores with the hub's threads.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if Instant::now() > end {
                break;
            }
        }
        print("one lookup", times);
    }

    async fn scans(&self) {
        let cache = self.hub.cache::<Pod>();
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let (mut times, mut found) = (Vec::new(), 0);
        while Instant::now() < end {
            let query = Query::by_labels("app=web,tier=data,team=growth".parse().unwrap());
            let began = Instant::now();
            found = cache.send(query).await.unwrap().unwrap().items.len();
            times.push(began.elapsed());
        }
        print(&format!("one scan that finds {found}"), times);
    }
}

fn print(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    println!("  {name}: p50 {:?}, p99 {:?} of {}", quantile(&times, 0.5), quantile(&times, 0.99), times.len());
}
