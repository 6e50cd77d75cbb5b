//! Event queue of a sink. It has several lanes (parallel queues), each with one batch at a time. All events of an
//! object use the same lane, which keeps their order.
//!
//! # Events set aside
//! The receiver may refuse the content of a batch, or fail for this batch only. Then the batch is retried in halves
//! ([`Lanes::halve`]) until the event that causes the failure is alone. That event is set aside ([`Lanes::set_aside`])
//! until its next attempt, and the lane continues with other objects.
//!
//! - **Order.** Later events of the same object wait behind the event set aside. Once that event is delivered or given
//!   up, they return to the front of the lane's queue, in order.
//! - **Concurrency.** An event set aside is attempted alone, as its lane's batch: attempts in flight never exceed the
//!   number of lanes. If such an event and the queue are both ready, the lane alternates, so that events set aside
//!   take at most every other attempt.
//! - **Bounds.** Events set aside count against the queue's bounds. If refused events exceed their share
//!   ([`Lanes::over_share`]), the event that was refused first is given up early. An event that fails without a refusal
//!   is set aside only while there is room ([`Lanes::has_share`]), and is never given up early.
//! - **Restarts.** The list of events set aside is not written to disk. After a restart, a sink with a journal delivers
//!   all unacknowledged events again, in order. An event that fails again is set aside again, for the full retry time.

mod bounds;
mod gate;
mod set_aside;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

pub use bounds::Bounds;
pub use gate::{Gate, LaneId};
pub use set_aside::Refusals;
use set_aside::SetAside;

use super::event::Event;
use informer_hub_types::BatchParams;
use informer_hub_types::clock::Instant;

/// Batch that is being delivered, or that waits for its next attempt.
#[derive(Debug)]
struct Batch {
    events: Arc<[Event]>,
    /// When to send the batch; `None` while an attempt is in flight.
    due: Option<Instant>,
    failures: u32,
    since: Instant,
    /// When the batch's first event was queued.
    queued: Instant,
    /// Earlier failures of the batch's only event, if that event was set aside and is now attempted again. `None` if
    /// the batch came from the queue.
    refusals: Option<Refusals>,
}

#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<(Event, Instant)>,
    queue_bytes: usize,
    batch: Option<Batch>,
    set_aside: SetAside,
    /// Whether the lane's previous batch was an event that had been set aside after a failure. If so, the next batch is
    /// taken from the queue, if one is ready there.
    was_set_aside: bool,
}

impl Lane {
    fn push(&mut self, event: Event, now: Instant) {
        if let Err(event) = self.set_aside.follow(event, now) {
            self.queue_bytes += event.size();
            self.queue.push_back((event, now));
        }
    }

    /// Moves the events that waited behind an object's failed event back to the front of the queue. Called once the
    /// failed event is delivered or given up.
    fn release(&mut self, object: u64) {
        for (event, queued) in self.set_aside.release(object).into_iter().rev() {
            self.queue_bytes += event.size();
            self.queue.push_front((event, queued));
        }
    }

    /// Returns whether the lane's next batch is a failed event that was set aside, rather than events of the queue.
    /// `queue` is when the queue's next batch is due. If an event set aside and the queue are both ready, they
    /// alternate.
    fn is_set_aside_next(&self, now: Instant, queue: Option<Instant>) -> bool {
        let is_ready = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        is_ready(self.set_aside.due()) && !(self.was_set_aside && is_ready(queue))
    }
}

/// Undelivered events of one sink, by lane.
///
/// Invariants:
/// - An event is in exactly one lane, chosen by its object's hash, from [`Self::push`] until [`Self::acked`] or
///   [`Self::give_up`].
/// - A lane has at most one batch, which holds the oldest events of their objects.
/// - Batches are retried unchanged or in halves, so events of one object leave in the order of their arrival.
///
/// # Examples
/// ```
/// # use informer_hub_sink::{BatchParams, Bounds, Gate, Lanes};
/// # use informer_hub_types::clock;
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
    /// Lane at which the next search for a ready lane starts, so that all lanes get their turn.
    next: usize,
    flushing: bool,
}

impl Lanes {
    /// Creates empty lanes (parallel queues). At most one attempt per lane is in flight.
    #[must_use]
    pub fn new(lanes: NonZeroUsize, batch: BatchParams, bounds: Bounds) -> Self {
        let lanes = (0..lanes.get()).map(|_| Lane::default()).collect();
        Self { lanes, batch, bounds, events: 0, bytes: 0, next: 0, flushing: false }
    }

    /// Queues an event.
    ///
    /// # Errors
    /// The event itself if the queue is full.
    pub fn push(&mut self, event: Event, now: Instant) -> Result<(), Event> {
        if self.is_full() {
            return Err(event);
        }
        self.put(event, now);
        Ok(())
    }

