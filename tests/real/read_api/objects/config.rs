//! Configuration, rights, events and other objects without a controller.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::{NAMESPACES, Seed, metadata, past, pick};

/// Number of objects of each kind.
const COUNT: usize = 6;

pub(super) fn seeds(random: &mut StdRng) -> Vec<Seed> {
    let mut seeds: Vec<_> = (0..4).map(|number| namespace(random, number)).collect();
    for number in 0..COUNT {
        let all = [config_map, secret, service_account, event, lease, role, role_binding, cluster_role, limits];
        seeds.extend(all.map(|seed| seed(random, number)));
        let all = [cluster_role_binding, priority_class, runtime_class, webhooks, mutating_webhooks];
        seeds.extend(all.map(|seed| seed(random, number)));
    }
    seeds.extend((0..12).map(|number| event(random, COUNT + number)));
    seeds.extend((0..COUNT).map(|number| quota(random, number)));
    seeds
}

/// Returns an object without a spec.
fn plain(random: &mut StdRng, api_version: &str, kind: &str, name: &str, namespace: Option<&str>) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata(random, namespace, name) })
}

fn somewhere(random: &mut StdRng) -> &'static str {
    pick::<&str>(random, &NAMESPACES)
}

fn namespace(random: &mut StdRng, number: usize) -> Seed {
    let seed = Seed::new(plain(random, "v1", "Namespace", &format!("team-{number}"), None));
    // The namespace has a finalizer of its own, so no controller ends the deletion.
    if number == 0 { seed.deleted() } else { seed }
}

fn config_map(random: &mut StdRng, number: usize) -> Seed {
    let namespace = Some(somewhere(random));
    let mut object = plain(random, "v1", "ConfigMap", &format!("config-{number}"), namespace);
    let keys: Vec<_> = (0..number).map(|key| format!("key.{key}")).collect();
    for key in &keys {
        let values = ["", "yes", "1.0", "null", "multi\nline\n", "  spaces ", "tab\tand \"quotes\"", "a: b # c"];
        object["data"][key] = json!(pick(random, &values));
    }
    if number == 5 {
        object["binaryData"] = json!({ "blob": "AAEC/w==" });
        object["immutable"] = json!(true);
    }
    Seed::new(object)
}

fn secret(random: &mut StdRng, number: usize) -> Seed {
    let namespace = Some(somewhere(random));
    let mut object = plain(random, "v1", "Secret", &format!("secret-{number}"), namespace);
    object["data"] = json!({ "password": "cGFzc3dvcmQ=", "user": "YWRtaW4=" });
    if number == 1 {
        object["type"] = json!("kubernetes.io/tls");
        object["data"] = json!({ "tls.crt": "", "tls.key": "" });
    }
    Seed::new(object)
}

fn service_account(random: &mut StdRng, number: usize) -> Seed {
    let namespace = Some(somewhere(random));
    let mut object = plain(random, "v1", "ServiceAccount", &format!("account-{number}"), namespace);
    object["secrets"] = (0..number).map(|secret| json!({ "name": format!("secret-{secret}") })).collect();
    Seed::new(object)
}

fn event(random: &mut StdRng, number: usize) -> Seed {
    let kind = *pick(random, &["Pod", "Node", "Gadget"]);
    let namespace = if kind == "Node" { "default" } else { *pick(random, &NAMESPACES) };
    let mut involved = json!({ "kind": kind, "name": format!("web-{}", number % 4), "apiVersion": "v1" });
    if kind != "Node" {
        involved["namespace"] = json!(namespace);
    }
    if random.random_bool(0.5) {
        involved["fieldPath"] = json!("spec.containers{main}");
    }
    let mut event = plain(random, "v1", "Event", &format!("web.{number}"), Some(namespace));
    event["involvedObject"] = involved;
    event["reason"] = json!(pick(random, &["Started", "Failed", "Scheduled"]));
    event["message"] = json!(pick(random, &["Started container main", "two\nlines", " padded \n"]));
    event["type"] = json!(pick(random, &["Normal", "Warning"]));
    match random.random_range(0..4) {
        0 => {
            event["eventTime"] = json!("2024-05-01T10:00:00.123456Z");
            event["reportingComponent"] = json!("kubelet");
            event["reportingInstance"] = json!("kubelet-1");
            event["action"] = json!("Binding");
            if random.random_bool(0.5) {
                event["series"] = json!({ "count": 7, "lastObservedTime": "2024-06-01T10:00:00.123456Z" });
            }
        }
        1 => event["source"] = json!({ "component": "scheduler" }),
        _ => {
            event["source"] = json!({ "component": "kubelet", "host": "node-1" });
            event["count"] = json!(pick(random, &[0, 1, 23]));
            event["firstTimestamp"] = json!(past(random));
            event["lastTimestamp"] = json!(past(random));
        }
    }
    Seed::new(event)
}

