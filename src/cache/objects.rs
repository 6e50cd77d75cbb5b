//! Persistent tree of the objects of one informer, ordered by key.

use std::hint::black_box;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use smol_str::SmolStr;

use super::tree::differ::Difference;
use super::tree::{self, Leaf, Slots, Tree, join, put, split, take};
use informer_hub_types::{LabelFilter, LabelNeeds, ObjectKey, StoredObject, text_hash};

/// Maximum number of objects per leaf.
const WIDTH: usize = 16;

/// The objects of one informer: a persistent tree ordered by the objects' own keys.
///
/// Each object is stored with 16 bits of its key's hash, so that a lookup touches one object instead of one per
/// comparison. A filter of its labels lets a selector skip most objects without touching them.
#[derive(Clone, Default)]
pub(super) struct Objects {
    tree: Tree<ObjectLeaf>,
    /// Sorted namespaces, computed at the first request. Shared by all clones with the same namespaces.
    namespaces: Arc<OnceLock<Arc<[SmolStr]>>>,
}

#[derive(Clone, Default)]
#[repr(C)]
struct ObjectLeaf {
    tags: [u16; WIDTH],
    objects: Slots<Arc<StoredObject>, WIDTH>,
    filters: [LabelFilter; WIDTH],
    len: usize,
}

/// An object to insert, with its tag: 16 bits of its key's hash.
struct Item {
    tag: u16,
    object: Arc<StoredObject>,
}

/// A key to find, with its tag: 16 bits of its hash.
#[derive(Clone, Copy)]
struct Probe<'w> {
    tag: u16,
    key: &'w ObjectKey,
}

impl<'w> Probe<'w> {
    fn of(key: &'w ObjectKey) -> Self {
        Self { tag: tag(key), key }
    }
}

fn tag(key: &ObjectKey) -> u16 {
    let [low, high, ..] = text_hash(key.as_str()).to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// Bounds of a tree node, prepared for lookups: their common prefix, and the next eight bytes of each bound as a
/// number. Most lookups then compare numbers only.
#[derive(Clone)]
struct Routes {
    common: SmolStr,
    heads: [u64; tree::WIDTH - 1],
}

fn head(text: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = text.len().min(8);
    head[..len].copy_from_slice(&text[..len]);
    u64::from_be_bytes(head)
}

/// Returns the common prefix of two texts.
fn common<'t>(a: &'t str, b: &str) -> &'t str {
    let mut len = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    while !a.is_char_boundary(len) {
        len -= 1;
    }
    &a[..len]
}

impl Leaf for ObjectLeaf {
    type Probe<'w> = Probe<'w>;
    type Item = Item;
    type Old = Option<Arc<StoredObject>>;
    type Bound = ObjectKey;
    type Routes = Routes;

    fn of(item: Item) -> Self {
        let mut leaf = Self::default();
        leaf.insert(0, item);
        leaf
    }

    fn len(&self) -> usize {
        self.len
    }

