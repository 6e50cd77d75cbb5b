//! Encoding of objects: from an apiserver's JSON to the bytes that apimachinery would write in protobuf.
//!
//! Go's encoder writes the fields of a message in the order of their numbers, and writes zero values unless they are
//! pointers. So members are first encoded in the order of the JSON. Then their fields are sorted, and zero values are
//! added for absent fields.

use std::borrow::Cow;

use super::error::EncodeError;
use super::json_in::Json;
use super::schema::{FieldInfo, Label, MessageId, Rule, Schema, Shape};
use super::wire::{Field, Reader, Value};
use super::wire_out::{self as write, close, tag};

#[path = "encode_member.rs"]
mod member;
#[path = "encode_value.rs"]
mod value;

/// Deepest nesting of messages that is encoded, as in [`super::Converter`].
const MAX_DEPTH: usize = 100;

/// Maximum length of a member's path of field numbers: those of the inline messages around the member, and the member's
/// own.
const MAX_INLINE: usize = 3;

pub(super) type Done = Result<(), EncodeError>;

/// Encoder from JSON to protobuf. Keeps its scratch memory for the next object.
#[derive(Debug)]
pub struct Encoder {
    schema: &'static Schema,
    members: &'static member::Members,
    parts: Vec<Part>,
    entries: Vec<Entry>,
    scratch: Vec<u8>,
}

/// Encoded field of one member, as a range of bytes in the scratch memory.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Field numbers of the inline messages around the member, then the member's own number, then zeros.
    path: [u32; MAX_INLINE],
    start: usize,
    end: usize,
}

/// Range of bytes of an encoded map entry, with its tag.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: usize,
    end: usize,
}

struct Run<'r, 'j> {
    json: Json<'j>,
    schema: &'static Schema,
    members: &'static member::Members,
    parts: &'r mut Vec<Part>,
    entries: &'r mut Vec<Entry>,
    scratch: &'r mut Vec<u8>,
    out: &'r mut Vec<u8>,
    /// Maximum length of `out`, in bytes.
    limit: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        let (schema, members) = (Schema::builtin(), member::Members::builtin());
        Self { schema, members, parts: Vec::new(), entries: Vec::new(), scratch: Vec::new() }
    }
}

impl Encoder {
    /// Appends the message of an object to `out`. Ignores the object's `kind` and `apiVersion`, which belong to the
    /// envelope.
    ///
    /// # Errors
    /// The JSON cannot be encoded, or the protobuf exceeds `limit` bytes. `out` then has a part of the message.
    pub fn object(&mut self, message: MessageId, json: &[u8], limit: usize, out: &mut Vec<u8>) -> Done {
        self.parts.clear();
        self.entries.clear();
        let limit = out.len().saturating_add(limit);
        let mut run = Run {
            json: Json::new(json),
            schema: self.schema,
            members: self.members,
            parts: &mut self.parts,
            entries: &mut self.entries,
            scratch: &mut self.scratch,
            out,
            limit,
        };
        run.message(message, 0)?;
        run.json.end()?;
        if out.len() > limit { Err(EncodeError::TooLarge) } else { Ok(()) }
    }
}

