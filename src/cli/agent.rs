//! `informer-hub agent`: watches the cluster in which it runs, and writes the changes to the log of a fleet.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::run;
use crate::app::ConfigSource;
use informer_hub_telemetry::LogFormat;
use informer_hub_types::ClusterName;

/// Arguments of `agent`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  informer-hub agent -c agent.toml --cluster edge-1")]
pub(super) struct Args {
    /// The configuration file (TOML) with [fleet], [resources] and the cluster; INFORMER_HUB_… variables override it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The cluster that the agent watches, by its name in the file; not needed if the file has only one, or one with
    /// agent = true
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    /// The format of log lines
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    run::serve(&ConfigSource::of_agent(args.config.clone(), args.cluster.clone()), args.log_format)
}
