//! Service mode of the hub (`informer-hub run`): HTTP port, signals, configuration file, service manager.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::config_file::{ConfigFile, ReloadRequest};
use super::hub::{Hub, ShutdownReport};
use super::load::ConfigSource;
use super::manager;
use super::port::Port;
use super::port_protection;
use super::read_api::StartedFleet;
use super::ready::watch_first_lists;
use super::report::HubReport;
use crate::api::{self, AskReload, Guard, Protection};
use informer_hub_config::Config;
use informer_hub_telemetry::metrics::Export;

/// Time after the first signal within which a further signal is ignored as a repetition of the first.
const ECHO: Duration = Duration::from_millis(100);

/// Number of SIGXFSZ on Linux (except MIPS) and on the BSDs.
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
/// - `source` is what `config` was read from. It is read again at SIGHUP and when it changes: see
///   [`Reloader`](super::Reloader).
/// - If `NOTIFY_SOCKET` is set, the service manager is notified of start, reload and end, and its watchdog is fed.
///
/// After [`Ended::Cut`] the threads of the hub still run: the caller has to end the process.
///
/// # Errors
/// If the port is in use, a sink cannot be set up, or the registry dies. Unreachable clusters are not errors.
pub async fn run(
    config: Config,
    source: Option<ConfigSource>,
    progress: impl FnMut(&HubReport) + Send + 'static,
) -> anyhow::Result<Ended> {
    let fleet = StartedFleet::default();
    let audit = port_protection::auditor(&config)?;
    let protection = Protection { audit, ..port_protection::protection(&config, &fleet) };
    let guard = Guard::new(protection).context("cannot start the hub")?;
    let listener = api::bind(config.hub.listen).await?;
    let address = listener.local_addr().context("cannot read the address of the port")?;
    log_start(&config, source.as_ref().map(|source| source.path.as_path()), address);
    let deadline = config.hub.shutdown_deadline;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    // Without a handler, exceeding the file size limit (`ulimit -f`) would end the process instead of failing the
    // write.
    let _too_large = signal(SignalKind::from_raw(SIGXFSZ)).context("cannot listen for SIGXFSZ")?;
    if config.hub.state_dir.is_none() && config.fleet.is_none() {
        tracing::info!(
            "hub.state_dir is not set: a restart loses undelivered events, misses deletions and lists everything again"
        );
    }
    let hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    // Created before the hub starts, so that changes of the file during the start are seen.
    let changes = source.map(|source| ConfigFile::new(source, &config));
    let (ask, asks) = mpsc::channel(1);
    let is_plain = guard.is_plain();
    // Probes and scrapes are answered while the hub starts: restoring large caches takes time.
    let port = Port::open(listener, guard, fleet, &config.hub.service, ask_reload(ask))?;
    let collected = port.metrics().clone();
    let export = Export::start(&Handle::current(), move || collected.collect());
    let hub = port.start(Hub::builder(config)).await.context("cannot start the hub")?;
    let reloading = changes.map(|file| tokio::spawn(file.keep(hub.reloader(), hangup, asks).boxed()));
    tracing::info!(%address, tls = !is_plain, "serving /livez, /readyz, /metrics and /v1/status");
    let watching = tokio::spawn(watch_first_lists(hub.reporter(), progress).boxed());
    manager::started();
    let informing = tokio::spawn(manager::keep_informed(hub.reporter()));
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: shutting down"),
        _ = interrupt.recv() => tracing::info!("SIGINT: shutting down"),
        () = hub.system().ended() => {
            anyhow::bail!("the part of the hub that manages clusters failed, so none is watched: restart the process")
        }
    }
    watching.abort();
    informing.abort();
    manager::stopping(deadline);
    if let Some(reloading) = reloading {
        reloading.abort();
    }
    port.ending();
    let report = match end(hub, deadline, &mut terminate, &mut interrupt).await {
        Ok(report) => report,
        Err(signal) => {
            port.flush_audit().await;
            return Ok(Ended::Cut(signal.as_raw_value()));
        }
    };
    export.flush().await;
    port.close().await;
    Ok(ended(&report, deadline))
}

/// Logs the version, the size of the configuration and the address of the port in one line.
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
    // Some tools send the same signal to the process and then to its group, so signals within `ECHO` are dropped.
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
    tracing::warn!("second signal: exiting at once; undelivered events that are not in a journal are lost");
    // Dropping the hub would join its threads, and a blocking handler would delay the exit.
    std::mem::forget(ending);
    Err(signal)
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

/// Returns a function that requests a reload of the configuration file and waits for the outcome. That function returns
/// `None` if there is no file.
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
