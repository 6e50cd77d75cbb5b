//! What a reflector shows of itself: how far it has read, and what goes wrong.

use super::Driver;
use crate::reflector::{ErrorClass, SourceError};
use crate::types::{ObjectKey, Origin, Phase};

impl Driver {
    /// The request works; what was skipped is still missing, and must not be forgotten over that.
    pub(super) fn clear_error(&self) {
        self.parts.health.set_error(self.skipped.as_ref().map(|(_, said)| said.clone()));
    }

    /// An object that was skipped has changed into one that can be taken in (or has been deleted).
    pub(super) fn note_taken(&mut self, key: &ObjectKey) {
        if self.skipped.as_ref().is_some_and(|(skipped, _)| skipped.as_ref() == Some(key)) {
            self.skipped = None;
            self.parts.health.set_error(None);
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

    /// Says that a failure that was logged is over.
    pub(super) fn show_well(&mut self) {
        if !self.told.is_empty() {
            self.told.clear();
            let Origin { cluster, resource, .. } = &*self.parts.origin;
            tracing::info!(%cluster, resource = %resource.gvr, "watching again");
        }
    }

    pub(super) fn show_failure(&mut self, error: &SourceError) {
        let Origin { cluster, resource, .. } = &*self.parts.origin;
        let health = &self.parts.health;
        self.relists_for = error.class.list_reason();
        let silent = matches!(error.class, ErrorClass::Refused | ErrorClass::Stalled | ErrorClass::Transient);
        health.set_answers(!silent);
        self.parts.watch_errors.tell(&self.parts.origin, error, &self.parts.handlers);
        let phase = match error.class {
            ErrorClass::Forbidden | ErrorClass::Unauthorized => Phase::Forbidden,
            ErrorClass::NotFound => Phase::Absent,
            // A relist from a fresh version is the protocol's ordinary way on.
            _ if health.has_synced() => Phase::Stale,
            _ => Phase::Listing,
        };
        health.set_phase(phase);
        health.set_error(Some(error.to_string()));
        if matches!(error.class, ErrorClass::Expired | ErrorClass::TooLarge | ErrorClass::StreamingUnsupported) {
            tracing::info!(%cluster, resource = %resource.gvr, %error, "listing again");
        } else if self.told.contains(&error.class) {
            tracing::debug!(%cluster, resource = %resource.gvr, %error, "the list or watch failed again");
        } else {
            self.told.push(error.class);
            tracing::warn!(%cluster, resource = %resource.gvr, %error, "the list or watch failed, it is tried again");
        }
    }
}
