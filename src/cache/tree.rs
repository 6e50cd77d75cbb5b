//! A persistent B+ tree: clones share all but what is written to afterwards.
//!
//! Unlike a map for everything, it leaves to its leaves how entries lie in them and to its routes how a child is found,
//! so that a look-up waits for memory once or twice in a node, and not once for each comparison. What comes in order,
//! as a list does, leaves full leaves behind it.

use std::hint::black_box;
use std::sync::Arc;

use smallvec::SmallVec;

pub(super) mod differ;

/// Children of a node at most. Twice as many as entries of a leaf: a level less to wait for.
pub(super) const WIDTH: usize = 32;
/// Up to how many entries or children of a node it is looked whether a neighbour has room for them.
const FEW: usize = 6;

/// Elements from the front of an array on, whose number is known elsewhere: so that reaching one takes no look at more
/// than itself.
pub(super) type Slots<T, const N: usize> = [Option<T>; N];

/// Puts an element at its place among the first `len`.
pub(super) fn put<T>(slots: &mut [T], len: usize, at: usize, element: T) {
    slots[at..=len].rotate_right(1);
    slots[at] = element;
}

/// Takes an element out of the first `len`.
pub(super) fn take<T: Default>(slots: &mut [T], len: usize, at: usize) -> T {
    slots[at..len].rotate_left(1);
    std::mem::take(&mut slots[len - 1])
}

/// Moves the elements from a place on into an array of their own.
pub(super) fn split<T: Default, const N: usize>(slots: &mut [T; N], at: usize) -> [T; N] {
    let mut next = std::array::from_fn(|_| T::default());
    next[..N - at].swap_with_slice(&mut slots[at..]);
    next
}

/// Appends what the next array has to the first `len` elements.
pub(super) fn join<T: Clone>(slots: &mut [T], len: usize, next: &[T], next_len: usize) {
    slots[len..len + next_len].clone_from_slice(&next[..next_len]);
}

/// Some entries in order, at least one.
pub(super) trait Leaf: Clone {
    /// What is looked for.
    type Wanted<'w>: Copy;
    /// An entry with all that it brings.
    type Item;
    /// What is handed back of an entry that is gone.
    type Old;
    /// What no entry of a leaf is less than.
    type Bound: Clone;
    /// Bounds, as they are quick to be searched.
    type Routes: Clone;

    /// A leaf of one entry.
    fn of(item: Self::Item) -> Self;
    /// How many entries there are.
    fn len(&self) -> usize;
    /// By what an entry is found.
    fn wanted(item: &Self::Item) -> Self::Wanted<'_>;
    /// Where an entry is.
    fn find(&self, wanted: Self::Wanted<'_>) -> Option<usize>;
    /// Where the first entry is that is not less.
    fn place(&self, wanted: Self::Wanted<'_>) -> usize;
    /// Where a leaf to which an entry is to be added at a place must be cut in two before; `None` while it has room. At
    /// its end: the entry has a leaf of its own.
    fn cut(&self, at: usize) -> Option<usize>;
    /// Puts an entry at its place.
    fn insert(&mut self, at: usize, item: Self::Item);
    /// Puts an entry in the place of what was found there.
    fn replace(&mut self, at: usize, item: Self::Item) -> Self::Old;
    /// Takes an entry out.
    fn remove(&mut self, at: usize) -> Self::Old;
    /// Leaves the entries before a place, and returns the others.
    fn split_off(&mut self, at: usize) -> Self;
    /// Takes all of the next leaf over.
    fn append(&mut self, next: &Self);
    /// Whether that would still leave it room.
    fn has_room_for(&self, next: &Self) -> bool;
    /// The least entry's bound.
    fn bound(&self) -> Self::Bound;
    /// Makes bounds ready.
    fn routes(bounds: &[Self::Bound]) -> Self::Routes;
    /// How many of the bounds are not greater.
    fn route(routes: &Self::Routes, bounds: &[Self::Bound], wanted: Self::Wanted<'_>) -> usize;
    /// Looks at where entries lie, so that they are on their way when they are needed.
    fn call(&self) -> usize;
}

enum Node<L: Leaf> {
    Leaf(Arc<L>),
    Inner(Arc<Inner<L>>),
}

/// Invariant: all that lies in a child is less than the bound behind it and not less than the bound before it.
#[repr(C)]
struct Inner<L: Leaf> {
    routes: L::Routes,
    children: Slots<Node<L>, WIDTH>,
    len: usize,
    /// One less than children. Shared: a write to a child leaves them as they are.
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
        Self { routes, children: self.children.clone(), len: self.len, bounds }
    }
}

/// What became of an entry that was put in.
enum Put<L: Leaf> {
    Replaced(L::Old),
    Added,
    /// It was too much for the node; this one comes behind it.
    Split(L::Bound, Node<L>),
}

impl<L: Leaf> Node<L> {
    fn width(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len(),
            Self::Inner(inner) => inner.len,
        }
    }

    fn insert(&mut self, item: L::Item) -> Put<L> {
        match self {
            Self::Leaf(leaf) => insert(Arc::make_mut(leaf), item),
            Self::Inner(inner) => Arc::make_mut(inner).insert(item),
        }
    }

    /// Takes out what is there.
    fn remove(&mut self, wanted: L::Wanted<'_>) -> Option<L::Old> {
        match self {
            Self::Leaf(leaf) => leaf.find(wanted).map(|at| Arc::make_mut(leaf).remove(at)),
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.route(wanted);
                let old = inner.children[at].as_mut()?.remove(wanted);
                inner.settle(at);
                old
            }
        }
    }

