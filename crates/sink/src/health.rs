//! Counters and state of one sink: written by its actor, readable at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde::Serialize;

use super::work::{JournalState, StoreError};
use informer_hub_types::{Histogram, HistogramState, REQUEST_SECONDS, TraceParent, clock};

/// Outcome of an attempt to deliver a batch, as a metric label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AttemptOutcome {
    /// The receiver acknowledged the batch.
    Accepted,
    /// The receiver did not acknowledge the batch, which is retried or given up.
    Failed,
    /// The receiver asked for no more deliveries (410).
    Disabled,
    /// The transport panicked during the attempt.
    Broken,
}

impl AttemptOutcome {
    /// All outcomes.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Failed, Self::Disabled, Self::Broken];

    /// Returns the value of the metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
            Self::Broken => "broken",
        }
    }
}

/// Histograms of attempt durations, one per outcome.
#[derive(Debug)]
struct Attempts([Histogram; AttemptOutcome::ALL.len()]);

impl Default for Attempts {
    fn default() -> Self {
        Self(AttemptOutcome::ALL.map(|_| Histogram::new(REQUEST_SECONDS)))
    }
}

/// Counters and states of one sink. All atomics are read and written with relaxed memory ordering.
#[derive(Debug, Default)]
pub struct SinkHealth {
    /// Notifications that the hub passed to the sink.
    pub received: AtomicU64,
    /// Received notifications dropped by the sink's selection.
    pub filtered: AtomicU64,
    /// Received notifications for which the sink's filter could not be evaluated.
    pub filter_errors: AtomicU64,
    /// Received notifications from which no event could be built (damaged object, panic). They are lost.
    pub unreadable: AtomicU64,
    /// Received notifications discarded because the sink is disabled.
    pub discarded: AtomicU64,
    /// Unacknowledged events, including those in flight and in the journal.
    pub pending_events: AtomicU64,
    /// Bytes of events in memory, including those in flight.
    pub pending_bytes: AtomicU64,
    /// Notifications that wait for room in the queue; their senders wait too.
    pub held: AtomicU64,
    /// Events acknowledged by the receiver.
    pub delivered: AtomicU64,
    /// Batches acknowledged by the receiver.
    pub batches: AtomicU64,
    /// Attempts to deliver a batch again after a failure.
    pub retries: AtomicU64,
    /// Attempts that the receiver did not acknowledge.
    pub failed_attempts: AtomicU64,
    /// Events that became dead letters.
    pub dead_lettered: AtomicU64,
    /// Dead letters dropped for lack of room.
    pub dead_letters_forgotten: AtomicU64,
    /// Pending events whose last attempt failed.
    pub retrying: AtomicU64,
    /// Dead letters kept now: not replayed, purged or dropped.
    pub dead_letters: AtomicU64,
    disabled: AtomicBool,
    circuit_open: AtomicBool,
    last_delivery: AtomicI64,
    last_error: ArcSwapOption<String>,
    /// Events that the receiver refused and that wait for their next attempt, plus later events of the same objects,
    /// which wait behind them.
    pub refused_events: AtomicU64,
    refusal: ArcSwapOption<String>,
    /// Received notifications that were skipped because the journal already had their states when it was opened.
    pub repeated: AtomicU64,
    /// Events dropped in standby because another process had delivered them.
    pub delivered_elsewhere: AtomicU64,
    /// Events merged into later events of the same objects because the journal was full.
    pub merged: AtomicU64,
    journal: Mutex<Option<JournalStatus>>,
    attempts: Attempts,
}

/// State of a sink's journal at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct JournalStatus {
    /// Sequence number of the next event.
    pub end: u64,
    /// Events that the receiver has not acknowledged.
    pub pending: u64,
    /// Bytes of the journal's files.
    pub bytes: u64,
    /// Maximum size of the journal in bytes.
    pub limit: u64,
    /// Dead letters kept.
    pub dead_letters: u64,
    /// Number of times since the start that another process removed or replaced the journal's files.
    pub replaced: u64,
    /// Unacknowledged events that have disappeared from the journal's files since the start. An event that is still
    /// queued in memory is delivered nevertheless.
    pub lost: u64,
    /// Error that keeps the journal from accepting events, so that senders wait; `None` if it accepts events.
    pub trouble: Option<String>,
}

