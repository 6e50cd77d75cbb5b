//! The queue of a sink: events in lanes, batches in order, bounds that hold.
//!
//! # Refused events
//! A receiver that refuses the content of a batch gets it again in halves ([`Lanes::halve`]) until the refused event is
//! alone. That event is set aside ([`Lanes::set_aside`]) until its next attempt, and the lane goes on with other objects.
//!
//! - **Order.** Later events of the same object wait behind the refused one. When it is delivered or given up, they go
//!   back to the front of the lane's queue, in order.
//! - **Concurrency.** A refused event is attempted alone, as its lane's batch: attempts in flight never exceed the number
//!   of lanes. If refused events and the queue are both ready, the lane alternates, so that many refused events take at
//!   most every other attempt.
//! - **Bounds.** Events set aside count against the queue's bounds. If they take more than their share
//!   ([`Lanes::over_share`]), the event that was refused first is given up before its time.
//! - **Restarts.** Nothing of this is written to disk: a journal delivers unacknowledged events again after a restart,
//!   in order, and a refused one is found and set aside anew, with all of its time.

mod aside;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

use aside::Aside;
pub use aside::Refusals;

use super::event::Event;
use informer_hub_types::BatchParams;
use informer_hub_types::clock::Instant;

/// What the queue of one sink may hold, events in flight included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Events. Default 10,000.
    pub events: usize,
    /// Bytes; exceeded by at most one event. Default 64 MiB.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { events: 10_000, bytes: 64 * 1024 * 1024 }
    }
}

/// One of a sink's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneId(usize);

impl LaneId {
    /// The lane with this number.
    #[cfg(test)]
    pub(super) fn new(number: usize) -> Self {
        Self(number)
    }
}

/// Which lanes may start an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// All of them.
    All,
    /// This one.
    Only(LaneId),
    /// None before then.
    Until(Instant),
}

impl Gate {
    fn admits(self, lane: usize) -> bool {
        match self {
            Self::All => true,
            Self::Only(LaneId(only)) => only == lane,
            Self::Until(_) => false,
        }
    }
}

/// A batch that has been attempted at least once (or is being attempted for the first time).
#[derive(Debug)]
struct Batch {
    events: Arc<[Event]>,
    /// `None` while an attempt is in flight.
    due: Option<Instant>,
    failures: u32,
    since: Instant,
    /// Since when its first event was queued.
    queued: Instant,
    /// Earlier refusals, if it is one event that was set aside before.
    refusals: Option<Refusals>,
}

#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<(Event, Instant)>,
    queue_bytes: usize,
    batch: Option<Batch>,
    aside: Aside,
    /// Whether the last new batch was an event set aside.
    was_aside: bool,
}

impl Lane {
    fn push(&mut self, event: Event, now: Instant) {
        if let Err(event) = self.aside.follow(event, now) {
            self.queue_bytes += event.size();
            self.queue.push_back((event, now));
        }
    }

    /// An object is no longer set aside: its events are the oldest of the lane.
    fn release(&mut self, object: u64) {
        for (event, queued) in self.aside.release(object).into_iter().rev() {
            self.queue_bytes += event.size();
            self.queue.push_front((event, queued));
        }
    }

    /// Whether the next batch is an event set aside, where both that and the queue may have one.
    fn is_aside_next(&self, now: Instant, queue: Option<Instant>) -> bool {
        let is_ready = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        is_ready(self.aside.due()) && !(self.was_aside && is_ready(queue))
    }
}

/// Events of one sink that are not delivered yet, by lane.
///
/// Invariants: an event is in exactly one lane, the one that its object's hash names, from [`Self::push`] until
/// [`Self::acked`] or [`Self::give_up`]; a lane has at most one batch, which holds the oldest events of their objects;
/// batches are re-attempted as they are (or in halves), so events of one object leave in the order in which they came.
///
/// # Examples
/// ```
/// # use informer_hub::sink::{BatchParams, Bounds, Gate, Lanes};
/// # use informer_hub::types::clock;
/// let four = std::num::NonZeroUsize::new(4).unwrap();
/// let mut lanes = Lanes::new(four, BatchParams::default(), Bounds::default());
/// assert!(lanes.take_ready(clock::now(), Gate::All).is_none());
/// assert!(lanes.is_empty() && !lanes.is_full());
/// ```
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "they are the lanes")]
pub struct Lanes {
    lanes: Box<[Lane]>,
    batch: BatchParams,
    bounds: Bounds,
    events: usize,
    bytes: usize,
    /// Where the search for a ready lane starts, so that none is favoured.
    next: usize,
    flushing: bool,
}

