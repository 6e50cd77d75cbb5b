//! HTTP port of a hub: opened before the hub starts, then connected with it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::hub::Hub;
use super::metrics::Metrics;
use super::port_protection::readers;
use super::read_api::{StartedFleet, end_reads, history_limits, read_api};
use super::reader_status::reader_status;
use super::report::{HubReport, Reporter};
use super::reviews::ClusterReviews;
use super::sources::ClusterSourceState;
use super::start::HubBuilder;
use crate::api::{
    self, Access, AskLetters, AskReload, Auditor, Guard, PreparedReaders, ReadApi, ReadCounts, ReportedState, Services,
    StateSource,
};
use crate::cache::HistoryLimits;
use informer_hub_access::{ReviewCache, ReviewCacheOptions};
use informer_hub_config::{AuthorizationConfig, ServiceConfig};
use informer_hub_telemetry::metrics::Scraper;
use informer_hub_types::{MemoryStep, Phase};

/// Longest time for which a shutdown waits until open connections end. Idle connections must not delay the exit.
const LINGER: Duration = Duration::from_secs(1);

/// Longest wait for the last events of the audit log.
const FLUSH: Duration = Duration::from_secs(2);

/// An open port and the hub behind it.
pub(crate) struct Port {
    address: SocketAddr,
    started: Started,
    fleet: StartedFleet,
    metrics: Metrics,
    read: Option<Arc<ReadApi>>,
    history: Option<HistoryLimits>,
    access: Arc<Access>,
    reviews: Arc<ReviewCache>,
    audit: Option<Arc<Auditor>>,
    stop: watch::Sender<()>,
    serving: JoinHandle<()>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Port {
    /// Serves HTTP on `listener`, which is bound to an address, and returns the port. Requests for the state of the hub
    /// get status 503 until [`Self::start`] has started the hub and set `fleet`.
    ///
    /// # Errors
    /// If the address of the socket cannot be read.
    pub(crate) fn open(
        listener: TcpListener,
        guard: Guard,
        fleet: StartedFleet,
        config: &ServiceConfig,
        reload: AskReload,
    ) -> anyhow::Result<Self> {
        let address = listener.local_addr().context("cannot read the address of the port")?;
        warn_of_listeners(&guard, address);
        let access = guard.access();
        let (started, metrics) = (Started::default(), Metrics::default());
        metrics.attach_access(&access);
        let audit = guard.audit();
        if let Some(audit) = &audit {
            metrics.attach_audit(audit);
        }
        let (stop, mut stopping) = watch::channel(());
        let stopped = async move {
            let _ = stopping.changed().await;
        };
        let collected = metrics.clone();
        let scraper = Scraper::new(move || collected.collect());
        let reviews = review_cache(&config.authorization, &fleet);
        let current = Arc::clone(&access);
        let read = read_api(&config.read_api, &fleet).map(|read| {
            let read = read.with_current_readers(Arc::new(move |reader| current.current(reader)));
            Arc::new(read.with_reviews(Arc::clone(&reviews)).with_usage(Arc::clone(access.usage())))
        });
        let history = read.as_ref().map(|_| history_limits(&config.read_api));
        if let Some(read) = &read {
            metrics.attach_read_api(read);
        }
        let (show, letters) = (show(&started, read.clone(), &access), ask_letters(&started));
        let services = Services { show, letters, reload, scraper, read: read.clone() };
        let serving = tokio::spawn(api::serve(listener, guard, services, stopped).boxed());
        Ok(Self { address, started, fleet, metrics, read, history, access, reviews, audit, stop, serving })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the metrics of the port and its hub.
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Starts the hub and connects the port with it.
    ///
    /// # Errors
    /// If the hub cannot start.
    pub(crate) async fn start(&self, mut builder: HubBuilder) -> anyhow::Result<Hub> {
        if let Some(limits) = self.history {
            builder = builder.keep_history(limits);
        }
        let hub = builder.start().await?;
        let (access, reviews) = (Arc::clone(&self.access), Arc::clone(&self.reviews));
        hub.running().follow_readers(Arc::new(move |config| {
            let (access, readers) = (Arc::clone(&access), PreparedReaders::read(readers(config))?);
            let (reviews, kept) = (Arc::clone(&reviews), reviews_kept(&config.hub.service.authorization));
            Ok(Box::new(move || {
                reviews.keep_for(kept);
                access.replace(&readers);
            }))
        }));
        let view = hub.fleet().await.context("the hub ended while it started")?;
        self.metrics.attach(view.clone(), hub.reporter().parts());
        // Both are set only here.
        let _ = self.fleet.set(view);
        let _ = self.started.set(hub.reporter());
        Ok(hub)
    }

    /// Prepares for the shutdown of the hub: metrics keep the last known sinks, and watches of the read API end
    /// ([`end_reads`]).
    pub(crate) fn ending(&self) {
        self.metrics.ending();
        if let (Some(read), Some(fleet)) = (&self.read, self.fleet.get()) {
            end_reads(read, fleet);
        }
    }

    /// Closes the port once open requests are answered, at the latest after a second. Then writes the last events of
    /// the audit log, as [`Self::flush_audit`] does.
    pub(crate) async fn close(mut self) {
        if let Some(read) = &self.read {
            read.close();
        }
        let _ = self.stop.send(());
        if tokio::time::timeout(LINGER, &mut self.serving).await.is_err() {
            // Ends the open requests, so that they are in the audit log.
            self.serving.abort();
        }
        self.flush_audit().await;
    }

    /// Waits until the last events of the audit log are written, at most two seconds. Events not written by then are
    /// lost.
    pub(crate) async fn flush_audit(&self) {
        if let Some(audit) = &self.audit {
            audit.close(FLUSH).await;
        }
    }
}

/// Returns the cache of answers to access reviews. It exists even if reviews are off, because a reload may enable them.
fn review_cache(config: &AuthorizationConfig, fleet: &StartedFleet) -> Arc<ReviewCache> {
    let options = ReviewCacheOptions { kept: reviews_kept(config), ..ReviewCacheOptions::default() };
    Arc::new(ReviewCache::new(Arc::new(ClusterReviews::new(fleet)), options))
}

/// Returns the longest time that an answer of an access review is used.
fn reviews_kept(config: &AuthorizationConfig) -> Duration {
    config.kubernetes.clone().unwrap_or_default().cache
}

/// Warns if a port beyond loopback has no authentication or no TLS.
fn warn_of_listeners(guard: &Guard, address: SocketAddr) {
    if address.ip().is_loopback() {
        return;
    }
    if guard.is_open() {
        tracing::warn!(%address, "hub.auth is not set: every client that reaches the port can read and change everything");
    } else if guard.is_plain() {
        tracing::warn!(%address, "hub.tls is not set: clients send their tokens to the port as plain text");
    }
}

/// Reporter of the hub, set once the hub has started.
type Started = Arc<OnceLock<Reporter>>;

fn ask_letters(started: &Started) -> AskLetters {
    let started = Arc::clone(started);
    Arc::new(move |sink, request| {
        let reporter = started.get().cloned();
        Box::pin(async move { reporter?.letters(&sink, request).await })
    })
}

fn show(started: &Started, read: Option<Arc<ReadApi>>, access: &Arc<Access>) -> StateSource {
    let (started, access) = (Arc::clone(started), Arc::clone(access));
    Arc::new(move || {
        let (reporter, read, access) = (started.get().cloned(), read.clone(), Arc::clone(&access));
        Box::pin(async move {
            let report = reporter?.report().await.ok()?;
            let mut status = serde_json::to_value(&report).ok()?;
            if let Some(read) = read {
                status["readApi"] = read_status(&read.counts());
                let readers = reader_status(&read, &access);
                if !readers.is_empty() {
                    status["readers"] = readers.into();
                }
            }
            Some(ReportedState { ready: report.hub.ready, waiting: waiting(&report), status })
        })
    })
}

/// Returns the read API's counters (requests, open watches, events, bytes) as JSON for the status.
fn read_status(counts: &ReadCounts) -> serde_json::Value {
    let watches: serde_json::Map<_, _> = counts
        .watchers
        .iter()
        .filter(|(_, watches)| *watches > 0)
        .map(|(resource, watches)| (resource.clone(), (*watches).into()))
        .collect();
    serde_json::json!({
        "requestsInProgress": counts.in_progress,
        "requests": counts.requests.iter().map(|(.., count)| count).sum::<u64>(),
        "watches": watches,
        "events": counts.events,
        "sentBytes": counts.bytes,
    })
}

/// Returns lines of text for `/readyz`: one for each cluster source or informer that is not ready, for each cluster
/// with an error, and for each informer that does not keep whole objects under the memory limit.
fn waiting(report: &HubReport) -> Vec<String> {
    let mut lines = Vec::new();
    for source in report.cluster_sources.iter().filter(|source| source.state != ClusterSourceState::Current) {
        let why = source.last_error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        lines.push(format!("cluster source {} is {}{why}", source.name, source.state.as_str()));
    }
    for cluster in &report.hub.clusters {
        if let Some(error) = &cluster.last_error {
            lines.push(format!("{}: {error}", cluster.name));
        }
        for informer in
            cluster.informers.iter().filter(|informer| !informer.synced || informer.state != Phase::Watching)
        {
            let why = informer.last_error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
            lines.push(format!(
                "{}/{} ({}) is {}{why}",
                cluster.name,
                informer.resource,
                informer.scope,
                informer.state.as_str()
            ));
        }
        for informer in &cluster.informers {
            let Some(memory) = informer.memory.as_ref().filter(|memory| !memory.step.keeps_bodies()) else { continue };
            let why = memory.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            lines.push(format!(
                "{}/{} ({}) keeps {} of its objects{why}",
                cluster.name,
                informer.resource,
                informer.scope,
                match memory.step {
                    MemoryStep::Released => "nothing",
                    _ => "only names, versions, labels and index values",
                }
            ));
        }
    }
    lines
}
