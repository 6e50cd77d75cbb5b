//! Parser of `fieldSelector`: conditions on fields, in apimachinery's grammar. `api/kubernetes/selection` evaluates
//! them.

use std::fmt;

use informer_hub_types::{MAX_QUOTED, shortened};
use smol_str::SmolStr;

/// One condition of a field selector.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FieldTerm {
    /// Field, such as `metadata.name` or `spec.nodeName`.
    pub field: SmolStr,
    /// Value with which the field is compared.
    pub value: SmolStr,
    /// Whether the field must equal the value (`=`, `==`); if false, it must differ (`!=`).
    pub is_equal: bool,
}

/// A parsed `fieldSelector`: conditions that must all hold. If there are none, it matches everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FieldSelector {
    /// The conditions, sorted and without duplicates.
    pub terms: Vec<FieldTerm>,
}

impl FieldSelector {
    /// Parses a selector.
    ///
    /// # Errors
    /// kube-apiserver's error message. It names the part that cannot be parsed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_terms(text);
        // Sorted, so that the error names the same wrong part as kube-apiserver's.
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (field, is_equal, value) = split_term(part).ok_or_else(|| not_understood(text, part))?;
            let value = unescape(value)?;
            if !(field.is_empty() && value.is_empty()) {
                terms.push(FieldTerm { field: field.into(), value, is_equal });
            }
        }
        terms.sort_unstable();
        terms.dedup();
        Ok(Self { terms })
    }

    /// Returns whether the selector has no conditions and so matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the value that a field must equal; `None` if no condition requires one. If several values are required,
    /// returns the first in sort order.
    #[must_use]
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.is_equal && term.field == field).map(|term| term.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let operator = if term.is_equal { "=" } else { "!=" };
            let value = term.value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

/// Returns kube-apiserver's error message, which quotes the selector and the wrong part. A selector longer than
/// [`MAX_QUOTED`] is not quoted.
fn not_understood(text: &str, part: &str) -> String {
    let whole = if text.len() > MAX_QUOTED { String::new() } else { format!("'{text}'; ") };
    format!("invalid selector: {whole}can't understand '{}'", shortened(part, MAX_QUOTED))
}

/// Splits at the commas that have no backslash before them.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut is_escaped) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits a condition at its first operator. Returns the field, whether the operator is an equality, and the value,
/// still escaped. `None` without an operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.bytes().enumerate().find_map(|(at, byte)| {
        let (field, rest) = match byte {
            b'!' | b'=' => term.split_at(at),
            _ => return None,
        };
        if let Some(value) = rest.strip_prefix("!=") {
            return Some((field, false, value));
        }
        let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
        Some((field, true, value))
    })
}

/// Removes the backslashes before `\`, `,` and `=`. Only these characters may be escaped; a bare `,` or `=` is an
/// error.
fn unescape(value: &str) -> Result<SmolStr, String> {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
            },
            // As in apimachinery, the message has the code of the character instead of the character.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
            }
            _ => text.push(c),
        }
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn term(field: &str, is_equal: bool, value: &str) -> FieldTerm {
        FieldTerm { field: field.into(), value: value.into(), is_equal }
    }

    #[test]
    fn terms_are_parsed_like_apimachinery() {
        for (text, terms) in [
            ("", vec![]),
            (",,", vec![]),
            ("=", vec![]),
            ("!=", vec![]),
            ("metadata.name=web-0", vec![term("metadata.name", true, "web-0")]),
            ("metadata.name==web-0", vec![term("metadata.name", true, "web-0")]),
            ("status.phase!=Running,", vec![term("status.phase", false, "Running")]),
            ("spec.nodeName=", vec![term("spec.nodeName", true, "")]),
            ("=x", vec![term("", true, "x")]),
            ("b=2,a=1", vec![term("a", true, "1"), term("b", true, "2")]),
            (r"a=x\,y\=z\\", vec![term("a", true, r"x,y=z\")]),
            (r"a=x\,y,b=\\,c=2", vec![term("a", true, "x,y"), term("b", true, r"\"), term("c", true, "2")]),
            ("a!b=c", vec![term("a!b", true, "c")]),
            ("a==1,a=0,a=1", vec![term("a", true, "0"), term("a", true, "1")]),
            ("a= b ", vec![term("a", true, " b ")]),
            (r"a\,b=c", vec![term(r"a\,b", true, "c")]),
        ] {
            assert_eq!(FieldSelector::parse(text), Ok(FieldSelector { terms }), "{text}");
        }
    }

    #[test]
    fn errors_have_the_texts_of_apimachinery() {
        for (text, message) in [
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            ("z=1,foo,a=1", "invalid selector: 'z=1,foo,a=1'; can't understand 'foo'"),
            ("a!b", "invalid selector: 'a!b'; can't understand 'a!b'"),
            (r"a=b\c", r"invalid field selector: invalid escape sequence: \c"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            ("a===b", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn required_value_is_that_of_the_first_equality() {
        let selector = FieldSelector::parse("metadata.name!=a,metadata.name=b,metadata.name=c").unwrap();
        assert_eq!(selector.required("metadata.name"), Some("b"));
        assert_eq!(selector.required("metadata.namespace"), None);
        assert_eq!(FieldSelector::parse("a!=b").unwrap().required("a"), None);
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn parser_accepts_any_text_without_panic(text in r"[a-c!=,\\.é]{0,24}|\PC{0,12}") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                let shown = selector.to_string();
                prop_assert_eq!(FieldSelector::parse(&shown), Ok(selector), "{}", shown);
            }
        }
    }
}
