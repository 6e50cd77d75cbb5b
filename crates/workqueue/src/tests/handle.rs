//! Tests of the handle: waiting, delays, panics and shutdown.
//!
//! Time is paused, so that a test waiting for something that never happens fails at its deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::ms;
use crate::{Fifo, ItemExponentialFailureRateLimiter, Key, Request, Work, WorkQueue};
use informer_hub_types::clock;
use informer_hub_types::{ClusterName, ObjectKey};

/// Deadline of every wait in the tests.
const DEADLINE: Duration = Duration::from_secs(3600);

fn plain<T: Key + Sync>() -> WorkQueue<T> {
    WorkQueue::with(Fifo::default(), ItemExponentialFailureRateLimiter::new(ms(1), Duration::from_secs(1)))
}

async fn get<T: Key>(queue: &WorkQueue<T>) -> Work<T> {
    timeout(DEADLINE, queue.get()).await.expect("a key becomes available").expect("the queue is open")
}

/// Ends the processing and returns the key.
fn finished<T: Key>(work: Work<T>) -> T {
    let key = work.item().clone();
    work.done();
    key
}

/// Returns whether no key becomes available in the next millisecond.
async fn nothing<T: Key>(queue: &WorkQueue<T>) -> bool {
    timeout(ms(1), queue.get()).await.is_err()
}

/// Runs all tasks that are ready.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

async fn end<T>(task: JoinHandle<T>) -> T {
    timeout(DEADLINE, task).await.expect("the task ends").expect("the task does not panic")
}

/// Runs many producers and workers, then shuts the queue down: with a drain if `drain`. Returns how often each key was
/// processed. If `readd`, workers add their key again until it was processed three times.
async fn crowd(drain: bool, readd: bool) -> BTreeMap<u32, u32> {
    let queue = plain();
    let worked = Arc::new(Mutex::new((BTreeMap::new(), BTreeSet::new())));
    let producers: Vec<_> = (0..50)
        .map(|key| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for _ in 0..if readd { 1 } else { 50 } {
                    queue.add(key);
                    sleep(ms(1)).await;
                }
            })
        })
        .collect();
    let workers: Vec<_> = (0..10)
        .map(|_| {
            let (queue, worked) = (queue.clone(), Arc::clone(&worked));
            tokio::spawn(async move {
                while let Some(work) = queue.get().await {
                    let times = {
                        let mut worked = worked.lock();
                        assert!(worked.1.insert(*work), "{} is worked on twice at a time", *work);
                        let times = worked.0.entry(*work).or_insert(0_u32);
                        *times += 1;
                        *times
                    };
                    if readd && times < 3 {
                        queue.add(*work);
                    }
                    sleep(ms(3)).await;
                    worked.lock().1.remove(&*work);
                    work.done();
                }
            })
        })
        .collect();
    for producer in producers {
        end(producer).await;
    }
    if readd {
        sleep(ms(1000)).await;
    }
    if drain {
        assert!(timeout(DEADLINE, queue.shut_down_with_drain()).await.unwrap());
        assert_eq!(queue.metrics().processing, 0);
    } else {
        queue.shut_down();
    }
    queue.add(u32::MAX);
    for worker in workers {
        end(worker).await;
    }
    assert!(queue.is_empty());
    assert!(queue.is_shutting_down());
    Arc::into_inner(worked).unwrap().into_inner().0
}

#[tokio::test(start_paused = true)]
async fn all_keys_are_processed_before_the_shutdown_completes() {
    // Like client-go's `TestBasic`.
    for drain in [false, true] {
        let worked = crowd(drain, false).await;
        assert_eq!(worked.len(), 50, "keys added after the shutdown are ignored");
        assert!(worked.values().all(|times| *times > 1), "{worked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn key_readded_by_its_worker_is_processed_again() {
    // Like client-go's `TestAddWhileProcessing`.
    for drain in [false, true] {
        let worked = crowd(drain, true).await;
        assert_eq!(worked.len(), 50);
        assert!(worked.values().all(|times| *times == 3), "{worked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_worker_gets_a_key_once_added_or_returned() {
    // Like client-go's `TestCollapseWhileProcessing`.
    let queue = plain();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(Work::detach) }
    });
    settle().await;
    queue.add("foo");
    assert_eq!(end(waiting).await, Some("foo"));
    queue.add("foo");
    queue.add("foo");
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(finished) }
    });
    sleep(ms(100)).await;
    assert!(!second.is_finished(), "still in process");
    queue.done(&"foo");
    assert_eq!(end(second).await, Some("foo"));
    assert!(nothing(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn wake_up_propagates_to_all_needed_workers() {
    let queue = plain();
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.map(Work::detach) })
        })
        .collect();
    settle().await;
    // All are due at once. One worker is the timekeeper and the wake-ups propagate from worker to worker.
    (0..5).for_each(|key| queue.add_after(key, ms(10)));
    let mut got = BTreeSet::new();
    for worker in workers {
        got.extend(end(worker).await);
    }
    assert_eq!(got, (0..5).collect());
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_keys_in_process() {
    // Like client-go's `TestQueueDrainageUsingShutDownWithDrain`.
    let queue = plain();
    queue.add("foo");
    queue.add("bar");
    let (first, second) = (get(&queue).await, get(&queue).await);
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shut_down_with_drain().await }
    });
    settle().await;
    assert!(queue.get().await.is_none(), "the queue is over");
    first.done();
    settle().await;
    assert!(!drain.is_finished());
    second.done();
    assert!(end(drain).await);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_queued_and_requeued_keys() {
    // Like client-go's `TestQueueDrainageUsingShutDownWithDrainWithDirtyItem`.
    let queue = plain();
    queue.add("foo");
    queue.add("bar");
    let work = get(&queue).await;
    queue.add("foo");
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shut_down_with_drain().await }
    });
    settle().await;
    work.done();
    settle().await;
    for key in ["bar", "foo"] {
        assert!(!drain.is_finished(), "client-go would end the drain while {key} has no worker");
        assert_eq!(finished(get(&queue).await), key);
        settle().await;
    }
    assert!(end(drain).await);
}

