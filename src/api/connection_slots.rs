//! Connection slots: limits the number of connections, evicts the one that has been idle longest, and closes those whose
//! client does not read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use informer_hub_types::clock::{self, Instant};

/// Idle connections in the order in which they became idle. A connection is idle while it waits for a request, or for
/// the client to read a response that is no stream.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots {
    idle: Mutex<IdleLine>,
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
    state: Mutex<SlotState>,
    evicted: Arc<Notify>,
}

#[derive(Debug)]
struct SlotState {
    /// Position in the line and the time of becoming idle; `None` while a request is being answered.
    idle: Option<(u64, Instant)>,
    /// Requests being answered, with their streams. HTTP/2 has several at once.
    requests: usize,
    /// Parts of streams that the client has not taken.
    unread: usize,
    /// When the client last took a part, or got one when it had taken all before.
    progress: Instant,
}

impl ConnectionSlots {
    /// Takes a slot for a new, idle connection. The caller limits the number of slots.
    pub(super) fn take(self: &Arc<Self>) -> Slot {
        let state = SlotState { idle: None, requests: 1, unread: 0, progress: clock::now() };
        let slot = Slot { slots: Arc::clone(self), state: Mutex::new(state), evicted: Arc::default() };
        slot.mark_idle();
        slot
    }

    /// Evicts the connection that has been idle longest; returns false if none is idle. Its slot is free once its task
    /// has run.
    pub(super) fn evict(&self) -> bool {
        let first = self.idle.lock().slots.pop_first();
        first.is_some_and(|(_, evicted)| {
            evicted.notify_one();
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
    pub(super) fn mark_busy(&self) {
        let mut state = self.state.lock();
        state.requests += 1;
        if let Some((number, _)) = state.idle.take() {
            self.slots.idle.lock().slots.remove(&number);
        }
    }

    /// Marks one request as answered: its response is ready, or its stream has ended. Without others, the connection is
    /// idle.
    pub(super) fn mark_idle(&self) {
        let mut state = self.state.lock();
        state.requests = state.requests.saturating_sub(1);
        if state.requests > 0 {
            return;
        }
        let mut line = self.slots.idle.lock();
        let number = line.next;
        line.next += 1;
        line.slots.insert(number, Arc::clone(&self.evicted));
        if let Some((old, _)) = state.idle.replace((number, clock::now())) {
            line.slots.remove(&old);
        }
        drop(line);
        self.slots.became_idle.notify_one();
    }

    /// Records that a part of a stream waits for the client.
    pub(super) fn part_waits(&self) {
        let mut state = self.state.lock();
        if state.unread == 0 {
            state.progress = clock::now();
        }
        state.unread += 1;
    }

    /// Records that the client has taken a part of a stream.
    pub(super) fn part_taken(&self) {
        let mut state = self.state.lock();
        state.unread = state.unread.saturating_sub(1);
        state.progress = clock::now();
    }

    /// Completes when the connection must close: it was evicted, was idle for `longest`, or its client has not read a
    /// stream for that time.
    pub(super) async fn closed(&self, longest: Duration) {
        let overdue = async {
            loop {
                let since = {
                    let state = self.state.lock();
                    match state.idle {
                        Some((_, since)) => since,
                        None if state.unread > 0 => state.progress,
                        None => clock::now(),
                    }
                };
                if clock::now() >= since + longest {
                    return;
                }
                tokio::time::sleep_until(since + longest).await;
            }
        };
        tokio::select! {
            () = self.evicted.notified() => {}
            () = overdue => {}
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.mark_busy();
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
        first.mark_busy();
        second.mark_busy();
        second.mark_idle();
        assert!(slots.evict());
        assert!(third.closed(LONG).now_or_never().is_some());
        assert!(second.closed(LONG).now_or_never().is_none());
        drop(third);
        assert!(slots.evict() && second.closed(LONG).now_or_never().is_some());
        assert!(!slots.evict(), "the first is busy");
        first.mark_idle();
        assert!(slots.connection_idle().now_or_never().is_some());
        drop(first);
        assert!(!slots.evict(), "its slot is free");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_with_several_requests_is_idle_after_the_last() {
        let slots = Arc::new(ConnectionSlots::default());
        let slot = slots.take();
        slot.mark_busy();
        slot.mark_busy();
        slot.mark_idle();
        assert!(!slots.evict());
        slot.mark_idle();
        assert!(slots.evict());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_closes_only_if_its_client_does_not_read_the_stream() {
        let slots = Arc::new(ConnectionSlots::default());
        let (slot, start) = (slots.take(), clock::now());
        slot.mark_busy();
        let stream = async {
            tokio::time::sleep(10 * LONG).await;
            slot.part_waits();
            slot.part_waits();
            tokio::time::sleep(LONG / 2).await;
            slot.part_taken();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = slot.closed(LONG) => {}
            () = stream => {}
        }
        let waited = clock::now() - start;
        assert!(waited >= 11 * LONG + LONG / 2 && waited <= 12 * LONG + LONG / 2, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed_after_the_timeout() {
        let slots = Arc::new(ConnectionSlots::default());
        let slot = slots.take();
        let (half, start) = (LONG / 2, clock::now());
        let work = async {
            tokio::time::sleep(half).await;
            slot.mark_busy();
            tokio::time::sleep(2 * LONG).await;
            slot.mark_idle();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = slot.closed(LONG) => {}
            () = work => {}
        }
        assert_eq!(clock::now() - start, half + 2 * LONG + LONG);
    }
}
