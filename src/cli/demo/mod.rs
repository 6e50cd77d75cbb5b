//! `informer-hub demo`: runs the hub between simulated clusters and a receiver that verifies all events.
//!
//! The hub is the same as that of `informer-hub run`. It speaks HTTP on loopback with clusters and receiver. While the
//! clusters change, watches expire, clusters go down, and the receiver refuses some deliveries. Then all faults end,
//! and cache and receiver must hold exactly the objects of the clusters. With `--serve`, the hub keeps running
//! afterwards, and clients can read the objects from it.

mod fleet;
mod receiver;
mod secret;
mod serve;
mod setup;
mod stage;
mod summary;
mod temp_file;
mod view;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use self::stage::Stage;
use self::view::Screen;
use super::print::{Format, answer, colours, say, width};
use super::{block_on, runtime};
use informer_hub_config::HumanDuration;
use informer_hub_telemetry::{self as telemetry, LogFormat};
use informer_hub_types::clock;

/// Interval between two changes of the clusters.
const CHURN_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between two changes of the clusters while `--serve` keeps them running after the demo.
const SERVE_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between two drawings on a terminal.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between two progress lines if standard output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time that the hub's cache and the receiver may take to become equal to the clusters after the last fault.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between two comparisons of clusters, cache and receiver after the last fault.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Deadline of the shutdown of the hub.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Width of progress lines in columns if standard output is not a terminal.
const COLUMNS: usize = 80;
/// Status text after the faults have ended.
const HEALED: &str = "the faults are over, waiting until all copies are equal";
/// Status text after Ctrl-C.
const INTERRUPTED: &str = "interrupted, waiting until all copies are equal (Ctrl-C again: ends at once)";

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  informer-hub demo --duration 30s --clusters 10\n  informer-hub demo --serve\n\n\
    Exit code 0: hub and receiver hold exactly the objects of the clusters at the end.\n\
    RUST_LOG=warn shows what the hub logs about the faults.")]
pub(super) struct Args {
    /// How long the clusters change and fail
    #[arg(long, default_value = "10s")]
    duration: HumanDuration,
    /// The number of simulated clusters
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    clusters: u16,
    /// The number of pods in each cluster
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pods: u32,
    /// The seed of all changes; the same seed makes the same changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep clusters and hub running afterwards, for kubectl and other clients, until Ctrl-C
    #[arg(long, conflicts_with = "output")]
    serve: bool,
    /// The address for clients, on loopback; default: 127.0.0.1:7080, or a free port if it is in use
    #[arg(long, requires = "serve", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The output format: text has progress and a summary, json and yaml have the summary alone
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// The format of log lines
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

pub(super) fn main(args: Args) -> anyhow::Result<ExitCode> {
    // Logs are off by default: all faults are deliberate, and log lines would disturb the table.
    telemetry::init(args.log_format, "off");
    block_on(&runtime()?, run(args))
}

async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let screen = match args.output {
        Format::Json | Format::Yaml => Screen::silent(),
        Format::Text if std::io::stdout().is_terminal() => Screen::live(),
        Format::Text => Screen::lines(),
    };
    let every = if screen.is_live() { REDRAW_INTERVAL } else { LINE_INTERVAL };
    screen.say(&introduction(&args))?;
    let mut stage = Stage::start(&args, screen).await?;
    let interrupted = perform(&mut stage, args.duration.0, every).await?;
    let summary = settle(&mut stage, every, interrupted).await?;
    answer(args.output, &summary, || summary::render(&summary, columns(), colours()))?;
    if args.serve && !interrupted {
        serve(&mut stage).await?;
    }
    stage.end(SHUTDOWN_TIMEOUT).await;
    Ok(if summary.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn introduction(args: &Args) -> String {
    let clusters = if args.clusters == 1 { "cluster" } else { "clusters" };
    format!(
        "A hub watches {} simulated {clusters} and sends every change to a receiver.\n\
         For {} things fail on purpose, then all copies must be equal. Ctrl-C stops.",
        args.clusters, args.duration
    )
}

fn columns() -> usize {
    width().unwrap_or(COLUMNS)
}

/// Runs changes and faults for `duration`. Returns whether the user interrupted them.
async fn perform(stage: &mut Stage, duration: Duration, every: Duration) -> anyhow::Result<bool> {
    let end = tokio::time::sleep_until(clock::now() + duration);
    tokio::pin!(end);
    let mut churn = tokio::time::interval(CHURN_INTERVAL);
    churn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut draw = tokio::time::interval(every);
    draw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let began = clock::now();
    loop {
        tokio::select! {
            () = &mut end => return Ok(false),
            signal = tokio::signal::ctrl_c() => return signal.map(|()| true).map_err(Into::into),
            _ = churn.tick() => stage.fleet.step(began.elapsed(), duration).await,
            _ = draw.tick() => stage.draw("").await?,
        }
    }
}

/// Lets clients read the clusters, which change without faults, until SIGINT or SIGTERM.
async fn serve(stage: &mut Stage) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let Some((_kubeconfig, invitation)) = stage.invitation()? else { return Ok(()) };
    say(invitation)?;
    let mut churn = tokio::time::interval(SERVE_INTERVAL);
    churn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            // Elapsed time and duration are equal: all outages are then over, so none begins.
            _ = churn.tick() => stage.fleet.step(SERVE_INTERVAL, SERVE_INTERVAL).await,
        }
    }
}

/// Ends all faults, waits up to [`SETTLE_TIMEOUT`] until cache and receiver equal the clusters, and returns the
/// summary.
async fn settle(stage: &mut Stage, every: Duration, interrupted: bool) -> anyhow::Result<summary::Summary> {
    let waiting = if interrupted { INTERRUPTED } else { HEALED };
    stage.heal().await;
    let began = clock::now();
    let mut draw = tokio::time::interval(every);
    let mut poll = tokio::time::interval(POLL_INTERVAL);
    poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            signal = tokio::signal::ctrl_c() => {
                signal?;
                stage.clear()?;
                return Ok(stage.summary(began.elapsed(), true).await?.cut());
            }
            _ = draw.tick() => stage.draw(waiting).await?,
            _ = poll.tick() => {
                let summary = stage.summary(began.elapsed(), interrupted).await?;
                if summary.is_settled() || began.elapsed() >= SETTLE_TIMEOUT {
                    stage.clear()?;
                    return Ok(summary);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_introduction_is_two_lines_of_80_columns() {
        let text = introduction(&Line::parse_from(["demo", "--clusters", "100", "--duration", "1m"]).args);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() == 2 && lines.iter().all(|line| line.len() <= COLUMNS), "{text}");
    }
}
