//! Generator of pod, node and custom resource bodies: pods as large and varied as real ones, or short ones for tests.
//!
//! All randomness comes from the given generator, so equal seeds produce equal bytes.

use std::fmt::Write as _;

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const APPS: [&str; 12] =
    ["web", "api", "cart", "search", "auth", "mail", "billing", "gateway", "worker", "cache", "ingest", "report"];
const TIERS: [&str; 3] = ["frontend", "backend", "data"];
const TEAMS: [&str; 5] = ["payments", "storefront", "platform", "growth", "identity"];

/// Namespaces of simulated pods.
pub const NAMESPACES: [&str; 5] = ["shop", "pay", "infra", "default", "team-a"];

/// Pod phases that the generator of changes (`churn`) sets.
pub const PHASES: [&str; 4] = ["Running", "Pending", "Succeeded", "Failed"];

/// Returns `count` lowercase hexadecimal digits.
pub(super) fn hex(rng: &mut StdRng, count: usize) -> String {
    let mut text = String::with_capacity(count + 16);
    while text.len() < count {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:016x}", rng.random::<u64>());
    }
    text.truncate(count);
    text
}

/// Returns a random UUID (version 4) in lowercase.
pub(super) fn uuid(rng: &mut StdRng) -> String {
    let variant = ['8', '9', 'a', 'b'][rng.random_range(0..4)];
    format!("{}-{}-4{}-{variant}{}-{}", hex(rng, 8), hex(rng, 4), hex(rng, 3), hex(rng, 3), hex(rng, 12))
}

/// Returns a random suffix as controllers append to generated names.
pub(super) fn suffix(rng: &mut StdRng, count: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..count).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())])).collect()
}

/// ReplicaSet: the content that its pods share.
#[derive(Debug)]
pub(super) struct ReplicaSet {
    app: &'static str,
    name: String,
    uid: String,
    image: String,
    tier: &'static str,
    team: &'static str,
    checksums: [String; 2],
    features: String,
    cpu: u32,
}

impl ReplicaSet {
    pub(super) fn new(rng: &mut StdRng) -> Self {
        let (app, hash) = (Self::app(rng), suffix(rng, 9));
        Self::named(rng, app, &hash)
    }

    pub(super) fn app(rng: &mut StdRng) -> &'static str {
        APPS[rng.random_range(0..APPS.len())]
    }

    /// Creates a ReplicaSet of an application with the given template hash.
    pub(super) fn named(rng: &mut StdRng, app: &'static str, hash: &str) -> Self {
        let version = format!("1.{}.{}", rng.random_range(0..30), rng.random_range(0..10));
        Self {
            app,
            name: format!("{app}-{hash}"),
            uid: uuid(rng),
            image: format!("registry.example.com/{app}/server:{version}"),
            tier: TIERS[rng.random_range(0..TIERS.len())],
            team: TEAMS[rng.random_range(0..TEAMS.len())],
            checksums: [hex(rng, 64), hex(rng, 64)],
            features: hex(rng, 24),
            cpu: rng.random_range(1..16) * 50,
        }
    }

    /// Name of the ReplicaSet, which is also the prefix of its pods' names.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Creates the body (labels, owner, spec, status) of a pod of this ReplicaSet. `time` is the creation time (RFC
    /// 3339).
    pub(super) fn pod(&self, rng: &mut StdRng, nodes: usize, time: &str, small: bool) -> Value {
        let node = rng.random_range(0..nodes.max(1));
        let draft = Draft {
            set: self,
            node: format!("node-{node}"),
            ip: format!("10.{}.{}.{}", 64 + node % 64, rng.random_range(0..255), rng.random_range(1..255)),
            host_ip: format!("192.168.{}.{}", node / 250, 1 + node % 250),
            time: time.to_owned(),
        };
        if small { small_pod(&draft) } else { real_pod(rng, &draft) }
    }
}