    /// Whether the next node of the same parent can be joined to this one.
    fn has_room_for(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Leaf(leaf), Self::Leaf(next)) => leaf.has_room_for(next),
            (Self::Inner(inner), Self::Inner(next)) => inner.len + next.len <= WIDTH * 3 / 4,
            _ => false,
        }
    }

    /// Takes all of the next node over; `bound` lies between the two.
    fn append(&mut self, bound: L::Bound, next: &Self) {
        match (self, next) {
            (Self::Leaf(leaf), Self::Leaf(next)) => Arc::make_mut(leaf).append(next),
            (Self::Inner(inner), Self::Inner(next)) => {
                let inner = Arc::make_mut(inner);
                join(&mut inner.children, inner.len, &next.children, next.len);
                inner.len += next.len;
                inner.bind(inner.bounds.iter().cloned().chain([bound]).chain(next.bounds.iter().cloned()).collect());
            }
            _ => {}
        }
    }
}

fn insert<L: Leaf>(leaf: &mut L, item: L::Item) -> Put<L> {
    if let Some(at) = leaf.find(L::wanted(&item)) {
        return Put::Replaced(leaf.replace(at, item));
    }
    let at = leaf.place(L::wanted(&item));
    let Some(cut) = leaf.cut(at) else {
        leaf.insert(at, item);
        return Put::Added;
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
    Put::Split(next.bound(), Node::Leaf(Arc::new(next)))
}

impl<L: Leaf> Inner<L> {
    fn new(bounds: Arc<[L::Bound]>, children: Slots<Node<L>, WIDTH>, len: usize) -> Self {
        Self { routes: L::routes(&bounds), bounds, children, len }
    }

    /// One of as many children as bounds lie between.
    fn of(bounds: impl IntoIterator<Item = L::Bound>, children: impl IntoIterator<Item = Node<L>>) -> Self {
        let bounds: Arc<[_]> = bounds.into_iter().collect();
        let (mut children, len) = (children.into_iter(), bounds.len() + 1);
        Self::new(bounds, std::array::from_fn(|_| children.next()), len)
    }

    /// Takes other bounds.
    fn bind(&mut self, bounds: Arc<[L::Bound]>) {
        self.routes = L::routes(&bounds);
        self.bounds = bounds;
    }

    /// In which child something would be.
    fn route(&self, wanted: L::Wanted<'_>) -> usize {
        L::route(&self.routes, &self.bounds, wanted)
    }

    fn child(&self, at: usize) -> Option<&Node<L>> {
        self.children.get(at)?.as_ref()
    }

    /// Adds a child behind the one at a place.
    fn add(&mut self, at: usize, bound: L::Bound, child: Node<L>) {
        put(&mut self.children, self.len, at + 1, Some(child));
        self.len += 1;
        let (before, behind) = self.bounds.split_at(at);
        self.bind(before.iter().cloned().chain([bound]).chain(behind.iter().cloned()).collect());
    }

    fn insert(&mut self, item: L::Item) -> Put<L> {
        let at = self.route(L::wanted(&item));
        let child = self.children[at].as_mut().expect("a route leads to a child");
        let (bound, child) = match child.insert(item) {
            Put::Split(bound, child) => (bound, child),
            put => return put,
        };
        if self.len < WIDTH {
            self.add(at, bound, child);
            return Put::Added;
        }
        if at + 1 == WIDTH {
            return Put::Split(bound, Node::Inner(Arc::new(Self::of([], [child]))));
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
        Put::Split(between, Node::Inner(Arc::new(next)))
    }

    /// Takes out a child and the bound before it, or behind it where it is the first.
    fn drop_child(&mut self, at: usize) -> (Option<Node<L>>, Option<L::Bound>) {
        let child = take(&mut self.children, self.len, at);
        self.len -= 1;
        let gone = at.saturating_sub(1);
        let bound = self.bounds.get(gone).cloned();
        let others = self.bounds.iter().enumerate().filter(|(at, _)| *at != gone);
        self.bind(others.map(|(_, bound)| bound.clone()).collect());
        (child, bound)
    }

    /// Sees to a child that has become smaller.
    fn settle(&mut self, at: usize) {
        let width = self.child(at).map_or(0, Node::width);
        if width == 0 {
            self.drop_child(at);
            return;
        }
        // Looking at its neighbours costs more than it brings while there is much in it.
        if width > FEW {
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

    /// Looks at all children, so that they are on their way when the walk comes to them.
    fn call(&self) {
        let called = self.children.iter().flatten().fold(0, |called, child| match child {
            Node::Leaf(leaf) => called ^ leaf.call(),
            Node::Inner(_) => called,
        });
        black_box(called);
    }
}

/// See the module.
pub(super) struct Tree<L: Leaf> {
    root: Option<Node<L>>,
    len: usize,
}

impl<L: Leaf> Tree<L> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The leaf and the place of an entry.
    pub(super) fn find(&self, wanted: L::Wanted<'_>) -> Option<(&L, usize)> {
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.find(wanted).map(|at| (&**leaf, at)),
                Node::Inner(inner) => node = inner.child(inner.route(wanted))?,
            }
        }
    }

    /// The same, to be written to.
    pub(super) fn find_mut(&mut self, wanted: L::Wanted<'_>) -> Option<(&mut L, usize)> {
        self.find(wanted)?;
        let mut node = self.root.as_mut()?;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let leaf = Arc::make_mut(leaf);
                    return leaf.find(wanted).map(|at| (leaf, at));
                }
                Node::Inner(inner) => {
                    let inner = Arc::make_mut(inner);
                    let child = inner.route(wanted);
                    node = inner.children[child].as_mut()?;
                }
            }
        }
    }

    /// Puts an entry in, perhaps in the place of another, which is handed back.
    pub(super) fn insert(&mut self, item: L::Item) -> Option<L::Old> {
        let Some(root) = &mut self.root else {
            self.root = Some(Node::Leaf(Arc::new(L::of(item))));
            self.len = 1;
            return None;
        };
        match root.insert(item) {
            Put::Replaced(old) => return Some(old),
            Put::Added => {}
            Put::Split(bound, next) => {
                let both = [root.clone(), next];
                self.root = Some(Node::Inner(Arc::new(Inner::of([bound], both))));
            }
        }
        self.len += 1;
        None
    }

    pub(super) fn remove(&mut self, wanted: L::Wanted<'_>) -> Option<L::Old> {
        self.find(wanted)?;
        let old = self.root.as_mut()?.remove(wanted)?;
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

    /// The entries, leaf by leaf.
    pub(super) fn runs(&self) -> Runs<'_, L> {
        let mut runs = Runs { above: SmallVec::new(), next: None, end: None };
        if let Some(root) = &self.root {
            runs.next = runs.descend(root, |_| 0).map(|leaf| (leaf, 0));
        }
        runs
    }

    /// The entries from one place to before another, leaf by leaf; the first must not lie behind the second. A place
    /// before an entry is what it is `wanted` by, one behind it the same and `true`.
    pub(super) fn runs_between(
        &self,
        from: Option<(L::Wanted<'_>, bool)>,
        to: Option<(L::Wanted<'_>, bool)>,
    ) -> Runs<'_, L> {
        let mut runs = self.runs();
        let Some(root) = &self.root else { return runs };
        if let Some((wanted, behind)) = to {
            let mut end = Runs { above: SmallVec::new(), next: None, end: None };
            let leaf = end.descend(root, |inner| inner.route(wanted));
            runs.end = leaf.map(|leaf| (leaf, place(leaf, wanted, behind)));
        }
        if let Some((wanted, behind)) = from {
            runs.above.clear();
            let leaf = runs.descend(root, |inner| inner.route(wanted));
            runs.next = leaf.map(|leaf| (leaf, place(leaf, wanted, behind)));
        }
        runs
    }
}