impl Lanes {
    /// Empty lanes. As many attempts as there are lanes may be in flight at once.
    #[must_use]
    pub fn new(lanes: NonZeroUsize, batch: BatchParams, bounds: Bounds) -> Self {
        let lanes = (0..lanes.get()).map(|_| Lane::default()).collect();
        Self { lanes, batch, bounds, events: 0, bytes: 0, next: 0, flushing: false }
    }

    /// Takes an event in.
    ///
    /// # Errors
    /// The event itself when the queue is full.
    pub fn push(&mut self, event: Event, now: Instant) -> Result<(), Event> {
        if self.is_full() {
            return Err(event);
        }
        self.put(event, now);
        Ok(())
    }

    /// Begins anew with other parameters and all that is queued or in flight, whatever the bounds: what was in flight is
    /// due again.
    pub fn rebuild(&mut self, lanes: NonZeroUsize, batch: BatchParams, bounds: Bounds, now: Instant) {
        self.attempt_again(now);
        let events = self.clear();
        *self = Self { flushing: self.flushing, ..Self::new(lanes, batch, bounds) };
        for event in events {
            self.put(event, now);
        }
    }

    fn put(&mut self, event: Event, now: Instant) {
        self.events += 1;
        self.bytes += event.size();
        let lane = self.lane_of(&event);
        self.lanes[lane].push(event, now);
    }

    /// A batch that may be attempted now, and its lane, which is busy until [`Self::acked`], [`Self::retry_at`] or
    /// [`Self::give_up`].
    pub fn take_ready(&mut self, now: Instant, gate: Gate) -> Option<(LaneId, Arc<[Event]>)> {
        let at = self.ready(now, gate)?;
        self.next = (at + 1) % self.lanes.len();
        let (queue_due, params) = (self.queue_due(&self.lanes[at]), self.batch);
        let lane = &mut self.lanes[at];
        let is_aside_next = lane.is_aside_next(now, queue_due);
        let batch = lane.batch.get_or_insert_with(|| {
            lane.was_aside = is_aside_next;
            if let Some((event, refusals)) = is_aside_next.then(|| lane.aside.take_due()).flatten() {
                let (failures, since, events) = (refusals.attempts, refusals.since, Arc::new([event]));
                return Batch { events, due: None, failures, since, queued: since, refusals: Some(refusals) };
            }
            let queued = lane.queue.front().map_or(now, |(_, queued)| *queued);
            let events = cut(&mut lane.queue, &mut lane.queue_bytes, params);
            Batch { events, due: None, failures: 0, since: now, queued, refusals: None }
        });
        batch.due = None;
        Some((LaneId(at), Arc::clone(&batch.events)))
    }

    /// How many events [`Self::take_ready`] would give.
    #[must_use]
    pub fn ready_len(&self, now: Instant, gate: Gate) -> Option<usize> {
        let lane = &self.lanes[self.ready(now, gate)?];
        let is_aside_next = lane.is_aside_next(now, self.queue_due(lane));
        let next = || if is_aside_next { 1 } else { size(&lane.queue, self.batch).0 };
        Some(lane.batch.as_ref().map_or_else(next, |batch| batch.events.len()))
    }

    /// The batch in flight is delivered. Returns its events.
    pub fn acked(&mut self, lane: LaneId) -> Arc<[Event]> {
        self.remove(lane)
    }

    /// The batch in flight is given up. Returns its events.
    pub fn give_up(&mut self, lane: LaneId) -> Arc<[Event]> {
        self.remove(lane)
    }

    /// Notes that the attempt in flight failed: how often the batch has failed now, and since when it is tried.
    pub fn failed(&mut self, lane: LaneId, now: Instant) -> (u32, Instant) {
        let Some(batch) = &mut self.lanes[lane.0].batch else { return (0, now) };
        batch.failures = batch.failures.saturating_add(1);
        (batch.failures, batch.since)
    }

    /// Events in the lane's batch.
    #[must_use]
    pub fn batch_len(&self, lane: LaneId) -> usize {
        self.lanes[lane.0].batch.as_ref().map_or(0, |batch| batch.events.len())
    }

    /// How often the lane's batch has failed so far.
    #[must_use]
    pub fn failures(&self, lane: LaneId) -> u32 {
        self.lanes[lane.0].batch.as_ref().map_or(0, |batch| batch.failures)
    }

    /// Events of batches whose last attempt failed.
    #[must_use]
    pub fn retrying(&self) -> usize {
        let batches = self.lanes.iter().filter_map(|lane| lane.batch.as_ref());
        batches.filter(|batch| batch.failures > 0).map(|batch| batch.events.len()).sum()
    }

