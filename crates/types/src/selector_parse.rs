//! Parser of label selectors: apimachinery's grammar and its rules for keys and values, with error positions.

use std::collections::BTreeSet;
use std::str::FromStr;

use smol_str::SmolStr;

use super::selector::{Condition, InvalidSelector, LabelSelector, Requirement};
use super::{MAX_QUOTED, shortened};

/// Maximum length of a label value, and of a label key without its prefix.
const MAX_NAME: usize = 63;
/// Maximum length of a label key's prefix, the part before the slash.
const MAX_PREFIX: usize = 253;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token<'t> {
    Word(&'t str),
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    End,
}

/// A problem and its byte offset.
struct SelectorProblem {
    at: usize,
    problem: String,
}

struct Parser<'t> {
    tokens: Vec<(Token<'t>, usize)>,
    next: usize,
}

impl FromStr for LabelSelector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parser = Parser { tokens: tokens(text), next: 0 };
        let invalid =
            |wrong: SelectorProblem| InvalidSelector { text: text.to_owned(), at: wrong.at, problem: wrong.problem };
        parser.selector().map_err(invalid)
    }
}

fn tokens(text: &str) -> Vec<(Token<'_>, usize)> {
    let is_space = |b: u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
    let is_special = |b: u8| matches!(b, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<');
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if is_space(byte) {
            at += 1;
            continue;
        }
        let (token, length) = match (byte, bytes.get(at + 1)) {
            (b'=', Some(b'=')) => (Token::Equals, 2),
            (b'!', Some(b'=')) => (Token::NotEquals, 2),
            (b'=', _) => (Token::Equals, 1),
            (b'!', _) => (Token::Not, 1),
            (b'(', _) => (Token::Open, 1),
            (b')', _) => (Token::Close, 1),
            (b',', _) => (Token::Comma, 1),
            (b'>', _) => (Token::Greater, 1),
            (b'<', _) => (Token::Less, 1),
            _ => {
                // The word ends at an ASCII byte, so the slice ends at a character boundary.
                let rest = &bytes[at..];
                let length = rest.iter().position(|&b| is_space(b) || is_special(b)).unwrap_or(rest.len());
                (Token::Word(&text[at..at + length]), length)
            }
        };
        found.push((token, at));
        at += length;
    }
    found.push((Token::End, text.len()));
    found
}

impl<'t> Parser<'t> {
    fn peek(&self) -> (Token<'t>, usize) {
        self.tokens[self.next]
    }

