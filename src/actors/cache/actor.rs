//! Cache actor: owns the write half of one resource's store, over all clusters, and answers queries.
//!
//! Queries that may scan many objects run on separate threads over a snapshot, so a write never waits for a query.
//! Compression runs on separate threads too. A processor (the writer of an informer's changes) waits for compression
//! only if uncompressed objects far exceed their limit. After a large batch, or a batch of a first list, it waits at
//! 1.5 times the limit. After other batches, it waits at 3 times the limit.

mod expiry;
pub(in crate::actors) mod history;
mod index_builds;
mod memory_steps;
mod restore;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use actix::prelude::*;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::actors::cache::messages::{
    AppliedBatch, Apply, Ask, CloseAbandoned, ClosePartition, Expect, Maintain, OpenPartition, OpenedPartition,
    TakeSnapshot,
};
use crate::actors::cache::query_runner::{PendingAnswer, QueryRunner};
use crate::actors::cache::write_half::Lease;
use crate::actors::cache::write_half::{SharedWriteHalf, WrittenBatch, is_small};
use crate::actors::checkpoint::store::Checkpoints;
use crate::actors::runtime::capacity::{MAILBOX, Tuning};
use crate::actors::runtime::pressure::PressureSource;
use crate::actors::runtime::supervision::{ActorCount, ExitGuard, stop_with};
use crate::actors::runtime::thread_pools::ThreadPools;
use crate::cache::{
    HistoryLimits, OwnerChain, Packing, PinnedSnapshots, Round, Snapshot, Store, Uncompressed, owner_chain,
};
use informer_hub_types::{
    ApiResource, ClusterName, Gvr, MemoryStep, Object, Origin, PackedTotals, StoredObject, Threads, View, clock,
};

/// Owns the store of one resource and serialises writes to it; see the module.
pub struct CacheActor {
    write_half: SharedWriteHalf,
    packs: Packing,
    checkpoints: Checkpoints,
    next_lease: u64,
    io: Threads,
    query_runner: QueryRunner,
    /// Snapshots retained for continue tokens.
    pinned: Arc<Mutex<PinnedSnapshots>>,
    /// Timer that expires retained snapshots and recorded changes; `None` once there are no such snapshots and changes
    /// left.
    expiry_timer: Option<SpawnHandle>,
    /// Set while compression work runs: a compression round, or a slice of the sweep (recompression of poorly packed
    /// chunks). A processor that must wait for the work gets a [`Pressure`](crate::actors::runtime::pressure::Pressure)
    /// from this source. Dropping the source at the end of the work ends the wait.
    packing: Option<PressureSource>,
    /// Whether the sweep, which recompresses poorly packed chunks, works on a slice or pauses after one.
    sweeping: bool,
    /// Timer that compresses all objects that are not compressed yet, once the resource is idle.
    idle_timer: Option<SpawnHandle>,
    /// Callers waiting for index builds.
    waiting: index_builds::BuildWaiters,
    _guard: ExitGuard,
}

/// Idle time after which all objects of a resource are compressed. The actual delay is up to twice this.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// Pause after a slice of the sweep (recompression of poorly packed chunks), as a multiple of the time the slice took.
/// Limits the sweep to a fifth of a core.
const SWEEP_PAUSE_FACTOR: u32 = 4;

/// Shortest pause after a slice of the sweep (recompression of poorly packed chunks).
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

impl CacheActor {
    fn new(
        write_half: SharedWriteHalf,
        packs: Packing,
        checkpoints: Checkpoints,
        (io, query_runner): (Threads, QueryRunner),
        guard: ExitGuard,
    ) -> Self {
        let pinned = Arc::clone(write_half.pinned());
        Self {
            write_half,
            packs,
            checkpoints,
            next_lease: 0,
            io,
            query_runner,
            pinned,
            expiry_timer: None,
            packing: None,
            sweeping: false,
            idle_timer: None,
            waiting: index_builds::BuildWaiters::new(),
            _guard: guard,
        }
    }

