//! How far a watch of the owners of clusters and the documents about them has read, and whether it has stopped
//! delivering. Pure: no I/O.

use informer_hub_fleet::{ClusterChange, ClusterRevisions};
use informer_hub_types::clock::Instant;

/// Revisions up to which a watch has read the buckets of owners and documents; see the [module documentation](self).
#[derive(Debug, Default)]
pub(super) struct Progress {
    read: ClusterRevisions,
    /// Whether the watch has read all owners, and all documents, that existed when it began.
    complete: (bool, bool),
    /// Last revisions of the buckets according to the previous request.
    stored: Option<ClusterRevisions>,
    /// Last revisions of the buckets that the watch has not reached yet, and when they were requested.
    awaited: Option<(ClusterRevisions, Instant)>,
    /// Creation time of the buckets according to the previous request. A new watch does not reset it.
    created: Option<u64>,
    /// Time up to which all changes have been read.
    current: Option<Instant>,
}

impl Progress {
    /// Resets the progress for a new watch, except for `current` and `created`.
    pub(super) fn begin(&mut self) {
        *self = Self { current: self.current, created: self.created, ..Self::default() };
    }

    /// Records a delivered change. Returns whether all entries of both buckets have been read.
    pub(super) fn note(&mut self, change: &ClusterChange) -> bool {
        let read = &mut self.read;
        match change {
            ClusterChange::Owner { revision, .. } => read.owners = read.owners.max(*revision),
            ClusterChange::OwnersComplete(revision) => {
                read.owners = read.owners.max(*revision);
                self.complete.0 = true;
            }
            ClusterChange::Document { revision, .. } => read.documents = read.documents.max(*revision),
            ClusterChange::DocumentsComplete(revision) => {
                read.documents = read.documents.max(*revision);
                self.complete.1 = true;
            }
        }
        self.confirm();
        self.is_complete()
    }

    /// Records the last revisions of the buckets, from a request that began at `requested`.
    pub(super) fn note_stored(&mut self, stored: ClusterRevisions, requested: Instant) {
        self.awaited.get_or_insert((stored, requested));
        self.confirm();
    }

    fn confirm(&mut self) {
        if self.is_complete()
            && let Some((_, requested)) = self.awaited.take_if(|(stored, _)| !precedes(self.read, *stored))
        {
            self.current = Some(requested);
        }
    }

    /// Returns the time up to which this watch or an earlier one has read all changes; `None` if no watch has read all
    /// entries yet.
    pub(super) fn current(&self) -> Option<Instant> {
        self.current
    }

    pub(super) fn read(&self) -> ClusterRevisions {
        self.read
    }

    /// Returns whether the watch must be opened again. It must if it lacks changes that the previous request already
    /// found, or if a bucket was created again or lost changes. `stored` are the buckets' last revisions, requested
    /// when the watch had read `before`.
    pub(super) fn is_behind(&mut self, before: ClusterRevisions, stored: ClusterRevisions) -> bool {
        let is_new = self.created.replace(stored.created).is_some_and(|before| before != stored.created);
        if is_new || !self.is_complete() {
            return is_new;
        }
        let earlier = self.stored.replace(stored);
        earlier.is_some_and(|earlier| precedes(self.read, earlier)) || precedes(stored, before)
    }

    /// Returns whether the watch lacks changes up to `stored`, and has read nothing beyond `delivered`, its revisions
    /// at an earlier time.
    pub(super) fn is_silent(&self, delivered: ClusterRevisions, stored: ClusterRevisions) -> bool {
        self.is_complete() && self.read == delivered && precedes(self.read, stored)
    }

    fn is_complete(&self) -> bool {
        self.complete == (true, true)
    }
}

