//! The part of an object that is kept: all but some paths, or some paths alone.

use informer_hub_types::FieldPath;

/// What of an object is kept.
///
/// `apiVersion`, `kind` and `metadata`'s `name`, `namespace`, `uid` and `resourceVersion` are always kept: a path to
/// drop that would take one of them along is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projection {
    /// All but these paths.
    Drop(Vec<FieldPath>),
    /// Only these paths, plus `apiVersion`, `kind` and the head of `metadata` (identity, labels, owners, time stamps,
    /// generation). Elements of a list keep their places: one of which nothing is kept becomes `{}`.
    Keep(Vec<FieldPath>),
}

impl Projection {
    /// Whether the kept bytes have at a path what an apiserver sent there.
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
    /// Drops `metadata.managedFields`, which is a third of a usual object and of use to apiservers only.
    fn default() -> Self {
        let path = "metadata.managedFields".parse().expect("a constant path that parses");
        Self::Drop(vec![path])
    }
}
