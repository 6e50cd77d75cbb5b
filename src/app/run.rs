//! `run`: a hub as a service, from its configuration to its end by a signal.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use super::config_file::{Asked, ConfigFile};
use super::hub::{Hub, ShutdownReport};
use super::manager;
use super::metrics::Metrics;
use super::ready::watch_first_lists;
use super::report::{HubReport, Reporter};
use super::service;
use super::sources::ClusterSourceState;
use crate::api::{self, AskLetters, AskReload, Guard, Services, Show, Shown};
use informer_hub_config::Config;
use informer_hub_telemetry::metrics::{Export, Scraper};
use informer_hub_types::{MemoryStep, Phase};

/// How long after the first signal another one is taken for its echo.
const ECHO: Duration = Duration::from_millis(100);

/// Its number on Linux, but for MIPS, and on the BSDs.
const SIGXFSZ: i32 = 25;

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// In order; no sink had events left.
    Drained,
    /// At the deadline, with this many events undelivered and lost.
    Lost(u64),
    /// By a second signal (its number), with everything as it was.
    Cut(i32),
}

/// Runs a hub until SIGTERM or SIGINT, then drains its sinks. `progress` is told how the first lists go. Where `file` is
/// what `config` was read from, it is read again at SIGHUP and when it changes: see [`Reloader`](super::Reloader). A service
/// manager that names a `NOTIFY_SOCKET` is told when it has started, reloads and ends, and feeds its watchdog.
///
/// After [`Ended::Cut`] the hub's threads are still at work; the process is meant to end.
///
/// # Errors
/// When the port is taken, a sink cannot be set up, or the registry dies; not for clusters that cannot be reached.
pub async fn run(
    config: Config,
    file: Option<PathBuf>,
    progress: impl FnMut(&HubReport) + Send + 'static,
) -> anyhow::Result<Ended> {
    let guard =
        Guard::new(service::protection(&config.hub.service, config.hub.listen)).context("the hub does not start")?;
    let listener = api::bind(config.hub.listen).await?;
    let address = listener.local_addr().context("the port has no address")?;
    log_start(&config, file.as_deref(), address);
    let deadline = config.hub.shutdown_deadline;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    // A limit to the size of files (`ulimit -f`) is to fail a write, not to end the process.
    let _too_large = signal(SignalKind::from_raw(SIGXFSZ)).context("cannot listen for SIGXFSZ")?;
    if config.hub.state_dir.is_none() {
        tracing::info!(
            "without hub.state_dir nothing is kept over a restart: what is deleted meanwhile is not seen, what sinks have not delivered is lost, and everything is listed afresh"
        );
    }
    let hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    // Before it starts: what changes meanwhile is seen.
    let changes = file.map(|file| ConfigFile::new(file, &config));
    // Probes and scrapes are answered while the hub starts, which may take a while where it has much on disk.
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
    let serving = tokio::spawn(api::serve(listener, guard, Services { show, letters, reload, scraper }, stopped));
    let collected = metrics.clone();
    let export = Export::start(&Handle::current(), move || collected.collect());
    let hub = Hub::start(config).await.context("the hub does not start")?;
    metrics.attach(hub.fleet().await.context("the hub ended while it started")?, hub.reporter().parts());
    // Nobody has set it before.
    let _ = started.set(hub.reporter());
    let reloading = changes.map(|file| tokio::spawn(file.keep(hub.reloader(), hangup, asks)));
    tracing::info!(%address, tls = !is_plain, "serving /livez, /readyz, /metrics and /v1/status");
    let watching = tokio::spawn(watch_first_lists(hub.reporter(), progress));
    manager::started();
    let informing = tokio::spawn(manager::keep_informed(hub.reporter()));
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: shutting down"),
        _ = interrupt.recv() => tracing::info!("SIGINT: shutting down"),
        () = hub.system().ended() => anyhow::bail!("the registry died, and every cluster with it: start the process again"),
    }
    watching.abort();
    informing.abort();
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
    // Idle keep-alive connections must not hold the process up.
    let _ = tokio::time::timeout(Duration::from_secs(1), serving).await;
    Ok(ended(&report, deadline))
}

/// What is started, in one line.
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

/// Ends the hub in order, unless a second signal comes, which is what this fails with.
async fn end(
    hub: Hub,
    deadline: Duration,
    terminate: &mut Signal,
    interrupt: &mut Signal,
) -> Result<ShutdownReport, SignalKind> {
    let mut ending = Box::pin(hub.shutdown(deadline));
    // Some send a signal to a process and then to its group, which are one to whoever sends it.
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
    tracing::warn!("second signal: ending at once, what waits in sinks is lost");
    // Dropping the hub would join its threads, and a handler that blocks would hold the process up.
    std::mem::forget(ending);
    Err(signal)
}

/// What others on the way, or anybody, could do.
fn warn_of_listeners(guard: &Guard, address: SocketAddr) {
    if address.ip().is_loopback() {
        return;
    }
    if guard.is_open() {
        tracing::warn!(%address, "everybody who reaches the port may see all and change all: there is no hub.auth");
    } else if guard.is_plain() {
        tracing::warn!(%address, "tokens come to the port as plain text: there is no hub.tls");
    }
}

fn ended(report: &ShutdownReport, deadline: Duration) -> Ended {
    for (sink, events) in &report.kept {
        tracing::info!(sink, events, "not delivered yet: in the journal, for the next start");
    }
    for (sink, events) in &report.undelivered {
        tracing::error!(sink, events, "not delivered within {deadline:?} (hub.shutdown_deadline): lost");
    }
    match report.undelivered.iter().map(|(_, events)| events).sum() {
        0 => {
            let what = if report.kept.is_empty() { "no sink has events left" } else { "nothing is lost" };
            tracing::info!("shut down, {what}");
            Ended::Drained
        }
        lost => Ended::Lost(lost),
    }
}

/// Asks whoever keeps the configuration's file; nobody does where there is none.
fn ask_reload(ask: mpsc::Sender<Asked>) -> AskReload {
    Arc::new(move || {
        let ask = ask.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            ask.send(reply).await.ok()?;
            answer.await.ok()
        })
    })
}

/// Who makes reports, once the hub has started.
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

/// A line for each cluster and informer that an operator would ask about.
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
