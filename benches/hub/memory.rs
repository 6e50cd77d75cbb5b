//! Breakdown of the memory of cached objects.
//!
//! Three views of one hub with `BENCH_PODS` pods:
//!
//! - by part: head, key, body and so on, counted over the objects;
//! - by size class: live allocations as counted by jemalloc;
//! - by layer: requested bytes, slack of size classes, slack of pages, bookkeeping of the allocator.
//!
//! `BENCH_SHAPE` selects other objects, such as `SmallPods`; `Shape` lists them all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use informer_hub::app::Hub;
use informer_hub::cache::{Popped, Store};
use informer_hub_types::{Delta, DeltaKind, InformerHealth, SharedStr, StoredObject};
use k8s_openapi::api::core::v1::Pod;

use crate::common::heap::{self, SizeClass, size_class};
use crate::common::memory::{Footprint, measure};
use crate::common::server::shape;
use crate::common::table::figures;
use crate::common::{number, runtime};

/// Bytes of the strong and weak counts of a shared allocation.
const ARC: usize = 16;

pub(crate) fn run() {
    let pods = number("BENCH_PODS", 50_000);
    let shape = shape("BENCH_SHAPE");
    let before = heap::size_classes();
    let (footprint, (parts, after)) = runtime().block_on(measure(pods, shape, async |hub| {
        let after = heap::size_classes();
        (parts(hub).await, after)
    }));
    print_layers(&footprint);
    print_parts(&parts, &footprint);
    print_size_classes(&before, &after, pods);
}

/// Bytes of one part of all objects.
struct Part {
    name: &'static str,
    asked: u64,
    allocated: u64,
}

impl Part {
    fn new(name: &'static str, sizes: impl Iterator<Item = usize>) -> Self {
        let (mut asked, mut allocated) = (0, 0);
        for size in sizes.filter(|size| *size > 0) {
            asked += size as u64;
            allocated += size_class(size);
        }
        Self { name, asked, allocated }
    }
}

async fn parts(hub: &Hub) -> Vec<Part> {
    let snapshot = hub.cache::<Pod>().snapshot().await.unwrap();
    let objects: Vec<_> = snapshot.partitions().flat_map(|(_, partition)| partition.iter().cloned()).collect();
    let all = || objects.iter();
    let label_sets: BTreeMap<_, Vec<_>> =
        all().map(|object| (object.labels().address(), object.labels().iter().collect())).collect();
    let strings: BTreeSet<&str> = label_sets.values().flatten().flat_map(|(key, value)| [*key, *value]).collect();
    let values: BTreeSet<&str> = all().flat_map(|o| o.index_values()).map(|entry| entry.value.as_str()).collect();
    let label = size_of::<SharedStr>() * 2;
    vec![
        Part::new("head (StoredObject)", all().map(|_| ARC + size_of::<StoredObject>())),
        bodies(&objects),
        Part::new("key", all().map(|object| ARC + object.key().as_str().len())),
        Part::new("index entries", all().map(|object| size_of_val(object.index_values()))),
        Part::new("label sets, distinct", label_sets.values().map(|set| ARC + set.len() * label)),
        Part::new("label strings, distinct", strings.iter().map(|text| ARC + text.len())),
        Part::new("index values, distinct", values.difference(&strings).map(|text| ARC + text.len())),
        store_of(&snapshot, &objects),
    ]
}

/// Returns the bytes of the bodies. Packed bodies have no slack between them.
fn bodies(objects: &[Arc<StoredObject>]) -> Part {
    let bytes = objects.iter().map(|object| object.body_size() as u64).sum();
    Part { name: "body", asked: bytes, allocated: bytes }
}

