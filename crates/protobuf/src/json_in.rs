//! Reader of JSON for the encoder. It validates the JSON that it consumes.

use std::borrow::Cow;

use super::error::EncodeError;

pub(super) const MALFORMED: EncodeError = EncodeError::Malformed("invalid JSON");

/// The JSON and the position of the next byte to read.
#[derive(Debug, Clone)]
pub(super) struct Json<'j> {
    text: &'j [u8],
    at: usize,
}

impl<'j> Json<'j> {
    pub(super) fn new(text: &'j [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next byte that is not white space, without consuming it.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<u8, EncodeError> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(*byte),
                None => return Err(MALFORMED),
            }
        }
    }

    /// If `byte` is next, consumes it and returns `true`; otherwise returns `false`.
    #[inline]
    pub(super) fn passes(&mut self, byte: u8) -> Result<bool, EncodeError> {
        let is_next = self.peek()? == byte;
        self.at += usize::from(is_next);
        Ok(is_next)
    }

    /// Consumes a byte, which must be next.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), EncodeError> {
        if self.passes(byte)? { Ok(()) } else { Err(EncodeError::Malformed("a value with an unexpected type")) }
    }

    /// Consumes the separator before the next element or member, and returns `true`. If none follows, consumes `close`
    /// and returns `false`.
    #[inline]
    pub(super) fn next(&mut self, is_first: bool, close: u8) -> Result<bool, EncodeError> {
        if self.passes(close)? {
            return Ok(false);
        }
        if is_first || self.passes(b',')? { Ok(true) } else { Err(MALFORMED) }
    }

    /// If `word` is next, consumes it and returns `true`; otherwise returns `false`.
    pub(super) fn word(&mut self, word: &str) -> Result<bool, EncodeError> {
        self.peek()?;
        let is_next = self.text[self.at..].starts_with(word.as_bytes());
        self.at += if is_next { word.len() } else { 0 };
        Ok(is_next)
    }

    /// Consumes a string and returns its content, unescaped.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Cow<'j, str>, EncodeError> {
        self.expect(b'"')?;
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).ok_or(MALFORMED)?;
        if rest[length] == b'"' {
            self.at += length + 1;
            return std::str::from_utf8(&rest[..length]).map(Cow::Borrowed).map_err(|_| MALFORMED);
        }
        self.escaped(length)
    }

    #[cold]
    fn escaped(&mut self, mut length: usize) -> Result<Cow<'j, str>, EncodeError> {
        let rest = &self.text[self.at..];
        while rest.get(length).ok_or(MALFORMED)? != &b'"' {
            length += if rest[length] == b'\\' { 2 } else { 1 };
        }
        let quoted = &self.text[self.at - 1..=self.at + length];
        self.at += length + 1;
        serde_json::from_slice::<String>(quoted).map(Cow::Owned).map_err(|_| MALFORMED)
    }

    pub(super) fn number(&mut self) -> Result<&'j str, EncodeError> {
        let first = self.peek()?;
        if !matches!(first, b'-' | b'0'..=b'9') {
            return Err(EncodeError::Malformed("a value with an unexpected type"));
        }
        let text = self.value()?;
        std::str::from_utf8(text).map_err(|_| MALFORMED)
    }

    /// Consumes a value of any type and returns its text. Does not recurse, so the depth needs no limit.
    pub(super) fn value(&mut self) -> Result<&'j [u8], EncodeError> {
        self.peek()?;
        let rest = &self.text[self.at..];
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<serde::de::IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {
                let used = values.byte_offset();
                self.at += used;
                Ok(&rest[..used])
            }
            _ => Err(MALFORMED),
        }
    }

    /// Verifies that only white space is left.
    pub(super) fn end(&mut self) -> Result<(), EncodeError> {
        if self.peek().is_err() { Ok(()) } else { Err(MALFORMED) }
    }
}
