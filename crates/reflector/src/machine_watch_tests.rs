//! Watches: where they start, how they end, and what follows.

use super::*;

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

// client-go: TestWatchTimeout. It raises a shorter minimum to five minutes.
#[test]
fn minimum_of_a_watch_timeout_can_be_set() {
    for minimum in [30 * 60, 1] {
        for dice in [0.0, 0.999] {
            let options = ReflectorOptions { min_watch_timeout: minimum * SECOND, ..ReflectorOptions::default() };
            let Step::Watch { request } = Reflector::new(options, move || dice).next(clock::now()) else { panic!() };
            assert!(request.timeout >= minimum * SECOND && request.timeout < 2 * minimum * SECOND, "{request:?}");
        }
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

// The store drops what the watch then repeats: `store_ignores_stale_watch_events`.
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

// client-go: TestReflectorReplacesStoreOnUnsafeDelete, for the error class of such a status.
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