    fn probe(item: &Item) -> Probe<'_> {
        Probe { tag: item.tag, key: item.object.key() }
    }

    fn find(&self, probe: Probe<'_>) -> Option<usize> {
        // Loads the objects' cache lines while the tags are compared.
        black_box(self.objects[6].is_some() ^ self.objects[14].is_some());
        let mut candidates =
            self.tags.iter().zip(0..).fold(0_u32, |found, (tag, at)| found | u32::from(*tag == probe.tag) << at);
        while candidates != 0 {
            let at = candidates.trailing_zeros() as usize;
            if self.objects[at].as_ref().is_some_and(|object| object.key() == probe.key) {
                return Some(at);
            }
            candidates &= candidates - 1;
        }
        None
    }

    fn place(&self, probe: Probe<'_>) -> usize {
        let is_less = |object: &Option<Arc<StoredObject>>| object.as_ref().is_some_and(|it| it.key() < probe.key);
        self.objects.partition_point(is_less)
    }

    fn cut(&self, at: usize) -> Option<usize> {
        (self.len == WIDTH).then_some(if at == WIDTH { WIDTH } else { WIDTH / 2 })
    }

    fn insert(&mut self, at: usize, Item { tag, object }: Item) {
        put(&mut self.tags, self.len, at, tag);
        put(&mut self.filters, self.len, at, LabelFilter::of(object.labels()));
        put(&mut self.objects, self.len, at, Some(object));
        self.len += 1;
    }

    fn replace(&mut self, at: usize, Item { object, .. }: Item) -> Option<Arc<StoredObject>> {
        let old = self.objects[at].replace(object);
        let (old_labels, new) = (old.as_ref().map(|old| old.labels()), self.objects[at].as_ref());
        if let Some(new) = new.filter(|new| !old_labels.is_some_and(|old| old.ptr_eq(new.labels()))) {
            self.filters[at] = LabelFilter::of(new.labels());
        }
        old
    }

    fn remove(&mut self, at: usize) -> Option<Arc<StoredObject>> {
        take(&mut self.tags, self.len, at);
        take(&mut self.filters, self.len, at);
        let old = take(&mut self.objects, self.len, at);
        self.len -= 1;
        old
    }

    fn split_off(&mut self, at: usize) -> Self {
        let (tags, filters) = (split(&mut self.tags, at), split(&mut self.filters, at));
        let next = Self { tags, objects: split(&mut self.objects, at), filters, len: self.len - at };
        self.len = at;
        next
    }

    fn append(&mut self, next: &Self) {
        join(&mut self.tags, self.len, &next.tags, next.len);
        join(&mut self.filters, self.len, &next.filters, next.len);
        join(&mut self.objects, self.len, &next.objects, next.len);
        self.len += next.len;
    }

    fn has_room_for(&self, next: &Self) -> bool {
        self.len + next.len <= WIDTH * 3 / 4
    }

    fn bound(&self) -> ObjectKey {
        self.objects[0].as_ref().expect("a leaf is never empty").key().clone()
    }

    fn routes(bounds: &[ObjectKey]) -> Routes {
        let (first, last) = match bounds {
            [first, .., last] => (first.as_str(), last.as_str()),
            // The common prefix of a single bound with itself would leave nothing to compare.
            _ => ("", ""),
        };
        let common = common(first, last);
        let mut heads = [u64::MAX; tree::WIDTH - 1];
        for (head_of, bound) in heads.iter_mut().zip(bounds) {
            *head_of = head(&bound.as_str().as_bytes()[common.len()..]);
        }
        Routes { common: common.into(), heads }
    }

    fn route(routes: &Routes, bounds: &[ObjectKey], Probe { key, .. }: Probe<'_>) -> usize {
        let (text, common) = (key.as_str().as_bytes(), routes.common.as_bytes());
        let Some(rest) = text.strip_prefix(common) else {
            return if text < common { 0 } else { bounds.len() };
        };
        let head = head(rest);
        let less: usize = routes.heads.iter().map(|bound| usize::from(*bound < head)).sum();
        // `equal` is mostly zero; then `bounds` need not be loaded.
        let equal = routes.heads[less..].iter().take_while(|bound| **bound == head).count();
        if equal == 0 {
            return less;
        }
        let equal = &bounds[less..(less + equal).min(bounds.len())];
        less + equal.partition_point(|bound| bound <= key)
    }

    fn prefetch(&self) -> usize {
        let (tag, filter) = (usize::from(self.tags[0]), self.filters[0] == self.filters[WIDTH - 1]);
        self.len ^ tag ^ usize::from(filter) ^ usize::from(self.objects[WIDTH / 2].is_some())
    }
}

/// Adjacent objects of one leaf, each with its label filter.
#[derive(Clone, Copy)]
pub(super) struct Run<'t> {
    filters: &'t [LabelFilter],
    objects: &'t [Option<Arc<StoredObject>>],
}

impl<'t> Run<'t> {
    pub(super) fn len(self) -> usize {
        self.objects.len()
    }

