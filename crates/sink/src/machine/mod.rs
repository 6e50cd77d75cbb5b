//! What a sink does next: a machine without I/O, clock or threads.
//!
//! # Driving it
//! The driver (an actor, or a simulation) hands in what happens ([`Machine::take_in`], [`Machine::attempted`],
//! [`Machine::worked`]), then asks [`Machine::next`] for what to do until there is nothing more, and comes again at
//! [`Machine::wake_at`] at the latest.
//!
//! # With a journal
//! A message is answered when all that the sink takes of it is on disk. Events go into the lanes as they are written,
//! while there is room for them, and are read back from the journal later otherwise. Numbers of acknowledged events, and
//! dead letters, are written with the next events, or soon.

mod durable;
mod settle;

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rand::rngs::StdRng;

pub use durable::Durability;
use durable::Durable;
pub use settle::Broken;

use super::store::{Done, Work};
use super::{
    BatchParams, Bounds, Circuit, DeadLetter, Event, EventError, EventOptions, EventType, LaneId, Lanes, RateLimit,
    RateLimiter, RetryParams, Selection, SinkHealth, Verdict,
};
use informer_hub_types::clock::Instant;
use informer_hub_types::{Notification, TraceParent, Traced};

/// What a machine is built from.
#[derive(Clone, Debug)]
pub struct MachineParams {
    /// The sink's name, for logs.
    pub name: Arc<str>,
    /// What the sink takes.
    pub selection: Arc<Selection>,
    /// How its events are made.
    pub options: EventOptions,
    /// How events are put together.
    pub batch: BatchParams,
    /// How long a failing batch is tried.
    pub retry: RetryParams,
    /// What the lanes may hold.
    pub bounds: Bounds,
    /// Attempts in flight at most; as many lanes. Default 4.
    pub concurrency: NonZeroUsize,
    /// How often events may go; `None`: as often as they can.
    pub rate_limit: Option<RateLimit>,
    /// Where the sink shows what it does.
    pub health: Arc<SinkHealth>,
}

/// What is to be done for a machine. `T` answers a sender.
#[derive(Debug)]
pub enum Action<T> {
    /// A message has been taken in as a whole: answer its sender.
    Answer(T),
    /// Try to deliver a batch, and report by [`Machine::attempted`].
    Attempt {
        /// Its lane.
        lane: LaneId,
        /// Its events, in order.
        batch: Arc<[Event]>,
    },
    /// Have the sink's store do this, where it may block, and report by [`Machine::worked`]. One at a time.
    Work(Work),
}

/// See the module.
pub struct Machine<T> {
    params: MachineParams,
    lanes: Lanes,
    circuit: Circuit,
    /// Once the first batch has gone.
    rate: Option<RateLimiter>,
    rng: StdRng,
    /// Messages that wait for room, oldest first.
    held: VecDeque<Held<T>>,
    answers: VecDeque<T>,
    /// `None`: events are in memory alone.
    durable: Option<Durable<T>>,
    /// What was given up and no store has yet.
    letters: Vec<DeadLetter>,
    /// Contents refused since the receiver last accepted one.
    refused_in_a_row: u32,
    /// Whether the sink is to deliver what it can now, since the process ends.
    is_flushing: bool,
}

/// Notifications that come together, of one informer.
#[derive(Debug)]
pub struct Intake {
    /// In their order.
    pub notifications: Vec<Notification>,
    /// One of them that has a trace, and where events of it are in that.
    pub traced: Option<(Traced, TraceParent)>,
}

impl From<Vec<Notification>> for Intake {
    fn from(notifications: Vec<Notification>) -> Self {
        Self { notifications, traced: None }
    }
}

/// A message, or what is left of it, that waits for room.
#[derive(Debug)]
struct Held<T> {
    rest: std::vec::IntoIter<Notification>,
    traced: Option<(Traced, TraceParent)>,
    seen: jiff::Timestamp,
    reply: T,
}

