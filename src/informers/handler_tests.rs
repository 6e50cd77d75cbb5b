//! Tests of the event handlers, and a property test of the filter.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::cache::testing::{object_with, origin};

fn object(name: &str, version: u64, app: &str) -> Object {
    Object::new(origin("c"), Arc::new(object_with("ns", name, "u", version, &[("app", app)], &[])))
}

fn text(object: &Object) -> String {
    format!("{}@{}", object.name(), object.resource_version())
}

/// Records calls as text. For object `a` with resource version 1: `+a@1` added, `!a@1` added as initial, `a@1>2`
/// updated to version 2, `-a@1` deleted, `†a@1` deleted with a tombstone.
#[derive(Clone, Default, Debug)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl ResourceEventHandler for Recorder {
    fn on_add(&mut self, object: &Object, initial: bool) {
        self.note(format!("{}{}", if initial { '!' } else { '+' }, text(object)));
    }

    fn on_update(&mut self, old: &Object, new: &Object) {
        self.note(format!("{}>{}", text(old), new.resource_version()));
    }

    fn on_delete(&mut self, object: &Object, tombstone: bool) {
        self.note(format!("{}{}", if tombstone { '†' } else { '-' }, text(object)));
    }
}

/// Returns one notification of each kind.
fn all_kinds() -> Vec<Notification> {
    vec![
        Notification::Added { object: object("a", 1, "web"), initial: true },
        Notification::Synced(origin("c")),
        Notification::Added { object: object("b", 2, "web"), initial: false },
        Notification::Updated { old: object("a", 1, "web"), new: object("a", 3, "web"), resync: false },
        Notification::Updated { old: object("a", 3, "web"), new: object("a", 3, "web"), resync: true },
        Notification::Deleted { object: object("a", 4, "web"), tombstone: false },
        Notification::Deleted { object: object("b", 2, "web"), tombstone: true },
    ]
}

fn dispatch_all(handler: &mut dyn ResourceEventHandler, notifications: &[Notification]) {
    for notification in notifications {
        dispatch(handler, notification);
    }
}

#[test]
fn dispatch_calls_the_method_of_each_notification_and_none_for_synced() {
    let recorder = Recorder::default();
    dispatch_all(&mut recorder.clone(), &all_kinds());
    assert_eq!(recorder.calls(), ["!a@1", "+b@2", "a@1>3", "a@3>3", "-a@4", "†b@2"]);
}

#[test]
fn boxed_handler_is_a_handler() {
    let recorder = Recorder::default();
    let mut boxed: Box<dyn ResourceEventHandler> = Box::new(recorder.clone());
    dispatch_all(&mut boxed, &all_kinds());
    assert_eq!(recorder.calls(), ["!a@1", "+b@2", "a@1>3", "a@3>3", "-a@4", "†b@2"]);
}

#[test]
fn handler_funcs_ignore_events_without_a_closure() {
    dispatch_all(&mut ResourceEventHandlerFuncs::new(), &all_kinds());
    dispatch_all(&mut ResourceEventHandlerDetailedFuncs::default(), &all_kinds());
    let log = Recorder::default();
    let calls = |mut handler: ResourceEventHandlerFuncs| {
        dispatch_all(&mut handler, &all_kinds());
        log.calls()
    };
    let [add, update, delete] = [log.clone(), log.clone(), log.clone()];
    let funcs = ResourceEventHandlerFuncs::default;
    assert_eq!(calls(funcs().on_add(move |object| add.note(text(object)))), ["a@1", "b@2"]);
    let update = move |old: &Object, new: &Object| update.note(format!("{}>{}", text(old), text(new)));
    assert_eq!(calls(funcs().on_update(update)), ["a@1>a@3", "a@3>a@3"]);
    assert_eq!(calls(funcs().on_delete(move |object| delete.note(text(object)))), ["a@4", "b@2"]);
}

#[test]
fn detailed_funcs_receive_initial_and_tombstone_flags() {
    let log = Recorder::default();
    let [add, update, delete] = [log.clone(), log.clone(), log.clone()];
    let mut handler = ResourceEventHandlerDetailedFuncs::new()
        .on_add(move |object, initial| add.note(format!("+{} {initial}", text(object))))
        .on_update(move |old, new| update.note(format!("{}>{}", text(old), text(new))))
        .on_delete(move |object, tombstone| delete.note(format!("-{} {tombstone}", text(object))));
    dispatch_all(&mut handler, &all_kinds());
    assert_eq!(log.calls(), ["+a@1 true", "+b@2 false", "a@1>a@3", "a@3>a@3", "-a@4 false", "-b@2 true"]);
}

#[test]
fn handler_funcs_use_the_later_closure() {
    let log = Recorder::default();
    let late = log.clone();
    let mut handler =
        ResourceEventHandlerFuncs::new().on_add(|_| panic!("replaced")).on_add(move |object| late.note(text(object)));
    dispatch_all(&mut handler, &all_kinds());
    assert_eq!(log.calls(), ["a@1", "b@2"]);
}

