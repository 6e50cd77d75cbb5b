//! Tests of the delta fifo: the rules of client-go's DeltaFIFO (`delta_fifo_test.go`, `the_real_fifo_test.go`, cited at
//! each test), and the differences.

use crate::testing::{Informer, change, popped_lines, push_all};
use crate::{DeltaFifo, Popped};

/// Returns a queue far below its limit.
fn roomy() -> DeltaFifo {
    DeltaFifo::new(1 << 20)
}

/// Returns a queue that merges as soon as one delta is queued.
fn crowded() -> DeltaFifo {
    DeltaFifo::new(0)
}

fn drain(fifo: &mut DeltaFifo) -> Vec<String> {
    let mut all = Vec::new();
    while !fifo.is_empty() {
        all.extend(popped_lines(&fifo.pop(usize::MAX)));
    }
    assert_eq!((fifo.bytes(), fifo.len(), fifo.is_full()), (0, 0, false), "an empty queue counts no bytes");
    all
}

fn through(mut fifo: DeltaFifo, script: &str) -> Vec<String> {
    push_all(&mut fifo, script);
    drain(&mut fifo)
}

#[test]
fn fifo_pops_deltas_in_order_of_arrival() {
    // TestDeltaFIFO_addUpdate, TestDeltaFIFO_basic. DeltaFIFO pops all deltas of a key together; RealFIFO does not.
    assert_eq!(through(roomy(), "+a@1 +b@2 ~a@3 -a@4"), ["+a@1", "+b@2", "~a@3 -a@4"]);
    assert_eq!(through(roomy(), "+b@1 +a@2 -b@3 *c@4 ~a@5 =d@1"), ["+b@1", "+a@2", "-b@3", "*c@4", "~a@5", "=d@1"]);
}

#[test]
fn fifo_list_end_says_whether_its_versions_went_back() {
    let mut fifo = roomy();
    push_all(&mut fifo, "~a@9 [ *b@4 < ]5");
    let batch = fifo.pop(usize::MAX);
    assert!(matches!(batch.last(), Some(Popped::ReplaceEnd { rewound: true, .. })), "{batch:?}");
    // A list that starts over is not the one whose versions went back.
    push_all(&mut fifo, "[ < [ ]6");
    assert!(matches!(&fifo.pop(usize::MAX)[..], [Popped::ReplaceEnd { rewound: false, .. }]));
}

#[test]
fn later_deltas_of_a_key_do_not_overtake_other_keys() {
    // TestDeltaFIFO_detectLineJumpers
    let mut fifo = roomy();
    push_all(&mut fifo, "+a@1 +b@2 +c@3 ~a@4");
    assert_eq!(popped_lines(&fifo.pop(1)), ["+a@1"]);
    push_all(&mut fifo, "~a@5 ~b@6");
    assert_eq!(popped_lines(&fifo.pop(2)), ["+b@2", "+c@3"]);
    assert_eq!(drain(&mut fifo), ["~a@4 ~a@5", "~b@6"]);
}

#[test]
fn crowded_fifo_queues_a_merged_state_last() {
    // TestFIFO_detectLineJumpers keeps the first place. A state that is popped there would overtake other changes.
    assert_eq!(through(crowded(), "+a@10 +b@11 ~a@12 ~a@13 +c@30"), ["+b@11", "~a@13", "+c@30"]);
}

#[test]
fn listed_state_does_not_take_a_queued_one_of_its_version_behind_later_versions() {
    assert_eq!(through(crowded(), "+a@1 +b@2 [ *a@1 *b@2 ]2"), ["+a@1", "+b@2", "*a@1", "*b@2", "]2 a b"]);
    assert_eq!(through(crowded(), "+a@1 +b@2 [ *a@3 *b@2 ]3"), ["+b@2", "*a@3", "*b@2", "]3 a b"]);
    assert_eq!(through(crowded(), "~a@1 ~b@2 ~a@1"), ["~a@1", "~b@2"], "a watch adds nothing");
}

#[test]
fn crowded_fifo_keeps_the_last_state_of_an_object_without_versions() {
    assert_eq!(through(crowded(), "~a@ ~b@ ~a@"), ["~b@", "~a@"]);
}

