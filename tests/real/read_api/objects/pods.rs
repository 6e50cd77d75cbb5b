//! Pods in many states.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::{NAMESPACES, Seed, metadata, past, pick};

/// Number of pods.
const COUNT: usize = 48;

pub(super) fn seeds(random: &mut StdRng) -> Vec<Seed> {
    (0..COUNT).map(|number| pod(random, number)).collect()
}

fn pod(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let containers: Vec<_> = ["main", "proxy", "log"][..random.random_range(1..4)].to_vec();
    let inits: Vec<_> = ["setup", "sidecar"][..*pick(random, &[0, 0, 1, 2])].to_vec();
    let restart_policy = *pick(random, &["Always", "Always", "OnFailure", "Never"]);
    let mut spec = json!({
        "restartPolicy": restart_policy,
        "containers": containers.iter().map(|name| container(random, name)).collect::<Vec<_>>(),
    });
    if !inits.is_empty() {
        spec["initContainers"] = inits.iter().map(|name| container(random, name)).collect();
        if inits.len() > 1 {
            spec["initContainers"][1]["restartPolicy"] = json!("Always");
        }
    }
    if random.random_bool(0.8) {
        spec["nodeName"] = json!(format!("node-{}", random.random_range(0..4)));
    } else if random.random_bool(0.3) {
        spec["schedulingGates"] = json!([{ "name": "example.com/gate" }]);
    }
    if random.random_bool(0.15) {
        spec["hostNetwork"] = json!(true);
    }
    let gates: &[&str] = if random.random_bool(0.2) { &["example.com/ready", "example.com/other"] } else { &[] };
    if !gates.is_empty() {
        spec["readinessGates"] = gates.iter().map(|gate| json!({ "conditionType": gate })).collect();
    }
    let metadata = metadata(random, Some(namespace), &format!("web-{number}"));
    let (is_gated, is_bound) = (spec.get("schedulingGates").is_some(), spec.get("nodeName").is_some());
    let seed = Seed::new(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }));
    // Without a status here, the pod has the one that the apiserver writes at its creation. The apiserver refuses the
    // status of a gated pod.
    let seed = if is_gated || random.random_bool(0.1) {
        seed
    } else {
        let mut status = status(random, &containers, &inits, gates);
        if !is_bound && random.random_bool(0.5) {
            status["nominatedNodeName"] = json!("node-2");
        }
        seed.with_status(status)
    };
    if random.random_bool(0.12) { seed.deleted() } else { seed }
}

