//! Tests of pods. The expected cells are those of kube-apiserver 1.37.
#![allow(clippy::needless_pass_by_value, reason = "JSON is written where it is passed")]

use serde_json::{Value, json};

use crate::table::tests::row;

/// Returns the cells Ready, Status and Restarts.
fn summary(pod: Value) -> [String; 3] {
    let cells = row("", "pods", pod).cells;
    [1, 2, 3].map(|index: usize| cells[index].as_str().unwrap().to_owned())
}

fn status(pod: Value) -> String {
    let [_, status, _] = summary(pod);
    status
}

fn running(is_ready: bool) -> Value {
    json!({"name": "x", "ready": is_ready, "restartCount": 0, "state": {"running": {}}})
}

fn terminated(exit_code: i64, reason: &str, signal: i64) -> Value {
    json!({"name": "x", "state": {"terminated": {"exitCode": exit_code, "reason": reason, "signal": signal}}})
}

fn waiting(reason: &str) -> Value {
    json!({"name": "x", "state": {"waiting": {"reason": reason}}})
}

/// Returns a pod in the given phase, with a container for each status in `containers`.
fn pod(phase: &str, containers: Value) -> Value {
    let count = containers.as_array().unwrap().len();
    json!({"spec": {"containers": vec![json!({}); count]}, "status": {"phase": phase, "containerStatuses": containers}})
}

/// Returns a pod with one container and an init container for each item of `sidecars`; a true item makes it a sidecar.
fn starting(statuses: Value, sidecars: &[bool]) -> Value {
    let init_containers: Vec<_> = sidecars
        .iter()
        .enumerate()
        .map(|(index, &is_sidecar)| {
            json!({"name": format!("i{index}"), "restartPolicy": if is_sidecar { json!("Always") } else { json!(null) }})
        })
        .collect();
    json!({
        "spec": {"containers": [{}], "initContainers": init_containers},
        "status": {"phase": "Pending", "initContainerStatuses": statuses},
    })
}

#[test]
fn row_has_all_columns() {
    let mut pod = pod("Running", json!([running(true), running(false)]));
    pod["spec"]["nodeName"] = "n1".into();
    pod["status"]["podIPs"] = json!([{"ip": "10.0.0.1"}, {"ip": "fd::1"}]);
    pod["status"]["podIP"] = "10.0.0.1".into();
    pod["status"]["nominatedNodeName"] = "n2".into();
    let expected = json!(["a", "1/2", "Running", "0", "60m", "10.0.0.1", "n1", "n2", "<none>"]);
    assert_eq!(Value::from(row("", "pods", pod).cells), expected);
    let none = "<none>";
    let expected = json!(["a", "0/0", "Pending", "0", "60m", none, none, none, none]);
    assert_eq!(Value::from(row("", "pods", json!({"status": {"phase": "Pending"}})).cells), expected);
}

#[test]
fn single_address_takes_precedence() {
    let ip = |status: Value| row("", "pods", json!({"status": status})).cells[5].clone();
    assert_eq!(ip(json!({"podIP": "10.0.0.2"})), "10.0.0.2");
    assert_eq!(ip(json!({"podIPs": [{"ip": "10.0.0.1"}]})), "10.0.0.1");
    assert_eq!(ip(json!({"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.1"}]})), "10.0.0.2");
}

#[test]
fn reason_of_the_first_container_is_the_status() {
    assert_eq!(
        status(pod("Running", json!([waiting("CrashLoopBackOff"), waiting("ImagePullBackOff")]))),
        "CrashLoopBackOff"
    );
    assert_eq!(status(pod("Pending", json!([waiting("")]))), "Pending");
    assert_eq!(status(pod("Failed", json!([terminated(1, "Error", 0)]))), "Error");
    assert_eq!(status(pod("Failed", json!([terminated(137, "", 9)]))), "Signal:9");
    assert_eq!(status(pod("Failed", json!([terminated(3, "", 0)]))), "ExitCode:3");
}

#[test]
fn completed_containers_do_not_hide_others() {
    let completed = || terminated(0, "Completed", 0);
    assert_eq!(status(pod("Succeeded", json!([completed()]))), "Completed");
    assert_eq!(status(pod("Running", json!([completed(), running(true)]))), "NotReady");
    let mut ready = pod("Running", json!([completed(), running(true)]));
    ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    assert_eq!(status(ready), "Running");
    assert_eq!(status(pod("Failed", json!([completed(), terminated(1, "Error", 0)]))), "Error");
}

