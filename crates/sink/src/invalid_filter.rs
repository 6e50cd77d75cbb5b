//! Error of a filter that does not compile.

/// Compile error of a filter expression, to be fixed by its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot compile filter: line {line}, column {column}: {problem}")]
#[non_exhaustive]
pub struct InvalidFilter {
    /// Description of the error.
    pub problem: String,
    /// Line of the error, from 1.
    pub line: usize,
    /// Column of the error, from 1.
    pub column: usize,
}
