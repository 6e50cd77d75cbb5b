//! Document about the cluster of an owned shard: its server, resources and failures. Replicas read this document
//! instead of asking the apiserver.
//!
//! A new owner continues the previous owner's document, so that resources stay known after a takeover. The document is
//! stored when it has changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use informer_hub_fleet::{ClusterDocument, FailureKind, Partition, SourceFailure};
use informer_hub_reflector::{ErrorClass, ResolveError, Server, SourceError};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, Catalogue, ResourceLookup, ResourceRef, Shard};
use parking_lot::Mutex;

use super::directory::Known;
use crate::backend::{Backend, BackendError};

/// Minimum duration of a failure that this collector publishes in its document about the cluster. Shorter ones, such as
/// a watch that is cut off and immediately reopened, are left out.
const SETTLED: Duration = Duration::from_secs(3);

/// Facts that this collector has found out about the cluster of a shard that it owns, for the document about the
/// cluster.
#[derive(Debug, Default)]
pub(super) struct Knowledge(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    server: Option<Server>,
    resolved: BTreeMap<ResourceRef, Option<ApiResource>>,
    catalogue: Option<Arc<Catalogue>>,
    failures: BTreeMap<Partition, (Instant, SourceFailure)>,
    /// Document about the cluster as it is stored in the backend; `None` if it must be read first.
    stored: Option<Stored>,
}

#[derive(Clone, Debug)]
struct Stored {
    revision: Option<u64>,
    document: ClusterDocument,
    /// When this copy of the document was read from the backend or written to it.
    at: Instant,
}

impl Knowledge {
    pub(super) fn note_server(&self, server: &Server) {
        self.0.lock().server = Some(server.clone());
    }

    pub(super) fn note_resolved(&self, written: &ResourceRef, found: &Result<ApiResource, ResolveError>) {
        let found = match found {
            Ok(resource) => Some(resource.clone()),
            Err(ResolveError::NotFound { .. }) => None,
            Err(ResolveError::Unavailable(_)) => return,
        };
        self.0.lock().resolved.insert(written.clone(), found);
    }

    pub(super) fn note_catalogue(&self, catalogue: &Arc<Catalogue>) {
        self.0.lock().catalogue = Some(Arc::clone(catalogue));
    }

    /// Copies the server and the resources from `other`, which belongs to another owned shard of the same cluster.
    pub(super) fn adopt(&self, other: &Self) {
        let (server, resolved, catalogue) = {
            let other = other.0.lock();
            (other.server.clone(), other.resolved.clone(), other.catalogue.clone())
        };
        let mut state = self.0.lock();
        (state.server, state.resolved, state.catalogue) = (server, resolved, catalogue);
    }

    /// Records the result of an informer's last request to the apiserver; `None` is a success.
    pub(super) fn note_request(&self, partition: &Partition, failure: Option<&SourceError>) {
        let mut state = self.0.lock();
        let failure = failure.and_then(|error| Some((kind(error.class)?, error)));
        let Some((kind, error)) = failure else {
            state.failures.remove(partition);
            return;
        };
        let message = error.message.clone();
        let since = u64::try_from(clock::wall_millis()).unwrap_or(0);
        let (_, known) = state
            .failures
            .entry(partition.clone())
            .or_insert_with(|| (clock::now(), SourceFailure { kind, since, message: message.clone() }));
        // The first message of a kind stays, so that changing messages do not store the document again.
        if known.kind != kind {
            (known.kind, known.message) = (kind, message);
        }
    }

    /// Forgets the failure of an informer that has ended.
    pub(super) fn forget(&self, partition: &Partition) {
        self.0.lock().failures.remove(partition);
    }
}

impl State {
    /// Returns the document to store: the stored document, updated with the facts that this collector has found out.
    fn document(&self, stored: &ClusterDocument, epoch: u64, now: Instant) -> ClusterDocument {
        let mut document = ClusterDocument { epoch, failures: BTreeMap::new(), ..stored.clone() };
        if let Some(server) = &self.server {
            document.address.clone_from(&server.address);
            document.version.clone_from(&server.version);
        }
        for (written, found) in &self.resolved {
            match found {
                Some(resource) => _ = document.resolved.insert(written.clone(), resource.clone()),
                None => _ = document.resolved.remove(written),
            }
        }
        match &self.catalogue {
            Some(catalogue) => document.catalogue = Some(Arc::clone(catalogue)),
            // This owner has not discovered the resources. Keep the earlier owner's catalogue unless it contradicts
            // known facts.
            None => document.catalogue = document.catalogue.filter(|catalogue| self.agrees(catalogue)),
        }
        let settled = self.failures.iter().filter(|(_, (at, _))| now.duration_since(*at) >= SETTLED);
        let failure = |(partition, (_, failure)): (&Partition, &(Instant, SourceFailure))| {
            ((partition.resource.clone(), partition.selection), failure.clone())
        };
        document.failures = settled.map(failure).collect();
        document
    }

    fn agrees(&self, catalogue: &Catalogue) -> bool {
        self.resolved.iter().all(|(written, found)| match (catalogue.find(written), found) {
            (ResourceLookup::Resource(known), Some(found)) => known == *found,
            (ResourceLookup::Unknown, _) => true,
            (lookup, found) => found.is_none() && !matches!(lookup, ResourceLookup::Resource(_)),
        })
    }
}

