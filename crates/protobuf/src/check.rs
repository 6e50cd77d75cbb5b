//! Checks whether an object's message can be converted to JSON. The same pass finds the values that a [`Selection`]
//! wants, such as metadata.
//!
//! The check is stricter than the conversion: it refuses a few forms that are rare or costly to check. All that it
//! accepts can be converted.

use super::convert::{MAX_DEPTH, WRONG_TYPE, unknown};
use super::error::ConvertError;
use super::form;
use super::schema::{FieldOutline, Label, Message, MessageId, Schema, Shape};
use super::selection::{Found, Places, SelectedField, Selection};
use super::wire::{Reader, Value, varint};

#[path = "check_wanted.rs"]
mod wanted;

/// Number of nesting levels that the conversion may add to an object, since it writes members for absent messages. The
/// check refuses objects that leave fewer levels.
const SPARE_DEPTH: usize = 10;

const RARE: ConvertError = ConvertError::Malformed("a form that is not checked");

type Done = Result<(), ConvertError>;

/// Checks that the message can be converted to JSON without the omitted members. Calls `found` for each wanted value,
/// with the number that [`Selection::new`] gave to the path of the value.
///
/// # Errors
/// The message cannot be converted, or has a rare form that is not checked.
pub(super) fn check<'b>(
    schema: &Schema,
    message: MessageId,
    bytes: &'b [u8],
    selection: &Selection,
    found: &mut dyn FnMut(usize, Found<'b>),
) -> Done {
    Check { schema, scratch: Vec::new(), found }.message(message, bytes, Some(selection), 0)
}

struct Check<'s, 'f, 'b> {
    schema: &'s Schema,
    /// Scratch buffer for values that are checked by writing their JSON.
    scratch: Vec<u8>,
    found: &'f mut dyn FnMut(usize, Found<'b>),
}

impl<'b> Check<'_, '_, 'b> {
    fn message(&mut self, message: MessageId, bytes: &'b [u8], selection: Option<&Selection>, depth: usize) -> Done {
        if depth > MAX_DEPTH - SPARE_DEPTH {
            return Err(ConvertError::TooDeep);
        }
        let mut level =
            Level { message: self.schema.message(message), seen: Places::default(), selection, depth, last_key: None };
        let mut reader = Reader::new(bytes);
        loop {
            if let Some((number, content)) = reader.short() {
                self.bytes(&mut level, number, content)?;
                continue;
            }
            let Some(found) = reader.field()? else { break };
            match found.value {
                Value::Bytes(content) => self.bytes(&mut level, found.number, content)?,
                value => self.number(&mut level, found.number, value)?,
            }
        }
        level.selection.map_or(Ok(()), |selection| self.absent(&level, selection))
    }

    /// Checks a length-delimited field: a text, bytes, a message or packed numbers.
    #[inline]
    fn bytes(&mut self, level: &mut Level<'_, '_, 'b>, number: u32, content: &'b [u8]) -> Done {
        let Some(field) = level.message.outline(number) else {
            return unknown(level.message, number, content.is_empty());
        };
        let selected = level.selected(field);
        let is_omitted = selected.is_some_and(|selected| selected.is_omitted);
        let below = selected.map(|selected| &selected.below);
        match field.label {
            Label::Repeated | Label::Map if is_omitted => return Ok(()),
            Label::Repeated if field.shape.is_number() => packed(field, content)?,
            Label::Map => self.entry(field, content, level.depth)?,
            Label::Repeated => self.value(field, content, below, level.depth)?,
            Label::One | Label::Pointer => {
                level.once(field)?;
                if is_omitted {
                    return Ok(());
                }
                self.value(field, content, below, level.depth)?;
            }
        }
        selected.map_or(Ok(()), |selected| self.found(level, selected, Value::Bytes(content)))
    }

    /// Checks a field with a varint or a fixed-size number.
    fn number(&mut self, level: &mut Level<'_, '_, 'b>, field_number: u32, value: Value<'b>) -> Done {
        let Some(field) = level.message.outline(field_number) else {
            return unknown(level.message, field_number, value.is_empty());
        };
        match field.label {
            Label::Repeated => {}
            Label::Map => return Err(WRONG_TYPE),
            Label::One | Label::Pointer => level.once(field)?,
        }
        number(field, value)?;
        level.selected(field).map_or(Ok(()), |selected| self.found(level, selected, value))
    }

