//! Compares JSON with Kubernetes protobuf as the encoding of stored objects: bytes, and CPU time when an object arrives
//! and when it is read.
//!
//! `cargo bench -p informer-hub-dictionaries`. The objects are generated. The dictionaries of the comparison have 32
//! KiB and are trained on other generated objects. Both encodings are compressed as in the store, which first writes
//! UUIDs and other hexadecimal texts as bytes.
//!
//! The read API writes protobuf from JSON if it must edit an object. The bench compares this with serde_json, which
//! reads the same JSON and writes it again.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use informer_hub_dictionaries::{Encoding, Kind as Builtin};
use informer_hub_protobuf::{Converter, Encoder, Excerpt, MessageId, Omit, Schema, Step, TypeMeta};
use informer_hub_types::{Dictionary, Gvr, PackOutcome, PackedTotals, Packer, StoredObject, clock};

#[path = "../tests/generator/invented.rs"]
mod invented;

use invented::{
    Invent, as_protobuf, deployment, endpoint_slice, event, node, objects, pod, replica_set, service, with_body,
};

/// Number of objects that are measured, and number of objects that the dictionaries of [`store`] are trained on.
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

/// Calls `run` for all objects several times. Returns the shortest time per object, in µs.
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

/// Measures the encoding of JSON as protobuf, and serde_json, which reads the same JSON and writes it again. Returns
/// the times per object in µs: serde_json, then protobuf.
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

/// Returns a new object with the same body, not compressed.
fn plain(object: &StoredObject) -> Arc<StoredObject> {
    with_body(object, object.plain().expect("a new object is not packed"))
}

/// Objects as the store keeps them, with the times in µs to compress one and to read it as JSON.
struct Stored {
    objects: Vec<Arc<StoredObject>>,
    outcome: PackOutcome,
    compress: f64,
    read: f64,
}

fn store(objects: &[Arc<StoredObject>], training: &[Arc<StoredObject>]) -> Stored {
    let dictionary = Dictionary::train_to(training.iter().map(|object| object.sample()), SIZE);
    let dictionary = Arc::new(dictionary.expect("the objects are alike"));
    let fresh: Vec<Vec<_>> =
        (0..ROUNDS).map(|_| objects.iter().map(|object| plain(object)).collect::<Vec<_>>()).collect();
    let (mut least, mut outcome, totals) = (Duration::MAX, PackOutcome::default(), Arc::<PackedTotals>::default());
    for round in &fresh {
        let began = clock::now();
        let mut packer = Packer::new(&dictionary, &totals);
        for object in round {
            packer.add(object);
        }
        outcome = packer.finish();
        least = least.min(clock::now() - began);
    }
    let compress = least.as_secs_f64() * 1e6 / f64::from(COUNT);
    let objects = fresh.into_iter().next().unwrap_or_default();
    let read = time(|at| drop(black_box(objects[at].json().expect("it was packed"))));
    Stored { objects, outcome, compress, read }
}

/// Compares the built-in dictionary with one that is trained on 800 other generated objects, as if on a cluster's own.
fn measure_training(kind: &Kind, measured: &[Arc<StoredObject>]) {
    let own = objects(kind.invent, 13, 800);
    let began = clock::now();
    let trained = Dictionary::train(own.iter().map(|object| object.sample())).expect("the objects are alike");
    let took = clock::now() - began;
    let (group, version) = kind.type_meta.api_version.split_once('/').unwrap_or(("", kind.type_meta.api_version));
    let builtin = Builtin::of(&Gvr::new(group, version, &format!("{}s", kind.name))).expect("it has a dictionary");
    let builtin = builtin.dictionary(Encoding::Json);
    let samples: Vec<_> = measured.iter().map(|object| object.sample()).collect();
    let size = |dictionary: &Dictionary| dictionary.packed_size(samples.iter().map(Vec::as_slice)) / COUNT as usize;
    let sizes = (size(&builtin), size(&trained), size(&Dictionary::none()));
    println!("  built-in, trained, none, B  {:6} {:6} {:6}; training took {took:.0?}", sizes.0, sizes.1, sizes.2);
}

fn measure(kind: &Kind) {
    let message = Schema::builtin().kind(kind.type_meta.api_version, kind.type_meta.kind).expect("it is built in");
    let (training, measured) = (objects(kind.invent, 11, COUNT as usize), objects(kind.invent, 12, COUNT as usize));
    let protobuf = |objects: &[Arc<StoredObject>]| objects.iter().map(|object| as_protobuf(object)).collect::<Vec<_>>();
    let json = store(&measured, &training);
    let stored = store(&protobuf(&measured), &protobuf(&training));
    let raws: Vec<_> = measured.iter().map(|object| encoded(message, object)).collect();

    let (mut converter, mut out, omit) = (Converter::default(), Vec::new(), Omit::default());
    let convert = time(|at| {
        out.clear();
        converter.object(message, Some(kind.type_meta), &raws[at], &omit, MAX, &mut out).expect("it was encoded");
    });
    let paths = ["name", "namespace", "uid", "labels"].map(|name| [Step::Member("metadata"), Step::Member(name)]);
    let excerpt = Excerpt::new(message, paths, &omit).expect("nothing is omitted");
    let mut envelope = Vec::new();
    let excerpt = time(|at| {
        envelope.clear();
        excerpt.read(&raws[at], &mut |_, found| drop(black_box(found))).expect("it was encoded");
        excerpt.write(kind.type_meta, &raws[at], &mut envelope).expect("it was encoded");
    });
    let mut encoder = Encoder::default();
    let edited = time(|at| {
        out.clear();
        let json = json.objects[at].json().expect("it was packed");
        encoder.object(message, &json, MAX, &mut out).expect("it has the schema's members");
    });
    let unchanged = time(|at| drop(black_box(stored.objects[at].protobuf().expect("it was packed"))));
    let (again, written) = measure_writing(message, &measured);
    let each = |bytes: usize| bytes / COUNT as usize;
    println!("{}", kind.name);
    measure_training(kind, &measured);
    println!(
        "  plain, B                    {:6} {:6}",
        each(json.outcome.plain_bytes),
        each(stored.outcome.plain_bytes)
    );
    println!(
        "  compressed, B               {:6} {:6}",
        each(json.outcome.packed_bytes),
        each(stored.outcome.packed_bytes)
    );
    println!("  arrival: convert, or check  {convert:6.1} {excerpt:6.1}");
    println!("  compress                    {:6.1} {:6.1}", json.compress, stored.compress);
    println!("  read as JSON, event         {:6.1} {:6.1}", json.read, stored.read);
    println!("  read as protobuf            {edited:6.1} {unchanged:6.1}");
    println!("  write: serde_json, protobuf {again:6.1} {written:6.1}");
}
