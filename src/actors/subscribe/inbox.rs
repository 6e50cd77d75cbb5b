//! Inbox: pending notifications for one subscriber of one informer. Outlives the actors that fill and empty it.
//!
//! Listener, processor, informer and cluster actors may all die without losing notifications. The queue therefore
//! belongs to the subscription. A batch leaves it only when the subscriber has acknowledged it. The successor of a dead
//! listener delivers the batch again, so a subscriber may see it twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tracing::Span;

use crate::cache::{Applied, ListenerQueue, PartitionId};
use informer_hub_telemetry::spans;
use informer_hub_types::clock;
use informer_hub_types::{Histogram, Notification, Origin, SampledChange, TraceParent, Traced};

/// Counters of a listener.
#[derive(Debug, Default)]
pub(in crate::actors) struct ListenerHealth {
    /// Waiting notifications.
    pub pending: AtomicU64,
    /// Delivered notifications.
    pub delivered: AtomicU64,
    /// Notifications merged because the subscriber was slow.
    pub merged: AtomicU64,
    /// Notifications that are lost, because the subscriber could not process them.
    pub lost: AtomicU64,
    /// Sampled time from the hub's reading of a change to the subscriber's acknowledgement, for all inboxes of the
    /// subscription.
    pub lag: Option<Arc<Histogram>>,
}

/// Right of one listener actor to empty an inbox, until another listener takes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::actors) struct InboxLease(u64);

/// Batch in a partition (cached objects of one informer) whose acknowledgement is awaited. The mark is reached when the
/// subscriber has acknowledged every batch up to `number`.
#[derive(Clone, Copy, Debug)]
pub(in crate::actors) struct Mark {
    partition: PartitionId,
    number: u64,
    /// `None` until [`Inbox::has_acknowledged`] first finds the batch in the queue. Then the queue's end at that time,
    /// up to which notifications must be acknowledged, and the number of merged notifications at that time.
    place: Option<(u64, u64)>,
}

impl Mark {
    pub(in crate::actors) fn new(partition: PartitionId, number: u64) -> Self {
        Self { partition, number, place: None }
    }
}

/// Queue between a processor and a subscriber; see the module.
#[derive(Debug, Default)]
pub struct Inbox {
    pub(in crate::actors) health: Arc<ListenerHealth>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Queue of the subscriber; `None` until a processor calls [`Inbox::join`].
    queue: Option<ListenerQueue>,
    /// Partition (cached objects of one informer) whose changes are queued.
    partition: Option<PartitionId>,
    /// Batch delivered to the subscriber and not acknowledged.
    unacknowledged: Vec<Notification>,
    /// Queue position of the first unacknowledged notification.
    unacknowledged_from: u64,
    /// Whether the unacknowledged batch contains initial objects, which have no queue position.
    has_replayed: bool,
    /// Whether the unacknowledged batch belongs to an earlier partition. Positions in the queue of that partition
    /// cannot be compared with positions in the present queue.
    is_earlier: bool,
    /// Whether the subscriber has acknowledged the `Synced` that follows the initial objects.
    synced: bool,
    /// Sampled change whose latency is being measured: the queue position after it, its timestamps and its span.
    followed: Option<(u64, SampledChange, Span)>,
    lease: InboxLease,
}

impl Inbox {
    /// Creates an empty inbox that records sampled latencies in `lag`.
    pub(in crate::actors) fn counting(lag: Arc<Histogram>) -> Self {
        let health = ListenerHealth { lag: Some(lag), ..ListenerHealth::default() };
        Self { health: Arc::new(health), ..Self::default() }
    }

    /// Begins to measure the latency of a pending change: the time until the subscriber has acknowledged all
    /// notifications that are pending now.
    ///
    /// Only one change is measured at a time. A second change is ignored, unless it has a trace and the first has none.
    pub(in crate::actors) fn sample_latency(&self, followed: impl Into<SampledChange>) {
        let (mut state, followed) = (self.state.lock(), followed.into());
        let others = state.followed.as_ref().map(|(_, followed, _)| followed);
        let queue = state.queue.as_ref().filter(|queue| !queue.is_empty() && followed.takes_precedence_over(others));
        if let Some(place) = queue.map(|queue| queue.places().1) {
            let span = spans::stage("listener", followed.traced.as_ref());
            state.followed = Some((place, followed, span));
        }
    }

