//! Differences between two answers.

use std::time::Duration;

use serde_json::Value;

use super::answer::{Answer, Body};

/// Number of differences that are reported of one body.
const MOST: usize = 12;

/// A difference between the answers to one request.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Difference {
    /// `status`, `content-type` or another part of the answer, or the JSON pointer of a value in the body.
    pub(super) at: String,
    pub(super) kube: String,
    pub(super) hub: String,
}

/// Returns the differences between the apiserver's answer and the hub's. Both were given within `time`, so that the ages
/// of objects in them may differ by that.
pub(super) fn differences(kube: &Answer, hub: &Answer, time: Duration) -> Vec<Difference> {
    let mut found = Vec::new();
    // Rounded, plus a second: the hub cuts fractions of seconds of timestamps.
    let tolerance = (time + Duration::from_millis(1500)).as_secs();
    let parts = [
        ("status", kube.status.to_string(), hub.status.to_string()),
        ("content-type", kube.content_type.clone(), hub.content_type.clone()),
        ("retry-after", kube.retry_after.clone(), hub.retry_after.clone()),
        ("warning", kube.warnings.join(", "), hub.warnings.join(", ")),
        ("pretty", kube.is_pretty.to_string(), hub.is_pretty.to_string()),
    ];
    let differ = parts.into_iter().filter(|(_, kube, hub)| kube != hub);
    found.extend(differ.map(|(at, kube, hub)| Difference { at: at.to_owned(), kube, hub }));
    match (&kube.body, &hub.body) {
        (Body::Document(kube), Body::Document(hub)) => values("", kube, hub, tolerance, &mut found),
        (Body::Events(kube), Body::Events(hub)) => arrays("", kube, hub, tolerance, &mut found),
        (kube, hub) if kube == hub => {}
        (kube, hub) => {
            found.push(Difference {
                at: "body".to_owned(),
                kube: shown(&format!("{kube:?}")),
                hub: shown(&format!("{hub:?}")),
            });
        }
    }
    found
}

fn values(at: &str, kube: &Value, hub: &Value, tolerance: u64, found: &mut Vec<Difference>) {
    if at.contains("/cells/") && are_close_ages(kube, hub, tolerance) {
        return;
    }
    if kube == hub || found.len() >= MOST {
        return;
    }
    match (kube, hub) {
        (Value::Object(kube), Value::Object(hub)) => {
            let mut keys: Vec<_> = kube.keys().chain(hub.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                match (kube.get(key), hub.get(key)) {
                    (Some(kube), Some(hub)) => values(&at, kube, hub, tolerance, found),
                    (kube, hub) => found.push(difference(at, kube, hub)),
                }
            }
        }
        (Value::Array(kube), Value::Array(hub)) => arrays(at, kube, hub, tolerance, found),
        _ => found.push(difference(at.to_owned(), Some(kube), Some(hub))),
    }
}

/// Returns whether both are ages that differ by at most `tolerance` seconds.
fn are_close_ages(kube: &Value, hub: &Value, tolerance: u64) -> bool {
    let age = |value: &Value| value.as_str().and_then(seconds);
    age(kube).zip(age(hub)).is_some_and(|(kube, hub)| kube.abs_diff(hub) <= tolerance)
}

/// Returns the seconds of an age such as `5m3s`; `None` for other texts and for ages in coarser units.
fn seconds(text: &str) -> Option<u64> {
    let text = text.strip_suffix('s').or_else(|| text.strip_suffix('m').map(|_| text))?;
    let (minutes, rest) = text.split_once('m').unwrap_or(("0", text));
    let minutes: u64 = minutes.parse().ok()?;
    let rest: u64 = if rest.is_empty() { 0 } else { rest.parse().ok()? };
    Some(minutes * 60 + rest)
}

/// Compares arrays by position. Of arrays of different lengths, only the first different elements are compared.
fn arrays(at: &str, kube: &[Value], hub: &[Value], tolerance: u64, found: &mut Vec<Difference>) {
    if kube.len() != hub.len() {
        let first = kube.iter().zip(hub).take_while(|(kube, hub)| kube == hub).count();
        found.push(difference(format!("{at}/length"), Some(&kube.len().into()), Some(&hub.len().into())));
        found.push(difference(format!("{at}/{first}"), kube.get(first), hub.get(first)));
        return;
    }
    for (index, (kube, hub)) in kube.iter().zip(hub).enumerate() {
        values(&format!("{at}/{index}"), kube, hub, tolerance, found);
    }
}

fn difference(at: String, kube: Option<&Value>, hub: Option<&Value>) -> Difference {
    let text = |value: Option<&Value>| value.map_or("(absent)".to_owned(), |value| shown(&value.to_string()));
    Difference { at, kube: text(kube), hub: text(hub) }
}

/// Cuts a long text.
fn shown(text: &str) -> String {
    let end = text.char_indices().nth(600).map_or(text.len(), |(end, _)| end);
    text[..end].to_owned()
}
