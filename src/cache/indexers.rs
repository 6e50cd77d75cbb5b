//! Computed indices: functions of a program that say under which values an object is to be found.
//!
//! Client-go's `IndexFunc` and `Indexers`. Unlike a declared index, which the decoder reads off the bytes as they
//! arrive, a function sees the whole object and can be added while the store is in use.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::path_values::{from_head, is_of_head, scalars_at};
use informer_hub_types::{DecodeError, FieldPath, SharedStr, StoredObject};

/// Why a function has no values for an object. Never leaves the object out of anything but this one index.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IndexError(
    /// What was wrong, for people; it must hold nothing secret.
    pub String,
);

impl From<DecodeError> for IndexError {
    /// Without the cause, which may quote the object.
    fn from(error: DecodeError) -> Self {
        Self(error.to_string())
    }
}

type Function = dyn Fn(&StoredObject) -> Result<Vec<SharedStr>, IndexError> + Send + Sync;

/// The index values of an object: any number of them, the empty text among them; repetitions count once.
///
/// It must give the same values for the same object. It runs once for each state of an object: of one that is there when
/// the index is added, by who builds it, on several threads at once; of a later one by whoever writes the store, before
/// that state is published: what it costs, every write costs. It must not write to the store that it indexes.
#[derive(Clone)]
pub struct IndexFn {
    function: Arc<Function>,
    /// The path whose scalars in an object's bytes it gives, where it does nothing else.
    path: Option<Arc<FieldPath>>,
}

impl IndexFn {
    /// An index by a function of the stored form, whose head (key, labels) is free to read.
    pub fn new(function: impl Fn(&StoredObject) -> Result<Vec<SharedStr>, IndexError> + Send + Sync + 'static) -> Self {
        Self { function: Arc::new(function), path: None }
    }

    /// An index by a function of the Rust type. Decodes each object in full, about 45 µs for a pod of 10 KB; one that
    /// does not fit the type is a failure.
    pub fn typed<K: DeserializeOwned>(values: impl Fn(&K) -> Vec<SharedStr> + Send + Sync + 'static) -> Self {
        Self::new(move |object| Ok(values(&object.typed()?)))
    }

    /// An index by a path, as a declared one: strings as they are, numbers and booleans as they are written. Reads the
    /// bytes up to where the path leads and builds nothing else of them; what the head has of an object (its name,
    /// namespace and labels) it reads there.
    #[must_use]
    pub fn path(path: FieldPath) -> Self {
        let path = Arc::new(path);
        let read_at = (!is_of_head(&path)).then(|| Arc::clone(&path));
        let function = Self::new(move |object| {
            let mut values = Vec::new();
            if !from_head(&path, object, &mut values) {
                scalars_at(&path, &object.json()?, |value| values.push(value.into()))?;
            }
            Ok(values)
        });
        Self { path: read_at, ..function }
    }

    /// The path whose scalars in an object's bytes are its values, and nothing else is.
    pub(super) fn read_at(&self) -> Option<&FieldPath> {
        self.path.as_deref()
    }

    /// The values of an object, sorted, each once. A panic of the function is an error like any other.
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
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more; of a repeated name the last one counts.
    #[must_use]
    pub fn with(mut self, name: impl Into<SharedStr>, function: IndexFn) -> Self {
        self.0.insert(name.into(), function);
        self
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &SharedStr> {
        self.0.keys()
    }

    /// The function of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&IndexFn> {
        self.0.get(name)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
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

/// Names that an index of the resource has already; whoever adds indices can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} has an index of this name already: {}; nothing was added", names.join(", "))]
pub struct IndexerConflict {
    /// The resource.
    pub resource: String,
    /// The names that are taken, sorted.
    pub names: Vec<String>,
}

/// Why indices are not added to a store that is in use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddIndexersError {
    /// Their names are taken; whoever adds them can fix it.
    #[error(transparent)]
    Conflict(#[from] IndexerConflict),
    /// Somebody took these away before they were complete. Those that were added with them are there.
    #[error("index {} of {resource} was removed before it was complete", names.join(", "))]
    Removed {
        /// The resource.
        resource: String,
        /// The names, sorted.
        names: Vec<String>,
    },
    /// The cache stopped, or died, before they were complete. They can be added again to the one that follows it.
    #[error("the cache stopped before the indices were complete")]
    Stopped,
}