#[test]
fn filter_turns_a_crossing_update_into_an_addition_or_deletion() {
    // client-go's FilteringResourceEventHandler.OnUpdate, all four cases.
    let recorder = Recorder::default();
    let web = |object: &Object| object.labels().get("app") == Some("web");
    let mut handler = FilteringResourceEventHandler::new(web, recorder.clone());
    let mut calls = |old: &str, new: &str| {
        handler.on_update(&object("a", 1, old), &object("a", 2, new));
        recorder.calls()
    };
    assert_eq!(calls("web", "web"), ["a@1>2"]);
    assert_eq!(calls("db", "web"), ["+a@2"]);
    assert_eq!(calls("web", "db"), ["-a@1"], "the last delivered state");
    assert_eq!(calls("db", "db"), [""; 0]);
}

#[test]
fn filter_passes_flags_and_checks_the_object_of_additions_and_deletions() {
    let recorder = Recorder::default();
    let web = |object: &Object| object.labels().get("app") == Some("web");
    let mut handler = FilteringResourceEventHandler::new(web, recorder.clone());
    for (app, flag) in [("web", true), ("web", false), ("db", true), ("db", false)] {
        handler.on_add(&object("a", 1, app), flag);
        handler.on_delete(&object("a", 2, app), flag);
    }
    assert_eq!(recorder.calls(), ["!a@1", "†a@2", "+a@1", "-a@2"]);
}

#[test]
fn filter_drops_a_deletion_whose_last_state_does_not_pass_as_client_go_does() {
    let recorder = Recorder::default();
    let web = |object: &Object| object.labels().get("app") == Some("web");
    let mut handler = FilteringResourceEventHandler::new(web, recorder.clone());
    handler.on_add(&object("a", 1, "web"), false);
    handler.on_delete(&object("a", 2, "db"), false);
    assert_eq!(recorder.calls(), ["+a@1"]);
}

#[test]
fn handler_debug_output_omits_closures() {
    let handler = FilteringResourceEventHandler::new(|_: &Object| true, ResourceEventHandlerFuncs::<Dynamic>::new());
    let shown = format!("{handler:?} {:?}", ResourceEventHandlerDetailedFuncs::<Dynamic>::new());
    assert_eq!(
        shown,
        "FilteringResourceEventHandler { handler: ResourceEventHandlerFuncs { .. }, .. } \
         ResourceEventHandlerDetailedFuncs { .. }"
    );
}

/// Tracks the known objects and panics on calls that contradict them.
#[derive(Clone, Default)]
struct ModelHandler(Arc<Mutex<BTreeMap<String, String>>>);

impl ResourceEventHandler for ModelHandler {
    fn on_add(&mut self, object: &Object, _initial: bool) {
        let known = self.0.lock().unwrap().insert(object.name().to_owned(), text(object));
        assert_eq!(known, None, "added twice");
    }

    fn on_update(&mut self, old: &Object, new: &Object) {
        let known = self.0.lock().unwrap().insert(new.name().to_owned(), text(new));
        assert_eq!(known, Some(text(old)), "updated from an unknown state");
    }

    fn on_delete(&mut self, object: &Object, _tombstone: bool) {
        assert!(self.0.lock().unwrap().remove(object.name()).is_some(), "deleted an unknown object");
    }
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn filtered_handler_knows_exactly_the_passing_objects(
        passing in prop::collection::vec(any::<bool>(), 4),
        steps in prop::collection::vec((0..5_usize, 0..4_usize, any::<bool>()), 0..60),
    ) {
        let verdict = |object: &Object| {
            let app: usize = object.labels().get("app").unwrap().parse().unwrap();
            passing[app]
        };
        let (model, of_filter) = (ModelHandler::default(), passing.clone());
        let filter = move |object: &Object| of_filter[object.labels().get("app").unwrap().parse::<usize>().unwrap()];
        let mut handler = FilteringResourceEventHandler::new(filter, model.clone());
        let mut world: BTreeMap<usize, Object> = BTreeMap::new();
        for (version, (name, app, gone)) in (1..).zip(steps) {
            let next = object(&format!("o{name}"), version, &app.to_string());
            let notification = match world.remove(&name) {
                // The deleted state is the stored one, so that the filter decides as it did before.
                Some(object) if gone => Notification::Deleted { object, tombstone: app == 0 },
                Some(old) => {
                    world.insert(name, next.clone());
                    Notification::Updated { old, new: next, resync: false }
                }
                None => {
                    world.insert(name, next.clone());
                    Notification::Added { object: next, initial: gone }
                }
            };
            dispatch(&mut handler, &notification);
            let passes: BTreeMap<_, _> =
                world.values().filter(|object| verdict(object)).map(|o| (o.name().to_owned(), text(o))).collect();
            prop_assert_eq!(&*model.0.lock().unwrap(), &passes);
        }
    }
}
