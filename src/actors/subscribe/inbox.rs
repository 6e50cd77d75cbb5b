//! What waits for one subscriber of one informer, over the lives of the actors that fill and empty it.
//!
//! Listener, processor, informer and cluster actor may all die; what a subscriber has not handled yet must not. So its
//! queue belongs to the subscription, and a batch leaves it only when the subscriber is known to have it: a listener
//! that dies with a batch in hand leaves it to its successor. A subscriber may then see that batch twice, never not
//! at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tracing::Span;

use crate::cache::{Applied, ListenerQueue, PartitionId};
use informer_hub_telemetry::spans;
use informer_hub_types::clock;
use informer_hub_types::{Followed, Histogram, Notification, Origin, TraceParent, Traced};

/// What a listener shows of itself.
#[derive(Debug, Default)]
pub(in crate::actors) struct ListenerHealth {
    /// Notifications that wait: how far behind the subscriber is.
    pub pending: AtomicU64,
    /// Notifications handed over.
    pub delivered: AtomicU64,
    /// Notifications merged because the subscriber was behind.
    pub merged: AtomicU64,
    /// Notifications that the subscriber failed on.
    pub lost: AtomicU64,
    /// How long changes took from the queue to the subscriber's answer, in samples: of all inboxes of its subscription.
    pub lag: Option<Arc<Histogram>>,
}

/// One listener actor's right to empty an inbox, until the next one takes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::actors) struct Turn(u64);

/// What a subscriber has to have answered for: all that came of a partition up to a batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::actors) struct Mark {
    partition: PartitionId,
    number: u64,
    /// Known once the batch is in the inbox: the place behind what came of it, and how much had merged by then.
    place: Option<(u64, u64)>,
}

