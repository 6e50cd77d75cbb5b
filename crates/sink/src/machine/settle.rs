//! Outcome of an attempt: acknowledged, tried again, set aside, or given up.
//!
//! # Refused content
//! A receiver that refuses a content (400, 413, 422) may be right about one event, or may have been deployed with a fault
//! that it is rid of in a minute. So a refused batch is halved until the event is alone. That event is set aside (see
//! [`Lanes`](crate::Lanes)) and tried again for [`refused_for`](informer_hub_types::RetryParams::refused_for), after
//! delays that double up to a minute. Then it is given up. Its lane goes on with other objects meanwhile.
//!
//! The first [`PATIENCE`] refusals in a row come without a pause between them: a receiver that accepts most events has
//! one found soon. More say that the receiver refuses everything: from then on each refusal holds all lanes back, for
//! up to [`LONGEST_PAUSE`], so that few events are set aside before the receiver is well again. As soon as it accepts
//! something, all that were refused before are due.
//!
//! An event that cannot be written (a template that fails) is never sent. Waiting does not help: once it is alone, it is
//! given up.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rand::Rng;

use super::{Machine, panic_text};
use crate::lanes::Refusals;
use crate::retry::decide;
use crate::{DeadLetter, Decision, Event, LaneId, Outcome};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{RetryParams, exponential_backoff};

/// Refusals in a row, over all lanes, that a receiver with one bad event in each lane's batch may answer while that is
/// found: more than seven halves of each of four batches.
pub(super) const PATIENCE: u32 = 32;
/// Longest pause between attempts while the receiver refuses everything, unless `retry.max` is shorter.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Longest delay between attempts of a refused event.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// Attempts of a refused event at a shutdown without a journal: it has no other time.
const LAST_TRIES: u32 = 5;

/// An attempt that came to no outcome.
#[derive(Debug)]
pub enum Broken {
    /// The transport panicked.
    Panicked(Box<dyn Any + Send>),
    /// Nobody runs attempts any more.
    ShuttingDown,
}

impl<T> Machine<T> {
    /// An attempt has ended.
    pub fn attempted(&mut self, lane: LaneId, outcome: Result<Outcome, Broken>, now: Instant) {
        match outcome {
            Ok(Outcome::Accepted) => self.accept(lane, now),
            Ok(Outcome::Retry { error, .. } | Outcome::Unsendable { error })
                if self.params.health.is_disabled() && self.durable.is_none() =>
            {
                self.bury(lane, &error);
            }
            Ok(Outcome::Retry { after, content, error }) => self.fail(lane, after, content, &error, now),
            Ok(Outcome::Unsendable { error }) => self.unsendable(lane, &error, now),
            Ok(Outcome::Disable { error }) => self.disable(lane, &error, now),
            Err(Broken::Panicked(panic)) => self.bury(lane, &format!("transport panicked: {}", panic_text(&*panic))),
            Err(Broken::ShuttingDown) => self.fail(lane, None, false, "the I/O runtime is shutting down", now),
        }
        self.unhold(now);
    }

    fn accept(&mut self, lane: LaneId, now: Instant) {
        let attempts = self.lanes.failures(lane);
        let refused_by = self.lanes.refusals(lane).map(|refusals| refusals.last);
        let refused_all = self.is_refusing_everything();
        self.refused_in_a_row = 0;
        if let Some(by) = refused_all.then_some(now).or(refused_by) {
            self.lanes.hasten(by, now);
        }
        let events = self.lanes.acked(lane);
        self.params.health.note_delivery(events.len() as u64);
        self.finished(&events);
        if self.circuit.succeeded() {
            self.params.health.set_circuit_open(false);
            tracing::info!(sink = %self.params.name, "receiver answers again, all lanes deliver");
        } else if attempts > 0 {
            tracing::info!(sink = %self.params.name, attempts, "delivered at last");
        }
    }

    /// These events need no journal any more.
    fn finished(&mut self, events: &[Event]) {
        if let Some(durable) = &mut self.durable {
            durable.acknowledge(events.iter().filter_map(Event::sequence));
        }
    }

    fn fail(&mut self, lane: LaneId, after: Option<Duration>, content: bool, error: &str, now: Instant) {
        let (failures, since) = self.note_failure(lane, error, now);
        let (health, name) = (Arc::clone(&self.params.health), &self.params.name);
        if let Some(after) = after {
            self.circuit.pause(now, after);
        }
        // An answer to the content, or with a date, comes from a receiver that is well.
        if !content && after.is_none() && self.circuit.failed(lane) {
            health.set_circuit_open(true);
            tracing::warn!(sink = %name, error, "receiver keeps failing, one lane probes until it answers");
        }
        if content && self.lanes.batch_len(lane) == 1 {
            return self.refused_alone(lane, after, error, now);
        }
        match decide(&self.params.retry, failures, since, after, now, &mut self.rng) {
            Decision::GiveUp => self.bury(lane, error),
            Decision::RetryAt(_) if content => {
                self.note_refusal(now);
                self.lanes.halve(lane);
                self.lanes.retry_at(lane, now);
            }
            Decision::RetryAt(at) => self.lanes.retry_at(lane, at),
        }
    }

