//! Memory governor: compares memory use with the limit several times a second and sets the informers' memory steps, as
//! [`crate::budget`] decides.
//!
//! This actor provides the timer and applies the decisions. A step is stored in the informer's health before the
//! informer is notified. So a restarted informer begins with the stored step, and a restarted governor finds the steps
//! of all informers.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "estimates of bytes: what is lost is far below what they are sure of"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use actix::prelude::*;

use crate::actors::control::messages::SetMemoryLimit;
use crate::actors::env::Env;
use crate::actors::memory::members::MemoryStepChanged;
use crate::actors::memory::members::{Member, MemoryStatus};
use crate::actors::runtime::capacity::CONTROL_MAILBOX;
use crate::actors::runtime::supervision::ExitGuard;
use crate::budget::{Change, Governor, Reading, Report, UNLIMITED, Usage};
use crate::cache::{Partition, Snapshot};
use informer_hub_types::{InformerHealth, MemoryStep, ObjectKey, Origin, clock, object_memory, rng};

/// Bytes assumed for each queued object, if the sizes of the informer's objects are unknown.
const ASSUMED_STATE_BYTES: u64 = 1024;

/// Upper limit for `remainingItemCount`, the number of objects that a list still has to return, since an apiserver may
/// report any number.
const MAX_EXPECTED: u64 = 1 << 32;

/// Enforces the memory limit; see the module.
pub(in crate::actors) struct GovernorActor {
    env: Env,
    limit: Option<u64>,
    governor: Governor<u64>,
    samples: BTreeMap<u64, Sample>,
    /// Samples of the sizes of bodies in restored partitions that no informer has opened yet. A partition is identified
    /// by the address of its `InformerHealth`.
    unopened: BTreeMap<usize, Sample>,
    /// Timer of the memory checks; set while a memory limit is set.
    timer: Option<SpawnHandle>,
    _guard: ExitGuard,
}

impl GovernorActor {
    pub(in crate::actors) fn new(env: Env, limit: Option<u64>, guard: ExitGuard) -> Self {
        let governor = Governor::new(env.tuning.memory.pace);
        Self { env, limit, governor, samples: BTreeMap::new(), unopened: BTreeMap::new(), timer: None, _guard: guard }
    }

    fn check(&mut self, ctx: &mut Context<Self>) {
        let members = self.env.budget.members();
        let caches = self.env.caches.contents();
        let usages = usages(&members, &caches, &mut self.samples);
        self.show_unopened(&members, &caches);
        let verdict = self.governor.evaluate(&Reading {
            now: clock::now(),
            limit: self.limit,
            resident: self.env.tuning.memory.gauge.resident(),
            usages: &usages,
            jitter: rng::unit(),
        });
        for (number, shown) in &verdict.memory_shares {
            let (health, usage) = (&members[number].health, &usages[number]);
            health.bytes.store(object_memory(usage.objects, usage.bodies), Relaxed);
            let memory = &health.memory;
            memory.share.store(shown.share, Relaxed);
            memory.used.store(shown.used, Relaxed);
        }
        for change in verdict.changes {
            apply_step(&members[&change.id], change);
        }
        self.env.budget.headroom().refill(verdict.report.headroom);
        self.publish(&members, &verdict.report);
        if self.limit.is_none() {
            self.timer.take().map(|timer| ctx.cancel_future(timer));
        }
    }

    /// Publishes the memory of restored partitions that no informer has opened yet.
    fn show_unopened(&mut self, members: &BTreeMap<u64, Member>, caches: &[(Arc<Snapshot>, u64)]) {
        let opened: BTreeSet<_> = members.values().map(|member| address(&member.health)).collect();
        let mut before = std::mem::take(&mut self.unopened);
        for (_, partition) in caches.iter().flat_map(|(snapshot, _)| snapshot.partitions()) {
            let at = address(partition.health());
            if opened.contains(&at) {
                continue;
            }
            let mut sample = before.remove(&at).unwrap_or_default();
            let memory = object_memory(partition.len() as u64, sample.bodies(partition));
            partition.health().bytes.store(memory, Relaxed);
            self.unopened.insert(at, sample);
        }
    }

    fn publish(&self, members: &BTreeMap<u64, Member>, report: &Report) {
        let short = members.values().filter(|member| member.health.memory.step() != MemoryStep::Full).count();
        let Report { resident, accounted, .. } = *report;
        let status = self.limit.map(|limit| MemoryStatus { limit, resident, accounted, short });
        self.env.budget.publish(status, accounted);
    }

    fn start(&mut self, ctx: &mut Context<Self>) {
        if self.timer.is_none() {
            self.timer = Some(ctx.run_interval(self.env.tuning.memory.look, Self::check));
        }
        self.check(ctx);
    }
}

