//! Paths put together, so that one pass over an object finds what any of them leads to.

use std::ops::Range;

use smol_str::SmolStr;

use informer_hub_types::FieldPath;
use informer_hub_types::path_tree::{Branches, PathNode, insert_path};

/// One place that a path goes through or ends at.
#[derive(Debug, Default)]
struct Node {
    branches: Branches,
    /// Paths that end here, then those that end further below: a range of the trie's `order`.
    ends: Vec<usize>,
    own: Range<usize>,
    below: Range<usize>,
}

impl PathNode for Node {
    fn branches(&mut self) -> &mut Branches {
        &mut self.branches
    }
}

/// All paths. Node 0 is the object itself.
#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// Numbers of paths, so that those of a node and of all below it lie side by side.
    order: Vec<usize>,
}

impl Trie {
    pub(super) const ROOT: usize = 0;

    /// Puts paths together; each is known by its number from then on.
    pub(super) fn new<'p>(paths: impl IntoIterator<Item = (usize, &'p FieldPath)>) -> Self {
        let mut trie = Self { nodes: vec![Node::default()], order: Vec::new() };
        for (number, path) in paths {
            let end = insert_path(&mut trie.nodes, path.segments());
            trie.nodes[end].ends.push(number);
        }
        trie.put_in_order(Self::ROOT);
        trie
    }

    /// As deep as the longest path, which has its bound.
    fn put_in_order(&mut self, at: usize) {
        let start = self.order.len();
        let node = &mut self.nodes[at];
        self.order.append(&mut node.ends);
        node.own = start..self.order.len();
        let children: Vec<_> =
            node.branches.fields().iter().map(|(_, child)| *child).chain(node.branches.each()).collect();
        for child in children {
            self.put_in_order(child);
        }
        self.nodes[at].below = start..self.order.len();
    }

    pub(super) fn field(&self, node: usize, name: &str) -> Option<usize> {
        self.nodes[node].branches.field(name.as_bytes())
    }

    pub(super) fn each(&self, node: usize) -> Option<usize> {
        self.nodes[node].branches.each()
    }

    /// The names that lead on from here.
    pub(super) fn fields(&self, node: usize) -> &[(SmolStr, usize)] {
        self.nodes[node].branches.fields()
    }

    /// The paths that end here.
    pub(super) fn ends(&self, node: usize) -> &[usize] {
        &self.order[self.nodes[node].own.clone()]
    }

    /// The paths that end here or further below.
    pub(super) fn below(&self, node: usize) -> &[usize] {
        &self.order[self.nodes[node].below.clone()]
    }
}
