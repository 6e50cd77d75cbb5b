//! A single pass over an object's JSON that visits the values at given paths and stops early.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::decimal::Num;
use super::trie::Trie;

/// Error for a stored object whose bytes are not JSON, because of a bug or damage on disk.
#[derive(Debug, thiserror::Error)]
#[error("the object's bytes are not JSON")]
pub struct Unreadable(#[from] pub(super) serde_json::Error);

#[derive(Clone, Copy, Debug)]
pub(super) enum SeenValue<'v> {
    Null,
    Bool(bool),
    Number(Num),
    Text(&'v str),
    /// A text that is an element of an array, for paths that select the array as a whole. Only `contains` tests it.
    Element(&'v str),
    Compound,
}

/// Receiver of the values that a pass over an object finds.
pub(super) trait ValueVisitor {
    /// Called for each value found. `paths` are the numbers of the paths that select this value.
    fn visit(&mut self, paths: &[usize], value: SeenValue<'_>);

    /// Called when the paths with these numbers have no further values. Returns whether the pass over the object can
    /// stop.
    fn paths_done(&mut self, paths: &[usize]) -> bool;
}

/// Passes the selected values of `json` to `visitor`. Stops as soon as [`ValueVisitor::paths_done`] returns true; the
/// bytes after that point are not checked.
pub(super) fn walk(json: &[u8], trie: &Trie, visitor: &mut impl ValueVisitor) -> Result<(), Unreadable> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let mut stopped = false;
    let at = Position { trie, node: Some(Trie::ROOT), element_of: &[], single: true };
    let end = Step { at, visitor, stopped: &mut stopped }.deserialize(&mut deserializer);
    match end {
        Err(_) if stopped => Ok(()),
        end => Ok(end.and_then(|()| deserializer.end())?),
    }
}

/// A position in the document and in the tree of paths.
#[derive(Clone, Copy)]
struct Position<'t> {
    trie: &'t Trie,
    node: Option<usize>,
    /// Paths that select the array of which the current value is an element; empty if the value is not in an array.
    element_of: &'t [usize],
    /// Whether no array encloses the current value. If so, a path that selects this value has no other value.
    single: bool,
}

struct Step<'t, 'w, W> {
    at: Position<'t>,
    visitor: &'w mut W,
    stopped: &'w mut bool,
}

impl<W: ValueVisitor> Step<'_, '_, W> {
    fn visit(&mut self, value: SeenValue<'_>) {
        let ends = self.at.node.map_or(&[][..], |node| self.at.trie.ends(node));
        if !ends.is_empty() {
            self.visitor.visit(ends, value);
        }
        if let (SeenValue::Text(text), false) = (value, self.at.element_of.is_empty()) {
            self.visitor.visit(self.at.element_of, SeenValue::Element(text));
        }
    }
}

impl<'de, W: ValueVisitor> DeserializeSeed<'de> for Step<'_, '_, W> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, W: ValueVisitor> Visitor<'de> for Step<'_, '_, W> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.visit(SeenValue::Null);
        Ok(())
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<(), E> {
        self.visit(SeenValue::Bool(value));
        Ok(())
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<(), E> {
        self.visit(SeenValue::Number(Num::Int(value.into())));
        Ok(())
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<(), E> {
        self.visit(SeenValue::Number(Num::Int(value.into())));
        Ok(())
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<(), E> {
        self.visit(SeenValue::Number(Num::Float(value)));
        Ok(())
    }

    fn visit_str<E>(mut self, value: &str) -> Result<(), E> {
        self.visit(SeenValue::Text(value));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.visit(SeenValue::Compound);
        let Position { trie, node, single, .. } = self.at;
        while let Some(child) = map.next_key_seed(Key { trie, node })? {
            let Some(child) = child else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let at = Position { trie, node: Some(child), element_of: &[], single };
            map.next_value_seed(Step { at, visitor: self.visitor, stopped: self.stopped })?;
            if single && self.visitor.paths_done(trie.below(child)) {
                *self.stopped = true;
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.visit(SeenValue::Compound);
        let Position { trie, node, .. } = self.at;
        let node = node.filter(|&node| trie.each(node).is_some() || !trie.ends(node).is_empty());
        let Some(node) = node else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let at = Position { trie, node: trie.each(node), element_of: trie.ends(node), single: false };
        while seq.next_element_seed(Step { at, visitor: self.visitor, stopped: self.stopped })?.is_some() {}
        Ok(())
    }
}

/// Deserializer seed for an object key: returns the child of `node` with that name, without copying the key.
pub(super) struct Key<'t> {
    pub(super) trie: &'t Trie,
    pub(super) node: Option<usize>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.node.and_then(|node| self.trie.field(node, key)))
    }
}
