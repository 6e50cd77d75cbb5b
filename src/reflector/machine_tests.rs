use std::sync::Arc;

use super::ends::{MAX_BAD_WATCHES, MAX_BROKEN_STREAMS, STREAMING_BAN};
use super::*;
use crate::reflector::Skipped;
use crate::reflector::VersionMatch::MostRecent;
use crate::types::{Labels, ObjectKey, StoredObject, StoredObjectParts, Uid, clock};

/// The default of `ReflectorOptions::reopen`.
const REOPEN: Duration = Duration::from_millis(100);

const SECOND: Duration = Duration::from_secs(1);

fn version(text: &str) -> ResourceVersion {
    ResourceVersion::new(text)
}

fn error(class: ErrorClass) -> SourceError {
    SourceError { class, message: format!("{class:?}") }
}

fn object(at: &str) -> Arc<StoredObject> {
    Arc::new(StoredObject::new(StoredObjectParts {
        key: ObjectKey::new("ns", "x"),
        uid: Uid::new("u"),
        resource_version: version(at),
        labels: Labels::default(),
        index_values: Vec::new(),
        json: b"{}".to_vec(),
    }))
}

fn added(at: &str) -> WatchItem {
    WatchItem::Added(object(at))
}

fn bookmark(at: &str, initial_events_end: bool) -> WatchItem {
    WatchItem::Bookmark { version: version(at), initial_events_end }
}

/// A reflector with a clock that waits by itself and dice that always fall low.
struct Rig {
    reflector: Reflector,
    now: Instant,
}

impl Rig {
    fn new(options: ReflectorOptions) -> Self {
        Self { reflector: Reflector::new(options, || 0.0), now: clock::now() }
    }

    fn listing() -> Self {
        Self::new(ReflectorOptions { streaming_list: false, ..ReflectorOptions::default() })
    }

    fn streaming() -> Self {
        Self::new(ReflectorOptions::default())
    }

    /// Synced by a list at version 10, its watch not opened yet.
    fn watching() -> Self {
        let mut rig = Self::listing();
        rig.list();
        assert_eq!(rig.page("10", None), PageVerdict::ListComplete(version("10")));
        rig
    }

    fn step(&mut self) -> Step {
        self.reflector.next(self.now)
    }

    /// Waits if it must, and says for how long.
    fn waits(&mut self) -> Option<(Duration, WaitReason)> {
        let Step::Wait { until, reason } = self.step() else { return None };
        let waited = until - self.now;
        self.now = until;
        Some((waited, reason))
    }

    fn list(&mut self) -> (VersionMatch, Option<u32>, Option<String>, bool) {
        match self.step() {
            Step::List { request, fresh } => (request.version, request.limit, request.continue_token, fresh),
            other => panic!("expected a list, not {other:?}"),
        }
    }

    fn watch(&mut self) -> (VersionMatch, bool) {
        match self.step() {
            Step::Watch { request } => (request.version, request.initial_events),
            other => panic!("expected a watch, not {other:?}"),
        }
    }

    fn page(&mut self, at: &str, token: Option<&str>) -> PageVerdict {
        self.reflector.on_page_end(version(at), token.map(str::to_owned), None, self.now)
    }

    fn list_fails(&mut self, class: ErrorClass) {
        self.reflector.on_list_error(&error(class), self.now);
    }

    fn list_fails_after_asking(&mut self, class: ErrorClass) {
        self.list();
        self.list_fails(class);
    }

    fn item(&mut self, item: &WatchItem) -> ItemVerdict {
        self.reflector.on_watch_item(item, self.now)
    }

    fn watch_fails(&mut self, class: ErrorClass) {
        self.reflector.on_watch_end(Err(&error(class)), 0, Duration::ZERO, self.now);
    }

    fn watch_ends(&mut self, events: u64, lasted: Duration) {
        self.reflector.on_watch_end(Ok(()), events, lasted, self.now);
    }
}

fn any() -> VersionMatch {
    VersionMatch::Any
}

fn since(at: &str) -> VersionMatch {
    VersionMatch::NotOlderThan(version(at))
}

// client-go: TestReflectorListAndWatch (L1, R7).
#[test]
fn the_first_list_is_at_any_version_and_the_watch_starts_where_it_ended() {
    let mut rig = Rig::listing();
    assert_eq!(rig.list(), (any(), Some(500), None, true));
    assert_eq!(rig.page("10", None), PageVerdict::ListComplete(version("10")));
    assert_eq!(rig.watch(), (since("10"), false));
    assert_eq!(rig.reflector.last_version(), Some(&version("10")));
}

// client-go: TestReflectorResyncWithResourceVersion, TestReflectorNotPaginatingNotConsistentReads (L1, L2).
#[test]
fn a_relist_is_not_older_than_what_was_seen_and_asks_for_everything_at_once() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.reflector.relist();
    assert_eq!(rig.list(), (since("10"), None, None, true));
}

// client-go: TestReflectorPaginatingNonConsistentReadsIfWatchCacheDisabled (L2).
#[test]
fn where_a_list_at_any_version_came_in_pages_later_ones_ask_for_pages() {
    let mut rig = Rig::listing();
    rig.list();
    assert_eq!(rig.page("10", Some("p2")), PageVerdict::NextPage);
    assert_eq!(rig.list(), (any(), Some(500), Some("p2".to_owned()), false));
    assert_eq!(rig.page("10", Some("p3")), PageVerdict::NextPage);
    assert_eq!(rig.page("10", None), PageVerdict::ListComplete(version("10")));
    rig.reflector.relist();
    assert_eq!(rig.list(), (since("10"), Some(500), None, true));
}