    /// Returns the trace of the change whose latency is measured, if it has one. The change may be in the current
    /// batch.
    pub(in crate::actors) fn traced(&self) -> Option<Traced> {
        self.state.lock().followed.as_ref().and_then(|(_, followed, _)| followed.traced.clone())
    }

    /// Records the latency of the sampled change once the subscriber has acknowledged it. If notifications were merged
    /// meanwhile, queue positions have shifted, so the latency is possibly recorded late, when the queue is empty.
    fn record_latency(&self, state: &mut State) {
        let queue = state.queue.as_ref();
        let is_acknowledged = |place: u64| queue.is_none_or(|queue| queue.is_empty() || queue.places().0 >= place);
        if let Some((_, followed, _)) = state.followed.take_if(|(place, ..)| is_acknowledged(*place))
            && let Some(lag) = &self.health.lag
        {
            let seen_in = followed.traced.as_ref().and_then(|traced| TraceParent::of(&traced.span));
            lag.record(clock::now().duration_since(followed.read), seen_in);
        }
    }

    /// Returns whether the inbox was filled from this partition (objects of one informer) before. If so, the inbox
    /// continues with its pending notifications.
    pub(in crate::actors) fn has_joined(&self, partition: PartitionId) -> bool {
        let state = self.state.lock();
        state.queue.is_some() && state.partition == Some(partition)
    }

    /// Returns the partition (objects of one informer) that the inbox is filled from; `None` before the first one.
    pub(in crate::actors) fn partition(&self) -> Option<PartitionId> {
        self.state.lock().partition
    }

    /// Starts the inbox with `queue`, unless it was already filled from this partition (objects of one informer). Batch
    /// numbers are per partition, so pending notifications of an earlier partition are dropped.
    pub(in crate::actors) fn join(&self, partition: PartitionId, queue: ListenerQueue) {
        let mut state = self.state.lock();
        if state.queue.is_none() || state.partition != Some(partition) {
            state.queue = Some(queue);
            state.partition = Some(partition);
            state.followed = None;
            state.is_earlier = !state.unacknowledged.is_empty();
            state.synced = state.queue.as_ref().is_some_and(ListenerQueue::continues);
        }
    }

    /// Continues with the partition to which the informer's objects were moved, and keeps the pending notifications. An
    /// informer moves if its resource, API version or cluster labels change.
    pub(in crate::actors) fn move_to(&self, partition: PartitionId, origin: Arc<Origin>) {
        let mut state = self.state.lock();
        if let Some(queue) = &mut state.queue {
            queue.go_on_as(origin);
            state.partition = Some(partition);
        }
    }

    /// Queues notifications of the changes in a batch; `number` is the batch's number in the partition. For details see
    /// [`ListenerQueue::offer`].
    pub(in crate::actors) fn offer(&self, number: u64, applied: &[Applied], resync: bool) {
        let mut state = self.state.lock();
        if let Some(queue) = &mut state.queue {
            queue.offer(number, applied, resync);
        }
        self.publish_counts(&state);
    }

    /// Takes the right to empty the inbox from its current holder.
    pub(in crate::actors) fn take_over(&self) -> InboxLease {
        let mut state = self.state.lock();
        state.lease.0 += 1;
        state.lease
    }

    /// Returns the unacknowledged batch; without one, the next batch of at most `max` notifications. Returns `None`
    /// after another listener has taken over.
    pub(in crate::actors) fn next(&self, lease: InboxLease, max: usize) -> Option<Vec<Notification>> {
        let mut state = self.state.lock();
        if state.lease != lease {
            return None;
        }
        if state.unacknowledged.is_empty() {
            state.unacknowledged_from = state.queue.as_ref().map_or(0, |queue| queue.places().0);
            state.has_replayed = state.queue.as_ref().is_some_and(ListenerQueue::is_replaying);
            state.is_earlier = false;
            state.unacknowledged = state.queue.as_mut().map(|queue| queue.take(max)).unwrap_or_default();
            self.publish_counts(&state);
        }
        Some(state.unacknowledged.clone())
    }

