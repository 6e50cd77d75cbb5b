//! client-go's rules of DeltaFIFO (`delta_fifo_test.go`, named at each), and where this queue differs.

use crate::cache::DeltaFifo;
use crate::cache::testing::{change, popped_lines, push_all};

/// Far from its bound.
fn roomy() -> DeltaFifo {
    DeltaFifo::new(1 << 20)
}

/// Crowded as soon as anything waits.
fn crowded() -> DeltaFifo {
    DeltaFifo::new(0)
}

fn drain(fifo: &mut DeltaFifo) -> Vec<String> {
    let mut all = Vec::new();
    while !fifo.is_empty() {
        all.extend(popped_lines(&fifo.pop(usize::MAX)));
    }
    assert_eq!((fifo.bytes(), fifo.len(), fifo.is_full()), (0, 0, false), "nothing waits, so nothing counts");
    all
}

fn through(mut fifo: DeltaFifo, script: &str) -> Vec<String> {
    push_all(&mut fifo, script);
    drain(&mut fifo)
}

#[test]
fn all_deltas_of_a_key_come_out_together_in_their_order() {
    // TestDeltaFIFO_addUpdate, TestDeltaFIFO_basic
    assert_eq!(through(roomy(), "+a@1 +b@2 ~a@3 -a@4"), ["+a@1 ~a@3 -a@4", "+b@2"]);
}

#[test]
fn a_key_that_is_added_again_keeps_its_place_in_line() {
    // TestDeltaFIFO_detectLineJumpers
    let mut fifo = roomy();
    push_all(&mut fifo, "+a@1 +b@2 +c@3 ~a@4");
    assert_eq!(popped_lines(&fifo.pop(1)), ["+a@1 ~a@4"]);
    push_all(&mut fifo, "~a@5 ~b@6");
    assert_eq!(popped_lines(&fifo.pop(2)), ["+b@2 ~b@6", "+c@3"]);
    assert_eq!(drain(&mut fifo), ["~a@5"]);
}

#[test]
fn of_two_deletions_in_a_row_the_first_stays() {
    // dedupDeltas (D3)
    assert_eq!(through(roomy(), "-a@1 -a@2 -a@3"), ["-a@1"]);
    assert_eq!(through(roomy(), "-a@1 +a:v@2 -a:v@3"), ["-a@1 +a:v@2 -a:v@3"]);
    assert_eq!(through(roomy(), "-a@1 -a:v@2"), ["-a@1 -a:v@2"], "of another object");
}

#[test]
fn a_list_after_a_queued_deletion_still_brings_the_object() {
    // TestDeltaFIFO_replaceWithDeleteDeltaIn
    assert_eq!(through(roomy(), "-a@1 [ *a:v@2 ]3"), ["-a@1 *a:v@2", "]3 a"]);
    assert_eq!(through(crowded(), "-a@1 [ *a:v@2 ]3"), ["-a@1 *a:v@2", "]3 a"]);
}

#[test]
fn a_listed_object_follows_what_waits_for_its_key() {
    // TestDeltaFIFO_addReplace, TestDeltaFIFO_ReplaceDeltaType
    assert_eq!(through(roomy(), "+a@1 [ *a@2 ]3"), ["+a@1 *a@2", "]3 a"]);
}

#[test]
fn a_deletion_is_kept_whether_or_not_the_key_is_queued() {
    // TestDeltaFIFO_DeleteExistingNonPropagated; the store drops what it does not know
    // (TestDeltaFIFO_enqueueingNoLister).
    assert_eq!(through(roomy(), "-a@1"), ["-a@1"]);
}

#[test]
fn a_resync_repeats_a_key_that_is_not_queued() {
    // TestDeltaFIFO_Resync
    assert_eq!(through(roomy(), "+a@1 =b@1"), ["+a@1", "=b@1"]);
}

#[test]
fn a_resync_says_nothing_of_a_key_that_is_queued() {
    // TestDeltaFIFO_UpdateResyncRace
    assert_eq!(through(roomy(), "~a@2 =a@1"), ["~a@2"]);
    assert_eq!(through(roomy(), "-a@2 =a@1"), ["-a@2"]);
    assert_eq!(through(roomy(), "=a@1 =a@1"), ["=a@1"]);
    assert_eq!(through(roomy(), "=a@1 -a@2"), ["=a@1 -a@2"]);
}

#[test]
fn a_list_ends_with_the_keys_that_it_named() {
    // TestDeltaFIFO_ReplaceMakesDeletions, and _ReplaceMakesDeletionsForObjectsOnlyInQueue: what is queued and not
    // named is swept like everything else, behind the queue.
    assert_eq!(through(roomy(), "+a@1 [ *b@2 &c ]3"), ["+a@1", "*b@2", "]3 b c"]);
}

#[test]
fn an_empty_list_ends_too() {
    // TestDeltaFIFO_HasSynced: Replace with nothing
    assert_eq!(through(roomy(), "[ ]3"), ["]3"]);
}

#[test]
fn a_list_that_begins_again_forgets_what_the_unfinished_one_named() {
    assert_eq!(through(roomy(), "[ *a@1 &b [ *c@2 ]3"), ["*a@1", "*c@2", "]3 c"]);
}

#[test]
fn a_streaming_list_takes_back_what_it_named_before_it_was_deleted() {
    assert_eq!(through(roomy(), "[ *a@1 *b@2 -a@3 ]4"), ["*a@1 -a@3", "*b@2", "]4 b"]);
    assert_eq!(through(roomy(), "[ *a@1 -a@2 *a:v@3 ]4"), ["*a@1 -a@2 *a:v@3", "]4 a"]);
}

