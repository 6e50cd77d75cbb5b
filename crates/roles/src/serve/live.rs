//! Tail of the log, distributed to the partitions that a process serves.
//!
//! After [`SILENCE`] without an entry, the tail is compared with the log. If the log has entries that the tail has not
//! delivered, the tail is opened again.
//!
//! If the log has removed entries before the tail read them, all subscriptions end, because each partition may lack
//! some. They also end if the log has lost entries that the tail has read, as after a restore of an older backup.
//!
//! # Bounds
//! The queue of a partition holds at most [`QUEUE_ENTRIES`], and all queues together at most [`QUEUE_BYTES`]. An entry
//! beyond these limits ends the subscription of its partition. The subscriber then reads the log instead and subscribes
//! again. The tail waits for no subscriber.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use futures::StreamExt;
use informer_hub_fleet::{Entry, Partition, Sequence};
use informer_hub_types::{Threads, WatchCell, jittered_backoff, rng};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::backend::{Backend, BackendError};

/// Maximum number of entries queued for one partition.
const QUEUE_ENTRIES: usize = 256;
/// Maximum bytes of the entries queued for all partitions together.
const QUEUE_BYTES: usize = 64 << 20;
/// Time without an entry after which the log's last entry is compared with the last entry that the tail has read.
const SILENCE: Duration = Duration::from_secs(2);
/// First and longest pause before the tail is opened again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Tail of the log and its queues; see the [module documentation](self). Dropping it ends the tail.
pub(super) struct Live {
    queues: Arc<Queues>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Queues {
    subscribers: Mutex<HashMap<Partition, Subscriber>>,
    /// Bytes of all queued entries.
    bytes: AtomicUsize,
    /// Number of the next subscription.
    next: AtomicU64,
    /// Sequence of the last entry that the tail has read. This entry and all earlier ones have been queued.
    position: AtomicU64,
    /// Whether the tail was ever opened, and why it is not open now.
    state: WatchCell<TailState>,
}

#[derive(Clone, Default)]
struct TailState {
    opened: bool,
    error: Option<String>,
}

struct Subscriber {
    number: u64,
    sender: mpsc::Sender<Entry>,
}

/// Queue of one partition, filled from the tail of the log.
pub(super) struct Subscription {
    queues: Arc<Queues>,
    partition: Partition,
    number: u64,
    receiver: mpsc::Receiver<Entry>,
}

impl Live {
    pub(super) fn start(backend: Arc<dyn Backend>, io: &Threads) -> Self {
        let queues = Arc::<Queues>::default();
        let task = io.spawn(follow(backend, Arc::clone(&queues)));
        Self { queues, task }
    }

    /// Waits until the tail is open, then subscribes to the partition's later entries. A later subscription to the same
    /// partition ends this one.
    pub(super) async fn subscribe(&self, partition: &Partition) -> Subscription {
        self.queues.opened().await;
        let number = self.queues.next.fetch_add(1, Relaxed);
        let (sender, receiver) = mpsc::channel(QUEUE_ENTRIES);
        self.queues.subscribers.lock().insert(partition.clone(), Subscriber { number, sender });
        Subscription { queues: Arc::clone(&self.queues), partition: partition.clone(), number, receiver }
    }

    /// Waits until the tail is open. Returns the sequence of the last entry that it has read.
    pub(super) async fn position(&self) -> Sequence {
        self.queues.opened().await;
        self.queues.position.load(SeqCst)
    }

