//! Nodes with conditions, roles and addresses.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::{Seed, metadata, past, pick};

/// Number of nodes.
const COUNT: usize = 10;

pub(super) fn seeds(random: &mut StdRng) -> Vec<Seed> {
    (0..COUNT).flat_map(|number| [node(random, number), csi_node(random, number)]).collect()
}

fn node(random: &mut StdRng, number: usize) -> Seed {
    let mut metadata = metadata(random, None, &format!("node-{number}"));
    for role in ["control-plane", "worker", "zeta"].iter().filter(|_| random.random_bool(0.3)) {
        metadata["labels"][format!("node-role.kubernetes.io/{role}")] = json!("");
    }
    if random.random_bool(0.2) {
        metadata["labels"]["kubernetes.io/role"] = json!("edge");
    }
    metadata["labels"]["kubernetes.io/arch"] = json!("amd64");
    let mut spec = json!({ "podCIDR": format!("10.1.{number}.0/24"), "podCIDRs": [format!("10.1.{number}.0/24")] });
    if random.random_bool(0.3) {
        spec["unschedulable"] = json!(true);
        spec["taints"] = json!([{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" }]);
    }
    let node = Seed::new(json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec }));
    if random.random_bool(0.1) { node } else { node.with_status(status(random, number)) }
}

fn status(random: &mut StdRng, number: usize) -> Value {
    let condition = |random: &mut StdRng, kind: &str| {
        json!({
            "type": kind, "status": pick(random, &["True", "False", "Unknown"]), "reason": "KubeletReady",
            "message": "kubelet is posting ready status", "lastHeartbeatTime": past(random),
            "lastTransitionTime": past(random),
        })
    };
    let kinds = ["MemoryPressure", "DiskPressure", "Ready"].into_iter().filter(|_| random.random_bool(0.8));
    let kinds: Vec<_> = kinds.collect();
    let conditions: Vec<_> = kinds.into_iter().map(|kind| condition(random, kind)).collect();
    let mut addresses = Vec::new();
    for (kind, address) in [("InternalIP", "192.168.0"), ("ExternalIP", "203.0.113"), ("Hostname", "node")] {
        if random.random_bool(0.7) {
            let address = if kind == "Hostname" { format!("node-{number}") } else { format!("{address}.{number}") };
            addresses.push(json!({ "type": kind, "address": address }));
        }
    }
    let mut info = json!({
        "machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6.1.0-13-amd64",
        "osImage": "Debian GNU/Linux 12 (bookworm)", "containerRuntimeVersion": "containerd://1.7.1",
        "kubeletVersion": format!("v1.3{number}.1"), "kubeProxyVersion": "", "operatingSystem": "linux",
        "architecture": "amd64",
    });
    if random.random_bool(0.2) {
        for field in ["kernelVersion", "osImage", "containerRuntimeVersion"] {
            info[field] = json!("");
        }
    }
    let resources = json!({ "cpu": "4", "memory": "16384Mi", "pods": "110" });
    json!({
        "conditions": conditions, "addresses": addresses, "nodeInfo": info, "capacity": resources,
        "allocatable": resources,
    })
}

fn csi_node(random: &mut StdRng, number: usize) -> Seed {
    let drivers = ["a.example.com", "b.example.com"].into_iter().filter(|_| random.random_bool(0.6));
    let drivers: Vec<_> = drivers.map(|name| json!({ "name": name, "nodeID": format!("id-{number}") })).collect();
    let metadata = metadata(random, None, &format!("node-{number}"));
    Seed::new(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": { "drivers": drivers },
    }))
}