#[test]
fn crowded_fifo_does_not_postpone_an_object_forever() {
    let mut fifo = crowded();
    push_all(&mut fifo, "+a@10 +b@11 ~a@12 +c@13");
    assert_eq!(popped_lines(&fifo.pop(1)), ["+b@11"]);
    push_all(&mut fifo, "~a@14 ~a@15 ~c@16");
    assert_eq!(popped_lines(&fifo.pop(1)), ["~a@12"], "the first pop has sealed it");
    push_all(&mut fifo, "~a@17 +d@18 ~c@19");
    assert_eq!(drain(&mut fifo), ["+c@13", "~a@17", "+d@18", "~c@19"], "later states merge");
}

#[test]
fn fifo_keeps_the_order_of_interleaved_producers() {
    // TestDeltaFIFO_basic, TestRealFIFO_basic, TestFIFO_basic. The queue has one owner, so the producers alternate.
    for mut fifo in [roomy(), crowded()] {
        let pushed: Vec<_> = (1..=500).flat_map(|at| [format!("+a{at}@{at}"), format!("+b{at}@{at}")]).collect();
        for step in &pushed {
            fifo.push(change(step));
        }
        assert_eq!(drain(&mut fifo), pushed);
    }
}

#[test]
fn fifo_keeps_the_first_of_two_deletions() {
    // dedupDeltas
    assert_eq!(through(roomy(), "-a@1 -a@2 -a@3"), ["-a@1"]);
    assert_eq!(through(roomy(), "-a@1 +a:v@2 -a:v@3"), ["-a@1 +a:v@2 -a:v@3"]);
    assert_eq!(through(roomy(), "-a@1 -a:v@2"), ["-a@1 -a:v@2"], "of another object");
}

#[test]
fn fifo_keeps_a_listed_object_after_a_queued_deletion() {
    // TestDeltaFIFO_replaceWithDeleteDeltaIn
    assert_eq!(through(roomy(), "-a@1 [ *a:v@2 ]3"), ["-a@1 *a:v@2", "]3 a"]);
    assert_eq!(through(crowded(), "-a@1 [ *a:v@2 ]3"), ["-a@1 *a:v@2", "]3 a"]);
}

#[test]
fn fifo_appends_a_listed_object_to_queued_deltas() {
    // TestDeltaFIFO_addReplace, TestDeltaFIFO_ReplaceDeltaType
    assert_eq!(through(roomy(), "+a@1 [ *a@2 ]3"), ["+a@1 *a@2", "]3 a"]);
}

#[test]
fn fifo_keeps_deletions_of_unknown_keys() {
    // TestDeltaFIFO_DeleteExistingNonPropagated; the store ignores unknown keys (TestDeltaFIFO_enqueueingNoLister).
    assert_eq!(through(roomy(), "-a@1"), ["-a@1"]);
    assert_eq!(through(roomy(), "+a@5 -a@6"), ["+a@5 -a@6"]);
}

#[test]
fn fifo_queues_a_resync_of_an_unqueued_key() {
    // TestDeltaFIFO_Resync
    assert_eq!(through(roomy(), "+a@1 =b@1"), ["+a@1", "=b@1"]);
}

#[test]
fn fifo_ignores_a_resync_of_a_queued_key() {
    // TestDeltaFIFO_UpdateResyncRace, TestDeltaFIFO_ResyncNonExisting, and those of RealFIFO
    assert_eq!(through(roomy(), "~a@2 =a@1"), ["~a@2"]);
    assert_eq!(through(roomy(), "-a@2 =a@1"), ["-a@2"]);
    assert_eq!(through(roomy(), "=a@1 =a@1"), ["=a@1"]);
    assert_eq!(through(roomy(), "=a@1 -a@2"), ["=a@1 -a@2"]);
}

#[test]
fn fifo_list_end_has_the_listed_keys() {
    // TestDeltaFIFO_ReplaceMakesDeletions and _ReplaceMakesDeletionsForObjectsOnlyInQueue: a queued object that is not
    // listed is deleted by the list end too.
    assert_eq!(through(roomy(), "+a@1 [ *b@2 &c ]3"), ["+a@1", "*b@2", "]3 b c"]);
}