/// Returns the bytes of map and postings, measured with a second store of the same objects.
fn store_of(snapshot: &informer_hub::cache::Snapshot, objects: &[Arc<StoredObject>]) -> Part {
    let (_, partition) = snapshot.partitions().next().unwrap();
    let before = heap::now().allocated;
    let mut store = Store::new(snapshot.resource().clone());
    let indexes: Vec<_> = snapshot.index_names().into_iter().map(Into::into).collect();
    let id = store.open(Arc::clone(partition.origin()), InformerHealth::new(), indexes);
    for batch in objects.chunks(512) {
        let popped = |object: &Arc<StoredObject>| {
            let delta = Delta { kind: DeltaKind::Replaced, object: Arc::clone(object) };
            Popped::Deltas(object.key().clone(), [delta].into_iter().collect())
        };
        store.apply(id, batch.iter().map(popped).collect()).unwrap();
    }
    store.apply(id, Vec::new()).unwrap();
    let allocated = heap::now().allocated - before;
    Part { name: "map and postings", asked: allocated, allocated }
}

fn print_layers(footprint: &Footprint) {
    let (before, after) = footprint.heap;
    let per = |before: u64, after: u64| format!("{:.0}", footprint.per_object((before, after)));
    let mut table = figures(UTF8_BORDERS_ONLY, ["layer, growth per object", "bytes"]);
    table.add_row(["allocated (size classes)".to_owned(), per(before.allocated, after.allocated)]);
    table.add_row([
        "+ free room in active pages".to_owned(),
        per(before.active - before.allocated, after.active - after.allocated),
    ]);
    table.add_row(["+ the allocator's own".to_owned(), per(before.metadata, after.metadata)]);
    let dirty = |heap: heap::Heap| heap.resident - heap.active - heap.metadata;
    table.add_row(["+ freed and not yet given back".to_owned(), per(dirty(before), dirty(after))]);
    table.add_row(["= resident, says jemalloc".to_owned(), per(before.resident, after.resident)]);
    table.add_row(["RSS, says the kernel".to_owned(), per(footprint.rss.0, footprint.rss.1)]);
    table.add_row(["RSS at its peak".to_owned(), per(footprint.rss.0, footprint.peak)]);
    println!(
        "{} objects; idle hub {:.1} MiB RSS; peak {:.2} × settled; sync {:.1} µs of CPU per object",
        footprint.objects,
        footprint.rss.0 as f64 / 1024.0 / 1024.0,
        footprint.peak_ratio(),
        footprint.sync_cpu.as_secs_f64() * 1e6 / footprint.objects as f64,
    );
    println!("{table}");
}

fn print_parts(parts: &[Part], footprint: &Footprint) {
    let objects = footprint.objects as f64;
    let mut table = figures(UTF8_BORDERS_ONLY, ["part, per object", "bytes asked for", "bytes allocated"]);
    for part in parts {
        let row = [part.name.to_owned(), per(part.asked, objects), per(part.allocated, objects)];
        table.add_row(row);
    }
    let known: u64 = parts.iter().map(|part| part.allocated).sum();
    let rest = footprint.allocated() - known as f64 / objects;
    table.add_row(["everything else".to_owned(), String::new(), format!("{rest:.0}")]);
    println!("{table}");
}

fn per(bytes: u64, objects: f64) -> String {
    format!("{:.0}", bytes as f64 / objects)
}

/// Prints the size classes with at least one byte per object.
fn print_size_classes(before: &[SizeClass], after: &[SizeClass], objects: u64) {
    let objects = objects as f64;
    let mut table =
        figures(UTF8_BORDERS_ONLY, ["size of allocation", "live pieces per object", "bytes per object", "unused room"]);
    for (before, after) in before.iter().zip(after) {
        let live = after.live as f64 - before.live as f64;
        let room = after.room as f64 - before.room as f64;
        let size = after.size as f64;
        if live * size / objects >= 1.0 || (room - live) * size / objects >= 1.0 {
            let columns = [live / objects, live * size / objects, (room - live) * size / objects];
            let [pieces, bytes, unused] = columns;
            table.add_row([
                after.size.to_string(),
                format!("{pieces:.3}"),
                format!("{bytes:.0}"),
                format!("{unused:.0}"),
            ]);
        }
    }
    println!("{table}");
}
