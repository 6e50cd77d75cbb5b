//! Texts for syntax errors in filters: position, found token, and a suggestion.
//!
//! The generated parser reports raw token sets (`mismatched input '<EOF>' expecting {'[', '{', …}`). Only its position
//! and the expected token are used; its text is never shown.

use super::InvalidFilter;

/// Maximum number of characters that an error quotes from the expression.
const QUOTED: usize = 24;
/// Description of an operand, for messages.
const VALUE: &str = "a value such as object.metadata.name, 'text' or 3";
/// Operators of other languages and their CEL equivalents.
const WORDS: [(&str, &str); 5] = [("and", "&&"), ("or", "||"), ("not", "!"), ("is", "=="), ("eq", "==")];

/// Returns the error to show for the parser's `message`. `line` and `column` count from 1; a position beyond the text
/// counts as the end of the text.
pub(super) fn explain(text: &str, message: &str, line: usize, column: usize) -> InvalidFilter {
    let source = Source::of(text);
    let at = if text.trim().is_empty() { 0 } else { source.offset(line, column) };
    let (line, column) = source.position(at);
    InvalidFilter { problem: source.problem(message, at), line, column }
}

/// Opening bracket and its position.
type Open = (char, usize);

struct Source {
    text: Vec<char>,
}

impl Source {
    fn of(text: &str) -> Self {
        Self { text: text.chars().collect() }
    }

    fn problem(&self, message: &str, at: usize) -> String {
        if self.text.iter().all(|c| c.is_whitespace()) {
            return "expression is empty; write a condition such as object.status.phase == 'Failed'".to_owned();
        }
        if let Some(reserved) = message.strip_prefix("reserved identifier: ") {
            return format!("{reserved} is a reserved word; as the key of a map write object['{reserved}']");
        }
        if message.starts_with("unsupported syntax") {
            return format!("found {}, optional fields and names in ` are not supported; write has(…)", self.found(at));
        }
        if message.starts_with("argument must be a simple name") {
            return "the first argument of exists, all, map and filter must be a name, as in list.exists(item, item == 1)"
                .to_owned();
        }
        if message.starts_with("invalid argument to has()") {
            return "has() takes a field, as in has(object.metadata.labels)".to_owned();
        }
        let before = self.before(at);
        self.misspelt(message, at, before).unwrap_or_else(|| self.misplaced(message, at, before))
    }

