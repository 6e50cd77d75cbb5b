//! Computed indices: functions that return the index values of an object, as client-go's `IndexFunc` and `Indexers` do.
//!
//! The decoder reads the values of a declared index as bytes arrive. The function of a computed index receives the
//! whole object, and such an index can be added while the store is in use.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::index_errors::IndexError;
use super::path_values::{from_head, is_of_head, scalars_at};
use informer_hub_types::{FieldPath, Members, SharedStr, StoredObject};

type Function = dyn Fn(&StoredObject) -> Result<Vec<SharedStr>, IndexError> + Send + Sync;

/// Function that returns the index values of an object: any number, including the empty text. Duplicates are ignored.
///
/// It must return equal values for equal objects, and must not write to the store that it indexes. It runs once per
/// state of an object. For objects present when the index is added, it runs on the building threads. For later states,
/// it runs in the store's writer before publication, so its cost adds to every write.
#[derive(Clone)]
pub struct IndexFn {
    function: Arc<Function>,
    /// Path that the function reads, if it returns exactly the scalars at that path in the object's JSON.
    path: Option<Arc<FieldPath>>,
}

impl IndexFn {
    /// Creates an index from a function of the stored form. Reading the head (key, labels) is cheap.
    pub fn new(function: impl Fn(&StoredObject) -> Result<Vec<SharedStr>, IndexError> + Send + Sync + 'static) -> Self {
        Self { function: Arc::new(function), path: None }
    }

    /// Creates an index from a function of the Rust type. Decodes each object completely, about 45 µs for a pod of 10
    /// KB. An object that does not fit the type counts as a failure.
    pub fn typed<K: DeserializeOwned>(values: impl Fn(&K) -> Vec<SharedStr> + Send + Sync + 'static) -> Self {
        Self::new(move |object| Ok(values(&object.typed()?)))
    }

    /// Creates an index of the scalars at a path. It has the same values as a declared index of that path: strings as
    /// they are, numbers and booleans as written. Reads the bytes only along the path and builds no other values. Name,
    /// namespace and labels are read from the head, the parsed metadata.
    #[must_use]
    pub fn path(path: FieldPath) -> Self {
        let path = Arc::new(path);
        let read_at = (!is_of_head(&path)).then(|| Arc::clone(&path));
        let members = Members::new([&*path]);
        let function = Self::new(move |object| {
            let mut values = Vec::new();
            if !from_head(&path, object, &mut values) {
                scalars_at(&path, &object.json_with(&members)?, |value| values.push(value.into()))?;
            }
            Ok(values)
        });
        Self { path: read_at, ..function }
    }

    /// Returns the path in the objects' JSON whose scalars are exactly the index values; `None` if no such path is
    /// known.
    pub(super) fn read_at(&self) -> Option<&FieldPath> {
        self.path.as_deref()
    }

    /// Returns the sorted values of an object without duplicates. A panic of the function is an error.
    pub(super) fn values(&self, object: &StoredObject) -> Result<Vec<SharedStr>, IndexError> {
        let mut values = catch_unwind(AssertUnwindSafe(|| (self.function)(object)))
            .unwrap_or_else(|_| Err(IndexError("the index function panicked".to_owned())))?;
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }
}

impl fmt::Debug for IndexFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IndexFn")
    }
}

/// Computed indices by name.
#[derive(Clone, Debug, Default)]
pub struct Indexers(BTreeMap<SharedStr, IndexFn>);

impl Indexers {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an index, replacing one of the same name.
    #[must_use]
    pub fn with(mut self, name: impl Into<SharedStr>, function: IndexFn) -> Self {
        self.0.insert(name.into(), function);
        self
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &SharedStr> {
        self.0.keys()
    }

    /// Returns the function of the index with this name; `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&IndexFn> {
        self.0.get(name)
    }

    /// Returns the number of indices.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no indices.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<SharedStr>> FromIterator<(N, IndexFn)> for Indexers {
    fn from_iter<I: IntoIterator<Item = (N, IndexFn)>>(indexers: I) -> Self {
        Self(indexers.into_iter().map(|(name, function)| (name.into(), function)).collect())
    }
}

impl IntoIterator for Indexers {
    type Item = (SharedStr, IndexFn);
    type IntoIter = std::collections::btree_map::IntoIter<SharedStr, IndexFn>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
