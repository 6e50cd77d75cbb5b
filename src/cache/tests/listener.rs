//! Tests of a listener queue: notifications, and merging for a slow subscriber.

use crate::testing::{Informer, delta, notification_lines, object_with};
use crate::{InitialObjects, ListenerOptions, ListenerQueue, ObjectFilter};
use informer_hub_types::{Change, DeltaKind};

const NEVER: usize = usize::MAX;

fn skip() -> ListenerOptions {
    ListenerOptions { initial: InitialObjects::Skip, ..ListenerOptions::default() }
}

fn filtered(labels: &str) -> ListenerOptions {
    let filter = ObjectFilter { labels: Some(labels.parse().unwrap()), ..ObjectFilter::default() };
    ListenerOptions { filter, ..ListenerOptions::default() }
}

/// An informer with one listener.
struct Pair {
    informer: Informer,
    queue: ListenerQueue,
}

impl Pair {
    /// Adds a listener after `before` was applied.
    fn join(before: &str, options: ListenerOptions, merge_above: usize) -> Self {
        let mut informer = Informer::new();
        informer.apply(before);
        let queue = ListenerQueue::new(options, &informer.partition(), merge_above);
        Self { informer, queue }
    }

    fn apply(&mut self, script: &str) {
        let outbox = self.informer.apply(script);
        self.queue.offer(outbox.number, &outbox.applied, false);
    }

    /// Applies each step in a batch of its own.
    fn apply_each(&mut self, script: &str) {
        for step in script.split_whitespace() {
            self.apply(step);
        }
    }

    fn take(&mut self) -> Vec<String> {
        let lines = notification_lines(&self.queue.take(usize::MAX));
        assert!(self.queue.is_empty());
        lines
    }
}

/// Returns the notifications of `script` for a listener that stalls after `before`.
fn stalled(before: &str, script: &str) -> Vec<String> {
    let mut pair = Pair::join("[ ]0", ListenerOptions::default(), 0);
    pair.apply_each(before);
    pair.take();
    pair.apply_each(script);
    pair.take()
}

#[test]
fn listener_gets_every_change_below_the_merge_threshold() {
    let mut pair = Pair::join("", ListenerOptions::default(), NEVER);
    pair.apply("[ *a@1 *b@2 ]2");
    pair.apply("~a@3 -b@4 +b:v@5 ~a@6");
    assert_eq!(pair.take(), ["!a@1", "!b@2", "synced", "a@1>3", "-b@4", "+b@5", "a@3>6"]);
    assert_eq!(pair.queue.merged(), 0);
}

#[test]
fn initial_additions_merge_with_nothing() {
    let mut pair = Pair::join("", ListenerOptions::default(), 0);
    pair.apply("[ *a@1 *b@2 *c@3 ]3");
    pair.apply_each("-a@4 ~b@5 ~b@6 ~c@7 -c@8 +c:v@9 -c:v@10 +c:w@11 ~c:w@12");
    assert_eq!(pair.take(), ["!a@1", "!b@2", "!c@3", "synced", "-a@4", "b@2>6", "-c@8", "+c@12"]);
}

#[test]
fn additions_before_the_end_of_the_first_list_are_initial() {
    let mut pair = Pair::join("", ListenerOptions::default(), NEVER);
    pair.apply("[ *a@1");
    pair.apply("[ *a@1 *b@2 ]2");
    pair.apply("+c@3");
    assert_eq!(pair.take(), ["!a@1", "!b@2", "synced", "+c@3"]);
}

#[test]
fn late_subscriber_gets_initial_objects_then_synced_then_changes() {
    // TestAddWhileActive: no gap, no repetition
    let mut pair = Pair::join("[ *a@1 *b@2 *c@3 ]3", ListenerOptions::default(), NEVER);
    pair.apply("~a@4 -b@5 +d@6");
    assert!(!pair.queue.is_empty());
    assert_eq!(notification_lines(&pair.queue.take(2)), ["!a@1", "!b@2"]);
    assert_eq!(notification_lines(&pair.queue.take(2)), ["!c@3", "synced"]);
    assert_eq!(notification_lines(&pair.queue.take(2)), ["a@1>4", "-b@5"]);
    assert_eq!(pair.take(), ["+d@6"]);
}

