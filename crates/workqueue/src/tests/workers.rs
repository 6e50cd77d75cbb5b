//! Tests of the worker loop: panics, stop and abort.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::ms;
use crate::{Fifo, ItemExponentialFailureRateLimiter, Work, WorkQueue};

const DEADLINE: Duration = Duration::from_secs(3600);
const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

fn queue(keys: u32) -> WorkQueue<u32> {
    let queue = WorkQueue::with(Fifo::default(), ItemExponentialFailureRateLimiter::new(ms(1), Duration::from_secs(1)));
    (0..keys).for_each(|key| queue.add(key));
    queue
}

#[tokio::test(start_paused = true)]
async fn panic_delays_only_its_own_key() {
    let (queue, stop, done) = (queue(10), CancellationToken::new(), Arc::<Mutex<Vec<u32>>>::default());
    let workers = queue.run_workers(TWO, &stop, {
        let (queue, done, stop) = (queue.clone(), Arc::clone(&done), stop.clone());
        move |work: Work<u32>| {
            // More panics than workers, both in creating the future and in running it.
            assert!(*work != 3 || queue.num_requeues(&3) >= 3, "injected panic");
            let (queue, done, stop) = (queue.clone(), Arc::clone(&done), stop.clone());
            async move {
                assert!(*work != 5 || queue.num_requeues(&5) >= 3, "injected panic");
                let mut done = done.lock();
                done.push(*work);
                work.succeed();
                if done.len() == 10 {
                    stop.cancel();
                }
            }
        }
    });
    timeout(DEADLINE, workers).await.expect("the workers end");
    let mut done = done.lock().clone();
    done.sort_unstable();
    assert_eq!(done, (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn stop_completes_keys_in_process_and_leaves_queued_ones() {
    let (queue, stop, done) = (queue(10), CancellationToken::new(), Arc::<Mutex<Vec<u32>>>::default());
    let workers = queue.run_workers(TWO, &stop, {
        let done = Arc::clone(&done);
        move |work: Work<u32>| {
            let done = Arc::clone(&done);
            async move {
                sleep(ms(10)).await;
                done.lock().push(*work);
                work.succeed();
            }
        }
    });
    let cancel = async {
        sleep(ms(15)).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(timeout(DEADLINE, workers), cancel);
    ended.expect("the workers end");
    assert_eq!(*done.lock(), [0, 1, 2, 3]);
    assert_eq!((queue.len(), queue.is_shutting_down(), queue.metrics().processing), (6, true, 0));
}

#[tokio::test(start_paused = true)]
async fn workers_end_after_shutdown_and_the_queued_keys() {
    let (queue, stop, done) = (queue(10), CancellationToken::new(), Arc::<Mutex<u32>>::default());
    queue.shut_down();
    let workers = queue.run_workers(TWO, &stop, {
        let done = Arc::clone(&done);
        move |work: Work<u32>| {
            *done.lock() += 1;
            async move { work.succeed() }
        }
    });
    timeout(DEADLINE, workers).await.expect("the workers end");
    assert_eq!((*done.lock(), queue.len()), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn dropped_workers_return_their_keys() {
    let (queue, stop) = (queue(2), CancellationToken::new());
    let workers = queue.run_workers(TWO, &stop, |work: Work<u32>| async move {
        let _work = work;
        std::future::pending::<()>().await;
    });
    assert!(timeout(ms(1), workers).await.is_err());
    for _ in 0..2 {
        timeout(DEADLINE, queue.get()).await.expect("it comes back").expect("the queue is open").done();
    }
}