    /// Describes an operator of another language, or a character that is not part of CEL; `None` for other tokens.
    fn misspelt(&self, message: &str, at: usize, before: Before) -> Option<String> {
        let word = self.word(at);
        if let Some((word, right)) = WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known)) {
            return (before == Before::Value).then(|| format!("found {word:?}; write {right}"));
        }
        if before == Before::Value && self.word_before(at).eq_ignore_ascii_case("not") {
            return Some("found \"not\" before a value; write !".to_owned());
        }
        let c = self.text.get(at).copied()?;
        if c == '>' && at.checked_sub(1).and_then(|at| self.text.get(at)) == Some(&'<') {
            return Some("found \"<>\"; write != for a difference".to_owned());
        }
        let is_no_token = message.contains("token recognition");
        is_no_token.then(|| match c {
            '=' => "found \"=\"; write == to compare".to_owned(),
            '&' => "found \"&\"; write &&".to_owned(),
            '|' => "found \"|\"; write ||".to_owned(),
            quote @ ('"' | '\'') => self.broken_text(quote, at),
            _ => format!("found {}, which is no part of CEL; remove it", self.found(at)),
        })
    }

    /// Describes a string without a closing quote, or with an invalid escape.
    fn broken_text(&self, quote: char, at: usize) -> String {
        let rest = self.text.get(at + 1..).unwrap_or_default();
        let line: Vec<char> = rest.iter().copied().take_while(|c| *c != '\n').collect();
        let escape = line.iter().position(|c| *c == '\\');
        match (line.contains(&quote), escape) {
            (true, Some(escape)) => {
                let escape: String = line.iter().skip(escape).take(2).collect();
                format!("found {escape:?} in a text, which is no escape; write \\\\ for a backslash")
            }
            _ => format!("the text that begins here has no closing {quote}"),
        }
    }

    /// Describes a valid token at a place where CEL does not allow it.
    fn misplaced(&self, message: &str, at: usize, before: Before) -> String {
        let (found, open) = (self.found(at), self.open(at));
        let closing = |open: char| match open {
            '(' => ')',
            '[' => ']',
            _ => '}',
        };
        let place = |at: usize| {
            let (line, column) = self.position(at);
            format!("line {line}, column {column}")
        };
        let c = self.text.get(at).copied();
        if let Some(c @ (')' | ']' | '}')) = c {
            match open {
                None => return format!("found {found}, which closes nothing; remove it, or open it before"),
                Some((begun, from)) if closing(begun) != c => {
                    let (right, from) = (closing(begun), place(from));
                    return format!("found {found} where the {begun:?} of {from} is still open; write {right:?}");
                }
                Some(_) => {}
            }
        }
        match before {
            Before::Dot => format!("expected the name of a field after the dot, found {found}"),
            Before::Value if expects_colon(message) => format!("expected ':', found {found}"),
            Before::Value => match open {
                Some((begun, from)) if c.is_none() => {
                    let (right, from) = (closing(begun), place(from));
                    format!("found {found} where the {begun:?} of {from} is still open; write {right:?}")
                }
                _ => format!("expected an operator such as && or ==, found {found}"),
            },
            Before::Nothing => format!("expected {VALUE}, found {found}"),
        }
    }

    /// Quotes the token at a position.
    fn found(&self, at: usize) -> String {
        let Some(first) = self.text.get(at).copied() else { return "the end of the expression".to_owned() };
        let word = self.word(at);
        let run: String = match first {
            '"' | '\'' => {
                let rest = self.text.iter().skip(at + 1);
                std::iter::once(first).chain(rest.copied().take_while(|c| *c != first)).chain([first]).collect()
            }
            _ if word.is_empty() => first.to_string(),
            _ => word,
        };
        let shown: String = run.chars().take(QUOTED).collect();
        let more = if run.chars().count() > QUOTED { "…" } else { "" };
        // `{:?}` escapes control characters.
        format!("{shown:?}{more}")
    }

    /// Returns the word that starts at a position; empty if there is none.
    fn word(&self, at: usize) -> String {
        self.text.iter().skip(at).take_while(|c| is_of_word(**c)).collect()
    }

    /// Returns the word that ends before a position; empty if there is none.
    fn word_before(&self, at: usize) -> String {
        let is_blank = |at: &usize| self.text.get(*at).is_some_and(|c| c.is_whitespace());
        let is_word = |at: &usize| self.text.get(*at).is_some_and(|c| is_of_word(*c));
        let start = (0..at).rev().skip_while(is_blank).take_while(is_word).last();
        start.map(|start| self.word(start)).unwrap_or_default()
    }

    /// Classifies the token before a position.
    fn before(&self, at: usize) -> Before {
        let last = self.code().take_while(|(place, _)| *place < at).filter(|(_, c)| !c.is_whitespace()).last();
        match last {
            Some((_, '.')) => Before::Dot,
            // The operator `in` is a word, but a value must follow it.
            Some((_, c)) if is_of_word(c) && self.word_before(at) == "in" => Before::Nothing,
            Some((_, c)) if is_of_word(c) => Before::Value,
            Some((_, ')' | ']' | '}' | '"' | '\'' | '`')) => Before::Value,
            _ => Before::Nothing,
        }
    }

    /// Returns the innermost bracket that is open at a position; `None` if all are closed.
    fn open(&self, at: usize) -> Option<Open> {
        let mut open = Vec::new();
        for (place, c) in self.code().take_while(|(place, _)| *place < at) {
            match c {
                '(' | '[' | '{' => open.push((c, place)),
                ')' | ']' | '}' => drop(open.pop()),
                _ => {}
            }
        }
        open.pop()
    }

    /// Iterates over the characters outside strings and comments, and the quotes of strings.
    fn code(&self) -> impl Iterator<Item = (usize, char)> + '_ {
        let (mut quote, mut comment, mut escaped) = (None, false, false);
        self.text.iter().copied().enumerate().filter(move |(at, c)| match quote {
            _ if comment => {
                comment = *c != '\n';
                false
            }
            Some(_) if std::mem::take(&mut escaped) => false,
            Some(end) => {
                escaped = *c == '\\';
                if *c == end {
                    quote = None;
                }
                *c == end
            }
            None => {
                comment = *c == '/' && self.text.get(at + 1) == Some(&'/');
                quote = matches!(c, '"' | '\'').then_some(*c);
                !comment
            }
        })
    }

    /// Converts a line and a column to a position in characters, at most the end of the text.
    fn offset(&self, line: usize, column: usize) -> usize {
        let breaks = self.text.iter().enumerate().filter(|(_, c)| **c == '\n').map(|(at, _)| at + 1);
        let start = std::iter::once(0).chain(breaks).nth(line.saturating_sub(1)).unwrap_or(self.text.len());
        (start + column.saturating_sub(1)).min(self.text.len())
    }

    /// Converts a position in characters to line and column, both counted in characters from 1.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..at.min(self.text.len())];
        let line = before.iter().filter(|c| **c == '\n').count() + 1;
        let column = before.iter().rev().take_while(|c| **c != '\n').count() + 1;
        (line, column)
    }
}

