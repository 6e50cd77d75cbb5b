//! The process as a member of a fleet: its line among the totals of the status, and texts of its problems.

use std::collections::BTreeSet;

use serde_json::Value;

use super::values::{line, list, number, text};
use informer_hub_types::printable;

/// Seconds after which a change that is not stored in the fleet's log is a problem.
const BEHIND: f64 = 10.0;

/// Returns the totals line about the process in its fleet; `None` if it is not part of a fleet.
pub(super) fn total(status: &Value) -> Option<String> {
    let fleet = status.get("fleet").filter(|fleet| fleet.is_object())?;
    let (process, owned, entries) = (text(fleet, "process"), number(fleet, "owned"), list(fleet, "clusters"));
    let clusters = match count(entries, |_| true) {
        1 => "1 cluster".to_owned(),
        clusters => format!("{clusters} clusters"),
    };
    if fleet["role"] == "serve" {
        let stale = count(entries, |entry| entry["staleSince"].is_string());
        let stale = if stale == 0 { String::new() } else { format!(", {stale} stale") };
        return Some(format!("fleet      {} serves {clusters}{stale}", printable(process)));
    }
    let free = entries.iter().filter(|entry| !entry["owner"].is_string()).count();
    let free = if free == 0 { String::new() } else { format!(", {free} without an owner") };
    let of = match entries.len() {
        shards if entries.iter().any(|entry| entry["shard"].is_string()) => format!("{shards} shards of {clusters}"),
        _ => clusters,
    };
    Some(format!("fleet      {} owns {owned} of {of}{free}", printable(process)))
}

/// Returns the number of clusters with an entry for which `is_counted` is true. A cluster has one entry, or one for
/// each of its shards.
fn count(entries: &[Value], is_counted: impl Fn(&Value) -> bool) -> usize {
    entries.iter().filter(|entry| is_counted(entry)).map(|entry| text(entry, "name")).collect::<BTreeSet<_>>().len()
}

/// Returns why the process is not connected to NATS; `None` if it is connected or not part of a fleet.
pub(super) fn not_connected(status: &Value) -> Option<String> {
    let fleet = &status["fleet"];
    (fleet["connected"] == false).then(|| line(fleet["lastError"].as_str().unwrap_or("NATS has not answered yet")))
}

/// Returns a problem text if changes wait too long to be stored in the fleet's log; `None` otherwise.
pub(super) fn behind(status: &Value) -> Option<String> {
    let is_behind = status["fleet"]["oldestAppendSeconds"].as_f64().is_some_and(|seconds| seconds >= BEHIND);
    is_behind.then(|| format!("a change has waited for more than {BEHIND} s to be stored in the fleet's log"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn owned_clusters_and_problems_are_shown() {
        let clusters = json!([
            { "name": "a", "owner": "hub-1", "epoch": 3, "own": true },
            { "name": "b", "owner": "hub-2", "epoch": 1, "own": false },
            { "name": "c", "epoch": 0, "own": false },
        ]);
        let fleet = json!({ "process": "hub-1", "connected": true, "owned": 1, "oldestAppendSeconds": 0.2, "clusters": clusters });
        let mut status = json!({ "fleet": fleet });
        assert_eq!(total(&status).unwrap(), "fleet      hub-1 owns 1 of 3 clusters, 1 without an owner");
        assert_eq!((not_connected(&status), behind(&status)), (None, None));
        status["fleet"]["connected"] = false.into();
        assert_eq!(not_connected(&status).unwrap(), "NATS has not answered yet");
        status["fleet"]["lastError"] = "cannot\u{1b} connect".into();
        assert!(!not_connected(&status).unwrap().contains('\u{1b}'));
        status["fleet"]["oldestAppendSeconds"] = 11.5.into();
        assert!(behind(&status).is_some());
        let served = json!([{ "name": "a", "staleSince": "2026-01-01T00:00:00Z" }, { "name": "b" }]);
        let serving =
            json!({ "fleet": { "process": "hub-3", "role": "serve", "connected": true, "clusters": served } });
        assert_eq!(total(&serving).unwrap(), "fleet      hub-3 serves 2 clusters, 1 stale");
        let divided = json!([
            { "name": "a", "owner": "hub-1", "staleSince": "2026-01-01T00:00:00Z" },
            { "name": "a", "shard": "pods", "owner": "hub-1", "staleSince": "2026-01-01T00:00:00Z" },
            { "name": "b" },
        ]);
        let mut status = json!({ "fleet": { "process": "hub-1", "owned": 2, "clusters": divided } });
        assert_eq!(total(&status).unwrap(), "fleet      hub-1 owns 2 of 3 shards of 2 clusters, 1 without an owner");
        status["fleet"]["role"] = "serve".into();
        assert_eq!(total(&status).unwrap(), "fleet      hub-1 serves 2 clusters, 1 stale");
        assert_eq!((total(&json!({})), not_connected(&json!({})), behind(&json!({}))), (None, None, None));
    }
}
