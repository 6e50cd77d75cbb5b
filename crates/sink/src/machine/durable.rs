//! Journal part of a sink's state machine: decides when to write events to the journal, and when to read them back.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::MachineParams;
use crate::work::{Commit, Done, Durability, StoreError, Work};
use crate::{DeadLetter, Event, Lanes, LastDelivered};
use informer_hub_types::clock::Instant;
use informer_hub_types::{Fsync, exponential_backoff};

/// Maximum number of accepted events that are not written to the journal yet. At this limit the sink accepts no more
/// events.
///
/// Also the maximum number of unwritten dead letters. At that limit no more events are read from the journal; events
/// that are in the lanes already may still exceed it.
const MAX_UNWRITTEN: usize = 4096;
/// Maximum bytes of accepted events that are not written to the journal yet, exceeded by at most one event. Also the
/// maximum bytes of unwritten dead letters.
const MAX_UNWRITTEN_BYTES: usize = 16 * 1024 * 1024;
/// Bytes and number of unwritten events at which they are written immediately. The number must not exceed the size of a
/// listener's batch: a listener sends no further events until the sink has written the batch and answered.
const ENOUGH: (usize, usize) = (1024 * 1024, 256);
/// Maximum time for which an acknowledgement waits to be written together with the next events. After a crash in this
/// time, the acknowledged event is delivered again.
const ACK_DELAY: Duration = Duration::from_millis(100);
/// First and longest pause after a failed read or write of the journal.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Queue of events to write to a sink's journal, and the position from which the journal is read next.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(super) struct Durable<T> {
    fsync: Fsync,
    last_delivered: LastDelivered,
    unwritten: Vec<Event>,
    unwritten_bytes: usize,
    /// Time at which the oldest unwritten event was queued; `None` if there is none.
    since: Option<Instant>,
    /// When events were last written. Until the `fsync` delay has passed since then, further events wait to be written
    /// together.
    written: Option<Instant>,
    /// Senders that wait for an answer. The number is the value of `stored` at which the answer is due.
    waiting: VecDeque<(u64, T)>,
    /// Number of events accepted since the start.
    accepted: u64,
    /// Number of accepted events that are stored, in the journal or as dead letters.
    stored: u64,
    acked: Vec<u64>,
    /// Journal numbers of events whose acknowledgement must not be written before the dead letters are durable; see
    /// [`Commit::acked_with_letters`].
    acked_with_letters: Vec<u64>,
    /// Objects with a dead letter that is not durable yet, by [`Event::lane_hash`].
    lettered: BTreeSet<u64>,
    acked_since: Option<Instant>,
    /// Whether the store (journal and dead letters) has work in progress.
    working: bool,
    /// Journal number of the first stored event that has not been put into the lanes (send queues) yet.
    next_read: u64,
    end: u64,
    pending: u64,
    /// Pause after failed writes.
    write_pause: Pause,
    /// Pause after failed reads.
    read_pause: Pause,
    /// Whether the events that the journal had at the start are synced to disk. Until then no sender is answered. The
    /// sink may have skipped a sender's events because the journal already has them, and a power failure could still
    /// remove them from the journal.
    is_settled: bool,
    /// Whether to merge events of the same objects before the next write.
    merge_first: bool,
    flushing: bool,
}