#[tokio::test(start_paused = true)]
async fn drain_ends_after_a_dispatcher_stops_at_none() {
    let queue = plain();
    queue.add("foo");
    let work = get(&queue).await;
    queue.add("foo");
    let dispatcher = tokio::spawn({
        let queue = queue.clone();
        async move {
            while let Some(work) = queue.get().await {
                tokio::spawn(async move { work.done() });
            }
        }
    });
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shut_down_with_drain().await }
    });
    settle().await;
    work.done();
    assert!(end(drain).await);
    end(dispatcher).await;
}

#[tokio::test(start_paused = true)]
async fn plain_shutdown_does_not_wait_and_ends_a_drain() {
    // Like client-go's `TestNoQueueDrainageUsingShutDown` and `TestForceQueueShutdownUsingShutDown`.
    let queue = plain();
    queue.add("foo");
    let work = get(&queue).await;
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shut_down_with_drain().await }
    });
    settle().await;
    assert!(!drain.is_finished());
    queue.shut_down();
    assert!(!end(drain).await, "the drain did not complete");
    work.done();
    assert!(timeout(DEADLINE, queue.shut_down_with_drain()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_waiting_workers() {
    let queue = plain::<u32>();
    queue.add_after(1, DEADLINE);
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    settle().await;
    queue.shut_down();
    for worker in workers {
        assert!(end(worker).await);
    }
}

#[tokio::test(start_paused = true)]
async fn worker_sleeps_exactly_until_a_delayed_key_is_due() {
    let queue = plain();
    let start = clock::now();
    queue.add_after("late", ms(500));
    queue.add_after("early", ms(200));
    queue.add_after("late", ms(800));
    for (key, at) in [("early", 200), ("late", 500)] {
        assert_eq!(finished(get(&queue).await), key);
        assert!((ms(at)..ms(at + 2)).contains(&start.elapsed()), "{key}: {:?}", start.elapsed());
    }
    assert!(nothing(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn earlier_key_wakes_the_timekeeper() {
    let queue = plain();
    let start = clock::now();
    queue.add_after("late", ms(5000));
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(finished) }
    });
    settle().await;
    queue.add_after("early", ms(10));
    assert_eq!(end(worker).await, Some("early"));
    assert!(start.elapsed() < ms(12), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn dropped_timekeeper_is_replaced() {
    let queue = plain();
    queue.add_after("foo", ms(100));
    let spawn = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.get().await.map(finished) })
    };
    let keeper = spawn();
    settle().await;
    let other = spawn();
    settle().await;
    keeper.abort();
    assert_eq!(end(other).await, Some("foo"));
}

#[tokio::test(start_paused = true)]
async fn timekeeper_that_gets_a_key_is_replaced() {
    let queue = plain();
    let start = clock::now();
    let spawn = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.get().await.map(Work::detach) })
    };
    let (first, second) = (spawn(), spawn());
    settle().await;
    queue.add_after("later", ms(100));
    settle().await;
    queue.add("now");
    let got = BTreeSet::from([end(first).await, end(second).await]);
    assert_eq!(got, BTreeSet::from([Some("now"), Some("later")]));
    assert!(start.elapsed() < ms(102), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn key_of_a_cancelled_get_goes_to_another_worker() {
    let queue = plain();
    let spawn = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.get().await.map(finished) })
    };
    let (first, second) = (spawn(), spawn());
    settle().await;
    queue.add("foo");
    // The first worker has been woken but has not run.
    first.abort();
    assert_eq!(end(second).await, Some("foo"));
}

