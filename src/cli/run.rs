//! `informer-hub run`: starts the service, with a progress bar for the first lists.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use indicatif::{ProgressBar, ProgressStyle};

use super::{SIGNALLED, WRONG_INPUT, block_on};
use crate::actors::lower_priority;
use crate::app::{self, ConfigSource, Ended, HubReport};
use informer_hub_source::end_plugins;
use informer_hub_telemetry::{self as telemetry, LogFormat};
use informer_hub_types::pauses::begin_work;
use informer_hub_types::printable_lines;

/// Arguments of `run`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  informer-hub run -c hub.toml\n  curl localhost:7080/v1/status")]
pub(super) struct Args {
    /// The configuration file (TOML); INFORMER_HUB_… variables override it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The format of log lines
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

/// Creates the runtime of the HTTP port. Its threads have lower priority than the hub's own, which process changes.
fn http_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .thread_name("hub-http")
        .on_thread_start(lower_priority)
        .on_thread_unpark(begin_work)
        .enable_all()
        .build()
        .context("cannot start the threads of the HTTP port")
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    serve(&ConfigSource::of_hub(args.config.clone()), args.log_format)
}

/// Runs a hub or an agent until a signal ends it.
pub(super) fn serve(source: &ConfigSource, log_format: LogFormat) -> anyhow::Result<ExitCode> {
    let terminal = std::io::stderr().is_terminal() && log_format == LogFormat::Text;
    let config = match source.load() {
        Ok(config) => config,
        Err(mistakes) => {
            note!("{}", printable_lines(&mistakes.to_string(), false));
            return Ok(ExitCode::from(WRONG_INPUT));
        }
    };
    let runtime = http_runtime()?;
    let traces = telemetry::init_with_traces(log_format, "info", runtime.handle());
    let mut progress = Progress::new(terminal);
    let ended = block_on(&runtime, app::run(config, Some(source.clone()), move |report| progress.show(report)));
    if let Ok(Ended::Cut(signal)) = ended {
        // The process ends at once, without waiting for threads.
        end_plugins();
        std::process::exit(SIGNALLED + signal);
    }
    block_on(&runtime, traces.flush());
    // Tasks that still run have exceeded their deadline.
    runtime.shutdown_background();
    Ok(match ended? {
        Ended::Drained => ExitCode::SUCCESS,
        Ended::Lost(_) | Ended::Cut(_) => ExitCode::FAILURE,
    })
}

/// Progress bar of the first lists; nothing without a terminal.
struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(terminal: bool) -> Self {
        let bar = terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {pos}/{len} informers synced, {msg}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar }
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
        if report.hub.ready
            && let Some(bar) = self.bar.take()
        {
            bar.finish_and_clear();
        }
    }
}
