//! What a hub's memory is after it has synced with one replay server, and at its peak.

use std::time::Duration;

use informer_hub::app::Hub;
use informer_hub_sim::replay::Shape;

use super::heap::{self, Heap};
use super::hub::{Told, end, idle_hub, watch_pods};
use super::process;
use super::server::{Remote, RemoteConfig};

/// How often it is looked whether the memory still changes.
const LOOK: Duration = Duration::from_millis(500);
/// For how long it may not change any more: longer than a cache waits before it compresses what is young.
const STEADY_LOOKS: usize = 10;
/// How long it may take to become steady.
const LOOKS: usize = 80;

/// Before the list, after it, and between.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Objects.
    pub objects: u64,
    /// The heap before and after.
    pub heap: (Heap, Heap),
    /// What is resident before and after.
    pub rss: (u64, u64),
    /// What of that is anonymous, before and after.
    pub anonymous: (u64, u64),
    /// The most that was resident in between.
    pub peak: u64,
    /// User and system time from before the list until every object was told of.
    pub sync_cpu: Duration,
}

impl Footprint {
    /// Growth of one figure for each object, in bytes.
    pub fn per_object(&self, (before, after): (u64, u64)) -> f64 {
        (after as f64 - before as f64) / self.objects as f64
    }

    /// Growth of what is allocated.
    pub fn allocated(&self) -> f64 {
        self.per_object((self.heap.0.allocated, self.heap.1.allocated))
    }

    /// Growth of the pages that anything lies in.
    pub fn active(&self) -> f64 {
        self.per_object((self.heap.0.active, self.heap.1.active))
    }

    /// Growth of what is resident.
    pub fn resident(&self) -> f64 {
        self.per_object(self.rss)
    }

    /// Growth of what is resident and in no file.
    pub fn anonymous(&self) -> f64 {
        self.per_object(self.anonymous)
    }

    /// Growth up to the peak.
    pub fn at_peak(&self) -> f64 {
        self.per_object((self.rss.0, self.peak))
    }

    /// How far the peak is above what is settled.
    pub fn peak_ratio(&self) -> f64 {
        self.at_peak() / self.resident()
    }
}

/// Has a hub sync with a replay server of so many pods; calls `look` at the end, while everything still runs.
pub async fn measure<T>(pods: u64, shape: Shape, look: impl AsyncFnOnce(&Hub) -> T) -> (Footprint, T) {
    measure_on(pods, shape, async |run| look(&run.hub).await).await
}

/// What runs while it is looked at.
pub struct Run {
    /// The hub.
    pub hub: Hub,
    /// What it reads from.
    pub server: Remote,
    /// What its listener has been told.
    pub told: Told,
}

/// The same for who has more happen.
pub async fn measure_on<T>(pods: u64, shape: Shape, look: impl AsyncFnOnce(&mut Run) -> T) -> (Footprint, T) {
    let server = Remote::start(&RemoteConfig { pods, shape, ..RemoteConfig::default() });
    let hub = idle_hub(std::slice::from_ref(&server.url), None).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    process::forget_peak();
    let before = Level::now();
    let cpu = process::cpu();
    let (_listener, told) = watch_pods(&hub, &[]).await;
    told.reaches(pods).await;
    let sync_cpu = process::cpu().checked_sub(cpu).unwrap();
    settle().await;
    let after = Level::now();
    let footprint = Footprint {
        objects: pods,
        heap: (before.heap, after.heap),
        rss: (before.rss, after.rss),
        anonymous: (before.anonymous, after.anonymous),
        peak: process::peak_rss(),
        sync_cpu,
    };
    let mut run = Run { hub, server, told };
    let seen = look(&mut run).await;
    end(run.hub).await;
    (footprint, seen)
}

/// A moment.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// The heap.
    pub heap: Heap,
    /// What is resident.
    pub rss: u64,
    /// What of that is anonymous.
    pub anonymous: u64,
}

impl Level {
    /// This one.
    pub fn now() -> Self {
        Self { heap: heap::now(), rss: process::rss(), anonymous: process::anonymous() }
    }
}

/// Returns when memory has not changed for a while.
pub async fn settle() {
    let mut steady = (0, 0_u64);
    for _ in 0..LOOKS {
        tokio::time::sleep(LOOK).await;
        let now = heap::now().resident;
        let changed = now.abs_diff(steady.1) > now / 200;
        steady = if changed { (0, now) } else { (steady.0 + 1, steady.1) };
        if steady.0 >= STEADY_LOOKS {
            return;
        }
    }
}