impl<T> Machine<T> {
    /// A machine that keeps its events in memory, or in a journal.
    #[must_use]
    pub fn new(mut params: MachineParams, durability: Option<Durability>, rng: StdRng) -> Self {
        params.options.sequence = durability.is_some();
        let lanes = Lanes::new(params.concurrency, params.batch, params.bounds);
        Self {
            lanes,
            circuit: Circuit::default(),
            rate: None,
            rng,
            held: VecDeque::new(),
            answers: VecDeque::new(),
            durable: durability.map(Durable::new),
            letters: Vec::new(),
            refused_in_a_row: 0,
            is_flushing: false,
            params,
        }
    }

    /// Goes on where a driver that is gone had been: attempts that were in flight are made again, as it is not known
    /// whether they arrived. For a machine without a journal; one with a journal is made anew from it.
    pub fn attempt_again(&mut self, now: Instant) {
        self.lanes.attempt_again(now);
        self.circuit = Circuit::default();
        self.params.health.set_circuit_open(false);
    }

    /// Does what it does in another way from now on; whatever is pending stays. Attempts in flight are made again, and what
    /// comes of those that are is to be passed over. A sink that its receiver has disabled is tried anew.
    pub fn reconfigure(&mut self, params: MachineParams, now: Instant) {
        self.params = params;
        self.params.options.sequence = self.durable.is_some();
        let MachineParams { concurrency, batch, bounds, health, .. } = &self.params;
        self.lanes.rebuild(*concurrency, *batch, *bounds, now);
        (self.circuit, self.rate, self.refused_in_a_row) = (Circuit::default(), None, 0);
        health.set_circuit_open(false);
        health.set_enabled();
        self.unhold(now);
    }

    /// A message has come; whoever sent it is answered by [`Action::Answer`].
    pub fn take_in(&mut self, intake: impl Into<Intake>, seen: jiff::Timestamp, reply: T, now: Instant) {
        let Intake { notifications, traced } = intake.into();
        let count = notifications.len();
        self.params.health.received.fetch_add(count as u64, Relaxed);
        if self.params.health.is_disabled() {
            self.discard(count);
            return self.answers.push_back(reply);
        }
        // Behind those who wait already, for the order of a sender's messages.
        self.held.push_back(Held { rest: notifications.into_iter(), traced, seen, reply });
        self.unhold(now);
    }

    /// What to do now, if anything.
    pub fn next(&mut self, now: Instant) -> Option<Action<T>> {
        if let Some(reply) = self.answers.pop_front() {
            return Some(Action::Answer(reply));
        }
        if let Some(batch) = self.next_attempt(now) {
            return Some(batch);
        }
        let durable = self.durable.as_mut()?;
        durable.next_work(&self.lanes, &mut self.letters, now).map(Action::Work)
    }

    fn next_attempt(&mut self, now: Instant) -> Option<Action<T>> {
        if self.params.health.is_disabled() {
            return None;
        }
        if self.rate_at(now).is_some_and(|at| now < at) {
            return None;
        }
        let (lane, batch) = self.lanes.take_ready(now, self.circuit.gate(now))?;
        if let Some(limit) = self.params.rate_limit {
            self.rate.get_or_insert_with(|| RateLimiter::new(limit)).take(batch.len(), now);
        }
        self.circuit.started(lane);
        if self.lanes.failures(lane) > 0 {
            self.params.health.retries.fetch_add(1, Relaxed);
        }
        Some(Action::Attempt { lane, batch })
    }

    /// When the next batch may go by the rate limit; `None` where that holds nothing back.
    fn rate_at(&self, now: Instant) -> Option<Instant> {
        // Looking at what is next costs; without a limit nothing is to be known of it.
        let rate = self.rate.as_ref()?;
        let next = self.lanes.ready_len(now, self.circuit.gate(now))?;
        Some(rate.ready_at(next, now))
    }

