//! Reactions to the outcome of an attempt to deliver: acknowledge, retry, halve the batch, set an event aside, or give
//! up. [`crate::retry`] decides the time of a retry.
//!
//! # Refused content
//! A receiver that refuses content (400, 413, 422) may reject one event, or may have a bug that a new deployment fixes
//! within minutes. So a refused batch is halved until the refused event is alone. That event is set aside (see
//! [`Lanes`](crate::Lanes)) and retried for [`refused_for`](informer_hub_types::RetryParams::refused_for), with a
//! backoff that doubles up to [`LONGEST_DELAY`]. Then it is given up. Its lane continues with other objects meanwhile.
//!
//! The first [`PATIENCE`] refusals in a row are retried without a pause, so that a single bad event is found fast. More
//! refusals mean that the receiver refuses everything. From then on each refusal pauses all lanes, for up to
//! [`LONGEST_PAUSE`], so that few events are set aside before the receiver recovers. Once it accepts a batch, all
//! refused events are attempted again immediately.
//!
//! An event that cannot be encoded (its template fails) is never sent. Waiting does not help: once it is alone, it is
//! given up.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rand::Rng;

use super::{Machine, panic_text};
use crate::lanes::Refusals;
use crate::retry::{MAX_RETRY_AFTER, decide};
use crate::{DeadLetter, Decision, Event, LaneId, Outcome};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{RetryParams, exponential_backoff};

/// Number of refusals in a row, over all lanes, above which the receiver counts as refusing everything. Four lanes with
/// one bad event each cause fewer refusals.
pub(super) const PATIENCE: u32 = 32;
/// Longest pause between attempts while the receiver refuses everything, unless `retry.max` is shorter.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Longest delay between attempts of a refused event.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// Number of attempts after which a shutdown without a journal gives up a refused event.
const LAST_TRIES: u32 = 5;

/// Reason why an attempt to deliver ended without an outcome.
#[derive(Debug)]
pub enum BrokenAttempt {
    /// The transport panicked.
    Panicked(Box<dyn Any + Send>),
    /// The I/O runtime is shutting down.
    ShuttingDown,
    /// The attempt was abandoned because this process may no longer send: another process may now hold the lease. The
    /// receiver may have accepted the batch.
    Fenced,
}

impl<T> Machine<T> {
    /// Applies the outcome of an attempt to deliver the lane's batch.
    pub fn attempted(&mut self, lane: LaneId, outcome: Result<Outcome, BrokenAttempt>, now: Instant) {
        self.circuit.ended(lane);
        match outcome {
            Ok(Outcome::Accepted) => self.accept(lane, now),
            Ok(Outcome::Retry { error, .. } | Outcome::Unsendable { error })
                if self.params.health.is_disabled() && self.durable.is_none() =>
            {
                self.give_up(lane, &error);
            }
            Ok(Outcome::Retry { after, content, error }) => self.fail(lane, after, content, &error, now),
            Ok(Outcome::Unsendable { error }) => self.unsendable(lane, &error, now),
            Ok(Outcome::Disable { error }) => self.disable(lane, &error, now),
            Err(BrokenAttempt::Panicked(panic)) => {
                self.give_up(lane, &format!("transport panicked: {}", panic_text(&*panic)));
            }
            Err(BrokenAttempt::Fenced) => self.lanes.retry_at(lane, now),
            Err(BrokenAttempt::ShuttingDown) => self.fail(lane, None, false, "the I/O runtime is shutting down", now),
        }
        self.admit_waiting(now);
    }

