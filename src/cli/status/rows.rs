//! Rows and columns of the status tables, and the totals.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use super::concern::{Concern, cluster_concern, concern, expiry_concern, informer_concern, sink_concern};
use super::fleet;
use super::readers;
use super::select::informers;
use super::subject::Subject;
use super::values::{cell, informer_name, line, list, number, sum, text};
use super::why;
use crate::cli::print::{bytes, grouped, span};
use informer_hub_types::{first_names, printable};

/// A row of a status table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Name of the cluster, informer, sink, source or part of the hub.
    pub(super) name: String,
    /// State of the row's subject, with the reason. If it changes, `--watch` prints a line.
    pub(super) state: String,
    pub(super) cells: Vec<String>,
    /// Index of the cell with the state.
    pub(super) stated: usize,
    /// Severity of the row's problem; `None` if there is none.
    pub(super) concern: Option<Concern>,
}

/// Columns of a table.
pub(super) struct Shape {
    pub(super) header: &'static [&'static str],
    /// Indexes of columns with numbers.
    pub(super) numbers: &'static [usize],
    /// Indexes of columns that may be left out, least important first.
    pub(super) spare: &'static [usize],
}

pub(super) fn shape(subject: Subject) -> Shape {
    let (header, numbers, spare): (&[_], &[_], &[_]) = match subject {
        Subject::Status => (&["WHAT", "NAME", "STATE", "WHY"], &[], &[]),
        Subject::Clusters => (
            &["CLUSTER", "STATE", "WATCHING", "OBJECTS", "MEMORY", "CONNECTIONS", "SOURCE", "LABELS", "WHY"],
            &[2, 3, 4],
            &[7, 5, 6, 4, 3, 2],
        ),
        Subject::Resources => (
            &[
                "CLUSTER",
                "RESOURCE",
                "SCOPE",
                "STATE",
                "OBJECTS",
                "MEMORY",
                "ENCODING",
                "LAST EVENT",
                "LISTS",
                "QUEUED",
                "RESTARTS",
                "WHY",
            ],
            &[4, 5, 7, 8, 9, 10],
            &[8, 9, 10, 6, 7, 5, 2, 4],
        ),
        Subject::Sinks => (
            &["SINK", "STATE", "PENDING", "DELIVERED", "RETRIES", "DEAD LETTERS", "LAST DELIVERY", "WHY"],
            &[2, 3, 4, 5, 6],
            &[4, 3, 6, 2, 5],
        ),
    };
    Shape { header, numbers, spare }
}

pub(super) fn rows(subject: Subject, status: &Value) -> Vec<Row> {
    match subject {
        Subject::Status => troubles(status),
        Subject::Clusters => list(status, "clusters").iter().map(cluster).collect(),
        Subject::Resources => informers(status).into_iter().map(|(name, informer)| resource(name, informer)).collect(),
        Subject::Sinks => list(status, "sinks").iter().map(sink).collect(),
    }
}

/// Groups the resources of a cluster that are read as JSON although protobuf was requested, by the reason for that.
fn fallbacks(cluster: &Value) -> BTreeMap<String, Vec<&str>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for informer in list(cluster, "informers") {
        let encoding = &informer["encoding"];
        let why = match text(encoding, "reason") {
            "refused" => "the server answers in JSON".to_owned(),
            "faulty" => {
                format!(
                    "faulty protobuf, tried again at {}: {}",
                    text(encoding, "until"),
                    line(text(encoding, "message"))
                )
            }
            "schema" => line(text(encoding, "message")),
            _ => continue,
        };
        let resources = found.entry(why).or_default();
        // A resource may have an informer per namespace; it is listed once.
        if !resources.contains(&text(informer, "resource")) {
            resources.push(text(informer, "resource"));
        }
    }
    found
}

