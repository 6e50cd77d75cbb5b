//! Reflector actor: drives the list and watch state machine of one informer and passes changes to the fifo.
//!
//! The state machine ([`Reflector`]) decides which request comes next. The source ([`ListerWatcher`]) sends it and
//! decodes the response. The loop in this module passes the results on.
//!
//! While the fifo is full, the loop waits and the source fills its own bounded buffer. Once that is full too, the
//! socket is no longer read.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::prelude::*;
use futures::StreamExt;
use tracing::Span;

use crate::actors::memory::members::Budget;
use crate::actors::pipeline::messages::{Enqueue, Stop};
use crate::actors::runtime::capacity::{ENQUEUE_BATCH, MAILBOX};
use crate::actors::runtime::recovery::RecoverySignal;
use crate::actors::runtime::supervision::{ExitGuard, ExitStatus};
use crate::actors::runtime::waiters::Waiters;
use crate::actors::subscribe::watch_errors::WatchErrors;
use informer_hub_reflector::{
    ItemVerdict, ListChunk, ListRequest, ListerWatcher, PageVerdict, Reflector, ReflectorOptions, SourceError, Step,
    WatchBatch, WatchItem, WatchRequest,
};
use informer_hub_telemetry::spans;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{
    Change, Delta, DeltaKind, InformerHealth, ListReason, Origin, Phase, ResourceVersion, Rewinds, SampledChange,
    StoredObject, Threads, Watcher, rng,
};

mod health_reports;
mod listing;
mod rewind;
mod skipped;
pub(in crate::actors) mod timeouts;

use listing::Listing;
use skipped::SkippedObjects;
use timeouts::{next_within, within};

/// Parameters of a reflector actor.
pub(in crate::actors) struct ReflectorParts {
    pub(in crate::actors) origin: Arc<Origin>,
    pub(in crate::actors) health: Arc<InformerHealth>,
    pub(in crate::actors) source: Arc<dyn ListerWatcher>,
    pub(in crate::actors) fifo: Recipient<Enqueue>,
    pub(in crate::actors) options: ReflectorOptions,
    pub(in crate::actors) watch_errors: Arc<WatchErrors>,
    pub(in crate::actors) outcomes: Recipient<WatchOutcome>,
    pub(in crate::actors) handlers: Threads,
    pub(in crate::actors) budget: Budget,
    /// resourceVersion up to which the store contains every change. A watch may resume from it without a list.
    pub(in crate::actors) resume: Option<ResourceVersion>,
    /// Signal that the cluster answers again, shared with the cluster's other informers.
    pub(in crate::actors) recovery: RecoverySignal,
    /// Resources whose resourceVersions went back, because etcd was restored from a backup.
    pub(in crate::actors) rewinds: Rewinds,
}

/// Reports that a list or watch failed (`error`), or succeeded again (`error` is `None`).
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct WatchOutcome {
    pub(in crate::actors) origin: Arc<Origin>,
    pub(in crate::actors) error: Option<SourceError>,
}

/// Lists and watches for one informer; see the module.
pub(in crate::actors) struct ReflectorActor {
    parts: Option<ReflectorParts>,
    stopped: Waiters,
    guard: ExitGuard,
}

impl ReflectorActor {
    pub(in crate::actors) fn new(parts: ReflectorParts, guard: ExitGuard) -> Self {
        Self { parts: Some(parts), stopped: Waiters::default(), guard }
    }
}

impl Actor for ReflectorActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        let Some(parts) = self.parts.take() else { return };
        let mut driver = Driver::new(parts);
        let run = async move { driver.run().await };
        ctx.spawn(run.into_actor(self).map(|FifoGone, act, ctx| {
            act.guard.set(ExitStatus::Orphaned);
            ctx.stop();
        }));
    }

    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.stopped.release();
    }
}

impl Handler<Stop> for ReflectorActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _stop: Stop, ctx: &mut Self::Context) -> Self::Result {
        ctx.stop();
        self.stopped.wait()
    }
}

/// How long a watch must stay open before success is reported. A watch from an expired resourceVersion opens too, but
/// fails immediately.
const SUCCESS_DELAY: Duration = Duration::from_secs(1);

