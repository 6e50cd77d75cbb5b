//! Metrics of a hub, collected from the counters of its parts at each scrape.
//!
//! A collection sends no message to an actor: it reads counters that the status needs anyway. Its cost grows with the
//! number of informers and subscribers, not with objects or events (figures in `docs/metrics.md`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use super::credentials::{CredentialWatch, Owner, Summary};
use super::election::{ElectionStatus, Role};
use super::elections::ElectionSet;
use super::fleet_status::{FleetStatus, SharedFleetStatus};
use super::journal_readers::RunningSinks;
use super::reload::ReloadStatus;
use super::sources::{ClusterSourceState, ClusterSourceStatus, Sources};
use crate::actors::{ClusterSeen, ClusterState, FleetView, ListenerSeen, StateStatus};
use informer_hub_sink::{AttemptOutcome, SinkHealth};
use informer_hub_telemetry::metrics::{Id, LabelSet, Snapshot, put_process};
use informer_hub_types::{
    ClusterTimings, ClusterTraffic, Histogram, HistogramState, InformerHealth, JsonReason, ListReason, Phase, clock,
};

mod informer;
#[cfg(feature = "cli")]
mod read;

use informer::InformerSum;

/// Metrics of a hub. Exists before the hub, so that scrapes are answered during the start. After the end of the hub it
/// shows the last values.
#[derive(Clone, Default)]
pub(super) struct Metrics(Arc<Shared>);

/// Parts of a hub, other than its clusters, from which metrics are read.
pub(super) struct Parts {
    pub(super) sinks: RunningSinks,
    pub(super) sources: Arc<Sources>,
    pub(super) credentials: Arc<CredentialWatch>,
    pub(super) configuration: Arc<Mutex<ReloadStatus>>,
    pub(super) election: Option<Arc<ElectionSet>>,
    pub(super) fleet: SharedFleetStatus,
}

#[derive(Default)]
struct Shared {
    #[cfg(feature = "cli")]
    read: OnceLock<Arc<crate::api::ReadApi>>,
    #[cfg(feature = "cli")]
    access: OnceLock<Arc<crate::api::Access>>,
    #[cfg(feature = "cli")]
    audit: OnceLock<Arc<crate::api::Auditor>>,
    hub: OnceLock<(FleetView, Parts)>,
    /// Sinks of the last scrape. Once a hub that shuts down has dropped its list of sinks, their metrics are served
    /// from this copy.
    sinks: Mutex<Vec<(String, Arc<SinkHealth>)>>,
    ending: AtomicBool,
}

impl Metrics {
    /// Sets the hub from which metrics are read, once it has started.
    pub(super) fn attach(&self, fleet: FleetView, parts: Parts) {
        // Only the first call counts.
        let _ = self.0.hub.set((fleet, parts));
    }

    /// Sets the read API whose metrics are collected. Not called if the HTTP port does not serve the read API.
    #[cfg(feature = "cli")]
    pub(super) fn attach_read_api(&self, api: &Arc<crate::api::ReadApi>) {
        let _ = self.0.read.set(Arc::clone(api));
    }

    /// Sets the access control of the HTTP port, from which metrics are read.
    #[cfg(feature = "cli")]
    pub(super) fn attach_access(&self, access: &Arc<crate::api::Access>) {
        let _ = self.0.access.set(Arc::clone(access));
    }

    /// Sets the audit log of the HTTP port, whose counters are among the metrics. Not called if there is no audit log.
    #[cfg(feature = "cli")]
    pub(super) fn attach_audit(&self, audit: &Arc<crate::api::Auditor>) {
        let _ = self.0.audit.set(Arc::clone(audit));
    }

    /// Marks the beginning of the shutdown, after which the metrics keep the last known sinks.
    pub(super) fn ending(&self) {
        self.0.ending.store(true, Relaxed);
    }

