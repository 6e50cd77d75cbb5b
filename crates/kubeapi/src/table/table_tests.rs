//! Tests of tables, cell by cell. The expected cells are those of kube-apiserver 1.37.
#![allow(clippy::needless_pass_by_value, reason = "JSON is written where it is passed")]

use std::sync::LazyLock;

use informer_hub_types::Gvr;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Start of June 2024.
const NOW: i64 = 1_717_200_000;

/// An hour before [`NOW`]: an age of `60m`.
const HOUR_AGO: &str = "2024-05-31T23:00:00Z";

fn printer(group: &str, resource: &str) -> Printer {
    let resource = ApiResource { gvr: Gvr::new(group, "v1", resource), kind: "X".into(), namespaced: true };
    Printer::new(&resource, None)
}

/// Prints `fields` as an object named `a` that is an hour old. `fields` may extend the metadata.
pub(super) fn row(group: &str, resource: &str, fields: Value) -> Row {
    let mut object = json!({"metadata": {"name": "a", "creationTimestamp": HOUR_AGO}});
    for (name, value) in fields.as_object().expect("fields are an object") {
        match (name.as_str(), value) {
            ("metadata", Value::Object(members)) => {
                object["metadata"].as_object_mut().unwrap().extend(members.clone());
            }
            _ => object[name] = value.clone(),
        }
    }
    printer(group, resource).row(&serde_json::to_vec(&object).unwrap(), NOW)
}

fn check(group: &str, resource: &str, fields: Value, expected: Value) {
    let text = fields.to_string();
    assert_eq!(Value::from(row(group, resource, fields).cells), expected, "{resource}: {text}");
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"b": "2", "a": "1"}},
        "spec": {
            "containers": [{"name": "x", "image": "x:1"}, {"name": "y", "image": "y:2"}],
            "nodeSelector": {"disk": "ssd"},
        },
    })
}

