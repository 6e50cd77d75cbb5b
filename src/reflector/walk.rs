//! One walk of serde_json over an object's bytes: finds the head, the index values and the spans to cut or to keep,
//! and checks all the rest for being JSON without building anything.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::trie::{Role, Trie};
use crate::types::{IndexEntry, Interner, Labels, SharedStr};

/// The head of an object, borrowed from its bytes where they hold no escapes.
#[derive(Debug, Default)]
pub(super) struct Head<'de> {
    pub(super) api_version: Option<Cow<'de, str>>,
    pub(super) kind: Option<Cow<'de, str>>,
    pub(super) name: Option<Cow<'de, str>>,
    pub(super) namespace: Option<Cow<'de, str>>,
    pub(super) uid: Option<Cow<'de, str>>,
    pub(super) version: Option<Cow<'de, str>>,
    pub(super) initial_events_end: bool,
    pub(super) is_object: bool,
}

/// What one walk gathers.
pub(super) struct Walk<'w, 'de> {
    pub(super) trie: &'w Trie,
    pub(super) names: &'w [SharedStr],
    pub(super) interner: &'w mut Interner,
    /// Everything that is walked over; spans are offsets into it.
    pub(super) input: &'de [u8],
    pub(super) head: Head<'de>,
    pub(super) labels: Labels,
    pub(super) index_values: Vec<IndexEntry>,
    /// Spans to cut, in order, none within another.
    pub(super) cuts: &'w mut Vec<Range<usize>>,
    /// What a keep-projection has kept so far.
    pub(super) kept: &'w mut Vec<u8>,
    /// Off below a value that was cut or kept as a whole: only the head and the indices look in there.
    pub(super) projecting: bool,
}

impl<'de> Walk<'_, 'de> {
    /// Walks over the value at `node`.
    pub(super) fn value<D: Deserializer<'de>>(&mut self, node: usize, deserializer: D) -> Result<(), D::Error> {
        At { walk: self, node, element: false }.deserialize(deserializer)
    }

    /// Takes in a value whose own bytes are wanted.
    fn take<E: serde::de::Error>(&mut self, node: usize, raw: &'de RawValue, element: bool) -> Result<(), E> {
        let trie = self.trie;
        let wants = trie.get(node);
        let text = raw.get();
        if let Some(role) = wants.role {
            self.set_role(role, text);
        }
        if !wants.indexes.is_empty()
            && let Some(value) = scalar(text)
        {
            for number in &wants.indexes {
                if let Some(index) = self.names.get(usize::from(*number)) {
                    let value = self.interner.string(&value);
                    self.index_values.push(IndexEntry { index: index.clone(), value });
                }
            }
        }
        let outer = self.projecting;
        if outer && wants.drop {
            let span = self.span(text, element).ok_or_else(|| E::custom("a span outside its input"))?;
            self.cuts.push(span);
            self.projecting = false;
        } else if outer && wants.keep {
            self.kept.extend_from_slice(text.as_bytes());
            self.projecting = false;
        }
        if wants.wants_below() && text.starts_with(['{', '[']) {
            // The bytes are known to be JSON; only depth beyond serde_json's limit can fail here, and it does so
            // in the first pass as well.
            let mut inner = serde_json::Deserializer::from_str(text);
            Below { walk: self, node }.deserialize(&mut inner).map_err(E::custom)?;
        }
        self.projecting = outer;
        Ok(())
    }

    /// Where a value lies in the input, with its key unless it is an element of a list.
    fn span(&self, text: &str, element: bool) -> Option<Range<usize>> {
        let start = text.as_ptr().addr().checked_sub(self.input.as_ptr().addr())?;
        let end = start.checked_add(text.len()).filter(|end| *end <= self.input.len())?;
        let start = if element { start } else { key_start(self.input, start)? };
        Some(start..end)
    }

    fn set_role(&mut self, role: Role, text: &'de str) {
        let head = &mut self.head;
        let slot = match role {
            Role::ApiVersion => &mut head.api_version,
            Role::Kind => &mut head.kind,
            Role::Name => &mut head.name,
            Role::Namespace => &mut head.namespace,
            Role::Uid => &mut head.uid,
            Role::Version => &mut head.version,
            Role::InitialEventsEnd => {
                head.initial_events_end = string(text).is_some_and(|value| value == "true");
                return;
            }
        };
        *slot = string(text);
    }
}