    /// Collects all metrics. Does not wait.
    pub(super) fn collect(&self) -> Snapshot {
        let began = clock::now();
        let mut out = Snapshot::new(clock::wall());
        let version = out.labels(&[("version", env!("CARGO_PKG_VERSION"))]);
        out.count(Id::BuildInfo, version, 1);
        put_process(&mut out);
        let mut events = 0;
        if let Some((fleet, parts)) = self.0.hub.get() {
            let Parts { sinks, sources, credentials, configuration, election, fleet: processes } = parts;
            let processes = processes.read();
            let is_waiting = sources.is_waiting() || processes.as_ref().is_some_and(FleetStatus::is_waiting);
            out.flag(Id::Ready, LabelSet::NONE, fleet.is_ready() && !is_waiting);
            let (changes, objects) = put_clusters(&mut out, fleet, credentials);
            for source in sources.status() {
                put_source(&mut out, &source);
                put_expiry(&mut out, credentials, &Owner::Source(source.name));
            }
            for (name, health) in self.sinks(sinks) {
                events += put_sink(&mut out, &name, &health);
                put_expiry(&mut out, credentials, &Owner::Sink(name));
            }
            put_expiry(&mut out, credentials, &Owner::Port);
            put_memory(&mut out, fleet, (objects, changes, events));
            if let Some(state) = fleet.state_dir() {
                put_state(&mut out, &state);
            }
            put_configuration(&mut out, &configuration.lock());
            if let Some(election) = election {
                put_election(&mut out, &election.status());
                for sink in sinks.lock().iter().filter(|sink| sink.files.is_some()) {
                    let labels = out.labels(&[("sink", sink.name())]);
                    out.flag(Id::SinkStandby, labels, election.standby(sink.name()).0);
                }
            }
            processes.inspect(|status| status.put(&mut out));
        } else {
            out.flag(Id::Ready, LabelSet::NONE, false);
        }
        #[cfg(feature = "cli")]
        if let Some(api) = self.0.read.get() {
            read::put(&mut out, &api.counts(), self.0.hub.get().map(|(fleet, _)| fleet));
        }
        #[cfg(feature = "cli")]
        if let Some(access) = self.0.access.get() {
            read::put_port(&mut out, access, self.0.read.get());
        }
        #[cfg(feature = "cli")]
        if let Some(audit) = self.0.audit.get() {
            let counts = audit.counts();
            out.count(Id::AuditEvents, LabelSet::NONE, counts.written);
            out.count(Id::AuditLost, LabelSet::NONE, counts.lost);
            out.count(Id::AuditWaiting, LabelSet::NONE, counts.waiting);
        }
        out.count(Id::Series, LabelSet::NONE, out.len() as u64 + 2);
        out.put(Id::Collecting, LabelSet::NONE, clock::now().duration_since(began).as_secs_f64());
        out
    }

    fn sinks(&self, running: &RunningSinks) -> Vec<(String, Arc<SinkHealth>)> {
        let now: Vec<_> =
            running.lock().iter().map(|sink| (sink.name().to_owned(), Arc::clone(&sink.health))).collect();
        let mut last = self.0.sinks.lock();
        if !now.is_empty() || !self.0.ending.load(Relaxed) {
            *last = now;
        }
        last.clone()
    }
}

/// Writes the metrics of all clusters. Returns the bytes of queued changes and of objects.
fn put_clusters(out: &mut Snapshot, fleet: &FleetView, credentials: &CredentialWatch) -> (u64, u64) {
    let (mut states, mut queued, mut objects) = ([0; ClusterState::ALL.len()], 0, 0);
    let mut lags = Lags::default();
    for cluster in fleet.clusters() {
        let state = cluster.state();
        states[state as usize] += 1;
        let (changes, memory) = put_cluster(out, &cluster, state, &mut lags);
        (queued, objects) = (queued + changes, objects + memory);
        put_expiry(out, credentials, &Owner::Cluster(cluster.name.to_string()));
    }
    lags.put(out);
    for state in ClusterState::ALL {
        out.count_word(Id::Clusters, LabelSet::NONE, state.as_str(), states[state as usize]);
    }
    (queued, objects)
}