#[test]
fn fifo_keeps_the_end_of_an_empty_list() {
    // TestDeltaFIFO_HasSynced: Replace with nothing
    assert_eq!(through(roomy(), "[ ]3"), ["]3"]);
}

#[test]
fn fifo_list_start_discards_an_unfinished_list() {
    assert_eq!(through(roomy(), "[ *a@1 &b [ *c@2 ]3"), ["*a@1", "*c@2", "]3 c"]);
}

#[test]
fn fifo_deletion_during_a_list_removes_the_listed_key() {
    assert_eq!(through(roomy(), "[ *a@1 *b@2 -a@3 ]4"), ["*a@1", "*b@2", "-a@3", "]4 b"]);
    assert_eq!(through(roomy(), "[ *a@1 -a@2 *a:v@3 ]4"), ["*a@1 -a@2 *a:v@3", "]4 a"]);
}

#[test]
fn fifo_list_end_keeps_keys_added_during_the_list() {
    assert_eq!(through(roomy(), "[ *a@1 +b@2 ]3"), ["*a@1", "+b@2", "]3 a b"]);
}

#[test]
fn later_objects_follow_the_list_end_that_does_not_contain_them() {
    assert_eq!(through(roomy(), "-b@1 [ *a@2 ]3 +b:v@4"), ["-b@1", "*a@2", "]3 a", "+b:v@4"]);
    assert_eq!(through(roomy(), "-b@1 [ *a@2 ]3 [ ]4 ~b:v@5"), ["-b@1", "*a@2", "]3 a", "]4", "~b:v@5"]);
    assert_eq!(through(roomy(), "-b@1 [ ]2 [ *b:v@3 ]4"), ["-b@1", "]2", "*b:v@3", "]4 b"]);
}

#[test]
fn fifo_list_end_does_not_keep_deleted_or_resynced_keys() {
    assert_eq!(through(roomy(), "[ ]2 =b@1"), ["]2", "=b@1"]);
    assert_eq!(through(roomy(), "[ ]2 -b@3"), ["]2", "-b@3"]);
}

#[test]
fn fifo_list_end_closes_a_batch() {
    let mut fifo = roomy();
    push_all(&mut fifo, "[ *a@1 ]2 +b@3");
    assert_eq!(popped_lines(&fifo.pop(10)), ["*a@1", "]2 a"]);
    assert_eq!(popped_lines(&fifo.pop(10)), ["+b@3"]);
    assert!(fifo.pop(10).is_empty());
}

#[test]
fn fifo_batch_is_limited_in_entries() {
    let mut fifo = roomy();
    push_all(&mut fifo, "+a@1 +b@2 +c@3");
    assert_eq!((fifo.pop(0).len(), fifo.pop(2).len(), fifo.len()), (0, 2, 1));
}

#[test]
fn fifo_batch_ends_with_the_delta_that_exceeds_its_bytes() {
    let mut fifo = roomy();
    push_all(&mut fifo, "+a@1 +b@2 +c@3 +d@4 -d@5");
    let all = fifo.bytes();
    let one = {
        let mut fifo = roomy();
        push_all(&mut fifo, "+a@1");
        fifo.bytes()
    };
    assert!(fifo.pop_within(9, 0).is_empty());
    assert_eq!(popped_lines(&fifo.pop_within(9, 1)), ["+a@1"], "of any size");
    assert_eq!(popped_lines(&fifo.pop_within(9, one + 1)), ["+b@2", "+c@3"]);
    assert_eq!(fifo.bytes(), all - 3 * one);
    assert_eq!(popped_lines(&fifo.pop_within(9, one)), ["+d@4"], "also between two deltas of a key");
    assert_eq!(popped_lines(&fifo.pop_within(9, one)), ["-d@5"]);
    assert_eq!((fifo.bytes(), fifo.len()), (0, 0));
}