#[tokio::test]
async fn busy_worker_yields_to_other_tasks() {
    let queue = plain();
    (0..10_000).for_each(|key| queue.add(key));
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            for _ in 0..10_000 {
                get(&queue).await.done();
            }
        }
    });
    let other = tokio::spawn({
        let queue = queue.clone();
        async move { queue.len() }
    });
    assert!(end(other).await > 9000, "the other task waited until the queue was empty");
    end(worker).await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_after_the_limiters_delay() {
    // Like client-go's `TestRateLimitingQueue`.
    let queue = plain();
    let start = clock::now();
    queue.add("one");
    get(&queue).await.retry();
    get(&queue).await.retry();
    assert_eq!(queue.num_requeues(&"one"), 2);
    assert!((ms(1)..ms(3)).contains(&start.elapsed()));
    let work = get(&queue).await;
    assert!((ms(3)..ms(6)).contains(&start.elapsed()), "1 ms and 2 ms: {:?}", start.elapsed());
    work.succeed();
    assert_eq!(queue.num_requeues(&"one"), 0);
    assert!(nothing(&queue).await);
    queue.add_rate_limited("two");
    queue.add_rate_limited("two");
    assert_eq!((queue.num_requeues(&"one"), queue.num_requeues(&"two")), (0, 2));
    queue.forget(&"two");
    assert_eq!(queue.num_requeues(&"two"), 0);
    get(&queue).await.retry_after(ms(700));
    let start = clock::now();
    get(&queue).await.done();
    assert!((ms(700)..ms(702)).contains(&start.elapsed()));
    assert_eq!(queue.num_requeues(&"two"), 0, "the limiter was not called");
    assert_eq!(queue.metrics().retries, 5);
}

#[tokio::test(start_paused = true)]
async fn key_of_a_panicked_worker_is_retried_after_a_delay() {
    let queue = plain();
    queue.add("foo");
    let task = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _work = queue.get().await;
            panic!("injected panic");
        }
    });
    assert!(timeout(DEADLINE, task).await.unwrap().unwrap_err().is_panic());
    assert_eq!((queue.len(), queue.metrics().processing, queue.metrics().delayed), (0, 0, 1));
    assert_eq!(finished(get(&queue).await), "foo");
}

#[tokio::test(start_paused = true)]
async fn key_of_an_aborted_or_timed_out_worker_is_retried() {
    let queue = plain();
    queue.add("foo");
    let hang = || {
        let queue = queue.clone();
        async move {
            let _work = queue.get().await;
            std::future::pending::<()>().await;
        }
    };
    let task = tokio::spawn(hang());
    settle().await;
    task.abort();
    settle().await;
    assert_eq!((queue.len(), queue.metrics().processing, queue.metrics().delayed), (0, 0, 1));
    sleep(ms(2)).await;
    assert!(timeout(ms(1), hang()).await.is_err());
    assert_eq!((queue.num_requeues(&"foo"), queue.metrics().processing), (2, 0));
    assert_eq!(finished(get(&queue).await), "foo");
    assert!(nothing(&queue).await, "a done key does not return");
}

#[tokio::test(start_paused = true)]
async fn slow_lane_leaves_a_worker_free_and_continues_when_done() {
    let queue = WorkQueue::per_cluster_at_most(NonZeroUsize::new(2).unwrap());
    let request = |cluster: &str, n: u32| {
        Request::new(ClusterName::new(cluster).unwrap(), ObjectKey::new("ns", &format!("n{n}")))
    };
    (0..10).for_each(|n| queue.add(request("slow", n)));
    let held = [get(&queue).await, get(&queue).await];
    assert!(nothing(&queue).await, "the slow lane gets no third worker");
    assert_eq!(queue.len(), 8);
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|work| finished(work).to_string()) }
    });
    settle().await;
    queue.add(request("quick", 1));
    assert_eq!(end(waiting).await.as_deref(), Some("quick ns/n1"));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|work| finished(work).to_string()) }
    });
    settle().await;
    queue.shut_down();
    settle().await;
    assert!(!waiting.is_finished(), "keys are still queued");
    held.into_iter().for_each(Work::done);
    assert_eq!(end(waiting).await.as_deref(), Some("slow ns/n2"));
}

#[test]
fn queue_can_be_created_and_filled_outside_a_runtime() {
    let queue = WorkQueue::<Request>::per_cluster();
    let request = Request::new(ClusterName::new("a").unwrap(), ObjectKey::new("ns", "n"));
    queue.add_after(request.clone(), ms(1));
    queue.add_rate_limited(request.clone());
    queue.add(request.clone());
    assert_eq!((queue.len(), queue.num_requeues(&request)), (1, 1));
    assert_eq!(
        format!("{queue:?}"),
        "WorkQueue { queue: Queue { dirty: 1, processing: 0, shutting_down: false, .. }, .. }"
    );
}
