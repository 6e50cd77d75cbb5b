//! How a reflector goes on after a list or watch has ended, for each way in which one can end.

use std::time::Duration;

use super::{Listing, MAX_PAGE_FAILURES, MAX_RETRY_AFTER, Reflector, State, WaitReason};
use crate::backoff::{Haste, jittered};
use crate::{ErrorClass, SourceError, VersionMatch};
use informer_hub_types::clock::Instant;

/// Watches that end at once, or fail, in a row before the reflector lists again.
pub(super) const MAX_BAD_WATCHES: u32 = 5;
/// Streams that end before their initial events do, in a row, before streaming counts as unsupported.
pub(super) const MAX_BROKEN_STREAMS: u32 = 2;
/// How long a server is remembered not to do streaming lists.
pub(super) const STREAMING_BAN: Duration = Duration::from_secs(3600);
/// Ends at once after some events, in a row, before they are waited for.
const MAX_QUICK_ENDS: u32 = 2;
/// A watch shorter than this did not really run. client-go's "very short watch".
const SHORT: Duration = Duration::from_secs(1);
/// A watch that ran this long makes up for the failures before it.
const LONG: Duration = Duration::from_secs(60);

impl Reflector {
    /// A streaming list ended before its initial events did.
    pub(super) fn on_stream_broken(&mut self, class: Option<ErrorClass>, now: Instant) {
        self.state = State::Relist;
        match class {
            Some(class @ (ErrorClass::Expired | ErrorClass::TooLarge)) => self.on_version_unavailable(class, now),
            // Who may not watch may perhaps list, and then has something to show.
            Some(ErrorClass::StreamingUnsupported | ErrorClass::Forbidden) => self.ban_streaming(now),
            Some(class @ ErrorClass::Malformed) => {
                self.ban_streaming(now);
                self.fail(class, now);
            }
            Some(class @ (ErrorClass::Transient | ErrorClass::Stalled)) => {
                self.count_broken_stream(now);
                self.fail(class, now);
            }
            // Throttled, refused, unknown or not there: the same again, later.
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

    /// A watch that was in step ended.
    pub(super) fn on_plain_end(&mut self, class: Option<ErrorClass>, events: u64, lasted: Duration, now: Instant) {
        let resumes = self.last_version.as_ref().is_some_and(|version| !version.is_nowhere());
        // Watching from nowhere in particular again would never tell what was deleted meanwhile.
        self.state = if resumes { State::Watch(self.watching(now, false)) } else { State::Relist };
        if lasted >= SHORT {
            self.haste = Haste::default();
        }
        if lasted >= LONG || events > 0 && lasted >= SHORT {
            self.bad_watches = 0;
            self.quick_ends = 0;
        }
        match class {
            None if lasted >= if resumes { SHORT } else { LONG } => {}
            None if !resumes => self.pause(WaitReason::ShortWatch, now),
            None => self.on_short_watch(events, now),
            Some(class @ (ErrorClass::Expired | ErrorClass::Malformed | ErrorClass::NotFound)) => {
                // The list is asked for at the last version; only when that is refused too does it go to etcd.
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
                // Connections that are cut now and then, each after it served, are no outage: were they counted as one,
                // each cut would be waited for longer than the last. client-go does not wait at all.
                // Where a list follows, it is one.
                let ran = class == ErrorClass::Transient && (lasted >= SHORT || self.may_reopen(events));
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

    /// The server ended a watch in good order, but at once.
    fn on_short_watch(&mut self, events: u64, now: Instant) {
        if events == 0 {
            self.count_bad_watch();
            return self.pause(WaitReason::ShortWatch, now);
        }
        if !self.may_reopen(events) {
            self.pause(WaitReason::ShortWatch, now);
        }
    }

    /// Whether a watch that ended at once is opened again without a backoff: one that brought something is, unless the
    /// server makes a habit of it.
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

    /// The server cannot serve the version asked for: the most recent one, at once; if it was that, after a while.
    pub(super) fn on_version_unavailable(&mut self, class: ErrorClass, now: Instant) {
        let had_a_choice = !self.version_unavailable && (self.last_version.is_some() || self.is_listing_any());
        self.state = State::Relist;
        self.version_unavailable = true;
        if !had_a_choice {
            self.fail(class, now);
        }
    }

    fn is_listing_any(&self) -> bool {
        matches!(&self.state, State::List(list) if list.version == VersionMatch::Any)
    }

    /// A page could not be asked for, or not be read to its end.
    pub fn on_list_error(&mut self, error: &SourceError, now: Instant) {
        let State::List(list) = &mut self.state else { return self.fail(error.class, now) };
        let within = list.token.is_some();
        list.failures += 1;
        list.progress.begin_page();
        match error.class {
            ErrorClass::Expired if within => {
                // The continue token is too old: everything at once, at the version first asked for.
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

    /// Waits as a failure of this class asks for.
    pub(super) fn fail(&mut self, class: ErrorClass, now: Instant) {
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

    /// The cluster answers again, as another request has shown: a wait after a failure to reach it is cut short, to a
    /// random remainder of at most 250 ms.
    ///
    /// Waits that the server asked for (429, `Retry-After`) and waits after other answers (401, 403, 404) run to their
    /// end. Between two waits that are cut short, one runs to its end, or a watch lasts for a second.
    pub fn hurry(&mut self, now: Instant) {
        let Some((until, WaitReason::Failure(class))) = self.wait else { return };
        if until <= now + Haste::SPREAD || !class.is_unreachable() || !self.haste.take() {
            return;
        }
        let rest = Haste::SPREAD.mul_f64((self.random)().clamp(0.0, 1.0));
        self.wait = Some((now + rest, WaitReason::Failure(class)));
    }
}