/// Values that occur in several places of one pod, such as its node and IP address.
#[derive(Debug)]
struct Draft<'s> {
    set: &'s ReplicaSet,
    node: String,
    ip: String,
    host_ip: String,
    time: String,
}

/// Creates the name and body of a pod that is the only one of its ReplicaSet.
pub(super) fn pod(rng: &mut StdRng, nodes: usize, time: &str, small: bool) -> (String, Value) {
    let set = ReplicaSet::new(rng);
    let name = format!("{}-{}", set.name, suffix(rng, 5));
    let body = set.pod(rng, nodes, time, small);
    (name, body)
}

fn labels(set: &ReplicaSet) -> Value {
    json!({
        "app": set.app,
        "pod-template-hash": set.name.rsplit('-').next().unwrap_or_default(),
        "tier": set.tier,
        "team": set.team,
    })
}

fn small_pod(draft: &Draft<'_>) -> Value {
    json!({
        "metadata": { "labels": labels(draft.set) },
        "spec": {
            "nodeName": draft.node,
            "containers": [{ "name": draft.set.app, "image": draft.set.image }],
        },
        "status": { "phase": "Running", "podIP": draft.ip, "startTime": draft.time },
    })
}

fn real_pod(rng: &mut StdRng, draft: &Draft<'_>) -> Value {
    let set = draft.set;
    let mut labels = labels(set);
    labels["app.kubernetes.io/name"] = json!(set.app);
    labels["app.kubernetes.io/instance"] = json!(format!("{}-prod", set.app));
    labels["app.kubernetes.io/version"] = json!(set.image.rsplit(':').next());
    labels["app.kubernetes.io/managed-by"] = json!("Helm");
    json!({
        "metadata": {
            "generateName": format!("{}-", set.name),
            "labels": labels,
            "annotations": {
                "checksum/config": set.checksums[0],
                "checksum/secret": set.checksums[1],
                "kubectl.kubernetes.io/restartedAt": draft.time,
                "prometheus.io/path": "/metrics",
                "prometheus.io/port": "9090",
                "prometheus.io/scrape": "true",
                "cni.example.com/podIP": format!("{}/32", draft.ip),
                "cni.example.com/containerID": hex(rng, 64),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set.name, "uid": set.uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": managed_fields(draft),
        },
        "spec": spec(rng, draft),
        "status": status(rng, draft),
    })
}

fn spec(rng: &mut StdRng, draft: &Draft<'_>) -> Value {
    let token = format!("kube-api-access-{}", suffix(rng, 5));
    let tolerations = ["not-ready", "unreachable"].map(|taint| {
        let key = format!("node.kubernetes.io/{taint}");
        json!({ "effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300 })
    });
    json!({
        "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": { "matchLabels": { "app": draft.set.app } },
                "topologyKey": "kubernetes.io/hostname",
            },
        }] } },
        "containers": [main_container(draft.set, &token), proxy_container(&token)],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": true,
        "nodeName": draft.node,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": { "fsGroup": 2000, "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        "serviceAccount": draft.set.app,
        "serviceAccountName": draft.set.app,
        "terminationGracePeriodSeconds": 30,
        "tolerations": tolerations,
        "volumes": [
            { "name": "config", "configMap": { "name": format!("{}-config", draft.set.app), "defaultMode": 420 } },
            { "name": "tmp", "emptyDir": {} },
            { "name": token, "projected": { "defaultMode": 420, "sources": [
                { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{
                    "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
                }] } },
            ] } },
        ],
    })
}

