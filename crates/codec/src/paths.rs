//! The paths that a decoder needs: those of the projection and of the indexes.
//!
//! There is one decoder for each watched cluster, resource and scope (all namespaces, or one). The decoders of a
//! resource share their paths.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::projection::Projection;
use super::trie::Trie;
use informer_hub_protobuf::Omit;
use informer_hub_types::{FieldPath, Segment, SharedStr};

/// The paths of a projection and of indexes, prepared for decoding.
#[derive(Debug)]
pub(super) struct Paths {
    /// Prefix tree of all paths, for objects in JSON.
    pub(super) trie: Trie,
    /// Members of protobuf objects that need not be converted.
    pub(super) omit: Omit,
    /// Whether objects can be stored as protobuf: `omit` covers all that the projection drops, and no index reads
    /// `kind` or `apiVersion`, which protobuf messages lack.
    pub(super) keeps_protobuf: bool,
    /// Paths of indexes.
    pub(super) indexes: Vec<FieldPath>,
}

/// Prepared paths that some decoder still uses, with their projection.
#[derive(Debug)]
struct InUse {
    projection: Projection,
    paths: Weak<Paths>,
}

thread_local! {
    /// Prepared paths of the decoders that this thread has created. New decoders of the thread share them.
    ///
    /// Each thread has its own, so that several hubs in one process stay independent. A hub creates its decoders on a
    /// few threads only.
    static IN_USE: RefCell<Vec<InUse>> = const { RefCell::new(Vec::new()) };
}

impl Paths {
    /// Returns the prepared paths of a projection and indexes. Decoders of a thread with the same projection and paths
    /// share one result.
    pub(super) fn shared(projection: &Projection, indexes: &[(SharedStr, FieldPath)]) -> Arc<Self> {
        let known = |known: &InUse| {
            let paths = Some(known).filter(|known| known.projection == *projection)?.paths.upgrade()?;
            paths.indexes.iter().eq(indexes.iter().map(|(_, path)| path)).then_some(paths)
        };
        if let Some(paths) = IN_USE.with_borrow(|in_use| in_use.iter().find_map(known)) {
            return paths;
        }
        let (omit, omits_all) = omitted(projection, indexes);
        let trie = Trie::new(projection, indexes);
        let indexes: Vec<FieldPath> = indexes.iter().map(|(_, path)| path.clone()).collect();
        let reads_type = indexes.iter().any(|path| matches!(path.names().next(), Some("kind" | "apiVersion")));
        let paths = Arc::new(Self { trie, omit, keeps_protobuf: omits_all && !reads_type, indexes });
        IN_USE.with_borrow_mut(|in_use| {
            in_use.retain(|known| known.paths.strong_count() > 0);
            in_use.push(InUse { projection: projection.clone(), paths: Arc::downgrade(&paths) });
        });
        paths
    }
}

/// Members that the decoder reads of each object.
pub(super) const READ: [&[&str]; 5] = [
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
    &["metadata", "labels"],
];

/// Members that the decoder reads of bookmarks.
const READ_OF_BOOKMARKS: &[&str] = &["metadata", "annotations"];

/// Returns the members that are left out when protobuf is converted to JSON, because the projection drops them. Also
/// returns whether these are all members that the projection drops.
///
/// The returned `bool` is false for a [`Projection::Keep`], and if a dropped member must be converted nevertheless. A
/// member must be converted if its path has `[*]`, or if it contains a path that the decoder or an index reads.
pub(super) fn omitted(projection: &Projection, indexes: &[(SharedStr, FieldPath)]) -> (Omit, bool) {
    let mut omit = Omit::default();
    let Projection::Drop(paths) = projection else { return (omit, false) };
    let mut omits_all = true;
    for path in paths {
        let names: Option<Vec<&str>> = (!path.segments().contains(&Segment::Each)).then(|| path.names().collect());
        let is_read = |names: &[&str]| {
            READ.iter().chain([&READ_OF_BOOKMARKS]).any(|read| read.starts_with(names))
                || indexes.iter().any(|(_, index)| index.segments().starts_with(path.segments()))
        };
        match names.filter(|names| !is_read(names)) {
            Some(names) => omit.add(names),
            None => omits_all = false,
        }
    }
    (omit, omits_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoders_with_equal_paths_share_them() {
        let path = |text: &str| text.parse::<FieldPath>().unwrap();
        let (usual, keep) = (Projection::default(), Projection::Keep(vec![path("spec.shared")]));
        let indexes = |name: &str, of: &str| vec![(SharedStr::from(name), path(of))];
        let first = Paths::shared(&keep, &indexes("by-a", "spec.a"));
        assert!(Arc::ptr_eq(&first, &Paths::shared(&keep, &indexes("renamed", "spec.a"))));
        for other in [
            Paths::shared(&usual, &indexes("by-a", "spec.a")),
            Paths::shared(&keep, &indexes("by-a", "spec.b")),
            Paths::shared(&keep, &[]),
        ] {
            assert!(!Arc::ptr_eq(&first, &other));
        }
        let last = Arc::downgrade(&first);
        drop(first);
        assert!(last.upgrade().is_none(), "paths without a decoder are freed");
    }
}
