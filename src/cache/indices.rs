//! Declared and computed indices of a store: the locations of the objects that have each index value.
//!
//! Invariant: the posting of an index value has exactly the locations of the objects with this value. No posting is
//! empty. For a declared index, the decoder has stored the values with the object; a computed index calls its function.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use smol_str::SmolStr;

use super::indexers::{IndexFn, Indexers};
use super::posting::{Location, PartitionId, Posting};
use super::values::Values;
use informer_hub_types::{FieldPath, ObjectKey, SharedStr, StoredObject};

/// Maximum length of a slice that `missing_from` searches linearly; longer slices are sorted first.
const LINEAR_SEARCH_MAX: usize = 16;

/// Returns the `entries` that are not in `other`, in order. An apiserver does not limit the values of an object, so the
/// cost must not be the product of both lengths.
fn missing_from<'e, T: Ord>(other: &'e [T], entries: &'e [T]) -> impl Iterator<Item = &'e T> {
    let sorted = (other.len() > LINEAR_SEARCH_MAX).then(|| {
        let mut sorted: Vec<_> = other.iter().collect();
        sorted.sort_unstable();
        sorted
    });
    entries.iter().filter(move |entry| match &sorted {
        None => !other.contains(entry),
        Some(sorted) => sorted.binary_search(entry).is_err(),
    })
}

/// Sorted values of one object in one computed index, without duplicates.
pub(super) type ValuesOf = Vec<SharedStr>;

/// Stored form of [`ValuesOf`]: most objects have one value.
#[derive(Clone, Debug)]
enum StoredValues {
    One(SharedStr),
    Several(Arc<ValuesOf>),
}

impl StoredValues {
    fn values(&self) -> &[SharedStr] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Several(values) => values,
        }
    }
}

/// All indices of a resource. Cloning copies a few reference counts.
#[derive(Clone, Default)]
pub(super) struct Indices {
    declared: imbl::HashMap<SharedStr, Values>,
    /// Computed indices; most stores have none.
    computed: Arc<Vec<Computed>>,
}

/// One computed index.
#[derive(Clone)]
pub(super) struct Computed {
    name: SharedStr,
    function: IndexFn,
    values: Values,
    /// Non-empty results of the function per object, so that removing the values of an old state does not call the
    /// function again.
    stored_values: imbl::OrdMap<PartitionId, imbl::OrdMap<ObjectKey, StoredValues>>,
    /// Number of failed calls of the function; shared by all snapshots.
    failures: Arc<AtomicU64>,
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computed").field("name", &self.name).field("values", &self.values.len()).finish_non_exhaustive()
    }
}

impl Computed {
    pub(super) fn new(name: SharedStr, function: IndexFn, failures: Arc<AtomicU64>) -> Self {
        Self { name, function, values: Values::default(), stored_values: imbl::OrdMap::new(), failures }
    }

    pub(super) fn name(&self) -> &SharedStr {
        &self.name
    }

    /// Calls the index function with the object at a location and stores the values; a failure counts as no values.
    fn put(&mut self, at: &Location, object: &StoredObject) {
        let now = self.function.values(object).unwrap_or_else(|_| {
            self.failures.fetch_add(1, Relaxed);
            ValuesOf::new()
        });
        self.set(at, now);
    }

    /// Sets the values of the object at a location to `now`, which must be empty if there is no object.
    pub(super) fn set(&mut self, at: &Location, mut now: ValuesOf) {
        let before =
            self.stored_values.get(&at.partition).and_then(|stored_values| stored_values.get(&at.key)).cloned();
        let before = before.as_ref().map_or(&[][..], StoredValues::values);
        if *before == *now {
            return;
        }
        for value in before.iter().filter(|value| now.binary_search(value).is_err()) {
            self.values.remove(value, at);
        }
        for value in now.iter().filter(|value| before.binary_search(value).is_err()) {
            self.values.insert(value, at.clone());
        }
        for value in &mut now {
            // Shares the posting's copy of the text.
            if let Some(known) = self.values.known(value) {
                *value = known.clone();
            }
        }
        self.store_values(at, now);
    }

