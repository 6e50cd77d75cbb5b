//! Persistent B+ tree: clones share all nodes that are not written afterwards.
//!
//! The leaf type decides how entries are stored, and how an inner node finds the child for a key. Bounds separate the
//! children of a node. The node also has them in a form that is fast to search (routes). A lookup therefore waits for
//! memory once or twice per node, not once per comparison.
//!
//! If entries are inserted in order of their keys, the leaves become full, not half full.

use std::hint::black_box;
use std::sync::Arc;

use smallvec::SmallVec;

pub(super) mod differ;
mod runs;

use runs::Runs;

/// Maximum number of children of an inner node. A leaf has at most about half as many entries. If inner nodes were as
/// narrow as leaves, the tree would have one more level.
pub(super) const WIDTH: usize = 32;
/// Maximum size (entries or children) of a node that is merged with a neighbour, if both fit into one node.
const MERGE_MAX: usize = 6;

/// Array inside a node, of which the first elements are filled. The node stores how many. A vector would need another
/// allocation.
pub(super) type Slots<T, const N: usize> = [Option<T>; N];

/// Inserts an element at a position among the first `len`.
pub(super) fn put<T>(slots: &mut [T], len: usize, at: usize, element: T) {
    slots[at..=len].rotate_right(1);
    slots[at] = element;
}

/// Removes the element at a position among the first `len`.
pub(super) fn take<T: Default>(slots: &mut [T], len: usize, at: usize) -> T {
    slots[at..len].rotate_left(1);
    std::mem::take(&mut slots[len - 1])
}

/// Moves the elements at position `at` and later into a new array, and returns it.
pub(super) fn split<T: Default, const N: usize>(slots: &mut [T; N], at: usize) -> [T; N] {
    let mut next = std::array::from_fn(|_| T::default());
    next[..N - at].swap_with_slice(&mut slots[at..]);
    next
}

/// Copies the first `next_len` elements of `next` into `slots`, after the first `len` elements.
pub(super) fn join<T: Clone>(slots: &mut [T], len: usize, next: &[T], next_len: usize) {
    slots[len..len + next_len].clone_from_slice(&next[..next_len]);
}

/// Leaf of a tree: a non-empty ordered sequence of entries.
pub(super) trait Leaf: Clone {
    /// A key to find.
    type Probe<'w>: Copy;
    /// A complete entry.
    type Item;
    /// Result of replacing or removing an entry: those parts of the old entry that the caller needs.
    type Old;
    /// Lower limit of the keys in a leaf, by which a parent node separates its children.
    type Bound: Clone;
    /// Bounds in a form that is fast to search.
    type Routes: Clone;

    /// Creates a leaf of one entry.
    fn of(item: Self::Item) -> Self;
    /// Returns the number of entries.
    fn len(&self) -> usize;
    /// Returns the key of an entry.
    fn probe(item: &Self::Item) -> Self::Probe<'_>;
    /// Returns the position of the entry with a key.
    fn find(&self, probe: Self::Probe<'_>) -> Option<usize>;
    /// Returns the position of the first entry that is not less than a key.
    fn place(&self, probe: Self::Probe<'_>) -> usize;
    /// Returns the position at which a full leaf must be split before an entry is inserted at `at`; `None` if the leaf
    /// has room. If the position is the end of the leaf, the new entry gets a leaf of its own.
    fn cut(&self, at: usize) -> Option<usize>;
    /// Inserts an entry at its position.
    fn insert(&mut self, at: usize, item: Self::Item);
    /// Replaces the entry at a position.
    fn replace(&mut self, at: usize, item: Self::Item) -> Self::Old;
    /// Removes the entry at a position.
    fn remove(&mut self, at: usize) -> Self::Old;
    /// Keeps the entries before a position and returns the others.
    fn split_off(&mut self, at: usize) -> Self;
    /// Appends all entries of the next leaf.
    fn append(&mut self, next: &Self);
    /// Returns whether the entries of this leaf and the next leaf fit into one leaf, with room to spare.
    fn has_room_for(&self, next: &Self) -> bool;
    /// Returns the bound that separates this leaf from the previous leaf: a lower limit of this leaf's keys, made from
    /// its first entry.
    fn bound(&self) -> Self::Bound;
    /// Converts bounds to the form that [`Self::route`] searches.
    fn routes(bounds: &[Self::Bound]) -> Self::Routes;
    /// Returns the index of the child that may have a key, which is the number of bounds that are not greater than the
    /// key.
    fn route(routes: &Self::Routes, bounds: &[Self::Bound], probe: Self::Probe<'_>) -> usize;
    /// Loads the entries' memory into the CPU cache. The result only keeps the loads from being optimized away.
    fn prefetch(&self) -> usize;
}

enum Node<L: Leaf> {
    Leaf(Arc<L>),
    Inner(Arc<Inner<L>>),
}

/// Inner node: children with a bound between each two neighbours. All entries left of a bound are less than it; those
/// right of it are not less.
#[repr(C)]
struct Inner<L: Leaf> {
    routes: L::Routes,
    children: Slots<Node<L>, WIDTH>,
    len: usize,
    /// Number of entries of all children.
    entries: usize,
    /// Bounds between the children, one fewer than there are children. Shared between copies of the node, because a
    /// write to a child does not change them.
    bounds: Arc<[L::Bound]>,
}

impl<L: Leaf> Clone for Node<L> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(leaf) => Self::Leaf(Arc::clone(leaf)),
            Self::Inner(inner) => Self::Inner(Arc::clone(inner)),
        }
    }
}

