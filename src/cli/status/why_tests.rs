//! Tests of the reasons, over every combination of states that a status can have.

use serde_json::json;

use super::super::rows::{Row, rows, summary};
use super::super::select::{Selection, names};
use super::super::subject::Subject;
use super::*;

const ERRORS: [Option<&str>; 4] = [None, Some(""), Some("\n"), Some("GET /api/v1/pods: 403 Forbidden\nmore")];
const INFORMERS: [&str; 10] =
    ["pending", "absent", "listing", "watching", "stale", "forbidden", "degraded", "stopped", "paused", "of tomorrow"];

fn informer(state: &str, error: Option<&str>) -> Value {
    json!({ "resource": "pods", "scope": "*", "state": state, "skipped": 1, "lastError": error })
}

/// Returns clusters in every state, with two informers in every state, with and without errors.
fn clusters() -> Vec<Value> {
    let mut all = Vec::new();
    for state in ["connecting", "connected", "unreachable", "degraded", "of tomorrow"] {
        for error in ERRORS {
            for first in INFORMERS {
                let informers = INFORMERS.map(|second| [informer(first, error), informer(second, None)]);
                all.extend(informers.map(|two| json!({ "state": state, "lastError": error, "informers": two })));
            }
            all.push(json!({ "state": state, "lastError": error, "informers": [] }));
        }
    }
    for (number, cluster) in all.iter_mut().enumerate() {
        cluster["name"] = format!("c{number}").into();
    }
    all
}

/// Returns sinks with every combination of members.
fn sinks() -> Vec<Value> {
    let mut all = Vec::new();
    for bits in 0..64_u32 {
        let is = |bit: u32| bits & (1 << bit) != 0;
        for error in ERRORS {
            for retrying in [None, Some(0), Some(2)] {
                for trouble in ERRORS {
                    all.push(json!({
                        "name": format!("s{}", all.len()), "disabled": is(0), "circuitOpen": is(1),
                        "pendingEvents": 3 * u32::from(is(2)), "deadLetters": is(3).then_some(2),
                        "deadLettered": 5 * u32::from(is(4)), "refusedEvents": 4 * u32::from(is(5)),
                        "retrying": retrying, "lastError": error,
                        "journal": { "trouble": trouble },
                    }));
                }
            }
        }
    }
    all
}

fn sources() -> Vec<Value> {
    let mut all = Vec::new();
    for state in ["waiting", "current", "unreachable", "forbidden", "absent", "of tomorrow"] {
        for error in ERRORS {
            for (invalid, conflicting, over) in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)] {
                for problems in [json!([]), json!([{ "object": "file x", "problem": "is no kubeconfig" }])] {
                    all.push(json!({
                        "name": format!("f{}", all.len()), "state": state, "lastError": error, "invalid": invalid,
                        "conflicting": conflicting, "over": over, "problems": problems,
                    }));
                }
            }
        }
    }
    all
}

fn mistake(line: u64) -> Value {
    json!({ "file": "hub.toml", "line": line, "key": "hub.listen", "problem": "is wrong" })
}

fn statuses() -> impl Iterator<Item = Value> {
    let whole = json!({ "ready": true, "clusters": clusters(), "sinks": sinks(), "clusterSources": sources() });
    let of_hub = ERRORS.into_iter().flat_map(|error| {
        [0, 1, 2, 30].map(|count| {
            let mistakes: Vec<_> = (1..=count).map(mistake).collect();
            json!({ "configuration": { "lastError": error, "mistakes": mistakes }, "stateDir": { "lastError": error } })
        })
    });
    std::iter::once(whole).chain(of_hub)
}

#[test]
fn every_problem_has_a_reason() {
    let mut listed = 0;
    for status in statuses() {
        let status = Selection::default().of(&status).unwrap();
        for subject in [Subject::Status, Subject::Clusters, Subject::Resources, Subject::Sinks] {
            for row in rows(subject, &status).into_iter().filter(|row| row.concern.is_some()) {
                listed += 1;
                let why = row.cells.last().unwrap();
                assert!(!why.trim().is_empty() && why.lines().count() == 1, "{subject:?} {row:#?}");
                assert!(row.state.len() > row.cells[row.stated].len(), "the state has no reason: {row:#?}");
            }
        }
    }
    assert!(listed > 5_000, "{listed} rows");
}

fn troubles(status: &Value) -> Vec<Row> {
    rows(Subject::Status, &Selection::default().of(status).unwrap())
}