    /// Returns why the tail of the log is not open; `None` if there is no error.
    pub(super) fn error(&self) -> Option<String> {
        self.queues.state.get().error
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Subscription {
    /// Returns the next entry. `None` means that the subscription has ended: read the missed entries and subscribe
    /// again.
    ///
    /// # Cancel safety
    /// No entry is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Entry> {
        let entry = self.receiver.recv().await?;
        self.queues.bytes.fetch_sub(entry.payload.len(), Relaxed);
        Some(entry)
    }

    /// Returns a sequence up to which [`Self::next`] has returned all entries of the partition; `None` if that is
    /// unknown.
    pub(super) fn covered(&self) -> Option<Sequence> {
        // Loaded before the queue is checked: entries up to it have been queued, unless the subscription has ended.
        let position = self.queues.position.load(SeqCst);
        (self.receiver.is_empty() && !self.receiver.is_closed()).then_some(position)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        {
            let mut subscribers = self.queues.subscribers.lock();
            if subscribers.get(&self.partition).is_some_and(|subscriber| subscriber.number == self.number) {
                subscribers.remove(&self.partition);
            }
        }
        while let Ok(entry) = self.receiver.try_recv() {
            self.queues.bytes.fetch_sub(entry.payload.len(), Relaxed);
        }
    }
}

impl Queues {
    /// Waits until the tail has been opened for the first time.
    async fn opened(&self) {
        // Cannot fail: `self` owns the cell that holds the state.
        drop(self.state.subscribe().wait_for(|state| state.opened).await);
    }

    fn distribute(&self, entry: Entry) {
        let mut subscribers = self.subscribers.lock();
        let Some(subscriber) = subscribers.get(&entry.partition) else { return };
        let (partition, size) = (entry.partition.clone(), entry.payload.len());
        let before = self.bytes.fetch_add(size, Relaxed);
        if before + size > QUEUE_BYTES || subscriber.sender.try_send(entry).is_err() {
            self.bytes.fetch_sub(size, Relaxed);
            subscribers.remove(&partition);
            tracing::debug!(
                %partition,
                "too many entries of the fleet's log are queued; reading the log of the resource again"
            );
        }
    }

    /// Ends all subscriptions, because entries between `last` and `next` are missing.
    fn interrupt(&self, last: Sequence, next: Sequence) {
        tracing::warn!(
            last,
            next,
            "the fleet's log removed entries before this process read them; reading checkpoints and log again"
        );
        self.end_all();
    }

    /// Moves the position back to the log's last entry and ends all subscriptions, because the log has lost entries.
    fn move_back(&self, position: Sequence, last: Sequence) {
        tracing::warn!(
            position,
            last,
            "the fleet's log lost entries that this process has read; reading checkpoints and log again"
        );
        self.position.store(last, SeqCst);
        self.end_all();
    }

    fn end_all(&self) {
        // Ends them in a fixed order, so that simulations are deterministic.
        let mut ended: Vec<_> = self.subscribers.lock().drain().map(|(_, subscriber)| subscriber).collect();
        ended.sort_unstable_by_key(|subscriber| subscriber.number);
    }

