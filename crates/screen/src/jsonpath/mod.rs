//! JSONPath templates as in kubectl: `{range .items[*]}{.metadata.name}{"\n"}{end}`.
//!
//! Paths have fields (`.a`, `['a.b']`, `.a\.b`), elements (`[0]`, `[-1]`, `[0,2]`, `[1:3]`), `[*]` and `.*`, descent
//! (`..a`) and filters (`[?(@.a=="b")]`, with `==`, `!=`, `<`, `<=`, `>`, `>=` or no operator). `$` is the whole
//! document, `@` the current value. A missing value prints nothing.
//!
//! # Bounds
//!
//! Limits apply to the length of a template, its nesting, and the number of values that a path selects, so that no
//! template exhausts time or memory.

mod eval;
mod parse;
#[cfg(test)]
mod tests;

use std::str::FromStr;

use serde_json::Value;

pub use self::eval::TooManyValues;

/// A parsed template.
#[derive(Clone, PartialEq, Debug)]
pub struct Template {
    nodes: Vec<Node>,
}

/// Error for a text that is not a valid template.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{problem} at position {at}")]
pub struct InvalidTemplate {
    /// Number, from 1, of the character at which the problem is.
    pub at: usize,
    /// Description of the problem.
    pub problem: String,
}

#[derive(Clone, PartialEq, Debug)]
enum Node {
    Text(String),
    Path(Path),
    Range(Path, Vec<Node>),
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Path {
    /// Whether the path begins at the document (`$`), not at the current value.
    from_root: bool,
    steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Debug)]
enum Step {
    Fields(Vec<String>),
    Each,
    Elements(Vec<i64>),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: usize,
    },
    /// The current value and all values below it.
    Descend,
    Filter(Box<Filter>),
}

#[derive(Clone, PartialEq, Debug)]
struct Filter {
    left: Operand,
    /// Comparison, and the operand with which `left` is compared; `None` tests whether `left` selects anything.
    test: Option<(Comparison, Operand)>,
}

#[derive(Clone, PartialEq, Debug)]
enum Operand {
    Path(Path),
    Literal(Value),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Template {
    /// Parses one path, with or without braces and leading dot, as kubectl's `--sort-by` does.
    ///
    /// # Errors
    /// If the text is not a path.
    pub fn path(text: &str) -> Result<Self, InvalidTemplate> {
        let bare = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
        let dot = if bare.starts_with(['.', '$', '@', '[']) { "" } else { "." };
        // The position of an error is that in the caller's text.
        let (added, removed) = (1 + dot.len(), usize::from(bare.len() < text.len()));
        let in_text =
            |error: InvalidTemplate| InvalidTemplate { at: (error.at + removed).saturating_sub(added).max(1), ..error };
        let template: Self = format!("{{{dot}{bare}}}").parse().map_err(in_text)?;
        match &template.nodes[..] {
            [Node::Path(_)] => Ok(template),
            _ => Err(InvalidTemplate { at: 1, problem: "expected one path".to_owned() }),
        }
    }

    /// Returns the template for one item of a list, so that a list can be printed item by item: the part between
    /// `{range .items[*]}` and `{end}`. Returns `None` if the template has anything besides this range, or if the part
    /// refers to the whole list (`$`).
    #[must_use]
    pub fn of_items(&self) -> Option<Self> {
        let [Node::Range(path, body)] = &self.nodes[..] else { return None };
        let items = [Step::Fields(vec!["items".to_owned()]), Step::Each];
        (path.steps == items && !uses_root(body)).then(|| Self { nodes: body.clone() })
    }

    /// Appends the template's text for a document.
    ///
    /// # Errors
    /// If a path selects more values than the limit.
    pub fn render(&self, document: &Value, out: &mut String) -> Result<(), TooManyValues> {
        eval::render(&self.nodes, document, document, out)
    }

    /// Returns the first value that a template of one path selects; `None` for any other template, or if the path
    /// selects nothing.
    #[must_use]
    pub fn first<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        let [Node::Path(path)] = &self.nodes[..] else { return None };
        eval::select(path, document, document).ok()?.first().copied()
    }
}

impl FromStr for Template {
    type Err = InvalidTemplate;

    fn from_str(text: &str) -> Result<Self, InvalidTemplate> {
        parse::template(text).map(|nodes| Self { nodes })
    }
}

/// Returns whether any path begins at the document (`$`).
fn uses_root(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match node {
        Node::Text(_) => false,
        Node::Path(path) => path.uses_root(),
        Node::Range(path, body) => path.uses_root() || uses_root(body),
    })
}

impl Path {
    fn uses_root(&self) -> bool {
        let of_operand = |operand: &Operand| matches!(operand, Operand::Path(path) if path.uses_root());
        let of_filter = |filter: &Filter| {
            of_operand(&filter.left) || filter.test.as_ref().is_some_and(|(_, right)| of_operand(right))
        };
        let of_step = |step: &Step| matches!(step, Step::Filter(filter) if of_filter(filter));
        self.from_root || self.steps.iter().any(of_step)
    }
}