/// Returns notes on clusters: encodings that do not work, resources beyond a limit, and missing discovery watches.
pub(super) fn notes(status: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for cluster in list(status, "clusters") {
        let name = text(cluster, "name");
        let discovery = &cluster["discovery"];
        // An unreachable cluster has its own row.
        if text(discovery, "state") == "polling" && text(cluster, "state") != "unreachable" {
            let why = text(discovery, "lastError");
            notes.push(format!("{name}: added and removed resource types are noticed within a minute: {why}"));
        }
        notes.extend(fallbacks(cluster).into_iter().map(|(why, resources)| {
            format!("{name}: read as JSON instead of protobuf: {}: {why}", first_names(&resources))
        }));
        for pattern in list(cluster, "patterns") {
            let names = |key: &str| list(pattern, key).iter().filter_map(Value::as_str).collect::<Vec<_>>();
            let (entry, left_out) = (text(pattern, "name"), names("leftOut"));
            if !left_out.is_empty() {
                let watched = names("watched").len();
                notes.push(format!(
                    "{name}: {entry} watches {watched} resources, its limit; left out: {}",
                    first_names(&left_out)
                ));
            }
        }
    }
    notes
}

fn sink_state(sink: &Value) -> &'static str {
    match sink_concern(sink).0 {
        0 => "disabled",
        1 => "journal in trouble",
        2 => "suspended",
        3 => "stuck",
        4 => "retrying",
        _ if sink["standby"] == true => "standby",
        _ => "delivering",
    }
}

/// Returns a row for the problem of a cluster source; `None` if it has none.
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

/// Returns the problems of the hub itself: fleet, port, state directory, configuration.
fn own(status: &Value) -> Vec<Row> {
    let (configuration, state_dir) = (&status["configuration"], &status["stateDir"]);
    let waiting: Vec<_> = list(configuration, "needsRestart").iter().filter_map(Value::as_str).collect();
    let waiting = (!waiting.is_empty()).then(|| waiting.join(", "));
    let certificate = Some(why::expiry(status)).filter(|why| !why.is_empty());
    let of_state_dir = state_dir["lastError"]
        .as_str()
        .map(line)
        .map(|error| if error.is_empty() { "cannot write caches to its disk".to_owned() } else { error });
    let troubles = [
        ("fleet", "not connected", fleet::not_connected(status), Concern(1)),
        ("fleet", "log behind", fleet::behind(status), Concern(4)),
        ("port", "certificate expires", certificate, expiry_concern(status)),
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

fn with_reason(state: &str, why: &str) -> String {
    if why.is_empty() { state.to_owned() } else { format!("{state}: {}", line(why)) }
}

fn cluster(cluster: &Value) -> Row {
    let informers = list(cluster, "informers");
    let watching = informers.iter().filter(|informer| text(informer, "state") == "watching").count();
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
            sum(informers, "objects").map(grouped).unwrap_or_default(),
            sum(informers, "bytes").map(bytes).unwrap_or_default(),
            connections(&cluster["traffic"]),
            cluster["source"].as_str().unwrap_or("table").to_owned(),
            labels.join(","),
            why,
        ],
        stated: 1,
        concern: concern(cluster_concern(cluster)),
    }
}

