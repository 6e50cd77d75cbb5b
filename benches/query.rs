//! What questions cost: look-ups and scans over a million objects in one snapshot, on this machine.
//!
//! `cargo bench --bench query` prints a table; `-- 100000 10` asks for other numbers of objects and clusters.

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use informer_hub::cache::{Applied, DeltaFifo, Inquiry, Query, Snapshot, Store, pack_all};
use informer_hub::query::{Column, Expr, Literal, Test};
use informer_hub::types::{
    ApiResource, Change, ClusterName, Delta, DeltaKind, Dictionary, Gvr, IndexEntry, InformerHealth, Interner,
    ObjectKey, Origin, Phase, ResourceVersion, Scope, StoredObject, StoredObjectParts, Uid,
};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Objects that share a node.
const PER_NODE: usize = 100;
/// How often a look-up is timed.
const LOOK_UPS: usize = 200_000;
/// How often a scan is.
const SCANS: usize = 9;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let (objects, clusters) = (numbers.next().unwrap_or(1_000_000), numbers.next().unwrap_or(4));
    let begun = now();
    let snapshot = fill(objects, clusters);
    println!("{objects} objects in {clusters} clusters, filled in {:?}\n", begun.elapsed());
    look_ups(&snapshot, objects);
    println!();
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let labels = || Query::by_labels("app=app-7,tier!=gold".parse().expect("a selector"));
    let path = || "spec.nodeName".parse().expect("a path");
    scan("labels, objects", &snapshot, &labels(), workers);
    scan("labels, count", &snapshot, &labels().count(), workers);
    scan("labels, count, one thread", &snapshot, &labels().count(), 1);
    scan("labels, first 50", &snapshot, &labels().limit(50.try_into().expect("not zero")), workers);
    let prefix = Query::matching(Expr::Name(informer_hub::query::TextTest::Prefix("web-99".into()))).count();
    scan("name prefix, count", &snapshot, &prefix, workers);
    scan("namespace, count", &snapshot, &Query::by_namespace("ns-7").count(), workers);
    let field = Expr::Field { path: path(), test: Test::Is(Literal::Text("node-7".into())) };
    scan("field of every body, count", &snapshot, &Query::matching(field.clone()).count(), workers);
    scan("labels, then field, count", &snapshot, &labels().and(field).count(), workers);
    scan("count by field", &snapshot, &Query::list().count_by(Column::Path(path())), workers);
    let sorted = Query::list().sort_by(path()).limit(50.try_into().expect("not zero"));
    scan("sorted by field, first 50", &snapshot, &sorted, workers);
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
    Instant::now()
}

fn object(number: usize, interner: &mut Interner) -> StoredObject {
    let (namespace, name) = (format!("ns-{}", number % 50), format!("web-{number}"));
    let node = format!("node-{}", number / PER_NODE);
    let labels = [
        ("app", format!("app-{}", number % 200)),
        ("tier", ["gold", "silver", "bronze"][number % 3].to_owned()),
        ("pod-template-hash", format!("{:x}", number % 5_000)),
    ];
    let entry = |interner: &mut Interner, index: &str, value: &str| IndexEntry {
        index: interner.string(index),
        value: interner.string(value),
    };
    let index_values = vec![entry(interner, "by-node", &node), entry(interner, "by-ip", &format!("ip-{number}"))];
    let uid = format!("{number:08x}-7dec-11d0-a765-00a0c91e6bf6");
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{number}","ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"{:08x}-aaaa-11d0-a765-00a0c91e6bf6","controller":true}}]}},"spec":{{"containers":[{{"name":"main","image":"registry.example/app-{}:{}","resources":{{"requests":{{"cpu":"{}m","memory":"64Mi"}}}}}}],"nodeName":"{node}","serviceAccountName":"default","restartPolicy":"Always"}},"status":{{"phase":"Running","podIP":"ip-{number}","startTime":"2026-01-01T00:00:00Z"}}}}"#,
        number % 5_000,
        number % 200,
        number % 7,
        number % 900,
    );
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(&namespace, &name),
        uid: Uid::new(&uid),
        resource_version: ResourceVersion::new(&number.to_string()),
        labels: interner.labels(labels.map(|(key, value)| (key.into(), value.into()))),
        index_values,
        json: json.into_bytes(),
    })
}

