//! Long questions take turns, have their time, and end when nobody waits; pages stay on one snapshot.

use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Arbiter, System};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::actors::cache::messages::{Apply, Ask, OpenPartition, OpenedPartition};
use crate::actors::runtime::capacity::SCANS_WAITING;
use crate::actors::tests::fleet::PATIENCE;
use crate::actors::{CacheActor, Env, Tuning};
use crate::cache::testing::{delta, object_with, origin, pods};
use crate::cache::{Answer, Bounds, DeltaFifo, Held, OWNER_INDEX, Query, QueryError};
use informer_hub_types::{Change, DeltaKind, InformerHealth, Threads, Uid, View};

/// Keeps the one thread that works on long questions busy until it is opened.
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

struct Bed {
    cache: Addr<CacheActor>,
    opened: OpenedPartition,
    gate: Gate,
}

impl Bed {
    async fn put(&self, names: std::ops::Range<u32>, version: u64) {
        let mut fifo = DeltaFifo::new(usize::MAX);
        for name in names {
            let pod = object_with("ns", &format!("{name:05}"), "u", version, &[], &[]);
            fifo.push(Change::Delta(delta(DeltaKind::Updated, pod)));
        }
        let apply =
            Apply { partition: self.opened.id, lease: self.opened.lease, batch: fifo.pop(usize::MAX), version: None };
        let applied = timeout(PATIENCE, self.cache.send(apply)).await.expect("a write is not held up");
        assert!(applied.unwrap().is_some());
    }

    async fn ask(&self, query: Query) -> Result<Answer, QueryError> {
        timeout(PATIENCE, self.cache.send(Ask(query))).await.expect("an answer is in time").unwrap()
    }
}

/// A cache of 2,000 objects with one turn, and one thread that is busy.
fn with_a_busy_cache<F: Future<Output = ()>>(test: impl FnOnce(Bed) -> F) {
    let io = Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).enable_all().build().unwrap();
    let (handle, gate) = (Threads::of(io.handle().clone()), Gate::default());
    System::new().block_on(async {
        let tuning = Tuning { scans: 1, ..Tuning::default() };
        let env = Env::new(handle.clone(), handle.clone(), vec![Arbiter::current()], tuning);
        let cache = env.caches.of(&pods(), &View::default());
        let open =
            OpenPartition { origin: origin("c"), health: InformerHealth::new(), indexes: Vec::new(), settings: 0 };
        let opened = cache.send(open).await.unwrap();
        let bed = Bed { cache, opened, gate: gate.clone() };
        bed.put(0..2_000, 1).await;
        let closed = gate.clone();
        handle.spawn_blocking(move || closed.wait());
        test(bed).await;
    });
    gate.open();
    io.shutdown_background();
}

fn quick(query: Query) -> Query {
    query.within(Bounds { within: Duration::from_millis(20), ..Bounds::default() })
}

#[test]
fn a_scan_that_is_not_done_in_time_is_told_so_and_nothing_else_is_held_up() {
    with_a_busy_cache(async |bed| {
        let late = bed.ask(quick(Query::list())).await.unwrap_err();
        assert!(matches!(late, QueryError::Deadline { examined: 0, candidates: 2_000, .. }), "{late:?}");
        bed.put(0..10, 2).await;
        assert_eq!(bed.ask(Query::get("ns", "00001")).await.unwrap().items.len(), 1);
        bed.gate.open();
        assert_eq!(bed.ask(Query::list()).await.unwrap().items.len(), 2_000);
    });
}

#[test]
fn a_scan_waits_for_its_turn_in_its_own_time_and_one_that_nobody_waits_for_gives_its_turn_up() {
    with_a_busy_cache(async |bed| {
        let first = actix::spawn(bed.cache.send(Ask(Query::list())));
        tokio::task::yield_now().await;
        let second = bed.ask(quick(Query::list())).await.unwrap_err();
        assert_eq!(second, QueryError::Crowded { within: Duration::from_millis(20) });
        first.abort();
        bed.gate.open();
        assert_eq!(bed.ask(Query::list()).await.unwrap().items.len(), 2_000);
    });
}

#[test]
fn more_scans_than_may_wait_are_refused() {
    with_a_busy_cache(async |bed| {
        let mut asked = Vec::new();
        for _ in 0..=SCANS_WAITING {
            asked.push(actix::spawn(bed.cache.send(Ask(Query::list()))));
            // The message is sent, taken and its question begun, each on a turn of this one thread.
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
        let refused = bed.ask(Query::list()).await.unwrap_err();
        assert_eq!(refused, QueryError::Busy { waiting: SCANS_WAITING });
        bed.gate.open();
        for one in asked {
            let answer = timeout(PATIENCE, one).await.expect("each has its turn").unwrap().unwrap();
            assert_eq!(answer.unwrap().items.len(), 2_000);
        }
    });
}

#[test]
fn pages_are_of_one_snapshot_whatever_is_written_meanwhile() {
    with_a_busy_cache(async |bed| {
        bed.gate.open();
        let question = || Query::by_namespace("ns").limit(300.try_into().unwrap());
        let mut answer = bed.ask(question()).await.unwrap();
        let mut versions: Vec<_> = answer.items.iter().map(|pod| pod.resource_version().to_string()).collect();
        while let Some(token) = answer.next.clone() {
            bed.put(0..2_100, 2).await;
            answer = bed.ask(question().continue_at(token)).await.unwrap();
            versions.extend(answer.items.iter().map(|pod| pod.resource_version().to_string()));
        }
        assert!(!answer.more);
        assert_eq!(versions, vec!["1"; 2_000]);
    });
}

#[test]
fn a_token_that_is_forged_of_another_question_or_too_old_is_told_apart() {
    with_a_busy_cache(async |bed| {
        bed.gate.open();
        let question = || Query::by_namespace("ns").limit(300.try_into().unwrap());
        let token = bed.ask(question()).await.unwrap().next.unwrap();
        let ask =
            async |query: Query, token: &str| bed.ask(query.continue_at(token)).await.map(|answer| answer.items.len());
        assert_eq!(ask(question(), &token).await, Ok(300));
        assert_eq!(ask(question().limit(7.try_into().unwrap()), &token).await, Ok(7), "the limit may change");
        let forged = format!("{}{}", &token[..token.len() - 1], if token.ends_with('A') { 'Q' } else { 'A' });
        assert_eq!(ask(question(), &forged).await, Err(QueryError::ForgedToken));
        assert_eq!(ask(question(), "").await, Err(QueryError::ForgedToken));
        let other = Query::list().limit(300.try_into().unwrap());
        assert_eq!(ask(other, &token).await, Err(QueryError::ForeignToken));
        for version in 2..2 + Held::SNAPSHOTS as u64 {
            bed.put(0..1, version).await;
            bed.ask(question()).await.unwrap();
        }
        assert_eq!(ask(question(), &token).await, Err(QueryError::ExpiredToken));
    });
}

#[test]
fn the_first_question_for_what_an_object_owns_has_the_index_built_that_answers_the_next() {
    with_a_busy_cache(async |bed| {
        bed.gate.open();
        let children = || Query::children_of(&Uid::new("nobody"));
        assert!(bed.ask(children()).await.unwrap().plan.is_scan());
        let built = async {
            while bed.ask(children()).await.unwrap().plan.is_scan() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, built).await.expect("the index is built");
        let plan = bed.ask(children()).await.unwrap().plan.to_string();
        assert_eq!(plan, format!("index {OWNER_INDEX} = \"nobody\": about 0 objects; all match"));
    });
}
