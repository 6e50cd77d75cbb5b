//! The indices of a store, declared and computed: which locations carry which value.
//!
//! Invariant: a location is in the posting of `(index, value)` iff the object there carries that entry (a declared
//! index) or the function gave that value for it (a computed one). No posting is empty.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use smol_str::SmolStr;

use super::indexers::{IndexFn, Indexers};
use super::posting::{Location, PartitionId, Posting};
use super::values::Values;
use informer_hub_types::{FieldPath, ObjectKey, SharedStr, StoredObject};

/// Up to how many entries are searched as they stand; more are sorted first.
const FEW: usize = 16;

/// Those of `entries` that `other` has not, in their order. An apiserver does not bound how many values an object
/// gives, so this must not take the product of the two.
fn missing_from<'e, T: Ord>(other: &'e [T], entries: &'e [T]) -> impl Iterator<Item = &'e T> {
    let sorted = (other.len() > FEW).then(|| {
        let mut sorted: Vec<_> = other.iter().collect();
        sorted.sort_unstable();
        sorted
    });
    entries.iter().filter(move |entry| match &sorted {
        None => !other.contains(entry),
        Some(sorted) => sorted.binary_search(entry).is_err(),
    })
}

/// The values of one object in one computed index: sorted, each once.
pub(super) type ValuesOf = Vec<SharedStr>;

/// The same as it is remembered: most objects have one.
#[derive(Clone, Debug)]
enum Given {
    One(SharedStr),
    Several(Arc<ValuesOf>),
}

impl Given {
    fn values(&self) -> &[SharedStr] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Several(values) => values,
        }
    }
}

/// All indices of a resource. Cloning it costs a few reference counts.
#[derive(Clone, Default)]
pub(super) struct Indices {
    declared: imbl::HashMap<SharedStr, Values>,
    /// Few, and most stores have none.
    computed: Arc<Vec<Computed>>,
}

/// One computed index.
#[derive(Clone)]
pub(super) struct Computed {
    name: SharedStr,
    function: IndexFn,
    values: Values,
    /// What the function gave for each object, where it gave anything: so that it is never called for an old state.
    given: imbl::OrdMap<PartitionId, imbl::OrdMap<ObjectKey, Given>>,
    /// Shared by all snapshots.
    failures: Arc<AtomicU64>,
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computed").field("name", &self.name).field("values", &self.values.len()).finish_non_exhaustive()
    }
}

impl Computed {
    pub(super) fn new(name: SharedStr, function: IndexFn, failures: Arc<AtomicU64>) -> Self {
        Self { name, function, values: Values::default(), given: imbl::OrdMap::new(), failures }
    }

    pub(super) fn name(&self) -> &SharedStr {
        &self.name
    }

    /// Indexes the object that is at a location now, whatever was there before.
    fn put(&mut self, at: &Location, object: &StoredObject) {
        let now = self.function.values(object).unwrap_or_else(|_| {
            self.failures.fetch_add(1, Relaxed);
            ValuesOf::new()
        });
        self.set(at, now);
    }

    /// Sets what the function gave for the object that is at a location now; nothing where there is none.
    pub(super) fn set(&mut self, at: &Location, mut now: ValuesOf) {
        let before = self.given.get(&at.partition).and_then(|given| given.get(&at.key)).cloned();
        let before = before.as_ref().map_or(&[][..], Given::values);
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
            // The text of the posting, of which there is one for all objects.
            if let Some(known) = self.values.known(value) {
                *value = known.clone();
            }
        }
        self.remember(at, now);
    }

    fn remember(&mut self, at: &Location, mut values: ValuesOf) {
        let given = match values.len() {
            0 => {
                let of_partition = self.given.get_mut(&at.partition);
                if of_partition.is_some_and(|given| given.remove(&at.key).is_some() && given.is_empty()) {
                    self.given.remove(&at.partition);
                }
                return;
            }
            1 => Given::One(values.swap_remove(0)),
            _ => Given::Several(Arc::new(values)),
        };
        self.given.entry(at.partition).or_default().insert(at.key.clone(), given);
    }

    fn remove(&mut self, at: &Location) {
        self.set(at, ValuesOf::new());
    }
}