// client-go: TestReflectorWatchListPageSize (L2).
#[test]
fn a_page_size_of_ones_own_counts_for_every_list() {
    let mut rig =
        Rig::new(ReflectorOptions { streaming_list: false, page_size: Some(4), ..ReflectorOptions::default() });
    assert_eq!(rig.list().1, Some(4));
    rig.page("10", None);
    rig.reflector.relist();
    assert_eq!(rig.list(), (since("10"), Some(4), None, true));
}

#[test]
fn pages_that_disagree_are_watched_from_the_first_ones_version() {
    let mut rig = Rig::listing();
    rig.list();
    rig.page("10", Some("p2"));
    assert_eq!(rig.page("12", None), PageVerdict::ListComplete(version("10")));
}

// client-go: TestReflectorFullListIfExpired (L3).
#[test]
fn a_continue_token_that_expired_makes_one_full_list_at_the_same_version() {
    let mut rig = Rig::listing();
    rig.list();
    rig.page("10", Some("p2"));
    rig.list_fails(ErrorClass::Expired);
    assert_eq!(rig.list(), (any(), None, None, true));
    assert_eq!(rig.page("12", None), PageVerdict::ListComplete(version("12")), "what was listed before is void");
    assert_eq!(rig.watch(), (since("12"), false));
}

// client-go: TestReflectorExpiredExactResourceVersion, TestReflectorFullListIfTooLarge (L4).
#[test]
fn a_version_that_the_server_cannot_serve_is_replaced_by_the_most_recent_at_once() {
    for class in [ErrorClass::Expired, ErrorClass::TooLarge] {
        let mut rig = Rig::watching();
        rig.reflector.relist();
        assert_eq!(rig.list().0, since("10"));
        rig.list_fails(class);
        assert_eq!(rig.list(), (MostRecent, Some(500), None, true), "{class:?}");
        // Refused once more: not at once again.
        rig.list_fails(class);
        assert!(rig.waits().is_some());
        assert_eq!(rig.list().0, MostRecent);
        rig.page("20", None);
        rig.reflector.relist();
        assert_eq!(rig.list().0, since("20"), "success clears the flag");
    }
}

#[test]
fn a_page_that_fails_is_asked_for_again_and_after_three_times_the_list_starts_over() {
    let mut rig = Rig::listing();
    rig.list();
    rig.page("10", Some("p2"));
    for _ in 0..2 {
        rig.list_fails(ErrorClass::Transient);
        assert!(rig.waits().is_some());
        assert_eq!(rig.list().2.as_deref(), Some("p2"));
    }
    rig.list_fails(ErrorClass::Stalled);
    rig.waits();
    let (_, _, token, fresh) = rig.list();
    assert!(token.is_none() && fresh);
}

#[test]
fn a_first_page_that_breaks_in_its_middle_begins_the_list_anew() {
    let mut rig = Rig::listing();
    rig.list();
    rig.list_fails(ErrorClass::Transient);
    rig.waits();
    assert!(rig.list().3);
}

// R2: 800 ms, doubled, capped at 30 s.
#[test]
fn failing_lists_back_off() {
    let mut rig = Rig::listing();
    let mut delays = Vec::new();
    for _ in 0..7 {
        rig.list_fails_after_asking(ErrorClass::Refused);
        delays.push(rig.waits().unwrap().0.as_millis());
    }
    assert_eq!(delays, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
}

#[test]
fn a_version_that_an_outage_made_too_old_is_listed_soon_however_long_the_outage_was() {
    let mut rig = Rig::watching();
    for _ in 0..6 {
        rig.watch();
        rig.watch_fails(ErrorClass::Refused);
        rig.waits();
    }
    rig.watch();
    rig.watch_fails(ErrorClass::Expired);
    assert_eq!(rig.waits().unwrap().0, Duration::from_millis(800));
    // One that comes again after that list is no outage's.
    rig.list();
    rig.list_fails(ErrorClass::Expired);
    rig.list_fails(ErrorClass::Expired);
    assert!(rig.waits().unwrap().0 > Duration::from_millis(800));
}

#[test]
fn who_may_not_list_is_retried_ever_more_slowly_with_the_reason_in_sight() {
    for class in [ErrorClass::Unauthorized, ErrorClass::Forbidden, ErrorClass::NotFound] {
        let mut rig = Rig::listing();
        for millis in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            rig.list_fails_after_asking(class);
            assert_eq!(rig.waits(), Some((Duration::from_millis(millis), WaitReason::Failure(class))));
        }
    }
}

#[test]
fn the_longest_wait_of_who_may_not_list_can_be_set() {
    let options = ReflectorOptions { slow_retry: SECOND, streaming_list: false, ..ReflectorOptions::default() };
    let mut rig = Rig::new(options);
    let waits: Vec<_> = (0..3)
        .map(|_| {
            rig.list_fails_after_asking(ErrorClass::Forbidden);
            rig.waits().unwrap().0
        })
        .collect();
    assert_eq!(waits, [Duration::from_millis(800), SECOND, SECOND]);
    rig.reflector.random = Box::new(|| 0.5);
    rig.list_fails_after_asking(ErrorClass::Forbidden);
    assert_eq!(rig.waits().unwrap().0, Duration::from_millis(1500));
}

