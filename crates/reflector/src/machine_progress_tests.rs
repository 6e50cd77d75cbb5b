//! Tests of endless lists, and of waits that are cut short.

use super::*;
use crate::ListBounds;

fn given_up(verdict: PageVerdict) -> SourceError {
    match verdict {
        PageVerdict::GivenUp(error) => error,
        other => panic!("expected the list to be given up, not {other:?}"),
    }
}

#[test]
fn repeated_continue_token_ends_list_and_backs_off() {
    let mut rig = Rig::listing();
    for token in ["a", "b", "c"] {
        rig.list();
        assert_eq!(rig.page("10", Some(token)), PageVerdict::NextPage, "{token}");
    }
    rig.list();
    let error = given_up(rig.page("10", Some("b")));
    assert_eq!(error.message, "list: page 4 repeats an earlier continue token");
    rig.reflector.on_list_error(&error, rig.now);
    let (waited, _) = rig.waits().expect("a pause before the next list");
    assert_eq!(waited, Duration::from_millis(800));
    assert_eq!(rig.list(), (any(), Some(500), None, true), "a new list");
    assert_eq!(rig.page("10", Some("b")), PageVerdict::NextPage, "tokens of the previous list do not count");
}

#[test]
fn empty_pages_are_requested_ever_slower_then_end_the_list() {
    let mut rig = Rig::listing();
    let begun = rig.now;
    for page in 1..ListBounds::default().empty_pages {
        rig.list();
        assert_eq!(rig.page_of(0, "10", Some(&format!("t{page}"))), PageVerdict::NextPage);
        assert_eq!(rig.waits().expect("a pause").1, WaitReason::ThinPage);
    }
    assert_eq!(rig.now - begun, Duration::from_millis(100 + 200 + 400 + 800 + 1600 + 10 * 2000));
    rig.list();
    let error = given_up(rig.page_of(0, "10", Some("one more")));
    assert_eq!(error.message, "list: 16 empty pages in a row");
}

#[test]
fn repeated_page_counts_its_items_once() {
    let mut rig = Rig::listing();
    rig.list();
    rig.page("10", Some("p2"));
    rig.list();
    rig.reflector.on_list_items(1, SECOND).unwrap();
    rig.list_fails(ErrorClass::Transient);
    rig.waits();
    assert_eq!(rig.list().2.as_deref(), Some("p2"));
    assert_eq!(rig.page_of(0, "10", Some("p3")), PageVerdict::NextPage);
    assert_eq!(rig.waits(), Some((Duration::from_millis(100), WaitReason::ThinPage)), "the repeated page is empty");
}

#[test]
fn endless_list_is_bounded_in_items_and_time() {
    let list = ListBounds { items: 100, time: 60 * SECOND, ..ListBounds::default() };
    let mut rig = Rig::new(ReflectorOptions { streaming_list: false, list, ..ReflectorOptions::default() });
    rig.list();
    rig.reflector.on_list_items(100, 60 * SECOND).unwrap();
    assert!(rig.reflector.on_list_items(1, Duration::ZERO).is_err());
    rig.reflector.on_list_error(&error(ErrorClass::Malformed), rig.now);
    rig.waits();
    rig.list();
    rig.reflector.on_list_items(100, 30 * SECOND).unwrap();
    assert!(rig.reflector.on_list_items(0, 31 * SECOND).is_err());
}

