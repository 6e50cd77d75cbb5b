//! Tests of the check of a server's version before a watch is reopened.

use super::*;

impl Rig {
    /// Asserts that the next step is a check, and reports `current` as the server's version or error.
    fn check(&mut self, current: Result<&str, ErrorClass>) {
        assert_eq!(self.step(), Step::Check);
        let current = current.map(version).map(Some).map_err(error);
        self.reflector.on_checked(&current, self.now);
    }

    fn broken(class: ErrorClass) -> Self {
        let mut rig = Self::watching();
        rig.watch();
        rig.reflector.on_watch_opened(rig.now);
        rig.reflector.on_watch_end(Err(&error(class)), 3, SECOND * 90, rig.now);
        rig.waits();
        rig
    }
}

#[test]
fn server_that_went_back_is_listed_at_its_own_version() {
    for class in [ErrorClass::Transient, ErrorClass::Stalled, ErrorClass::Refused] {
        let mut rig = Rig::broken(class);
        assert!(!rig.reflector.is_listing(), "the cache is as complete as before");
        rig.check(Ok("9"));
        assert_eq!(rig.list().0, MostRecent, "{class:?}");
        rig.page("9", None);
        assert_eq!(rig.watch(), (since("9"), false));
    }
}

#[test]
fn server_that_went_on_is_watched_from_the_known_version() {
    for current in ["10", "11", "", "0", "unordered"] {
        let mut rig = Rig::broken(ErrorClass::Transient);
        rig.check(Ok(current));
        assert!(matches!(rig.step(), Step::Watch { .. }), "at {current:?}");
    }
}

#[test]
fn watch_that_the_server_ended_or_refused_is_reopened_without_a_check() {
    let mut rig = Rig::watching();
    rig.watch();
    rig.reflector.on_watch_opened(rig.now);
    rig.watch_ends(1, SECOND * 300);
    assert!(matches!(rig.step(), Step::Watch { .. }));
    let mut rig = Rig::broken(ErrorClass::Throttled(None));
    assert!(matches!(rig.step(), Step::Watch { .. }));
}

#[test]
fn watch_that_was_denied_is_reopened_with_a_check() {
    for class in [ErrorClass::Unauthorized, ErrorClass::Forbidden] {
        // A restored server denies the check, then the watch.
        let mut rig = Rig::broken(ErrorClass::Transient);
        rig.check(Err(class));
        assert!(matches!(rig.step(), Step::Watch { .. }));
        rig.reflector.on_watch_end(Err(&error(class)), 0, Duration::ZERO, rig.now);
        rig.waits();
        rig.check(Ok("9"));
        assert_eq!(rig.list().0, MostRecent, "{class:?}");
    }
}

#[test]
fn saved_state_is_checked() {
    let mut rig = Rig::streaming();
    rig.reflector.resume_watch(version("10"));
    rig.check(Ok("9"));
    assert_eq!(rig.watch(), (MostRecent, true));
    // Here the earlier reflector had read up to version 12, but only version 10 was saved.
    let mut rig = Rig::listing();
    rig.reflector.resume(version("12"));
    rig.reflector.resume_watch(version("10"));
    rig.check(Ok("11"));
    assert_eq!(rig.list().0, MostRecent);
}

#[test]
fn no_watch_is_tried_while_connections_are_refused() {
    let mut rig = Rig::broken(ErrorClass::Transient);
    for _ in 0..3 {
        rig.check(Err(ErrorClass::Refused));
        assert_eq!(rig.waits().unwrap().1, WaitReason::Failure(ErrorClass::Refused));
    }
    rig.check(Ok("9"));
    assert_eq!(rig.list().0, MostRecent);
}

#[test]
fn server_without_its_etcd_is_watched_for_a_minute_and_checked_again() {
    for class in [ErrorClass::Transient, ErrorClass::Stalled, ErrorClass::Throttled(None)] {
        let mut rig = Rig::broken(ErrorClass::Transient);
        rig.check(Err(class));
        assert_eq!(rig.waits().unwrap().1, WaitReason::Failure(class));
        let Step::Watch { request } = rig.step() else { panic!("expected a watch") };
        assert_eq!(request.timeout, SECOND * 60);
        rig.reflector.on_watch_opened(rig.now);
        rig.watch_ends(1, SECOND * 60);
        rig.check(Ok("9"));
        assert_eq!(rig.list().0, MostRecent, "{class:?}");
    }
}

#[test]
fn user_who_may_not_list_still_watches() {
    for class in [ErrorClass::Forbidden, ErrorClass::Malformed, ErrorClass::Expired] {
        let mut rig = Rig::broken(ErrorClass::Transient);
        rig.check(Err(class));
        let Step::Watch { request } = rig.step() else { panic!("expected a watch") };
        assert_eq!(request.timeout, SECOND * 300, "{class:?}");
    }
}
