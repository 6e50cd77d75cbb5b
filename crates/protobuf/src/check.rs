//! Check of an object's message: whether it can be converted to JSON.
//!
//! The check is stricter than the conversion: it refuses a few forms that are rare or costly to check. It never accepts
//! what the conversion refuses.

use super::convert::{MAX_DEPTH, WRONG_TYPE, is_number};
use super::error::ConvertError;
use super::form;
use super::omit::Omit;
use super::schema::{FieldInfo, Label, MessageId, Schema, Shape};
use super::wire::{Reader, Value, varint};

/// Levels that the conversion may add for absent members.
const SPARE_DEPTH: usize = 10;

const RARE: ConvertError = ConvertError::Malformed("a form that is not checked");

type Done = Result<(), ConvertError>;

/// Returns whether the message can be converted to JSON without the members in `omit`.
///
/// # Errors
/// A reason why it cannot, or a rare form.
pub(super) fn check(schema: &Schema, message: MessageId, bytes: &[u8], omit: &Omit) -> Done {
    let omit = (!omit.is_all()).then_some(omit);
    Check { schema, scratch: Vec::new() }.message(message, bytes, omit, 0)
}

struct Check<'s> {
    schema: &'s Schema,
    /// JSON of values whose only check is to write them.
    scratch: Vec<u8>,
}

impl Check<'_> {
    fn message(&mut self, message: MessageId, bytes: &[u8], omit: Option<&Omit>, depth: usize) -> Done {
        if depth > MAX_DEPTH - SPARE_DEPTH {
            return Err(ConvertError::TooDeep);
        }
        let message = self.schema.message(message);
        // One bit for each place of a field, of which there are at most 255.
        let mut seen = [0_u64; 4];
        let mut reader = Reader::new(bytes);
        while let Some(found) = reader.field()? {
            let Some(place) = message.place(found.number) else {
                if found.value.is_empty() {
                    continue;
                }
                return Err(ConvertError::UnknownField { message: message.name, number: found.number });
            };
            let field = &message.fields[place];
            let below = omit.and_then(|omit| omit.below(field.name));
            let is_omitted = below.is_some_and(Omit::is_all);
            match field.label {
                Label::Repeated | Label::Map if is_omitted => {}
                Label::Repeated => self.element(field, found.value, depth)?,
                Label::Map => self.entry(field, found.value, depth)?,
                Label::One | Label::Pointer => {
                    let (word, bit) = (&mut seen[place / 64], 1 << (place % 64));
                    if *word & bit != 0 {
                        return Err(ConvertError::Malformed("a field that occurs twice"));
                    }
                    *word |= bit;
                    if !is_omitted {
                        self.one(field, found.value, below, depth)?;
                    }
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn one(&mut self, field: &FieldInfo, value: Value<'_>, below: Option<&Omit>, depth: usize) -> Done {
        match (field.shape, value) {
            (Shape::Message, Value::Bytes(bytes)) => self.message(field.message, bytes, below, depth + 1),
            _ => self.value(field, value, depth),
        }
    }

    fn value(&mut self, field: &FieldInfo, value: Value<'_>, depth: usize) -> Done {
        let bytes = match value {
            Value::Bytes(bytes) => bytes,
            Value::Varint(_) if matches!(field.shape, Shape::Bool | Shape::Int32 | Shape::Int64) => return Ok(()),
            Value::Fixed64(bits) if field.shape == Shape::Double && f64::from_bits(bits).is_finite() => return Ok(()),
            _ => return Err(WRONG_TYPE),
        };
        match field.shape {
            Shape::Text | Shape::Bytes => Ok(()),
            Shape::Message => self.message(field.message, bytes, None, depth + 1),
            Shape::Time => form::time_of(bytes, false).map(drop),
            Shape::MicroTime => form::time_of(bytes, true).map(drop),
            Shape::Quantity => self.written(bytes, form::quantity),
            Shape::IntOrString => self.written(bytes, form::int_or_string),
            Shape::RawJson => self.written(bytes, form::raw),
            Shape::Texts => self.written(bytes, form::texts),
            Shape::Duration => self.written(bytes, form::duration),
            Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrTexts => Err(RARE),
            Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Double | Shape::Constant => Err(WRONG_TYPE),
        }
    }

    /// Checks a value by writing its JSON.
    fn written(&mut self, bytes: &[u8], write: impl FnOnce(&mut Vec<u8>, &[u8]) -> Done) -> Done {
        self.scratch.clear();
        write(&mut self.scratch, bytes)
    }

    /// Checks an element of a list, or packed numbers.
    fn element(&mut self, field: &FieldInfo, value: Value<'_>, depth: usize) -> Done {
        match value {
            Value::Bytes(_) if field.shape == Shape::Double => Err(RARE),
            Value::Bytes(mut packed) if is_number(field.shape) => {
                while !packed.is_empty() {
                    let (_, used) = varint(packed, 0)?.ok_or(RARE)?;
                    packed = &packed[used..];
                }
                Ok(())
            }
            value => self.value(field, value, depth),
        }
    }

    /// Checks an entry of a map.
    fn entry(&mut self, field: &FieldInfo, value: Value<'_>, depth: usize) -> Done {
        let Value::Bytes(entry) = value else { return Err(WRONG_TYPE) };
        match form::fields(entry, "a map's entry")? {
            [None | Some(Value::Bytes(_)), Some(value)] => self.value(field, value, depth),
            [None | Some(Value::Bytes(_)), None] => Ok(()),
            _ => Err(WRONG_TYPE),
        }
    }
}
