//! One walk over an object's bytes: reads the head and index values, finds the spans to cut or keep, and validates the
//! JSON that it scans.

use std::borrow::Cow;
use std::ops::Range;

use super::scan::{self, Key, Scanned};
use super::trie::{Role, Trie};
use informer_hub_protobuf::Extent;
use informer_hub_types::{IndexEntry, Interner, Labels, SharedStr};

/// Fields that identify an object, borrowed from its bytes unless they have escapes.
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

pub(super) struct Walk<'w, 'de> {
    pub(super) trie: &'w Trie,
    pub(super) names: &'w [SharedStr],
    pub(super) interner: &'w mut Interner,
    /// The bytes that are walked over. All spans are offsets into them.
    pub(super) input: &'de [u8],
    /// Known positions of members, ascending, over which the walk can jump. Empty for JSON from the server.
    pub(super) extents: &'w [Extent],
    pub(super) head: Head<'de>,
    pub(super) labels: Labels,
    pub(super) index_values: Vec<IndexEntry>,
    /// Spans of `input` that the projection drops: ascending, disjoint.
    pub(super) cuts: &'w mut Vec<Range<usize>>,
    /// JSON that the walk has kept so far, for a `Projection::Keep`; otherwise empty.
    pub(super) kept: &'w mut Vec<u8>,
    /// Whether the walk records spans to cut or keep. It is false inside a value that is cut or kept as a whole.
    pub(super) projecting: bool,
}

