//! What is wrong with a text that should be a question, where, and what would be right.

use std::fmt;

use smol_str::SmolStr;

use informer_hub_types::{nearest_name, printable_char};

/// A text that is not a question; whoever wrote it is at fault.
///
/// Displays as one line; [`Self::picture`] adds the place in the text with a mark below it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at position {at}")]
pub struct InvalidQuestion {
    /// The text that was given; of one that is too long, the beginning.
    pub text: String,
    /// Byte offset of the mistake.
    pub at: usize,
    /// What is wrong there.
    pub problem: Mistake,
}

/// The ways in which a text can fail to be a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mistake {
    /// Something else should stand here.
    #[error("expected {expected}, found {found}{}", suggestion(*.meant))]
    Unexpected {
        /// What would be right.
        expected: &'static str,
        /// What stands here.
        found: SmolStr,
        /// The word of the language that is written nearly the same.
        meant: Option<&'static str>,
    },
    /// The text is longer than any question.
    #[error("a question is at most {max} bytes long, this one is cut off")]
    TooLong {
        /// The bound.
        max: usize,
    },
    /// Parentheses and `not` inside each other.
    #[error("parentheses and not are nested more than {max} deep")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// Too many conditions.
    #[error("more than {max} conditions")]
    TooManyTerms {
        /// The bound.
        max: usize,
    },
    /// A quoted text has no end.
    #[error("the quote is not closed")]
    OpenQuote,
    /// A parenthesis has no end.
    #[error("the parenthesis is not closed")]
    OpenParenthesis,
    /// A backslash in a quoted text.
    #[error(r#"a backslash stands before one of \ " ' n r t only"#)]
    Escape,
    /// A path is wrong.
    #[error("not a path: {0}")]
    Path(&'static str),
    /// A label selector is wrong.
    #[error("not a label selector: {0}")]
    Selector(String),
    /// A cluster cannot have this name.
    #[error("not a cluster's name: {0}")]
    Cluster(&'static str),
    /// A cluster is asked to have two values of one label.
    #[error("the label {0:?} is given twice")]
    LabelTwice(SmolStr),
    /// A clause stands in the text twice.
    #[error("{0} is given twice")]
    ClauseTwice(&'static str),
    /// A quantity is wrong.
    #[error("not a quantity: write it as Kubernetes does, e.g. \"500m\" or \"2Gi\"")]
    Quantity,
    /// A number that is too large to be one.
    #[error("a number this large cannot be compared; put it in quotes to compare it as a text")]
    Number,
    /// `null` as a value.
    #[error("null is not a value: write \"not exists\" for what is not there, or put it in quotes as a text")]
    Null,
    /// A limit that is none.
    #[error("a limit is a whole number, 1 or more")]
    Limit,
}

fn suggestion(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"))
}

/// Characters of the text on either side of a mark.
const AROUND: usize = 60;

impl InvalidQuestion {
    /// The message, the line of the text that it is about (of a long one, what is near), and a mark below the mistake.
    #[must_use]
    pub fn picture(&self) -> Picture<'_> {
        Picture(self)
    }
}

/// See [`InvalidQuestion::picture`].
#[derive(Debug)]
pub struct Picture<'e>(&'e InvalidQuestion);

impl fmt::Display for Picture<'_> {
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

/// The last place up to `at` where a text can be cut.
pub(super) fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// The word that was meant, by what was written.
pub(super) fn nearest(text: &str, known: &[&'static str]) -> Option<&'static str> {
    nearest_name(text, known.iter().copied(), 2)
}
