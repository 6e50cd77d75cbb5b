//! Deliverers of a fleet (the processes that deliver events to sinks), as this process last read them from a store.
//!
//! Each deliverer writes its own entry to a common store at an interval, and reads the entries of the others. The
//! entries decide how sinks are shared. Whether a process may deliver to a sink depends only on the lease of that sink.
#![cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "only a fleet has deliverers"))]

use std::collections::BTreeSet;
#[cfg(feature = "fleet")]
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use informer_hub_lease::ElectionParams;
#[cfg(feature = "fleet")]
use informer_hub_lease::group::Member;
use informer_hub_lease::group::{Members, Roster, Running};
#[cfg(feature = "fleet")]
use informer_hub_roles::{Backend, BackendError, Deliverer, RosterEntry, RosterItem};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::rng;

/// Store with an entry for each deliverer: the name of the process, and the sinks that it contends for. Every request
/// ends within a deadline.
pub(super) trait Entries: Send + Sync {
    fn put(&self, name: &str, sinks: BTreeSet<String>) -> BoxFuture<'_, Result<(), String>>;

    fn all(&self) -> BoxFuture<'_, Result<Members, String>>;

    fn remove(&self, name: &str) -> BoxFuture<'_, Result<(), String>>;
}

pub(super) struct Deliverers {
    entries: Box<dyn Entries>,
    identity: String,
    interval: Duration,
    roster: Mutex<Roster>,
    /// Notified when this process has to write its changed entry to the list of deliverers.
    changed: Notify,
    left: CancellationToken,
}

impl Deliverers {
    pub(super) fn new(entries: Box<dyn Entries>, identity: &str, params: &ElectionParams) -> Self {
        Self {
            entries,
            identity: identity.to_owned(),
            interval: params.retry_period,
            roster: Mutex::new(Roster::new(identity, params.renew_deadline)),
            changed: Notify::new(),
            left: CancellationToken::new(),
        }
    }

    /// Sets the sinks that this process contends for.
    pub(super) fn set_sinks(&self, sinks: BTreeSet<String>) {
        let mut roster = self.roster.lock();
        let sinks = Some(sinks).filter(|sinks| !sinks.is_empty());
        if roster.leases() != sinks.as_ref() {
            roster.set_leases(sinks);
            self.changed.notify_one();
        }
    }

    pub(super) fn running(&self, now: Duration) -> Running {
        self.roster.lock().running(now)
    }

    /// Writes this process's entry and reads the entries of all deliverers at an interval, until [`Self::leave`] is
    /// called.
    pub(super) async fn run(&self) {
        let running = async {
            loop {
                let exchanged = self.exchange().await;
                if let Err(error) = &exchanged {
                    // The elections warn if NATS does not answer.
                    tracing::debug!(
                        error,
                        "cannot write or read which processes deliver the sinks of the fleet; retrying"
                    );
                }
                let pause = if exchanged.is_ok() { self.interval } else { self.interval / 4 };
                let pause = tokio::time::sleep(pause.mul_f64(0.75 + rng::unit() / 4.0));
                tokio::select! {
                    () = pause => {}
                    () = self.changed.notified() => {}
                }
            }
        };
        self.left.run_until_cancelled(running).await;
    }

    async fn exchange(&self) -> Result<(), String> {
        let own = self.roster.lock().leases().cloned();
        let written = match own {
            Some(sinks) => self.entries.put(&self.identity, sinks).await,
            None => Ok(()),
        };
        let members = self.entries.all().await?;
        let obsolete = {
            let (mut roster, now) = (self.roster.lock(), clock::since_boot());
            roster.read(&members, now);
            roster.obsolete(now)
        };
        for name in obsolete {
            self.entries.remove(&name).await?;
        }
        written
    }

    /// Removes this process's entry from the list of deliverers, so that no other process hands a sink over to this
    /// process. Waits for the removal until `deadline`.
    pub(super) async fn leave(&self, deadline: Instant) {
        self.left.cancel();
        if self.roster.lock().leases().is_none() {
            return;
        }
        let removed = tokio::time::timeout_at(deadline, self.entries.remove(&self.identity)).await;
        if let Err(error) = removed.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
            tracing::debug!(error, "cannot remove this deliverer from the roster; its entry expires");
        }
    }
}

/// Entries of deliverers in the backend of a fleet.
#[cfg(feature = "fleet")]
pub(super) struct FleetEntries(pub(super) Arc<dyn Backend>);

#[cfg(feature = "fleet")]
impl Entries for FleetEntries {
    fn put(&self, name: &str, sinks: BTreeSet<String>) -> BoxFuture<'_, Result<(), String>> {
        let item = RosterItem::Deliverer(Deliverer { name: name.to_owned(), sinks });
        Box::pin(async move { self.0.put_roster(&item).await.map_err(text) })
    }

    fn all(&self) -> BoxFuture<'_, Result<Members, String>> {
        let member = |entry: RosterEntry| match entry.item {
            RosterItem::Deliverer(Deliverer { name, sinks }) => {
                Some((name, Member { revision: entry.revision, leases: sinks }))
            }
            _ => None,
        };
        Box::pin(async move {
            let entries = self.0.roster().await.map_err(text)?;
            Ok(entries.into_iter().filter_map(member).collect())
        })
    }

    fn remove(&self, name: &str) -> BoxFuture<'_, Result<(), String>> {
        let item = RosterItem::Deliverer(Deliverer { name: name.to_owned(), ..Deliverer::default() });
        Box::pin(async move { self.0.remove_roster(&item).await.map_err(text) })
    }
}

#[cfg(feature = "fleet")]
fn text(error: BackendError) -> String {
    error.0
}
