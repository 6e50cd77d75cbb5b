//! Trains the dictionaries in `data` on invented objects, and checks that the committed files are what this gives.
//!
//! `UPDATE_DICTIONARIES=1` writes them. zstd's trainer makes them: at these sizes it saves three per cent over
//! [`Dictionary::train_to`], and its time and memory do not matter here. Their content depends on the version of zstd in
//! `Cargo.lock`.

mod invented;

use std::sync::Arc;

use informer_hub_dictionaries::{KINDS, builtin, builtin_bytes};
use informer_hub_types::{Dictionary, Gvr, PackedTotals, Packer};
use invented::{Invent, deployment, endpoint_slice, event, node, objects, pod, replica_set, service};

/// Generator of each kind, in the order of [`KINDS`], with the number of samples.
const INVENT: [(Invent, usize); 7] = [
    (pod, 500),
    (deployment, 500),
    (replica_set, 500),
    (endpoint_slice, 1500),
    (node, 400),
    (service, 2500),
    (event, 3000),
];

fn bytes_per_object(dictionary: &Arc<Dictionary>, seed: u64, invent: Invent) -> (usize, usize) {
    let objects = objects(invent, seed, 200);
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
        let samples: Vec<_> = objects(invent, 1, count).iter().map(|object| object.sample()).collect();
        let trained = trained(&samples, kind.size);
        if std::env::var_os("UPDATE_DICTIONARIES").is_some() {
            let path = format!("{}/data/{}.dictionary", env!("CARGO_MANIFEST_DIR"), kind.resource);
            std::fs::write(path, trained).unwrap();
            continue;
        }
        let is_same = trained == builtin_bytes(kind);
        assert!(is_same, "the dictionary of {} is outdated: make dictionaries", kind.resource);
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
        let own = builtin(&Gvr::new(kind.group, "v1", kind.resource)).unwrap();
        let (plain, packed) = bytes_per_object(&own, 2, invent);
        let (_, without) = bytes_per_object(&Arc::new(Dictionary::none()), 2, invent);
        println!("{}: {plain} B, {without} B without a dictionary, {packed} B with it", kind.resource);
        assert!(packed * 3 < without * 2, "{}: {packed} of {without}", kind.resource);
    }
}

#[test]
fn secrets_and_config_maps_have_no_dictionary() {
    for resource in ["secrets", "configmaps"] {
        assert!(builtin(&Gvr::new("", "v1", resource)).is_none());
    }
}