    /// Starts a compression round if uncompressed objects exceed their limit and no round is running.
    fn pack(&mut self, ctx: &mut Context<Self>) {
        if self.packing.is_none() && self.write_half.write(|half| half.uncompressed.is_over()) {
            self.start_round(Uncompressed::take_aged, Packing::round, ctx);
        }
    }

    /// Compresses everything once nothing has changed for [`IDLE_TIME`], so an idle resource keeps no uncompressed objects.
    fn watch_for_idle(&mut self, ctx: &mut Context<Self>) {
        self.write_half.write(|half| half.idle_timer_runs = true);
        if self.idle_timer.is_some() {
            return;
        }
        self.idle_timer = Some(ctx.run_interval(IDLE_TIME, |act, ctx| {
            let is_idle = act.write_half.write(|half| {
                let is_idle = !std::mem::take(&mut half.changed) && !half.packing;
                half.idle_timer_runs = !is_idle;
                is_idle
            });
            if !is_idle {
                return;
            }
            act.idle_timer.take().map(|timer| ctx.cancel_future(timer));
            act.start_expiry(ctx);
            act.start_round(Uncompressed::take_all, Packing::idle_round, ctx);
        }));
    }

    fn start_round(
        &mut self,
        take: fn(&mut Uncompressed) -> Vec<Arc<StoredObject>>,
        begin: fn(&mut Packing, Vec<Arc<StoredObject>>, &Uncompressed, &Snapshot) -> Round,
        ctx: &mut Context<Self>,
    ) {
        let (packs, published) = (&mut self.packs, self.write_half.published().load());
        let round = self.write_half.write(|half| {
            half.packing = true;
            let aged = take(&mut half.uncompressed);
            half.publish_size();
            begin(packs, aged, &half.uncompressed, &published)
        });
        self.packing = Some(PressureSource::new());
        let work = self.io.spawn_blocking(move || round.run());
        ctx.spawn(work.into_actor(self).map(|outcome, act, ctx| {
            act.packs.finished(outcome.ok());
            act.packing_ended();
            act.pack(ctx);
            act.sweep(ctx);
        }));
    }

    /// Recompresses poorly packed chunks, one slice at a time on another thread, between compression rounds.
    fn sweep(&mut self, ctx: &mut Context<Self>) {
        if self.packing.is_some() || self.sweeping {
            return;
        }
        let Some(slice) = self.packs.slice(&self.write_half.published().load()) else { return };
        self.sweeping = true;
        self.packing = Some(PressureSource::new());
        self.write_half.write(|half| half.packing = true);
        let began = clock::now();
        let work = self.io.spawn_blocking(move || slice.run());
        ctx.spawn(work.into_actor(self).map(move |_, act, ctx| {
            act.packing_ended();
            act.pack(ctx);
            let pause = (clock::now() - began) * SWEEP_PAUSE_FACTOR;
            ctx.run_later(pause.max(SWEEP_PAUSE), |act, ctx| {
                act.sweeping = false;
                act.sweep(ctx);
            });
        }));
    }

    fn packing_ended(&mut self) {
        self.packing = None;
        let list_limit = self.packs.list_limit();
        self.write_half.write(|half| {
            half.packing = false;
            half.uncompressed.aged();
            half.set_list_limit(list_limit);
        });
    }
}

impl fmt::Debug for CacheActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheActor").field("write_half", &self.write_half).finish_non_exhaustive()
    }
}

impl Drop for CacheActor {
    /// Closes the write half of the store, so that no informer writes to it after a successor of the actor has taken
    /// over.
    fn drop(&mut self) {
        self.write_half.close();
    }
}

impl Actor for CacheActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

impl Handler<OpenPartition> for CacheActor {
    type Result = MessageResult<OpenPartition>;