    /// Applies new parameters and keeps all events, even beyond the new bounds. Batches in flight are attempted again.
    pub fn rebuild(&mut self, lanes: NonZeroUsize, batch: BatchParams, bounds: Bounds, now: Instant) {
        self.attempt_again(now);
        let events = self.clear();
        *self = Self { flushing: self.flushing, ..Self::new(lanes, batch, bounds) };
        self.requeue(events, now);
    }

    fn put(&mut self, event: Event, now: Instant) {
        self.events += 1;
        self.bytes += event.size();
        let lane = self.lane_of(&event);
        self.lanes[lane].push(event, now);
    }

    /// Returns a batch that may be attempted now, and its lane; `None` if there is no such batch. The lane is busy
    /// until [`Self::acked`], [`Self::retry_at`] or [`Self::give_up`].
    pub fn take_ready(&mut self, now: Instant, gate: Gate) -> Option<(LaneId, Arc<[Event]>)> {
        let at = self.ready(now, gate)?;
        self.next = (at + 1) % self.lanes.len();
        let (queue_due, params) = (self.queue_due(&self.lanes[at]), self.batch);
        let lane = &mut self.lanes[at];
        let is_set_aside_next = lane.is_set_aside_next(now, queue_due);
        let batch = lane.batch.get_or_insert_with(|| {
            lane.was_set_aside = is_set_aside_next;
            if let Some((event, refusals)) = is_set_aside_next.then(|| lane.set_aside.take_due()).flatten() {
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

    /// Returns the number of events that [`Self::take_ready`] would return; `None` if it would return no batch.
    #[must_use]
    pub fn ready_len(&self, now: Instant, gate: Gate) -> Option<usize> {
        let lane = &self.lanes[self.ready(now, gate)?];
        let is_set_aside_next = lane.is_set_aside_next(now, self.queue_due(lane));
        let next = || if is_set_aside_next { 1 } else { size(&lane.queue, self.batch).0 };
        Some(lane.batch.as_ref().map_or_else(next, |batch| batch.events.len()))
    }

    /// Removes the lane's batch, which was delivered. Returns its events.
    pub fn acked(&mut self, lane: LaneId) -> Arc<[Event]> {
        self.remove(lane)
    }

    /// Removes the lane's batch, which is given up. Returns its events.
    pub fn give_up(&mut self, lane: LaneId) -> Arc<[Event]> {
        self.remove(lane)
    }

    /// Counts a failed attempt of the lane's batch. Returns how often the batch has failed, and when its first attempt
    /// was.
    pub fn failed(&mut self, lane: LaneId, now: Instant) -> (u32, Instant) {
        let Some(batch) = &mut self.lanes[lane.0].batch else { return (0, now) };
        batch.failures = batch.failures.saturating_add(1);
        (batch.failures, batch.since)
    }

    /// Returns the number of events in the lane's batch.
    #[must_use]
    pub fn batch_len(&self, lane: LaneId) -> usize {
        self.lanes[lane.0].batch.as_ref().map_or(0, |batch| batch.events.len())
    }

    /// Returns whether the lane has events besides its batch.
    #[must_use]
    pub fn has_more(&self, lane: LaneId) -> bool {
        let lane = &self.lanes[lane.0];
        !lane.queue.is_empty() || lane.set_aside.size().0 > 0
    }

    /// Returns how often the lane's batch has failed.
    #[must_use]
    pub fn failures(&self, lane: LaneId) -> u32 {
        self.lanes[lane.0].batch.as_ref().map_or(0, |batch| batch.failures)
    }

    /// Returns the number of events to retry: those in failed batches, and failed events set aside that the receiver
    /// did not refuse. Events that only wait behind a failed one do not count.
    #[must_use]
    pub fn retrying(&self) -> usize {
        let batches = self.lanes.iter().filter_map(|lane| lane.batch.as_ref());
        let failed: usize = batches.filter(|batch| batch.failures > 0).map(|batch| batch.events.len()).sum();
        failed + self.lanes.iter().map(|lane| lane.set_aside.failed()).sum::<usize>()
    }

    /// Schedules the next attempt of the lane's batch after a failure.
    pub fn retry_at(&mut self, lane: LaneId, when: Instant) {
        if let Some(batch) = &mut self.lanes[lane.0].batch {
            batch.due = Some(when);
        }
    }

    /// Makes batches in flight due again, because the outcome of their attempts is unknown.
    pub fn attempt_again(&mut self, now: Instant) {
        for batch in self.lanes.iter_mut().filter_map(|lane| lane.batch.as_mut()) {
            batch.due.get_or_insert(now);
        }
    }

    /// Moves the second half of the lane's batch back to the front of its queue. The first half stays the batch, with
    /// `failures` failures. A batch of one event is unchanged.
    pub fn halve(&mut self, lane: LaneId, failures: u32) {
        let lane = &mut self.lanes[lane.0];
        let Some(batch) = lane.batch.as_mut().filter(|batch| batch.events.len() > 1) else { return };
        let (first, second) = batch.events.split_at(batch.events.len().div_ceil(2));
        for event in second.iter().rev() {
            lane.queue_bytes += event.size();
            // Queued with the batch's original time, so that `max_wait` does not start again.
            lane.queue.push_front((event.clone(), batch.queued));
        }
        batch.events = first.into();
        batch.failures = failures;
    }

    /// Returns the earlier failures of the lane's batch, if it is an event that was set aside. Returns `None` if the
    /// batch came from the queue.
    #[must_use]
    pub fn refusals(&self, lane: LaneId) -> Option<&Refusals> {
        self.lanes[lane.0].batch.as_ref()?.refusals.as_ref()
    }

    /// Sets the lane's single-event batch aside until `due`. Later events of its object wait behind it, and the lane
    /// continues with other objects.
    ///
    /// Cost: linear in the lane's queue.
    pub fn set_aside(&mut self, lane: LaneId, refusals: Refusals, due: Instant) {
        let lane = &mut self.lanes[lane.0];
        let Some(batch) = lane.batch.take_if(|batch| batch.events.len() == 1) else { return };
        let object = batch.events[0].lane_hash();
        if !lane.set_aside.put(batch.events[0].clone(), refusals, due) {
            return;
        }
        let queue = std::mem::take(&mut lane.queue);
        for (event, queued) in queue {
            if event.lane_hash() == object {
                lane.queue_bytes -= event.size();
                // Cannot fail: the object is set aside, so `follow` accepts the event.
                let _ = lane.set_aside.follow(event, queued);
            } else {
                lane.queue.push_back((event, queued));
            }
        }
    }

    /// Returns whether refused events, together with later events of their objects, use more than `quarters`/4 of the
    /// queue's bounds.
    #[must_use]
    pub fn over_share(&self, quarters: usize) -> bool {
        let (events, bytes) = self.refused_size();
        events > self.bounds.events / 4 * quarters || bytes > self.bounds.bytes / 4 * quarters
    }

    /// Returns whether events set aside after failures use less than a quarter of the queue's bounds. Only then may an
    /// event that fails without a refusal be set aside.
    #[must_use]
    pub fn has_share(&self) -> bool {
        let (events, bytes) = self.set_aside_size();
        events < self.bounds.events / 4 && bytes < self.bounds.bytes / 4
    }

    /// Returns the number of events that are set aside in the lane although a broken receiver may have caused their
    /// failures. An event counts if the receiver did not refuse it, and has acknowledged nothing since the event's
    /// first attempt. `accepted` is the time of the receiver's last acknowledgement; `None` if there was none.
    #[must_use]
    pub fn unproven(&self, lane: LaneId, accepted: Option<Instant>) -> usize {
        self.lanes[lane.0].set_aside.unproven(accepted)
    }

    /// Gives up the set-aside event that the receiver refused first, and returns it with its failures. Returns `None`
    /// if no refused event waits.
    pub fn give_up_oldest(&mut self) -> Option<(Event, Refusals)> {
        let oldest = |(at, lane): (usize, &Lane)| lane.set_aside.oldest().map(|(since, object)| (since, at, object));
        let (_, at, object) = self.lanes.iter().enumerate().filter_map(oldest).min()?;
        let (event, refusals) = self.lanes[at].set_aside.remove(object)?;
        self.lanes[at].release(object);
        self.events -= 1;
        self.bytes -= event.size();
        Some((event, refusals))
    }

    /// Moves the next attempt of failed events forward to `now`, if their last attempt ended at `refused_by` or
    /// earlier. Call it when the receiver accepts content again.
    pub fn hasten(&mut self, refused_by: Instant, now: Instant) {
        self.lanes.iter_mut().for_each(|lane| lane.set_aside.hasten(refused_by, now));
    }

    /// Returns the number and bytes of events set aside: failed events that wait for their next attempt, and later
    /// events of their objects.
    #[must_use]
    pub fn set_aside_size(&self) -> (usize, usize) {
        sum(self.lanes.iter().map(|lane| lane.set_aside.size()))
    }

    /// Returns the number and bytes of events set aside after a refusal, with the later events of their objects.
    #[must_use]
    pub fn refused_size(&self) -> (usize, usize) {
        sum(self.lanes.iter().map(|lane| lane.set_aside.refused_size()))
    }

    /// Removes all events that are not in flight and returns them. Events of one object stay in order.
    pub fn clear(&mut self) -> Vec<Event> {
        let mut out = Vec::new();
        for lane in &mut self.lanes {
            if let Some(batch) = lane.batch.take_if(|batch| batch.due.is_some()) {
                out.extend(batch.events.iter().cloned());
            }
            out.extend(lane.set_aside.drain());
            out.extend(lane.queue.drain(..).map(|(event, _)| event));
            lane.queue_bytes = 0;
        }
        self.events -= out.len();
        self.bytes -= out.iter().map(Event::size).sum::<usize>();
        out
    }

    /// Queues again the events that [`Self::clear`] returned.
    pub(super) fn requeue(&mut self, events: Vec<Event>, now: Instant) {
        for event in events {
            self.put(event, now);
        }
    }

    /// Returns all events, including those in flight and set aside.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.lanes.iter().flat_map(|lane| {
            let batch = lane.batch.iter().flat_map(|batch| batch.events.iter());
            batch.chain(lane.set_aside.iter()).chain(lane.queue.iter().map(|(event, _)| event))
        })
    }

    /// Makes waiting batches due now. From now on, batches do not wait for more events.
    pub fn flush(&mut self, now: Instant) {
        self.flushing = true;
        let waiting = self.lanes.iter_mut().filter_map(|lane| lane.batch.as_mut()?.due.as_mut());
        waiting.for_each(|due| *due = now.min(*due));
        self.hasten(now, now);
    }

    /// Returns when [`Self::take_ready`] will return a batch if no event is queued and no attempt ends before. Returns
    /// `None` if all lanes are busy or empty. With [`Gate::Only`], considers only that lane.
    #[must_use]
    pub fn next_wake(&self, gate: Gate) -> Option<Instant> {
        let lanes = 0..self.lanes.len();
        match gate {
            Gate::Until(until) => lanes.filter_map(|at| self.due(at)).min().map(|due| due.max(until)),
            _ => lanes.filter(|at| gate.admits(*at)).filter_map(|at| self.due(at)).min(),
        }
    }

    /// Returns whether [`Self::push`] refuses events.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.events >= self.bounds.events || self.bytes >= self.bounds.bytes
    }

