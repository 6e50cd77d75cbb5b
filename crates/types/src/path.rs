//! Paths to fields of an object, in the syntax of `kubectl -o jsonpath`.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use smol_str::SmolStr;

use super::position_of;

/// One segment of a path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// A field of an object.
    Field(SmolStr),
    /// Every element of an array.
    Each,
}

/// A path such as `spec.nodeName`, `spec.containers[*].image` or `metadata.labels['app.kubernetes.io/name']`.
///
/// A name can be written without quotes if it consists of letters, digits, `_`, `-`, `/` and `$`. Other names are
/// quoted in brackets, with either quote character. A backslash escapes the next character. A leading `.` or `$.`
/// (jsonpath) is ignored. The displayed text parses to the same path.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FieldPath(Arc<[Segment]>);

/// Error for text that is not a path; the caller's input is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a path: {problem} at position {}", position_of(text, *at))]
#[non_exhaustive]
pub struct InvalidPath {
    /// The invalid text.
    pub text: String,
    /// Byte offset of the problem.
    pub at: usize,
    /// Description of the problem.
    pub problem: &'static str,
}

impl FieldPath {
    /// Maximum number of segments: more than useful paths have, less than serde_json's recursion limit.
    const MAX_DEPTH: usize = 64;

    /// Returns the segments of the path; never empty.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Returns the names of the fields along the path, without the steps into elements of lists.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Field(name) => Some(&**name),
            Segment::Each => None,
        })
    }

    /// Returns the values at this path in `value`, in document order.
    #[must_use]
    pub fn select<'v>(&self, value: &'v serde_json::Value) -> Vec<&'v serde_json::Value> {
        let mut found = vec![value];
        for segment in &*self.0 {
            found = match segment {
                Segment::Field(name) => found.into_iter().filter_map(|v| v.get(name.as_str())).collect(),
                Segment::Each => found.into_iter().filter_map(|v| v.as_array()).flatten().collect(),
            };
        }
        found
    }
}

/// Returns whether a name may contain the character without quotes.
fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '$')
}

/// Parser position in the text.
struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

type Problem = (usize, &'static str);

impl Cursor<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let found = self.text[self.at..].starts_with(wanted);
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn path(&mut self) -> Result<Vec<Segment>, Problem> {
        let jsonpath = self.text.starts_with("$.") || self.text.starts_with("$[");
        self.at = usize::from(jsonpath);
        let dotted = self.eat(".");
        let mut segments = match self.peek() {
            None => return Err((self.at, "a name is missing")),
            Some('[') if dotted => return Err((self.at, "a name is missing between '.' and '['")),
            Some('[') => Vec::new(),
            Some(_) => vec![self.bare()?],
        };
        while let Some(c) = self.peek() {
            if segments.len() == FieldPath::MAX_DEPTH {
                return Err((self.at, "more than 64 segments"));
            }
            let start = self.at;
            let segment = match c {
                '.' => {
                    self.at += 1;
                    self.bare()?
                }
                '[' => self.bracket()?,
                _ => return Err((start, "expected '.' or '['")),
            };
            if segments.is_empty() && segment == Segment::Each {
                return Err((start, "the first segment must be a field, not [*]"));
            }
            segments.push(segment);
        }
        Ok(segments)
    }

    fn bare(&mut self) -> Result<Segment, Problem> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !is_bare(c)).unwrap_or(rest.len());
        match rest[end..].chars().next() {
            Some(c) if c != '.' && c != '[' => {
                return Err((self.at + end, "this character needs quotes: write ['name']"));
            }
            _ if end == 0 => return Err((self.at, "a name is missing")),
            _ => {}
        }
        self.at += end;
        Ok(Segment::Field(rest[..end].into()))
    }

    fn bracket(&mut self) -> Result<Segment, Problem> {
        self.at += 1;
        let segment = match self.peek() {
            Some('*') => {
                self.at += 1;
                Segment::Each
            }
            Some(quote @ ('\'' | '"')) => {
                self.at += 1;
                self.quoted(quote)?
            }
            Some(_) => return Err((self.at, "expected * or a quoted name after '['")),
            None => return Err((self.at, "'[' is not closed")),
        };
        if self.eat("]") { Ok(segment) } else { Err((self.at, "expected ']'")) }
    }

    fn quoted(&mut self, quote: char) -> Result<Segment, Problem> {
        let start = self.at;
        let mut name = String::new();
        let mut chars = self.text[start..].char_indices();
        while let Some((offset, c)) = chars.next() {
            match c {
                '\\' => name.push(chars.next().ok_or((start + offset, "nothing follows the backslash"))?.1),
                c if c == quote && name.is_empty() => return Err((start, "the name is empty")),
                c if c == quote => {
                    self.at = start + offset + 1;
                    return Ok(Segment::Field(name.into()));
                }
                c => name.push(c),
            }
        }
        Err((start - 1, "the quote is not closed"))
    }
}

