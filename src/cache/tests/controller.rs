//! Tests of the controller: the rules of client-go's controller (`controller_test.go`, cited at each test), and the
//! differences.

use crate::testing::{Informer, change, lines};
use crate::{Applied, Controller, DeltaFifo, Outbox, ProcessError, Progress};
use informer_hub_types::StoredObject;

fn push(controller: &mut Controller, script: &str) {
    script.split_whitespace().for_each(|step| controller.push(change(step)));
}

/// Processes one batch. Returns its effects and the result.
fn next(controller: &mut Controller, max: usize, answer: Answer) -> (Vec<String>, &'static str) {
    let mut effects = Vec::new();
    let progress = controller.process_next(max, &mut |outbox| {
        effects.extend(lines(&outbox.applied));
        answer.give()
    });
    (effects, name(&progress))
}

#[derive(Clone, Copy)]
enum Answer {
    Fine,
    Again,
    Never,
}

impl Answer {
    fn give(self) -> Result<(), ProcessError> {
        match self {
            Self::Fine => Ok(()),
            Self::Again => Err(ProcessError::Requeue),
            Self::Never => Err(ProcessError::Failed("no use".into())),
        }
    }
}

fn name(progress: &Progress) -> &'static str {
    match progress {
        Progress::Processed => "processed",
        Progress::Dropped(error) if error.to_string() == "no use" => "dropped",
        Progress::Dropped(_) => "dropped for something else",
        Progress::Requeued => "requeued",
        Progress::Idle => "idle",
        Progress::Closed => "closed",
        Progress::Abandoned => "abandoned",
    }
}

fn outcome(lines: &[&str], became: &'static str) -> (Vec<String>, &'static str) {
    (lines.iter().map(ToString::to_string).collect(), became)
}

#[test]
fn controller_applies_a_batch_before_processing_it() {
    // TestUpdate, TestReplaceEvents: the store is up to date when a callback runs.
    let mut informer = Informer::new();
    push(&mut informer.controller, "+a@1 ~a@2 +b@3");
    let published = std::sync::Arc::clone(informer.controller.store().published());
    let mut seen = 0;
    let progress = informer.controller.process_next(9, &mut |outbox| {
        assert_eq!(lines(&outbox.applied), ["+a@1", "a@1>2", "+b@3"]);
        seen = published.load().partition(informer.id).unwrap().len();
        Ok(())
    });
    assert_eq!((name(&progress), seen), ("processed", 2));
}

#[test]
fn controller_batch_is_limited_and_ends_with_a_list() {
    // TestRealFIFO_PopMultipleDeltaInBatch: batch size, and the boundary of the initial list.
    let controller = &mut Informer::new().controller;
    push(controller, "[ *a@1 *b@2 ]2 +c@3");
    assert_eq!(next(controller, 1, Answer::Fine), outcome(&["+a@1"], "processed"));
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&["+b@2", "synced"], "processed"));
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&["+c@3"], "processed"));
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&[], "idle"));
}

#[test]
fn unlisted_queued_object_is_deleted_once_in_its_newest_state() {
    // TestDeltaFIFOW_ReplaceMakesDeletionsForObjectsOnlyInQueue, TestRealFIFOW_..., case by case. RealFIFO deletes
    // before the listed objects, DeltaFIFO after them, as here.
    for (script, expected) in [
        ("+a@1 [ *b@2 ]2", &["+a@1", "+b@2", "†a@1", "synced"][..]),
        ("[ *a@1 ]1 [ ]2", &["+a@1", "synced", "†a@1"]),
        ("+a@1 [ *a@1 ]1 [ ]2", &["+a@1", "synced", "†a@1"]),
        ("+a@1 [ *a@1 ]1 [ *a@1 ]2 [ ]3", &["+a@1", "synced", "†a@1"]),
        ("[ *a@1 ]1 -a@2 [ ]3", &["+a@1", "synced", "-a@2"]),
        ("[ *a@1 ]1 =a@1 [ ]2", &["+a@1", "synced", "†a@1"]),
        ("+a@1 [ ]2 [ ]3", &["+a@1", "†a@1", "synced"]),
        ("+a@1 -a@2 +a:v@3 [ ]4", &["+a@1", "-a@2", "+a@3", "†a@3", "synced"]),
        ("+a@1 ~a@2 [ ]3", &["+a@1", "a@1>2", "†a@2", "synced"]),
    ] {
        assert_eq!(lines(&Informer::new().apply(script).applied), expected, "{script}");
    }
}

