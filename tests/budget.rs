//! The memory limit, by what the kernel says of this process: it is lowered to half of what the hub takes while events
//! flow, and kept.
//!
//! A process of its own, since it is the whole process that is looked at; no test harness, for the same reason.
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

/// Pods of the large cluster, whose bodies do not compress, and of the small one.
const PODS: (u64, u64) = (20_000, 2_000);

/// Events that arrive each second from the one and the other, longer than the test takes.
const RATE: (u32, u32) = (400, 40);

/// How long a limit may take to be kept: the allocator gives pages back over ten seconds.
const DEADLINE: Duration = Duration::from_secs(30);

/// For how long it is looked whether it stays kept.
const STAYS: Duration = Duration::from_secs(5);

/// A limit that holds the program and the heads of the large cluster, and not its bodies; and what is well below it.
const TIGHT: u64 = 104 << 20;
const CLEAR: u64 = 80 << 20;

fn main() {
    common::server::serve_if_asked();
    common::runtime().block_on(async {
        a_limit_that_is_lowered_under_load_is_kept_and_the_rest_comes_back().await;
        a_list_that_does_not_fit_passes_the_limit_at_no_moment().await;
    });
}

async fn a_limit_that_is_lowered_under_load_is_kept_and_the_rest_comes_back() {
    let server = |pods, shape| Remote::start(&RemoteConfig { pods, shape, ..RemoteConfig::default() });
    let (mut large, mut small) = (server(PODS.0, Shape::Noise), server(PODS.1, Shape::Pods));
    let hub = idle_hub(&[large.url.clone(), small.url.clone()], None).await;
    let (_listener, notified) = watch_pods(&hub, &[]).await;
    notified.wait_for_count(PODS.0 + PODS.1).await;
    large.pace(RATE.0, u64::from(RATE.0) * 300);
    small.pace(RATE.1, u64::from(RATE.1) * 300);
    // What is young is compressed, and what the list needed is given back.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = process::rss();
    assert_eq!((memory(&hub).await, informer(&hub, 0).await.memory), (None, None), "without a limit nothing is shown");

    let limit = before / 2;
    let began = Instant::now();
    hub.set_memory_limit(Some(limit)).await.unwrap();
    let notified_before = notified.count();
    let (mut most, mut since) = (0, Instant::now());
    while since.elapsed() < STAYS {
        let now = process::rss();
        if now > limit {
            assert!(began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {} MiB of {}", mib(now), mib(limit));
            (most, since) = (0, Instant::now());
        } else {
            most = most.max(now);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let kept_after = since - began;
    let (shown, [one, other]) = (memory(&hub).await.unwrap(), [informer(&hub, 0).await, informer(&hub, 1).await]);
    println!(
        "{} MiB, halved: kept after {kept_after:.1?}, at most {} MiB of {} then",
        mib(before),
        mib(most),
        mib(limit)
    );
    println!("{shown:?}\n{:?}\n{:?}", one.memory, other.memory);
    assert_eq!((shown.limit, shown.short), (limit, 1));
    assert!(shown.resident.unwrap() <= limit && shown.accounted > 0, "{shown:?}");
    let InformerMemory { step, since, reason, share, used } = one.memory.unwrap();
    assert_eq!((step, one.objects), (MemoryStep::Heads, PODS.0));
    assert!(since.is_some() && reason.is_some() && used <= share, "{since:?} {reason:?} {used} {share}");
    let untouched = other.memory.unwrap();
    assert_eq!((untouched.step, untouched.since, other.objects), (MemoryStep::Full, None, PODS.1));
    assert!(notified.count() > notified_before, "events go on arriving");
    assert_eq!(one.listeners[0].lost + other.listeners[0].lost, 0);
    assert!(bodies(&hub).await < PODS.0 + PODS.1);

    hub.set_memory_limit(Some(before * 2)).await.unwrap();
    until("every body is back", async || bodies(&hub).await == PODS.0 + PODS.1).await;
    assert_eq!(memory(&hub).await.unwrap().short, 0);
    assert!(hub.set_memory_limit(Some(1 << 20)).await.is_err());
    end(hub).await;
}

async fn a_list_that_does_not_fit_passes_the_limit_at_no_moment() {
    until("the memory of the first hub is given back", async || process::rss() < CLEAR).await;
    let server = Remote::start(&RemoteConfig { pods: PODS.0, shape: Shape::Noise, ..RemoteConfig::default() });
    let hub = idle_hub(std::slice::from_ref(&server.url), None).await;
    hub.set_memory_limit(Some(TIGHT)).await.unwrap();
    let most = Arc::new(AtomicU64::new(0));
    let scales = Arc::downgrade(&most);
    let looker = std::thread::spawn(move || {
        while let Some(most) = scales.upgrade() {
            most.fetch_max(process::rss(), Relaxed);
            drop(most);
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let (_listener, notified) = watch_pods(&hub, &[]).await;
    notified.wait_for_count(PODS.0).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let informer = informer(&hub, 0).await;
    let peak = most.load(Relaxed);
    println!("listed within {} MiB of {}: {:?}", mib(peak), mib(TIGHT), informer.memory);
    assert!(peak <= TIGHT, "{} MiB of {}", mib(peak), mib(TIGHT));
    assert_eq!((informer.memory.unwrap().step, informer.objects, informer.synced), (MemoryStep::Heads, PODS.0, true));
    drop(most);
    looker.join().unwrap();
    end(hub).await;
}

async fn memory(hub: &Hub) -> Option<MemoryStatus> {
    hub.report().await.unwrap().hub.memory
}

/// The one informer of a cluster.
async fn informer(hub: &Hub, cluster: usize) -> InformerStatus {
    hub.report().await.unwrap().hub.clusters.swap_remove(cluster).informers.swap_remove(0)
}

/// Objects whose bodies are in the cache.
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
