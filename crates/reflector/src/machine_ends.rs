//! Decisions of the reflector after a list or watch has ended: 410 Gone, errors, timeouts, regular ends.

use std::time::Duration;

use super::{Listing, MAX_PAGE_FAILURES, MAX_RETRY_AFTER, Reflector, State, WaitReason};
use crate::backoff::{EarlyRetry, jittered};
use crate::lister_watcher::VersionMatch;
use informer_hub_codec::{ErrorClass, SourceError};
use informer_hub_types::clock::Instant;

/// Number of short or failed watches in a row that are reopened. After one more, the reflector lists again.
pub(super) const MAX_BAD_WATCHES: u32 = 5;
/// Number of consecutive streaming lists that broke before all initial events arrived, after which streaming counts as
/// unsupported.
pub(super) const MAX_BROKEN_STREAMS: u32 = 2;
/// Time for which streaming lists are not tried, once the server has shown that it does not support them.
pub(super) const STREAMING_BAN: Duration = Duration::from_secs(3600);
/// Maximum number of watches in a row that end immediately and are still reopened without a backoff. This applies only
/// to watches that sent events; after a watch without events, a backoff follows.
const MAX_QUICK_ENDS: u32 = 2;
/// Minimum duration of a watch. A shorter one counts as failed: client-go's "very short watch".
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// Duration of a watch after which the counters of failed watches are reset. For a watch that has sent events,
/// [`SHORT_WATCH`] is enough.
const LONG_WATCH: Duration = Duration::from_secs(60);

impl Reflector {
    /// Handles the end of a streaming list before its initial events have ended.
    pub(super) fn on_stream_broken(&mut self, class: Option<ErrorClass>, now: Instant) {
        self.state = State::Relist;
        match class {
            Some(class @ (ErrorClass::Expired | ErrorClass::TooLarge)) => self.on_version_unavailable(class, now),
            // A user who may not watch may still list.
            Some(ErrorClass::StreamingUnsupported | ErrorClass::Forbidden) => self.ban_streaming(now),
            Some(class @ ErrorClass::Malformed) => {
                self.ban_streaming(now);
                self.fail(class, now);
            }
            Some(class @ (ErrorClass::Transient | ErrorClass::Stalled)) => {
                self.count_broken_stream(now);
                self.fail(class, now);
            }
            // Throttled, refused, unauthorized or not found: retry the stream later.
            Some(class) => self.fail(class, now),
            None => {
                self.count_broken_stream(now);
                self.pause(WaitReason::ShortWatch, now);
            }
        }
    }

    fn count_broken_stream(&mut self, now: Instant) {
        self.broken_streams += 1;
        if self.broken_streams >= MAX_BROKEN_STREAMS {
            self.ban_streaming(now);
        }
    }

    fn ban_streaming(&mut self, now: Instant) {
        self.broken_streams = 0;
        self.streaming_banned_until = Some(now + STREAMING_BAN);
    }

    /// Handles the end of a plain watch, or of a streaming list after its initial events.
    pub(super) fn on_plain_end(&mut self, class: Option<ErrorClass>, events: u64, lasted: Duration, now: Instant) {
        let resumes = self.last_version.as_ref().is_some_and(|version| !version.is_any());
        // A server that restarts, perhaps from a backup, denies access until it has read roles and service accounts.
        let is_denied = matches!(class, Some(ErrorClass::Unauthorized | ErrorClass::Forbidden));
        self.unchecked |= is_denied || class.is_some_and(ErrorClass::is_unreachable);
        // A new watch without a version would miss deletions since the last one.
        self.state = match resumes {
            true if self.unchecked => State::Check,
            true => State::Watch(self.watching(now, false)),
            false => State::Relist,
        };
        if lasted >= SHORT_WATCH {
            self.early_retry = EarlyRetry::default();
        }
        if lasted >= LONG_WATCH || events > 0 && lasted >= SHORT_WATCH {
            self.bad_watches = 0;
            self.quick_ends = 0;
        }
        match class {
            None if lasted >= if resumes { SHORT_WATCH } else { LONG_WATCH } => {}
            None if !resumes => self.pause(WaitReason::ShortWatch, now),
            None => self.on_short_watch(events, now),
            Some(class @ (ErrorClass::Expired | ErrorClass::Malformed | ErrorClass::NotFound)) => {
                // List at the last version. Only if that is refused too, the next list reads from etcd.
                self.state = State::Relist;
                self.fail(class, now);
            }
            Some(class @ ErrorClass::TooLarge) => {
                self.version_unavailable = true;
                self.state = State::Relist;
                self.fail(class, now);
            }
            Some(class @ (ErrorClass::Transient | ErrorClass::Stalled | ErrorClass::StreamingUnsupported)) => {
                self.count_bad_watch();
                // An occasional cut of a working watch is not an outage, so it does not lengthen the backoff. client-go
                // does not wait at all. If a list has to follow, the cut counts as an outage.
                let ran = class == ErrorClass::Transient && (lasted >= SHORT_WATCH || self.may_reopen(events));
                if resumes && ran {
                    let delay = jittered(self.options.reopen, &mut *self.random);
                    self.wait_for(class, delay, now);
                } else {
                    self.fail(class, now);
                }
            }
            Some(class) => self.fail(class, now),
        }
    }

