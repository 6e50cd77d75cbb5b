//! Objects of one resource and cluster that a reader sees.

use crate::namespaces::Namespaces;

/// Objects of one resource and cluster that a reader sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Visible {
    /// All objects.
    Everything,
    /// The objects of some namespaces.
    Namespaces(Namespaces),
    /// No objects.
    Nothing,
}

impl Visible {
    /// Returns whether the objects in `namespace` are visible. `namespace` is `None` for objects without a namespace.
    #[must_use]
    pub fn sees(&self, namespace: Option<&str>) -> bool {
        match self {
            Self::Everything => true,
            Self::Namespaces(namespaces) => namespace.is_some_and(|namespace| namespaces.has(namespace)),
            Self::Nothing => false,
        }
    }

    /// Returns whether nothing is visible.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Everything => false,
            Self::Namespaces(namespaces) => namespaces.is_empty(),
            Self::Nothing => true,
        }
    }

    /// Returns the objects that `self` or `other` shows.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::Everything, _) | (_, Self::Everything) => Self::Everything,
            (Self::Nothing, one) | (one, Self::Nothing) => one,
            (Self::Namespaces(a), Self::Namespaces(b)) => Self::Namespaces(a.union(&b)),
        }
    }
}
