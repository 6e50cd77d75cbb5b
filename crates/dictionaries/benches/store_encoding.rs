//! Compares JSON with Kubernetes protobuf as the encoding of stored objects: bytes, and CPU at arrival and at reading.
//!
//! `cargo bench -p informer-hub-dictionaries`. Objects are those of the generator; dictionaries have 32 KiB and are
//! trained on other objects. Protobuf is compressed as it is. JSON is compressed as the store does it, with identifiers
//! as bytes.
//!
//! The read API writes protobuf from JSON. That is compared with serde_json, which reads the same JSON and writes it again.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use informer_hub_dictionaries::builtin;
use informer_hub_protobuf::{Converter, Encoder, MessageId, Omit, Schema, TypeMeta};
use informer_hub_types::{Dictionary, Gvr, PackedTotals, Packer, StoredObject, StoredObjectParts, clock};

#[path = "../tests/generator/invented.rs"]
mod invented;

use invented::{Invent, deployment, endpoint_slice, event, node, objects, pod, replica_set, service};

/// Objects that are measured, and trained on.
const COUNT: u32 = 400;
const SIZE: usize = 32 * 1024;
const MAX: usize = 16 << 20;
const ROUNDS: u32 = 20;

struct Kind {
    name: &'static str,
    type_meta: TypeMeta<'static>,
    invent: Invent,
}

fn main() {
    let kind = |name, api_version, kind, invent| Kind { name, type_meta: TypeMeta { api_version, kind }, invent };
    let kinds = [
        kind("pod", "v1", "Pod", pod as Invent),
        kind("deployment", "apps/v1", "Deployment", deployment),
        kind("node", "v1", "Node", node),
        kind("replicaset", "apps/v1", "ReplicaSet", replica_set),
        kind("endpointslice", "discovery.k8s.io/v1", "EndpointSlice", endpoint_slice),
        kind("service", "v1", "Service", service),
        kind("event", "v1", "Event", event),
    ];
    println!("B and µs per object: JSON, protobuf");
    for kind in kinds {
        measure(&kind);
    }
}

/// Calls `run` for all objects several times, and returns the least time for one.
fn time(mut run: impl FnMut(usize)) -> f64 {
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
        let began = clock::now();
        (0..COUNT as usize).for_each(&mut run);
        least = least.min(clock::now() - began);
    }
    least.as_secs_f64() * 1e6 / f64::from(COUNT)
}

fn encoded(message: MessageId, object: &StoredObject) -> Vec<u8> {
    let mut raw = Vec::new();
    let json = object.json().expect("a new object is readable");
    Encoder::default().object(message, &json, MAX, &mut raw).expect("the generator has the schema's members");
    raw
}

/// Compares writing protobuf with serde_json, which reads the JSON and writes it again. Returns the times for one object.
fn measure_writing(message: MessageId, objects: &[Arc<StoredObject>]) -> (f64, f64) {
    let texts: Vec<_> = objects.iter().map(|object| object.json().expect("a new object is readable")).collect();
    let again = time(|at| {
        let object: serde_json::Value = serde_json::from_slice(&texts[at]).expect("it is JSON");
        drop(black_box(serde_json::to_vec(&object).expect("it is JSON")));
    });
    let (mut encoder, mut out) = (Encoder::default(), Vec::new());
    let protobuf = time(|at| {
        out.clear();
        encoder.object(message, &texts[at], MAX, &mut out).expect("it has the schema's members");
        black_box(&out);
    });
    (again, protobuf)
}

fn plain(object: &StoredObject) -> Arc<StoredObject> {
    Arc::new(StoredObject::new(StoredObjectParts {
        key: object.key().clone(),
        uid: object.uid().clone(),
        resource_version: object.resource_version().clone(),
        labels: object.labels().clone(),
        index_values: Vec::new(),
        json: object.json().expect("a new object is readable").to_vec(),
    }))
}

/// Compares the built-in dictionary with one that is trained on a cluster's own objects.
fn measure_training(kind: &Kind, measured: &[Arc<StoredObject>]) {
    let own = objects(kind.invent, 13, 800);
    let began = clock::now();
    let trained = Dictionary::train(own.iter().map(|object| object.sample())).expect("the objects are alike");
    let took = clock::now() - began;
    let (group, version) = kind.type_meta.api_version.split_once('/').unwrap_or(("", kind.type_meta.api_version));
    let builtin = builtin(&Gvr::new(group, version, &format!("{}s", kind.name))).expect("it has a dictionary");
    let samples: Vec<_> = measured.iter().map(|object| object.sample()).collect();
    let size = |dictionary: &Dictionary| dictionary.packed_size(samples.iter().map(Vec::as_slice)) / COUNT as usize;
    let sizes = (size(&builtin), size(&trained), size(&Dictionary::none()));
    println!("  built-in, trained, none, B  {:6} {:6} {:6}; training took {took:.0?}", sizes.0, sizes.1, sizes.2);
}