#[test]
fn unlisted_stored_object_is_deleted_after_the_listed_ones() {
    // TestDeltaFIFO_ReplaceMakesDeletions, TestReplaceEvents (which has the deletions first)
    let mut informer = Informer::new();
    informer.apply("[ *a@1 *b@1 *c@1 ]1");
    let outbox = informer.apply("[ *b@2 *c@1 *d@3 ]3");
    assert_eq!(lines(&outbox.applied), ["b@1>2", "+d@3", "†a@1"], "no effect for unchanged objects");
}

/// Sorts lines, to ignore their order.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn relist_deletes_missing_objects_in_the_newest_known_state() {
    // TestDeltaFIFO_ReplaceMakesDeletions, ..._ReplaceMakesDeletionsReplaced and those of RealFIFO, case by case.
    let stored = "[ *foo@5 *bar@6 *baz@7 ]7";
    for (before, script, expected) in [
        (stored, "-baz@10 [ *foo@5 ]11", &["-baz@10", "†bar@6"][..]),
        (stored, "-baz@10 [ *foo@8 ]11", &["-baz@10", "foo@5>8", "†bar@6"]),
        (stored, "~baz@10 [ *foo@5 ]11", &["baz@7>10", "†bar@6", "†baz@10"]),
        (stored, "-bar@6 +bar:v@100 [ *foo@5 ]101", &["+bar@100", "-bar@6", "†bar@100", "†baz@7"]),
        (stored, "[ *bar@100 *foo@5 ]100 [ *foo@5 ]101", &["bar@6>100", "†bar@100", "†baz@7"]),
        ("[ ]7", "+baz@10 [ *foo@5 ]11", &["+baz@10", "+foo@5", "†baz@10"]),
    ] {
        let mut informer = Informer::new();
        informer.apply(before);
        assert_eq!(sorted(lines(&informer.apply(script).applied)), expected, "{script}");
        assert!(informer.contents().starts_with("foo@") && !informer.contents().contains(' '), "{script}");
    }
}

#[test]
fn store_has_every_change_of_a_relist_when_the_change_is_notified() {
    // TestReplaceEvents
    for (before, script, expected) in [
        ("[ ]0", "[ *p1@1 ]1", &["+p1@1"][..]),
        ("[ *p1@1 *p3@2 ]2", "[ ]2", &["†p1@1", "†p3@2"]),
        ("[ *p1@1 *p2@2 *p3@3 ]3", "[ *p1@4 *p2@5 *p4@6 ]6", &["+p4@6", "p1@1>4", "p2@2>5", "†p3@3"]),
    ] {
        let mut informer = Informer::new();
        informer.apply(before);
        let (id, published) = (informer.id, std::sync::Arc::clone(informer.controller.store().published()));
        push(&mut informer.controller, script);
        let mut effects = Vec::new();
        let end = informer.controller.process_all(&mut |outbox| {
            let snapshot = published.load();
            let stored = |object: &StoredObject| snapshot.partition(id).unwrap().get(object.key()).cloned();
            for applied in &*outbox.applied {
                match applied {
                    Applied::Added(new) | Applied::Updated { new, .. } => {
                        assert_eq!(stored(new).unwrap().resource_version(), new.resource_version(), "{script}");
                    }
                    Applied::Deleted { last, .. } => assert!(stored(last).is_none(), "{script}"),
                    other => panic!("{script}: {other:?}"),
                }
            }
            effects.extend(lines(&outbox.applied));
            Ok(())
        });
        assert_eq!((name(&end), sorted(effects)), ("idle", expected.iter().map(ToString::to_string).collect()));
    }
}

#[test]
fn only_effects_on_the_store_are_notified() {
    // TestProcessDeltasInBatch: none fails, all do, the second of two, the second of three.
    for (batch, expected) in
        [("+a@1", &["+a@1"][..]), ("-x@1", &[]), ("+a@1 ~b@4", &["+a@1"]), ("+a@1 -x@2 +c@3", &["+a@1", "+c@3"])]
    {
        let informer = &mut Informer::new();
        informer.apply("+b@5");
        push(&mut informer.controller, batch);
        assert_eq!(next(&mut informer.controller, 9, Answer::Fine), outcome(expected, "processed"), "{batch}");
        assert_eq!(informer.controller.dropped(), 0);
    }
}