fn main_container(set: &ReplicaSet, token: &str) -> Value {
    let mut env = vec![
        json!({ "name": "LOG_LEVEL", "value": "info" }),
        json!({ "name": "HTTP_PORT", "value": "8080" }),
        json!({ "name": "FEATURES", "value": set.features }),
        json!({ "name": "POD_NAME", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } } }),
    ];
    for key in ["DATABASE_URL", "QUEUE_URL", "API_TOKEN", "SIGNING_KEY"] {
        let secret = json!({ "key": key.to_lowercase(), "name": format!("{}-secrets", set.app) });
        env.push(json!({ "name": key, "valueFrom": { "secretKeyRef": secret } }));
    }
    let probe = |path: &str, period: u32| {
        json!({
            "failureThreshold": 3, "initialDelaySeconds": 5, "periodSeconds": period, "successThreshold": 1,
            "timeoutSeconds": 2, "httpGet": { "path": path, "port": "http", "scheme": "HTTP" },
        })
    };
    let cpu = set.cpu;
    json!({
        "name": set.app,
        "image": set.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["--config=/etc/app/config.yaml", "--listen=:8080", "--metrics=:9090"],
        "env": env,
        "livenessProbe": probe("/healthz", 10),
        "readinessProbe": probe("/readyz", 5),
        "ports": [
            { "containerPort": 8080, "name": "http", "protocol": "TCP" },
            { "containerPort": 9090, "name": "metrics", "protocol": "TCP" },
        ],
        "resources": {
            "limits": { "memory": format!("{}Mi", cpu * 4) },
            "requests": { "cpu": format!("{cpu}m"), "memory": format!("{}Mi", cpu * 2) },
        },
        "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] }, "readOnlyRootFilesystem": true,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            { "mountPath": "/etc/app", "name": "config", "readOnly": true },
            { "mountPath": "/tmp", "name": "tmp" },
            { "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": token, "readOnly": true },
        ],
    })
}

fn proxy_container(token: &str) -> Value {
    json!({
        "name": "proxy",
        "image": "registry.example.com/mesh/proxy:2.14.1",
        "imagePullPolicy": "IfNotPresent",
        "args": ["sidecar", "--log-level=warning", "--concurrency=2"],
        "ports": [{ "containerPort": 15090, "name": "proxy-metrics", "protocol": "TCP" }],
        "resources": { "requests": { "cpu": "10m", "memory": "40Mi" } },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            { "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": token, "readOnly": true },
        ],
    })
}

/// Returns the digest of an image, which is the same on every node.
fn digest(image: &str) -> String {
    Sha256::digest(image).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn status(rng: &mut StdRng, draft: &Draft<'_>) -> Value {
    let time = &draft.time;
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| json!({ "lastProbeTime": null, "lastTransitionTime": time, "status": "True", "type": kind }));
    let mut container = |name: &str, image: &str| {
        json!({
            "containerID": format!("containerd://{}", hex(rng, 64)),
            "image": image,
            "imageID": format!("{}@sha256:{}", image.split(':').next().unwrap_or_default(), digest(image)),
            "lastState": {}, "name": name, "ready": true, "restartCount": 0, "started": true,
            "state": { "running": { "startedAt": time } },
        })
    };
    json!({
        "conditions": conditions,
        "containerStatuses": [
            container(draft.set.app, &draft.set.image),
            container("proxy", "registry.example.com/mesh/proxy:2.14.1"),
        ],
        "hostIP": draft.host_ip,
        "hostIPs": [{ "ip": draft.host_ip }],
        "phase": "Running",
        "podIP": draft.ip,
        "podIPs": [{ "ip": draft.ip }],
        "qosClass": "Burstable",
        "startTime": time,
    })
}

