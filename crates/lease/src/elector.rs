//! State machine of one contender in a leader election.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

/// Maximum lease duration that a contender accepts from the record of another one. A longer duration is reduced to this
/// value.
const LONGEST: Duration = Duration::from_secs(300);
/// Lease duration in the record of a holder that has resigned.
const RESIGNED: Duration = Duration::from_secs(1);

/// Durations of a leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionParams {
    /// How long a record must be unchanged before another contender takes over. Default 10 s.
    pub lease_duration: Duration,
    /// How long a holder leads after the last successful write. Must be shorter than `lease_duration`. Default 7 s.
    pub renew_deadline: Duration,
    /// Longest time between two requests of a contender; the shortest is three quarters of it. Default 2 s.
    pub retry_period: Duration,
}

impl Default for ElectionParams {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(7),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Content of a lease, which the store keeps as one versioned value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Identity of the holder; empty if it has resigned.
    pub holder: Arc<str>,
    /// Lease duration of the holder.
    pub lease_duration: Duration,
    /// How often the holder has changed. Never decreases, so it serves as the epoch: the number of a holder's term.
    pub transitions: u64,
    /// Text that the holder publishes with each renewal.
    pub note: Arc<str>,
}

/// Request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the record. An outdated answer is harmless: a write that names an outdated version is refused.
    Get,
    /// Write the record if there is none.
    Create(Record),
    /// Replace the record if it still has this version.
    Update {
        /// New content.
        record: Record,
        /// Version of the record that is replaced.
        version: Arc<str>,
    },
}

/// Answer of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The record and its version.
    Found {
        /// Content of the lease.
        record: Record,
        /// Version of the record. Every write changes it.
        version: Arc<str>,
    },
    /// There is no record.
    Missing,
    /// The record was written and has this version.
    Written(Arc<str>),
    /// The write was refused: the record has another version, exists already, or was deleted.
    Conflict,
    /// There was no answer, or another error. The store may have applied the request.
    Failed,
}

/// Whether a contender takes the lease when it is free, or only reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Contending,
    Observing,
}

#[derive(Clone, Debug)]
struct Observed {
    record: Record,
    /// Version of the record; `None` if a later request found no record.
    version: Option<Arc<str>>,
    /// When the contender first saw this version of the record.
    since: Duration,
}

/// State machine of one contender in a leader election; see the [crate documentation](crate).
///
/// All times are durations since one fixed moment of the caller's clock. This clock must go on while the process or the
/// machine is suspended.
#[derive(Debug)]
pub struct Elector {
    params: ElectionParams,
    identity: Arc<str>,
    rng: StdRng,
    observed: Option<Observed>,
    /// Whether the observed record may be outdated.
    must_read: bool,
    /// When leadership ends without another renewal.
    leads_until: Option<Duration>,
    /// Request in flight, and when it was sent.
    in_flight: Option<(Request, Duration)>,
    next_at: Duration,
    last_renewal: Option<Duration>,
    note: Arc<str>,
    mode: Mode,
    /// How long the contender waits before it takes a free lease, so that others can take it first.
    claim_delay: Duration,
    is_resigning: bool,
    has_resigned: bool,
}

impl Elector {
    /// Creates a contender. `identity` must be unique among all contenders, and among their earlier processes.
    #[must_use]
    pub fn new(identity: &str, params: ElectionParams, rng: StdRng) -> Self {
        Self {
            params,
            identity: identity.into(),
            rng,
            observed: None,
            must_read: true,
            leads_until: None,
            in_flight: None,
            next_at: Duration::ZERO,
            last_renewal: None,
            note: "".into(),
            mode: Mode::Contending,
            claim_delay: Duration::ZERO,
            is_resigning: false,
            has_resigned: false,
        }
    }

    /// Creates a contender that only reads the lease until [`Self::contend`].
    #[must_use]
    pub fn observing(identity: &str, params: ElectionParams, rng: StdRng) -> Self {
        Self { mode: Mode::Observing, ..Self::new(identity, params, rng) }
    }