fn lease(random: &mut StdRng, number: usize) -> Seed {
    let namespace = Some(somewhere(random));
    let mut object = plain(random, "coordination.k8s.io/v1", "Lease", &format!("lease-{number}"), namespace);
    object["spec"] = json!({ "leaseDurationSeconds": 15, "renewTime": "2024-05-01T10:00:00.000000Z" });
    if number > 1 {
        object["spec"]["holderIdentity"] = json!("holder-1");
    }
    Seed::new(object)
}

/// Returns the rules of a role. They have no effect, since no pod runs with an account that has the role.
fn rules() -> Value {
    json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }])
}

fn role(random: &mut StdRng, number: usize) -> Seed {
    let namespace = Some(somewhere(random));
    let mut object = plain(random, "rbac.authorization.k8s.io/v1", "Role", &format!("role-{number}"), namespace);
    object["rules"] = rules();
    Seed::new(object)
}

fn subjects(number: usize) -> Value {
    let all = [
        json!({ "kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io" }),
        json!({ "kind": "Group", "name": "team", "apiGroup": "rbac.authorization.k8s.io" }),
        json!({ "kind": "ServiceAccount", "name": "account-1", "namespace": "shop" }),
        json!({ "kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io" }),
    ];
    json!(all[..number.min(4)])
}

fn binding(mut object: Value, number: usize, role: &str) -> Seed {
    object["subjects"] = subjects(number);
    object["roleRef"] = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "role-1" });
    Seed::new(object)
}

fn role_binding(random: &mut StdRng, number: usize) -> Seed {
    let (namespace, name) = (Some(somewhere(random)), format!("binding-{number}"));
    binding(plain(random, "rbac.authorization.k8s.io/v1", "RoleBinding", &name, namespace), number, "Role")
}

fn cluster_role(random: &mut StdRng, number: usize) -> Seed {
    let mut object = plain(random, "rbac.authorization.k8s.io/v1", "ClusterRole", &format!("role-{number}"), None);
    object["rules"] = rules();
    Seed::new(object)
}

fn cluster_role_binding(random: &mut StdRng, number: usize) -> Seed {
    let name = format!("binding-{number}");
    binding(plain(random, "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", &name, None), number, "ClusterRole")
}

fn limits(random: &mut StdRng, number: usize) -> Seed {
    // In a namespace without pods, since limits would change the pods.
    let mut object = plain(random, "v1", "LimitRange", &format!("limits-{number}"), Some("team-1"));
    object["spec"] = json!({ "limits": [{ "type": "Container", "max": { "cpu": "2" } }] });
    Seed::new(object)
}

fn quota(random: &mut StdRng, number: usize) -> Seed {
    let mut object = plain(random, "v1", "ResourceQuota", &format!("quota-{number}"), Some("team-2"));
    let hard = json!({ "pods": "10", "requests.cpu": "4", "limits.memory": "8Gi", "configmaps": "5" });
    object["spec"] = json!({ "hard": hard });
    let used = json!({ "pods": "3", "requests.cpu": "1500m", "limits.memory": "1Gi", "configmaps": "0" });
    let seed = Seed::new(object);
    if number == 0 { seed } else { seed.with_status(json!({ "hard": hard, "used": used })) }
}

fn priority_class(random: &mut StdRng, number: usize) -> Seed {
    let mut object = plain(random, "scheduling.k8s.io/v1", "PriorityClass", &format!("priority-{number}"), None);
    object["value"] = json!(number * 1000);
    if number == 1 {
        object["preemptionPolicy"] = json!("Never");
    }
    Seed::new(object)
}

fn runtime_class(random: &mut StdRng, number: usize) -> Seed {
    let mut object = plain(random, "node.k8s.io/v1", "RuntimeClass", &format!("runtime-{number}"), None);
    object["handler"] = json!("runc");
    Seed::new(object)
}

fn hooks(number: usize) -> Value {
    let hook = |at: usize| {
        json!({
            "name": format!("hook-{at}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "clientConfig": { "url": "https://127.0.0.1:1/hook" },
            "rules": [{
                "apiGroups": ["none.example.com"], "apiVersions": ["v1"], "resources": ["nothings"],
                "operations": ["CREATE"],
            }],
        })
    };
    (0..number).map(hook).collect()
}

fn webhooks(random: &mut StdRng, number: usize) -> Seed {
    let (version, name) = ("admissionregistration.k8s.io/v1", format!("hooks-{number}"));
    let mut object = plain(random, version, "ValidatingWebhookConfiguration", &name, None);
    object["webhooks"] = hooks(number);
    Seed::new(object)
}

fn mutating_webhooks(random: &mut StdRng, number: usize) -> Seed {
    let (version, name) = ("admissionregistration.k8s.io/v1", format!("hooks-{number}"));
    let mut object = plain(random, version, "MutatingWebhookConfiguration", &name, None);
    object["webhooks"] = hooks(number);
    Seed::new(object)
}