// client-go reads such a stream as long as the server keeps it open.
#[test]
fn endless_initial_events_end_at_timeout_or_item_bound() {
    let list = ListBounds { items: 100, ..ListBounds::default() };
    let mut rig = Rig::new(ReflectorOptions { list, ..ReflectorOptions::default() });
    rig.watch();
    rig.reflector.on_watch_opened(rig.now);
    let due = rig.now + 310 * SECOND;
    while rig.now < due {
        assert_eq!(rig.reflector.overrun_error(rig.now), None);
        rig.item(&added("3"));
        assert!(rig.reflector.deadline() <= Some(due), "an object does not extend the watch timeout");
        rig.now += 20 * SECOND;
    }
    let given_up = rig.reflector.overrun_error(rig.now).expect("an end");
    assert_eq!(given_up.class, ErrorClass::StreamingUnsupported);
    rig.reflector.on_watch_end(Err(&given_up), 15, 320 * SECOND, rig.now);
    assert!(rig.list().3, "the plain list follows");

    let mut rig = Rig::new(ReflectorOptions { list, ..ReflectorOptions::default() });
    rig.watch();
    rig.reflector.on_watch_opened(rig.now);
    for _ in 0..100 {
        rig.item(&added("3"));
    }
    assert_eq!(rig.reflector.overrun_error(rig.now), None);
    rig.item(&added("3"));
    assert!(rig.reflector.overrun_error(rig.now).is_some(), "the server sends without a pause");
    rig.item(&bookmark("15", true));
    assert_eq!(rig.reflector.overrun_error(rig.now), None, "the initial events have ended");
}

// === waits that are cut short ===

/// Opens a watch this many times. Each time, the connection is refused and the wait for the next attempt passes.
fn fail_to_reach(rig: &mut Rig, failures: usize) {
    for _ in 0..failures {
        rig.watch();
        rig.watch_fails(ErrorClass::Refused);
        rig.waits();
    }
}

#[test]
fn wait_for_unreachable_cluster_is_cut_short() {
    for class in [ErrorClass::Refused, ErrorClass::Transient, ErrorClass::Stalled] {
        let mut rig = Rig::watching();
        fail_to_reach(&mut rig, 4);
        rig.watch_fails_after_asking(class);
        rig.reflector.hurry(rig.now);
        assert_eq!(rig.waits().map(|(waited, _)| waited), None, "{class:?}: the RNG returns zero");
        assert_eq!(rig.watch().0, since("10"));
    }
}

#[test]
fn wait_after_answer_is_not_cut_short() {
    for class in [
        ErrorClass::Throttled(Some(20 * SECOND)),
        ErrorClass::Throttled(None),
        ErrorClass::Forbidden,
        ErrorClass::Unauthorized,
        ErrorClass::NotFound,
        ErrorClass::Malformed,
    ] {
        let mut rig = Rig::watching();
        rig.watch_fails_after_asking(class);
        let Step::Wait { until, .. } = rig.step() else { panic!("{class:?} is waited for") };
        rig.reflector.hurry(rig.now);
        assert!(matches!(rig.step(), Step::Wait { until: still, .. } if still == until), "{class:?}");
    }
}

#[test]
fn early_retries_at_most_double_the_request_rate() {
    let mut rig = Rig::listing();
    for _ in 0..3 {
        rig.list_fails_after_asking(ErrorClass::Transient);
        rig.waits();
    }
    let mut waits = Vec::new();
    for _ in 0..6 {
        rig.list_fails_after_asking(ErrorClass::Transient);
        rig.reflector.hurry(rig.now);
        waits.push(rig.waits().map_or(0, |(waited, _)| waited.as_secs()));
    }
    assert_eq!(waits, [0, 12, 0, 30, 0, 30]);
    // A watch that lasts a second permits an early retry again.
    rig.list();
    rig.page("10", None);
    rig.watch();
    rig.watch_ends(0, 2 * SECOND);
    rig.watch_fails_after_asking(ErrorClass::Refused);
    rig.reflector.hurry(rig.now);
    assert_eq!(rig.waits(), None);
}

// client-go: TestNewReflectorWithCustomBackoff.
#[test]
fn backoff_of_options_is_used() {
    let millis = Duration::from_millis;
    let backoff = crate::Backoff::new(millis(10), millis(40));
    let mut rig = Rig::new(ReflectorOptions { streaming_list: false, backoff, ..ReflectorOptions::default() });
    let waits = [(); 4].map(|()| {
        rig.list_fails_after_asking(ErrorClass::Refused);
        rig.waits().map(|(waited, _)| waited)
    });
    assert_eq!(waits, [10, 20, 40, 40].map(|wait| Some(millis(wait))));
}
