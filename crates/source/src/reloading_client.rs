//! A client that is rebuilt when its credentials change, while informers use it.
//!
//! # Triggers
//! The client is rebuilt if one of the files that it does not reread itself has changed: the kubeconfig, its
//! certificates and keys. Sizes and modification times of these files are checked every [`CHECK_INTERVAL`]. A 401
//! answer also triggers a rebuild, since a credential plugin may have a new token.
//!
//! # Rebuild
//! Open watches continue; later requests use the new client. The new client keeps the connections, unless the address,
//! the protocol or the TLS settings (such as the client certificate) have changed. If a rebuild fails, the old client
//! stays in use. The rebuild is retried every [`RETRY_INTERVAL`], or when the files change again, so a half-written
//! file does no harm.
//!
//! # Address changes
//! A new address may lead to another cluster, whose resourceVersions cannot be compared with the known ones. When the
//! address changes, watches of the old address end. A new [`CurrentClient::epoch`] makes the sources drop the resource
//! versions that they know.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::client::{AccessSettings, ClientError, NewClient, make};
use super::transport::{Transport, Wiring};
use informer_hub_disk::FileStates;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ClusterTraffic, Encodings, Threads, WatchCell, Watcher, with_causes};

/// Interval of file checks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between two rebuilds with the same settings and files, after a failure or a 401 answer.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The client in use, with the settings that requests need.
pub(super) struct CurrentClient {
    pub(super) client: Client,
    /// Whether requests accept gzipped answers.
    pub(super) compression: bool,
    /// Encodings that requests accept.
    pub(super) encoding: Encodings,
    /// Number of address changes of the cluster so far.
    pub(super) epoch: u64,
    address: String,
    /// Scheme, host and port of the address.
    pub(super) server: String,
    files: FileStates,
    transport: Transport,
}

/// A client that is rebuilt when its credentials change. See the module documentation.
pub(super) struct ReloadingClient {
    /// The cluster's name for log lines; `None` uses a description of its access settings.
    cluster: Option<Arc<str>>,
    settings: Mutex<AccessSettings>,
    wiring: Wiring,
    io: Threads,
    current: ArcSwap<CurrentClient>,
    epoch: WatchCell<u64>,
    /// Wakes the rebuild task before the next file check.
    wake: Arc<Notify>,
    /// Whether to rebuild the client even if no file has changed.
    rebuild_requested: Mutex<bool>,
}

impl ReloadingClient {
    /// Builds the first client, and starts the task that rebuilds it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn connect(
        cluster: Option<Arc<str>>,
        settings: AccessSettings,
        wiring: Wiring,
        io: &Threads,
    ) -> Result<Arc<Self>, ClientError> {
        let new = make(cluster.clone(), settings.clone(), wiring.clone(), io).await?;
        let client = Arc::new(Self {
            cluster,
            current: ArcSwap::from_pointee(CurrentClient::new(new, &settings, 0)),
            settings: Mutex::new(settings),
            wiring,
            io: io.clone(),
            epoch: WatchCell::new(0),
            wake: Arc::default(),
            rebuild_requested: Mutex::new(false),
        });
        io.spawn(rebuild_on_change(Arc::downgrade(&client), Arc::clone(&client.wake)));
        Ok(client)
    }

    /// Returns the client to use for one request.
    pub(super) fn current(&self) -> Arc<CurrentClient> {
        self.current.load_full()
    }

    /// Returns the numbers of open connections and running requests, including those of replaced clients.
    pub(super) fn traffic(&self) -> ClusterTraffic {
        self.wiring.gauges.read()
    }

    /// Subscribes to [`CurrentClient::epoch`], the number of address changes of the cluster.
    pub(super) fn epochs(&self) -> Watcher<u64> {
        self.epoch.subscribe()
    }

    /// Requests a rebuild, because the apiserver has rejected the credentials (401).
    pub(super) fn credentials_refused(&self) {
        *self.rebuild_requested.lock() = true;
        self.wake.notify_one();
    }

    /// Changes the access settings. Later requests use a client that is rebuilt with them.
    pub(super) fn change(&self, settings: AccessSettings) {
        *self.settings.lock() = settings;
        self.credentials_refused();
    }

    /// Rebuilds the client if files have changed or a rebuild was requested. If settings and files are the same as at
    /// the last attempt, waits until [`RETRY_INTERVAL`] has passed since then.
    async fn renew(&self, last_attempt: &mut Option<Attempt>) {
        let (settings, old) = (self.settings.lock().clone(), self.current.load_full());
        let (files, now) = (restamp(&old.files, &self.io).await, clock::now());
        let is_requested = *self.rebuild_requested.lock();
        let files_changed = files != old.files;
        let must_wait = last_attempt.as_ref().is_some_and(|last_attempt| {
            last_attempt.is_same(&settings, &files) && now < last_attempt.at + RETRY_INTERVAL
        });
        if !(is_requested || files_changed) || must_wait {
            return;
        }
        *self.rebuild_requested.lock() = false;
        let wiring = Wiring { last: Some(old.transport.clone()), ..self.wiring.clone() };
        let current = make(self.cluster.clone(), settings.clone(), wiring, &self.io).await;
        let failed_before = last_attempt.as_ref().is_some_and(|last_attempt| last_attempt.failed);
        let (at, failed) = (clock::now(), current.is_err());
        *last_attempt = Some(Attempt { at, settings: settings.clone(), files, failed });
        let cluster = self.cluster.as_deref();
        match current {
            Ok(new) => {
                let has_moved = new.address != old.address;
                let epoch = old.epoch + u64::from(has_moved);
                tracing::info!(cluster, address = new.address, has_moved, "reloaded the credentials of a cluster");
                self.current.store(Arc::new(CurrentClient::new(new, &settings, epoch)));
                self.epoch.modify(|current| std::mem::replace(current, epoch) != epoch);
            }
            Err(error) => {
                *self.rebuild_requested.lock() = true;
                if !failed_before {
                    let error = with_causes(&error);
                    tracing::warn!(
                        cluster,
                        error,
                        "cannot reload the credentials of a cluster; the previous ones stay in use"
                    );
                }
            }
        }
    }
}

impl fmt::Debug for ReloadingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadingClient").field("settings", &*self.settings.lock()).finish_non_exhaustive()
    }
}

impl CurrentClient {
    fn new(new: NewClient, settings: &AccessSettings, epoch: u64) -> Self {
        let NewClient { client, address, server, files, transport } = new;
        let AccessSettings { compression, encoding, .. } = *settings;
        Self { client, compression, encoding, epoch, address, server, files, transport }
    }
}

struct Attempt {
    at: Instant,
    settings: AccessSettings,
    files: FileStates,
    failed: bool,
}

impl Attempt {
    fn is_same(&self, settings: &AccessSettings, files: &FileStates) -> bool {
        self.settings == *settings && self.files == *files
    }
}

async fn rebuild_on_change(client: Weak<ReloadingClient>, wake: Arc<Notify>) {
    let mut last_attempt = None;
    loop {
        // Both a notification and the timeout lead to a check.
        let _ = tokio::time::timeout(CHECK_INTERVAL, wake.notified()).await;
        let Some(client) = client.upgrade() else { return };
        client.renew(&mut last_attempt).await;
    }
}

async fn restamp(files: &FileStates, io: &Threads) -> FileStates {
    if files.is_empty() {
        return FileStates::default();
    }
    let known = files.clone();
    io.spawn_blocking(move || known.again()).await.unwrap_or_else(|_| files.clone())
}

#[cfg(test)]
#[path = "reloading_client_tests.rs"]
mod tests;
