//! Tests of list requests and list failures.

use super::*;

// client-go: TestReflectorListAndWatch.
#[test]
fn first_list_is_at_any_version_and_watch_starts_at_its_version() {
    let mut rig = Rig::listing();
    assert_eq!(rig.list(), (any(), Some(500), None, true));
    assert_eq!(rig.page("10", None), PageVerdict::ListComplete(version("10")));
    assert_eq!(rig.watch(), (since("10"), false));
    assert_eq!(rig.reflector.last_version(), Some(&version("10")));
}

// client-go: TestReflectorResyncWithResourceVersion, TestReflectorNotPaginatingNotConsistentReads.
#[test]
fn relist_is_not_older_than_seen_and_is_unpaged() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.reflector.relist();
    assert_eq!(rig.list(), (since("10"), None, None, true));
}

// client-go: TestReflectorPaginatingNonConsistentReadsIfWatchCacheDisabled.
#[test]
fn later_lists_are_paged_if_first_one_was() {
    let mut rig = Rig::listing();
    rig.list();
    assert_eq!(rig.page("10", Some("p2")), PageVerdict::NextPage);
    assert_eq!(rig.list(), (any(), Some(500), Some("p2".to_owned()), false));
    assert_eq!(rig.page("10", Some("p3")), PageVerdict::NextPage);
    assert_eq!(rig.page("10", None), PageVerdict::ListComplete(version("10")));
    rig.reflector.relist();
    assert_eq!(rig.list(), (since("10"), Some(500), None, true));
}

// client-go: TestReflectorWatchListPageSize.
#[test]
fn configured_page_size_applies_to_every_list() {
    let mut rig =
        Rig::new(ReflectorOptions { streaming_list: false, page_size: Some(4), ..ReflectorOptions::default() });
    assert_eq!(rig.list().1, Some(4));
    rig.page("10", None);
    rig.reflector.relist();
    assert_eq!(rig.list(), (since("10"), Some(4), None, true));
    for token in ["c1", "c2"] {
        assert_eq!(rig.page("10", Some(token)), PageVerdict::NextPage);
        let (_, limit, continue_token, fresh) = rig.list();
        assert_eq!((limit, continue_token.as_deref(), fresh), (Some(4), Some(token), false));
    }
    assert_eq!(rig.page("10", None), PageVerdict::ListComplete(version("10")));
}

#[test]
fn watch_starts_at_version_of_first_page() {
    let mut rig = Rig::listing();
    rig.list();
    rig.page("10", Some("p2"));
    assert_eq!(rig.page("12", None), PageVerdict::ListComplete(version("10")));
}

// client-go: TestReflectorFullListIfExpired.
#[test]
fn expired_continue_token_leads_to_unpaged_list_at_same_version() {
    let mut rig = Rig::listing();
    rig.list();
    rig.page("10", Some("p2"));
    rig.list_fails(ErrorClass::Expired);
    assert_eq!(rig.list(), (any(), None, None, true));
    assert_eq!(rig.page("12", None), PageVerdict::ListComplete(version("12")), "the incomplete list is void");
    assert_eq!(rig.watch(), (since("12"), false));
}

// client-go: TestReflectorFullListIfExpired, whose second list is the one that expires.
#[test]
fn relist_with_expired_second_page_is_repeated_unpaged() {
    let mut rig =
        Rig::new(ReflectorOptions { streaming_list: false, page_size: Some(4), ..ReflectorOptions::default() });
    assert_eq!(rig.list(), (any(), Some(4), None, true));
    rig.page("10", None);
    rig.reflector.relist();
    assert_eq!(rig.list(), (since("10"), Some(4), None, true));
    assert_eq!(rig.page("11", Some("c1")), PageVerdict::NextPage);
    assert_eq!(rig.list().2.as_deref(), Some("c1"));
    rig.list_fails(ErrorClass::Expired);
    assert_eq!(rig.list(), (since("10"), None, None, true));
    assert_eq!(rig.page("11", None), PageVerdict::ListComplete(version("11")));
}

// client-go: TestReflectorExpiredExactResourceVersion, TestReflectorFullListIfTooLarge.
#[test]
fn unavailable_version_is_replaced_by_most_recent_at_once() {
    for class in [ErrorClass::Expired, ErrorClass::TooLarge] {
        let mut rig = Rig::watching();
        rig.reflector.relist();
        assert_eq!(rig.list().0, since("10"));
        rig.list_fails(class);
        assert_eq!(rig.list(), (MostRecent, Some(500), None, true), "{class:?}");
        // Refused again: a backoff follows.
        rig.list_fails(class);
        assert!(rig.waits().is_some());
        assert_eq!(rig.list().0, MostRecent);
        rig.page("20", None);
        rig.reflector.relist();
        assert_eq!(rig.list().0, since("20"), "success clears the flag");
    }
}

#[test]
fn failed_page_is_repeated_three_times_then_list_starts_over() {
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
fn broken_first_page_restarts_the_list() {
    let mut rig = Rig::listing();
    rig.list();
    rig.list_fails(ErrorClass::Transient);
    rig.waits();
    assert!(rig.list().3);
}

// 800 ms, doubling, capped at 30 s.
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
fn version_expired_by_outage_is_relisted_after_first_backoff() {
    let mut rig = Rig::watching();
    for _ in 0..6 {
        rig.watch();
        rig.watch_fails(ErrorClass::Refused);
        rig.waits();
    }
    rig.watch();
    rig.watch_fails(ErrorClass::Expired);
    assert_eq!(rig.waits().unwrap().0, Duration::from_millis(800));
    // If it expires again after that list, the backoff applies.
    rig.list();
    rig.list_fails(ErrorClass::Expired);
    rig.list_fails(ErrorClass::Expired);
    assert!(rig.waits().unwrap().0 > Duration::from_millis(800));
}

#[test]
fn forbidden_list_is_retried_slowly_with_visible_reason() {
    for class in [ErrorClass::Unauthorized, ErrorClass::Forbidden, ErrorClass::NotFound] {
        let mut rig = Rig::listing();
        for millis in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            rig.list_fails_after_asking(class);
            assert_eq!(rig.waits(), Some((Duration::from_millis(millis), WaitReason::Failure(class))));
        }
    }
}

#[test]
fn slow_retry_cap_is_configurable() {
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
