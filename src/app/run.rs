//! Service mode of the hub (`informer-hub run`): HTTP port, signals, configuration file, service manager.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use super::config_file::{ConfigFile, ReloadRequest};
use super::hub::{Hub, ShutdownReport};
use super::manager;
use super::metrics::Metrics;
use super::read_api::{StartedFleet, history_limits, read_api};
use super::ready::watch_first_lists;
use super::report::{HubReport, Reporter};
use super::service;
use super::sources::ClusterSourceState;
use crate::api::{self, AskLetters, AskReload, Guard, Services, Show, Shown};
use informer_hub_config::Config;
use informer_hub_telemetry::metrics::{Export, Scraper};
use informer_hub_types::{MemoryStep, Phase};

/// Time after the first signal within which another one counts as a repetition of it.
const ECHO: Duration = Duration::from_millis(100);

/// Signal number on Linux (except MIPS) and on the BSDs.
const SIGXFSZ: i32 = 25;

/// Outcome of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The sinks were drained, or keep their events in journals.
    Drained,
    /// The deadline passed; this many undelivered events are lost.
    Lost(u64),
    /// A second signal (its number) ended the drain.
    Cut(i32),
}

/// Runs a hub until SIGTERM or SIGINT, then drains its sinks.
///
/// - `progress` is called with reports until the first lists are complete.
/// - `file` is the file that `config` was read from. It is read again at SIGHUP and when it changes: see
///   [`Reloader`](super::Reloader).
/// - If `NOTIFY_SOCKET` is set, the service manager is notified of start, reload and end, and its watchdog is fed.
///
/// After [`Ended::Cut`] the threads of the hub still run: the caller has to end the process.
///
/// # Errors
/// If the port is in use, a sink cannot be set up, or the registry dies. Unreachable clusters are not errors.
pub async fn run(
    config: Config,
    file: Option<PathBuf>,
    progress: impl FnMut(&HubReport) + Send + 'static,
) -> anyhow::Result<Ended> {
    let guard =
        Guard::new(service::protection(&config.hub.service, config.hub.listen)).context("cannot start the hub")?;
    let listener = api::bind(config.hub.listen).await?;
    let address = listener.local_addr().context("cannot read the address of the port")?;
    log_start(&config, file.as_deref(), address);
    let deadline = config.hub.shutdown_deadline;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    // Without a handler, exceeding the file size limit (`ulimit -f`) would end the process instead of failing the
    // write.
    let _too_large = signal(SignalKind::from_raw(SIGXFSZ)).context("cannot listen for SIGXFSZ")?;
    if config.hub.state_dir.is_none() {
        tracing::info!(
            "hub.state_dir is not set: a restart loses undelivered events, misses deletions and lists everything again"
        );
    }
    let hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    // Created before the hub starts, so that changes of the file during the start are seen.
    let changes = file.map(|file| ConfigFile::new(file, &config));
    // Probes and scrapes are answered while the hub starts: restoring large caches takes time.
    let (started, metrics) = (Started::default(), Metrics::default());
    let (stop, mut stopping) = watch::channel(());
    let stopped = async move {
        let _ = stopping.changed().await;
    };
    let collected = metrics.clone();
    let scraper = Scraper::new(move || collected.collect());
    let (ask, asks) = mpsc::channel(1);
    let (show, letters, reload) = (show(&started), ask_letters(&started), ask_reload(ask));
    let is_plain = guard.is_plain();
    warn_of_listeners(&guard, address);
    let fleet = StartedFleet::default();
    let read_config = config.hub.service.read_api.clone();
    let read = read_api(&read_config, &fleet);
    let history = read.as_ref().map(|_| history_limits(&read_config));
    if let Some(read) = &read {
        metrics.attach_read_api(read);
    }
    let services = Services { show, letters, reload, scraper, read: read.clone() };
    let serving = tokio::spawn(api::serve(listener, guard, services, stopped));
    let collected = metrics.clone();
    let export = Export::start(&Handle::current(), move || collected.collect());
    let mut builder = Hub::builder(config);
    if let Some(limits) = history {
        builder = builder.keep_history(limits);
    }
    let hub = builder.start().await.context("cannot start the hub")?;
    let view = hub.fleet().await.context("the hub ended while it started")?;
    metrics.attach(view.clone(), hub.reporter().parts());
    let _ = fleet.set(view);
    // It is set only here.
    let _ = started.set(hub.reporter());
    let reloading = changes.map(|file| tokio::spawn(file.keep(hub.reloader(), hangup, asks)));
    tracing::info!(%address, tls = !is_plain, "serving /livez, /readyz, /metrics and /v1/status");
    let watching = tokio::spawn(watch_first_lists(hub.reporter(), progress));
    manager::started();
    let informing = tokio::spawn(manager::keep_informed(hub.reporter()));
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: shutting down"),
        _ = interrupt.recv() => tracing::info!("SIGINT: shutting down"),
        () = hub.system().ended() => anyhow::bail!("the registry died and no cluster is watched: restart the process"),
    }
    watching.abort();
    informing.abort();
    if let Some(read) = read {
        read.close();
    }
    manager::stopping(deadline);
    if let Some(reloading) = reloading {
        reloading.abort();
    }
    metrics.ending();
    let report = match end(hub, deadline, &mut terminate, &mut interrupt).await {
        Ok(report) => report,
        Err(signal) => return Ok(Ended::Cut(signal.as_raw_value())),
    };
    export.flush().await;
    drop(stop);
    // Idle keep-alive connections must not delay the exit.
    let _ = tokio::time::timeout(Duration::from_secs(1), serving).await;
    Ok(ended(&report, deadline))
}

