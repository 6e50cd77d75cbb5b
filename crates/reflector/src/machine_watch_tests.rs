//! Tests of watches: how they start and end, and what the reflector does next.

use super::*;

// client-go: TestBackoffOnTooManyRequests, TestNoRelistOnTooManyRequests.
#[test]
fn throttled_watch_reopens_after_retry_after_without_a_list() {
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
    assert_eq!(rig.waits().unwrap().0, MAX_RETRY_AFTER, "Retry-After is capped");
}

#[test]
fn throttled_page_is_repeated() {
    let mut rig = Rig::listing();
    rig.list();
    rig.page("10", Some("p2"));
    for _ in 0..10 {
        rig.list_fails(ErrorClass::Throttled(Some(SECOND)));
        assert_eq!(rig.waits().unwrap().0, SECOND);
        assert_eq!(rig.list().2.as_deref(), Some("p2"));
    }
}

// client-go: TestReflectorListAndWatchInitConnBackoff.
#[test]
fn refused_connection_is_retried_without_a_relist() {
    let mut rig = Rig::watching();
    for _ in 0..100 {
        assert_eq!(rig.watch(), (since("10"), false));
        rig.watch_fails(ErrorClass::Refused);
        assert!(rig.waits().unwrap().0 <= 30 * SECOND);
    }
}

// client-go: TestWatchTimeout.
#[test]
fn watch_timeout_is_between_five_and_ten_minutes() {
    for (dice, minutes) in [(0.0, 300), (0.5, 450), (0.999, 599)] {
        let mut reflector = Reflector::new(ReflectorOptions::default(), move || dice);
        let Step::Watch { request } = reflector.next(clock::now()) else { panic!() };
        assert_eq!(request.timeout.as_secs(), minutes);
    }
}

// client-go: TestWatchTimeout. It raises a shorter minimum to five minutes.
#[test]
fn minimum_watch_timeout_is_configurable() {
    for minimum in [30 * 60, 1] {
        for dice in [0.0, 0.999] {
            let options = ReflectorOptions { min_watch_timeout: minimum * SECOND, ..ReflectorOptions::default() };
            let Step::Watch { request } = Reflector::new(options, move || dice).next(clock::now()) else { panic!() };
            assert!(request.timeout >= minimum * SECOND && request.timeout < 2 * minimum * SECOND, "{request:?}");
        }
    }
}

#[test]
fn ended_watch_reopens_at_once_from_last_version() {
    let mut rig = Rig::watching();
    for (events, lasted) in [(0, SECOND), (3, Duration::ZERO), (0, 300 * SECOND)] {
        rig.watch();
        rig.item(&added("12"));
        rig.watch_ends(events, lasted);
        assert_eq!(rig.watch(), (since("12"), false));
    }
}