    fn note(&self, error: Option<&BackendError>) {
        let error = error.map(ToString::to_string);
        self.state.modify(|state| {
            let is_change = state.error.is_some() != error.is_some();
            match &error {
                Some(error) if is_change => {
                    tracing::warn!(error, "cannot read the collectors' changes from the fleet's log in NATS; retrying");
                }
                None if is_change => {
                    tracing::info!("the collectors' changes can be read from the fleet's log in NATS again");
                }
                _ => {}
            }
            let changes = state.error != error || error.is_none() && !state.opened;
            state.opened |= error.is_none();
            state.error = error;
            changes
        });
    }
}

/// Distributes the log's entries to the subscriptions until the task is aborted. A tail that ends is opened again after
/// the last distributed entry.
async fn follow(backend: Arc<dyn Backend>, queues: Arc<Queues>) {
    let mut failures = 0;
    loop {
        let error = follow_once(&*backend, &queues, &mut failures).await.err();
        queues.note(Some(&error.unwrap_or_else(|| BackendError("the subscription to the log has ended".to_owned()))));
        failures += 1;
        tokio::time::sleep(jittered_backoff(PAUSE.0, failures, PAUSE.1)).await;
    }
}

async fn follow_once(backend: &dyn Backend, queues: &Queues, failures: &mut u32) -> Result<(), BackendError> {
    let known = queues.state.get().opened.then(|| queues.position.load(SeqCst));
    let (begin, mut entries) = backend.tail(known).await?;
    let first = backend.retained().await?.first;
    let mut position = known.unwrap_or(begin);
    if first > position + 1 {
        queues.interrupt(position, first);
        position = first - 1;
    }
    queues.position.store(position, SeqCst);
    queues.note(None);
    // Sequence of the log's last entry, as of the last request.
    let mut end = None;
    loop {
        let entry = tokio::select! {
            biased;
            entry = entries.next() => entry,
            () = tokio::time::sleep(SILENCE.mul_f64(0.75 + 0.5 * rng::unit())) => {
                if end > Some(position) {
                    return Err(BackendError("the subscription to the log delivers no entries".to_owned()));
                }
                // Errors are ignored: the cluster watch checks whether the backend answers.
                let before = std::mem::replace(&mut end, backend.retained().await.ok().map(|retained| retained.last));
                // Two answers, since an outdated server may have given the first one.
                if let (Some(before), Some(last)) = (before, end)
                    && before.max(last) < position
                {
                    queues.move_back(position, last);
                    return Err(BackendError("the log ends before an entry that was read".to_owned()));
                }
                continue;
            }
        };
        let Some(entry) = entry.transpose()? else { return Ok(()) };
        *failures = 0;
        if entry.sequence > position + 1 {
            queues.interrupt(position, entry.sequence);
        }
        position = position.max(entry.sequence);
        queues.distribute(entry);
        queues.position.store(position, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use informer_hub_fleet::simulated_log::Faults;
    use informer_hub_fleet::{Answer, Request};
    use informer_hub_types::rng::SeededRng;
    use informer_hub_types::{ClusterName, Gvr};

    use super::*;
    use crate::simulated::{SimulatedBackend, SimulatedFleet};

    fn live() -> Live {
        let queues = Arc::<Queues>::default();
        queues.note(None);
        Live { queues, task: tokio::spawn(async {}) }
    }

    fn partition(name: &str) -> Partition {
        let (cluster, resource) = (ClusterName::new("c").unwrap(), Gvr::new("", "v1", name));
        Partition { cluster, resource, selection: 0 }
    }

    fn entry(of: &Partition, sequence: Sequence, size: usize) -> Entry {
        Entry { partition: of.clone(), sequence, payload: Bytes::from(vec![0; size]) }
    }

    #[tokio::test]
    async fn full_queue_ends_its_subscription_after_what_it_holds_and_no_other() {
        let (live, slow, quick) = (live(), partition("slow"), partition("quick"));
        let (mut first, mut other) = (live.subscribe(&slow).await, live.subscribe(&quick).await);
        let count = QUEUE_ENTRIES as u64 + 5;
        for sequence in 1..=count {
            live.queues.distribute(entry(&slow, sequence, 10));
        }
        live.queues.distribute(entry(&quick, count + 1, 10));
        for sequence in 1..=QUEUE_ENTRIES as u64 {
            assert_eq!(first.next().await.unwrap().sequence, sequence);
        }
        assert_eq!(first.next().await, None);
        assert_eq!(other.next().await.unwrap().sequence, count + 1);
        // The partition subscribes again before it drops the subscription that has ended.
        let mut second = live.subscribe(&slow).await;
        drop(first);
        live.queues.distribute(entry(&slow, count + 2, 10));
        assert_eq!(second.next().await.unwrap().sequence, count + 2);
        assert_eq!(live.queues.bytes.load(Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_tail_is_opened_again_where_it_was() {
        let _seeded = SeededRng::new(1);
        let (fleet, pods) = (SimulatedFleet::new(Faults::NONE), partition("pods"));
        let (reader, writer) = (Arc::new(fleet.connect()), fleet.connect());
        let live = Live::start(reader, &Threads::current());
        let mut subscription = live.subscribe(&pods).await;
        for expected in 0..6 {
            if expected % 2 == 1 {
                fleet.silence_watches();
            }
            let append = Request::Append { partition: pods.clone(), expected, payload: Bytes::from_static(b"x") };
            assert!(matches!(writer.execute(append).await, Answer::Stored(_)));
            let read = tokio::time::timeout(4 * SILENCE, subscription.next()).await;
            assert_eq!(read.expect("the tail delivers").unwrap().sequence, expected + 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn entries_that_the_log_removed_unread_end_all_subscriptions() {
        let _seeded = SeededRng::new(1);
        let (fleet, pods, nodes) = (SimulatedFleet::new(Faults::NONE), partition("pods"), partition("nodes"));
        let (reader, writer) = (Arc::new(fleet.connect()), fleet.connect());
        let live = Live::start(Arc::<SimulatedBackend>::clone(&reader) as Arc<dyn Backend>, &Threads::current());
        let append = async |of: &Partition, expected| {
            let append = Request::Append { partition: of.clone(), expected, payload: Bytes::from_static(b"x") };
            let Answer::Stored(sequence) = writer.execute(append).await else { panic!("not stored") };
            sequence
        };
        for keep in [0, 1] {
            let (mut quiet, mut busy) = (live.subscribe(&nodes).await, live.subscribe(&pods).await);
            let before = append(&pods, 0).await;
            assert_eq!(busy.next().await.unwrap().sequence, before);
            assert_eq!((busy.covered(), quiet.covered()), (Some(before), Some(before)));
            reader.set_cut_off(true);
            let lost = append(&pods, before).await;
            fleet.log().set_retention(0, Duration::MAX);
            fleet.log().set_retention(usize::MAX, Duration::MAX);
            // In the first round, the log has no entry left; in the second, it has a later one.
            for _ in 0..keep {
                append(&pods, 0).await;
            }
            reader.set_cut_off(false);
            let ended = tokio::time::timeout(8 * SILENCE, quiet.next()).await;
            assert_eq!(ended.expect("the subscription ends"), None);
            assert_eq!((busy.next().await, quiet.covered()), (None, None));
            assert!(live.position().await >= lost);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn log_that_lost_entries_ends_all_subscriptions_and_is_followed_from_its_end() {
        let _seeded = SeededRng::new(1);
        let (fleet, pods, nodes) = (SimulatedFleet::new(Faults::NONE), partition("pods"), partition("nodes"));
        let (reader, writer) = (Arc::new(fleet.connect()), fleet.connect());
        let live = Live::start(reader, &Threads::current());
        let (mut quiet, mut busy) = (live.subscribe(&nodes).await, live.subscribe(&pods).await);
        let append = async |expected| {
            let append = Request::Append { partition: pods.clone(), expected, payload: Bytes::from_static(b"x") };
            let Answer::Stored(sequence) = writer.execute(append).await else { panic!("not stored") };
            sequence
        };
        for expected in 0..3 {
            append(expected).await;
            assert_eq!(busy.next().await.unwrap().sequence, expected + 1);
        }
        fleet.log().roll_back(1);
        let ended = tokio::time::timeout(8 * SILENCE, quiet.next()).await;
        assert_eq!(ended.expect("the subscription ends"), None);
        assert_eq!((busy.next().await, live.position().await), (None, 1));
        let mut again = live.subscribe(&pods).await;
        let sequence = append(1).await;
        let read = tokio::time::timeout(8 * SILENCE, again.next()).await;
        assert_eq!(read.expect("the tail delivers").unwrap().sequence, sequence);
    }

    #[tokio::test]
    async fn bytes_are_bounded_over_all_partitions_and_released() {
        let live = live();
        let partitions: Vec<_> = (0..5).map(|at| partition(&format!("p{at}"))).collect();
        let mut subscriptions = Vec::new();
        for (at, partition) in partitions.iter().enumerate() {
            subscriptions.push(live.subscribe(partition).await);
            live.queues.distribute(entry(partition, at as u64 + 1, QUEUE_BYTES / 4));
        }
        assert_eq!(live.queues.bytes.load(Relaxed), QUEUE_BYTES);
        assert_eq!(subscriptions[4].next().await, None);
        assert_eq!(subscriptions[0].next().await.unwrap().sequence, 1);
        drop(subscriptions);
        assert_eq!(live.queues.bytes.load(Relaxed), 0);
        assert!(live.queues.subscribers.lock().is_empty());
    }
}