#[test]
fn replay_that_fills_a_batch_ends_with_it() {
    let mut pair = Pair::join("+a@1 +b@2", ListenerOptions::default(), NEVER);
    assert_eq!(notification_lines(&pair.queue.take(2)), ["!a@1", "!b@2"]);
    assert!(pair.queue.is_empty(), "not synced yet, so nothing waits");
    assert!(pair.queue.take(0).is_empty());
    pair.apply("[ *a@1 *c@3 ]3");
    assert_eq!(pair.take(), ["!c@3", "†b@2", "synced"]);
}

#[test]
fn take_of_zero_loses_nothing() {
    let mut pair = Pair::join("[ *a@1 ]1", ListenerOptions::default(), NEVER);
    assert!(pair.queue.take(0).is_empty());
    pair.apply("+b@2");
    assert!(pair.queue.take(0).is_empty());
    assert_eq!(pair.take(), ["!a@1", "synced", "+b@2"]);
}

#[test]
fn subscriber_can_skip_initial_objects() {
    let mut pair = Pair::join("[ *a@1 *b@2 ]2", skip(), NEVER);
    pair.apply("~a@3 -b@4 +c@5");
    assert_eq!(pair.take(), ["synced", "a@1>3", "-b@4", "+c@5"]);
    let mut early = Pair::join("", skip(), NEVER);
    early.apply("[ *a@1 ]1");
    early.apply("~a@2 +b@3");
    assert_eq!(early.take(), ["synced", "a@1>2", "+b@3"]);
}

#[test]
fn listener_of_an_empty_informer_gets_synced_once() {
    let mut late = Pair::join("[ ]1", ListenerOptions::default(), NEVER);
    late.apply("[ ]2");
    assert_eq!(late.take(), ["synced"]);
    let mut early = Pair::join("", ListenerOptions::default(), 0);
    early.apply("[ ]1");
    early.apply("[ ]2");
    assert_eq!(early.take(), ["synced"]);
}

#[test]
fn batch_that_is_offered_twice_is_queued_once() {
    let mut pair = Pair::join("+a@1", ListenerOptions::default(), NEVER);
    let second = pair.informer.apply("+b@2");
    let third = pair.informer.apply("+c@3");
    for outbox in [&second, &second, &third, &second, &third] {
        pair.queue.offer(outbox.number, &outbox.applied, false);
    }
    assert_eq!(pair.take(), ["!a@1", "!b@2", "!c@3"]);
    let mut late = ListenerQueue::new(ListenerOptions::default(), &pair.informer.partition(), NEVER);
    late.offer(third.number, &third.applied, false);
    assert_eq!(notification_lines(&late.take(9)), ["!a@1", "!b@2", "!c@3"], "changes in the snapshot are not repeated");
}

#[test]
fn resync_is_delivered_only_if_requested() {
    // TestListenerResyncPeriods
    for (resync, expected) in [(true, vec!["=a@1"]), (false, vec![])] {
        let mut pair = Pair::join("[ ]0", ListenerOptions::default(), NEVER);
        pair.apply("+a@1");
        pair.take();
        let outbox = pair.informer.apply("=a@1");
        pair.queue.offer(outbox.number, &outbox.applied, resync);
        assert_eq!(pair.take(), expected);
    }
}

#[test]
fn resync_merges_with_a_waiting_change() {
    let mut pair = Pair::join("[ *a@1 ]1", skip(), 0);
    pair.take();
    for step in ["=a@1", "=a@1"] {
        let outbox = pair.informer.apply(step);
        pair.queue.offer(outbox.number, &outbox.applied, true);
    }
    assert_eq!(pair.take(), ["=a@1"]);
    for step in ["=a@1", "~a@2", "=a@2"] {
        let outbox = pair.informer.apply(step);
        pair.queue.offer(outbox.number, &outbox.applied, true);
    }
    assert_eq!(pair.take(), ["a@1>2"], "not a resync: something changed");
}

#[test]
fn merged_update_has_the_oldest_old_and_the_newest_new() {
    assert_eq!(stalled("+a@1", "~a@2 ~a@3 ~a@4"), ["a@1>4"]);
}

#[test]
fn waiting_addition_merges_later_states() {
    assert_eq!(stalled("", "+a@1 ~a@2 ~a@3"), ["+a@3"]);
}

#[test]
fn addition_and_deletion_cancel_each_other() {
    assert_eq!(stalled("", "+a@1 ~a@2 -a@3"), [""; 0]);
    assert_eq!(stalled("", "+a@1 -a@2 +a:v@3 -a:v@4 +a:w@5"), ["+a@5"]);
}

