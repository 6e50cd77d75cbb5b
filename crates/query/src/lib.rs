//! The query language: expressions, their text form, and their evaluation on objects.
//!
//! A [`Question`] and its [`Expr`] are built in Rust or parsed from text; both forms are equivalent. This crate does
//! not know how objects are stored: the query engine (`cache::query`) chooses an index, and the objects to decompress.
//!
//! A [`Matcher`] is an expression prepared for evaluation. It reads an object's [`Head`] first, and the object's bytes
//! only if the head does not decide. [`Columns`] reads the values to show, count or sort by in the same way.
//! [`SortKey`] orders them.

#[cfg(any(test, feature = "testing"))]
pub mod arbitrary;
mod build;
mod columns;
mod decimal;
mod display;
mod error;
mod expr;
mod extract;
mod head;
mod lex;
mod matcher;
mod order;
mod parse;
mod prepared;
mod question;
mod terms;
#[cfg(test)]
mod tests;
mod trie;
mod walk;
mod words;

pub use columns::Columns;
pub use error::{Annotated, InvalidExpr, InvalidQuestion, ParseProblem};
pub use expr::{Expr, Literal, Test, TextTest};
pub use extract::{Extractor, Values};
pub use head::Head;
pub use matcher::Matcher;
pub use order::SortKey;
pub use question::{Column, Direction, Output, Question};
pub use walk::Unreadable;
