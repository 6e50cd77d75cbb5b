//! Limits and present use of readers (users of the HTTP port), for the status.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use smol_str::SmolStr;

use crate::api::{Access, Limit, ReadApi, ReaderCounts, ReaderInUse, ReaderUse};
use informer_hub_access::{Identity, ReaderLimits};

/// Maximum number of users in the status, in addition to the tables `[readers.<name>]`.
const MAX_USERS: usize = 100;

/// Returns JSON rows: one for each table `[readers.<name>]` with its limits, and one for each other user with work in
/// progress.
///
/// A table with a token stands for one user, so its row also has that user's work. Users with a certificate, an OIDC
/// token or a service account have rows of their own, since several tables may apply to one user.
pub(super) fn reader_status(read: &ReadApi, access: &Access) -> Vec<Value> {
    let (mut in_use, counts, usage) = (read.in_use(), access.usage().counts(), access.usage());
    let mut rows = Vec::new();
    for table in access.tables() {
        let is_user = matches!(table.identity, Identity::Token(_));
        let own = is_user.then(|| in_use.remove(&table.name).unwrap_or_default());
        rows.push(row(&table.name, Some(table.limits), own, usage, &counts));
    }
    let others = in_use.into_iter().take(MAX_USERS);
    rows.extend(others.map(|(name, own)| {
        let mut row = row(&name, None, Some(own), usage, &BTreeMap::new());
        row["isUser"] = json!(true);
        row
    }));
    rows
}

fn row(
    name: &SmolStr,
    limits: Option<ReaderLimits>,
    own: Option<ReaderInUse>,
    usage: &ReaderUse,
    counts: &BTreeMap<SmolStr, ReaderCounts>,
) -> Value {
    let mut row = json!({ "name": name.as_str() });
    if let Some(limits) = limits {
        row["limits"] = limits_of(limits);
    }
    if let Some(own) = own {
        row["inUse"] = json!({ "requests": own.requests, "scans": own.scans, "watches": own.watches });
        let delay = usage.delay(name);
        if !delay.is_zero() {
            row["delaySeconds"] = json!(delay.as_secs_f64());
        }
    }
    if let Some(counts) = counts.get(name).filter(|counts| !counts.refused.is_empty()) {
        let refused: Map<_, _> =
            counts.refused.iter().map(|(limit, count)| (name_of(*limit).to_owned(), json!(count))).collect();
        row["refused"] = refused.into();
    }
    row
}

fn limits_of(limits: ReaderLimits) -> Value {
    let all = [
        ("requests", limits.requests),
        ("scans", limits.scans),
        ("watches", limits.watches),
        ("bytesPerSecond", limits.bytes_per_second),
    ];
    let given = all.into_iter().filter_map(|(name, limit)| Some((name.to_owned(), json!(limit?))));
    Value::Object(given.collect())
}

/// Returns the name of a limit in JSON.
fn name_of(limit: Limit) -> &'static str {
    match limit {
        Limit::BytesPerSecond => "bytesPerSecond",
        Limit::AllRequests => "allRequests",
        Limit::AllWatches => "allWatches",
        other => other.as_str(),
    }
}
