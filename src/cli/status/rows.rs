//! From a status to rows, and how much of a concern each is.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;

use super::Subject;
use super::select::{informer_name, informers, list};
use super::why;
use crate::cli::print::{bytes, grouped, span};
use informer_hub_types::{first_names, printable};

/// How bad something is; the worst is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Concern(u8);

/// Of no concern.
const WELL: Concern = Concern(9);

/// The last of those that somebody has to do something about.
const BAD: Concern = Concern(3);

impl Concern {
    pub(super) fn is_bad(self) -> bool {
        self <= BAD
    }
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// What it is of.
    pub(super) name: String,
    /// What a change of it is worth a line.
    pub(super) state: String,
    pub(super) cells: Vec<String>,
    /// The cell with its state.
    pub(super) stated: usize,
    /// Unset: none.
    pub(super) concern: Option<Concern>,
}

/// What a table looks like.
pub(super) struct Shape {
    pub(super) header: &'static [&'static str],
    /// Columns of numbers.
    pub(super) numbers: &'static [usize],
    /// Columns that may be left out where there is no room, the least telling first.
    pub(super) spare: &'static [usize],
}

pub(super) fn shape(subject: Subject) -> Shape {
    let (header, numbers, spare): (&[_], &[_], &[_]) = match subject {
        Subject::Status => (&["WHAT", "NAME", "STATE", "WHY"], &[], &[]),
        Subject::Clusters => (
            &["CLUSTER", "STATE", "WATCHING", "OBJECTS", "MEMORY", "SOURCE", "LABELS", "WHY"],
            &[2, 3, 4],
            &[6, 5, 4, 3, 2],
        ),
        Subject::Resources => (
            &[
                "CLUSTER",
                "RESOURCE",
                "SCOPE",
                "STATE",
                "OBJECTS",
                "MEMORY",
                "LAST EVENT",
                "LISTS",
                "QUEUED",
                "RESTARTS",
                "WHY",
            ],
            &[4, 5, 6, 7, 8, 9],
            &[7, 8, 9, 6, 5, 2, 4],
        ),
        Subject::Sinks => (
            &["SINK", "STATE", "PENDING", "DELIVERED", "RETRIES", "DEAD LETTERS", "LAST DELIVERY", "WHY"],
            &[2, 3, 4, 5, 6],
            &[4, 3, 6, 2, 5],
        ),
    };
    Shape { header, numbers, spare }
}

pub(super) fn plural(subject: Subject) -> &'static str {
    match subject {
        Subject::Status | Subject::Clusters => "clusters",
        Subject::Resources => "resources",
        Subject::Sinks => "sinks",
    }
}

pub(super) fn rows(subject: Subject, status: &Value) -> Vec<Row> {
    match subject {
        Subject::Status => troubles(status),
        Subject::Clusters => list(status, "clusters").iter().map(cluster).collect(),
        Subject::Resources => informers(status).into_iter().map(|(name, informer)| resource(name, informer)).collect(),
        Subject::Sinks => list(status, "sinks").iter().map(sink).collect(),
    }
}

/// A text in an answer; empty where there is none.
pub(super) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// What of clusters' offers no row shows: what a limit leaves out, and where changes are not heard of.
pub(super) fn notes(status: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for cluster in list(status, "clusters") {
        let name = text(cluster, "name");
        let discovery = &cluster["discovery"];
        // Of a cluster that does not answer nothing is noticed, and its row says so.
        if text(discovery, "state") == "polling" && text(cluster, "state") != "unreachable" {
            let why = text(discovery, "lastError");
            notes.push(format!("{name}: resources that come and go are noticed within a minute: {why}"));
        }
        for pattern in list(cluster, "patterns") {
            let names = |key: &str| list(pattern, key).iter().filter_map(Value::as_str).collect::<Vec<_>>();
            let (entry, left_out) = (text(pattern, "name"), names("leftOut"));
            if !left_out.is_empty() {
                let watched = names("watched").len();
                notes.push(format!(
                    "{name}: {entry} watches {watched} resources, its limit; not {}",
                    left_out.join(", ")
                ));
            }
        }
    }
    notes
}

pub(super) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
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
            // What concerns one resource is less than what concerns the cluster.
            worst.filter(|worst| *worst < WELL).map_or(own, |worst| own.min(Concern(worst.0.clamp(5, 8))))
        }
        _ => Concern(8),
    }
}

/// How bad it is that credentials end: of a cluster, a source, a sink or the hub.
fn expiry_concern(owner: &Value) -> Concern {
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

fn sink_state(sink: &Value) -> &'static str {
    match sink_concern(sink).0 {
        0 => "disabled",
        1 => "journal in trouble",
        2 => "suspended",
        3 => "stuck",
        4 => "retrying",
        _ => "delivering",
    }
}