#[test]
fn controller_has_synced_only_after_deletions_of_the_first_list() {
    // TestDeltaFIFO_HasSyncedCorrectOnDeletion, TestRealFIFO_HasSyncedCorrectOnDeletion: the store has objects already.
    let mut informer = Informer::new();
    informer.apply("+foo@5 +bar@6 +baz@7");
    informer.turn_to(informer.id);
    let controller = &mut informer.controller;
    push(controller, "[ *foo@5 ]8");
    assert_eq!(next(controller, 1, Answer::Fine), outcome(&["+foo@5", "+bar@6", "+baz@7"], "processed"), "once more");
    assert!(!controller.has_synced());
    assert_eq!(next(controller, 1, Answer::Fine), outcome(&[], "processed"), "it repeats foo");
    assert!(!controller.has_synced());
    assert_eq!(next(controller, 1, Answer::Again), outcome(&["†bar@6", "†baz@7", "synced"], "requeued"));
    assert!(!controller.has_synced());
    assert_eq!(next(controller, 1, Answer::Fine), outcome(&["†bar@6", "†baz@7", "synced"], "processed"));
    assert!(controller.has_synced());
}

#[test]
fn controller_has_synced_only_after_processing_the_first_list() {
    // client-go's RealFIFO, too, has synced only after the processing.
    let controller = &mut Informer::new().controller;
    push(controller, "[ *a@1 ]1");
    assert_eq!(next(controller, 1, Answer::Fine).1, "processed");
    assert!(!controller.has_synced());
    assert_eq!(next(controller, 1, Answer::Again).1, "requeued");
    assert!(!controller.has_synced(), "it has not been processed");
    assert_eq!(next(controller, 1, Answer::Fine), outcome(&["synced"], "processed"));
    assert!(controller.has_synced());
    push(controller, "[ ]2");
    assert_eq!(next(controller, 9, Answer::Again).1, "requeued");
    assert!(controller.has_synced(), "it stays synced");
}

#[test]
fn dropped_first_list_counts_as_synced() {
    let controller = &mut Informer::new().controller;
    push(controller, "[ ]1");
    assert_eq!(next(controller, 9, Answer::Never), outcome(&["synced"], "dropped"));
    assert!(controller.has_synced());
}

#[test]
fn requeued_batch_is_in_the_store_and_is_processed_first() {
    // client-go's ErrRequeue (until 1.33) put the deltas at the end and applied them twice.
    let informer = &mut Informer::new();
    push(&mut informer.controller, "+a@1 +b@2");
    assert_eq!(next(&mut informer.controller, 1, Answer::Again), outcome(&["+a@1"], "requeued"));
    assert_eq!(informer.contents(), "a@1");
    push(&mut informer.controller, "~a@3");
    assert_eq!(next(&mut informer.controller, 9, Answer::Again), outcome(&["+a@1"], "requeued"));
    assert_eq!((informer.contents().as_str(), informer.controller.fifo().len()), ("a@1", 2));
    assert_eq!(next(&mut informer.controller, 9, Answer::Fine), outcome(&["+a@1"], "processed"));
    assert_eq!(next(&mut informer.controller, 9, Answer::Fine), outcome(&["+b@2", "a@1>3"], "processed"));
    assert_eq!(informer.controller.dropped(), 0);
}

#[test]
fn failed_batch_is_dropped_counted_and_in_the_store() {
    // client-go's processLoop ignores every error except that the queue is closed.
    let informer = &mut Informer::new();
    push(&mut informer.controller, "+a@1");
    assert_eq!(next(&mut informer.controller, 9, Answer::Never), outcome(&["+a@1"], "dropped"));
    assert_eq!(next(&mut informer.controller, 9, Answer::Fine), outcome(&[], "idle"));
    assert_eq!((informer.contents().as_str(), informer.controller.dropped()), ("a@1", 1));
}

