//! Encoding of single values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Done, Run};
use crate::error::EncodeError;
use crate::form::ZERO_TIME;
use crate::schema::{FieldInfo, Label, Shape};
use crate::text_in;
use crate::wire_out::{self as write, close, length, tag};

const WRONG_TYPE: EncodeError = EncodeError::Malformed("a value with an unexpected type");
const OUT_OF_RANGE: EncodeError = EncodeError::Malformed("a number out of range");

impl Run<'_, '_> {
    /// Encodes the next value of the JSON as field `number`, with its tag.
    pub(super) fn tagged(&mut self, field: &FieldInfo, number: u32, depth: usize) -> Done {
        match field.shape {
            Shape::Bool => {
                tag(self.out, number, 0);
                let value = self.boolean()?;
                self.out.push(u8::from(value));
            }
            Shape::Int32 => {
                let value: i32 = self.json.number()?.parse().map_err(|_| OUT_OF_RANGE)?;
                tag(self.out, number, 0);
                write::varint(self.out, i64::from(value).cast_unsigned());
            }
            Shape::Int64 => {
                let value: i64 = self.json.number()?.parse().map_err(|_| OUT_OF_RANGE)?;
                tag(self.out, number, 0);
                write::varint(self.out, value.cast_unsigned());
            }
            Shape::Double => {
                let value: f64 = self.json.number()?.parse().map_err(|_| OUT_OF_RANGE)?;
                if !value.is_finite() {
                    return Err(OUT_OF_RANGE);
                }
                tag(self.out, number, 1);
                self.out.extend_from_slice(&value.to_bits().to_le_bytes());
            }
            Shape::Text => {
                let text = self.json.string()?;
                write::bytes(self.out, number, text.as_bytes());
            }
            Shape::Bytes => return self.base64(field, number),
            // Nothing to encode: the text is a constant of the schema.
            Shape::Constant => return if *self.json.string()? == *field.constant { Ok(()) } else { Err(WRONG_TYPE) },
            _ => {
                tag(self.out, number, 2);
                let start = self.out.len();
                self.content(field, depth)?;
                close(self.out, start);
            }
        }
        Ok(())
    }

    fn content(&mut self, field: &FieldInfo, depth: usize) -> Done {
        match field.shape {
            Shape::Message => return self.message(field.message, depth + 1),
            Shape::Quantity => {
                let text = self.json.string()?;
                if text.is_empty() {
                    return Err(EncodeError::Malformed("an empty quantity"));
                }
                write::bytes(self.out, 1, text.as_bytes());
            }
            Shape::IntOrString => return self.int_or_string(),
            Shape::Time | Shape::MicroTime => {
                let text = self.json.string()?;
                let (seconds, nanos) = text_in::time(&text).ok_or(EncodeError::Malformed("not a time"))?;
                let nanos = if field.shape == Shape::Time { 0 } else { nanos / 1_000 * 1_000 };
                if (seconds, nanos) == (ZERO_TIME, 0) {
                    return Ok(());
                }
                tag(self.out, 1, 0);
                write::varint(self.out, seconds.cast_unsigned());
                tag(self.out, 2, 0);
                write::varint(self.out, u64::from(nanos));
            }
            Shape::Duration => {
                let text = self.json.string()?;
                let nanos = text_in::duration(&text).ok_or(EncodeError::Malformed("not a duration"))?;
                tag(self.out, 1, 0);
                write::varint(self.out, nanos.cast_unsigned());
            }
            Shape::RawJson => {
                let value = self.json.value()?;
                if std::str::from_utf8(value).is_err() {
                    return Err(EncodeError::Malformed("JSON that is not UTF-8"));
                }
                if value != b"null" {
                    write::bytes(self.out, 1, value);
                }
            }
            Shape::Texts => return self.texts(1),
            Shape::SchemaOrBool => return self.schema_or_bool(field, depth),
            Shape::SchemaOrArray | Shape::SchemaOrTexts => return self.schema_or_list(field, depth),
            Shape::Text
            | Shape::Bool
            | Shape::Int32
            | Shape::Int64
            | Shape::Double
            | Shape::Bytes
            | Shape::Constant => return Err(WRONG_TYPE),
        }
        Ok(())
    }

    fn boolean(&mut self) -> Result<bool, EncodeError> {
        if self.json.word("true")? {
            return Ok(true);
        }
        if self.json.word("false")? { Ok(false) } else { Err(WRONG_TYPE) }
    }

    fn base64(&mut self, field: &FieldInfo, number: u32) -> Done {
        let text = self.json.string()?;
        let from = self.out.len();
        tag(self.out, number, 2);
        let start = self.out.len();
        STANDARD.decode_vec(text.as_bytes(), self.out).map_err(|_| EncodeError::Malformed("not base64"))?;
        if self.out.len() == start && field.label == Label::Map {
            // In a map, Go omits the value of an entry if it is empty.
            self.out.truncate(from);
        } else {
            close(self.out, start);
        }
        Ok(())
    }

    fn int_or_string(&mut self) -> Done {
        if self.json.peek()? == b'"' {
            let text = self.json.string()?;
            self.out.extend_from_slice(&[8, 1, 16, 0]);
            write::bytes(self.out, 3, text.as_bytes());
            return Ok(());
        }
        let number: i32 = self.json.number()?.parse().map_err(|_| OUT_OF_RANGE)?;
        self.out.extend_from_slice(&[8, 0, 16]);
        write::varint(self.out, i64::from(number).cast_unsigned());
        tag(self.out, 3, 2);
        length(self.out, 0);
        Ok(())
    }

    fn texts(&mut self, number: u32) -> Done {
        if self.json.word("null")? {
            return Ok(());
        }
        self.json.expect(b'[')?;
        let mut is_first = true;
        while self.json.next(is_first, b']')? {
            is_first = false;
            let text = self.json.string()?;
            write::bytes(self.out, number, text.as_bytes());
            self.check()?;
        }
        Ok(())
    }

    fn schema_or_bool(&mut self, field: &FieldInfo, depth: usize) -> Done {
        tag(self.out, 1, 0);
        if self.json.peek()? == b'{' {
            self.out.push(1);
            return self.schema(field, 2, depth);
        }
        let allows = self.boolean()?;
        self.out.push(u8::from(allows));
        Ok(())
    }

    /// Encodes a `JSONSchemaPropsOrArray` or `JSONSchemaPropsOrStringArray`.
    fn schema_or_list(&mut self, field: &FieldInfo, depth: usize) -> Done {
        match self.json.peek()? {
            b'{' => self.schema(field, 1, depth),
            b'[' if field.shape == Shape::SchemaOrArray => {
                self.json.expect(b'[')?;
                let mut is_first = true;
                while self.json.next(is_first, b']')? {
                    is_first = false;
                    self.schema(field, 2, depth)?;
                    self.check()?;
                }
                Ok(())
            }
            _ => self.texts(2),
        }
    }

    fn schema(&mut self, field: &FieldInfo, number: u32, depth: usize) -> Done {
        tag(self.out, number, 2);
        let start = self.out.len();
        self.message(field.message, depth + 1)?;
        close(self.out, start);
        Ok(())
    }
}
