//! The governor: looks several times a second at the memory, and has informers keep less or more.
//!
//! What it decides is decided by [`crate::budget`]; here is the timer, and who is told. A step is in the informer's
//! health before the informer is told, so one that starts anew begins with it; a governor that starts anew finds it.
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
use crate::actors::memory::budget::TakeStep;
use crate::actors::memory::budget::{Member, MemoryStatus};
use crate::actors::runtime::capacity::CONTROL_MAILBOX;
use crate::actors::runtime::supervision::ExitGuard;
use crate::budget::{Change, Governor, Reading, Report, UNLIMITED, Usage};
use crate::cache::{Partition, Snapshot};
use informer_hub_types::{InformerHealth, MemoryStep, ObjectKey, Origin, clock, object_memory, rng};

/// What is taken for a state that waits for a subscriber, where nothing is known of its informer's bodies.
const STATE: u64 = 1024;

/// More objects than any list has: what an apiserver says of the rest of one may be anything.
const MOST: u64 = 1 << 32;

/// See the module.
pub(in crate::actors) struct GovernorActor {
    env: Env,
    limit: Option<u64>,
    governor: Governor<u64>,
    samples: BTreeMap<u64, Sample>,
    /// Of partitions from disk that no informer has opened yet, by the address of their health.
    unopened: BTreeMap<usize, Sample>,
    /// Set while there is something to look at.
    ticking: Option<SpawnHandle>,
    _guard: ExitGuard,
}

impl GovernorActor {
    pub(in crate::actors) fn new(env: Env, limit: Option<u64>, guard: ExitGuard) -> Self {
        let governor = Governor::new(env.tuning.memory.pace);
        Self { env, limit, governor, samples: BTreeMap::new(), unopened: BTreeMap::new(), ticking: None, _guard: guard }
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
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
            tell(&members[&change.id], change);
        }
        self.env.budget.headroom().refill(verdict.report.headroom);
        self.show(&members, &verdict.report);
        if self.limit.is_none() {
            self.ticking.take().map(|timer| ctx.cancel_future(timer));
        }
    }

    /// Shows the memory of partitions that no informer has opened yet: they came from disk, and their cluster has not
    /// answered.
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

    fn show(&self, members: &BTreeMap<u64, Member>, report: &Report) {
        let short = members.values().filter(|member| member.health.memory.step() != MemoryStep::Full).count();
        let Report { resident, accounted, .. } = *report;
        let status = self.limit.map(|limit| MemoryStatus { limit, resident, accounted, short });
        self.env.budget.show(status, accounted);
    }

    fn watch(&mut self, ctx: &mut Context<Self>) {
        if self.ticking.is_none() {
            self.ticking = Some(ctx.run_interval(self.env.tuning.memory.look, Self::look));
        }
        self.look(ctx);
    }
}

/// Notes a step where everybody sees it, then has the informer take it. The last of several changes of one informer is
/// what it finds.
fn tell(member: &Member, change: Change<u64>) {
    let Origin { cluster, resource, scope, .. } = &*member.origin;
    let (from, to, reason) = (change.from, change.to, change.reason);
    if to > from {
        tracing::warn!(%cluster, resource = %resource.gvr, %scope, %from, %to, reason, "memory is short, an informer keeps less");
    } else {
        tracing::info!(%cluster, resource = %resource.gvr, %scope, %from, %to, reason, "an informer may keep more again");
    }
    member.health.memory.set_step(to, Some(reason));
    // An error means that it has just ended; whoever follows it finds the step.
    let _ = member.address.try_send(TakeStep);
}

fn address(health: &Arc<InformerHealth>) -> usize {
    Arc::as_ptr(health).addr()
}

/// What each informer uses: its own counts, and what bodies take by samples of them.
fn usages(
    members: &BTreeMap<u64, Member>,
    caches: &[(Arc<Snapshot>, u64)],
    samples: &mut BTreeMap<u64, Sample>,
) -> BTreeMap<u64, Usage> {
    let mut partitions = BTreeMap::new();
    for (snapshot, young) in caches {
        let plain: u64 = snapshot.partitions().map(|(_, partition)| partition.plain_bytes()).sum();
        let of = |partition: &Partition| (partition.plain_bytes() * young).checked_div(plain).unwrap_or_default();
        partitions.extend(snapshot.partitions().map(|(_, it)| (address(it.health()), (it, of(it)))));
    }
    samples.retain(|number, _| members.contains_key(number));
    let mut usage = |number: u64, member: &Member| {
        let health = &member.health;
        let (objects, plain, bodies, young, staged) = match partitions.get(&address(health)) {
            None => (0, 0, 0, 0, 0),
            Some((partition, young)) => {
                let bodies = samples.entry(number).or_default().bodies(partition);
                let staged = partition.staged_bytes() as u64;
                (partition.len() as u64, partition.plain_bytes(), bodies, bodies.min(*young), staged)
            }
        };
        let state = plain.checked_div(objects).filter(|bytes| *bytes > 0).unwrap_or(STATE);
        let queued = health.fifo_bytes.load(Relaxed) + staged + member.inboxes.pending() * state;
        let expected = health.list_expected.load(Relaxed).min(MOST);
        Usage { step: health.memory.step(), objects, expected, bodies, uncompressed: young, queued }
    };
    members.iter().map(|(number, member)| (*number, usage(*number, member))).collect()
}

/// What part of their JSON the bodies of an informer take, by a walk over its objects, some at each look.
#[derive(Default)]
struct Sample {
    after: Option<ObjectKey>,
    part: Option<f64>,
}

impl Sample {
    /// Objects that are looked at at once: 2 µs.
    const OBJECTS: usize = 32;

    /// How much a look counts against those before it.
    const WEIGHT: f64 = 0.1;

    /// Bytes that the bodies take, about.
    fn bodies(&mut self, partition: &Partition) -> u64 {
        let (mut lies, mut plain, mut looked) = (0, 0, 0);
        for object in partition.iter_after(self.after.take().as_ref()).take(Self::OBJECTS) {
            lies += object.body_size();
            plain += object.plain_size();
            looked += 1;
            self.after = Some(object.key().clone());
        }
        if looked < Self::OBJECTS {
            self.after = None;
        }
        if plain > 0 {
            let part = lies as f64 / plain as f64;
            self.part = Some(self.part.map_or(part, |known| known + (part - known) * Self::WEIGHT));
        }
        (partition.plain_bytes() as f64 * self.part.unwrap_or(1.0)) as u64
    }
}

impl Actor for GovernorActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(CONTROL_MAILBOX);
        self.watch(ctx);
    }

    /// Nobody is held up by a limit that nobody looks after.
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.env.budget.headroom().refill(UNLIMITED);
    }
}

impl Handler<SetMemoryLimit> for GovernorActor {
    type Result = ();

    fn handle(&mut self, SetMemoryLimit(limit): SetMemoryLimit, ctx: &mut Self::Context) {
        self.limit = limit;
        self.watch(ctx);
    }
}