/// Kind of the token before an error, which decides what may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The end of an operand: an operator may follow.
    Value,
    /// The dot before a field's name.
    Dot,
    /// An operator, an opening bracket, or the start of the expression: a value must follow.
    Nothing,
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns whether the parser's message expects a colon and no operand.
fn expects_colon(message: &str) -> bool {
    message.contains("':'") && !message.contains("'('")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Filter, InvalidFilter, MAX_LENGTH};
    use informer_hub_testing::properties;

    fn mistake(text: &str) -> InvalidFilter {
        Filter::compile(text).expect_err(text)
    }

    #[test]
    fn syntax_error_names_the_token_and_a_correction() {
        let end = "expected a value such as object.metadata.name, 'text' or 3, found the end of the expression";
        for (text, line, column, problem) in [
            ("object.status.phase ==", 1, 23, end),
            ("object.status.phase ==\n 'Failed' &&", 2, 13, end),
            ("object.status.phase = 'Failed'", 1, 21, "found \"=\"; write == to compare"),
            ("event.initial and true", 1, 15, "found \"and\"; write &&"),
            ("event.initial OR true", 1, 15, "found \"or\"; write ||"),
            ("not event.initial", 1, 5, "found \"not\" before a value; write !"),
            ("event.initial & true", 1, 15, "found \"&\"; write &&"),
            ("event.type <> 'added'", 1, 13, "found \"<>\"; write != for a difference"),
            ("event.type == 'added", 1, 15, "the text that begins here has no closing '"),
            (
                "event.type == 'a\\d'",
                1,
                15,
                "found \"\\\\d\" in a text, which is no escape; write \\\\ for a backslash",
            ),
            (
                "has(object.spec",
                1,
                16,
                "found the end of the expression where the '(' of line 1, column 4 is still open; write ')'",
            ),
            ("[1, 2) == [1]", 1, 6, "found \")\" where the '[' of line 1, column 1 is still open; write ']'"),
            ("event.initial)", 1, 14, "found \")\", which closes nothing; remove it, or open it before"),
            ("object. == 1", 1, 9, "expected the name of a field after the dot, found \"=\""),
            ("event.initial ? true", 1, 21, "expected ':', found the end of the expression"),
            ("event.type 'added'", 1, 12, "expected an operator such as && or ==, found \"'added'\""),
            ("event.type == 'a' ;", 1, 19, "found \";\", which is no part of CEL; remove it"),
            ("object.if == 1 && if", 1, 19, "if is a reserved word; as the key of a map write object['if']"),
            (" ", 1, 1, "expression is empty; write a condition such as object.status.phase == 'Failed'"),
        ] {
            let found = mistake(text);
            assert_eq!((found.line, found.column, found.problem.as_str()), (line, column, problem), "{text}");
        }
        let text = mistake("true &&").to_string();
        assert_eq!(text, format!("cannot compile filter: line 1, column 8: {end}"));
        assert!(mistake(&"a".repeat(MAX_LENGTH + 1)).problem.ends_with("at most 4096 are allowed"));
    }

    /// Words of the generated parser and lexer that must not be shown.
    const RAW: [&str; 14] = [
        "expecting",
        "mismatched",
        "extraneous",
        "viable",
        "recognition",
        "<eof>",
        "identifier",
        "num_",
        "cel_",
        "rparen",
        "context",
        "syntax error",
        "unknown`",
        "recursion limit",
    ];

    const TOKENS: [&str; 44] = [
        "object", "a", "'x'", "\"y\"", "1", "2u", "1.5", "true", "null", "b'z'", "(", ")", "[", "]", "{", "}", ".",
        ",", ":", "?", "!", "-", "+", "*", "/", "%", "<", "<=", "==", "!=", "&&", "||", "in", "=", "&", "|", "'", "\"",
        "\\", "@", "`", "\n", "// c", "has(",
    ];

    proptest! {
        #![proptest_config(properties(192))]

        #[test]
        fn parser_token_sets_are_never_shown(
            parts in prop::collection::vec((prop::sample::select(&TOKENS[..]), any::<bool>()), 0..12),
        ) {
            let words = parts.iter().flat_map(|(token, blank)| [*token, if *blank { " " } else { "" }]);
            let text: String = words.collect();
            if let Err(mistake) = Filter::compile(&text) {
                let shown = mistake.to_string().to_lowercase();
                let raw = RAW.iter().find(|raw| shown.contains(*raw));
                prop_assert!(raw.is_none(), "{raw:?} in {shown:?} of {text:?}");
                let line = text.split('\n').nth(mistake.line - 1);
                let room = line.map(|line| line.chars().count() + 1);
                prop_assert!(room.is_some_and(|room| (1..=room).contains(&mistake.column)), "{mistake:?} of {text:?}");
            }
        }
    }
}