// client-go: TestBackoffOnTooManyRequests, TestNoRelistOnTooManyRequests (E1, E4).
#[test]
fn a_throttled_watch_is_opened_again_when_the_server_says_and_nothing_is_listed() {
    let mut rig = Rig::watching();
    for _ in 0..5 {
        assert_eq!(rig.watch(), (since("10"), false));
        rig.watch_fails(ErrorClass::Throttled(Some(7 * SECOND)));
        let (waited, reason) = rig.waits().unwrap();
        assert_eq!((waited, reason), (7 * SECOND, WaitReason::Failure(ErrorClass::Throttled(Some(7 * SECOND)))));
    }
    rig.watch_fails(ErrorClass::Throttled(None));
    assert_eq!(rig.waits().unwrap().0.as_millis(), 800);
    rig.watch_fails(ErrorClass::Throttled(Some(Duration::MAX)));
    assert_eq!(rig.waits().unwrap().0, MAX_RETRY_AFTER, "nobody is believed for ever");
}

#[test]
fn a_throttled_page_is_asked_for_again() {
    let mut rig = Rig::listing();
    rig.list();
    rig.page("10", Some("p2"));
    for _ in 0..10 {
        rig.list_fails(ErrorClass::Throttled(Some(SECOND)));
        assert_eq!(rig.waits().unwrap().0, SECOND);
        assert_eq!(rig.list().2.as_deref(), Some("p2"));
    }
}

// client-go: TestReflectorListAndWatchInitConnBackoff (E1).
#[test]
fn a_refused_connection_is_tried_again_for_ever_without_a_relist() {
    let mut rig = Rig::watching();
    for _ in 0..100 {
        assert_eq!(rig.watch(), (since("10"), false));
        rig.watch_fails(ErrorClass::Refused);
        assert!(rig.waits().unwrap().0 <= 30 * SECOND);
    }
}

// client-go: TestWatchTimeout (R6).
#[test]
fn watch_timeouts_are_drawn_between_five_and_ten_minutes() {
    for (dice, minutes) in [(0.0, 300), (0.5, 450), (0.999, 599)] {
        let mut reflector = Reflector::new(ReflectorOptions::default(), move || dice);
        let Step::Watch { request } = reflector.next(clock::now()) else { panic!() };
        assert_eq!(request.timeout.as_secs(), minutes);
    }
}

// R8.
#[test]
fn a_watch_that_the_server_ends_is_opened_again_at_once_from_the_last_version() {
    let mut rig = Rig::watching();
    for (events, lasted) in [(0, SECOND), (3, Duration::ZERO), (0, 300 * SECOND)] {
        rig.watch();
        rig.item(&added("12"));
        rig.watch_ends(events, lasted);
        assert_eq!(rig.watch(), (since("12"), false));
    }
}

// Better than R9 (client-go: TestReflectorHandleWatchResultChanClosedBefore; complaint kubernetes#138552).
#[test]
fn a_very_short_watch_backs_off_and_only_a_row_of_them_relists() {
    let mut rig = Rig::watching();
    for _ in 0..MAX_BAD_WATCHES {
        assert_eq!(rig.watch(), (since("10"), false));
        rig.watch_ends(0, Duration::from_millis(10));
        assert_eq!(rig.waits().unwrap().1, WaitReason::ShortWatch);
    }
    rig.watch();
    rig.watch_ends(0, Duration::from_millis(10));
    assert!(rig.waits().is_some());
    assert_eq!(rig.list().0, since("10"));
}

#[test]
fn a_server_that_ends_every_watch_after_one_event_makes_no_hot_loop() {
    let mut rig = Rig::watching();
    let mut waits = 0;
    for _ in 0..20 {
        rig.watch();
        rig.watch_ends(1, Duration::from_millis(1));
        waits += u32::from(rig.waits().is_some());
    }
    assert!(waits >= 15, "{waits}");
}

// client-go: TestReflectorWatchHandler, TestReflectorResourceVersionUpdate (E10).
#[test]
fn every_event_and_every_bookmark_moves_the_version_on() {
    let mut rig = Rig::watching();
    rig.watch();
    let deleted = WatchItem::Deleted(object("13"));
    for (item, verdict, at) in [
        (added("11"), ItemVerdict::Apply, "11"),
        (WatchItem::Modified(object("12")), ItemVerdict::Apply, "12"),
        (deleted, ItemVerdict::Apply, "13"),
        (bookmark("20", false), ItemVerdict::Nothing, "20"),
        (bookmark("21", true), ItemVerdict::Nothing, "21"),
    ] {
        assert_eq!(rig.item(&item), verdict);
        assert_eq!(rig.reflector.last_version(), Some(&version(at)));
    }
}

// E7.
#[test]
fn a_skipped_event_does_not_move_the_version_on() {
    let mut rig = Rig::watching();
    rig.watch();
    let skipped = Skipped { key: None, version: Some(version("11")), reason: String::new() };
    assert_eq!(rig.item(&WatchItem::Skipped(skipped)), ItemVerdict::Nothing);
    assert_eq!(rig.reflector.last_version(), Some(&version("10")));
}