#[test]
fn workloads_show_replicas_containers_and_selector() {
    let selector =
        json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]});
    let spec = json!({"replicas": 3, "selector": selector, "template": template()});
    let status = json!({"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1});
    let object = json!({"spec": spec, "status": status});
    check("apps", "deployments", object.clone(), json!(["a", "1/3", 2, 1, "60m", "x,y", "x:1,y:2", "a=1,b=2,c"]));
    check("apps", "replicasets", object.clone(), json!(["a", 3, 2, 1, "60m", "x,y", "x:1,y:2", "a=1,b=2,c"]));
    check("apps", "statefulsets", object, json!(["a", "1/3", "60m", "x,y", "x:1,y:2"]));
    check("apps", "deployments", json!({}), json!(["a", "0/1", 0, 0, "60m", "", "", ""]));
    check("apps", "replicasets", json!({}), json!(["a", 1, 0, 0, "60m", "", "", "<none>"]));
    let invalid = json!({"spec": {"selector": {"matchExpressions": [{"key": "c", "operator": "Is"}]}}});
    check("apps", "deployments", invalid.clone(), json!(["a", "0/1", 0, 0, "60m", "", "", "<invalid>"]));
    check("apps", "replicasets", invalid, json!(["a", 1, 0, 0, "60m", "", "", "<error>"]));
    let controller = json!({"spec": {"replicas": 2, "selector": {"y": "2", "x": "1"}, "template": template()}});
    let expected = json!(["a", 2, 0, 0, "60m", "x,y", "x:1,y:2", "x=1,y=2"]);
    check("", "replicationcontrollers", controller, expected);
    check("", "podtemplates", json!({"template": template()}), json!(["a", "x,y", "x:1,y:2", "a=1,b=2"]));
}

#[test]
fn daemon_sets_show_numbers_of_nodes() {
    let status = json!({
        "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2,
        "numberAvailable": 1,
    });
    let object = json!({"spec": {"selector": {"matchLabels": {"a": "1"}}, "template": template()}, "status": status});
    let expected = json!(["a", 5, 4, 3, 2, 1, "disk=ssd", "60m", "x,y", "x:1,y:2", "a=1"]);
    check("apps", "daemonsets", object, expected);
    check("apps", "daemonsets", json!({}), json!(["a", 0, 0, 0, 0, 0, "<none>", "60m", "", "", "<none>"]));
}

#[test]
fn controller_revisions_name_their_controller() {
    let owner = |api_version: &str, controller: bool| json!({"apiVersion": api_version, "kind": "DaemonSet", "name": "d", "controller": controller});
    let object = |owners: Value| json!({"metadata": {"ownerReferences": owners}, "revision": 7});
    let owners = json!([owner("v1", false), owner("apps/v1", true)]);
    check("apps", "controllerrevisions", object(owners), json!(["a", "daemonset.apps/d", 7, "60m"]));
    check("apps", "controllerrevisions", object(json!([owner("v1", true)])), json!(["a", "daemonset/d", 7, "60m"]));
    check("apps", "controllerrevisions", object(json!(null)), json!(["a", "<none>", 7, "60m"]));
}

#[test]
fn jobs_show_status_completions_and_duration() {
    let cells = |spec: Value, status: Value, metadata: Value| {
        let row = row("batch", "jobs", json!({"spec": spec, "status": status, "metadata": metadata}));
        row.cells[1..4].iter().map(|cell| cell.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let is =
        |kind: &str| json!({"conditions": [{"type": "Other", "status": "True"}, {"type": kind, "status": "True"}]});
    for kind in ["Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"] {
        assert_eq!(cells(json!({}), is(kind), json!({}))[0], kind);
    }
    assert_eq!(cells(json!({}), is("Suspended"), json!({"deletionTimestamp": HOUR_AGO}))[0], "Terminating");
    assert_eq!(cells(json!({}), is("Complete"), json!({"deletionTimestamp": HOUR_AGO}))[0], "Complete");
    let finished =
        json!({"succeeded": 2, "startTime": "2024-05-31T23:00:00Z", "completionTime": "2024-05-31T23:02:05Z"});
    assert_eq!(cells(json!({"completions": 3}), finished.clone(), json!({})), ["Running", "2/3", "2m5s"]);
    assert_eq!(cells(json!({"parallelism": 4}), finished, json!({}))[1], "2/1 of 4");
    let started = json!({"startTime": "2024-05-31T21:30:00Z"});
    assert_eq!(cells(json!({"parallelism": 1}), started, json!({})), ["Running", "0/1", "150m"]);
    assert_eq!(cells(json!({}), json!({}), json!({})), ["Running", "0/1", ""]);
}

#[test]
fn cron_jobs_show_schedule_and_last_job() {
    let spec = json!({
        "schedule": "*/5 * * * *", "timeZone": "Europe/Berlin", "suspend": true,
        "jobTemplate": {"spec": {"template": template(), "selector": {"matchLabels": {"a": "1"}}}},
    });
    let status = json!({"active": [{}, {}], "lastScheduleTime": "2024-05-31T23:59:00Z"});
    let expected = json!(["a", "*/5 * * * *", "Europe/Berlin", "True", 2, "60s", "60m", "x,y", "x:1,y:2", "a=1"]);
    check("batch", "cronjobs", json!({"spec": spec, "status": status}), expected);
    let expected = json!(["a", "", "<none>", "False", 0, "<none>", "60m", "", "", "<none>"]);
    check("batch", "cronjobs", json!({}), expected);
}

#[test]
fn services_show_addresses_and_ports() {
    let cells = |spec: Value, points: Value| {
        let row = row("", "services", json!({"spec": spec, "status": {"loadBalancer": {"ingress": points}}}));
        Value::from(row.cells[1..5].to_vec())
    };
    let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}]);
    let spec = json!({"type": "ClusterIP", "clusterIPs": ["10.0.0.1", "fd::1"], "ports": ports});
    assert_eq!(cells(spec, json!(null)), json!(["ClusterIP", "10.0.0.1", "<none>", "80/TCP,53:30053/UDP"]));
    let external = json!({"type": "NodePort", "externalIPs": ["1.1.1.1", "2.2.2.2"]});
    assert_eq!(cells(external, json!(null)), json!(["NodePort", "<none>", "1.1.1.1,2.2.2.2", "<none>"]));
    let balanced =
        |external: Value| json!({"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "externalIPs": external});
    let points = json!([{"hostname": "z.example"}, {"ip": "9.9.9.9", "hostname": "y"}, {"ip": "9.9.9.9"}, {}]);
    assert_eq!(cells(balanced(json!([])), json!([]))[2], "<pending>");
    assert_eq!(cells(balanced(json!([])), points.clone())[2], "9.9.9.9,z.example");
    assert_eq!(cells(balanced(json!(["1.1.1.1"])), points)[2], "9.9.9.9,z.example,1.1.1.1");
    let name = json!({"type": "ExternalName", "externalName": "x.example"});
    assert_eq!(cells(name, json!(null)), json!(["ExternalName", "<none>", "x.example", "<none>"]));
    assert_eq!(cells(json!({"type": "Odd"}), json!(null))[2], "<unknown>");
    let selector = json!({"spec": {"selector": {"b": "", "a": "1"}}});
    check("", "services", selector, json!(["a", "ClusterIP", "<none>", "<none>", "<none>", "60m", "a=1,b="]));
}

#[test]
fn endpoints_show_the_first_three_addresses() {
    let cell = |subsets: Value| row("", "endpoints", json!({"subsets": subsets})).cells[1].clone();
    let ips = |count: usize| (1..=count).map(|n| json!({"ip": format!("10.0.0.{n}")})).collect::<Vec<_>>();
    assert_eq!(cell(json!(null)), "<none>");
    assert_eq!(cell(json!([{"notReadyAddresses": ips(1), "ports": [{"port": 80}]}])), "");
    assert_eq!(cell(json!([{"addresses": ips(2)}])), "10.0.0.1,10.0.0.2");
    assert_eq!(cell(json!([{"addresses": [{"ip": "fd::1"}], "ports": [{"port": 80}]}])), "[fd::1]:80");
    let two_ports = json!([{"addresses": ips(2), "ports": [{"port": 80}, {"port": 443}]}, {"addresses": ips(3)}]);
    assert_eq!(cell(two_ports), "10.0.0.1:80,10.0.0.2:80,10.0.0.1:443 + 4 more...");
}

#[test]
fn endpoint_slices_show_ports_and_addresses() {
    let ports = json!([{"name": "http", "port": 80}, {"name": "any"}, {}, {"port": 443}, {"port": 8443}]);
    let endpoints =
        json!([{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3"]}, {"addresses": ["10.0.0.4"]}]);
    let object = json!({"addressType": "IPv4", "ports": ports, "endpoints": endpoints});
    let addresses = "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...";
    check("discovery.k8s.io", "endpointslices", object, json!(["a", "IPv4", "80,any, + 2 more...", addresses, "60m"]));
    let empty = json!({"addressType": "IPv6", "ports": null, "endpoints": null});
    check("discovery.k8s.io", "endpointslices", empty, json!(["a", "IPv6", "<unset>", "<unset>", "60m"]));
}

#[test]
fn ingresses_show_class_hosts_and_addresses() {
    let rules = |hosts: &[&str]| hosts.iter().map(|host| json!({"host": host})).collect::<Vec<_>>();
    let hosts = |names: &[&str]| {
        row("networking.k8s.io", "ingresses", json!({"spec": {"rules": rules(names)}})).cells[2].clone()
    };
    assert_eq!(hosts(&[]), "*");
    assert_eq!(hosts(&["", ""]), "*");
    assert_eq!(hosts(&["a", "", "b", "c"]), "a,b,c");
    assert_eq!(hosts(&["a", "b", "c", ""]), "a,b,c + 1 more...");
    assert_eq!(hosts(&["a", "", "b", "c", "d"]), "a,b,c + 2 more...");
    let object = json!({
        "spec": {"ingressClassName": "nginx", "rules": rules(&["x"]), "tls": [{}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}, {"hostname": "1.example"}]}},
    });
    let expected = json!(["a", "nginx", "x", "1.example,2.2.2.2", "80, 443", "60m"]);
    check("networking.k8s.io", "ingresses", object, expected);
    check("networking.k8s.io", "ingresses", json!({}), json!(["a", "<none>", "*", "", "80", "60m"]));
}

#[test]
fn other_networking_kinds_show_their_references() {
    let class = json!({
        "metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": "x.io/c", "parameters": {"apiGroup": "x.io", "kind": "P", "name": "p"}},
    });
    check("networking.k8s.io", "ingressclasses", class, json!(["a (default)", "x.io/c", "P.x.io/p", "60m"]));
    let class = json!({"spec": {"parameters": {"kind": "P", "name": "p"}}});
    check("networking.k8s.io", "ingressclasses", class, json!(["a", "", "P/p", "60m"]));
    let policy = json!({"spec": {"podSelector": {"matchLabels": {"a": "1"}}}});
    check("networking.k8s.io", "networkpolicies", policy, json!(["a", "a=1", "60m"]));
    check("networking.k8s.io", "networkpolicies", json!({"spec": {"podSelector": {}}}), json!(["a", "<none>", "60m"]));
    let range = json!({"spec": {"cidrs": ["10.0.0.0/8", "fd::/64"]}});
    check("networking.k8s.io", "servicecidrs", range, json!(["a", "10.0.0.0/8,fd::/64", "60m"]));
    let address = json!({"spec": {"parentRef": {"group": "", "resource": "services", "namespace": "n", "name": "s"}}});
    check("networking.k8s.io", "ipaddresses", address, json!(["a", "services/n/s", "60m"]));
}

#[test]
fn nodes_show_status_roles_and_addresses() {
    let object = json!({
        "metadata": {"labels": {
            "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "x", "kubernetes.io/role": "edge",
            "node-role.kubernetes.io/control-plane": "",
        }},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "10.0.0.2"}, {"type": "ExternalIP", "address": "1.1.1.1"}],
            "nodeInfo": {"kubeletVersion": "v1.37.2", "osImage": "Debian", "kernelVersion": "6.1", "architecture": "arm64",
                "containerRuntimeVersion": "containerd://2"},
        },
    });
    let expected = json!([
        "a",
        "Ready,SchedulingDisabled",
        "control-plane,edge,worker",
        "60m",
        "v1.37.2",
        "10.0.0.1",
        "1.1.1.1",
        "Debian",
        "6.1 (arm64)",
        "containerd://2",
    ]);
    check("", "nodes", object, expected);
    let unknown = "<unknown>";
    let expected = json!(["a", "Unknown", "<none>", "60m", "", "<none>", "<none>", unknown, unknown, unknown]);
    check("", "nodes", json!({}), expected);
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    assert_eq!(row("", "nodes", not_ready).cells[1], "NotReady");
}

