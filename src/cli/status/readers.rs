//! Limits of readers (users and programs that read from the hub), and how much of them is in use, as text.

use serde_json::Value;

use super::values::{list, text};
use crate::cli::print::bytes;

/// Maximum number of readers that are listed.
const MAX_ROWS: usize = 20;

/// Returns a line for each reader that has limits or work in progress, such as `dashboard: 1 of 8 requests, 2 watches`.
pub(super) fn lines(status: &Value) -> Vec<String> {
    let all: Vec<_> = list(status, "readers").iter().filter_map(line).collect();
    let more = all.len().saturating_sub(MAX_ROWS);
    let mut shown: Vec<_> = all.into_iter().take(MAX_ROWS).collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown
}

fn line(reader: &Value) -> Option<String> {
    let (limits, own) = (&reader["limits"], &reader["inUse"]);
    let mut parts = Vec::new();
    for kind in ["requests", "scans", "watches"] {
        match (own[kind].as_u64(), limits[kind].as_u64()) {
            (Some(own), Some(limit)) => parts.push(format!("{own} of {limit} {kind}")),
            (None, Some(limit)) => parts.push(format!("{limit} {kind} per user")),
            (Some(own), None) if own > 0 => parts.push(format!("{own} {kind}")),
            _ => {}
        }
    }
    if let Some(limit) = limits["bytesPerSecond"].as_u64() {
        let delay = reader["delaySeconds"].as_f64().map(|delay| format!(" (delayed by {delay:.1} s)"));
        parts.push(format!("{} per second{}", bytes(limit), delay.unwrap_or_default()));
    }
    let refused: u64 =
        reader["refused"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
    if refused > 0 {
        parts.push(format!("{refused} refused"));
    }
    (!parts.is_empty()).then(|| format!("{}: {}", text(reader, "name"), parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readers_with_limits_or_work_have_a_line() {
        let status = json!({ "readers": [
            {
                "name": "dashboard",
                "limits": { "requests": 8, "watches": 100, "bytesPerSecond": 10 << 20 },
                "inUse": { "requests": 1, "scans": 1, "watches": 2 },
                "delaySeconds": 1.25,
                "refused": { "requests": 3, "bytesPerSecond": 2 },
            },
            { "name": "sre", "limits": { "scans": 2 } },
            { "name": "idle", "limits": {}, "inUse": { "requests": 0, "scans": 0, "watches": 0 } },
            { "name": "jane", "inUse": { "requests": 0, "scans": 0, "watches": 1 }, "isUser": true },
        ] });
        assert_eq!(
            lines(&status),
            [
                "dashboard: 1 of 8 requests, 1 scans, 2 of 100 watches, 10 MiB per second (delayed by 1.2 s), 5 refused",
                "sre: 2 scans per user",
                "jane: 1 watches",
            ]
        );
        let many: Vec<_> = (0..30).map(|at| json!({ "name": at.to_string(), "limits": { "scans": 1 } })).collect();
        let lines = lines(&json!({ "readers": many }));
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (MAX_ROWS + 1, "and 10 more"));
    }
}
