//! Scans: limited concurrency, deadlines, cancellation, and pages from one snapshot.

use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Arbiter, System};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::actors::cache::messages::{Apply, Ask, OpenedPartition};
use crate::actors::runtime::capacity::SCANS_WAITING;
use crate::actors::tests::fleet::PATIENCE;
use crate::actors::tests::partition_of;
use crate::actors::{CacheActor, Env, ThreadPools, Tuning};
use crate::cache::testing::{delta, object_with, pods};
use crate::cache::{Answer, Bounds, DeltaFifo, OWNER_INDEX, PinnedSnapshots, Query, QueryError};
use informer_hub_types::{Change, DeltaKind, Threads, Uid, View};

/// Occupies the only blocking thread until opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn wait(&self) {
        let mut open = self.0.0.lock();
        while !*open {
            assert!(!self.0.1.wait_for(&mut open, PATIENCE).timed_out(), "the gate stays closed");
        }
    }

    fn open(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

struct TestCache {
    cache: Addr<CacheActor>,
    opened: OpenedPartition,
    gate: Gate,
}

impl TestCache {
    async fn put(&self, names: std::ops::Range<u32>, version: u64) {
        let mut fifo = DeltaFifo::new(usize::MAX);
        for name in names {
            let pod = object_with("ns", &format!("{name:05}"), "u", version, &[], &[]);
            fifo.push(Change::Delta(delta(DeltaKind::Updated, pod)));
        }
        let apply =
            Apply { partition: self.opened.id, lease: self.opened.lease, batch: fifo.pop(usize::MAX), version: None };
        let applied = timeout(PATIENCE, self.cache.send(apply)).await.expect("the write is not delayed");
        assert!(applied.unwrap().is_some());
    }

    async fn ask(&self, query: Query) -> Result<Answer, QueryError> {
        timeout(PATIENCE, self.cache.send(Ask(query))).await.expect("answered in time").unwrap()
    }
}

/// Runs a test on a cache of 2,000 objects with one scan permit and one thread for queries, which is busy.
fn with_a_busy_cache<F: Future<Output = ()>>(run: impl FnOnce(TestCache) -> F) {
    let io = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let one_thread = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    let (handle, gate) = (Threads::of(one_thread.handle().clone()), Gate::default());
    System::new().block_on(async {
        let tuning = Tuning { scans: 1, ..Tuning::default() };
        let others = ThreadPools::of(&Threads::of(io.handle().clone()));
        let pools = ThreadPools { readers: handle.clone(), ..others };
        let env = Env::new(pools, vec![Arbiter::current()], tuning);
        let cache = env.caches.of(&pods(), &View::default());
        let opened = cache.send(partition_of([])).await.unwrap();
        let test = TestCache { cache, opened, gate: gate.clone() };
        test.put(0..2_000, 1).await;
        let closed = gate.clone();
        handle.spawn_blocking(move || closed.wait());
        run(test).await;
    });
    gate.open();
    [io, one_thread].into_iter().for_each(Runtime::shutdown_background);
}

fn with_short_deadline(query: Query) -> Query {
    query.within(Bounds { within: Duration::from_millis(20), ..Bounds::default() })
}

#[test]
fn scan_past_its_deadline_fails_and_blocks_nothing() {
    with_a_busy_cache(async |test| {
        let late = test.ask(with_short_deadline(Query::list())).await.unwrap_err();
        assert!(matches!(late, QueryError::Deadline { examined: 0, candidates: 2_000, .. }), "{late:?}");
        test.put(0..10, 2).await;
        assert_eq!(test.ask(Query::get("ns", "00001")).await.unwrap().items.len(), 1);
        test.gate.open();
        assert_eq!(test.ask(Query::list()).await.unwrap().items.len(), 2_000);
    });
}

#[test]
fn scan_waits_for_a_permit_until_its_deadline_and_a_dropped_scan_frees_its_permit() {
    with_a_busy_cache(async |test| {
        let first = actix::spawn(test.cache.send(Ask(Query::list())));
        tokio::task::yield_now().await;
        let second = test.ask(with_short_deadline(Query::list())).await.unwrap_err();
        assert_eq!(second, QueryError::Crowded { within: Duration::from_millis(20) });
        first.abort();
        test.gate.open();
        assert_eq!(test.ask(Query::list()).await.unwrap().items.len(), 2_000);
    });
}

#[test]
fn scans_beyond_the_waiting_limit_are_rejected() {
    with_a_busy_cache(async |test| {
        let mut asked = Vec::new();
        for _ in 0..=SCANS_WAITING {
            asked.push(actix::spawn(test.cache.send(Ask(Query::list()))));
            // The message is sent and handled, and its query starts. Each of these steps needs a turn of this thread.
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
        let refused = test.ask(Query::list()).await.unwrap_err();
        assert_eq!(refused, QueryError::Busy { waiting: SCANS_WAITING });
        test.gate.open();
        for one in asked {
            let answer = timeout(PATIENCE, one).await.expect("every scan gets a permit").unwrap().unwrap();
            assert_eq!(answer.unwrap().items.len(), 2_000);
        }
    });
}

#[test]
fn pages_read_one_snapshot_despite_later_writes() {
    with_a_busy_cache(async |test| {
        test.gate.open();
        let question = || Query::by_namespace("ns").limit(300.try_into().unwrap());
        let mut answer = test.ask(question()).await.unwrap();
        let mut versions: Vec<_> = answer.items.iter().map(|pod| pod.resource_version().to_string()).collect();
        while let Some(token) = answer.next.clone() {
            test.put(0..2_100, 2).await;
            answer = test.ask(question().continue_at(token)).await.unwrap();
            versions.extend(answer.items.iter().map(|pod| pod.resource_version().to_string()));
        }
        assert!(!answer.more);
        assert_eq!(versions, vec!["1"; 2_000]);
    });
}

#[test]
fn continue_token_errors_distinguish_forged_foreign_and_expired() {
    with_a_busy_cache(async |test| {
        test.gate.open();
        let question = || Query::by_namespace("ns").limit(300.try_into().unwrap());
        let token = test.ask(question()).await.unwrap().next.unwrap();
        let ask =
            async |query: Query, token: &str| test.ask(query.continue_at(token)).await.map(|answer| answer.items.len());
        assert_eq!(ask(question(), &token).await, Ok(300));
        assert_eq!(ask(question().limit(7.try_into().unwrap()), &token).await, Ok(7), "the limit may change");
        let forged = format!("{}{}", &token[..token.len() - 1], if token.ends_with('A') { 'Q' } else { 'A' });
        assert_eq!(ask(question(), &forged).await, Err(QueryError::ForgedToken));
        assert_eq!(ask(question(), "").await, Err(QueryError::ForgedToken));
        let other = Query::list().limit(300.try_into().unwrap());
        assert_eq!(ask(other, &token).await, Err(QueryError::ForeignToken));
        for version in 2..2 + PinnedSnapshots::SNAPSHOTS as u64 {
            test.put(0..1, version).await;
            test.ask(question()).await.unwrap();
        }
        assert_eq!(ask(question(), &token).await, Err(QueryError::ExpiredToken));
    });
}

#[test]
fn first_children_query_builds_the_owner_index_for_the_next() {
    with_a_busy_cache(async |test| {
        test.gate.open();
        let children = || Query::children_of(&Uid::new("nobody"));
        assert!(test.ask(children()).await.unwrap().plan.is_scan());
        let built = async {
            while test.ask(children()).await.unwrap().plan.is_scan() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, built).await.expect("the index is built");
        let plan = test.ask(children()).await.unwrap().plan.to_string();
        assert_eq!(plan, format!("index {OWNER_INDEX} = \"nobody\": about 0 objects; all match"));
    });
}