    /// Returns the object at index `at` of this run; `None` beyond the end.
    pub(super) fn get(self, at: usize) -> Option<&'t Arc<StoredObject>> {
        self.objects.get(at)?.as_ref()
    }

    /// Returns the objects whose labels may match a selector. Calls `pass` once for each object that is left out.
    pub(super) fn that_may_match(
        self,
        needs: &LabelNeeds,
        pass: impl Fn(),
    ) -> impl Iterator<Item = &'t Arc<StoredObject>> {
        let may = move |(filter, object): (&LabelFilter, &'t Option<Arc<StoredObject>>)| {
            let is_out = needs.rule_out(*filter);
            if is_out {
                pass();
            }
            object.as_ref().filter(|_| !is_out)
        };
        self.filters.iter().zip(self.objects).filter_map(may)
    }

    /// Returns the objects, each with a flag: whether its labels may match the selector. Reads only their label
    /// filters.
    pub(super) fn judged(self, needs: &LabelNeeds) -> impl Iterator<Item = (&'t Arc<StoredObject>, bool)> {
        let judged = |(filter, object): (&LabelFilter, &'t Option<Arc<StoredObject>>)| {
            Some((object.as_ref()?, !needs.rule_out(*filter)))
        };
        self.filters.iter().zip(self.objects).filter_map(judged)
    }
}

fn has(namespaces: &[SmolStr], wanted: &str) -> bool {
    namespaces.binary_search_by(|namespace| namespace.as_str().cmp(wanted)).is_ok()
}

/// Returns the end of the range of keys with prefix `range`, as an excluded bound: the prefix with its last character
/// incremented.
pub(super) fn end_of(range: &ObjectKey) -> Bound<ObjectKey> {
    let mut text = range.as_str().to_owned();
    while let Some(last) = text.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            text.push(next);
            return Bound::Excluded(ObjectKey::new("", &text));
        }
    }
    Bound::Unbounded
}

/// Converts a bound of a key range to a position in the tree: directly before a key (false) or directly after it
/// (true). `None` if the range has no bound on this side.
///
/// `behind` is false for the start of the range, true for its end. An included start is before its key, and an included
/// end is after it.
fn place(bound: Bound<&ObjectKey>, behind: bool) -> Option<(Probe<'_>, bool)> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(key) => Some((Probe::of(key), behind)),
        Bound::Excluded(key) => Some((Probe::of(key), !behind)),
    }
}

