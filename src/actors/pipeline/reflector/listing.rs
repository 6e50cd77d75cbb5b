//! Start and end of a list: updates the informer's health, traces the list, and queues the changes that mark its start
//! and end in the fifo.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;

use tracing::Span;

use crate::actors::pipeline::reflector::Driver;
use informer_hub_reflector::SourceError;
use informer_hub_telemetry::spans;
use informer_hub_types::{Change, ListReason, Origin, Phase, ResourceVersion, clock};

/// A list in progress.
pub(super) struct Listing {
    span: Span,
    pub(super) pages: u64,
}

impl Driver {
    pub(super) fn begin_list(&mut self) {
        self.skipped.clear();
        self.list_began = clock::now();
        self.mark_not_watching();
        let health = &self.parts.health;
        health.note_list(self.relists_for);
        health.list_items.store(0, Relaxed);
        health.list_expected.store(0, Relaxed);
        if !health.has_synced() {
            health.set_phase(Phase::Listing);
        }
        self.pending.push(Change::ReplaceBegin);
    }

    /// Starts the span of a list. A list that resumes after a failure gets a new span.
    pub(super) fn trace_list(&mut self) {
        let Origin { cluster, resource, scope, .. } = &*self.parts.origin;
        self.listing.get_or_insert_with(|| Listing { span: spans::list(cluster, &resource.gvr, scope), pages: 0 });
    }

    pub(super) fn end_list_trace(&mut self, error: Option<&SourceError>) {
        if let Some(listing) = self.listing.take() {
            let objects = self.parts.health.list_items.load(Relaxed);
            spans::end_list(&listing.span, objects, listing.pages, error.map(|error| error as &dyn Display));
        }
    }

    /// Queues the end of a list. If the cluster's resourceVersions went back (its etcd was restored), also requests a
    /// second list.
    ///
    /// In the first list, the store keeps its own copy of an object if the listed object has the same resourceVersion.
    /// After a restore, the contents may differ nevertheless. The second list replaces such copies.
    pub(super) fn complete_list(&mut self, version: ResourceVersion) {
        if self.note_rewind(&version) {
            self.pending.push(Change::Rewind);
            self.must_list_again = true;
        }
        self.pending.push(Change::ReplaceEnd(version));
        self.listed();
    }

    /// Starts the second list if [`Self::complete_list`] has requested one.
    pub(super) fn list_again_if_due(&mut self) {
        if std::mem::take(&mut self.must_list_again) {
            self.relists_for = ListReason::TooLarge;
            self.machine.relist();
        }
    }

    fn listed(&mut self) {
        self.end_list_trace(None);
        let Origin { cluster, resource, .. } = &*self.parts.origin;
        let health = &self.parts.health;
        health.list_expected.store(0, Relaxed);
        health.timings().inspect(|timings| timings.lists.record(clock::now() - self.list_began, None));
        self.clear_error();
        self.show_version();
        let objects = health.list_items.load(Relaxed);
        tracing::debug!(%cluster, resource = %resource.gvr, objects, "listed the resource");
    }

    pub(super) fn list_failed(&mut self, error: &SourceError) {
        let span = self.listing.as_ref().map_or_else(Span::none, |listing| listing.span.clone());
        span.in_scope(|| self.show_failure(error));
        self.end_list_trace(Some(error));
        self.machine.on_list_error(error, clock::now());
    }
}