impl<L: Leaf> Clone for Inner<L> {
    fn clone(&self) -> Self {
        let (routes, bounds) = (self.routes.clone(), Arc::clone(&self.bounds));
        Self { routes, children: self.children.clone(), len: self.len, entries: self.entries, bounds }
    }
}

/// Result of an insertion.
enum Insertion<L: Leaf> {
    Replaced(L::Old),
    Added,
    /// The node was full and was split. The fields are the bound between the node and its new right neighbour, and this
    /// neighbour.
    Split(L::Bound, Node<L>),
}

impl<L: Leaf> Node<L> {
    fn width(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len(),
            Self::Inner(inner) => inner.len,
        }
    }

    /// Returns the number of entries of the node.
    fn entries(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len(),
            Self::Inner(inner) => inner.entries,
        }
    }

    fn insert(&mut self, item: L::Item) -> Insertion<L> {
        match self {
            Self::Leaf(leaf) => insert(Arc::make_mut(leaf), item),
            Self::Inner(inner) => Arc::make_mut(inner).insert(item),
        }
    }

    /// Removes the entry with a key. Returns the parts of the removed entry that the caller needs; `None` if there is
    /// no such entry.
    fn remove(&mut self, probe: L::Probe<'_>) -> Option<L::Old> {
        match self {
            Self::Leaf(leaf) => leaf.find(probe).map(|at| Arc::make_mut(leaf).remove(at)),
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.route(probe);
                let old = inner.children[at].as_mut()?.remove(probe);
                inner.entries -= usize::from(old.is_some());
                inner.settle(at);
                old
            }
        }
    }

    /// Returns whether the next sibling can be joined to this node.
    fn has_room_for(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Leaf(leaf), Self::Leaf(next)) => leaf.has_room_for(next),
            (Self::Inner(inner), Self::Inner(next)) => inner.len + next.len <= WIDTH * 3 / 4,
            _ => false,
        }
    }

    /// Appends the content of the next sibling `next`. `bound` separates this node from the sibling.
    fn append(&mut self, bound: L::Bound, next: &Self) {
        match (self, next) {
            (Self::Leaf(leaf), Self::Leaf(next)) => Arc::make_mut(leaf).append(next),
            (Self::Inner(inner), Self::Inner(next)) => {
                let inner = Arc::make_mut(inner);
                join(&mut inner.children, inner.len, &next.children, next.len);
                inner.len += next.len;
                inner.entries += next.entries;
                inner.bind(inner.bounds.iter().cloned().chain([bound]).chain(next.bounds.iter().cloned()).collect());
            }
            _ => {}
        }
    }
}

fn insert<L: Leaf>(leaf: &mut L, item: L::Item) -> Insertion<L> {
    if let Some(at) = leaf.find(L::probe(&item)) {
        return Insertion::Replaced(leaf.replace(at, item));
    }
    let at = leaf.place(L::probe(&item));
    let Some(cut) = leaf.cut(at) else {
        leaf.insert(at, item);
        return Insertion::Added;
    };
    let next = if cut == leaf.len() {
        L::of(item)
    } else {
        let mut next = leaf.split_off(cut);
        if at <= cut {
            leaf.insert(at, item);
        } else {
            next.insert(at - cut, item);
        }
        next
    };
    Insertion::Split(next.bound(), Node::Leaf(Arc::new(next)))
}

impl<L: Leaf> Inner<L> {
    fn new(bounds: Arc<[L::Bound]>, children: Slots<Node<L>, WIDTH>, len: usize) -> Self {
        let mut node = Self { routes: L::routes(&bounds), bounds, children, len, entries: 0 };
        node.recount();
        node
    }