/// A source of clusters, where something of it is in trouble.
fn source(source: &Value) -> Option<Row> {
    let (name, state) = (text(source, "name"), text(source, "state"));
    let numbers = ["invalid", "conflicting", "over"].map(|key| (key, number(source, key)));
    let counts = numbers.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}"));
    let counts: Vec<_> = counts.collect();
    let how_bad = match state {
        "current" if counts.is_empty() && !why::expiry(source).is_empty() => expiry_concern(source),
        "current" if counts.is_empty() => return None,
        "current" => Concern(4),
        "waiting" => Concern(5),
        _ => Concern(1),
    };
    let why = why::of_source(source, &counts);
    let shown = [vec![state.to_owned()], counts].concat().join(", ");
    Some(Row {
        name: name.to_owned(),
        state: with_reason(&shown, &why),
        cells: vec![name.to_owned(), shown, line(&why)],
        stated: 1,
        concern: Some(how_bad),
    })
}

/// What of the hub itself is in trouble.
fn own(status: &Value) -> Vec<Row> {
    let (configuration, state_dir) = (&status["configuration"], &status["stateDir"]);
    let waiting: Vec<_> = list(configuration, "needsRestart").iter().filter_map(Value::as_str).collect();
    let waiting = (!waiting.is_empty()).then(|| waiting.join(", "));
    let certificate = Some(why::expiry(status)).filter(|why| !why.is_empty());
    let of_state_dir = state_dir["lastError"]
        .as_str()
        .map(line)
        .map(|error| if error.is_empty() { "its disk does not accept the caches".to_owned() } else { error });
    let troubles = [
        ("port", "certificate ends", certificate, expiry_concern(status)),
        ("state directory", "failing", of_state_dir, Concern(1)),
        ("configuration", "refused", why::of_configuration(configuration), Concern(1)),
        ("configuration", "needs a restart", waiting, Concern(7)),
    ];
    let row = |(name, shown, why, how_bad): (&str, &str, Option<String>, Concern)| {
        let why = why?;
        Some(Row {
            name: name.to_owned(),
            state: with_reason(shown, &why),
            cells: vec![name.to_owned(), shown.to_owned(), line(&why)],
            stated: 1,
            concern: Some(how_bad),
        })
    };
    troubles.into_iter().filter_map(row).collect()
}

fn concern(concern: Concern) -> Option<Concern> {
    (concern < WELL).then_some(concern)
}

fn with_reason(state: &str, why: &str) -> String {
    if why.is_empty() { state.to_owned() } else { format!("{state}: {}", line(why)) }
}

fn cluster(cluster: &Value) -> Row {
    let informers = list(cluster, "informers");
    let watching = informers.iter().filter(|informer| text(informer, "state") == "watching").count();
    let sum = |key: &str| informers.iter().map(|informer| number(informer, key)).fold(0, u64::saturating_add);
    let labels = cluster["labels"].as_object().into_iter().flatten();
    let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let (name, state, why) = (text(cluster, "name"), why::cluster_state(cluster), why::of_cluster(cluster));
    Row {
        name: name.to_owned(),
        state: with_reason(&format!("{state}, watching {watching}/{}", informers.len()), &why),
        cells: vec![
            name.to_owned(),
            state.to_owned(),
            format!("{watching}/{}", informers.len()),
            grouped(sum("objects")),
            bytes(sum("bytes")),
            cluster["source"].as_str().unwrap_or("table").to_owned(),
            labels.join(","),
            why,
        ],
        stated: 1,
        concern: concern(cluster_concern(cluster)),
    }
}

fn resource(cluster: &str, informer: &Value) -> Row {
    let (name, scope, state) = (text(informer, "resource"), text(informer, "scope"), text(informer, "state"));
    let why = why::of_informer(informer);
    let listed = || match (number(informer, "listItems"), number(informer, "listExpected")) {
        (items, 0) => format!("listing {}", grouped(items)),
        (items, expected) => format!("listing {}%", items.saturating_mul(100) / expected),
    };
    let shown = if state == "listing" { listed() } else { state.to_owned() };
    let age = informer["lastEventAgeSeconds"].as_f64().map(|age| Duration::try_from_secs_f64(age).unwrap_or_default());
    let age = age.map(|age| span(age.as_secs())).unwrap_or_default();
    let counts = ["lists", "queued", "restarts"].map(|key| grouped(number(informer, key)));
    let mut cells = vec![cluster.to_owned(), name.to_owned(), scope.to_owned(), shown];
    cells.extend([grouped(number(informer, "objects")), bytes(number(informer, "bytes")), age]);
    cells.extend(counts);
    cells.push(why.clone());
    Row {
        name: format!("{cluster}/{}", informer_name(informer)),
        state: with_reason(state, &why),
        cells,
        stated: 3,
        concern: concern(informer_concern(informer)),
    }
}