#[test]
fn configuration_shows_numbers_of_keys() {
    check("", "configmaps", json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": ""}}), json!(["a", 3, "60m"]));
    check("", "configmaps", json!({"data": null}), json!(["a", 0, "60m"]));
    check(
        "",
        "secrets",
        json!({"type": "kubernetes.io/tls", "data": {"a": ""}}),
        json!(["a", "kubernetes.io/tls", 1, "60m"]),
    );
    check("", "namespaces", json!({"status": {"phase": "Terminating"}}), json!(["a", "Terminating", "60m"]));
    check("", "serviceaccounts", json!({}), json!(["a", "60m"]));
    let status = json!({
        "hard": {"pods": "10", "limits.cpu": "2", "cpu": "1", "limits.memory": "1Gi", "limits": 5},
        "used": {"pods": "3", "limits.cpu": "500m"},
    });
    let expected = json!(["a", "cpu: 0/1, limits: 0/5, pods: 3/10", "limits.cpu: 500m/2, limits.memory: 0/1Gi", "60m"]);
    check("", "resourcequotas", json!({"status": status}), expected);
    let healthy = json!({"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]});
    check("", "componentstatuses", healthy, json!(["a", "Healthy", "ok", ""]));
}

#[test]
fn kinds_without_a_printer_show_their_creation() {
    for (group, resource) in
        [("", "limitranges"), ("rbac.authorization.k8s.io", "roles"), ("rbac.authorization.k8s.io", "clusterroles")]
    {
        check(group, resource, json!({}), json!(["a", HOUR_AGO]));
        check(group, resource, json!({"metadata": {"creationTimestamp": null}}), json!(["a", "0001-01-01T00:00:00Z"]));
        let printer = printer(group, resource);
        assert_eq!((printer.columns()[1].name.as_str(), printer.columns()[1].kind.as_str()), ("Created At", "date"));
    }
}

#[test]
fn definitions_show_scope_versions_and_names() {
    let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
    let object = json!({
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"kind": "Planet", "shortNames": ["pl", "pt"]},
            "versions": [version("v2", true, true), version("v1", true, false), version("v0", false, false)],
        },
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    });
    let (group, resource) = ("apiextensions.k8s.io", "customresourcedefinitions");
    let expected = json!(["a", "Cluster", "v1,v2(storage)", HOUR_AGO, "example.com", "Planet", "pl,pt", true]);
    check(group, resource, object, expected);
    check(group, resource, json!({}), json!(["a", "", "", HOUR_AGO, "", "", "", false]));
}

#[test]
fn unknown_kinds_show_their_age() {
    check("metrics.example.com", "things", json!({}), json!(["a", "60m"]));
    check("", "things", json!({"metadata": {"creationTimestamp": null}}), json!(["a", "<unknown>"]));
    let printer = printer("metrics.example.com", "pods");
    assert_eq!(printer.columns().iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["Name", "Age"]);
}

#[test]
fn core_events_show_occurrences_and_object() {
    let object = json!({
        "type": "Warning", "reason": "BackOff", "message": " back-off \n", "count": 4,
        "firstTimestamp": "2024-05-31T23:00:00Z", "lastTimestamp": "2024-05-31T23:59:00Z", "eventTime": null,
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{x}"},
        "source": {"component": "kubelet", "host": "n1"}, "reportingComponent": "other", "reportingInstance": "i",
    });
    let expected =
        json!(["60s", "Warning", "BackOff", "pod/p", "spec.containers{x}", "kubelet, n1", "back-off", "60m", 4, "a",]);
    check("", "events", object, expected);
    let bare = json!({"involvedObject": {"kind": "Node"}, "reportingComponent": "c"});
    check("", "events", bare, json!(["<unknown>", "", "", "node", "", "c", "", "<unknown>", 1, "a"]));
}

#[test]
fn new_events_have_the_same_cells() {
    let object = json!({
        "type": "Normal", "reason": "Started", "note": "started", "eventTime": "2024-05-31T23:00:00.123456Z",
        "regarding": {"kind": "Pod", "name": "p"}, "reportingController": "kubelet", "reportingInstance": "n1",
        "deprecatedSource": {}, "deprecatedCount": 0, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
    });
    let expected = json!(["60m", "Normal", "Started", "pod/p", "", "kubelet, n1", "started", "60m", 1, "a"]);
    check("events.k8s.io", "events", object.clone(), expected);
    let mut series = object;
    series["series"] = json!({"count": 9, "lastObservedTime": "2024-05-31T23:58:00.000000Z"});
    let cells = row("events.k8s.io", "events", series).cells;
    assert_eq!((&cells[0], &cells[7], &cells[8]), (&json!("2m"), &json!("60m"), &json!(9)));
}

#[test]
fn volumes_show_claims_and_capacity() {
    let object = json!({
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
        "spec": {
            "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": "n", "name": "c"},
            "storageClassName": "fast", "volumeAttributesClassName": "gold", "volumeMode": "Block",
        },
        "status": {"phase": "Bound", "reason": "r"},
    });
    let expected = json!(["a", "10Gi", "RWO,RWX", "Delete", "Bound", "n/c", "old", "gold", "r", "60m", "Block"]);
    check("", "persistentvolumes", object, expected);
    let expected = json!(["a", "0", "", "Retain", "Terminating", "", "", "<unset>", "", "60m", "Filesystem"]);
    check("", "persistentvolumes", json!({"metadata": {"deletionTimestamp": HOUR_AGO}}), expected);
}