fn place<L: Leaf>(leaf: &L, wanted: L::Wanted<'_>, behind: bool) -> usize {
    leaf.place(wanted) + usize::from(behind && leaf.find(wanted).is_some())
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

/// Entries that lie one behind another: a leaf, and which of them.
pub(super) type Run<'t, L> = (&'t L, std::ops::Range<usize>);

/// A walk over leaves.
pub(super) struct Runs<'t, L: Leaf> {
    /// The nodes above the next leaf, each with which child that is in.
    above: SmallVec<[(&'t Inner<L>, usize); 8]>,
    next: Option<(&'t L, usize)>,
    /// Where the walk ends.
    end: Option<(&'t L, usize)>,
}

impl<'t, L: Leaf> Runs<'t, L> {
    /// Goes down from a node to a leaf.
    fn descend(&mut self, mut node: &'t Node<L>, which: impl Fn(&Inner<L>) -> usize) -> Option<&'t L> {
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

    /// The leaf behind the one that was last.
    fn advance(&mut self) -> Option<&'t L> {
        loop {
            let (inner, at) = self.above.last_mut()?;
            *at += 1;
            let inner: &'t Inner<L> = inner;
            if let Some(node) = inner.child(*at) {
                let known = self.above.len();
                let leaf = self.descend(node, |_| 0);
                if let Some((inner, _)) = self.above[known..].last() {
                    inner.call();
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
