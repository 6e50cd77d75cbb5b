//! Reason for each problem in a status document. If the hub reports no error for a problem, its state is explained
//! instead.

use serde_json::Value;

use super::values::{informer_name, line, list, number, text};
use crate::cli::print::grouped;

/// Maximum number of shown mistakes of a refused configuration; further ones are only counted.
const MAX_MISTAKES: usize = 10;

/// Returns the first line of the member `lastError`; `None` if it is missing or blank.
fn error(value: &Value) -> Option<String> {
    Some(line(text(value, "lastError"))).filter(|error| !error.is_empty())
}

pub(super) fn has_error(value: &Value) -> bool {
    error(value).is_some()
}

fn or<'t>(given: Option<String>, explanation: impl Into<std::borrow::Cow<'t, str>>) -> String {
    given.unwrap_or_else(|| explanation.into().into_owned())
}

/// Lists the credentials that have expired or expire soon; empty if there are none. Shows the time of expiry, not the
/// remaining time, because `--watch` prints every change of the text.
pub(super) fn expiry(owner: &Value) -> String {
    let due = |one: &Value| {
        let (kind, place, expires) = (text(one, "kind").replace('-', " "), text(one, "place"), text(one, "expires"));
        match text(one, "state") {
            "expired" => Some(format!("{kind} {place} expired at {expires}")),
            "imminent" | "soon" => Some(format!("{kind} {place} expires at {expires}")),
            _ => None,
        }
    };
    line(&list(owner, "credentials").iter().filter_map(due).collect::<Vec<_>>().join("; "))
}

/// Returns whether a connected cluster forbids the hub to watch anything. At least one of its informers is then
/// forbidden, and the rest are forbidden, absent, stopped or paused.
pub(super) fn is_forbidden(cluster: &Value) -> bool {
    let states = || list(cluster, "informers").iter().map(|informer| text(informer, "state"));
    text(cluster, "state") == "connected"
        && states().any(|state| state == "forbidden")
        && states().all(|state| matches!(state, "forbidden" | "absent" | "stopped" | "paused"))
}

/// Returns the state of a cluster to show: `forbidden` if the cluster forbids the hub to watch anything, else the state
/// in the status document.
pub(super) fn cluster_state(cluster: &Value) -> &str {
    if is_forbidden(cluster) { "forbidden" } else { text(cluster, "state") }
}

/// Returns the reason for the problem of a cluster; empty if there is none.
pub(super) fn of_cluster(cluster: &Value) -> String {
    let own = error(cluster);
    let informers = list(cluster, "informers");
    let in_state = |state: &str| informers.iter().find(|informer| text(informer, "state") == state);
    match cluster_state(cluster) {
        "forbidden" => {
            let count = informers.iter().filter(|informer| text(informer, "state") == "forbidden").count();
            let all = if count == 1 { "its informer is".to_owned() } else { format!("all {count} informers are") };
            let cause = own.or_else(|| in_state("forbidden").map(of_informer)).unwrap_or_default();
            format!("{all} forbidden: {cause}")
        }
        "degraded" => or(own, in_state("degraded").map_or_else(|| "an informer failed too often".to_owned(), named)),
        "unreachable" => or(own, "it does not answer"),
        "connecting" => or(own, "it has not answered yet"),
        "connected" => {
            let worst = informers.iter().find(|informer| !of_informer(informer).is_empty());
            let ends = Some(expiry(cluster)).filter(|ends| !ends.is_empty());
            own.or(ends).or_else(|| worst.map(named)).unwrap_or_default()
        }
        other => or(own, format!("this version does not know the state {other:?}")),
    }
}

/// Returns name and state of an informer, with the reason of its problem.
fn named(informer: &Value) -> String {
    format!("{} is {}: {}", informer_name(informer), text(informer, "state"), of_informer(informer))
}

/// Returns the reason for the problem of an informer; empty if there is none.
pub(super) fn of_informer(informer: &Value) -> String {
    let explanation = match text(informer, "state") {
        "watching" => "",
        "degraded" => "it failed too often and is retried at long intervals; see the log",
        "forbidden" => "the cluster answered 401 or 403",
        "absent" => "the cluster does not have the resource",
        "stale" => "its watch is not open",
        "paused" => match text(&informer["memory"], "reason") {
            "" => "the memory limit has no room for it",
            reason => reason,
        },
        "pending" => "it waits for its cluster",
        "listing" => "its first list is under way",
        "stopped" => "it was stopped",
        other => return or(error(informer), format!("this version does not know the state {other:?}")),
    };
    or(error(informer), explanation)
}

/// Returns the number of dead letters that a sink stores. If the status document does not have this number, returns the
/// one in its member `journal`, or else the counter of dead-lettered events.
pub(super) fn letters(sink: &Value) -> u64 {
    let now = sink["deadLetters"].as_u64().or_else(|| sink["journal"]["deadLetters"].as_u64());
    now.unwrap_or_else(|| number(sink, "deadLettered"))
}

/// Whether an event of a sink waits for another attempt.
pub(super) fn is_retrying(sink: &Value) -> bool {
    if number(sink, "refusedEvents") > 0 {
        return true;
    }
    match sink["retrying"].as_u64() {
        Some(events) => events > 0,
        None => error(sink).is_some() && number(sink, "pendingEvents") > 0,
    }
}