/// Notification delays by histogram address, so that a histogram shared by several listeners counts once.
#[derive(Default)]
struct Lags(BTreeMap<*const Histogram, (String, HistogramState)>);

impl Lags {
    fn note(&mut self, subscription: &str, lag: &Arc<Histogram>) {
        self.0.entry(Arc::as_ptr(lag)).or_insert_with(|| (subscription.to_owned(), lag.state()));
    }

    /// Writes one histogram for each subscription name. A sink has a subscription for each of its resources, all with
    /// its name; their histograms are summed.
    fn put(self, out: &mut Snapshot) {
        let mut sums: BTreeMap<String, HistogramState> = BTreeMap::new();
        for (subscription, state) in self.0.into_values() {
            sums.entry(subscription).or_default().add(&state);
        }
        for (subscription, state) in sums {
            let labels = out.labels(&[("subscription", &subscription)]);
            out.histogram(Id::NotificationLag, labels, "", state);
        }
    }
}

fn put_cluster(out: &mut Snapshot, cluster: &ClusterSeen, state: ClusterState, lags: &mut Lags) -> (u64, u64) {
    let name = cluster.name.as_str();
    let labels = out.labels(&[("cluster", name)]);
    let mut phases = [0; Phase::ALL.len()];
    let mut lists = [0; ListReason::ALL.len()];
    let mut fallbacks = [0; JsonReason::FALLBACKS.len()];
    let (mut last_heard, mut queued, mut objects) = (0, 0, 0);
    let mut resources: BTreeMap<String, InformerSum> = BTreeMap::new();
    let mut subscriptions: BTreeMap<&str, ListenerSeen<'_>> = BTreeMap::new();
    let mut timings = None;
    for informer in cluster.informers() {
        let health: &InformerHealth = informer.health();
        timings = timings.or(health.timings());
        phases[health.phase() as usize] += 1;
        for reason in ListReason::ALL {
            lists[reason as usize] += health.lists_for(reason);
        }
        for (sum, count) in fallbacks.iter_mut().zip(health.fallbacks()) {
            *sum += count;
        }
        last_heard = last_heard.max(health.last_heard());
        resources.entry(informer.resource()).or_default().add(health);
        for (subscription, seen) in informer.listeners() {
            let subscription = known(subscription);
            seen.lag.into_iter().for_each(|lag| lags.note(subscription, lag));
            let sum = subscriptions.entry(subscription).or_default();
            sum.pending += seen.pending;
            sum.delivered += seen.delivered;
            sum.merged += seen.merged;
            sum.lost += seen.lost;
        }
    }
    out.flag(Id::ClusterUp, labels, matches!(state, ClusterState::Connected | ClusterState::Degraded));
    out.put(Id::ClusterHeard, labels, seconds_of(last_heard));
    let behind = resources.values().map(|sum| sum.stale).max().unwrap_or_default();
    out.put(Id::ClusterStale, labels, behind.as_secs_f64());
    if let Some(traffic) = cluster.traffic() {
        put_traffic(out, labels, &traffic);
    }
    for (reason, count) in JsonReason::FALLBACKS.into_iter().zip(fallbacks) {
        out.count_word(Id::EncodingFallbacks, labels, reason.as_str(), count);
    }
    for phase in Phase::ALL {
        out.count_word(Id::Informers, labels, phase.as_str(), phases[phase as usize]);
    }
    for reason in ListReason::ALL {
        out.count_word(Id::Lists, labels, reason.as_str(), lists[reason as usize]);
    }
    if let Some(timings) = timings {
        put_timings(out, labels, timings);
    }
    for pattern in cluster.patterns() {
        let labels = out.labels(&[("cluster", name), ("entry", &pattern.name)]);
        out.count(Id::PatternWatched, labels, pattern.watched.len() as u64);
        out.count(Id::PatternLeftOut, labels, pattern.left_out.len() as u64);
    }
    for (resource, sum) in &resources {
        let labels = out.labels(&[("cluster", name), ("resource", resource)]);
        sum.put(out, labels);
        queued += sum.queued_bytes;
        objects += sum.object_memory();
    }
    for (subscription, sum) in subscriptions {
        let labels = out.labels(&[("cluster", name), ("subscription", subscription)]);
        out.count(Id::ListenerPending, labels, sum.pending);
        out.count(Id::ListenerDelivered, labels, sum.delivered);
        out.count(Id::ListenerMerged, labels, sum.merged);
        out.count(Id::ListenerLost, labels, sum.lost);
    }
    (queued, objects)
}