    #[inline]
    fn value(&mut self, field: FieldOutline, bytes: &'b [u8], selection: Option<&Selection>, depth: usize) -> Done {
        match field.shape {
            Shape::Text | Shape::Bytes => Ok(()),
            Shape::Message => self.message(field.message, bytes, selection, depth + 1),
            Shape::Quantity if is_one_text(bytes) => Ok(()),
            shape => self.special(shape, bytes),
        }
    }

    fn special(&mut self, shape: Shape, bytes: &[u8]) -> Done {
        match shape {
            Shape::Time => form::time_of(bytes, false).map(drop),
            Shape::MicroTime => form::time_of(bytes, true).map(drop),
            Shape::Quantity | Shape::IntOrString | Shape::Duration => {
                self.written(bytes, |out, bytes| form::scalar(out, shape, Value::Bytes(bytes)))
            }
            // Embedded JSON is written byte by byte, so it may have bytes that are not UTF-8.
            Shape::RawJson => {
                self.written(bytes, form::raw)?;
                std::str::from_utf8(&self.scratch).map(drop).map_err(|_| RARE)
            }
            Shape::Texts => self.written(bytes, form::texts),
            Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrTexts => Err(RARE),
            _ => Err(WRONG_TYPE),
        }
    }

    /// Checks a value by writing its JSON.
    fn written(&mut self, bytes: &[u8], write: impl FnOnce(&mut Vec<u8>, &[u8]) -> Done) -> Done {
        self.scratch.clear();
        write(&mut self.scratch, bytes)
    }

    /// Checks an entry of a map.
    fn entry(&mut self, field: FieldOutline, entry: &'b [u8], depth: usize) -> Done {
        if field.shape == Shape::Text && is_pair_of_texts(entry) {
            return Ok(());
        }
        match form::fields(entry, "a map's entry")? {
            [None | Some(Value::Bytes(_)), None] => Ok(()),
            [None | Some(Value::Bytes(_)), Some(Value::Bytes(value))] => self.value(field, value, None, depth),
            [None | Some(Value::Bytes(_)), Some(value)] => number(field, value),
            _ => Err(WRONG_TYPE),
        }
    }
}

/// State of the check of one message, at one level of nesting.
struct Level<'s, 'n, 'b> {
    message: &'s Message,
    /// Places (indexes in the message) of the fields that occurred.
    seen: Places,
    selection: Option<&'n Selection>,
    depth: usize,
    /// The last entry that was read of a wanted map: the index of the map's field in the message, and the entry's key.
    last_key: Option<(u8, &'b [u8])>,
}

impl<'n> Level<'_, 'n, '_> {
    /// Returns the field's entry in the selection (fields to report or to omit); `None` if it has none.
    #[inline]
    fn selected(&self, field: FieldOutline) -> Option<&'n SelectedField> {
        self.selection?.get(field.place)
    }

    /// Checks that the field has not occurred before.
    #[inline]
    fn once(&mut self, field: FieldOutline) -> Done {
        if self.seen.has(field.place) {
            return Err(ConvertError::Malformed("a field that occurs twice"));
        }
        self.seen.add(field.place);
        Ok(())
    }
}

fn number(field: FieldOutline, value: Value<'_>) -> Done {
    match (field.shape, value) {
        (Shape::Bool | Shape::Int32 | Shape::Int64, Value::Varint(_)) => Ok(()),
        (Shape::Double, Value::Fixed64(bits)) if f64::from_bits(bits).is_finite() => Ok(()),
        _ => Err(WRONG_TYPE),
    }
}

/// Checks packed numbers.
fn packed(field: FieldOutline, mut bytes: &[u8]) -> Done {
    if field.shape == Shape::Double {
        return Err(RARE);
    }
    while !bytes.is_empty() {
        let (_, used) = varint(bytes, 0)?.ok_or(RARE)?;
        bytes = &bytes[used..];
    }
    Ok(())
}

/// Returns whether a message consists of field 1 alone, with less than 128 bytes of content. Most quantities have this
/// form.
fn is_one_text(message: &[u8]) -> bool {
    matches!(message, [0x0a, length @ ..0x80, text @ ..] if text.len() == usize::from(*length))
}

/// Returns whether a message consists of the fields 1 and 2, each with less than 128 bytes of content. Most entries of
/// maps have this form.
fn is_pair_of_texts(message: &[u8]) -> bool {
    let [0x0a, length @ ..0x80, rest @ ..] = message else { return false };
    let Some(rest) = rest.get(usize::from(*length)..) else { return false };
    matches!(rest, [0x12, length @ ..0x80, text @ ..] if text.len() == usize::from(*length))
}