/// Snapshot of a sink's counters and states, for the status page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "named and documented as in SinkHealth")]
#[non_exhaustive]
pub struct SinkStatus {
    pub received: u64,
    pub filtered: u64,
    pub filter_errors: u64,
    pub unreadable: u64,
    pub discarded: u64,
    pub pending_events: u64,
    pub pending_bytes: u64,
    pub held: u64,
    pub delivered: u64,
    pub batches: u64,
    pub retries: u64,
    pub failed_attempts: u64,
    pub dead_lettered: u64,
    pub dead_letters_forgotten: u64,
    pub retrying: u64,
    pub dead_letters: u64,
    pub repeated: u64,
    pub delivered_elsewhere: u64,
    pub merged: u64,
    pub journal: Option<JournalStatus>,
    pub disabled: bool,
    pub circuit_open: bool,
    pub last_delivery: Option<jiff::Timestamp>,
    pub last_error: Option<Arc<String>>,
    pub refused_events: u64,
    pub refusal: Option<Arc<String>>,
}

impl SinkHealth {
    /// Creates the health record of a new sink.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns whether the receiver asked for no more deliveries.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.disabled.load(Relaxed)
    }

    /// Enables a disabled sink again, after its configuration changed.
    pub fn set_enabled(&self) {
        self.disabled.store(false, Relaxed);
    }

    /// Records that the receiver asked for no more deliveries. Lasts until the sink's configuration changes or the
    /// process ends.
    pub fn set_disabled(&self) {
        self.disabled.store(true, Relaxed);
    }

    /// Records whether the circuit is open: the receiver keeps failing ([`Circuit`](crate::Circuit)).
    pub fn set_circuit_open(&self, open: bool) {
        self.circuit_open.store(open, Relaxed);
    }

    /// Returns whether the circuit is open: the receiver keeps failing. While it is open and several lanes (parallel
    /// queues) have failed, the sink makes only one attempt at a time.
    #[must_use]
    pub fn is_circuit_open(&self) -> bool {
        self.circuit_open.load(Relaxed)
    }

    /// Records the duration and outcome of an attempt to deliver. `seen_in` is the span of the attempt; `None` if it is
    /// not traced.
    pub fn note_attempt(&self, outcome: AttemptOutcome, took: Duration, seen_in: Option<TraceParent>) {
        self.attempts.0[outcome as usize].record(took, seen_in);
    }

    /// Returns the histogram of the durations of attempts with this outcome.
    #[must_use]
    pub fn attempts(&self, outcome: AttemptOutcome) -> HistogramState {
        self.attempts.0[outcome as usize].state()
    }

    /// Records an acknowledged batch. Clears the last error.
    pub fn note_delivery(&self, events: u64) {
        self.delivered.fetch_add(events, Relaxed);
        self.batches.fetch_add(1, Relaxed);
        self.last_delivery.store(clock::wall_millis(), Relaxed);
        self.last_error.store(None);
    }

    /// Sets the last error, which must not contain secrets.
    pub fn set_error(&self, error: String) {
        self.last_error.store(Some(Arc::new(error)));
    }

    /// Returns the last error; `None` if there was none, a delivery has succeeded since, or [`Self::note_letters`] has
    /// cleared it.
    #[must_use]
    pub fn error(&self) -> Option<Arc<String>> {
        self.last_error.load_full()
    }

    /// Sets the reason for which the receiver last refused an event, without secrets. Call it with `None` once no
    /// refused event waits any more; deliveries of other events do not clear the reason.
    pub fn set_refusal(&self, error: Option<&str>) {
        if error.is_some() || self.refusal.load().is_some() {
            self.refusal.store(error.map(|error| Arc::new(error.to_owned())));
        }
    }

    /// Returns when the receiver last acknowledged a batch; `None` if it never did.
    #[must_use]
    pub fn last_delivery(&self) -> Option<jiff::Timestamp> {
        match self.last_delivery.load(Relaxed) {
            0 => None,
            millis => jiff::Timestamp::from_millisecond(millis).ok(),
        }
    }

    /// Records the journal's state after a successful write. Clears the error that [`Self::set_journal_trouble`]
    /// recorded.
    pub fn show_journal(&self, state: &JournalState) {
        let JournalState { end, pending, bytes, limit, letters: dead_letters, replaced, lost } = *state;
        self.note_letters(dead_letters);
        *self.journal.lock() =
            Some(JournalStatus { end, pending, bytes, limit, dead_letters, replaced, lost, trouble: None });
    }

    /// Records the number of kept dead letters. If it drops to zero while no event is retried, clears the last error.
    pub fn note_letters(&self, kept: u64) {
        let before = self.dead_letters.swap(kept, Relaxed);
        let retries = self.retrying.load(Relaxed) + self.refused_events.load(Relaxed);
        if before > 0 && kept == 0 && retries == 0 && !self.is_disabled() {
            self.last_error.store(None);
        }
    }

    /// Returns the sequence number of the journal's next event, as of the last write; `None` without a journal.
    #[must_use]
    pub fn journal_end(&self) -> Option<u64> {
        self.journal.lock().as_ref().map(|journal| journal.end)
    }

    /// Records why the journal accepts no events, until the next successful write.
    pub fn set_journal_trouble(&self, error: &StoreError) {
        self.journal.lock().get_or_insert_default().trouble = Some(error.to_string());
    }

    /// Returns all counters and states. The counters are read one after the other, not atomically.
    #[must_use]
    pub fn status(&self) -> SinkStatus {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        SinkStatus {
            received: read(&self.received),
            filtered: read(&self.filtered),
            filter_errors: read(&self.filter_errors),
            unreadable: read(&self.unreadable),
            discarded: read(&self.discarded),
            pending_events: read(&self.pending_events),
            pending_bytes: read(&self.pending_bytes),
            held: read(&self.held),
            delivered: read(&self.delivered),
            batches: read(&self.batches),
            retries: read(&self.retries),
            failed_attempts: read(&self.failed_attempts),
            dead_lettered: read(&self.dead_lettered),
            dead_letters_forgotten: read(&self.dead_letters_forgotten),
            retrying: read(&self.retrying),
            dead_letters: read(&self.dead_letters),
            repeated: read(&self.repeated),
            delivered_elsewhere: read(&self.delivered_elsewhere),
            merged: read(&self.merged),
            journal: self.journal.lock().clone(),
            disabled: self.is_disabled(),
            circuit_open: self.is_circuit_open(),
            last_delivery: self.last_delivery(),
            last_error: self.error(),
            refused_events: read(&self.refused_events),
            refusal: self.refusal.load_full(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivery_clears_the_last_error() {
        let health = SinkHealth::default();
        health.set_error("connection refused".to_owned());
        assert!(health.status().last_error.is_some() && health.last_delivery().is_none());
        health.note_delivery(3);
        assert!(health.status().last_error.is_none() && health.last_delivery().is_some());
        assert_eq!((health.status().delivered, health.status().batches), (3, 1));
        assert!(serde_json::to_string(&health.status()).unwrap().contains("\"deadLettered\":0"));
    }

    #[test]
    fn removing_the_last_dead_letter_clears_the_error_unless_retrying() {
        let left = |retrying: u64, disabled: bool, kept: u64| {
            let health = SinkHealth::default();
            health.set_error("receiver answered 400 Bad Request".to_owned());
            health.note_letters(2);
            health.retrying.store(retrying, Relaxed);
            if disabled {
                health.set_disabled();
            }
            health.note_letters(kept);
            (health.status().dead_letters, health.error().is_some())
        };
        assert_eq!(left(0, false, 1), (1, true), "one is left");
        assert_eq!(left(0, false, 0), (0, false));
        assert_eq!(left(3, false, 0), (0, true), "others are retried");
        assert_eq!(left(0, true, 0), (0, true), "the sink is still disabled");
        let health = SinkHealth::default();
        health.set_error("connection refused".to_owned());
        health.note_letters(0);
        assert!(health.error().is_some(), "there was no dead letter");
    }
}
