//! Metrics of the Kubernetes read API.

use std::collections::BTreeMap;

use crate::actors::FleetView;
use crate::api::ReadCounts;
use informer_hub_telemetry::metrics::{Id, LabelSet, Snapshot};

/// Writes the counters of the read API, and the windows of the caches.
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