#[test]
fn claims_show_their_volume_once_bound() {
    let status = json!({"phase": "Bound", "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOncePod"]});
    let bound =
        json!({"spec": {"volumeName": "v", "storageClassName": "fast", "volumeMode": "Filesystem"}, "status": status});
    let expected = json!(["a", "Bound", "v", "5Gi", "RWOP", "fast", "<unset>", "60m", "Filesystem"]);
    check("", "persistentvolumeclaims", bound, expected);
    let expected = json!(["a", "Pending", "", "", "", "", "<unset>", "60m", "Filesystem"]);
    check("", "persistentvolumeclaims", json!({"status": {"capacity": {"storage": "5Gi"}}}), expected);
}

#[test]
fn default_storage_class_is_marked_in_lists() {
    let class = |name: &str, created: &str, is_default: &str| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": is_default});
        let metadata = json!({"name": name, "creationTimestamp": created, "annotations": annotations});
        serde_json::to_vec(&json!({"metadata": metadata, "provisioner": "p"})).unwrap()
    };
    let list = [
        class("old", "2024-01-01T00:00:00Z", "true"),
        class("b", "2024-05-01T00:00:00Z", "true"),
        class("a", "2024-05-01T00:00:00Z", "true"),
        class("new", "2024-05-31T00:00:00Z", "false"),
    ];
    let mut printer = printer("storage.k8s.io", "storageclasses");
    let names = |printer: &Printer| list.iter().map(|json| printer.row(json, NOW).cells[0].clone()).collect::<Vec<_>>();
    assert_eq!(names(&printer), ["old", "b", "a", "new"]);
    printer.read_list(list.iter().map(Vec::as_slice));
    assert_eq!(names(&printer), ["old", "b", "a (default)", "new"]);
    let expected = json!(["new", "p", "Delete", "Immediate", false, "24h"]);
    assert_eq!(Value::from(printer.row(&list[3], NOW).cells), expected);
}