fn container(random: &mut StdRng, name: &str) -> Value {
    let mut container = json!({ "name": name, "image": format!("registry.example.com/{name}:{}", number(random, 9)) });
    if random.random_bool(0.5) {
        container["resources"] = json!({ "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "cpu": "1" } });
    }
    if random.random_bool(0.3) {
        if name == "main" {
            container["ports"] = json!([{ "containerPort": 8080, "name": "http" }]);
        }
        container["env"] = json!([
            { "name": "PLAIN", "value": "value with spaces: yes" },
            { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
        ]);
    }
    container
}

fn number(random: &mut StdRng, below: u32) -> u32 {
    random.random_range(0..below)
}

fn status(random: &mut StdRng, containers: &[&str], inits: &[&str], gates: &[&str]) -> Value {
    let phase = *pick(random, &["Running", "Running", "Running", "Pending", "Succeeded", "Failed", "Unknown"]);
    let kinds: Vec<_> =
        ["PodScheduled", "Initialized", "ContainersReady", "Ready", "DisruptionTarget"].iter().chain(gates).collect();
    let conditions: Vec<_> = kinds
        .into_iter()
        .filter_map(|kind| if random.random_bool(0.7) { Some(condition(random, kind)) } else { None })
        .collect();
    let mut status = json!({ "phase": phase, "startTime": past(random), "conditions": conditions });
    let running = phase == "Running";
    status["containerStatuses"] =
        containers.iter().map(|name| container_status(random, name, running)).collect::<Vec<_>>().into();
    if !inits.is_empty() {
        status["initContainerStatuses"] =
            inits.iter().map(|name| init_status(random, name, running)).collect::<Vec<_>>().into();
    }
    if random.random_bool(0.7) {
        let ip = format!("10.1.{}.{}", number(random, 4), number(random, 250));
        status["podIP"] = json!(ip);
        status["podIPs"] = json!([{ "ip": ip }]);
        status["hostIP"] = json!("192.168.0.1");
        status["hostIPs"] = json!([{ "ip": "192.168.0.1" }]);
    }
    if random.random_bool(0.15) {
        status["reason"] = json!(pick(random, &["Evicted", "NodeLost", "UnexpectedAdmissionError"]));
        status["message"] = json!("The node was low on resource: memory.");
    }
    status
}

fn condition(random: &mut StdRng, kind: &str) -> Value {
    let mut condition = json!({
        "type": kind,
        "status": pick(random, &["True", "True", "False", "Unknown"]),
        "lastTransitionTime": past(random),
    });
    if kind == "PodScheduled" && random.random_bool(0.3) {
        condition["status"] = json!("False");
        condition["reason"] = json!(pick(random, &["SchedulingGated", "Unschedulable"]));
    }
    if kind == "Ready" && random.random_bool(0.2) {
        condition["reason"] = json!("PodCompleted");
    }
    condition
}

fn container_status(random: &mut StdRng, name: &str, is_running: bool) -> Value {
    let state = match random.random_range(0..10) {
        0..6 if is_running => running(random),
        0..7 => terminated(random),
        _ => waiting(random, &["ContainerCreating", "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", ""]),
    };
    with_restarts(random, name, &state)
}

fn init_status(random: &mut StdRng, name: &str, is_running: bool) -> Value {
    let mut state = match random.random_range(0..10) {
        0..7 if is_running => json!({ "terminated": ended(random, "Completed", 0) }),
        0..2 => running(random),
        2..6 => terminated(random),
        _ => waiting(random, &["PodInitializing", "CrashLoopBackOff", ""]),
    };
    if name == "sidecar" && random.random_bool(0.7) {
        state = running(random);
    }
    let mut status = with_restarts(random, name, &state);
    if name == "sidecar" {
        status["started"] = json!(random.random_bool(0.8));
    }
    status
}

fn with_restarts(random: &mut StdRng, name: &str, state: &Value) -> Value {
    let restarts = *pick(random, &[0, 0, 1, 3, 17, 250]);
    let mut status = json!({
        "name": name,
        "ready": random.random_bool(0.7),
        "restartCount": restarts,
        "image": format!("registry.example.com/{name}:1"),
        "imageID": "sha256:0123456789abcdef",
        "containerID": "containerd://0123456789abcdef",
        "state": state,
    });
    if restarts > 0 && random.random_bool(0.8) {
        status["lastState"] = json!({ "terminated": ended(random, "Error", 1) });
    }
    status
}

fn running(random: &mut StdRng) -> Value {
    json!({ "running": { "startedAt": past(random) } })
}

fn waiting(random: &mut StdRng, reasons: &[&str]) -> Value {
    match *pick(random, reasons) {
        "" => json!({ "waiting": {} }),
        reason => json!({ "waiting": { "reason": reason, "message": "back-off 5m0s" } }),
    }
}

fn terminated(random: &mut StdRng) -> Value {
    let mut ended = match *pick(random, &["Completed", "Error", "OOMKilled", "signal", "exit"]) {
        "Completed" => ended(random, "Completed", 0),
        "signal" => {
            let mut ended = ended(random, "", 0);
            ended["signal"] = json!(9);
            ended
        }
        "exit" => ended(random, "", 3),
        reason => ended(random, reason, 137),
    };
    if random.random_bool(0.2) {
        ended["message"] = json!("line one\nline two");
    }
    json!({ "terminated": ended })
}

fn ended(random: &mut StdRng, reason: &str, code: i32) -> Value {
    let mut ended = json!({ "exitCode": code, "startedAt": past(random), "finishedAt": past(random) });
    if !reason.is_empty() {
        ended["reason"] = json!(reason);
    }
    ended
}
