//! Health reports of a reflector: resourceVersions, phases, errors.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::actors::pipeline::reflector::{Driver, WatchOutcome};
use crate::actors::runtime::supervision::detach;
use informer_hub_reflector::{ErrorClass, Skipped, SourceError};
use informer_hub_types::{Change, JsonReason, ObjectKey, Origin, Phase};

impl Driver {
    /// Marks a synced informer as stale while no watch is open.
    pub(super) fn mark_not_watching(&self) {
        if self.parts.health.phase() == Phase::Watching {
            self.parts.health.set_phase(Phase::Stale);
        }
    }

    /// Clears the error in the informer's health after a success. If objects are still skipped, the message of the
    /// object that was skipped last becomes the error.
    pub(super) fn clear_error(&self) {
        self.parts.health.set_error(self.skipped.last());
    }

    /// Records that a later state of an object was accepted or the object was deleted. If it had been skipped, its
    /// error disappears from the status.
    pub(super) fn note_accepted(&mut self, key: &ObjectKey) {
        if self.skipped.remove(key) {
            self.parts.health.set_error(self.skipped.last());
        }
    }

    /// Reports an object that cannot be decoded. The store keeps the object's last known state. Set `listing` if the
    /// object is part of a list, so that the end of the list does not delete that state.
    pub(super) fn skip(&mut self, skipped: Skipped, listing: bool) {
        let Origin { cluster, resource, .. } = &*self.parts.origin;
        let key = skipped.key.as_ref().map_or("unknown", |key| key.as_str());
        let message = format!("skipped object {key}: {}", skipped.reason);
        self.parts.health.skipped.fetch_add(1, Relaxed);
        self.parts.health.set_error(Some(message.clone()));
        tracing::warn!(
            %cluster, resource = %resource.gvr, object = key, error = skipped.reason,
            "skipped an object; the cache keeps its earlier state, if any"
        );
        self.skipped.add(skipped.key.clone(), message);
        if let Some(key) = skipped.key.filter(|_| listing) {
            self.pending.push(Change::ReplaceKeep(key));
        }
    }

    pub(super) fn show_version(&self) {
        if let Some(version) = self.machine.last_version()
            && self.parts.health.version().as_deref() != Some(version)
        {
            self.parts.health.set_version(version.clone());
        }
        if let Some(floor) = self.machine.floor()
            && self.parts.health.newest().is_none_or(|newest| floor.newer_than(&newest))
        {
            self.parts.health.set_floor(floor.clone());
        }
    }

    /// Reports that list or watch succeeded, if that has not been reported since the last failure.
    pub(super) fn report_success(&mut self) {
        if std::mem::take(&mut self.unproven) {
            self.report(None);
        }
    }

    /// Records that the cluster answered. If the previous request was unanswered, signals the recovery to the cluster's
    /// other actors.
    pub(super) fn note_answer(&mut self) {
        let health = &self.parts.health;
        let was_unanswered = health.answers() == Some(false);
        health.set_answers(true);
        if was_unanswered {
            self.parts.recovery.signal();
            self.clear_recovery();
        }
        self.show_encoding();
    }

    /// Shows the encoding in use in the status, and logs a change from protobuf to JSON.
    pub(super) fn show_encoding(&self) {
        let Some(encoding) = self.parts.source.encoding() else { return };
        let Origin { cluster, resource, .. } = &*self.parts.origin;
        let (reason, message) = (encoding.fallback(), encoding.message.clone());
        if self.parts.health.set_encoding(encoding) {
            let reason = reason.map(JsonReason::as_str).unwrap_or_default();
            let message = message.unwrap_or_default();
            tracing::info!(
                %cluster, resource = %resource.gvr, reason, message,
                "reading the resource as JSON instead of protobuf"
            );
        }
    }

    /// Ignores earlier recovery signals, so that only later answers of the cluster shorten the next wait.
    pub(super) fn clear_recovery(&mut self) {
        drop(self.recovery_watcher.read_latest());
    }

    fn report(&self, error: Option<SourceError>) {
        let outcome = WatchOutcome { origin: Arc::clone(&self.parts.origin), error };
        detach(self.parts.outcomes.send(outcome));
    }

    pub(super) fn show_failure(&mut self, error: &SourceError) {
        self.relists_for = error.class.list_reason();
        if error.class.is_healthy_answer() {
            self.note_answer();
        } else {
            self.parts.health.set_answers(!error.class.is_unreachable());
        }
        let Origin { cluster, resource, .. } = &*self.parts.origin;
        let health = &self.parts.health;
        self.parts.watch_errors.notify(&self.parts.origin, error, &self.parts.handlers);
        let phase = match error.class {
            ErrorClass::Forbidden | ErrorClass::Unauthorized => Phase::Forbidden,
            ErrorClass::NotFound => Phase::Absent,
            // Includes 410 (expired): a relist is a normal part of the protocol.
            _ if health.has_synced() => Phase::Stale,
            _ => Phase::Listing,
        };
        health.set_phase(phase);
        health.set_error(Some(error.to_string()));
        self.show_encoding();
        if matches!(error.class, ErrorClass::Expired | ErrorClass::TooLarge | ErrorClass::StreamingUnsupported) {
            tracing::info!(%cluster, resource = %resource.gvr, %error, "listing the resource again");
        } else {
            tracing::debug!(%cluster, resource = %resource.gvr, %error, "list or watch failed");
            self.unproven = true;
            self.report(Some(error.clone()));
        }
    }
}