/// Returns whether an active sink has pending events and an error, but neither retries nor dead letters.
pub(super) fn is_stuck(sink: &Value) -> bool {
    sink["standby"] != true
        && error(sink).is_some()
        && !is_retrying(sink)
        && letters(sink) == 0
        && number(sink, "pendingEvents") > 0
}

/// Returns the reason for the problem of a sink; empty if there is none.
pub(super) fn of_sink(sink: &Value) -> String {
    let is = |key: &str| sink[key].as_bool().unwrap_or_default();
    let trouble = Some(&sink["journal"]["trouble"]).filter(|trouble| trouble.is_string());
    let trouble = trouble.map(|trouble| line(trouble.as_str().unwrap_or_default()));
    match (trouble, letters(sink)) {
        _ if is("disabled") => or(error(sink), "its receiver accepts no more events"),
        (Some(trouble), _) if trouble.is_empty() => "its journal accepts no events".to_owned(),
        (Some(trouble), _) => trouble,
        _ if is("circuitOpen") => or(error(sink), "its receiver keeps failing"),
        // A delivery of another object clears the last error while refused events still wait.
        _ if number(sink, "refusedEvents") > 0 => {
            let refused = grouped(number(sink, "refusedEvents"));
            let refusal = Some(line(text(sink, "refusal"))).filter(|refusal| !refusal.is_empty());
            format!("{refused} events wait after a refusal: {}", or(refusal.or_else(|| error(sink)), "see the log"))
        }
        _ if is_retrying(sink) => or(error(sink), "the last attempt failed"),
        (None, 0) if is_stuck(sink) => error(sink).unwrap_or_default(),
        (None, 0) => expiry(sink),
        (None, letters) => {
            let count = format!("{} dead letter{}", grouped(letters), if letters == 1 { "" } else { "s" });
            let list = format!("informer-hub dead-letters list {}", text(sink, "name"));
            format!("{count}: {}", or(error(sink), list))
        }
    }
}

/// Returns the reason for the problem of a cluster source. `counts` are texts such as `2 invalid`, with the numbers of
/// objects that the hub ignores.
pub(super) fn of_source(source: &Value, counts: &[String]) -> String {
    let problems = list(source, "problems").iter().map(|it| format!("{}: {}", text(it, "object"), text(it, "problem")));
    let conflicts = list(source, "conflicts").iter();
    let conflicts =
        conflicts.map(|it| format!("{}: another cluster has the name {}", text(it, "object"), text(it, "cluster")));
    match text(source, "state") {
        "current" if counts.is_empty() => expiry(source),
        "current" => {
            let first = problems.chain(conflicts).map(|problem| line(&problem)).find(|problem| !problem.is_empty());
            let over = (number(source, "over") > 0).then(|| "it has more clusters than max_clusters allows".to_owned());
            first.or(over).or_else(|| error(source)).unwrap_or_else(|| counts.join(", "))
        }
        "waiting" => or(error(source), "it has not answered yet"),
        "forbidden" => or(error(source), "its management cluster answered 401 or 403"),
        "absent" => or(error(source), "its management cluster does not have the resource"),
        _ => or(error(source), "it cannot be read"),
    }
}

/// Returns the mistakes of a refused configuration, one text each.
fn mistakes(configuration: &Value) -> Vec<String> {
    let place = |mistake: &Value| match (text(mistake, "variable"), mistake["line"].as_u64()) {
        ("", Some(line)) => format!("{}:{line}: ", text(mistake, "file")),
        ("", None) => format!("{}: ", text(mistake, "file")),
        (variable, _) => format!("environment {variable}: "),
    };
    let key = |mistake: &Value| match text(mistake, "key") {
        "" => String::new(),
        key => format!("{key}: "),
    };
    let one = |mistake: &Value| line(&format!("{}{}{}", place(mistake), key(mistake), text(mistake, "problem")));
    list(configuration, "mistakes").iter().map(one).collect()
}

/// Returns why a configuration is refused: its only mistake, or the number of mistakes and the first one. `None` if it
/// is not refused.
pub(super) fn of_configuration(configuration: &Value) -> Option<String> {
    configuration["lastError"].as_str()?;
    let mistakes = mistakes(configuration);
    Some(match &mistakes[..] {
        [] => or(error(configuration), "it is not usable: run informer-hub check for the reason"),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{} mistakes: {first}; and {} more, see below", mistakes.len(), rest.len()),
    })
}

/// Returns all mistakes of a refused configuration except the first. If there are too many to show, the last text says
/// how to see the others.
pub(super) fn further_mistakes(configuration: &Value) -> Vec<String> {
    let mistakes = mistakes(configuration);
    let mut lines: Vec<_> = mistakes.iter().take(MAX_MISTAKES).skip(1).cloned().collect();
    if let Some(rest @ 1..) = mistakes.len().checked_sub(MAX_MISTAKES) {
        let file =
            list(configuration, "mistakes").iter().map(|mistake| text(mistake, "file")).find(|it| !it.is_empty());
        lines.push(format!("{rest} more: informer-hub check -c {}", file.unwrap_or("FILE")));
    }
    lines
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