fn put_timings(out: &mut Snapshot, labels: LabelSet, timings: &ClusterTimings) {
    out.histogram(Id::ListDuration, labels, "", timings.lists.state());
    out.histogram(Id::WatchDuration, labels, "", timings.watches.state());
    out.histogram(Id::StoreLag, labels, "", timings.stored.state());
}

fn put_traffic(out: &mut Snapshot, labels: LabelSet, traffic: &ClusterTraffic) {
    out.count(Id::ClusterConnections, labels, traffic.connections as u64);
    out.count(Id::ClusterRequests, labels, traffic.requests as u64);
    for (reason, count) in traffic.opened.by_reason() {
        out.count_word(Id::ConnectionsOpened, labels, reason, count);
    }
    for (reason, count) in traffic.closed.by_reason() {
        out.count_word(Id::ConnectionsClosed, labels, reason, count);
    }
}

/// Returns the label value of a subscription. Subscriptions without a name share one value, because their number grows
/// without bound.
fn known(subscription: &str) -> &str {
    let number = subscription.strip_prefix("subscription-");
    if number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) { "unnamed" } else { subscription }
}

/// Writes the metrics of a sink. Returns the bytes that it holds in memory.
fn put_sink(out: &mut Snapshot, name: &str, health: &SinkHealth) -> u64 {
    let labels = out.labels(&[("sink", name)]);
    let status = health.status();
    for (id, value) in [
        (Id::SinkReceived, status.received),
        (Id::SinkFiltered, status.filtered),
        (Id::SinkFilterErrors, status.filter_errors),
        (Id::SinkUnreadable, status.unreadable),
        (Id::SinkDiscarded, status.discarded),
        (Id::SinkRepeated, status.repeated),
        (Id::SinkElsewhere, status.delivered_elsewhere),
        (Id::SinkMerged, status.merged),
        (Id::SinkPending, status.pending_events),
        (Id::SinkPendingBytes, status.pending_bytes),
        (Id::SinkHeld, status.held),
        (Id::SinkRefused, status.refused_events),
        (Id::SinkDelivered, status.delivered),
        (Id::SinkBatches, status.batches),
        (Id::SinkRetries, status.retries),
        (Id::DeadLettered, status.dead_lettered),
        (Id::DeadLettersForgotten, status.dead_letters_forgotten),
    ] {
        out.count(id, labels, value);
    }
    for outcome in AttemptOutcome::ALL {
        out.histogram(Id::Attempts, labels, outcome.as_str(), health.attempts(outcome));
    }
    let last = status.last_delivery.map_or(0, jiff::Timestamp::as_millisecond);
    out.put(Id::SinkLastDelivery, labels, seconds_of(last));
    out.flag(Id::SinkCircuitOpen, labels, status.circuit_open);
    out.flag(Id::SinkDisabled, labels, status.disabled);
    if let Some(journal) = status.journal {
        out.count(Id::DeadLetters, labels, journal.dead_letters);
        out.count(Id::JournalBytes, labels, journal.bytes);
        out.count(Id::JournalLimit, labels, journal.limit);
        out.flag(Id::JournalTrouble, labels, journal.trouble.is_some());
        out.count(Id::JournalReplaced, labels, journal.replaced);
        out.count(Id::JournalLost, labels, journal.lost);
    }
    status.pending_bytes
}