impl Run<'_, '_> {
    /// Encodes a JSON object as the message `id`.
    fn message(&mut self, id: MessageId, depth: usize) -> Done {
        if depth > MAX_DEPTH {
            return Err(EncodeError::TooDeep);
        }
        let (start, base, members) = (self.out.len(), self.parts.len(), self.members);
        self.json.expect(b'{')?;
        let (mut is_first, mut place) = (true, 0);
        while self.json.next(is_first, b'}')? {
            is_first = false;
            let key = self.json.string()?;
            self.json.expect(b':')?;
            let Some((found, member)) = members.find(id, place, &key) else {
                if depth > 0 || !matches!(&*key, "kind" | "apiVersion") {
                    return Err(EncodeError::UnknownMember { message: self.schema.message(id).name });
                }
                self.json.string()?;
                continue;
            };
            place = found + 1;
            let from = self.out.len();
            self.member(self.schema.field(member.message, member.place), depth)?;
            if self.out.len() > from {
                self.parts.push(Part { path: member.path, start: from - start, end: self.out.len() - start });
            }
            self.check()?;
        }
        self.parts[base..].sort_unstable_by_key(|part| part.path);
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.out[start..]);
        self.out.truncate(start);
        let end = self.parts.len();
        self.sorted(id, 0, base, end)?;
        self.parts.truncate(base);
        Ok(())
    }

    fn check(&self) -> Done {
        if self.out.len() > self.limit { Err(EncodeError::TooLarge) } else { Ok(()) }
    }

    /// Writes the fields of a message in the order of their numbers: the encoded members, and the zero values of absent
    /// fields.
    fn sorted(&mut self, id: MessageId, level: usize, mut from: usize, to: usize) -> Done {
        let message = self.schema.message(id);
        for field in message.by_number() {
            let end = from + self.parts[from..to].partition_point(|part| part.path[level] <= field.number);
            if field.rule == Rule::Inline {
                tag(self.out, field.number, 2);
                let start = self.out.len();
                self.sorted(field.message, level + 1, from, end)?;
                close(self.out, start);
            } else {
                match self.parts[from..end] {
                    [] => self.zero(field),
                    [part] => self.out.extend_from_slice(&self.scratch[part.start..part.end]),
                    _ => return Err(EncodeError::Malformed("a member that occurs twice")),
                }
            }
            from = end;
        }
        Ok(())
    }

    /// Writes the zero value of an absent field, unless it is a pointer, an array or a map.
    fn zero(&mut self, field: &FieldInfo) {
        if field.label != Label::One {
            return;
        }
        match field.shape {
            Shape::Constant | Shape::Bytes | Shape::Texts => {}
            Shape::Bool | Shape::Int32 | Shape::Int64 => {
                tag(self.out, field.number, 0);
                self.out.push(0);
            }
            Shape::Double => {
                tag(self.out, field.number, 1);
                self.out.extend_from_slice(&[0; 8]);
            }
            _ => {
                tag(self.out, field.number, 2);
                let start = self.out.len();
                match field.shape {
                    Shape::Message => self.zeros(field.message),
                    Shape::Quantity => write::bytes(self.out, 1, b"0"),
                    Shape::IntOrString => self.out.extend_from_slice(&[8, 0, 16, 0, 26, 0]),
                    Shape::Duration | Shape::SchemaOrBool => self.out.extend_from_slice(&[8, 0]),
                    _ => {}
                }
                close(self.out, start);
            }
        }
    }

    fn zeros(&mut self, id: MessageId) {
        for field in self.schema.message(id).by_number() {
            self.zero(field);
        }
    }

    /// Encodes the value of a member, with the tag of its field.
    fn member(&mut self, field: &FieldInfo, depth: usize) -> Done {
        if self.json.word("null")? {
            // With `omitempty`, Go omits a nil pointer. So `null` means a pointer to a zero value.
            let is_zero = field.label == Label::Pointer && field.rule == Rule::OmitEmpty;
            if is_zero && matches!(field.shape, Shape::Time | Shape::MicroTime | Shape::RawJson) {
                write::bytes(self.out, field.number, &[]);
            }
            return Ok(());
        }
        match field.label {
            Label::One | Label::Pointer => self.tagged(field, field.number, depth),
            Label::Repeated => {
                self.json.expect(b'[')?;
                let mut is_first = true;
                while self.json.next(is_first, b']')? {
                    is_first = false;
                    self.tagged(field, field.number, depth)?;
                    self.check()?;
                }
                Ok(())
            }
            Label::Map => self.map(field, depth),
        }
    }

    /// Encodes a map, with its entries sorted by key.
    fn map(&mut self, field: &FieldInfo, depth: usize) -> Done {
        self.json.expect(b'{')?;
        let (base, from, mut is_sorted) = (self.entries.len(), self.out.len(), true);
        let mut last: Option<Cow<'_, str>> = None;
        while self.json.next(last.is_none(), b'}')? {
            let key = self.json.string()?;
            self.json.expect(b':')?;
            is_sorted &= last.is_none_or(|last| last < key);
            let start = self.out.len();
            tag(self.out, field.number, 2);
            let content = self.out.len();
            write::bytes(self.out, 1, key.as_bytes());
            match field.shape {
                Shape::Bytes if self.json.word("null")? => {}
                Shape::Time | Shape::MicroTime if self.json.word("null")? => write::bytes(self.out, 2, &[]),
                _ => self.tagged(field, 2, depth)?,
            }
            close(self.out, content);
            self.entries.push(Entry { start: start - from, end: self.out.len() - from });
            last = Some(key);
            self.check()?;
        }
        if !is_sorted {
            self.sort_entries(base, from);
        }
        self.entries.truncate(base);
        Ok(())
    }

    /// Sorts the encoded entries of a map by key. The entries are `entries[base..]`; their bytes start at `from` in
    /// `out`.
    #[cold]
    fn sort_entries(&mut self, base: usize, from: usize) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.out[from..]);
        self.out.truncate(from);
        let written = &self.scratch;
        self.entries[base..].sort_by_key(|entry| key_of(&written[entry.start..entry.end]));
        for entry in &self.entries[base..] {
            self.out.extend_from_slice(&written[entry.start..entry.end]);
        }
    }
}

fn key_of(entry: &[u8]) -> &[u8] {
    let content = |bytes| match Reader::new(bytes).field() {
        Ok(Some(Field { value: Value::Bytes(content), .. })) => content,
        _ => &[],
    };
    content(content(entry))
}