#[test]
fn what_a_watch_adds_while_a_list_is_under_way_is_not_swept_by_it() {
    assert_eq!(through(roomy(), "[ *a@1 +b@2 ]3"), ["*a@1", "+b@2", "]3 a b"]);
}

#[test]
fn what_comes_to_be_after_a_list_is_not_swept_by_it_from_an_older_place_in_line() {
    // `b` stands in line before the end that does not name it.
    assert_eq!(through(roomy(), "-b@1 [ *a@2 ]3 +b:v@4"), ["-b@1 +b:v@4", "*a@2", "]3 a b"]);
    assert_eq!(through(roomy(), "-b@1 [ *a@2 ]3 [ ]4 ~b:v@5"), ["-b@1 ~b:v@5", "*a@2", "]3 a b", "]4 b"]);
}

#[test]
fn what_a_second_list_names_is_not_swept_by_the_first_from_an_older_place_in_line() {
    assert_eq!(through(roomy(), "-b@1 [ ]2 [ *b:v@3 ]4"), ["-b@1 *b:v@3", "]2 b", "]4 b"]);
}

#[test]
fn a_deletion_or_a_resync_saves_nothing_from_a_list() {
    assert_eq!(through(roomy(), "[ ]2 =b@1"), ["]2", "=b@1"]);
    assert_eq!(through(roomy(), "[ ]2 -b@3"), ["]2", "-b@3"]);
}

#[test]
fn an_end_closes_a_batch() {
    let mut fifo = roomy();
    push_all(&mut fifo, "[ *a@1 ]2 +b@3");
    assert_eq!(popped_lines(&fifo.pop(10)), ["*a@1", "]2 a b"]);
    assert_eq!(popped_lines(&fifo.pop(10)), ["+b@3"]);
    assert!(fifo.pop(10).is_empty());
}

#[test]
fn a_batch_is_no_larger_than_asked_for() {
    let mut fifo = roomy();
    push_all(&mut fifo, "+a@1 +b@2 +c@3");
    assert_eq!((fifo.pop(0).len(), fifo.pop(2).len(), fifo.len()), (0, 2, 1));
}

#[test]
fn states_merge_only_while_the_queue_is_crowded() {
    assert_eq!(through(crowded(), "+a@1 ~a@2 ~a@3"), ["~a@3"]);
    let mut fifo = DeltaFifo::new(1000);
    push_all(&mut fifo, "+a@1 ~a@2");
    assert_eq!(fifo.coalesced(), 0);
    push_all(&mut fifo, "+b@3 ~a@4 ~a@5");
    assert!(fifo.bytes() > 500 && fifo.coalesced() > 0, "{fifo:?}");
    assert_eq!(drain(&mut fifo), ["+a@1 ~a@5", "+b@3"]);
}

#[test]
fn a_merged_state_still_speaks_for_the_list() {
    // After a restore of etcd the list's version may be behind the store's, and so may what follows it.
    assert_eq!(through(crowded(), "[ *a@5 ]5 ~a@6"), ["*a@6", "]5 a"]);
    assert_eq!(through(crowded(), "~a@9 [ *a@5 ]5"), ["*a@5", "]5 a"]);
}

#[test]
fn a_stale_state_of_a_watch_does_not_replace_a_newer_one() {
    assert_eq!(through(crowded(), "~a@9 ~a@5"), ["~a@9"]);
    assert_eq!(through(crowded(), "[ *a@9 ]9 +a@5"), ["*a@9", "]9 a"]);
}

#[test]
fn crowding_never_merges_across_a_deletion_or_a_successor() {
    assert_eq!(through(crowded(), "~a@1 -a@2 +a:v@3 ~a:v@4"), ["~a@1 -a@2 ~a:v@4"]);
    assert_eq!(through(crowded(), "~a@1 ~a:v@2"), ["~a@1 ~a:v@2"]);
    assert_eq!(through(crowded(), "~a@1 -a@2"), ["~a@1 -a@2"]);
}

#[test]
fn crowding_drops_a_successor_that_came_and_went() {
    let mut fifo = crowded();
    push_all(&mut fifo, "-a@1 +a:v@2 -a:v@3 +a:w@4 -a:w@5 -a:w@6");
    assert_eq!(fifo.coalesced(), 4);
    assert_eq!(drain(&mut fifo), ["-a@1 -a:w@6"]);
}

#[test]
fn the_bound_is_of_bytes_and_merging_keeps_one_key_below_it() {
    let mut fifo = DeltaFifo::new(2000);
    for version in 1..10_000 {
        fifo.push(change(&format!("~a@{version}")));
        assert!(!fifo.is_full(), "one key never fills the queue");
    }
    let mut keys = 0;
    while !fifo.is_full() {
        keys += 1;
        fifo.push(change(&format!("+b{keys}@1")));
        assert!(keys < 20, "each object costs more than a hundred bytes, however small it is");
    }
    assert!(fifo.bytes() < 2000 + 400, "{}", fifo.bytes());
    fifo.pop(3);
    drain(&mut fifo);
}

#[test]
fn lists_that_wait_are_bounded_though_they_repeat_the_same_keys() {
    let mut fifo = roomy();
    push_all(&mut fifo, "[ *a@1 ]1 [ *a@1 ]2");
    assert!(!fifo.is_full());
    push_all(&mut fifo, "[ *a@1 ]3");
    assert!(fifo.is_full());
    fifo.pop(2);
    assert!(!fifo.is_full());
    drain(&mut fifo);
}
