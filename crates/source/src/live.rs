//! A client that is made anew when what it is made from changes: credentials rotate under running informers.
//!
//! # What is looked at
//! Every [`LOOK`], the time and size of each file that a client was made from and does not read again itself: the
//! kubeconfig, its certificates and keys. And whenever the apiserver answers 401, whatever the files say, since a
//! credential plugin may have something new. Watches that are open go on as they are; requests from then on use the new
//! client. Where making one fails, the old one stays, and it is tried again every [`AGAIN`], or when the files change once
//! more: a file that is half written is no harm.
//!
//! # Another address
//! A client for another address reaches, for all that is known, another history of versions: watches of the old address
//! end, and sources learn by [`Made::epoch`] that a version they know means nothing any more.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::client::{Access, ClientError, Made as NewClient, make};
use informer_hub_dial::Dial;
use informer_hub_disk::FileStates;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Threads, WatchCell, Watcher};

/// How often files are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(10);
/// How often making a client is tried again after it has failed, and at most after 401s.
pub(super) const AGAIN: Duration = Duration::from_secs(30);

/// What a client is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) access: Access,
    pub(super) compression: bool,
}

/// A client, as it is now.
pub(super) struct Made {
    pub(super) client: Client,
    /// Whether it takes answers that are gzipped.
    pub(super) compression: bool,
    /// Counts addresses.
    pub(super) epoch: u64,
    address: String,
    /// Scheme, host and port of the address.
    pub(super) server: String,
    files: FileStates,
}

/// See the module.
pub(super) struct Live {
    /// The cluster's name, for log lines; unset: what it is reached by.
    cluster: Option<Arc<str>>,
    way: Mutex<Way>,
    dial: Option<Dial>,
    io: Threads,
    made: ArcSwap<Made>,
    epoch: WatchCell<u64>,
    /// Asks for a look at once.
    hurry: Arc<Notify>,
    /// Whether a client is to be made though no file has changed.
    wanted: Mutex<bool>,
}

impl Live {
    /// Makes the first client.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(super) async fn connect(
        cluster: Option<Arc<str>>,
        way: Way,
        dial: Option<Dial>,
        io: &Threads,
    ) -> Result<Arc<Self>, ClientError> {
        let new = make(cluster.clone(), way.access.clone(), way.compression, dial.clone(), io).await?;
        let live = Arc::new(Self {
            cluster,
            made: ArcSwap::from_pointee(Made::new(new, way.compression, 0)),
            way: Mutex::new(way),
            dial,
            io: io.clone(),
            epoch: WatchCell::new(0),
            hurry: Arc::default(),
            wanted: Mutex::new(false),
        });
        io.spawn(keep(Arc::downgrade(&live), Arc::clone(&live.hurry)));
        Ok(live)
    }

    /// The client to use for one request.
    pub(super) fn made(&self) -> Arc<Made> {
        self.made.load_full()
    }

    /// Sees the number of the address.
    pub(super) fn epochs(&self) -> Watcher<u64> {
        self.epoch.subscribe()
    }

    /// The apiserver took the credentials for none of its own (401).
    pub(super) fn refused(&self) {
        *self.wanted.lock() = true;
        self.hurry.notify_one();
    }

    /// From now on the cluster is reached in another way.
    pub(super) fn change(&self, way: Way) {
        *self.way.lock() = way;
        self.refused();
    }

    /// Makes the client anew, where there is reason to.
    async fn renew(&self, tried: &mut Option<Tried>) {
        let (way, old) = (self.way.lock().clone(), self.made.load_full());
        let (files, now) = (again(&old.files, &self.io).await, clock::now());
        let is_wanted = *self.wanted.lock();
        let is_new = files != old.files;
        let waits = tried.as_ref().is_some_and(|tried| tried.is_same(&way, &files) && now < tried.at + AGAIN);
        if !(is_wanted || is_new) || waits {
            return;
        }
        *self.wanted.lock() = false;
        let made = make(self.cluster.clone(), way.access.clone(), way.compression, self.dial.clone(), &self.io).await;
        let failed_before = tried.as_ref().is_some_and(|tried| tried.failed);
        let compression = way.compression;
        *tried = Some(Tried { at: clock::now(), way, files, failed: made.is_err() });
        match made {
            Ok(new) => {
                let has_moved = new.address != old.address;
                let epoch = old.epoch + u64::from(has_moved);
                tracing::info!(address = new.address, has_moved, "credentials are read anew");
                self.made.store(Arc::new(Made::new(new, compression, epoch)));
                self.epoch.modify(|current| std::mem::replace(current, epoch) != epoch);
            }
            Err(error) => {
                *self.wanted.lock() = true;
                if !failed_before {
                    tracing::warn!(%error, "credentials cannot be read anew, those from before stay in use");
                }
            }
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("way", &*self.way.lock()).finish_non_exhaustive()
    }
}

impl Made {
    fn new(NewClient { client, address, server, files }: NewClient, compression: bool, epoch: u64) -> Self {
        Self { client, compression, epoch, address, server, files }
    }
}

/// The last time that a client was made, or was to be.
struct Tried {
    at: Instant,
    way: Way,
    files: FileStates,
    failed: bool,
}

impl Tried {
    fn is_same(&self, way: &Way, files: &FileStates) -> bool {
        self.way == *way && self.files == *files
    }
}

async fn keep(live: Weak<Live>, hurry: Arc<Notify>) {
    let mut tried = None;
    loop {
        // Whether it was hurried or the time is up makes no difference.
        let _ = tokio::time::timeout(LOOK, hurry.notified()).await;
        let Some(live) = live.upgrade() else { return };
        live.renew(&mut tried).await;
    }
}

async fn again(files: &FileStates, io: &Threads) -> FileStates {
    if files.is_empty() {
        return FileStates::default();
    }
    let known = files.clone();
    io.spawn_blocking(move || known.again()).await.unwrap_or_else(|_| files.clone())
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
