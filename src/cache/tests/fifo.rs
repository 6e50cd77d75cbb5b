//! client-go's rules of DeltaFIFO (`delta_fifo_test.go`, `the_real_fifo_test.go`, named at each), and where this queue
//! differs.

use crate::cache::testing::{change, popped_lines, push_all};
use crate::cache::{DeltaFifo, Popped};
use informer_hub_types::{Deltas, ObjectKey};

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
fn crowded_queue_keeps_places_in_line_and_gives_out_the_newest_states() {
    // TestFIFO_detectLineJumpers
    let mut fifo = crowded();
    push_all(&mut fifo, "+a@10 +b@1 ~a@11 ~a@13 +c@30");
    assert_eq!(popped_lines(&fifo.pop(1)), ["~a@13"]);
    push_all(&mut fifo, "~a@14");
    assert_eq!(drain(&mut fifo), ["+b@1", "+c@30", "~a@14"]);
}

#[test]
fn two_producers_of_500_keys_each_come_out_in_their_order() {
    // TestDeltaFIFO_basic, TestRealFIFO_basic, TestFIFO_basic. The queue has one owner, so producers take turns.
    for mut fifo in [roomy(), crowded()] {
        let pushed: Vec<_> = (1..=500).flat_map(|at| [format!("+a{at}@{at}"), format!("+b{at}@{at}")]).collect();
        for step in &pushed {
            fifo.push(change(step));
        }
        assert_eq!(drain(&mut fifo), pushed);
    }
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
    assert_eq!(through(roomy(), "+a@5 -a@6"), ["+a@5 -a@6"]);
}

#[test]
fn a_resync_repeats_a_key_that_is_not_queued() {
    // TestDeltaFIFO_Resync
    assert_eq!(through(roomy(), "+a@1 =b@1"), ["+a@1", "=b@1"]);
}

