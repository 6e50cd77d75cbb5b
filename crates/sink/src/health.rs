//! What a sink shows of itself: written by its actor as it goes, read by anyone at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde::Serialize;

use super::store::{JournalState, StoreError};
use informer_hub_types::{Histogram, HistogramState, REQUEST_SECONDS, TraceParent, clock};

/// What came of an attempt, as metrics tell it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AttemptOutcome {
    /// The receiver acknowledged the batch.
    Accepted,
    /// It did not, for now.
    Failed,
    /// It wants no more.
    Disabled,
    /// The transport panicked.
    Broken,
}

impl AttemptOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Failed, Self::Disabled, Self::Broken];

    /// The word in metrics.
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

/// How long attempts took, by outcome.
#[derive(Debug)]
struct Attempts([Histogram; AttemptOutcome::ALL.len()]);

impl Default for Attempts {
    fn default() -> Self {
        Self(AttemptOutcome::ALL.map(|_| Histogram::new(REQUEST_SECONDS)))
    }
}

/// Counters and states of one sink. The counters are lock-free; none orders anything else.
#[derive(Debug, Default)]
pub struct SinkHealth {
    /// Notifications that came in.
    pub received: AtomicU64,
    /// Of these, not for this sink by its selection.
    pub filtered: AtomicU64,
    /// Of these, taken although the filter could not be evaluated.
    pub filter_errors: AtomicU64,
    /// Of these, lost because no event could be made of them (damaged object, panic).
    pub unreadable: AtomicU64,
    /// Of these, thrown away because the sink is disabled.
    pub discarded: AtomicU64,
    /// Events that are not acknowledged, those in flight and in the journal included.
    pub pending_events: AtomicU64,
    /// Bytes of events in memory, those in flight included.
    pub pending_bytes: AtomicU64,
    /// Notifications that wait for room in the queue, their senders with them.
    pub held: AtomicU64,
    /// Events that the receiver acknowledged.
    pub delivered: AtomicU64,
    /// Batches that the receiver acknowledged.
    pub batches: AtomicU64,
    /// Attempts that were repetitions.
    pub retries: AtomicU64,
    /// Attempts that were not acknowledged.
    pub failed_attempts: AtomicU64,
    /// Events given up.
    pub dead_lettered: AtomicU64,
    /// Of these, kept no more: there was no room for them among the dead letters.
    pub dead_letters_forgotten: AtomicU64,
    /// Pending events whose last attempt failed.
    pub retrying: AtomicU64,
    /// Dead letters that are kept now: not replayed, purged or forgotten.
    pub dead_letters: AtomicU64,
    disabled: AtomicBool,
    circuit_open: AtomicBool,
    last_delivery: AtomicI64,
    last_error: ArcSwapOption<String>,
    /// Events that wait after a refusal: refused ones until their next attempt, and later ones of the same objects.
    pub refused_events: AtomicU64,
    refusal: ArcSwapOption<String>,
    /// Of these, not taken because the journal has told of them before a restart.
    pub repeated: AtomicU64,
    /// Events that were merged into others because the journal was full.
    pub merged: AtomicU64,
    journal: Mutex<Option<JournalStatus>>,
    attempts: Attempts,
}

/// A sink's journal at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalStatus {
    /// The number that the next event will have.
    pub end: u64,
    /// Events that are not acknowledged.
    pub pending: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// The most that they may be.
    pub limit: u64,
    /// Dead letters that are kept.
    pub dead_letters: u64,
    /// How often its files were found to be removed or replaced by somebody else, since the start.
    pub replaced: u64,
    /// Events that were written, not acknowledged, and are in no file any more, since the start. Those that are in the queue
    /// are delivered even so.
    pub lost: u64,
    /// Why it takes nothing in, if it does not: whoever tells the sink waits.
    pub trouble: Option<String>,
}

