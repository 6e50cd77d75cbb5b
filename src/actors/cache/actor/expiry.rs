//! Expiry of snapshots that are retained for continue tokens, and of recorded changes.

use std::time::Duration;

use actix::prelude::*;

use crate::actors::cache::actor::CacheActor;
use informer_hub_types::clock;

/// How often snapshots retained for continue tokens, and recorded changes, are checked for expiry.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(30);

impl CacheActor {
    /// Starts the timer that expires recorded changes, and snapshots retained for continue tokens. It stops when no
    /// recorded changes and no retained snapshots are left.
    pub(super) fn start_expiry(&mut self, ctx: &mut Context<Self>) {
        if self.expiry_timer.is_some() {
            return;
        }
        self.expiry_timer = Some(ctx.run_interval(EXPIRY_INTERVAL, |act, ctx| {
            let now = clock::now();
            let holds_snapshots = act.pinned.lock().expire(now).is_some();
            let keeps_changes = act.write_half.write(|half| half.store.trim_history(now));
            if !holds_snapshots && !keeps_changes {
                act.expiry_timer.take().map(|timer| ctx.cancel_future(timer));
            }
        }));
    }
}