    /// Returns the next token with its offset, and advances past it. At the end, every call returns [`Token::End`].
    fn take(&mut self) -> (Token<'t>, usize) {
        let token = self.peek();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn selector(&mut self) -> Result<LabelSelector, SelectorProblem> {
        let mut requirements = Vec::new();
        if self.peek().0 == Token::End {
            return Ok(LabelSelector::everything());
        }
        loop {
            requirements.push(self.requirement()?);
            match self.take() {
                (Token::End, _) => return Ok(requirements.into_iter().collect()),
                (Token::Comma, _) => {}
                (found, at) => return Err(expected("a comma or the end", found, at)),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorProblem> {
        let absent = self.peek().0 == Token::Not;
        if absent {
            self.take();
        }
        let key = match self.take() {
            (Token::Word(key), at) => checked(key, at, label_key_problem)?,
            (found, at) => return Err(expected("a label key", found, at)),
        };
        let condition = match self.peek().0 {
            _ if absent => Condition::DoesNotExist,
            Token::End | Token::Comma => Condition::Exists,
            _ => self.condition()?,
        };
        Ok(Requirement { key, condition })
    }

    fn condition(&mut self) -> Result<Condition, SelectorProblem> {
        let (operator, at) = self.take();
        Ok(match operator {
            Token::Equals => Condition::Equals(self.value()?),
            Token::NotEquals => Condition::NotEquals(self.value()?),
            Token::Greater => Condition::GreaterThan(self.integer()?),
            Token::Less => Condition::LessThan(self.integer()?),
            Token::Word("in") => Condition::In(self.values()?),
            Token::Word("notin") => Condition::NotIn(self.values()?),
            found => return Err(expected("one of = == != in notin > <", found, at)),
        })
    }

    /// Parses one value. Returns the empty value if a comma or the end of the text comes next.
    fn value(&mut self) -> Result<SmolStr, SelectorProblem> {
        match self.peek() {
            (Token::End | Token::Comma, _) => Ok(SmolStr::default()),
            (Token::Word(value), at) => {
                self.take();
                checked(value, at, label_value_problem)
            }
            (found, at) => Err(expected("a value", found, at)),
        }
    }

    fn integer(&mut self) -> Result<i64, SelectorProblem> {
        let (_, at) = self.peek();
        let value = self.value()?;
        value.parse().map_err(|_| SelectorProblem {
            at,
            problem: format!("{:?} is not an integer", shortened(&value, MAX_QUOTED)),
        })
    }

    /// Parses `(a,b)`. A missing value is the empty value.
    fn values(&mut self) -> Result<BTreeSet<SmolStr>, SelectorProblem> {
        match self.take() {
            (Token::Open, _) => {}
            (found, at) => return Err(expected("\"(\"", found, at)),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                (Token::Word(value), at) => {
                    self.take();
                    checked(value, at, label_value_problem)?
                }
                _ => SmolStr::default(),
            };
            values.insert(value);
            match self.take() {
                (Token::Close, _) => return Ok(values),
                (Token::Comma, _) => {}
                (found, at) => return Err(expected("a comma or \")\"", found, at)),
            }
        }
    }
}

fn expected(what: &str, found: Token<'_>, at: usize) -> SelectorProblem {
    let found = match found {
        Token::Word(word) => format!("{:?}", shortened(word, MAX_QUOTED)),
        Token::Not => "\"!\"".into(),
        Token::Equals => "\"=\"".into(),
        Token::NotEquals => "\"!=\"".into(),
        Token::Greater => "\">\"".into(),
        Token::Less => "\"<\"".into(),
        Token::Open => "\"(\"".into(),
        Token::Close => "\")\"".into(),
        Token::Comma => "a comma".into(),
        Token::End => "the end".into(),
    };
    SelectorProblem { at, problem: format!("expected {what}, found {found}") }
}

fn checked(text: &str, at: usize, problem: impl Fn(&str) -> Option<&'static str>) -> Result<SmolStr, SelectorProblem> {
    match problem(text) {
        None => Ok(text.into()),
        Some(problem) => Err(SelectorProblem { at, problem: format!("{:?} {problem}", shortened(text, MAX_QUOTED)) }),
    }
}

/// Returns the problem of a label key (`[prefix/]name`), if any.
fn label_key_problem(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.contains('/') {
        return Some("is not a label key: it has more than one slash");
    }
    if !is_name(name) {
        return Some(
            "is not a label key: a name is 1 to 63 characters out of A-Z, a-z, 0-9, '-', '_' and '.', the first and the \
             last a letter or a digit",
        );
    }
    let is_prefix = |p: &str| p.len() <= MAX_PREFIX && p.split('.').all(is_dns_label);
    if prefix.is_some_and(|p| !is_prefix(p)) {
        return Some("is not a label key: the prefix must be a lowercase DNS name such as \"example.com\"");
    }
    None
}

/// Returns the problem of a label value, if any.
fn label_value_problem(value: &str) -> Option<&'static str> {
    let right = value.is_empty() || is_name(value);
    (!right).then_some(
        "is not a label value: at most 63 characters out of A-Z, a-z, 0-9, '-', '_' and '.', the first and the last a \
         letter or a digit",
    )
}

fn is_name(text: &str) -> bool {
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= MAX_NAME
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Returns whether a text is valid between the dots of a lowercase DNS name. Like apimachinery, does not limit its
/// length.
fn is_dns_label(part: &str) -> bool {
    let legal = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(legal) && bytes.last().is_some_and(legal) && bytes.iter().all(|b| legal(b) || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_error_has_its_position() {
        let long = "x".repeat(64);
        for (text, at, problem) in [
            (",", 0, "expected a label key, found a comma"),
            ("a,", 2, "expected a label key, found the end"),
            ("a,,b", 2, "expected a label key, found a comma"),
            ("a b", 2, "expected one of = == != in notin > <, found \"b\""),
            ("a=b c", 4, "expected a comma or the end, found \"c\""),
            ("!a=b", 2, "expected a comma or the end, found \"=\""),
            ("!!a", 1, "expected a label key, found \"!\""),
            ("a=!b", 2, "expected a value, found \"!\""),
            ("a=(b)", 2, "expected a value, found \"(\""),
            ("a in b", 5, "expected \"(\", found \"b\""),
            ("a in (b", 7, "expected a comma or \")\", found the end"),
            ("a in (b c)", 8, "expected a comma or \")\", found \"c\""),
            ("a in (b))", 8, "expected a comma or the end, found \")\""),
            ("a>b", 2, "\"b\" is not an integer"),
            ("a>", 2, "\"\" is not an integer"),
            ("-a", 0, "\"-a\" is not a label key: a name is 1 to 63"),
            ("x=y,a/b/c", 4, "\"a/b/c\" is not a label key: it has more than one slash"),
            ("A.io/b", 0, "\"A.io/b\" is not a label key: the prefix must be"),
            ("/b", 0, "\"/b\" is not a label key: the prefix must be"),
            ("a/", 0, "\"a/\" is not a label key: a name is"),
            ("a=é", 2, "\"é\" is not a label value"),
            ("a=-b", 2, "\"-b\" is not a label value"),
            (&format!("a={long}"), 2, "is not a label value: at most 63"),
            (&long, 0, "is not a label key: a name is 1 to 63"),
        ] {
            let error = text.parse::<LabelSelector>().expect_err(text);
            assert_eq!(error.at, at, "{error}");
            assert!(error.problem.contains(problem), "{error}\nwanted: {problem}");
        }
    }

    #[test]
    fn names_of_maximum_length_are_accepted() {
        let name = "x".repeat(63);
        let prefix = format!("{}.io", "y".repeat(250));
        assert!(format!("{prefix}/{name}={name}").parse::<LabelSelector>().is_ok());
        assert!(format!("y{prefix}/{name}").parse::<LabelSelector>().is_err());
    }
}