    fn store_values(&mut self, at: &Location, mut values: ValuesOf) {
        let stored_values = match values.len() {
            0 => {
                let of_partition = self.stored_values.get_mut(&at.partition);
                if of_partition
                    .is_some_and(|stored_values| stored_values.remove(&at.key).is_some() && stored_values.is_empty())
                {
                    self.stored_values.remove(&at.partition);
                }
                return;
            }
            1 => StoredValues::One(values.swap_remove(0)),
            _ => StoredValues::Several(Arc::new(values)),
        };
        self.stored_values.entry(at.partition).or_default().insert(at.key.clone(), stored_values);
    }

    fn remove(&mut self, at: &Location) {
        self.set(at, ValuesOf::new());
    }
}

impl Indices {
    /// Adds an object to all indices. No object may be indexed at its location.
    pub(super) fn insert(&mut self, partition: PartitionId, object: &StoredObject) {
        let at = Location { partition, key: object.key().clone() };
        for entry in object.index_values() {
            self.declared.entry(entry.index.clone()).or_default().insert(&entry.value, at.clone());
        }
        self.compute(&at, object);
    }

    /// Removes an object from all indices.
    pub(super) fn remove(&mut self, partition: PartitionId, object: &StoredObject) {
        let at = Location { partition, key: object.key().clone() };
        for entry in object.index_values() {
            if let Some(values) = self.declared.get_mut(&entry.index) {
                values.remove(&entry.value, &at);
            }
        }
        if !self.computed.is_empty() {
            for index in Arc::make_mut(&mut self.computed) {
                index.remove(&at);
            }
        }
    }

    /// Updates the index entries of a location from the old to the new state of its object.
    pub(super) fn update(&mut self, partition: PartitionId, old: &StoredObject, new: &StoredObject) {
        let at = Location { partition, key: new.key().clone() };
        if old.index_values() != new.index_values() {
            for entry in missing_from(new.index_values(), old.index_values()) {
                if let Some(values) = self.declared.get_mut(&entry.index) {
                    values.remove(&entry.value, &at);
                }
            }
            for entry in missing_from(old.index_values(), new.index_values()) {
                self.declared.entry(entry.index.clone()).or_default().insert(&entry.value, at.clone());
            }
        }
        self.compute(&at, new);
    }

    fn compute(&mut self, at: &Location, object: &StoredObject) {
        if !self.computed.is_empty() {
            for index in Arc::make_mut(&mut self.computed) {
                index.put(at, object);
            }
        }
    }

    /// Adds complete computed indices. No existing computed index may have one of their names.
    pub(super) fn append(&mut self, mut built: Vec<Computed>) {
        Arc::make_mut(&mut self.computed).append(&mut built);
    }

    /// Removes a computed index. Returns whether there was one.
    pub(super) fn forget(&mut self, name: &str) -> bool {
        let known = self.is_computed(name);
        if known {
            Arc::make_mut(&mut self.computed).retain(|index| index.name != name);
        }
        known
    }

    fn computed(&self, name: &str) -> Option<&Computed> {
        self.computed.iter().find(|index| index.name == name)
    }

    pub(super) fn is_computed(&self, name: &str) -> bool {
        self.computed(name).is_some()
    }

    /// Returns the name of a computed index that reads exactly this path, if there is one.
    pub(super) fn computed_of(&self, path: &FieldPath) -> Option<&SharedStr> {
        self.computed.iter().find(|index| index.function.read_at() == Some(path)).map(|index| &index.name)
    }

    /// Returns the names of the computed indices, unordered.
    pub(super) fn computed_names(&self) -> impl Iterator<Item = &SharedStr> {
        self.computed.iter().map(|index| &index.name)
    }

    /// Returns the function of a computed index.
    pub(super) fn function(&self, name: &str) -> Option<&IndexFn> {
        self.computed(name).map(|index| &index.function)
    }

    /// Returns the computed indices with their functions.
    pub(super) fn indexers(&self) -> Indexers {
        self.computed.iter().map(|index| (index.name.clone(), index.function.clone())).collect()
    }

    /// Returns how often the function of a computed index failed.
    pub(super) fn failures(&self, name: &str) -> u64 {
        self.computed(name).map_or(0, |index| index.failures.load(Relaxed))
    }