// E11.
#[test]
fn a_watch_from_nowhere_learns_no_version_from_its_synthetic_events() {
    for nowhere in ["", "0"] {
        let mut rig = Rig::listing();
        rig.list();
        rig.page(nowhere, None);
        rig.watch();
        assert_eq!(rig.item(&added("7")), ItemVerdict::Apply);
        assert_eq!(rig.reflector.last_version(), Some(&version(nowhere)));
        rig.item(&WatchItem::Modified(object("8")));
        rig.item(&added("9"));
        assert_eq!(rig.reflector.last_version(), Some(&version("9")));
    }
}

// What was deleted between two watches from nowhere would never be told.
#[test]
fn a_watch_without_a_version_to_go_on_from_is_followed_by_a_list() {
    for nowhere in ["", "0"] {
        let mut rig = Rig::listing();
        rig.list();
        rig.page(nowhere, None);
        rig.watch();
        rig.watch_ends(3, 60 * SECOND);
        assert_eq!(rig.list().0, if nowhere.is_empty() { any() } else { since("0") });
        rig.page(nowhere, None);
        rig.watch();
        rig.watch_ends(3, 59 * SECOND);
        assert_eq!(rig.waits(), Some((Duration::from_millis(800), WaitReason::ShortWatch)), "no hot loop of lists");
        rig.list();
        rig.page(nowhere, None);
        rig.watch();
        rig.reflector.on_watch_end(Err(&error(ErrorClass::Transient)), 3, 2 * SECOND, rig.now);
        let (waited, _) = rig.waits().unwrap();
        assert!(waited >= Duration::from_millis(1600), "nor when they are cut off: {waited:?}");
        rig.list();
        rig.page(nowhere, None);
        rig.watch();
        rig.item(&bookmark("12", false));
        rig.watch_ends(1, SECOND);
        assert_eq!(rig.watch(), (since("12"), false), "a bookmark brought one");
    }
}

#[test]
fn a_bookmark_without_a_version_moves_nothing_on() {
    let mut rig = Rig::watching();
    rig.watch();
    assert_eq!(rig.item(&bookmark("", false)), ItemVerdict::Nothing);
    assert_eq!(rig.reflector.last_version(), Some(&version("10")));
    assert_eq!(rig.item(&WatchItem::Modified(object(""))), ItemVerdict::Apply, "nor does an object without one");
    assert_eq!(rig.reflector.last_version(), Some(&version("10")));
    let mut rig = Rig::streaming();
    rig.watch();
    assert_eq!(rig.item(&bookmark("", true)), ItemVerdict::InitialEventsEnd(version("")));
    rig.watch_ends(1, 60 * SECOND);
    assert_eq!(rig.watch(), (MostRecent, true), "a list that ended so is complete, and the next one is a list again");
}

// The store drops what the watch then repeats: `stale_events_of_a_watch_change_nothing`.
#[test]
fn a_version_that_goes_backwards_is_followed() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.item(&added("15"));
    assert_eq!(rig.item(&WatchItem::Modified(object("12"))), ItemVerdict::Apply);
    rig.watch_ends(2, SECOND);
    assert_eq!(rig.watch(), (since("12"), false));
    rig.reflector.relist();
    rig.list();
    assert_eq!(rig.page("5", None), PageVerdict::ListComplete(version("5")), "as after an etcd restore");
    assert_eq!(rig.watch(), (since("5"), false));
}

// E3 (#86430): only a refused list goes to etcd.
#[test]
fn an_expired_watch_relists_at_the_last_version_after_a_backoff() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_fails(ErrorClass::Expired);
    assert!(rig.waits().is_some());
    assert_eq!(rig.list().0, since("10"));
}

#[test]
fn a_watch_that_is_too_new_for_the_server_relists_at_the_most_recent_version() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_fails(ErrorClass::TooLarge);
    assert!(rig.waits().is_some());
    assert_eq!(rig.list().0, MostRecent);
}

// Better than E5, E6 (client-go: TestRetryInternalError; complaint kubernetes#129683).
#[test]
fn a_broken_watch_is_opened_again_a_few_times_before_a_relist() {
    for class in [ErrorClass::Transient, ErrorClass::Stalled] {
        let mut rig = Rig::watching();
        for _ in 0..MAX_BAD_WATCHES {
            assert_eq!(rig.watch(), (since("10"), false));
            rig.watch_fails(class);
            assert_eq!(rig.waits().unwrap().1, WaitReason::Failure(class));
        }
        rig.watch();
        rig.watch_fails(class);
        rig.waits();
        assert_eq!(rig.list().0, since("10"));
    }
}

#[test]
fn a_watch_that_ran_well_makes_up_for_the_ones_that_broke() {
    let mut rig = Rig::watching();
    for _ in 0..50 {
        rig.watch();
        rig.reflector.on_watch_end(Err(&error(ErrorClass::Transient)), 5, 2 * SECOND, rig.now);
        rig.waits();
        assert_eq!(rig.watch(), (since("10"), false));
    }
}

