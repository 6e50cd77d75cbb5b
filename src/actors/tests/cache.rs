//! Cache actor tests: long queries, index builds, and recovery during a build.

use std::sync::Arc;

use actix::{Addr, Arbiter, System};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::actors::cache::messages::{AddIndexers, Apply, Ask, OpenedPartition, RemoveIndexer};
use crate::actors::tests::fleet::PATIENCE;
use crate::actors::tests::{Crash, Victim, partition_of};
use crate::actors::{CacheActor, Env, ThreadPools, Tuning};
use crate::cache::testing::{delta, object_with, pods};
use crate::cache::{AddIndexersError, DeltaFifo, IndexFn, Indexers, Query, QueryError};
use informer_hub_types::{Change, DeltaKind, Threads, View};

/// Runs a test on a cache whose runtime for long work has ended.
fn with_a_cache_without_threads(test: impl AsyncFnOnce(Addr<CacheActor>)) {
    let io = Runtime::new().unwrap();
    let handle = Threads::of(io.handle().clone());
    io.shutdown_background();
    System::new().block_on(async move {
        let env = Env::new(ThreadPools::of(&handle), vec![Arbiter::current()], Tuning::default());
        test(env.caches.of(&pods(), &View::default())).await;
    });
}

#[test]
fn index_query_with_many_matches_does_not_run_in_the_cache_actor() {
    // Long work fails with `Stopped`; work that the cache does itself succeeds.
    with_a_cache_without_threads(async |cache| {
        let opened = cache.send(partition_of(["by-node", "by-app"])).await.unwrap();
        let mut fifo = DeltaFifo::new(usize::MAX);
        for number in 0..1_001 {
            let app = if number == 0 { "one" } else { "other" };
            let pod = object_with("ns", &number.to_string(), "u", 1, &[], &[("by-node", "n"), ("by-app", app)]);
            fifo.push(Change::Delta(delta(DeltaKind::Added, pod)));
        }
        let apply = Apply { partition: opened.id, lease: opened.lease, batch: fifo.pop(usize::MAX), version: None };
        assert_eq!(cache.send(apply).await.unwrap().unwrap().objects, 1_001);
        let ask = async |query: Query| cache.send(Ask(query)).await.unwrap().map(|answer| answer.items.len());
        assert_eq!(ask(Query::by_index("by-app", "one")).await, Ok(1));
        assert_eq!(ask(Query::by_index("by-app", "other")).await, Ok(1_000));
        assert_eq!(ask(Query::by_index("by-node", "n")).await, Err(QueryError::Stopped));
        assert_eq!(ask(Query::list()).await, Err(QueryError::Stopped));
    });
}

/// Gate at which the index function waits for objects of version 1, and only for those.
#[derive(Clone, Default)]
struct Gate {
    reached: Arc<Notify>,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    fn indexers(&self, name: &str) -> Indexers {
        let gate = self.clone();
        let function = IndexFn::new(move |object| {
            let version = object.resource_version().to_string();
            if version == "1" {
                gate.reached.notify_one();
                let (open, opened) = &*gate.open;
                let mut open = open.lock();
                while !*open {
                    assert!(!opened.wait_for(&mut open, PATIENCE).timed_out(), "the gate stays closed");
                }
            }
            Ok(vec![version.into()])
        });
        Indexers::new().with(name, function)
    }

    fn open(&self) {
        *self.open.0.lock() = true;
        self.open.1.notify_all();
    }
}

async fn put(cache: &Addr<CacheActor>, opened: &OpenedPartition, names: std::ops::Range<u32>, version: u64) {
    let mut fifo = DeltaFifo::new(usize::MAX);
    for name in names {
        let pod = object_with("ns", &name.to_string(), "u", version, &[], &[]);
        fifo.push(Change::Delta(delta(DeltaKind::Updated, pod)));
    }
    let apply = Apply { partition: opened.id, lease: opened.lease, batch: fifo.pop(usize::MAX), version: None };
    assert!(timeout(PATIENCE, cache.send(apply)).await.expect("the write is not delayed").unwrap().is_some());
}

