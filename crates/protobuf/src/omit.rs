//! Members that are omitted when an object is converted or stored.

use std::collections::BTreeMap;

/// Paths of members that are not converted. A path cannot lead through lists or maps.
///
/// The bytes of an omitted member are not validated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Omit(BTreeMap<Box<str>, Omit>);

impl Omit {
    /// Adds a path of member names. An empty path does nothing.
    pub fn add<'p>(&mut self, path: impl IntoIterator<Item = &'p str>) {
        let mut path = path.into_iter();
        let Some(first) = path.next() else { return };
        let rest: Vec<&str> = path.collect();
        // An empty node omits the member, so a longer path below it adds nothing.
        match self.0.get_mut(first) {
            Some(node) if node.0.is_empty() || rest.is_empty() => node.0.clear(),
            Some(node) => node.add(rest),
            None => {
                let mut node = Self::default();
                node.add(rest);
                self.0.insert(first.into(), node);
            }
        }
    }

    /// Returns the paths to omit below a member; empty if the whole member is omitted, `None` if no part of it is.
    pub(super) fn below(&self, name: &str) -> Option<&Self> {
        self.0.get(name)
    }

    /// Returns the members that are omitted in whole or in part, each with the paths to omit below it.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.iter().map(|(name, below)| (&**name, below))
    }

    /// Returns whether this set of paths is empty, which means that the member above it is omitted as a whole.
    pub(super) fn is_all(&self) -> bool {
        self.0.is_empty()
    }
}
