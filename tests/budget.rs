//! The memory limit, by what the kernel says of this process: it is lowered while events flow, and kept.
//!
//! A process of its own, since it is the whole process that is looked at; no test harness, for the same reason.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use common::hub::{end, idle_hub, watch_pods};
use common::process;
use common::server::{Remote, RemoteConfig};
use informer_hub::actors::InformerStatus;
use informer_hub::app::Hub;
use informer_hub::types::MemoryStep;

#[path = "../benches/common/mod.rs"]
mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Pods of the large cluster and of the small one.
const PODS: (u64, u64) = (60_000, 3_000);

/// Events that arrive each second from the large one.
const RATE: u32 = 500;

fn main() {
    common::server::serve_if_asked();
    common::runtime().block_on(the_limit_is_lowered_under_load_and_kept());
}

async fn the_limit_is_lowered_under_load_and_kept() {
    let server = |pods| Remote::start(&RemoteConfig { pods, ..RemoteConfig::default() });
    let (mut large, mut small) = (server(PODS.0), server(PODS.1));
    let hub = idle_hub(&[large.url.clone(), small.url.clone()], None).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let idle = process::rss();
    let (_listener, told) = watch_pods(&hub, &[]).await;
    told.reaches(PODS.0 + PODS.1).await;
    println!("idle {} MiB, synced {} MiB", mib(idle), mib(process::rss()));
    large.pace(RATE, u64::from(RATE) * 60);
    small.pace(50, 3_000);
    tokio::time::sleep(Duration::from_secs(8)).await;
    println!("under load {} MiB", mib(process::rss()));
    let before = process::rss();

    let limit = idle + (before - idle) / 2;
    println!("limit {} MiB", mib(limit));
    use informer_hub::actors::messages::SetMemoryLimit;
    hub.registry().send(SetMemoryLimit(Some(limit))).await.unwrap();
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let status = hub.report().await.unwrap().hub;
        println!(
            "rss {} MiB, {:?} {:?}",
            mib(process::rss()),
            status.memory,
            informers(&hub).await.iter().map(|i| i.memory.clone()).collect::<Vec<_>>()
        );
    }
    end(hub).await;
}

async fn informers(hub: &Hub) -> Vec<InformerStatus> {
    let status = hub.report().await.unwrap().hub;
    status.clusters.into_iter().flat_map(|cluster| cluster.informers).collect()
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}