fn sink(sink: &Value) -> Row {
    let (name, state) = (text(sink, "name"), sink_state(sink));
    let why = why::of_sink(sink);
    // What waits in a journal is more than what waits in memory.
    let pending = number(sink, "pendingEvents").max(number(&sink["journal"], "pending"));
    let letters = why::letters(sink);
    let numbers = [pending, number(sink, "delivered"), number(sink, "retries"), letters].map(grouped);
    let mut cells = vec![name.to_owned(), state.to_owned()];
    cells.extend(numbers);
    cells.extend([text(sink, "lastDelivery").to_owned(), why.clone()]);
    let dead = if letters > 0 { format!(", {} dead letters", grouped(letters)) } else { String::new() };
    Row {
        name: name.to_owned(),
        state: with_reason(&format!("{state}{dead}"), &why),
        cells,
        stated: 1,
        concern: concern(sink_concern(sink)),
    }
}

/// Everything that is not well, as one table.
fn troubles(status: &Value) -> Vec<Row> {
    let told = |what: &'static str, row: Row, why: String| Row {
        cells: vec![what.to_owned(), row.name.clone(), row.cells.get(row.stated).cloned().unwrap_or_default(), why],
        name: format!("{what} {}", row.name),
        stated: 2,
        ..row
    };
    let why = |row: &Row| row.cells.last().cloned().unwrap_or_default();
    let is_own = |cluster: &&Value| {
        let is_well = why::cluster_state(cluster) == "connected" && !why::has_error(cluster);
        !is_well || !why::expiry(cluster).is_empty()
    };
    let clusters = list(status, "clusters").iter().filter(is_own).map(cluster).map(|row| ("cluster", row));
    // What is wrong with a cluster is wrong with each of its resources, and told once.
    let is_unreached =
        |cluster: &&Value| matches!(why::cluster_state(cluster), "unreachable" | "connecting" | "forbidden");
    let unreached: HashSet<_> =
        list(status, "clusters").iter().filter(is_unreached).map(|it| text(it, "name")).collect();
    let informers = informers(status).into_iter().filter(|(cluster, _)| !unreached.contains(cluster));
    let informers = informers.map(|(cluster, informer)| ("resource", resource(cluster, informer)));
    let sinks = list(status, "sinks").iter().map(sink).map(|row| ("sink", row));
    let sources = list(status, "clusterSources").iter().filter_map(source).map(|row| ("source", row));
    let own = own(status).into_iter().map(|row| ("hub", row));
    let all = own.chain(sources).chain(clusters).chain(informers).chain(sinks);
    let mut all: Vec<_> = all.filter(|(_, row)| row.concern.is_some()).collect();
    all.sort_by_key(|(_, row)| row.concern);
    all.into_iter().map(|(what, row)| (what, why(&row), row)).map(|(what, why, row)| told(what, row, why)).collect()
}

/// Everything in a few lines.
pub(super) fn summary(status: &Value) -> String {
    let clusters = list(status, "clusters");
    let informers = informers(status);
    let sinks = list(status, "sinks");
    let tally = |words: Vec<&str>| {
        let mut counts = std::collections::BTreeMap::new();
        for word in &words {
            *counts.entry(*word).or_insert(0_usize) += 1;
        }
        let counts: Vec<_> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
        if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) }
    };
    let sum = |key: &str| informers.iter().map(|(_, informer)| number(informer, key)).fold(0, u64::saturating_add);
    let ready = ready(status);
    let of_clusters = tally(clusters.iter().map(why::cluster_state).collect());
    let of_informers = tally(informers.iter().map(|(_, informer)| text(informer, "state")).collect());
    let of_sinks = tally(sinks.iter().map(sink_state).collect());
    let mut lines = vec![
        format!("ready      {ready}"),
        format!("clusters   {}{of_clusters}", clusters.len()),
        format!("informers  {}{of_informers}", informers.len()),
        format!("objects    {} in {}", grouped(sum("objects")), bytes(sum("bytes"))),
        format!("sinks      {}{of_sinks}", sinks.len()),
    ];
    let sources = list(status, "clusterSources");
    if !sources.is_empty() {
        let of_sources = tally(sources.iter().map(|source| text(source, "state")).collect());
        lines.insert(1, format!("sources    {}{of_sources}", sources.len()));
    }
    if let Some(limit) = status["memory"]["limit"].as_u64() {
        let resident = bytes(number(&status["memory"], "resident"));
        lines.push(format!("memory     {resident} of {}", bytes(limit)));
    }
    lines.join("\n")
}

