//! One pass over an object's JSON that looks only at what paths lead to, and ends as soon as enough is known.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::decimal::Num;
use super::trie::Trie;

/// Bytes of an object that are not JSON; whoever stored them is at fault.
#[derive(Debug, thiserror::Error)]
#[error("the object's bytes are not JSON")]
pub struct Unreadable(#[from] pub(super) serde_json::Error);

/// A value, as far as a test looks at it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen<'v> {
    Null,
    Bool(bool),
    Number(Num),
    Text(&'v str),
    /// A text in the array that the path leads to.
    Element(&'v str),
    Compound,
}

/// Who is told of what a pass finds.
pub(super) trait Watcher {
    /// Paths with these numbers lead to this value.
    fn see(&mut self, paths: &[usize], value: Seen<'_>);

    /// Paths with these numbers lead to nothing more. Whether enough is known.
    fn close(&mut self, paths: &[usize]) -> bool;
}

/// Goes over `json`; what comes after the watcher has had enough is not looked at.
pub(super) fn walk(json: &[u8], trie: &Trie, watcher: &mut impl Watcher) -> Result<(), Unreadable> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let mut stopped = false;
    let at = Place { trie, node: Some(Trie::ROOT), element_of: &[], single: true };
    let end = Step { at, watcher, stopped: &mut stopped }.deserialize(&mut deserializer);
    match end {
        Err(_) if stopped => Ok(()),
        end => Ok(end.and_then(|()| deserializer.end())?),
    }
}

/// Where the pass is.
#[derive(Clone, Copy)]
struct Place<'t> {
    trie: &'t Trie,
    node: Option<usize>,
    /// Paths that lead to the array around this value.
    element_of: &'t [usize],
    /// No array lies between the object and here, so that nothing leads here twice.
    single: bool,
}

struct Step<'t, 'w, W> {
    at: Place<'t>,
    watcher: &'w mut W,
    stopped: &'w mut bool,
}

impl<W: Watcher> Step<'_, '_, W> {
    fn see(&mut self, value: Seen<'_>) {
        let ends = self.at.node.map_or(&[][..], |node| self.at.trie.ends(node));
        if !ends.is_empty() {
            self.watcher.see(ends, value);
        }
        if let (Seen::Text(text), false) = (value, self.at.element_of.is_empty()) {
            self.watcher.see(self.at.element_of, Seen::Element(text));
        }
    }
}

impl<'de, W: Watcher> DeserializeSeed<'de> for Step<'_, '_, W> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, W: Watcher> Visitor<'de> for Step<'_, '_, W> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.see(Seen::Null);
        Ok(())
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<(), E> {
        self.see(Seen::Bool(value));
        Ok(())
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<(), E> {
        self.see(Seen::Number(Num::Int(value.into())));
        Ok(())
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<(), E> {
        self.see(Seen::Number(Num::Int(value.into())));
        Ok(())
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<(), E> {
        self.see(Seen::Number(Num::Float(value)));
        Ok(())
    }

    fn visit_str<E>(mut self, value: &str) -> Result<(), E> {
        self.see(Seen::Text(value));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.see(Seen::Compound);
        let Place { trie, node, single, .. } = self.at;
        while let Some(child) = map.next_key_seed(Key { trie, node })? {
            let Some(child) = child else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let at = Place { trie, node: Some(child), element_of: &[], single };
            map.next_value_seed(Step { at, watcher: self.watcher, stopped: self.stopped })?;
            if single && self.watcher.close(trie.below(child)) {
                *self.stopped = true;
                return Err(A::Error::custom(""));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.see(Seen::Compound);
        let Place { trie, node, .. } = self.at;
        let node = node.filter(|&node| trie.each(node).is_some() || !trie.ends(node).is_empty());
        let Some(node) = node else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let at = Place { trie, node: trie.each(node), element_of: trie.ends(node), single: false };
        while seq.next_element_seed(Step { at, watcher: self.watcher, stopped: self.stopped })?.is_some() {}
        Ok(())
    }
}

/// Looks a key up where it lies.
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