impl Indices {
    /// Takes in the object of a location where there was none.
    pub(super) fn insert(&mut self, partition: PartitionId, object: &StoredObject) {
        let at = Location { partition, key: object.key().clone() };
        for entry in object.index_values() {
            self.declared.entry(entry.index.clone()).or_default().insert(&entry.value, at.clone());
        }
        self.compute(&at, object);
    }

    /// Takes out an object that is gone.
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

    /// Takes in the new state of an object that is at the same location.
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

    /// Adds computed indices that have been made over the objects that there are. Their names must be free.
    pub(super) fn append(&mut self, mut made: Vec<Computed>) {
        Arc::make_mut(&mut self.computed).append(&mut made);
    }

    /// Forgets a computed index; whether there was one of that name.
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

    /// The name of a computed index of a path.
    pub(super) fn computed_of(&self, path: &FieldPath) -> Option<&SharedStr> {
        self.computed.iter().find(|index| index.function.read_at() == Some(path)).map(|index| &index.name)
    }

    /// Names of the computed indices, in no order.
    pub(super) fn computed_names(&self) -> impl Iterator<Item = &SharedStr> {
        self.computed.iter().map(|index| &index.name)
    }

    /// The function of a computed index.
    pub(super) fn function(&self, name: &str) -> Option<&IndexFn> {
        self.computed(name).map(|index| &index.function)
    }

    /// The computed indices.
    pub(super) fn indexers(&self) -> Indexers {
        self.computed.iter().map(|index| (index.name.clone(), index.function.clone())).collect()
    }

    /// How often the function of a computed index failed.
    pub(super) fn failures(&self, name: &str) -> u64 {
        self.computed(name).map_or(0, |index| index.failures.load(Relaxed))
    }

    /// The values of an index. Where a computed one has the name of a declared one, it counts: it knows every object.
    fn values_of(&self, name: &str) -> Option<&Values> {
        self.computed(name).map(|index| &index.values).or_else(|| self.declared.get(name))
    }

    /// The values of an index, in no order, with how many objects carry each.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = (&SharedStr, usize)> {
        self.values_of(name).into_iter().flat_map(|values| values.iter().map(|(value, at)| (value, at.len())))
    }

    /// The values of an index, in no order, that any object in these partitions carries; they are sorted.
    pub(super) fn values_in(&self, name: &str, partitions: &[PartitionId]) -> impl Iterator<Item = &SharedStr> {
        let values = self.values_of(name).into_iter().flat_map(Values::iter);
        values.filter(|(_, at)| at.is_in_any(partitions)).map(|(value, _)| value)
    }

    /// How many objects carry a value.
    pub(super) fn count(&self, name: &str, value: &str) -> usize {
        self.posting(name, value).map_or(0, Posting::len)
    }

    /// Whether the object of a partition carries any of these values in an index.
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
                let given = index.given.get(&partition).and_then(|given| given.get(object.key()));
                given.is_some_and(|given| given.values().iter().any(among))
            }
        }
    }

    /// Where the objects are that carry a value, if any does.
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
    use crate::cache::testing::object_with;

    /// Counts how often it is compared.
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

    /// How many comparisons it takes to tell `len` values from as many others, half of which are the same.
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
    fn entries_are_compared_in_little_more_than_their_number_however_many_there_are() {
        for len in [2, 16, 18, 1_000, 16_000] {
            let (took, bound) = (comparisons(len), 2 * 3 * len as usize * (len.ilog2() as usize + 2));
            assert!(took <= bound, "{took} for {len} values, and not {bound}");
        }
    }

    #[test]
    fn an_update_of_many_declared_values_leaves_exactly_the_new_ones() {
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