    /// Handles a watch that the server ended without an error, but immediately.
    fn on_short_watch(&mut self, events: u64, now: Instant) {
        if events == 0 {
            self.count_bad_watch();
            return self.pause(WaitReason::ShortWatch, now);
        }
        if !self.may_reopen(events) {
            self.pause(WaitReason::ShortWatch, now);
        }
    }

    /// Counts a watch that ended immediately. Returns whether it is reopened without a backoff: if it sent events, at
    /// most `MAX_QUICK_ENDS` times in a row.
    fn may_reopen(&mut self, events: u64) -> bool {
        self.quick_ends += u32::from(events > 0);
        events > 0 && self.quick_ends <= MAX_QUICK_ENDS
    }

    fn count_bad_watch(&mut self) {
        self.bad_watches += 1;
        if self.bad_watches > MAX_BAD_WATCHES {
            self.bad_watches = 0;
            self.state = State::Relist;
        }
    }

    /// Handles the server's answer that it cannot serve the requested version: the next list requests the most recent
    /// version.
    ///
    /// The list follows at once in two cases: the failed request was a list of any version, or `last_version` is known
    /// and the most recent version was not requested yet. In all other cases a backoff comes first.
    pub(super) fn on_version_unavailable(&mut self, class: ErrorClass, now: Instant) {
        let could_choose_version = !self.version_unavailable && (self.last_version.is_some() || self.is_listing_any());
        self.state = State::Relist;
        self.version_unavailable = true;
        if !could_choose_version {
            self.fail(class, now);
        }
    }

    fn is_listing_any(&self) -> bool {
        matches!(&self.state, State::List(list) if list.version == VersionMatch::Any)
    }

    /// Handles a page that could not be requested or read to its end.
    pub fn on_list_error(&mut self, error: &SourceError, now: Instant) {
        let State::List(list) = &mut self.state else { return self.fail(error.class, now) };
        let within = list.token.is_some();
        list.failures += 1;
        list.progress.begin_page();
        match error.class {
            ErrorClass::Expired if within => {
                // The continue token has expired: list everything in one page, with the same version in the request.
                let version = list.version.clone();
                *list = Listing::at(version);
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

    /// Starts the wait after a failure. The class of the failure decides how long it is.
    pub(super) fn fail(&mut self, class: ErrorClass, now: Instant) {
        let delay = match class {
            ErrorClass::Throttled(Some(after)) => {
                let spread = (self.random)().clamp(0.0, 1.0);
                after.min(MAX_RETRY_AFTER) + Duration::from_millis(500).mul_f64(spread)
            }
            // Usually an operator has to fix these, but a brief loss of permissions should cost only about a second.
            ErrorClass::Unauthorized | ErrorClass::Forbidden | ErrorClass::NotFound => {
                let longest = jittered(self.options.slow_retry, &mut *self.random);
                self.backoff.next_delay(now, &mut *self.random).min(longest)
            }
            // A server that reports an expired version works, so the backoff of an outage before it does not apply.
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

    /// Cuts the current wait short to a random rest of at most 250 ms, because the cluster answers again.
    ///
    /// Applies to waits after failures to reach the cluster. Waits requested by the server (429, `Retry-After`) and
    /// waits after other answers (401, 403, 404) are not shortened. After a shortened wait, no wait is shortened until
    /// one has run to its end or a watch has lasted for a second.
    pub fn hurry(&mut self, now: Instant) {
        let Some((until, WaitReason::Failure(class))) = self.wait else { return };
        if until <= now + EarlyRetry::SPREAD || !class.is_unreachable() || !self.early_retry.take() {
            return;
        }
        let rest = EarlyRetry::SPREAD.mul_f64((self.random)().clamp(0.0, 1.0));
        self.wait = Some((now + rest, WaitReason::Failure(class)));
    }
}
