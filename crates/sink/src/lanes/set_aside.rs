//! Events of one lane (parallel queue) that are kept out of its queue: failed events until their next attempt, and
//! later events of the same objects. A failed event is an event that the receiver refuses, or at which the receiver
//! always fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::Event;
use informer_hub_types::clock::Instant;

/// Times and number of the failed attempts to deliver one event alone in its batch, and the last error. Counts all
/// failures, not only refusals of the event's content.
#[derive(Clone, Debug)]
pub struct Refusals {
    /// Start of the event's retry time: the first attempt, or the first refusal if the event was set aside for a
    /// refusal.
    pub since: Instant,
    /// When the receiver first refused the content; `None` if the last attempt failed for another reason.
    pub refused_since: Option<Instant>,
    /// When the last attempt failed.
    pub last: Instant,
    /// Number of failed attempts.
    pub attempts: u32,
    /// Error of the last attempt, without secrets.
    pub error: Arc<str>,
}

/// An object whose oldest event has failed and is set aside.
#[derive(Debug, Default)]
struct Object {
    /// The failed event, its failures, and when its next attempt is due. `None` during an attempt, when the event is
    /// its lane's batch.
    waiting: Option<(Event, Refusals, Instant)>,
    /// Whether the receiver refused the content of the failed event.
    is_refused: bool,
    /// Later events of the object, in order, each with the time at which it was queued.
    behind: VecDeque<(Event, Instant)>,
}

impl Object {
    fn size(&self) -> (usize, usize) {
        let waiting = self.waiting.iter().map(|(event, ..)| event);
        let events = waiting.chain(self.behind.iter().map(|(event, _)| event));
        events.fold((0, 0), |(count, bytes), event| (count + 1, bytes + event.size()))
    }
}

/// Number and bytes of events set aside. `all` counts every event, `refused` only the events of objects with a refused
/// event.
#[derive(Debug, Default)]
struct Sizes {
    all: (usize, usize),
    refused: (usize, usize),
    /// Number of failed events that the receiver did not refuse, without the later events of their objects.
    failed: usize,
}

impl Sizes {
    fn add(&mut self, (events, bytes): (usize, usize), is_refused: bool) {
        self.all = (self.all.0 + events, self.all.1 + bytes);
        if is_refused {
            self.refused = (self.refused.0 + events, self.refused.1 + bytes);
        }
    }

    fn remove(&mut self, (events, bytes): (usize, usize), is_refused: bool) {
        self.all = (self.all.0 - events, self.all.1 - bytes);
        if is_refused {
            self.refused = (self.refused.0 - events, self.refused.1 - bytes);
        }
    }
}

/// Failed events of a lane, and later events of their objects.
///
/// Invariants: `due` has exactly the objects whose failed event waits for its next attempt. `sizes` counts these
/// waiting events and all later events. It does not count a failed event during its attempt. The maps are ordered, so
/// that simulations are reproducible.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    objects: BTreeMap<u64, Object>,
    due: BTreeSet<(Instant, u64)>,
    sizes: Sizes,
}

impl SetAside {
    /// Returns the number and bytes of all events set aside.
    pub(super) fn size(&self) -> (usize, usize) {
        self.sizes.all
    }

    /// Returns the number and bytes of the events of objects with a refused event.
    pub(super) fn refused_size(&self) -> (usize, usize) {
        self.sizes.refused
    }

    /// Returns the number of failed events that wait and that the receiver did not refuse. Later events of their
    /// objects do not count.
    pub(super) fn failed(&self) -> usize {
        self.sizes.failed
    }

    /// Returns the number of events that are set aside although a broken receiver may have caused their failures. An
    /// event counts if the receiver did not refuse it, and has acknowledged nothing since the event's first attempt.
    /// `accepted` is the time of the receiver's last acknowledgement; `None` if there was none.
    pub(super) fn unproven(&self, accepted: Option<Instant>) -> usize {
        let failing = self.objects.values().filter(|object| !object.is_refused);
        let since = failing.filter_map(|object| object.waiting.as_ref()).map(|(_, refusals, _)| refusals.since);
        since.filter(|since| accepted.is_none_or(|accepted| accepted < *since)).count()
    }