    /// The batch in flight is to be tried again then.
    pub fn retry_at(&mut self, lane: LaneId, when: Instant) {
        if let Some(batch) = &mut self.lanes[lane.0].batch {
            batch.due = Some(when);
        }
    }

    /// Batches in flight are due again: whoever attempted them is gone, and how that ended is not known.
    pub fn attempt_again(&mut self, now: Instant) {
        for batch in self.lanes.iter_mut().filter_map(|lane| lane.batch.as_mut()) {
            batch.due.get_or_insert(now);
        }
    }

    /// Puts the second half of the lane's batch back in front of its queue; the first half starts over with short
    /// delays. Nothing happens to a batch of one.
    pub fn halve(&mut self, lane: LaneId) {
        let lane = &mut self.lanes[lane.0];
        let Some(batch) = lane.batch.as_mut().filter(|batch| batch.events.len() > 1) else { return };
        let (first, second) = batch.events.split_at(batch.events.len().div_ceil(2));
        for event in second.iter().rev() {
            lane.queue_bytes += event.size();
            // As old as the first: it does not wait for company once more.
            lane.queue.push_front((event.clone(), batch.queued));
        }
        batch.events = first.into();
        batch.failures = batch.failures.min(1);
    }

    /// Earlier refusals of the lane's batch, if it was set aside before.
    #[must_use]
    pub fn refusals(&self, lane: LaneId) -> Option<&Refusals> {
        self.lanes[lane.0].batch.as_ref()?.refusals.as_ref()
    }

    /// Sets the lane's batch, which is one event, aside until `due`. Later events of its object wait behind it, and the
    /// lane goes on with others.
    ///
    /// Costs a look at each event in the lane's queue.
    pub fn set_aside(&mut self, lane: LaneId, refusals: Refusals, due: Instant) {
        let lane = &mut self.lanes[lane.0];
        let Some(batch) = lane.batch.take_if(|batch| batch.events.len() == 1) else { return };
        let object = batch.events[0].lane_hash();
        if !lane.aside.put(batch.events[0].clone(), refusals, due) {
            return;
        }
        let queue = std::mem::take(&mut lane.queue);
        for (event, queued) in queue {
            if event.lane_hash() == object {
                lane.queue_bytes -= event.size();
                // It is set aside, so nothing comes back.
                let _ = lane.aside.follow(event, queued);
            } else {
                lane.queue.push_back((event, queued));
            }
        }
    }

    /// Whether events set aside take more than so many quarters of the bounds.
    #[must_use]
    pub fn over_share(&self, quarters: usize) -> bool {
        let (events, bytes) = self.aside();
        events > self.bounds.events / 4 * quarters || bytes > self.bounds.bytes / 4 * quarters
    }

    /// Takes out the event set aside that was refused first. Returns it with its refusals; `None` if all that are set
    /// aside are being attempted.
    pub fn give_up_oldest(&mut self) -> Option<(Event, Refusals)> {
        let oldest = |(at, lane): (usize, &Lane)| lane.aside.oldest().map(|(since, object)| (since, at, object));
        let (_, at, object) = self.lanes.iter().enumerate().filter_map(oldest).min()?;
        let (event, refusals) = self.lanes[at].aside.remove(object)?;
        self.lanes[at].release(object);
        self.events -= 1;
        self.bytes -= event.size();
        Some((event, refusals))
    }

    /// The receiver accepts what it refused: events that were last refused by then are due now.
    pub fn hasten(&mut self, refused_by: Instant, now: Instant) {
        self.lanes.iter_mut().for_each(|lane| lane.aside.hasten(refused_by, now));
    }

    /// Events and bytes set aside: refused events that wait for their next attempt, and the later ones of their objects.
    #[must_use]
    pub fn aside(&self) -> (usize, usize) {
        let sum = |(events, bytes), lane: &Lane| (events + lane.aside.events(), bytes + lane.aside.bytes());
        self.lanes.iter().fold((0, 0), sum)
    }

    /// Takes everything out that is not in flight: the events of all lanes, those of one object in order.
    pub fn clear(&mut self) -> Vec<Event> {
        let mut out = Vec::new();
        for lane in &mut self.lanes {
            if let Some(batch) = lane.batch.take_if(|batch| batch.due.is_some()) {
                out.extend(batch.events.iter().cloned());
            }
            out.extend(lane.aside.drain());
            out.extend(lane.queue.drain(..).map(|(event, _)| event));
            lane.queue_bytes = 0;
        }
        self.events -= out.len();
        self.bytes -= out.iter().map(Event::size).sum::<usize>();
        out
    }

