//! Tests of the handle under many interleavings of its critical sections and wake-ups.
//!
//! They verify that no key is lost or processed concurrently, and that no worker sleeps forever. The explorer itself
//! fails on a deadlock or lost wake-up, and prints the schedule that shows it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use shuttle::future::{block_on, spawn, yield_now};
use shuttle::scheduler::PctScheduler;
use shuttle::{Config, Runner};

use super::ms;
use crate::{Fifo, ItemFastSlowRateLimiter, Work, WorkQueue};
use informer_hub_testing::{cases, seed};

thread_local! {
    static HOOK: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Lets the explorer switch threads here, if one is running.
pub(crate) fn point() {
    if let Some(hook) = HOOK.get() {
        hook();
    }
}

/// Runs `test` under many interleavings: random ones, and those of a scheduler that finds bugs which need only a few
/// preemptions (PCT).
fn explore(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(move || {
        // Not while panicking, when the exploration is already over.
        HOOK.set(Some(|| {
            if !std::thread::panicking() {
                shuttle::thread::yield_now();
            }
        }));
        test();
        HOOK.set(None);
    });
    let tries = usize::try_from(cases(1000)).unwrap();
    let again = Arc::clone(&test);
    let seed = seed();
    shuttle::check_random_with_seed(move || again(), seed, tries);
    Runner::new(PctScheduler::new_from_seed(seed, 3, tries), Config::default()).run(move || test());
}

fn queue() -> WorkQueue<u8> {
    WorkQueue::with(Fifo::default(), ItemFastSlowRateLimiter::new(ms(0), ms(0), 0))
}

fn finished(work: Work<u8>) -> u8 {
    let key = *work;
    work.done();
    key
}

/// Per key: the number of changes, the number that a worker has read, and whether a worker is processing the key.
#[derive(Default)]
struct World {
    changes: BTreeMap<u8, u32>,
    read: BTreeMap<u8, u32>,
    working: BTreeMap<u8, bool>,
}

type Shared = Arc<parking_lot::Mutex<World>>;

async fn worker(queue: WorkQueue<u8>, world: Shared) {
    while let Some(work) = queue.get().await {
        {
            let mut world = world.lock();
            assert_ne!(world.working.insert(*work, true), Some(true), "processed concurrently");
            let now = world.changes.get(&*work).copied().unwrap_or(0);
            world.read.insert(*work, now);
        }
        yield_now().await;
        world.lock().working.insert(*work, false);
        work.done();
    }
}

/// Changes each key, then adds it to the queue.
async fn producer(queue: WorkQueue<u8>, world: Shared, keys: &'static [u8]) {
    for key in keys {
        *world.lock().changes.entry(*key).or_insert(0) += 1;
        queue.add(*key);
        yield_now().await;
    }
}

#[test]
fn no_change_is_missed_and_all_workers_end() {
    explore(|| {
        block_on(async {
            let (queue, world) = (queue(), Shared::default());
            let workers: Vec<_> = (0..3).map(|_| spawn(worker(queue.clone(), Arc::clone(&world)))).collect();
            let producers: Vec<_> = [&[1, 2, 1][..], &[2, 1, 3]]
                .map(|keys| spawn(producer(queue.clone(), Arc::clone(&world), keys)))
                .into_iter()
                .collect();
            for producer in producers {
                producer.await.unwrap();
            }
            assert!(queue.shut_down_with_drain().await);
            {
                let world = world.lock();
                assert_eq!(world.read, world.changes, "the last state of each key was read");
            }
            for worker in workers {
                worker.await.unwrap();
            }
        });
    });
}

#[test]
fn each_key_wakes_a_waiting_worker() {
    explore(|| {
        block_on(async {
            let queue = queue();
            // Each worker calls `get` only once, so each key needs its own wake-up.
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let queue = queue.clone();
                    spawn(async move { queue.get().await.map(Work::detach) })
                })
                .collect();
            let adder = spawn({
                let queue = queue.clone();
                async move { queue.add(3) }
            });
            queue.add(1);
            queue.add(2);
            adder.await.unwrap();
            let mut got = Vec::new();
            for worker in workers {
                got.extend(worker.await.unwrap());
            }
            got.sort_unstable();
            assert_eq!(got, [1, 2, 3]);
        });
    });
}

#[test]
fn cancelled_get_loses_no_key_and_no_wake_up() {
    explore(|| {
        block_on(async {
            let queue = queue();
            let spawn_worker = || {
                let queue = queue.clone();
                spawn(async move { queue.get().await.map(finished) })
            };
            let (fickle, steady) = (spawn_worker(), spawn_worker());
            yield_now().await;
            let adder = spawn({
                let queue = queue.clone();
                async move { queue.add(1) }
            });
            fickle.abort();
            adder.await.unwrap();
            // If the worker finished before it was aborted, it has processed the key, so the key is added again. If it
            // was aborted, the key is still queued or was returned.
            if fickle.await.is_ok() {
                queue.add(1);
            }
            assert_eq!(steady.await.unwrap(), Some(1));
        });
    });
}

#[test]
fn plain_shutdown_ends_a_drain_and_all_workers() {
    explore(|| {
        block_on(async {
            let queue = queue();
            queue.add(1);
            let held = queue.get().await;
            let drain = spawn({
                let queue = queue.clone();
                async move { queue.shut_down_with_drain().await }
            });
            let idle = spawn({
                let queue = queue.clone();
                async move { queue.get().await.is_none() }
            });
            // If the drain begins only after this call, it ends when the held key is done.
            queue.shut_down();
            assert!(idle.await.unwrap());
            held.map(finished);
            assert!(drain.await.is_ok());
        });
    });
}