/// Whether the hub is ready, and what is not watched although it is: readiness does not wait for clusters and resources
/// that waiting does not mend.
fn ready(status: &Value) -> String {
    match status["ready"].as_bool() {
        Some(true) => {}
        Some(false) => return "no".to_owned(),
        None => return "unknown".to_owned(),
    }
    let is_watched = |informer: &Value| text(informer, "state") == "watching";
    let is_unwatched = |cluster: &&Value| {
        let informers = list(cluster, "informers");
        !informers.is_empty() && !informers.iter().any(is_watched)
    };
    let unwatched = list(status, "clusters").iter().filter(is_unwatched);
    let unwatched: Vec<_> = unwatched.map(|cluster| text(cluster, "name")).collect();
    let informers = informers(status);
    match informers.iter().filter(|(_, informer)| !is_watched(informer)).count() {
        0 => "yes".to_owned(),
        _ if !unwatched.is_empty() => format!("yes, but nothing is watched in {}", first_names(&unwatched)),
        1 => format!("yes, but 1 of {} informers is not watching", informers.len()),
        idle => format!("yes, but {idle} of {} informers are not watching", informers.len()),
    }
}

/// The first line of what may be several, printable.
pub(super) fn line(text: &str) -> String {
    let line = text.lines().map(str::trim_end).find(|line| !line.is_empty()).unwrap_or_default();
    printable(line)
}

#[cfg(test)]
mod tests {
    use super::super::select::{Selection, tests::status};
    use super::*;

    #[test]
    fn a_status_adds_up_and_shows_what_is_wrong() {
        let status = Selection::default().of(&status()).unwrap();
        let text = super::super::text(Subject::Status, &status, false);
        for part in [
            "ready      yes",
            "clusters   3 (2 connected, 1 unreachable)",
            "informers  4 (1 forbidden, 1 stale, 2 watching)",
            "objects    49,380 in 20 MiB",
            "sinks      2 (1 delivering, 1 suspended)",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let names: Vec<_> = rows(Subject::Status, &status).into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["cluster c", "resource a/deployments.apps", "sink chat"], "and nothing of what is in c");
    }

    #[test]
    fn credentials_that_end_are_trouble_of_their_owner() {
        let mut status = status();
        let one = |state: &str| {
            serde_json::json!([
                { "kind": "ca-certificate", "place": "ca", "expires": "2036-01-01T00:00:00Z", "state": "valid" },
                { "kind": "token-file", "place": "/t\u{1b}[31m", "expires": "2026-01-01T00:00:00Z", "state": state },
            ])
        };
        assert!(rows(Subject::Clusters, &status).iter().all(|row| !row.cells[7].contains("token")));
        for (state, said, is_bad) in [("soon", "ends", false), ("imminent", "ends", true), ("expired", "ended", true)] {
            status["clusters"][1]["credentials"] = one(state);
            let trouble = rows(Subject::Status, &status).into_iter().find(|row| row.name == "cluster b").unwrap();
            let why = format!("token file /t {said} at 2026-01-01T00:00:00Z");
            assert_eq!(trouble.cells, ["cluster", "b", "connected", &why]);
            assert_eq!(trouble.concern.unwrap().is_bad(), is_bad, "{state}");
        }
        status["clusters"][1]["credentials"] = one("valid");
        assert!(!rows(Subject::Status, &status).iter().any(|row| row.name == "cluster b"));
        status["sinks"][0]["credentials"] = one("expired");
        status["credentials"] = one("expired");
        status["clusterSources"] =
            serde_json::json!([{ "name": "argo", "state": "current", "credentials": one("soon") }]);
        let names: Vec<_> = rows(Subject::Status, &status).into_iter().map(|row| row.cells[..3].join("|")).collect();
        for row in ["hub|port|certificate ends", "source|argo|current"] {
            assert!(names.contains(&row.to_owned()), "{row} is missing in {names:?}");
        }
        let sinks = rows(Subject::Sinks, &status);
        assert!(sinks.iter().any(|row| row.cells.last().unwrap().contains("token file")), "{sinks:?}");
    }