impl FromStr for FieldPath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Cursor { text, at: 0 }.path();
        found.map(|segments| Self(segments.into())).map_err(|(at, problem)| InvalidPath {
            text: text.to_owned(),
            at,
            problem,
        })
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Each => f.write_str("[*]")?,
                // A leading `$` or `/` is unambiguous, but `$` alone before a `.` is jsonpath's root.
                Segment::Field(name) if name.chars().all(is_bare) && !(i == 0 && name == "$") => {
                    f.write_str(if i == 0 { "" } else { "." })?;
                    f.write_str(name)?;
                }
                Segment::Field(name) => {
                    f.write_str("['")?;
                    for c in name.chars() {
                        if matches!(c, '\'' | '\\') {
                            f.write_char('\\')?;
                        }
                        f.write_char(c)?;
                    }
                    f.write_str("']")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(name: &str) -> Segment {
        Segment::Field(name.into())
    }

    fn parsed(text: &str) -> Vec<Segment> {
        text.parse::<FieldPath>().unwrap().0.to_vec()
    }

    #[test]
    fn path_parses_in_all_notations() {
        assert_eq!(parsed("spec.nodeName"), [field("spec"), field("nodeName")]);
        for text in [".spec.nodeName", "$.spec.nodeName", "['spec'].nodeName", "$['spec'][\"nodeName\"]"] {
            assert_eq!(parsed(text), parsed("spec.nodeName"), "{text}");
        }
        let image = [field("spec"), field("containers"), Segment::Each, field("image")];
        assert_eq!(parsed("spec.containers[*].image"), image);
        let label = [field("metadata"), field("labels"), field("app.kubernetes.io/name")];
        assert_eq!(parsed("metadata.labels['app.kubernetes.io/name']"), label);
        assert_eq!(parsed("metadata.labels[\"app.kubernetes.io/name\"]"), label);
        assert_eq!(parsed(r"a['it\'s']['\\']"), [field("a"), field("it's"), field("\\")]);
    }

    #[test]
    fn parse_error_has_its_position() {
        for (text, at) in [
            ("", 0),
            (".", 1),
            ("$.", 2),
            ("a.", 2),
            ("a..b", 2),
            ("a b", 1),
            ("a[0]", 2),
            ("a[", 2),
            ("a['b'", 5),
            ("a['b", 2),
            ("a['']", 3),
            ("a[*", 3),
            ("[*].a", 0),
            ("a]", 1),
            ("é", 0),
            (".['a']", 1),
            ("a['b']c", 6),
            (r"a['b\", 4),
        ] {
            assert_eq!(text.parse::<FieldPath>().expect_err(text).at, at, "{text}");
        }
        assert!("a.".repeat(65).trim_end_matches('.').parse::<FieldPath>().is_err());
    }

    #[test]
    fn select_returns_all_values_at_the_path() {
        let value = serde_json::json!({"spec": {"containers": [{"image": "a"}, {}, {"image": "b"}]}});
        let path: FieldPath = "spec.containers[*].image".parse().unwrap();
        assert_eq!(path.select(&value), [&serde_json::json!("a"), &serde_json::json!("b")]);
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn displayed_path_parses_to_itself(
            first in "[ -~é]{1,8}",
            rest in prop::collection::vec(prop::option::of("[ -~é\\n]{1,8}"), 0..6),
        ) {
            let mut segments = vec![field(&first)];
            segments.extend(rest.iter().map(|name| name.as_deref().map_or(Segment::Each, field)));
            let path = FieldPath(segments.into());
            prop_assert_eq!(path.to_string().parse::<FieldPath>().unwrap(), path);
        }

        #[test]
        fn parser_accepts_any_text_without_panic(text in "[a\\[\\]'\"*.$\\\\ é]{0,12}") {
            if let Ok(path) = text.parse::<FieldPath>() {
                prop_assert_eq!(path.to_string().parse::<FieldPath>().unwrap(), path);
            }
        }
    }
}
