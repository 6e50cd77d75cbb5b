//! `informer-hub fleet`: shows the collectors and deliverers of a fleet, and steers the collectors.
//!
//! The commands connect to NATS with the credentials of the configuration. NATS decides which users may change the
//! fleet. The HTTP port of a hub offers no requests that change a fleet.

#[cfg(feature = "fleet")]
mod report;
#[cfg(feature = "fleet")]
mod sharing;
#[cfg(feature = "fleet")]
mod steer;
#[cfg(feature = "fleet")]
mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};

use super::print::Format;
use informer_hub_config::HumanDuration;

/// Arguments of `fleet`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the collectors and deliverers of a fleet, the owner of each cluster, and the deliverer of each sink
    #[command(
        after_help = "Examples:\n  informer-hub fleet status -c hub.toml\n  informer-hub fleet status -c hub.toml \
        -o json | jq '.collectors[] | select(.draining)'"
    )]
    Status {
        #[command(flatten)]
        fleet: FleetArgs,
        /// The output format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Move a cluster to a collector, and keep it there
    #[command(
        after_help = "Examples:\n  informer-hub fleet move prod-eu hub-1 -c hub.toml\n  informer-hub fleet move \
        prod-eu --auto -c hub.toml\n\nThe cluster stays there as long as the collector runs and is not draining."
    )]
    Move {
        /// The cluster as shown by `fleet status`: with its shard if it is divided, as in prod-eu/pods
        cluster: String,
        /// The collector as shown by `fleet status`, or the beginning of its name
        #[arg(required_unless_present = "auto")]
        collector: Option<String>,
        /// Remove the pin: the collectors decide again which of them owns the cluster
        #[arg(long, conflicts_with = "collector")]
        auto: bool,
        /// The time to wait for the move
        #[arg(long, value_name = "DURATION", default_value = "2m")]
        timeout: HumanDuration,
        #[command(flatten)]
        fleet: FleetArgs,
    },
    /// Move all clusters of a collector to others, one by one
    #[command(
        after_help = "Examples:\n  informer-hub fleet drain hub-1 -c hub.toml\n  informer-hub fleet drain hub-1 \
        --undo -c hub.toml\n\nA collector that is stopped releases its clusters at once; a drain moves them one at a time."
    )]
    Drain {
        /// The collector as shown by `fleet status`, or the beginning of its name
        collector: String,
        /// End the drain: the collector gets clusters again
        #[arg(long)]
        undo: bool,
        /// The time to wait until the collector owns no cluster
        #[arg(long, value_name = "DURATION", default_value = "10m")]
        timeout: HumanDuration,
        #[command(flatten)]
        fleet: FleetArgs,
    },
}

#[derive(Debug, ClapArgs)]
struct FleetArgs {
    /// The configuration file (TOML) of a collector; INFORMER_HUB_… variables override it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

/// Reports that this program cannot reach a fleet, because it was built without the feature `fleet`.
#[cfg(not(feature = "fleet"))]
pub(super) fn main(_: &Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!(crate::app::WITHOUT_FLEET)
}

#[cfg(feature = "fleet")]
pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = super::runtime()?;
    super::interruptible(&runtime, run(&args.command))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "fleet")]
async fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Status { fleet, output } => {
            let report = fleet.open().await?.report().await?;
            super::print::answer(*output, &report, || report.text(super::print::width(), super::print::colours()))
        }
        Command::Move { cluster, collector, timeout, fleet, .. } => {
            let fleet = fleet.open().await?;
            match collector {
                Some(collector) => fleet.pin(cluster, collector, timeout.0).await,
                None => fleet.unpin(cluster).await,
            }
        }
        Command::Drain { collector, undo: true, fleet, .. } => fleet.open().await?.end_drain(collector).await,
        Command::Drain { collector, timeout, fleet, .. } => fleet.open().await?.drain(collector, timeout.0).await,
    }
}

#[cfg(feature = "fleet")]
impl FleetArgs {
    async fn open(&self) -> anyhow::Result<steer::Fleet> {
        use anyhow::Context;
        let config = crate::app::load(&self.config)?;
        let file = self.config.display();
        let Some(config) = config.fleet else {
            return Err(super::Misuse::error(format!(
                "{file} has no table [fleet]; give the configuration file of a collector with --config"
            )));
        };
        let opened = crate::app::nats_params(&config).open_roster().await;
        let roster = opened.with_context(|| format!("cannot reach fleet {}", config.name))?;
        let name = config.name;
        let roster = roster.with_context(|| format!("no collector of fleet {name} has started yet"))?;
        Ok(steer::Fleet { name, roster })
    }
}
