//! A JSON value as a tree, with sorted keys and with numbers as YAML writes them.

use std::borrow::Cow;

use super::keys::sort_keys;
use crate::number::go_float;
use crate::object::scan::{Members, skip_space};

/// Maximum nesting depth of a value that is parsed. It bounds the recursion, and so the stack.
const DEEPEST: usize = 500;

/// A JSON value, parsed for its YAML form.
#[derive(Debug)]
pub(super) enum Node<'j> {
    /// Null, a boolean or a number, as YAML writes it.
    Plain(Cow<'j, str>),
    /// A string.
    Text(Cow<'j, str>),
    /// An array.
    Sequence(Vec<Self>),
    /// An object, with sorted keys.
    Mapping(Vec<(Cow<'j, str>, Self)>),
}

impl<'j> Node<'j> {
    /// Parses a JSON value. `None` if it is malformed or nested deeper than `DEEPEST`.
    pub(super) fn parse(json: &'j [u8]) -> Option<Self> {
        Self::at_depth(json, 0)
    }

    fn at_depth(json: &'j [u8], depth: usize) -> Option<Self> {
        if depth > DEEPEST {
            return None;
        }
        let json = &json[skip_space(json, 0)..];
        Some(match json.first()? {
            b'{' => {
                let mut members = Members::of_object(json)?;
                let mut mapping = Vec::new();
                while let Some(member) = members.member().ok()? {
                    mapping.push((string(member.key)?, Self::at_depth(member.value, depth + 1)?));
                }
                Self::Mapping(sort_keys(mapping))
            }
            b'[' => {
                let mut elements = Members::of_array(json)?;
                let mut sequence = Vec::new();
                while let Some(element) = elements.element().ok()? {
                    sequence.push(Self::at_depth(element, depth + 1)?);
                }
                Self::Sequence(sequence)
            }
            b'"' => Self::Text(string(json)?),
            _ if matches!(json, b"true" | b"false" | b"null") => Self::Plain(std::str::from_utf8(json).ok()?.into()),
            _ => Self::Plain(number(std::str::from_utf8(json).ok()?)?),
        })
    }
}

/// Decodes a string. Invalid UTF-8 is replaced.
fn string(json: &[u8]) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice(json).ok().map(Cow::Owned);
    }
    Some(String::from_utf8_lossy(inner))
}

/// Returns a number as Go prints it: 64-bit integers in full, others as the shortest float. `None` if the text is no
/// number.
fn number(text: &str) -> Option<Cow<'_, str>> {
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.to_string().into());
    }
    if text.parse::<u64>().is_ok() {
        return Some(text.into());
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Some(go_float(number).into()),
        Ok(_) if text.ends_with(|c: char| c.is_ascii_digit()) => Some(text.into()),
        _ => None,
    }
}
