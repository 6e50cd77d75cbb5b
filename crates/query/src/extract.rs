//! Extraction of the values at several paths from an object's JSON, in one pass.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use smallvec::SmallVec;

use super::trie::Trie;
use super::walk::{Key, Unreadable};
use informer_hub_types::FieldPath;

/// The values at one path of one object, in document order.
pub type Values = SmallVec<[Value; 1]>;

/// Paths, prepared to extract their values from many objects.
#[derive(Debug)]
pub struct Extractor {
    trie: Trie,
    paths: usize,
}

impl Extractor {
    /// Prepares paths for extraction.
    #[must_use]
    pub fn new(paths: &[FieldPath]) -> Self {
        Self { trie: Trie::new(paths.iter().enumerate()), paths: paths.len() }
    }

    /// Returns the values of each path, in the order of the paths.
    ///
    /// Reads the JSON once, skips values that no path selects, and stops as soon as every path has all its values. The
    /// bytes after that point are not checked. If the JSON has a field twice, the result contains its first value or
    /// both.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes are not JSON.
    pub fn extract(&self, json: &[u8]) -> Result<Vec<Values>, Unreadable> {
        let mut found =
            Extraction { values: vec![Values::new(); self.paths], open: vec![true; self.paths], is_complete: false };
        if self.paths == 0 {
            return Ok(found.values);
        }
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let step = Step { trie: &self.trie, node: Trie::ROOT, single: true, found: &mut found };
        match step.deserialize(&mut deserializer) {
            Err(error) if !found.is_complete => Err(error.into()),
            Ok(()) => {
                deserializer.end()?;
                Ok(found.values)
            }
            Err(_) => Ok(found.values),
        }
    }
}

struct Extraction {
    values: Vec<Values>,
    /// For each path, whether the unread part of the JSON may contain more values of the path.
    open: Vec<bool>,
    is_complete: bool,
}

impl Extraction {
    /// Collects the values of all paths that end at `node` of the path tree or below it. `value` is the parsed JSON at
    /// `node`.
    fn collect(&mut self, trie: &Trie, node: usize, value: &Value) {
        for &path in trie.ends(node) {
            self.values[path].push(value.clone());
        }
        match value {
            Value::Object(fields) => {
                for (name, child) in trie.fields(node) {
                    if let Some(value) = fields.get(name.as_str()) {
                        self.collect(trie, *child, value);
                    }
                }
            }
            Value::Array(elements) => {
                if let Some(child) = trie.each(node) {
                    for value in elements {
                        self.collect(trie, child, value);
                    }
                }
            }
            _ => {}
        }
    }

    /// Marks paths as having no further values. Returns whether all paths are marked.
    fn close(&mut self, paths: &[usize]) -> bool {
        for &path in paths {
            self.open[path] = false;
        }
        self.is_complete = !self.open.contains(&true);
        self.is_complete
    }
}

struct Step<'t, 'f> {
    trie: &'t Trie,
    node: usize,
    single: bool,
    found: &'f mut Extraction,
}

impl<'de> DeserializeSeed<'de> for Step<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.trie.ends(self.node).is_empty() {
            return deserializer.deserialize_any(self);
        }
        let value: Value = serde::Deserialize::deserialize(deserializer)?;
        self.found.collect(self.trie, self.node, &value);
        Ok(())
    }
}

impl<'de> Visitor<'de> for Step<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { trie, node, single, found } = self;
        while let Some(child) = map.next_key_seed(Key { trie, node: Some(node) })? {
            let Some(node) = child else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            map.next_value_seed(Step { trie, node, single, found: &mut *found })?;
            if single && found.close(trie.below(node)) {
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { trie, node, found, .. } = self;
        let Some(node) = trie.each(node) else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        while seq.next_element_seed(Step { trie, node, single: false, found: &mut *found })?.is_some() {}
        Ok(())
    }
}
