//! Transforms: changes that a program makes to each object before it is stored, as client-go's `TransformFunc`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A change to each object before the store, its indices and all handlers see it.
///
/// - It runs once for each object received, in a list or an event. Its input is always the apiserver's object, never
///   its own output. Unlike client-go's, it need not be idempotent.
/// - The projection (which drops `metadata.managedFields` by default) is applied before it, and again to its result.
///   Labels and index values are read from the result.
/// - It must be fast, since it runs in the task that reads the socket. Each object is parsed and serialized again:
///   decoding a pod of 10 KB takes about 100 µs, without a transform 7 to 10 µs. An object in protobuf is first
///   converted to JSON. To drop fields, use a projection, which costs nothing.
/// - If it fails or panics, the object is skipped, counted and shown. The stored state stays until the object can be
///   decoded again or is deleted. A deletion takes effect even if the transform fails on it; it is then delivered as a
///   tombstone.
/// - It must not change `metadata.name` or `metadata.namespace`; that is a failure. UID and resourceVersion are always
///   those of the apiserver's object.
#[derive(Clone)]
pub struct Transform(Arc<Change>);

type Change = dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync;

impl Transform {
    /// Creates a transform of the object as JSON.
    pub fn json<E: fmt::Display>(change: impl Fn(&mut Value) -> Result<(), E> + Send + Sync + 'static) -> Self {
        Self::typed::<Value, E>(change)
    }

    /// Creates a transform of the object as a Rust type. Fields unknown to the type are lost. An object that does not
    /// fit the type is a failure.
    pub fn typed<K, E>(change: impl Fn(&mut K) -> Result<(), E> + Send + Sync + 'static) -> Self
    where
        K: DeserializeOwned + Serialize + 'static,
        E: fmt::Display,
    {
        Self(Arc::new(move |json| {
            // serde's message may quote the object, so it is not used.
            let mut object: K = serde_json::from_slice(json)
                .map_err(|_| "the object does not fit the transform's Rust type".to_owned())?;
            change(&mut object).map_err(|error| error.to_string())?;
            serde_json::to_vec(&object).map_err(|_| "cannot serialize the result as JSON".to_owned())
        }))
    }

    /// Runs the transform on an object's JSON. A panic is an error too.
    pub(super) fn apply(&self, json: &[u8]) -> Result<Vec<u8>, String> {
        catch_unwind(AssertUnwindSafe(|| (self.0)(json))).unwrap_or_else(|_| Err("it panicked".to_owned()))
    }
}

impl PartialEq for Transform {
    /// Returns whether both transforms are the same closure.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transform").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "transform_tests.rs"]
mod tests;