fn kind(class: ErrorClass) -> Option<FailureKind> {
    match class {
        ErrorClass::Unauthorized => Some(FailureKind::Unauthorized),
        ErrorClass::Forbidden => Some(FailureKind::Forbidden),
        ErrorClass::NotFound => Some(FailureKind::NotFound),
        ErrorClass::Malformed | ErrorClass::Throttled(_) => Some(FailureKind::Unreachable),
        class => class.is_unreachable().then_some(FailureKind::Unreachable),
    }
}

impl Stored {
    /// Returns whether this copy still counts as equal to the document in the backend. It does not if the watch has
    /// since reported another revision, `latest`.
    fn is_current(&self, latest: Option<&Known<u64>>) -> bool {
        latest.is_none_or(|latest| latest.current <= self.at || latest.entry == self.revision)
    }
}

/// Stores the document if it has changed or was deleted, unless an owner with a newer epoch has stored one. Returns the
/// newest known epoch of the shard. `latest` is the last known revision of the stored document.
pub(super) async fn save_changes(
    backend: &dyn Backend,
    shard: &Shard,
    epoch: u64,
    knowledge: &Knowledge,
    latest: Option<Known<u64>>,
) -> Result<u64, BackendError> {
    // After a failure, or a change by another owner, the document is read again.
    let known = knowledge.0.lock().stored.take();
    let stored = if let Some(known) = known.filter(|known| known.is_current(latest.as_ref())) {
        known
    } else {
        let found = backend.document(shard).await?;
        let (revision, document) = found.map(|(revision, document)| (Some(revision), document)).unwrap_or_default();
        Stored { revision, document, at: clock::now() }
    };
    if stored.document.epoch > epoch {
        return Ok(stored.document.epoch);
    }
    let document = knowledge.0.lock().document(&stored.document, epoch, clock::now());
    let stored = if document == stored.document {
        Some(stored)
    } else {
        let written = backend.save_document(shard, document.clone(), stored.revision).await?;
        written.map(|revision| Stored { revision: Some(revision), document, at: clock::now() })
    };
    knowledge.0.lock().stored = stored;
    Ok(epoch)
}

#[cfg(test)]
mod tests {
    use informer_hub_fleet::simulated_log::Faults;
    use informer_hub_types::Gvr;

    use super::*;
    use crate::simulated::SimulatedFleet;

    fn pods() -> ApiResource {
        ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
    }

    fn partition() -> Partition {
        Partition { cluster: "c".parse().unwrap(), resource: pods().gvr, selection: 7 }
    }

    fn failed(class: ErrorClass, message: &str) -> SourceError {
        SourceError { class, message: message.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn former_owner_does_not_replace_the_document_and_the_new_one_continues_it() {
        let backend = SimulatedFleet::new(Faults::NONE).connect();
        let shard = &Shard::rest_of(partition().cluster);
        let (first, second) = (Knowledge::default(), Knowledge::default());
        first.note_server(&Server { address: "https://a".into(), version: None });
        first.note_resolved(&"pods".parse().unwrap(), &Ok(pods()));
        save_changes(&backend, shard, 1, &first, None).await.unwrap();
        second.note_server(&Server { address: "https://b".into(), version: None });
        save_changes(&backend, shard, 2, &second, None).await.unwrap();
        first.note_server(&Server { address: "https://c".into(), version: None });
        // The first attempt finds that the document has changed, the second one that its epoch is newer.
        for _ in 0..3 {
            save_changes(&backend, shard, 1, &first, None).await.unwrap();
        }
        let (revision, document) = backend.document(shard).await.unwrap().unwrap();
        assert_eq!((document.epoch, document.address.as_str(), revision), (2, "https://b", 2));
        assert_eq!(document.resolved.get(&"pods".parse().unwrap()), Some(&pods()));
        save_changes(&backend, shard, 2, &second, None).await.unwrap();
        assert_eq!(backend.document(shard).await.unwrap().unwrap().0, 2, "unchanged, so not stored again");
        second.note_resolved(
            &"pods".parse().unwrap(),
            &Err(ResolveError::NotFound { resource: String::new(), nearest: None }),
        );
        save_changes(&backend, shard, 2, &second, None).await.unwrap();
        assert!(backend.document(shard).await.unwrap().unwrap().1.resolved.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_in_the_document_from_a_while_after_the_first_until_a_request_succeeds() {
        let knowledge = Knowledge::default();
        let failures = || {
            let document = knowledge.0.lock().document(&ClusterDocument::default(), 1, clock::now());
            document.failures.into_values().map(|failure| (failure.kind, failure.message)).collect::<Vec<_>>()
        };
        knowledge.note_request(&partition(), Some(&failed(ErrorClass::Expired, "410")));
        tokio::time::advance(SETTLED).await;
        assert_eq!(failures(), [], "an answer of a healthy apiserver");
        knowledge.note_request(&partition(), Some(&failed(ErrorClass::Refused, "refused")));
        assert_eq!(failures(), []);
        tokio::time::advance(SETTLED).await;
        knowledge.note_request(&partition(), Some(&failed(ErrorClass::Transient, "again")));
        assert_eq!(failures(), [(FailureKind::Unreachable, "refused".to_owned())]);
        knowledge.note_request(&partition(), Some(&failed(ErrorClass::Forbidden, "403")));
        assert_eq!(failures(), [(FailureKind::Forbidden, "403".to_owned())]);
        knowledge.note_request(&partition(), None);
        assert_eq!(failures(), []);
    }
}