#[test]
fn fifo_merges_states_only_if_crowded() {
    assert_eq!(through(crowded(), "+a@1 ~a@2 ~a@3"), ["~a@3"]);
    let mut fifo = DeltaFifo::new(1000);
    push_all(&mut fifo, "+a@1 ~a@2");
    assert_eq!(fifo.coalesced(), 0);
    push_all(&mut fifo, "+b@3 ~a@4 ~a@5");
    assert!(fifo.bytes() > 500 && fifo.coalesced() > 0, "{fifo:?}");
    assert_eq!(drain(&mut fifo), ["+a@1", "+b@3", "~a@5"]);
}

#[test]
fn fifo_merged_state_stays_a_listed_one() {
    // After a restore of etcd, versions of the list and of later events may be behind the store's.
    assert_eq!(through(crowded(), "[ *a@5 ~a@6 ]6"), ["*a@6", "]6 a"]);
    assert_eq!(through(crowded(), "~a@9 [ *a@5 ]5"), ["~a@9 *a@5", "]5 a"]);
}

#[test]
fn fifo_merges_no_states_across_a_list_end() {
    assert_eq!(through(crowded(), "[ *a@5 ]5 ~a@6 ~a@7"), ["*a@5", "]5 a", "~a@7"]);
}

#[test]
fn fifo_ignores_a_stale_watch_state() {
    assert_eq!(through(crowded(), "~a@9 ~a@5"), ["~a@9"]);
    assert_eq!(through(crowded(), "[ *a@9 ]9 +a@5"), ["*a@9", "]9 a"], "also behind the end of the list");
}

#[test]
fn fifo_never_merges_across_a_deletion_or_a_successor() {
    assert_eq!(through(crowded(), "~a@1 -a@2 +a:v@3 ~a:v@4"), ["~a@1 -a@2 ~a:v@4"]);
    assert_eq!(through(crowded(), "~a@1 ~a:v@2"), ["~a@1 ~a:v@2"]);
    assert_eq!(through(crowded(), "~a@1 -a@2"), ["~a@1 -a@2"]);
}

#[test]
fn crowded_fifo_keeps_the_last_of_several_successors_that_were_added_and_deleted() {
    let mut fifo = crowded();
    push_all(&mut fifo, "-a@1 +a:v@2 -a:v@3 +a:w@4 -a:w@5 -a:w@6");
    assert_eq!(fifo.coalesced(), 3);
    assert_eq!(drain(&mut fifo), ["-a@1 +a:w@4 -a:w@5"]);
    assert_eq!(through(crowded(), "-a@1 +a:v@2 +b@2 -a:v@3 +a:w@4"), ["-a@1 +a:v@2", "+b@2", "-a:v@3 +a:w@4"]);
    let mut fifo = crowded();
    for at in 0..1000 {
        push_all(&mut fifo, &format!("+a:u{at}@{} -a:u{at}@{}", 2 * at + 1, 2 * at + 2));
        fifo.check();
    }
    assert_eq!(fifo.len(), 4, "the first one, and the last one");
}

#[test]
fn crowded_fifo_keeps_the_deletion_of_a_state_that_the_store_may_have() {
    // The store has `a:v` of 3 from a journal, while the watch repeats the changes before it.
    let mut fifo = crowded();
    push_all(&mut fifo, "-a@1 +a:v@2 -a:v@4");
    let mut informer = Informer::new();
    informer.apply("[ *a:v@3 ]1");
    informer.controller.store_mut().apply(informer.id, fifo.pop(9)).unwrap();
    assert_eq!(informer.contents(), "");
}

#[test]
fn crowded_fifo_compares_no_versions_across_a_rewound_list() {
    assert_eq!(through(crowded(), "~b@9 [ < ]5 ~b@6"), ["~b@9", "]5", "~b@6"]);
    assert_eq!(through(crowded(), "~b@9 [ ]9 ~b@6"), ["~b@9", "]9"]);
    assert_eq!(through(crowded(), "[ < ]5 ~b@9 ~b@6"), ["]5", "~b@9"]);
    assert_eq!(through(crowded(), "[ < ]5 =b@9 ~b@6"), ["]5", "~b@6"], "a resync may repeat a state of before");
}