/// Logs the size of the configuration in one line.
fn log_start(config: &Config, file: Option<&Path>, listen: SocketAddr) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = file.map(|file| tracing::field::display(file.display())),
        clusters = config.clusters.len(),
        cluster_sources = config.sources.len(),
        resources = config.resources.len(),
        sinks = config.sinks.len(),
        %listen,
        state_dir = config.hub.state_dir.as_deref().map(|dir| tracing::field::display(dir.display())),
        "the hub starts"
    );
}

/// Shuts the hub down. A second signal ends the shutdown and is returned as the error.
async fn end(
    hub: Hub,
    deadline: Duration,
    terminate: &mut Signal,
    interrupt: &mut Signal,
) -> Result<ShutdownReport, SignalKind> {
    let mut ending = Box::pin(hub.shutdown(deadline));
    // Some tools send the same signal to the process and then to its group.
    let ended_early = tokio::time::timeout(ECHO, &mut ending).await.ok();
    let _ = (terminate.recv().now_or_never(), interrupt.recv().now_or_never());
    if let Some(report) = ended_early {
        return Ok(report);
    }
    let signal = tokio::select! {
        report = &mut ending => return Ok(report),
        _ = terminate.recv() => SignalKind::terminate(),
        _ = interrupt.recv() => SignalKind::interrupt(),
    };
    tracing::warn!("second signal: ending without draining the sinks");
    // Dropping the hub would join its threads, and a blocking handler would delay the exit.
    std::mem::forget(ending);
    Err(signal)
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

fn ended(report: &ShutdownReport, deadline: Duration) -> Ended {
    for (sink, events) in &report.kept {
        tracing::info!(sink, events, "undelivered events stay in the journal for the next start");
    }
    for (sink, events) in &report.undelivered {
        tracing::error!(sink, events, "events not delivered within {deadline:?} (hub.shutdown_deadline) are lost");
    }
    match report.undelivered.iter().map(|(_, events)| events).sum() {
        0 => {
            let left =
                if report.kept.is_empty() { "no sink has events left" } else { "undelivered events are in journals" };
            tracing::info!("shut down, {left}");
            Ended::Drained
        }
        lost => Ended::Lost(lost),
    }
}

/// Returns a function that requests a reload of the configuration file. It returns `None` if there is no file.
fn ask_reload(ask: mpsc::Sender<ReloadRequest>) -> AskReload {
    Arc::new(move || {
        let ask = ask.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            ask.send(reply).await.ok()?;
            answer.await.ok()
        })
    })
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

fn show(started: &Started) -> Show {
    let started = Arc::clone(started);
    Arc::new(move || {
        let reporter = started.get().cloned();
        Box::pin(async move {
            let report = reporter?.report().await.ok()?;
            let status = serde_json::to_value(&report).ok()?;
            Some(Shown { ready: report.hub.ready, waiting: waiting(&report), status })
        })
    })
}

/// Returns a line for each source, cluster and informer that is not ready or in trouble, for `/readyz`.
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
                    _ => "the heads",
                }
            ));
        }
    }
    lines
}