/// Error: the fifo has ended, so the reflector must end too.
struct FifoGone;

struct Driver {
    parts: ReflectorParts,
    machine: Reflector,
    pending: Vec<Change>,
    /// Sampled pending change whose latency is measured, and its span.
    followed: Option<(SampledChange, Span)>,
    /// Objects whose newest state could not be decoded. An object leaves this set when a later event of it is accepted
    /// or a new list begins.
    skipped: SkippedObjects,
    /// Span of the list in progress, and the number of pages read.
    listing: Option<Listing>,
    list_began: Instant,
    /// Reason for the next list.
    relists_for: ListReason,
    /// Whether another list must follow the one that just ended.
    must_list_again: bool,
    /// Whether the next success of a list or watch must be reported: it is the first one since the start or since a
    /// failure.
    unproven: bool,
    /// Last resourceVersion reported to the fifo in a [`Change::Progress`]: the fifo has all changes up to it.
    progress: Option<ResourceVersion>,
    /// Notified when the cluster answers another informer after a failure.
    recovery_watcher: Watcher<()>,
}

impl Driver {
    fn new(mut parts: ReflectorParts) -> Self {
        let mut machine = Reflector::new(parts.options.clone(), rng::unit);
        // A restarted reflector must not list an older state than the store has.
        if let Some(version) = parts.health.newest() {
            machine.resume(version.as_ref().clone());
        }
        if let Some(version) = parts.resume.take() {
            machine.resume_watch(version);
        }
        let recovery_watcher = parts.recovery.subscribe();
        let is_first = parts.health.lists.load(Relaxed) == 0;
        let relists_for = if is_first { ListReason::First } else { ListReason::Restart };
        Self {
            parts,
            machine,
            pending: Vec::new(),
            followed: None,
            skipped: SkippedObjects::default(),
            listing: None,
            list_began: clock::now(),
            relists_for,
            must_list_again: false,
            unproven: true,
            progress: None,
            recovery_watcher,
        }
    }

    async fn run(&mut self) -> FifoGone {
        loop {
            let done = match self.machine.next(clock::now()) {
                Step::Wait { until, .. } => {
                    self.mark_not_watching();
                    tokio::select! {
                        biased;
                        () = tokio::time::sleep_until(until) => {}
                        Ok(()) = self.recovery_watcher.changed() => self.machine.hurry(clock::now()),
                    }
                    Ok(())
                }
                // Boxed, because an informer watches for much longer than it lists.
                Step::List { request, fresh } => Box::pin(self.list(request, fresh)).await,
                Step::Check => {
                    Box::pin(self.check()).await;
                    Ok(())
                }
                Step::Watch { request } => self.watch(request).await,
            };
            if let Err(FifoGone) = done {
                return FifoGone;
            }
        }
    }

    // === list ===

    async fn list(&mut self, request: ListRequest, fresh: bool) -> Result<(), FifoGone> {
        let health = Arc::clone(&self.parts.health);
        if fresh {
            self.begin_list();
        }
        self.trace_list();
        let stall = self.parts.options.stall;
        self.clear_recovery();
        let mut requested = clock::now();
        let opening = within(stall.list_head, "list: no answer", self.parts.source.list(request));
        let mut stream = match opening.await {
            Ok(stream) => stream,
            Err(error) => {
                self.list_failed(&error);
                return Ok(());
            }
        };
        self.note_answer();
        loop {
            let chunk = next_within(&stall, stream.next()).await;
            let items = chunk.as_ref().map_or(0, ListChunk::items);
            let chunk = self.machine.on_list_items(items, clock::now() - requested).and(chunk);
            match chunk {
                Ok(ListChunk::Items(objects)) => {
                    let count = objects.len() as u64;
                    health.note_heard();
                    health.note_events(count);
                    health.list_items.fetch_add(count, Relaxed);
                    self.pending.extend(objects.into_iter().map(|object| delta(DeltaKind::Replaced, object)));
                    self.hand_over().await?;
                }
                Ok(ListChunk::Skipped(skipped)) => {
                    self.skip(skipped, true);
                    if self.pending.len() >= ENQUEUE_BATCH {
                        self.hand_over().await?;
                    }
                }
                Ok(ListChunk::End { version, continue_token, remaining }) => {
                    health.note_heard();
                    self.listing.iter_mut().for_each(|listing| listing.pages += 1);
                    if let Some(remaining) = remaining {
                        health.list_expected.store(health.list_items.load(Relaxed) + remaining, Relaxed);
                    }
                    match self.machine.on_page_end(version, continue_token, remaining, clock::now()) {
                        PageVerdict::NextPage => {}
                        PageVerdict::ListComplete(version) => self.complete_list(version),
                        PageVerdict::GivenUp(error) => self.list_failed(&error),
                    }
                    self.hand_over().await?;
                    self.list_again_if_due();
                    return Ok(());
                }
                Err(error) => {
                    self.clear_recovery();
                    self.list_failed(&error);
                    return Ok(());
                }
            }
            requested = clock::now();
        }
    }

