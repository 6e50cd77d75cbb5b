//! Errors: invalid query texts, with position, suggestion and an excerpt; and invalid expressions that were built in
//! Rust.

use std::fmt;

use smol_str::SmolStr;

use informer_hub_types::{nearest_name, position_of, printable_char};

/// Error for a text that is not a valid query. The author of the text can fix it.
///
/// Displays as one line; [`Self::annotated`] adds an excerpt with a mark below the position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (at position {})", position_of(text, *at))]
#[non_exhaustive]
pub struct InvalidQuestion {
    /// The query text; only its start if the text is too long.
    pub text: String,
    /// Byte offset in `text` at which the problem was found.
    pub at: usize,
    /// Kind of the problem.
    pub problem: ParseProblem,
}

/// The ways in which a query text can be invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseProblem {
    /// An unexpected token.
    #[error("expected {expected}, found {found}{}", did_you_mean(*.suggestion))]
    Unexpected {
        /// The expected token.
        expected: &'static str,
        /// The token found.
        found: SmolStr,
        /// Keyword for "did you mean": spelled nearly like `found`. `None` if no keyword is.
        suggestion: Option<&'static str>,
    },
    /// The text is too long.
    #[error("the query is longer than {max} bytes")]
    TooLong {
        /// Limit in bytes.
        max: usize,
    },
    /// Parentheses and `not` are nested too deep.
    #[error("parentheses and `not` are nested more than {max} levels deep")]
    TooDeep {
        /// Maximum nesting depth.
        max: usize,
    },
    /// The text has too many conditions.
    #[error("the query has more than {max} conditions")]
    TooManyTerms {
        /// Largest number of conditions.
        max: usize,
    },
    /// A quoted text is not closed.
    #[error("the quote is not closed")]
    OpenQuote,
    /// A parenthesis is not closed.
    #[error("the parenthesis is not closed")]
    OpenParenthesis,
    /// An invalid escape sequence in a quoted text.
    #[error(r#"invalid escape sequence (allowed: \\ \" \' \n \r \t)"#)]
    Escape,
    /// An invalid field path, with the reason.
    #[error("not a path: {0}")]
    Path(&'static str),
    /// An invalid label selector, with the reason.
    #[error("not a label selector: {0}")]
    Selector(String),
    /// An invalid cluster name, with the rule that it breaks.
    #[error("not a cluster's name: {0}")]
    Cluster(&'static str),
    /// A cluster label given twice.
    #[error("the label {0:?} is given twice")]
    LabelTwice(SmolStr),
    /// A clause, such as `limit`, is given twice.
    #[error("{0} is given twice")]
    ClauseTwice(&'static str),
    /// An invalid quantity.
    #[error("not a quantity: write it as Kubernetes does, e.g. \"500m\" or \"2Gi\"")]
    Quantity,
    /// An unquoted value that starts like a number but cannot be compared by size.
    #[error(
        "{0:?} is neither a number nor a quantity such as 500m or 2Gi, nor a time; put it in quotes to compare it as a text"
    )]
    Size(SmolStr),
    /// A number that is too large to compare.
    #[error("a number this large cannot be compared; put it in quotes to compare it as a text")]
    Number,
    /// `null` used as a value.
    #[error(
        "null is not a value: write \"not exists\" to match a missing field, or put it in quotes for the text null"
    )]
    Null,
    /// The number after `limit` is not a whole number of at least 1.
    #[error("a limit is a whole number, 1 or more")]
    Limit,
}

fn did_you_mean(word: Option<&str>) -> String {
    word.map_or_else(String::new, |word| format!("; did you mean {word:?}?"))
}

/// Maximum number of characters that an excerpt shows on each side of the error's position.
const AROUND: usize = 60;

impl InvalidQuestion {
    /// Returns the error's position as messages show it: the number of the character, counted from 1.
    #[must_use]
    pub fn position(&self) -> usize {
        position_of(&self.text, self.at)
    }

    /// Returns a display of the message with an excerpt of the affected line, and a mark below the position.
    #[must_use]
    pub fn annotated(&self) -> Annotated<'_> {
        Annotated(self)
    }
}

/// Display of an error with an excerpt; see [`InvalidQuestion::annotated`].
#[derive(Debug)]
pub struct Annotated<'e>(&'e InvalidQuestion);

impl fmt::Display for Annotated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidQuestion { text, at, .. } = self.0;
        let (before, after) = text.split_at(boundary(text, *at));
        let is_break = |c: char| matches!(c, '\n' | '\r');
        let before = before.rsplit(is_break).next().unwrap_or_default();
        let after = after.split(is_break).next().unwrap_or_default();
        let skipped = before.chars().count().saturating_sub(AROUND);
        let shown: String = before.chars().skip(skipped).map(printable_char).collect();
        let rest: String = after.chars().take(AROUND).map(printable_char).collect();
        let start = if skipped > 0 { "…" } else { "" };
        let end = if after.chars().count() > AROUND { "…" } else { "" };
        let indent = shown.chars().count() + start.chars().count();
        writeln!(f, "{}", self.0)?;
        writeln!(f, "  {start}{shown}{rest}{end}")?;
        write!(f, "  {:indent$}^", "")
    }
}

/// Largest number of conditions and connectives (`and`, `or`, `not`) in an expression.
pub(super) const MAX_TERMS: usize = 4_000;
/// Deepest nesting of `and`, `or` and `not` in an expression.
pub(super) const MAX_DEPTH: usize = 256;

/// Error for an expression that cannot be evaluated. Only expressions built in Rust cause it, since parsed ones are
/// valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidExpr {
    /// The expression has more conditions and connectives than [`Matcher::MAX_TERMS`](super::Matcher::MAX_TERMS).
    #[error("the condition has more than {MAX_TERMS} terms")]
    TooManyTerms,
    /// `and`, `or` and `not` nested deeper than [`Matcher::MAX_DEPTH`](super::Matcher::MAX_DEPTH).
    #[error("the condition is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// An invalid quantity.
    #[error("{text:?} is not a quantity: write it as Kubernetes does, e.g. \"500m\" or \"2Gi\"")]
    Quantity {
        /// The text of the quantity.
        text: SmolStr,
    },
}

/// Returns the last byte offset at or before `at` that is a character boundary of `text`.
pub(super) fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Returns the word of `known` that is spelled most like `text`; `None` if more than two edits differ.
pub(super) fn nearest(text: &str, known: &[&'static str]) -> Option<&'static str> {
    nearest_name(text, known.iter().copied(), 2)
}
