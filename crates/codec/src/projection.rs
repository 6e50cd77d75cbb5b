//! Projection: which fields of an object are stored.

use informer_hub_types::{FieldPath, Segment};

/// Paths that every projection keeps, even if it lists them as paths to drop.
pub(super) const IDENTITY: [&[&str]; 6] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
];

/// Paths that a [`Projection::Keep`] keeps in addition to [`IDENTITY`] and the paths in its list.
pub(super) const HEAD: [&[&str]; 5] = [
    &["metadata", "labels"],
    &["metadata", "creationTimestamp"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "ownerReferences"],
    &["metadata", "generation"],
];

/// The fields of an object that are stored.
///
/// `apiVersion`, `kind` and `metadata`'s `name`, `namespace`, `uid` and `resourceVersion` are always stored. A path to
/// drop that includes one of them is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projection {
    /// All but these paths.
    Drop(Vec<FieldPath>),
    /// Only these paths, plus `apiVersion`, `kind` and the head of `metadata` (identity, labels, owners, timestamps,
    /// generation). Array elements keep their index: an element without kept fields becomes `{}`.
    Keep(Vec<FieldPath>),
}

impl Projection {
    /// Returns whether the projection keeps the value at `path`. A path in the projection's list includes all paths
    /// below it.
    ///
    /// With [`Self::Drop`], parts of the value may still be dropped: listed paths below `path` are not considered.
    #[must_use]
    pub fn keeps(&self, path: &FieldPath) -> bool {
        let is_in = |outer: &FieldPath| path.segments().starts_with(outer.segments());
        let is_in_names = |outer: &&[&str]| path.segments().starts_with(&fields(outer));
        match self {
            Self::Drop(paths) => !paths.iter().any(|outer| is_in(outer) && is_droppable(outer)),
            Self::Keep(paths) => paths.iter().any(is_in) || IDENTITY.iter().chain(&HEAD).any(is_in_names),
        }
    }
}

/// Returns whether a path can be dropped: it includes no field that is always stored.
pub(super) fn is_droppable(path: &FieldPath) -> bool {
    !IDENTITY.iter().any(|id| fields(id).starts_with(path.segments()))
}

pub(super) fn fields(names: &[&str]) -> Vec<Segment> {
    names.iter().map(|name| Segment::Field((*name).into())).collect()
}

impl Default for Projection {
    /// Drops `metadata.managedFields`, about a third of a usual object, which only apiservers use.
    fn default() -> Self {
        let path = "metadata.managedFields".parse().expect("a constant path that parses");
        Self::Drop(vec![path])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(all: &[&str]) -> Vec<FieldPath> {
        all.iter().map(|path| path.parse().unwrap()).collect()
    }

    #[test]
    fn always_stored_fields_are_kept_by_every_projection() {
        let drop = Projection::Drop(paths(&["metadata.name", "metadata", "spec"]));
        let keep = Projection::Keep(paths(&["spec.nodeName"]));
        for (path, dropping, keeping) in [
            ("metadata.name", true, true),
            ("metadata.labels.app", true, true),
            ("metadata.annotations.a", true, false),
            ("spec.nodeName", false, true),
            ("spec", false, false),
            ("status", true, false),
        ] {
            let path = path.parse().unwrap();
            assert_eq!((drop.keeps(&path), keep.keeps(&path)), (dropping, keeping), "{path}");
        }
    }
}