    /// Returns when the next attempt of a failed event is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Queues an event behind the failed event of its object. Gives the event back as `Err` if no event of its object
    /// is set aside.
    pub(super) fn follow(&mut self, event: Event, queued: Instant) -> Result<(), Event> {
        let Some(object) = self.objects.get_mut(&event.lane_hash()) else { return Err(event) };
        self.sizes.add((1, event.size()), object.is_refused);
        object.behind.push_back((event, queued));
        Ok(())
    }

    /// Sets a failed event aside until `due`. Returns true if no event of its object was set aside before. The caller
    /// must then pass the object's later events to [`Self::follow`].
    pub(super) fn put(&mut self, event: Event, refusals: Refusals, due: Instant) -> bool {
        let key = event.lane_hash();
        self.due.insert((due, key));
        let before = self.objects.len();
        let object = self.objects.entry(key).or_default();
        self.sizes.remove(object.size(), object.is_refused);
        object.is_refused = refusals.refused_since.is_some();
        object.waiting = Some((event, refusals, due));
        self.sizes.add(object.size(), object.is_refused);
        self.sizes.failed += usize::from(!object.is_refused);
        self.objects.len() > before
    }

    /// Removes the failed event that is due first, for its next attempt. Later events of its object stay set aside
    /// until [`Self::release`].
    pub(super) fn take_due(&mut self) -> Option<(Event, Refusals)> {
        let (_, key) = self.due.pop_first()?;
        let object = self.objects.get_mut(&key)?;
        let (event, refusals, _) = object.waiting.take()?;
        self.sizes.remove((1, event.size()), object.is_refused);
        self.sizes.failed -= usize::from(!object.is_refused);
        Some((event, refusals))
    }

    /// Removes an object whose failed event was delivered or given up. Returns the object's later events, which the
    /// caller must put into the lane's queue.
    pub(super) fn release(&mut self, object: u64) -> VecDeque<(Event, Instant)> {
        let object = self.objects.remove(&object).unwrap_or_default();
        self.sizes.remove(object.size(), object.is_refused);
        object.behind
    }

    /// Returns the object whose failed event was refused first, and the time of that refusal; `None` if no refused
    /// event waits.
    pub(super) fn oldest(&self) -> Option<(Instant, u64)> {
        let since = |(key, object): (&u64, &Object)| Some((object.waiting.as_ref()?.1.refused_since?, *key));
        self.objects.iter().filter_map(since).min()
    }

    /// Removes and returns an object's failed event. Later events of the object stay set aside until [`Self::release`].
    pub(super) fn remove(&mut self, object: u64) -> Option<(Event, Refusals)> {
        let found = self.objects.get_mut(&object)?;
        let (event, refusals, due) = found.waiting.take()?;
        self.due.remove(&(due, object));
        self.sizes.remove((1, event.size()), found.is_refused);
        self.sizes.failed -= usize::from(!found.is_refused);
        Some((event, refusals))
    }

    /// Moves the next attempt of failed events forward to `now`, if their last attempt ended at `refused_by` or
    /// earlier.
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

    /// Returns all events set aside, without failed events that are being attempted again.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.objects.values().flat_map(|object| {
            let waiting = object.waiting.iter().map(|(event, ..)| event);
            waiting.chain(object.behind.iter().map(|(event, _)| event))
        })
    }

    /// Removes and returns all events set aside. Events of one object stay in order.
    pub(super) fn drain(&mut self) -> Vec<Event> {
        let mut out = Vec::new();
        for (_, object) in std::mem::take(self).objects {
            out.extend(object.waiting.map(|(event, ..)| event));
            out.extend(object.behind.into_iter().map(|(event, _)| event));
        }
        out
    }
}
