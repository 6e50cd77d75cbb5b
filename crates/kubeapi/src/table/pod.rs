//! Table columns of pods.

use std::cmp::max;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Row;
use super::age::Time;
use super::fields::{Condition, List, Meta, Text, is_true};
use super::kind::{AGE, Kind, NAME, Spec, cells, decode, text, wide};

pub(super) const PODS: Kind = Kind { columns: COLUMNS, print: pod };

const COLUMNS: &[Spec] = &[
    NAME,
    text("Ready", "Containers that are ready, of all containers"),
    text("Status", "Phase of the pod, or the reason why a container does not run"),
    text("Restarts", "Restarts of the containers, and the time since the last one"),
    AGE,
    wide("IP", "IP address of the pod"),
    wide("Node", "Node that the pod is scheduled to"),
    wide("Nominated Node", "Node on which the pod preempts others, before it is scheduled"),
    wide("Readiness Gates", "Readiness gates that are true, of all readiness gates"),
];

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pod<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: PodSpec<'j>,
    #[serde(borrow)]
    status: PodStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec<'j> {
    containers: List<serde::de::IgnoredAny>,
    #[serde(borrow)]
    init_containers: List<InitContainer<'j>>,
    #[serde(borrow)]
    node_name: Text<'j>,
    #[serde(borrow)]
    readiness_gates: List<ReadinessGate<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct InitContainer<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    #[serde(borrow)]
    restart_policy: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ReadinessGate<'j> {
    #[serde(borrow)]
    condition_type: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus<'j> {
    #[serde(borrow)]
    phase: Text<'j>,
    #[serde(borrow)]
    reason: Text<'j>,
    #[serde(borrow)]
    conditions: List<Condition<'j>>,
    #[serde(borrow)]
    init_container_statuses: List<ContainerStatus<'j>>,
    #[serde(borrow)]
    container_statuses: List<ContainerStatus<'j>>,
    #[serde(borrow, rename = "podIP")]
    pod_ip: Text<'j>,
    #[serde(borrow, rename = "podIPs")]
    pod_ips: List<PodIp<'j>>,
    #[serde(borrow)]
    nominated_node_name: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodIp<'j> {
    #[serde(borrow)]
    ip: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus<'j> {
    #[serde(borrow)]
    name: Text<'j>,
    ready: bool,
    started: Option<bool>,
    restart_count: i64,
    #[serde(borrow)]
    state: State<'j>,
    #[serde(borrow)]
    last_state: State<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct State<'j> {
    #[serde(borrow)]
    waiting: Option<Waiting<'j>>,
    running: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    terminated: Option<Terminated<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Waiting<'j> {
    #[serde(borrow)]
    reason: Text<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Terminated<'j> {
    exit_code: i64,
    signal: i64,
    #[serde(borrow)]
    reason: Text<'j>,
    finished_at: Time,
}

impl Terminated<'_> {
    /// Returns the reason of the termination, or else its signal or exit code.
    fn reason(&self) -> String {
        match (self.reason.is_empty(), self.signal) {
            (false, _) => self.reason.to_string(),
            (true, 0) => format!("ExitCode:{}", self.exit_code),
            (true, signal) => format!("Signal:{signal}"),
        }
    }
}

impl ContainerStatus<'_> {
    /// Returns when the container's previous run ended; unset if there was none.
    fn last_end(&self) -> Time {
        self.last_state.terminated.as_ref().map_or(Time::default(), |terminated| terminated.finished_at)
    }
}

/// Number of restarts, and the time of the last one.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Time,
}

impl Restarts {
    fn add(&mut self, status: &ContainerStatus<'_>) {
        self.count = self.count.saturating_add(status.restart_count);
        self.last = max(self.last, status.last_end());
    }

    fn text(self, now: i64) -> String {
        match self.last {
            Time(Some(_)) if self.count != 0 => format!("{} ({} ago)", self.count, self.last.age(now)),
            _ => self.count.to_string(),
        }
    }
}

/// Values for a pod's columns, collected from its containers.
struct Summary {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

fn pod(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let pod: Pod<'_> = decode(json)?;
    let Pod { metadata, spec, status } = &pod;
    let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar()).count();
    let summary = pod.summary();
    let ip = match (status.pod_ips.first(), status.pod_ip.is_empty()) {
        (Some(first), true) => &first.ip,
        _ => &status.pod_ip,
    };
    let mut row = cells![
        &metadata.name,
        format!("{}/{}", summary.ready, spec.containers.len() + sidecars),
        pod.status(summary.reason),
        summary.restarts.text(now),
        metadata.creation_timestamp.age(now),
        ip.or("<none>"),
        spec.node_name.or("<none>"),
        status.nominated_node_name.or("<none>"),
        pod.readiness_gates(),
    ]?;
    row.conditions = completion(&status.phase);
    Ok(row)
}

