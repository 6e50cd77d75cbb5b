//! Cost of saving a cache to disk and restoring it, with compressed pods of the simulated world.
//!
//! `cargo bench --bench state` prints the figures; `STATE_PODS` (100,000) sets the number of pods.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::cast_precision_loss)]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use informer_hub::cache::{DeclaredIndex, DeltaFifo, Packing, PartitionId, Store, Uncompressed};
use informer_hub::state::caches::{CacheFiles, CheckpointResult, Claim, Commit, load};
use informer_hub_codec::Decoded;
use informer_hub_codec::Decoder;
use informer_hub_disk::{Disk, RealDisk};
use informer_hub_reflector::InformerOptions;
use informer_hub_sim::{World, WorldConfig};
use informer_hub_types::{
    ApiResource, Change, ClusterLabels, ClusterName, Delta, DeltaKind, InformerHealth, Origin, ResourceVersion, Scope,
    StoredObject, View,
};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn resource() -> ApiResource {
    ApiResource { gvr: World::pods(), kind: "Pod".into(), namespaced: true }
}

fn options() -> InformerOptions {
    let indexes = [("by-node", "spec.nodeName"), ("by-phase", "status.phase")];
    InformerOptions {
        indexes: indexes.iter().map(|(name, path)| ((*name).into(), path.parse().unwrap())).collect(),
        ..InformerOptions::default()
    }
}

fn declared() -> Vec<DeclaredIndex> {
    options().declared().into_iter().map(|(name, path)| DeclaredIndex { name, path }).collect()
}

fn pods(count: usize) -> Vec<Arc<StoredObject>> {
    let world = World::new(&WorldConfig { pods: count, ..WorldConfig::default() });
    let options = options();
    let mut decoder = Decoder::new(resource(), &options.projection, options.indexes.clone().into_iter().collect());
    world
        .objects(&World::pods())
        .map(|pod| match decoder.decode_object(pod.json()).unwrap() {
            Decoded::Object(object) => object,
            Decoded::Skipped(skipped) => panic!("{skipped:?}"),
        })
        .collect()
}

fn apply(store: &mut Store, id: PartitionId, objects: &[Arc<StoredObject>], kind: DeltaKind, version: &str) {
    let mut fifo = DeltaFifo::new(usize::MAX);
    for object in objects {
        fifo.push(Change::Delta(Delta { kind, object: Arc::clone(object) }));
    }
    store.apply_up_to(id, fifo.pop(usize::MAX), Some(ResourceVersion::new(version))).unwrap();
}

fn begin(disk: &Arc<dyn Disk>, root: &Path) -> CacheFiles {
    CacheFiles::begin(Arc::clone(disk), root, resource(), View::Shared).unwrap().unwrap()
}

fn main() {
    let count = std::env::var("STATE_PODS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let (dir, disk) = (tempfile::tempdir().unwrap(), Arc::new(RealDisk) as Arc<dyn Disk>);
    let root = dir.path().join("caches");
    let origin = Origin {
        cluster: ClusterName::new("bench").unwrap(),
        cluster_labels: ClusterLabels::new(),
        resource: resource(),
        scope: Scope::all(),
    };
    let mut store = Store::new(resource());
    let id = store.open(Arc::new(origin), InformerHealth::new(), declared());
    store.go_on(id, options().fingerprint().unwrap());
    let objects = pods(count);
    apply(&mut store, id, &objects, DeltaKind::Added, "1");
    let mut packing = Packing::new();
    let uncompressed = Uncompressed::new(0);
    let round = packing.round(objects.iter().take(1_000).cloned().collect(), &uncompressed, &store.published().load());
    packing.finished(Some(round.run()));
    let round = packing.round(objects.clone(), &uncompressed, &store.published().load());
    packing.finished(Some(round.run()));
    drop(objects);

    let commit = [Commit { id, readers: BTreeSet::new() }];
    let mut files = begin(&disk, &root);
    let began = Instant::now();
    let CheckpointResult { bytes, objects, anew, .. } =
        files.checkpoint(&store.published().load_full(), &commit, 1, false).unwrap();
    let took = began.elapsed();
    assert!(anew);
    println!("snapshot of {objects} pods: {took:?}, {bytes} bytes, {:.0} an object", bytes as f64 / objects as f64);

    let claim = || Claim {
        labels: ClusterLabels::new(),
        indexes: declared(),
        settings: options().fingerprint().unwrap(),
        any_version: false,
    };
    for _ in 0..5 {
        let began = Instant::now();
        let loaded = load(&disk, &root, &|_, _| Some(claim())).unwrap();
        let took = began.elapsed();
        let snapshot = loaded.caches[0].store.published().load_full();
        assert_eq!(snapshot.len(), count);
        let by_node = snapshot.index_values("by-node").map(|(_, objects)| objects).sum::<usize>();
        black_box(by_node);
        println!("loaded: {took:?}, {:.2} µs an object", took.as_secs_f64() * 1e6 / count as f64);
    }

    let snapshot = store.published().load_full();
    let all: Vec<_> = snapshot.partition(id).unwrap().iter().cloned().collect();
    for changed in [0, 1, 100, 10_000] {
        let step = (count / changed.max(1)).max(1);
        let some: Vec<_> = all.iter().step_by(step).take(changed).map(|object| again(object, changed)).collect();
        apply(&mut store, id, &some, DeltaKind::Updated, &format!("{}", 2_000_000_000 + changed));
        let snapshot = store.published().load_full();
        let began = Instant::now();
        let wrote = files.checkpoint(&snapshot, &commit, 2, false).unwrap();
        let took = began.elapsed();
        println!(
            "checkpoint of {changed} changed of {count}: {took:?}, {} bytes{}, {:.1} µs each",
            wrote.bytes,
            if wrote.anew { " (rewritten as a whole)" } else { "" },
            took.as_secs_f64() * 1e6 / changed.max(1) as f64
        );
    }
}

/// Returns the same pod at a later version, uncompressed, as from a watch.
fn again(object: &Arc<StoredObject>, salt: usize) -> Arc<StoredObject> {
    let mut pod: serde_json::Value = object.typed().unwrap();
    pod["metadata"]["resourceVersion"] = format!("{}", 1_000_000_000 + salt).into();
    let options = options();
    let mut decoder = Decoder::new(resource(), &options.projection, options.indexes.clone().into_iter().collect());
    match decoder.decode_object(pod.to_string().as_bytes()).unwrap() {
        Decoded::Object(object) => object,
        Decoded::Skipped(skipped) => panic!("{skipped:?}"),
    }
}
