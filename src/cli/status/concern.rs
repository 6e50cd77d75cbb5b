//! Severity of the problems in a status document.

use serde_json::Value;

use super::values::{list, text};
use super::why;

/// Severity; the lowest value is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Concern(pub(super) u8);

/// Severity of a row that has no problem.
const WELL: Concern = Concern(9);

/// Least severe problem that needs action by the operator. Lower numbers are more severe.
const BAD: Concern = Concern(3);

impl Concern {
    pub(super) fn is_bad(self) -> bool {
        self <= BAD
    }
}

pub(super) fn cluster_concern(cluster: &Value) -> Concern {
    match text(cluster, "state") {
        "degraded" => Concern(0),
        "unreachable" => Concern(1),
        "connecting" => Concern(4),
        "connected" if why::is_forbidden(cluster) => Concern(1),
        "connected" => {
            let worst = list(cluster, "informers").iter().map(informer_concern).min();
            let own = if why::has_error(cluster) { Concern(5) } else { expiry_concern(cluster) };
            // A problem of one resource is less severe than one of the whole cluster.
            worst.filter(|worst| *worst < WELL).map_or(own, |worst| own.min(Concern(worst.0.clamp(5, 8))))
        }
        _ => Concern(8),
    }
}

/// Returns the severity of expiring credentials of a cluster, a source, a sink or the hub.
pub(super) fn expiry_concern(owner: &Value) -> Concern {
    let concern = |one: &Value| match text(one, "state") {
        "expired" => Concern(1),
        "imminent" => Concern(3),
        "soon" => Concern(6),
        _ => WELL,
    };
    list(owner, "credentials").iter().map(concern).min().unwrap_or(WELL)
}

pub(super) fn informer_concern(informer: &Value) -> Concern {
    match text(informer, "state") {
        "degraded" => Concern(0),
        "forbidden" => Concern(1),
        "absent" => Concern(2),
        "stale" => Concern(3),
        "paused" => Concern(4),
        "pending" | "listing" => Concern(5),
        "watching" if why::of_informer(informer).is_empty() => WELL,
        "watching" => Concern(7),
        _ => Concern(8),
    }
}

pub(super) fn sink_concern(sink: &Value) -> Concern {
    let is = |key: &str| sink[key].as_bool().unwrap_or_default();
    match () {
        () if is("disabled") => Concern(0),
        () if sink["journal"]["trouble"].is_string() => Concern(1),
        () if is("circuitOpen") => Concern(2),
        () if why::is_stuck(sink) => Concern(3),
        () if why::is_retrying(sink) => Concern(4),
        () if why::letters(sink) > 0 => Concern(6).min(expiry_concern(sink).max(Concern(5))),
        () => expiry_concern(sink).max(Concern(5)),
    }
}

/// Returns `concern` if it means a problem, else `None`.
pub(super) fn concern(concern: Concern) -> Option<Concern> {
    (concern < WELL).then_some(concern)
}
