//! Tests of the state machine, with a simulated clock and RNG. Comments name the equivalent tests of client-go.

use std::sync::Arc;

use super::ends::{MAX_BAD_WATCHES, MAX_BROKEN_STREAMS, STREAMING_BAN};
use super::*;
use crate::Skipped;
use crate::VersionMatch::MostRecent;
use informer_hub_types::{Labels, ObjectKey, StoredObject, StoredObjectParts, Uid, clock};

#[path = "machine_bounds_tests.rs"]
mod bounds;
#[path = "machine_check_tests.rs"]
mod check;
#[path = "machine_list_tests.rs"]
mod list;
#[path = "machine_progress_tests.rs"]
mod progress;
#[path = "machine_stream_tests.rs"]
mod stream;
#[path = "machine_watch_tests.rs"]
mod watch;

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

/// A reflector with a clock that advances over waits and an RNG that always returns zero.
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

    /// Returns a reflector whose list is complete at version 10 and whose watch is not open yet.
    fn watching() -> Self {
        let mut rig = Self::listing();
        rig.list();
        assert_eq!(rig.page("10", None), PageVerdict::ListComplete(version("10")));
        rig
    }

    fn step(&mut self) -> Step {
        self.reflector.next(self.now)
    }

    /// If the next step is a wait, advances the clock to its end. Returns its length and its reason.
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

    /// If the next step is a check, reports a server version that is newer than all other versions in the tests.
    fn pass_check(&mut self) {
        if let Step::Check = self.step() {
            self.reflector.on_checked(&Ok(Some(version("1000"))), self.now);
        }
    }

    /// If the next step is a check, passes it. Then expects a watch, and returns the requested version and whether
    /// initial events are requested.
    fn watch(&mut self) -> (VersionMatch, bool) {
        self.pass_check();
        match self.step() {
            Step::Watch { request } => (request.version, request.initial_events),
            other => panic!("expected a watch, not {other:?}"),
        }
    }

    /// Reports a complete page of 500 items, with the version `at` and the continue token `token`. Returns the verdict.
    fn page(&mut self, at: &str, token: Option<&str>) -> PageVerdict {
        self.page_of(500, at, token)
    }

    fn page_of(&mut self, items: usize, at: &str, token: Option<&str>) -> PageVerdict {
        self.reflector.on_list_items(items, Duration::ZERO).unwrap();
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

    fn watch_fails_after_asking(&mut self, class: ErrorClass) {
        self.watch();
        self.watch_fails(class);
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
