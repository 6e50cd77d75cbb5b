//! What a reflector does next: the rules of client-go's `Reflector` as a state machine without I/O, clock or dice.
//!
//! # Driving it
//! The driver (an actor) asks [`Reflector::next`] what to do, does it through a [`super::ListerWatcher`], and reports
//! what came of it. In a sketch:
//!
//! ```text
//! loop {
//!     match reflector.next(clock::now()) {
//!         Step::Wait { until, reason } => sleep_until(until).await,     // shown: reason
//!         Step::List { request, fresh } => {
//!             if fresh { emit(Change::ReplaceBegin) }                  // an unfinished replace before it is void
//!             match source.list(request).await and its chunks {
//!                 Items      => emit(Delta Replaced) each
//!                 Skipped    => count; emit(Change::ReplaceKeep(key)) if it has a key
//!                 End        => match reflector.on_page_end(version, token, remaining) {
//!                     PageVerdict::NextPage          => {}
//!                     PageVerdict::ListComplete(v)   => emit(Change::ReplaceEnd(v)),
//!                 }
//!                 Err(error) => reflector.on_list_error(&error, clock::now()),
//!             }
//!         }
//!         Step::Watch { request } => {
//!             if request.initial_events { emit(Change::ReplaceBegin) }
//!             let opened = clock::now();
//!             let mut events = 0;
//!             let end = match source.watch(request).await {
//!                 Err(error) => Err(error),
//!                 Ok(stream) => {
//!                     reflector.on_watch_opened(clock::now());
//!                     loop {
//!                         match timeout_at(reflector.deadline(), stream.next()).await {
//!                             Err(_)              => break Err(reflector.out_of_patience()),
//!                             Ok(None)            => break Ok(()),
//!                             Ok(Some(Err(e)))    => break Err(e),
//!                             Ok(Some(Ok(items))) => for item in items {
//!                                 match reflector.on_watch_item(&item, clock::now()) {
//!                                     ItemVerdict::Initial                  => emit(Delta Replaced, or Deleted)
//!                                     ItemVerdict::InitialEventsEnd(v)      => emit(Change::ReplaceEnd(v)),
//!                                     ItemVerdict::Apply                    => emit(Delta),
//!                                     ItemVerdict::Nothing                  => {}
//!                                 }
//!                             }
//!                         }
//!                     }
//!                 }
//!             };
//!             reflector.on_watch_end(end.as_ref().map(|()| ()), events, opened.elapsed(), clock::now());
//!         }
//!     }
//! }
//! ```
//!
//! # Where it differs from client-go, on purpose
//! - A watch that ends at once and empty does not relist: it is opened again from the same version after a backoff,
//!   and only a row of them relists (kubernetes#138552).
//! - A broken watch, or an ERROR event with 500, is opened again from the same version a few times before a relist
//!   (kubernetes#129683).
//! - A streaming list that makes no progress is given up and remembered as unsupported, instead of waited for for
//!   ever (k9s#4186) or tried in each round.
//! - A page that fails is asked for again, instead of the whole list.
//! - A watch that has no version to go on from is followed by a list, since another one from nowhere in particular
//!   would never tell what was deleted between the two.
//! - 401, 403 and 404 are retried slowly, and what they are stays visible; a watch that is forbidden is not answered
//!   by relisting over and over.

use std::fmt;
use std::time::Duration;

use super::backoff::{Backoff, jittered};
use super::plan::{ItemVerdict, PageVerdict, ReflectorOptions, Step, WaitReason};
use super::{ErrorClass, ListRequest, SourceError, VersionMatch, WatchItem, WatchRequest};
use crate::types::ResourceVersion;
use crate::types::clock::Instant;

#[path = "machine_ends.rs"]
mod ends;

/// client-go's default page size.
const PAGE_SIZE: u32 = 500;
/// Failures of one page in a row before the list starts over.
const MAX_PAGE_FAILURES: u32 = 3;
/// How long a server's "come back later" is believed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// A list in progress.
#[derive(Debug, Clone)]
struct Listing {
    version: VersionMatch,
    limit: Option<u32>,
    token: Option<String>,
    /// Of the first page: later pages repeat it, and watching from an older one loses nothing.
    at: Option<ResourceVersion>,
    fresh: bool,
    failures: u32,
}

impl Listing {
    fn step(&self) -> Step {
        let request =
            ListRequest { version: self.version.clone(), limit: self.limit, continue_token: self.token.clone() };
        Step::List { request, fresh: self.fresh }
    }
}

/// A watch, wanted or open.
#[derive(Debug, Clone)]
struct Watching {
    /// Whether the initial events of a streaming list are still coming.
    initial: bool,
    /// Whether the version may be taken from ADDED events: not when the watch began nowhere in particular, as its
    /// first events are then in no order.
    ordered: bool,
    deadline: Instant,
    timeout: Duration,
}

