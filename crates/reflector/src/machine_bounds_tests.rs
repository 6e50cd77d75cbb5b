//! Tests of the reflector's exact deadlines, counters and bounds.

use super::*;

#[test]
fn quiet_watch_stalls_only_after_its_timeout() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.now += 5 * SECOND;
    rig.reflector.on_watch_opened(rig.now);
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 310 * SECOND));
    assert_eq!(rig.reflector.stall_error().class, ErrorClass::Stalled);
}

// === state of an earlier reflector ===

#[test]
fn successor_lists_nothing_older_than_predecessor_read() {
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

#[test]
fn list_is_not_older_than_delivered_version() {
    let mut rig = Rig::listing();
    rig.reflector.resume(version("9"));
    rig.reflector.resume_watch(version("5"));
    assert_eq!(rig.watch(), (since("5"), false));
    rig.reflector.relist();
    assert_eq!(rig.list().0, since("9"));
    rig.page("12", None);
    assert_eq!(rig.watch(), (since("12"), false));
    let mut rig = Rig::streaming();
    rig.reflector.resume(version("9"));
    rig.reflector.resume_watch(version("5"));
    rig.reflector.relist();
    assert_eq!(rig.watch(), (since("9"), true));
}

#[test]
fn broken_stream_resumes_at_its_newest_version() {
    let mut rig = Rig::streaming();
    rig.reflector.resume(version("5"));
    assert_eq!(rig.watch(), (since("5"), true));
    rig.reflector.on_watch_opened(rig.now);
    for item in [WatchItem::Added(object("7")), WatchItem::Modified(object("9")), WatchItem::Deleted(object("8"))] {
        assert_eq!(rig.reflector.on_watch_item(&item, rig.now), ItemVerdict::Initial);
    }
    rig.watch_fails(ErrorClass::Transient);
    rig.waits();
    assert_eq!(rig.watch(), (since("9"), true));
}

// === exact bounds ===

#[test]
fn refused_stream_at_most_recent_version_backs_off() {
    for class in [ErrorClass::Expired, ErrorClass::TooLarge] {
        let mut rig = Rig::streaming();
        assert_eq!(rig.watch(), (MostRecent, true));
        rig.watch_fails(class);
        assert_eq!(rig.waits(), Some((Duration::from_millis(800), WaitReason::Failure(class))));
        assert_eq!(rig.watch(), (MostRecent, true));
    }
}

#[test]
fn empty_watches_are_not_quick_ends() {
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
fn refused_first_list_is_repeated_at_most_recent_version_at_once() {
    let mut rig = Rig::listing();
    assert_eq!(rig.list().0, any());
    rig.list_fails(ErrorClass::TooLarge);
    assert_eq!(rig.list(), (MostRecent, Some(500), None, true));
    rig.list_fails(ErrorClass::TooLarge);
    assert_eq!(rig.waits(), Some((Duration::from_millis(800), WaitReason::Failure(ErrorClass::TooLarge))));
    // Pages of a list at the most recent version do not show that there is no watch cache.
    rig.list();
    rig.page("10", Some("p2"));
    rig.page("10", None);
    rig.reflector.relist();
    assert_eq!(rig.list(), (since("10"), None, None, true));
}

#[test]
fn jitter_adds_half_a_second_to_retry_after_and_doubles_backoff() {
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
fn wait_ends_exactly_at_its_deadline() {
    let mut rig = Rig::listing();
    rig.list_fails_after_asking(ErrorClass::Transient);
    let Step::Wait { until, .. } = rig.step() else { panic!("no wait") };
    rig.now = until - Duration::from_nanos(1);
    assert_eq!(rig.step(), Step::Wait { until, reason: WaitReason::Failure(ErrorClass::Transient) });
    rig.now = until;
    rig.list();
}

#[test]
fn deadline_follows_the_open_request() {
    let mut rig = Rig::listing();
    assert_eq!(rig.reflector.deadline(), None);
    rig.list();
    assert_eq!((rig.reflector.deadline(), rig.reflector.is_listing()), (None, true));
    rig.page("10", None);
    assert_eq!((rig.reflector.deadline(), rig.reflector.is_listing()), (Some(rig.now + 310 * SECOND), false));
    rig.now += SECOND;
    rig.item(&bookmark("11", false));
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 310 * SECOND), "each item extends it");
    rig.now += SECOND;
    rig.item(&WatchItem::Skipped(Skipped { key: None, version: None, reason: String::new() }));
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 310 * SECOND), "a skipped one too");
    let mut rig = Rig::streaming();
    rig.watch();
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 30 * SECOND));
    rig.now += SECOND;
    rig.item(&WatchItem::Skipped(Skipped { key: None, version: None, reason: String::new() }));
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 30 * SECOND), "a skipped object is progress");
    rig.now += SECOND;
    rig.item(&bookmark("15", true));
    assert_eq!(rig.reflector.deadline(), Some(rig.now + 310 * SECOND));
}

