//! Clusters whose resourceVersions go back, because their etcd was restored from a backup.

use std::sync::Arc;

use crate::actors::pipeline::reflector::Driver;
use crate::actors::pipeline::reflector::timeouts::current_version;
use informer_hub_types::{ListReason, Origin, ResourceVersion, Rewind, clock};

impl Driver {
    /// Reads the cluster's resourceVersion before a watch is reopened. If it went back, a list follows instead.
    pub(super) async fn check(&mut self) {
        self.clear_recovery();
        let current = current_version(&self.parts.options.stall, &*self.parts.source).await;
        match &current {
            Ok(_) => self.note_answer(),
            Err(error) => self.show_failure(error),
        }
        self.machine.on_checked(&current, clock::now());
        if self.machine.is_listing() {
            let Origin { cluster, resource, .. } = &*self.parts.origin;
            let known = self.machine.last_version().map(ToString::to_string);
            let current = current.ok().flatten().map(|version| version.to_string());
            tracing::warn!(
                %cluster, resource = %resource.gvr, current, known,
                "the cluster's resource version is older than the cached one, so its etcd was restored; listing again"
            );
            self.relists_for = ListReason::TooLarge;
        }
    }

    /// Returns whether the resourceVersion `listed` is older than the newest one seen before, i.e. whether etcd was
    /// restored from a backup. If so, adds the resource to the hub's [`Rewind`]s. The fifo must receive the end of the
    /// list only afterwards.
    pub(super) fn note_rewind(&self, listed: &ResourceVersion) -> bool {
        let health = &self.parts.health;
        let Some(known) = health.newest().filter(|known| known.is_ahead_of(listed)) else { return false };
        health.forget_newest();
        let rewind = Rewind { known: Arc::unwrap_or_clone(known), listed: listed.clone() };
        self.parts.rewinds.add(&self.parts.origin, rewind);
        true
    }
}
