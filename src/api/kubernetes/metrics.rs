//! Counters of the read API, read by scrapes and the status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use informer_hub_kubeapi::ResourcePath;
use informer_hub_types::{Gvr, Histogram, HistogramState, LAG_SECONDS, REQUEST_SECONDS};

/// Most resources that are counted apart: the names come from clients. The others are counted together.
const MAX_RESOURCES: usize = 256;

/// Requests, watches and bytes.
#[derive(Debug)]
pub(super) struct ReadMetrics {
    /// Requests by verb and resource.
    requests: Mutex<BTreeMap<(&'static str, String), u64>>,
    /// Responses by verb and code.
    responses: Mutex<BTreeMap<(&'static str, u16), u64>>,
    durations: Mutex<BTreeMap<&'static str, Arc<Histogram>>>,
    watchers: Mutex<BTreeMap<String, u64>>,
    queued: Histogram,
    bytes: AtomicU64,
    events: AtomicU64,
}

/// Values of the counters at one moment.
#[derive(Debug)]
pub struct ReadCounts {
    /// Requests by verb and resource.
    pub requests: Vec<(&'static str, String, u64)>,
    /// Responses by verb and code.
    pub responses: Vec<(&'static str, u16, u64)>,
    /// Times to the head of the response, by verb.
    pub durations: Vec<(&'static str, HistogramState)>,
    /// Waits for turns.
    pub queued: HistogramState,
    /// Lists and reads of one object in progress.
    pub in_progress: usize,
    /// Open watches by resource.
    pub watchers: Vec<(String, u64)>,
    /// Bytes of bodies sent.
    pub bytes: u64,
    /// Watch events sent.
    pub events: u64,
}

impl Default for ReadMetrics {
    fn default() -> Self {
        Self {
            requests: Mutex::default(),
            responses: Mutex::default(),
            durations: Mutex::default(),
            watchers: Mutex::default(),
            queued: Histogram::new(LAG_SECONDS),
            bytes: AtomicU64::new(0),
            events: AtomicU64::new(0),
        }
    }
}

/// Returns the resource of a path for metrics, `pods` or `deployments.apps`.
pub(super) fn resource_of(path: &ResourcePath) -> String {
    Gvr::new(&path.group, &path.version, &path.resource).to_string()
}

impl ReadMetrics {
    pub(super) fn answered(&self, verb: &'static str, resource: &str, code: u16, took: Duration) {
        let mut requests = self.requests.lock();
        let is_new = !requests.contains_key(&(verb, resource.to_owned()));
        let name = if is_new && (code == 404 || requests.len() >= MAX_RESOURCES) { "other" } else { resource };
        *requests.entry((verb, name.to_owned())).or_default() += 1;
        drop(requests);
        *self.responses.lock().entry((verb, code)).or_default() += 1;
        let mut durations = self.durations.lock();
        let durations = durations.entry(verb).or_insert_with(|| Arc::new(Histogram::new(REQUEST_SECONDS)));
        durations.record(took, None);
    }

    pub(super) fn queued(&self, waited: Duration) {
        self.queued.record(waited, None);
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn sent_events(&self, events: u64) {
        self.events.fetch_add(events, Relaxed);
    }

    pub(super) fn watch_began(&self, resource: &str) {
        *self.watchers.lock().entry(resource.to_owned()).or_default() += 1;
    }

    pub(super) fn watch_ended(&self, resource: &str) {
        if let Some(watchers) = self.watchers.lock().get_mut(resource) {
            *watchers = watchers.saturating_sub(1);
        }
    }

    /// Returns all values.
    pub(super) fn counts(&self) -> ReadCounts {
        let requests = self.requests.lock();
        let responses = self.responses.lock();
        let durations = self.durations.lock();
        let watchers = self.watchers.lock();
        ReadCounts {
            requests: requests.iter().map(|((verb, resource), count)| (*verb, resource.clone(), *count)).collect(),
            responses: responses.iter().map(|((verb, code), count)| (*verb, *code, *count)).collect(),
            durations: durations.iter().map(|(verb, times)| (*verb, times.state())).collect(),
            queued: self.queued.state(),
            in_progress: 0,
            watchers: watchers.iter().map(|(resource, count)| (resource.clone(), *count)).collect(),
            bytes: self.bytes.load(Relaxed),
            events: self.events.load(Relaxed),
        }
    }
}