/// Returns the `conditions` of a pod's row: one condition `Completed` if the pod has succeeded or failed, otherwise
/// none.
fn completion(phase: &str) -> Vec<Value> {
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": phase, "message": message})]
}

impl InitContainer<'_> {
    /// Returns whether the init container is a sidecar, which keeps running beside the pod's containers.
    fn is_sidecar(&self) -> bool {
        *self.restart_policy == *"Always"
    }
}

impl Pod<'_> {
    /// Returns whether the init container with this name is a sidecar. If several have the name, the last one decides.
    fn is_sidecar(&self, name: &str) -> bool {
        let mut named = self.spec.init_containers.iter().rev().filter(|container| *container.name == *name);
        named.next().is_some_and(InitContainer::is_sidecar)
    }

    fn summary(&self) -> Summary {
        let status = &self.status;
        let is_gated =
            |condition: &Condition<'_>| *condition.kind == *"PodScheduled" && *condition.reason == *"SchedulingGated";
        let reason =
            if status.conditions.iter().any(is_gated) { "SchedulingGated" } else { status.reason.or(&status.phase) };
        let mut summary = Summary { reason: reason.to_owned(), ready: 0, restarts: Restarts::default() };
        let (is_initializing, sidecar_restarts) = self.init_containers(&mut summary);
        if !is_initializing || is_true(&status.conditions, "Initialized") {
            summary.restarts = sidecar_restarts;
            self.containers(&mut summary);
        }
        summary
    }

    /// Adds the init containers to the summary, up to and including the first one for which the pod still waits. The
    /// pod waits for each init container to succeed, but for a sidecar only to start.
    ///
    /// Returns whether the pod waits for an init container, and the restarts of the sidecars that were added.
    fn init_containers(&self, summary: &mut Summary) -> (bool, Restarts) {
        let mut sidecar_restarts = Restarts::default();
        for (index, container) in self.status.init_container_statuses.iter().enumerate() {
            summary.restarts.add(container);
            let is_sidecar = self.is_sidecar(&container.name);
            if is_sidecar {
                sidecar_restarts.add(container);
            }
            let state = &container.state;
            let waiting = state.waiting.as_ref().map_or("", |waiting| &waiting.reason);
            summary.reason = match &state.terminated {
                Some(terminated) if terminated.exit_code == 0 => continue,
                _ if is_sidecar && container.started == Some(true) => {
                    summary.ready += usize::from(container.ready);
                    continue;
                }
                Some(terminated) => format!("Init:{}", terminated.reason()),
                None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", self.spec.init_containers.len()),
            };
            return (true, sidecar_restarts);
        }
        (false, sidecar_restarts)
    }

    /// Adds the containers to the summary. They are added in reverse order and each may overwrite the reason, so that
    /// the first container's reason counts.
    fn containers(&self, summary: &mut Summary) {
        let mut has_running = false;
        let mut error = None;
        for container in self.status.container_statuses.iter().rev() {
            summary.restarts.add(container);
            let state = &container.state;
            match (&state.waiting, &state.terminated) {
                (Some(waiting), _) if !waiting.reason.is_empty() => summary.reason = waiting.reason.to_string(),
                (_, Some(terminated)) => {
                    summary.reason = terminated.reason();
                    if terminated.exit_code != 0 {
                        error = Some(summary.reason.clone());
                    }
                }
                _ if container.ready && state.running.is_some() => {
                    has_running = true;
                    summary.ready += 1;
                }
                _ => {}
            }
        }
        if summary.reason == "Completed" {
            let is_ready = |condition: &Condition<'_>| *condition.kind == *"Ready" && condition.is_true();
            if has_running && self.status.conditions.iter().any(is_ready) {
                "Running".clone_into(&mut summary.reason);
            } else if let Some(error) = error {
                summary.reason = error;
            } else if has_running {
                "NotReady".clone_into(&mut summary.reason);
            }
        }
    }

    /// Returns the `STATUS` column, usually `reason`. A pod that is being deleted has `Unknown` if its node is lost, or
    /// `Terminating` if the pod has not completed.
    fn status(&self, reason: String) -> String {
        let is_terminal = matches!(&*self.status.phase, "Succeeded" | "Failed");
        match self.metadata.deletion_timestamp {
            Some(_) if *self.status.reason == *"NodeLost" => "Unknown".to_owned(),
            Some(_) if !is_terminal => "Terminating".to_owned(),
            _ => reason,
        }
    }

    fn readiness_gates(&self) -> String {
        let gates = &self.spec.readiness_gates;
        if gates.is_empty() {
            return "<none>".to_owned();
        }
        let is_open = |gate: &&ReadinessGate<'_>| is_true(&self.status.conditions, &gate.condition_type);
        format!("{}/{}", gates.iter().filter(is_open).count(), gates.len())
    }
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
