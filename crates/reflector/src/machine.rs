//! The state machine of client-go's `Reflector`, without I/O, clock or RNG.
//!
//! # Driving it
//! The driver (an actor) calls [`Reflector::next`], performs the step through a [`super::ListerWatcher`], and reports
//! the outcome. In outline:
//!
//! ```text
//! loop {
//!     match reflector.next(clock::now()) {
//!         Step::Wait { until, reason } => sleep_until(until).await,     // shown: reason
//!             // when the cluster answers another reflector: reflector.hurry(clock::now())
//!         Step::List { request, fresh } => {
//!             if fresh { emit(Change::ReplaceBegin) }                  // voids an unfinished replace
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
//!         Step::Check => {
//!             let current = source.current_version().await;
//!             reflector.on_checked(&current, clock::now());
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
//!                             Err(_)              => break Err(reflector.stall_error()),
//!                             Ok(None)            => break Ok(()),
//!                             Ok(Some(Err(e)))    => break Err(e),
//!                             Ok(Some(Ok(items))) => for item in items {
//!                                 match reflector.on_watch_item(&item, clock::now()) {
//!                                     ItemVerdict::Initial                  => emit(Delta Replaced, or Deleted)
//!                                     ItemVerdict::InitialEventsEnd(v)      => emit(Change::ReplaceEnd(v)),
//!                                     ItemVerdict::Apply                    => emit(Delta),
//!                                     ItemVerdict::Nothing                  => {}
//!                                 }
//!                             } and then, if reflector.overrun_error(clock::now()) is Some(error): break Err(error)
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
//! # Intended differences from client-go
//! - A watch that ends immediately, without events, does not relist. It is reopened from the same version after a
//!   backoff; only several in a row relist (kubernetes#138552).
//! - A broken watch, or an ERROR event with 500, is reopened from the same version a few times before a relist
//!   (kubernetes#129683).
//! - A streaming list without progress is abandoned and remembered as unsupported. client-go waits for ever (k9s#4186).
//! - A failed page is requested again, instead of the whole list.
//! - A list has bounds ([`ListBounds`](super::ListBounds)), and ends if its continue tokens form a cycle.
//! - If a cluster answers one request again, the waits of its other reflectors are cut short ([`Reflector::hurry`]).
//! - A watch that ends without a known version is followed by a list. Another watch without a version would miss
//!   deletions.
//! - Before a watch is reopened after a failure, or from a saved state, the server's current version is read. If it is
//!   older than the known one, an etcd was restored from a backup, and a list follows. client-go's watch stays open and
//!   silent.
//! - 401, 403 and 404 are retried slowly, and the reason stays visible. A forbidden watch does not relist repeatedly.

use std::fmt;
use std::time::Duration;

use super::backoff::{Backoff, EarlyRetry, jittered};
use super::lister_watcher::{ListRequest, VersionMatch, WatchRequest};
use super::plan::{ItemVerdict, PageVerdict, ReflectorOptions, Step, WaitReason};
use super::progress::Progress;
use informer_hub_codec::{ErrorClass, SourceError, WatchItem};
use informer_hub_types::ResourceVersion;
use informer_hub_types::clock::Instant;

#[path = "machine_check.rs"]
mod check;
#[path = "machine_ends.rs"]
mod ends;