#[test]
fn storage_kinds_show_their_drivers() {
    let driver = json!({"spec": {"attachRequired": false, "podInfoOnMount": true, "storageCapacity": true,
        "requiresRepublish": true, "tokenRequests": [{"audience": "x"}, {"audience": ""}],
        "volumeLifecycleModes": ["Persistent", "Ephemeral"]}});
    let expected = json!(["a", false, true, true, "x,", true, "Persistent,Ephemeral", "60m"]);
    check("storage.k8s.io", "csidrivers", driver, expected);
    let expected = json!(["a", true, false, false, "<unset>", false, "Persistent", "60m"]);
    check("storage.k8s.io", "csidrivers", json!({}), expected);
    check("storage.k8s.io", "csinodes", json!({"spec": {"drivers": [{}, {}]}}), json!(["a", 2, "60m"]));
    let attachment = json!({"spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
        "status": {"attached": true}});
    check("storage.k8s.io", "volumeattachments", attachment, json!(["a", "d", "v", "n", true, "60m"]));
    check("storage.k8s.io", "volumeattributesclasses", json!({"driverName": "d"}), json!(["a", "d", "60m"]));
}

#[test]
fn autoscalers_show_two_metrics() {
    let resource =
        |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
    let current =
        |name: &str, current: Value| json!({"type": "Resource", "resource": {"name": name, "current": current}});
    let targets = |metrics: Value, currents: Value| {
        let object = json!({"spec": {"metrics": metrics}, "status": {"currentMetrics": currents}});
        row("autoscaling", "horizontalpodautoscalers", object).cells[2].clone()
    };
    let cpu = resource("cpu", json!({"type": "Utilization", "averageUtilization": 80}));
    let memory = resource("memory", json!({"type": "AverageValue", "averageValue": "1Gi"}));
    let currents = json!([
        current("cpu", json!({"averageUtilization": 30, "averageValue": "300m"})),
        current("memory", json!({"averageValue": "512Mi"}))
    ]);
    assert_eq!(targets(json!([]), json!(null)), "<none>");
    assert_eq!(targets(json!([cpu, memory]), json!(null)), "cpu: <unknown>/80%, memory: <unknown>/1Gi");
    assert_eq!(targets(json!([cpu, memory, cpu]), currents), "cpu: 30%/80%, memory: 512Mi/1Gi + 1 more...");
    let metric = |kind: &str, key: &str, values: Value| json!({"type": kind, key: values});
    let pods = metric("Pods", "pods", json!({"target": {"averageValue": "10"}}));
    let object = metric("Object", "object", json!({"target": {"value": "100"}}));
    let external = metric("External", "external", json!({"target": {"averageValue": "5"}}));
    assert_eq!(targets(json!([pods, object]), json!([])), "<unknown>/10, <unknown>/100");
    let currents = json!([
        metric("Pods", "pods", json!({"current": {"averageValue": "7"}})),
        metric("External", "external", json!({"current": {"averageValue": "4"}}))
    ]);
    assert_eq!(targets(json!([pods, external]), currents), "7/10, 4/5 (avg)");
    assert_eq!(targets(json!([{"type": "Odd"}]), json!([])), "<unknown type>");
    let spec = json!({"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 2, "maxReplicas": 9, "metrics": [cpu]});
    let expected = json!(["a", "Deployment/d", "cpu: <unknown>/80%", "2", 9, 3, "60m"]);
    check("autoscaling", "horizontalpodautoscalers", json!({"spec": spec, "status": {"currentReplicas": 3}}), expected);
}

#[test]
fn autoscalers_of_the_first_version_show_cpu() {
    let targets = |spec: Value, status: Value| {
        let object = json!({"apiVersion": "autoscaling/v1", "spec": spec, "status": status});
        row("autoscaling", "horizontalpodautoscalers", object).cells[2].clone()
    };
    let spec = json!({"targetCPUUtilizationPercentage": 60});
    assert_eq!(targets(spec, json!({"currentCPUUtilizationPercentage": 20})), "cpu: 20%/60%");
    assert_eq!(targets(json!({}), json!({})), "cpu: <unknown>/80%");
}

#[test]
fn bindings_show_role_and_subjects() {
    let subjects = json!([{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}, {"kind": "User", "name": "v"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "n"}, {"kind": "Robot", "name": "r"}]);
    let object = json!({"roleRef": {"kind": "ClusterRole", "name": "admin"}, "subjects": subjects});
    for resource in ["rolebindings", "clusterrolebindings"] {
        let expected = json!(["a", "ClusterRole/admin", "60m", "u, v", "g", "n/s"]);
        check("rbac.authorization.k8s.io", resource, object.clone(), expected);
    }
}

#[test]
fn admission_shows_numbers_of_rules() {
    let group = "admissionregistration.k8s.io";
    for resource in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        check(group, resource, json!({"webhooks": [{}, {}]}), json!(["a", 2, "60m"]));
    }
    let param = json!({"apiVersion": "x.io/v1", "kind": "P"});
    let policy = json!({"spec": {"validations": [{}], "mutations": [{}, {}], "paramKind": param}});
    check(group, "validatingadmissionpolicies", policy.clone(), json!(["a", 1, "x.io/v1/P", "60m"]));
    check(group, "mutatingadmissionpolicies", policy, json!(["a", 2, "x.io/v1/P", "60m"]));
    let binding = |param: Value| json!({"spec": {"policyName": "p", "paramRef": param}});
    for (param, expected) in [
        (json!(null), "<unset>"),
        (json!({}), "<unset>"),
        (json!({"name": "n"}), "*/n"),
        (json!({"name": "n", "namespace": "s"}), "s/n"),
        (
            json!({"selector": {"matchLabels": {"x": "y"}}}),
            "&LabelSelector{MatchLabels:map[string]string{x: y,},MatchExpressions:[]LabelSelectorRequirement{},}",
        ),
    ] {
        check(group, "validatingadmissionpolicybindings", binding(param), json!(["a", "p", expected, "60m"]));
    }
}

#[test]
fn certificate_requests_show_their_condition() {
    let object = |status: Value| json!({"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600}, "status": status});
    let condition =
        |status: Value| row("certificates.k8s.io", "certificatesigningrequests", object(status)).cells[5].clone();
    let is = |kinds: &[&str]| kinds.iter().map(|kind| json!({"type": kind})).collect::<Vec<_>>();
    assert_eq!(condition(json!({})), "Pending");
    assert_eq!(condition(json!({"conditions": is(&["Approved"]), "certificate": "AA=="})), "Approved,Issued");
    assert_eq!(condition(json!({"conditions": is(&["Approved", "Failed", "Denied"])})), "Denied,Failed");
    let expected = json!(["a", "60m", "s", "u", "60m", "Pending"]);
    check("certificates.k8s.io", "certificatesigningrequests", object(json!({})), expected);
    let request = json!({"spec": {"podName": "p", "serviceAccountName": "sa", "nodeName": "n", "signerName": "s"},
        "status": {"conditions": is(&["Other", "Issued"])}});
    let expected = json!(["a", "p", "sa", "n", "s", "Issued", "<none>"]);
    check("certificates.k8s.io", "podcertificaterequests", request, expected);
    check("certificates.k8s.io", "clustertrustbundles", json!({}), json!(["a", "<none>"]));
}

#[test]
fn api_services_show_availability() {
    let object = |condition: Value| {
        let service = json!({"namespace": "n", "name": "s"});
        json!({"spec": {"service": service}, "status": {"conditions": [condition]}})
    };
    let failed = json!({"type": "Available", "status": "False", "reason": "MissingEndpoints"});
    let group = "apiregistration.k8s.io";
    check(group, "apiservices", object(failed), json!(["a", "n/s", "False (MissingEndpoints)", "60m"]));
    let available = json!({"type": "Available", "status": "True", "reason": "Passed"});
    check(group, "apiservices", object(available), json!(["a", "n/s", "True", "60m"]));
    check(group, "apiservices", json!({}), json!(["a", "Local", "Unknown", "60m"]));
}

#[test]
fn scheduling_and_coordination_show_their_settings() {
    check("coordination.k8s.io", "leases", json!({"spec": {"holderIdentity": "h"}}), json!(["a", "h", "60m"]));
    check("coordination.k8s.io", "leases", json!({"spec": {"holderIdentity": null}}), json!(["a", "", "60m"]));
    let candidate = json!({"spec": {"leaseName": "l", "binaryVersion": "1.2.3"}});
    check("coordination.k8s.io", "leasecandidates", candidate, json!(["a", "l", "1.2.3", "", "60m"]));
    let class = json!({"value": -5, "globalDefault": true, "preemptionPolicy": "Never"});
    check("scheduling.k8s.io", "priorityclasses", class, json!(["a", -5, true, "60m", "Never"]));
    check("node.k8s.io", "runtimeclasses", json!({"handler": "runsc"}), json!(["a", "runsc", "60m"]));
    let budget = json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}});
    check("policy", "poddisruptionbudgets", budget, json!(["a", "50%", "N/A", 1, "60m"]));
    let budget = json!({"spec": {"maxUnavailable": 1}});
    check("policy", "poddisruptionbudgets", budget, json!(["a", "N/A", "1", 0, "60m"]));
}