    // === watch ===

    async fn watch(&mut self, request: WatchRequest) -> Result<(), FifoGone> {
        self.listing = None;
        if request.initial_events {
            self.begin_list();
            self.trace_list();
        }
        let span = {
            let Origin { cluster, resource, scope, .. } = &*self.parts.origin;
            spans::watch(cluster, &resource.gvr, scope)
        };
        let head = self.parts.options.stall.watch_head;
        self.clear_recovery();
        let mut opened = None;
        let mut events = 0;
        let end = match within(head, "watch: no answer", self.parts.source.watch(request)).await {
            Err(error) => Err(error),
            Ok(stream) => {
                opened = Some(clock::now());
                self.watch_opened();
                let end = self.follow(stream, &mut events).await?;
                self.clear_recovery();
                end
            }
        };
        let now = clock::now();
        if let (Some(opened), Some(timings)) = (opened, self.parts.health.timings()) {
            timings.watches.record(now.duration_since(opened), None);
        }
        spans::end_watch(&span, events, end.as_ref().err().map(|error| error as &dyn Display));
        self.relists_for = ListReason::Ended;
        if let Err(error) = &end {
            self.end_list_trace(Some(error));
            span.in_scope(|| self.show_failure(error));
        }
        let lasted = opened.map_or(Duration::ZERO, |opened| now.duration_since(opened));
        self.machine.on_watch_end(end.as_ref().copied(), events, lasted, now);
        self.list_again_if_due();
        Ok(())
    }

    fn watch_opened(&mut self) {
        self.machine.on_watch_opened(clock::now());
        let health = &self.parts.health;
        health.watches.fetch_add(1, Relaxed);
        health.note_heard();
        self.note_answer();
        let health = &self.parts.health;
        if !self.machine.is_listing() {
            health.set_phase(Phase::Watching);
            self.clear_error();
            // Lets the fifo know that the following changes continue from this version.
            self.note_progress();
        }
    }

    /// Reads an open watch until it ends, and adds the number of received items to `events`. Returns how the watch
    /// ended.
    async fn follow(
        &mut self,
        mut stream: informer_hub_reflector::WatchStream,
        events: &mut u64,
    ) -> Result<Result<(), SourceError>, FifoGone> {
        let success_at = clock::now() + SUCCESS_DELAY;
        loop {
            let deadline = self.machine.deadline();
            let next = async {
                match deadline {
                    Some(deadline) => tokio::time::timeout_at(deadline, stream.next()).await.ok(),
                    None => Some(stream.next().await),
                }
            };
            let next = tokio::select! {
                biased;
                next = next => next,
                () = tokio::time::sleep_until(success_at), if self.unproven && !self.machine.is_listing() => {
                    self.report_success();
                    continue;
                }
            };
            match next {
                None => return Ok(Err(self.machine.stall_error())),
                Some(None) => return Ok(Ok(())),
                Some(Some(Err(error))) => return Ok(Err(error)),
                Some(Some(Ok(batch))) => {
                    *events += batch.items.len() as u64;
                    self.take_items(batch);
                    self.hand_over().await?;
                    if self.must_list_again {
                        return Ok(Ok(()));
                    }
                    if let Some(error) = self.machine.overrun_error(clock::now()) {
                        return Ok(Err(error));
                    }
                }
            }
        }
    }

