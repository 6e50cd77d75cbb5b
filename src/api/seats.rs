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
pub(super) struct Seats {
    waiting: Mutex<Line>,
    /// Notified when a connection becomes idle.
    waits: Notify,
}

#[derive(Debug, Default)]
struct Line {
    seats: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// Slot of one connection, freed when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    /// Position in the line and the time of becoming idle; `None` while a request is being answered.
    turn: Mutex<Option<(u64, Instant)>>,
    leave: Arc<Notify>,
}

impl Seats {
    /// Takes a slot for a new, idle connection. The caller limits the number of slots.
    pub(super) fn take(self: &Arc<Self>) -> Seat {
        let seat = Seat { seats: Arc::clone(self), turn: Mutex::default(), leave: Arc::default() };
        seat.wait();
        seat
    }

    /// Evicts the connection that has been idle longest; returns false if none is idle. Its slot is free once its task
    /// has run.
    pub(super) fn evict(&self) -> bool {
        let first = self.waiting.lock().seats.pop_first();
        first.is_some_and(|(_, leave)| {
            leave.notify_one();
            true
        })
    }

    /// Waits until a connection becomes idle.
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that became idle meanwhile is reported by the next call.
    pub(super) async fn somebody_waits(&self) {
        self.waits.notified().await;
    }
}

impl Seat {
    /// Marks the connection as busy: a request has arrived.
    pub(super) fn begin(&self) {
        if let Some((number, _)) = self.turn.lock().take() {
            self.seats.waiting.lock().seats.remove(&number);
        }
    }

    /// Marks the connection as idle: its response is ready.
    pub(super) fn wait(&self) {
        let mut turn = self.turn.lock();
        let mut line = self.seats.waiting.lock();
        let number = line.next;
        line.next += 1;
        line.seats.insert(number, Arc::clone(&self.leave));
        if let Some((old, _)) = turn.replace((number, clock::now())) {
            line.seats.remove(&old);
        }
        drop(line);
        self.seats.waits.notify_one();
    }

    /// Completes when the connection must close: it was evicted, or was idle for `longest`.
    pub(super) async fn time_to_leave(&self, longest: Duration) {
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

impl Drop for Seat {
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
        let seats = Arc::new(Seats::default());
        let [first, second, third] = [(); 3].map(|()| seats.take());
        first.begin();
        second.begin();
        second.wait();
        assert!(seats.evict());
        assert!(third.time_to_leave(LONG).now_or_never().is_some());
        assert!(second.time_to_leave(LONG).now_or_never().is_none());
        drop(third);
        assert!(seats.evict() && second.time_to_leave(LONG).now_or_never().is_some());
        assert!(!seats.evict(), "the first is being answered");
        first.wait();
        assert!(seats.somebody_waits().now_or_never().is_some());
        drop(first);
        assert!(!seats.evict(), "it has left");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed_after_the_timeout() {
        let seats = Arc::new(Seats::default());
        let seat = seats.take();
        let (half, start) = (LONG / 2, clock::now());
        let work = async {
            tokio::time::sleep(half).await;
            seat.begin();
            tokio::time::sleep(2 * LONG).await;
            seat.wait();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = seat.time_to_leave(LONG) => {}
            () = work => {}
        }
        assert_eq!(clock::now() - start, half + 2 * LONG + LONG);
    }
}
