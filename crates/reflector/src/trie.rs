//! What a decoder looks for in an object: all wanted paths as one tree, so that one walk finds them all.

use smallvec::SmallVec;

use informer_hub_types::path_tree::{Branches, PathNode, insert_path};
use informer_hub_types::{FieldPath, Segment, SharedStr};

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

/// Kept by every projection, and never dropped.
const IDENTITY: [&[&str]; 6] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
];

/// Kept by a keep-projection besides [`IDENTITY`].
const HEAD: [&[&str]; 5] = [
    &["metadata", "labels"],
    &["metadata", "creationTimestamp"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "ownerReferences"],
    &["metadata", "generation"],
];

/// The annotation that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A part of the head that a value is.
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

/// One place in an object.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent marks, any of which a node may carry")]
pub(super) struct Node {
    branches: Branches,
    pub(super) role: Option<Role>,
    pub(super) labels: bool,
    pub(super) drop: bool,
    pub(super) keep: bool,
    /// Something below is to be kept.
    pub(super) keep_below: bool,
    /// Numbers of the indices whose value this is.
    pub(super) indexes: SmallVec<[u16; 2]>,
}

impl Node {
    pub(super) fn field(&self, name: &[u8]) -> Option<usize> {
        self.branches.field(name)
    }

    pub(super) fn each(&self) -> Option<usize> {
        self.branches.each()
    }

    /// Whether the value's own bytes are needed, rather than what lies in it.
    pub(super) fn wants_bytes(&self) -> bool {
        self.drop || self.keep || self.role.is_some() || !self.indexes.is_empty()
    }

    /// Whether anything is wanted of what lies in the value.
    pub(super) fn wants_below(&self) -> bool {
        self.labels || !self.branches.is_empty()
    }
}

impl PathNode for Node {
    fn branches(&mut self) -> &mut Branches {
        &mut self.branches
    }
}

/// All wanted paths. Node 0 is the object itself.
#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// Whether only what is marked is kept.
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
                let harmless = |path: &&FieldPath| !IDENTITY.iter().any(|id| fields(id).starts_with(path.segments()));
                for path in paths.iter().filter(harmless) {
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

    /// The node of a path, made where it is missing.
    fn node(&mut self, path: &[Segment]) -> &mut Node {
        let at = insert_path(&mut self.nodes, path);
        &mut self.nodes[at]
    }
}

fn fields(names: &[&str]) -> Vec<Segment> {
    names.iter().map(|name| Segment::Field((*name).into())).collect()
}
