//! Memory of a hub after it has synced with a replay server, and at the peak.

use std::time::Duration;

use informer_hub::app::Hub;
use informer_hub_sim::replay::Shape;

use super::heap::{self, Heap};
use super::hub::{Notified, end, idle_hub, watch_pods};
use super::process;
use super::server::{Remote, RemoteConfig};

/// Interval between two samples of the memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Number of consecutive samples within 0.5 % of each other after which the memory counts as settled. They take 5 s,
/// longer than a cache waits before it compresses new objects.
const STEADY_SAMPLES: usize = 10;
/// Maximum number of samples.
const MAX_SAMPLES: usize = 80;

/// Memory before, during and after the first list.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    /// Number of objects.
    pub objects: u64,
    /// Heap before and after.
    pub heap: (Heap, Heap),
    /// Resident bytes before and after.
    pub rss: (u64, u64),
    /// Anonymous resident bytes before and after.
    pub anonymous: (u64, u64),
    /// Peak of the resident bytes.
    pub peak: u64,
    /// User and system time from the start of the list to the notification of the last object.
    pub sync_cpu: Duration,
}

impl Footprint {
    /// Returns the growth of a figure in bytes per object.
    pub fn per_object(&self, (before, after): (u64, u64)) -> f64 {
        (after as f64 - before as f64) / self.objects as f64
    }

    /// Returns the growth of the allocated bytes per object.
    pub fn allocated(&self) -> f64 {
        self.per_object((self.heap.0.allocated, self.heap.1.allocated))
    }

    /// Returns the growth of the active pages per object.
    pub fn active(&self) -> f64 {
        self.per_object((self.heap.0.active, self.heap.1.active))
    }

    /// Returns the growth of the resident bytes per object.
    pub fn resident(&self) -> f64 {
        self.per_object(self.rss)
    }

    /// Returns the growth of the anonymous resident bytes per object.
    pub fn anonymous(&self) -> f64 {
        self.per_object(self.anonymous)
    }

    /// Returns the growth up to the peak per object.
    pub fn at_peak(&self) -> f64 {
        self.per_object((self.rss.0, self.peak))
    }

    /// Returns the ratio of the peak to the settled growth.
    pub fn peak_ratio(&self) -> f64 {
        self.at_peak() / self.resident()
    }
}

/// Syncs a hub with a replay server of `pods` pods, and calls `look` at the end while everything still runs.
pub async fn measure<T>(pods: u64, shape: Shape, look: impl AsyncFnOnce(&Hub) -> T) -> (Footprint, T) {
    measure_on(pods, shape, async |run| look(&run.hub).await).await
}

/// Running parts of a measurement.
pub struct Run {
    /// The hub.
    pub hub: Hub,
    /// The server that it reads from.
    pub server: Remote,
    /// Counters of its listener.
    pub notified: Notified,
}

/// Like [`measure`], with access to the server and the listener.
pub async fn measure_on<T>(pods: u64, shape: Shape, look: impl AsyncFnOnce(&mut Run) -> T) -> (Footprint, T) {
    let server = Remote::start(&RemoteConfig { pods, shape, ..RemoteConfig::default() });
    let hub = idle_hub(std::slice::from_ref(&server.url), None).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    process::forget_peak();
    let before = Level::now();
    let cpu = process::cpu();
    let (_listener, notified) = watch_pods(&hub, &[]).await;
    notified.wait_for_count(pods).await;
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
    let mut run = Run { hub, server, notified };
    let seen = look(&mut run).await;
    end(run.hub).await;
    (footprint, seen)
}

/// Memory at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// Heap.
    pub heap: Heap,
    /// Resident bytes.
    pub rss: u64,
    /// Anonymous resident bytes.
    pub anonymous: u64,
}

impl Level {
    /// Reads the current values.
    pub fn now() -> Self {
        Self { heap: heap::now(), rss: process::rss(), anonymous: process::anonymous() }
    }
}

/// Waits until the memory has settled, at most [`MAX_SAMPLES`] samples.
pub async fn settle() {
    let mut steady = (0, 0_u64);
    for _ in 0..MAX_SAMPLES {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        let now = heap::now().resident;
        let changed = now.abs_diff(steady.1) > now / 200;
        steady = if changed { (0, now) } else { (steady.0 + 1, steady.1) };
        if steady.0 >= STEADY_SAMPLES {
            return;
        }
    }
}
