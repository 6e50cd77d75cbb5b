//! `informer-hub demo`.
use std::process::ExitCode;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn main(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not yet")
}
