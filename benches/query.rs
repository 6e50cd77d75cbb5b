//! Cost of queries: look-ups and scans over a million objects in one snapshot.
//!
//! `cargo bench --bench query` prints a table; `-- 100000 10` sets the numbers of objects and clusters.

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use informer_hub::cache::{
    Applied, DeclaredIndex, DeltaFifo, PartitionId, Query, RunningQuery, Snapshot, Store, pack_all,
};
use informer_hub_query::{Column, Expr, Literal, Test};
use informer_hub_types::{
    ApiResource, Change, ClusterName, Delta, DeltaKind, Dictionary, FieldPath, Gvr, IndexEntry, InformerHealth,
    Interner, ObjectKey, Origin, Phase, ResourceVersion, Scope, StoredObject, StoredObjectParts, Uid,
};

#[path = "query/messages.rs"]
mod messages;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Number of objects on each node.
const PER_NODE: usize = 100;
/// Number of timed look-ups.
const LOOK_UPS: usize = 200_000;
/// Number of timed scans.
const SCANS: usize = 9;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let (objects, clusters) = (numbers.next().unwrap_or(1_000_000), numbers.next().unwrap_or(4));
    let begun = now();
    let snapshot = fill(objects, clusters);
    println!(
        "{objects} objects in {clusters} clusters, filled in {:?}; look-ups: {LOOK_UPS}, scans: {SCANS}\n",
        begun.elapsed()
    );
    println!("{:44} {:>11} {:>11} {:>11} {:>11}  found", "", "p50", "p99", "most", "CPU");
    look_ups(&snapshot, objects);
    let workers = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    scans(&snapshot, workers);
    drop(snapshot);
    messages::run(objects, clusters);
}

fn path(text: &str) -> FieldPath {
    text.parse().expect("the path is valid")
}

fn is(path_text: &str, text: &str) -> Expr {
    Expr::Field { path: path(path_text), test: Test::Is(Literal::Text(text.into())) }
}

/// Returns a label query that matches one object in 300.
fn by_labels() -> Query {
    Query::by_labels("app=app-7,tier!=gold".parse().expect("the selector is valid"))
}

fn scans(snapshot: &Arc<Snapshot>, workers: usize) {
    let first_50 = |query: Query| query.limit(50.try_into().expect("50 is not zero"));
    scan("labels, objects", snapshot, &by_labels(), workers);
    scan("labels, count", snapshot, &by_labels().count(), workers);
    scan("labels, count, one thread", snapshot, &by_labels().count(), 1);
    let without = || Query::by_labels("tier!=gold".parse().expect("the selector is valid"));
    scan("labels that must not be there, count", snapshot, &without().count(), workers);
    scan("labels, first 50", snapshot, &first_50(by_labels()), workers);
    let prefix = Query::matching(Expr::Name(informer_hub_query::TextTest::Prefix("web-99".into()))).count();
    scan("name prefix, count", snapshot, &prefix, workers);
    scan("namespace, count", snapshot, &Query::by_namespace("ns-7").count(), workers);
    scan("field that an index has, objects", snapshot, &Query::matching(is("spec.nodeName", "node-7")), workers);
    let field = || is("spec.serviceAccountName", "nobody");
    scan("field of every body, count", snapshot, &Query::matching(field()).count(), workers);
    scan("labels, then field, count", snapshot, &by_labels().and(field()).count(), workers);
    scan("count by field", snapshot, &Query::list().count_by(Column::Path(path("spec.nodeName"))), workers);
    scan("sorted by field, first 50", snapshot, &first_50(Query::list().sort_by(path("spec.nodeName"))), workers);
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
    Instant::now()
}

fn object(number: usize, version: usize, interner: &mut Interner) -> StoredObject {
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
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"{:08x}-aaaa-11d0-a765-00a0c91e6bf6","controller":true}}]}},"spec":{{"containers":[{{"name":"main","image":"registry.example/app-{}:{}","resources":{{"requests":{{"cpu":"{}m","memory":"64Mi"}}}}}}],"nodeName":"{node}","serviceAccountName":"default","restartPolicy":"Always"}},"status":{{"phase":"Running","podIP":"ip-{number}","startTime":"2026-01-01T00:00:00Z"}}}}"#,
        number % 5_000,
        number % 200,
        number % 7,
        number % 900,
    );
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(&namespace, &name),
        uid: Uid::new(&uid),
        resource_version: ResourceVersion::new(&version.to_string()),
        labels: interner.labels(labels.map(|(key, value)| (key.to_owned(), value))),
        index_values,
        json: json.into_bytes(),
    })
}

fn indexes() -> Vec<DeclaredIndex> {
    let index = |(name, at): (&str, &str)| DeclaredIndex { name: name.into(), path: Some(path(at)) };
    [("by-node", "spec.nodeName"), ("by-ip", "status.podIP")].map(index).into()
}

fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

