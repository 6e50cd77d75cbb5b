//! One walk over an object's bytes: finds the head, the index values and the spans to cut or to keep, and checks all the
//! rest for being JSON without building anything.

use std::borrow::Cow;
use std::ops::Range;

use super::scan::{self, Key, Scanned};
use super::trie::{Role, Trie};
use informer_hub_types::{IndexEntry, Interner, Labels, SharedStr};

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
    /// Walks over the value at `node` of the trie that begins at `at`, and returns where it ended. Members of what is
    /// wanted as a whole, and read for something else too, are gone over twice.
    pub(super) fn value(&mut self, node: usize, at: usize) -> Scanned {
        let (_, start) = scan::token(self.input, at)?;
        self.value_from(node, start, start)
    }

    /// The same for a value at `start`, to be cut from `from` on: its key's quote, where it has one.
    fn value_from(&mut self, node: usize, from: usize, start: usize) -> Scanned {
        if !self.trie.get(node).wants_bytes() {
            return self.below(node, start);
        }
        let end = scan::value(self.input, start)?;
        self.take(node, from, start..end)?;
        Ok(end)
    }

    /// Takes in a value whose own bytes are wanted.
    fn take(&mut self, node: usize, from: usize, span: Range<usize>) -> Scanned<()> {
        let wants = self.trie.get(node);
        let text = &self.input[span.clone()];
        if let Some(role) = wants.role {
            self.set_role(role, text);
        }
        if !wants.indexes.is_empty()
            && let Some(value) = scan::scalar_of(text)
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
            self.cuts.push(from..span.end);
            self.projecting = false;
        } else if outer && wants.keep {
            self.kept.extend_from_slice(text);
            self.projecting = false;
        }
        if wants.wants_below() {
            self.below(node, span.start)?;
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

    /// What lies in a value that begins at `start`.
    fn below(&mut self, node: usize, start: usize) -> Scanned {
        let wants = self.trie.get(node);
        match self.input.get(start) {
            Some(b'{') if wants.labels => self.labels(node, start + 1),
            Some(b'{') => self.members(node, start + 1),
            Some(b'[') if wants.each().is_some() => self.elements(node, start + 1),
            _ => scan::value(self.input, start),
        }
    }

    fn emits(&self, node: usize) -> bool {
        self.projecting && self.trie.keep_mode && self.trie.get(node).keep_below
    }

    /// The members of an object, from behind its bracket on.
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
                None => scan::value(input, key.value)?,
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

    /// What is wanted of a member.
    fn child(&self, node: usize, key: &Key) -> Option<usize> {
        self.trie.get(node).field(&key.name(self.input)?)
    }

    /// One member of an object that something is wanted of.
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

    /// The members of `metadata.labels`: all are wanted, and some of them perhaps for an index too.
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
                    self.take(child, key.span.start, start..end)?;
                }
            }
            (more, at) = scan::next(input, end, b'}')?;
        }
        self.labels = self.interner.labels(pairs);
        Ok(at)
    }

    /// The elements of a list, from behind its bracket on.
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
