//! The configuration's file, watched: read again at SIGHUP, and when it or a file that it names has changed.
//!
//! Looked at every [`LOOK`] by time and size, which works on every file system and through the links by which Kubernetes
//! changes mounted files. What has changed is read once it has stayed the same from one look to the next, so that a file is
//! not read while it is being written; if it is half written all the same, that is a mistake like others, and the next
//! change is looked at as well.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot};

use super::load::load;
use super::manager;
use super::reload::Reloader;
use crate::api::Reloaded;
use informer_hub_config::{Config, ConfigErrors, Mistake};
use informer_hub_disk::FileStates;
use informer_hub_types::clock;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Mistakes of a configuration that have a log line of their own.
const LOGGED: usize = 50;

/// Somebody who has asked for a reload, and is told what came of it.
pub(super) type Asked = oneshot::Sender<Reloaded>;

/// See the module.
pub(super) struct ConfigFile {
    path: PathBuf,
    /// Files that sinks are built from.
    others: Vec<PathBuf>,
    applied: FileStates,
}

impl ConfigFile {
    /// The file that a configuration was read from. Blocks.
    pub(super) fn new(path: PathBuf, config: &Config) -> Self {
        let others = others(config);
        let applied = files(&path, &others);
        Self { path, others, applied }
    }

    /// Reloads until it is dropped.
    pub(super) async fn keep(mut self, reloader: Reloader, mut hangup: Signal, mut asks: mpsc::Receiver<Asked>) {
        let mut ticks = clock::ticks(LOOK);
        let mut seen = self.applied.clone();
        loop {
            let (is_asked, reply) = tokio::select! {
                _ = ticks.tick() => (false, None),
                asked = hangup.recv() => (asked.is_some(), None),
                Some(reply) = asks.recv() => (true, Some(reply)),
            };
            let now = self.look().await;
            let is_settled = now == seen && now != self.applied;
            seen = now;
            if is_asked || is_settled {
                self.applied = seen.clone();
                tracing::info!(file = %self.path.display(), is_asked, "the configuration is read again");
                manager::reloading();
                let outcome = self.reload(&reloader).await;
                manager::reloaded();
                if let Some(reply) = reply {
                    // Who does not wait any more finds it in the status.
                    let _ = reply.send(outcome);
                }
            }
        }
    }

    async fn look(&self) -> FileStates {
        let (path, others) = (self.path.clone(), self.others.clone());
        let looking = tokio::task::spawn_blocking(move || files(&path, &others));
        looking.await.unwrap_or_else(|_| self.applied.clone())
    }

    async fn reload(&mut self, reloader: &Reloader) -> Reloaded {
        let path = self.path.clone();
        let loading = tokio::task::spawn_blocking(move || load(path));
        let config = match loading.await {
            Ok(Ok(config)) => config,
            Ok(Err(mistakes)) => {
                log_mistakes(&self.path, &mistakes);
                reloader.note_mistakes(&mistakes);
                return Err(mistakes.to_string());
            }
            Err(_) => return Err("reading the configuration failed".to_owned()),
        };
        let others = others(&config);
        match reloader.reload(config).await {
            Ok(changes) => {
                if changes.is_empty() {
                    tracing::info!("the configuration says what it said before");
                } else {
                    changes.log();
                }
                if others != self.others {
                    self.others = others;
                    self.applied = self.look().await;
                }
                serde_json::to_value(changes).map_err(|error| error.to_string())
            }
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::new(error));
                tracing::error!(error, "the configuration is not applied");
                Err(error)
            }
        }
    }
}

/// One line with the file and the number of mistakes, then one line each for the first [`LOGGED`].
fn log_mistakes(file: &Path, mistakes: &ConfigErrors) {
    let all = mistakes.mistakes();
    let (file, count) = (file.display(), all.len());
    tracing::error!(%file, mistakes = count, "the configuration cannot be used, the one from before stays");
    for Mistake { line, variable, key, problem, .. } in all.iter().take(LOGGED) {
        let variable = variable.as_deref();
        tracing::error!(%file, line, variable, key, error = problem, "mistake in the configuration");
    }
    if let Some(more @ 1..) = count.checked_sub(LOGGED) {
        tracing::error!(%file, more, "further mistakes in the configuration: informer-hub check shows all");
    }
}

fn others(config: &Config) -> Vec<PathBuf> {
    config.sinks.iter().flat_map(|sink| sink.files()).map(Path::to_owned).collect()
}

fn files(path: &Path, others: &[PathBuf]) -> FileStates {
    FileStates::of(std::iter::once(path).chain(others.iter().map(PathBuf::as_path)))
}