#[derive(Debug, Clone)]
enum State {
    /// Nothing is known, or what is known is not enough: list, in whichever way.
    Relist,
    List(Listing),
    /// A streaming list, until its initial events have ended; from then on it is a watch like any other.
    Stream(Watching),
    Watch(Watching),
}

/// Decides what to ask an apiserver next. See the module's documentation for how to drive it.
pub struct Reflector {
    options: ReflectorOptions,
    random: Box<dyn FnMut() -> f64 + Send>,
    state: State,
    backoff: Backoff,
    wait: Option<(Instant, WaitReason)>,
    /// client-go's `lastSyncResourceVersion`.
    last_version: Option<ResourceVersion>,
    /// No list may be older, whatever `last_version` is: of what a list that broke off has brought, the newest. Until one is
    /// complete.
    floor: Option<ResourceVersion>,
    /// Whether the server said that it cannot serve `last_version`.
    version_unavailable: bool,
    /// Whether a list at version 0 came in pages, so that there is no watch cache to spare.
    paginated: bool,
    streaming_banned_until: Option<Instant>,
    broken_streams: u32,
    bad_watches: u32,
    quick_ends: u32,
    last_failure: Option<ErrorClass>,
}

impl fmt::Debug for Reflector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("state", &self.state)
            .field("wait", &self.wait)
            .field("last_version", &self.last_version)
            .finish_non_exhaustive()
    }
}

impl Reflector {
    /// A reflector that knows nothing yet. `random` gives numbers in `[0, 1)`.
    pub fn new(options: ReflectorOptions, random: impl FnMut() -> f64 + Send + 'static) -> Self {
        Self {
            options,
            random: Box::new(random),
            state: State::Relist,
            backoff: Backoff::default(),
            wait: None,
            last_version: None,
            floor: None,
            version_unavailable: false,
            paginated: false,
            streaming_banned_until: None,
            broken_streams: 0,
            bad_watches: 0,
            quick_ends: 0,
            last_failure: None,
        }
    }

    /// Goes on from what an earlier reflector of the same informer had read, or its readers were told of: nothing older
    /// is listed.
    pub fn resume(&mut self, version: ResourceVersion) {
        self.floor = Some(version.clone());
        self.last_version = Some(version);
    }

    /// Goes on from a state that is complete at a version, kept from an earlier life of the process: a watch from there
    /// comes first, and a list only if the server cannot serve that. Nothing happens where the version says nothing.
    pub fn go_on(&mut self, version: ResourceVersion, now: Instant) {
        if version.is_nowhere() {
            return;
        }
        self.last_version = Some(version);
        self.state = State::Watch(self.watching(now, false));
    }