    /// Records that the subscriber has acknowledged the current batch.
    pub(in crate::actors) fn done(&self, lease: InboxLease) {
        let mut state = self.state.lock();
        if state.lease == lease {
            let unacknowledged = std::mem::take(&mut state.unacknowledged);
            let is_synced = |notification: &Notification| matches!(notification, Notification::Synced(_));
            state.synced |= !state.is_earlier && unacknowledged.iter().any(is_synced);
            self.record_latency(&mut state);
        }
    }

    /// Returns whether nothing is pending or unacknowledged.
    pub(in crate::actors) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.unacknowledged.is_empty() && state.queue.as_ref().is_none_or(ListenerQueue::is_empty)
    }

    /// Returns whether the subscriber has acknowledged every initial object.
    pub(in crate::actors) fn has_synced(&self) -> bool {
        self.state.lock().synced
    }

    /// Returns whether the subscriber has acknowledged every batch up to that of `mark`. If notifications were merged
    /// meanwhile, queue positions have shifted. Then returns true only if nothing is pending or unacknowledged.
    pub(in crate::actors) fn has_acknowledged(&self, mark: &mut Mark) -> bool {
        let state = self.state.lock();
        let joined = state.queue.as_ref().filter(|_| state.partition == Some(mark.partition));
        let Some(queue) = joined.filter(|queue| queue.last_batch() >= mark.number) else { return false };
        if state.unacknowledged.is_empty() && queue.is_empty() {
            return true;
        }
        let (first, end) = queue.places();
        let (place, merged) = *mark.place.get_or_insert((end, queue.merged()));
        let (answered, has_replayed) = match &state.unacknowledged[..] {
            [] => (first, false),
            _ => (state.unacknowledged_from, state.has_replayed || state.is_earlier),
        };
        !queue.is_replaying() && !has_replayed && queue.merged() == merged && answered >= place
    }

    /// Copies the numbers of waiting and merged notifications to [`ListenerHealth`].
    fn publish_counts(&self, state: &State) {
        if let Some(queue) = &state.queue {
            self.health.pending.store(queue.len() as u64, Relaxed);
            self.health.merged.store(queue.merged(), Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod interleavings;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::testing::{Informer, notification_lines};
    use crate::cache::{InitialObjects, ListenerOptions, ListenerQueue};

    #[test]
    fn inbox_gives_the_unacknowledged_batch_to_the_successor_and_ignores_a_late_answer() {
        let mut informer = Informer::new();
        informer.apply("[ ]0");
        let inbox = Inbox::default();
        inbox.join(informer.id, ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 1024));
        let outbox = informer.apply("+a@1 +b@2");
        inbox.offer(outbox.number, &outbox.applied, false);
        let dying = inbox.take_over();
        assert_eq!(notification_lines(&inbox.next(dying, 2).unwrap()), ["synced", "+a@1"]);
        let successor = inbox.take_over();
        assert!(inbox.next(dying, 2).is_none(), "its lease is revoked");
        inbox.done(dying);
        assert_eq!(notification_lines(&inbox.next(successor, 2).unwrap()), ["synced", "+a@1"]);
        inbox.done(successor);
        assert_eq!(notification_lines(&inbox.next(successor, 2).unwrap()), ["+b@2"]);
        inbox.done(successor);
        assert!(inbox.next(successor, 2).unwrap().is_empty());
    }

    #[test]
    fn replayed_objects_are_acknowledged_only_when_the_subscriber_has_answered() {
        let mut informer = Informer::new();
        informer.apply("+a@1 +b@2");
        let options = ListenerOptions { initial: InitialObjects::Replay, ..ListenerOptions::default() };
        let inbox = Inbox::default();
        inbox.join(informer.id, ListenerQueue::new(options, &informer.partition(), 1024));
        let mark = || Mark::new(informer.id, informer.partition().number());
        assert!(!inbox.has_acknowledged(&mut mark()), "the replay has not begun");
        let lease = inbox.take_over();
        assert_eq!(notification_lines(&inbox.next(lease, 9).unwrap()), ["!a@1", "!b@2"]);
        assert!(!inbox.has_acknowledged(&mut mark()), "nothing waits behind the last batch of the replay");
        inbox.done(lease);
        assert!(inbox.has_acknowledged(&mut mark()));
    }

    #[tokio::test(start_paused = true)]
    async fn inbox_samples_a_traced_change_in_place_of_an_untraced_one() {
        let mut informer = Informer::new();
        informer.apply("[ ]0");
        let inbox = Inbox::default();
        inbox.join(informer.id, ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 1024));
        let outbox = informer.apply("+a@1 +b@2");
        inbox.offer(outbox.number, &outbox.applied, false);
        inbox.sample_latency(clock::now());
        let is_of = |name| inbox.traced().is_some_and(|traced| traced.key.name() == name);
        for name in ["a", "b"] {
            let (key, version) =
                (informer_hub_types::ObjectKey::new("", name), informer_hub_types::ResourceVersion::new("1"));
            let traced = Some(Traced { span: Span::none(), key, version });
            inbox.sample_latency(SampledChange { read: clock::now(), traced });
            inbox.sample_latency(clock::now());
            assert!(is_of("a"));
        }
        let lease = inbox.take_over();
        inbox.next(lease, 9).unwrap();
        assert!(is_of("a"), "the subscriber has not answered");
        inbox.done(lease);
        assert!(inbox.traced().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn inbox_records_the_latency_when_the_subscriber_has_acknowledged() {
        let mut informer = Informer::new();
        informer.apply("[ ]0");
        let lag = Arc::new(Histogram::new(informer_hub_types::LAG_SECONDS));
        let inbox = Inbox::counting(Arc::clone(&lag));
        inbox.join(informer.id, ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 1024));
        let read = clock::now();
        let outbox = informer.apply("+a@1 +b@2");
        inbox.offer(outbox.number, &outbox.applied, false);
        inbox.sample_latency(read);
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        inbox.sample_latency(clock::now());
        let lease = inbox.take_over();
        assert_eq!(notification_lines(&inbox.next(lease, 2).unwrap()), ["synced", "+a@1"]);
        inbox.done(lease);
        assert_eq!(lag.state().count(), 0, "the last notification is still pending");
        assert_eq!(notification_lines(&inbox.next(lease, 2).unwrap()), ["+b@2"]);
        assert_eq!(lag.state().count(), 0, "not acknowledged yet");
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        inbox.done(lease);
        assert_eq!((lag.state().count(), lag.state().sum), (1, 3.0));
        inbox.sample_latency(clock::now());
        inbox.done(lease);
        assert_eq!(lag.state().count(), 1, "nothing is pending");
    }

    #[test]
    fn inbox_rejoining_a_partition_keeps_its_queue() {
        let mut informer = Informer::new();
        informer.apply("[ *a@1 ]1");
        let inbox = Inbox::default();
        let queue = |informer: &Informer| ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 1024);
        inbox.join(informer.id, queue(&informer));
        let lease = inbox.take_over();
        inbox.next(lease, 9).unwrap();
        inbox.done(lease);
        inbox.join(informer.id, queue(&informer));
        assert!(inbox.has_joined(informer.id));
        assert!(inbox.next(lease, 9).unwrap().is_empty(), "nothing is delivered twice");
        let reopened = PartitionId(informer.id.0 + 1);
        assert!(!inbox.has_joined(reopened));
        inbox.join(reopened, queue(&informer));
        assert_eq!(
            notification_lines(&inbox.next(lease, 9).unwrap()),
            ["!a@1", "synced"],
            "of a partition that began anew"
        );
    }
}