    #[test]
    fn a_sink_whose_events_wait_after_a_refusal_is_in_trouble_and_says_why() {
        let mut status = status();
        status["sinks"] = serde_json::json!([{
            "name": "chat", "delivered": 7, "pendingEvents": 1200, "refusedEvents": 1200, "lastError": null,
            "refusal": "receiver answered 400 Bad Request",
        }]);
        let text = super::super::text(Subject::Sinks, &status, false);
        assert!(text.contains("1,200 events wait after a refusal: receiver answered 400 Bad Request"), "{text}");
        assert!(text.contains("retrying"), "{text}");
        let names: Vec<_> = rows(Subject::Status, &status).into_iter().map(|row| row.name).collect();
        assert!(names.contains(&"sink chat".to_owned()), "{names:?}");
    }

    #[test]
    fn what_no_row_shows_of_a_clusters_offers_is_noted_below() {
        let mut status = status();
        status["clusters"][0]["discovery"] = serde_json::json!({ "state": "polling", "lastError": "403" });
        status["clusters"][1]["patterns"] = serde_json::json!([
            { "name": "ours", "pattern": "*.x", "watched": ["a.x", "b.x"], "leftOut": ["c.x"] },
            { "name": "all", "pattern": "*", "watched": ["pods"] },
        ]);
        let text = super::super::text(Subject::Resources, &status, false);
        let last: Vec<_> = text.lines().rev().take(3).collect();
        assert_eq!(last[0], "b: ours watches 2 resources, its limit; not c.x");
        assert_eq!(last[1], "a: resources that come and go are noticed within a minute: 403");
        assert_eq!(last[2], "");
        status["clusters"][0]["state"] = "unreachable".into();
        assert!(!super::super::text(Subject::Resources, &status, false).contains("noticed within"), "its row says it");
        assert!(!super::super::text(Subject::Sinks, &status, false).contains("c.x"));
    }

    #[test]
    fn what_is_wrong_with_the_hub_itself_is_shown_too() {
        let mut status = status();
        status["configuration"] =
            serde_json::json!({ "lastError": "hub.toml:3: no\nmore", "needsRestart": ["hub.tls"] });
        status["stateDir"] = serde_json::json!({ "lastError": "disk full" });
        let rows: Vec<_> = rows(Subject::Status, &status).iter().map(|row| row.cells.join("|")).collect();
        for row in [
            "hub|state directory|failing|disk full",
            "hub|configuration|refused|hub.toml:3: no",
            "hub|configuration|needs a restart|hub.tls",
        ] {
            assert!(rows.iter().any(|it| it == row), "{row} is missing in {rows:#?}");
        }
    }

    #[test]
    fn sources_in_trouble_are_shown_with_what_is_wrong_and_those_that_are_well_are_counted() {
        let mut status = status();
        status["clusterSources"] = serde_json::json!([
            { "name": "argo", "state": "unreachable", "lastError": "no route" },
            { "name": "edge", "state": "current", "clusters": 3, "invalid": 1, "conflicting": 0,
              "problems": [{ "object": "file x", "problem": "is no kubeconfig" }] },
            { "name": "well", "state": "current", "clusters": 3 },
        ]);
        status["clusters"][0]["source"] = "edge".into();
        assert!(summary(&status).contains("sources    3 (2 current, 1 unreachable)"), "{}", summary(&status));
        let rows = rows(Subject::Status, &status);
        let named = |name: &str| rows.iter().find(|row| row.name == name).map(|row| row.cells.join("|"));
        assert_eq!(named("source argo").as_deref(), Some("source|argo|unreachable|no route"));
        let edge = "source|edge|current, 1 invalid|file x: is no kubeconfig";
        assert_eq!((named("source edge").as_deref(), named("source well")), (Some(edge), None));
        let clusters = super::rows(Subject::Clusters, &status);
        assert_eq!((clusters[0].cells[5].as_str(), clusters[1].cells[5].as_str()), ("edge", "table"));
    }

    #[test]
    fn tables_have_a_cell_for_each_column_and_colours_only_where_they_are_wanted() {
        let status = status();
        for subject in [Subject::Status, Subject::Clusters, Subject::Resources, Subject::Sinks] {
            let Shape { header, numbers, spare } = shape(subject);
            assert!(
                rows(subject, &status).iter().all(|row| row.cells.len() == header.len() && row.stated < header.len())
            );
            assert!(numbers.iter().all(|at| *at < header.len()));
            let why = header.len() - 1;
            assert!(spare.iter().all(|at| *at != why && *at < why), "what explains is never left out");
            assert!(!super::super::text(subject, &status, false).contains('\x1b'));
            assert!(super::super::text(subject, &status, true).contains('\x1b'), "{subject:?}");
        }
    }

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(line("no\x1b[31m such\nhost"), "no such");
    }
}