#[test]
fn process_all_continues_after_a_drop_and_stops_at_a_requeue() {
    let controller = &mut Informer::new().controller;
    push(controller, "[ *a@1 ]1 [ *a@1 *b@2 ]2 +c@3");
    let mut answers = [Answer::Never, Answer::Again, Answer::Fine, Answer::Fine].into_iter();
    let mut processed: Vec<u64> = Vec::new();
    let mut process = |outbox: &Outbox| {
        processed.push(outbox.number);
        answers.next().unwrap().give()
    };
    assert_eq!(name(&controller.process_all(&mut process)), "requeued");
    assert_eq!(name(&controller.process_all(&mut process)), "idle");
    assert_eq!(processed, [1, 2, 2, 3]);
    assert_eq!(controller.dropped(), 1);
}

#[test]
fn closed_controller_processes_queued_changes() {
    // In client-go, the end of the context closes the queue, and Pop reports this once the queue is empty.
    let controller = &mut Informer::new().controller;
    push(controller, "+a@1 +b@2");
    controller.close();
    push(controller, "+c@3");
    assert_eq!(next(controller, 1, Answer::Fine).1, "processed");
    assert_eq!(name(&controller.process_all(&mut |_| Ok(()))), "closed");
    assert_eq!((controller.fifo().refused(), controller.partition().unwrap().len()), (1, 2));
}

#[test]
fn closed_controller_processes_a_requeued_batch() {
    let controller = &mut Informer::new().controller;
    push(controller, "+a@1");
    assert_eq!(next(controller, 9, Answer::Again).1, "requeued");
    controller.close();
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&["+a@1"], "processed"));
    assert_eq!(next(controller, 9, Answer::Fine).1, "closed");
}

#[test]
fn closed_partition_leaves_the_queue_unchanged() {
    let informer = &mut Informer::new();
    push(&mut informer.controller, "+a@1");
    informer.controller.store_mut().close(informer.id);
    assert_eq!(next(&mut informer.controller, 9, Answer::Fine), outcome(&[], "abandoned"));
    assert_eq!((informer.controller.fifo().len(), informer.controller.partition().is_none()), (1, true));
}

#[test]
fn new_controller_processes_the_last_batch_of_its_predecessor() {
    let mut informer = Informer::new();
    push(&mut informer.controller, "[ *a@1 ]1");
    assert_eq!(next(&mut informer.controller, 9, Answer::Again).1, "requeued");
    informer.turn_to(informer.id);
    let controller = &mut informer.controller;
    assert_eq!(controller.id(), informer.id);
    push(controller, "+b@2");
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&["+a@1", "synced"], "processed"));
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&["+b@2"], "processed"));
    assert!(controller.has_synced(), "its own queue started with a watch event");
}

#[test]
fn new_controller_syncs_with_its_own_list() {
    let mut informer = Informer::new();
    informer.apply("[ *a@1 ]1");
    informer.turn_to(informer.id);
    let controller = &mut informer.controller;
    push(controller, "[ *a@1 ]2");
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&["+a@1", "synced"], "processed"), "once more");
    assert!(!controller.has_synced());
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&[], "processed"), "nothing changed");
    assert!(controller.has_synced());
}

#[test]
fn panic_in_process_propagates_and_the_batch_is_processed_again() {
    // TestPanicPropagated. client-go's process ends then. A caller that catches the panic here must not miss changes.
    let mut informer = Informer::new();
    push(&mut informer.controller, "[ *a@1 ]1");
    for time in ["first", "once more"] {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = informer.controller.process_next(9, &mut |_| panic!("a handler's"));
        }));
        assert!(outcome.is_err(), "{time}");
        assert_eq!(informer.contents(), "a@1", "{time}");
        assert!(!informer.controller.has_synced(), "{time}");
    }
    push(&mut informer.controller, "+b@2");
    let controller = &mut informer.controller;
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&["+a@1", "synced"], "processed"));
    assert!(controller.has_synced());
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&["+b@2"], "processed"));
    assert_eq!((next(controller, 9, Answer::Fine), controller.dropped()), (outcome(&[], "idle"), 0));
}

#[test]
fn empty_controller_is_idle() {
    let controller = &mut Informer::with_limit(0).controller;
    assert_eq!(next(controller, 9, Answer::Fine), outcome(&[], "idle"));
    assert!(!controller.has_synced() && !DeltaFifo::new(0).has_synced());
}