    /// Returns whether the contender only reads the lease.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.mode == Mode::Observing
    }

    /// Begins to contend: from now on, the contender takes the lease when it is free.
    pub fn contend(&mut self, now: Duration) {
        self.mode = Mode::Contending;
        self.next_at = self.next_at.min(now);
    }

    /// Returns the next request to the store, if one is due. Pass the answer to [`Self::answered`], or
    /// [`Answer::Failed`] if none arrives before a deadline.
    pub fn next(&mut self, now: Duration) -> Option<Request> {
        if self.in_flight.is_some() || self.has_resigned || now < self.next_at {
            return None;
        }
        let request = self.request(now);
        self.in_flight = Some((request.clone(), now));
        Some(request)
    }

    fn request(&self, now: Duration) -> Request {
        if self.must_read {
            return Request::Get;
        }
        let Some(observed) = &self.observed else {
            return if self.mode == Mode::Contending { Request::Create(self.record(0)) } else { Request::Get };
        };
        let is_own = *observed.record.holder == *self.identity;
        let may_take = self.mode == Mode::Contending && now >= self.takes_at(observed);
        if !is_own && !may_take {
            return Request::Get;
        }
        let record = self.record(observed.record.transitions + u64::from(!is_own));
        match &observed.version {
            None => Request::Create(record),
            Some(version) => Request::Update { record, version: Arc::clone(version) },
        }
    }

    /// Returns the record that this contender writes to the store.
    fn record(&self, transitions: u64) -> Record {
        let note = Arc::clone(&self.note);
        if self.is_resigning {
            return Record { holder: "".into(), lease_duration: RESIGNED, transitions, note };
        }
        Record { holder: Arc::clone(&self.identity), lease_duration: self.params.lease_duration, transitions, note }
    }

    /// Returns whether the record has no holder, or has been unchanged for a whole lease duration.
    fn is_free(&self, observed: &Observed, now: Duration) -> bool {
        now >= self.free_at(observed)
    }

    fn free_at(&self, observed: &Observed) -> Duration {
        if observed.record.holder.is_empty() { observed.since } else { self.expiry(observed) }
    }

    fn takes_at(&self, observed: &Observed) -> Duration {
        self.free_at(observed) + self.claim_delay
    }

    fn expiry(&self, observed: &Observed) -> Duration {
        observed.since + self.params.lease_duration.max(observed.record.lease_duration.min(LONGEST))
    }

    /// Reports the answer to the request in flight.
    pub fn answered(&mut self, answer: Answer, now: Duration) {
        let Some((request, sent)) = self.in_flight.take() else { return };
        match (answer, request) {
            (Answer::Found { record, version }, _) => self.found(record, version, now),
            (Answer::Missing, _) => self.missing(now),
            (Answer::Written(version), Request::Create(record) | Request::Update { record, .. }) => {
                self.written(record, version, sent, now);
            }
            (Answer::Conflict, _) => {
                self.must_read = true;
                self.next_at = now + self.params.retry_period.mul_f64(self.rng.random_range(0.0..0.1));
            }
            (Answer::Failed | Answer::Written(_), request) => {
                self.must_read = true;
                // A leader has few attempts until its deadline, and a write that has no answer may have been applied.
                let is_urgent = self.leads(now) || !matches!(request, Request::Get);
                let pause = if is_urgent { self.pause() / 4 } else { self.pause() };
                self.next_at = sent.max(now.saturating_sub(self.params.retry_period)) + pause;
            }
        }
    }

    fn found(&mut self, record: Record, version: Arc<str>, now: Duration) {
        self.must_read = false;
        if self.observed.as_ref().is_none_or(|seen| seen.version.as_ref() != Some(&version)) {
            self.observed = Some(Observed { record, version: Some(version), since: now });
        }
        self.decide(now);
    }

    fn missing(&mut self, now: Duration) {
        self.must_read = false;
        if let Some(observed) = &mut self.observed {
            observed.version = None;
        }
        self.decide(now);
    }

    /// Acts on the record that was read: ends this contender's leadership if it is not the record's holder, and sets
    /// the time of the next request.
    fn decide(&mut self, now: Duration) {
        let pause = self.pause();
        let Some(observed) = &self.observed else {
            (self.next_at, self.has_resigned) =
                (if self.mode == Mode::Contending { now } else { now + pause }, self.is_resigning);
            return;
        };
        if *observed.record.holder == *self.identity {
            self.next_at = now;
            return;
        }
        (self.leads_until, self.has_resigned) = (None, self.is_resigning);
        self.next_at = match self.mode {
            Mode::Observing => now + pause,
            Mode::Contending => self.takes_at(observed).clamp(now, now + pause),
        };
    }

    fn written(&mut self, record: Record, version: Arc<str>, sent: Duration, now: Duration) {
        if *record.holder == *self.identity && !self.is_resigning {
            self.leads_until = Some(sent + self.params.renew_deadline);
            self.last_renewal = Some(sent);
        }
        self.has_resigned = self.is_resigning && record.holder.is_empty();
        self.observed = Some(Observed { record, version: Some(version), since: now });
        self.must_read = false;
        self.next_at = if self.is_resigning { now } else { sent + self.pause() };
    }

    fn pause(&mut self) -> Duration {
        self.params.retry_period.mul_f64(self.rng.random_range(0.75..1.0))
    }

    /// Returns when [`Self::next`] has a request; `None` while one is in flight, or after the resignation.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        (self.in_flight.is_none() && !self.has_resigned).then_some(self.next_at)
    }

    /// Returns whether this contender leads at `now`.
    #[must_use]
    pub fn leads(&self, now: Duration) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }

    /// Returns when leadership ends without another renewal; `None` without leadership.
    #[must_use]
    pub fn leads_until(&self) -> Option<Duration> {
        self.leads_until.filter(|_| !self.is_resigning)
    }

    /// Returns when the last successful renewal was sent.
    #[must_use]
    pub fn last_renewal(&self) -> Option<Duration> {
        self.last_renewal
    }

    /// Returns the last record that was read or written.
    #[must_use]
    pub fn record_seen(&self) -> Option<&Record> {
        self.observed.as_ref().map(|observed| &observed.record)
    }

    /// Returns whether the last record that was seen has a holder whose lease has not expired.
    #[must_use]
    pub fn has_holder(&self, now: Duration) -> bool {
        self.leads(now) || self.observed.as_ref().is_some_and(|observed| !self.is_free(observed, now))
    }

    /// Sets the text that is published with the next renewal.
    pub fn set_note(&mut self, note: Arc<str>) {
        self.note = note;
    }

    /// Sets how long the contender waits before it takes a free lease, so that others can take it first. Default: zero.
    /// A lease that was never held is taken immediately.
    pub fn set_claim_delay(&mut self, delay: Duration) {
        self.claim_delay = delay;
    }

    /// Ends leadership immediately. The next request writes a record without a holder, so that another contender need
    /// not wait until the lease expires.
    pub fn resign(&mut self, now: Duration) {
        let is_own = self.observed.as_ref().is_some_and(|observed| *observed.record.holder == *self.identity);
        self.is_resigning = true;
        self.has_resigned = !is_own && self.in_flight.is_none();
        self.next_at = now;
    }

    /// Returns whether this contender has begun to resign, see [`Self::resign`].
    #[must_use]
    pub fn is_resigning(&self) -> bool {
        self.is_resigning
    }

    /// Returns whether the resignation is complete: this contender does not hold the lease, and no request is left.
    #[must_use]
    pub fn has_resigned(&self) -> bool {
        self.has_resigned
    }
}

#[cfg(test)]
mod tests;
