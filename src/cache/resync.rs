//! Schedule of resyncs: client-go's resync periods. Reads no clock: the caller passes the time.
//!
//! All resyncs of one informer fall on ticks of one timer, at the shortest requested period. On a tick, the stored
//! objects are repeated to every listener that is due. A listener waits at most one tick longer than its period. The
//! delay does not add up, because the next resync is counted from the scheduled time of the last one. If several
//! resyncs are missed during a stall, only one follows.
//!
//! Differences from client-go: its timer keeps the shortest period requested before the informer started. A shorter
//! period that is requested later is raised to the timer's. client-go also counts a listener's period from the actual
//! tick, which rounds the period up to a multiple of the timer's.

use std::collections::BTreeMap;
use std::time::Duration;

use informer_hub_types::clock::Instant;

/// Resync schedule of one informer's listeners; `Id` identifies a listener. Does no I/O and reads no clock. A tick of
/// the timer visits all listeners.
#[derive(Debug)]
pub struct ResyncSchedule<Id> {
    listeners: BTreeMap<Id, Listener>,
}

#[derive(Debug)]
struct Listener {
    period: Duration,
    /// Time of the next resync; `None` if it is beyond the representable time.
    next: Option<Instant>,
    /// Whether the current resync includes this listener.
    due: bool,
}

impl<Id: Ord> ResyncSchedule<Id> {
    /// Minimum resync period of a listener; shorter ones are raised to it.
    pub const MIN_PERIOD: Duration = Duration::from_secs(1);

    /// Creates an empty schedule.
    #[must_use]
    pub fn new() -> Self {
        Self { listeners: BTreeMap::new() }
    }

    /// Schedules resyncs of a listener each `period` from `now` on, replacing its previous schedule. If the period is
    /// `None` or zero, removes the listener.
    pub fn join(&mut self, id: Id, period: Option<Duration>, now: Instant) {
        let Some(period) = period.filter(|period| !period.is_zero()) else {
            return self.leave(&id);
        };
        let period = period.max(Self::MIN_PERIOD);
        self.listeners.insert(id, Listener { period, next: now.checked_add(period), due: false });
    }

    /// Removes a listener.
    pub fn leave(&mut self, id: &Id) {
        self.listeners.remove(id);
    }

    /// Returns the interval between ticks of the timer: the shortest period of all listeners. `None` without listeners.
    #[must_use]
    pub fn tick_period(&self) -> Option<Duration> {
        self.listeners.values().map(|listener| listener.period).min()
    }

    /// Returns the resync period of a listener, at least [`Self::MIN_PERIOD`]; `None` if the listener requested no
    /// resyncs.
    #[must_use]
    pub fn period_of(&self, id: &Id) -> Option<Duration> {
        self.listeners.get(id).map(|listener| listener.period)
    }

    /// Handles a tick of the timer. Returns whether a resync starts now, for the listeners whose period is over.
    /// [`Self::is_due`] returns true for these listeners until the next resync starts. If `under_way` (an earlier
    /// resync has not ended), none starts.
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

    /// Returns whether the last resync includes this listener.
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

    /// Moves the listener's next resync to the first scheduled time after `now`.
    fn advance(&mut self, now: Instant) {
        let Some(next) = self.next else { return };
        let missed = now.saturating_duration_since(next).as_nanos() / self.period.as_nanos();
        let steps = u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1);
        self.next = self.period.checked_mul(steps).and_then(|ahead| next.checked_add(ahead));
    }
}
