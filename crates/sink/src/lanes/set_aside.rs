//! Refused events of one lane, set aside until their next attempt, with later events of their objects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::Event;
use informer_hub_types::clock::Instant;

/// Refusals of an event that was alone in its batch.
#[derive(Clone, Debug)]
pub struct Refusals {
    /// When the first attempt was refused.
    pub since: Instant,
    /// When the last attempt was refused.
    pub last: Instant,
    /// Failed attempts.
    pub attempts: u32,
    /// The receiver's last answer, without secrets.
    pub error: Arc<str>,
}

/// Object whose oldest event was refused.
#[derive(Debug)]
struct Object {
    /// The refused event and when it is due; `None` while it is the lane's batch.
    waiting: Option<(Event, Refusals, Instant)>,
    /// Later events of the object, in order.
    behind: VecDeque<(Event, Instant)>,
}

/// Refused events and the events behind them.
///
/// Invariants: `due` holds exactly the objects with a waiting event. `events` and `bytes` count waiting events and those
/// behind them, but not one that is the lane's batch. The maps are ordered, so that simulations are reproducible.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    objects: BTreeMap<u64, Object>,
    due: BTreeSet<(Instant, u64)>,
    events: usize,
    bytes: usize,
}

impl SetAside {
    pub(super) fn events(&self) -> usize {
        self.events
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the next refused event is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Queues an event whose object has a refused one; returns any other event.
    pub(super) fn follow(&mut self, event: Event, queued: Instant) -> Result<(), Event> {
        let Some(object) = self.objects.get_mut(&event.lane_hash()) else { return Err(event) };
        (self.events, self.bytes) = (self.events + 1, self.bytes + event.size());
        object.behind.push_back((event, queued));
        Ok(())
    }

    /// Sets a refused event aside until `due`. Returns whether its object was not set aside before; the caller then moves
    /// later events of the same object behind it.
    pub(super) fn put(&mut self, event: Event, refusals: Refusals, due: Instant) -> bool {
        let key = event.lane_hash();
        (self.events, self.bytes) = (self.events + 1, self.bytes + event.size());
        self.due.insert((due, key));
        let before = self.objects.len();
        let object = self.objects.entry(key).or_insert_with(|| Object { waiting: None, behind: VecDeque::new() });
        object.waiting = Some((event, refusals, due));
        self.objects.len() > before
    }

    /// Removes the event that is due first, for another attempt. Its object stays set aside until [`Self::release`].
    pub(super) fn take_due(&mut self) -> Option<(Event, Refusals)> {
        let (_, key) = self.due.pop_first()?;
        let (event, refusals, _) = self.objects.get_mut(&key)?.waiting.take()?;
        (self.events, self.bytes) = (self.events - 1, self.bytes - event.size());
        Some((event, refusals))
    }

    /// Removes an object whose refused event is done. Returns its later events, for the queue.
    pub(super) fn release(&mut self, object: u64) -> VecDeque<(Event, Instant)> {
        let behind = self.objects.remove(&object).map(|object| object.behind).unwrap_or_default();
        self.events -= behind.len();
        self.bytes -= behind.iter().map(|(event, _)| event.size()).sum::<usize>();
        behind
    }

    /// Returns the time of the earliest first refusal, and its object.
    pub(super) fn oldest(&self) -> Option<(Instant, u64)> {
        let since = |(key, object): (&u64, &Object)| Some((object.waiting.as_ref()?.1.since, *key));
        self.objects.iter().filter_map(since).min()
    }

    /// Removes an object's waiting event. The object stays set aside until [`Self::release`].
    pub(super) fn remove(&mut self, object: u64) -> Option<(Event, Refusals)> {
        let (event, refusals, due) = self.objects.get_mut(&object)?.waiting.take()?;
        self.due.remove(&(due, object));
        (self.events, self.bytes) = (self.events - 1, self.bytes - event.size());
        Some((event, refusals))
    }

    /// Makes events due now that were last refused no later than `refused_by`.
    pub(super) fn hasten(&mut self, refused_by: Instant, now: Instant) {
        for (key, object) in &mut self.objects {
            let Some((_, refusals, due)) = &mut object.waiting else { continue };
            if refusals.last <= refused_by && *due > now {
                self.due.remove(&(*due, *key));
                self.due.insert((now, *key));
                *due = now;
            }
        }
    }

    /// Returns all events, without one that is the lane's batch.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.objects.values().flat_map(|object| {
            let waiting = object.waiting.iter().map(|(event, ..)| event);
            waiting.chain(object.behind.iter().map(|(event, _)| event))
        })
    }

    /// Removes all events. Returns them, in order per object.
    pub(super) fn drain(&mut self) -> Vec<Event> {
        let mut out = Vec::new();
        for (_, object) in std::mem::take(self).objects {
            out.extend(object.waiting.map(|(event, ..)| event));
            out.extend(object.behind.into_iter().map(|(event, _)| event));
        }
        out
    }
}