#[test]
fn a_resync_says_nothing_of_a_key_that_is_queued() {
    // TestDeltaFIFO_UpdateResyncRace, TestDeltaFIFO_ResyncNonExisting, and those of RealFIFO
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
fn a_batch_ends_with_the_key_that_passes_its_bytes() {
    let mut fifo = roomy();
    push_all(&mut fifo, "+a@1 +b@2 +c@3 +d@4 -d@5");
    let all = fifo.bytes();
    let one = {
        let mut fifo = roomy();
        push_all(&mut fifo, "+a@1");
        fifo.bytes()
    };
    assert!(fifo.pop_within(9, 0).is_empty());
    assert_eq!(popped_lines(&fifo.pop_within(9, 1)), ["+a@1"], "however large it is");
    assert_eq!(popped_lines(&fifo.pop_within(9, one + 1)), ["+b@2", "+c@3"]);
    assert_eq!(fifo.bytes(), all - 3 * one);
    assert_eq!(popped_lines(&fifo.pop_within(9, one)), ["+d@4 -d@5"]);
    assert_eq!((fifo.bytes(), fifo.len()), (0, 0));
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

#[test]
fn entries_come_in_the_order_of_their_keys_arrival_whatever_kinds_they_are() {
    // client-go's RealFIFO keeps every event in the order of arrival (F1); here a key has one place in line.
    assert_eq!(through(roomy(), "+b@1 +a@2 -b@3 *c@4 ~a@5 =d@1"), ["+b@1 -b@3", "+a@2 ~a@5", "*c@4", "=d@1"]);
}

#[test]
fn what_a_list_sweeps_goes_after_what_it_names() {
    // RealFIFO's Replace puts deletions first (F2), DeltaFIFO's last (D5); here they are the end's, so last.
    assert_eq!(through(roomy(), "+gone@1 [ *a@2 ]3"), ["+gone@1", "*a@2", "]3 a"]);
}

#[test]
fn an_object_that_a_list_names_twice_is_one_entry() {
    // the_real_fifo_test.go counts duplicates in Replace twice; a list in pages may repeat one.
    assert_eq!(through(roomy(), "[ *a@1 *a@1 ]1"), ["*a@1 *a@1", "]1 a"]);
}

// === synced ===

#[test]
fn a_queue_has_synced_when_the_first_lists_end_is_out() {
    // TestDeltaFIFO_HasSynced, TestRealFIFO_HasSynced. There an empty Replace syncs at once, and a list with its last
    // object; here with its end, since nobody knows before that which object is the last.
    let synced_after = |mut fifo: DeltaFifo, script: &str, pops: usize| {
        push_all(&mut fifo, script);
        for _ in 0..pops {
            assert_eq!(fifo.pop(1).len(), 1);
        }
        fifo.has_synced()
    };
    for (script, pops, synced) in [
        ("", 0, false),
        ("[", 0, false),
        ("&a", 0, false),
        ("[ ]1", 0, false),
        ("[ ]1", 1, true),
        ("[ *a@1 *b@2 ]2", 0, false),
        ("[ *a@1 *b@2 ]2", 2, false),
        ("[ *a@1 *b@2 ]2", 3, true),
        ("[ *a@1 [ *a@1 ]2", 1, false),
        ("[ *a@1 [ *a@1 ]2", 2, true),
        ("[ *a@1 ]2 ~b@3", 2, true),
        ("[ ]1 +a@2 [", 1, true),
        ("[ ]1 [ *a@2 ]2", 1, true),
    ] {
        for fifo in [roomy(), crowded()] {
            assert_eq!(synced_after(fifo, script, pops), synced, "{script:?}, {pops} taken out");
        }
    }
}

#[test]
fn a_queue_that_began_without_a_list_has_nothing_to_wait_for() {
    // TestDeltaFIFO_HasSynced: Add, and Delete, before any Replace.
    for script in ["+a@1", "~a@1", "-a@1", "*a@1", "+a@1 [ *b@2 ]3"] {
        for mut fifo in [roomy(), crowded()] {
            push_all(&mut fifo, script);
            assert!(fifo.has_synced(), "{script}");
        }
    }
    let mut fifo = roomy();
    push_all(&mut fifo, "=a@1");
    assert!(!fifo.has_synced(), "a resync is no beginning");
    push_all(&mut fifo, "[ ]2");
    assert!(!fifo.has_synced());
}

#[test]
fn deletions_of_the_first_list_are_out_when_it_has_synced() {
    // TestDeltaFIFO_HasSyncedCorrectOnDeletion counts them one by one; here they come with the end.
    let mut fifo = roomy();
    push_all(&mut fifo, "[ *a@1 ]1");
    assert_eq!(popped_lines(&fifo.pop(1)), ["*a@1"]);
    assert!(!fifo.has_synced());
    assert_eq!(popped_lines(&fifo.pop(1)), ["]1 a"]);
    assert!(fifo.has_synced());
}

// === closed ===

#[test]
fn a_closed_queue_gives_out_what_is_in_line_and_takes_nothing_in() {
    // TestDeltaFIFO_PopShouldUnblockWhenClosed. What comes after Close is taken in by client-go's queues and given up
    // by its workqueue (Q1); here it is given up, or a drain might never end.
    let mut fifo = roomy();
    push_all(&mut fifo, "[ *a@1");
    assert!(!fifo.is_closed() && !fifo.is_drained());
    fifo.close();
    push_all(&mut fifo, "~a@2 +b@3 ]3 [");
    assert_eq!((fifo.refused(), fifo.len(), fifo.is_closed(), fifo.is_drained()), (4, 1, true, false));
    assert_eq!(popped_lines(&fifo.pop(9)), ["*a@1"]);
    assert!(fifo.is_closed() && fifo.is_drained() && !fifo.has_synced());
    assert!(fifo.pop(9).is_empty());
}

#[test]
fn what_is_dealt_with_when_a_queue_closes_can_be_put_back() {
    let mut fifo = roomy();
    push_all(&mut fifo, "+a@1");
    let batch = fifo.pop(1);
    fifo.close();
    assert!(fifo.is_drained());
    put_back(&mut fifo, batch);
    assert!(!fifo.is_drained());
    assert_eq!((drain(&mut fifo), fifo.refused()), (vec!["+a@1".to_owned()], 0));
}

#[test]
fn an_open_queue_that_is_empty_is_not_drained() {
    assert!(!roomy().is_drained() && !roomy().is_closed());
}

// === put back ===

/// The last one first, as `requeue` asks for.
fn put_back(fifo: &mut DeltaFifo, batch: Vec<Popped>) {
    for popped in batch.into_iter().rev() {
        fifo.requeue(popped);
        fifo.check();
    }
}

/// Takes `count` entries out while `meanwhile` arrives, and puts them back.
fn interrupted(mut fifo: DeltaFifo, before: &str, count: usize, meanwhile: &str) -> Vec<String> {
    push_all(&mut fifo, before);
    let batch: Vec<_> = (0..count).flat_map(|_| fifo.pop(1)).collect();
    assert_eq!(batch.len(), count);
    push_all(&mut fifo, meanwhile);
    fifo.check();
    put_back(&mut fifo, batch);
    drain(&mut fifo)
}

#[test]
fn what_is_put_back_stands_first() {
    // client-go's AddIfNotPresent (until 1.33) put it last.
    assert_eq!(interrupted(roomy(), "+a@1 +b@2", 1, "+c@3"), ["+a@1", "+b@2", "+c@3"]);
    assert_eq!(interrupted(roomy(), "+a@1 +b@2 +c@3", 2, ""), ["+a@1", "+b@2", "+c@3"]);
}

#[test]
fn what_came_for_a_key_meanwhile_follows_what_is_put_back_in_one_entry() {
    // AddIfNotPresent gave up what was put back.
    assert_eq!(interrupted(roomy(), "+a@1 +b@2", 1, "~a@3 -a@4"), ["+a@1 ~a@3 -a@4", "+b@2"]);
}

#[test]
fn deltas_of_a_key_that_is_put_back_collapse_as_if_it_had_stayed() {
    assert_eq!(interrupted(roomy(), "-a@1", 1, "-a@2"), ["-a@1"]);
    assert_eq!(interrupted(roomy(), "+a@1", 1, "=a@1"), ["+a@1"], "of a key in line a resync says nothing");
    assert_eq!(interrupted(roomy(), "=a@1", 1, "=a@1 ~a@2"), ["=a@1 ~a@2"]);
    assert_eq!(interrupted(crowded(), "+a@1", 1, "~a@2 ~a@3"), ["~a@3"]);
    assert_eq!(interrupted(crowded(), "-a@1", 1, "+a:v@2 -a:v@3"), ["-a@1"]);
    assert_eq!(interrupted(roomy(), "+a@1", 1, "~a@2"), ["+a@1 ~a@2"], "there is room for both");
}

#[test]
fn an_end_that_is_put_back_is_the_next_to_come_out_and_the_queue_has_not_synced() {
    let mut fifo = roomy();
    push_all(&mut fifo, "[ *a@1 ]1 +b@2");
    let batch = fifo.pop(9);
    assert!(fifo.has_synced());
    push_all(&mut fifo, "[ *b@3 ]3");
    put_back(&mut fifo, batch);
    assert!(!fifo.has_synced());
    assert_eq!(popped_lines(&fifo.pop(9)), ["*a@1", "]1 a b"]);
    assert!(fifo.has_synced());
    assert_eq!(drain(&mut fifo), ["+b@2 *b@3", "]3 b"]);
}

#[test]
fn an_end_of_a_later_list_that_is_put_back_does_not_undo_the_first() {
    let mut fifo = roomy();
    push_all(&mut fifo, "[ ]1 [ ]2");
    fifo.pop(1);
    let batch = fifo.pop(1);
    put_back(&mut fifo, batch);
    assert!(fifo.has_synced());
}

#[test]
fn what_overtakes_an_end_with_its_key_is_not_swept_by_it() {
    // `a` is deleted, and the list does not have it; then it comes again, and overtakes the list's end.
    assert_eq!(interrupted(roomy(), "-a@1 [ ]2", 2, "+a:v@3"), ["-a@1 +a:v@3", "]2 a"]);
    assert_eq!(interrupted(roomy(), "-a@1 [ ]2 [ ]3", 3, "+a:v@4"), ["-a@1 +a:v@4", "]2 a", "]3 a"]);
}

#[test]
fn what_is_put_back_is_swept_by_a_list_that_ends_later_and_does_not_name_it() {
    assert_eq!(interrupted(roomy(), "+a@1", 1, "[ ]2"), ["+a@1", "]2"]);
    assert_eq!(interrupted(roomy(), "+a@1", 1, "~a@2 [ ]3"), ["+a@1 ~a@2", "]3"], "its later deltas came before it");
    assert_eq!(interrupted(roomy(), "+a@1 [ ]2", 2, "-a@3"), ["+a@1 -a@3", "]2"], "a deletion saves nothing");
}

#[test]
fn putting_nothing_back_changes_nothing() {
    let mut fifo = roomy();
    fifo.requeue(Popped::Deltas(ObjectKey::new("ns", "a"), Deltas::new()));
    fifo.check();
    assert!(fifo.is_empty());
}

#[test]
fn what_is_put_back_counts_against_the_bound() {
    let mut fifo = DeltaFifo::new(300);
    push_all(&mut fifo, "+a@1 +b@2");
    let bytes = fifo.bytes();
    assert!(fifo.is_full());
    let batch = fifo.pop(1);
    assert!(fifo.bytes() < bytes && !fifo.is_full());
    put_back(&mut fifo, batch);
    assert_eq!((fifo.bytes(), fifo.is_full()), (bytes, true));
}

// === bounds, to the byte ===

/// What one small object counts.
fn one() -> usize {
    let mut fifo = roomy();
    push_all(&mut fifo, "+a@1");
    fifo.bytes()
}

#[test]
fn a_queue_at_its_bound_is_not_full_and_past_it_is() {
    let mut fifo = DeltaFifo::new(2 * one());
    push_all(&mut fifo, "+a@1 +b@2");
    assert_eq!((fifo.bytes(), fifo.is_full()), (2 * one(), false));
    push_all(&mut fifo, "+c@3");
    assert!(fifo.is_full());
}

#[test]
fn merging_begins_past_half_the_bound() {
    let mut fifo = DeltaFifo::new(4 * one());
    push_all(&mut fifo, "+a@1 ~a@2 ~a@3");
    assert_eq!((fifo.coalesced(), fifo.bytes()), (0, 3 * one()), "two waited, which is half, when the third came");
    push_all(&mut fifo, "~a@4");
    assert_eq!((fifo.coalesced(), fifo.bytes()), (1, 3 * one()));
    assert_eq!(drain(&mut fifo), ["+a@1 ~a@2 ~a@4"]);
}

#[test]
fn putting_back_merges_past_half_the_bound_too() {
    let put = |limit: usize| interrupted(DeltaFifo::new(limit), "+a@1", 1, "~a@2");
    assert_eq!(put(2 * one()), ["+a@1 ~a@2"]);
    assert_eq!(put(2 * one() - 2), ["~a@2"]);
}

#[test]
fn the_default_bound_is_thirty_two_mebibytes() {
    assert_eq!(DeltaFifo::DEFAULT_LIMIT, 33_554_432);
}
