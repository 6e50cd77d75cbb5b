//! Reader of protobuf's wire format.

use super::error::ConvertError;

/// A value as the wire format encodes it, without its type in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'i> {
    /// An integer or a boolean.
    Varint(u64),
    /// Eight bytes, such as a double.
    Fixed64(u64),
    /// Text, bytes, a message, or packed numbers.
    Bytes(&'i [u8]),
    /// Four bytes.
    Fixed32(u32),
}

impl Value<'_> {
    /// Returns whether the value is zero or empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Varint(0) | Self::Fixed64(0) | Self::Fixed32(0) | Self::Bytes([]))
    }
}

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'i> {
    /// The field's number, never 0.
    pub number: u32,
    /// The value.
    pub value: Value<'i>,
    /// Offset of the field's tag in the message.
    pub start: usize,
}

/// Reads a varint at `at`. Returns the value and the offset behind it, or `None` if the input ends within the varint.
///
/// # Errors
/// If the varint has more than 64 bits or ten bytes.
pub fn varint(input: &[u8], at: usize) -> Result<Option<(u64, usize)>, ConvertError> {
    let mut value = 0;
    for (count, byte) in input.iter().skip(at).take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if count == 9 && bits > 1 {
            return Err(ConvertError::Malformed("a varint of more than 64 bits"));
        }
        value |= bits << (7 * count);
        if *byte < 0x80 {
            return Ok(Some((value, at + count + 1)));
        }
    }
    let length = input.len().saturating_sub(at);
    if length >= 10 { Err(ConvertError::Malformed("a varint of more than ten bytes")) } else { Ok(None) }
}

/// Reader of the fields of a message, in the order of the bytes.
#[derive(Debug, Clone)]
pub struct Reader<'i> {
    input: &'i [u8],
    at: usize,
}

const TRUNCATED: ConvertError = ConvertError::Malformed("a message ends inside a field");

impl<'i> Reader<'i> {
    /// Creates a reader of a whole message.
    #[must_use]
    pub fn new(input: &'i [u8]) -> Self {
        Self { input, at: 0 }
    }

    /// Returns the offset behind the field that was read last.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns number and content of the next field if it has the usual form: length-delimited, less than 128 bytes,
    /// and a field number below 16. If this returns `None`, call [`Self::field`].
    ///
    /// Faster than [`Self::field`] if the caller handles these fields in a separate branch, because the content then
    /// stays in registers.
    #[inline]
    pub(super) fn short(&mut self) -> Option<(u32, &'i [u8])> {
        let [tag, length, rest @ ..] = self.input.get(self.at..)? else { return None };
        if tag & 0x87 != 2 || *tag < 8 || *length >= 0x80 {
            return None;
        }
        let content = rest.get(..usize::from(*length))?;
        self.at += 2 + content.len();
        Some((u32::from(tag >> 3), content))
    }

    /// Returns the next field; `None` at the end.
    ///
    /// # Errors
    /// The bytes are not a message. Groups, which Kubernetes does not use, are refused.
    #[inline]
    pub fn field(&mut self) -> Result<Option<Field<'i>>, ConvertError> {
        let start = self.at;
        if start >= self.input.len() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        if number == 0 || number > 0x1fff_ffff {
            return Err(ConvertError::Malformed("a field number out of range"));
        }
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.fixed()?)),
            _ => return Err(ConvertError::Malformed("a group or an unknown wire type")),
        };
        Ok(Some(Field { number, value, start }))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, ConvertError> {
        // Fast path: tags, lengths and most numbers have one byte.
        if let Some(byte) = self.input.get(self.at).filter(|byte| **byte < 0x80) {
            self.at += 1;
            return Ok(u64::from(*byte));
        }
        let (value, at) = varint(self.input, self.at)?.ok_or(TRUNCATED)?;
        self.at = at;
        Ok(value)
    }

    #[inline]
    fn take(&mut self, length: u64) -> Result<&'i [u8], ConvertError> {
        let rest = &self.input[self.at..];
        let taken = usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or(TRUNCATED)?;
        self.at += taken.len();
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], ConvertError> {
        let taken = self.input[self.at..].first_chunk::<N>().ok_or(TRUNCATED)?;
        self.at += N;
        Ok(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(input: &[u8]) -> Result<Vec<(u32, Value<'_>)>, ConvertError> {
        let (mut reader, mut fields) = (Reader::new(input), Vec::new());
        while let Some(field) = reader.field()? {
            fields.push((field.number, field.value));
        }
        Ok(fields)
    }

    #[test]
    fn fields_of_all_wire_types_are_read() {
        let input = [&[0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x19][..], &[1; 8], &[0x25, 1, 0, 0, 0]].concat();
        let expected = vec![
            (1, Value::Varint(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Fixed64(0x0101_0101_0101_0101)),
            (4, Value::Fixed32(1)),
        ];
        assert_eq!(fields(&input).unwrap(), expected);
        assert_eq!(
            fields(&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]).unwrap(),
            [(1, Value::Varint(u64::MAX))]
        );
    }

    #[test]
    fn malformed_fields_are_refused() {
        for input in [
            &[0x08][..],
            &[0x08, 0x80],
            &[0x00, 0x01],
            &[0x12, 3, 1, 2],
            &[0x12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
            &[0x12, 0x80, 0x80, 0x80, 0x80, 0x08],
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255],
            &[0x0b, 0x0c],
            &[0x0e, 1],
            &[0x19, 1, 2, 3],
            &[0x25, 1, 2, 3],
            &[0xff, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0],
        ] {
            assert!(matches!(fields(input), Err(ConvertError::Malformed(_))), "{input:?}");
        }
        assert_eq!(varint(&[0x80; 9], 0), Ok(None), "more bytes may follow");
        assert!(varint(&[0x80; 10], 0).is_err());
    }
}
