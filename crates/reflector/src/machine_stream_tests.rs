//! Tests of streaming lists, and of servers without them.

use super::*;

// client-go: TestWatchList "bookmark syncs", TestReflectorListAndWatch.
#[test]
fn streaming_list_completes_at_bookmark_and_continues_as_watch() {
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

// client-go: TestWatchList "annotation false ignored".
#[test]
fn bookmark_without_annotation_does_not_end_initial_events() {
    let mut rig = Rig::streaming();
    rig.watch();
    assert_eq!(rig.item(&bookmark("15", false)), ItemVerdict::Nothing);
    assert_eq!(rig.reflector.last_version(), None);
    assert_eq!(rig.item(&added("3")), ItemVerdict::Initial);
}

// Better than client-go, which waits for ever (k9s#4186).
#[test]
fn stalled_initial_events_fall_back_to_plain_list_at_once() {
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
    assert_eq!(rig.reflector.deadline(), deadline, "MODIFIED is not progress");
    let error = rig.reflector.stall_error();
    assert_eq!(error.class, ErrorClass::StreamingUnsupported);
    rig.reflector.on_watch_end(Err(&error), 3, 60 * SECOND, rig.now);
    assert_eq!(rig.list(), (since("9"), None, None, true));
}

// Unlike client-go, the reflector remembers that streaming is unsupported.
#[test]
fn unsupported_streaming_is_remembered_for_an_hour() {
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

// client-go: TestWatchList "429 retried (3 watches, 0 lists)".
#[test]
fn throttled_or_refused_stream_is_retried_as_stream() {
    let mut rig = Rig::streaming();
    for class in [ErrorClass::Throttled(None), ErrorClass::Refused, ErrorClass::Throttled(Some(SECOND))] {
        assert_eq!(rig.watch(), (MostRecent, true));
        rig.watch_fails(class);
        assert!(rig.waits().is_some());
    }
    assert_eq!(rig.watch(), (MostRecent, true));
}

// client-go: TestWatchList "stream stopped before bookmark -> new watch-list". Here the number of attempts is bounded.
#[test]
fn stream_without_bookmark_is_tried_twice() {
    let mut rig = Rig::streaming();
    for _ in 0..MAX_BROKEN_STREAMS {
        assert_eq!(rig.watch(), (MostRecent, true));
        rig.watch_ends(4, 2 * SECOND);
        assert!(rig.waits().is_some());
    }
    assert_eq!(rig.list().0, any());
}

#[test]
fn streaming_relist_at_expired_version_is_repeated_at_most_recent() {
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
fn forbidden_stream_falls_back_to_plain_list() {
    let mut rig = Rig::streaming();
    rig.watch();
    rig.watch_fails(ErrorClass::Forbidden);
    assert_eq!(rig.list().0, any());
}