/// Returns the connections of a cluster, such as `2 HTTP/2, 51 requests`; empty before the first connection.
fn connections(traffic: &Value) -> String {
    match text(traffic, "protocol") {
        "" => String::new(),
        protocol => {
            let [open, requests] = ["connections", "requests"].map(|key| grouped(number(traffic, key)));
            format!("{open} {protocol}, {requests} requests")
        }
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
    let counts = ["lists", "queued", "restarts"].map(|key| cell(informer, key, grouped));
    let mut cells = vec![cluster.to_owned(), name.to_owned(), scope.to_owned(), shown];
    cells.extend([cell(informer, "objects", grouped), cell(informer, "bytes", bytes)]);
    cells.extend([text(&informer["encoding"], "used").to_owned(), age]);
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
    // Both count unacknowledged events, but are updated at different times; the higher one is shown.
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

/// Returns all problems as rows of one table, worst first.
fn troubles(status: &Value) -> Vec<Row> {
    let problem = |kind: &'static str, row: Row, why: String| Row {
        cells: vec![kind.to_owned(), row.name.clone(), row.cells.get(row.stated).cloned().unwrap_or_default(), why],
        name: format!("{kind} {}", row.name),
        stated: 2,
        ..row
    };
    let why = |row: &Row| row.cells.last().cloned().unwrap_or_default();
    let is_own = |cluster: &&Value| {
        let is_well = why::cluster_state(cluster) == "connected" && !why::has_error(cluster);
        !is_well || !why::expiry(cluster).is_empty()
    };
    let clusters = list(status, "clusters").iter().filter(is_own).map(cluster).map(|row| ("cluster", row));
    // A problem of a whole cluster is shown once, not for each of its resources.
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
    all.into_iter().map(|(kind, row)| (kind, why(&row), row)).map(|(kind, why, row)| problem(kind, row, why)).collect()
}

/// Returns the totals in a few lines.
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
    let ready = ready(status);
    let of_clusters = tally(clusters.iter().map(why::cluster_state).collect());
    let of_informers = tally(informers.iter().map(|(_, informer)| text(informer, "state")).collect());
    let of_sinks = tally(sinks.iter().map(sink_state).collect());
    let mut lines = vec![
        format!("ready      {ready}"),
        format!("clusters   {}{of_clusters}", clusters.len()),
        format!("informers  {}{of_informers}", informers.len()),
        format!("objects    {}", objects(&informers)),
    ];
    // A reader without rights to everything does not see the sinks.
    if !status["sinks"].is_null() {
        lines.push(format!("sinks      {}{of_sinks}", sinks.len()));
    }
    if let Some(line) = fleet::total(status) {
        lines.insert(1, line);
    }
    lines.extend(replica(&status["ha"]));
    let sources = list(status, "clusterSources");
    if !sources.is_empty() {
        let of_sources = tally(sources.iter().map(|source| text(source, "state")).collect());
        lines.insert(1, format!("sources    {}{of_sources}", sources.len()));
    }
    if let Some(watches) = status["readApi"]["watches"].as_object() {
        let open: u64 = watches.values().filter_map(Value::as_u64).sum();
        let requests = number(&status["readApi"], "requestsInProgress");
        lines.push(format!("readers    {open} watches, {requests} requests in progress"));
    }
    lines.extend(readers::lines(status).into_iter().map(|reader| format!("           {}", printable(&reader))));
    if let Some(limit) = status["memory"]["limit"].as_u64() {
        let resident = bytes(number(&status["memory"], "resident"));
        lines.push(format!("memory     {resident} of {}", bytes(limit)));
    }
    lines.join("\n")
}

/// Returns the number of objects and their memory as text. Some informers have no counts, if the client of the hub may
/// read their resource only in some namespaces. The text then says how many informers are counted.
fn objects(informers: &[(&str, &Value)]) -> String {
    const RIGHTS: &str = "counts need the right to read all namespaces";
    let all = || informers.iter().map(|(_, informer)| *informer);
    let counted = all().filter(|informer| informer["objects"].is_u64()).count();
    match (sum(all(), "objects"), sum(all(), "bytes")) {
        (Some(objects), memory) => {
            let total = format!("{} in {}", grouped(objects), bytes(memory.unwrap_or_default()));
            let others = format!(" of {counted} of {} informers; {RIGHTS}", informers.len());
            if counted == informers.len() { total } else { total + &others }
        }
        (None, _) => format!("unknown: {RIGHTS}"),
    }
}

/// Returns the line about this replica of the hub: its role in the leader election, the sinks that it delivers, and the
/// holder of the Lease if that is another replica. `None` without leader election.
fn replica(ha: &Value) -> Option<String> {
    let role = ha["role"].as_str()?;
    let holder = ha["holder"].as_str().filter(|_| role != "leader");
    let holder = holder.map(|holder| format!("; the Lease is held by {}", printable(holder))).unwrap_or_default();
    let error = ha["error"].as_str().map(|error| format!("; {}", printable(error))).unwrap_or_default();
    let sinks: Vec<_> = list(ha, "sinks").iter().filter_map(Value::as_str).map(printable).collect();
    let sinks = if sinks.is_empty() { String::new() } else { format!(" of {}", sinks.join(", ")) };
    Some(format!("replica    {}{sinks}{holder}{error}", printable(role)))
}