    fn handle(&mut self, open: OpenPartition, ctx: &mut Self::Context) -> Self::Result {
        self.next_lease += 1;
        let health = Arc::clone(&open.health);
        let lease = Lease(self.next_lease);
        let (id, outbox, step, resume) = self.write_half.write(|half| {
            let id = half.store.open(open.origin, open.health, open.indexes);
            if let Some(generation) = open.converted_by {
                half.store.convert(id, generation);
            }
            let resume = half.store.go_on(id, open.settings);
            half.leases.insert(id, lease);
            // A restarted informer keeps its memory step, which is stored in its health.
            let step = health.memory.step();
            half.keep(id, lease, step);
            (id, half.store.outbox(id), step, resume)
        });
        if step != MemoryStep::Full {
            self.apply_step(id, step, ctx);
        }
        let write_half = self.write_half.clone();
        MessageResult(OpenedPartition { id, lease, outbox, step, resume, write_half })
    }
}

impl Handler<CloseAbandoned> for CacheActor {
    type Result = ();

    fn handle(&mut self, abandoned: CloseAbandoned, _ctx: &mut Self::Context) {
        if self.checkpoints.is_closing() {
            return;
        }
        let matches = |origin: &Arc<Origin>| match &abandoned {
            CloseAbandoned::Origin(abandoned) => origin == abandoned,
            CloseAbandoned::Cluster(cluster) => origin.cluster == *cluster,
        };
        self.write_half.write(|half| {
            let snapshot = half.store.published().load_full();
            for (id, _) in snapshot.partitions().filter(|(_, partition)| matches(partition.origin())) {
                half.forget(id);
            }
        });
    }
}

impl Handler<ClosePartition> for CacheActor {
    type Result = ();

    fn handle(&mut self, ClosePartition { partition, lease }: ClosePartition, _ctx: &mut Self::Context) {
        // The last checkpoint still needs the partition.
        if self.checkpoints.is_closing() {
            return;
        }
        self.write_half.write(|half| {
            if half.leases.get(&partition) == Some(&lease) {
                half.forget(partition);
            }
        });
    }
}

impl Handler<Expect> for CacheActor {
    type Result = ();

    fn handle(&mut self, expect: Expect, _ctx: &mut Self::Context) {
        let labels = expect.expected.then_some(expect.labels);
        self.write_half.write(|half| half.store.expect(expect.cluster, labels));
    }
}

impl Handler<Apply> for CacheActor {
    type Result = MessageResult<Apply>;

    fn handle(&mut self, Apply { partition, lease, batch, version }: Apply, ctx: &mut Self::Context) -> Self::Result {
        let adds_little = is_small(&batch);
        let written = self.write_half.write(|half| {
            let written = half.apply(partition, lease, batch, version)?;
            Some((written, half.lags(partition, adds_little)))
        });
        let Some((WrittenBatch { outbox, objects, .. }, lags)) = written else { return MessageResult(None) };
        self.pack(ctx);
        self.watch_for_idle(ctx);
        let pressure = self.packing.as_ref().filter(|_| lags).map(PressureSource::pressure);
        MessageResult(Some(AppliedBatch { outbox, objects, pressure }))
    }
}

impl Handler<Maintain> for CacheActor {
    type Result = ();

    fn handle(&mut self, _: Maintain, ctx: &mut Self::Context) {
        self.pack(ctx);
        self.watch_for_idle(ctx);
    }
}

impl Handler<TakeSnapshot> for CacheActor {
    type Result = MessageResult<TakeSnapshot>;

    fn handle(&mut self, _: TakeSnapshot, _ctx: &mut Self::Context) -> Self::Result {
        MessageResult(self.write_half.published().load_full())
    }
}

impl Handler<Ask> for CacheActor {
    type Result = PendingAnswer;

    fn handle(&mut self, Ask(query): Ask, ctx: &mut Self::Context) -> Self::Result {
        if query.question().limit.is_some() {
            self.start_expiry(ctx);
        }
        let pending = self.query_runner.answer(query, self.write_half.published().load_full(), &self.pinned);
        if pending.lacks_owners {
            self.index_owners(ctx);
        }
        pending
    }
}