// R8. Found by the oracle: cuts of good watches doubled the wait each time, up to a minute, where client-go waits for none.
#[test]
fn a_watch_that_is_cut_off_after_it_ran_is_opened_again_soon_however_often() {
    let mut rig = Rig::watching();
    let cut = |rig: &mut Rig, events, lasted| {
        rig.watch();
        rig.reflector.on_watch_end(Err(&error(ErrorClass::Transient)), events, lasted, rig.now);
        rig.waits().unwrap().0
    };
    for _ in 0..50 {
        let waited = cut(&mut rig, 5, 2 * SECOND);
        assert!(waited >= REOPEN && waited < 2 * REOPEN, "{waited:?}");
    }
    // One without events may be a bad one, and is soon opened again all the same.
    assert!(cut(&mut rig, 0, SECOND) < 2 * REOPEN);
    // Nor is one that brought something at once, unless that becomes a habit: then it is an outage, and it begins.
    assert!(cut(&mut rig, 5, SECOND / 2) < 2 * REOPEN);
    assert!(cut(&mut rig, 5, SECOND / 2) < 2 * REOPEN);
    let first = Duration::from_millis(800);
    let waited = cut(&mut rig, 5, SECOND / 2);
    assert!(waited >= first && waited < 2 * first, "{waited:?}");
    assert!(cut(&mut rig, 0, Duration::ZERO) >= 2 * first);
}

// client-go: TestReflectorReplacesStoreOnUnsafeDelete, for the class that the status of such an event has.
#[test]
fn bytes_that_are_not_the_protocol_relist_after_a_backoff() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_fails(ErrorClass::Malformed);
    assert!(rig.waits().is_some());
    assert_eq!(rig.list().0, since("10"));
}

#[test]
fn a_forbidden_watch_is_retried_after_a_backoff_and_does_not_relist() {
    let mut rig = Rig::watching();
    for (class, millis) in [(ErrorClass::Forbidden, 800), (ErrorClass::Unauthorized, 1600)] {
        rig.watch();
        rig.watch_fails(class);
        assert_eq!(rig.waits(), Some((Duration::from_millis(millis), WaitReason::Failure(class))));
        assert_eq!(rig.watch(), (since("10"), false));
    }
}

#[test]
fn a_resource_that_is_gone_is_listed_again_after_a_backoff() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_fails(ErrorClass::NotFound);
    assert_eq!(rig.waits().unwrap().0, Duration::from_millis(800));
    assert_eq!(rig.list().0, since("10"));
}

// client-go: TestWatchList "bookmark syncs", TestReflectorListAndWatch (W1, W2).
#[test]
fn a_streaming_list_is_complete_at_its_bookmark_and_goes_on_as_the_watch() {
    let mut rig = Rig::streaming();
    assert_eq!(rig.watch(), (MostRecent, true));
    rig.reflector.on_watch_opened(rig.now);
    assert_eq!(rig.item(&added("3")), ItemVerdict::Initial);
    assert_eq!(rig.item(&WatchItem::Modified(object("11"))), ItemVerdict::Initial);
    assert_eq!(rig.item(&WatchItem::Deleted(object("12"))), ItemVerdict::Initial);
    // client-go: TestWatchListResourceVersion: learnt from the bookmark alone.
    assert_eq!(rig.reflector.last_version(), None);
    assert!(rig.reflector.is_listing());
    assert_eq!(rig.item(&bookmark("15", true)), ItemVerdict::InitialEventsEnd(version("15")));
    assert!(!rig.reflector.is_listing());
    assert_eq!(rig.item(&added("16")), ItemVerdict::Apply);
    rig.watch_ends(5, 300 * SECOND);
    assert_eq!(rig.watch(), (since("16"), false));
}

// client-go: TestWatchList "annotation false ignored" (W2).
#[test]
fn a_bookmark_without_the_mark_ends_nothing() {
    let mut rig = Rig::streaming();
    rig.watch();
    assert_eq!(rig.item(&bookmark("15", false)), ItemVerdict::Nothing);
    assert_eq!(rig.reflector.last_version(), None);
    assert_eq!(rig.item(&added("3")), ItemVerdict::Initial);
}

// Better than W9 (k9s#4186): client-go waits for ever.
#[test]
fn initial_events_that_make_no_progress_are_given_up_and_the_list_is_taken_at_once() {
    let mut rig = Rig::streaming();
    rig.watch();
    rig.reflector.on_watch_opened(rig.now);
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 30 * SECOND));
    rig.now += 20 * SECOND;
    rig.item(&added("3"));
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 30 * SECOND), "an object is progress");
    let deadline = rig.reflector.deadline();
    rig.now += 10 * SECOND;
    rig.item(&WatchItem::Modified(object("9")));
    rig.item(&bookmark("9", false));
    assert_eq!(rig.reflector.deadline(), deadline, "what may come for ever is none");
    let error = rig.reflector.out_of_patience();
    assert_eq!(error.class, ErrorClass::StreamingUnsupported);
    rig.reflector.on_watch_end(Err(&error), 3, 60 * SECOND, rig.now);
    assert_eq!(rig.list(), (any(), Some(500), None, true));
}

// W8, W12, with a memory.
#[test]
fn a_server_without_streaming_lists_is_remembered_for_an_hour() {
    let mut rig = Rig::streaming();
    rig.watch();
    rig.watch_fails(ErrorClass::StreamingUnsupported);
    assert_eq!(rig.list().0, any());
    rig.page("10", None);
    rig.reflector.relist();
    assert_eq!(rig.list().0, since("10"));
    rig.page("11", None);
    rig.now += STREAMING_BAN;
    rig.reflector.relist();
    assert_eq!(rig.watch(), (since("11"), true));
}