/// Returns `yes`, `no` or `unknown` for the hub's readiness. A `yes` also says what is not watched, because a hub is
/// ready in spite of unreachable clusters and forbidden or absent resources.
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

#[cfg(test)]
mod tests {
    use super::super::select::{Selection, tests::status};
    use super::*;

    #[test]
    fn a_status_shows_totals_and_problems() {
        let status = Selection::default().of(&status()).unwrap();
        let text = super::super::screen::text(Subject::Status, &status, false);
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
        assert_eq!(names, ["cluster c", "resource a/deployments.apps", "sink chat"], "without the resources of c");
    }

    #[test]
    fn encodings_and_connections_are_shown_and_fallbacks_explained() {
        let mut status = status();
        let faulty = serde_json::json!({
            "used": "json", "reason": "faulty", "message": "no object\u{1b}", "until": "2026-01-01T00:10:00Z",
        });
        let cluster = &mut status["clusters"][0];
        cluster["traffic"] = serde_json::json!({ "protocol": "HTTP/2", "connections": 2, "requests": 1051 });
        cluster["informers"][0]["encoding"] = faulty.clone();
        let twin = cluster["informers"][0].clone();
        cluster["informers"].as_array_mut().unwrap().push(twin);
        cluster["informers"][1]["encoding"] = serde_json::json!({ "used": "json", "reason": "configured" });
        status["clusters"][1]["informers"][0]["encoding"] = serde_json::json!({ "used": "protobuf" });
        let expected = [
            "a: read as JSON instead of protobuf: pods: faulty protobuf, tried again at 2026-01-01T00:10:00Z: no object",
        ];
        assert_eq!(notes(&status).iter().map(|note| note.trim_end()).collect::<Vec<_>>(), expected);
        let cells = |subject: Subject, header: &str| {
            let at = shape(subject).header.iter().position(|name| *name == header).unwrap();
            rows(subject, &status).into_iter().map(|row| row.cells[at].clone()).collect::<Vec<_>>()
        };
        assert_eq!(cells(Subject::Clusters, "CONNECTIONS"), ["2 HTTP/2, 1,051 requests", "", ""]);
        assert_eq!(cells(Subject::Resources, "ENCODING"), ["json", "", "json", "json", "protobuf"]);
    }