/// A store as informers fill it, in batches, its objects compressed.
fn fill(objects: usize, clusters: usize) -> Arc<Snapshot> {
    let pods = ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true };
    let mut store = Store::new(pods.clone());
    let mut interner = Interner::default();
    let samples: Vec<_> = (0..500).map(|number| object(number * 7, &mut interner).sample()).collect();
    let dictionary = Arc::new(Dictionary::train(&samples).expect("they are alike"));
    let ids: Vec<_> = (0..clusters)
        .map(|cluster| {
            let health = InformerHealth::new();
            health.set_phase(Phase::Watching);
            health.set_synced();
            let cluster = ClusterName::new(format!("c{cluster:04}")).expect("a name");
            let cluster_labels = [("region".to_owned(), "eu".to_owned())].into();
            let origin = Origin { cluster, cluster_labels, resource: pods.clone(), scope: Scope::all() };
            store.open(Arc::new(origin), health, vec!["by-node".into(), "by-ip".into()])
        })
        .collect();
    let mut fifo = DeltaFifo::new(usize::MAX);
    for (at, id) in ids.iter().enumerate() {
        for number in (at..objects).step_by(clusters) {
            let object = Arc::new(object(number, &mut interner));
            fifo.push(Change::Delta(Delta { kind: DeltaKind::Added, object }));
            if fifo.len() == 512 {
                apply(&mut store, *id, &mut fifo, &dictionary);
            }
        }
        apply(&mut store, *id, &mut fifo, &dictionary);
    }
    store.published().load_full()
}

fn apply(store: &mut Store, id: informer_hub::cache::PartitionId, fifo: &mut DeltaFifo, dictionary: &Arc<Dictionary>) {
    let outbox = store.apply(id, fifo.pop(usize::MAX)).expect("it is open");
    let added = outbox.applied.iter().filter_map(|applied| match applied {
        Applied::Added(object) => Some(object),
        _ => None,
    });
    let _ = pack_all(added, dictionary, &Arc::default());
}

fn look_ups(snapshot: &Arc<Snapshot>, objects: usize) {
    let mut at = 1_usize;
    let mut next = || {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (at >> 33) % objects
    };
    let values: Vec<_> = (0..LOOK_UPS).map(|_| format!("ip-{}", next())).collect();
    time("by_index, one match", &values, |value| {
        assert_eq!(snapshot.find_by_index("by-ip", value).expect("it is declared").len(), 1);
    });
    time("answer by index, one match", &values[..LOOK_UPS / 10], |value| {
        let answer = snapshot.answer(&Query::by_index("by-ip", value)).expect("it is declared");
        assert_eq!(answer.items.len(), 1);
    });
    let nodes: Vec<_> = (0..LOOK_UPS / 100).map(|_| format!("node-{}", next() / PER_NODE)).collect();
    time("by_index, 100 matches", &nodes, |value| {
        black_box(snapshot.find_by_index("by-node", value).expect("it is declared"));
    });
    let keys: Vec<_> = (0..LOOK_UPS).map(|_| next()).map(|n| (format!("ns-{}", n % 50), format!("web-{n}"))).collect();
    let clusters: Vec<_> = snapshot.partitions().map(|(_, partition)| partition.origin().cluster.clone()).collect();
    time("get by cluster and key", &keys, |(namespace, name)| {
        black_box(snapshot.get(&clusters[name.len() % clusters.len()], &ObjectKey::new(namespace, name)));
    });
}

/// Times each call.
fn time<T>(what: &str, of: &[T], mut call: impl FnMut(&T)) {
    of.iter().take(of.len() / 10).for_each(&mut call);
    let mut took: Vec<_> = of
        .iter()
        .map(|one| {
            let begun = now();
            call(one);
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    let at = |share: usize| took[took.len() * share / 1000];
    println!("{what:32} p50 {:>9.2?}  p99 {:>9.2?}  p99.9 {:>9.2?}", at(500), at(990), at(999));
}

/// Times a question that is worked off by threads, as the cache has it done.
fn scan(what: &str, snapshot: &Arc<Snapshot>, query: &Query, workers: usize) {
    let (mut took, mut cpu): (Vec<Duration>, Vec<Duration>) = (Vec::new(), Vec::new());
    let mut result = String::new();
    for _ in 0..SCANS {
        let begun = now();
        let inquiry = Inquiry::new(Arc::clone(snapshot), query.clone(), None);
        thread::scope(|scope| {
            let work = || {
                let before = on_cpu();
                inquiry.work();
                on_cpu().saturating_sub(before)
            };
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            cpu.push(workers.into_iter().map(|worker| worker.join().expect("it does not panic")).sum::<Duration>());
        });
        let answer = inquiry.finish().expect("it has an answer");
        took.push(begun.elapsed());
        let found = answer.count.unwrap_or((answer.items.len() + answer.groups.len()) as u64);
        result = format!("{found} of {} looked at, {} read", answer.examined, answer.read);
    }
    took.sort_unstable();
    cpu.sort_unstable();
    let (p50, max, cpu) = (took[SCANS / 2], took[SCANS - 1], cpu[SCANS / 2]);
    println!("{what:32} p50 {p50:>9.2?}  max {max:>9.2?}  cpu {cpu:>9.2?}  {result}");
}

/// How long this thread has run, whatever else the machine does; zero where that cannot be told.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}
