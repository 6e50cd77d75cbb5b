//! Tests of delayed keys.

use std::time::Duration;

use super::{Bench, ms};

#[test]
fn delayed_key_is_added_once_when_due() {
    // Like client-go's `TestSimpleQueue`.
    let mut bench = Bench::new();
    bench.add_after("foo", ms(50));
    assert_eq!(bench.queue.len(), 0);
    bench.step(ms(49));
    assert_eq!(bench.queue.len(), 0);
    bench.step(ms(1));
    assert_eq!(bench.take(), Some("foo"));
    bench.done(&"foo");
    bench.step(Duration::from_secs(10));
    assert_eq!(bench.queue.len(), 0);
}

#[test]
fn earliest_delay_of_a_key_wins() {
    // Like client-go's `TestDeduping`.
    for (first, second) in [(50, 70), (70, 50), (50, 50)] {
        let mut bench = Bench::new();
        bench.add_after("foo", ms(first));
        bench.add_after("foo", ms(second));
        bench.step(ms(49));
        assert_eq!(bench.queue.len(), 0);
        bench.step(ms(1));
        assert_eq!(bench.take(), Some("foo"), "{first} and {second}");
        bench.done(&"foo");
        bench.step(ms(100));
        assert_eq!(bench.queue.len(), 0, "{first} and {second}: it comes once");
    }
}

#[test]
fn overdue_keys_are_queued_in_order_of_due_time() {
    // Like client-go's `TestAddTwoFireEarly` and `TestCopyShifting`.
    let mut bench = Bench::new();
    bench.add_after("foo", ms(1000));
    bench.add_after("bar", ms(50));
    bench.step(ms(60));
    assert_eq!(bench.take(), Some("bar"));
    bench.add_after("baz", ms(2000));
    bench.step(ms(1000));
    assert_eq!(bench.take(), Some("foo"));
    bench.step(ms(2000));
    assert_eq!(bench.take(), Some("baz"));

    let mut bench = Bench::new();
    for (key, delay) in [("foo", 1000), ("bar", 500), ("baz", 250), ("qux", 500)] {
        bench.add_after(key, ms(delay));
    }
    bench.step(ms(2000));
    let taken: Vec<_> = std::iter::from_fn(|| bench.take()).collect();
    assert_eq!(taken, ["baz", "bar", "qux", "foo"]);
}

#[test]
fn zero_delay_queues_at_once() {
    let mut bench = Bench::new();
    bench.add_after("foo", Duration::ZERO);
    assert_eq!(bench.take(), Some("foo"));
}

#[test]
fn overlong_delay_does_not_overflow() {
    let mut bench = Bench::new();
    bench.add_after("foo", Duration::MAX);
    bench.step(Duration::from_secs(365 * 24 * 3600));
    assert_eq!(bench.queue.len(), 0);
    bench.add_after("foo", ms(1));
    bench.step(ms(1));
    assert_eq!(bench.take(), Some("foo"));
}

#[test]
fn key_can_be_queued_and_delayed_at_once() {
    let mut bench = Bench::new();
    bench.add_after("foo", ms(50));
    bench.add("foo");
    assert_eq!(bench.take(), Some("foo"));
    bench.step(ms(50));
    assert_eq!(bench.take(), None, "still in process");
    bench.done(&"foo");
    assert_eq!(bench.take(), Some("foo"));
}

#[test]
fn shutdown_drops_delayed_keys() {
    let mut bench = Bench::new();
    bench.add_after("foo", ms(50));
    bench.queue.shut_down();
    bench.add_after("bar", ms(50));
    bench.step(ms(100));
    assert_eq!((bench.queue.len(), bench.queue.next_due()), (0, None));
}
