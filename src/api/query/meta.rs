//! Metadata of an answer: coverage, plan, cost.

use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::api::kubernetes::{WITHOUT_BODIES, Warnings};
use crate::cache::Answer;
use informer_hub_access::Visibility;
use informer_hub_types::{ApiResource, Freshness};

/// Returns the members of a JSON answer that precede its items, such as `coverage`, `plan` and `cost`.
pub(super) fn members(
    answer: &Answer,
    (resource, visibility): (&ApiResource, &Visibility),
    explain: bool,
) -> Map<String, Value> {
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put("resource", json!(resource.gvr.resource.as_str()));
    put("apiVersion", json!(resource.gvr.api_version()));
    put("kind", json!(resource.kind.as_str()));
    put("complete", json!(answer.is_complete() && visibility.unanswered().next().is_none()));
    put("coverage", coverage(answer, visibility));
    put("plan", json!(answer.plan.to_string()));
    if explain {
        let steps: Vec<_> = answer.plan.steps.iter().map(ToString::to_string).collect();
        put("steps", json!(steps));
        put("candidates", json!(answer.plan.candidates));
        return members;
    }
    let mut cost = json!({ "examined": answer.examined, "read": answer.read });
    for (name, count) in [("unreadable", answer.unreadable), ("withoutBody", answer.unkept)] {
        if count > 0 {
            cost[name] = json!(count);
        }
    }
    put("cost", cost);
    if !answer.unmatched.is_empty() {
        let paths: Vec<_> = answer.unmatched.iter().map(ToString::to_string).collect();
        put("pathsWithoutValues", json!(paths));
    }
    put("more", json!(answer.more));
    if let Some(token) = &answer.next {
        put("continue", json!(token.as_str()));
    }
    members
}

/// Returns the number of clusters, and how current and complete the objects of each are.
fn coverage(answer: &Answer, visibility: &Visibility) -> Value {
    let (mut synced, mut stale, mut missing, mut bodiless) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut partial = Vec::new();
    for part in &answer.coverage {
        match &part.freshness {
            Freshness::Synced => synced.push(&part.cluster),
            Freshness::StaleSince { since } => stale.push(json!({ "cluster": part.cluster, "since": since })),
            Freshness::Missing => missing.push(&part.cluster),
        }
        if !part.memory.keeps_bodies() {
            bodiless.push(&part.cluster);
        }
        if let Some(kept) = &part.part {
            partial.push(json!({ "cluster": part.cluster, "part": kept }));
        }
    }
    let mut coverage = json!({
        "clusters": answer.coverage.len(),
        "synced": synced,
        "stale": stale,
        "missing": missing,
        "withoutBodies": bodiless,
        "cachedInPart": partial,
    });
    let unknown: Vec<_> =
        visibility.unanswered().map(|(cluster, why)| json!({ "cluster": cluster, "error": &**why })).collect();
    if !unknown.is_empty() {
        coverage["rightsUnknown"] = unknown.into();
    }
    coverage
}

/// Adds `Warning` headers, e.g. for clusters whose objects may be outdated or missing.
pub(super) fn warn(answer: &Answer, visibility: &Visibility, headers: &mut HeaderMap) {
    let mut warnings = Warnings::default();
    for part in &answer.coverage {
        match &part.freshness {
            Freshness::Synced => {}
            Freshness::StaleSince { since } => warnings.stale(&part.cluster, format!("since {since}")),
            Freshness::Missing => warnings.add_missing(&part.cluster),
        }
        let bodiless = (!part.memory.keeps_bodies()).then(|| WITHOUT_BODIES.to_owned());
        let kept: Vec<_> = part.part.clone().into_iter().chain(bodiless).collect();
        if !kept.is_empty() {
            warnings.partial(&part.cluster, kept.join(", "));
        }
    }
    warnings.add_unanswered(visibility);
    warnings.warn(headers);
}
