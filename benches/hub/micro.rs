//! Cost of single steps: decoding, compressing, queueing, storing and notifying an event, and answering a query.
//!
//! Criterion stores the figures of the last run under `target/criterion` and reports changes.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput};
use informer_hub::Query;
use informer_hub::app::api_resource;
use informer_hub::cache::{DeltaFifo, ListenerOptions, ListenerQueue, PartitionId, Popped, Store, pack_all};
use informer_hub_codec::{Decoder, Projection, WatchItem};
use informer_hub_protobuf::{ObjectWriter, TypeMeta};
use informer_hub_sim::replay::{ReplayConfig, Shape};
use informer_hub_types::{
    Change, ClusterLabels, ClusterName, Delta, DeltaKind, Dictionary, InformerHealth, Origin, PackedTotals, Scope,
    StoredObject,
};
use k8s_openapi::api::core::v1::Pod;

/// Number of objects in the store.
const STORED: usize = 100_000;

pub(crate) fn run() {
    let mut criterion = Criterion::default().without_plots().sample_size(30);
    bodies(&mut criterion);
    queues(&mut criterion);
    store(&mut criterion);
    criterion.final_summary();
}

/// Returns watch lines, each with a different pod.
fn lines(pods: usize, shape: Shape) -> Vec<Vec<u8>> {
    let mut text = Vec::new();
    ReplayConfig { pods, shape, ..ReplayConfig::default() }.export(&mut text).unwrap();
    let pods = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    pods.map(|pod| [br#"{"type":"MODIFIED","object":"#.as_slice(), pod, b"}"].concat()).collect()
}

/// Returns watch events with these pods in protobuf, without the lengths before them.
fn frames(pods: &[Arc<StoredObject>]) -> Vec<Vec<u8>> {
    let mut writer = ObjectWriter::new(TypeMeta { api_version: "v1", kind: "Pod" }, usize::MAX).unwrap();
    let frame = |pod: &Arc<StoredObject>| {
        let mut frame = Vec::new();
        writer.event("MODIFIED", &pod.json().unwrap(), &mut frame).unwrap();
        frame.split_off(4)
    };
    pods.iter().map(frame).collect()
}

fn decoder() -> Decoder {
    let indexes = [("by-node", "spec.nodeName"), ("by-image", "spec.containers[*].image")];
    let indexes = indexes.map(|(name, path)| (name.into(), path.parse().unwrap()));
    Decoder::new(api_resource::<Pod>(), &Projection::default(), indexes.into())
}

fn object(decoder: &mut Decoder, line: &[u8]) -> Arc<StoredObject> {
    match decoder.decode_event(line).unwrap() {
        WatchItem::Modified(object) => object,
        other => panic!("not an event: {other:?}"),
    }
}

fn bodies(criterion: &mut Criterion) {
    let (mut decoder, lines) = (decoder(), lines(1_000, Shape::Pods));
    let objects: Vec<_> = lines.iter().map(|line| object(&mut decoder, line)).collect();
    let samples: Vec<_> = objects.iter().take(800).map(|object| object.sample()).collect();
    let dictionary = Arc::new(Dictionary::train(&samples).unwrap());
    let totals = Arc::new(PackedTotals::default());
    let plain: usize = objects.iter().map(|object| object.body_size()).sum();
    let sizes = |bytes: usize| Throughput::Bytes((bytes / lines.len()) as u64);
    let mut turn = (0..lines.len()).cycle();
    let mut group = criterion.benchmark_group("pod of 9.3 KB");
    group.throughput(sizes(lines.iter().map(Vec::len).sum()));
    group.bench_function("decode", |bench| {
        bench.iter(|| black_box(object(&mut decoder, &lines[turn.next().unwrap()])));
    });
    let frames = frames(&objects);
    group.throughput(sizes(frames.iter().map(Vec::len).sum()));
    group.bench_function("decode protobuf", |bench| {
        bench.iter(|| {
            black_box(decoder.decode_frame(&frames[turn.next().unwrap()], usize::MAX).unwrap());
        });
    });
    group.throughput(sizes(plain));
    group.bench_function("compress", |bench| {
        bench.iter_batched(
            || [object(&mut decoder, &lines[turn.next().unwrap()])],
            |one| {
                black_box(pack_all(&one, &dictionary, &totals));
                one
            },
            BatchSize::SmallInput,
        );
    });
    pack_all(&objects, &dictionary, &totals);
    let mut packed = objects.iter().cycle();
    group.bench_function("decompress", |bench| bench.iter(|| black_box(packed.next().unwrap().json().unwrap())));
    group.finish();
    let bytes: usize = objects.iter().map(|object| object.body_size()).sum();
    println!("a pod compresses to {} B on average", bytes / objects.len());
}

fn queues(criterion: &mut Criterion) {
    let (mut decoder, lines) = (decoder(), lines(1_000, Shape::SmallPods));
    let objects: Vec<_> = lines.iter().map(|line| object(&mut decoder, line)).collect();
    let mut fifo = DeltaFifo::new(DeltaFifo::DEFAULT_LIMIT);
    let mut turn = objects.iter().cycle();
    criterion.bench_function("delta queue: in and out", |bench| {
        bench.iter(|| {
            fifo.push(Change::Delta(update(turn.next().unwrap())));
            black_box(fifo.pop(1))
        });
    });
}

fn update(object: &Arc<StoredObject>) -> Delta {
    Delta { kind: DeltaKind::Updated, object: Arc::clone(object) }
}

fn popped(object: &Arc<StoredObject>) -> Popped {
    Popped::Deltas(object.key().clone(), [update(object)].into_iter().collect())
}

/// Creates a store of [`STORED`] small pods, and returns it with the pods.
fn filled() -> (Store, PartitionId, Vec<Arc<StoredObject>>) {
    let mut decoder = decoder();
    let mut store = Store::new(api_resource::<Pod>());
    let origin = Origin {
        cluster: ClusterName::new("bench").unwrap(),
        cluster_labels: ClusterLabels::new(),
        resource: api_resource::<Pod>(),
        scope: Scope::all(),
    };
    let id = store.open(Arc::new(origin), InformerHealth::new(), vec!["by-node".into(), "by-image".into()]);
    let pods: Vec<_> = lines(STORED, Shape::SmallPods).iter().map(|line| object(&mut decoder, line)).collect();
    for batch in pods.chunks(512) {
        store.apply(id, batch.iter().map(popped).collect()).unwrap();
    }
    (store, id, pods)
}

fn store(criterion: &mut Criterion) {
    let (mut store, id, pods) = filled();
    let (mut decoder, mut version) = (decoder(), 2_000_000_000_000_000_usize);
    // Returns an object at a new version; the store ignores known ones.
    let mut next = move || {
        version += 1;
        let old = &pods[version * 7919 % STORED];
        let json = String::from_utf8(old.json().unwrap().to_vec()).unwrap();
        let json = json.replacen(&old.resource_version().to_string(), &version.to_string(), 1);
        object(&mut decoder, format!("{{\"type\":\"MODIFIED\",\"object\":{json}}}").as_bytes())
    };
    let mut group = criterion.benchmark_group("store of 100,000");
    group.bench_function("write one", |bench| {
        bench.iter_batched(|| vec![popped(&next())], |batch| black_box(store.apply(id, batch)), BatchSize::SmallInput);
    });
    let snapshot = store.published().load_full();
    let partition = snapshot.partition(id).unwrap();
    let mut queue = ListenerQueue::new(ListenerOptions::default(), partition, ListenerQueue::DEFAULT_MERGE_ABOVE);
    while !queue.take(512).is_empty() {}
    let mut outboxes = (0..).map(|_| store.apply(id, vec![popped(&next())]).unwrap());
    group.bench_function("listener: in and out", |bench| {
        bench.iter_batched(
            || outboxes.next().unwrap(),
            |outbox| {
                queue.offer(outbox.number, &outbox.applied, false);
                black_box(queue.take(1))
            },
            BatchSize::PerIteration,
        );
    });
    let mut nodes = (0..200).map(|node| format!("node-{node}")).collect::<Vec<_>>().into_iter().cycle();
    group.bench_function("index: find a value", |bench| {
        bench.iter_batched(
            || nodes.next().unwrap(),
            |node| black_box(snapshot.by_index("by-node", &node).next().is_some()),
            BatchSize::SmallInput,
        );
    });
    let query = Query::by_labels("app=web,tier=data,team=growth".parse().unwrap());
    group.bench_function("label scan", |bench| bench.iter(|| black_box(snapshot.answer(&query).unwrap().items.len())));
    group.finish();
}
