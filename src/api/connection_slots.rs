//! Connection slots: track which connections are idle, evict the one that has been idle longest, and close connections
//! whose client does not read.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use informer_hub_types::clock::{self, Instant};

/// Idle connections in the order in which they became idle. A connection is idle while it waits for a request, or for
/// the client to read a response that is not a stream.
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

#[derive(Default)]
struct SlotState {
    /// Since when the connection is idle; `None` while a request is being answered. The number before the time orders
    /// the idle connections by when they became idle.
    idle: Option<(u64, Instant)>,
    /// Number of requests being answered, including responses that are streams. HTTP/2 can have several at once.
    requests: usize,
    /// Responses being read as streams, by number.
    streams: BTreeMap<u64, Stream>,
    next_stream: u64,
}

/// A response that a client reads as a stream.
struct Stream {
    /// Time at which the present part of the response began to wait for the client; `None` if no part waits.
    waits_since: Option<Instant>,
    /// Function that drops the body and all that it holds; called if the client does not read the body.
    abandon: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotState").field("idle", &self.idle).field("requests", &self.requests).finish_non_exhaustive()
    }
}

/// A request being answered. Dropping it marks the request as answered.
#[derive(Debug)]
pub(super) struct Busy {
    slot: Arc<Slot>,
    /// Whether the response is a stream. If so, the request is marked as answered when its [`StreamSlot`] is dropped,
    /// not when this value is dropped.
    is_stream: bool,
}

/// A response that is a stream. Dropping it ends the stream.
#[derive(Debug)]
pub(super) struct StreamSlot {
    slot: Arc<Slot>,
    number: u64,
}

impl ConnectionSlots {
    /// Takes a slot for a new, idle connection. The caller limits the number of slots.
    pub(super) fn take(self: &Arc<Self>) -> Slot {
        let slot = Slot { slots: Arc::clone(self), state: Mutex::default(), evicted: Arc::default() };
        slot.mark_idle();
        slot
    }