    /// Whether a list is under way, so that an open watch is (so far) only its stream.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        !matches!(self.state, State::Watch(_))
    }

    /// How far the reflector has read: client-go's `LastSyncResourceVersion`.
    #[must_use]
    pub fn last_version(&self) -> Option<&ResourceVersion> {
        self.last_version.as_ref()
    }

    /// The version up to which everything has been read, unless a list is under way, or it says nothing.
    #[must_use]
    pub fn complete_up_to(&self) -> Option<&ResourceVersion> {
        self.last_version().filter(|version| !self.is_listing() && !version.is_nowhere())
    }

    /// What to do next. Asking again without reporting anything gives the same answer.
    pub fn next(&mut self, now: Instant) -> Step {
        match self.wait {
            Some((until, reason)) if until > now => return Step::Wait { until, reason },
            _ => self.wait = None,
        }
        match &self.state {
            State::Relist if self.may_stream(now) => {
                let watching = self.watching(now, true);
                let step = self.watch_step(&watching);
                self.state = State::Stream(watching);
                step
            }
            State::Relist => {
                let list = self.listing();
                let step = list.step();
                self.state = State::List(list);
                step
            }
            State::List(list) => list.step(),
            State::Stream(watching) | State::Watch(watching) => self.watch_step(watching),
        }
    }

    fn watch_step(&self, watching: &Watching) -> Step {
        // Without a version both ask for the most recent state, never for any: that could be older than what is known.
        let known = if watching.initial { self.newest() } else { self.last_version.as_ref() };
        let version = self.version_or(known, VersionMatch::MostRecent);
        Step::Watch { request: WatchRequest { version, timeout: watching.timeout, initial_events: watching.initial } }
    }

    /// A page has been read to its end.
    pub fn on_page_end(
        &mut self,
        version: ResourceVersion,
        continue_token: Option<String>,
        _remaining: Option<u64>,
        now: Instant,
    ) -> PageVerdict {
        let first = match &mut self.state {
            State::List(list) => {
                let first = list.at.get_or_insert(version).clone();
                if let Some(token) = continue_token.filter(|token| !token.is_empty()) {
                    self.paginated |= list.fresh && list.version == VersionMatch::Any;
                    list.token = Some(token);
                    list.fresh = false;
                    list.failures = 0;
                    return PageVerdict::NextPage;
                }
                first
            }
            _ => version,
        };
        self.synced(first.clone());
        self.state = State::Watch(self.watching(now, false));
        PageVerdict::ListComplete(first)
    }

    /// A page could not be asked for, or not be read to its end.
    pub fn on_list_error(&mut self, error: &SourceError, now: Instant) {
        let State::List(list) = &mut self.state else { return self.fail(error.class, now) };
        let within = list.token.is_some();
        list.failures += 1;
        match error.class {
            ErrorClass::Expired if within => {
                // The continue token is too old: everything at once, at the version first asked for.
                *list = Listing { limit: None, token: None, at: None, fresh: true, failures: 0, ..list.clone() };
            }
            ErrorClass::Expired | ErrorClass::TooLarge => self.on_version_unavailable(error.class, now),
            ErrorClass::Unauthorized | ErrorClass::Forbidden | ErrorClass::NotFound | ErrorClass::Malformed => {
                self.state = State::Relist;
                self.fail(error.class, now);
            }
            class => {
                if !within || list.failures >= MAX_PAGE_FAILURES && !matches!(class, ErrorClass::Throttled(_)) {
                    self.state = State::List(self.listing());
                }
                self.fail(class, now);
            }
        }
    }

    /// A watch's answer has begun.
    pub fn on_watch_opened(&mut self, now: Instant) {
        let (initial, stall) = (self.options.stall.initial_events, self.options.stall.watch_slack);
        if let State::Stream(watching) | State::Watch(watching) = &mut self.state {
            watching.deadline = now + if watching.initial { initial } else { watching.timeout + stall };
        }
    }

    /// By when the open watch must have brought its next item (or its end).
    ///
    /// For a plain watch this is the silence that `StallPolicy` allows; while initial events are due it is much
    /// nearer, and only they move it on.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Stream(watching) | State::Watch(watching) => Some(watching.deadline),
            State::Relist | State::List(_) => None,
        }
    }

    /// The error for a watch that let its [`Self::deadline`] pass.
    #[must_use]
    pub fn out_of_patience(&self) -> SourceError {
        match &self.state {
            State::Stream(watching) if watching.initial => SourceError {
                class: ErrorClass::StreamingUnsupported,
                message: "watch: the initial events do not come to their end".to_owned(),
            },
            _ => SourceError {
                class: ErrorClass::Stalled,
                message: "watch: nothing came, not even its end when it was due".to_owned(),
            },
        }
    }

    /// An item of the open watch.
    pub fn on_watch_item(&mut self, item: &WatchItem, now: Instant) -> ItemVerdict {
        let stall = self.options.stall;
        let (State::Stream(watching) | State::Watch(watching)) = &mut self.state else { return ItemVerdict::Nothing };
        if watching.initial {
            return self.on_initial_item(item, now);
        }
        watching.deadline = now + watching.timeout + stall.watch_slack;
        let version = match item {
            WatchItem::Added(_) if !watching.ordered => return ItemVerdict::Apply,
            WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object) => {
                object.resource_version()
            }
            WatchItem::Bookmark { version, .. } => version,
            // The version does not move on: the event comes again if the watch breaks now, and can be counted twice.
            WatchItem::Skipped(_) => return ItemVerdict::Nothing,
        };
        watching.ordered = true;
        if !version.is_empty() {
            self.last_version = Some(version.clone());
        }
        if matches!(item, WatchItem::Bookmark { .. }) { ItemVerdict::Nothing } else { ItemVerdict::Apply }
    }

    fn on_initial_item(&mut self, item: &WatchItem, now: Instant) -> ItemVerdict {
        let stall = self.options.stall;
        if let WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object) = item {
            self.raise_floor(object.resource_version());
        }
        let (State::Stream(watching) | State::Watch(watching)) = &mut self.state else { return ItemVerdict::Nothing };
        match item {
            WatchItem::Bookmark { version, initial_events_end: true } => {
                let deadline = now + watching.timeout + stall.watch_slack;
                self.state =
                    State::Watch(Watching { initial: false, ordered: true, deadline, timeout: watching.timeout });
                self.synced(version.clone());
                ItemVerdict::InitialEventsEnd(version.clone())
            }
            WatchItem::Bookmark { .. } => ItemVerdict::Nothing,
            WatchItem::Added(_) | WatchItem::Skipped(_) => {
                watching.deadline = now + stall.initial_events;
                ItemVerdict::Initial
            }
            // These can go on for ever on a server that does not know of initial events: no progress.
            WatchItem::Modified(_) | WatchItem::Deleted(_) => ItemVerdict::Initial,
        }
    }

    /// A watch could not be opened, or has ended. `events` counts all its items, `lasted` from when it was opened
    /// (zero when it was not).
    pub fn on_watch_end(&mut self, result: Result<(), &SourceError>, events: u64, lasted: Duration, now: Instant) {
        let class = result.err().map(|error| error.class);
        match &self.state {
            State::Stream(watching) if watching.initial => self.on_stream_broken(class, now),
            State::Stream(_) | State::Watch(_) => self.on_plain_end(class, events, lasted, now),
            State::Relist | State::List(_) => {}
        }
    }

    /// Somebody wants the whole list again. The driver ends what is open before it calls this.
    pub fn relist(&mut self) {
        self.state = State::Relist;
    }

    fn synced(&mut self, version: ResourceVersion) {
        self.last_version = Some(version);
        self.floor = None;
        self.version_unavailable = false;
        self.broken_streams = 0;
        self.bad_watches = 0;
    }

    /// A server that ignores that initial events are asked for tells of changes: those would come again otherwise, and take
    /// objects back to what they were.
    fn raise_floor(&mut self, version: &ResourceVersion) {
        if self.floor.as_ref().is_none_or(|floor| version.newer_than(floor)) && version.as_number().is_some() {
            self.floor = Some(version.clone());
        }
    }

    fn may_stream(&self, now: Instant) -> bool {
        self.options.streaming_list && self.streaming_banned_until.is_none_or(|until| until <= now)
    }

    /// What objects of a list that broke off have brought: nothing older is listed, not by a successor either.
    #[must_use]
    pub fn floor(&self) -> Option<&ResourceVersion> {
        self.floor.as_ref()
    }

    /// What a list must not be older than.
    fn newest(&self) -> Option<&ResourceVersion> {
        match (&self.last_version, &self.floor) {
            (Some(last), Some(floor)) if floor.newer_than(last) => Some(floor),
            (last, floor) => last.as_ref().or(floor.as_ref()),
        }
    }

    fn version_or(&self, known: Option<&ResourceVersion>, unknown: VersionMatch) -> VersionMatch {
        match known {
            _ if self.version_unavailable => VersionMatch::MostRecent,
            Some(version) if !version.is_empty() => VersionMatch::NotOlderThan(version.clone()),
            _ => unknown,
        }
    }

    fn listing(&self) -> Listing {
        // Version 0 is answered from the watch cache, which takes no notice of a limit: all the better, as the body
        // is streamed. A version of its own is only answered from there when no limit is set.
        let version = self.version_or(self.newest(), VersionMatch::Any);
        let cached = matches!(version, VersionMatch::NotOlderThan(_)) && !self.paginated;
        let limit = self.options.page_size.or((!cached).then_some(PAGE_SIZE));
        Listing { version, limit, token: None, at: None, fresh: true, failures: 0 }
    }

    fn watching(&mut self, now: Instant, initial: bool) -> Watching {
        let timeout = jittered(self.options.min_watch_timeout, &mut *self.random);
        let ordered = !initial && self.last_version.as_ref().is_some_and(|version| !version.is_nowhere());
        let stall = self.options.stall;
        let deadline = now + if initial { stall.initial_events } else { timeout + stall.watch_slack };
        Watching { initial, ordered, deadline, timeout }
    }

    /// Waits as a failure of this class asks for.
    fn fail(&mut self, class: ErrorClass, now: Instant) {
        let delay = match class {
            ErrorClass::Throttled(Some(after)) => {
                let spread = (self.random)().clamp(0.0, 1.0);
                after.min(MAX_RETRY_AFTER) + Duration::from_millis(500).mul_f64(spread)
            }
            // Mostly somebody has to mend these, but a right that is taken and given back should cost a second.
            ErrorClass::Unauthorized | ErrorClass::Forbidden | ErrorClass::NotFound => {
                let longest = jittered(self.options.slow_retry, &mut *self.random);
                self.backoff.next_delay(now, &mut *self.random).min(longest)
            }
            // A server that says that a version is too old is well: the waits of the outage that made it so do not count.
            ErrorClass::Expired if self.last_failure != Some(ErrorClass::Expired) => {
                self.backoff.first_delay(&mut *self.random)
            }
            _ => self.backoff.next_delay(now, &mut *self.random),
        };
        self.wait_for(class, delay, now);
    }

    fn wait_for(&mut self, class: ErrorClass, delay: Duration, now: Instant) {
        self.last_failure = Some(class);
        self.wait = Some((now + delay, WaitReason::Failure(class)));
    }

    fn pause(&mut self, reason: WaitReason, now: Instant) {
        let delay = self.backoff.next_delay(now, &mut *self.random);
        self.wait = Some((now + delay, reason));
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
