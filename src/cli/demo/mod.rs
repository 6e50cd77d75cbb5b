//! `informer-hub demo`: simulated clusters, the real hub, and a receiver that checks what arrives.
//!
//! Nothing is faked between the ends: clusters and receiver speak HTTP on loopback, the hub is the one of `run`. The
//! clusters change, one by one they expire watches and go down, and the receiver refuses deliveries now and then. At
//! the end everything heals, and cache and receiver must hold exactly what the clusters hold.

mod fleet;
mod receiver;
mod secret;
mod setup;
mod stage;
mod summary;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use self::stage::Stage;
use self::view::Screen;
use super::print::{Format, answer, colours, width};
use super::runtime;
use informer_hub_config::HumanDuration;
use informer_hub_telemetry::{self as telemetry, LogFormat};
use informer_hub_types::clock;

/// How often clusters change.
const CHURN: Duration = Duration::from_millis(20);
/// How often a terminal is redrawn.
const REDRAW: Duration = Duration::from_millis(200);
/// How often a line is written where there is no terminal.
const LINE: Duration = Duration::from_secs(1);
/// How long cache and receiver may take to catch up at the end.
const SETTLE: Duration = Duration::from_secs(20);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(100);
/// How long the hub may take to end.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Columns of lines where there is no terminal.
const COLUMNS: usize = 80;
/// What goes on after the faults.
const HEALED: &str = "the faults are over, waiting until all copies are equal";
/// The same after Ctrl-C.
const INTERRUPTED: &str = "interrupted, waiting until all copies are equal (Ctrl-C again: ends at once)";

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  informer-hub demo --duration 30s --clusters 10\n\n\
    Exit code 0: hub and receiver ended up with exactly what the clusters hold.\n\
    RUST_LOG=warn shows what the hub logs about the trouble that it is given.")]
pub(super) struct Args {
    /// How long the clusters change and misbehave
    #[arg(long, default_value = "10s")]
    duration: HumanDuration,
    /// Simulated clusters
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    clusters: u16,
    /// Pods of each cluster
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pods: u32,
    /// Decides what changes; equal seeds change equal things
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What is written to standard output: a live table on a terminal, lines elsewhere, and a summary; or that alone
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// How log lines look
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

pub(super) fn main(args: Args) -> anyhow::Result<ExitCode> {
    // What fails here fails on purpose, and would only disturb the table.
    telemetry::init(args.log_format, "off");
    runtime()?.block_on(run(args))
}

async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let screen = match args.output {
        Format::Json | Format::Yaml => Screen::silent(),
        Format::Text if std::io::stdout().is_terminal() => Screen::live(),
        Format::Text => Screen::lines(),
    };
    let every = if screen.is_live() { REDRAW } else { LINE };
    screen.say(&introduction(&args))?;
    let mut stage = Stage::start(&args, screen).await?;
    let interrupted = perform(&mut stage, args.duration.0, every).await?;
    let summary = settle(&mut stage, every, interrupted).await?;
    stage.end(SHUTDOWN).await;
    answer(args.output, &summary, || summary::render(&summary, columns(), colours()))?;
    Ok(if summary.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Two lines for those who see it for the first time.
fn introduction(args: &Args) -> String {
    let clusters = if args.clusters == 1 { "cluster" } else { "clusters" };
    format!(
        "A hub watches {} simulated {clusters} and sends every change to a receiver.\n\
         For {} things fail on purpose, then all copies must be equal. Ctrl-C stops.",
        args.clusters, args.duration
    )
}

/// Columns that there are for lines.
fn columns() -> usize {
    width().unwrap_or(COLUMNS)
}

/// Lets the clusters change and misbehave; whether the user has had enough before the time was up.
async fn perform(stage: &mut Stage, duration: Duration, every: Duration) -> anyhow::Result<bool> {
    let end = tokio::time::sleep_until(clock::now() + duration);
    tokio::pin!(end);
    let mut churn = tokio::time::interval(CHURN);
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

/// Heals everything and waits until all copies are equal or the time is up.
async fn settle(stage: &mut Stage, every: Duration, interrupted: bool) -> anyhow::Result<summary::Summary> {
    let waiting = if interrupted { INTERRUPTED } else { HEALED };
    stage.heal().await;
    let began = clock::now();
    let mut draw = tokio::time::interval(every);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            biased;
            signal = tokio::signal::ctrl_c() => {
                signal?;
                stage.clear()?;
                return Ok(stage.summary(began.elapsed(), true).await?.cut());
            }
            _ = draw.tick() => stage.draw(waiting).await?,
            _ = look.tick() => {
                let summary = stage.summary(began.elapsed(), interrupted).await?;
                if summary.is_settled() || began.elapsed() >= SETTLE {
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
    fn the_introduction_is_two_lines_that_fit_an_old_terminal() {
        let text = introduction(&Line::parse_from(["demo", "--clusters", "100", "--duration", "1m"]).args);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() == 2 && lines.iter().all(|line| line.len() <= COLUMNS), "{text}");
    }
}