    /// From now on no batch waits for more events; batches that wait for their next attempt are due at once.
    pub fn flush(&mut self, now: Instant) {
        self.flushing = true;
        let waiting = self.lanes.iter_mut().filter_map(|lane| lane.batch.as_mut()?.due.as_mut());
        waiting.for_each(|due| *due = now.min(*due));
        self.hasten(now, now);
    }

    /// When [`Self::take_ready`] will have something next, as far as that is known; `None` while every lane that
    /// the gate admits is busy or empty.
    #[must_use]
    pub fn next_wake(&self, gate: Gate) -> Option<Instant> {
        let lanes = 0..self.lanes.len();
        match gate {
            Gate::Until(until) => lanes.filter_map(|at| self.due(at)).min().map(|due| due.max(until)),
            _ => lanes.filter(|at| gate.admits(*at)).filter_map(|at| self.due(at)).min(),
        }
    }

    /// Whether [`Self::push`] refuses.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.events >= self.bounds.events || self.bytes >= self.bounds.bytes
    }

    /// Whether less than half of the bounds is taken, so that it is worth to look for more. Events set aside, and the
    /// room that they take, do not count: others may be behind them.
    #[must_use]
    pub fn is_low(&self) -> bool {
        let (events, bytes) = self.aside();
        let is_low = |queued: usize, aside: usize, bound: usize| (queued - aside) * 2 < bound.saturating_sub(aside);
        is_low(self.events, events, self.bounds.events) && is_low(self.bytes, bytes, self.bounds.bytes)
    }

    /// Events and bytes that there is room for.
    #[must_use]
    pub fn room(&self) -> (usize, usize) {
        (self.bounds.events.saturating_sub(self.events), self.bounds.bytes.saturating_sub(self.bytes))
    }

    /// Whether nothing is queued or in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Events queued or in flight.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events
    }

    /// Bytes queued or in flight.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn lane_of(&self, event: &Event) -> usize {
        let lanes = self.lanes.len() as u64;
        usize::try_from(event.lane_hash() % lanes).expect("less than the number of lanes, which is a usize")
    }

    /// The lane whose turn it is.
    fn ready(&self, now: Instant, gate: Gate) -> Option<usize> {
        let count = self.lanes.len();
        let ready = |at: &usize| gate.admits(*at) && self.due(*at).is_some_and(|due| due <= now);
        (0..count).map(|i| (self.next + i) % count).find(ready)
    }

    /// When a lane has a batch to attempt; `None` while it is busy or empty.
    fn due(&self, lane: usize) -> Option<Instant> {
        let lane = &self.lanes[lane];
        match &lane.batch {
            Some(batch) => batch.due,
            None => lane.aside.due().into_iter().chain(self.queue_due(lane)).min(),
        }
    }

    /// When the lane's queue has a batch.
    fn queue_due(&self, lane: &Lane) -> Option<Instant> {
        let (_, oldest) = lane.queue.front()?;
        let complete = lane.queue.len() >= self.batch.max_events || lane.queue_bytes >= self.batch.max_bytes;
        Some(if complete || self.flushing { *oldest } else { *oldest + self.batch.max_wait })
    }

    fn remove(&mut self, lane: LaneId) -> Arc<[Event]> {
        let Some(batch) = self.lanes[lane.0].batch.take() else { return Arc::new([]) };
        self.events -= batch.events.len();
        self.bytes -= batch.events.iter().map(Event::size).sum::<usize>();
        if batch.refusals.is_some() {
            self.lanes[lane.0].release(batch.events[0].lane_hash());
        }
        batch.events
    }
}

/// Takes the next batch off a queue: at least one event, and no more than the limits allow.
fn cut(queue: &mut VecDeque<(Event, Instant)>, queue_bytes: &mut usize, params: BatchParams) -> Arc<[Event]> {
    let (count, bytes) = size(queue, params);
    *queue_bytes -= bytes;
    queue.drain(..count).map(|(event, _)| event).collect()
}

/// Events and bytes of the next batch.
fn size(queue: &VecDeque<(Event, Instant)>, params: BatchParams) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    for (event, _) in queue.iter().take(params.max_events.max(1)) {
        if count > 0 && bytes + event.size() > params.max_bytes {
            break;
        }
        (count, bytes) = (count + 1, bytes + event.size());
    }
    (count, bytes)
}

#[cfg(test)]
mod tests;
