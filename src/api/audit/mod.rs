//! Audit log of the HTTP port: one event for each request, including denied and failed requests, and two events for
//! each stream of changes. The audit policy can exclude requests.
//!
//! `connections` begins a [`Record`] when it has read the head of a request. Handlers add what they read to its
//! [`Notes`](super::notes). The record writes its last event when it is dropped: after the last part of the answer, or
//! when the client disconnects.
//!
//! Events, policy and writer are in `informer_hub_audit`; this module connects them with HTTP.

mod body;
mod record;
mod target;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::http::Request;
use tokio::sync::Notify;

pub(in crate::api) use self::body::audited;
pub(in crate::api) use self::record::Record;
use super::authentication::Access;
use super::extensions::PeerAddress;
use informer_hub_audit::{AuditCounts, AuditLog, Policy};
use informer_hub_types::clock;

/// Audit log of an HTTP port.
pub struct Auditor {
    log: AuditLog,
    policy: Policy,
    /// Number of requests whose last audit event is not written yet.
    open: AtomicUsize,
    /// Notified when `open` becomes zero.
    became_idle: Notify,
}

impl Auditor {
    /// Creates the audit log of an HTTP port.
    #[must_use]
    pub fn new(log: AuditLog, policy: Policy) -> Self {
        Self { log, policy, open: AtomicUsize::new(0), became_idle: Notify::new() }
    }

    /// Begins the record of a request, from which its audit events are written.
    pub(in crate::api) fn begin<B>(
        self: &Arc<Self>,
        request: &Request<B>,
        peer: PeerAddress,
        access: &Access,
    ) -> Record {
        self.open.fetch_add(1, SeqCst);
        Record::new(Arc::clone(self), request, peer, access)
    }

    /// Returns the numbers of written, lost and queued audit events.
    pub fn counts(&self) -> AuditCounts {
        self.log.counts()
    }

    /// Logs the number of audit events lost since the last call.
    pub(in crate::api) fn report_losses(&self) {
        let lost = self.log.unreported();
        if lost > 0 {
            tracing::warn!(lost, "lost events of the audit log: its output is too slow or fails");
        }
    }

    /// Waits, for at most `timeout`, until requests in progress have ended and their events are written. Later events
    /// are lost.
    pub async fn close(self: &Arc<Self>, timeout: Duration) {
        let until = clock::now() + timeout;
        while self.open.load(SeqCst) > 0 {
            if tokio::time::timeout_at(until, self.became_idle.notified()).await.is_err() {
                break;
            }
        }
        let (auditor, left) = (Arc::clone(self), until.saturating_duration_since(clock::now()));
        let closing = tokio::task::spawn_blocking(move || auditor.log.close(left));
        match closing.await {
            Ok(0) => {}
            Ok(lost) => {
                tracing::warn!(
                    lost,
                    "the events that the audit log had not written at shutdown are lost: its output is too slow or fails"
                );
            }
            Err(error) => tracing::warn!(%error, "cannot close the audit log; its last events may be missing"),
        }
    }

    /// Decrements `open`, after the last event of a request was written.
    fn ended(&self) {
        if self.open.fetch_sub(1, SeqCst) == 1 {
            self.became_idle.notify_one();
        }
    }
}

impl fmt::Debug for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auditor").field("log", &self.log).finish_non_exhaustive()
    }
}
