//! JSONPath as kube-apiserver evaluates it for the columns of custom resources.
//!
//! Paths are evaluated on the bytes of the JSON. Of a large object, only the members on the path are decoded.

mod eval;
mod parse;
mod print;

pub(super) use eval::PathValue;

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Path {
    steps: Vec<Step>,
}

/// Step of a path, applied to each value that the previous steps selected.
#[derive(Clone, PartialEq, Debug)]
enum Step {
    /// Member of an object.
    Field(String),
    /// All members of an object, or all elements of an array.
    Wildcard,
    /// Range of elements of an array, or a single element.
    Slice(Slice),
    /// Elements of an array that satisfy a condition.
    Filter(Filter),
    /// A value and all objects and arrays below it (`..`), except empty objects and arrays.
    Descendants,
    /// Values of several paths (`[a,b]`).
    Union(Vec<Vec<Step>>),
    /// A literal.
    Constant(Constant),
    /// A word without a dot before it, which cannot be evaluated.
    Identifier,
}

#[derive(Clone, PartialEq, Debug)]
enum Constant {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
}

/// Range of elements (`[start:end:step]`). Negative positions count from the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slice {
    start: i64,
    /// Position behind the last element; `None` for the end of the array.
    end: Option<i64>,
    /// Whether the brackets hold a single index instead of a range.
    is_index: bool,
    step: Option<i64>,
}

/// Condition on the elements of an array.
#[derive(Clone, PartialEq, Debug)]
struct Filter {
    left: Vec<Step>,
    comparison: Option<Comparison>,
}

#[derive(Clone, PartialEq, Debug)]
struct Comparison {
    operator: Operator,
    right: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Less,
    Greater,
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    Unknown,
}