fn put_source(out: &mut Snapshot, source: &ClusterSourceStatus) {
    let labels = out.labels(&[("source", &source.name)]);
    out.flag(Id::SourceUp, labels, source.state == ClusterSourceState::Current);
    let found = [
        ("watched", source.clusters),
        ("conflicting", source.conflicting),
        ("invalid", source.invalid),
        ("over", source.over),
    ];
    for (word, count) in found {
        out.count_word(Id::SourceClusters, labels, word, count as u64);
    }
    let last = source.last_read.map_or(0, jiff::Timestamp::as_millisecond);
    out.put(Id::SourceRead, labels, seconds_of(last));
}

/// Writes the expiry of an owner's credentials, if it is known.
fn put_expiry(out: &mut Snapshot, credentials: &CredentialWatch, owner: &Owner) {
    let Some(Summary { expires, state }) = credentials.summary(owner) else { return };
    let (ends, expiring, labels) = match owner {
        Owner::Port => (Id::PortCertificate, Id::PortExpiring, LabelSet::NONE),
        Owner::Cluster(name) => (Id::ClusterCredentials, Id::ClusterExpiring, out.labels(&[("cluster", name)])),
        Owner::Source(name) => (Id::SourceCredentials, Id::SourceExpiring, out.labels(&[("source", name)])),
        Owner::Sink(name) => (Id::SinkCertificate, Id::SinkExpiring, out.labels(&[("sink", name)])),
    };
    out.put(ends, labels, seconds_of(expires.as_millisecond()));
    out.flag(expiring, labels, state.is_due());
}

fn put_memory(out: &mut Snapshot, fleet: &FleetView, (objects, changes, events): (u64, u64, u64)) {
    let none = LabelSet::NONE;
    out.count_word(Id::MemoryByKind, none, "changes", changes);
    out.count_word(Id::MemoryByKind, none, "events", events);
    if let Some(memory) = fleet.memory() {
        out.count(Id::MemoryLimit, none, memory.limit);
        out.count(Id::MemoryShort, none, memory.short as u64);
        out.count_word(Id::MemoryByKind, none, "objects", objects);
    }
}

fn put_state(out: &mut Snapshot, state: &StateStatus) {
    let none = LabelSet::NONE;
    let last = state.last_checkpoint.map_or(0, jiff::Timestamp::as_millisecond);
    out.put(Id::Checkpoint, none, seconds_of(last));
    out.flag(Id::CheckpointFailed, none, state.last_error.is_some());
    out.count(Id::CheckpointHeld, none, state.held);
    out.count(Id::StateBytes, none, state.cache_bytes);
    out.count(Id::StateRestored, none, state.restored);
    out.put(Id::StateRestore, none, Duration::from_millis(state.restored_in_millis).as_secs_f64());
    out.count(Id::StateDamage, none, state.damage.len() as u64);
    out.count(Id::StateReplaced, none, state.replaced);
}

fn put_election(out: &mut Snapshot, status: &ElectionStatus) {
    out.flag(Id::Leader, LabelSet::NONE, status.role == Role::Leader);
    out.flag(Id::LeaseFailing, LabelSet::NONE, status.error.is_some());
    out.count(Id::LeaseTransitions, LabelSet::NONE, status.transitions);
}

fn put_configuration(out: &mut Snapshot, status: &ReloadStatus) {
    let none = LabelSet::NONE;
    out.count(Id::ConfigReloads, none, status.reloads);
    out.count(Id::ConfigFailures, none, status.failures);
    out.flag(Id::ConfigReloaded, none, status.last_error.is_none());
    out.put(Id::ConfigSince, none, seconds_of(status.since.map_or(0, jiff::Timestamp::as_millisecond)));
    out.count(Id::ConfigRestart, none, status.needs_restart.len() as u64);
}

