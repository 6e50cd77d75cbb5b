//! Controllers of pods, with the status that their controllers would write.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::{NAMESPACES, Seed, metadata, past, pick};

/// Number of objects of each kind.
const COUNT: usize = 5;

pub(super) fn seeds(random: &mut StdRng) -> Vec<Seed> {
    let mut seeds = Vec::new();
    for number in 0..COUNT {
        seeds.extend([
            deployment(random, number),
            replica_set(random, number),
            replication_controller(random, number),
            stateful_set(random, number),
            daemon_set(random, number),
            job(random, number),
            cron_job(random, number),
            controller_revision(random, number),
            disruption_budget(random, number),
            autoscaler(random, number),
        ]);
    }
    seeds
}

/// Returns an object of a workload's kind, and the replicas that it wants.
fn workload(random: &mut StdRng, api_version: &str, kind: &str, number: usize) -> (Value, i64) {
    let namespace = *pick(random, &NAMESPACES);
    let replicas = *pick(random, &[0, 1, 3, 12]);
    let name = format!("{}-{number}", kind.to_lowercase());
    let images: Vec<_> = ["main", "proxy"][..random.random_range(1..3)].to_vec();
    let container = |name: &&str| json!({ "name": name, "image": format!("registry.example.com/{name}:1.{number}") });
    let object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata(random, Some(namespace), &name),
        "spec": {
            "selector": { "matchLabels": { "app": name, "track": "stable" } },
            "template": {
                "metadata": { "labels": { "app": name, "track": "stable" } },
                "spec": { "containers": images.iter().map(container).collect::<Vec<_>>() },
            },
        },
    });
    (object, replicas)
}

/// Returns a number from zero to `most`.
fn part(random: &mut StdRng, most: i64) -> i64 {
    random.random_range(0..=most)
}

fn deployment(random: &mut StdRng, number: usize) -> Seed {
    let (mut object, replicas) = workload(random, "apps/v1", "Deployment", number);
    object["spec"]["replicas"] = json!(replicas);
    object["spec"]["strategy"] = json!({ "type": pick(random, &["RollingUpdate", "Recreate"]) });
    object["spec"]["paused"] = json!(random.random_bool(0.2));
    let (ready, updated) = (part(random, replicas), part(random, replicas));
    let condition = |kind: &str, time: String| {
        json!({
            "type": kind, "status": "True", "reason": "MinimumReplicasAvailable", "message": "has minimum availability",
            "lastTransitionTime": time, "lastUpdateTime": time,
        })
    };
    Seed::new(object).with_status(json!({
        "observedGeneration": 1, "replicas": replicas, "readyReplicas": ready, "updatedReplicas": updated,
        "availableReplicas": part(random, ready), "unavailableReplicas": part(random, 3),
        "conditions": [condition("Available", past(random)), condition("Progressing", past(random))],
    }))
}

fn replica_set(random: &mut StdRng, number: usize) -> Seed {
    let (mut object, replicas) = workload(random, "apps/v1", "ReplicaSet", number);
    object["spec"]["replicas"] = json!(replicas);
    let ready = part(random, replicas);
    Seed::new(object).with_status(json!({
        "observedGeneration": 1, "replicas": replicas, "readyReplicas": ready, "fullyLabeledReplicas": replicas,
        "availableReplicas": part(random, ready),
    }))
}

fn replication_controller(random: &mut StdRng, number: usize) -> Seed {
    let (mut object, replicas) = workload(random, "v1", "ReplicationController", number);
    object["spec"]["replicas"] = json!(replicas);
    object["spec"]["selector"] = object["spec"]["template"]["metadata"]["labels"].clone();
    let ready = part(random, replicas);
    Seed::new(object).with_status(json!({ "observedGeneration": 1, "replicas": replicas, "readyReplicas": ready }))
}

fn stateful_set(random: &mut StdRng, number: usize) -> Seed {
    let (mut object, replicas) = workload(random, "apps/v1", "StatefulSet", number);
    object["spec"]["replicas"] = json!(replicas);
    object["spec"]["serviceName"] = json!("headless");
    let ready = part(random, replicas);
    Seed::new(object).with_status(json!({
        "observedGeneration": 1, "replicas": replicas, "readyReplicas": ready, "availableReplicas": part(random, ready),
        "currentReplicas": replicas, "updatedReplicas": replicas, "currentRevision": "a", "updateRevision": "b",
    }))
}

fn daemon_set(random: &mut StdRng, number: usize) -> Seed {
    let (mut object, replicas) = workload(random, "apps/v1", "DaemonSet", number);
    if random.random_bool(0.5) {
        object["spec"]["template"]["spec"]["nodeSelector"] = json!({ "disk": "ssd", "arch": "amd64" });
    }
    Seed::new(object).with_status(json!({
        "observedGeneration": 1, "desiredNumberScheduled": replicas, "currentNumberScheduled": part(random, replicas),
        "numberReady": part(random, replicas), "updatedNumberScheduled": part(random, replicas),
        "numberAvailable": part(random, replicas), "numberMisscheduled": part(random, 2),
    }))
}