    fn accept(&mut self, lane: LaneId, now: Instant) {
        let attempts = self.lanes.failures(lane);
        let refused_by = self.lanes.refusals(lane).map(|refusals| refusals.last);
        let refused_all = self.is_refusing_everything();
        (self.refused_in_a_row, self.last_accepted) = (0, Some(now));
        if let Some(by) = refused_all.then_some(now).or(refused_by) {
            self.lanes.hasten(by, now);
        }
        let events = self.lanes.acked(lane);
        self.params.health.note_delivery(events.len() as u64);
        if let Some(durable) = &mut self.durable {
            durable.acknowledge(&*events);
        }
        if self.circuit.succeeded() {
            self.params.health.set_circuit_open(false);
            tracing::info!(sink = %self.params.name, "the receiver answers again; delivering normally");
        } else if attempts > 0 {
            tracing::info!(sink = %self.params.name, attempts, "delivered after retries");
        }
    }

    fn fail(&mut self, lane: LaneId, after: Option<Duration>, content: bool, error: &str, now: Instant) {
        let (failures, since) = self.note_failure(lane, error, now);
        let is_last = after.is_some_and(|after| self.is_last_chance(after, now));
        let has_more = self.lanes.has_more(lane) || self.waiting_count() > 0;
        if is_last && has_more && (!content || self.lanes.batch_len(lane) == 1) {
            return self.give_up(lane, error);
        }
        if let Some(after) = after.filter(|_| !is_last) {
            self.circuit.pause(now, after);
        }
        let (health, name) = (Arc::clone(&self.params.health), &self.params.name);
        // A refusal of the content, or an answer with `Retry-After`, means that the receiver is running.
        if !content && after.is_none() && self.circuit.failed(lane) {
            health.set_circuit_open(true);
            tracing::warn!(
                sink = %name, error,
                "the receiver has failed five times in a row; retries continue"
            );
        }
        if content && self.lanes.batch_len(lane) == 1 {
            return self.refused_alone(lane, after, error, now);
        }
        match decide(&self.params.retry, failures, since, after, now, &mut self.rng) {
            Decision::GiveUp => self.give_up(lane, error),
            Decision::RetryAt(_) if content => {
                self.note_refusal(now);
                self.lanes.halve(lane, 1);
                self.lanes.retry_at(lane, now);
            }
            // With `Retry-After`, the receiver is busy: the batch is not the cause.
            Decision::RetryAt(at) if after.is_some() => self.lanes.retry_at(lane, at),
            Decision::RetryAt(at) => self.retry_failed(lane, (failures, since), error, at, now),
        }
    }

    /// Returns whether a pause of length `after` would last beyond the middle of the final flush of a sink without a
    /// journal. The caller then ignores the pause, since pending events would be lost without an attempt. The caller
    /// gives up the batch if other events wait.
    fn is_last_chance(&self, after: Duration, now: Instant) -> bool {
        self.durable.is_none() && self.flush_middle.is_some_and(|middle| now + after.min(MAX_RETRY_AFTER) > middle)
    }

    /// Counts and logs a failed attempt of the lane's batch. Returns how often the batch has failed, and when it was
    /// first attempted.
    fn note_failure(&mut self, lane: LaneId, error: &str, now: Instant) -> (u32, Instant) {
        let (health, name) = (&self.params.health, &self.params.name);
        health.failed_attempts.fetch_add(1, Relaxed);
        let known = health.error().is_some_and(|before| *before == error);
        health.set_error(error.to_owned());
        let (failures, since) = self.lanes.failed(lane, now);
        // Lanes fail together, so only the first failure is a warning.
        if failures == 1 && !known {
            tracing::warn!(sink = %name, error, "delivery failed; retrying");
        } else {
            tracing::debug!(sink = %name, error, failures, "delivery failed again");
        }
        (failures, since)
    }

    /// Counts a refusal of content, and pauses all lanes if the receiver refuses everything.
    fn note_refusal(&mut self, now: Instant) {
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        if let Some(over) = self.refused_in_a_row.checked_sub(PATIENCE + 1) {
            let RetryParams { first, max, .. } = self.params.retry;
            let most = exponential_backoff(first, over, max.min(LONGEST_PAUSE));
            self.circuit.pause(now, self.rng.random_range(most / 2..=most));
        }
    }