fn precedes(a: ClusterRevisions, b: ClusterRevisions) -> bool {
    a.owners < b.owners || a.documents < b.documents
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use informer_hub_types::clock;

    use super::*;

    fn revisions(owners: u64, documents: u64) -> ClusterRevisions {
        ClusterRevisions { owners, documents, created: 0 }
    }

    fn complete(owners: u64, documents: u64) -> Progress {
        let mut progress = Progress::default();
        assert!(!progress.note(&ClusterChange::OwnersComplete(owners)));
        assert!(progress.note(&ClusterChange::DocumentsComplete(documents)));
        progress
    }

    #[test]
    fn watch_is_behind_if_it_lacks_what_an_earlier_request_has_found() {
        let mut progress = complete(5, 5);
        assert!(!progress.is_behind(progress.read(), revisions(9, 5)), "the changes may still arrive");
        let shard = "c".parse().unwrap();
        progress.note(&ClusterChange::Owner { shard, revision: 9, owner: Ok(None) });
        assert!(!progress.is_behind(progress.read(), revisions(12, 5)));
        assert!(progress.is_behind(progress.read(), revisions(12, 5)));
        let mut progress = complete(5, 5);
        assert!(!progress.is_behind(progress.read(), revisions(5, 6)));
        assert!(progress.is_behind(progress.read(), revisions(5, 6)), "a document is missing");
    }

    #[test]
    fn watch_is_silent_if_nothing_arrives_while_changes_are_missing() {
        let mut progress = complete(5, 5);
        let delivered = progress.read();
        assert!(!progress.is_silent(delivered, revisions(5, 5)), "nothing is missing");
        assert!(progress.is_silent(delivered, revisions(5, 6)));
        assert!(progress.is_silent(delivered, revisions(9, 5)));
        progress.note(&ClusterChange::Owner { shard: "c".parse().unwrap(), revision: 7, owner: Ok(None) });
        assert!(!progress.is_silent(delivered, revisions(9, 5)), "it is slow");
        progress.begin();
        assert!(!progress.is_silent(progress.read(), revisions(9, 5)), "another watch reads the first entries");
    }

    #[test]
    fn bucket_that_was_created_anew_is_noticed() {
        let mut progress = complete(50, 5);
        assert!(progress.is_behind(revisions(50, 5), revisions(3, 5)));
        let mut progress = complete(50, 5);
        assert!(!progress.is_behind(revisions(40, 5), revisions(45, 5)), "read more since the request");
        let recreated = ClusterRevisions { created: 1, ..revisions(50, 5) };
        assert!(progress.is_behind(progress.read(), recreated), "the watch may go on in the new bucket");
        assert!(!progress.is_behind(progress.read(), recreated));
    }

    #[test]
    fn watch_that_still_reads_the_first_entries_is_not_behind() {
        let mut progress = Progress::default();
        progress.note(&ClusterChange::OwnersComplete(9));
        assert!(!progress.is_behind(progress.read(), revisions(9, 4)));
        assert!(!progress.is_behind(progress.read(), revisions(9, 4)));
    }

    #[test]
    fn changes_are_read_up_to_a_request_once_what_it_has_found_is_read() {
        let (mut progress, began) = (complete(5, 5), clock::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        progress.note_stored(revisions(5, 5), at(1));
        assert_eq!(progress.current(), Some(at(1)));
        progress.note_stored(revisions(7, 5), at(2));
        progress.note_stored(revisions(9, 5), at(3));
        assert_eq!(progress.current(), Some(at(1)));
        let change = |revision| ClusterChange::Owner { shard: "c".parse().unwrap(), revision, owner: Ok(None) };
        progress.note(&change(7));
        assert_eq!(progress.current(), Some(at(2)));
        progress.begin();
        progress.note_stored(revisions(9, 5), at(4));
        progress.note(&ClusterChange::OwnersComplete(9));
        assert_eq!(progress.current(), Some(at(2)), "the new watch has not read all yet");
        progress.note(&ClusterChange::DocumentsComplete(5));
        assert_eq!(progress.current(), Some(at(4)));
    }
}
