//! Logging: structured lines on standard error, as text for people or JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging to standard error. `RUST_LOG` overrides the level, in `tracing`'s filter syntax.
///
/// Calling it twice changes nothing.
pub fn init(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // An error means that somebody has set logging up before, who then wants it their way.
    let _ = match format {
        LogFormat::Text => lines.with_ansi(colours).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