// Better than client-go (TestReflectorHandleWatchResultChanClosedBefore; complaint kubernetes#138552).
#[test]
fn short_watch_backs_off_and_several_in_a_row_relist() {
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
fn watches_of_one_event_cause_no_hot_loop() {
    let mut rig = Rig::watching();
    let mut waits = 0;
    for _ in 0..20 {
        rig.watch();
        rig.watch_ends(1, Duration::from_millis(1));
        waits += u32::from(rig.waits().is_some());
    }
    assert!(waits >= 15, "{waits}");
}

// client-go: TestReflectorWatchHandler, TestReflectorResourceVersionUpdate.
#[test]
fn events_and_bookmarks_advance_the_version() {
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

#[test]
fn skipped_event_does_not_advance_the_version() {
    let mut rig = Rig::watching();
    rig.watch();
    let skipped = Skipped { key: None, version: Some(version("11")), reason: String::new() };
    assert_eq!(rig.item(&WatchItem::Skipped(skipped)), ItemVerdict::Nothing);
    assert_eq!(rig.reflector.last_version(), Some(&version("10")));
}

#[test]
fn synthetic_events_do_not_advance_the_version() {
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

// Deletions between two watches without a version would be missed.
#[test]
fn watch_without_a_version_is_followed_by_a_list() {
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
        assert_eq!(
            rig.waits(),
            Some((Duration::from_millis(800), WaitReason::ShortWatch)),
            "lists must not loop without a wait"
        );
        rig.list();
        rig.page(nowhere, None);
        rig.watch();
        rig.reflector.on_watch_end(Err(&error(ErrorClass::Transient)), 3, 2 * SECOND, rig.now);
        let (waited, _) = rig.waits().unwrap();
        assert!(waited >= Duration::from_millis(1600), "nor after a cut: {waited:?}");
        rig.list();
        rig.page(nowhere, None);
        rig.watch();
        rig.item(&bookmark("12", false));
        rig.watch_ends(1, SECOND);
        assert_eq!(rig.watch(), (since("12"), false), "the version of the bookmark");
    }
}

#[test]
fn bookmark_without_a_version_does_not_advance_the_version() {
    let mut rig = Rig::watching();
    rig.watch();
    assert_eq!(rig.item(&bookmark("", false)), ItemVerdict::Nothing);
    assert_eq!(rig.reflector.last_version(), Some(&version("10")));
    assert_eq!(
        rig.item(&WatchItem::Modified(object(""))),
        ItemVerdict::Apply,
        "neither does an object without a version"
    );
    assert_eq!(rig.reflector.last_version(), Some(&version("10")));
    let mut rig = Rig::streaming();
    rig.watch();
    assert_eq!(rig.item(&bookmark("", true)), ItemVerdict::InitialEventsEnd(version("")));
    rig.watch_ends(1, 60 * SECOND);
    assert_eq!(rig.watch(), (MostRecent, true), "the list is complete, and another one follows");
}

// A watch from a lower version repeats events. The store ignores them: see its test `store_ignores_stale_watch_events`.
#[test]
fn decreasing_version_is_followed() {
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

// kubernetes#86430: only a refused list goes to etcd.
#[test]
fn expired_watch_relists_at_last_version_after_backoff() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_fails(ErrorClass::Expired);
    assert!(rig.waits().is_some());
    assert_eq!(rig.list().0, since("10"));
}

#[test]
fn watch_with_too_large_version_relists_at_most_recent() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_fails(ErrorClass::TooLarge);
    assert!(rig.waits().is_some());
    assert_eq!(rig.list().0, MostRecent);
}

// Better than client-go (TestRetryInternalError; complaint kubernetes#129683).
#[test]
fn broken_watch_reopens_a_few_times_before_a_relist() {
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
fn working_watch_resets_broken_watches() {
    let mut rig = Rig::watching();
    for _ in 0..50 {
        rig.watch();
        rig.reflector.on_watch_end(Err(&error(ErrorClass::Transient)), 5, 2 * SECOND, rig.now);
        rig.waits();
        assert_eq!(rig.watch(), (since("10"), false));
    }
}

// Regression test: each cut of a working watch once doubled the wait, up to a minute. client-go does not wait.
#[test]
fn cut_of_working_watch_never_lengthens_the_wait() {
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
    // Without events the watch may be faulty, but is reopened soon as well.
    assert!(cut(&mut rig, 0, SECOND) < 2 * REOPEN);
    // A watch that had events and ended within a second is also reopened soon, but only twice in a row. The third
    // counts as an outage.
    assert!(cut(&mut rig, 5, SECOND / 2) < 2 * REOPEN);
    assert!(cut(&mut rig, 5, SECOND / 2) < 2 * REOPEN);
    let first = Duration::from_millis(800);
    let waited = cut(&mut rig, 5, SECOND / 2);
    assert!(waited >= first && waited < 2 * first, "{waited:?}");
    assert!(cut(&mut rig, 0, Duration::ZERO) >= 2 * first);
}

// client-go: TestReflectorReplacesStoreOnUnsafeDelete, for the error class of such a status.
#[test]
fn malformed_bytes_relist_after_backoff() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_fails(ErrorClass::Malformed);
    assert!(rig.waits().is_some());
    assert_eq!(rig.list().0, since("10"));
}

#[test]
fn forbidden_watch_is_retried_without_a_relist() {
    let mut rig = Rig::watching();
    for (class, millis) in [(ErrorClass::Forbidden, 800), (ErrorClass::Unauthorized, 1600)] {
        rig.watch();
        rig.watch_fails(class);
        assert_eq!(rig.waits(), Some((Duration::from_millis(millis), WaitReason::Failure(class))));
        assert_eq!(rig.watch(), (since("10"), false));
    }
}

#[test]
fn missing_resource_is_listed_again_after_backoff() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_fails(ErrorClass::NotFound);
    assert_eq!(rig.waits().unwrap().0, Duration::from_millis(800));
    assert_eq!(rig.list().0, since("10"));
}
