//! Iteration over the leaves of a tree.

use smallvec::SmallVec;

use super::{Inner, Leaf, Node};

/// Adjacent entries of a tree: their leaf, and the range of their positions in the leaf.
pub(crate) type Run<'t, L> = (&'t L, std::ops::Range<usize>);

/// Iterator over leaves.
pub(crate) struct Runs<'t, L: Leaf> {
    /// Path from the root to the leaf in `next`: each inner node with the index of the child that the path takes.
    pub(super) above: SmallVec<[(&'t Inner<L>, usize); 8]>,
    pub(super) next: Option<(&'t L, usize)>,
    /// Leaf and position where the iteration ends; `None` for the end of the tree.
    pub(super) end: Option<(&'t L, usize)>,
}

impl<'t, L: Leaf> Runs<'t, L> {
    /// Descends from a node to a leaf; `which` selects the child of each node.
    pub(super) fn descend(&mut self, mut node: &'t Node<L>, which: impl Fn(&Inner<L>) -> usize) -> Option<&'t L> {
        loop {
            match node {
                Node::Leaf(leaf) => return Some(leaf),
                Node::Inner(inner) => {
                    let at = which(inner);
                    self.above.push((inner, at));
                    node = inner.child(at)?;
                }
            }
        }
    }

    /// Returns the next leaf.
    fn advance(&mut self) -> Option<&'t L> {
        loop {
            let (inner, at) = self.above.last_mut()?;
            *at += 1;
            let inner: &'t Inner<L> = inner;
            if let Some(node) = inner.child(*at) {
                let known = self.above.len();
                let leaf = self.descend(node, |_| 0);
                if let Some((inner, _)) = self.above[known..].last() {
                    inner.prefetch();
                }
                return leaf;
            }
            self.above.pop();
        }
    }
}

impl<'t, L: Leaf> Iterator for Runs<'t, L> {
    type Item = Run<'t, L>;

    fn next(&mut self) -> Option<Run<'t, L>> {
        let (leaf, from) = self.next.take()?;
        if let Some((end, to)) = self.end.filter(|(end, _)| std::ptr::eq(*end, leaf)) {
            return Some((end, from..to.max(from)));
        }
        self.next = self.advance().map(|leaf| (leaf, 0));
        Some((leaf, from..leaf.len().max(from)))
    }
}
