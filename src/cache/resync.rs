//! When a listener's objects are repeated: client-go's resync periods. Times are passed in.
//!
//! All resyncs of one informer fall on ticks of one timer, at the shortest period that any listener asked for. On a
//! tick, every listener whose time has come is repeated to; so a listener waits for at most one tick longer than its
//! period. On average it gets its period: the next time is counted from when the last should have been, not from when
//! it was, and of the times that a stall made it miss, it gets one.
//!
//! client-go differs in two things: the timer keeps the shortest period there ever was before the informer started, and
//! raises a later listener's period to that; and a period is counted from the tick, which rounds it up to a multiple
//! of the timer's.

use std::collections::BTreeMap;
use std::time::Duration;

use informer_hub_types::clock::Instant;

/// The listeners of one informer that want resyncs, by `Id`. Pure; costs a walk over them per tick.
#[derive(Debug)]
pub struct ResyncSchedule<Id> {
    listeners: BTreeMap<Id, Listener>,
}

#[derive(Debug)]
struct Listener {
    period: Duration,
    /// `None` is beyond the end of time.
    next: Option<Instant>,
    /// Whether the repetition under way is for this one too.
    due: bool,
}

impl<Id: Ord> ResyncSchedule<Id> {
    /// Shortest period; a shorter one that is asked for becomes it.
    pub const MIN_PERIOD: Duration = Duration::from_secs(1);

    /// Without listeners.
    #[must_use]
    pub fn new() -> Self {
        Self { listeners: BTreeMap::new() }
    }

    /// Has a listener be repeated to each `period` from `now` on; never, if that is `None` or zero. Takes the place of
    /// what it asked for before.
    pub fn join(&mut self, id: Id, period: Option<Duration>, now: Instant) {
        let Some(period) = period.filter(|period| !period.is_zero()) else {
            return self.leave(&id);
        };
        let period = period.max(Self::MIN_PERIOD);
        self.listeners.insert(id, Listener { period, next: now.checked_add(period), due: false });
    }

    /// Has a listener be repeated to no more.
    pub fn leave(&mut self, id: &Id) {
        self.listeners.remove(id);
    }

    /// How often to tick: the shortest period; `None` while nobody wants resyncs.
    #[must_use]
    pub fn tick_period(&self) -> Option<Duration> {
        self.listeners.values().map(|listener| listener.period).min()
    }

    /// What a listener has been granted.
    #[must_use]
    pub fn period_of(&self, id: &Id) -> Option<Duration> {
        self.listeners.get(id).map(|listener| listener.period)
    }

    /// One tick. Returns whether objects are to be repeated now; [`Self::is_due`] then says to whom, until the next
    /// repetition. While an earlier one is still `under_way` there is none, and whoever is due stays so.
    #[must_use]
    pub fn tick(&mut self, now: Instant, under_way: bool) -> bool {
        if under_way || !self.listeners.values().any(|listener| listener.is_late(now)) {
            return false;
        }
        for listener in self.listeners.values_mut() {
            listener.due = listener.is_late(now);
            if listener.due {
                listener.advance(now);
            }
        }
        true
    }

    /// Whether the last repetition is for this listener.
    #[must_use]
    pub fn is_due(&self, id: &Id) -> bool {
        self.listeners.get(id).is_some_and(|listener| listener.due)
    }
}

impl<Id: Ord> Default for ResyncSchedule<Id> {
    fn default() -> Self {
        Self::new()
    }
}

impl Listener {
    fn is_late(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// To the first of its times after `now`.
    fn advance(&mut self, now: Instant) {
        let Some(next) = self.next else { return };
        let missed = now.saturating_duration_since(next).as_nanos() / self.period.as_nanos();
        let steps = u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1);
        self.next = self.period.checked_mul(steps).and_then(|ahead| next.checked_add(ahead));
    }
}