impl<T> Durable<T> {
    pub(super) fn new(found: Durability) -> Self {
        Self {
            fsync: found.fsync,
            last_delivered: found.last_delivered,
            unwritten: Vec::new(),
            unwritten_bytes: 0,
            since: None,
            written: None,
            is_settled: found.is_settled,
            waiting: VecDeque::new(),
            accepted: 0,
            stored: 0,
            acked: Vec::new(),
            acked_with_letters: Vec::new(),
            lettered: BTreeSet::new(),
            acked_since: None,
            working: false,
            next_read: found.first,
            end: found.state.end,
            pending: found.state.pending,
            write_pause: Pause::default(),
            read_pause: Pause::default(),
            merge_first: false,
            flushing: false,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.unwritten.len() < MAX_UNWRITTEN && self.unwritten_bytes < MAX_UNWRITTEN_BYTES
    }

    /// Returns whether an `Added` event must be sent as `Updated`, because the journal already has the object.
    pub(super) fn is_update(&self, event: &Event) -> bool {
        self.last_delivered.is_update(event)
    }

    /// Returns whether an event need not be sent, because the journal has this state of its object or a newer one. With
    /// `resync`, a repetition of the last state is sent.
    pub(super) fn is_repeated(&mut self, event: &Event, resync: bool) -> bool {
        !self.last_delivered.is_new(event, resync)
    }

    /// Queues an event to be written to the journal.
    pub(super) fn write(&mut self, event: Event, now: Instant) {
        self.since.get_or_insert(now);
        self.unwritten_bytes += event.size();
        self.accepted += 1;
        self.unwritten.push(event);
    }

    /// Answers the sender once all events accepted until now are stored.
    pub(super) fn answer_when_stored(&mut self, reply: T) {
        self.waiting.push_back((self.accepted, reply));
    }

    /// Removes and returns the senders to answer, because all of their events are stored.
    pub(super) fn answers(&mut self) -> Vec<T> {
        if !self.is_settled {
            return Vec::new();
        }
        let ready = self.waiting.partition_point(|(accepted, _)| *accepted <= self.stored);
        self.waiting.drain(..ready).map(|(_, reply)| reply).collect()
    }

    /// Marks delivered events as acknowledged in the journal. If an older event of the same object became a dead letter
    /// that is not written yet, the acknowledgement waits for that letter.
    pub(super) fn acknowledge<'e>(&mut self, events: impl IntoIterator<Item = &'e Event>) {
        for event in events {
            let waits = !self.lettered.is_empty() && self.lettered.contains(&event.lane_hash());
            let acked = if waits { &mut self.acked_with_letters } else { &mut self.acked };
            acked.extend(event.sequence());
        }
    }

    /// Acknowledges events that become dead letters. The acknowledgements are written to the journal once the letters
    /// are durable.
    pub(super) fn give_up(&mut self, events: &[Event]) {
        self.lettered.extend(events.iter().map(Event::lane_hash));
        self.acknowledge(events);
    }

    pub(super) fn flush(&mut self) {
        self.flushing = true;
    }

    /// Records the end of the journal (the number of its next event) and its number of unacknowledged events.
    pub(super) fn appended(&mut self, end: u64, pending: u64) {
        (self.end, self.pending) = (self.end.max(end), pending);
    }

    pub(super) fn pending(&self) -> u64 {
        // Several acknowledged numbers may belong to one merged event.
        self.unstored() + self.pending.saturating_sub((self.acked.len() + self.acked_with_letters.len()) as u64)
    }

    /// Returns the number of accepted events that are not stored yet.
    pub(super) fn unstored(&self) -> u64 {
        self.accepted - self.stored
    }

    /// Returns the bytes of unwritten events.
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    /// Returns whether all stored events are in the lanes (send queues) or acknowledged.
    pub(super) fn is_read(&self) -> bool {
        self.next_read >= self.end
    }

    pub(super) fn is_unwritten(&self) -> bool {
        self.working || self.accepted > self.stored || self.has_acks() || !self.is_settled
    }

    fn has_acks(&self) -> bool {
        !self.acked.is_empty() || !self.acked_with_letters.is_empty()
    }