// client-go: TestWatchList "429 retried (3 watches, 0 lists)" (W6).
#[test]
fn a_throttled_or_refused_streaming_list_is_tried_again_as_one() {
    let mut rig = Rig::streaming();
    for class in [ErrorClass::Throttled(None), ErrorClass::Refused, ErrorClass::Throttled(Some(SECOND))] {
        assert_eq!(rig.watch(), (MostRecent, true));
        rig.watch_fails(class);
        assert!(rig.waits().is_some());
    }
    assert_eq!(rig.watch(), (MostRecent, true));
}

// client-go: TestWatchList "stream stopped before bookmark -> new watch-list" (W5), but not without end.
#[test]
fn streams_that_end_before_their_bookmark_are_tried_twice() {
    let mut rig = Rig::streaming();
    for _ in 0..MAX_BROKEN_STREAMS {
        assert_eq!(rig.watch(), (MostRecent, true));
        rig.watch_ends(4, 2 * SECOND);
        assert!(rig.waits().is_some());
    }
    assert_eq!(rig.list().0, any());
}

// W7.
#[test]
fn a_streaming_relist_at_an_expired_version_is_repeated_at_once_at_the_most_recent() {
    let mut rig = Rig::streaming();
    rig.watch();
    rig.item(&bookmark("15", true));
    rig.reflector.relist();
    assert_eq!(rig.watch(), (since("15"), true));
    rig.watch_fails(ErrorClass::Expired);
    assert_eq!(rig.watch(), (MostRecent, true));
    rig.watch_fails(ErrorClass::Expired);
    assert!(rig.waits().is_some());
}

#[test]
fn who_may_not_watch_may_still_list() {
    let mut rig = Rig::streaming();
    rig.watch();
    rig.watch_fails(ErrorClass::Forbidden);
    assert_eq!(rig.list().0, any());
}

#[test]
fn a_quiet_watch_is_borne_until_the_server_should_have_ended_it() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.now += 5 * SECOND;
    rig.reflector.on_watch_opened(rig.now);
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 310 * SECOND));
    assert_eq!(rig.reflector.out_of_patience().class, ErrorClass::Stalled);
}

// === what an earlier reflector of the informer knew ===

#[test]
fn a_successor_asks_for_nothing_older_than_its_predecessor_had_read() {
    let mut rig = Rig::listing();
    rig.reflector.resume(version("7"));
    assert_eq!(rig.reflector.last_version(), Some(&version("7")));
    assert_eq!(rig.list(), (since("7"), None, None, true));
    let mut rig = Rig::streaming();
    rig.reflector.resume(version("7"));
    assert_eq!(rig.watch(), (since("7"), true));
    assert_eq!(format!("{:?}", rig.reflector).split(' ').next(), Some("Reflector"));
    assert!(format!("{:?}", rig.reflector).contains("last_version"));
}

// === bounds, to the unit ===

#[test]
fn a_stream_of_the_most_recent_that_is_refused_as_too_old_has_nothing_else_to_ask_for() {
    for class in [ErrorClass::Expired, ErrorClass::TooLarge] {
        let mut rig = Rig::streaming();
        assert_eq!(rig.watch(), (MostRecent, true));
        rig.watch_fails(class);
        assert_eq!(rig.waits(), Some((Duration::from_millis(800), WaitReason::Failure(class))));
        assert_eq!(rig.watch(), (MostRecent, true));
    }
}

#[test]
fn watches_that_brought_nothing_are_no_habit_of_quick_ends() {
    let mut rig = Rig::watching();
    for waits in [800, 1600, 3200] {
        rig.watch();
        rig.watch_fails(ErrorClass::Transient);
        assert_eq!(rig.waits().unwrap().0.as_millis(), waits);
    }
    for waits in [100, 100, 6400] {
        rig.watch();
        rig.reflector.on_watch_end(Err(&error(ErrorClass::Transient)), 1, Duration::ZERO, rig.now);
        assert_eq!(rig.waits().map(|(waited, _)| waited.as_millis()), Some(waits));
        rig.reflector.relist();
        rig.list();
        rig.page("10", None);
    }
}

#[test]
fn a_first_list_at_any_version_that_is_refused_is_asked_for_at_the_most_recent_at_once() {
    let mut rig = Rig::listing();
    assert_eq!(rig.list().0, any());
    rig.list_fails(ErrorClass::TooLarge);
    assert_eq!(rig.list(), (MostRecent, Some(500), None, true));
    rig.list_fails(ErrorClass::TooLarge);
    assert_eq!(rig.waits(), Some((Duration::from_millis(800), WaitReason::Failure(ErrorClass::TooLarge))));
    // Pages of a list at the most recent version say nothing of a watch cache.
    rig.list();
    rig.page("10", Some("p2"));
    rig.page("10", None);
    rig.reflector.relist();
    assert_eq!(rig.list(), (since("10"), None, None, true));
}

#[test]
fn the_dice_lengthen_what_a_server_asked_for_by_half_a_second_and_backoffs_by_once_more() {
    for (class, waits) in [
        (ErrorClass::Throttled(Some(7 * SECOND)), Duration::from_millis(7250)),
        (ErrorClass::Throttled(Some(Duration::ZERO)), Duration::from_millis(250)),
        (ErrorClass::Throttled(None), Duration::from_millis(1200)),
        (ErrorClass::Forbidden, Duration::from_millis(1200)),
        (ErrorClass::Refused, Duration::from_millis(1200)),
        (ErrorClass::Expired, Duration::from_millis(1200)),
    ] {
        let mut rig = Rig::watching();
        rig.reflector.random = Box::new(|| 0.5);
        rig.watch();
        rig.watch_fails(class);
        assert_eq!(rig.waits(), Some((waits, WaitReason::Failure(class))));
    }
}

