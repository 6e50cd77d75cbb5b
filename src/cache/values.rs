//! Values of one index: a persistent tree ordered by hash.

use std::hint::black_box;

use super::posting::{Location, Posting};
use super::tree::{self, Leaf, Slots, Tree, join, put, split, take};
use informer_hub_types::{SharedStr, text_hash};

/// The values of an index with their locations: a persistent tree ordered by the values' hashes.
///
/// A lookup in a hash trie would take a third of the steps. However, three quarters of the space in the trie's nodes
/// would be empty. If an index has many values of few objects each, most of its memory would be empty space. The tree
/// compares texts only if their hashes are equal, so most comparisons do not load a text.
#[derive(Clone, Default)]
pub(super) struct Values(Tree<ValueLeaf>);

/// Maximum number of values per leaf, chosen so that a leaf fills a size class of the allocator.
const WIDTH: usize = 15;

/// Leaf of the tree: some values of the index, ordered by hash, then by text.
#[derive(Clone, Default)]
#[repr(C)]
struct ValueLeaf {
    hashes: [u64; WIDTH],
    len: usize,
    values: Slots<Value, WIDTH>,
}

#[derive(Clone)]
struct Value {
    text: SharedStr,
    posting: Posting,
}

/// A value to find, with its hash.
#[derive(Clone, Copy)]
struct Probe<'t> {
    hash: u64,
    text: &'t str,
}

impl<'t> Probe<'t> {
    fn of(text: &'t str) -> Self {
        Self { hash: text_hash(text), text }
    }
}

/// Returns how many of `hashes` are less than `hash`, without branches.
fn less(hashes: &[u64], hash: u64) -> usize {
    hashes.iter().map(|other| usize::from(*other < hash)).sum()
}

impl Leaf for ValueLeaf {
    type Probe<'t> = Probe<'t>;
    type Item = (u64, Value);
    type Old = Option<Value>;
    type Bound = (u64, SharedStr);
    type Routes = [u64; tree::WIDTH - 1];

    fn of(item: Self::Item) -> Self {
        let mut leaf = Self { hashes: [u64::MAX; WIDTH], ..Self::default() };
        leaf.insert(0, item);
        leaf
    }

    fn len(&self) -> usize {
        self.len
    }

    fn probe((hash, value): &Self::Item) -> Probe<'_> {
        Probe { hash: *hash, text: &value.text }
    }

    fn find(&self, Probe { hash, text }: Probe<'_>) -> Option<usize> {
        // Loads the values' cache lines while the hashes are compared.
        black_box(self.prefetch());
        let first = less(&self.hashes, hash);
        let equal = self.hashes[first..].iter().take_while(|other| **other == hash).count();
        (first..first + equal).find(|at| self.values[*at].as_ref().is_some_and(|value| value.text == text))
    }

    fn place(&self, Probe { hash, text }: Probe<'_>) -> usize {
        let first = less(&self.hashes, hash);
        let equal = self.hashes[first..].iter().take_while(|other| **other == hash).count();
        let is_less = |value: &Option<Value>| value.as_ref().is_some_and(|value| *value.text < *text);
        first + self.values[first..first + equal].partition_point(is_less)
    }

    fn cut(&self, _: usize) -> Option<usize> {
        (self.len == WIDTH).then_some(WIDTH / 2)
    }

    fn insert(&mut self, at: usize, (hash, value): Self::Item) {
        put(&mut self.hashes, self.len, at, hash);
        put(&mut self.values, self.len, at, Some(value));
        self.len += 1;
    }

    fn replace(&mut self, at: usize, (_, value): Self::Item) -> Option<Value> {
        self.values[at].replace(value)
    }

    fn remove(&mut self, at: usize) -> Option<Value> {
        take(&mut self.hashes, self.len, at);
        let old = take(&mut self.values, self.len, at);
        self.len -= 1;
        // Greater than all hashes, so unused slots sort last.
        self.hashes[self.len] = u64::MAX;
        old
    }

    fn split_off(&mut self, at: usize) -> Self {
        let (mut hashes, len) = ([u64::MAX; WIDTH], self.len - at);
        hashes[..len].copy_from_slice(&self.hashes[at..self.len]);
        self.hashes[at..].fill(u64::MAX);
        self.len = at;
        Self { hashes, len, values: split(&mut self.values, at) }
    }

    fn append(&mut self, next: &Self) {
        join(&mut self.hashes, self.len, &next.hashes, next.len);
        join(&mut self.values, self.len, &next.values, next.len);
        self.len += next.len;
    }

    fn has_room_for(&self, next: &Self) -> bool {
        self.len + next.len <= WIDTH * 3 / 4
    }

    fn bound(&self) -> Self::Bound {
        (self.hashes[0], self.values[0].as_ref().expect("a leaf is never empty").text.clone())
    }

    fn routes(bounds: &[Self::Bound]) -> Self::Routes {
        std::array::from_fn(|at| bounds.get(at).map_or(u64::MAX, |(hash, _)| *hash))
    }

    fn route(routes: &Self::Routes, bounds: &[Self::Bound], Probe { hash, text }: Probe<'_>) -> usize {
        let first = less(routes, hash);
        let equal = routes[first..].iter().take_while(|other| **other == hash).count();
        if equal == 0 {
            return first;
        }
        let equal = &bounds[first..(first + equal).min(bounds.len())];
        first + equal.partition_point(|(_, bound)| **bound <= *text)
    }

    fn prefetch(&self) -> usize {
        let there = |at: usize| usize::from(self.values[at].is_some());
        there(1) ^ there(3) ^ there(5) ^ there(7) ^ there(9) ^ there(11) ^ there(13)
    }
}

impl Values {
    fn find(&self, value: &str) -> Option<&Value> {
        let (leaf, at) = self.0.find(Probe::of(value))?;
        leaf.values[at].as_ref()
    }

    fn find_mut(&mut self, probe: Probe<'_>) -> Option<&mut Posting> {
        let (leaf, at) = self.0.find_mut(probe)?;
        leaf.values[at].as_mut().map(|value| &mut value.posting)
    }

    /// Returns the locations of the objects with a value; `None` if no object has it.
    pub(super) fn get(&self, value: &str) -> Option<&Posting> {
        self.find(value).map(|value| &value.posting)
    }

    /// Returns the index's copy of the text of a value, to share it; `None` if no object has the value.
    pub(super) fn known(&self, value: &str) -> Option<&SharedStr> {
        self.find(value).map(|value| &value.text)
    }

    pub(super) fn insert(&mut self, value: &SharedStr, at: Location) {
        let probe = Probe::of(value);
        if let Some(posting) = self.find_mut(probe) {
            posting.insert(at);
        } else {
            self.0.insert((probe.hash, Value { text: value.clone(), posting: Posting::One(at) }));
        }
    }

    pub(super) fn remove(&mut self, value: &str, at: &Location) {
        let probe = Probe::of(value);
        if self.find_mut(probe).is_some_and(|posting| posting.remove(at)) {
            self.0.remove(probe);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns all values, in arbitrary order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SharedStr, &Posting)> {
        let values = self.0.runs().flat_map(|(leaf, range)| &leaf.values[range]).flatten();
        values.map(|value| (&value.text, &value.posting))
    }
}
