//! Conversion of one object from protobuf to JSON.

use super::error::ConvertError;
use super::form::{self, int32};
use super::omit::Omit;
use super::schema::{FieldInfo, FieldOutline, Label, Message, MessageId, Rule, Schema, Shape};
use super::text;
use super::wire::{Field, Reader, Value};

#[path = "convert_picked.rs"]
mod picked;
#[path = "convert_special.rs"]
mod special;

/// Deepest nesting of messages that is converted. Go's structs reach 15, but schemas in custom resource definitions
/// nest freely.
pub(super) const MAX_DEPTH: usize = 100;

/// Number of levels whose members are recorded in [`Extent`]s: the object's members and their members.
const EXTENTS_DEPTH: usize = 2;

pub(super) const WRONG_TYPE: ConvertError = ConvertError::Malformed("a field with an unexpected wire type");

/// `kind` and `apiVersion` of an object. The object's protobuf message does not contain them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeMeta<'t> {
    /// `apiVersion`.
    pub api_version: &'t str,
    /// `kind`.
    pub kind: &'t str,
}

/// Converter from protobuf to JSON. Keeps its scratch memory for the next object.
#[derive(Debug)]
pub struct Converter {
    schema: &'static Schema,
    slots: Vec<Slot>,
    extents: Vec<Extent>,
}

/// Position of a member in the JSON, with which a reader can skip the member without scanning it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the opening quote of the member's name.
    pub key: usize,
    /// Offset behind the member's value.
    pub end: usize,
}

/// Position of a field's value, or values, in a message. The converter locates all fields of a message before it writes
/// any, since they have another order in JSON.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    count: u32,
    /// Offset of the value's bytes; for a list or map, offset of the tag of its first element.
    start: usize,
    end: usize,
    /// The value, if it is a number.
    number: u64,
}

struct Run<'r> {
    schema: &'static Schema,
    slots: &'r mut Vec<Slot>,
    out: &'r mut Vec<u8>,
    extents: &'r mut Vec<Extent>,
    /// Maximum length of `out`, in bytes.
    limit: usize,
}

type Done = Result<(), ConvertError>;

impl Default for Converter {
    fn default() -> Self {
        Self { schema: Schema::builtin(), slots: Vec::new(), extents: Vec::new() }
    }
}

impl Converter {
    /// Appends the JSON of an object to `out`, without the members in `omit`. The JSON starts with `type_meta`, if
    /// given.
    ///
    /// # Errors
    /// The bytes cannot be converted, or the JSON exceeds `limit` bytes. `out` then has a part of the JSON.
    pub fn object(
        &mut self,
        message: MessageId,
        type_meta: Option<TypeMeta<'_>>,
        bytes: &[u8],
        omit: &Omit,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ConvertError> {
        let limit = out.len().saturating_add(limit);
        let omit = (!omit.is_all()).then_some(omit);
        let schema = self.schema;
        let mut run = self.begin(type_meta, limit, out);
        run.members(schema.message(message), bytes, omit, 0)?;
        out.push(b'}');
        if out.len() > limit { Err(ConvertError::TooLarge) } else { Ok(()) }
    }

    /// Starts the JSON of an object with `type_meta`, if given.
    fn begin<'r>(&'r mut self, type_meta: Option<TypeMeta<'_>>, limit: usize, out: &'r mut Vec<u8>) -> Run<'r> {
        self.slots.clear();
        self.extents.clear();
        out.push(b'{');
        if let Some(TypeMeta { api_version, kind }) = type_meta {
            out.extend_from_slice(b"\"kind\":");
            text::string(out, kind.as_bytes());
            out.extend_from_slice(b",\"apiVersion\":");
            text::string(out, api_version.as_bytes());
        }
        Run { schema: self.schema, slots: &mut self.slots, out, extents: &mut self.extents, limit }
    }

    /// Returns the positions of members in the JSON of the last converted object, in order: members at the top level
    /// and one level below, without `kind` and `apiVersion`.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Returns an object's metadata as `{"metadata":{…}}`, read from the object's first bytes. Returns `{}` if these
    /// bytes end before the metadata does, or if the metadata cannot be converted.
    #[must_use]
    pub fn head(&mut self, message: MessageId, bytes: &[u8], limit: usize) -> Vec<u8> {
        let mut reader = Reader::new(bytes);
        let field = reader.field().ok().flatten();
        let mut out = Vec::new();
        if field.is_some_and(|field| field.number == 1)
            && self.object(message, None, &bytes[..reader.at()], &Omit::default(), limit, &mut out).is_ok()
        {
            return out;
        }
        b"{}".to_vec()
    }
}

