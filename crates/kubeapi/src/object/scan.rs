//! Scanner that finds the members of a JSON object without decoding their values.
//!
//! Only the ends of values are found; values are not validated. Valid JSON is split correctly, and no input causes a
//! panic.

use memchr::memchr2;

/// Error for JSON that cannot be split into members or elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Member of an object, as bytes of the JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'j> {
    /// Name, with its quotes.
    pub(crate) key: &'j [u8],
    pub(crate) value: &'j [u8],
    /// Name, colon and value, as the JSON has them.
    pub(crate) text: &'j [u8],
}

impl Member<'_> {
    /// Returns whether the member has this name, even if the JSON escapes some of its characters.
    pub(crate) fn is(&self, name: &str) -> bool {
        let inner = &self.key[1..self.key.len() - 1];
        inner == name.as_bytes()
            || inner.contains(&b'\\') && serde_json::from_slice::<String>(self.key).is_ok_and(|key| key == name)
    }
}

/// Members of an object or elements of an array, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Members<'j> {
    json: &'j [u8],
    at: usize,
}

impl<'j> Members<'j> {
    /// Iterates over the members of an object; `None` for other JSON.
    pub(crate) fn of_object(json: &'j [u8]) -> Option<Self> {
        Self::behind(json, b'{')
    }

    /// Iterates over the elements of an array; `None` for other JSON.
    pub(crate) fn of_array(json: &'j [u8]) -> Option<Self> {
        Self::behind(json, b'[')
    }

    pub(crate) fn none() -> Self {
        Self { json: b"}", at: 0 }
    }

    fn behind(json: &'j [u8], bracket: u8) -> Option<Self> {
        let at = skip_space(json, 0);
        (json.get(at) == Some(&bracket)).then_some(Self { json, at: at + 1 })
    }

    /// Returns the next member of an object; `None` at its end.
    pub(crate) fn member(&mut self) -> Result<Option<Member<'j>>, Malformed> {
        let Some(start) = self.start(b'}')? else { return Ok(None) };
        if self.json.get(start) != Some(&b'"') {
            return Err(Malformed);
        }
        let key_end = skip_string(self.json, start)?;
        let colon = skip_space(self.json, key_end);
        if self.json.get(colon) != Some(&b':') {
            return Err(Malformed);
        }
        let value = skip_space(self.json, colon + 1);
        self.at = skip_value(self.json, value)?;
        Ok(Some(Member {
            key: &self.json[start..key_end],
            value: &self.json[value..self.at],
            text: &self.json[start..self.at],
        }))
    }

    /// Returns the next element of an array; `None` at its end.
    pub(crate) fn element(&mut self) -> Result<Option<&'j [u8]>, Malformed> {
        let Some(start) = self.start(b']')? else { return Ok(None) };
        self.at = skip_value(self.json, start)?;
        Ok(Some(&self.json[start..self.at]))
    }

    /// Skips a comma and returns the offset of the next member or element; `None` at the closing bracket.
    fn start(&mut self, close: u8) -> Result<Option<usize>, Malformed> {
        let at = skip_space(self.json, self.at);
        match self.json.get(at) {
            Some(&byte) if byte == close => {
                self.at = at;
                Ok(None)
            }
            Some(b',') => Ok(Some(skip_space(self.json, at + 1))),
            Some(_) => Ok(Some(at)),
            None => Err(Malformed),
        }
    }

    /// Returns the unread part of the object, closing bracket included. If a member was read and others follow, the
    /// part starts with a comma.
    pub(crate) fn rest(&self) -> &'j [u8] {
        &self.json[skip_space(self.json, self.at)..]
    }
}

/// Returns the offset of the first byte at or after `at` that is not white space.
pub(crate) fn skip_space(json: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = json.get(at) {
        at += 1;
    }
    at
}

/// Returns the offset of the end of the string that starts at `at`, after its closing quote.
pub(crate) fn skip_string(json: &[u8], at: usize) -> Result<usize, Malformed> {
    let mut at = at + 1;
    loop {
        let rest = json.get(at..).ok_or(Malformed)?;
        let found = memchr2(b'"', b'\\', rest).ok_or(Malformed)?;
        if rest[found] == b'"' {
            return Ok(at + found + 1);
        }
        at += found + 2;
    }
}

/// Returns the offset of the end of the value that starts at `at`. Does not recurse.
fn skip_value(json: &[u8], mut at: usize) -> Result<usize, Malformed> {
    let mut depth = 0_usize;
    loop {
        match json.get(at).ok_or(Malformed)? {
            b'"' => at = skip_string(json, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1).ok_or(Malformed)?;
                at += 1;
            }
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' if depth > 0 => at += 1,
            b',' | b':' => return Err(Malformed),
            _ => at = skip_scalar(json, at),
        }
        if depth == 0 {
            return Ok(at);
        }
    }
}

/// Returns the offset of the end of the number or literal that starts at `at`.
fn skip_scalar(json: &[u8], at: usize) -> usize {
    let is_end =
        |byte: &u8| matches!(byte, b',' | b':' | b'}' | b']' | b'{' | b'[' | b'"' | b' ' | b'\n' | b'\r' | b'\t');
    json[at..].iter().position(is_end).map_or(json.len(), |length| at + length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::object::testing::json;

    /// Splits an object into members and decodes each member on its own. Returns the decoded object; `None` for other
    /// JSON.
    fn split(json: &[u8]) -> Result<Option<Value>, Malformed> {
        let Some(mut members) = Members::of_object(json) else { return Ok(None) };
        let mut tree = serde_json::Map::new();
        while let Some(member) = members.member()? {
            let key: String = serde_json::from_slice(member.key).map_err(|_| Malformed)?;
            assert!(member.is(&key));
            tree.insert(key, serde_json::from_slice(member.value).map_err(|_| Malformed)?);
        }
        Ok(Some(tree.into()))
    }

    #[test]
    fn escaped_key_equals_its_name() {
        let mut members = Members::of_object(br#"{"a\u002fb\"":1}"#).unwrap();
        let member = members.member().unwrap().unwrap();
        assert!(member.is("a/b\""));
        assert!(!member.is("a/b"));
    }

    #[test]
    fn deep_nesting_uses_no_stack() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        let mut members = Members::of_object(deep.as_bytes()).unwrap();
        assert_eq!(members.member().unwrap().unwrap().value.len(), 2_000_000);
        assert!(members.member().unwrap().is_none());
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(1024))]

        #[test]
        fn members_equal_those_of_serde_json(value in json(), is_pretty in any::<bool>()) {
            let value = serde_json::json!({"a": value.clone(), "\"\\é": value, "": []});
            let text = if is_pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
            prop_assert_eq!(split(&text), Ok(Some(value)));
        }

        #[test]
        fn any_input_ends_without_a_panic(text in r#"[{]?([{}\[\]":, \\ntrue0-9]|"[a-c]{0,4}"){0,24}"#, cut in any::<prop::sample::Index>()) {
            let _ = split(text.as_bytes());
            let _ = split(&text.as_bytes()[..cut.index(text.len() + 1)]);
            if let Ok(value) = serde_json::from_str::<Value>(&text) && value.is_object() {
                prop_assert_eq!(split(text.as_bytes()), Ok(Some(value)));
            }
        }
    }
}
