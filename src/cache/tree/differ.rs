//! Differences between two trees with a common ancestor, for example a tree and its changed clone. Shared nodes are
//! skipped.

use std::cmp::Ordering;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Inner, Leaf, Node, Tree};

/// An entry of a tree: its leaf, and its position in the leaf.
pub(crate) type Entry<'t, L> = (&'t L, usize);

/// An entry found by comparing two trees: only in the left one, only in the right one, or in both. Entries in both have
/// the same key, but their contents may differ.
pub(crate) enum Difference<'t, L> {
    Left(Entry<'t, L>),
    Right(Entry<'t, L>),
    Both(Entry<'t, L>, Entry<'t, L>),
}

impl<L: Leaf> Node<L> {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leaf(one), Self::Leaf(other)) => Arc::ptr_eq(one, other),
            (Self::Inner(one), Self::Inner(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl<L: Leaf> Tree<L> {
    /// Returns whether both trees share their root node, as after a clone without a later write, or are both empty.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.root, &other.root) {
            (Some(one), Some(other)) => one.is(other),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns the entries that may differ between this tree and `right`, in order. `compare` orders two entries by
    /// key.
    pub(crate) fn differences<'t, C>(&'t self, right: &'t Self, compare: C) -> Differences<'t, L, C>
    where
        C: Fn(Entry<'t, L>, Entry<'t, L>) -> Ordering,
    {
        Differences { left: Cursor::of(self), right: Cursor::of(right), compare }
    }
}

/// Position in a tree: at the start of a node, or within a leaf.
struct Cursor<'t, L: Leaf> {
    above: SmallVec<[(&'t Inner<L>, usize); 8]>,
    node: Option<&'t Node<L>>,
    /// Number of levels below the node; zero for a leaf.
    height: usize,
    /// Position within the node if it is a leaf.
    at: usize,
}

impl<'t, L: Leaf> Cursor<'t, L> {
    fn of(tree: &'t Tree<L>) -> Self {
        let (mut height, mut node) = (0, tree.root.as_ref());
        while let Some(Node::Inner(inner)) = node {
            height += 1;
            node = inner.child(0);
        }
        Self { above: SmallVec::new(), node: tree.root.as_ref(), height, at: 0 }
    }

    /// Moves to the first child.
    fn descend(&mut self) {
        if let Some(Node::Inner(inner)) = self.node {
            self.above.push((inner, 0));
            self.node = inner.child(0);
            self.height -= 1;
        }
    }

    /// Moves past the node.
    fn skip(&mut self) {
        self.at = 0;
        loop {
            let Some((inner, at)) = self.above.last_mut() else {
                self.node = None;
                return;
            };
            *at += 1;
            let inner: &'t Inner<L> = inner;
            if let Some(next) = inner.child(*at) {
                self.node = Some(next);
                return;
            }
            self.above.pop();
            self.height += 1;
        }
    }

    /// Returns the entry at the cursor or the first one after it, and moves past this entry.
    fn take(&mut self) -> Option<Entry<'t, L>> {
        loop {
            match self.node? {
                Node::Inner(_) => self.descend(),
                Node::Leaf(leaf) => {
                    let entry = (&**leaf, self.at);
                    self.at += 1;
                    if self.at >= leaf.len() {
                        self.skip();
                    }
                    return Some(entry);
                }
            }
        }
    }
}

/// Iterator of [`Tree::differences`].
pub(crate) struct Differences<'t, L: Leaf, C> {
    left: Cursor<'t, L>,
    right: Cursor<'t, L>,
    compare: C,
}

impl<'t, L: Leaf, C: Fn(Entry<'t, L>, Entry<'t, L>) -> Ordering> Iterator for Differences<'t, L, C> {
    type Item = Difference<'t, L>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (left, right) = (&mut self.left, &mut self.right);
            let (Some(one), Some(other)) = (left.node, right.node) else {
                return left.take().map(Difference::Left).or_else(|| right.take().map(Difference::Right));
            };
            if left.at == 0 && right.at == 0 && one.is(other) {
                left.skip();
                right.skip();
                continue;
            }
            if let (Node::Leaf(leaf), Node::Leaf(next)) = (one, other) {
                let order = (self.compare)((leaf, left.at), (next, right.at));
                return match order {
                    Ordering::Less => left.take().map(Difference::Left),
                    Ordering::Greater => right.take().map(Difference::Right),
                    Ordering::Equal => left.take().zip(right.take()).map(|(a, b)| Difference::Both(a, b)),
                };
            }
            let order = left.height.cmp(&right.height);
            if order.is_ge() {
                left.descend();
            }
            if order.is_le() {
                right.descend();
            }
        }
    }
}
