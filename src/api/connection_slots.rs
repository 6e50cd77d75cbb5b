//! Connection slots: limits the number of connections and evicts the one that has been idle longest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use informer_hub_types::clock::{self, Instant};

/// Idle connections in the order in which they became idle. A connection is idle while it waits for a request, or for
/// the client to read a response.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots {
    waiting: Mutex<IdleLine>,
    /// Notified when a connection becomes idle.
    became_idle: Notify,
}

#[derive(Debug, Default)]
struct IdleLine {
    slots: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// Slot of one connection, freed when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<ConnectionSlots>,
    /// Position in the line and the time of becoming idle; `None` while a request is being answered.
    turn: Mutex<Option<(u64, Instant)>>,
    leave: Arc<Notify>,
}

impl ConnectionSlots {
    /// Takes a slot for a new, idle connection. The caller limits the number of slots.
    pub(super) fn take(self: &Arc<Self>) -> Slot {
        let slot = Slot { slots: Arc::clone(self), turn: Mutex::default(), leave: Arc::default() };
        slot.wait();
        slot
    }

    /// Evicts the connection that has been idle longest; returns false if none is idle. Its slot is free once its task
    /// has run.
    pub(super) fn evict(&self) -> bool {
        let first = self.waiting.lock().slots.pop_first();
        first.is_some_and(|(_, leave)| {
            leave.notify_one();
            true
        })
    }

    /// Waits until a connection becomes idle.
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that became idle meanwhile is reported by the next call.
    pub(super) async fn connection_idle(&self) {
        self.became_idle.notified().await;
    }
}

impl Slot {
    /// Marks the connection as busy: a request has arrived.
    pub(super) fn begin(&self) {
        if let Some((number, _)) = self.turn.lock().take() {
            self.slots.waiting.lock().slots.remove(&number);
        }
    }

    /// Marks the connection as idle: its response is ready.
    pub(super) fn wait(&self) {
        let mut turn = self.turn.lock();
        let mut line = self.slots.waiting.lock();
        let number = line.next;
        line.next += 1;
        line.slots.insert(number, Arc::clone(&self.leave));
        if let Some((old, _)) = turn.replace((number, clock::now())) {
            line.slots.remove(&old);
        }
        drop(line);
        self.slots.became_idle.notify_one();
    }

    /// Completes when the connection must close: it was evicted, or was idle for `longest`.
    pub(super) async fn closed(&self, longest: Duration) {
        let overdue = async {
            loop {
                let since = self.turn.lock().map_or_else(clock::now, |(_, since)| since);
                if clock::now() >= since + longest {
                    return;
                }
                tokio::time::sleep_until(since + longest).await;
            }
        };
        tokio::select! {
            () = self.leave.notified() => {}
            () = overdue => {}
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn eviction_closes_the_longest_idle_connection_and_no_busy_one() {
        let slots = Arc::new(ConnectionSlots::default());
        let [first, second, third] = [(); 3].map(|()| slots.take());
        first.begin();
        second.begin();
        second.wait();
        assert!(slots.evict());
        assert!(third.closed(LONG).now_or_never().is_some());
        assert!(second.closed(LONG).now_or_never().is_none());
        drop(third);
        assert!(slots.evict() && second.closed(LONG).now_or_never().is_some());
        assert!(!slots.evict(), "the first is busy");
        first.wait();
        assert!(slots.connection_idle().now_or_never().is_some());
        drop(first);
        assert!(!slots.evict(), "its slot is free");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed_after_the_timeout() {
        let slots = Arc::new(ConnectionSlots::default());
        let slot = slots.take();
        let (half, start) = (LONG / 2, clock::now());
        let work = async {
            tokio::time::sleep(half).await;
            slot.begin();
            tokio::time::sleep(2 * LONG).await;
            slot.wait();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = slot.closed(LONG) => {}
            () = work => {}
        }
        assert_eq!(clock::now() - start, half + 2 * LONG + LONG);
    }
}