/// Converts milliseconds since the epoch to seconds; negative values to zero.
fn seconds_of(millis: i64) -> f64 {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::testing::fleet;
    use informer_hub_telemetry::metrics::Format;
    use informer_hub_types::{ApiResource, Credential, CredentialKind, Gvr};

    #[test]
    fn a_scrape_before_the_hub_has_started_reports_not_ready() {
        let snapshot = Metrics::default().collect();
        assert_eq!(snapshot.value(Id::Ready, &[]), Some(0.0));
        assert_eq!(snapshot.value(Id::BuildInfo, &[env!("CARGO_PKG_VERSION")]), Some(1.0));
        assert!(snapshot.value(Id::ProcessResident, &[]).is_some_and(|bytes| bytes > 0.0));
        assert_eq!(snapshot.value(Id::Series, &[]), Some(f64::from(u16::try_from(snapshot.len()).unwrap())));
    }

    /// Compares the number of series with the maximum in `docs/metrics.md`.
    #[tokio::test]
    async fn series_of_a_thousand_clusters_stay_within_the_documented_maximum() {
        let (clusters, names) = (1000, ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        let resources = names.map(|name| {
            let gvr = Gvr::new("example.com", "v1", name);
            ApiResource { gvr, kind: "Kind".into(), namespaced: true }
        });
        let metrics = Metrics::default();
        let sources = Arc::new(Sources::begin(&[], Vec::new(), &informer_hub_types::Threads::current()).await);
        let credentials = Arc::<CredentialWatch>::default();
        for number in 0..clusters {
            credentials.note(Owner::Cluster(format!("cluster-{number}")), vec![ending(clock::wall())]);
        }
        let parts = Parts {
            sinks: RunningSinks::default(),
            sources,
            credentials,
            configuration: Arc::default(),
            election: None,
            fleet: SharedFleetStatus::default(),
        };
        metrics.attach(fleet(clusters, &resources, &["one", "two"]), parts);
        let began = clock::now();
        let snapshot = metrics.collect();
        let collected = clock::now().duration_since(began);
        let text = Format::Prometheus.write(&snapshot);
        let written = clock::now().duration_since(began + collected);
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        println!("{series} series: collected in {collected:?}, written in {written:?}, {} bytes", text.len());
        let most = |clusters: usize| 53 * clusters + 14 * 10 * clusters + 4 * 2 * clusters + 21 * 2 + 35;
        assert!((most(clusters) - 35..=most(clusters)).contains(&series), "{series}, {}", most(clusters));
        assert!(text.len() < 110 * series, "{} bytes", text.len());
        assert_eq!(snapshot.value(Id::Objects, &["cluster-999", "j.example.com"]), Some(0.0));
        // The bound is for a debug build on a busy machine. Usually, a tenth of this time is enough.
        assert!(collected + written < Duration::from_secs(8), "{collected:?}, {written:?}");
    }

    fn ending(expires: jiff::Timestamp) -> Credential {
        Credential { expires: Some(expires), ..Credential::new(CredentialKind::ClientCertificate, "here".to_owned()) }
    }

    #[test]
    fn credential_metrics_show_the_earliest_expiry_and_whether_one_is_due() {
        let (mut out, credentials) = (Snapshot::new(clock::wall()), CredentialWatch::default());
        let year = clock::wall() + jiff::SignedDuration::from_hours(24 * 365);
        let (soon, never) = (clock::wall() + jiff::SignedDuration::from_hours(24), ending(year));
        let unknown = Credential { expires: None, ..never.clone() };
        credentials.note(Owner::Cluster("a".to_owned()), vec![never.clone(), ending(soon), unknown.clone()]);
        credentials.note(Owner::Sink("b".to_owned()), vec![never]);
        credentials.note(Owner::Port, vec![unknown]);
        for owner in [Owner::Cluster("a".to_owned()), Owner::Sink("b".to_owned()), Owner::Port] {
            put_expiry(&mut out, &credentials, &owner);
        }
        let shown = out.value(Id::ClusterCredentials, &["a"]).unwrap();
        assert!((shown - soon.as_duration().as_secs_f64()).abs() < 1.0, "{shown} {soon}");
        let flags = [(Id::ClusterExpiring, "a"), (Id::SinkExpiring, "b")].map(|(id, name)| out.value(id, &[name]));
        assert_eq!((flags, out.value(Id::PortExpiring, &[])), ([Some(1.0), Some(0.0)], None));
    }

    #[test]
    fn configuration_metrics_show_a_failed_reload() {
        let mut out = Snapshot::new(clock::wall());
        let since = jiff::Timestamp::from_second(1_800_000_000).ok();
        let last_error = Some("line 3: …".to_owned());
        let needs_restart = vec!["hub.listen".to_owned(), "hub.fsync".to_owned()];
        put_configuration(
            &mut out,
            &ReloadStatus { since, reloads: 2, failures: 3, last_error, needs_restart, mistakes: Vec::new() },
        );
        let ids = [Id::ConfigReloads, Id::ConfigFailures, Id::ConfigReloaded, Id::ConfigSince, Id::ConfigRestart];
        let values = ids.map(|id| out.value(id, &[]));
        assert_eq!(values, [2.0, 3.0, 0.0, 1_800_000_000.0, 2.0].map(Some));
    }

    #[test]
    fn connections_are_counted_by_reason() {
        let mut out = Snapshot::new(clock::wall());
        let labels = out.labels(&[("cluster", "a")]);
        let mut traffic = ClusterTraffic { connections: 2, requests: 60, ..ClusterTraffic::default() };
        (traffic.opened.stream_limit, traffic.closed.goaway, traffic.closed.ping_timeout) = (3, 4, 5);
        put_traffic(&mut out, labels, &traffic);
        let text = Format::Prometheus.write(&out);
        for line in [
            "connections{cluster=\"a\"} 2",
            "requests{cluster=\"a\"} 60",
            "connections_opened_total{cluster=\"a\",reason=\"stream_limit\"} 3",
            "connections_closed_total{cluster=\"a\",reason=\"goaway\"} 4",
            "connections_closed_total{cluster=\"a\",reason=\"ping_timeout\"} 5",
        ] {
            assert!(text.contains(&format!("informer_hub_cluster_{line}\n")), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn unnamed_subscriptions_share_one_series() {
        assert_eq!(["subscription-12", "audit", "subscription-x"].map(known), ["unnamed", "audit", "subscription-x"]);
    }

    #[test]
    fn sink_metrics_begin_at_zero() {
        let (mut out, health) = (Snapshot::new(clock::wall()), SinkHealth::default());
        health.note_attempt(AttemptOutcome::Failed, Duration::from_millis(3), None);
        put_sink(&mut out, "hook", &health);
        assert_eq!(out.value(Id::SinkDelivered, &["hook"]), Some(0.0));
        assert_eq!(out.value(Id::SinkLastDelivery, &["hook"]), Some(0.0));
        assert_eq!(out.value(Id::JournalBytes, &["hook"]), None, "the sink has no journal");
        let text = Format::Prometheus.write(&out);
        for (outcome, count) in [("accepted", 0), ("failed", 1), ("disabled", 0), ("broken", 0)] {
            let line = format!(
                "informer_hub_sink_attempt_duration_seconds_count{{sink=\"hook\",outcome=\"{outcome}\"}} {count}\n"
            );
            assert!(text.contains(&line), "{text}");
        }
    }
}
