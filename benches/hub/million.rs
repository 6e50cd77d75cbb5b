//! A million objects over many clusters: memory, what questions cost while events arrive, and what a scan of everything
//! does to the events.
//!
//! `BENCH_PODS` (1,000,000), `BENCH_CLUSTERS` (100), `BENCH_RATE` (5,000 events a second over all of them),
//! `BENCH_SECONDS` (10, for each phase), `BENCH_SMALL` (1: pods of 600 bytes).

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use informer_hub::Query;
use informer_hub::app::Hub;
use informer_hub_sim::replay::Shape;
use k8s_openapi::api::core::v1::Pod;

use crate::common::hub::{Told, end, idle_hub, quantile, watch_pods};
use crate::common::memory::settle;
use crate::common::server::{Remote, RemoteConfig};
use crate::common::{number, process, runtime};

/// An index whose values one object has, nearly always.
const BY_IP: (&str, &str) = ("by-ip", "status.podIP");
/// Questions of one kind that are timed, at most.
const LOOKUPS: usize = 100_000;

pub(crate) fn run() {
    runtime().block_on(measure());
}

struct Run {
    server: Remote,
    hub: Hub,
    told: Told,
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
    let (_listener, told) = watch_pods(&hub, &[BY_IP]).await;
    told.reaches(pods).await;
    let (wall, cpu) = (began.elapsed(), process::cpu().checked_sub(cpu).unwrap());
    settle().await;
    let (settled, peak) = (process::rss() - rss, process::peak_rss() - rss);
    let per = |bytes: u64| bytes as f64 / pods as f64;
    println!("{pods} objects in {clusters} clusters, {rate} events a second over all");
    println!("sync: {:.1} s, {:.1} µs of CPU per object", wall.as_secs_f64(), cpu.as_secs_f64() * 1e6 / pods as f64);
    println!("memory per object: {:.0} B settled, {:.0} B at the peak", per(settled), per(peak));
    let seconds = number("BENCH_SECONDS", 10);
    let mut run = Run { server, hub, told, rate, seconds, clusters };
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
    /// Events arrive at the rate while `ask` asks over and over.
    async fn phase(&mut self, name: &str, ask: impl AsyncFn(&Run)) {
        self.told.timed.store(true, Relaxed);
        self.told.take_latencies();
        // Every cluster's watch is told the same number of events at the same rate.
        let each = u64::from(self.rate) / self.clusters;
        let cpu = process::cpu();
        let began = Instant::now();
        let before = self.told.count();
        self.told.expect(self.server.last_version() + each * self.seconds);
        self.server.pace(each as u32, each * self.seconds);
        println!("— {name}");
        ask(self).await;
        self.told.finishes(self.clusters).await;
        let latencies = self.told.take_latencies();
        let cpu = process::cpu().checked_sub(cpu).unwrap();
        println!(
            "  events: latency p50 {:?}, p99 {:?}, most {:?}; {:.0} told a second; {:.0} % of a core",
            quantile(&latencies, 0.5),
            quantile(&latencies, 0.99),
            quantile(&latencies, 1.0),
            (self.told.count() - before) as f64 / began.elapsed().as_secs_f64(),
            cpu.as_secs_f64() * 100.0 / began.elapsed().as_secs_f64(),
        );
    }

    /// Asks with one value of [`BY_IP`] after the other until the phase is over; says how long one answer takes.
    async fn lookups(&self, ask: impl AsyncFn(&Run, &str) -> usize) {
        let snapshot = self.hub.cache::<Pod>().snapshot().await.unwrap();
        let values: Vec<_> = snapshot.index_values(BY_IP.0).filter(|(_, objects)| *objects == 1).take(10_000).collect();
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let mut times = Vec::with_capacity(LOOKUPS);
        for (value, _) in values.iter().cycle().take(LOOKUPS) {
            let began = Instant::now();
            assert_eq!(ask(self, value).await, 1, "{value}");
            times.push(began.elapsed());
            if times.len() % 100 == 0 {
                // A reader that never rests would measure how two cores are shared, and nothing else.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if Instant::now() > end {
                break;
            }
        }
        say("one lookup", times);
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
        say(&format!("one scan that finds {found}"), times);
    }
}

fn say(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    println!("  {what}: p50 {:?}, p99 {:?} of {}", quantile(&times, 0.5), quantile(&times, 0.99), times.len());
}
