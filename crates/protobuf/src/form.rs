//! JSON forms of scalars, and of messages with a form of their own, such as times and quantities.

use super::error::ConvertError;
use super::schema::Shape;
use super::text;
use super::wire::{Reader, Value};

const WRONG_TYPE: ConvertError = ConvertError::Malformed("a field with an unexpected wire type");

/// Seconds since 1970 of the start of year 1, Go's zero time.
pub(super) const ZERO_TIME: i64 = -62_135_596_800;

/// Writes a value that is a string, a number or a boolean in JSON.
///
/// # Errors
/// The value is malformed, or its shape is no scalar.
#[inline]
pub(super) fn scalar(out: &mut Vec<u8>, shape: Shape, value: Value<'_>) -> Result<(), ConvertError> {
    match (shape, value) {
        (Shape::Text, Value::Bytes(text)) => text::string(out, text),
        (Shape::Bool, Value::Varint(0)) => out.extend_from_slice(b"false"),
        (Shape::Bool, Value::Varint(_)) => out.extend_from_slice(b"true"),
        (Shape::Int32, Value::Varint(number)) => text::integer(out, i64::from(int32(number.cast_signed()))),
        (Shape::Int64, Value::Varint(number)) => text::integer(out, number.cast_signed()),
        (Shape::Double, Value::Fixed64(bits)) => return text::double(out, f64::from_bits(bits)),
        (Shape::Bytes, Value::Bytes(bytes)) => text::base64(out, bytes),
        (Shape::Quantity, Value::Bytes(bytes)) => return quantity(out, bytes),
        (Shape::Time, Value::Bytes(bytes)) => return write_time(out, bytes, false),
        (Shape::MicroTime, Value::Bytes(bytes)) => return write_time(out, bytes, true),
        (Shape::IntOrString, Value::Bytes(bytes)) => return int_or_string(out, bytes),
        (Shape::Duration, Value::Bytes(bytes)) => return duration(out, bytes),
        _ => return Err(WRONG_TYPE),
    }
    Ok(())
}

/// Returns the wire value that an absent field of this shape stands for.
pub(super) fn zero(shape: Shape) -> Value<'static> {
    match shape {
        Shape::Double => Value::Fixed64(0),
        shape if shape.is_number() => Value::Varint(0),
        _ => Value::Bytes(&[]),
    }
}

/// Writes a `Quantity` unchanged, since the server has made it canonical.
fn quantity(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ConvertError> {
    let [value] = fields(bytes, "Quantity")?;
    match value {
        None | Some(Value::Bytes([])) => text::string(out, b"0"),
        Some(Value::Bytes(quantity)) => text::string(out, quantity),
        Some(_) => return Err(WRONG_TYPE),
    }
    Ok(())
}

fn int_or_string(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ConvertError> {
    let [kind, number, string] = fields(bytes, "IntOrString")?;
    match (integer(kind)?, string) {
        (0, _) => text::integer(out, i64::from(int32(integer(number)?))),
        (1, None) => text::string(out, b""),
        (1, Some(Value::Bytes(string))) => text::string(out, string),
        (1, Some(_)) => return Err(WRONG_TYPE),
        _ => return Err(ConvertError::Malformed("an IntOrString that is neither a number nor a text")),
    }
    Ok(())
}

/// Returns the seconds since 1970 and the microseconds of a `Time` or `MicroTime`; `None` if it is unset.
pub(super) fn time(bytes: &[u8]) -> Result<Option<(i64, i64)>, ConvertError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let [seconds, nanos] = fields(bytes, "Time")?;
    let (seconds, nanos) = (integer(seconds)?, i64::from(int32(integer(nanos)?)));
    let micros = nanos / 1_000;
    let (seconds, micros) = (seconds.saturating_add(micros.div_euclid(1_000_000)), micros.rem_euclid(1_000_000));
    Ok(Some((seconds, micros)).filter(|time| *time != (ZERO_TIME, 0)))
}

fn write_time(out: &mut Vec<u8>, bytes: &[u8], is_micro: bool) -> Result<(), ConvertError> {
    match time_of(bytes, is_micro)? {
        None => out.extend_from_slice(b"null"),
        Some((seconds, micros)) => text::time(out, seconds, is_micro.then_some(micros)),
    }
    Ok(())
}

/// Decodes a `Time` or `MicroTime` as [`time`] does. A `Time` has no microseconds.
pub(super) fn time_of(bytes: &[u8], is_micro: bool) -> Result<Option<(i64, i64)>, ConvertError> {
    if is_micro || bytes.is_empty() {
        return time(bytes);
    }
    let [seconds, _] = fields(bytes, "Time")?;
    let seconds = integer(seconds)?;
    Ok((seconds != ZERO_TIME).then_some((seconds, 0)))
}

fn duration(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ConvertError> {
    let [nanos] = fields(bytes, "Duration")?;
    text::duration(out, integer(nanos)?);
    Ok(())
}

/// Writes the JSON that a `RawExtension`, `FieldsV1` or `JSON` contains.
pub(super) fn raw(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ConvertError> {
    let [raw] = fields(bytes, "RawExtension")?;
    match raw {
        None | Some(Value::Bytes([])) => {
            out.extend_from_slice(b"null");
            Ok(())
        }
        Some(Value::Bytes(json)) => text::raw_json(out, json),
        Some(_) => Err(WRONG_TYPE),
    }
}

/// Writes a message whose JSON form is an array of strings.
pub(super) fn texts(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ConvertError> {
    let mut reader = Reader::new(bytes);
    let start = out.len();
    while let Some(field) = reader.field()? {
        match (field.number, field.value) {
            (1, Value::Bytes(string)) => {
                out.push(if out.len() == start { b'[' } else { b',' });
                text::string(out, string);
            }
            (1, _) => return Err(WRONG_TYPE),
            (number, value) if !value.is_empty() => {
                return Err(ConvertError::UnknownField { message: "a list of texts", number });
            }
            _ => {}
        }
    }
    out.extend_from_slice(if out.len() == start { b"[]" } else { b"]" });
    Ok(())
}

/// Returns whether a message whose JSON form is an array of strings is empty.
pub(super) fn has_no_texts(bytes: &[u8]) -> Result<bool, ConvertError> {
    let mut reader = Reader::new(bytes);
    while let Some(field) = reader.field()? {
        if field.number == 1 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the fields 1 to `N` of a small message, if present.
pub(super) fn fields<'i, const N: usize>(
    bytes: &'i [u8],
    message: &'static str,
) -> Result<[Option<Value<'i>>; N], ConvertError> {
    let (mut found, mut reader) = ([None; N], Reader::new(bytes));
    while let Some(field) = reader.field()? {
        match found.get_mut(field.number as usize - 1) {
            Some(Some(_)) => return Err(ConvertError::Malformed("a field that occurs twice")),
            Some(slot) => *slot = Some(field.value),
            None if field.value.is_empty() => {}
            None => return Err(ConvertError::UnknownField { message, number: field.number }),
        }
    }
    Ok(found)
}

pub(super) fn integer(value: Option<Value<'_>>) -> Result<i64, ConvertError> {
    match value {
        None => Ok(0),
        Some(Value::Varint(number)) => Ok(number.cast_signed()),
        Some(_) => Err(WRONG_TYPE),
    }
}

/// Returns the lower 32 bits of an integer, as Go reads an `int32`.
#[expect(clippy::cast_possible_truncation, reason = "Go truncates too")]
pub(super) fn int32(number: i64) -> i32 {
    number as i32
}
