//! Plan of a simulation, drawn from its seed before the first run.

use std::time::Duration;

use informer_hub_config::{ClusterConfig, Encodings, HttpVersions, ReadApiConfig};
use informer_hub_sim::{FaultScript, SimConfig};
use informer_hub_testing::choice;
use informer_hub_types::Fsync;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::receiver::Limits;

/// Longer than a simulation lasts.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// Parameters of a simulation.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) clusters: u64,
    pub(crate) pods: usize,
    /// Runs with faults before the final run.
    pub(crate) runs: usize,
    pub(crate) fsync: Fsync,
    pub(crate) checkpoint: Duration,
    /// Size limit of each journal, in bytes.
    pub(crate) journal: u64,
    /// Probability of a fault per request. Zero with small journals: they cannot hold a huge object, and at their limit
    /// they drop the bodies of delivered events, which a relist after 410 would reveal.
    pub(crate) faults: f64,
    /// Whether the disk fills up occasionally.
    pub(crate) fills_up: bool,
    /// Probability that a writing disk call fails during a disk fault.
    pub(crate) bad_disk: f64,
    /// Probability that a sync is lost. If it is not zero, nothing is guaranteed after a power loss.
    pub(crate) lost_syncs: f64,
    /// Whether runs may end by a power loss instead of a kill.
    pub(crate) power: bool,
    /// Content limits of each webhook receiver.
    pub(crate) limits: Vec<Limits>,
    /// Time after which a webhook gives up on a batch.
    pub(crate) give_up_after: Duration,
    /// Time after which a webhook gives up on a refused event.
    pub(crate) refused_for: Duration,
    /// Whether there is a state directory, without which there are no durable readers and no receivers.
    pub(crate) has_state: bool,
    /// Limits of the Kubernetes read API.
    pub(crate) reads: ReadApiConfig,
    /// Encoding and HTTP version between hub and clusters.
    pub(crate) wire: Wire,
    /// Generator for decisions during the runs.
    pub(crate) rng: StdRng,
}

impl Plan {
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5157_a11e);
        let fsync = match rng.random_range(0..5) {
            0 => Fsync::Within(Duration::ZERO),
            1 => Fsync::Within(Duration::from_millis(200)),
            2 => Fsync::Never,
            _ => Fsync::default(),
        };
        let has_small_journals = rng.random_bool(0.4);
        let journal = if has_small_journals { [256 << 10, 1 << 20][rng.random_range(0..2)] } else { 1 << 30 };
        let lost_syncs = if rng.random_bool(0.1) { rng.random_range(0.01..0.5) } else { 0.0 };
        // Journals at their limits merge events, which changes their ids.
        let limits_of = |rng: &mut StdRng| Limits {
            refuse_one_in: (!has_small_journals && rng.random_bool(0.5)).then(|| rng.random_range(5..50)),
            max_events: rng.random_bool(0.4).then(|| rng.random_range(1..20)),
        };
        let receivers = [0, 0, 1, 1, 2][rng.random_range(0..5)];
        let limits = (0..receivers).map(|_| limits_of(&mut rng)).collect();
        let gives_up = !has_small_journals && rng.random_bool(0.3);
        let give_up_after = if gives_up { Duration::from_secs(4) } else { NEVER };
        // Longer than a run, about as long as one, and zero.
        let refused_for = Duration::from_secs([600, 3, 0][(seed % 3) as usize]).min(give_up_after);
        Self {
            seed,
            clusters: rng.random_range(1..4),
            pods: rng.random_range(1..40),
            runs: rng.random_range(1..6),
            fsync,
            checkpoint: Duration::from_millis([50, 300, 1000, 5000][rng.random_range(0..4)]),
            journal,
            faults: if has_small_journals { 0.0 } else { [0.0, 0.05, 0.3][rng.random_range(0..3)] },
            fills_up: rng.random_bool(0.4),
            bad_disk: [0.0, 0.02, 0.2][rng.random_range(0..3)],
            lost_syncs,
            power: rng.random_bool(0.5),
            limits,
            give_up_after,
            refused_for,
            has_state: true,
            reads: reads(seed),
            wire: Wire::drawn(seed),
            rng,
        }
    }

    /// Draws a plan without a state directory.
    pub(crate) fn without_state(seed: u64) -> Self {
        Self { has_state: false, limits: Vec::new(), ..Self::drawn(seed) }
    }

    /// Returns whether readers get each event once and in order, also over restarts.
    ///
    /// A full journal or disk drops delivered events, so some may be delivered again after a restart. On a failing
    /// disk, a power loss may keep a later unsynced event and lose an earlier one.
    pub(crate) fn guarantees_order(&self) -> bool {
        let has_room = !self.has_small_journals() && !self.fills_up;
        let keeps_unsynced = !self.power || self.bad_disk == 0.0;
        has_room && keeps_unsynced
    }

    /// Returns whether webhooks give up on batches.
    pub(crate) fn gives_up(&self) -> bool {
        self.give_up_after < NEVER
    }

    /// Returns whether journals are so small that they reach their limits.
    pub(crate) fn has_small_journals(&self) -> bool {
        self.journal < 1 << 30
    }

    /// Returns the maximum disk usage of a reader: its journal, and the output of a merge before the merged files are
    /// deleted.
    pub(crate) fn max_bytes(&self) -> u64 {
        2 * self.journal
    }

    /// Returns whether readers must converge in the end.
    ///
    /// There is no guarantee if synced data may be lost. There is none either if a disk is both full and failing: a
    /// kill may then hit a journal that has dropped delivered events to make room.
    pub(crate) fn guarantees_convergence(&self) -> bool {
        let may_lose = self.fills_up && self.bad_disk > 0.0;
        !may_lose && (!self.power || (self.lost_syncs == 0.0 && self.fsync != Fsync::Never))
    }
}