    /// Counts a failed attempt: how often the batch has failed now, and since when it is tried.
    fn note_failure(&mut self, lane: LaneId, error: &str, now: Instant) -> (u32, Instant) {
        let (health, name) = (&self.params.health, &self.params.name);
        health.failed_attempts.fetch_add(1, Relaxed);
        let known = health.error().is_some_and(|before| *before == error);
        health.set_error(error.to_owned());
        let (failures, since) = self.lanes.failed(lane, now);
        // Lanes fail together: one line for all of them.
        if failures == 1 && !known {
            tracing::warn!(sink = %name, error, "delivery failed, will be tried again");
        } else {
            tracing::debug!(sink = %name, error, failures, "delivery failed again");
        }
        (failures, since)
    }

    /// Counts a refusal, and pauses all lanes if the receiver refuses everything.
    fn note_refusal(&mut self, now: Instant) {
        self.refused_in_a_row = self.refused_in_a_row.saturating_add(1);
        if let Some(over) = self.refused_in_a_row.checked_sub(PATIENCE + 1) {
            let RetryParams { first, max, .. } = self.params.retry;
            let most = exponential_backoff(first, over, max.min(LONGEST_PAUSE));
            self.circuit.pause(now, self.rng.random_range(most / 2..=most));
        }
    }

    /// Sets a refused event aside, or gives it up if its time is over.
    fn refused_alone(&mut self, lane: LaneId, after: Option<Duration>, error: &str, now: Instant) {
        self.note_refusal(now);
        let attempts = self.lanes.failures(lane);
        if self.is_flushing && self.durable.is_none() && attempts >= LAST_TRIES {
            return self.bury(lane, error);
        }
        let since = self.lanes.refusals(lane).map_or(now, |refusals| refusals.since);
        let RetryParams { first, max, refused_for, .. } = self.params.retry;
        let retry = RetryParams { first, max: max.min(LONGEST_DELAY), give_up_after: refused_for, refused_for };
        let Decision::RetryAt(at) = decide(&retry, attempts, since, after, now, &mut self.rng) else {
            return self.bury(lane, error);
        };
        // Its lane may have been the probe of an open circuit, and may have nothing else.
        self.circuit.gave_up(lane);
        self.params.health.set_refusal(Some(error));
        self.lanes.set_aside(lane, Refusals { since, last: now, attempts, error: error.into() }, at);
        // Others are not held up by what is set aside while the receiver refuses them too.
        let quarters = if self.is_refusing_everything() { 3 } else { 1 };
        while self.lanes.over_share(quarters) {
            let Some((event, refusals)) = self.lanes.give_up_oldest() else { return };
            let events = [event];
            self.dead_letter(&events, refusals.attempts, &refusals.error);
            self.finished(&events);
        }
    }

    /// Nothing was sent, and nothing would be at another attempt.
    fn unsendable(&mut self, lane: LaneId, error: &str, now: Instant) {
        self.note_failure(lane, error, now);
        if self.lanes.batch_len(lane) == 1 {
            return self.bury(lane, error);
        }
        self.lanes.halve(lane);
        self.lanes.retry_at(lane, now);
    }

    /// Gives the lane's batch up.
    fn bury(&mut self, lane: LaneId, error: &str) {
        let attempts = self.lanes.failures(lane).max(1);
        let events = self.lanes.give_up(lane);
        self.circuit.gave_up(lane);
        self.dead_letter(&events, attempts, error);
        self.finished(&events);
    }

    fn dead_letter(&mut self, events: &[Event], attempts: u32, error: &str) {
        let Some(first) = events.first() else { return };
        let (name, count) = (&self.params.name, events.len());
        tracing::error!(sink = %name, count, first = first.subject(), attempts, error, "events given up");
        let health = &self.params.health;
        health.set_error(error.to_owned());
        health.dead_lettered.fetch_add(count as u64, Relaxed);
        let at = clock::wall();
        self.letters.extend(events.iter().map(|event| DeadLetter {
            event: event.clone(),
            attempts,
            error: error.to_owned(),
            at,
        }));
    }

    /// The receiver wants no more: everything to come is thrown away, counted. What is pending stays in the journal for
    /// the next start; without one it is given up.
    fn disable(&mut self, lane: LaneId, error: &str, now: Instant) {
        tracing::error!(sink = %self.params.name, error, "sink disabled by its receiver until its configuration changes or the next start");
        let health = Arc::clone(&self.params.health);
        health.failed_attempts.fetch_add(1, Relaxed);
        health.set_disabled();
        if self.durable.is_some() {
            health.set_error(error.to_owned());
            self.lanes.retry_at(lane, now);
        } else {
            self.bury(lane, error);
            let rest = self.lanes.clear();
            self.dead_letter(&rest, 0, error);
        }
        for held in std::mem::take(&mut self.held) {
            self.discard(held.rest.as_slice().len());
            self.answers.push_back(held.reply);
        }
    }
}