#[test]
fn init_containers_decide_until_they_have_finished() {
    assert_eq!(status(starting(json!([waiting("")]), &[false, false])), "Init:0/2");
    assert_eq!(
        status(starting(json!([terminated(0, "", 0), waiting("PodInitializing")]), &[false, false])),
        "Init:1/2"
    );
    assert_eq!(status(starting(json!([waiting("CrashLoopBackOff")]), &[false])), "Init:CrashLoopBackOff");
    assert_eq!(status(starting(json!([terminated(1, "Error", 0)]), &[false])), "Init:Error");
    assert_eq!(status(starting(json!([terminated(1, "", 9)]), &[false])), "Init:Signal:9");
    assert_eq!(status(starting(json!([terminated(2, "", 0)]), &[false])), "Init:ExitCode:2");
    let mut initialized = starting(json!([waiting("")]), &[false]);
    initialized["status"]["conditions"] = json!([{"type": "Initialized", "status": "True"}]);
    initialized["status"]["containerStatuses"] = json!([waiting("ContainerCreating")]);
    assert_eq!(status(initialized), "ContainerCreating");
}

#[test]
fn sidecars_count_as_containers() {
    let sidecar = |is_started: bool, is_ready: bool| json!({"name": "i0", "started": is_started, "ready": is_ready, "restartCount": 2, "state": {"running": {}}});
    let mut pod = starting(json!([sidecar(true, true)]), &[true]);
    pod["status"]["phase"] = "Running".into();
    pod["status"]["containerStatuses"] = json!([running(true)]);
    assert_eq!(summary(pod), ["2/2", "Running", "2"]);
    assert_eq!(summary(starting(json!([sidecar(false, false)]), &[true])), ["0/2", "Init:0/1", "2"]);
    let other = json!([{"name": "i0", "restartCount": 5, "state": {"terminated": {"exitCode": 0}}}]);
    assert_eq!(summary(starting(other, &[false])), ["0/1", "Pending", "0"]);
}

#[test]
fn restarts_show_the_time_of_the_last_one() {
    let restarted = |count: i64, at: Value| json!({"name": "x", "restartCount": count, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": at}}});
    let restarts = |containers: Value| {
        let [_, _, restarts] = summary(pod("Running", containers));
        restarts
    };
    let (earlier, later) = (json!("2024-05-31T22:00:00Z"), json!("2024-05-31T23:55:00Z"));
    assert_eq!(restarts(json!([restarted(1, later), restarted(2, earlier.clone())])), "3 (5m ago)");
    assert_eq!(restarts(json!([restarted(2, json!(null))])), "2");
    assert_eq!(restarts(json!([restarted(0, earlier)])), "0");
}

#[test]
fn reason_of_the_pod_replaces_its_phase() {
    assert_eq!(status(json!({"status": {"phase": "Failed", "reason": "Evicted"}})), "Evicted");
    let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    assert_eq!(status(json!({"status": {"phase": "Pending", "conditions": conditions}})), "SchedulingGated");
}

#[test]
fn deleted_pods_are_terminating_unless_they_have_ended() {
    let deleted = |status: Value| json!({"metadata": {"deletionTimestamp": "2024-05-31T23:59:00Z"}, "status": status});
    assert_eq!(status(deleted(json!({"phase": "Running"}))), "Terminating");
    assert_eq!(status(deleted(json!({"phase": "Succeeded"}))), "Succeeded");
    assert_eq!(status(deleted(json!({"phase": "Running", "reason": "NodeLost"}))), "Unknown");
}

#[test]
fn readiness_gates_count_true_conditions() {
    let conditions =
        json!([{"type": "g1", "status": "True"}, {"type": "g2", "status": "False"}, {"type": "g2", "status": "True"}]);
    let gates = json!([{"conditionType": "g1"}, {"conditionType": "g2"}, {"conditionType": "g3"}]);
    let pod = json!({"spec": {"readinessGates": gates}, "status": {"conditions": conditions}});
    assert_eq!(row("", "pods", pod).cells[8], "1/3");
}

#[test]
fn completed_pods_have_a_condition() {
    let conditions = |phase: &str| Value::from(row("", "pods", json!({"status": {"phase": phase}})).conditions);
    assert_eq!(conditions("Running"), json!([]));
    let completed = |reason: &str, message: &str| json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]);
    assert_eq!(conditions("Succeeded"), completed("Succeeded", "The pod has completed successfully."));
    assert_eq!(conditions("Failed"), completed("Failed", "The pod failed."));
}
