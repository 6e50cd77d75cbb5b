//! Counters of the read API, for the metrics and the status of the hub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use smol_str::SmolStr;

use informer_hub_kubeapi::ResourcePath;
use informer_hub_types::{Gvr, Histogram, HistogramState, LAG_SECONDS, REQUEST_SECONDS};

/// Maximum number of resources counted separately, because the names come from clients. The others are counted
/// together.
const MAX_RESOURCES: usize = 256;

/// Maximum number of client programs counted separately.
const MAX_CLIENTS: usize = 32;

/// Maximum length of the name of a client program, in characters; longer names are cut.
const MAX_CLIENT_NAME: usize = 40;

/// Counters of requests, watches and sent bytes.
#[derive(Debug)]
pub(super) struct ReadMetrics {
    requests: Mutex<BTreeMap<(&'static str, String), u64>>,
    responses: Mutex<BTreeMap<(&'static str, u16), u64>>,
    clients: Mutex<BTreeMap<SmolStr, ClientCounts>>,
    durations: Mutex<BTreeMap<&'static str, Arc<Histogram>>>,
    watchers: Mutex<BTreeMap<String, u64>>,
    queued: Histogram,
    bytes: AtomicU64,
    events: AtomicU64,
}

#[derive(Debug, Default)]
struct ClientCounts {
    responses: BTreeMap<u16, u64>,
    watchers: u64,
}

/// Values of the read API's counters at one moment.
#[derive(Debug)]
pub struct ReadCounts {
    /// Requests by verb and resource.
    pub requests: Vec<(&'static str, String, u64)>,
    /// Responses by verb and code.
    pub responses: Vec<(&'static str, u16, u64)>,
    /// Responses by client program and code.
    pub client_responses: Vec<(SmolStr, u16, u64)>,
    /// Open watches and event streams by client program.
    pub client_watchers: Vec<(SmolStr, u64)>,
    /// Durations from the start of a request to the head of its response, by verb.
    pub durations: Vec<(&'static str, HistogramState)>,
    /// Times that requests waited for a turn in the fair queue.
    pub queued: HistogramState,
    /// Number of lists, queries and requests for single objects in progress.
    pub in_progress: usize,
    /// Open watches and event streams by resource.
    pub watchers: Vec<(String, u64)>,
    /// Bytes of bodies sent.
    pub bytes: u64,
    /// Events sent by event streams, and by watches that have ended.
    pub events: u64,
}

impl Default for ReadMetrics {
    fn default() -> Self {
        Self {
            requests: Mutex::default(),
            responses: Mutex::default(),
            clients: Mutex::default(),
            durations: Mutex::default(),
            watchers: Mutex::default(),
            queued: Histogram::new(LAG_SECONDS),
            bytes: AtomicU64::new(0),
            events: AtomicU64::new(0),
        }
    }
}

/// An open watch, counted until it is dropped.
#[derive(Debug)]
pub(in crate::api) struct OpenWatch {
    metrics: Arc<ReadMetrics>,
    resource: String,
    client: SmolStr,
}

impl OpenWatch {
    pub(super) fn new(metrics: &Arc<ReadMetrics>, resource: &str, client: &SmolStr) -> Self {
        metrics.watch_began(resource, client);
        Self { metrics: Arc::clone(metrics), resource: resource.to_owned(), client: client.clone() }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.metrics.watch_ended(&self.resource, &self.client);
    }
}

/// Returns the resource of a path for metrics, `pods` or `deployments.apps`.
pub(super) fn resource_of(path: &ResourcePath) -> String {
    Gvr::new(&path.group, &path.version, &path.resource).to_string()
}

/// Returns the client program of a `User-Agent`: its first word without the version, such as `kubectl`.
pub(super) fn client_of(user_agent: Option<&str>) -> SmolStr {
    let first = user_agent.unwrap_or_default().split(['/', ' ', '(']).next().unwrap_or_default();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "._-".contains(*letter);
    let name: SmolStr = first.chars().filter(is_plain).take(MAX_CLIENT_NAME).collect();
    if name.is_empty() { "unknown".into() } else { name }
}

impl ReadMetrics {
    fn with_client(&self, client: &SmolStr, change: impl FnOnce(&mut ClientCounts)) {
        let mut clients = self.clients.lock();
        let is_counted = clients.contains_key(client) || clients.len() < MAX_CLIENTS;
        let name = if is_counted { client.clone() } else { "other".into() };
        change(clients.entry(name).or_default());
    }

    pub(super) fn answered_client(&self, client: &SmolStr, code: u16) {
        self.with_client(client, |counts| *counts.responses.entry(code).or_default() += 1);
    }

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

    pub(super) fn watch_began(&self, resource: &str, client: &SmolStr) {
        *self.watchers.lock().entry(resource.to_owned()).or_default() += 1;
        self.with_client(client, |counts| counts.watchers += 1);
    }

    pub(super) fn watch_ended(&self, resource: &str, client: &SmolStr) {
        self.with_client(client, |counts| counts.watchers = counts.watchers.saturating_sub(1));
        if let Some(watchers) = self.watchers.lock().get_mut(resource) {
            *watchers = watchers.saturating_sub(1);
        }
    }

    pub(super) fn counts(&self) -> ReadCounts {
        let requests = self.requests.lock();
        let responses = self.responses.lock();
        let clients = self.clients.lock();
        let by_code = |(client, counts): (&SmolStr, &ClientCounts)| {
            let client = client.clone();
            counts.responses.iter().map(move |(code, count)| (client.clone(), *code, *count)).collect::<Vec<_>>()
        };
        let durations = self.durations.lock();
        let watchers = self.watchers.lock();
        ReadCounts {
            requests: requests.iter().map(|((verb, resource), count)| (*verb, resource.clone(), *count)).collect(),
            responses: responses.iter().map(|((verb, code), count)| (*verb, *code, *count)).collect(),
            client_responses: clients.iter().flat_map(by_code).collect(),
            client_watchers: clients.iter().map(|(client, counts)| (client.clone(), counts.watchers)).collect(),
            durations: durations.iter().map(|(verb, times)| (*verb, times.state())).collect(),
            queued: self.queued.state(),
            in_progress: 0,
            watchers: watchers.iter().map(|(resource, count)| (resource.clone(), *count)).collect(),
            bytes: self.bytes.load(Relaxed),
            events: self.events.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_the_first_word_of_the_user_agent() {
        let kubectl = "kubectl/v1.37.2 (linux/amd64) kubernetes/1a2b3c";
        assert_eq!(client_of(Some(kubectl)), "kubectl");
        assert_eq!(client_of(Some("Mozilla (X11)")), "Mozilla");
        assert_eq!(client_of(Some("a\"b}\u{e9}{c/1")), "abc");
        assert_eq!([client_of(None), client_of(Some("/1"))], ["unknown", "unknown"]);
        assert_eq!(client_of(Some(&"x".repeat(100))).len(), MAX_CLIENT_NAME);
    }

    #[test]
    fn clients_beyond_the_limit_are_counted_together() {
        let metrics = ReadMetrics::default();
        for number in 0..MAX_CLIENTS + 5 {
            let client = SmolStr::new(format!("client-{number}"));
            metrics.answered_client(&client, 200);
            metrics.watch_began("pods", &client);
        }
        let counts = metrics.counts();
        assert_eq!(counts.client_responses.len(), MAX_CLIENTS + 1);
        assert!(counts.client_responses.contains(&("other".into(), 200, 5)), "{:?}", counts.client_responses);
        metrics.watch_ended("pods", &"client-0".into());
        metrics.watch_ended("pods", &"client-36".into());
        let watchers = metrics.counts().client_watchers;
        assert!(watchers.contains(&("client-0".into(), 0)) && watchers.contains(&("other".into(), 4)), "{watchers:?}");
    }
}