#[test]
fn deletion_replaces_waiting_updates() {
    assert_eq!(stalled("+a@1", "~a@2 ~a@3 -a@4"), ["-a@4"]);
}

#[test]
fn successor_never_merges_with_its_predecessor() {
    assert_eq!(stalled("+a@1", "~a@2 -a@3 +a:v@4 ~a:v@5"), ["-a@3", "+a@5"]);
    assert_eq!(stalled("+a@1", "+a:v@2 ~a:v@3"), ["†a@1", "+a@3"]);
    assert_eq!(stalled("+a@1", "-a@2 +a:v@3 -a:v@4"), ["-a@2"]);
}

#[test]
fn change_during_a_replay_is_delivered_after_it() {
    let mut pair = Pair::join("[ *a@1 *b@1 ]1", ListenerOptions::default(), 0);
    assert_eq!(notification_lines(&pair.queue.take(1)), ["!a@1"]);
    pair.apply_each("~a@2 ~b@3 -b@4 +b:v@5 ~b:v@6");
    assert_eq!(pair.take(), ["!b@1", "synced", "a@1>2", "-b@4", "+b@6"]);
}

#[test]
fn at_most_two_notifications_of_an_object_wait() {
    let mut pair = Pair::join("[ ]0", ListenerOptions::default(), 0);
    pair.apply("+a@1 +b@1");
    pair.take();
    let mut uid = "u".to_owned();
    for version in (2..3000).step_by(3) {
        let next = format!("v{version}");
        pair.apply_each(&format!("-a:{uid}@{version} +a:{next}@{} ~b@{}", version + 1, version + 2));
        assert!(pair.queue.len() <= 3, "{}", pair.queue.len());
        uid = next;
    }
    assert_eq!(pair.take().len(), 3, "a deletion and an addition of a, one update of b");
}

#[test]
fn merging_starts_above_its_threshold_and_ends_with_an_empty_queue() {
    let mut pair = Pair::join("[ *a@1 ]1", skip(), 3);
    pair.apply_each("~a@2 ~a@3 ~a@4 ~a@5");
    assert_eq!(pair.take(), ["synced", "a@1>2", "a@2>5"]);
    pair.apply_each("~a@6 ~a@7");
    assert_eq!(pair.take(), ["a@5>6", "a@6>7"]);
}

#[test]
fn filter_transition_is_an_addition_or_a_deletion() {
    // TestTypedFilteringResourceEventHandler: filter transitions
    let mut pair = Pair::join("[ ]0", filtered("app=web"), NEVER);
    let mut step = |kind, version, app| {
        let object = object_with("ns", "a", "u", version, &[("app", app)], &[]);
        let outbox = pair.informer.apply_changes(vec![Change::Delta(delta(kind, object))]);
        pair.queue.offer(outbox.number, &outbox.applied, true);
    };
    step(DeltaKind::Added, 1, "db");
    step(DeltaKind::Updated, 2, "web");
    step(DeltaKind::Updated, 3, "web");
    step(DeltaKind::Sync, 3, "web");
    step(DeltaKind::Updated, 4, "db");
    step(DeltaKind::Sync, 4, "db");
    step(DeltaKind::Updated, 5, "x");
    step(DeltaKind::Deleted, 6, "web");
    step(DeltaKind::Added, 7, "web");
    step(DeltaKind::Deleted, 8, "db");
    assert_eq!(pair.take(), ["synced", "+a@2", "a@2>3", "=a@3", "-a@3", "+a@7", "-a@8"]);
}

#[test]
fn replay_delivers_only_filtered_objects() {
    let mut informer = Informer::new();
    let web = |name, app| Change::Delta(delta(DeltaKind::Added, object_with("ns", name, "u", 1, &[("app", app)], &[])));
    informer.apply_changes(vec![web("a", "web"), web("b", "db"), web("c", "web"), web("d", "db")]);
    let mut queue = ListenerQueue::new(filtered("app=web"), &informer.partition(), NEVER);
    assert_eq!(notification_lines(&queue.take(1)), ["!a@1"]);
    assert_eq!(notification_lines(&queue.take(1)), ["!c@1"]);
    assert_eq!(notification_lines(&queue.take(1)), [""; 0]);
    assert!(queue.is_empty());
    let elsewhere = ObjectFilter { namespace: Some("other".into()), ..ObjectFilter::default() };
    let options = ListenerOptions { filter: elsewhere, ..ListenerOptions::default() };
    assert!(ListenerQueue::new(options, &informer.partition(), NEVER).take(9).is_empty());
}