/// Stores a memory step (how much of the objects is kept) in the informer's health, then notifies the informer. If the
/// step changes several times, the informer applies the last.
fn apply_step(member: &Member, change: Change<u64>) {
    let Origin { cluster, resource, scope, .. } = &*member.origin;
    let (from, to, reason) = (change.from, change.to, change.reason);
    if to > from {
        tracing::warn!(
            %cluster, resource = %resource.gvr, %scope, %from, %to, reason,
            "memory is short: the informer drops parts of its objects from memory, or pauses"
        );
    } else {
        tracing::info!(
            %cluster, resource = %resource.gvr, %scope, %from, %to, reason,
            "memory is available again: the informer keeps more parts of its objects in memory"
        );
    }
    member.health.memory.set_step(to, Some(reason));
    // An error means that the informer has just ended; its successor reads the step.
    let _ = member.address.try_send(MemoryStepChanged);
}

fn address(health: &Arc<InformerHealth>) -> usize {
    Arc::as_ptr(health).addr()
}

/// Returns the memory use of each informer, from its counters and from samples of its objects' bodies.
fn usages(
    members: &BTreeMap<u64, Member>,
    caches: &[(Arc<Snapshot>, u64)],
    samples: &mut BTreeMap<u64, Sample>,
) -> BTreeMap<u64, Usage> {
    let mut partitions = BTreeMap::new();
    for (snapshot, uncompressed) in caches {
        let plain: u64 = snapshot.partitions().map(|(_, partition)| partition.plain_bytes()).sum();
        let of =
            |partition: &Partition| (partition.plain_bytes() * uncompressed).checked_div(plain).unwrap_or_default();
        partitions.extend(snapshot.partitions().map(|(_, it)| (address(it.health()), (it, of(it)))));
    }
    samples.retain(|number, _| members.contains_key(number));
    let mut usage = |number: u64, member: &Member| {
        let health = &member.health;
        let (objects, plain, bodies, uncompressed, staged) = match partitions.get(&address(health)) {
            None => (0, 0, 0, 0, 0),
            Some((partition, uncompressed)) => {
                let bodies = samples.entry(number).or_default().bodies(partition);
                let staged = partition.staged_bytes() as u64;
                (partition.len() as u64, partition.plain_bytes(), bodies, bodies.min(*uncompressed), staged)
            }
        };
        let state = plain.checked_div(objects).filter(|bytes| *bytes > 0).unwrap_or(ASSUMED_STATE_BYTES);
        let queued = health.fifo_bytes.load(Relaxed) + staged + member.inboxes.pending() * state;
        let expected = health.list_expected.load(Relaxed).min(MAX_EXPECTED);
        Usage { step: health.memory.step(), objects, expected, bodies, uncompressed, queued }
    };
    members.iter().map(|(number, member)| (*number, usage(*number, member))).collect()
}

/// Ratio (`part`) of the stored bytes of an informer's object bodies to their uncompressed bytes, estimated from some
/// objects at each check. The next check continues after the object `after`.
#[derive(Default)]
struct Sample {
    after: Option<ObjectKey>,
    part: Option<f64>,
}

impl Sample {
    /// Number of objects whose sizes are sampled per check, which takes 2 µs.
    const OBJECTS: usize = 32;

    /// Weight of the newest check in the moving average of the ratio of stored to uncompressed bytes.
    const WEIGHT: f64 = 0.1;

    /// Takes a sample of objects, which continues where the sample of the last check ended. Returns the estimated bytes
    /// of all bodies in the partition, as stored.
    fn bodies(&mut self, partition: &Partition) -> u64 {
        let (mut stored, mut plain, mut visited) = (0, 0, 0);
        for object in partition.iter_after(self.after.take().as_ref()).take(Self::OBJECTS) {
            stored += object.body_size();
            plain += object.plain_size();
            visited += 1;
            self.after = Some(object.key().clone());
        }
        if visited < Self::OBJECTS {
            self.after = None;
        }
        if plain > 0 {
            let part = stored as f64 / plain as f64;
            self.part = Some(self.part.map_or(part, |known| known + (part - known) * Self::WEIGHT));
        }
        (partition.plain_bytes() as f64 * self.part.unwrap_or(1.0)) as u64
    }
}

impl Actor for GovernorActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(CONTROL_MAILBOX);
        self.start(ctx);
    }

    /// Lifts the memory limit. Otherwise reflectors would wait for headroom (bytes left under the limit) that nothing
    /// refills.
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.env.budget.headroom().refill(UNLIMITED);
    }
}

impl Handler<SetMemoryLimit> for GovernorActor {
    type Result = ();

    fn handle(&mut self, SetMemoryLimit(limit): SetMemoryLimit, ctx: &mut Self::Context) {
        self.limit = limit;
        self.start(ctx);
    }
}
