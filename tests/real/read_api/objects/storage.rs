//! Volumes, claims, classes and drivers.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::json;

use super::{NAMESPACES, Seed, metadata, pick};

/// Number of objects of each kind.
const COUNT: usize = 5;

pub(super) fn seeds(random: &mut StdRng) -> Vec<Seed> {
    let mut seeds = Vec::new();
    for number in 0..COUNT {
        seeds.extend([
            volume(random, number),
            claim(random, number),
            class(random, number),
            driver(random, number),
            attachment(random, number),
        ]);
    }
    seeds
}

fn volume(random: &mut StdRng, number: usize) -> Seed {
    let modes = &["ReadWriteOnce", "ReadOnlyMany"][..random.random_range(1..3)];
    let mut spec = json!({
        "capacity": { "storage": pick(random, &["1Gi", "500M", "1.5Ti"]) },
        "accessModes": modes,
        "persistentVolumeReclaimPolicy": pick(random, &["Retain", "Delete"]),
        "hostPath": { "path": "/data" },
    });
    if random.random_bool(0.6) {
        spec["storageClassName"] = json!("class-1");
    }
    if random.random_bool(0.5) {
        spec["claimRef"] = json!({ "namespace": "shop", "name": "claim-1" });
        spec["volumeMode"] = json!("Block");
    }
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata(random, None, &format!("volume-{number}")),
        "spec": spec,
    });
    let mut status = json!({ "phase": pick(random, &["Available", "Bound", "Released", "Failed"]) });
    if random.random_bool(0.3) {
        status["reason"] = json!("Recycling");
    }
    let seed = Seed::new(volume).with_status(status);
    if number == 0 { seed.deleted() } else { seed }
}

fn claim(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
        "resources": { "requests": { "storage": "3Gi" } },
    });
    let is_bound = random.random_bool(0.5);
    if is_bound {
        spec["volumeName"] = json!("volume-1");
    }
    if random.random_bool(0.5) {
        spec["storageClassName"] = json!("class-1");
    }
    let metadata = metadata(random, Some(namespace), &format!("claim-{number}"));
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec });
    let status = if is_bound {
        json!({ "phase": "Bound", "capacity": { "storage": "3Gi" }, "accessModes": ["ReadWriteOnce"] })
    } else {
        json!({ "phase": pick(random, &["Pending", "Lost"]) })
    };
    let seed = Seed::new(claim).with_status(status);
    if number == 0 { seed.deleted() } else { seed }
}

fn class(random: &mut StdRng, number: usize) -> Seed {
    let mut metadata = metadata(random, None, &format!("class-{number}"));
    if number == 1 {
        metadata["annotations"]["storageclass.kubernetes.io/is-default-class"] = json!("true");
    }
    let mut class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata,
        "provisioner": "a.example.com",
    });
    if random.random_bool(0.5) {
        class["reclaimPolicy"] = json!("Retain");
        class["volumeBindingMode"] = json!("WaitForFirstConsumer");
        class["allowVolumeExpansion"] = json!(true);
    }
    Seed::new(class)
}

fn driver(random: &mut StdRng, number: usize) -> Seed {
    let mut spec = json!({ "attachRequired": random.random_bool(0.5), "podInfoOnMount": random.random_bool(0.5) });
    if random.random_bool(0.6) {
        spec["storageCapacity"] = json!(true);
        spec["tokenRequests"] = json!([{ "audience": "" }, { "audience": "vault" }]);
        spec["volumeLifecycleModes"] = json!(["Ephemeral", "Persistent"]);
    }
    let metadata = metadata(random, None, &format!("driver-{number}.example.com"));
    Seed::new(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": metadata, "spec": spec }))
}

fn attachment(random: &mut StdRng, number: usize) -> Seed {
    let metadata = metadata(random, None, &format!("attachment-{number}"));
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": metadata,
        "spec": { "attacher": "a.example.com", "nodeName": "node-1", "source": { "persistentVolumeName": "volume-1" } },
    });
    Seed::new(attachment).with_status(json!({ "attached": random.random_bool(0.5) }))
}