    /// When [`Self::next`] will have something again, as far as that is known.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let due =
            self.lanes.next_wake(self.circuit.gate(now)).map(|due| self.rate_at(now).map_or(due, |at| due.max(at)));
        let attempt = due.filter(|_| !self.params.health.is_disabled());
        let work = self.durable.as_ref().and_then(|durable| durable.wake_at(&self.lanes, &self.letters));
        attempt.into_iter().chain(work).min()
    }

    /// The store has done what it was asked for.
    pub fn worked(&mut self, done: Done, now: Instant) {
        let Some(durable) = &mut self.durable else { return };
        durable.worked(done, &mut self.lanes, &mut self.letters, &self.params, now);
        self.answers.extend(durable.answers());
        self.unhold(now);
    }

    /// Lets waiting messages in, oldest first, as far as there is room.
    fn unhold(&mut self, now: Instant) {
        while let Some(mut held) = self.held.pop_front() {
            if !self.admit(&mut held, now) {
                self.held.push_front(held);
                return;
            }
            match &mut self.durable {
                None => self.answers.push_back(held.reply),
                Some(durable) => {
                    durable.answer_when_stored(held.reply);
                    self.answers.extend(durable.answers());
                }
            }
        }
    }

    /// Takes in what there is room for. Tells whether that was all.
    fn admit(&mut self, Held { rest, traced, seen, .. }: &mut Held<T>, now: Instant) -> bool {
        let seen = *seen;
        while self.has_room() {
            let Some(notification) = rest.next() else { return true };
            let is_it = |(traced, _): &&(Traced, TraceParent)| notification.object().is_some_and(|it| traced.is_of(it));
            let parent = traced.as_ref().filter(is_it).map(|(_, parent)| *parent);
            let event = self.convert(&notification, seen, parent);
            let Some(event) = event.and_then(|event| self.in_context(event, &notification, seen, parent)) else {
                continue;
            };
            if let Some(durable) = &mut self.durable {
                let resync = matches!(notification, Notification::Updated { resync: true, .. });
                durable.put(event, resync, &self.params.health, now);
            } else {
                let pushed = self.lanes.push(event, now);
                debug_assert!(pushed.is_ok(), "there was room");
            }
        }
        rest.as_slice().is_empty()
    }

    fn has_room(&self) -> bool {
        match &self.durable {
            None => !self.lanes.is_full(),
            Some(durable) => durable.has_room(),
        }
    }

    /// The event of a notification, if it is for this sink. Whatever goes wrong costs this notification alone.
    fn convert(
        &self,
        notification: &Notification,
        seen: jiff::Timestamp,
        parent: Option<TraceParent>,
    ) -> Option<Event> {
        let MachineParams { health, name, options, selection, .. } = &self.params;
        let converted = catch_unwind(AssertUnwindSafe(|| {
            let verdict = selection.judge(notification);
            let taken = !matches!(verdict, Verdict::Leave | Verdict::LeaveUnfiltered(_));
            let event = taken.then(|| Event::in_trace(notification, seen, options, parent)).transpose();
            (verdict, event)
        }));
        let (verdict, event) = converted.unwrap_or_else(|panic| {
            tracing::error!(sink = %name, ?notification, panic = panic_text(&*panic), "conversion panicked");
            (Verdict::Take, Ok(None))
        });
        if let Verdict::TakeUnfiltered(error) | Verdict::LeaveUnfiltered(error) = &verdict {
            let count = health.filter_errors.fetch_add(1, Relaxed) + 1;
            // The first, then ever more rarely: a filter that does not fit fails for each event.
            if count.is_power_of_two() {
                let taken = matches!(verdict, Verdict::TakeUnfiltered(_));
                tracing::warn!(sink = %name, ?notification, error, count, taken, "filter failed");
            }
        }
        match (verdict, event) {
            (Verdict::Leave | Verdict::LeaveUnfiltered(_), _) => {
                health.filtered.fetch_add(1, Relaxed);
                None
            }
            (_, Ok(Some(event))) => Some(event),
            (_, failed) => {
                health.unreadable.fetch_add(1, Relaxed);
                let error = failed.err().as_ref().map(EventError::to_string);
                tracing::error!(sink = %name, ?notification, error, "notification lost: no event can be made of it");
                None
            }
        }
    }

    /// An event as it is to be told: that of an update, where the journal has told of an object that the notification tells
    /// of as if it were new. How it was before is not known.
    fn in_context(
        &self,
        event: Event,
        notification: &Notification,
        seen: jiff::Timestamp,
        parent: Option<TraceParent>,
    ) -> Option<Event> {
        let MachineParams { health, options, selection, .. } = &self.params;
        let is_update = self.durable.as_ref().is_some_and(|durable| durable.is_update(&event));
        let Notification::Added { object, .. } = notification else { return Some(event) };
        if !is_update {
            return Some(event);
        }
        if !selection.events.contains(&EventType::Updated) {
            health.filtered.fetch_add(1, Relaxed);
            return None;
        }
        let update = Notification::Updated { old: object.clone(), new: object.clone(), resync: false };
        let options = EventOptions { include_old: false, ..options.clone() };
        Event::in_trace(&update, seen, &options, parent).ok()
    }

    fn discard(&self, count: usize) {
        self.params.health.discarded.fetch_add(count as u64, Relaxed);
    }

    /// From now on nothing waits for company or for its time: what can be written and delivered is.
    pub fn flush(&mut self, now: Instant) {
        self.is_flushing = true;
        self.lanes.flush(now);
        self.durable.iter_mut().for_each(Durable::flush);
    }

    /// Events that are not delivered, those included that wait to be taken in.
    #[must_use]
    pub fn left(&self) -> u64 {
        let pending = self.durable.as_ref().map_or(self.lanes.events() as u64, Durable::pending);
        pending + self.held_count() as u64
    }

    /// Of these, those that would be lost if the process ended now.
    #[must_use]
    pub fn at_risk(&self) -> u64 {
        let pending = self.durable.as_ref().map_or(self.lanes.events() as u64, Durable::unstored);
        pending + self.held_count() as u64
    }

    /// Whether all events that are left wait after a refusal, or the receiver refuses everything: a shutdown need not wait
    /// for what a journal keeps.
    #[must_use]
    pub fn is_waiting_after_refusals(&self) -> bool {
        self.left() == self.lanes.aside().0 as u64 || self.is_refusing_everything()
    }

    /// Whether the receiver refuses everything, as far as it was asked.
    fn is_refusing_everything(&self) -> bool {
        self.refused_in_a_row > settle::PATIENCE
    }

    /// Whether anything is still to be written. Always `false` without a journal.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.is_unwritten() || !self.letters.is_empty())
    }

    /// What was given up since this was last asked for, where there is no journal to write it with.
    pub fn take_letters(&mut self) -> Vec<DeadLetter> {
        if self.durable.is_some() { Vec::new() } else { std::mem::take(&mut self.letters) }
    }

    /// Puts events of dead letters into the lanes again, as far as there is room; what there is no room for comes back.
    pub fn readmit(&mut self, events: Vec<Event>, now: Instant) -> Vec<Event> {
        events.into_iter().filter_map(|event| self.lanes.push(event, now).err()).collect()
    }

    /// Somebody else has written to the journal, up to this number.
    pub fn appended(&mut self, end: u64) {
        self.durable.iter_mut().for_each(|durable| durable.appended(end));
    }

    fn held_count(&self) -> usize {
        self.held.iter().map(|held| held.rest.as_slice().len()).sum()
    }

    /// Shows how much waits.
    pub fn show(&self) {
        let health = &self.params.health;
        let (events, unwritten) = match &self.durable {
            None => (self.lanes.events() as u64, 0),
            Some(durable) => (durable.pending(), durable.unwritten_bytes()),
        };
        health.pending_events.store(events, Relaxed);
        health.retrying.store(self.lanes.retrying() as u64, Relaxed);
        health.pending_bytes.store((self.lanes.bytes() + unwritten) as u64, Relaxed);
        health.held.store(self.held_count() as u64, Relaxed);
        let refused = self.lanes.aside().0 as u64;
        health.refused_events.store(refused, Relaxed);
        if refused == 0 {
            health.set_refusal(None);
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

impl<T> fmt::Debug for Machine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("name", &self.params.name).field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