#[test]
fn a_wait_is_over_at_its_moment() {
    let mut rig = Rig::listing();
    rig.list_fails_after_asking(ErrorClass::Transient);
    let Step::Wait { until, .. } = rig.step() else { panic!("no wait") };
    rig.now = until - Duration::from_nanos(1);
    assert_eq!(rig.step(), Step::Wait { until, reason: WaitReason::Failure(ErrorClass::Transient) });
    rig.now = until;
    rig.list();
}

#[test]
fn deadlines_are_those_of_what_is_open() {
    let mut rig = Rig::listing();
    assert_eq!(rig.reflector.deadline(), None);
    rig.list();
    assert_eq!((rig.reflector.deadline(), rig.reflector.is_listing()), (None, true));
    rig.page("10", None);
    assert_eq!((rig.reflector.deadline(), rig.reflector.is_listing()), (Some(rig.now + 310 * SECOND), false));
    rig.now += SECOND;
    rig.item(&bookmark("11", false));
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 310 * SECOND), "each item moves it on");
    rig.now += SECOND;
    rig.item(&WatchItem::Skipped(Skipped { key: None, version: None, reason: String::new() }));
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 310 * SECOND), "one that is skipped too");
    let mut rig = Rig::streaming();
    rig.watch();
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 30 * SECOND));
    rig.now += SECOND;
    rig.item(&WatchItem::Skipped(Skipped { key: None, version: None, reason: String::new() }));
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 30 * SECOND), "an object that is skipped is progress");
    rig.now += SECOND;
    rig.item(&bookmark("15", true));
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 310 * SECOND));
}

#[test]
fn a_server_is_asked_for_a_stream_again_when_its_hour_is_over_and_not_before() {
    for (passed, streams) in
        [(STREAMING_BAN.checked_sub(Duration::from_nanos(1)).unwrap(), false), (STREAMING_BAN, true)]
    {
        let mut rig = Rig::streaming();
        rig.watch();
        rig.watch_fails(ErrorClass::StreamingUnsupported);
        rig.now += passed;
        assert_eq!(matches!(rig.step(), Step::Watch { .. }), streams);
    }
}

#[test]
fn what_breaks_a_stream_counts_for_its_kind() {
    // Twice, and streaming is left alone.
    for class in [ErrorClass::Transient, ErrorClass::Stalled] {
        let mut rig = Rig::streaming();
        for _ in 0..MAX_BROKEN_STREAMS {
            rig.watch();
            rig.watch_fails(class);
            assert_eq!(rig.waits().unwrap().1, WaitReason::Failure(class));
        }
        assert_eq!(rig.list().0, any(), "{class:?}");
    }
    // At once.
    let mut rig = Rig::streaming();
    rig.watch();
    rig.watch_fails(ErrorClass::Malformed);
    assert_eq!(rig.waits().unwrap().1, WaitReason::Failure(ErrorClass::Malformed));
    assert_eq!(rig.list().0, any());
    // Never.
    for class in [ErrorClass::Refused, ErrorClass::Unauthorized, ErrorClass::NotFound, ErrorClass::Throttled(None)] {
        let mut rig = Rig::streaming();
        for _ in 0..9 {
            assert_eq!(rig.watch(), (MostRecent, true), "{class:?}");
            rig.watch_fails(class);
            rig.waits();
        }
    }
    // One that came to its mark makes up for one that did not.
    let mut rig = Rig::streaming();
    for _ in 0..9 {
        rig.watch();
        rig.watch_fails(ErrorClass::Transient);
        rig.waits();
        rig.watch();
        rig.item(&bookmark("15", true));
        rig.reflector.relist();
    }
    rig.watch();
}

#[test]
fn a_second_of_events_or_a_minute_of_none_makes_up_for_what_broke() {
    let just_before = |whole: Duration| whole.checked_sub(Duration::from_nanos(1)).unwrap();
    for (events, lasted, well) in [
        (1, SECOND, true),
        (1, just_before(SECOND), false),
        (0, SECOND, false),
        (0, 60 * SECOND, true),
        (0, just_before(60 * SECOND), false),
    ] {
        let mut rig = Rig::watching();
        for _ in 0..MAX_BAD_WATCHES {
            rig.watch();
            rig.watch_fails(ErrorClass::Transient);
            rig.waits();
        }
        rig.watch();
        rig.reflector.on_watch_end(Err(&error(ErrorClass::Transient)), events, lasted, rig.now);
        rig.waits();
        assert_eq!(matches!(rig.step(), Step::Watch { .. }), well, "{events} events in {lasted:?}");
    }
}

#[test]
fn a_watch_of_a_second_is_opened_again_at_once_and_a_shorter_one_without_events_is_not() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_ends(0, SECOND);
    assert_eq!(rig.waits(), None);
    rig.watch();
    rig.watch_ends(0, Duration::from_nanos(999_999_999));
    assert_eq!(rig.waits(), Some((Duration::from_millis(800), WaitReason::ShortWatch)));
}

