//! Effect of four faulty clusters on six healthy ones. Of the four, one is dead, one drips, one sends garbage and one
//! floods.
//!
//! One hub has all ten clusters. Each round has four phases:
//!
//! - *alone*: the four clusters have no fault and are idle;
//! - *three bad*: the first three of them are faulty;
//! - *all bad*: the fourth floods as well;
//! - *flood elsewhere*: the first three are faulty, and the flood goes to another hub, in its own process on the same
//!   machine.
//!
//! The last two phases load the machine alike, so their difference is caused by the hub.
//!
//! Variables, for the six healthy clusters together: `BENCH_PODS` (6,000), `BENCH_RATE` (600 events a second),
//! `BENCH_SECONDS` (8, duration of the paced events of a phase), `BENCH_EVENTS` (24,000, size of a burst),
//! `BENCH_ROUNDS` (5).

use std::time::{Duration, Instant};

use comfy_table::presets::ASCII_MARKDOWN;

use crate::common::figures::{Rounds, micros};
use crate::common::fronts::Fronts;
use crate::common::hub::{Notified, end, idle_hub, quantile, watch_pods};
use crate::common::loaded::{Text, listen};
use crate::common::process::{self, Helper};
use crate::common::server::{Remote, RemoteConfig};
use crate::common::table;
use crate::common::{number, runtime};

const GOOD: [&str; 6] = ["good-0", "good-1", "good-2", "good-3", "good-4", "good-5"];
/// More events than a phase can process.
const ENDLESS: u64 = 1_000_000_000;
/// Pause after a change of phase.
const SETTLE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Alone,
    ThreeBad,
    AllBad,
    Elsewhere,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Alone, Self::ThreeBad, Self::AllBad, Self::Elsewhere];

    fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::ThreeBad => "three bad",
            Self::AllBad => "all bad",
            Self::Elsewhere => "flood elsewhere",
        }
    }
}

/// Servers and counters of the bench.
struct TestBed {
    good: Remote,
    fronts: Fronts,
    flood: Remote,
    elsewhere: Remote,
    /// Counters of the six healthy clusters.
    notified: Notified,
    /// Counters of the flooding cluster.
    flooded: Notified,
}

/// Figures of the six healthy clusters in one phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct PhaseFigures {
    p50: Rounds,
    p99: Rounds,
    /// Paced events per second.
    rate: Rounds,
    /// Events per second in a burst.
    burst: Rounds,
    /// Cores that the hub used during paced events.
    cores: Rounds,
    /// Events of the flood per second.
    flood: Rounds,
}

/// Runs the benches of clusters and sinks, and prints a table for each.
pub(crate) fn run() {
    println!("load: {}", process::load());
    runtime().block_on(clusters());
    super::isolation_sinks::run();
    println!("load: {}", process::load());
}

async fn clusters() {
    let server = |pods| Remote::start(&RemoteConfig { pods, ..RemoteConfig::default() });
    let (good, idle) = (server(number("BENCH_PODS", 6000)), server(300));
    let fronts = Fronts::start(&idle.url);
    let (flood, elsewhere) = (server(1000), server(1000));
    let mut text = Text::pods();
    for (name, url) in GOOD.iter().zip(good.shards(6)) {
        text = text.cluster(name, &url);
    }
    for (name, url) in ["dead", "drip", "garbage"].iter().zip(&fronts.urls) {
        text = text.cluster(name, url);
    }
    let hub = text.cluster("flood", &flood.url).start(None).await;
    let (_six, notified) = listen(&hub, &GOOD).await;
    let (_flood, flooded) = listen(&hub, &["flood"]).await;
    let (_others, others) = listen(&hub, &["dead", "drip", "garbage"]).await;
    let mut other_hub = Helper::start(&["isolation-elsewhere", &elsewhere.url], &[], None);
    assert_eq!(other_hub.line(), "ready");
    notified.wait_for_count(number("BENCH_PODS", 6000)).await;
    flooded.wait_for_count(1000).await;
    others.wait_for_count(300).await;
    let mut bed = TestBed { good, fronts, flood, elsewhere, notified, flooded };
    let mut figures = Phase::ALL.map(|phase| (phase, PhaseFigures::default()));
    // The first phase is a warm-up, in which dictionaries are trained.
    measure(&mut bed, Phase::Alone, &mut PhaseFigures::default()).await;
    for round in 0..number("BENCH_ROUNDS", 5) {
        for (phase, figures) in &mut figures {
            measure(&mut bed, *phase, figures).await;
            eprintln!(
                "round {round}, {}: p99 {:.0} µs, load {}",
                phase.name(),
                figures.p99.0.last().unwrap(),
                process::load()
            );
        }
    }
    drop(other_hub);
    end(hub).await;
    print(&figures);
}

