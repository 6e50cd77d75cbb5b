//! Prefix tree of field paths, so that one walk over an object finds the values of all of them.

use smol_str::SmolStr;

use super::Segment;

/// Edges from one node of the tree to its children, as node indices.
///
/// Field names are compared one by one, since a node has at most about a dozen.
#[derive(Debug, Default)]
pub struct Branches {
    fields: Vec<(SmolStr, usize)>,
    each: Option<usize>,
}

impl Branches {
    /// Returns the child node for a field; `None` if no path leads through that field.
    #[inline]
    #[must_use]
    pub fn field(&self, name: &[u8]) -> Option<usize> {
        self.fields.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, node)| *node)
    }

    /// Returns the child node for all elements of an array; `None` if no path leads through them.
    #[inline]
    #[must_use]
    pub fn each(&self) -> Option<usize> {
        self.each
    }

    /// Returns the field names with their child nodes.
    #[must_use]
    pub fn fields(&self) -> &[(SmolStr, usize)] {
        &self.fields
    }

    /// Returns whether the node is a leaf.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.each.is_none()
    }

    fn child(&self, segment: &Segment) -> Option<usize> {
        match segment {
            Segment::Field(name) => self.field(name.as_bytes()),
            Segment::Each => self.each,
        }
    }
}

/// A node of a prefix tree of field paths.
pub trait PathNode: Default {
    /// Returns the edges to the node's children.
    fn branches(&mut self) -> &mut Branches;
}

/// Adds the missing nodes of `path` and returns the index of its last node. `nodes` must begin with the root.
pub fn insert_path<N: PathNode>(nodes: &mut Vec<N>, path: &[Segment]) -> usize {
    let mut at = 0;
    for segment in path {
        let fresh = nodes.len();
        let branches = nodes[at].branches();
        at = branches.child(segment).unwrap_or(fresh);
        if at == fresh {
            match segment {
                Segment::Field(name) => branches.fields.push((name.clone(), fresh)),
                Segment::Each => branches.each = Some(fresh),
            }
            nodes.push(N::default());
        }
    }
    at
}