#[test]
fn two_quick_ends_in_a_row_are_borne_and_a_good_watch_lets_them_count_anew() {
    let mut rig = Rig::watching();
    for _ in 0..3 {
        for _ in 0..2 {
            rig.watch();
            rig.watch_ends(1, Duration::from_millis(1));
            assert_eq!(rig.waits(), None);
        }
        rig.watch();
        rig.watch_ends(1, SECOND);
        assert_eq!(rig.waits(), None);
    }
    for waits in [false, false, true, true] {
        rig.watch();
        rig.watch_ends(1, Duration::from_millis(1));
        assert_eq!(rig.waits().is_some(), waits);
    }
}

#[test]
fn a_list_makes_up_for_watches_that_broke() {
    let mut rig = Rig::watching();
    for _ in 0..3 {
        for _ in 0..MAX_BAD_WATCHES {
            rig.watch();
            rig.watch_fails(ErrorClass::StreamingUnsupported);
            rig.waits();
        }
        rig.reflector.relist();
        rig.list();
        rig.page("10", None);
    }
    rig.watch();
}

#[test]
fn a_list_that_may_not_be_had_starts_over_with_its_first_page() {
    for class in [ErrorClass::Forbidden, ErrorClass::Malformed, ErrorClass::NotFound, ErrorClass::Unauthorized] {
        let mut rig = Rig::listing();
        rig.list();
        rig.page("10", Some("p2"));
        rig.list();
        rig.list_fails(class);
        assert_eq!(rig.waits().unwrap().1, WaitReason::Failure(class));
        assert_eq!(rig.list(), (any(), Some(500), None, true));
    }
}

#[test]
fn an_empty_token_ends_a_list_and_a_page_that_came_counts_failures_anew() {
    let mut rig = Rig::listing();
    rig.list();
    for _ in 0..4 {
        assert_eq!(rig.page("10", Some("next")), PageVerdict::NextPage);
        for _ in 0..2 {
            rig.list_fails(ErrorClass::Transient);
            rig.waits();
            assert_eq!(rig.list(), (any(), Some(500), Some("next".to_owned()), false));
        }
    }
    assert_eq!(rig.page("10", Some("")), PageVerdict::ListComplete(version("10")));
}

#[test]
fn asking_again_without_a_report_gives_the_same_answer() {
    for mut rig in [Rig::listing(), Rig::streaming(), Rig::watching()] {
        let first = rig.step();
        assert_eq!(rig.step(), first);
    }
    let mut rig = Rig::listing();
    rig.list_fails_after_asking(ErrorClass::Transient);
    let first = rig.step();
    assert!(matches!(first, Step::Wait { .. }));
    assert_eq!(rig.step(), first);
}

#[test]
fn reports_out_of_turn_break_nothing() {
    let mut rig = Rig::listing();
    rig.watch_ends(0, Duration::ZERO);
    assert_eq!(rig.item(&added("3")), ItemVerdict::Nothing);
    rig.list_fails(ErrorClass::Expired);
    rig.waits();
    assert_eq!(rig.list().0, any());
}

proptest::proptest! {
    #![proptest_config(crate::cache::testing::properties(256))]

    #[test]
    fn whatever_is_reported_a_success_always_leads_to_a_watch(script in proptest::collection::vec(0_u8..24, 0..60)) {
        let mut rig = Rig::streaming();
        let classes = [
            ErrorClass::Throttled(None), ErrorClass::Refused, ErrorClass::Expired, ErrorClass::TooLarge,
            ErrorClass::Unauthorized, ErrorClass::Forbidden, ErrorClass::NotFound, ErrorClass::StreamingUnsupported,
            ErrorClass::Malformed, ErrorClass::Stalled, ErrorClass::Transient,
        ];
        let mut unhappy = 0_u32;
        for choice in script {
            if let Some((waited, _)) = rig.waits() {
                proptest::prop_assert!(waited <= 600 * SECOND);
                unhappy = 0;
            }
            let class = classes.get(usize::from(choice)).copied();
            match (rig.step(), class) {
                (Step::List { .. }, Some(class)) => { rig.list_fails(class); unhappy += 1; }
                (Step::Watch { .. }, Some(class)) => { rig.watch_fails(class); unhappy += 1; }
                (Step::List { .. }, None) => { rig.page("10", (choice % 2 == 0).then_some("t")); unhappy = 0; }
                (Step::Watch { .. }, None) => {
                    rig.item(&bookmark("12", choice % 2 == 0));
                    rig.watch_ends(u64::from(choice % 3), SECOND);
                    unhappy = 0;
                }
                (Step::Wait { .. }, _) => proptest::prop_assert!(false, "waited twice"),
            }
            proptest::prop_assert!(unhappy <= 4, "{unhappy} failures in a row without a wait");
        }
        rig.waits();
        if let Step::List { .. } = rig.step() {
            rig.page("20", None);
        } else {
            rig.item(&bookmark("20", true));
            rig.watch_ends(1, 2 * SECOND);
        }
        proptest::prop_assert_eq!(rig.waits(), None);
        // A list of several pages is watched from its first page's version.
        let (from, initial_events) = rig.watch();
        proptest::prop_assert!(from == since("20") || from == since("10"), "{from:?}");
        proptest::prop_assert!(!initial_events);
    }
}
