//! Trains the dictionaries in `data` on invented objects, and checks that the committed files equal the result.
//!
//! `UPDATE_DICTIONARIES=1` writes the files. They are made by zstd's trainer. At these sizes, it makes objects 3 %
//! smaller than [`Dictionary::train_to`] does, and its time and memory do not matter here. The result depends on the
//! version of zstd in `Cargo.lock`.

mod invented;

use std::sync::Arc;

use informer_hub_dictionaries::{Encoding, KINDS, Kind};
use informer_hub_types::{Dictionary, Gvr, PackedTotals, Packer, StoredObject};
use invented::{Invent, as_protobuf, deployment, endpoint_slice, event, node, objects, pod, replica_set, service};

/// Generator of each kind, in the order of [`KINDS`], with the number of samples for training.
const INVENT: [(Invent, usize); 7] = [
    (pod, 500),
    (deployment, 500),
    (replica_set, 500),
    (endpoint_slice, 1500),
    (node, 400),
    (service, 2500),
    (event, 3000),
];

const ENCODINGS: [Encoding; 2] = [Encoding::Protobuf, Encoding::Json];

fn objects_in(encoding: Encoding, invent: Invent, seed: u64, count: usize) -> Vec<Arc<StoredObject>> {
    let objects = objects(invent, seed, count);
    match encoding {
        Encoding::Protobuf => objects.iter().map(|object| as_protobuf(object)).collect(),
        Encoding::Json => objects,
    }
}

fn bytes_per_object(dictionary: &Arc<Dictionary>, encoding: Encoding, invent: Invent) -> (usize, usize) {
    let objects = objects_in(encoding, invent, 2, 200);
    let mut packer = Packer::new(dictionary, &Arc::<PackedTotals>::default());
    for object in &objects {
        packer.add(object);
    }
    let outcome = packer.finish();
    (outcome.plain_bytes / 200, (outcome.packed_bytes) / 200)
}

/// Trains on the first 3 MiB of samples.
fn trained(samples: &[Vec<u8>], size: usize) -> Vec<u8> {
    let mut left: usize = 3 << 20;
    let fits = |sample: &&Vec<u8>| {
        let is_left = left > 0;
        left = left.saturating_sub(sample.len());
        is_left
    };
    let samples: Vec<_> = samples.iter().take_while(fits).collect();
    zstd::dict::from_samples(&samples, size).expect("the objects are alike")
}

#[test]
fn committed_dictionaries_are_those_of_the_generator() {
    assert_eq!(KINDS.len(), INVENT.len());
    for (kind, (invent, count)) in KINDS.iter().zip(INVENT) {
        for encoding in ENCODINGS {
            let samples: Vec<_> = objects_in(encoding, invent, 1, count).iter().map(|object| object.sample()).collect();
            let trained = trained(&samples, kind.size);
            if std::env::var_os("UPDATE_DICTIONARIES").is_some() {
                let name = format!("{}.{encoding:?}.dictionary", kind.resource).to_lowercase();
                std::fs::write(format!("{}/data/{name}", env!("CARGO_MANIFEST_DIR")), trained).unwrap();
                continue;
            }
            let is_same = trained == kind.bytes(encoding);
            assert!(is_same, "the {encoding:?} dictionary of {} is outdated: make dictionaries", kind.resource);
        }
    }
}

#[test]
fn invented_objects_are_json() {
    for (invent, _) in INVENT {
        for object in objects(invent, 3, 200) {
            let json = object.json().unwrap();
            serde_json::from_slice::<serde_json::Value>(&json)
                .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&json)));
        }
    }
}

#[test]
fn other_objects_of_a_kind_shrink_to_a_fraction_of_plain_zstd() {
    for (kind, (invent, _)) in KINDS.iter().zip(INVENT) {
        for encoding in ENCODINGS {
            let (plain, packed) = bytes_per_object(&kind.dictionary(encoding), encoding, invent);
            let (_, without) = bytes_per_object(&Arc::new(Dictionary::none()), encoding, invent);
            let name = kind.resource;
            println!("{name}, {encoding:?}: {plain} B, {without} B without a dictionary, {packed} B with it");
            assert!(packed * 3 < without * 2, "{name}, {encoding:?}: {packed} of {without}");
        }
    }
}

#[test]
fn secrets_and_config_maps_have_no_dictionary() {
    for resource in ["secrets", "configmaps"] {
        assert!(Kind::of(&Gvr::new("", "v1", resource)).is_none());
    }
}