impl Run<'_> {
    fn message(&mut self, message: &Message, bytes: &[u8], omit: Option<&Omit>, depth: usize) -> Done {
        self.out.push(b'{');
        self.members(message, bytes, omit, depth)?;
        self.out.push(b'}');
        Ok(())
    }

    fn members(&mut self, message: &Message, bytes: &[u8], omit: Option<&Omit>, depth: usize) -> Done {
        if depth > MAX_DEPTH {
            return Err(ConvertError::TooDeep);
        }
        let base = self.slots.len();
        self.slots.resize(base + message.fields.len(), Slot::default());
        find(message, bytes, &mut self.slots[base..])?;
        for (place, field) in message.fields.iter().enumerate() {
            let slot = self.slots[base + place];
            if slot.count == 0 && !field.is_written_if_absent {
                continue;
            }
            let below = omit.and_then(|omit| omit.below(field.name));
            if below.is_some_and(Omit::is_all) {
                continue;
            }
            if self.out.len() > self.limit {
                return Err(ConvertError::TooLarge);
            }
            let extent = self.begin_extent(field, depth);
            self.member(field, slot, bytes, below, depth)?;
            self.end_extent(extent);
        }
        self.slots.truncate(base);
        Ok(())
    }

    #[inline]
    fn member(&mut self, field: &FieldInfo, slot: Slot, bytes: &[u8], below: Option<&Omit>, depth: usize) -> Done {
        match field.label {
            _ if slot.count == 0 => self.absent(field, depth),
            Label::Repeated => self.repeated(field, &bytes[slot.start..slot.end], depth),
            Label::Map => self.map(field, &bytes[slot.start..slot.end], depth),
            Label::One | Label::Pointer => self.one(field, slot, bytes, below, depth),
        }
    }

    /// Starts to record the position of a member near the root. Returns the index of its extent; `None` if its position
    /// is not recorded.
    #[inline]
    fn begin_extent(&mut self, field: &FieldInfo, depth: usize) -> Option<usize> {
        if depth >= EXTENTS_DEPTH || field.rule == Rule::Inline {
            return None;
        }
        let comma = usize::from(self.out.last() != Some(&b'{'));
        self.extents.push(Extent { key: self.out.len() + comma, end: 0 });
        Some(self.extents.len() - 1)
    }

    /// Sets the end of the extent (position of a member) that `begin_extent` started at index `place` of `extents`.
    /// Removes the extent if no member was written. Does nothing if `place` is `None`.
    #[inline]
    fn end_extent(&mut self, place: Option<usize>) {
        let Some(place) = place else { return };
        let end = self.out.len();
        if end > self.extents[place].key {
            self.extents[place].end = end;
        } else {
            self.extents.truncate(place);
        }
    }

    /// Writes the name of a member, with a comma if needed.
    #[inline]
    fn key(&mut self, field: &FieldInfo) {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        self.out.extend_from_slice(self.schema.key(field).as_bytes());
    }

    /// Writes a member whose field is present and is no list or map. Writes nothing if Go omits the value. `below` has
    /// the paths to omit within the value.
    fn one(&mut self, field: &FieldInfo, slot: Slot, bytes: &[u8], below: Option<&Omit>, depth: usize) -> Done {
        let value = match field.shape {
            Shape::Bool | Shape::Int32 | Shape::Int64 => Value::Varint(slot.number),
            Shape::Double => Value::Fixed64(slot.number),
            _ => Value::Bytes(&bytes[slot.start..slot.end]),
        };
        if field.rule == Rule::Inline {
            return self.members(self.schema.message(field.message), &bytes[slot.start..slot.end], below, depth + 1);
        }
        if field.label == Label::One && omits(field, value)? {
            return Ok(());
        }
        self.key(field);
        if let (Shape::Message, Value::Bytes(bytes)) = (field.shape, value) {
            return self.message(self.schema.message(field.message), bytes, below, depth + 1);
        }
        self.value(field, value, depth)
    }

    /// Writes a member whose field is absent, as Go writes its zero value.
    fn absent(&mut self, field: &FieldInfo, depth: usize) -> Done {
        if field.rule == Rule::Inline {
            return self.members(self.schema.message(field.message), &[], None, depth + 1);
        }
        self.key(field);
        match field.shape {
            Shape::Constant => {
                text::string(self.out, field.constant.as_bytes());
                Ok(())
            }
            _ if field.label != Label::One => {
                self.out.extend_from_slice(b"null");
                Ok(())
            }
            Shape::Bytes | Shape::Texts => {
                self.out.extend_from_slice(b"null");
                Ok(())
            }
            shape => self.value(field, form::zero(shape), depth),
        }
    }

    fn value(&mut self, field: &FieldInfo, value: Value<'_>, depth: usize) -> Done {
        let Value::Bytes(bytes) = value else { return form::scalar(self.out, field.shape, value) };
        match field.shape {
            Shape::Message => self.message(self.schema.message(field.message), bytes, None, depth + 1),
            Shape::RawJson => form::raw(self.out, bytes),
            Shape::Texts => form::texts(self.out, bytes),
            Shape::SchemaOrBool => self.schema_or_bool(field, bytes, depth),
            Shape::SchemaOrArray => self.schema_or_array(field, bytes, depth),
            Shape::SchemaOrTexts => self.schema_or_texts(field, bytes, depth),
            shape => form::scalar(self.out, shape, value),
        }
    }

    /// Writes an array. `bytes` has the fields from its first element to its last.
    fn repeated(&mut self, field: &FieldInfo, bytes: &[u8], depth: usize) -> Done {
        self.key(field);
        self.out.push(b'[');
        let mut reader = Reader::new(bytes);
        while let Some(found) = reader.field()? {
            if found.number != field.number {
                continue;
            }
            if self.out.len() > self.limit {
                return Err(ConvertError::TooLarge);
            }
            match found.value {
                Value::Bytes(packed) if field.shape.is_number() => self.packed(field, packed, depth)?,
                value => {
                    self.comma();
                    self.value(field, value, depth)?;
                }
            }
        }
        self.out.push(b']');
        Ok(())
    }

    /// Writes the numbers of a packed field.
    fn packed(&mut self, field: &FieldInfo, mut bytes: &[u8], depth: usize) -> Done {
        while !bytes.is_empty() {
            const TRUNCATED: ConvertError = ConvertError::Malformed("a packed field that ends inside a number");
            let value = if field.shape == Shape::Double {
                let (first, rest) = bytes.split_first_chunk().ok_or(TRUNCATED)?;
                bytes = rest;
                Value::Fixed64(u64::from_le_bytes(*first))
            } else {
                let (number, used) = super::wire::varint(bytes, 0)?.ok_or(TRUNCATED)?;
                bytes = &bytes[used..];
                Value::Varint(number)
            };
            self.comma();
            self.value(field, value, depth)?;
        }
        Ok(())
    }

    fn comma(&mut self) {
        if self.out.last() != Some(&b'[') {
            self.out.push(b',');
        }
    }

    /// Writes a map as an object, sorted by key.
    fn map(&mut self, field: &FieldInfo, bytes: &[u8], depth: usize) -> Done {
        let mut entries: Vec<(&[u8], Value<'_>)> = Vec::new();
        let (mut reader, mut is_sorted) = (Reader::new(bytes), true);
        while let Some(found) = reader.field()? {
            if found.number != field.number {
                continue;
            }
            let Value::Bytes(entry) = found.value else { return Err(WRONG_TYPE) };
            let [key, value] = form::fields(entry, "a map's entry")?;
            let key = match key {
                None => &[][..],
                Some(Value::Bytes(key)) => key,
                Some(_) => return Err(WRONG_TYPE),
            };
            is_sorted &= entries.last().is_none_or(|(last, _)| *last < key);
            entries.push((key, value.unwrap_or(form::zero(field.shape))));
        }
        if !is_sorted {
            // Of entries with the same key, the last counts.
            entries.reverse();
            entries.sort_by_key(|(key, _)| *key);
            entries.dedup_by(|(a, _), (b, _)| a == b);
        }
        self.key(field);
        self.out.push(b'{');
        for (number, (key, value)) in entries.into_iter().enumerate() {
            if self.out.len() > self.limit {
                return Err(ConvertError::TooLarge);
            }
            if number > 0 {
                self.out.push(b',');
            }
            text::string(self.out, key);
            self.out.push(b':');
            self.value(field, value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// Finds the fields of a message in `bytes`. Stores the position of each in `slots`, at the index of the field in the
/// message.
fn find(message: &Message, bytes: &[u8], slots: &mut [Slot]) -> Done {
    let mut reader = Reader::new(bytes);
    loop {
        let start = reader.at();
        if let Some((number, content)) = reader.short() {
            match message.outline(number) {
                Some(field) => slots[usize::from(field.place)].add_bytes(field, content, (start, reader.at()))?,
                None => unknown(message, number, content.is_empty())?,
            }
            continue;
        }
        let Some(found) = reader.field()? else { return Ok(()) };
        match message.outline(found.number) {
            Some(field) => slots[usize::from(field.place)].add(field, found, reader.at())?,
            None => unknown(message, found.number, found.value.is_empty())?,
        }
    }
}

/// Returns the result for a field that the schema lacks: `Ok` if the field is empty, otherwise an error. By the rules
/// of the Kubernetes API, new fields have `omitempty`, so an empty one has no JSON member.
#[cold]
pub(super) fn unknown(message: &Message, number: u32, is_empty: bool) -> Done {
    if is_empty { Ok(()) } else { Err(ConvertError::UnknownField { message: message.name, number }) }
}

impl Slot {
    /// Records the position of a field, whose value ends at `end`.
    fn add(&mut self, field: FieldOutline, found: Field<'_>, end: usize) -> Done {
        match found.value {
            Value::Bytes(content) => return self.add_bytes(field, content, (found.start, end)),
            _ if matches!(field.label, Label::Repeated | Label::Map) => {
                self.extend(found.start, end);
                return Ok(());
            }
            _ => self.begin()?,
        }
        match (found.value, field.shape) {
            (Value::Varint(number), Shape::Bool | Shape::Int32 | Shape::Int64)
            | (Value::Fixed64(number), Shape::Double) => {
                self.number = number;
                Ok(())
            }
            _ => Err(WRONG_TYPE),
        }
    }

    /// Records the position of a length-delimited field, from its tag at `start` to `end`.
    #[inline]
    fn add_bytes(&mut self, field: FieldOutline, content: &[u8], (start, end): (usize, usize)) -> Done {
        if matches!(field.label, Label::Repeated | Label::Map) {
            self.extend(start, end);
            return Ok(());
        }
        self.begin()?;
        if field.shape.is_number() {
            return Err(WRONG_TYPE);
        }
        (self.start, self.end) = (end - content.len(), end);
        Ok(())
    }

    /// Records the position of another element of a list or map, from its tag at `start` to `end`.
    #[inline]
    fn extend(&mut self, start: usize, end: usize) {
        if self.count == 0 {
            self.start = start;
        }
        (self.count, self.end) = (self.count + 1, end);
    }

    /// Records the first occurrence of a field that may occur only once. Returns an error at the second one.
    #[inline]
    fn begin(&mut self) -> Done {
        if self.count > 0 {
            return Err(ConvertError::Malformed("a field that occurs twice"));
        }
        self.count = 1;
        Ok(())
    }
}

/// Returns whether the JSON form omits this value, as Go's `omitempty` and `omitzero` do.
pub(super) fn omits(field: &FieldInfo, value: Value<'_>) -> Result<bool, ConvertError> {
    match (field.rule, value) {
        (Rule::OmitZero, Value::Bytes(bytes)) => Ok(form::time_of(bytes, false)?.is_none()),
        (Rule::OmitEmpty, Value::Bytes(bytes)) => match field.shape {
            Shape::Text | Shape::Bytes => Ok(bytes.is_empty()),
            Shape::Texts => form::has_no_texts(bytes),
            _ => Ok(false),
        },
        (Rule::OmitEmpty, Value::Varint(number)) if field.shape == Shape::Int32 => Ok(int32(number.cast_signed()) == 0),
        (Rule::OmitEmpty, Value::Varint(number)) => Ok(number == 0),
        (Rule::OmitEmpty, Value::Fixed64(bits)) => Ok(f64::from_bits(bits) == 0.0),
        _ => Ok(false),
    }
}