    /// Sets the single event of a refused batch aside for a retry, or gives it up if its retry time is over.
    fn refused_alone(&mut self, lane: LaneId, after: Option<Duration>, error: &str, now: Instant) {
        self.note_refusal(now);
        let attempts = self.lanes.failures(lane);
        if self.flush_middle.is_some() && self.durable.is_none() && attempts >= LAST_TRIES {
            return self.give_up(lane, error);
        }
        let refusals = self.lanes.refusals(lane);
        let since = refusals.map_or(now, |refusals| refusals.since);
        let refused_since = refusals.and_then(|refusals| refusals.refused_since).unwrap_or(now);
        let RetryParams { first, max, refused_for, .. } = self.params.retry;
        let retry = RetryParams { first, max: max.min(LONGEST_DELAY), give_up_after: refused_for, refused_for };
        let Decision::RetryAt(at) = decide(&retry, attempts, refused_since, after, now, &mut self.rng) else {
            return self.give_up(lane, error);
        };
        self.params.health.set_refusal(Some(error));
        let refused_since = Some(refused_since);
        self.lanes.set_aside(lane, Refusals { since, refused_since, last: now, attempts, error: error.into() }, at);
        // Refused events may fill three quarters of the queue while the receiver refuses everything, else one quarter.
        let quarters = if self.is_refusing_everything() { 3 } else { 1 };
        while self.lanes.over_share(quarters) {
            let Some((event, refusals)) = self.lanes.give_up_oldest() else { return };
            self.dead_letter(&[event], refusals.attempts, &refusals.error);
        }
    }

    /// Halves a batch that cannot be encoded, or gives up its single event.
    fn unsendable(&mut self, lane: LaneId, error: &str, now: Instant) {
        self.note_failure(lane, error, now);
        if self.lanes.batch_len(lane) == 1 {
            return self.give_up(lane, error);
        }
        self.lanes.halve(lane, 1);
        self.lanes.retry_at(lane, now);
    }

    /// Gives up the lane's batch, whose events become dead letters.
    fn give_up(&mut self, lane: LaneId, error: &str) {
        let attempts = self.lanes.failures(lane).max(1);
        let events = self.lanes.give_up(lane);
        self.dead_letter(&events, attempts, error);
    }

    fn dead_letter(&mut self, events: &[Event], attempts: u32, error: &str) {
        let Some(first) = events.first() else { return };
        let (name, count) = (&self.params.name, events.len());
        tracing::error!(
            sink = %name, count, first = first.subject(), attempts, error,
            "gave up delivering events; they are now dead letters"
        );
        let health = &self.params.health;
        health.set_error(error.to_owned());
        health.dead_lettered.fetch_add(count as u64, Relaxed);
        if let Some(durable) = &mut self.durable {
            durable.give_up(events);
        }
        let at = clock::wall();
        self.letters.extend(events.iter().map(|event| DeadLetter {
            event: event.clone(),
            attempts,
            error: error.to_owned(),
            at,
        }));
    }

    /// Disables the sink at the receiver's request (410). Later notifications are discarded and counted. Pending events
    /// stay in the journal for the next start; without a journal they are given up.
    fn disable(&mut self, lane: LaneId, error: &str, now: Instant) {
        tracing::error!(
            sink = %self.params.name, error,
            "the receiver wants no more events; the sink is disabled until its configuration changes or the hub \
             restarts"
        );
        let health = Arc::clone(&self.params.health);
        health.failed_attempts.fetch_add(1, Relaxed);
        health.set_disabled();
        if self.durable.is_some() {
            health.set_error(error.to_owned());
            self.lanes.retry_at(lane, now);
        } else {
            self.give_up(lane, error);
            let rest = self.lanes.clear();
            self.dead_letter(&rest, 0, error);
        }
        for waiting in std::mem::take(&mut self.waiting) {
            self.discard(waiting.rest.as_slice().len());
            self.answers.push_back(waiting.reply);
        }
    }
}