    fn take_items(&mut self, WatchBatch { items, followed }: WatchBatch) {
        self.begin_following(followed);
        let now = clock::now();
        let health = Arc::clone(&self.parts.health);
        health.note_heard();
        let mut accepted = 0;
        for item in items {
            let verdict = self.machine.on_watch_item(&item, now);
            let initial = matches!(verdict, ItemVerdict::Initial);
            if let ItemVerdict::InitialEventsEnd(version) = &verdict {
                self.complete_list(version.clone());
                health.set_phase(Phase::Watching);
                self.report_success();
                if self.must_list_again {
                    // The next list has the later changes too.
                    break;
                }
            }
            let live = |kind| if initial { DeltaKind::Replaced } else { kind };
            let (kind, object) = match item {
                WatchItem::Added(object) => (live(DeltaKind::Added), object),
                WatchItem::Modified(object) => (live(DeltaKind::Updated), object),
                WatchItem::Deleted(object) => (DeltaKind::Deleted, object),
                WatchItem::Bookmark { .. } => continue,
                WatchItem::Skipped(skipped) => {
                    self.skip(skipped, initial);
                    continue;
                }
            };
            if initial {
                health.list_items.fetch_add(1, Relaxed);
            }
            accepted += 1;
            self.note_accepted(object.key());
            if object.is_head_only() {
                health.skipped.fetch_add(1, Relaxed);
                let Origin { cluster, resource, .. } = &*self.parts.origin;
                tracing::warn!(
                    %cluster, resource = %resource.gvr, object = %object.key(),
                    "cannot decode the last state of a deleted object; applying its deletion without that state"
                );
            }
            self.pending.push(delta(kind, object));
        }
        if accepted > 0 {
            health.note_events(accepted);
        }
        self.show_version();
        self.note_progress();
    }

    fn begin_following(&mut self, followed: SampledChange) {
        let Origin { cluster, resource, scope, .. } = &*self.parts.origin;
        if let Some(traced) = &followed.traced {
            spans::name_change(&traced.span, cluster, &resource.gvr, scope);
        }
        let span = spans::stage("reflector", followed.traced.as_ref());
        self.followed = Some((followed, span));
    }

    /// Queues a [`Change::Progress`] for the fifo if the resourceVersion up to which all changes were read has
    /// advanced.
    fn note_progress(&mut self) {
        if self.machine.complete_up_to() != self.progress.as_ref() {
            self.progress = self.machine.complete_up_to().cloned();
            self.pending.extend(self.progress.clone().map(Change::Progress));
        }
    }

    // === list and watch ===

    /// Passes pending changes to the fifo. Waits while it is full, or the memory limit has no room for new objects.
    async fn hand_over(&mut self) -> Result<(), FifoGone> {
        while !self.pending.is_empty() {
            let rest = self.pending.split_off(self.pending.len().min(ENQUEUE_BATCH));
            let batch = std::mem::replace(&mut self.pending, rest);
            let headroom = self.parts.budget.headroom();
            if headroom.is_limited() {
                let bytes = new_bytes(&batch);
                if bytes > 0 {
                    headroom.take(bytes).await;
                }
            }
            // The sampled change is in the last batch or an earlier one, so it is sent with the last.
            let (followed, _span) = self.followed.take_if(|_| self.pending.is_empty()).unzip();
            self.parts.fifo.send(Enqueue { changes: batch, followed }).await.map_err(|_| FifoGone)?;
        }
        Ok(())
    }
}

fn delta(kind: DeltaKind, object: Arc<StoredObject>) -> Change {
    Change::Delta(Delta { kind, object })
}

/// Returns the size in bytes of the added and listed objects in a batch. Only these may need more memory: an update
/// replaces an object, and a deletion frees one.
fn new_bytes(batch: &[Change]) -> usize {
    let size = |change: &Change| match change {
        Change::Delta(Delta { kind: DeltaKind::Added | DeltaKind::Replaced, object }) => object.plain_size(),
        _ => 0,
    };
    batch.iter().map(size).sum()
}

#[cfg(test)]
impl Handler<crate::actors::tests::Crash> for ReflectorActor {
    type Result = ();

    fn handle(&mut self, crash: crate::actors::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(crate::actors::tests::Victim::Reflector);
    }
}