    /// Returns the next work for the store; `None` while the store is busy or nothing is due.
    pub(super) fn next_work(&mut self, lanes: &Lanes, letters: &mut Vec<DeadLetter>, now: Instant) -> Option<Work> {
        if self.has_acks() || !letters.is_empty() {
            self.acked_since.get_or_insert(now);
        }
        if self.working {
            return None;
        }
        if self.wants_events(lanes, letters) && self.read_pause.is_over(now) {
            self.working = true;
            let (events, bytes) = lanes.room();
            return Some(Work::Read { from: self.next_read, events, bytes });
        }
        let is_due = !self.is_settled || self.commit_due(letters).is_some_and(|due| due <= now);
        if !self.write_pause.is_over(now) || !is_due {
            return None;
        }
        if std::mem::take(&mut self.merge_first) {
            self.working = true;
            return Some(Work::Merge { from: self.next_read });
        }
        self.working = true;
        if self.since.is_some() {
            self.written = Some(now);
        }
        (self.unwritten_bytes, self.since, self.acked_since) = (0, None, None);
        Some(Work::Commit(Commit {
            events: std::mem::take(&mut self.unwritten),
            acked: std::mem::take(&mut self.acked),
            letters: std::mem::take(letters),
            acked_with_letters: std::mem::take(&mut self.acked_with_letters),
            sync: self.fsync != Fsync::Never,
        }))
    }

    /// Returns whether to read events from the journal now: there are some, the lanes (send queues) are less than half
    /// full, and there is room for dead letters.
    fn wants_events(&self, lanes: &Lanes, letters: &[DeadLetter]) -> bool {
        self.next_read < self.end && lanes.is_low() && has_room(letters)
    }

    fn commit_due(&self, letters: &[DeadLetter]) -> Option<Instant> {
        let events = self.since.map(|since| {
            let enough = self.unwritten_bytes >= ENOUGH.0 || self.unwritten.len() >= ENOUGH.1;
            let at_once = self.flushing || enough || !self.has_room();
            let next = self.written.map_or(since, |written| written + delay(self.fsync));
            if at_once { since } else { since.max(next) }
        });
        let has_acks = self.has_acks() || !letters.is_empty();
        let acks = self.acked_since.filter(|_| has_acks);
        let acks = acks.map(|since| if self.flushing { since } else { since + ACK_DELAY });
        events.into_iter().chain(acks).min()
    }

    pub(super) fn wake_at(&self, lanes: &Lanes, letters: &[DeadLetter]) -> Option<Instant> {
        if self.working {
            return None;
        }
        let read = self.read_pause.until().filter(|_| self.wants_events(lanes, letters));
        let until = self.write_pause.until();
        let due = self.commit_due(letters).or(until.filter(|_| !self.is_settled));
        let write = due.map(|due| until.map_or(due, |until| due.max(until)));
        read.into_iter().chain(write).min()
    }

    pub(super) fn work_done(
        &mut self,
        done: Done,
        lanes: &mut Lanes,
        letters: &mut Vec<DeadLetter>,
        params: &MachineParams,
        now: Instant,
    ) {
        self.working = false;
        match done {
            Done::Committed { mut events, given_up, forgotten, left, state } => {
                self.stored += events.len() as u64 + given_up;
                params.health.dead_lettered.fetch_add(given_up, Relaxed);
                params.note_forgotten(forgotten);
                // From the first gap on, events are read from the journal: replayed dead letters were appended there.
                let consecutive = events.iter().zip(self.next_read..);
                events.truncate(consecutive.take_while(|(event, next)| event.sequence() == Some(*next)).count());
                self.appended(state.end, state.pending);
                params.health.show_journal(&state);
                self.feed(events, lanes, now);
                self.is_settled |= left.is_none();
                if left.as_ref().is_none_or(|(commit, _)| commit.acked_with_letters.is_empty()) {
                    // The letters of the commit are durable, so only those since then count.
                    self.lettered = letters.iter().map(|letter| letter.event.lane_hash()).collect();
                }
                match left {
                    Some((commit, error)) => self.requeue(commit, &error, letters, params, now),
                    None if self.write_pause.end() => {
                        tracing::info!(sink = %params.name, "journal accepts events again");
                    }
                    None => {}
                }
            }
            Done::Read { events, next, lost } => {
                if self.read_pause.end() {
                    tracing::info!(sink = %params.name, "the journal can be read again");
                }
                if lost > 0 {
                    params.health.unreadable.fetch_add(lost, Relaxed);
                    tracing::error!(sink = %params.name, lost, "damaged events in the journal are lost");
                }
                // `next` is also behind acknowledged and damaged events at the end.
                if self.feed(events, lanes, now) {
                    self.next_read = self.next_read.max(next);
                }
            }
            Done::Merged { freed, state } => {
                self.pending = state.pending;
                params.health.show_journal(&state);
                params.health.merged.fetch_add(freed, Relaxed);
                tracing::warn!(sink = %params.name, freed, "the journal is full; merged events of the same objects");
            }
            Done::NotRead { error } => {
                params.health.set_error(format!("cannot read the journal: {error}"));
                if self.read_pause.extend(now) {
                    tracing::error!(sink = %params.name, %error, "cannot read the journal; retrying");
                }
            }
            Done::NotMerged { error } => {
                params.health.set_error(format!("cannot merge events in the journal: {error}"));
                self.write_pause.extend(now);
            }
        }
    }