#[test]
fn fifo_merging_keeps_one_key_below_the_byte_limit() {
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
fn fifo_bounds_the_number_of_queued_lists() {
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
fn fifo_list_end_follows_the_listed_objects() {
    // RealFIFO's Replace puts deletions first, DeltaFIFO's last. Here the list end causes them, so last.
    assert_eq!(through(roomy(), "+gone@1 [ *a@2 ]3"), ["+gone@1", "*a@2", "]3 a"]);
}

#[test]
fn fifo_combines_an_object_listed_twice() {
    // the_real_fifo_test.go counts duplicates in Replace twice; a list in pages may repeat one.
    assert_eq!(through(roomy(), "[ *a@1 *a@1 ]1"), ["*a@1 *a@1", "]1 a"]);
}

// === synced ===

#[test]
fn fifo_has_synced_after_the_first_list_end() {
    // TestDeltaFIFO_HasSynced, TestRealFIFO_HasSynced. There an empty Replace syncs at once, and a list with its last
    // object. Here the list end decides, because the last object is not known before.
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
            assert_eq!(synced_after(fifo, script, pops), synced, "{script:?}, {pops} popped");
        }
    }
}

#[test]
fn fifo_that_started_with_a_watch_event_has_synced() {
    // TestDeltaFIFO_HasSynced: Add, and Delete, before any Replace.
    for script in ["+a@1", "~a@1", "-a@1", "*a@1", "+a@1 [ *b@2 ]3"] {
        for mut fifo in [roomy(), crowded()] {
            push_all(&mut fifo, script);
            assert!(fifo.has_synced(), "{script}");
        }
    }
    let mut fifo = roomy();
    push_all(&mut fifo, "=a@1");
    assert!(!fifo.has_synced(), "a resync does not count as a start");
    push_all(&mut fifo, "[ ]2");
    assert!(!fifo.has_synced());
}

#[test]
fn fifo_has_synced_only_after_deletions_of_the_first_list() {
    // TestDeltaFIFO_HasSyncedCorrectOnDeletion counts deletions one by one; here they are part of the list end.
    let mut fifo = roomy();
    push_all(&mut fifo, "[ *a@1 ]1");
    assert_eq!(popped_lines(&fifo.pop(1)), ["*a@1"]);
    assert!(!fifo.has_synced());
    assert_eq!(popped_lines(&fifo.pop(1)), ["]1 a"]);
    assert!(fifo.has_synced());
}

// === closed ===

#[test]
fn closed_fifo_pops_queued_entries_and_refuses_new_ones() {
    // TestDeltaFIFO_PopShouldUnblockWhenClosed. client-go's queues accept changes after Close; its workqueue drops
    // them. Here they are refused, because draining might never end otherwise.
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
fn open_empty_fifo_is_not_drained() {
    assert!(!roomy().is_drained() && !roomy().is_closed());
}

// === exact limits ===

/// Returns the bytes that one small object counts.
fn one() -> usize {
    let mut fifo = roomy();
    push_all(&mut fifo, "+a@1");
    fifo.bytes()
}

#[test]
fn fifo_is_full_only_above_its_limit() {
    let mut fifo = DeltaFifo::new(2 * one());
    push_all(&mut fifo, "+a@1 +b@2");
    assert_eq!((fifo.bytes(), fifo.is_full()), (2 * one(), false));
    push_all(&mut fifo, "+c@3");
    assert!(fifo.is_full());
}

#[test]
fn fifo_merges_above_half_of_its_limit() {
    let mut fifo = DeltaFifo::new(4 * one());
    push_all(&mut fifo, "+a@1 ~a@2 ~a@3");
    assert_eq!((fifo.coalesced(), fifo.bytes()), (0, 3 * one()), "two are half of the limit when the third arrives");
    push_all(&mut fifo, "~a@4");
    assert_eq!((fifo.coalesced(), fifo.bytes()), (1, 3 * one()));
    assert_eq!(drain(&mut fifo), ["+a@1 ~a@2 ~a@4"]);
}

#[test]
fn fifo_default_limit_is_32_mib() {
    assert_eq!(DeltaFifo::DEFAULT_LIMIT, 33_554_432);
}