/// Encoding and HTTP version between hub and clusters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) encoding: Encoding,
    pub(crate) is_http2: bool,
}

/// Encoding between hub and clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoding {
    /// The hub requests protobuf, and the clusters have it.
    Protobuf,
    /// The hub requests JSON only.
    Json,
    /// The hub requests protobuf, which the clusters lack.
    Refused,
}

impl Encoding {
    pub(crate) const ALL: [Self; 3] = [Self::Protobuf, Self::Json, Self::Refused];
}

/// HTTP/2 streams of a connection.
const STREAMS: u32 = 100;

impl Wire {
    /// Draws an encoding and an HTTP version, unless `INFORMER_HUB_ENCODING` (`auto`, `json`) or `INFORMER_HUB_HTTP`
    /// (`1`, `2`) selects one.
    fn drawn(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x3172_E0DE);
        let drawn = if rng.random_bool(0.6) { Encoding::Protobuf } else { Encoding::ALL[rng.random_range(1..3)] };
        let drawn_http2 = rng.random_bool(0.5);
        let encoding = choice("INFORMER_HUB_ENCODING", &[("auto", Encoding::Protobuf), ("json", Encoding::Json)]);
        let is_http2 = choice("INFORMER_HUB_HTTP", &[("1", false), ("2", true)]);
        Self { encoding: encoding.unwrap_or(drawn), is_http2: is_http2.unwrap_or(drawn_http2) }
    }

    /// Applies the encoding and the HTTP version to a simulated cluster.
    pub(crate) fn serve(self, cluster: SimConfig) -> SimConfig {
        let http2 = self.is_http2.then_some(STREAMS);
        SimConfig { protobuf: self.encoding != Encoding::Refused, http2, ..cluster }
    }

    /// Applies the encoding and the HTTP version to the hub's configuration of a cluster.
    pub(crate) fn apply(self, cluster: &mut ClusterConfig) {
        cluster.encoding = if self.encoding == Encoding::Json { Encodings::Json } else { Encodings::Auto };
        cluster.http = if self.is_http2 { HttpVersions::Http2 } else { HttpVersions::Http1 };
    }

    /// Returns random faults, with those of the encoding and the HTTP version.
    pub(crate) fn faults(self, seed: u64, intensity: f64) -> FaultScript {
        let faults = FaultScript::seeded(seed, intensity);
        let faults = if self.encoding == Encoding::Protobuf { faults.with_protobuf() } else { faults };
        if self.is_http2 { faults.with_http2() } else { faults }
    }
}

/// Draws the limits of the read API. With small limits, the hub expires watches and refuses readers.
fn reads(seed: u64) -> ReadApiConfig {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x4EAD_5EED);
    let mut reads = ReadApiConfig::default();
    reads.window_bytes = [4 << 10, 64 << 10, 16 << 20][rng.random_range(0..3)];
    reads.window_age = Duration::from_secs([2, 300, 300][rng.random_range(0..3)]);
    reads.max_requests = [1, 3, 64][rng.random_range(0..3)];
    reads.max_watches = [3, 10_000][rng.random_range(0..2)];
    reads
}
