//! The rules of the queue itself. The names of client-go's tests are beside those that show the same.

use std::sync::{Arc, Mutex};

use super::Bench;
use crate::{Fifo, Order, Queue, Take};
use informer_hub_types::clock;

#[test]
fn a_key_that_waits_is_not_added_again() {
    // TestLen, TestCollapse
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.queue.len(), 1);
    bench.add("bar");
    assert_eq!(bench.queue.len(), 2);
    bench.add("foo");
    assert_eq!(bench.queue.len(), 2);
    assert_eq!(bench.take(), Some("foo"));
    bench.done(&"foo");
    assert_eq!(bench.take(), Some("bar"));
    assert_eq!(bench.take(), None);
}

#[test]
fn a_key_that_is_added_while_it_is_worked_on_comes_back_once_and_only_when_that_is_done() {
    // TestReinsert, TestCollapseWhileProcessing
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.add("foo");
    bench.add("foo");
    assert_eq!((bench.queue.len(), bench.take()), (0, None), "nobody gets what another works on");
    bench.done(&"foo");
    assert_eq!(bench.queue.len(), 1);
    assert_eq!(bench.take(), Some("foo"));
    bench.done(&"foo");
    assert_eq!((bench.queue.len(), bench.take()), (0, None));
}

#[test]
fn keys_come_in_the_order_in_which_they_were_added() {
    let mut bench = Bench::new();
    for key in ["c", "a", "b", "a", "d"] {
        bench.add(key);
    }
    let taken: Vec<_> = std::iter::from_fn(|| bench.take()).collect();
    assert_eq!(taken, ["c", "a", "b", "d"]);
}

#[test]
fn what_comes_back_goes_to_the_end_of_the_line() {
    let mut bench = Bench::new();
    bench.add("a");
    assert_eq!(bench.take(), Some("a"));
    bench.add("a");
    bench.add("b");
    bench.done(&"a");
    assert_eq!((bench.take(), bench.take()), (Some("b"), Some("a")));
}

#[test]
fn after_the_shutdown_what_waits_is_handed_out_and_nothing_is_added() {
    // TestBasic
    let mut bench = Bench::new();
    bench.add("before");
    bench.queue.shut_down();
    bench.add("after");
    bench.add_after("after", super::ms(0));
    assert!(bench.queue.is_shutting_down());
    assert_eq!(bench.queue.take(bench.now), Take::Item("before", 1));
    assert_eq!(bench.queue.take(bench.now), Take::Over);
    assert!(!bench.queue.is_idle(), "it is worked on");
    bench.done(&"before");
    assert!(bench.queue.is_idle());
}

#[test]
fn what_was_added_to_a_key_in_work_before_the_shutdown_is_still_handed_out() {
    // TestQueueDrainageUsingShutDownWithDrainWithDirtyItem
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.add("foo");
    bench.queue.shut_down();
    assert_eq!(bench.queue.take(bench.now), Take::Over);
    bench.done(&"foo");
    assert!(!bench.queue.is_idle());
    assert_eq!(bench.take(), Some("foo"));
    bench.done(&"foo");
    assert_eq!(bench.queue.take(bench.now), Take::Over);
    assert!(bench.queue.is_idle());
}

#[test]
fn a_drain_is_not_over_while_a_key_in_work_will_be_in_line_again() {
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.queue.drain();
    assert_eq!(bench.queue.take(bench.now), Take::Over, "nothing has been added to it");
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.add("foo");
    bench.queue.drain();
    assert_eq!(bench.queue.take(bench.now), Take::Nothing);
    bench.done(&"foo");
    assert_eq!(bench.take(), Some("foo"));
    assert_eq!(bench.queue.take(bench.now), Take::Over);
    bench.add("foo");
    bench.done(&"foo");
    assert!(bench.queue.is_idle(), "nothing was added after the shutdown");
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.add("foo");
    bench.queue.drain();
    bench.queue.shut_down();
    assert_eq!(bench.queue.take(bench.now), Take::Over, "a plain shutdown puts an end to it");
}

#[test]
fn to_end_work_that_nobody_does_changes_nothing() {
    let mut bench = Bench::new();
    bench.done(&"never seen");
    bench.add("foo");
    bench.done(&"foo");
    assert_eq!(bench.queue.len(), 1, "client-go would have it in line twice");
    assert_eq!((bench.take(), bench.take()), (Some("foo"), None));
}

#[test]
fn a_ticket_ends_only_the_work_it_was_given_for() {
    let mut bench = Bench::new();
    bench.add("foo");
    let Take::Item(_, first) = bench.queue.take(bench.now) else { panic!("nothing in line") };
    bench.done(&"foo");
    bench.add("foo");
    let Take::Item(_, second) = bench.queue.take(bench.now) else { panic!("nothing in line") };
    bench.queue.done(&"foo", Some(first), bench.now);
    assert!(!bench.queue.is_idle(), "the second is at work still");
    bench.queue.done(&"foo", Some(second), bench.now);
    assert!(bench.queue.is_idle());
}

/// A line that notes which keys were added again.
#[derive(Default)]
struct Traced(Fifo<&'static str>, Arc<Mutex<Vec<&'static str>>>);

impl Order<&'static str> for Traced {
    fn push(&mut self, item: &'static str) {
        self.0.push(item);
    }

    fn pop(&mut self) -> Option<&'static str> {
        self.0.pop()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn touch(&mut self, item: &&'static str) {
        self.1.lock().unwrap().push(item);
    }
}

#[test]
fn an_order_is_told_of_a_key_that_is_added_again_while_it_waits_but_not_while_it_is_worked_on() {
    // TestCollapse, TestCollapseWhileProcessing
    let traced = Traced::default();
    let touched = Arc::clone(&traced.1);
    let now = clock::now();
    let mut queue = Queue::new(Box::new(traced));
    queue.add("bar", now);
    queue.add("bar", now);
    assert_eq!(*touched.lock().unwrap(), ["bar"]);
    assert_eq!(queue.take(now), Take::Item("bar", 1));
    queue.add("bar", now);
    queue.add("bar", now);
    assert_eq!(*touched.lock().unwrap(), ["bar"]);
}

#[test]
fn a_queue_keeps_nothing_of_a_key_that_is_done() {
    // TestGarbageCollection
    let big = Arc::new(vec![0_u8; 1024]);
    let mut bench = Bench::new();
    bench.add(Arc::clone(&big));
    bench.add_after(Arc::clone(&big), super::ms(1));
    bench.step(super::ms(1));
    let taken = bench.take().unwrap();
    bench.done(&taken);
    drop(taken);
    assert_eq!(Arc::strong_count(&big), 1);
}