    /// Evicts the connection that has been idle longest; returns false if none is idle. The slot becomes free when the
    /// task of the connection has ended.
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
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.mark_busy();
        Busy { slot: Arc::clone(self), is_stream: false }
    }

    fn mark_busy(&self) {
        let mut state = self.state.lock();
        state.requests += 1;
        if let Some((number, _)) = state.idle.take() {
            self.slots.idle.lock().slots.remove(&number);
        }
    }

    /// Marks one request as answered: its response is ready, or its stream has ended. If no other request is being
    /// answered, the connection is idle.
    fn mark_idle(&self) {
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

    /// Completes when the connection must close: it was evicted, was idle for `longest`, or its client has not read a
    /// stream for that time. While other requests are being answered, only the unread stream ends.
    pub(super) async fn closed(&self, longest: Duration) {
        let overdue = async {
            loop {
                let since = self.waits_since();
                if clock::now() < since + longest {
                    tokio::time::sleep_until(since + longest).await;
                } else if !self.abandon_stream(since) {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = self.evicted.notified() => {}
            () = overdue => {}
        }
    }

    /// Returns the time since which the client has done nothing: since the connection became idle, or since the oldest
    /// unread part of a stream waits for the client. Returns the present time if neither applies.
    fn waits_since(&self) -> Instant {
        let state = self.state.lock();
        let idle = state.idle.map(|(_, since)| since);
        let unread = || state.streams.values().filter_map(|stream| stream.waits_since).min();
        idle.or_else(unread).unwrap_or_else(clock::now)
    }

    /// Ends the stream whose client has not read since `since`. Returns whether other requests are being answered.
    fn abandon_stream(&self, since: Instant) -> bool {
        let mut state = self.state.lock();
        let overdue = state.streams.iter().find(|(_, stream)| stream.waits_since == Some(since));
        let Some(stream) = overdue.map(|(number, _)| *number).and_then(|number| state.streams.remove(&number)) else {
            return state.idle.is_none();
        };
        drop(state);
        (stream.abandon)();
        self.mark_idle();
        self.state.lock().idle.is_none()
    }
}

impl Busy {
    /// Marks the response as a stream, whose first part now waits for the client to read it.
    ///
    /// `abandon` drops the stream's body. It is called if the client does not read a part for too long.
    pub(super) fn into_stream(mut self, abandon: impl FnOnce() + Send + 'static) -> StreamSlot {
        self.is_stream = true;
        let slot = Arc::clone(&self.slot);
        let stream = Stream { waits_since: Some(clock::now()), abandon: Box::new(abandon) };
        let mut state = slot.state.lock();
        let number = state.next_stream;
        state.next_stream += 1;
        state.streams.insert(number, stream);
        drop(state);
        StreamSlot { slot, number }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if !self.is_stream {
            self.slot.mark_idle();
        }
    }
}

impl StreamSlot {
    /// Records that a part of the stream waits for the client.
    pub(super) fn part_waits(&self) {
        self.waits_since(Some(clock::now()));
    }

    /// Records that the client has read the part of the stream that waited.
    pub(super) fn part_taken(&self) {
        self.waits_since(None);
    }

    fn waits_since(&self, since: Option<Instant>) {
        if let Some(stream) = self.slot.state.lock().streams.get_mut(&self.number) {
            stream.waits_since = since;
        }
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let is_counted = self.slot.state.lock().streams.remove(&self.number).is_some();
        if is_counted {
            self.slot.mark_idle();
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
        let [first, second, third] = [(); 3].map(|()| Arc::new(slots.take()));
        let busy = first.busy();
        drop(second.busy());
        assert!(slots.evict());
        assert!(third.closed(LONG).now_or_never().is_some());
        assert!(second.closed(LONG).now_or_never().is_none());
        drop(third);
        assert!(slots.evict() && second.closed(LONG).now_or_never().is_some());
        assert!(!slots.evict(), "the first is busy");
        drop(busy);
        assert!(slots.connection_idle().now_or_never().is_some());
        drop(first);
        assert!(!slots.evict(), "its slot is free");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_with_several_requests_is_idle_after_the_last() {
        let slots = Arc::new(ConnectionSlots::default());
        let slot = Arc::new(slots.take());
        let (first, second) = (slot.busy(), slot.busy());
        drop(first);
        assert!(!slots.evict());
        drop(second);
        assert!(slots.evict());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_closes_only_if_its_client_does_not_read_the_stream() {
        let slots = Arc::new(ConnectionSlots::default());
        let (slot, start) = (Arc::new(slots.take()), clock::now());
        let stream = slot.busy().into_stream(|| {});
        stream.part_taken();
        let reading = async {
            tokio::time::sleep(10 * LONG).await;
            stream.part_waits();
            tokio::time::sleep(LONG / 2).await;
            stream.part_taken();
            stream.part_waits();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = slot.closed(LONG) => {}
            () = reading => {}
        }
        let waited = clock::now() - start;
        assert!(waited >= 11 * LONG + LONG / 2 && waited <= 12 * LONG + LONG / 2, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn stream_that_is_never_begun_closes_its_connection() {
        let slots = Arc::new(ConnectionSlots::default());
        let (slot, start) = (Arc::new(slots.take()), clock::now());
        let _stream = slot.busy().into_stream(|| {});
        slot.closed(LONG).await;
        assert_eq!(clock::now() - start, LONG);
    }

    #[tokio::test(start_paused = true)]
    async fn unread_stream_ends_alone_while_others_are_read() {
        let slots = Arc::new(ConnectionSlots::default());
        let (slot, start) = (Arc::new(slots.take()), clock::now());
        let (dropped, abandoned) = tokio::sync::oneshot::channel::<()>();
        let unread = slot.busy().into_stream(move || drop(dropped));
        let read = slot.busy().into_stream(|| {});
        let reading = async {
            for _ in 0..10 {
                read.part_waits();
                tokio::time::sleep(LONG / 2).await;
                read.part_taken();
            }
            drop(read);
            std::future::pending::<()>().await;
        };
        let ended = async {
            assert!(abandoned.await.is_err());
            assert_eq!(clock::now() - start, LONG);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = slot.closed(LONG) => {}
            () = reading => {}
            () = ended => {}
        }
        assert_eq!(clock::now() - start, 6 * LONG, "idle for a minute after the last read");
        drop(unread);
        assert_eq!(slot.state.lock().requests, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed_after_the_timeout() {
        let slots = Arc::new(ConnectionSlots::default());
        let slot = Arc::new(slots.take());
        let (half, start) = (LONG / 2, clock::now());
        let work = async {
            tokio::time::sleep(half).await;
            let busy = slot.busy();
            tokio::time::sleep(2 * LONG).await;
            drop(busy);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = slot.closed(LONG) => {}
            () = work => {}
        }
        assert_eq!(clock::now() - start, half + 2 * LONG + LONG);
    }
}