fn measure(kind: &Kind) {
    let message = Schema::builtin().kind(kind.type_meta.api_version, kind.type_meta.kind).expect("it is built in");
    let (training, measured) = (objects(kind.invent, 11, COUNT as usize), objects(kind.invent, 12, COUNT as usize));
    let json_dictionary = Dictionary::train_to(training.iter().map(|object| object.sample()), SIZE);
    let json_dictionary = Arc::new(json_dictionary.expect("the objects are alike"));
    let raw_dictionary = Dictionary::train_to(training.iter().map(|object| encoded(message, object)), SIZE);
    let raw_dictionary = raw_dictionary.expect("the objects are alike");
    let raws: Vec<_> = measured.iter().map(|object| encoded(message, object)).collect();
    let mut compressor = zstd::bulk::Compressor::with_dictionary(3, raw_dictionary.bytes()).expect("zstd starts");
    let mut decompressor = zstd::bulk::Decompressor::with_dictionary(raw_dictionary.bytes()).expect("zstd starts");
    let frames: Vec<_> = raws.iter().map(|raw| compressor.compress(raw).expect("zstd compresses")).collect();
    let totals = Arc::<PackedTotals>::default();

    let (mut converter, mut json, omit) = (Converter::default(), Vec::new(), Omit::default());
    let mut convert = |raw: &[u8], json: &mut Vec<u8>| {
        json.clear();
        converter.object(message, Some(kind.type_meta), raw, &omit, MAX, json).expect("it was encoded");
    };
    let to_json = time(|at| convert(&raws[at], &mut json));
    let mut heads = Converter::default();
    let head = time(|at| drop(black_box(heads.head(message, &raws[at], MAX))));
    let compress_raw = time(|at| drop(black_box(compressor.compress(&raws[at]).expect("zstd compresses"))));
    let fresh: Vec<Vec<_>> =
        (0..ROUNDS).map(|_| measured.iter().map(|object| plain(object)).collect::<Vec<_>>()).collect();
    let mut least = Duration::MAX;
    let mut outcome = informer_hub_types::PackOutcome::default();
    for round in &fresh {
        let began = clock::now();
        let mut packer = Packer::new(&json_dictionary, &totals);
        for object in round {
            packer.add(object);
        }
        outcome = packer.finish();
        least = least.min(clock::now() - began);
    }
    let compress_json = least.as_secs_f64() * 1e6 / f64::from(COUNT);
    let stored = &fresh[0];
    let read_json = time(|at| drop(black_box(stored[at].json().expect("it was packed"))));
    let read_raw =
        time(|at| drop(black_box(decompressor.decompress(&frames[at], raws[at].len()).expect("zstd reads"))));
    let (mut encoder, mut out) = (Encoder::default(), Vec::new());
    let to_raw = time(|at| {
        out.clear();
        let json = stored[at].json().expect("it was packed");
        encoder.object(message, &json, MAX, &mut out).expect("it has the schema's members");
    });
    let raw_size = frames.iter().map(Vec::len).sum::<usize>() / COUNT as usize;
    let plain_raw = raws.iter().map(Vec::len).sum::<usize>() / COUNT as usize;
    let (again, protobuf) = measure_writing(message, &measured);
    println!("{}", kind.name);
    measure_training(kind, &measured);
    println!("  plain, B                    {:6} {plain_raw:6}", outcome.plain_bytes / COUNT as usize);
    println!("  compressed, B               {:6} {raw_size:6}", outcome.packed_bytes / COUNT as usize);
    println!("  arrival: convert            {to_json:6.1} {:6.1}", 0.0);
    println!("  arrival: metadata only      {:6.1} {head:6.1}", 0.0);
    println!("  compress                    {compress_json:6.1} {compress_raw:6.1}");
    println!("  read as JSON, event         {read_json:6.1} {:6.1}", read_raw + to_json);
    println!("  read as protobuf            {to_raw:6.1} {read_raw:6.1}");
    println!("  write: serde_json, protobuf {again:6.1} {protobuf:6.1}");
}