    /// Returns the values of an index. A computed index takes precedence over a declared index of the same name,
    /// because it covers every object.
    fn values_of(&self, name: &str) -> Option<&Values> {
        self.computed(name).map(|index| &index.values).or_else(|| self.declared.get(name))
    }

    /// Returns the values of an index with their numbers of objects, unordered.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = (&SharedStr, usize)> {
        self.values_of(name).into_iter().flat_map(|values| values.iter().map(|(value, at)| (value, at.len())))
    }

    /// Returns the values of an index in these partitions, which must be sorted. The result is unordered.
    pub(super) fn values_in(&self, name: &str, partitions: &[PartitionId]) -> impl Iterator<Item = &SharedStr> {
        let values = self.values_of(name).into_iter().flat_map(Values::iter);
        values.filter(|(_, at)| at.is_in_any(partitions)).map(|(value, _)| value)
    }

    /// Returns the number of objects that have this value in the index.
    pub(super) fn count(&self, name: &str, value: &str) -> usize {
        self.posting(name, value).map_or(0, Posting::len)
    }

    /// Returns whether an object of a partition has any of these values in an index.
    pub(super) fn carries(
        &self,
        name: &str,
        values: &[SmolStr],
        partition: PartitionId,
        object: &StoredObject,
    ) -> bool {
        let among = |value: &SharedStr| values.iter().any(|one| *one == value.as_str());
        match self.computed(name) {
            None => object.index_values().iter().any(|entry| entry.index == name && among(&entry.value)),
            Some(index) => {
                let stored_values =
                    index.stored_values.get(&partition).and_then(|stored_values| stored_values.get(object.key()));
                stored_values.is_some_and(|stored_values| stored_values.values().iter().any(among))
            }
        }
    }

    /// Returns the locations of the objects with a value, if there are any.
    pub(super) fn posting(&self, name: &str, value: &str) -> Option<&Posting> {
        self.values_of(name).and_then(|values| values.get(value))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;
    use std::rc::Rc;

    use super::*;
    use crate::testing::object_with;

    /// A number that counts its comparisons.
    #[derive(Clone, Debug)]
    struct Counted(u32, Rc<Cell<usize>>);

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Counted {}

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            self.1.set(self.1.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    /// Returns the comparisons needed to diff two sets of `len` values that share half of them.
    fn comparisons(len: u32) -> usize {
        let count = Rc::new(Cell::new(0));
        let values = |from: u32| (from..from + len).rev().map(|value| Counted(value, Rc::clone(&count)));
        let (old, new): (Vec<_>, Vec<_>) = (values(0).collect(), values(len / 2).collect());
        let numbers = |entry: &Counted| entry.0;
        assert!(missing_from(&new, &old).map(numbers).eq((0..len / 2).rev()), "{len}");
        assert!(missing_from(&old, &new).map(numbers).eq((len..len + len / 2).rev()), "{len}");
        count.get()
    }

    #[test]
    fn missing_from_is_not_quadratic() {
        for len in [2, 16, 18, 1_000, 16_000] {
            let (took, bound) = (comparisons(len), 2 * 3 * len as usize * (len.ilog2() as usize + 2));
            assert!(took <= bound, "{took} for {len} values, expected at most {bound}");
        }
    }

    #[test]
    fn update_of_many_declared_values_leaves_only_the_new_ones() {
        let pod = |version: u64, from: u32| {
            let values: Vec<_> = (from..from + 40).map(|value| value.to_string()).collect();
            let index: Vec<_> = values.iter().map(|value| ("by-image", value.as_str())).collect();
            object_with("ns", "a", "u", version, &[], &index)
        };
        let (old, new) = (pod(1, 0), pod(2, 25));
        let mut indices = Indices::default();
        indices.insert(PartitionId(0), &old);
        indices.update(PartitionId(0), &old, &new);
        let mut values: Vec<u32> = indices.values("by-image").map(|(value, _)| value.parse().unwrap()).collect();
        values.sort_unstable();
        assert!(values.iter().copied().eq(25..65), "{values:?}");
    }
}