    #[test]
    fn expiring_credentials_are_a_problem_of_their_owner() {
        let mut status = status();
        let one = |state: &str| {
            serde_json::json!([
                { "kind": "ca-certificate", "place": "ca", "expires": "2036-01-01T00:00:00Z", "state": "valid" },
                { "kind": "token-file", "place": "/t\u{1b}[31m", "expires": "2026-01-01T00:00:00Z", "state": state },
            ])
        };
        assert!(rows(Subject::Clusters, &status).iter().all(|row| !row.cells[7].contains("token")));
        for (state, verb, is_bad) in
            [("soon", "expires", false), ("imminent", "expires", true), ("expired", "expired", true)]
        {
            status["clusters"][1]["credentials"] = one(state);
            let trouble = rows(Subject::Status, &status).into_iter().find(|row| row.name == "cluster b").unwrap();
            let why = format!("token file /t {verb} at 2026-01-01T00:00:00Z");
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
        for row in ["hub|port|certificate expires", "source|argo|current"] {
            assert!(names.contains(&row.to_owned()), "{row} is missing in {names:?}");
        }
        let sinks = rows(Subject::Sinks, &status);
        assert!(sinks.iter().any(|row| row.cells.last().unwrap().contains("token file")), "{sinks:?}");
    }

    #[test]
    fn a_sink_with_refused_events_is_a_problem_with_its_reason() {
        let mut status = status();
        status["sinks"] = serde_json::json!([{
            "name": "chat", "delivered": 7, "pendingEvents": 1200, "refusedEvents": 1200, "lastError": null,
            "refusal": "receiver answered 400 Bad Request",
        }]);
        let text = super::super::screen::text(Subject::Sinks, &status, false);
        assert!(text.contains("1,200 events wait after a refusal: receiver answered 400 Bad Request"), "{text}");
        assert!(text.contains("retrying"), "{text}");
        let names: Vec<_> = rows(Subject::Status, &status).into_iter().map(|row| row.name).collect();
        assert!(names.contains(&"sink chat".to_owned()), "{names:?}");
    }

    #[test]
    fn counts_that_a_reader_may_not_see_are_not_zero() {
        let informer = |resource: &str| serde_json::json!({ "resource": resource, "scope": "*", "state": "watching" });
        let mut status = serde_json::json!({
            "ready": true, "clusters": [{ "name": "a", "state": "connected", "informers": [informer("pods")] }],
        });
        let line = |status: &Value| summary(status).lines().find(|line| line.starts_with("objects")).map(str::to_owned);
        let unknown = "objects    unknown: counts need the right to read all namespaces";
        assert_eq!((line(&status).as_deref(), summary(&status).contains("sinks")), (Some(unknown), false));
        assert_eq!(rows(Subject::Resources, &status)[0].cells[4..6], ["", ""]);
        assert_eq!(rows(Subject::Clusters, &status)[0].cells[3..5], ["", ""]);
        let mut nodes = informer("nodes");
        (nodes["objects"], nodes["bytes"]) = (7.into(), 2048.into());
        status["clusters"][0]["informers"] = serde_json::json!([informer("pods"), nodes]);
        let some = "objects    7 in 2.0 KiB of 1 of 2 informers; counts need the right to read all namespaces";
        assert_eq!(line(&status).as_deref(), Some(some));
    }

    #[test]
    fn limits_and_missing_discovery_watches_are_notes_below_the_table() {
        let mut status = status();
        status["clusters"][0]["discovery"] = serde_json::json!({ "state": "polling", "lastError": "403" });
        status["clusters"][1]["patterns"] = serde_json::json!([
            { "name": "ours", "pattern": "*.x", "watched": ["a.x", "b.x"], "leftOut": ["c.x"] },
            { "name": "all", "pattern": "*", "watched": ["pods"] },
        ]);
        let text = super::super::screen::text(Subject::Resources, &status, false);
        let last: Vec<_> = text.lines().rev().take(3).collect();
        assert_eq!(last[0], "b: ours watches 2 resources, its limit; left out: c.x");
        assert_eq!(last[1], "a: added and removed resource types are noticed within a minute: 403");
        assert_eq!(last[2], "");
        status["clusters"][0]["state"] = "unreachable".into();
        assert!(
            !super::super::screen::text(Subject::Resources, &status, false).contains("noticed within"),
            "the cluster has a row of its own"
        );
        assert!(!super::super::screen::text(Subject::Sinks, &status, false).contains("c.x"));
    }

    #[test]
    fn problems_of_the_hub_itself_are_shown() {
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
    fn sources_with_problems_have_rows_and_all_sources_are_counted() {
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
        assert_eq!((clusters[0].cells[6].as_str(), clusters[1].cells[6].as_str()), ("edge", "table"));
    }

    #[test]
    fn rows_have_a_cell_for_each_column_and_colours_are_optional() {
        let status = status();
        for subject in [Subject::Status, Subject::Clusters, Subject::Resources, Subject::Sinks] {
            let Shape { header, numbers, spare } = shape(subject);
            assert!(
                rows(subject, &status).iter().all(|row| row.cells.len() == header.len() && row.stated < header.len())
            );
            assert!(numbers.iter().all(|at| *at < header.len()));
            let why = header.len() - 1;
            assert!(spare.iter().all(|at| *at != why && *at < why), "the explanation is never left out");
            assert!(!super::super::screen::text(subject, &status, false).contains('\x1b'));
            assert!(super::super::screen::text(subject, &status, true).contains('\x1b'), "{subject:?}");
        }
    }

    #[test]
    fn numbers_are_grouped_and_texts_printable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(line("no\x1b[31m such\nhost"), "no such");
    }
}
