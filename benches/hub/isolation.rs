//! What six clusters feel of four others: one is dead, one drips, one sends garbage, one floods.
//!
//! One hub has all ten from the beginning to the end. Rounds of four phases follow each other: the four others are well
//! and have nothing to say (*alone*); three of them are bad (*three bad*); the fourth floods too (*all bad*); and the
//! three are bad while the flood is another hub's, in a process of its own on the same machine (*flood elsewhere*). What
//! the last two have in common is the machine's doing, the difference is the hub's.
//!
//! `BENCH_PODS` (6,000) are what the six have together, `BENCH_RATE` (600) their events a second together,
//! `BENCH_SECONDS` (8) how long each phase has them come, `BENCH_EVENTS` (24,000) a burst of theirs, `BENCH_ROUNDS` (5).

use std::time::{Duration, Instant};

use comfy_table::presets::ASCII_MARKDOWN;

use crate::common::figures::{Rounds, micros};
use crate::common::fronts::Fronts;
use crate::common::hub::{Told, end, idle_hub, quantile, watch_pods};
use crate::common::loaded::{Text, listen};
use crate::common::process::{self, Helper};
use crate::common::server::{Remote, RemoteConfig};
use crate::common::table::figures;
use crate::common::{number, runtime};

const GOOD: [&str; 6] = ["good-0", "good-1", "good-2", "good-3", "good-4", "good-5"];
/// More than a phase takes.
const ENDLESS: u64 = 1_000_000_000;
/// How long a change of phase has to settle.
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

/// Everything that there is.
struct Bed {
    good: Remote,
    fronts: Fronts,
    flood: Remote,
    elsewhere: Remote,
    /// What the six tell, and what the flood tells.
    told: Told,
    flooded: Told,
}

/// What the six felt of one phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Felt {
    p50: Rounds,
    p99: Rounds,
    /// Events a second where they came at a rate, and as fast as they can.
    rate: Rounds,
    burst: Rounds,
    /// Cores that the hub took while they came at a rate, and events of the flood a second.
    cores: Rounds,
    flood: Rounds,
}

/// Runs both halves, and prints a table of each.
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
    let (_six, told) = listen(&hub, &GOOD).await;
    let (_flood, flooded) = listen(&hub, &["flood"]).await;
    let (_others, others) = listen(&hub, &["dead", "drip", "garbage"]).await;
    let mut other_hub = Helper::start(&["isolation-elsewhere", &elsewhere.url], &[], None);
    assert_eq!(other_hub.line(), "ready");
    told.reaches(number("BENCH_PODS", 6000)).await;
    flooded.reaches(1000).await;
    others.reaches(300).await;
    let mut bed = Bed { good, fronts, flood, elsewhere, told, flooded };
    let mut felt = Phase::ALL.map(|phase| (phase, Felt::default()));
    // The first one is not counted: dictionaries are trained in it.
    measure(&mut bed, Phase::Alone, &mut Felt::default()).await;
    for round in 0..number("BENCH_ROUNDS", 5) {
        for (phase, felt) in &mut felt {
            measure(&mut bed, *phase, felt).await;
            eprintln!(
                "round {round}, {}: p99 {:.0} µs, load {}",
                phase.name(),
                felt.p99.0.last().unwrap(),
                process::load()
            );
        }
    }
    drop(other_hub);
    end(hub).await;
    print(&felt);
}

/// A hub that has the flood for itself, until its process is ended.
pub(crate) fn run_elsewhere(url: &str) {
    runtime().block_on(async {
        let hub = idle_hub(&[url.to_owned()], None).await;
        let (_listener, told) = watch_pods(&hub, &[]).await;
        told.reaches(1000).await;
        println!("ready");
        std::future::pending::<()>().await;
    });
}

async fn measure(bed: &mut Bed, phase: Phase, felt: &mut Felt) {
    bed.fronts.set_bad(phase != Phase::Alone);
    match phase {
        Phase::Alone | Phase::ThreeBad => {}
        Phase::AllBad => drop(bed.flood.flood(ENDLESS)),
        Phase::Elsewhere => drop(bed.elsewhere.flood(ENDLESS)),
    }
    tokio::time::sleep(SETTLE).await;
    let (cpu, flooded, began) = (process::cpu(), bed.flooded.count(), Instant::now());
    let pace = paced(&mut bed.good, &bed.told).await;
    let seconds = began.elapsed().as_secs_f64();
    felt.cores.0.push(process::cpu().checked_sub(cpu).unwrap().as_secs_f64() / seconds);
    felt.flood.0.push((bed.flooded.count() - flooded) as f64 / seconds);
    felt.p50.0.push(pace.p50);
    felt.p99.0.push(pace.p99);
    felt.rate.0.push(pace.rate);
    felt.burst.0.push(burst(&mut bed.good, &bed.told).await);
    match phase {
        Phase::Alone | Phase::ThreeBad => {}
        Phase::AllBad => bed.flood.expire(),
        Phase::Elsewhere => bed.elsewhere.expire(),
    }
    bed.fronts.set_bad(false);
    tokio::time::sleep(SETTLE).await;
}

/// Of events that come at a rate: how long they took, and how many there were a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) rate: f64,
}

/// Has the six clusters of a server send events at their rate.
pub(crate) async fn paced(server: &mut Remote, told: &Told) -> Pace {
    let rate = u32::try_from(number("BENCH_RATE", 600) / 6).unwrap();
    let each = u64::from(rate) * number("BENCH_SECONDS", 8);
    told.timed.store(true, std::sync::atomic::Ordering::Relaxed);
    told.take_latencies();
    told.expect(server.last_version() + each);
    let (before, began) = (told.count(), Instant::now());
    server.pace(rate, each);
    told.finishes(6).await;
    let rate = (told.count() - before) as f64 / began.elapsed().as_secs_f64();
    told.timed.store(false, std::sync::atomic::Ordering::Relaxed);
    let all = told.take_latencies();
    Pace { p50: micros(quantile(&all, 0.5)), p99: micros(quantile(&all, 0.99)), rate }
}

/// Has them send events as fast as they are read; how many were told a second. Of the events of one object some may
/// merge on the way, so what counts is how many there were.
pub(crate) async fn burst(server: &mut Remote, told: &Told) -> f64 {
    let each = number("BENCH_EVENTS", 24_000) / 6;
    told.expect(server.last_version() + each);
    let began = Instant::now();
    server.flood(each);
    told.finishes(6).await;
    (each * 6) as f64 / began.elapsed().as_secs_f64()
}

fn print(all: &[(Phase, Felt)]) {
    let alone = &all[0].1;
    let mut table = figures(
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
    for (phase, felt) in all {
        table.add_row([
            phase.name().to_owned(),
            felt.p50.text(0),
            felt.p99.text(0),
            felt.p99.over(&alone.p99).text(2),
            felt.rate.text(0),
            felt.burst.text(0),
            felt.burst.over(&alone.burst).text(2),
            felt.cores.text(2),
            felt.flood.text(0),
        ]);
    }
    println!("{table}");
}
