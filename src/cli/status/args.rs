//! Arguments of `status`, `clusters`, `resources` and `sinks`.

use clap::{Args as ClapArgs, ValueEnum};

use crate::cli::client::HubArgs;
use crate::cli::print::width;
use informer_hub_config::HumanDuration;

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// A table for people, without the columns that do not fit the terminal
    #[default]
    #[value(alias = "text")]
    Table,
    /// The table with all columns
    Wide,
    /// One JSON document; with --watch one document per line
    Json,
    /// One YAML document; with --watch a stream of documents
    Yaml,
    /// Kind and name, one per line: cluster/prod-eu
    Name,
}

impl Form {
    /// Whether the output is for people.
    pub(super) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// Returns the width that limits the table; `None` for no limit.
    pub(super) fn width(self) -> Option<usize> {
        width().filter(|_| self == Self::Table)
    }
}

/// Options that all status commands share.
#[derive(Debug, ClapArgs)]
pub(super) struct View {
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Form,
    /// Repeat: redraw in place on a terminal, otherwise print a line for each change
    #[arg(short, long)]
    pub(super) watch: bool,
    /// The interval of --watch
    #[arg(long, default_value = "2s", value_name = "DURATION")]
    pub(super) interval: HumanDuration,
    #[command(flatten)]
    pub(super) hub: HubArgs,
}

/// Arguments of `status`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub status --watch\n  informer-hub status --cluster prod-eu -o json\n  \
    informer-hub status --url https://hub.example.com:7080 --token-file hub-token --ca-file hub-ca.pem\n\n\
    Problems come first. The exit code is 0 if the hub answers, even if there are problems.")]
pub(in crate::cli) struct StatusArgs {
    /// Only these clusters
    #[arg(long, value_name = "NAME")]
    pub(super) cluster: Vec<String>,
    /// Only these resources, e.g. pods or deployments.apps
    #[arg(long, value_name = "NAME")]
    pub(super) resource: Vec<String>,
    #[command(flatten)]
    pub(super) view: View,
}

/// Arguments of `clusters`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub clusters\n  informer-hub clusters prod-eu prod-us --watch\n  \
    informer-hub clusters --resource nodes -o name")]
pub(in crate::cli) struct ClustersArgs {
    /// Only these clusters
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// Only clusters in which one of these resources is watched
    #[arg(long, value_name = "NAME")]
    pub(super) resource: Vec<String>,
    #[command(flatten)]
    pub(super) view: View,
}

/// Arguments of `resources`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub resources\n  informer-hub resources pods --cluster prod-eu\n  \
    informer-hub resources --watch")]
pub(in crate::cli) struct ResourcesArgs {
    /// Only these resources, e.g. pods or deployments.apps
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    /// Only in these clusters
    #[arg(long, value_name = "NAME")]
    pub(super) cluster: Vec<String>,
    #[command(flatten)]
    pub(super) view: View,
}

/// Arguments of `sinks`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub sinks\n  informer-hub sinks audit --watch --interval 500ms")]
pub(in crate::cli) struct SinksArgs {
    /// Only these sinks
    #[arg(value_name = "NAME")]
    pub(super) names: Vec<String>,
    #[command(flatten)]
    pub(super) view: View,
}
