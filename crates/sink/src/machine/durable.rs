//! The side of a machine that has a journal: what is to be written, when, and what is read back.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::MachineParams;
use crate::store::{Commit, Done, JournalState, StoreError, Work};
use crate::{DeadLetter, Event, Lanes, SinkHealth, Told};
use informer_hub_types::clock::Instant;
use informer_hub_types::{Fsync, exponential_backoff};

/// A machine's journal, as it was found.
#[derive(Debug)]
pub struct Durability {
    /// When to sync.
    pub fsync: Fsync,
    /// What the journal has told lately.
    pub told: Told,
    /// The first number that is not acknowledged.
    pub first: u64,
    /// How the journal is.
    pub state: JournalState,
    /// Whether all that was found is durable: the disk may have refused that.
    pub is_settled: bool,
}

/// Events that wait to be written, at most.
const MAX_UNWRITTEN: usize = 4096;
/// Their bytes, at most; exceeded by one event at most.
const MAX_UNWRITTEN_BYTES: usize = 16 * 1024 * 1024;
/// So many bytes, or events, are written without waiting for more. No more events than a listener hands over at once: it
/// hands over no others before it is answered, and were held to so many each time.
const ENOUGH: (usize, usize) = (1024 * 1024, 256);
/// How long acknowledgements wait to be written where no event comes. Lost, they cost deliveries made twice.
const ACK_DELAY: Duration = Duration::from_millis(100);
/// The first pause after the store could not write, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// See the module.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(super) struct Durable<T> {
    fsync: Fsync,
    told: Told,
    unwritten: Vec<Event>,
    unwritten_bytes: usize,
    /// Since when there is something unwritten.
    since: Option<Instant>,
    /// When events were written last: the next ones wait for as long as `fsync` says since then, a lone one not at all.
    written: Option<Instant>,
    /// Who is answered once so many events are stored.
    waiting: VecDeque<(u64, T)>,
    /// Events taken in since the start.
    taken: u64,
    /// Of these, stored.
    stored: u64,
    acked: Vec<u64>,
    acked_since: Option<Instant>,
    /// Whether the store is at work.
    working: bool,
    /// The first number that has not been in the lanes.
    next_read: u64,
    end: u64,
    pending: u64,
    /// Until when nothing is written, since it failed so many times.
    pause: Option<(Instant, u32)>,
    /// Whether what was found at the start is durable. What it has told of is no news, and nobody is answered for that
    /// before.
    is_settled: bool,
    /// Whether events should be merged before anything more is written.
    crowded: bool,
    flushing: bool,
}

impl<T> Durable<T> {
    pub(super) fn new(found: Durability) -> Self {
        Self {
            fsync: found.fsync,
            told: found.told,
            unwritten: Vec::new(),
            unwritten_bytes: 0,
            since: None,
            written: None,
            is_settled: found.is_settled,
            waiting: VecDeque::new(),
            taken: 0,
            stored: 0,
            acked: Vec::new(),
            acked_since: None,
            working: false,
            next_read: found.first,
            end: found.state.end,
            pending: found.state.pending,
            pause: None,
            crowded: false,
            flushing: false,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.unwritten.len() < MAX_UNWRITTEN && self.unwritten_bytes < MAX_UNWRITTEN_BYTES
    }

    /// Whether an event of a new object is one of an object that the journal has told of.
    pub(super) fn is_update(&self, event: &Event) -> bool {
        self.told.is_update(event)
    }

    /// Has an event written, unless the journal has told of it, or of something newer.
    pub(super) fn put(&mut self, event: Event, resync: bool, health: &SinkHealth, now: Instant) {
        if !self.told.is_news(&event, resync) {
            health.repeated.fetch_add(1, Relaxed);
            return;
        }
        self.since.get_or_insert(now);
        self.unwritten_bytes += event.size();
        self.taken += 1;
        self.unwritten.push(event);
    }

    /// Answers once everything is stored that was put until now.
    pub(super) fn answer_when_stored(&mut self, reply: T) {
        self.waiting.push_back((self.taken, reply));
    }

    /// Who can be answered now.
    pub(super) fn answers(&mut self) -> Vec<T> {
        if !self.is_settled {
            return Vec::new();
        }
        let ready = self.waiting.partition_point(|(taken, _)| *taken <= self.stored);
        self.waiting.drain(..ready).map(|(_, reply)| reply).collect()
    }

    pub(super) fn acknowledge(&mut self, numbers: impl Iterator<Item = u64>) {
        self.acked.extend(numbers);
    }

    pub(super) fn flush(&mut self) {
        self.flushing = true;
    }

    pub(super) fn appended(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    pub(super) fn pending(&self) -> u64 {
        // Of what merges have put together several numbers may be acknowledged that are one.
        self.unstored() + self.pending.saturating_sub(self.acked.len() as u64)
    }

    /// Taken in, and not stored.
    pub(super) fn unstored(&self) -> u64 {
        self.taken - self.stored
    }

    /// Bytes that wait for the disk.
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    pub(super) fn is_unwritten(&self) -> bool {
        self.working || self.taken > self.stored || !self.acked.is_empty() || !self.is_settled
    }

    /// The next thing for the store to do, unless it is at work.
    pub(super) fn next_work(&mut self, lanes: &Lanes, letters: &mut Vec<DeadLetter>, now: Instant) -> Option<Work> {
        if !self.acked.is_empty() || !letters.is_empty() {
            self.acked_since.get_or_insert(now);
        }
        if self.working {
            return None;
        }
        if self.wants_events(lanes) {
            self.working = true;
            let (events, bytes) = lanes.room();
            return Some(Work::Read { from: self.next_read, events, bytes });
        }
        let is_due = !self.is_settled || self.commit_due(letters).is_some_and(|due| due <= now);
        if self.pause.is_some_and(|(until, _)| now < until) || !is_due {
            return None;
        }
        if std::mem::take(&mut self.crowded) {
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
            sync: self.fsync != Fsync::Never,
        }))
    }