fn named(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn a_cluster_with_only_forbidden_informers_is_a_problem() {
    let cluster = |name: &str, informers: Value| json!({ "name": name, "state": "connected", "informers": informers });
    let status = json!({ "ready": true, "clusters": [
        cluster("a", json!([informer("watching", None), informer("absent", Some("the cluster has no resource w"))])),
        cluster("b", json!([informer("watching", None)])),
        cluster("c", json!([informer("forbidden", Some("403 Forbidden")), informer("forbidden", None)])),
    ] });
    let status = Selection::default().of(&status).unwrap();
    assert_eq!(names(Subject::Clusters, &status), ["cluster/c", "cluster/a", "cluster/b"]);
    let rows = troubles(&status);
    assert_eq!(named(&rows), ["cluster c", "resource a/pods"], "once, not for each resource");
    assert_eq!(rows[0].cells, ["cluster", "c", "forbidden", "all 2 informers are forbidden: 403 Forbidden"]);
    let summary = summary(&status);
    assert!(summary.contains("ready      yes, but nothing is watched in c\n"), "{summary}");
    assert!(summary.contains("clusters   3 (2 connected, 1 forbidden)"), "{summary}");
}

#[test]
fn a_summary_is_plainly_ready_only_if_everything_is_watched() {
    let of = |informers: Value| {
        let status =
            json!({ "ready": true, "clusters": [{ "name": "a", "state": "connected", "informers": informers }] });
        summary(&status).lines().next().unwrap().to_owned()
    };
    assert_eq!(of(json!([informer("watching", None)])), "ready      yes");
    let two = of(json!([informer("watching", None), informer("forbidden", None)]));
    assert_eq!(two, "ready      yes, but 1 of 2 informers is not watching");
    assert_eq!(of(json!([informer("stale", None)])), "ready      yes, but nothing is watched in a");
    assert_eq!(of(json!([])), "ready      yes");
}

#[test]
fn a_summary_has_the_role_of_a_replica_and_its_sinks_stand_by() {
    let of = |ha: Value| {
        let sink = json!({ "name": "s", "standby": ha["role"] != "leader", "pendingEvents": 3 });
        let status = json!({ "ready": true, "clusters": [], "sinks": [sink], "ha": ha });
        assert_eq!(troubles(&status).len(), 0, "a standby is no problem");
        summary(&status)
    };
    let leader = of(json!({ "role": "leader", "identity": "a_1", "holder": "a_1" }));
    assert!(leader.ends_with("sinks      1 (1 delivering)\nreplica    leader"), "{leader}");
    let standby = of(json!({ "role": "standby", "identity": "b_1", "holder": "a_1" }));
    assert!(standby.ends_with("sinks      1 (1 standby)\nreplica    standby; the Lease is held by a_1"), "{standby}");
    let share = of(json!({ "role": "leader", "identity": "a_1", "sinks": ["s", "t"] }));
    assert!(share.ends_with("\nreplica    leader of s, t"), "{share}");
    let unknown = of(json!({ "role": "unknown", "identity": "b_1", "error": "403 Forbidden" }));
    assert!(unknown.ends_with("\nreplica    unknown; 403 Forbidden"), "{unknown}");
    assert!(!summary(&json!({ "ready": true, "clusters": [] })).contains("replica"));
}

#[test]
fn dead_letters_are_a_problem_only_while_they_are_stored() {
    let sink = |letters: u64, retrying: u64, pending: u64, error: Option<&str>| {
        json!({ "sinks": [{ "name": "s", "deadLettered": 5, "deadLetters": letters, "retrying": retrying,
            "pendingEvents": pending, "lastError": error, "journal": null }] })
    };
    let refused = Some("receiver answered 400 Bad Request");
    let row = |status: Value| troubles(&status).first().map(|row| row.cells[2..].join("|"));
    assert_eq!(row(sink(0, 0, 0, None)), None, "all were replayed or purged");
    assert_eq!(row(sink(5, 0, 0, refused)).unwrap(), "delivering|5 dead letters: receiver answered 400 Bad Request");
    let hint = "delivering|1 dead letter: informer-hub dead-letters list s";
    assert_eq!(row(sink(1, 0, 0, None)).unwrap(), hint);
    assert_eq!(row(sink(0, 0, 0, refused)), None, "nothing is retried");
    assert_eq!(row(sink(5, 1, 1, refused)).unwrap(), "retrying|receiver answered 400 Bad Request");
    assert_eq!(row(sink(0, 0, 7, Some("cannot read the journal: I/O"))).unwrap(), "stuck|cannot read the journal: I/O");
}

#[test]
fn a_refused_configuration_precedes_absent_resources_and_shows_its_mistakes() {
    let mistakes: Vec<_> = (1..=12).map(mistake).collect();
    let status = json!({
        "ready": true,
        "configuration": { "lastError": "hub.toml:1: hub.listen: is wrong\n12 mistakes", "mistakes": mistakes },
        "clusters": [{ "name": "a", "state": "connected", "informers": [informer("absent", Some("no such resource"))] }],
    });
    let rows = troubles(&status);
    assert_eq!(named(&rows), ["hub configuration", "resource a/pods"]);
    assert_eq!(rows[0].cells[3], "12 mistakes: hub.toml:1: hub.listen: is wrong; and 11 more, see below");
    let text = super::super::screen::text(Subject::Status, &Selection::default().of(&status).unwrap(), false);
    let below: Vec<_> = text.lines().rev().take_while(|line| !line.is_empty()).collect();
    assert_eq!(below.len(), 10, "{text}");
    assert_eq!(below[9], "hub.toml:2: hub.listen: is wrong");
    assert_eq!(below[0], "2 more: informer-hub check -c hub.toml");
}

#[test]
fn a_watching_informer_without_error_is_no_problem() {
    assert!(of_informer(&informer("watching", None)).is_empty());
    let cluster = json!({ "name": "a", "state": "connected", "informers": [informer("watching", None)] });
    assert!(troubles(&json!({ "clusters": [cluster] })).is_empty());
}
