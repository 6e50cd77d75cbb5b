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
//!             // and when the cluster answers another of its reflectors: reflector.hurry(clock::now())
//!         Step::List { request, fresh } => {
//!             if fresh { emit(Change::ReplaceBegin) }                  // an unfinished replace before it is void
//!             match source.list(request).await and its chunks {
//!                 Items      => match reflector.on_list_items(count, waited) {
//!                     Ok(())     => emit(Delta Replaced) each
//!                     Err(error) => reflector.on_list_error(&error, clock::now()), and the page ends
//!                 }
//!                 Skipped    => count; emit(Change::ReplaceKeep(key)) if it has a key
//!                 End        => match reflector.on_page_end(version, token, remaining) {
//!                     PageVerdict::NextPage          => {}
//!                     PageVerdict::ListComplete(v)   => emit(Change::ReplaceEnd(v)),
//!                     PageVerdict::GivenUp(error)    => reflector.on_list_error(&error, clock::now()),
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
//!                             } and then, if reflector.overrun(clock::now()) is Some(error): break Err(error)
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
//! - A list has bounds ([`ListBounds`](super::ListBounds)), and ends when its continue tokens go round in a circle.
//! - When a cluster answers again, one answered request cuts the waits of the others short ([`Reflector::hurry`]).
//! - A watch that has no version to go on from is followed by a list, since another one from nowhere in particular
//!   would never tell what was deleted between the two.
//! - 401, 403 and 404 are retried slowly, and what they are stays visible; a watch that is forbidden is not answered
//!   by relisting over and over.

use std::fmt;
use std::time::Duration;

use super::backoff::{Backoff, Haste, jittered};
use super::plan::{ItemVerdict, PageVerdict, ReflectorOptions, Step, WaitReason};
use super::progress::Progress;
use super::{ErrorClass, ListRequest, SourceError, VersionMatch, WatchItem, WatchRequest};
use informer_hub_types::ResourceVersion;
use informer_hub_types::clock::Instant;

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
    progress: Progress,
}

impl Listing {
    fn at(version: VersionMatch) -> Self {
        Self { version, limit: None, token: None, at: None, fresh: true, failures: 0, progress: Progress::default() }
    }

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
    /// When the server should have ended it, initial events or not.
    due: Instant,
    /// Initial events so far.
    items: u64,
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
    haste: Haste,
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
            random: Box::new(random),
            state: State::Relist,
            backoff: options.backoff.clone(),
            options,
            wait: None,
            haste: Haste::default(),
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
            Some((_, WaitReason::Failure(_) | WaitReason::ShortWatch)) => {
                self.wait = None;
                self.haste.waited();
            }
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

    /// Items of the page that is being read, skipped ones included, `waited` after the request or the items before.
    ///
    /// # Errors
    /// The list is beyond its bounds. The driver ends the request and reports the error to [`Self::on_list_error`].
    pub fn on_list_items(&mut self, items: usize, waited: Duration) -> Result<(), SourceError> {
        let State::List(list) = &mut self.state else { return Ok(()) };
        list.progress.note_items(items as u64, waited, &self.options.list)
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
                    match list.progress.note_page(&token, list.limit, &self.options.list) {
                        Err(error) => return PageVerdict::GivenUp(error),
                        Ok(Duration::ZERO) => {}
                        Ok(pause) => self.wait = Some((now + pause, WaitReason::ThinPage)),
                    }
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

    /// A watch's answer has begun.
    pub fn on_watch_opened(&mut self, now: Instant) {
        let (initial, stall) = (self.options.stall.initial_events, self.options.stall.watch_slack);
        if let State::Stream(watching) | State::Watch(watching) = &mut self.state {
            watching.due = now + watching.timeout + stall;
            watching.deadline = if watching.initial { watching.due.min(now + initial) } else { watching.due };
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

    /// The error for initial events that go on although the watch should have ended, or that are too many.
    ///
    /// Ask after each batch: a server that sends without a pause lets no [`Self::deadline`] pass.
    #[must_use]
    pub fn overrun(&self, now: Instant) -> Option<SourceError> {
        match &self.state {
            State::Stream(watching)
                if watching.initial && (watching.due < now || watching.items > self.options.list.items) =>
            {
                Some(self.out_of_patience())
            }
            _ => None,
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
                self.state = State::Watch(Watching { initial: false, ordered: true, deadline, ..watching.clone() });
                self.synced(version.clone());
                ItemVerdict::InitialEventsEnd(version.clone())
            }
            WatchItem::Bookmark { .. } => ItemVerdict::Nothing,
            WatchItem::Added(_) | WatchItem::Skipped(_) => {
                watching.items += 1;
                watching.deadline = watching.due.min(now + stall.initial_events);
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
        Listing { limit, ..Listing::at(version) }
    }

    fn watching(&mut self, now: Instant, initial: bool) -> Watching {
        let timeout = jittered(self.options.min_watch_timeout, &mut *self.random);
        let ordered = !initial && self.last_version.as_ref().is_some_and(|version| !version.is_nowhere());
        let stall = self.options.stall;
        let due = now + timeout + stall.watch_slack;
        let deadline = if initial { due.min(now + stall.initial_events) } else { due };
        Watching { initial, ordered, deadline, timeout, due, items: 0 }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