/// Where the key of the value at `value` begins, quote included.
pub(super) fn key_start(input: &[u8], value: usize) -> Option<usize> {
    let before = input.get(..value)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(b"\"")?;
    let mut end = before.len();
    loop {
        let quote = memchr::memrchr(b'"', &before[..end])?;
        let escapes = before[..quote].iter().rev().take_while(|b| **b == b'\\').count();
        if escapes % 2 == 0 {
            return Some(quote);
        }
        end = quote;
    }
}

/// The string that a JSON text is; `None` when it is something else.
pub(super) fn string(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(text).ok().map(Cow::Owned)
}

/// The index value that a JSON text gives: strings as they are, numbers and booleans as written, else none.
fn scalar(text: &str) -> Option<Cow<'_, str>> {
    match text.as_bytes().first()? {
        b'"' => string(text),
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(text)),
    }
}

/// A value at a node of the trie.
struct At<'s, 'w, 'de> {
    walk: &'s mut Walk<'w, 'de>,
    node: usize,
    element: bool,
}

impl<'de> DeserializeSeed<'de> for At<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.walk.trie.get(self.node).wants_bytes() {
            let raw = <&RawValue as serde::Deserialize>::deserialize(deserializer)?;
            return self.walk.take(self.node, raw, self.element);
        }
        Below { walk: self.walk, node: self.node }.deserialize(deserializer)
    }
}

/// What lies in a value at a node of the trie.
struct Below<'s, 'w, 'de> {
    walk: &'s mut Walk<'w, 'de>,
    node: usize,
}

impl<'de> DeserializeSeed<'de> for Below<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Below<'_, '_, 'de> {
    fn emits(&self) -> bool {
        self.walk.projecting && self.walk.trie.keep_mode && self.walk.trie.get(self.node).keep_below
    }

    /// One member of an object that something is wanted of.
    fn member<A: MapAccess<'de>>(&mut self, child: usize, key: &str, map: &mut A) -> Result<(), A::Error> {
        let emits = self.emits();
        let before = self.walk.kept.len();
        if emits {
            if !self.walk.kept.ends_with(b"{") {
                self.walk.kept.push(b',');
            }
            serde_json::to_writer(&mut *self.walk.kept, key).map_err(A::Error::custom)?;
            self.walk.kept.push(b':');
        }
        let value_at = self.walk.kept.len();
        map.next_value_seed(At { walk: self.walk, node: child, element: false })?;
        if emits && self.walk.kept.len() == value_at {
            self.walk.kept.truncate(before);
        }
        Ok(())
    }

    /// The members of `metadata.labels`: all are wanted, and some of them perhaps for an index too.
    fn labels<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let trie = self.walk.trie;
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key_seed(Text)? {
            let raw: &'de RawValue = map.next_value()?;
            if let Some(value) = string(raw.get()) {
                pairs.push((key.clone(), value));
            }
            if let Some(child) = trie.get(self.node).field(&key) {
                self.walk.take(child, raw, false)?;
            }
        }
        self.walk.labels = self.walk.interner.labels(pairs);
        Ok(())
    }
}

impl<'de> Visitor<'de> for Below<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let trie = self.walk.trie;
        let node = trie.get(self.node);
        if node.labels {
            return self.labels(map);
        }
        if self.node == Trie::ROOT {
            self.walk.head.is_object = true;
        }
        let emits = self.emits();
        let start = self.walk.kept.len();
        if emits {
            self.walk.kept.push(b'{');
        }
        while let Some(key) = map.next_key_seed(Text)? {
            match node.field(&key) {
                Some(child) => self.member(child, &key, &mut map)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if emits && self.walk.kept.len() == start + 1 {
            self.walk.kept.truncate(start);
        } else if emits {
            self.walk.kept.push(b'}');
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some(child) = self.walk.trie.get(self.node).each() else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let emits = self.emits();
        let start = self.walk.kept.len();
        let mut element = start;
        loop {
            if emits {
                self.walk.kept.push(if element == start { b'[' } else { b',' });
            }
            element = self.walk.kept.len();
            if seq.next_element_seed(At { walk: self.walk, node: child, element: true })?.is_none() {
                break;
            }
            if emits && self.walk.kept.len() == element {
                self.walk.kept.extend_from_slice(b"{}");
            }
        }
        if emits && element == start + 1 {
            self.walk.kept.push(b']');
        } else if emits {
            // The comma in front of the element that was not there.
            self.walk.kept.pop();
            self.walk.kept.push(b']');
        }
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

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A key, borrowed unless it has escapes.
pub(super) struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