/// Directory of a hub's caches by resource and view (form in which objects are kept); creates a cache on first use.
///
/// A cache whose actor died is recovered from its last published snapshot, which is always consistent.
#[derive(Clone)]
pub struct CacheDirectory {
    caches: Arc<Mutex<BTreeMap<(Gvr, View), Entry>>>,
    /// Cancelled when the hub stops, after which [`Self::of_running`] returns no cache. It is cancelled and checked
    /// under the lock of `caches`, so that no caller creates a cache after the stop.
    end: CancellationToken,
    io: Threads,
    arbiters: Arc<[ArbiterHandle]>,
    next: Arc<AtomicUsize>,
    uncompressed_limit: usize,
    /// Limits of each cache's window of recent changes; `None` if no changes are kept.
    history: Arc<Mutex<Option<HistoryLimits>>>,
    query_runner: QueryRunner,
    checkpoints: Checkpoints,
    actor_count: ActorCount,
}

struct Entry {
    address: Addr<CacheActor>,
    write_half: SharedWriteHalf,
    totals: Arc<PackedTotals>,
}

impl CacheDirectory {
    pub(in crate::actors) fn new(
        pools: &ThreadPools,
        arbiters: Arc<[ArbiterHandle]>,
        tuning: &Tuning,
        actor_count: ActorCount,
        checkpoints: Checkpoints,
    ) -> Self {
        let (end, uncompressed_limit) = (CancellationToken::new(), tuning.uncompressed_limit);
        let query_runner = QueryRunner::new(pools.readers.clone(), tuning.scans);
        let io = pools.io.clone();
        let (caches, next, history) = (Arc::default(), Arc::default(), Arc::default());
        Self { caches, end, io, arbiters, next, uncompressed_limit, history, query_runner, checkpoints, actor_count }
    }

    /// Returns the cache of a resource, creating it if necessary.
    #[must_use]
    pub fn of(&self, resource: &ApiResource, view: &View) -> Addr<CacheActor> {
        self.find(&mut self.caches.lock(), resource, view).address.clone()
    }

    /// Returns the cache that an informer writes to.
    #[must_use]
    pub(in crate::actors) fn of_origin(&self, origin: &Origin) -> Addr<CacheActor> {
        self.of(&origin.resource, &origin.scope.view)
    }

    /// Returns the cache of a resource like [`Self::of`], for callers outside the actors. Returns `None` once the hub
    /// has stopped, because a new, empty cache would look like a cache without objects.
    #[must_use]
    pub fn of_running(&self, resource: &ApiResource, view: &View) -> Option<Addr<CacheActor>> {
        let mut caches = self.caches.lock();
        (!self.end.is_cancelled()).then(|| self.find(&mut caches, resource, view).address.clone())
    }

    /// Returns the handle from which a cache's newest snapshot is loaded. It stays valid if the cache is recovered.
    #[must_use]
    pub fn snapshots(&self, resource: &ApiResource, view: &View) -> Arc<ArcSwap<Snapshot>> {
        Arc::clone(self.find(&mut self.caches.lock(), resource, view).write_half.published())
    }