/// client-go's default page size.
const PAGE_SIZE: u32 = 500;
/// Number of consecutive failures of one page after which the list starts over.
const MAX_PAGE_FAILURES: u32 = 3;
/// Longest `Retry-After` that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// A list in progress.
#[derive(Debug, Clone)]
struct Listing {
    version: VersionMatch,
    limit: Option<u32>,
    token: Option<String>,
    /// Version of the list's first page. The watch starts there, so it repeats all changes that were made while later
    /// pages were read.
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

/// A requested or open watch.
#[derive(Debug, Clone)]
struct Watching {
    /// Whether the initial events of a streaming list are still arriving.
    initial: bool,
    /// Whether ADDED events advance `last_version`. They do not at the start of a watch without a version, whose first
    /// events list all objects in no order.
    ordered: bool,
    deadline: Instant,
    timeout: Duration,
    /// Latest time at which a working server ends the watch: its requested timeout, plus `StallPolicy::watch_slack`.
    due: Instant,
    /// Number of initial events so far.
    items: u64,
}

#[derive(Debug, Clone)]
enum State {
    /// A list has to begin, streaming or paged.
    Relist,
    List(Listing),
    /// A streaming list. After its initial events it is a watch.
    Stream(Watching),
    /// The server's version is read before a watch is reopened, to detect a restored backup.
    Check,
    Watch(Watching),
}

/// Decides which request to send to an apiserver next. The module documentation shows how to drive it.
pub struct Reflector {
    options: ReflectorOptions,
    random: Box<dyn FnMut() -> f64 + Send>,
    state: State,
    backoff: Backoff,
    wait: Option<(Instant, WaitReason)>,
    early_retry: EarlyRetry,
    /// client-go's `lastSyncResourceVersion`.
    last_version: Option<ResourceVersion>,
    /// Minimum version of lists until one is complete: the newest version that an incomplete list has delivered, or
    /// that [`Self::resume`] has set.
    floor: Option<ResourceVersion>,
    /// Whether the next list must request the most recent state. True if the server cannot serve `last_version`, or if
    /// the server's own version is older than `last_version`.
    version_unavailable: bool,
    /// Whether the server's version must be checked before a watch: its etcd may have been restored from a backup since
    /// `last_version` was read.
    unchecked: bool,
    /// Whether the apiserver answered a list with `resourceVersion=0` in pages. If so, it has no watch cache.
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
    /// Creates a reflector without state. `random` yields numbers in `[0, 1)`.
    pub fn new(options: ReflectorOptions, random: impl FnMut() -> f64 + Send + 'static) -> Self {
        Self {
            random: Box::new(random),
            state: State::Relist,
            backoff: options.backoff.clone(),
            options,
            wait: None,
            early_retry: EarlyRetry::default(),
            last_version: None,
            floor: None,
            version_unavailable: false,
            unchecked: false,
            paginated: false,
            streaming_banned_until: None,
            broken_streams: 0,
            bad_watches: 0,
            quick_ends: 0,
            last_failure: None,
        }
    }

    /// Sets the newest version that an earlier reflector of this informer has read or delivered. Lists must not be
    /// older than this version.
    pub fn resume(&mut self, version: ResourceVersion) {
        self.floor = Some(version.clone());
        self.last_version = Some(version);
    }

    /// Returns whether a list is due or in progress, including the initial events of a streaming list.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        !matches!(self.state, State::Watch(_) | State::Check)
    }

    /// Returns the last version read: client-go's `LastSyncResourceVersion`.
    #[must_use]
    pub fn last_version(&self) -> Option<&ResourceVersion> {
        self.last_version.as_ref()
    }

    /// Returns the version up to which everything has been read; `None` during a list or if the version is unknown.
    #[must_use]
    pub fn complete_up_to(&self) -> Option<&ResourceVersion> {
        self.last_version().filter(|version| !self.is_listing() && !version.is_any())
    }