fn informer(cluster: usize) -> (Arc<Origin>, Arc<InformerHealth>) {
    let health = InformerHealth::new();
    health.set_phase(Phase::Watching);
    health.set_synced();
    let cluster = ClusterName::new(format!("c{cluster:04}")).expect("the name is valid");
    let cluster_labels = [("region".to_owned(), "eu".to_owned())].into();
    (Arc::new(Origin { cluster, cluster_labels, resource: pods(), scope: Scope::all() }), health)
}

/// Fills a store in batches, as informers do, and compresses its objects.
fn fill(objects: usize, clusters: usize) -> Arc<Snapshot> {
    let mut store = Store::new(pods());
    let mut interner = Interner::default();
    let samples: Vec<_> = (0..500).map(|number| object(number * 7, 1, &mut interner).sample()).collect();
    let dictionary = Arc::new(Dictionary::train(&samples).expect("the samples are similar"));
    let ids: Vec<_> = (0..clusters)
        .map(|cluster| {
            let (origin, health) = informer(cluster);
            store.open(origin, health, indexes())
        })
        .collect();
    let mut fifo = DeltaFifo::new(usize::MAX);
    for (at, id) in ids.iter().enumerate() {
        for number in (at..objects).step_by(clusters) {
            let object = Arc::new(object(number, 1, &mut interner));
            fifo.push(Change::Delta(Delta { kind: DeltaKind::Added, object }));
            if fifo.len() == 512 {
                apply(&mut store, *id, &mut fifo, &dictionary);
            }
        }
        apply(&mut store, *id, &mut fifo, &dictionary);
    }
    store.published().load_full()
}

fn apply(store: &mut Store, id: PartitionId, fifo: &mut DeltaFifo, dictionary: &Arc<Dictionary>) {
    let outbox = store.apply(id, fifo.pop(usize::MAX)).expect("the partition is open");
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
    time("by_index through a snapshot, one match", &values, |value| {
        assert_eq!(snapshot.find_by_index("by-ip", value).expect("the index is declared").len(), 1);
    });
    time("answer by index, one match", &values[..LOOK_UPS / 10], |value| {
        let answer = snapshot.answer(&Query::by_index("by-ip", value)).expect("the index is declared");
        assert_eq!(answer.items.len(), 1);
    });
    let nodes: Vec<_> = (0..LOOK_UPS / 100).map(|_| format!("node-{}", next() / PER_NODE)).collect();
    time("by_index through a snapshot, 100 matches", &nodes, |value| {
        black_box(snapshot.find_by_index("by-node", value).expect("the index is declared"));
    });
    let keys: Vec<_> = (0..LOOK_UPS).map(|_| next()).map(|n| (format!("ns-{}", n % 50), format!("web-{n}"))).collect();
    let clusters: Vec<_> = snapshot.partitions().map(|(_, partition)| partition.origin().cluster.clone()).collect();
    time("get by cluster and key", &keys, |(namespace, name)| {
        black_box(snapshot.get(&clusters[name.len() % clusters.len()], &ObjectKey::new(namespace, name)));
    });
}

/// Calls `call` for each input and prints the times.
fn time<T>(name: &str, inputs: &[T], mut call: impl FnMut(&T)) {
    inputs.iter().take(inputs.len() / 10).for_each(&mut call);
    let mut took: Vec<_> = inputs
        .iter()
        .map(|one| {
            let begun = now();
            call(one);
            begun.elapsed()
        })
        .collect();
    row(name, &mut took, None, "");
}

/// Prints one row of the table.
fn row(name: &str, took: &mut [Duration], cpu: Option<Duration>, found: &str) {
    took.sort_unstable();
    let at = |share: usize| format!("{:.2?}", took[(took.len() * share / 1000).min(took.len() - 1)]);
    let cpu = cpu.map_or_else(String::new, |cpu| format!("{cpu:.2?}"));
    println!("{name:44} {:>11} {:>11} {:>11} {cpu:>11}  {found}", at(500), at(990), at(1000));
}

/// Times a scan on several threads, as the cache runs it.
fn scan(name: &str, snapshot: &Arc<Snapshot>, query: &Query, workers: usize) {
    let (mut took, mut cpu): (Vec<Duration>, Vec<Duration>) = (Vec::new(), Vec::new());
    let mut result = String::new();
    for _ in 0..SCANS {
        let begun = now();
        let running = RunningQuery::new(Arc::clone(snapshot), query.clone(), None);
        thread::scope(|scope| {
            let work = || {
                let before = on_cpu();
                running.work();
                on_cpu().saturating_sub(before)
            };
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            cpu.push(
                workers.into_iter().map(|worker| worker.join().expect("the scan does not panic")).sum::<Duration>(),
            );
        });
        let answer = running.finish().expect("the query is valid");
        took.push(begun.elapsed());
        let found = answer.count.unwrap_or((answer.items.len() + answer.groups.len()) as u64);
        result = format!("{found} of {} examined, {} read", answer.examined, answer.read);
    }
    cpu.sort_unstable();
    row(name, &mut took, Some(cpu[SCANS / 2]), &result);
}

/// Returns the CPU time of this thread; zero if it is not available.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}