    fn find<'c>(&self, caches: &'c mut BTreeMap<(Gvr, View), Entry>, resource: &ApiResource, view: &View) -> &'c Entry {
        let key = (resource.gvr.clone(), view.clone());
        let known = caches.get(&key);
        if known.is_some_and(|entry| entry.address.connected()) {
            return &caches[&key];
        }
        let store = match known {
            Some(entry) => {
                // Prevents writers of the dead actor from publishing beside or after its successor.
                entry.write_half.close();
                Store::recover(Arc::clone(entry.write_half.published()))
            }
            None => Store::new(resource.clone()),
        };
        caches.insert(key.clone(), self.start(store, Packing::of(&resource.gvr)));
        &caches[&key]
    }

    fn start(&self, store: Store, packs: Packing) -> Entry {
        let write_half = SharedWriteHalf::new(self.with_history(store), self.uncompressed_limit);
        let (guard, totals) = (ExitGuard::new(0, 0, None, &self.actor_count), Arc::clone(packs.totals()));
        let (shared, for_work) = (write_half.clone(), (self.io.clone(), self.query_runner.clone()));
        let arbiter = &self.arbiters[self.next.fetch_add(1, Relaxed) % self.arbiters.len()];
        let (end, checkpoints) = (self.end.clone(), self.checkpoints.clone());
        let address = CacheActor::start_in_arbiter(arbiter, move |ctx| {
            stop_with(&end, ctx);
            CacheActor::new(shared, packs, checkpoints, for_work, guard)
        });
        Entry { address, write_half, totals }
    }

    /// Returns the last published snapshot of a resource's cache, if the cache exists.
    #[must_use]
    pub fn published(&self, gvr: &Gvr, view: &View) -> Option<Arc<Snapshot>> {
        self.caches.lock().get(&(gvr.clone(), view.clone())).map(|entry| entry.write_half.published().load_full())
    }

    /// Returns the owners of an object, up to the root owner, from the published snapshots of all caches. Costs one
    /// lookup and one decompression per owner.
    #[must_use]
    pub fn owner_chain(&self, object: &Object) -> OwnerChain {
        let snapshots: Vec<_> =
            self.caches.lock().values().map(|entry| entry.write_half.published().load_full()).collect();
        owner_chain(object, &snapshots)
    }

    /// Returns each cache's last published snapshot with the cache's number of uncompressed bytes.
    pub(in crate::actors) fn contents(&self) -> Vec<(Arc<Snapshot>, u64)> {
        let caches = self.caches.lock();
        let content =
            |half: &SharedWriteHalf| (half.published().load_full(), half.uncompressed_bytes().load(Relaxed) as u64);
        caches.values().map(|entry| content(&entry.write_half)).collect()
    }

    /// Returns the resource and view of each cache.
    #[must_use]
    pub fn resources(&self) -> Vec<(Gvr, View)> {
        self.caches.lock().keys().cloned().collect()
    }

    /// Returns each cache's key and last published snapshot.
    pub(in crate::actors) fn snapshots_of_all(&self) -> Vec<((Gvr, View), Arc<Snapshot>)> {
        let caches = self.caches.lock();
        caches.iter().map(|(key, entry)| (key.clone(), entry.write_half.published().load_full())).collect()
    }

    /// Removes the cache of a private view (objects as one subscriber transforms them), after that subscriber has
    /// released it. Remaining readers see an empty cache.
    pub(in crate::actors) fn forget_private(&self, gvr: &Gvr, view: &View) {
        if matches!(view, View::Private(_)) {
            self.caches.lock().remove(&(gvr.clone(), view.clone()));
        }
    }

    /// Requests every cache to close those partitions of a cluster that informers left open. Returns the pending
    /// answers.
    pub(in crate::actors) fn abandon(
        &self,
        cluster: &ClusterName,
    ) -> Vec<actix::prelude::Request<CacheActor, CloseAbandoned>> {
        let abandoned = CloseAbandoned::Cluster(cluster.clone());
        self.caches.lock().values().map(|entry| entry.address.send(abandoned.clone())).collect()
    }

    /// Stops and removes all caches.
    pub(in crate::actors) fn clear(&self) {
        let mut caches = self.caches.lock();
        self.end.cancel();
        caches.clear();
    }
}

impl fmt::Debug for CacheDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheDirectory").field("resources", &self.resources()).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Handler<crate::actors::tests::Crash> for CacheActor {
    type Result = ();

    fn handle(&mut self, _: crate::actors::tests::Crash, _ctx: &mut Self::Context) {
        panic!("injected crash of the cache");
    }
}