fn job(random: &mut StdRng, number: usize) -> Seed {
    let (mut object, _) = workload(random, "batch/v1", "Job", number);
    // Jobs choose their selector themselves.
    object["spec"]["selector"].take();
    object["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    object["spec"]["suspend"] = json!(random.random_bool(0.2));
    match random.random_range(0..3) {
        0 => object["spec"]["completions"] = json!(3),
        1 => object["spec"]["parallelism"] = json!(*pick(random, &[1, 2, 5])),
        _ => {}
    }
    let start = "2024-05-01T10:00:00Z";
    let condition = |kind: &str, reason: &str| json!({ "type": kind, "status": "True", "reason": reason, "lastTransitionTime": start, "lastProbeTime": start });
    let seed = Seed::new(object);
    match random.random_range(0..4) {
        0 => seed,
        1 => seed.with_status(json!({ "startTime": start, "active": 1, "ready": 1, "terminating": 0 })),
        2 => seed.with_status(json!({
            "startTime": start, "failed": 1, "terminating": 0, "ready": 0,
            "conditions": [condition("FailureTarget", "BackoffLimitExceeded"), condition("Failed", "BackoffLimitExceeded")],
        })),
        _ => seed.with_status(json!({
            "startTime": start, "completionTime": "2024-05-01T11:02:03Z", "succeeded": 1, "terminating": 0, "ready": 0,
            "conditions": [condition("SuccessCriteriaMet", "CompletionsReached"), condition("Complete", "CompletionsReached")],
        })),
    }
}

fn cron_job(random: &mut StdRng, number: usize) -> Seed {
    let (object, _) = workload(random, "batch/v1", "CronJob", number);
    let mut template = object["spec"]["template"].clone();
    template["spec"]["restartPolicy"] = json!("OnFailure");
    let mut spec = json!({
        "schedule": pick(random, &["*/5 * * * *", "@hourly", "0 3 * * 1"]),
        "suspend": random.random_bool(0.3),
        "jobTemplate": { "spec": { "template": template } },
    });
    if random.random_bool(0.5) {
        spec["timeZone"] = json!("Europe/Berlin");
    }
    let object = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": object["metadata"], "spec": spec });
    if random.random_bool(0.3) {
        return Seed::new(object);
    }
    let active = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "job-0", "namespace": "shop" });
    Seed::new(object).with_status(json!({ "lastScheduleTime": past(random), "active": [active] }))
}

fn controller_revision(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let mut metadata = metadata(random, Some(namespace), &format!("revision-{number}"));
    if random.random_bool(0.7) {
        let owner = |name: &str, controls: bool| {
            let kind = if controls { "StatefulSet" } else { "Thing" };
            json!({ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1-2-3", "controller": controls })
        };
        metadata["ownerReferences"] = json!([owner("other", false), owner("statefulset-0", random.random_bool(0.7))]);
    }
    Seed::new(json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "revision": number,
        "data": { "spec": { "replicas": number } },
    }))
}

fn disruption_budget(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let mut spec = json!({ "selector": { "matchLabels": { "app": "web" } } });
    match random.random_range(0..3) {
        0 => spec["minAvailable"] = json!("50%"),
        1 => spec["minAvailable"] = json!(2),
        _ => spec["maxUnavailable"] = json!(1),
    }
    let metadata = metadata(random, Some(namespace), &format!("budget-{number}"));
    let object =
        json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec });
    Seed::new(object).with_status(json!({
        "observedGeneration": 1, "disruptionsAllowed": part(random, 3), "currentHealthy": 3, "desiredHealthy": 2,
        "expectedPods": 3,
    }))
}

fn autoscaler(random: &mut StdRng, number: usize) -> Seed {
    let namespace = *pick(random, &NAMESPACES);
    let resource = |target: Value| json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
    let utilization = resource(json!({ "type": "Utilization", "averageUtilization": 80 }));
    let value = resource(json!({ "type": "AverageValue", "averageValue": "100m" }));
    let pods = json!({ "type": "Pods", "pods": {
        "metric": { "name": "requests" }, "target": { "type": "AverageValue", "averageValue": "20" },
    } });
    let external = json!({ "type": "External", "external": {
        "metric": { "name": "queue" }, "target": { "type": "Value", "value": "5k" },
    } });
    let object = json!({ "type": "Object", "object": {
        "metric": { "name": "hits" }, "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "web" },
        "target": { "type": "Value", "value": "10" },
    } });
    let of_container = json!({ "type": "ContainerResource", "containerResource": {
        "name": "memory", "container": "main", "target": { "type": "Utilization", "averageUtilization": 60 },
    } });
    let all = [utilization, value, pods, external, object, of_container];
    let first = random.random_range(0..all.len());
    let metrics = &all[first..random.random_range(first + 1..=all.len())];
    let mut spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "deployment-0" },
        "minReplicas": 1, "maxReplicas": 10, "metrics": metrics,
    });
    if random.random_bool(0.3) {
        spec["minReplicas"].take();
    }
    let metadata = metadata(random, Some(namespace), &format!("scaler-{number}"));
    let scaler = json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec });
    if random.random_bool(0.3) {
        return Seed::new(scaler);
    }
    let current = json!({ "averageUtilization": 43, "averageValue": "430m" });
    let current = json!({ "type": "Resource", "resource": { "name": "cpu", "current": current } });
    Seed::new(scaler).with_status(json!({
        "observedGeneration": 1, "currentReplicas": 3, "desiredReplicas": 4, "currentMetrics": [current],
        "conditions": [{ "type": "ScalingActive", "status": "True", "lastTransitionTime": past(random) }],
    }))
}