    /// Returns the next step. Repeated calls without a report return the same step.
    pub fn next(&mut self, now: Instant) -> Step {
        match self.wait {
            Some((until, reason)) if until > now => return Step::Wait { until, reason },
            Some((_, WaitReason::Failure(_) | WaitReason::ShortWatch)) => {
                self.wait = None;
                self.early_retry.waited();
            }
            _ => self.wait = None,
        }
        match &self.state {
            State::Relist if self.can_stream(now) => {
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
            State::Check => Step::Check,
            State::Stream(watching) | State::Watch(watching) => self.watch_step(watching),
        }
    }

    fn watch_step(&self, watching: &Watching) -> Step {
        // Without a version, request the most recent state. Any state could be older than the known one.
        let known = if watching.initial { self.newest() } else { self.last_version.as_ref() };
        let version = self.version_or(known, VersionMatch::MostRecent);
        Step::Watch { request: WatchRequest { version, timeout: watching.timeout, initial_events: watching.initial } }
    }

    /// Reports items of the current page, including skipped ones. `waited` is the time since the request or the last
    /// items.
    ///
    /// # Errors
    /// The list is beyond its bounds. The driver ends the request and reports the error to [`Self::on_list_error`].
    pub fn on_list_items(&mut self, items: usize, waited: Duration) -> Result<(), SourceError> {
        let State::List(list) = &mut self.state else { return Ok(()) };
        list.progress.note_items(items as u64, waited, &self.options.list)
    }

    /// Reports the end of a page. Returns whether another page follows or the list is complete.
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

    /// Reports that the response headers of a watch have arrived.
    pub fn on_watch_opened(&mut self, now: Instant) {
        let (initial, stall) = (self.options.stall.initial_events, self.options.stall.watch_slack);
        if let State::Stream(watching) | State::Watch(watching) = &mut self.state {
            watching.due = now + watching.timeout + stall;
            watching.deadline = if watching.initial { watching.due.min(now + initial) } else { watching.due };
        }
    }

    /// Returns the time by which the open watch must send its next item or end.
    ///
    /// For a plain watch, this is the watch's timeout plus `StallPolicy::watch_slack`, counted from its last item.
    /// While a streaming list sends its initial events, the deadline is much earlier, and only initial events extend
    /// it.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Stream(watching) | State::Watch(watching) => Some(watching.deadline),
            State::Relist | State::List(_) | State::Check => None,
        }
    }

    /// Returns the error for a watch that exceeded its [`Self::deadline`].
    #[must_use]
    pub fn stall_error(&self) -> SourceError {
        match &self.state {
            State::Stream(watching) if watching.initial => SourceError {
                class: ErrorClass::StreamingUnsupported,
                message: "watch: the initial events did not end in time".to_owned(),
            },
            _ => SourceError {
                class: ErrorClass::Stalled,
                message: "watch: no data, and the server did not end the watch at its timeout".to_owned(),
            },
        }
    }

    /// Returns an error if the initial events take longer than the watch's timeout plus `StallPolicy::watch_slack`, or
    /// exceed the maximum number of items.
    ///
    /// Call it after each batch, since the [`Self::deadline`] never ends a watch whose server sends without a pause.
    #[must_use]
    pub fn overrun_error(&self, now: Instant) -> Option<SourceError> {
        match &self.state {
            State::Stream(watching)
                if watching.initial && (watching.due < now || watching.items > self.options.list.items) =>
            {
                Some(self.stall_error())
            }
            _ => None,
        }
    }

    /// Handles an item of the open watch. Returns what the caller must do with it.
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
            // The version does not advance. If the watch breaks now, the event comes again and may be counted twice.
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
            // A server without support for initial events can send these for ever, so they are not progress.
            WatchItem::Modified(_) | WatchItem::Deleted(_) => ItemVerdict::Initial,
        }
    }

    /// Reports that a watch could not be opened, or has ended. `events` counts all its items. `lasted` is the time
    /// since it was opened; zero if it could not be opened.
    pub fn on_watch_end(&mut self, result: Result<(), &SourceError>, events: u64, lasted: Duration, now: Instant) {
        let class = result.err().map(|error| error.class);
        match &self.state {
            State::Stream(watching) if watching.initial => self.on_stream_broken(class, now),
            State::Stream(_) | State::Watch(_) => self.on_plain_end(class, events, lasted, now),
            State::Relist | State::List(_) | State::Check => {}
        }
    }

    /// Forces a new list. The driver ends an open request before it calls this.
    pub fn relist(&mut self) {
        self.state = State::Relist;
    }

    fn synced(&mut self, version: ResourceVersion) {
        self.last_version = Some(version);
        self.floor = None;
        self.version_unavailable = false;
        self.unchecked = false;
        self.broken_streams = 0;
        self.bad_watches = 0;
    }

    /// Raises `floor` to the version of an initial event, so that no later list is older than the event. This matters
    /// for a server that ignores the request for initial events and sends changes instead.
    fn raise_floor(&mut self, version: &ResourceVersion) {
        if self.floor.as_ref().is_none_or(|floor| version.newer_than(floor)) && version.as_number().is_some() {
            self.floor = Some(version.clone());
        }
    }

    fn can_stream(&self, now: Instant) -> bool {
        self.options.streaming_list && self.streaming_banned_until.is_none_or(|until| until <= now)
    }

    /// Returns the minimum version of lists until one is complete, and `None` from then on. A later reflector of this
    /// informer takes the version over by [`Self::resume`].
    #[must_use]
    pub fn floor(&self) -> Option<&ResourceVersion> {
        self.floor.as_ref()
    }

    /// Returns the minimum version of the next list: the newer one of `last_version` and `floor`.
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
        // Version 0 is answered from the watch cache, which ignores the limit; the body is streamed anyway. A specific
        // version is answered from the cache only without a limit.
        let version = self.version_or(self.newest(), VersionMatch::Any);
        let cached = matches!(version, VersionMatch::NotOlderThan(_)) && !self.paginated;
        let limit = self.options.page_size.or((!cached).then_some(PAGE_SIZE));
        Listing { limit, ..Listing::at(version) }
    }

    fn watching(&mut self, now: Instant, initial: bool) -> Watching {
        let timeout = jittered(self.shortest_watch(), &mut *self.random);
        let ordered = !initial && self.last_version.as_ref().is_some_and(|version| !version.is_any());
        let stall = self.options.stall;
        let due = now + timeout + stall.watch_slack;
        let deadline = if initial { due.min(now + stall.initial_events) } else { due };
        Watching { initial, ordered, deadline, timeout, due, items: 0 }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