impl<'de> Walk<'_, 'de> {
    /// Walks over the value at offset `at` and returns the offset of its end. `node` is the value's node in the prefix
    /// tree, which says what is needed of it. A value whose bytes and members are both needed is scanned twice.
    pub(super) fn value(&mut self, node: usize, at: usize) -> Scanned {
        let (_, start) = scan::token(self.input, at)?;
        self.value_from(node, start, start)
    }

    /// Walks over the value at offset `start` and returns the offset of its end. If the projection drops the value, the
    /// cut begins at `from`, the start of its key.
    fn value_from(&mut self, node: usize, from: usize, start: usize) -> Scanned {
        if !self.trie.get(node).needs_bytes() {
            return self.inside(node, start);
        }
        let end = scan::value(self.input, start)?;
        self.read(node, from, start..end)?;
        Ok(end)
    }

    /// Processes a value whose bytes are needed: for the head, an index or the projection.
    fn read(&mut self, node: usize, from: usize, span: Range<usize>) -> Scanned<()> {
        let needs = self.trie.get(node);
        let text = &self.input[span.clone()];
        if let Some(role) = needs.role {
            self.set_role(role, text);
        }
        if !needs.indexes.is_empty()
            && let Some(value) = scan::scalar_of(text)
        {
            for number in &needs.indexes {
                if let Some(index) = self.names.get(usize::from(*number)) {
                    let value = self.interner.string(&value);
                    self.index_values.push(IndexEntry { index: index.clone(), value });
                }
            }
        }
        let outer = self.projecting;
        if outer && needs.drop {
            self.cuts.push(from..span.end);
            self.projecting = false;
        } else if outer && needs.keep {
            self.kept.extend_from_slice(text);
            self.projecting = false;
        }
        if needs.needs_children() {
            self.inside(node, span.start)?;
        }
        self.projecting = outer;
        Ok(())
    }

    fn set_role(&mut self, role: Role, text: &'de [u8]) {
        let head = &mut self.head;
        let slot = match role {
            Role::ApiVersion => &mut head.api_version,
            Role::Kind => &mut head.kind,
            Role::Name => &mut head.name,
            Role::Namespace => &mut head.namespace,
            Role::Uid => &mut head.uid,
            Role::Version => &mut head.version,
            Role::InitialEventsEnd => {
                head.initial_events_end = scan::text_of(text).is_some_and(|value| value == "true");
                return;
            }
        };
        *slot = scan::text_of(text);
    }

    /// Walks over what is inside the value at offset `start`: its members, elements or labels, as far as they are
    /// needed. Returns the offset behind the value.
    fn inside(&mut self, node: usize, start: usize) -> Scanned {
        let needs = self.trie.get(node);
        match self.input.get(start) {
            Some(b'{') if needs.labels => self.labels(node, start + 1),
            Some(b'{') => self.members(node, start + 1),
            Some(b'[') if needs.each().is_some() => self.elements(node, start + 1),
            _ => scan::value(self.input, start),
        }
    }

    fn emits(&self, node: usize) -> bool {
        self.projecting && self.trie.keep_mode && self.trie.get(node).keep_below
    }

    /// Walks over the members of an object, after its opening bracket.
    fn members(&mut self, node: usize, at: usize) -> Scanned {
        let input = self.input;
        if node == Trie::ROOT {
            self.head.is_object = true;
        }
        let emits = self.emits(node);
        let start = self.kept.len();
        if emits {
            self.kept.push(b'{');
        }
        let (mut more, mut at) = scan::first(input, at, b'}')?;
        while more {
            let key = scan::key(input, at)?;
            let end = match self.child(node, &key) {
                Some(child) => self.member(emits, child, &key)?,
                None => self.skip(&key)?,
            };
            (more, at) = scan::next(input, end, b'}')?;
        }
        if emits && self.kept.len() == start + 1 {
            self.kept.truncate(start);
        } else if emits {
            self.kept.push(b'}');
        }
        Ok(at)
    }

    /// Returns the offset behind the value of a member that is not needed. Takes it from `extents` if it is known
    /// there, and scans the value otherwise.
    fn skip(&self, key: &Key) -> Scanned {
        match self.extents.binary_search_by_key(&key.span.start, |extent| extent.key) {
            Ok(place) => {
                let end = self.extents[place].end;
                debug_assert_eq!(scan::value(self.input, key.value), Ok(end));
                Ok(end)
            }
            Err(_) => scan::value(self.input, key.value),
        }
    }

    /// Returns the node of a member in the prefix tree of needed paths, if something in the member is needed.
    fn child(&self, node: usize, key: &Key) -> Option<usize> {
        self.trie.get(node).field(&key.name(self.input)?)
    }

    /// Walks over a member that has a node (`child`) in the prefix tree of needed paths. If `emits` is true, copies the
    /// kept parts of the member to `kept`.
    fn member(&mut self, emits: bool, child: usize, key: &Key) -> Scanned {
        let before = self.kept.len();
        if emits {
            if !self.kept.ends_with(b"{") {
                self.kept.push(b',');
            }
            self.kept.extend_from_slice(&self.input[key.span.clone()]);
            self.kept.push(b':');
        }
        let value_at = self.kept.len();
        let (_, start) = scan::token(self.input, key.value)?;
        let end = self.value_from(child, key.span.start, start)?;
        if emits && self.kept.len() == value_at {
            self.kept.truncate(before);
        }
        Ok(end)
    }

    /// Walks over `metadata.labels`. Reads all labels; a label that has an index also yields an index value.
    fn labels(&mut self, node: usize, at: usize) -> Scanned {
        let (trie, input) = (self.trie, self.input);
        let mut pairs = Vec::new();
        let (mut more, mut at) = scan::first(input, at, b'}')?;
        while more {
            let key = scan::key(input, at)?;
            let (_, start) = scan::token(input, key.value)?;
            let end = scan::value(input, start)?;
            if let Some(name) = scan::text_of(&input[key.span.clone()]) {
                if let Some(value) = scan::text_of(&input[start..end]) {
                    pairs.push((name.clone(), value));
                }
                if let Some(child) = trie.get(node).field(name.as_bytes()) {
                    self.read(child, key.span.start, start..end)?;
                }
            }
            (more, at) = scan::next(input, end, b'}')?;
        }
        self.labels = self.interner.labels(pairs);
        Ok(at)
    }

    /// Walks over the elements of an array, after its opening bracket.
    fn elements(&mut self, node: usize, at: usize) -> Scanned {
        let (trie, input) = (self.trie, self.input);
        let Some(child) = trie.get(node).each() else { return Err(at) };
        let emits = self.emits(node);
        if emits {
            self.kept.push(b'[');
        }
        let (mut more, mut at) = scan::first(input, at, b']')?;
        while more {
            let element = self.kept.len();
            let end = self.value(child, at)?;
            if emits && self.kept.len() == element {
                self.kept.extend_from_slice(b"{}");
            }
            (more, at) = scan::next(input, end, b']')?;
            if emits && more {
                self.kept.push(b',');
            }
        }
        if emits {
            self.kept.push(b']');
        }
        Ok(at)
    }
}
