//! Queries by message to a cache actor: their cost, and their effect on writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use actix::Addr;
use informer_hub::actors::messages::{AppliedBatch, Apply, Ask, OpenPartition, OpenedPartition};
use informer_hub::actors::{CacheActor, HubSystem, Tuning};
use informer_hub::cache::{Bounds, DeltaFifo, Query};
use informer_hub_types::{Change, Delta, DeltaKind, Interner, StoredObject, View};
use tokio::runtime::{Builder, Runtime};

use super::{by_labels, indexes, informer, is, now, object, pods, row, time};

/// Number of timed queries.
const QUERIES: usize = 20_000;
/// Number of timed writes, each of one change.
const WRITES: u32 = 5_000;
/// Number of changes in a batched write.
const BATCH: usize = 512;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().build().expect("a current-thread runtime needs no thread");
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}

struct TestBed {
    cache: Addr<CacheActor>,
    partitions: Vec<OpenedPartition>,
    interner: Interner,
    version: usize,
}

pub(super) fn run(objects: usize, clusters: usize) {
    let system = HubSystem::start(Tuning::default()).expect("the system has threads");
    let cache = system.env().caches.of(&pods(), &View::default());
    let open = |cluster| {
        let (origin, health) = informer(cluster);
        block_on(cache.send(OpenPartition {
            origin,
            health,
            indexes: indexes().into(),
            settings: 0,
            converted_by: None,
        }))
        .expect("the cache runs")
    };
    let partitions = (0..clusters).map(open).collect();
    let mut bed = TestBed { cache: cache.clone(), partitions, interner: Interner::default(), version: 1 };
    for at in 0..clusters {
        let numbers: Vec<_> = (at..objects).step_by(clusters).collect();
        for numbers in numbers.chunks(BATCH) {
            bed.write(at, numbers);
        }
    }
    // After this pause without changes, all objects are compressed.
    thread::sleep(Duration::from_secs(6));
    let spread = |step: usize| step.wrapping_mul(2_654_435_761) % objects;
    let values: Vec<_> = (0..QUERIES).map(|number| format!("ip-{}", spread(number))).collect();
    let ask = |query: Query| block_on(cache.send(Ask(query))).expect("the cache runs").expect("the query is valid");
    time("by_index by message, one match", &values, |value| {
        assert_eq!(ask(Query::by_index("by-ip", value)).items.len(), 1);
    });
    time("field that an index has, by message", &values, |value| {
        assert_eq!(ask(Query::matching(is("status.podIP", value))).items.len(), 1);
    });
    bed.writes("writes, one change each", objects);
    let patient = Bounds { within: Duration::from_secs(600), ..Bounds::default() };
    bed.writes_during("… during label scans, one after the other", objects, &by_labels().count().within(patient));
    let bodies = Query::matching(is("spec.serviceAccountName", "nobody")).count().within(patient);
    bed.writes_during("… during scans of every body", objects, &bodies);
}

impl TestBed {
    /// Writes new states of the objects `numbers` of cluster `at`, as one batch.
    fn write(&mut self, at: usize, numbers: &[usize]) {
        let objects: Vec<_> = numbers.iter().map(|number| self.next(*number)).collect();
        self.apply(at, objects);
    }

    fn next(&mut self, number: usize) -> StoredObject {
        self.version += 1;
        object(number, self.version, &mut self.interner)
    }

    fn apply(&self, at: usize, objects: Vec<StoredObject>) {
        let mut fifo = DeltaFifo::new(usize::MAX);
        for object in objects {
            fifo.push(Change::Delta(Delta { kind: DeltaKind::Updated, object: Arc::new(object) }));
        }
        let (partition, lease) = (self.partitions[at].id, self.partitions[at].lease);
        let applied = self.cache.send(Apply { partition, lease, batch: fifo.pop(usize::MAX), version: None });
        let AppliedBatch { pressure, .. } = block_on(applied).expect("the cache runs").expect("the partition is open");
        if let Some(pressure) = pressure {
            block_on(pressure.wait());
        }
    }

    /// Times writes.
    fn writes(&mut self, name: &str, objects: usize) {
        let (begun, mut took) = (now(), Vec::new());
        let mut busy = Duration::ZERO;
        for step in 0..WRITES {
            let number = (step as usize).wrapping_mul(2_654_435_761) % objects;
            let object = self.next(number);
            let begun = now();
            self.apply(number % self.partitions.len(), vec![object]);
            took.push(begun.elapsed());
            busy += begun.elapsed();
        }
        let rate = f64::from(WRITES) / busy.as_secs_f64();
        row(name, &mut took, None, &format!("{rate:.0} a second; {:.1?} in all", begun.elapsed()));
    }

    /// Times writes while a query is repeated.
    fn writes_during(&mut self, name: &str, objects: usize, query: &Query) {
        let (over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        let cache = self.cache.clone();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    block_on(cache.send(Ask(query.clone()))).expect("the cache runs").expect("the query is valid");
                    answers.fetch_add(1, Relaxed);
                }
            });
            self.writes(name, objects);
            over.store(true, Relaxed);
        });
        println!("{:44} {} answers meanwhile", "", answers.load(Relaxed));
    }
}
