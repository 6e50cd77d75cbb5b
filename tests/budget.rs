//! Tests that resident memory stays below the memory limit: after the limit is lowered to half of the usage under load,
//! and during a first list that is larger than the limit.
//!
//! Runs as a separate process without a test harness, because it measures the whole process.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::hub::{end, idle_hub, watch_pods};
use common::process;
use common::server::{Remote, RemoteConfig};
use informer_hub::actors::{InformerMemory, InformerStatus, MemoryStatus};
use informer_hub::app::{Hub, api_resource};
use informer_hub_sim::replay::Shape;
use informer_hub_types::MemoryStep;
use k8s_openapi::api::core::v1::Pod;

#[path = "../benches/common/mod.rs"]
mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Pods of the large cluster, with incompressible bodies, and of the small one.
const PODS: (u64, u64) = (20_000, 2_000);

/// Events per second of the large and the small cluster.
const RATE: (u32, u32) = (400, 40);

/// Time until a new limit must be kept. The allocator returns freed pages over about ten seconds.
const DEADLINE: Duration = Duration::from_secs(30);

/// Time during which the limit must stay kept.
const STAYS: Duration = Duration::from_secs(5);

/// Limit that fits the program and the heads of the large cluster, but not its bodies, in bytes.
const TIGHT: u64 = 104 << 20;
/// Memory usage well below [`TIGHT`], in bytes.
const CLEAR: u64 = 80 << 20;

fn main() {
    common::server::serve_if_asked();
    common::runtime().block_on(async {
        limit_lowered_under_load_is_kept_and_bodies_come_back_later().await;
        list_larger_than_the_limit_never_exceeds_it().await;
    });
}

async fn limit_lowered_under_load_is_kept_and_bodies_come_back_later() {
    let server = |pods, shape| Remote::start(&RemoteConfig { pods, shape, ..RemoteConfig::default() });
    let (mut large, mut small) = (server(PODS.0, Shape::Noise), server(PODS.1, Shape::Pods));
    let hub = idle_hub(&[large.url.clone(), small.url.clone()], None).await;
    let (_listener, received) = watch_pods(&hub, &[]).await;
    received.wait_for_count(PODS.0 + PODS.1).await;
    large.pace(RATE.0, u64::from(RATE.0) * 300);
    small.pace(RATE.1, u64::from(RATE.1) * 300);
    // Waits until recent objects are compressed and the memory of the list is returned.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = process::rss();
    assert_eq!((memory(&hub).await, informer(&hub, 0).await.memory), (None, None), "no memory status without a limit");

    let limit = before / 2;
    let began = Instant::now();
    hub.set_memory_limit(Some(limit)).await.unwrap();
    let received_before = received.count();
    let (mut peak, mut since) = (0, Instant::now());
    while since.elapsed() < STAYS {
        let now = process::rss();
        if now > limit {
            assert!(began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {} MiB of {}", mib(now), mib(limit));
            (peak, since) = (0, Instant::now());
        } else {
            peak = peak.max(now);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let kept_after = since - began;
    let (shown, [one, other]) = (memory(&hub).await.unwrap(), [informer(&hub, 0).await, informer(&hub, 1).await]);
    println!(
        "{} MiB, halved: kept after {kept_after:.1?}, at most {} MiB of {} then",
        mib(before),
        mib(peak),
        mib(limit)
    );
    println!("{shown:?}\n{:?}\n{:?}", one.memory, other.memory);
    assert_eq!((shown.limit, shown.short), (limit, 1));
    assert!(shown.resident.unwrap() <= limit && shown.accounted > 0, "{shown:?}");
    let InformerMemory { step, since, reason, share, used, .. } = one.memory.unwrap();
    assert_eq!((step, one.objects), (MemoryStep::Heads, PODS.0));
    assert!(since.is_some() && reason.is_some() && used <= share, "{since:?} {reason:?} {used} {share}");
    let untouched = other.memory.unwrap();
    assert_eq!((untouched.step, untouched.since, other.objects), (MemoryStep::Full, None, PODS.1));
    assert!(received.count() > received_before, "events keep arriving");
    assert_eq!(one.listeners[0].lost + other.listeners[0].lost, 0);
    assert!(bodies(&hub).await < PODS.0 + PODS.1);

    hub.set_memory_limit(Some(before * 2)).await.unwrap();
    until("all bodies are restored", async || bodies(&hub).await == PODS.0 + PODS.1).await;
    assert_eq!(memory(&hub).await.unwrap().short, 0);
    assert!(hub.set_memory_limit(Some(1 << 20)).await.is_err());
    end(hub).await;
}

async fn list_larger_than_the_limit_never_exceeds_it() {
    until("the memory of the first hub is returned", async || process::rss() < CLEAR).await;
    let server = Remote::start(&RemoteConfig { pods: PODS.0, shape: Shape::Noise, ..RemoteConfig::default() });
    let hub = idle_hub(std::slice::from_ref(&server.url), None).await;
    hub.set_memory_limit(Some(TIGHT)).await.unwrap();
    let maximum = Arc::new(AtomicU64::new(0));
    let maximum_seen = Arc::downgrade(&maximum);
    let sampler = std::thread::spawn(move || {
        while let Some(maximum) = maximum_seen.upgrade() {
            maximum.fetch_max(process::rss(), Relaxed);
            drop(maximum);
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let (_listener, received) = watch_pods(&hub, &[]).await;
    received.wait_for_count(PODS.0).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let informer = informer(&hub, 0).await;
    let peak = maximum.load(Relaxed);
    println!("listed within {} MiB of {}: {:?}", mib(peak), mib(TIGHT), informer.memory);
    assert!(peak <= TIGHT, "{} MiB of {}", mib(peak), mib(TIGHT));
    assert_eq!((informer.memory.unwrap().step, informer.objects, informer.synced), (MemoryStep::Heads, PODS.0, true));
    drop(maximum);
    sampler.join().unwrap();
    end(hub).await;
}

async fn memory(hub: &Hub) -> Option<MemoryStatus> {
    hub.report().await.unwrap().hub.memory
}

/// Returns the only informer of a cluster.
async fn informer(hub: &Hub, cluster: usize) -> InformerStatus {
    hub.report().await.unwrap().hub.clusters.swap_remove(cluster).informers.swap_remove(0)
}

/// Returns the number of objects whose bodies are cached.
async fn bodies(hub: &Hub) -> u64 {
    let snapshot = hub.cache_of(api_resource::<Pod>()).snapshot().await.unwrap();
    let objects = snapshot.partitions().flat_map(|(_, partition)| partition.iter());
    objects.filter(|object| object.is_kept()).count() as u64
}

async fn until(what: &str, done: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !done().await {
        assert!(began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}; {} MiB", mib(process::rss()));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}
