//! Tests of the pure queue, with the names of the corresponding client-go tests.

use std::sync::{Arc, Mutex};

use super::Bench;
use crate::{Fifo, Order, Queue, TakeResult};
use informer_hub_types::clock;

#[test]
fn queued_key_is_not_added_again() {
    // Like client-go's `TestLen` and `TestCollapse`.
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
fn key_added_in_process_is_queued_once_when_done() {
    // Like client-go's `TestReinsert` and `TestCollapseWhileProcessing`.
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.add("foo");
    bench.add("foo");
    assert_eq!((bench.queue.len(), bench.take()), (0, None), "a key in process is not handed out");
    bench.done(&"foo");
    assert_eq!(bench.queue.len(), 1);
    assert_eq!(bench.take(), Some("foo"));
    bench.done(&"foo");
    assert_eq!((bench.queue.len(), bench.take()), (0, None));
}

#[test]
fn keys_are_taken_in_order_of_addition() {
    let mut bench = Bench::new();
    for key in ["c", "a", "b", "a", "d"] {
        bench.add(key);
    }
    let taken: Vec<_> = std::iter::from_fn(|| bench.take()).collect();
    assert_eq!(taken, ["c", "a", "b", "d"]);
}

#[test]
fn requeued_key_goes_to_the_end() {
    let mut bench = Bench::new();
    bench.add("a");
    assert_eq!(bench.take(), Some("a"));
    bench.add("a");
    bench.add("b");
    bench.done(&"a");
    assert_eq!((bench.take(), bench.take()), (Some("b"), Some("a")));
}

#[test]
fn shutdown_hands_out_queued_keys_and_accepts_no_more() {
    // Like client-go's `TestBasic`.
    let mut bench = Bench::new();
    bench.add("before");
    bench.queue.shut_down();
    bench.add("after");
    bench.add_after("after", super::ms(0));
    assert!(bench.queue.is_shutting_down());
    assert_eq!(bench.queue.take(bench.now), TakeResult::Item("before", 1));
    assert_eq!(bench.queue.take(bench.now), TakeResult::Over);
    assert!(!bench.queue.is_idle(), "still in process");
    bench.done(&"before");
    assert!(bench.queue.is_idle());
}

#[test]
fn key_added_in_process_before_shutdown_is_handed_out() {
    // Like client-go's `TestQueueDrainageUsingShutDownWithDrainWithDirtyItem`.
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.add("foo");
    bench.queue.shut_down();
    assert_eq!(bench.queue.take(bench.now), TakeResult::Over);
    bench.done(&"foo");
    assert!(!bench.queue.is_idle());
    assert_eq!(bench.take(), Some("foo"));
    bench.done(&"foo");
    assert_eq!(bench.queue.take(bench.now), TakeResult::Over);
    assert!(bench.queue.is_idle());
}

#[test]
fn drain_waits_for_keys_that_will_be_queued_again() {
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.queue.drain();
    assert_eq!(bench.queue.take(bench.now), TakeResult::Over, "the key was not added again");
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.add("foo");
    bench.queue.drain();
    assert_eq!(bench.queue.take(bench.now), TakeResult::Nothing);
    bench.done(&"foo");
    assert_eq!(bench.take(), Some("foo"));
    assert_eq!(bench.queue.take(bench.now), TakeResult::Over);
    bench.add("foo");
    bench.done(&"foo");
    assert!(bench.queue.is_idle(), "nothing was added after the shutdown");
    let mut bench = Bench::new();
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.add("foo");
    bench.queue.drain();
    bench.queue.shut_down();
    assert_eq!(bench.queue.take(bench.now), TakeResult::Over, "a plain shutdown ends the drain");
}

#[test]
fn done_without_processing_is_ignored() {
    let mut bench = Bench::new();
    bench.done(&"never seen");
    bench.add("foo");
    bench.done(&"foo");
    assert_eq!(bench.queue.len(), 1, "client-go would queue it twice");
    assert_eq!((bench.take(), bench.take()), (Some("foo"), None));
}

#[test]
fn ticket_ends_only_its_own_processing() {
    let mut bench = Bench::new();
    bench.add("foo");
    let TakeResult::Item(_, first) = bench.queue.take(bench.now) else { panic!("nothing in line") };
    bench.done(&"foo");
    bench.add("foo");
    let TakeResult::Item(_, second) = bench.queue.take(bench.now) else { panic!("nothing in line") };
    bench.queue.done(&"foo", Some(first), bench.now);
    assert!(!bench.queue.is_idle(), "the second processing continues");
    bench.queue.done(&"foo", Some(second), bench.now);
    assert!(bench.queue.is_idle());
}

/// FIFO order that records which keys were added again.
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
fn touch_is_called_for_queued_keys_but_not_for_those_in_process() {
    // Like client-go's `TestCollapse` and `TestCollapseWhileProcessing`.
    let traced = Traced::default();
    let touched = Arc::clone(&traced.1);
    let now = clock::now();
    let mut queue = Queue::new(Box::new(traced));
    queue.add("bar", now);
    queue.add("bar", now);
    assert_eq!(*touched.lock().unwrap(), ["bar"]);
    assert_eq!(queue.take(now), TakeResult::Item("bar", 1));
    queue.add("bar", now);
    queue.add("bar", now);
    assert_eq!(*touched.lock().unwrap(), ["bar"]);
}

#[test]
fn queue_keeps_nothing_of_a_done_key() {
    // Like client-go's `TestGarbageCollection`.
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