    /// Takes back the parts of a failed commit that were not stored, for the next commit. Pauses writes and records the
    /// error.
    fn requeue(
        &mut self,
        mut commit: Commit,
        error: &StoreError,
        letters: &mut Vec<DeadLetter>,
        params: &MachineParams,
        now: Instant,
    ) {
        commit.events.append(&mut self.unwritten);
        commit.acked.append(&mut self.acked);
        commit.acked_with_letters.append(&mut self.acked_with_letters);
        commit.letters.append(letters);
        self.unwritten_bytes = commit.events.iter().map(Event::size).sum();
        // The store may hold some events whose sync failed, and needs another commit to retry the sync.
        self.since = (self.accepted > self.stored).then_some(now);
        (self.unwritten, self.acked, *letters) = (commit.events, commit.acked, commit.letters);
        self.acked_with_letters = commit.acked_with_letters;
        let first = self.write_pause.extend(now);
        params.health.set_journal_trouble(error);
        if let StoreError::Full { mergeable, .. } = error {
            self.merge_first = *mergeable;
        }
        if first {
            tracing::error!(
                sink = %params.name, %error,
                "cannot write to the journal; retrying, and new events of the sink wait"
            );
        }
    }

    /// Puts consecutive events of the journal into the lanes (send queues) until one has no room. That event and the
    /// following ones are read from the journal again later. Returns whether all events had room.
    fn feed(&mut self, events: Vec<Event>, lanes: &mut Lanes, now: Instant) -> bool {
        for event in events {
            let number = event.sequence().unwrap_or_default();
            if lanes.push(event, now).is_err() {
                return false;
            }
            self.next_read = number + 1;
        }
        true
    }
}

/// Pause after failures of the store, which grows with each failure in a row.
#[derive(Debug, Default)]
struct Pause {
    /// End of the pause, and the number of failures in a row; `None` after a success.
    failed: Option<(Instant, u32)>,
}

impl Pause {
    fn until(&self) -> Option<Instant> {
        self.failed.map(|(until, _)| until)
    }

    fn is_over(&self, now: Instant) -> bool {
        self.until().is_none_or(|until| until <= now)
    }

    /// Starts a pause after a failed call of the store; each further failure in a row makes it longer. Returns whether
    /// the previous call succeeded, so that the caller logs only the first failure.
    fn extend(&mut self, now: Instant) -> bool {
        let failures = self.failed.map_or(0, |(_, failures)| failures);
        self.failed = Some((now + exponential_backoff(PAUSES.0, failures, PAUSES.1), failures + 1));
        failures == 0
    }

    /// Ends the pause after a successful call of the store. Returns whether the previous call failed, so that the
    /// caller logs the recovery.
    fn end(&mut self) -> bool {
        self.failed.take().is_some()
    }
}

/// Returns whether another dead letter may wait to be written.
fn has_room(letters: &[DeadLetter]) -> bool {
    let bytes = || letters.iter().map(|letter| letter.event.size()).sum::<usize>();
    letters.len() < MAX_UNWRITTEN && bytes() < MAX_UNWRITTEN_BYTES
}

/// Returns the minimum time between two writes of events.
fn delay(fsync: Fsync) -> Duration {
    match fsync {
        Fsync::Within(delay) => delay,
        Fsync::Never => Duration::ZERO,
    }
}