    /// Returns whether more events should be read from the journal: less than half of the usable room in the queue is
    /// taken. Room that failed events set aside, and later events of their objects, occupy is not usable. So these
    /// events do not prevent events of other objects from being read.
    #[must_use]
    pub fn is_low(&self) -> bool {
        let (events, bytes) = self.set_aside_size();
        let is_low = |queued: usize, aside: usize, bound: usize| (queued - aside) * 2 < bound.saturating_sub(aside);
        is_low(self.events, events, self.bounds.events) && is_low(self.bytes, bytes, self.bounds.bytes)
    }

    /// Returns how many more events and bytes the bounds allow.
    #[must_use]
    pub fn room(&self) -> (usize, usize) {
        (self.bounds.events.saturating_sub(self.events), self.bounds.bytes.saturating_sub(self.bytes))
    }

    /// Returns whether nothing is queued or in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Returns the number of events queued or in flight.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events
    }

    /// Returns the bytes of events queued or in flight.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn lane_of(&self, event: &Event) -> usize {
        let lanes = self.lanes.len() as u64;
        usize::try_from(event.lane_hash() % lanes).expect("less than the number of lanes, which is a usize")
    }

    /// Returns the next lane in round-robin order whose batch is due now and that `gate` admits.
    fn ready(&self, now: Instant, gate: Gate) -> Option<usize> {
        let count = self.lanes.len();
        let ready = |at: &usize| gate.admits(*at) && self.due(*at).is_some_and(|due| due <= now);
        (0..count).map(|i| (self.next + i) % count).find(ready)
    }

    /// Returns when a lane's next batch is due; `None` while the lane is busy or empty.
    fn due(&self, lane: usize) -> Option<Instant> {
        let lane = &self.lanes[lane];
        match &lane.batch {
            Some(batch) => batch.due,
            None => lane.set_aside.due().into_iter().chain(self.queue_due(lane)).min(),
        }
    }

    /// Returns when the next batch from the lane's queue is due; `None` if the queue is empty. A batch is due when it
    /// is full, or when its oldest event has waited `max_wait`.
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

fn sum(sizes: impl Iterator<Item = (usize, usize)>) -> (usize, usize) {
    sizes.fold((0, 0), |(events, bytes), (more, more_bytes)| (events + more, bytes + more_bytes))
}

/// Removes the next batch from a queue: at least one event, and no more than the limits allow.
fn cut(queue: &mut VecDeque<(Event, Instant)>, queue_bytes: &mut usize, params: BatchParams) -> Arc<[Event]> {
    let (count, bytes) = size(queue, params);
    *queue_bytes -= bytes;
    queue.drain(..count).map(|(event, _)| event).collect()
}

/// Returns how many events the next batch of a queue has, and their bytes.
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
