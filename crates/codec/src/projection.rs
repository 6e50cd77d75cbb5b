//! Projection: which fields of an object are stored.

use informer_hub_types::FieldPath;

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
    /// Returns whether the projection keeps the value at `path`. A path in its list stands for itself and all paths
    /// below it.
    ///
    /// Listed paths below `path` are not considered, so with [`Self::Drop`] the stored value may lack parts. The fields
    /// that are always stored are not considered either.
    #[must_use]
    pub fn keeps(&self, path: &FieldPath) -> bool {
        let leads_on = |outer: &FieldPath| path.segments().starts_with(outer.segments());
        match self {
            Self::Drop(paths) => !paths.iter().any(leads_on),
            Self::Keep(paths) => paths.iter().any(leads_on),
        }
    }
}

impl Default for Projection {
    /// Drops `metadata.managedFields`, about a third of a usual object, which only apiservers use.
    fn default() -> Self {
        let path = "metadata.managedFields".parse().expect("a constant path that parses");
        Self::Drop(vec![path])
    }
}