/// Runs a test on a cache of ten objects.
fn with_a_cache<F: Future<Output = ()>>(test: impl FnOnce(Env, Addr<CacheActor>, OpenedPartition) -> F) {
    let io = Runtime::new().unwrap();
    let handle = Threads::of(io.handle().clone());
    System::new().block_on(async move {
        let arbiter = Arbiter::new();
        let env = Env::new(ThreadPools::of(&handle), vec![arbiter.handle()], Tuning::default());
        let cache = env.caches.of(&pods(), &View::default());
        let opened = cache.send(partition_of([])).await.unwrap();
        put(&cache, &opened, 0..10, 1).await;
        test(env, cache, opened).await;
        arbiter.stop();
    });
    io.shutdown_background();
}

async fn carriers(cache: &Addr<CacheActor>, index: &str, value: &str) -> Result<usize, QueryError> {
    cache.send(Ask(Query::by_index(index, value))).await.unwrap().map(|answer| answer.items.len())
}

#[test]
fn cache_accepts_writes_and_queries_during_an_index_build() {
    with_a_cache(async |_, cache, opened| {
        let gate = Gate::default();
        let first = actix::spawn(cache.send(AddIndexers(gate.indexers("first"))));
        timeout(PATIENCE, gate.reached.notified()).await.expect("the build starts");
        put(&cache, &opened, 0..4, 2).await;
        assert!(matches!(carriers(&cache, "first", "2").await, Err(QueryError::UnknownIndex { .. })));
        let taken = cache.send(AddIndexers(gate.indexers("first"))).await.unwrap();
        assert!(matches!(taken, Err(AddIndexersError::Conflict(_))), "{taken:?}");
        // The next two builds are queued, and the second of them is removed while it waits.
        let second = actix::spawn(cache.send(AddIndexers(gate.indexers("second"))));
        let third = actix::spawn(cache.send(AddIndexers(gate.indexers("third"))));
        tokio::task::yield_now().await;
        assert!(cache.send(RemoveIndexer("third".into())).await.unwrap());
        put(&cache, &opened, 4..6, 3).await;
        gate.open();
        assert_eq!(timeout(PATIENCE, first).await.unwrap().unwrap().unwrap(), Ok(()));
        assert_eq!(timeout(PATIENCE, second).await.unwrap().unwrap().unwrap(), Ok(()));
        let third = timeout(PATIENCE, third).await.unwrap().unwrap().unwrap();
        assert!(matches!(third, Err(AddIndexersError::Removed { .. })), "{third:?}");
        for index in ["first", "second"] {
            for (version, count) in [("1", 4), ("2", 4), ("3", 2)] {
                assert_eq!(carriers(&cache, index, version).await, Ok(count), "{index} {version}");
            }
        }
    });
}

#[test]
fn cache_that_dies_during_an_index_build_frees_the_index_names() {
    with_a_cache(async |env, cache, _| {
        let gate = Gate::default();
        let adding = actix::spawn(cache.send(AddIndexers(gate.indexers("first"))));
        timeout(PATIENCE, gate.reached.notified()).await.expect("the build starts");
        assert!(cache.send(Crash(Victim::Registry)).await.is_err());
        let answer = timeout(PATIENCE, adding).await.expect("the caller gets an answer").unwrap();
        assert!(matches!(answer, Err(_) | Ok(Err(AddIndexersError::Stopped))), "{answer:?}");
        let cache = env.caches.of(&pods(), &View::default());
        assert!(matches!(carriers(&cache, "first", "1").await, Err(QueryError::UnknownIndex { .. })));
        gate.open();
        assert_eq!(cache.send(AddIndexers(gate.indexers("first"))).await.unwrap(), Ok(()));
        assert_eq!(carriers(&cache, "first", "1").await, Ok(10), "the published objects are kept");
    });
}

#[test]
fn index_build_without_threads_fails() {
    with_a_cache_without_threads(async |cache| {
        for _ in 0..2 {
            let added = cache.send(AddIndexers(Gate::default().indexers("first"))).await.unwrap();
            assert_eq!(added, Err(AddIndexersError::Stopped), "the name is free again");
        }
    });
}