    /// Creates a node from its children and the bounds between them, which are one fewer.
    fn of(bounds: impl IntoIterator<Item = L::Bound>, children: impl IntoIterator<Item = Node<L>>) -> Self {
        let bounds: Arc<[_]> = bounds.into_iter().collect();
        let (mut children, len) = (children.into_iter(), bounds.len() + 1);
        Self::new(bounds, std::array::from_fn(|_| children.next()), len)
    }

    /// Counts the entries of all children again.
    fn recount(&mut self) {
        self.entries = self.children.iter().flatten().map(Node::entries).sum();
    }

    /// Replaces the bounds and the search form made from them.
    fn bind(&mut self, bounds: Arc<[L::Bound]>) {
        self.routes = L::routes(&bounds);
        self.bounds = bounds;
    }

    /// Returns the index of the child for a key.
    fn route(&self, probe: L::Probe<'_>) -> usize {
        L::route(&self.routes, &self.bounds, probe)
    }

    fn child(&self, at: usize) -> Option<&Node<L>> {
        self.children.get(at)?.as_ref()
    }

    /// Adds a child after the one at position `at`, with the bound between these two.
    fn add(&mut self, at: usize, bound: L::Bound, child: Node<L>) {
        put(&mut self.children, self.len, at + 1, Some(child));
        self.len += 1;
        let (before, behind) = self.bounds.split_at(at);
        self.bind(before.iter().cloned().chain([bound]).chain(behind.iter().cloned()).collect());
    }

    fn insert(&mut self, item: L::Item) -> Insertion<L> {
        let at = self.route(L::probe(&item));
        let child = self.children[at].as_mut().expect("a route leads to a child");
        let (bound, child) = match child.insert(item) {
            Insertion::Split(bound, child) => (bound, child),
            Insertion::Added => {
                self.entries += 1;
                return Insertion::Added;
            }
            replaced @ Insertion::Replaced(_) => return replaced,
        };
        if self.len < WIDTH {
            self.entries += 1;
            self.add(at, bound, child);
            return Insertion::Added;
        }
        if at + 1 == WIDTH {
            self.recount();
            return Insertion::Split(bound, Node::Inner(Arc::new(Self::of([], [child]))));
        }
        let cut = WIDTH / 2;
        let bounds = Arc::clone(&self.bounds);
        let between = bounds[cut - 1].clone();
        let mut next = Self::new(bounds[cut..].into(), split(&mut self.children, cut), WIDTH - cut);
        self.len = cut;
        self.bind(bounds[..cut - 1].into());
        if at < cut {
            self.add(at, bound, child);
        } else {
            next.add(at - cut, bound, child);
        }
        self.recount();
        next.recount();
        Insertion::Split(between, Node::Inner(Arc::new(next)))
    }

    /// Removes a child and the bound before it. For the first child, removes the bound after it.
    fn drop_child(&mut self, at: usize) -> (Option<Node<L>>, Option<L::Bound>) {
        let child = take(&mut self.children, self.len, at);
        self.len -= 1;
        let gone = at.saturating_sub(1);
        let bound = self.bounds.get(gone).cloned();
        let others = self.bounds.iter().enumerate().filter(|(at, _)| *at != gone);
        self.bind(others.map(|(_, bound)| bound.clone()).collect());
        (child, bound)
    }

    /// Drops the child at a position if it is empty. If the child is small, joins it with a neighbour, if their
    /// contents fit into one node.
    fn settle(&mut self, at: usize) {
        let width = self.child(at).map_or(0, Node::width);
        if width == 0 {
            self.drop_child(at);
            return;
        }
        // For a well-filled child, checking the neighbours costs more than it saves.
        if width > MERGE_MAX {
            return;
        }
        let fits = |left: &usize| {
            let pair = self.child(*left).zip(self.child(*left + 1));
            pair.is_some_and(|(left, right)| left.has_room_for(right))
        };
        if let Some(left) = at.checked_sub(1).into_iter().chain([at]).find(fits)
            && let (Some(next), Some(bound)) = self.drop_child(left + 1)
            && let Some(child) = &mut self.children[left]
        {
            child.append(bound, &next);
        }
    }

    /// Touches the memory of the children that are leaves, so that it is in the CPU cache when a scan reaches them.
    fn prefetch(&self) {
        let called = self.children.iter().flatten().fold(0, |called, child| match child {
            Node::Leaf(leaf) => called ^ leaf.prefetch(),
            Node::Inner(_) => called,
        });
        black_box(called);
    }
}

/// A persistent B+ tree; see the [module](self).
pub(super) struct Tree<L: Leaf> {
    root: Option<Node<L>>,
    len: usize,
}

