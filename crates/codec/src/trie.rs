//! Prefix tree of the paths that a decoder needs, so that one walk finds all of them.

use smallvec::SmallVec;

use super::projection::{HEAD, IDENTITY, Projection, fields, is_droppable};
use informer_hub_types::path_tree::{Branches, PathNode, insert_path};
use informer_hub_types::{FieldPath, Segment, SharedStr};

/// The annotation that marks the end of a streaming list's initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Field of an object that the decoder reads into `Head`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    ApiVersion,
    Kind,
    Name,
    Namespace,
    Uid,
    Version,
    InitialEventsEnd,
}

/// A node of the prefix tree of paths: says how the decoder uses the value at its path.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent marks, any of which a node may carry")]
pub(super) struct Node {
    branches: Branches,
    pub(super) role: Option<Role>,
    pub(super) labels: bool,
    pub(super) drop: bool,
    pub(super) keep: bool,
    /// Whether the projection keeps something inside the value at this node's path.
    pub(super) keep_below: bool,
    /// Positions, in the decoder's list of indexes, of the indexes that have this path.
    pub(super) indexes: SmallVec<[u16; 2]>,
}

impl Node {
    pub(super) fn field(&self, name: &[u8]) -> Option<usize> {
        self.branches.field(name)
    }

    pub(super) fn each(&self) -> Option<usize> {
        self.branches.each()
    }

    /// Returns whether the decoder needs the bytes of the value at this node's path.
    pub(super) fn needs_bytes(&self) -> bool {
        self.drop || self.keep || self.role.is_some() || !self.indexes.is_empty()
    }

    /// Returns whether the decoder needs something inside the value at this node's path.
    pub(super) fn needs_children(&self) -> bool {
        self.labels || !self.branches.is_empty()
    }
}

impl PathNode for Node {
    fn branches(&mut self) -> &mut Branches {
        &mut self.branches
    }
}

/// The prefix tree. Node 0 is the object itself.
#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// Whether the projection keeps only nodes marked `keep`, instead of all but those marked `drop`.
    pub(super) keep_mode: bool,
}

impl Trie {
    pub(super) const ROOT: usize = 0;

    pub(super) fn new(projection: &Projection, indexes: &[(SharedStr, FieldPath)]) -> Self {
        let mut trie = Self { nodes: vec![Node::default()], keep_mode: matches!(projection, Projection::Keep(_)) };
        let roles = [Role::ApiVersion, Role::Kind, Role::Name, Role::Namespace, Role::Uid, Role::Version];
        for (path, role) in IDENTITY.iter().zip(roles) {
            trie.node(&fields(path)).role = Some(role);
        }
        trie.node(&fields(&["metadata", "annotations", INITIAL_EVENTS_END])).role = Some(Role::InitialEventsEnd);
        trie.node(&fields(&["metadata", "labels"])).labels = true;
        for (number, (_, path)) in indexes.iter().enumerate() {
            trie.node(path.segments()).indexes.push(u16::try_from(number).unwrap_or(u16::MAX));
        }
        match projection {
            Projection::Drop(paths) => {
                for path in paths.iter().filter(|path| is_droppable(path)) {
                    trie.node(path.segments()).drop = true;
                }
            }
            Projection::Keep(paths) => {
                for path in IDENTITY.iter().chain(&HEAD) {
                    trie.keep(&fields(path));
                }
                for path in paths {
                    trie.keep(path.segments());
                }
            }
        }
        trie
    }

    pub(super) fn get(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    fn keep(&mut self, path: &[Segment]) {
        self.node(path).keep = true;
        for end in 0..path.len() {
            self.node(&path[..end]).keep_below = true;
        }
    }

    /// Returns the node of a path, and creates it if necessary.
    fn node(&mut self, path: &[Segment]) -> &mut Node {
        let at = insert_path(&mut self.nodes, path);
        &mut self.nodes[at]
    }
}
