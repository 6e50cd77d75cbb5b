//! Tests of the queue metrics.

use std::time::Duration;

use super::{Bench, ms};
use crate::Histogram;

const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[test]
fn metrics_count_and_time_keys() {
    // Like client-go's `TestMetrics`.
    let mut bench = Bench::new();
    let metrics = |bench: &Bench<&'static str>| bench.queue.metrics(bench.now);
    bench.add("foo");
    assert_eq!((metrics(&bench).adds, metrics(&bench).depth), (1, 1));
    bench.step(us(50));
    assert_eq!(bench.take(), Some("foo"));
    let now = metrics(&bench);
    assert_eq!((now.queue_latency.count(), now.queue_latency.sum()), (1, us(50)));
    for _ in 0..5 {
        bench.add("foo");
    }
    let now = metrics(&bench);
    assert_eq!((now.adds, now.depth, now.processing, bench.queue.len()), (2, 1, 1, 0));
    bench.step(us(25));
    bench.done(&"foo");
    let now = metrics(&bench);
    assert_eq!((now.work_duration.count(), now.work_duration.sum(), now.depth), (1, us(25), 1));
    assert_eq!(bench.take(), Some("foo"));
    let now = metrics(&bench);
    assert_eq!((now.queue_latency.count(), now.queue_latency.sum()), (2, us(75)), "measured from its second addition");
    bench.step(ms(1));
    let now = metrics(&bench);
    assert_eq!((now.unfinished_work, now.longest_running), (ms(1), ms(1)));
    bench.done(&"foo");
    let now = metrics(&bench);
    assert_eq!((now.work_duration.count(), now.work_duration.sum()), (2, us(1025)));
    assert_eq!((now.unfinished_work, now.longest_running, now.processing), (Duration::ZERO, Duration::ZERO, 0));
}

#[test]
fn unfinished_work_is_a_sum_and_longest_running_a_maximum() {
    let mut bench = Bench::new();
    bench.add("a");
    bench.add("b");
    bench.take();
    bench.step(ms(10));
    bench.take();
    bench.step(ms(5));
    let now = bench.queue.metrics(bench.now);
    assert_eq!((now.unfinished_work, now.longest_running), (ms(20), ms(15)));
}

#[test]
fn after_shutdown_only_keys_in_process_are_counted() {
    // Like client-go's `TestMetricShutdown`.
    let mut bench = Bench::new();
    bench.add("a");
    bench.queue.shut_down();
    bench.add("b");
    bench.add_after("c", ms(1));
    bench.step(ms(3));
    bench.take();
    bench.done(&"a");
    let now = bench.queue.metrics(bench.now);
    assert_eq!((now.adds, now.retries, now.depth, now.delayed), (1, 0, 0, 0));
    assert_eq!((now.queue_latency.sum(), now.work_duration.count()), (ms(3), 1));
}

#[test]
fn retries_are_counted_and_latency_starts_at_the_due_time() {
    let mut bench = Bench::new();
    bench.add_after("a", ms(10));
    bench.add_after("a", ms(20));
    bench.add_after("b", Duration::ZERO);
    let now = bench.queue.metrics(bench.now);
    assert_eq!((now.retries, now.adds, now.delayed), (3, 1, 1));
    bench.take();
    bench.step(ms(25));
    bench.take();
    assert_eq!(bench.queue.metrics(bench.now).queue_latency.sum(), ms(15));
}

#[test]
fn histogram_buckets_are_powers_of_ten() {
    assert!(Histogram::BOUNDS.windows(2).all(|pair| pair[0] * 10 == pair[1]));
    let mut histogram = Histogram::default();
    for took in [Duration::ZERO, Duration::from_nanos(10), us(1), ms(2), ms(3), Duration::from_secs(5000)] {
        histogram.observe(took);
    }
    let full: Vec<_> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
    assert_eq!(full, [(Duration::from_nanos(10), 2), (us(1), 1), (ms(10), 2)]);
    assert_eq!(histogram.count(), 6, "the longest duration is in no bucket");
    assert_eq!(histogram.buckets().last().unwrap().0, Duration::from_secs(1000));
}
