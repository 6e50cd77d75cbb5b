//! `informer-hub run`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use indicatif::{ProgressBar, ProgressStyle};

use super::{WRONG_INPUT, runtime};
use crate::app::{self, HubReport};
use crate::config::Config;
use crate::telemetry::{self, LogFormat};

/// Arguments of `run`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  informer-hub run -c hub.toml\n  curl localhost:7080/v1/status")]
pub(super) struct Args {
    /// The configuration file (TOML); INFORMER_HUB_… variables override it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// How log lines look
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let terminal = std::io::stderr().is_terminal() && args.log_format == LogFormat::Text;
    telemetry::init(args.log_format, "info");
    let config = match Config::from_file(&args.config) {
        Ok(config) => config,
        Err(mistakes) => {
            eprintln!("{mistakes}");
            return Ok(ExitCode::from(WRONG_INPUT));
        }
    };
    let mut progress = Progress::new(terminal);
    runtime()?.block_on(app::run(config, move |report| progress.show(report)))?;
    Ok(ExitCode::SUCCESS)
}

/// How the first lists go: a bar on a terminal, a line when done elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
    ready: bool,
}

impl Progress {
    fn new(terminal: bool) -> Self {
        let bar = terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {pos}/{len} informers synced, {msg}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, ready: false }
    }

    fn show(&mut self, report: &HubReport) {
        let informers = || report.hub.clusters.iter().flat_map(|cluster| &cluster.informers);
        let synced = informers().filter(|informer| informer.synced).count();
        let objects: u64 = informers().map(|informer| informer.objects).sum();
        if let Some(bar) = &self.bar {
            bar.set_length(informers().count() as u64);
            bar.set_position(synced as u64);
            bar.set_message(format!("{objects} objects"));
        }
        if report.hub.ready && !std::mem::replace(&mut self.ready, true) {
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
            tracing::info!(informers = informers().count(), synced, objects, "ready");
        }
    }
}