#[test]
fn streaming_ban_ends_exactly_after_an_hour() {
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
fn error_class_decides_streaming_ban() {
    // Banned after two.
    for class in [ErrorClass::Transient, ErrorClass::Stalled] {
        let mut rig = Rig::streaming();
        for _ in 0..MAX_BROKEN_STREAMS {
            rig.watch();
            rig.watch_fails(class);
            assert_eq!(rig.waits().unwrap().1, WaitReason::Failure(class));
        }
        assert_eq!(rig.list().0, any(), "{class:?}");
    }
    // Banned at once.
    let mut rig = Rig::streaming();
    rig.watch();
    rig.watch_fails(ErrorClass::Malformed);
    assert_eq!(rig.waits().unwrap().1, WaitReason::Failure(ErrorClass::Malformed));
    assert_eq!(rig.list().0, any());
    // Never banned.
    for class in [ErrorClass::Refused, ErrorClass::Unauthorized, ErrorClass::NotFound, ErrorClass::Throttled(None)] {
        let mut rig = Rig::streaming();
        for _ in 0..9 {
            assert_eq!(rig.watch(), (MostRecent, true), "{class:?}");
            rig.watch_fails(class);
            rig.waits();
        }
    }
    // A complete stream resets the count.
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
fn working_watch_resets_bad_watches() {
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
        rig.pass_check();
        assert_eq!(matches!(rig.step(), Step::Watch { .. }), well, "{events} events in {lasted:?}");
    }
}

#[test]
fn watch_of_a_second_reopens_at_once_but_shorter_empty_one_waits() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.watch_ends(0, SECOND);
    assert_eq!(rig.waits(), None);
    rig.watch();
    rig.watch_ends(0, Duration::from_nanos(999_999_999));
    assert_eq!(rig.waits(), Some((Duration::from_millis(800), WaitReason::ShortWatch)));
}

#[test]
fn two_quick_ends_reopen_at_once_and_good_watch_resets_the_count() {
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
fn list_resets_bad_watches() {
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
fn refused_list_starts_over_at_its_first_page() {
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
fn empty_token_ends_list_and_page_resets_failures() {
    let mut rig = Rig::listing();
    rig.list();
    for token in ["p2", "p3", "p4", "p5"] {
        assert_eq!(rig.page("10", Some(token)), PageVerdict::NextPage);
        for _ in 0..2 {
            rig.list_fails(ErrorClass::Transient);
            rig.waits();
            assert_eq!(rig.list(), (any(), Some(500), Some(token.to_owned()), false));
        }
    }
    assert_eq!(rig.page("10", Some("")), PageVerdict::ListComplete(version("10")));
}

#[test]
fn next_is_idempotent() {
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
fn reports_out_of_order_are_tolerated() {
    let mut rig = Rig::listing();
    rig.watch_ends(0, Duration::ZERO);
    assert_eq!(rig.item(&added("3")), ItemVerdict::Nothing);
    rig.list_fails(ErrorClass::Expired);
    rig.waits();
    assert_eq!(rig.list().0, any());
}

proptest::proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn any_history_followed_by_success_leads_to_a_watch(script in proptest::collection::vec(0_u8..24, 0..60)) {
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
                (Step::Check, Some(class)) => {
                    rig.reflector.on_checked(&Err(error(class)), rig.now);
                    unhappy += 1;
                }
                (Step::Check, None) => {
                    rig.reflector.on_checked(&Ok(Some(version(&choice.to_string()))), rig.now);
                }
                (Step::List { .. }, None) => { rig.page("10", (choice % 2 == 0).then_some("t")); unhappy = 0; }
                (Step::Watch { .. }, None) => {
                    rig.item(&bookmark("12", choice % 2 == 0));
                    rig.watch_ends(u64::from(choice % 3), SECOND);
                    unhappy = 0;
                }
                (Step::Wait { .. }, _) => proptest::prop_assert!(false, "two waits in a row"),
            }
            proptest::prop_assert!(unhappy <= 4, "{unhappy} failures in a row without a wait");
        }
        rig.waits();
        rig.pass_check();
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