#[test]
fn flow_control_shows_limits() {
    let group = "flowcontrol.apiserver.k8s.io";
    let schema = json!({
        "spec": {"priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 7, "distinguisherMethod": {"type": "ByUser"}},
        "status": {"conditions": [{"type": "Dangling", "status": "False"}]},
    });
    check(group, "flowschemas", schema, json!(["a", "l", 7, "ByUser", "60m", "False"]));
    let level = json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 10, "limitResponse":
        {"queuing": {"queues": 3, "handSize": 2, "queueLengthLimit": 1}}}}});
    check(group, "prioritylevelconfigurations", level, json!(["a", "Limited", 10, 3, 2, 1, "60m"]));
    let none = "<none>";
    let expected = json!(["a", "Exempt", none, none, none, none, "60m"]);
    check(group, "prioritylevelconfigurations", json!({"spec": {"type": "Exempt"}}), expected);
}

#[test]
fn devices_and_storage_versions_show_their_state() {
    let claim = |status: Value, metadata: Value| {
        row("resource.k8s.io", "resourceclaims", json!({"status": status, "metadata": metadata})).cells[1].clone()
    };
    assert_eq!(claim(json!({}), json!({})), "pending");
    assert_eq!(claim(json!({"allocation": {}, "reservedFor": [{}]}), json!({})), "allocated,reserved");
    assert_eq!(claim(json!({"allocation": {}}), json!({"deletionTimestamp": HOUR_AGO})), "deleted,allocated");
    assert_eq!(claim(json!({}), json!({"deletionTimestamp": HOUR_AGO})), "deleted");
    let slice = json!({"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}});
    check("resource.k8s.io", "resourceslices", slice, json!(["a", "n", "d", "p", "60m"]));
    let rule = json!({"spec": {"taint": {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": HOUR_AGO}}});
    check("resource.k8s.io", "devicetaintrules", rule, json!(["a", "k", "v", "NoExecute", "60m", "60m"]));
    let servers: Vec<_> = (1..5).map(|n| json!({"apiServerID": format!("s{n}"), "encodingVersion": "v1"})).collect();
    let versions = json!({"status": {"storageVersions": servers}});
    let expected = json!(["a", "<unset>", "s1=v1,s2=v1,s3=v1 + 1 more...", "60m"]);
    check("internal.apiserver.k8s.io", "storageversions", versions, expected);
    let conditions = json!([{"type": "Succeeded", "status": "True"}, {"type": "Running", "status": "False"}]);
    let migration =
        json!({"spec": {"resource": {"group": "apps", "resource": "x"}}, "status": {"conditions": conditions}});
    check("storagemigration.k8s.io", "storageversionmigrations", migration, json!(["a", "x.apps", "Succeeded"]));
}

// === custom resources ===

fn custom(columns: Value, object: &Value) -> (Vec<Column>, Vec<Value>) {
    let versions = json!([{"name": "v1beta1"}, {"name": "v1", "additionalPrinterColumns": columns}]);
    let definition = serde_json::to_vec(&json!({"spec": {"versions": versions}})).unwrap();
    let resource = ApiResource { gvr: Gvr::new("x.io", "v1", "widgets"), kind: "Widget".into(), namespaced: true };
    let printer = Printer::new(&resource, Some(&definition));
    let row = printer.row(&serde_json::to_vec(object).unwrap(), NOW);
    (printer.columns().to_vec(), row.cells)
}

fn widget() -> Value {
    json!({
        "metadata": {"name": "w", "creationTimestamp": HOUR_AGO, "labels": {"x.io/y": "z"}},
        "spec": {"size": 3, "ratio": 0.5, "on": true, "text": "t", "list": ["a", "b"], "none": null, "map": {"b": 1, "a": "<"}},
        "status": {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]},
    })
}

#[test]
fn custom_columns_are_those_of_the_version() {
    let (columns, cells) = custom(
        json!([
            {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
            {"name": "Size", "type": "integer", "format": "int32", "priority": 1, "description": "Size", "jsonPath": ".spec.size"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]),
        &widget(),
    );
    assert_eq!(cells, ["w".into(), "True".into(), 3.into(), Value::from("60m")]);
    let description = "Custom resource definition column (in JSONPath format): .metadata.creationTimestamp";
    assert_eq!((columns[0].name.as_str(), columns[0].format.as_str()), ("Name", "name"));
    assert_eq!(
        (columns[2].format.as_str(), columns[2].description.as_str(), columns[2].priority),
        ("int32", "Size", 1)
    );
    assert_eq!((columns[3].kind.as_str(), columns[3].description.as_str()), ("date", description));
}

#[test]
fn custom_resources_without_columns_show_their_age() {
    let (columns, cells) = custom(json!([]), &widget());
    assert_eq!(cells, ["w", "60m"]);
    assert_eq!((columns[1].name.as_str(), columns[1].kind.as_str()), ("Age", "date"));
}

#[test]
fn custom_cells_have_the_type_of_their_column() {
    for (path, kind, expected) in [
        (".spec.size", "string", json!("3")),
        (".spec.size", "number", json!(3)),
        (".spec.ratio", "integer", json!(0)),
        (".spec.ratio", "number", json!(0.5)),
        (".spec.ratio", "string", json!("0.5")),
        (".spec.on", "boolean", json!(true)),
        (".spec.on", "string", json!("true")),
        (".spec.on", "integer", json!(null)),
        (".spec.text", "integer", json!(null)),
        (".spec.text", "date", json!("<invalid>")),
        (".spec.none", "string", json!("<no value>")),
        (".spec.none", "integer", json!(null)),
        (".spec.missing", "string", json!(null)),
        (".spec.map", "string", json!(r#"{"a":"\u003c","b":1}"#)),
        (".spec.list", "string", json!(r#"["a","b"]"#)),
        (".spec.list[*]", "string", json!("a")),
        (".spec.list[-1]", "string", json!("b")),
        (".spec.list[2]", "string", json!(null)),
        (".spec.text[0]", "string", json!(null)),
        (".metadata.labels['x\\.io/y']", "string", json!("z")),
        (".metadata.labels.x\\.io/y", "string", json!("z")),
        (".status.conditions[?(@.type=='Ready')].status", "string", json!("True")),
        (".status.conditions[?(@.status!=\"True\")].type", "string", json!("Synced")),
        (".status.conditions[?(@.type==1)].status", "string", json!(null)),
        (".status.conditions[?(@.reason)].status", "string", json!(null)),
        ("..type", "string", json!("Synced")),
    ] {
        let (_, cells) = custom(json!([{"name": "X", "type": kind, "jsonPath": path}]), &widget());
        assert_eq!(cells[1], expected, "{path} as {kind}");
    }
}

#[test]
fn columns_behind_an_invalid_path_are_left_out() {
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    let (columns, cells) = custom(json!([column("A", ".spec.text"), column("B", ".a["), column("C", ".b")]), &widget());
    assert_eq!((columns.len(), cells), (2, vec!["w".into(), Value::from("t")]));
}

// === any resource ===

#[test]
fn object_that_does_not_fit_its_kind_has_its_name() {
    let row = printer("", "pods").row(br#"{"metadata":{"name":"a"},"spec":{"containers":7}}"#, NOW);
    assert_eq!(row.cells[..3], ["a", "<unknown>", "<unknown>"]);
    assert_eq!(row.cells.len(), 9);
    assert_eq!(printer("", "events").row(b"[]", NOW).cells.last().unwrap(), "");
    assert_eq!(printer("apps", "deployments").row(b"{", NOW).cells[0], "");
}

/// Returns all pairs of group and resource that have a printer of their own, from the texts in `registry.rs`.
fn resources() -> Vec<(String, String)> {
    let names: Vec<_> = include_str!("registry.rs").split('"').skip(1).step_by(2).collect();
    let unknown = printer("", "");
    let pairs = names.iter().flat_map(|group| names.iter().map(move |name| (*group, *name)));
    pairs
        .chain(names.iter().map(|name| ("", *name)))
        .filter(|(group, name)| !name.is_empty() && printer(group, name).columns() != unknown.columns())
        .map(|(group, name)| (group.to_owned(), name.to_owned()))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[test]
fn rows_have_as_many_cells_as_columns() {
    let resources = resources();
    assert!(resources.len() > 60, "{}", resources.len());
    for (group, resource) in resources {
        let printer = printer(&group, &resource);
        let extra = usize::from(resource == "ipaddresses");
        assert_eq!(printer.row(b"{}", NOW).cells.len(), printer.columns().len() + extra, "{resource}");
    }
}

static RESOURCES: LazyLock<Vec<(String, String)>> = LazyLock::new(resources);

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn any_object_can_be_printed(spec in crate::object::testing::json(), status in crate::object::testing::json(), at in any::<prop::sample::Index>()) {
        let object = json!({"metadata": {"name": "a", "labels": status, "annotations": spec}, "spec": spec, "status": status,
            "subsets": spec, "data": status, "webhooks": spec, "template": status});
        let object = serde_json::to_vec(&object).unwrap();
        for (group, resource) in &*RESOURCES {
            let printer = printer(group, resource);
            prop_assert!(printer.row(&object, NOW).cells.len() >= printer.columns().len());
            let _ = printer.row(&object[..at.index(object.len())], NOW);
        }
    }
}