impl Mark {
    pub(in crate::actors) fn new(partition: PartitionId, number: u64) -> Self {
        Self { partition, number, place: None }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Inbox {
    pub(in crate::actors) health: Arc<ListenerHealth>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until it has joined a processor.
    queue: Option<ListenerQueue>,
    /// The partition that the queue is of.
    partition: Option<PartitionId>,
    /// The batch that the subscriber has been given and has not answered for.
    handed: Vec<Notification>,
    /// The place of the first of them in the queue.
    handed_from: u64,
    /// Whether the subscriber has answered for the mark that follows the initial objects.
    synced: bool,
    /// A change that is followed: the place behind it, and its time here.
    followed: Option<(u64, Followed, Span)>,
    turn: Turn,
}

impl Inbox {
    /// An empty one that counts there how long changes took that it was asked to follow.
    pub(in crate::actors) fn counting(lag: Arc<Histogram>) -> Self {
        let health = ListenerHealth { lag: Some(lag), ..ListenerHealth::default() };
        Self { health: Arc::new(health), ..Self::default() }
    }

    /// Sees how long it takes until the subscriber has answered for all that waits now, of which that change is one. One at
    /// a time: while one is followed, this does nothing, unless this one has a trace and that has none.
    pub(in crate::actors) fn follow(&self, followed: impl Into<Followed>) {
        let (mut state, followed) = (self.state.lock(), followed.into());
        let others = state.followed.as_ref().map(|(_, followed, _)| followed);
        let queue = state.queue.as_ref().filter(|queue| !queue.is_empty() && followed.is_before(others));
        if let Some(place) = queue.map(|queue| queue.places().1) {
            let span = spans::stage("listener", followed.traced.as_ref());
            state.followed = Some((place, followed, span));
        }
    }

    /// The trace of a change that may be among what is in hand.
    pub(in crate::actors) fn traced(&self) -> Option<Traced> {
        self.state.lock().followed.as_ref().and_then(|(_, followed, _)| followed.traced.clone())
    }

    /// Where notifications merge, places move down: the change is then taken for told a little late, at the latest when
    /// nothing waits.
    fn note_followed(&self, state: &mut State) {
        let queue = state.queue.as_ref();
        let is_told = |place: u64| queue.is_none_or(|queue| queue.is_empty() || queue.places().0 >= place);
        if let Some((_, followed, _)) = state.followed.take_if(|(place, ..)| is_told(*place))
            && let Some(lag) = &self.health.lag
        {
            let seen_in = followed.traced.as_ref().and_then(|traced| TraceParent::of(&traced.span));
            lag.record(clock::now().duration_since(followed.read), seen_in);
        }
    }

    /// Whether it has joined a processor of this partition before, and goes on from there.
    pub(in crate::actors) fn has_joined(&self, partition: PartitionId) -> bool {
        let state = self.state.lock();
        state.queue.is_some() && state.partition == Some(partition)
    }

    /// Has it begin with `queue`, unless it has begun with this partition. Batches are numbered by partition, so what
    /// waits of an earlier one, which has been forgotten with its objects, cannot be gone on from.
    pub(in crate::actors) fn join(&self, partition: PartitionId, queue: ListenerQueue) {
        let mut state = self.state.lock();
        if state.queue.is_none() || state.partition != Some(partition) {
            state.queue = Some(queue);
            state.partition = Some(partition);
            state.followed = None;
            state.synced = state.queue.as_ref().is_some_and(ListenerQueue::continues);
        }
    }

    /// Goes on with a partition that has become another, with all that waits.
    pub(in crate::actors) fn go_on_with(&self, partition: PartitionId, origin: Arc<Origin>) {
        let mut state = self.state.lock();
        if let Some(queue) = &mut state.queue {
            queue.go_on_as(origin);
            state.partition = Some(partition);
        }
    }

    /// Takes in what one batch did to the store.
    pub(in crate::actors) fn offer(&self, number: u64, applied: &[Applied], resync: bool) {
        let mut state = self.state.lock();
        if let Some(queue) = &mut state.queue {
            queue.offer(number, applied, resync);
        }
        self.show(&state);
    }

    /// The right to empty it, which the holder until now loses.
    pub(in crate::actors) fn take_over(&self) -> Turn {
        let mut state = self.state.lock();
        state.turn.0 += 1;
        state.turn
    }

    /// The next batch, of at most `max` notifications unless a predecessor left a larger one. `None` when another has
    /// taken over.
    pub(in crate::actors) fn next(&self, turn: Turn, max: usize) -> Option<Vec<Notification>> {
        let mut state = self.state.lock();
        if state.turn != turn {
            return None;
        }
        if state.handed.is_empty() {
            state.handed_from = state.queue.as_ref().map_or(0, |queue| queue.places().0);
            state.handed = state.queue.as_mut().map(|queue| queue.take(max)).unwrap_or_default();
            self.show(&state);
        }
        Some(state.handed.clone())
    }

    /// The subscriber has answered for the batch in hand.
    pub(in crate::actors) fn done(&self, turn: Turn) {
        let mut state = self.state.lock();
        if state.turn == turn {
            let handed = std::mem::take(&mut state.handed);
            state.synced |= handed.iter().any(|notification| matches!(notification, Notification::Synced(_)));
            self.note_followed(&mut state);
        }
    }

    /// Whether nothing waits, and the subscriber has answered for all that it was given.
    pub(in crate::actors) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.handed.is_empty() && state.queue.as_ref().is_none_or(ListenerQueue::is_empty)
    }

    /// Whether the subscriber has answered for every initial object.
    pub(in crate::actors) fn has_synced(&self) -> bool {
        self.state.lock().synced
    }

    /// Whether the subscriber has answered for all up to a mark. Where notifications merge meanwhile, they cannot be told
    /// apart, so that all that waits has to be answered for.
    pub(in crate::actors) fn has_passed(&self, mark: &mut Mark) -> bool {
        let state = self.state.lock();
        let of_it = state.queue.as_ref().filter(|_| state.partition == Some(mark.partition));
        let Some(queue) = of_it.filter(|queue| queue.last_batch() >= mark.number) else { return false };
        if state.handed.is_empty() && queue.is_empty() {
            return true;
        }
        let (first, end) = queue.places();
        let (place, merged) = *mark.place.get_or_insert((end, queue.merged()));
        let answered = if state.handed.is_empty() { first } else { state.handed_from };
        !queue.is_replaying() && queue.merged() == merged && answered >= place
    }

    /// Publishes how far behind the subscriber is.
    fn show(&self, state: &State) {
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
    use crate::cache::{ListenerOptions, ListenerQueue};

    #[test]
    fn a_batch_in_hand_passes_to_the_successor_and_its_late_answer_is_nobodys() {
        let mut informer = Informer::new();
        informer.apply("[ ]0");
        let inbox = Inbox::default();
        inbox.join(informer.id, ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 1024));
        let outbox = informer.apply("+a@1 +b@2");
        inbox.offer(outbox.number, &outbox.applied, false);
        let dying = inbox.take_over();
        assert_eq!(notification_lines(&inbox.next(dying, 2).unwrap()), ["synced", "+a@1"]);
        let successor = inbox.take_over();
        assert!(inbox.next(dying, 2).is_none(), "its turn is over");
        inbox.done(dying);
        assert_eq!(notification_lines(&inbox.next(successor, 2).unwrap()), ["synced", "+a@1"]);
        inbox.done(successor);
        assert_eq!(notification_lines(&inbox.next(successor, 2).unwrap()), ["+b@2"]);
        inbox.done(successor);
        assert!(inbox.next(successor, 2).unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_with_a_trace_is_followed_in_place_of_one_without() {
        let mut informer = Informer::new();
        informer.apply("[ ]0");
        let inbox = Inbox::default();
        inbox.join(informer.id, ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 1024));
        let outbox = informer.apply("+a@1 +b@2");
        inbox.offer(outbox.number, &outbox.applied, false);
        inbox.follow(clock::now());
        let is_of = |name| inbox.traced().is_some_and(|traced| traced.key.name() == name);
        for name in ["a", "b"] {
            let (key, version) =
                (informer_hub_types::ObjectKey::new("", name), informer_hub_types::ResourceVersion::new("1"));
            let traced = Some(Traced { span: Span::none(), key, version });
            inbox.follow(Followed { read: clock::now(), traced });
            inbox.follow(clock::now());
            assert!(is_of("a"));
        }
        let turn = inbox.take_over();
        inbox.next(turn, 9).unwrap();
        assert!(is_of("a"), "the subscriber has not answered");
        inbox.done(turn);
        assert!(inbox.traced().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_followed_until_its_subscriber_has_answered_for_it() {
        let mut informer = Informer::new();
        informer.apply("[ ]0");
        let lag = Arc::new(Histogram::new(informer_hub_types::LAG_SECONDS));
        let inbox = Inbox::counting(Arc::clone(&lag));
        inbox.join(informer.id, ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 1024));
        let came = clock::now();
        let outbox = informer.apply("+a@1 +b@2");
        inbox.offer(outbox.number, &outbox.applied, false);
        inbox.follow(came);
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        inbox.follow(clock::now());
        let turn = inbox.take_over();
        assert_eq!(notification_lines(&inbox.next(turn, 2).unwrap()), ["synced", "+a@1"]);
        inbox.done(turn);
        assert_eq!(lag.state().count(), 0, "what came last still waits");
        assert_eq!(notification_lines(&inbox.next(turn, 2).unwrap()), ["+b@2"]);
        assert_eq!(lag.state().count(), 0, "nobody has answered for it");
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        inbox.done(turn);
        assert_eq!((lag.state().count(), lag.state().sum), (1, 3.0));
        inbox.follow(clock::now());
        inbox.done(turn);
        assert_eq!(lag.state().count(), 1, "nothing waits that could be followed");
    }

    #[test]
    fn joining_again_goes_on_from_where_it_was() {
        let mut informer = Informer::new();
        informer.apply("[ *a@1 ]1");
        let inbox = Inbox::default();
        let queue = |informer: &Informer| ListenerQueue::new(ListenerOptions::default(), &informer.partition(), 1024);
        inbox.join(informer.id, queue(&informer));
        let turn = inbox.take_over();
        inbox.next(turn, 9).unwrap();
        inbox.done(turn);
        inbox.join(informer.id, queue(&informer));
        assert!(inbox.has_joined(informer.id));
        assert!(inbox.next(turn, 9).unwrap().is_empty(), "nobody is told twice");
        let reopened = PartitionId(informer.id.0 + 1);
        assert!(!inbox.has_joined(reopened));
        inbox.join(reopened, queue(&informer));
        assert_eq!(
            notification_lines(&inbox.next(turn, 9).unwrap()),
            ["!a@1", "synced"],
            "of a partition that began anew"
        );
    }
}
