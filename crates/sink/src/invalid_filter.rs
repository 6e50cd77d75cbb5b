//! The error of a filter that cannot be compiled.

/// An expression that is not to be used; its author can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("filter is not usable: line {line}, column {column}: {problem}")]
pub struct InvalidFilter {
    /// What is wrong.
    pub problem: String,
    /// Line of the mistake, from 1.
    pub line: usize,
    /// Column of the mistake, from 1.
    pub column: usize,
}
