//! Listener actor: delivers the pending notifications of one subscriber of one informer, one batch at a time.
//!
//! It never delays the processor, which puts notifications into the inbox and wakes the listener. A full inbox merges
//! notifications.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::prelude::*;

use crate::actors::env::Env;
use crate::actors::pipeline::messages::{Stop, Wake};
use crate::actors::runtime::capacity::{DELIVER_BATCH, MAILBOX};
use crate::actors::runtime::supervision::ExitGuard;
use crate::actors::runtime::waiters::Waiters;
use crate::actors::subscribe::inbox::{Inbox, InboxLease};
use crate::actors::subscribe::subscriber::Delivered;
use crate::actors::subscribe::subscription::Subscription;
use informer_hub_types::{InformerHealth, Origin};

/// How often a listener checks whether the informer's objects are on disk, while a durable subscriber waits for that.
const DISK_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// How often a listener checks whether the informer's objects are on disk, before the informer's first list is
/// complete. Rare checks suffice, because the end of the list wakes the listener.
const LISTING_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Delivers to one subscriber of one informer; see the module.
pub(in crate::actors) struct ListenerActor {
    env: Env,
    origin: Arc<Origin>,
    inbox: Arc<Inbox>,
    lease: InboxLease,
    subscription: Arc<Subscription>,
    health: Arc<InformerHealth>,
    busy: bool,
    /// Timer of the next check whether the objects are on disk, and the interval for which the timer was set.
    disk_check: Option<(SpawnHandle, Duration)>,
    draining: bool,
    stopping: bool,
    stopped: Waiters,
    _guard: ExitGuard,
}

impl ListenerActor {
    pub(in crate::actors) fn new(
        env: Env,
        origin: Arc<Origin>,
        inbox: Arc<Inbox>,
        subscription: Arc<Subscription>,
        health: Arc<InformerHealth>,
        guard: ExitGuard,
    ) -> Self {
        let (lease, stopped) = (inbox.take_over(), Waiters::default());
        Self {
            env,
            origin,
            inbox,
            lease,
            subscription,
            health,
            busy: false,
            disk_check: None,
            draining: false,
            stopping: false,
            stopped,
            _guard: guard,
        }
    }

    /// Returns whether a durable subscriber gets no notifications yet, because the informer's objects have never been
    /// written to disk.
    ///
    /// After a restart, the hub detects a deleted object as one that is on disk, but not in the new list. An object
    /// that was delivered but is not on disk could be deleted unnoticed.
    fn waits_for_disk(&self) -> bool {
        let is_kept = self.subscription.durable && self.env.checkpoints.store().is_some();
        is_kept && !self.health.is_on_disk() && !self.env.checkpoints.is_closing()
    }

    /// Schedules the next check whether the informer's objects are on disk.
    fn schedule_disk_check(&mut self, ctx: &mut Context<Self>) {
        let synced = self.health.has_synced();
        if synced {
            self.env.checkpoints.request_pass();
        }
        // With thousands of informers, a first list may take minutes, so the disk is checked rarely until its end.
        let interval = if synced { DISK_CHECK_INTERVAL } else { LISTING_CHECK_INTERVAL };
        if let Some((timer, _)) = self.disk_check.take_if(|(_, pause)| interval < *pause) {
            ctx.cancel_future(timer);
        }
        if self.disk_check.is_none() {
            let timer = ctx.run_later(interval, |act, ctx| {
                act.disk_check = None;
                act.pump(ctx);
            });
            self.disk_check = Some((timer, interval));
        }
    }

    /// Delivers the next batch, unless the subscriber has not answered the previous one yet.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        if self.busy {
            return;
        }
        let waits = self.waits_for_disk();
        // Notifications that wait for the disk stay in the inbox for the successor.
        if self.stopping && (waits || !self.draining) {
            return ctx.stop();
        }
        if waits {
            return self.schedule_disk_check(ctx);
        }
        // `None` means that a successor has taken over the inbox.
        let Some(batch) = self.inbox.next(self.lease, DELIVER_BATCH) else { return ctx.stop() };
        if batch.is_empty() {
            if self.stopping {
                ctx.stop();
            }
            return;
        }
        self.busy = true;
        let count = batch.len() as u64;
        let delivery =
            self.subscription.subscriber.deliver(batch, self.inbox.traced(), &self.env.handlers).into_actor(self);
        ctx.spawn(delivery.map(move |delivered, act, ctx| {
            act.busy = false;
            act.inbox.done(act.lease);
            act.note(&delivered, count);
            if matches!(delivered, Delivered::Gone(_)) {
                act.subscription.unsubscribe();
                return ctx.stop();
            }
            act.pump(ctx);
        }));
    }

    fn note(&self, delivered: &Delivered, count: u64) {
        let health = &self.inbox.health;
        let Origin { cluster, resource, .. } = &*self.origin;
        let subscription = &self.subscription.name;
        match delivered {
            Delivered::All => {
                health.delivered.fetch_add(count, Relaxed);
            }
            Delivered::Lost(lost, error) => {
                let lost = *lost as u64;
                health.lost.fetch_add(lost, Relaxed);
                health.delivered.fetch_add(count - lost, Relaxed);
                tracing::warn!(
                    %cluster, resource = %resource.gvr, subscription, lost, error,
                    "subscriber failed to process notifications; they are lost"
                );
            }
            Delivered::Gone(0) => {
                tracing::info!(%cluster, resource = %resource.gvr, subscription, "subscriber has ended; unsubscribed it");
            }
            Delivered::Gone(lost) => {
                health.lost.fetch_add(*lost as u64, Relaxed);
                tracing::warn!(
                    %cluster, resource = %resource.gvr, subscription, lost,
                    "subscriber ended before it processed all notifications; unsubscribed it"
                );
            }
        }
    }
}

impl Actor for ListenerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.pump(ctx);
    }

    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.stopped.release();
    }
}

impl Handler<Wake> for ListenerActor {
    type Result = ();

    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        self.pump(ctx);
    }
}

impl Handler<Stop> for ListenerActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, stop: Stop, ctx: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        self.draining = stop.drain;
        self.pump(ctx);
        self.stopped.wait()
    }
}

#[cfg(test)]
impl Handler<crate::actors::tests::Crash> for ListenerActor {
    type Result = ();

    fn handle(&mut self, crash: crate::actors::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(crate::actors::tests::Victim::Listener);
    }
}