/// Difference of one key between two trees.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'t> {
    Added(&'t Arc<StoredObject>),
    Removed(&'t Arc<StoredObject>),
    /// The old and the new object of the key: different allocations, with equal or different contents.
    Exchanged(&'t Arc<StoredObject>, &'t Arc<StoredObject>),
}

impl Objects {
    /// Returns whether `self` and `other` share one tree, because one is a clone of the other and neither was written
    /// since. True also if both are empty.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.tree.is_same(&other.tree)
    }

    /// Calls `each` for every difference between this tree and `next`, in key order. If one was derived from the other,
    /// shared nodes are skipped, and the cost is in proportion to the differences.
    pub(super) fn changes<'t>(&'t self, next: &'t Self, mut each: impl FnMut(Change<'t>)) {
        fn key((leaf, at): (&ObjectLeaf, usize)) -> Option<&ObjectKey> {
            leaf.objects[at].as_ref().map(|object| object.key())
        }
        for step in self.tree.differences(&next.tree, |old, new| key(old).cmp(&key(new))) {
            match step {
                Difference::Both((a, at), (b, to)) => {
                    if let (Some(old), Some(new)) = (a.objects[at].as_ref(), b.objects[to].as_ref())
                        && !Arc::ptr_eq(old, new)
                    {
                        each(Change::Exchanged(old, new));
                    }
                }
                Difference::Left((leaf, at)) => leaf.objects[at].iter().for_each(|old| each(Change::Removed(old))),
                Difference::Right((leaf, at)) => leaf.objects[at].iter().for_each(|new| each(Change::Added(new))),
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the object at a key; `None` if there is none.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<StoredObject>> {
        self.tree.find(Probe::of(key)).and_then(|(leaf, at)| leaf.objects[at].as_ref())
    }

    /// Inserts an object, and returns the object that it replaces; `None` if its key is new.
    pub(super) fn insert(&mut self, object: Arc<StoredObject>) -> Option<Arc<StoredObject>> {
        let known = self.namespaces.get();
        let is_known = known.is_some_and(|known| object.key().namespace().is_none_or(|it| has(known, it)));
        let old = self.tree.insert(Item { tag: tag(object.key()), object }).flatten();
        if old.is_none() && !is_known {
            self.forget_namespaces();
        }
        old
    }

    /// Removes the object at a key and returns it; `None` if there is none.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        let is_known = self.namespaces.get().is_some();
        let old = self.tree.remove(Probe::of(key)).flatten();
        if old.is_some() && !(is_known && key.namespace().is_none_or(|namespace| self.has_namespace(namespace))) {
            self.forget_namespaces();
        }
        old
    }

    /// Returns whether a namespace has objects.
    fn has_namespace(&self, namespace: &str) -> bool {
        let first = ObjectKey::new(namespace, "");
        let next = self.range(Bound::Included(&first), Bound::Unbounded).next();
        next.is_some_and(|object| object.key().namespace() == Some(namespace))
    }

    /// Clears the cached namespaces of this tree; its clones keep theirs. Must be called even if nothing is cached:
    /// clones share the cache, and one of them may fill it at any time.
    fn forget_namespaces(&mut self) {
        match Arc::get_mut(&mut self.namespaces) {
            Some(own) => drop(own.take()),
            None => self.namespaces = Arc::default(),
        }
    }

    /// Returns the namespaces that have objects, sorted. Costs a seek for each namespace, unless they are cached.
    pub(super) fn namespaces(&self) -> &Arc<[SmolStr]> {
        self.namespaces.get_or_init(|| {
            let mut found = Vec::new();
            let mut from = Bound::Unbounded;
            while let Some(object) = self.range(from.as_ref(), Bound::Unbounded).next() {
                let key = object.key();
                from = match key.namespace() {
                    Some(namespace) => {
                        found.push(namespace.into());
                        end_of(&ObjectKey::new(namespace, ""))
                    }
                    None => Bound::Excluded(key.clone()),
                };
                if matches!(from, Bound::Unbounded) {
                    break;
                }
            }
            found.sort_unstable();
            found.into()
        })
    }

    /// Returns all objects by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.tree.runs().flat_map(|(leaf, range)| &leaf.objects[range]).flatten()
    }

    /// Returns the objects between two keys in order, one leaf at a time.
    pub(super) fn runs<'t>(
        &'t self,
        from: Bound<&ObjectKey>,
        to: Bound<&ObjectKey>,
    ) -> impl Iterator<Item = Run<'t>> + use<'t> {
        let is_empty = match (from, to) {
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from > to,
            _ => false,
        };
        let runs = (!is_empty).then(|| self.tree.runs_between(place(from, false), place(to, true)));
        runs.into_iter().flatten().map(|(leaf, range)| {
            let (filters, objects) = (&leaf.filters[range.clone()], &leaf.objects[range]);
            Run { filters, objects }
        })
    }

    /// Returns the number of objects between two keys, without visiting them.
    pub(super) fn len_between(&self, from: Bound<&ObjectKey>, to: Bound<&ObjectKey>) -> usize {
        let rank = |(probe, behind): (Probe<'_>, bool)| self.tree.rank(probe, behind);
        let begin = place(from, false).map_or(0, rank);
        place(to, true).map_or(self.len(), rank).saturating_sub(begin)
    }

    /// Returns the objects between two keys in order.
    pub(super) fn range<'t>(
        &'t self,
        from: Bound<&ObjectKey>,
        to: Bound<&ObjectKey>,
    ) -> impl Iterator<Item = &'t Arc<StoredObject>> + use<'t> {
        self.runs(from, to).flat_map(|run| run.objects).flatten()
    }
}

#[cfg(test)]
impl Objects {
    /// Returns how many entries are compared to find the differences of two trees.
    pub(super) fn compared_entries(&self, next: &Self) -> usize {
        let compared = std::cell::Cell::new(0);
        let key = |(leaf, at): (&ObjectLeaf, usize)| leaf.objects[at].as_ref().map(|object| object.key().clone());
        let count = self.tree.differences(&next.tree, |old, new| {
            compared.set(compared.get() + 1);
            key(old).cmp(&key(new))
        });
        count.count().max(compared.get())
    }
}