/// Runs the other hub, which gets the flood, until its process is killed.
pub(crate) fn run_elsewhere(url: &str) {
    runtime().block_on(async {
        let hub = idle_hub(&[url.to_owned()], None).await;
        let (_listener, notified) = watch_pods(&hub, &[]).await;
        notified.wait_for_count(1000).await;
        println!("ready");
        std::future::pending::<()>().await;
    });
}

async fn measure(bed: &mut TestBed, phase: Phase, figures: &mut PhaseFigures) {
    bed.fronts.set_bad(phase != Phase::Alone);
    match phase {
        Phase::Alone | Phase::ThreeBad => {}
        Phase::AllBad => drop(bed.flood.flood(ENDLESS)),
        Phase::Elsewhere => drop(bed.elsewhere.flood(ENDLESS)),
    }
    tokio::time::sleep(SETTLE).await;
    let (cpu, flooded, began) = (process::cpu(), bed.flooded.count(), Instant::now());
    let pace = paced(&mut bed.good, &bed.notified).await;
    let seconds = began.elapsed().as_secs_f64();
    figures.cores.0.push(process::cpu().checked_sub(cpu).unwrap().as_secs_f64() / seconds);
    figures.flood.0.push((bed.flooded.count() - flooded) as f64 / seconds);
    figures.p50.0.push(pace.p50);
    figures.p99.0.push(pace.p99);
    figures.rate.0.push(pace.rate);
    figures.burst.0.push(burst(&mut bed.good, &bed.notified).await);
    match phase {
        Phase::Alone | Phase::ThreeBad => {}
        Phase::AllBad => bed.flood.expire(),
        Phase::Elsewhere => bed.elsewhere.expire(),
    }
    bed.fronts.set_bad(false);
    tokio::time::sleep(SETTLE).await;
}

/// Latencies and rate of paced events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) rate: f64,
}

/// Sends paced events in the six clusters that are the shards of `server`. Returns their latencies and rate.
pub(crate) async fn paced(server: &mut Remote, notified: &Notified) -> Pace {
    let rate = u32::try_from(number("BENCH_RATE", 600) / 6).unwrap();
    let each = u64::from(rate) * number("BENCH_SECONDS", 8);
    notified.timed.store(true, std::sync::atomic::Ordering::Relaxed);
    notified.take_latencies();
    notified.expect(server.last_version() + each);
    let (before, began) = (notified.count(), Instant::now());
    server.pace(rate, each);
    notified.wait_for_clusters(6).await;
    let rate = (notified.count() - before) as f64 / began.elapsed().as_secs_f64();
    notified.timed.store(false, std::sync::atomic::Ordering::Relaxed);
    let all = notified.take_latencies();
    Pace { p50: micros(quantile(&all, 0.5)), p99: micros(quantile(&all, 0.99)), rate }
}

/// Sends events as fast as they are read, and returns the events per second. Counts sent events, because events of one
/// object may be merged.
pub(crate) async fn burst(server: &mut Remote, notified: &Notified) -> f64 {
    let each = number("BENCH_EVENTS", 24_000) / 6;
    notified.expect(server.last_version() + each);
    let began = Instant::now();
    server.flood(each);
    notified.wait_for_clusters(6).await;
    (each * 6) as f64 / began.elapsed().as_secs_f64()
}

fn print(all: &[(Phase, PhaseFigures)]) {
    let alone = &all[0].1;
    let mut table = table::figures(
        ASCII_MARKDOWN,
        [
            "the other four",
            "p50, µs",
            "p99, µs",
            "p99 ÷ alone",
            "events a second",
            "at most",
            "÷ alone",
            "cores",
            "flood, a second",
        ],
    );
    for (phase, figures) in all {
        table.add_row([
            phase.name().to_owned(),
            figures.p50.text(0),
            figures.p99.text(0),
            figures.p99.over(&alone.p99).text(2),
            figures.rate.text(0),
            figures.burst.text(0),
            figures.burst.over(&alone.burst).text(2),
            figures.cores.text(2),
            figures.flood.text(0),
        ]);
    }
    println!("{table}");
}