    /// Whether the lanes should be filled from the journal.
    fn wants_events(&self, lanes: &Lanes) -> bool {
        self.next_read < self.end && lanes.is_low()
    }

    fn commit_due(&self, letters: &[DeadLetter]) -> Option<Instant> {
        let events = self.since.map(|since| {
            let enough = self.unwritten_bytes >= ENOUGH.0 || self.unwritten.len() >= ENOUGH.1;
            let at_once = self.flushing || enough || !self.has_room();
            let next = self.written.map_or(since, |written| written + delay(self.fsync));
            if at_once { since } else { since.max(next) }
        });
        let has_acks = !self.acked.is_empty() || !letters.is_empty();
        let acks = self.acked_since.filter(|_| has_acks);
        let acks = acks.map(|since| if self.flushing { since } else { since + ACK_DELAY });
        events.into_iter().chain(acks).min()
    }

    pub(super) fn wake_at(&self, lanes: &Lanes, letters: &[DeadLetter]) -> Option<Instant> {
        if self.working || self.wants_events(lanes) {
            return None;
        }
        let until = self.pause.map(|(until, _)| until);
        let due = self.commit_due(letters).or(until.filter(|_| !self.is_settled))?;
        Some(until.map_or(due, |until| due.max(until)))
    }

    pub(super) fn worked(
        &mut self,
        done: Done,
        lanes: &mut Lanes,
        letters: &mut Vec<DeadLetter>,
        params: &MachineParams,
        now: Instant,
    ) {
        self.working = false;
        match done {
            Done::Committed { events, given_up, forgotten, left, state } => {
                self.stored += events.len() as u64 + given_up;
                params.health.dead_lettered.fetch_add(given_up, Relaxed);
                params.health.dead_letters_forgotten.fetch_add(forgotten, Relaxed);
                // Dead letters may have come in between: they are read.
                let follow_on = events.first().and_then(Event::sequence) == Some(self.next_read);
                self.appended(state.end);
                self.pending = state.pending;
                params.health.show_journal(&state);
                if follow_on {
                    self.feed(events, lanes, now);
                }
                self.is_settled |= left.is_none();
                match left {
                    Some((commit, error)) => self.put_back(commit, &error, letters, params, now),
                    None if self.pause.take().is_some() => {
                        tracing::info!(sink = %params.name, "the journal takes everything in again");
                    }
                    None => {}
                }
            }
            Done::Read { events, next, lost } => {
                if lost > 0 {
                    params.health.unreadable.fetch_add(lost, Relaxed);
                    tracing::error!(sink = %params.name, lost, "events in the journal are damaged and lost");
                }
                let room = lanes.room();
                let all = events.len() <= room.0;
                self.feed(events, lanes, now);
                if all {
                    self.next_read = self.next_read.max(next);
                }
            }
            Done::Merged { freed, state } => {
                self.pending = state.pending;
                params.health.show_journal(&state);
                params.health.merged.fetch_add(freed, Relaxed);
                tracing::warn!(sink = %params.name, freed, "the journal was full: events of the same objects were merged");
            }
            Done::NotRead { error } => {
                params.health.set_error(format!("the journal cannot be read: {error}"));
                self.postpone(now);
            }
        }
    }

    /// The store could not take it: it stays here, and is tried again.
    fn put_back(
        &mut self,
        mut commit: Commit,
        error: &StoreError,
        letters: &mut Vec<DeadLetter>,
        params: &MachineParams,
        now: Instant,
    ) {
        commit.events.append(&mut self.unwritten);
        commit.acked.append(&mut self.acked);
        commit.letters.append(letters);
        self.unwritten_bytes = commit.events.iter().map(Event::size).sum();
        // The store may keep some of them itself, and only wants to be asked again.
        self.since = (self.taken > self.stored).then_some(now);
        (self.unwritten, self.acked, *letters) = (commit.events, commit.acked, commit.letters);
        let first = self.pause.is_none();
        self.postpone(now);
        params.health.set_journal_trouble(error);
        if let StoreError::Full { mergeable, .. } = error {
            self.crowded = *mergeable;
        }
        if first {
            tracing::error!(sink = %params.name, %error, "the journal takes nothing in; whoever tells this sink waits");
        }
    }

    fn postpone(&mut self, now: Instant) {
        let failures = self.pause.map_or(0, |(_, failures)| failures);
        let pause = exponential_backoff(PAUSES.0, failures, PAUSES.1);
        self.pause = Some((now + pause, failures + 1));
    }

    /// Puts events into the lanes while there is room; the others are read later. They follow on what was there before.
    fn feed(&mut self, events: Vec<Event>, lanes: &mut Lanes, now: Instant) {
        for event in events {
            let number = event.sequence().unwrap_or_default();
            if lanes.push(event, now).is_err() {
                return;
            }
            self.next_read = number + 1;
        }
    }
}

/// How far apart events are written.
fn delay(fsync: Fsync) -> Duration {
    match fsync {
        Fsync::Within(delay) => delay,
        Fsync::Never => Duration::ZERO,
    }
}