impl<L: Leaf> Tree<L> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the leaf with the entry of the key `probe`, and the entry's position; `None` if there is no such entry.
    pub(super) fn find(&self, probe: L::Probe<'_>) -> Option<(&L, usize)> {
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.find(probe).map(|at| (&**leaf, at)),
                Node::Inner(inner) => node = inner.child(inner.route(probe))?,
            }
        }
    }

    /// Returns the leaf and the position of an entry, for writing. Copies the nodes on the path that other trees share.
    pub(super) fn find_mut(&mut self, probe: L::Probe<'_>) -> Option<(&mut L, usize)> {
        self.find(probe)?;
        let mut node = self.root.as_mut()?;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let leaf = Arc::make_mut(leaf);
                    return leaf.find(probe).map(|at| (leaf, at));
                }
                Node::Inner(inner) => {
                    let inner = Arc::make_mut(inner);
                    let child = inner.route(probe);
                    node = inner.children[child].as_mut()?;
                }
            }
        }
    }

    /// Inserts an entry, or replaces the entry with the same key. Returns the parts of a replaced entry that the caller
    /// needs; `None` if the key is new.
    pub(super) fn insert(&mut self, item: L::Item) -> Option<L::Old> {
        let Some(root) = &mut self.root else {
            self.root = Some(Node::Leaf(Arc::new(L::of(item))));
            self.len = 1;
            return None;
        };
        match root.insert(item) {
            Insertion::Replaced(old) => return Some(old),
            Insertion::Added => {}
            Insertion::Split(bound, next) => {
                let both = [root.clone(), next];
                self.root = Some(Node::Inner(Arc::new(Inner::of([bound], both))));
            }
        }
        self.len += 1;
        None
    }

    pub(super) fn remove(&mut self, probe: L::Probe<'_>) -> Option<L::Old> {
        self.find(probe)?;
        let old = self.root.as_mut()?.remove(probe)?;
        self.len -= 1;
        while let Some(Node::Inner(inner)) = &self.root
            && inner.len == 1
        {
            self.root = inner.child(0).cloned();
        }
        if self.len == 0 {
            self.root = None;
        }
        Some(old)
    }

    /// Returns the number of entries that are less than the key `probe`. If `behind` is set, the entry of that key is
    /// counted too. Visits only the path to the key and the siblings of its nodes.
    pub(super) fn rank(&self, probe: L::Probe<'_>, behind: bool) -> usize {
        let (mut node, mut rank) = (self.root.as_ref(), 0);
        while let Some(Node::Inner(inner)) = node {
            let at = inner.route(probe);
            rank += inner.children[..at].iter().flatten().map(Node::entries).sum::<usize>();
            node = inner.child(at);
        }
        match node {
            Some(Node::Leaf(leaf)) => rank + place(&**leaf, probe, behind),
            _ => rank,
        }
    }

    /// Returns the entries, leaf by leaf.
    pub(super) fn runs(&self) -> Runs<'_, L> {
        let mut runs = Runs { above: SmallVec::new(), next: None, end: None };
        if let Some(root) = &self.root {
            runs.next = runs.descend(root, |_| 0).map(|leaf| (leaf, 0));
        }
        runs
    }

    /// Returns the entries between the two places `from` and `to`, leaf by leaf. A place is a key with a flag: false
    /// means before the entry of that key, true means after it. `None` is the start of the tree for `from`, and its end
    /// for `to`. `from` must not be after `to`.
    pub(super) fn runs_between(
        &self,
        from: Option<(L::Probe<'_>, bool)>,
        to: Option<(L::Probe<'_>, bool)>,
    ) -> Runs<'_, L> {
        let mut runs = self.runs();
        let Some(root) = &self.root else { return runs };
        if let Some((probe, behind)) = to {
            let mut end = Runs { above: SmallVec::new(), next: None, end: None };
            let leaf = end.descend(root, |inner| inner.route(probe));
            runs.end = leaf.map(|leaf| (leaf, place(leaf, probe, behind)));
        }
        if let Some((probe, behind)) = from {
            runs.above.clear();
            let leaf = runs.descend(root, |inner| inner.route(probe));
            runs.next = leaf.map(|leaf| (leaf, place(leaf, probe, behind)));
        }
        runs
    }
}

fn place<L: Leaf>(leaf: &L, probe: L::Probe<'_>, behind: bool) -> usize {
    leaf.place(probe) + usize::from(behind && leaf.find(probe).is_some())
}

impl<L: Leaf> Clone for Tree<L> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<L: Leaf> Default for Tree<L> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}
