//! A prefix tree of paths, so that one pass over an object matches all of them.

use std::ops::Range;

use smol_str::SmolStr;

use informer_hub_types::FieldPath;
use informer_hub_types::path_tree::{Branches, PathNode, insert_path};

#[derive(Debug, Default)]
struct Node {
    branches: Branches,
    /// Numbers of the paths that end at this node. Used only while the tree is built; the numbers then move to
    /// `Trie::order`. There, the range `own` has the paths that end here, and `below` also those that end further down.
    ends: Vec<usize>,
    own: Range<usize>,
    below: Range<usize>,
}

impl PathNode for Node {
    fn branches(&mut self) -> &mut Branches {
        &mut self.branches
    }
}

/// Prefix tree of field paths. Node 0 stands for the whole object.
#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// Numbers of all paths. The paths that end at a node or below it are adjacent.
    order: Vec<usize>,
}

impl Trie {
    pub(super) const ROOT: usize = 0;

    /// Builds the tree of these paths, each with its number.
    pub(super) fn new<'p>(paths: impl IntoIterator<Item = (usize, &'p FieldPath)>) -> Self {
        let mut trie = Self { nodes: vec![Node::default()], order: Vec::new() };
        for (number, path) in paths {
            let end = insert_path(&mut trie.nodes, path.segments());
            trie.nodes[end].ends.push(number);
        }
        trie.lay_out(Self::ROOT);
        trie
    }

    /// Moves the path numbers of a subtree into `order` and sets the ranges of its nodes. Recurses as deep as the
    /// longest path, which is bounded.
    fn lay_out(&mut self, at: usize) {
        let start = self.order.len();
        let node = &mut self.nodes[at];
        self.order.append(&mut node.ends);
        node.own = start..self.order.len();
        let children: Vec<_> =
            node.branches.fields().iter().map(|(_, child)| *child).chain(node.branches.each()).collect();
        for child in children {
            self.lay_out(child);
        }
        self.nodes[at].below = start..self.order.len();
    }

    pub(super) fn field(&self, node: usize, name: &str) -> Option<usize> {
        self.nodes[node].branches.field(name.as_bytes())
    }

    pub(super) fn each(&self, node: usize) -> Option<usize> {
        self.nodes[node].branches.each()
    }

    /// Returns the fields directly below a node: name and child node.
    pub(super) fn fields(&self, node: usize) -> &[(SmolStr, usize)] {
        self.nodes[node].branches.fields()
    }

    /// Returns the numbers of the paths that end at a node.
    pub(super) fn ends(&self, node: usize) -> &[usize] {
        &self.order[self.nodes[node].own.clone()]
    }

    /// Returns the numbers of the paths that end at a node or below it.
    pub(super) fn below(&self, node: usize) -> &[usize] {
        &self.order[self.nodes[node].below.clone()]
    }
}
