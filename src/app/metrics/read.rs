//! Metrics of the Kubernetes read API.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::actors::FleetView;
use crate::api::{Access, ReadApi, ReadCounts};
use informer_hub_access::ReviewMeter;
use informer_hub_telemetry::metrics::{Id, LabelSet, Snapshot};

/// Writes the counters of the read API, and the size of the caches' windows of recent changes.
pub(super) fn put(out: &mut Snapshot, counts: &ReadCounts, fleet: Option<&FleetView>) {
    for (verb, resource, count) in &counts.requests {
        let set = out.labels(&[("verb", verb), ("resource", resource)]);
        out.count(Id::ReadRequests, set, *count);
    }
    for (verb, code, count) in &counts.responses {
        let set = out.labels(&[("verb", verb), ("code", &code.to_string())]);
        out.count(Id::ReadResponses, set, *count);
    }
    for (client, code, count) in &counts.client_responses {
        let set = out.labels(&[("client", client), ("code", &code.to_string())]);
        out.count(Id::ReadClientResponses, set, *count);
    }
    for (client, count) in &counts.client_watchers {
        let set = out.labels(&[("client", client)]);
        out.count(Id::ReadClientWatchers, set, *count);
    }
    for (verb, times) in &counts.durations {
        out.histogram(Id::ReadDuration, LabelSet::NONE, verb, times.clone());
    }
    out.histogram(Id::ReadQueue, LabelSet::NONE, "", counts.queued.clone());
    out.count(Id::ReadInProgress, LabelSet::NONE, counts.in_progress as u64);
    for (resource, count) in &counts.watchers {
        let set = out.labels(&[("resource", resource)]);
        out.count(Id::ReadWatchers, set, *count);
    }
    out.count(Id::ReadEvents, LabelSet::NONE, counts.events);
    out.count(Id::ReadBytes, LabelSet::NONE, counts.bytes);
    let mut windows = BTreeMap::<_, u64>::new();
    for cache in fleet.map(|fleet| fleet.caches().readers()).unwrap_or_default() {
        *windows.entry(cache.resource.gvr.to_string()).or_default() += cache.history.bytes() as u64;
    }
    for (resource, bytes) in windows {
        let set = out.labels(&[("resource", &resource)]);
        out.count(Id::ReadWindow, set, bytes);
    }
}

/// Writes the counters of the HTTP port: denied and refused requests, bandwidth, access reviews and token reviews.
pub(super) fn put_port(out: &mut Snapshot, access: &Access, read: Option<&Arc<ReadApi>>) {
    for (reason, count) in access.denied() {
        let set = out.labels(&[("reason", reason)]);
        out.count(Id::HttpDenied, set, count);
    }
    for (reader, counts) in access.usage().counts() {
        let set = out.labels(&[("reader", &reader)]);
        for (limit, count) in counts.refused {
            let set = out.labels(&[("reader", &reader), ("limit", limit.as_str())]);
            out.count(Id::ReaderRefused, set, count);
        }
        out.count(Id::ReaderBytes, set, counts.sent);
        out.put(Id::ReaderDelay, set, counts.delayed.as_secs_f64());
    }
    put_reviews(out, "token", access.token_reviews());
    if let Some(reviews) = read.and_then(|read| read.access_reviews()) {
        put_reviews(out, "access", reviews);
    }
}

fn put_reviews(out: &mut Snapshot, kind: &str, reviews: &ReviewMeter) {
    let set = out.labels(&[("kind", kind)]);
    let counts = reviews.counts();
    for (outcome, count) in [("allowed", counts.allowed), ("denied", counts.denied), ("failed", counts.failed)] {
        out.count_word(Id::Reviews, set, outcome, count);
    }
    out.count(Id::ReviewsCached, set, counts.cached);
    out.histogram(Id::ReviewDuration, set, "", reviews.durations());
}
