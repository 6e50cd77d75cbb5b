//! Watcher of the configuration file. Reloads the file at SIGHUP, on request, and after a change of the file or of a
//! file that a sink uses.
//!
//! The watcher polls time and size of these files every [`POLL_INTERVAL`]. This works on every file system, and with
//! the symbolic links through which Kubernetes mounts files. A change is applied once two successive polls find the
//! same times and sizes: the file is then no longer being written. If a partly written file is read nevertheless, it is
//! reported as a mistake, and its next change is applied.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot};

use super::load::ConfigSource;
use super::manager;
use super::reload::Reloader;
use crate::api::Reloaded;
use informer_hub_config::{Config, ConfigErrors, Mistake};
use informer_hub_disk::FileStates;
use informer_hub_types::clock;

/// Interval between two polls of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of mistakes that are logged one by one.
const MAX_LOGGED: usize = 50;

/// Request for a reload: the channel through which the requester gets its result.
pub(super) type ReloadRequest = oneshot::Sender<Reloaded>;

/// A watched configuration file.
pub(super) struct ConfigFile {
    source: ConfigSource,
    /// Files that the sinks of the configuration refer to, such as certificates.
    sink_files: Vec<PathBuf>,
    applied: FileStates,
}

impl ConfigFile {
    /// Creates the watcher of the file that `config` was read from. Blocks.
    pub(super) fn new(source: ConfigSource, config: &Config) -> Self {
        let sink_files = sink_files(config);
        let applied = files(&source.path, &sink_files);
        Self { source, sink_files, applied }
    }

    /// Watches the configuration file and the files of its sinks. Reloads the configuration after a change, at SIGHUP,
    /// and on request. Runs until the future is dropped.
    pub(super) async fn keep(
        mut self,
        reloader: Reloader,
        mut hangup: Signal,
        mut requests: mpsc::Receiver<ReloadRequest>,
    ) {
        let mut ticks = clock::ticks(POLL_INTERVAL);
        let mut seen = self.applied.clone();
        loop {
            let (is_requested, reply) = tokio::select! {
                _ = ticks.tick() => (false, None),
                asked = hangup.recv() => (asked.is_some(), None),
                Some(reply) = requests.recv() => (true, Some(reply)),
            };
            let now = self.poll().await;
            let is_settled = now == seen && now != self.applied;
            seen = now;
            if is_requested || is_settled {
                self.applied = seen.clone();
                tracing::info!(file = %self.source.path.display(), is_requested, "reading the configuration again");
                manager::reloading();
                let outcome = self.reload(&reloader).await;
                manager::reloaded();
                if let Some(reply) = reply {
                    // An error means that the requester is gone; the status shows the outcome.
                    let _ = reply.send(outcome);
                }
            }
        }
    }

    async fn poll(&self) -> FileStates {
        let (path, sink_files) = (self.source.path.clone(), self.sink_files.clone());
        let polling = tokio::task::spawn_blocking(move || files(&path, &sink_files));
        polling.await.unwrap_or_else(|_| self.applied.clone())
    }

    async fn reload(&mut self, reloader: &Reloader) -> Reloaded {
        let source = self.source.clone();
        let loading = tokio::task::spawn_blocking(move || source.load());
        let config = match loading.await {
            Ok(Ok(config)) => config,
            Ok(Err(mistakes)) => {
                log_mistakes(&self.source.path, &mistakes);
                reloader.note_mistakes(&mistakes);
                return Err(mistakes.to_string());
            }
            Err(_) => return Err("cannot read the configuration".to_owned()),
        };
        let sink_files = sink_files(&config);
        match reloader.reload(config).await {
            Ok(changes) => {
                if changes.is_empty() {
                    tracing::info!("the configuration is unchanged");
                } else {
                    changes.log();
                }
                if sink_files != self.sink_files {
                    self.sink_files = sink_files;
                    self.applied = self.poll().await;
                }
                serde_json::to_value(changes).map_err(|error| error.to_string())
            }
            Err(error) => {
                let is_partial = error.may_be_partial();
                let error = format!("{:#}", anyhow::Error::new(error));
                if is_partial {
                    tracing::error!(error, "cannot apply the whole configuration; parts of it may be in force");
                } else {
                    tracing::error!(error, "cannot apply the configuration; the previous one stays in force");
                }
                Err(error)
            }
        }
    }
}

/// Logs the number of mistakes, then a line for each of the first [`MAX_LOGGED`].
fn log_mistakes(file: &Path, mistakes: &ConfigErrors) {
    let all = mistakes.mistakes();
    let (file, count) = (file.display(), all.len());
    tracing::error!(%file, mistakes = count, "the configuration is not usable; the previous one stays in force");
    for Mistake { line, variable, key, problem, .. } in all.iter().take(MAX_LOGGED) {
        let variable = variable.as_deref();
        tracing::error!(%file, line, variable, key, error = problem, "mistake in the configuration");
    }
    if let Some(more @ 1..) = count.checked_sub(MAX_LOGGED) {
        tracing::error!(%file, more, "further mistakes in the configuration; run informer-hub check to see all");
    }
}

fn sink_files(config: &Config) -> Vec<PathBuf> {
    config.sinks.iter().flat_map(|sink| sink.files()).map(Path::to_owned).collect()
}

fn files(path: &Path, sink_files: &[PathBuf]) -> FileStates {
    FileStates::of(std::iter::once(path).chain(sink_files.iter().map(PathBuf::as_path)))
}
