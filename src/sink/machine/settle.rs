//! What becomes of a batch once it was attempted.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Machine, panic_text};
use crate::sink::{DeadLetter, Decision, Event, LaneId, Outcome};
use crate::types::clock::{self, Instant};

/// How often a receiver must refuse the content of a single event before it is given up: it holds up the other objects
/// of its lane, and the receiver has made itself clear.
const CONTENT_TRIES: u32 = 5;

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
            Ok(Outcome::Accepted) => self.accept(lane),
            Ok(Outcome::Retry { error, .. }) if self.params.health.is_disabled() && self.durable.is_none() => {
                self.bury(lane, &error);
            }
            Ok(Outcome::Retry { after, content, error }) => self.fail(lane, after, content, &error, now),
            Ok(Outcome::Disable { error }) => self.disable(lane, &error, now),
            Err(Broken::Panicked(panic)) => self.bury(lane, &format!("transport panicked: {}", panic_text(&*panic))),
            Err(Broken::ShuttingDown) => self.fail(lane, None, false, "the I/O runtime is shutting down", now),
        }
        self.unhold(now);
    }

    fn accept(&mut self, lane: LaneId) {
        let attempts = self.lanes.failures(lane);
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
        let (health, name) = (Arc::clone(&self.params.health), &self.params.name);
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
        if let Some(after) = after {
            self.circuit.pause(now, after);
        }
        // An answer to the content, or with a date, comes from a receiver that is well.
        if !content && after.is_none() && self.circuit.failed(lane) {
            health.set_circuit_open(true);
            tracing::warn!(sink = %name, error, "receiver keeps failing, one lane probes until it answers");
        }
        if content && failures >= CONTENT_TRIES && self.lanes.batch_len(lane) == 1 {
            return self.bury(lane, error);
        }
        if content {
            self.lanes.halve(lane, now);
        }
        match self.params.retry.decide(self.lanes.failures(lane), since, after, now, &mut self.rng) {
            Decision::RetryAt(at) => self.lanes.retry_at(lane, at),
            Decision::GiveUp => self.bury(lane, error),
        }
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
