//! Last seen versions of objects, compressed, in bounded memory.
//!
//! A version takes about a tenth of its JSON: the first object serves as compression dictionary for all others, which
//! resemble it. Beyond the limit, the versions written longest ago are dropped. Keys are never dropped.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

/// Maximum length of the compression dictionary in bytes.
const DICTIONARY: usize = 16 * 1024;
/// Maximum length of an object's JSON in bytes. Larger objects are not kept.
const LARGEST: usize = 32 << 20;
/// Estimated memory of a key and its bookkeeping in bytes, besides the compressed JSON.
const OVERHEAD: usize = 160;

/// Cluster, namespace and name of an object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SeenKey {
    /// Cluster of the object; empty if all objects are in one cluster.
    pub cluster: String,
    /// Namespace; empty for an object without one.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

#[derive(Debug)]
struct Entry {
    /// Sequence number of the last write, for eviction.
    turn: u64,
    /// Number of the list that was current when the object was last written or confirmed. [`SeenObjects::begin_list`]
    /// counts the lists.
    round: u64,
    /// Compressed JSON, and its uncompressed length in bytes; `None` if the version was too large or was dropped.
    body: Option<(Box<[u8]>, usize)>,
}

/// Last seen versions of objects, within a limit of memory.
#[derive(Debug)]
pub struct SeenObjects {
    entries: HashMap<Arc<SeenKey>, Entry>,
    /// Keys of the objects whose JSON is kept, by the sequence number of their last write.
    turns: BTreeMap<u64, Arc<SeenKey>>,
    turn: u64,
    round: u64,
    dictionary: Box<[u8]>,
    /// Estimated memory of the kept versions in bytes: their compressed JSON, and [`OVERHEAD`] for each.
    used: usize,
    limit: usize,
}

impl SeenObjects {
    /// Creates an empty store whose versions take at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            turns: BTreeMap::new(),
            turn: 0,
            round: 0,
            dictionary: Box::default(),
            used: 0,
            limit,
        }
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the estimated memory of the stored versions in bytes.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns whether the object is known, even if its version was dropped.
    #[must_use]
    pub fn contains(&self, key: &SeenKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns the object as it was last seen; `None` if it is unknown or its content was dropped.
    #[must_use]
    pub fn get(&self, key: &SeenKey) -> Option<Value> {
        let (body, length) = self.entries.get(key)?.body.as_ref()?;
        let mut decompressor = zstd::bulk::Decompressor::with_dictionary(&self.dictionary).ok()?;
        serde_json::from_slice(&decompressor.decompress(body, *length).ok()?).ok()
    }

    /// Replaces the last seen version of an object.
    pub fn put(&mut self, key: SeenKey, object: &Value) {
        let key = match self.entries.get_key_value(&key) {
            Some((key, _)) => Arc::clone(key),
            None => Arc::new(key),
        };
        self.release(&key);
        let body = self.compressed(object);
        let round = self.round;
        self.turn += 1;
        if let Some((bytes, _)) = &body {
            self.used += bytes.len() + OVERHEAD;
            self.turns.insert(self.turn, Arc::clone(&key));
        }
        self.entries.insert(key, Entry { turn: self.turn, round, body });
        while self.used > self.limit {
            let Some((_, oldest)) = self.turns.first_key_value().map(|(turn, key)| (*turn, Arc::clone(key))) else {
                break;
            };
            self.release(&oldest);
        }
    }

    /// Removes an object. Returns whether it was known.
    pub fn remove(&mut self, key: &SeenKey) -> bool {
        self.release(key);
        self.entries.remove(key).is_some()
    }

    /// Marks the start of a list of all objects. [`Self::end_list`] removes those that were not listed.
    pub fn begin_list(&mut self) {
        self.round += 1;
    }

    /// Records that the current list has this object, unchanged.
    pub fn confirm(&mut self, key: &SeenKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.round = self.round;
        }
    }

    /// Removes the objects that were neither put nor confirmed since the list began, and returns their keys, sorted.
    pub fn end_list(&mut self) -> Vec<SeenKey> {
        let missing = self.entries.iter().filter(|(_, entry)| entry.round != self.round);
        let mut missing: Vec<SeenKey> = missing.map(|(key, _)| SeenKey::clone(key)).collect();
        missing.sort();
        for key in &missing {
            self.remove(key);
        }
        missing
    }

    fn compressed(&mut self, object: &Value) -> Option<(Box<[u8]>, usize)> {
        let json = object.to_string();
        if json.len() > LARGEST {
            return None;
        }
        if self.dictionary.is_empty() {
            self.dictionary = json.as_bytes()[..json.len().min(DICTIONARY)].into();
        }
        let mut compressor = zstd::bulk::Compressor::with_dictionary(1, &self.dictionary).ok()?;
        let bytes = compressor.compress(json.as_bytes()).ok()?;
        Some((bytes.into_boxed_slice(), json.len()))
    }

    /// Drops the stored JSON of an object, but keeps its key.
    fn release(&mut self, key: &SeenKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Some((bytes, _)) = entry.body.take() {
            self.used -= bytes.len() + OVERHEAD;
            self.turns.remove(&entry.turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> SeenKey {
        SeenKey { cluster: "eu".into(), namespace: "shop".into(), name: name.into() }
    }

    fn object(number: usize) -> Value {
        let containers: Vec<_> = (0..20)
            .map(|at| json!({ "name": format!("c{at}"), "image": "registry.example.com/web/server:1.2.3" }))
            .collect();
        json!({ "metadata": { "name": format!("p{number}"), "labels": { "app": "web" } }, "spec": { "containers": containers } })
    }

    #[test]
    fn objects_are_kept_in_a_fraction_of_their_size() {
        let mut seen = SeenObjects::new(usize::MAX);
        for number in 0..500 {
            seen.put(key(&format!("p{number}")), &object(number));
        }
        assert_eq!(seen.get(&key("p77")), Some(object(77)));
        let per_object = (seen.used() / 500) - OVERHEAD;
        let json = object(1).to_string().len();
        assert!(per_object * 10 < json, "{per_object} of {json} bytes");
    }

    #[test]
    fn oldest_versions_are_dropped_at_the_limit_and_their_keys_stay() {
        let mut seen = SeenObjects::new(4096);
        for number in 0..100 {
            seen.put(key(&format!("p{number}")), &object(number));
        }
        assert!(seen.used() <= 4096, "{}", seen.used());
        assert!(seen.contains(&key("p0")) && seen.get(&key("p0")).is_none());
        assert_eq!((seen.get(&key("p99")), seen.len()), (Some(object(99)), 100));
    }

    #[test]
    fn list_reports_objects_that_it_does_not_have() {
        let mut seen = SeenObjects::new(usize::MAX);
        for name in ["a", "b", "c"] {
            seen.put(key(name), &object(1));
        }
        seen.begin_list();
        seen.confirm(&key("a"));
        seen.put(key("d"), &object(2));
        assert_eq!(seen.end_list(), [key("b"), key("c")]);
        assert!(seen.remove(&key("a")) && !seen.remove(&key("a")) && seen.len() == 1);
    }
}