/// Creates about 3 KB of `managedFields`, as written by the controller manager and the kubelet.
fn managed_fields(draft: &Draft<'_>) -> Value {
    let leaf = || json!({});
    let probe = || {
        json!({
            ".": {}, "f:failureThreshold": {}, "f:initialDelaySeconds": {}, "f:periodSeconds": {},
            "f:successThreshold": {}, "f:timeoutSeconds": {}, "f:httpGet": { ".": {}, "f:path": {}, "f:port": {}, "f:scheme": {} },
        })
    };
    let mut env = json!({ ".": {} });
    for name in ["LOG_LEVEL", "HTTP_PORT", "FEATURES"] {
        env[format!("k:{{\"name\":\"{name}\"}}")] = json!({ ".": {}, "f:name": {}, "f:value": {} });
    }
    for name in ["DATABASE_URL", "QUEUE_URL", "API_TOKEN", "SIGNING_KEY"] {
        env[format!("k:{{\"name\":\"{name}\"}}")] =
            json!({ ".": {}, "f:name": {}, "f:valueFrom": { ".": {}, "f:secretKeyRef": {} } });
    }
    let mut containers = json!({});
    containers[format!("k:{{\"name\":\"{}\"}}", draft.set.app)] = json!({
        ".": {}, "f:args": {}, "f:env": env, "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": probe(),
        "f:name": {}, "f:readinessProbe": probe(), "f:resources": { ".": {}, "f:limits": { ".": {}, "f:memory": {} },
        "f:requests": { ".": {}, "f:cpu": {}, "f:memory": {} } }, "f:terminationMessagePath": {},
        "f:terminationMessagePolicy": {},
    });
    containers["k:{\"name\":\"proxy\"}"] = json!({
        ".": {}, "f:args": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {},
    });
    let mut owner = json!({ ".": {} });
    owner[format!("k:{{\"uid\":\"{}\"}}", draft.set.uid)] = leaf();
    let mut conditions = json!({ ".": {} });
    for kind in ["ContainersReady", "Initialized", "Ready", "PodReadyToStartContainers"] {
        conditions[format!("k:{{\"type\":\"{kind}\"}}")] =
            json!({ ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {} });
    }
    let created = json!({
        "f:metadata": {
            "f:annotations": { ".": {}, "f:checksum/config": {}, "f:checksum/secret": {}, "f:prometheus.io/scrape": {} },
            "f:generateName": {}, "f:labels": { ".": {}, "f:app": {}, "f:pod-template-hash": {}, "f:team": {}, "f:tier": {} },
            "f:ownerReferences": owner,
        },
        "f:spec": { "f:affinity": {}, "f:containers": containers, "f:dnsPolicy": {}, "f:enableServiceLinks": {},
            "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": { ".": {}, "f:fsGroup": {} },
            "f:serviceAccount": {}, "f:serviceAccountName": {}, "f:terminationGracePeriodSeconds": {}, "f:volumes": {} },
    });
    let running = json!({ "f:status": {
        "f:conditions": conditions, "f:containerStatuses": {}, "f:hostIP": {}, "f:hostIPs": {}, "f:phase": {},
        "f:podIP": {}, "f:podIPs": { ".": {} }, "f:startTime": {},
    } });
    json!([
        { "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": created, "manager": "kube-controller-manager",
          "operation": "Update", "time": draft.time },
        { "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": running, "manager": "kubelet",
          "operation": "Update", "subresource": "status", "time": draft.time },
    ])
}

/// Creates the body of a node: labels, capacity, conditions.
pub(super) fn node(rng: &mut StdRng, time: &str) -> Value {
    let zone = rng.random_range(0..3);
    json!({
        "metadata": { "labels": {
            "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": format!("zone-{zone}"), "node.kubernetes.io/instance-type": "m.large",
        } },
        "spec": { "podCIDR": format!("10.{}.0.0/16", 64 + rng.random_range(0..64)) },
        "status": {
            "capacity": { "cpu": "8", "memory": "32Gi", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": time }],
            "nodeInfo": { "kubeletVersion": "v1.36.3", "machineID": hex(rng, 32) },
        },
    })
}

pub(super) fn widget(rng: &mut StdRng) -> Value {
    let color = ["red", "green", "blue"][rng.random_range(0..3)];
    json!({
        "metadata": { "labels": { "color": color } },
        "spec": { "size": rng.random_range(1..100), "owner": TEAMS[rng.random_range(0..TEAMS.len())] },
        "status": { "ready": rng.random_bool(0.8) },
    })
}