/// A sink's counters and states at one moment, for the status page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "named and documented as in SinkHealth")]
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
    /// A fresh one.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Whether the receiver has said that it wants no more.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.disabled.load(Relaxed)
    }

    /// It is another sink now, whose receiver has said nothing yet.
    pub fn set_enabled(&self) {
        self.disabled.store(false, Relaxed);
    }

    /// Notes that the receiver wants no more. Holds until the sink is another one, or the process ends.
    pub fn set_disabled(&self) {
        self.disabled.store(true, Relaxed);
    }

    /// Notes whether deliveries are suspended but for one lane that probes.
    pub fn set_circuit_open(&self, open: bool) {
        self.circuit_open.store(open, Relaxed);
    }

    /// Whether deliveries are suspended but for one lane that probes.
    #[must_use]
    pub fn is_circuit_open(&self) -> bool {
        self.circuit_open.load(Relaxed)
    }

    /// Notes how long an attempt took, what came of it, and the trace and span that it is in, if any.
    pub fn note_attempt(&self, outcome: AttemptOutcome, took: Duration, seen_in: Option<TraceParent>) {
        self.attempts.0[outcome as usize].record(took, seen_in);
    }

    /// How long attempts took that came to this.
    #[must_use]
    pub fn attempts(&self, outcome: AttemptOutcome) -> HistogramState {
        self.attempts.0[outcome as usize].state()
    }

    /// Notes an acknowledged batch. It clears the last error.
    pub fn note_delivery(&self, events: u64) {
        self.delivered.fetch_add(events, Relaxed);
        self.batches.fetch_add(1, Relaxed);
        self.last_delivery.store(clock::wall_millis(), Relaxed);
        self.last_error.store(None);
    }

    /// Notes what went wrong last, without secrets.
    pub fn set_error(&self, error: String) {
        self.last_error.store(Some(Arc::new(error)));
    }

    /// What went wrong last and has not been mended by a delivery since.
    #[must_use]
    pub fn error(&self) -> Option<Arc<String>> {
        self.last_error.load_full()
    }

    /// Notes why the receiver last refused an event, without secrets; `None` when none waits after a refusal. Deliveries
    /// of other events leave it as it is.
    pub fn set_refusal(&self, error: Option<&str>) {
        if error.is_some() || self.refusal.load().is_some() {
            self.refusal.store(error.map(|error| Arc::new(error.to_owned())));
        }
    }

    /// When a batch was last acknowledged.
    #[must_use]
    pub fn last_delivery(&self) -> Option<jiff::Timestamp> {
        match self.last_delivery.load(Relaxed) {
            0 => None,
            millis => jiff::Timestamp::from_millisecond(millis).ok(),
        }
    }

    /// Notes how the journal is, after it took something in.
    pub fn show_journal(&self, state: &JournalState) {
        let JournalState { end, pending, bytes, limit, letters: dead_letters, replaced, lost } = *state;
        self.note_letters(dead_letters);
        *self.journal.lock() =
            Some(JournalStatus { end, pending, bytes, limit, dead_letters, replaced, lost, trouble: None });
    }

    /// Notes how many dead letters are kept. If the last one has just been replayed or purged and nothing is retried, the
    /// last error is mended.
    pub fn note_letters(&self, kept: u64) {
        let before = self.dead_letters.swap(kept, Relaxed);
        let retries = self.retrying.load(Relaxed) + self.refused_events.load(Relaxed);
        if before > 0 && kept == 0 && retries == 0 && !self.is_disabled() {
            self.last_error.store(None);
        }
    }

    /// The number that the next event of its journal will have, as far as is known; `None` without one.
    #[must_use]
    pub fn journal_end(&self) -> Option<u64> {
        self.journal.lock().as_ref().map(|journal| journal.end)
    }

    /// Notes why the journal takes nothing in.
    pub fn set_journal_trouble(&self, error: &StoreError) {
        self.journal.lock().get_or_insert_default().trouble = Some(error.to_string());
    }

    /// All of it at about this moment; the counters are read one after the other.
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
    fn a_delivery_clears_the_last_error() {
        let health = SinkHealth::default();
        health.set_error("connection refused".to_owned());
        assert!(health.status().last_error.is_some() && health.last_delivery().is_none());
        health.note_delivery(3);
        assert!(health.status().last_error.is_none() && health.last_delivery().is_some());
        assert_eq!((health.status().delivered, health.status().batches), (3, 1));
        assert!(serde_json::to_string(&health.status()).unwrap().contains("\"deadLettered\":0"));
    }

    #[test]
    fn the_last_error_is_mended_when_the_last_dead_letter_goes_unless_something_is_retried() {
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
        assert_eq!(left(0, true, 0), (0, true), "the receiver still wants nothing");
        let health = SinkHealth::default();
        health.set_error("connection refused".to_owned());
        health.note_letters(0);
        assert!(health.error().is_some(), "there was no dead letter");
    }
}
